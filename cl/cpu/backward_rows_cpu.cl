/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for CPUs where a window's keys are too many to be kept, first
 * kernel: dQ, and what the second kernel (backward_keys_cpu.cl) has to know of
 * each row. One work-item per block of query rows.
 *
 * With P normalised at the end only, one loop over the keys yields
 *     sum P,  delta = sum P (dP - c),  A = sum P (dP - c) K,  B = sum P K
 * and dQ = scale (A - (delta - d_lse) B), whatever c is of a row: what its
 * first keys have as delta, so that A and B's part do not cancel where all
 * keys, or all values, have something in common. */
#include "cpu/cpu_gradients.cl"

REQUIRE(BLOCK_ROWS)

/* sum P dP of a row's block of keys. */
INLINE float weigh_dp(const float *p, const float *dp)
{
    vec sum = (vec)(0.0f);
    for (int jv = 0; jv < KEY_VECS; jv++) {
        const vec weight = vec_at(p, jv);
        const vec product = weight * vec_at(dp, jv);
        /* nothing comes from a key that is not seen */
        sum += select(product, (vec)(0.0f), weight == 0.0f);
    }
    return lanes_sum(sum);
}

/* What the rows of a work tile have summed. */
typedef struct work_tile_sums {
    vec a[BLOCK_ROWS][V_VECS];
    vec b[BLOCK_ROWS][V_VECS];
    float max[BLOCK_ROWS];
    float sum[BLOCK_ROWS];    /* of P */
    float delta[BLOCK_ROWS];  /* of P (dP - c) */
    float center[BLOCK_ROWS]; /* c */
    float scale;              /* of the logits */
} work_tile_sums;

INLINE void clear_sums(work_tile_sums *sums)
{
    for (int r = 0; r < BLOCK_ROWS; r++) {
        sums->max[r] = -INFINITY;
        sums->sum[r] = sums->delta[r] = sums->center[r] = 0.0f;
        for (int cv = 0; cv < V_VECS; cv++)
            sums->a[r][cv] = sums->b[r][cv] = (vec)(0.0f);
    }
}

/* P (dP - c) takes the place of dP; it and P become ready for the product with
 * K. */
INLINE void center_dp(row_tile *tile, gradient_tile *g, work_tile_sums *sums,
                      const key_block *keys, uint first_row)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint at = tile->row[r] - first_row;
        if (sums->sum[at] == 0.0f && tile->sum[r] > 0.0f)
            sums->center[at] = weigh_dp(tile->p[r], g->ds[r]) / tile->sum[r];
        vec delta = (vec)(0.0f);
        for (int jv = 0; jv < KEY_VECS; jv++) {
            vec p = vec_at(tile->p[r], jv);
            vec pdp = p * (vec_at(g->ds[r], jv) - sums->center[at]);
            pdp = select(pdp, (vec)(0.0f), p == 0.0f);
            delta += pdp;
            if (VARIANT == COSINE) {
                pdp *= keys->inverse_norm[jv];
                p *= keys->inverse_norm[jv];
            }
            set_vec(g->ds[r], jv, pdp);
            set_vec(tile->p[r], jv, p);
        }
        g->delta[r] = lanes_sum(delta);
    }
}

/* Brings the sums of the tile's rows up to date. */
INLINE void add_tile(work_tile_sums *sums, const row_tile *tile,
                     const gradient_tile *g, const key_block *keys,
                     const vec natural_k[BLOCK_KEYS][V_VECS], uint first_row)
{
    vec a[TILE_ROWS][V_VECS], b[TILE_ROWS][V_VECS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int cv = 0; cv < V_VECS; cv++) {
            const uint at = tile->row[r] - first_row;
            a[r][cv] = sums->a[at][cv] * tile->rescale[r];
            b[r][cv] = sums->b[at][cv] * tile->rescale[r];
        }
    for (int cv = 0; cv < V_VECS; cv += OUT_VECS) {
        multiply_natural(a, g->ds, natural_k, keys->count, cv);
        multiply_natural(b, tile->p, natural_k, keys->count, cv);
    }
    for (int r = 0; r < tile->count; r++) {
        const uint at = tile->row[r] - first_row;
        for (int cv = 0; cv < V_VECS; cv++) {
            sums->a[at][cv] = a[r][cv];
            sums->b[at][cv] = b[r][cv];
        }
        sums->max[at] = tile->max[r];
        sums->sum[at] = tile->sum[r];
        sums->delta[at] = FMA(sums->delta[at], tile->rescale[r], g->delta[r]);
    }
}

