/* SPDX-License-Identifier: Apache-2.0
 * What kernels of sliding gradients know of rows: numbers of each row and of
 * each block of rows, which sliding_given.cl or sliding_rows_matrix.cl with
 * STATISTICS leaves in the workspace for those behind it, and the power of two
 * that dS is multiplied by.
 *
 * Of each row it leaves (x) its shift, which is added to log2 e times a score
 * before the exponential is taken: minus the logarithm of the row's sum of
 * exponentials, plus P_EXPONENT; -infinity for a row that sees nothing; (y)
 * its delta, the sum of P dP less d_lse; (z) its length, |dO| sqrt(D), which
 * times the largest element of v is no less than any |dP|. (w) is left to the
 * kernel of rows. Of each block of rows it leaves the bounds from which dS is
 * scaled. */
#include "common/problem.cl"
#include "matrix/grad_scale.cl"

/* Among the numbers of a row: the delta that is mended. */
#define ROW_SLIDING_DELTA 1
/* Kernels with wgmma keep minus that times what dP is multiplied by for dK. */
#define ROW_SLIDING_OFFSET 3
/* Among the numbers of a block of rows: the largest |element| of v in its
 * share of the keys, and of its rows the largest length and |d_lse|. */
#define BOUND_NUMBERS 4
#define BOUND_VALUE 0
#define BOUND_LENGTH 1
#define BOUND_D_LSE 2

/* An lse that is so large is rounded up, lest a weight exceed 1. */
#define LARGE_LSE 1024.0f
INLINE float shift_of(float lse)
{
    const float size = fabs(lse);
    const float above = size > LARGE_LSE ? lse + size * 0x1p-21f : lse;
    return lse == -INFINITY ? -INFINITY : FMA(-above, LOG2E, P_EXPONENT);
}

/* Where the numbers of the rows of a head begin, and those of the blocks of
 * rows of all heads of a key head. */
INLINE __global float *row_numbers_of(__global float *workspace,
                                      const backward_args *args, ulong window,
                                      uint head)
{
    const forward_args *forward = &args->forward;
    return workspace + args->workspace +
           ((window - forward->first_window) * forward->heads + head) *
               forward->queries * ROW_NUMBERS;
}
INLINE __global float *bounds_of(__global float *workspace,
                                 const backward_args *args, ulong window,
                                 uint kv_head)
{
    const forward_args *forward = &args->forward;
    return workspace + args->bounds +
           ((window - forward->first_window) * forward->heads +
            kv_head * forward->heads_per_kv_head) *
               args->bound_blocks * BOUND_NUMBERS;
}

/* The largest of what all blocks of rows of a key head have; the same at all
 * of so many work-items. `found`: in local memory, BOUND_NUMBERS, for all of
 * them. */
INLINE float4 largest_bounds(__local uint *found, __global const float *bounds,
                             const backward_args *args, int item, int items)
{
    const uint count = args->bound_blocks * args->forward.heads_per_kv_head;
    float4 largest = (float4)(0.0f);
    if (item < BOUND_NUMBERS)
        found[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = item; i < count; i += items)
        largest = fmax(largest, vload4(i, bounds));
    atomic_max(&found[BOUND_VALUE], as_uint(largest.x));
    atomic_max(&found[BOUND_LENGTH], as_uint(largest.y));
    atomic_max(&found[BOUND_D_LSE], as_uint(largest.z));
    barrier(CLK_LOCAL_MEM_FENCE);
    largest.x = as_float(found[BOUND_VALUE]);
    largest.y = as_float(found[BOUND_LENGTH]);
    largest.z = as_float(found[BOUND_D_LSE]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return largest;
}

/* The power of two for dS = P (dP - delta): |dP| and what delta has of it are
 * at most length times value, which bound a row's. */
INLINE float ds_scale_of(float length, float value, float d_lse)
{
    return RESCALES ? ds_scale_for(2.0f * length * value + fabs(d_lse)) : 1.0f;
}
