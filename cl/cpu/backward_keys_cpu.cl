/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for CPUs: dK, dV and what is summed over windows. One
 * work-item per (slot, key head, block of keys): it walks its slot's windows,
 * and in each all query heads and rows that see its keys.
 *
 *   WHOLE 1: the block holds all keys of a window, so that a row's softmax is
 *            known here, and dQ is made here too
 *         0: backward_rows_cpu.cl has left each row's statistics
 *
 * With P and dP at hand:
 *   dS = P (dP - delta + d_lse),  dV += P^T dO,  dK += scale dS^T Q,
 *   dBias += dS
 * and dK, dV of the padding's tokens add up to those of pad_k, pad_v. */
#include "cpu/cpu_gradients.cl"

#ifndef WHOLE
#define WHOLE 1
#endif

/* sums[key][..] += the sum over the tile's rows of weights[row][key] factor
 * rows[row][..]. */
INLINE void add_outer(vec sums[BLOCK_KEYS][V_VECS],
                      const float weights[TILE_ROWS][BLOCK_KEYS],
                      const float rows[TILE_ROWS][CHANNELS],
                      const float factor[TILE_ROWS], int count)
{
    for (int cv = 0; cv < V_VECS; cv += OUT_VECS) {
        vec x[TILE_ROWS][OUT_VECS];
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
            UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
                x[r][t] = JOIN(vload, LANES)(cv + t, rows[r]) * factor[r];
        NO_UNROLL_FOR (int j = 0; j < count; j++)
            UNROLL_FOR (int t = 0; t < OUT_VECS; t++) {
                vec acc = sums[j][cv + t];
                UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
                    acc = FMA((vec)(weights[r][j]), x[r][t], acc);
                sums[j][cv + t] = acc;
            }
    }
}

/* Adds a row to a partial sum, or just clears it. */
INLINE void add_partial(__global float *to, const float *x, int count)
{
    int j = 0;
    for (; j + LANES <= count; j += LANES)
        JOIN(vstore, LANES)
    (JOIN(vload, LANES)(0, to + j) + JOIN(vload, LANES)(0, x + j), 0, to + j);
    for (; j < count; j++)
        to[j] += x[j];
}

/* Turns the tile's logits into P, and dP into dS. */
INLINE void differentiate_softmax(row_tile *tile, gradient_tile *g,
                                  const backward_args *args,
                                  __global const float *d_lse,
                                  __global const float *statistics)
{
#if WHOLE
    float earlier_max[TILE_ROWS], earlier_sum[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) {
        earlier_max[r] = -INFINITY;
        earlier_sum[r] = 0.0f;
    }
    exponentiate(tile, earlier_max, earlier_sum);
#endif
    for (int r = 0; r < TILE_ROWS; r++) {
        /* repeated rows must not count twice, those of the padding not at
         * all */
        const token at = row_token(tile, r);
        const int exists = r < tile->count && EXISTS(at);
#if WHOLE
        const float factor =
            exists && tile->sum[r] != 0.0f ? 1.0f / tile->sum[r] : 0.0f;
        vec sums = (vec)(0.0f);
        for (int jv = 0; jv < KEY_VECS; jv++) {
            const vec p = JOIN(vload, LANES)(jv, tile->p[r]) * factor;
            const vec pdp = p * JOIN(vload, LANES)(jv, g->ds[r]);
            JOIN(vstore, LANES)(p, jv, tile->p[r]);
            sums += select(pdp, (vec)(0.0f), p == 0.0f);
        }
        float delta = lanes_sum(sums);
        if ((args->forward.flags & ARG_D_LSE) != 0 && EXISTS(at))
            delta -= d_lse[token_offset(&args->d_lse, &at)];
#else
        __global const float *row = statistics + tile->row[r] * ROW_NUMBERS;
        const float delta = row[ROW_DELTA];
        const float base = row[ROW_BASE] == -INFINITY ? 0.0f : row[ROW_BASE];
        for (int jv = 0; jv < KEY_VECS; jv++) {
            const vec x = JOIN(vload, LANES)(jv, tile->p[r]) - base;
            const vec p = exp2_nonpositive(x * LOG2E) * row[ROW_FACTOR];
            JOIN(vstore, LANES)(exists ? p : (vec)(0.0f), jv, tile->p[r]);
        }
#endif
        for (int jv = 0; jv < KEY_VECS; jv++) {
            const vec p = JOIN(vload, LANES)(jv, tile->p[r]);
            const vec ds = p * (JOIN(vload, LANES)(jv, g->ds[r]) - delta);
            JOIN(vstore, LANES)
            (select(ds, (vec)(0.0f), p == 0.0f), jv, g->ds[r]);
        }
#if PADDING
        for (int jv = 0; !EXISTS(at) && jv < KEY_VECS; jv++) {
            JOIN(vstore, LANES)((vec)(0.0f), jv, tile->p[r]);
            JOIN(vstore, LANES)((vec)(0.0f), jv, g->ds[r]);
        }
#endif
    }
}

