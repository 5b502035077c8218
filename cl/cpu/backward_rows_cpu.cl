/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for CPUs where a window's keys are too many to be kept, first
 * kernel: dQ, and what the second kernel (backward_keys_cpu.cl) has to know of
 * each row. One work-item per block of query rows.
 *
 * With P normalised at the end only, one walk over the keys yields
 *     sum P,  delta = sum P (dP - c),  A = sum P (dP - c) K,  B = sum P K
 * and dQ = scale (A - (delta - d_lse) B), whatever c is of a row: what its
 * first keys have as delta, so that A and B's part do not cancel where all
 * keys, or all values, have something in common. */
#include "cpu/cpu_gradients.cl"

/* sum P dP of a row's block of keys. */
INLINE float weigh_flow(const float *p, const float *flow)
{
    vec sum = (vec)(0.0f);
    for (int jv = 0; jv < KEY_VECS; jv++) {
        const vec weight = JOIN(vload, LANES)(jv, p);
        const vec product = weight * JOIN(vload, LANES)(jv, flow);
        /* nothing comes from a key that is not seen */
        sum += select(product, (vec)(0.0f), weight == 0.0f);
    }
    return lanes_sum(sum);
}

/* What the rows of a unit have summed. */
typedef struct unit_sums {
    vec a[BLOCK_ROWS][V_VECS];
    vec b[BLOCK_ROWS][V_VECS];
    float max[BLOCK_ROWS];
    float sum[BLOCK_ROWS];    /* of P */
    float delta[BLOCK_ROWS];  /* of P (dP - c) */
    float center[BLOCK_ROWS]; /* c */
} unit_sums;

INLINE void clear_sums(unit_sums *sums)
{
    for (int r = 0; r < BLOCK_ROWS; r++) {
        sums->max[r] = -INFINITY;
        sums->sum[r] = sums->delta[r] = sums->center[r] = 0.0f;
        for (int cv = 0; cv < V_VECS; cv++)
            sums->a[r][cv] = sums->b[r][cv] = (vec)(0.0f);
    }
}

/* P (dP - c) takes the place of dP; it and P become ready for the product with
 * K. earlier_sum: as exponentiate had it. */
INLINE void center_flow(row_tile *tile, gradient_tile *g, unit_sums *sums,
                        const key_block *keys, uint first_row,
                        const float *earlier_sum)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        const uint at = tile->row[r] - first_row;
        if (earlier_sum[r] == 0.0f && tile->sum[r] > 0.0f)
            sums->center[at] = weigh_flow(tile->p[r], g->ds[r]) / tile->sum[r];
        vec delta = (vec)(0.0f);
        for (int jv = 0; jv < KEY_VECS; jv++) {
            vec p = JOIN(vload, LANES)(jv, tile->p[r]);
            vec pdp =
                p * (JOIN(vload, LANES)(jv, g->ds[r]) - sums->center[at]);
            pdp = select(pdp, (vec)(0.0f), p == 0.0f);
            delta += pdp;
#if VARIANT == COSINE
            pdp *= keys->inverse_norm[jv];
            p *= keys->inverse_norm[jv];
#endif
            JOIN(vstore, LANES)(pdp, jv, g->ds[r]);
            JOIN(vstore, LANES)(p, jv, tile->p[r]);
        }
        g->delta[r] = lanes_sum(delta);
    }
}

