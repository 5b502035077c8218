/* SPDX-License-Identifier: Apache-2.0
 * The second stage of sums over windows: adds the partial sums of all slots,
 * always in the same order. */
__kernel
    __attribute__((reqd_work_group_size(SUM_ELEMENTS * SUM_PARTS, 1, 1))) void
    sum_partials(const sum_args args, __global const float *workspace,
                 __global float *to)
{
    __local float sums[SUM_PARTS][SUM_ELEMENTS];
    const uint element_index = (uint)get_local_id(0) % SUM_ELEMENTS;
    const uint part = (uint)get_local_id(0) / SUM_ELEMENTS;
    const ulong at = (ulong)get_group_id(0) * SUM_ELEMENTS + element_index;
    const ulong plane_size = (ulong)args.rows * args.columns;
    const ulong count = plane_size * args.heads;
    if (at < count) {
        float sum = 0.0f;
        uint slot = part;
        workspace += args.partials + at;
        /* eight at once, since each takes its time to come */
        for (; slot + 7 * SUM_PARTS < args.slots; slot += 8 * SUM_PARTS) {
            __global const float *x = workspace + slot * count;
            const ulong step = SUM_PARTS * count;
            const float8 some =
                (float8)(x[0], x[step], x[2 * step], x[3 * step], x[4 * step],
                         x[5 * step], x[6 * step], x[7 * step]);
            const float4 pairs = some.lo + some.hi;
            sum += (pairs.x + pairs.y) + (pairs.z + pairs.w);
        }
        for (; slot < args.slots; slot += SUM_PARTS)
            sum += workspace[slot * count];
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
