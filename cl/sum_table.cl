/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a table of biases: adds up, for each entry and head, the
 * queries and keys that share the entry, always in the same order. */
__kernel __attribute__((reqd_work_group_size(TABLE_ELEMENTS * TABLE_PARTS, 1,
                                             1))) void
sum_table(const table_args args, __global const uint *starts,
          __global const uint *order, __global const float *from,
          __global float *to)
{
    __local float sums[TABLE_PARTS][TABLE_ELEMENTS];
    const uint element_index = (uint)get_local_id(0) % TABLE_ELEMENTS;
    const uint part = (uint)get_local_id(0) / TABLE_ELEMENTS;
    const size_t index =
        get_group_id(0) * (size_t)TABLE_ELEMENTS + element_index;
    const uint entry = (uint)(index % args.entries);
    const uint head = (uint)(index / args.entries);
    if (head < args.heads) {
        const uint end = starts[entry + 1];
        uint i = starts[entry] + part;
        float sum = 0.0f;
        from += args.from + head * args.pairs;
        /* four at once, since each takes its time to come */
        for (; i + 3 * TABLE_PARTS < end; i += 4 * TABLE_PARTS)
            sum += (from[order[i]] + from[order[i + TABLE_PARTS]]) +
                   (from[order[i + 2 * TABLE_PARTS]] +
                    from[order[i + 3 * TABLE_PARTS]]);
        for (; i < end; i += TABLE_PARTS)
            sum += from[order[i]];
        sums[part][element_index] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (head < args.heads && part == 0) {
        float sum = sums[0][element_index];
        for (uint i = 1; i < TABLE_PARTS; i++)
            sum += sums[i][element_index];
        to += plane(&args.to, 0, head) + element(&args.to, entry, 0);
        *to = (args.flags & ARG_ADD_SUMS) != 0 ? *to + sum : sum;
    }
}
