/* SPDX-License-Identifier: Apache-2.0
 * The second stage of sums over windows: adds the partial sums of all splits,
 * always in the same order. */
#include "common/layout.cl"

#define IN_FLIGHT 8 /* at once, since each takes its time to come */

__kernel
    __attribute__((reqd_work_group_size(SUM_ELEMENTS * SUM_PARTS, 1, 1))) void
    sum_partials(const all_sum_args all, __global const float *workspace,
                 __global float *to_0, __global float *to_1,
                 __global float *to_2, __global float *to_3)
{
    __local float sums[SUM_PARTS][SUM_ELEMENTS];
    const uint group = (uint)get_group_id(0);
    sum_args args = all.sum[0];
    __global float *to = to_0;
    if (group >= all.sum[1].first_group) {
        args = all.sum[1];
        to = to_1;
    }
    if (group >= all.sum[2].first_group) {
        args = all.sum[2];
        to = to_2;
    }
    if (group >= all.sum[3].first_group) {
        args = all.sum[3];
        to = to_3;
    }
    const uint element_index = (uint)get_local_id(0) % SUM_ELEMENTS;
    const uint part = (uint)get_local_id(0) / SUM_ELEMENTS;
    const ulong at =
        (ulong)(group - args.first_group) * SUM_ELEMENTS + element_index;
    const ulong plane_size = (ulong)args.rows * args.columns;
    const ulong count = plane_size * args.heads;
    if (at < count) {
        float sum = 0.0f;
        workspace += args.partials + at;
        for (uint split = part; split < args.splits;
             split += IN_FLIGHT * SUM_PARTS) {
            float x[IN_FLIGHT];
            UNROLL_FOR (uint i = 0; i < IN_FLIGHT; i++) {
                const uint s = split + i * SUM_PARTS;
                x[i] = s < args.splits ? workspace[s * count] : 0.0f;
            }
            sum += ((x[0] + x[4]) + (x[1] + x[5])) +
                   ((x[2] + x[6]) + (x[3] + x[7]));
        }
        sums[part][element_index] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (at < count && part == 0) {
        const ulong head = at / plane_size;
        const uint in_plane = (uint)(at % plane_size);
        float sum = sums[0][element_index];
        for (uint i = 1; i < SUM_PARTS; i++)
            sum += sums[i][element_index];
        to += plane(&args.to, 0, (uint)head) +
              element(&args.to, in_plane / args.columns,
                      in_plane % args.columns);
        *to = (args.flags & ARG_ADD_SUMS) != 0 ? *to + sum : sum;
    }
}
