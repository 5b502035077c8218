/* SPDX-License-Identifier: Apache-2.0
 * Products of rows of the same number of two planes in local memory, by the
 * matrix unit, and for the cosine variant the norms of rows that follow. */
#include "matrix/geometry.cl"

/* The products of a tile's rows with the rows of the same numbers of another
 * plane: the diagonal of a product of both. Of a lane's row r, dots[r] if it
 * has that entry; row_index[r] is the row then, else row_count. */
INLINE void dot_rows(float dots[LANE_ROWS], int row_index[LANE_ROWS],
                     __local const storage_bits *rows,
                     __local const storage_bits *others, int row,
                     const int row_count, const wave *w)
{
    float products[ACC_PER_LANE];
    /* rows of its tile before */
    const int beside = TILE_M % TILE_N == 0 ? 0 : row % TILE_N;
    const int key = row - beside;
    HIDE_FROM_OPTIMIZER(row);
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        products[i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        const query_tile q =
            load_query(rows, PITCH, row, d * TILE_N, row_count - 1, w);
        const key_tile k =
            load_key(others, PITCH, key, d * TILE_N, row_count - 1, TILE_N, w);
        multiply_tiles(products, &q, &k, w);
    }
    /* masked, so that the compiler sees which entries are on no diagonal */
    const int lane = w->lane & (WAVE - 1);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const int own_row = lane_query(lane, r);
        dots[r] = 0.0f;
        row_index[r] = row_count;
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            if (LANE_ROW(i) == r && value_key(lane, i) == own_row + beside) {
                dots[r] = products[i];
                row_index[r] = min(row + own_row, row_count);
            }
    }
}

/* inverse_norm of weights.h by one rsqrt. Gradients in fp16 have powers of
 * two that follow from it: there a row of zeros, whose scores are 0 anyway and
 * which adds nothing, has 0. */
#define DROPS_ZEROS (BACKWARD && DTYPE == 1)
INLINE float quick_inverse_norm(float square)
{
    const float inverse = fmin(rsqrt(square), 1.0f / NORM_EPSILON);
    return DROPS_ZEROS && inverse >= 1.0f / NORM_EPSILON ? 0.0f : inverse;
}

/* Rows of local memory whose norms are wanted: factors[r] = factor / norm of
 * row r. */
typedef struct measured_rows {
    __local float *factors;
    __local const storage_bits *rows;
    int count;
    float factor;
} measured_rows;

/* Those of planes from .. to, one or two that follow each other, at once: so
 * one's products are under way while the other's come. The team's waves take
 * tiles in turn. */
INLINE void measure_together(const measured_rows *planes, const int from,
                             const int to, int wave_of_team, const wave *w)
{
    const int most = max(planes[from].count, planes[to - 1].count);
    MEASURE_FOR (int done = 0; done < most;
                 done += WAVES_PER_WINDOW * TILE_M) {
        float square[2][LANE_ROWS];
        int row_index[2][LANE_ROWS];
        UNROLL_FOR (int n = from; n < to; n++)
            if (done < planes[n].count)
                dot_rows(square[n], row_index[n], planes[n].rows,
                         planes[n].rows, done + wave_of_team * TILE_M,
                         planes[n].count, w);
        UNROLL_FOR (int n = from; n < to; n++)
            UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                if (done < planes[n].count) {
                    /* by all lanes: no branch but for the store */
                    float own =
                        planes[n].factor * quick_inverse_norm(square[n][r]);
                    FORCE_EARLY(own);
                    if (row_index[n][r] < planes[n].count)
                        planes[n].factors[row_index[n][r]] = own;
                }
    }
}

/* Those of up to two planes. */
INLINE void measure_rows(const measured_rows *planes, const int count,
                         int wave_of_team, const wave *w)
{
    if (UNROLL_SUBTILES || count < 2) { /* else they take too many registers */
        measure_together(planes, 0, count, wave_of_team, w);
        return;
    }
    measure_together(planes, 0, 1, wave_of_team, w);
    measure_together(planes, 1, 2, wave_of_team, w);
}
