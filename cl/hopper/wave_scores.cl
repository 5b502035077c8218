/* SPDX-License-Identifier: Apache-2.0
 * Scores of a wave's 16 rows by its own, without the rest of its warpgroup:
 * for the rare tile whose scores are needed a second time. mma.sync
 * (unit_mma.cl) gives each lane the same scores as wgmma does.
 *
 * Queries still wait in local memory. Keys do too where the ring is long
 * enough for a stage to be kept until its scores are weights; where a tile
 * takes twice as much, 128 channels took 14 % longer so (H200), and keys come
 * from global memory again. */
#include "hopper/lanes.cl"
#include "hopper/stored_numbers.cl"
#include "hopper/tile_products.cl"

#define KEEPS_KEYS (PANELS == 1)

/* Addresses: of the wave's first row, of the tile's keys; or, where these are
 * not kept, in global memory, `pitch` apart. */
INLINE void multiply_alone(float *s, uint queries, uint keys,
                           __global const storage *k, uint pitch, int lane)
{
    UNROLL_FOR (int i = 0; i < SCORES; i++)
        s[i] = 0.0f;
    NO_UNROLL_FOR (uint step = 0; step < HEAD_DIM / 16; step++) {
        uint a[4], b[2];
        LOAD_MATRICES(
            a, swizzled_chunk(queries, lane % 16, 2 * step + lane / 16), "");
        UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++) {
            if (KEEPS_KEYS) {
                LOAD_TWO_MATRICES(b[0], b[1],
                                  swizzled_chunk(keys, 8 * j + lane % 8,
                                                 2 * step + lane / 8 % 2),
                                  "");
            } else {
                __global const storage *from =
                    k + (ulong)(8 * j + lane / 4) * pitch + 16 * step +
                    lane % 4 * 2;
                b[0] = load_pair(from);
                b[1] = load_pair(from + 8);
            }
            mma(a, b, s + 4 * j);
        }
    }
}