/* dQ of a row, number `at` of the work tile's, and what the second kernel gets
 * of it at `to`; d_lse: of the head. */
INLINE void finish_row(const work_tile_sums *sums, uint at, const token *t,
                       const backward_args *args, const head_rows *q,
                       __global const float *d_lse, const gradient_rows *dq,
                       __global float *to)
{
    const float inverse = sums->sum[at] == 0.0f ? 0.0f : 1.0f / sums->sum[at];
    float delta = sums->delta[at] * inverse; /* less the center */
    float along = 0.0f;
    vec d[V_VECS];
    if ((args->forward.flags & ARG_D_LSE) != 0 && EXISTS(*t))
        delta -= d_lse[token_offset(&args->d_lse, t)];
    for (int cv = 0; cv < V_VECS; cv++)
        d[cv] = (sums->a[at][cv] - sums->b[at][cv] * delta) *
                (inverse * sums->scale);
    if (VARIANT == COSINE)
        along = l2norm_backward_token(d, q, t);
    store_gradient(d, dq, t);
    to[ROW_MAX] = sums->max[at];
    to[ROW_DELTA] = sums->center[at] + delta;
    to[ROW_FACTOR] = inverse;
    /* a query of the padding takes no part in gradients */
    to[ROW_ALONG] = EXISTS(*t) ? along : 0.0f;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
backward_rows_cpu(BACKWARD_PARAMETERS)
{
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const work_tile u = find_work_tile(forward, get_global_id(0));
    const uint kv_head = u.head / forward->heads_per_kv_head;
    const uint row_end = min(u.row + forward->block_rows, forward->queries);
    const window_coord coord = locate_window(&forward->grid, u.window);
    const ulong grid = coord.grid;
    const score_bias_tensors bias_tensors = SCORE_BIAS_TENSORS;
    const score_bias_view score_bias =
        score_bias_at(&bias_tensors, forward, u, &coord);
    const head_rows q_rows = rows_of(q, &forward->q, grid, u.head, 0);
    const head_rows d_o_rows = rows_of(d_o, &args.d_o, grid, u.head, 0);
    const head_rows k_rows =
        rows_of(k, &forward->k, grid, kv_head,
                PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head));
    const head_rows v_rows =
        rows_of(v, &forward->v, grid, kv_head,
                PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head));
    const gradient_rows dq_rows = gradient_of(
        dq, &args.dq, grid, u.head, flags & ARG_DQ, flags & ARG_ADD_DQ);
    d_lse += plane(&args.d_lse, grid, u.head);
    workspace = statistics_of(workspace, &args, u);
    key_block keys;
    vec natural_k[BLOCK_KEYS][V_VECS], transposed_v[HEAD_DIM][KEY_VECS];
    row_tile tile;
    gradient_tile g;
    work_tile_sums sums;
    clear_sums(&sums);
    sums.scale = HEAD_SCALE(forward, logit_scale, u.head);

    const key_loop loop = loop_over_keys(forward, u.row, row_end);
    for (uint block = 0; block < loop.blocks; block++) {
        open_keys(&keys, loop_block(forward, &loop, block), forward, &coord,
                  &k_rows);
        load_natural(natural_k, &k_rows, &keys);
        load_transposed(transposed_v, 0, &v_rows, &keys);
        load_regions(&keys, forward, &score_bias);
        for (uint row = u.row; row < row_end; row += TILE_ROWS) {
            load_rows(&tile, forward, &coord, &q_rows, row, row_end,
                      sums.scale);
            if (!has_rows(&tile))
                continue;
            load_d_o(&g, &tile, &d_o_rows);
            recall_rows(&tile, sums.max, sums.sum, u.row);
            compute_logits(&tile, &keys, forward, &score_bias);
            exponentiate(&tile);
            multiply_d_o(&g, transposed_v);
            keep_tile(g.ds, &tile, &keys, forward, u);
            center_dp(&tile, &g, &sums, &keys, u.row);
            add_tile(&sums, &tile, &g, &keys, natural_k, u.row);
        }
    }
    for (uint row = u.row; row < row_end; row++) {
        const token t = find_token(&forward->grid, &coord, row);
        finish_row(&sums, row - u.row, &t, &args, &q_rows, d_lse, &dq_rows,
                   workspace + row * ROW_NUMBERS);
    }
}
