/* SPDX-License-Identifier: Apache-2.0
 * What kernels of linear layers on matrix units share: which tiles a wave has,
 * their products, and what becomes of a sum. */
#include "models/linear_ring.cl"

#include "models/gelu_half.cl"
#include "models/row_origin.cl"

#define OUT_CHUNKS (COLUMN_TILES * TILE_N / CHUNK)
#define DIM_STEPS (STAGE_DIMS / TILE_N / DIM_WAVES)
#define WORDS(tile) ((int)(sizeof(tile).x / sizeof(uint)))

/* Which tiles a wave has. */
typedef struct wave_place {
    int row, column; /* in the block */
    int step;        /* of a stage's, TILE_N numbers each */
} wave_place;

INLINE wave_place place_of(int number)
{
    const wave_place at = {
        .row = number % ROW_WAVES * (ROW_TILES * TILE_M),
        .column = number / ROW_WAVES % COLUMN_WAVES * (COLUMN_TILES * TILE_N),
        .step = number / (ROW_WAVES * COLUMN_WAVES) * DIM_STEPS};
    return at;
}

/* ---- Rows that are normalised on the way ---- */

/* Origins of a wave's rows, of those that a work-group found. */
INLINE void load_origins(query_tile *origins, __local const uint *found,
                         int first, const wave *w)
{
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int i = 0; i < WORDS(*origins); i++)
            origins[r].x[i] =
                found[first + r * TILE_M +
                      query_row(w->lane, WORD_ELEMENTS * i % QUERY_ELEMENTS)];
}

/* Numbers `first` of a stage and on become what they are less the origin and
 * times the norm's weight. */
INLINE void scale_rows(query_tile *rows, const query_tile *origins,
                       __local const storage_bits *scales, int first,
                       const wave *w)
{
    UNROLL_FOR (int i = 0; i < WORDS(*rows); i++) {
        const int e = WORD_ELEMENTS * i;
        const int k = first + e / QUERY_ELEMENTS * MMA_K +
                      query_step(w->lane, e % QUERY_ELEMENTS);
        rows->x[i] = SCALED_PAIR(rows->x[i], origins->x[i],
                                 *(__local const uint *)(scales + k));
    }
}

/* ---- Products ---- */

INLINE void clear_sums(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE])
{
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                sums[r][c][i] = 0.0f;
}

/* sums += the product of two tiles. With SPLITS_FP32 that is three products,
 * the small ones first: that of both low parts is less than what is lost. */
INLINE void multiply_parts(float *sums, const query_tile *row,
                           const query_tile *low_row, const key_tile *column,
                           const key_tile *low_column, const wave *w)
{
    if (SPLITS_FP32) {
        multiply_tiles(sums, low_row, column, w);
        multiply_tiles(sums, row, low_column, w);
    }
    multiply_tiles(sums, row, column, w);
}

/* sums += the products of a stage's rows of x and of W. origins: of the rows,
 * which are to be scaled by what is behind W. */
INLINE void multiply_stage(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                           __local const storage_bits *x_rows,
                           __local const storage_bits *w_rows,
                           const query_tile *origins, const wave_place *at,
                           const wave *w)
{
    UNROLL_FOR (int d = 0; d < DIM_STEPS; d++) {
        const int first = (at->step + d) * TILE_N;
        query_tile rows[ROW_TILES], low_rows[ROW_TILES];
        UNROLL_FOR (int r = 0; r < ROW_TILES; r++) {
            rows[r] = load_query(x_rows, PITCH, at->row + r * TILE_M, first,
                                 INT_MAX, w);
            if (SPLITS_FP32)
                split_operands(rows[r].x, low_rows[r].x, WORDS(rows[r]));
            if (FINDS_STATISTICS)
                scale_rows(&rows[r], &origins[r], w_rows + W_SIZE, first, w);
        }
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++) {
            key_tile columns = load_key(w_rows, PITCH, at->column + c * TILE_N,
                                        first, INT_MAX, TILE_N, w);
            key_tile low_columns;
            if (SPLITS_FP32)
                split_operands(columns.x, low_columns.x, WORDS(columns));
            UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
                multiply_parts(sums[r][c], &rows[r], &low_rows[r], &columns,
                               &low_columns, w);
        }
    }
}
