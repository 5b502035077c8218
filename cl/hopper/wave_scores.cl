/* SPDX-License-Identifier: Apache-2.0
 * Scores of a wave's 16 rows by its own, without the rest of its warpgroup:
 * for the rare tile whose scores are needed a second time. mma.sync
 * (unit_mma.cl) gives each lane the same scores as wgmma does.
 *
 * Queries still wait in local memory. Keys do too where the ring is long
 * enough for a stage to be kept until its scores are weights; where a tile
 * takes twice as much, 128 channels took 14 % longer so (H200), and keys come
 * from global memory again. */
#include "hopper/head_planes.cl"
#include "hopper/row_weights.cl"

#define KEEPS_KEYS (PANELS == 1)

/* Two neighbouring elements, however they lie. */
INLINE uint load_pair(__global const storage *from)
{
    __global const ushort *bits = (__global const ushort *)from;
    return bits[0] | (uint)bits[1] << 16;
}

/* Addresses: of the wave's first row, of the tile's keys. key: the tile's
 * first. */
INLINE void multiply_keys_alone(float *s, uint queries, uint keys,
                                const row_plane *k, uint key, int lane)
{
    __global const storage *own =
        k->rows + (ulong)(key + lane / 4) * k->pitch + lane % 4 * 2;
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
                __global const storage *from = own + (ulong)j * 8 * k->pitch;
                b[0] = load_pair(from + 16 * step);
                b[1] = load_pair(from + 16 * step + 8);
            }
            mma(a, b, s + 4 * j);
        }
    }
}
