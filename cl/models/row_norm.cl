/* SPDX-License-Identifier: Apache-2.0
 * A team's norm of its row: y = (x - mean) / sqrt(variance + eps) * weight +
 * bias, with the variance of all elements (Ba, Kiros and Hinton 2016). */
#include "models/rows.cl"

REQUIRE(TEAM)
REQUIRE(TEAMS)
REQUIRE(SUB_GROUP)

/* Intel's compiler runs out of registers where it sees all of a team at once.
 */
#if SUB_GROUP
#define TEAM_FOR NO_UNROLL_FOR
#else
#define TEAM_FOR for
#endif

#define ROW_CHUNKS (ROW_SIZE / ROW_ACCESS)
#define CHUNKS ((ROW_CHUNKS + TEAM - 1) / TEAM) /* of a work-item, at most */

/* Of a work-item's elements: those of its chunks that the row has. */
#define HAS_CHUNK(i, lane)                                                    \
    (ROW_CHUNKS % TEAM == 0 || (i)*TEAM + (lane) < ROW_CHUNKS)
#define CHUNK_AT(i, lane) (((i)*TEAM + (lane)) * ROW_ACCESS)

#if CHUNKS > 16 /* a row that one work-item has alone */
#define CHUNK_FOR for
#else
#define CHUNK_FOR UNROLL_FOR
#endif

typedef struct row_norm {
    float mean, factor;
    float square; /* distances from the mean, squared and summed */
} row_norm;

/* Work-items of the team whose lane is so many; and their elements. */
INLINE float elements_of(int lane)
{
    const int left = ROW_CHUNKS - (CHUNKS - 1) * TEAM;
    return (float)((CHUNKS - 1 + (lane < left ? 1 : 0)) * ROW_ACCESS);
}

/* Statement of a kernel: what find_norm calls `all`. */
#if TEAM > 1
#define DECLARE_PLACES __local float2 all[TEAM * TEAMS]
#else
#define DECLARE_PLACES __local float2 *all = 0
#endif

/* All work-items of a work-group call it, as often as each other. `all` has
 * TEAMS * TEAM places. */
INLINE row_norm find_norm(const chunk x[CHUNKS], int lane, float eps,
                          __local float2 *all)
{
    chunk sums = 0.0f, squares = 0.0f;
    CHUNK_FOR(int i = 0; i < CHUNKS; i++)
    if (HAS_CHUNK(i, lane))
        sums += x[i];
    const float own = elements_of(lane);
    float own_mean = own > 0.0f ? SUM_CHUNK(sums) / own : 0.0f;

    /* the mean's own rounding, that of a division too, shows in the sum of
     * what differs from it; the squares bear it */
    sums = 0.0f;
    CHUNK_FOR(int i = 0; i < CHUNKS; i++)
    if (HAS_CHUNK(i, lane)) {
        const chunk d = x[i] - own_mean;
        sums += d;
        squares = FMA(d, d, squares);
    }
    own_mean += own > 0.0f ? SUM_CHUNK(sums) / own : 0.0f;
    float square = SUM_CHUNK(squares);
    row_norm found;
#if TEAM > 1
    const int item = (int)get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the last row's are read */
    all[item] = (float2)(own_mean, square);
    barrier(CLK_LOCAL_MEM_FENCE);
    all += item - lane;
    float shift = 0.0f; /* from the first work-item's mean */
    TEAM_FOR(int i = 1; i < TEAM; i++)
    shift = FMA(all[i].x - all[0].x, elements_of(i), shift);
    found.mean = all[0].x + shift / (float)ROW_SIZE;
    square = 0.0f;
    TEAM_FOR(int i = 0; i < TEAM; i++)
    {
        const float count = elements_of(i);
        if (count > 0.0f) {
            const float d = all[i].x - found.mean;
            square += FMA(d * count, d, all[i].y);
        }
    }
#else
    found.mean = own_mean;
#endif
    found.square = square;
    found.factor = 1.0f / sqrt(square / (float)ROW_SIZE + eps);
    return found;
}

INLINE chunk norm_of(chunk x, const row_norm *s, chunk weight, chunk bias)
{
    return FMA((x - s->mean) * s->factor, weight, bias);
}
