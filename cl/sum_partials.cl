/* SPDX-License-Identifier: Apache-2.0
 * The second stage of sums over windows: adds the partial sums of all slots,
 * always in the same order. One work-item per element. */
__kernel void sum_partials(const sum_args args,
                           __global const float *workspace, __global float *to)
{
    const ulong at = get_global_id(0);
    const ulong plane_size = (ulong)args.rows * args.columns;
    const ulong count = plane_size * args.heads;
    if (at >= count)
        return;
    const ulong head = at / plane_size;
    const uint in_plane = (uint)(at % plane_size);
    float sum = 0.0f;
    for (uint slot = 0; slot < args.slots; slot++)
        sum += workspace[args.partials + slot * count + at];
    to += plane(&args.to, 0, (uint)head) +
          element(&args.to, in_plane / args.columns, in_plane % args.columns);
    *to = (args.flags & ARG_ADD_SUMS) != 0 ? *to + sum : sum;
}
