/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a table of biases: adds up, for each entry and head, the
 * queries and keys that share the entry, always in the same order. */
#define IN_FLIGHT 8 /* at once, since each takes its time to come */

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
    const size_t head = index / args.entries;
    if (head < args.heads) {
        const uint end = starts[entry + 1];
        float sum = 0.0f;
        from += args.from + head * args.pairs;
        for (uint first = starts[entry] + part; first < end;
             first += IN_FLIGHT * TABLE_PARTS) {
            uint pair[IN_FLIGHT];
            float x[IN_FLIGHT];
            UNROLL_FOR (uint i = 0; i < IN_FLIGHT; i++)
                pair[i] = order[min(first + i * TABLE_PARTS, end - 1)];
            UNROLL_FOR (uint i = 0; i < IN_FLIGHT; i++)
                x[i] = first + i * TABLE_PARTS < end ? from[pair[i]] : 0.0f;
            sum += ((x[0] + x[4]) + (x[1] + x[5])) +
                   ((x[2] + x[6]) + (x[3] + x[7]));
        }
        sums[part][element_index] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (head < args.heads && part == 0) {
        float sum = sums[0][element_index];
        for (uint i = 1; i < TABLE_PARTS; i++)
            sum += sums[i][element_index];
        to += plane(&args.to, 0, (uint)head) + element(&args.to, entry, 0);
        *to = (args.flags & ARG_ADD_SUMS) != 0 ? *to + sum : sum;
    }
}
