/* SPDX-License-Identifier: Apache-2.0
 * Of each row its mean and the sum of squared distances from it: what a linear
 * layer that normalises on the way takes (hopper/linear_wgmma.cl). */
#include "models/row_norm.cl"

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
SUB_GROUP_SIZE void
row_statistics(const norm_args args, __global const storage *from,
               __global float2 *to)
{
    DECLARE_PLACES;
    const int lane = (int)get_local_id(0) % TEAM;
    const ulong first =
        (ulong)get_group_id(0) * args.group_rows + get_local_id(0) / TEAM;
    from += args.from;
    to += args.to;
    for (uint done = 0; done < args.group_rows; done += TEAMS) {
        const ulong row = first + done;
        chunk x[CHUNKS];
        CHUNK_FOR(int i = 0; i < CHUNKS; i++)
        {
            x[i] = 0.0f;
            if (row < args.rows && HAS_CHUNK(i, lane))
                x[i] = load_chunk(from + row * args.stride + CHUNK_AT(i, lane),
                                  args.flags);
        }
        const row_norm s = find_norm(x, lane, args.eps, all);
        if (lane == 0 && row < args.rows)
            to[row] = (float2)(s.mean, s.square);
    }
}
