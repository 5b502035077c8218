/* SPDX-License-Identifier: Apache-2.0
 * Writes the bias that a table stands for, fp32 [heads][queries][keys], for
 * kernels that know no tables: neighbouring keys then lie side by side, and
 * vectors read them. One work-item per query of a head. */

/* What of the problem does not matter here. */
#define VARIANT 0
#define HEAD_DIM 1
#define MASK 0
#define ADJACENT_KEYS 1
#define HAS_FMA 1
#define BLOCK_KEYS 1
#include "common/problem.cl"

REQUIRE(NQ)

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
expand_table(const forward_args args, BIAS_PARAMETER __global float *to,
             const ulong at)
{
    const size_t index = get_global_id(0);
    const uint row = (uint)(index % NQ);
    const work_tile of_head = {.head = (uint)(index / NQ)};
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const score_bias_view score_bias = score_bias_of(&tensors, &args, of_head);
    to += at + index * NK;
    for (int key = 0; key < NK; key++)
        to[key] = bias_of(&args, &score_bias, (int)row, key);
}
