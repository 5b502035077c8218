/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a table of biases: adds up, for each entry and head, what
 * all slots have of the queries and keys that share the entry, always in the
 * same order. */
#define MOST_SLOT_PARTS 16
/* loads at once, since each takes its time to come: pairs x slots */
#define IN_FLIGHT 4

__kernel __attribute__((reqd_work_group_size(TABLE_ITEMS, 1, 1))) void
sum_table(const table_args args, __global const uint *starts,
          __global const uint *order, __global const float *from,
          __global float *to)
{
    __local float sums[TABLE_ITEMS];
    const uint item = (uint)get_local_id(0);
    const uint entry = (uint)get_group_id(0) % args.entries;
    const uint head = (uint)get_group_id(0) / args.entries;
    uint slot_parts = 1; /* work-items that share the slots of a pair */
    while (slot_parts < MOST_SLOT_PARTS && slot_parts < args.slots)
        slot_parts *= 2;
    const uint pair_parts = TABLE_ITEMS / slot_parts;
    const uint slot_part = item % slot_parts;
    const ulong step = args.heads * args.pairs;
    const uint end = starts[entry + 1];
    float sum = 0.0f;
    from += args.from + head * args.pairs;
    for (uint first = starts[entry] + item / slot_parts; first < end;
         first += IN_FLIGHT * pair_parts) {
        uint pair[IN_FLIGHT];
        UNROLL_FOR (uint i = 0; i < IN_FLIGHT; i++)
            pair[i] = order[min(first + i * pair_parts, end - 1)];
        for (uint slot = slot_part; slot < args.slots;
             slot += IN_FLIGHT * slot_parts) {
            float x[IN_FLIGHT][IN_FLIGHT];
            UNROLL_FOR (uint k = 0; k < IN_FLIGHT; k++)
                UNROLL_FOR (uint i = 0; i < IN_FLIGHT; i++) {
                    const uint s = slot + k * slot_parts;
                    x[k][i] = s < args.slots && first + i * pair_parts < end
                                  ? from[s * step + pair[i]]
                                  : 0.0f;
                }
            UNROLL_FOR (uint k = 0; k < IN_FLIGHT; k++)
                sum += (x[k][0] + x[k][1]) + (x[k][2] + x[k][3]);
        }
    }
    sums[item] = sum;
    for (uint half_way = TABLE_ITEMS / 2; half_way > 0; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_way)
            sums[item] += sums[item + half_way];
    }
    if (item == 0) {
        to += plane(&args.to, 0, head) + element(&args.to, entry, 0);
        *to = (args.flags & ARG_ADD_SUMS) != 0 ? *to + sums[0] : sums[0];
    }
}