#if GRID && WHOLE
/* Asks, tile by tile, for what the next window will read and write: rows of a
 * token lie apart on a grid, and the processor's own prefetcher does not guess
 * where the next one is. */
INLINE void prefetch_next(const backward_args *args, ulong window, uint head,
                          uint row, __global const storage *q,
                          __global const storage *k, __global const storage *v,
                          __global const storage *d_o,
                          __global const storage *dq,
                          __global const storage *dk,
                          __global const storage *dv)
{
    const forward_args *forward = &args->forward;
    const window_place place = place_window(&forward->grid, window);
    const uint kv_head = head / forward->heads_per_kv_head;
    for (uint r = row; r < min(row + TILE_ROWS, forward->queries); r++) {
        const token at = find_token(&forward->grid, &place, r);
        prefetch_channels(q + plane(&forward->q, place.grid, head),
                          &forward->q, at);
        prefetch_channels(d_o + plane(&args->d_o, place.grid, head),
                          &args->d_o, at);
        if ((forward->flags & ARG_DQ) != 0)
            prefetch_channels(dq + plane(&args->dq, place.grid, head),
                              &args->dq, at);
        if (head % forward->heads_per_kv_head != 0)
            continue; /* the others share its keys */
        prefetch_channels(k + plane(&forward->k, place.grid, kv_head),
                          &forward->k, at);
        prefetch_channels(v + plane(&forward->v, place.grid, kv_head),
                          &forward->v, at);
        if ((forward->flags & ARG_DK) != 0)
            prefetch_channels(dk + plane(&args->dk, place.grid, kv_head),
                              &args->dk, at);
        if ((forward->flags & ARG_DV) != 0)
            prefetch_channels(dv + plane(&args->dv, place.grid, kv_head),
                              &args->dv, at);
    }
}
#endif

#if WHOLE
/* dQ of the tile; returns the sum of q^ . dq^ over its rows. */
INLINE float compute_dq(const row_tile *tile, gradient_tile *g,
                        const key_block *keys,
                        const vec natural_k[BLOCK_KEYS][V_VECS],
                        const backward_args *args, __global storage *dq,
                        float scale)
{
    float along = 0.0f;
    vec sums[TILE_ROWS][V_VECS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int cv = 0; cv < V_VECS; cv++)
            sums[r][cv] = (vec)(0.0f);
#if VARIANT == COSINE
    float weights[TILE_ROWS][BLOCK_KEYS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int jv = 0; jv < KEY_VECS; jv++)
            JOIN(vstore, LANES)
    (JOIN(vload, LANES)(jv, g->ds[r]) * keys->inverse_norm[jv], jv,
     weights[r]);
    for (int cv = 0; cv < V_VECS; cv += OUT_VECS)
        multiply_natural(sums, weights, natural_k, keys->count, cv);
#else
    for (int cv = 0; cv < V_VECS; cv += OUT_VECS)
        multiply_natural(sums, g->ds, natural_k, keys->count, cv);
#endif
    for (int r = 0; r < tile->count; r++) {
        const token at = row_token(tile, r);
        if (!EXISTS(at))
            continue;
        for (int cv = 0; cv < V_VECS; cv++)
            sums[r][cv] *= scale;
#if VARIANT == COSINE
        vec x[V_VECS], squares = (vec)(0.0f);
        for (int cv = 0; cv < V_VECS; cv++) {
            x[cv] = JOIN(vload, LANES)(cv, tile->q[r]);
            squares = FMA(x[cv], x[cv], squares);
        }
        along += take_back_norm(sums[r], x, inverse_norm(lanes_sum(squares)));
#endif
        if ((args->forward.flags & ARG_DQ) != 0)
            store_gradient(sums[r], dq, &args->dq, at,
                           (args->forward.flags & ARG_ADD_DQ) != 0);
    }
    return along;
}
#endif

