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
                x[r][t] = vec_at(rows[r], cv + t) * factor[r];
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

/* Turns the tile's logits into P: with all keys of the rows at hand, or by
 * what the kernel of rows left of them. */
INLINE void find_weights(row_tile *tile, __global const float *statistics)
{
    if (FUSED)
        exponentiate(tile);
    for (int r = 0; r < TILE_ROWS; r++) {
        /* repeated rows must not count twice, those of the padding not at
         * all */
        const token at = row_token(tile, r);
        const int exists = r < tile->count && EXISTS(at);
        __global const float *row = statistics + tile->row[r] * ROW_NUMBERS;
        const float factor = !FUSED ? row[ROW_FACTOR]
                             : exists && tile->sum[r] != 0.0f
                                 ? 1.0f / tile->sum[r]
                                 : 0.0f;
        const float top = FUSED ? 0.0f : row[ROW_MAX];
        const float softmax_max = top == -INFINITY ? 0.0f : top;
        for (int jv = 0; jv < KEY_VECS; jv++) {
            vec p = vec_at(tile->p[r], jv);
            if (!FUSED)
                p = WEIGHT(p, softmax_max);
            set_vec(tile->p[r], jv, exists ? p * factor : (vec)(0.0f));
        }
    }
}

/* sum P dP - d_lse of a row, as find_weights and multiply_d_o left it. */
INLINE float find_delta(const row_tile *tile, const gradient_tile *g, int r,
                        const backward_args *args, __global const float *d_lse,
                        __global const float *statistics)
{
    if (!FUSED)
        return statistics[tile->row[r] * ROW_NUMBERS + ROW_DELTA];
    const token at = row_token(tile, r);
    vec sums = (vec)(0.0f);
    for (int jv = 0; jv < KEY_VECS; jv++) {
        const vec p = vec_at(tile->p[r], jv);
        const vec pdp = p * vec_at(g->ds[r], jv);
        sums += select(pdp, (vec)(0.0f), p == 0.0f);
    }
    float delta = lanes_sum(sums);
    if ((args->forward.flags & ARG_D_LSE) != 0 && EXISTS(at))
        delta -= d_lse[token_offset(&args->d_lse, &at)];
    return delta;
}

/* Turns the tile's logits into P, and dP into dS = P (dP - delta), which is 0
 * where P is. */
INLINE void differentiate_softmax(row_tile *tile, gradient_tile *g,
                                  const backward_args *args,
                                  __global const float *d_lse,
                                  __global const float *statistics)
{
    find_weights(tile, statistics);
    for (int r = 0; r < TILE_ROWS; r++) {
        const float delta = find_delta(tile, g, r, args, d_lse, statistics);
        for (int jv = 0; jv < KEY_VECS; jv++) {
            const vec p = vec_at(tile->p[r], jv);
            const vec ds = p * (vec_at(g->ds[r], jv) - delta);
            set_vec(g->ds[r], jv, select(ds, (vec)(0.0f), p == 0.0f));
        }
    }
}

/* A launch's tensors that a window has parts of. */
typedef struct window_tensors {
    __global const storage *q, *k, *v, *d_o;
    __global storage *dq, *dk, *dv;
} window_tensors;

/* Asks, tile by tile, for what the next window will read and write: rows of a
 * token lie apart on a grid, and the processor's own prefetcher does not guess
 * where the next one is. */
INLINE void prefetch_next(const backward_args *args, const window_tensors *of,
                          ulong window, uint head, uint row)
{
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const window_coord coord = locate_window(&forward->grid, window);
    const ulong grid = coord.grid;
    const uint kv_head = head / forward->heads_per_kv_head;
    for (uint r = row; r < min(row + TILE_ROWS, forward->queries); r++) {
        const token at = find_token(&forward->grid, &coord, r);
        prefetch_channels(of->q, &forward->q, grid, head, &at);
        prefetch_channels(of->d_o, &args->d_o, grid, head, &at);
        if ((flags & ARG_DQ) != 0)
            prefetch_channels(of->dq, &args->dq, grid, head, &at);
        if (head % forward->heads_per_kv_head != 0)
            continue; /* the others share its keys */
        prefetch_channels(of->k, &forward->k, grid, kv_head, &at);
        prefetch_channels(of->v, &forward->v, grid, kv_head, &at);
        if ((flags & ARG_DK) != 0)
            prefetch_channels(of->dk, &args->dk, grid, kv_head, &at);
        if ((flags & ARG_DV) != 0)
            prefetch_channels(of->dv, &args->dv, grid, kv_head, &at);
    }
}

