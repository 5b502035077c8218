/* SPDX-License-Identifier: Apache-2.0
 * LayerNorm of rows: to = norm(from), or to = other + norm(from).
 *
 *   NEIGHBOURS  1: a row of `from` is four neighbouring tokens of a map
 *   ADDS        1: there is another tensor, which may be `to` */
#include "models/row_norm.cl"

REQUIRE(NEIGHBOURS)
REQUIRE(ADDS)

#if NEIGHBOURS
#define ROW_PART(from, row, at)                                               \
    neighbour(from, row, (uint)(at), args.height, args.width)
#define EXISTS_PART(p) ((p) != 0)
#else
#define ROW_PART(from, row, at) ((from) + (row)*args.stride + (at))
#define EXISTS_PART(p) 1
#endif

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
SUB_GROUP_SIZE void
norm_rows(const norm_args args, __global const storage *from,
          __global const storage *other, __global const storage *weight,
          __global const storage *bias, __global storage *to)
{
    DECLARE_PLACES;
    const int lane = (int)get_local_id(0) % TEAM;
    const int team = (int)get_local_id(0) / TEAM;
    const ulong first = (ulong)get_group_id(0) * args.group_rows;
    from += args.from;
    other += args.other;
    weight += args.weight;
    bias += args.bias;
    to += args.to;
    for (uint done = 0; done < args.group_rows; done += TEAMS) {
        const ulong row = first + done + team;
        chunk x[CHUNKS];
        CHUNK_FOR(int i = 0; i < CHUNKS; i++)
        {
            x[i] = 0.0f;
            if (row < args.rows && HAS_CHUNK(i, lane)) {
                __global const storage *part =
                    ROW_PART(from, row, CHUNK_AT(i, lane));
                if (EXISTS_PART(part))
                    x[i] = load_chunk(part, args.flags);
            }
        }
        const row_norm s = find_norm(x, lane, args.eps, all);
        if (row >= args.rows)
            continue;
        CHUNK_FOR(int i = 0; i < CHUNKS; i++)
        {
            if (!HAS_CHUNK(i, lane))
                continue;
            const uint at = (uint)CHUNK_AT(i, lane);
            chunk y = norm_of(x[i], &s, load_chunk(weight + at, args.flags),
                              load_chunk(bias + at, args.flags));
#if ADDS
            y += load_chunk(other + row * ROW_SIZE + at, args.flags);
#endif
            store_chunk(y, to + row * ROW_SIZE + at, args.flags);
        }
    }
}
