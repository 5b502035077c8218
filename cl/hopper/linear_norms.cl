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
                    l->args->eps);
    rows->shift[row] = -mean * rows->factor[row];
}

/* Statistics of x, as the layer before gives them. */
INLINE void load_statistics(row_pair *rows, const layer *l, uint row)
{
    UNROLL_FOR (int i = 0; i < 2; i++) {
        const float2 own =
            l->x_statistics[min(row + 8 * i, (uint)l->args->rows - 1)];
        set_norm(rows, i, l, own.x, own.y);
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
INLINE void count_pair(row_pair *rows, const int row, float2 y,
                       const int is_first)
{
    if (is_first) {
        rows->first[row] = y.x;
        rows->total[row] = rows->squares[row] = 0.0f;
    }
    y -= rows->first[row];
    rows->total[row] += y.x + y.y;
    rows->squares[row] = FMA(y.x, y.x, FMA(y.y, y.y, rows->squares[row]));
}

/* A block has whole rows; lanes of a quad have as many results each. */
INLINE void store_statistics(const row_pair *rows, const layer *l, uint row,
                             uint lane)
{
    const float count = BLOCK_COLUMNS / 4;
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
            l->y_statistics[row + 8 * i] = (float2)(mean, square);
    }
}