/* dQ of the tile; returns the sum of q^ . dq^ over its rows. */
INLINE float compute_dq(const row_tile *tile, gradient_tile *g,
                        const key_block *keys,
                        const vec natural_k[BLOCK_KEYS][V_VECS],
                        const gradient_rows *dq, float scale)
{
    float along = 0.0f, weights[TILE_ROWS][BLOCK_KEYS];
    vec sums[TILE_ROWS][V_VECS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int cv = 0; cv < V_VECS; cv++)
            sums[r][cv] = (vec)(0.0f);
    for (int r = 0; VARIANT == COSINE && r < TILE_ROWS; r++)
        for (int jv = 0; jv < KEY_VECS; jv++)
            set_vec(weights[r], jv,
                    vec_at(g->ds[r], jv) * keys->inverse_norm[jv]);
    for (int cv = 0; cv < V_VECS; cv += OUT_VECS)
        multiply_natural(sums, VARIANT == COSINE ? weights : g->ds, natural_k,
                         keys->count, cv);
    for (int r = 0; r < tile->count; r++) {
        const token at = row_token(tile, r);
        if (!EXISTS(at))
            continue;
        for (int cv = 0; cv < V_VECS; cv++)
            sums[r][cv] *= scale;
        if (VARIANT == COSINE) {
            vec x[V_VECS], squares = (vec)(0.0f);
            for (int cv = 0; cv < V_VECS; cv++) {
                x[cv] = vec_at(tile->q[r], cv);
                squares = FMA(x[cv], x[cv], squares);
            }
            along += l2norm_backward_row(sums[r], x,
                                         inverse_norm(lanes_sum(squares)));
        }
        store_gradient(sums[r], dq, &at);
    }
    return along;
}

/* What the rows of a window sum for the block's keys, and what those of the
 * padding's tokens sum over windows. */
typedef struct key_sums {
    vec k[BLOCK_KEYS][V_VECS], v[BLOCK_KEYS][V_VECS];
    vec pad_k[V_VECS], pad_v[V_VECS];
} key_sums;

INLINE void clear_sums(key_sums *sums, const key_block *keys)
{
    for (int j = 0; j < keys->count; j++)
        for (int cv = 0; cv < V_VECS; cv++)
            sums->k[j][cv] = sums->v[j][cv] = (vec)(0.0f);
}

/* dV += P^T dO, dK += scale dS^T Q. */
INLINE void add_tile(key_sums *sums, const row_tile *tile,
                     const gradient_tile *g, const key_block *keys, uint flags)
{
    float one[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++)
        one[r] = 1.0f;
    if ((flags & (ARG_DV | ARG_D_PAD_V)) != 0)
        add_outer(sums->v, tile->p, g->d_o, one, keys->count);
    if ((flags & (ARG_DK | ARG_D_PAD_K)) != 0)
        add_outer(sums->k, g->ds, tile->q, tile->q_scale, keys->count);
}

/* After a window's last row. */
INLINE void store_keys(key_sums *sums, const key_block *keys,
                       const head_rows *k, const gradient_rows *dk,
                       const gradient_rows *dv)
{
    for (int j = 0; j < keys->count; j++) {
        const token at = key_token(keys, j);
        store_gradient(sums->v[j], dv, &at);
        if (VARIANT == COSINE)
            l2norm_backward_token(sums->k[j], k, &at);
        store_gradient(sums->k[j], dk, &at);
        for (int cv = 0; !EXISTS(at) && cv < V_VECS; cv++) {
            sums->pad_v[cv] += sums->v[j][cv];
            sums->pad_k[cv] += sums->k[j][cv];
        }
    }
}