#if PADDING == 1
/* Starts a partial sum of a row of channels, or adds to it. */
INLINE void add_channels(__global float *to, const vec sums[V_VECS], int add)
{
    float x[CHANNELS];
    for (int cv = 0; cv < V_VECS; cv++)
        JOIN(vstore, LANES)(sums[cv], cv, x);
    for (int c = 0; c < HEAD_DIM; c++)
        to[c] = add ? to[c] + x[c] : x[c];
}
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
backward_keys_cpu(BACKWARD_PARAMETERS)
{
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const uint queries = forward->queries;
    const uint group = forward->heads_per_kv_head;
    const uint index = get_global_id(0);
    const uint key_block_index = index % args.key_blocks;
    const uint kv_head = index / args.key_blocks % (forward->heads / group);
    const uint slot = index / args.key_blocks / (forward->heads / group);
    key_block keys;
    vec transposed_v[HEAD_DIM][KEY_VECS];
    vec sums_k[BLOCK_KEYS][V_VECS], sums_v[BLOCK_KEYS][V_VECS];
#if WHOLE
    vec natural_k[BLOCK_KEYS][V_VECS];
#endif
    row_tile tile;
    gradient_tile g;
    keys.first = key_block_index * BLOCK_KEYS;
    keys.count = (int)min(forward->keys - keys.first, (uint)BLOCK_KEYS);
    keys.mixed = VARIANT == SLIDING;
    const int wants_dv = (flags & (ARG_DV | ARG_D_PAD_V)) != 0;
    const int wants_dk = (flags & (ARG_DK | ARG_D_PAD_K)) != 0;
    __global const storage *unit_pad_k =
        PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head);
    __global const storage *unit_pad_v =
        PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head);
#if PADDING == 1
    vec pad_sums_k[V_VECS], pad_sums_v[V_VECS];
    for (int cv = 0; cv < V_VECS; cv++)
        pad_sums_k[cv] = pad_sums_v[cv] = (vec)(0.0f);
