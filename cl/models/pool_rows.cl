/* SPDX-License-Identifier: Apache-2.0
 * The mean of an image's tokens, each normalised: a work-group for each image,
 * whose teams take turns with the tokens. The sum's order is always the same.
 */
#include "models/row_norm.cl"

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
SUB_GROUP_SIZE void
pool_rows(const norm_args args, __global const storage *from,
          __global const storage *weight, __global const storage *bias,
          __global storage *to)
{
    DECLARE_PLACES;
#if TEAMS > 1
    __local float shared[TEAMS - 1][ROW_SIZE];
#endif
    const int lane = (int)get_local_id(0) % TEAM;
    const int team = (int)get_local_id(0) / TEAM;
    const ulong image = get_group_id(0);
    const float count = (float)args.tokens;
    chunk sums[CHUNKS];
    from += args.from + image * args.tokens * ROW_SIZE;
    CHUNK_FOR(int i = 0; i < CHUNKS; i++)
    sums[i] = 0.0f;
    for (ulong done = 0; done < args.tokens; done += TEAMS) {
        const ulong row = done + team;
        chunk x[CHUNKS];
        CHUNK_FOR(int i = 0; i < CHUNKS; i++)
        {
            x[i] = 0.0f;
            if (row < args.tokens && HAS_CHUNK(i, lane))
                x[i] = load_chunk(from + row * ROW_SIZE + CHUNK_AT(i, lane),
                                  args.flags);
        }
        const row_norm s = find_norm(x, lane, args.eps, all);
        if (row < args.tokens)
            CHUNK_FOR(int i = 0; i < CHUNKS; i++)
        sums[i] = FMA(x[i] - s.mean, s.factor, sums[i]);
    }
#if TEAMS > 1
    if (team > 0)
        CHUNK_FOR(int i = 0; i < CHUNKS; i++)
    if (HAS_CHUNK(i, lane))
        STORE_NUMBERS(sums[i], shared[team - 1] + CHUNK_AT(i, lane));
    barrier(CLK_LOCAL_MEM_FENCE);
    if (team > 0)
        return;
#endif
    to += args.to + image * ROW_SIZE;
    CHUNK_FOR(int i = 0; i < CHUNKS; i++)
    {
        if (!HAS_CHUNK(i, lane))
            continue;
        const uint at = (uint)CHUNK_AT(i, lane);
        chunk sum = sums[i];
#if TEAMS > 1
        for (int t = 0; t < TEAMS - 1; t++)
            sum += LOAD_NUMBERS(shared[t] + at);
#endif
        store_chunk(FMA(sum / count,
                        load_chunk(weight + args.weight + at, args.flags),
                        load_chunk(bias + args.bias + at, args.flags)),
                    to + at, args.flags);
    }
}
