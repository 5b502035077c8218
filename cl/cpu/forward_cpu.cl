/* SPDX-License-Identifier: Apache-2.0
 * Forward pass for CPUs: one work-item per work tile, no local memory, no
 * barrier. Logits, softmax, P V with vectors of channels. Where the keys
 * exceed BLOCK_KEYS it loops over blocks of keys and the softmax streams
 * (Milakov and Gimelshein 2018). */
#include "cpu/cpu_scores.cl"

REQUIRE(BLOCK_ROWS)
#if VARIANT != SLIDING
REQUIRE(NQ)
#endif

/* What a row has summed leaves; o and lse are planes. */
INLINE void store_row(const vec *out, float max, float sum,
                      const forward_args *args, __global storage *o,
                      __global float *lse, const token *at)
{
    if (!EXISTS(*at))
        return;
    __global storage *row = o + token_offset(&args->o, at);
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (int cv = 0; cv < CHANNEL_VECS; cv++)
        store_channels(out[cv] * inverse, row, args->o.column, cv);
    if ((args->flags & ARG_LSE) != 0)
        lse[token_offset(&args->lse, at)] = max + log(sum);
}

/* Asks, tile by tile, for what the next work tile will read: the processor's
 * own prefetcher loses track at each new tensor and page. */
INLINE void prefetch_next(const forward_args *args, uint index,
                          __global const storage *q, __global const storage *k,
                          __global const storage *v, uint row)
{
    const work_tile u = find_work_tile(args, index);
    const uint kv_head = u.head / args->heads_per_kv_head;
    const window_coord coord = locate_window(&args->grid, u.window);
    for (uint r = row; r < row + TILE_ROWS; r++) {
        const token at = find_token(&args->grid, &coord, r);
        if (r < args->queries)
            prefetch_channels(q, &args->q, coord.grid, u.head, &at);
        if (r >= args->keys)
            continue;
        prefetch_channels(k, &args->k, coord.grid, kv_head, &at);
        prefetch_channels(v, &args->v, coord.grid, kv_head, &at);
    }
}

/* Of rows of a work tile, where keys come in several blocks. */
typedef struct streamed_rows {
    vec out[BLOCK_ROWS][V_VECS];
    float max[BLOCK_ROWS], sum[BLOCK_ROWS];
} streamed_rows;

INLINE void clear_rows(streamed_rows *rows)
{
    for (int r = 0; r < BLOCK_ROWS; r++) {
        rows->max[r] = -INFINITY;
        rows->sum[r] = 0.0f;
        for (int cv = 0; cv < V_VECS; cv++)
            rows->out[r][cv] = (vec)(0.0f);
    }
}

/* sums: what the tile's rows have summed before, which are not so large now.
 */
INLINE void start_sums(vec sums[TILE_ROWS][V_VECS], const row_tile *tile,
                       const streamed_rows *rows, uint first_row)
{
    for (int r = 0; r < TILE_ROWS; r++)
        for (int cv = 0; cv < V_VECS; cv++)
            sums[r][cv] = STREAMING ? rows->out[tile->row[r] - first_row][cv] *
                                          tile->rescale[r]
                                    : (vec)(0.0f);
}

INLINE void keep_sums(streamed_rows *rows, vec sums[TILE_ROWS][V_VECS],
                      const row_tile *tile, uint first_row)
{
    for (int r = 0; r < tile->count; r++) {
        const uint at = tile->row[r] - first_row;
        for (int cv = 0; cv < V_VECS; cv++)
            rows->out[at][cv] = sums[r][cv];
        rows->max[at] = tile->max[r];
        rows->sum[at] = tile->sum[r];
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
forward_cpu(FORWARD_PARAMETERS)
{
    const uint index = get_global_id(0);
    const work_tile u = find_work_tile(&args, index);
    const uint kv_head = u.head / args.heads_per_kv_head;
    const uint row_end = min(u.row + args.block_rows, (uint)NQ);
    const window_coord coord = locate_window(&args.grid, u.window);
    const ulong grid = coord.grid;
    const score_bias_tensors bias_tensors = SCORE_BIAS_TENSORS;
    const score_bias_view score_bias =
        score_bias_at(&bias_tensors, &args, u, &coord);
    const head_rows q_rows = rows_of(q, &args.q, grid, u.head, 0);
    const head_rows k_rows = rows_of(k, &args.k, grid, kv_head,
                                     PAD_ROW(args, pad_k, ARG_PAD_K, kv_head));
    const head_rows v_rows = rows_of(v, &args.v, grid, kv_head,
                                     PAD_ROW(args, pad_v, ARG_PAD_V, kv_head));
    o += plane(&args.o, grid, u.head);
    lse += plane(&args.lse, grid, u.head);
    const float scale = HEAD_SCALE(&args, logit_scale, u.head);
    const int asks = VARIANT != SLIDING && args.row_blocks == 1 &&
                     index + 1 < args.work_tiles;
    key_block keys;
    vec values[BLOCK_KEYS][V_VECS], sums[TILE_ROWS][V_VECS];
    row_tile tile;
    streamed_rows rows;
    if (STREAMING)
        clear_rows(&rows);

    const key_loop loop = loop_over_keys(&args, u.row, row_end);
    for (uint b = 0; b < loop.blocks; b++) {
        open_keys(&keys, loop_block(&args, &loop, b), &args, &coord, &k_rows);
        load_natural(values, &v_rows, &keys);
        load_regions(&keys, &args, &score_bias);
        for (uint row = u.row; row < row_end; row += TILE_ROWS) {
            if (asks)
                prefetch_next(&args, index + 1, q, k, v, row);
            load_rows(&tile, &args, &coord, &q_rows, row, row_end, scale);
            if (!has_rows(&tile))
                continue;
            if (STREAMING)
                recall_rows(&tile, rows.max, rows.sum, u.row);
            compute_logits(&tile, &keys, &args, &score_bias);
            exponentiate(&tile);
            keep_tile(tile.p, &tile, &keys, &args, u);
            start_sums(sums, &tile, &rows, u.row);
            for (int cv = 0; cv < V_VECS; cv += OUT_VECS)
                multiply_values(sums, &tile, &keys, values, cv, &args);
            if (STREAMING)
                keep_sums(&rows, sums, &tile, u.row);
            for (int r = 0; !STREAMING && r < tile.count; r++) {
                const token at = row_token(&tile, r);
                store_row(sums[r], tile.max[r], tile.sum[r], &args, o, lse,
                          &at);
            }
        }
    }
    for (uint row = u.row; STREAMING && row < row_end; row++) {
        const token at = find_token(&args.grid, &coord, row);
        store_row(rows.out[row - u.row], rows.max[row - u.row],
                  rows.sum[row - u.row], &args, o, lse, &at);
    }
}
