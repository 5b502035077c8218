/* SPDX-License-Identifier: Apache-2.0
 * What the backward kernels for CPUs share: dP, products with weights, norms
 * taken back, and gradients stored. It reads no switch of its own. */
#include "cpu/cpu_scores.cl"

/* What the backward kernels keep of a tile beside row_tile. */
typedef struct gradient_tile {
    float d_o[TILE_ROWS][CHANNELS];
    float ds[TILE_ROWS][BLOCK_KEYS]; /* dP, then dS */
    float delta[TILE_ROWS];          /* sum over keys of P dP, less d_lse */
} gradient_tile;

/* ds = dO V^T, for all keys of the block. */
INLINE void multiply_d_o(gradient_tile *g,
                         const vec transposed[HEAD_DIM][KEY_VECS])
{
    for (int jv = 0; jv < KEY_VECS; jv += TILE_VECS) {
        vec acc[TILE_ROWS][TILE_VECS];
        multiply_transposed(acc, g->d_o, transposed, jv);
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++)
            UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
                JOIN(vstore, LANES)(acc[r][t], jv + t, g->ds[r]);
    }
}

/* sums[row][..] += weights times rows of a matrix, channel vectors cv .. cv +
 * OUT_VECS. */
INLINE void multiply_natural(vec sums[TILE_ROWS][V_VECS],
                             const float weights[TILE_ROWS][BLOCK_KEYS],
                             const vec natural[BLOCK_KEYS][V_VECS], int count,
                             int cv)
{
    vec acc[TILE_ROWS][OUT_VECS];
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            acc[r][t] = sums[r][cv + t];
    NO_UNROLL_FOR (int j = 0; j < count; j++)
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
            const vec x = (vec)(weights[r][j]);
            UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
                acc[r][t] = FMA(x, natural[j][cv + t], acc[r][t]);
        }
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            sums[r][cv + t] = acc[r][t];
}

/* Gradients with respect to rows of length 1, taken back to x = those rows
 * times 1 / inverse: (d - x^ (x^ . d)) / |x|. Below the smallest norm x^ is
 * just a multiple of x. Returns x^ . d. */
INLINE float take_back_norm(vec d[V_VECS], const vec x[V_VECS], float inverse)
{
    vec along = (vec)(0.0f);
    for (int cv = 0; cv < V_VECS; cv++)
        along = FMA(x[cv], d[cv], along);
    const float dot = lanes_sum(along) * inverse;
    const float part = inverse < 1.0f / NORM_EPSILON ? dot * inverse : 0.0f;
    for (int cv = 0; cv < V_VECS; cv++)
        d[cv] = (d[cv] - x[cv] * part) * inverse;
    return dot;
}

/* Stores a row of a gradient, or adds to it; the token exists. */
INLINE void store_gradient(const vec d[V_VECS], __global storage *plane,
                           const tensor_layout *layout, token at, int add)
{
    __global storage *row = plane + token_offset(layout, &at);
    for (int cv = 0; cv < CHANNEL_VECS; cv++) {
        vec x = d[cv];
        if (add)
            x += load_channels(row, layout->column, cv);
        store_channels(x, row, layout->column, cv);
    }
}
