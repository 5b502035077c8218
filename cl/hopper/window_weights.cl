/* SPDX-License-Identifier: Apache-2.0
 * Weights of a window's pairs in local memory, as operands of products: P or
 * dS in 16 bits, in panels of 16 keys, whose rows are swizzled by 32 bytes.
 * Read along its rows such a panel is 16 channels of a product; down its
 * columns it is 16 rows of one. Who stores them has tiles of 16 rows. */
#include "hopper/gradient_windows.cl"

#define ROW_TILES (OWN_ROWS / 16)

/* ---- Tiles ---- */

/* A wave's. The last warpgroup begins where it has whole tiles, some of which
 * the one before owns. */
typedef struct wave_tile {
    uint wave, number;
    uint first; /* of the warpgroup */
    int owns;
} wave_tile;

INLINE wave_tile tile_of(uint wave)
{
    const uint own = wave / 4 * 4;
    wave_tile x = {.wave = wave, .first = min(own, ROW_TILES - 4u)};
    x.number = x.first + wave % 4;
    x.owns = x.number >= own;
    return x;
}

/* ---- Who stores ---- */

/* Where a lane stores a row of 8 keys, of four such matrices of a tile. */
INLINE uint place_weights(uint weights, uint tile, int lane)
{
    const uint row = lane % 16, chunk = lane / 16 ^ lane / 4 % 2;
    return weights + (tile * 16 + row) * WEIGHT_PITCH + chunk * 16;
}

/* Sums of a product with BLOCK_KEYS keys, of which a panel's are packed in
 * pairs. */
#define TILE_WORDS (BLOCK_KEYS / 4)
/* Of keys from `first` on. to: the lane's place. */
INLINE void store_weights(uint to, uint first, const uint *words)
{
    UNROLL_FOR (uint c = 0; c < BLOCK_KEYS / PANEL_KEYS; c++)
        STORE_MATRICES(words + 4 * c,
                       to + (first / PANEL_KEYS + c) * WEIGHT_PANEL_BYTES);
}

/* The same of who has stored them. */
INLINE void load_weights(uint *to, uint from, uint first)
{
    UNROLL_FOR (uint c = 0; c < BLOCK_KEYS / PANEL_KEYS; c++)
        LOAD_MATRICES(to + 4 * c,
                      from + (first / PANEL_KEYS + c) * WEIGHT_PANEL_BYTES,
                      "");
}

/* ---- Products ---- */

/* The whole of an operand's descriptor (wgmma.cl), of panels one behind the
 * other. */
INLINE ulong describe_weights(uint address)
{
    return (ulong)(8 * WEIGHT_PITCH / 16 | 3u << 30) << 32 |
           operand_at(address, WEIGHT_PANEL_BYTES);
}

/* sums = or += weights rows, of 16 rows in local memory; weights are read down
 * their columns or not. */
DEFINE_PRODUCT(set_down, 32, SET_32, "0", "1, 1")
DEFINE_PRODUCT(add_down, 32, ADD_32, "1", "1, 1")
DEFINE_PRODUCT(set_along, 32, SET_32, "0", "0, 1")
DEFINE_PRODUCT(add_along, 32, ADD_32, "1", "0, 1")

/* sums = weights^T rows, of all rows: the warpgroup's keys begin with tile
 * `first`. rows: their address. */
INLINE void multiply_weights_down(float *sums, uint weights, uint first,
                                  uint rows)
{
    const ulong a = describe_weights(weights + first * WEIGHT_PANEL_BYTES);
    const ulong b = describe(operand_at(rows, 16));
    set_down(sums, a, b);
    UNROLL_FOR (uint i = 1; i < ROW_TILES; i++)
        add_down(sums, a + i * (16 * WEIGHT_PITCH / 16),
                 b + i * (16 * WINDOW_PITCH / 16));
}

/* sums = weights keys, of all keys: the warpgroup's rows begin with tile
 * `first`. */
INLINE void multiply_weights(float *sums, uint weights, uint first, uint keys)
{
    const ulong a = describe_weights(weights + first * (16 * WEIGHT_PITCH));
    const ulong b = describe(operand_at(keys, 16));
    set_along(sums, a, b);
    UNROLL_FOR (uint i = 1; i < OTHER_ROWS / PANEL_KEYS; i++)
        add_along(sums, a + i * (WEIGHT_PANEL_BYTES / 16),
                  b + i * (16 * WINDOW_PITCH / 16));
}
