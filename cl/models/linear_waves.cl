/* SPDX-License-Identifier: Apache-2.0
 * What kernels of linear layers on matrix units share: which tiles a wave has,
 * their products, and what becomes of a sum. */
#include "models/linear_ring.cl"

#define OUT_CHUNKS (COLUMN_TILES * TILE_N / CHUNK)
#define DIM_STEPS (STAGE_DIMS / TILE_N / DIM_WAVES)

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

INLINE void clear_sums(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE])
{
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                sums[r][c][i] = 0.0f;
}

/* sums += the products of a stage's rows of x and of W. */
INLINE void multiply_stage(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                           __local const storage_bits *x_rows,
                           __local const storage_bits *w_rows,
                           const wave_place *at, const wave *w)
{
    UNROLL_FOR (int d = 0; d < DIM_STEPS; d++) {
        const int first = (at->step + d) * TILE_N;
        query_tile rows[ROW_TILES];
        UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
            rows[r] = load_query(x_rows, PITCH, at->row + r * TILE_M, first,
                                 INT_MAX, w);
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++) {
            const key_tile columns =
                load_key(w_rows, PITCH, at->column + c * TILE_N, first,
                         INT_MAX, TILE_N, w);
            UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
                multiply_tiles(sums[r][c], &rows[r], &columns, w);
        }
    }
}

/* GELU for results of 16 bits: max(x, 0) - a h(a) as in linear.cl, but the
 * logarithm of h is a polynomial (fitted for this file: 8e-5 of the result up
 * to a = 6.5, behind which fp16 has nothing of it, and falling up to 14), so
 * that only one of its instructions is slow, not two. */
INLINE float gelu_half(float x)
{
    const float a = gelu_end(fabs(x));
    float p = 2.00857748e-05f;
    p = FMA(p, a, -5.61506107e-04f);
    p = FMA(p, a, 6.88062982e-03f);
    p = FMA(p, a, -5.02726408e-02f);
    p = FMA(p, a, -4.62453750e-01f);
    p = FMA(p, a, -1.14962161f);
    p = FMA(p, a, -1.00010628f);
    return FMA(-a, EXP2(p), gelu_positive(x));
}

/* What becomes of a sum with its bias, before the residual. */
INLINE float finish_sum(float sum)
{
    return ACTIVATION == 1 && DTYPE != 0 ? gelu_half(sum) : activate(sum);
}
