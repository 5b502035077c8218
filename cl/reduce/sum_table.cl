/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a table of biases: adds up, for each entry and head, what
 * all splits have of the queries and keys that share the entry, always in the
 * same order: by rising query.
 *
 *   LISTED 1: the host has listed these
 *          0: which they are follows from their distance along each axis */
#include "common/layout.cl"

REQUIRE(LISTED)

#define MOST_SPLIT_PARTS 16
/* loads at once, since each takes its time to come: pairs x splits */
#define IN_FLIGHT 4

#if LISTED
#define LIST_PARAMETERS                                                       \
    __global const uint *starts, __global const uint *order,
#define LIST_PAIRS(args, entry) listed_pairs(starts, order, entry)

typedef struct pair_list {
    uint count;
    __global const uint *order;
} pair_list;

INLINE pair_list listed_pairs(__global const uint *starts,
                              __global const uint *order, uint entry)
{
    pair_list list;
    list.count = starts[entry + 1] - starts[entry];
    list.order = order + starts[entry];
    return list;
}

/* A pair's element of [queries, keys]. */
INLINE uint pair_at(pair_list list, uint number) { return list.order[number]; }
#else
#define LIST_PARAMETERS
#define LIST_PAIRS(args, entry) pairs_of(&(args), entry)

/* From the first pair of an entry to the next ones both tokens move alike: so
 * many positions along the last axis, then along the middle one, and from
 * plane to plane as long as there are queries and keys. The numbers are
 * arguments: where they were not, and a window had one token, PoCL 3.1 let
 * work-items of a vector take the branch of the first of them. */
typedef struct pair_list {
    uint count, first, across, down;
    uint row, plane, step; /* tokens of either; elements to the next token */
} pair_list;

/* Places of a window at which a token is, if another is so far away. */
INLINE uint positions_along(uint window, int distance)
{
    return window - min(abs(distance), window);
}

INLINE pair_list pairs_of(const table_args *args, uint entry)
{
    const uint row = args->window[1], plane = args->window[0] * row;
    const int d0 = (int)(entry / args->step[0]) - (int)args->center[0];
    const int d1 =
        (int)(entry % args->step[0] / args->step[1]) - (int)args->center[1];
    const int d2 = (int)(entry % args->step[1]) - (int)args->center[2];
    const uint query = max(d0, 0) * plane + max(d1, 0) * row + max(d2, 0);
    const uint key = max(-d0, 0) * plane + max(-d1, 0) * row + max(-d2, 0);
    /* from there on, before queries or keys end */
    const uint tokens = query < args->queries && key < args->keys
                            ? min(args->queries - query, args->keys - key)
                            : 0;
    const uint rows = tokens % plane / row;
    pair_list list;
    list.across = positions_along(row, d2);
    list.down = positions_along(args->window[0], d1);
    /* of whole planes, of rows of the next, of the row behind them */
    list.count = tokens / plane * list.down * list.across +
                 min(rows, list.down) * list.across +
                 (rows < list.down ? min(tokens % row, list.across) : 0);
    list.first = query * args->keys + key;
    list.row = row;
    list.plane = plane;
    list.step = args->keys + 1;
    return list;
}

INLINE uint pair_at(pair_list list, uint number)
{
    const uint row = number / list.across;
    const uint plane = row / list.down;
    return list.first +
           (plane * list.plane + (row - plane * list.down) * list.row +
            (number - row * list.across)) *
               list.step;
}
#endif

__kernel __attribute__((reqd_work_group_size(TABLE_ITEMS, 1, 1))) void
sum_table(const table_args args, LIST_PARAMETERS __global const float *from,
          __global float *to)
{
    __local float sums[TABLE_ITEMS];
    const uint item = (uint)get_local_id(0);
    const ulong number = args.first + get_group_id(0);
    const uint head = (uint)(number / args.entries);
    const uint entry = (uint)(number - (ulong)head * args.entries);
    const pair_list list = LIST_PAIRS(args, entry);
    uint split_parts = 1; /* work-items that share the splits of a pair */
    while (split_parts < MOST_SPLIT_PARTS && split_parts < args.splits)
        split_parts *= 2;
    const uint pair_parts = TABLE_ITEMS / split_parts;
    const uint split_part = item % split_parts;
    const ulong step = args.heads * args.pairs;
    float sum = 0.0f;
    from += args.from + head * args.pairs;
    for (uint first = item / split_parts; first < list.count;
         first += IN_FLIGHT * pair_parts) {
        uint pair[IN_FLIGHT];
        UNROLL_FOR (uint i = 0; i < IN_FLIGHT; i++)
            pair[i] =
                pair_at(list, min(first + i * pair_parts, list.count - 1));
        for (uint split = split_part; split < args.splits;
             split += IN_FLIGHT * split_parts) {
            float x[IN_FLIGHT][IN_FLIGHT];
            UNROLL_FOR (uint k = 0; k < IN_FLIGHT; k++)
                UNROLL_FOR (uint i = 0; i < IN_FLIGHT; i++) {
                    const uint s = split + k * split_parts;
                    x[k][i] =
                        s < args.splits && first + i * pair_parts < list.count
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
