/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for CPUs: dK, dV and what is summed over windows. One
 * work-item per (split, key head, block of keys): it iterates over its split's
 * windows, and in each all query heads and rows that see its keys.
 *
 *   FUSED 1: the block holds all keys of a window, so that a row's softmax is
 *            known here, and dQ is made here too
 *         0: backward_rows_cpu.cl has left each row's statistics
 *
 * With P and dP at hand:
 *   dS = P (dP - delta + d_lse),  dV += P^T dO,  dK += scale dS^T Q,
 *   dBias += dS
 * and dK, dV of the padding's tokens add up to those of pad_k, pad_v. */
#include "cpu/cpu_gradients.cl"

REQUIRE(FUSED)

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
#if FUSED
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
#if FUSED
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
        const float softmax_max =
            row[ROW_MAX] == -INFINITY ? 0.0f : row[ROW_MAX];
        for (int jv = 0; jv < KEY_VECS; jv++) {
            const vec x = JOIN(vload, LANES)(jv, tile->p[r]) - softmax_max;
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

#if GRID && FUSED
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
    const window_coord coord = locate_window(&forward->grid, window);
    const uint kv_head = head / forward->heads_per_kv_head;
    for (uint r = row; r < min(row + TILE_ROWS, forward->queries); r++) {
        const token at = find_token(&forward->grid, &coord, r);
        prefetch_channels(q + plane(&forward->q, coord.grid, head),
                          &forward->q, &at);
        prefetch_channels(d_o + plane(&args->d_o, coord.grid, head),
                          &args->d_o, &at);
        if ((forward->flags & ARG_DQ) != 0)
            prefetch_channels(dq + plane(&args->dq, coord.grid, head),
                              &args->dq, &at);
        if (head % forward->heads_per_kv_head != 0)
            continue; /* the others share its keys */
        prefetch_channels(k + plane(&forward->k, coord.grid, kv_head),
                          &forward->k, &at);
        prefetch_channels(v + plane(&forward->v, coord.grid, kv_head),
                          &forward->v, &at);
        if ((forward->flags & ARG_DK) != 0)
            prefetch_channels(dk + plane(&args->dk, coord.grid, kv_head),
                              &args->dk, &at);
        if ((forward->flags & ARG_DV) != 0)
            prefetch_channels(dv + plane(&args->dv, coord.grid, kv_head),
                              &args->dv, &at);
    }
}
#endif

#if FUSED
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
        along +=
            l2norm_backward_row(sums[r], x, inverse_norm(lanes_sum(squares)));
