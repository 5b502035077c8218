/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a table of biases: adds up, for each entry and head, the
 * queries and keys that share the entry, always in the same order. */
__kernel __attribute__((reqd_work_group_size(TABLE_ITEMS, 1, 1))) void
sum_table(const table_args args, __global const uint *starts,
          __global const uint *order, __global const float *from,
          __global float *to)
{
    const size_t index = get_global_id(0);
    if (index >= (size_t)args.heads * args.entries)
        return;
    const uint entry = (uint)(index % args.entries);
    const uint head = (uint)(index / args.entries);
    const uint end = starts[entry + 1];
    uint i = starts[entry];
    float sum = 0.0f;
    from += args.from + head * args.pairs;
    /* four at once, since each takes its time to come */
    for (; i + 4 <= end; i += 4)
        sum += (from[order[i]] + from[order[i + 1]]) +
               (from[order[i + 2]] + from[order[i + 3]]);
    for (; i < end; i++)
        sum += from[order[i]];
    to += plane(&args.to, 0, head) + element(&args.to, entry, 0);
    *to = (args.flags & ARG_ADD_SUMS) != 0 ? *to + sum : sum;
}