/* ---- Sums over windows ---- */

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
                      const forward_args *forward, const row_tile *tile,
                      const gradient_tile *g, uint head, int key_count)
{
    for (int r = 0; r < tile->count; r++)
        add_partial(bias_line(partials, forward, head, tile->row[r]), g->ds[r],
                    key_count);
}

/* q^ . dq^ of all rows, as the kernel of rows left it. */
INLINE float sum_along(__global const float *statistics, uint rows)
{
    float sum = 0.0f;
    for (uint row = 0; row < rows; row++)
        sum += statistics[row * ROW_NUMBERS + ROW_ALONG];
    return sum;
}

/* Starts a partial sum of a row of channels, or adds to it. */
INLINE void add_channels(__global float *to, const vec sums[V_VECS], int add)
{
    float x[CHANNELS];
    for (int cv = 0; cv < V_VECS; cv++)
        set_vec(x, cv, sums[cv]);
    for (int c = 0; c < HEAD_DIM; c++)
        to[c] = add ? to[c] + x[c] : x[c];
}

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

/* ---- Heads of a window ---- */

/* A block of keys of a window. */
typedef struct window_keys {
    const backward_args *args;
    const window_tensors *of;
    window_coord coord;
    ulong next; /* the split's next window, 0 behind the last */
    head_rows k, v;
    gradient_rows dk, dv;
    key_block keys;
    vec transposed_v[HEAD_DIM][KEY_VECS];
    vec natural_k[BLOCK_KEYS][V_VECS]; /* FUSED */
} window_keys;

/* pad_k, pad_v: the head's rows of the padding. */
INLINE void open_window(window_keys *w, key_range range, ulong window,
                        uint kv_head, __global const storage *pad_k,
                        __global const storage *pad_v)
{
    const backward_args *args = w->args;
    const forward_args *forward = &args->forward;
    const window_tensors *of = w->of;
    const uint flags = forward->flags;
    w->coord = locate_window(&forward->grid, window);
    const ulong grid = w->coord.grid;
    const ulong after = window + forward->splits;
    w->next = after < forward->first_window + forward->windows ? after : 0;
    w->k = rows_of(of->k, &forward->k, grid, kv_head, pad_k);
    w->v = rows_of(of->v, &forward->v, grid, kv_head, pad_v);
    w->dk = gradient_of(of->dk, &args->dk, grid, kv_head, flags & ARG_DK,
                        flags & ARG_ADD_DK);
    w->dv = gradient_of(of->dv, &args->dv, grid, kv_head, flags & ARG_DV,
                        flags & ARG_ADD_DV);
    open_keys(&w->keys, range, forward, &w->coord, &w->k);
    load_transposed(w->transposed_v, 0, &w->v, &w->keys);
    if (FUSED)
        load_natural(w->natural_k, &w->k, &w->keys);
}

/* Rows, in tiles, that see some of the block's keys: the first and the end. */
INLINE uint2 rows_that_see(const forward_args *args, const key_block *keys)
{
    if (VARIANT != SLIDING)
        return (uint2)(0, args->queries);
    const row_range rows =
        rows_of_keys(args, keys->first, keys->first + keys->count - 1);
    return (uint2)(rows.first / TILE_ROWS * TILE_ROWS, rows.end);
}

/* What a query head adds to sums and partials; returns the sum of q^ . dq^.
 * statistics: of its rows, unless FUSED. */
