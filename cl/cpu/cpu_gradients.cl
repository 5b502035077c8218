/* SPDX-License-Identifier: Apache-2.0
 * What the backward kernels for CPUs share: dP, norms taken back, and
 * gradients stored. It reads no switch of its own. */
#include "cpu/cpu_scores.cl"

/* What the backward kernels keep of a tile beside row_tile. */
typedef struct gradient_tile {
    float d_o[TILE_ROWS][CHANNELS];
    float ds[TILE_ROWS][BLOCK_KEYS]; /* dP, then dS */
    float delta[TILE_ROWS];          /* sum over keys of P dP, less d_lse */
} gradient_tile;

INLINE void load_d_o(gradient_tile *g, const row_tile *tile,
                     const head_rows *d_o)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        const token at = row_token(tile, r);
        load_row(g->d_o[r], d_o, &at);
    }
}

/* ds = dO V^T, for all keys of the block. */
INLINE void multiply_d_o(gradient_tile *g,
                         const vec transposed[HEAD_DIM][KEY_VECS])
{
    for (int jv = 0; jv < KEY_VECS; jv += TILE_VECS) {
        vec acc[TILE_ROWS][TILE_VECS];
        multiply_transposed(acc, g->d_o, transposed, jv);
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++)
            UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
                set_vec(g->ds[r], jv + t, acc[r][t]);
    }
}

/* Gradients with respect to rows of length 1, taken back to x = those rows
 * times 1 / inverse: (d - x^ (x^ . d)) / |x|. Below the smallest norm x^ is
 * just a multiple of x. Returns x^ . d. */
INLINE float l2norm_backward_row(vec d[V_VECS], const vec x[V_VECS],
                                 float inverse)
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

/* The same with respect to a token's row as memory has it. */
INLINE float l2norm_backward_token(vec d[V_VECS], const head_rows *rows,
                                   const token *at)
{
    float x[CHANNELS];
    vec x_vecs[V_VECS];
    const float squares = lanes_sum(load_row(x, rows, at));
    for (int cv = 0; cv < V_VECS; cv++)
        x_vecs[cv] = vec_at(x, cv);
    return l2norm_backward_row(d, x_vecs, inverse_norm(squares));
}

/* Rows of a gradient, of one head of a window: are they wanted, and added to
 * what is there? */
typedef struct gradient_rows {
    __global storage *plane;
    const tensor_layout *layout;
    int is_wanted, adds;
} gradient_rows;

/* wanted, adds: the flags that say so. */
INLINE gradient_rows gradient_of(__global storage *tensor,
                                 const tensor_layout *layout, ulong grid,
                                 uint head, uint wanted, uint adds)
{
    const gradient_rows rows = {tensor + plane(layout, grid, head), layout,
                                wanted != 0, adds != 0};
    return rows;
}

/* Of a token, if it exists. */
INLINE void store_gradient(const vec d[V_VECS], const gradient_rows *to,
                           const token *at)
{
    if (!to->is_wanted || !EXISTS(*at))
        return;
    __global storage *row = to->plane + token_offset(to->layout, at);
    for (int cv = 0; cv < CHANNEL_VECS; cv++) {
        vec x = d[cv];
        if (to->adds)
            x += load_channels(row, to->layout->column, cv);
        store_channels(x, row, to->layout->column, cv);
    }
}
