/* SPDX-License-Identifier: Apache-2.0
 * A wave and its lanes. Of a product's tile a lane has two rows of the wave's
 * 16, lane / 4 and 8 more, and of these columns 8 j + 2 (lane % 4) + i as
 * numbers 4 j + 2 r + i, row r of the two. */
#include "hopper/warpgroup_extents.h"
#include "unit/unit_mma.cl"

#define COLUMN_GROUPS (TILE_KEYS / 8)
/* Number i of column group j and row r. */
#define SCORE(j, r, i) (4 * (j) + 2 * (r) + (i))

#define ADD_PAIR(a, b) ((a) + (b))

/* Numbers become words of two, `count` of these: of two columns each. */
INLINE void pack_pairs(uint *to, const float *from, const int count)
{
    UNROLL_FOR (int i = 0; i < count; i++)
        to[i] = PACK(from[2 * i], from[2 * i + 1]);
}

/* A wave's number, the same for all of its lanes, as the compiler then knows.
 */
INLINE uint wave_of(uint item)
{
    uint wave;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;"
                     : "=r"(wave)
                     : "r"(item / WAVE));
    return wave;
}

INLINE float of_lane(float x, int lane)
{
    float y;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"
                     : "=f"(y)
                     : "f"(x), "r"(lane));
    return y;
}

#define REDUCE_WAVE(x, op)                                                    \
    REDUCE(x, op);                                                            \
    x = op(x, LANE_XOR(x, 4));                                                \
    x = op(x, LANE_XOR(x, 8));                                                \
    x = op(x, LANE_XOR(x, 16))