/* Brings the sums of the tile's rows up to date. */
INLINE void add_tile(unit_sums *sums, const row_tile *tile,
                     const gradient_tile *g, const key_block *keys,
                     const vec natural_k[BLOCK_KEYS][V_VECS], uint first_row,
                     uint row)
{
    vec a[TILE_ROWS][V_VECS], b[TILE_ROWS][V_VECS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int cv = 0; cv < V_VECS; cv++) {
            const uint at = tile->row[r] - first_row;
            a[r][cv] = sums->a[at][cv] * tile->keep[r];
            b[r][cv] = sums->b[at][cv] * tile->keep[r];
        }
    for (int cv = 0; cv < V_VECS; cv += OUT_VECS) {
        multiply_natural(a, g->ds, natural_k, keys->count, cv);
        multiply_natural(b, tile->p, natural_k, keys->count, cv);
    }
    for (int r = 0; r < tile->count; r++) {
        const uint at = row + r - first_row;
        for (int cv = 0; cv < V_VECS; cv++) {
            sums->a[at][cv] = a[r][cv];
            sums->b[at][cv] = b[r][cv];
        }
        sums->max[at] = tile->max[r];
        sums->sum[at] = tile->sum[r];
        sums->delta[at] = FMA(sums->delta[at], tile->keep[r], g->delta[r]);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
backward_rows_cpu(BACKWARD_PARAMETERS)
{
    const forward_args *forward = &args.forward;
    const unit u = find_unit(forward, get_global_id(0));
    const uint kv_head = u.head / forward->heads_per_kv_head;
    const uint row_end =
        min(u.row + forward->block_rows, (uint)forward->queries);
    const window_place place = place_window(&forward->grid, u.window);
    DECLARE_TERMS_AT(terms, *forward, u, place)
    __global const storage *unit_q =
        q + plane(&forward->q, place.grid, u.head);
    __global const storage *unit_k =
        k + plane(&forward->k, place.grid, kv_head);
    __global const storage *unit_v =
        v + plane(&forward->v, place.grid, kv_head);
    __global const storage *unit_pad_k =
        PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head);
    __global const storage *unit_pad_v =
        PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head);
    d_o += plane(&args.d_o, place.grid, u.head);
    workspace +=
        args.workspace +
        ((u.window - forward->first_window) * forward->heads + u.head) *
            forward->queries * ROW_NUMBERS;
    const float scale = HEAD_SCALE(forward, logit_scale, u.head);
    key_block keys;
    vec natural_k[BLOCK_KEYS][V_VECS], transposed_v[HEAD_DIM][KEY_VECS];
    row_tile tile;
    gradient_tile g;
    unit_sums sums;
    clear_sums(&sums);

    const key_walk walk = walk_keys(forward, u.row, row_end);
    for (uint block = 0; block < walk.blocks; block++) {
        open_keys(&keys, walk_block(forward, &walk, block), forward, &place,
                  unit_k, unit_pad_k);
        load_natural(natural_k, unit_k, &forward->k, &keys, unit_pad_k);
        load_transposed(transposed_v, 0, unit_v, &forward->v, &keys,
                        unit_pad_v);
#if MASK == 3
        load_regions(&keys, forward, &terms);
#endif
        for (uint row = u.row; row < row_end; row += TILE_ROWS) {
            float earlier_max[TILE_ROWS], earlier_sum[TILE_ROWS];
            load_rows(&tile, forward, &place, unit_q, row, row_end, scale);
            if (!has_rows(&tile))
                continue;
            load_d_o(&g, &tile, d_o, &args.d_o);
            for (int r = 0; r < TILE_ROWS; r++) {
                earlier_max[r] = sums.max[tile.row[r] - u.row];
                earlier_sum[r] = sums.sum[tile.row[r] - u.row];
            }
            compute_logits(&tile, &keys, forward, &terms);
            exponentiate(&tile, earlier_max, earlier_sum);
            multiply_d_o(&g, transposed_v);
            center_flow(&tile, &g, &sums, &keys, u.row, earlier_sum);
            add_tile(&sums, &tile, &g, &keys, natural_k, u.row, row);
        }
    }

    for (uint row = u.row; row < row_end; row++) {
        const uint at = row - u.row;
        const token t = find_token(&forward->grid, &place, row);
        const float inverse =
            sums.sum[at] == 0.0f ? 0.0f : 1.0f / sums.sum[at];
        float delta = sums.delta[at] * inverse; /* less the center */
        if ((forward->flags & ARG_D_LSE) != 0 && EXISTS(t))
            delta -= d_lse[plane(&args.d_lse, place.grid, u.head) +
                           token_offset(&args.d_lse, &t)];
        vec d[V_VECS];
        for (int cv = 0; cv < V_VECS; cv++)
            d[cv] =
                (sums.a[at][cv] - sums.b[at][cv] * delta) * (inverse * scale);
        float along = 0.0f;
#if VARIANT == COSINE
        along = take_back_token(d, unit_q, &forward->q, t, 0);
#endif
        if ((forward->flags & ARG_DQ) != 0 && EXISTS(t))
            store_gradient(d, dq + plane(&args.dq, place.grid, u.head),
                           &args.dq, t, (forward->flags & ARG_ADD_DQ) != 0);
        __global float *to = workspace + row * ROW_NUMBERS;
        to[ROW_BASE] = sums.max[at];
        to[ROW_DELTA] = sums.center[at] + delta;
        to[ROW_FACTOR] = inverse;
        /* a query of the padding takes no part in gradients */
        to[ROW_ALONG] = EXISTS(t) ? along : 0.0f;
    }
}