INLINE float add_head(key_sums *sums, window_keys *w,
                      const score_bias_view *score_bias, work_tile u,
                      float scale, __global const float *d_lse,
                      __global const float *statistics,
                      const split_partials *partials)
{
    const backward_args *args = w->args;
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const ulong grid = w->coord.grid;
    const head_rows q = rows_of(w->of->q, &forward->q, grid, u.head, 0);
    const head_rows d_o = rows_of(w->of->d_o, &args->d_o, grid, u.head, 0);
    const gradient_rows dq = gradient_of(w->of->dq, &args->dq, grid, u.head,
                                         flags & ARG_DQ, flags & ARG_ADD_DQ);
    float along = 0.0f;
    row_tile tile;
    gradient_tile g;
    d_lse += plane(&args->d_lse, grid, u.head);
    load_regions(&w->keys, forward, score_bias);
    const uint2 rows = rows_that_see(forward, &w->keys);
    for (uint row = rows.x; row < rows.y; row += TILE_ROWS) {
        if (GRID && FUSED && w->next != 0)
            prefetch_next(args, w->of, w->next, u.head, row);
        load_rows(&tile, forward, &w->coord, &q, row, forward->queries, scale);
        if (!has_rows(&tile))
            continue;
        load_d_o(&g, &tile, &d_o);
        compute_logits(&tile, &w->keys, forward, score_bias);
        multiply_d_o(&g, w->transposed_v);
        keep_tile(g.ds, &tile, &w->keys, forward, u);
        differentiate_softmax(&tile, &g, args, d_lse, statistics);
        keep_tile(tile.p, &tile, &w->keys, forward, u);
        if (FUSED)
            along += compute_dq(&tile, &g, &w->keys, w->natural_k, &dq, scale);
        if ((flags & ARG_DBIAS) != 0)
            add_dbias(partials, forward, &tile, &g, u.head, w->keys.count);
        add_tile(sums, &tile, &g, &w->keys, flags);
    }
    return VARIANT == COSINE && !FUSED
               ? sum_along(statistics, forward->queries)
               : along;
}

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
    const int owns_scale = VARIANT == COSINE &&
                           (flags & ARG_D_LOGIT_SCALE) != 0 &&
                           key_block_index == 0;
    const window_tensors tensors = {q, k, v, d_o, dq, dk, dv};
    const score_bias_tensors bias_tensors = SCORE_BIAS_TENSORS;
    key_range range = {.first = key_block_index * BLOCK_KEYS,
                       .mixed = VARIANT == SLIDING};
    range.count = min(forward->keys - range.first, (uint)BLOCK_KEYS);
    const split_partials partials = {
        workspace + args.scale_partials + (ulong)split * forward->heads,
        workspace + args.bias_partials +
            (ulong)split * forward->heads * queries * forward->keys +
            range.first};
    window_keys here = {.args = &args, .of = &tensors};
    key_sums sums;
    for (int cv = 0; cv < V_VECS; cv++)
        sums.pad_k[cv] = sums.pad_v[cv] = (vec)(0.0f);
    if ((flags & ARG_FIRST_LAUNCH) != 0)
        clear_partials(&partials, forward, range.count, kv_head, owns_scale);

    for (ulong w = split; w < forward->windows; w += forward->splits) {
        work_tile u = {.window = forward->first_window + w};
        open_window(&here, range, u.window, kv_head,
                    PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head),
                    PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head));
        clear_sums(&sums, &here.keys);
        for (u.head = kv_head * group; u.head < (kv_head + 1) * group;
             u.head++) {
            const score_bias_view score_bias =
                score_bias_at(&bias_tensors, forward, u, &here.coord);
            const float along =
                add_head(&sums, &here, &score_bias, u,
                         HEAD_SCALE(forward, logit_scale, u.head), d_lse,
                         statistics_of(workspace, &args, u), &partials);
            if (owns_scale)
                partials.scale[u.head] +=
                    scale_gradient(forward, LOGIT_SCALE, u.head, along);
        }
        store_keys(&sums, &here.keys, &here.k, &here.dk, &here.dv);
    }
    if (PADDING == 1)
        add_pads(&sums, &args, workspace,
                 ((ulong)split * args.key_blocks + key_block_index) *
                         kv_heads +
                     kv_head);
}
