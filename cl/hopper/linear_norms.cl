/* SPDX-License-Identifier: Apache-2.0
 * Norms beside a linear layer: see linear_wgmma.cl. A lane has two rows of its
 * wave's 16, 8 apart. */
#include "hopper/linear_layer.cl"

/* A lane's two rows, 8 apart: norm(x) = factor x + shift; and of results so
 * far what they differ from the first, in sum and squared. */
typedef struct row_pair {
    float factor[2], shift[2];
    float first[2], total[2], squares[2];
} row_pair;

INLINE void set_norm(row_pair *rows, const int row, const layer *l, float mean,
                     float square)
{
    rows->factor[row] =
        1.0f / sqrt(square * (1.0f / (NORMALISES ? BLOCK_COLUMNS : ROW_SIZE)) +
                    l->norm->eps);
    rows->shift[row] = -mean * rows->factor[row];
}

/* Statistics of x: means and squares of blocks of columns of the layer before
 * are joined (Chan, Golub and LeVeque 1979). */
INLINE void load_statistics(row_pair *rows, const layer *l, uint row)
{
    const uint width = l->norm->x_part;
    const uint parts = (ROW_SIZE - 1) / width + 1;
    UNROLL_FOR (int i = 0; i < 2; i++) {
        __global const float2 *from =
            l->x_statistics +
            (ulong)min(row + 8 * i, (uint)l->args->rows - 1) * parts;
        float mean = 0.0f, square = 0.0f;
        NO_UNROLL_FOR (uint part = 0; part < parts; part++) {
            const float before = (float)(part * width);
            const float own = (float)min(width, ROW_SIZE - part * width);
            const float share = own / (before + own);
            const float d = from[part].x - mean;
            mean = FMA(d, share, mean);
            square += FMA(d * d, before * share, from[part].y);
        }
        set_norm(rows, i, l, mean, square);
    }
}

/* Sums get their bias; a block has whole rows of them. */
INLINE void find_norms(float *sums, row_pair *rows, const layer *l, uint lane)
{
    float total[2] = {0.0f, 0.0f};
    UNROLL_FOR (uint j = 0; j < BLOCK_COLUMNS / 8; j++) {
        const uint at = 8 * j + 2 * (lane % 4);
        const float bias[2] = {HAS_BIAS ? LOAD(l->bias, at) : 0.0f,
                               HAS_BIAS ? LOAD(l->bias, at + 1) : 0.0f};
        UNROLL_FOR (int i = 0; i < 4; i++) {
            sums[4 * j + i] += bias[i % 2];
            total[i / 2] += sums[4 * j + i];
        }
    }
    UNROLL_FOR (int row = 0; row < 2; row++) {
        float square = 0.0f;
        REDUCE(total[row], ADD_PAIR);
        const float mean = total[row] * (1.0f / BLOCK_COLUMNS);
        UNROLL_FOR (int i = 0; i < BLOCK_COLUMNS / 4; i++) {
            const float d = sums[SCORE(i / 2, row, i % 2)] - mean;
            square = FMA(d, d, square);
        }
        REDUCE(square, ADD_PAIR);
        set_norm(rows, row, l, mean, square);
    }
}

/* Two results of a row, as they are stored. */
INLINE void count_pair(row_pair *rows, const int row, float2 y, int exists,
                       const int is_first)
{
    if (is_first) {
        rows->first[row] = y.x;
        rows->total[row] = rows->squares[row] = 0.0f;
    }
    y -= rows->first[row];
    if (exists) {
        rows->total[row] += y.x + y.y;
        rows->squares[row] = FMA(y.x, y.x, FMA(y.y, y.y, rows->squares[row]));
    }
}

/* Lanes of a quad have as many results each. */
INLINE void store_statistics(const row_pair *rows, const layer *l, uint block,
                             uint row, uint lane)
{
    const uint column = first_column_of(l, block);
    const float count =
        (float)(min(l->args->out - column, (uint)BLOCK_COLUMNS) / 4);
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const float off = rows->total[i] / count;
        float mean = rows->first[i] + off, n = 0.5f * count;
        float square = FMA(-rows->total[i], off, rows->squares[i]);
        UNROLL_FOR (int step = 1; step < 4; step *= 2) {
            const float other = LANE_XOR(mean, step);
            square +=
                LANE_XOR(square, step) + (other - mean) * (other - mean) * n;
            mean = 0.5f * (mean + other);
            n *= 2.0f;
        }
        if (lane % 4 == 0 && row + 8 * i < l->args->rows)
            l->y_statistics[(ulong)(row + 8 * i) * l->column_blocks +
                            block % l->column_blocks] = (float2)(mean, square);
    }
}