#endif

    __global float *scale_partials =
        workspace + args.scale_partials + (ulong)slot * forward->heads;
    __global float *bias_partials =
        workspace + args.bias_partials +
        (ulong)slot * forward->heads * queries * forward->keys + keys.first;
    if ((flags & ARG_FIRST_LAUNCH) != 0)
        for (uint head = kv_head * group; head < (kv_head + 1) * group;
             head++) {
            if ((flags & ARG_D_LOGIT_SCALE) != 0 && key_block_index == 0)
                scale_partials[head] = 0.0f;
            for (uint row = 0; (flags & ARG_DBIAS) != 0 && row < queries;
                 row++)
                for (int j = 0; j < keys.count; j++)
                    bias_partials[((ulong)head * queries + row) *
                                      forward->keys +
                                  j] = 0.0f;
        }

    for (ulong w = slot; w < args.forward.windows; w += args.forward.slots) {
        unit u;
        u.window = forward->first_window + w;
        const window_place place = place_window(&forward->grid, u.window);
        __global const storage *unit_k =
            k + plane(&forward->k, place.grid, kv_head);
        find_keys(&keys, &forward->grid, &place);
        load_keys(&keys, forward, unit_k, unit_pad_k);
        load_transposed(transposed_v, 0,
                        v + plane(&forward->v, place.grid, kv_head),
                        &forward->v, &keys, unit_pad_v);
#if WHOLE
        load_natural(natural_k, unit_k, &forward->k, &keys, unit_pad_k);
#endif
        for (int j = 0; j < keys.count; j++)
            for (int cv = 0; cv < V_VECS; cv++)
                sums_k[j][cv] = sums_v[j][cv] = (vec)(0.0f);

        for (u.head = kv_head * group; u.head < (kv_head + 1) * group;
             u.head++) {
            DECLARE_TERMS_AT(terms, *forward, u, place)
#if MASK == 3
            load_regions(&keys, forward, &terms);
#endif
            __global const storage *unit_q =
                q + plane(&forward->q, place.grid, u.head);
            __global const storage *unit_d_o =
                d_o + plane(&args.d_o, place.grid, u.head);
            __global const float *unit_d_lse =
                d_lse + plane(&args.d_lse, place.grid, u.head);
            __global const float *statistics =
                workspace + args.workspace +
                (w * forward->heads + u.head) * queries * ROW_NUMBERS;
#if VARIANT == COSINE
            const float scale = cosine_scale(forward, logit_scale, u.head);
#else
            const float scale = forward->scale;
#endif
            float along = 0.0f;
            for (uint row = 0; row < queries; row += TILE_ROWS) {
#if VARIANT == SLIDING
                const uint last = min(row + TILE_ROWS, queries) - 1;
                if (visible_span(forward, last).high <= keys.first)
                    continue;
                if (visible_span(forward, row).low >=
                        keys.first + keys.count &&
                    keys.first >= forward->sink)
                    break;
#endif
#if GRID && WHOLE
                if (w + forward->slots < forward->windows)
                    prefetch_next(&args, u.window + forward->slots, u.head,
                                  row, q, k, v, d_o, dq, dk, dv);
#endif
                load_rows(&tile, forward, &place, unit_q, row, queries, scale);
                if (!has_rows(&tile))
                    continue;
                for (int r = 0; r < TILE_ROWS; r++)
                    load_row(g.d_o[r], unit_d_o, &args.d_o,
                             row_token(&tile, r), 0);
                for (int jv = 0; jv < KEY_VECS; jv += TILE_VECS)
                    compute_logits(&tile, &keys, jv, forward, &terms);
                multiply_d_o(&g, transposed_v);
                differentiate_softmax(&tile, &g, &args, unit_d_lse,
                                      statistics);
#if WHOLE
                along += compute_dq(&tile, &g, &keys, natural_k, &args,
                                    dq + plane(&args.dq, place.grid, u.head),
                                    scale);
#endif
                for (int r = 0; (flags & ARG_DBIAS) != 0 && r < tile.count;
                     r++)
                    add_partial(bias_partials +
                                    ((ulong)u.head * queries + row + r) *
                                        forward->keys,
                                g.ds[r], keys.count);
                float one[TILE_ROWS];
                for (int r = 0; r < TILE_ROWS; r++)
                    one[r] = 1.0f;
                if (wants_dv)
                    add_outer(sums_v, tile.p, g.d_o, one, keys.count);
                if (wants_dk)
                    add_outer(sums_k, g.ds, tile.q, tile.q_scale, keys.count);
            }
#if VARIANT == COSINE
            if ((flags & ARG_D_LOGIT_SCALE) != 0 && key_block_index == 0) {
#if !WHOLE
                for (uint row = 0; row < queries; row++)
                    along += statistics[row * ROW_NUMBERS + ROW_ALONG];
#endif
                scale_partials[u.head] +=
                    scale_gradient(forward, logit_scale, u.head, along);
            }
#endif
        }

        for (int j = 0; j < keys.count; j++) {
            const token at = key_token(&keys, j);
#if PADDING == 1
            for (int cv = 0; !EXISTS(at) && cv < V_VECS; cv++)
                pad_sums_v[cv] += sums_v[j][cv];
#endif
            if ((flags & ARG_DV) != 0 && EXISTS(at))
                store_gradient(sums_v[j],
                               dv + plane(&args.dv, place.grid, kv_head),
                               &args.dv, at, (flags & ARG_ADD_DV) != 0);
            if (!wants_dk)
                continue;
#if VARIANT == COSINE
            float x[CHANNELS];
            vec x_vecs[V_VECS];
            const float squares =
                lanes_sum(load_row(x, unit_k, &forward->k, at, unit_pad_k));
            for (int cv = 0; cv < V_VECS; cv++)
                x_vecs[cv] = JOIN(vload, LANES)(cv, x);
            take_back_norm(sums_k[j], x_vecs, inverse_norm(squares));
#endif
#if PADDING == 1
            for (int cv = 0; !EXISTS(at) && cv < V_VECS; cv++)
                pad_sums_k[cv] += sums_k[j][cv];
#endif
            if ((flags & ARG_DK) != 0 && EXISTS(at))
                store_gradient(sums_k[j],
                               dk + plane(&args.dk, place.grid, kv_head),
                               &args.dk, at, (flags & ARG_ADD_DK) != 0);
        }
    }
#if PADDING == 1
    const ulong pad_at = (((ulong)slot * args.key_blocks + key_block_index) *
                              (forward->heads / group) +
                          kv_head) *
                         HEAD_DIM;
    const int add = (flags & ARG_FIRST_LAUNCH) == 0;
    if ((flags & ARG_D_PAD_K) != 0)
        add_channels(workspace + args.pad_k_partials + pad_at, pad_sums_k,
                     add);
    if ((flags & ARG_D_PAD_V) != 0)
        add_channels(workspace + args.pad_v_partials + pad_at, pad_sums_v,
                     add);
#endif
}
