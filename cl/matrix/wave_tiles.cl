/* SPDX-License-Identifier: Apache-2.0
 * Products of all of a wave's tiles of rows, WAVE_TURNS of them, with columns
 * that are read once for all. What callers may have in a struct comes as a
 * pointer, not as an array: Intel's compiler refuses a member's address for
 * that. */
#include "matrix/geometry.cl"

/* tiles = products of rows, which are `held` or, where that is NULL, begin at
 * `row` of `rows`, and of TILES_PER_SUBTILE tiles of columns, from tile
 * `first` on. */
INLINE void
multiply_wave(float tiles[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE],
              const query_tile (*held)[DIM_TILES],
              __local const storage_bits *rows, int row,
              __local const storage_bits *columns, int first, const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                tiles[m][t][i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        query_tile q[WAVE_TURNS];
        UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
            if (held)
                q[m] = held[m][d];
            else
                q[m] = load_query(rows, PITCH, row + m * TILE_M, d * TILE_N,
                                  INT_MAX, w);
        }
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            if (IS_TILE(first + t)) {
                const key_tile k =
                    load_key(columns, PITCH, (first + t) * TILE_N, d * TILE_N,
                             INT_MAX, TILE_N, w);
                UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
                    multiply_tiles(tiles[m][t], &q[m], &k, w);
            }
    }
}

/* Operands of a wave's rows, which multiply_wave then need not read. */
INLINE void hold_rows(query_tile (*held)[DIM_TILES],
                      __local const storage_bits *rows, int row, const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            held[m][d] = load_query(rows, PITCH, row + m * TILE_M, d * TILE_N,
                                    INT_MAX, w);
}

/* sums += a subtile's weights times the values of its columns. */
INLINE void add_wave_values(float (*sums)[DIM_TILES][ACC_PER_LANE],
                            query_tile weights[WAVE_TURNS][TILES_PER_SUBTILE],
                            __local const storage_bits *values, int first,
                            const wave *w)
{
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v =
                    load_value(values, PITCH, (first + t) * TILE_N, d * TILE_N,
                               INT_MAX, TILE_N, w);
                UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
                    multiply_tiles(sums[m][d], &weights[m][t], &v, w);
            }
}