#endif
        if ((args->forward.flags & ARG_DQ) != 0)
            store_gradient(sums[r], dq, &args->dq, &at,
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

/* What the rows of a window sum for the block's keys, and what those of the
 * padding's tokens sum over windows. */
typedef struct key_sums {
    vec k[BLOCK_KEYS][V_VECS], v[BLOCK_KEYS][V_VECS];
#if PADDING == 1
    vec pad_k[V_VECS], pad_v[V_VECS];
#endif
} key_sums;

INLINE void clear_sums(key_sums *sums, const key_block *keys)
{
    for (int j = 0; j < keys->count; j++)
        for (int cv = 0; cv < V_VECS; cv++)
            sums->k[j][cv] = sums->v[j][cv] = (vec)(0.0f);
}

INLINE void clear_pads(key_sums *sums)
{
#if PADDING == 1
    for (int cv = 0; cv < V_VECS; cv++)
        sums->pad_k[cv] = sums->pad_v[cv] = (vec)(0.0f);
#endif
}

/* dV += P^T dO, dK += scale dS^T Q. */
INLINE void add_tile(key_sums *sums, const row_tile *tile,
                     const gradient_tile *g, const key_block *keys,
                     int wants_dk, int wants_dv)
{
    float one[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++)
        one[r] = 1.0f;
    if (wants_dv)
        add_outer(sums->v, tile->p, g->d_o, one, keys->count);
    if (wants_dk)
        add_outer(sums->k, g->ds, tile->q, tile->q_scale, keys->count);
}

/* After a window's last row. dk and dv are planes, as is k, whose row of
 * padding is pad_k. */
INLINE void store_keys(key_sums *sums, const key_block *keys,
                       const backward_args *args, __global const storage *k,
                       __global const storage *pad_k, __global storage *dk,
                       __global storage *dv, int wants_dk)
{
    const uint flags = args->forward.flags;
    for (int j = 0; j < keys->count; j++) {
        const token at = key_token(keys, j);
#if PADDING == 1
        for (int cv = 0; !EXISTS(at) && cv < V_VECS; cv++)
            sums->pad_v[cv] += sums->v[j][cv];
#endif
        if ((flags & ARG_DV) != 0 && EXISTS(at))
            store_gradient(sums->v[j], dv, &args->dv, &at,
                           (flags & ARG_ADD_DV) != 0);
        if (!wants_dk)
            continue;
#if VARIANT == COSINE
        l2norm_backward_token(sums->k[j], k, &args->forward.k, &at, pad_k);
#endif
#if PADDING == 1
        for (int cv = 0; !EXISTS(at) && cv < V_VECS; cv++)
            sums->pad_k[cv] += sums->k[j][cv];
#endif
        if ((flags & ARG_DK) != 0 && EXISTS(at))
            store_gradient(sums->k[j], dk, &args->dk, &at,
                           (flags & ARG_ADD_DK) != 0);
    }
}

/* A split's partial sums: [head], and [head][query][key] from the block's
 * first key on. */
typedef struct split_partials {
    __global float *scale;
    __global float *bias;
} split_partials;

INLINE __global float *bias_line(const split_partials *partials,
                                 const forward_args *forward, uint head,
                                 uint row)
{
    return partials->bias +
           ((ulong)head * forward->queries + row) * forward->keys;
}

/* In the first launch, of the heads that share a key head. */
INLINE void clear_partials(const split_partials *partials,
                           const forward_args *forward, uint key_count,
                           uint kv_head, int owns_scale)
{
    const uint group = forward->heads_per_kv_head;
    for (uint head = kv_head * group; head < (kv_head + 1) * group; head++) {
        if ((forward->flags & ARG_D_LOGIT_SCALE) != 0 && owns_scale)
            partials->scale[head] = 0.0f;
        for (uint row = 0;
             (forward->flags & ARG_DBIAS) != 0 && row < forward->queries;
             row++)
            for (uint j = 0; j < key_count; j++)
                bias_line(partials, forward, head, row)[j] = 0.0f;
    }
}

/* dBias += dS. */
INLINE void add_dbias(const split_partials *partials,
                      const forward_args *forward, const gradient_tile *g,
                      uint head, uint row, int row_count, int key_count)
{
    for (int r = 0; r < row_count; r++)
        add_partial(bias_line(partials, forward, head, row + r), g->ds[r],
                    key_count);
}

#if VARIANT == COSINE && !FUSED
/* q^ . dq^ of all rows, as the kernel of rows left it. */
INLINE float sum_along(__global const float *statistics, uint rows)
{
    float sum = 0.0f;
    for (uint row = 0; row < rows; row++)
        sum += statistics[row * ROW_NUMBERS + ROW_ALONG];
    return sum;
}
#endif

#if PADDING == 1
/* Adds what tokens of the padding have summed to the partials; `at` counts
 * those of splits, blocks of keys and key heads. */
INLINE void add_pads(const key_sums *sums, const backward_args *args,
                     __global float *workspace, ulong at)
{
    const uint flags = args->forward.flags;
    const int add = (flags & ARG_FIRST_LAUNCH) == 0;
    if ((flags & ARG_D_PAD_K) != 0)
        add_channels(workspace + args->pad_k_partials + at * HEAD_DIM,
                     sums->pad_k, add);
    if ((flags & ARG_D_PAD_V) != 0)
        add_channels(workspace + args->pad_v_partials + at * HEAD_DIM,
                     sums->pad_v, add);
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
    const uint kv_heads = forward->heads / group;
    const uint kv_head = index / args.key_blocks % kv_heads;
    const uint split = index / args.key_blocks / kv_heads;
    const int wants_dv = (flags & (ARG_DV | ARG_D_PAD_V)) != 0;
    const int wants_dk = (flags & (ARG_DK | ARG_D_PAD_K)) != 0;
    key_block keys;
    vec transposed_v[HEAD_DIM][KEY_VECS];
    key_sums sums;
#if FUSED
    vec natural_k[BLOCK_KEYS][V_VECS];
#endif
    row_tile tile;
    gradient_tile g;
    key_range range;
    range.first = key_block_index * BLOCK_KEYS;
    range.count = min(forward->keys - range.first, (uint)BLOCK_KEYS);
    range.mixed = VARIANT == SLIDING;
    __global const storage *head_pad_k =
        PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head);
    __global const storage *head_pad_v =
        PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head);
    clear_pads(&sums);
    const split_partials partials = {
        workspace + args.scale_partials + (ulong)split * forward->heads,
        workspace + args.bias_partials +
            (ulong)split * forward->heads * queries * forward->keys +
            range.first};
    if ((flags & ARG_FIRST_LAUNCH) != 0)
        clear_partials(&partials, forward, range.count, kv_head,
                       key_block_index == 0);

    for (ulong w = split; w < forward->windows; w += forward->splits) {
        work_tile u;
        u.window = forward->first_window + w;
        const window_coord coord = locate_window(&forward->grid, u.window);
        __global const storage *head_k =
            k + plane(&forward->k, coord.grid, kv_head);
        open_keys(&keys, range, forward, &coord, head_k, head_pad_k);
        load_transposed(transposed_v, 0,
                        v + plane(&forward->v, coord.grid, kv_head),
                        &forward->v, &keys, head_pad_v);
#if FUSED
        load_natural(natural_k, head_k, &forward->k, &keys, head_pad_k);
#endif
        clear_sums(&sums, &keys);

        for (u.head = kv_head * group; u.head < (kv_head + 1) * group;
             u.head++) {
            DECLARE_SCORE_BIAS_AT(score_bias, *forward, u, coord)
            load_regions(&keys, forward, &score_bias);
            __global const storage *head_q =
                q + plane(&forward->q, coord.grid, u.head);
            __global const storage *head_d_o =
                d_o + plane(&args.d_o, coord.grid, u.head);
            __global const float *head_d_lse =
                d_lse + plane(&args.d_lse, coord.grid, u.head);
            __global const float *statistics =
                workspace + args.workspace +
                (w * forward->heads + u.head) * queries * ROW_NUMBERS;
            const float scale = HEAD_SCALE(forward, logit_scale, u.head);
            float along = 0.0f;
            for (uint row = 0; row < queries; row += TILE_ROWS) {
#if VARIANT == SLIDING
                const uint last = min(row + TILE_ROWS, queries) - 1;
                if (lie_before(visible_span(forward, last), keys.first))
                    continue;
                if (lie_behind(forward, visible_span(forward, row), keys.first,
                               keys.first + keys.count))
                    break;
#endif
#if GRID && FUSED
                if (w + forward->splits < forward->windows)
                    prefetch_next(&args, u.window + forward->splits, u.head,
                                  row, q, k, v, d_o, dq, dk, dv);
#endif
                load_rows(&tile, forward, &coord, head_q, row, queries, scale);
                if (!has_rows(&tile))
                    continue;
                load_d_o(&g, &tile, head_d_o, &args.d_o);
                compute_logits(&tile, &keys, forward, &score_bias);
                multiply_d_o(&g, transposed_v);
                differentiate_softmax(&tile, &g, &args, head_d_lse,
                                      statistics);
#if FUSED
                along += compute_dq(&tile, &g, &keys, natural_k, &args,
                                    dq + plane(&args.dq, coord.grid, u.head),
                                    scale);
#endif
                if ((flags & ARG_DBIAS) != 0)
                    add_dbias(&partials, forward, &g, u.head, row, tile.count,
                              keys.count);
                add_tile(&sums, &tile, &g, &keys, wants_dk, wants_dv);
            }
#if VARIANT == COSINE
            if ((flags & ARG_D_LOGIT_SCALE) != 0 && key_block_index == 0) {
#if !FUSED
                along = sum_along(statistics, queries);
#endif
                partials.scale[u.head] +=
                    scale_gradient(forward, logit_scale, u.head, along);
            }
#endif
        }
        store_keys(&sums, &keys, &args, head_k, head_pad_k,
                   dk + plane(&args.dk, coord.grid, kv_head),
                   dv + plane(&args.dv, coord.grid, kv_head), wants_dk);
    }
#if PADDING == 1
    add_pads(&sums, &args, workspace,
             ((ulong)split * args.key_blocks + key_block_index) * kv_heads +
                 kv_head);
#endif
}
