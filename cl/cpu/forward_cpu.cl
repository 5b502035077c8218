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

#if VARIANT != SLIDING
/* Asks for rows row .. row + TILE_ROWS of a tensor. */
INLINE void prefetch_rows(__global const storage *p,
                          const tensor_layout *layout,
                          const forward_args *args, const window_coord *coord,
                          uint row, uint rows)
{
    for (uint r = row; r < min(row + TILE_ROWS, rows); r++) {
        const token at = find_token(&args->grid, coord, r);
        prefetch_channels(p, layout, &at);
    }
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
    prefetch_rows(q + plane(&args->q, coord.grid, u.head), &args->q, args,
                  &coord, row, NQ);
    prefetch_rows(k + plane(&args->k, coord.grid, kv_head), &args->k, args,
                  &coord, row, NK);
    prefetch_rows(v + plane(&args->v, coord.grid, kv_head), &args->v, args,
                  &coord, row, NK);
}
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
forward_cpu(FORWARD_PARAMETERS)
{
    const uint index = get_global_id(0);
    const work_tile u = find_work_tile(&args, index);
    const uint kv_head = u.head / args.heads_per_kv_head;
    const uint row_end = min(u.row + args.block_rows, (uint)NQ);
    const window_coord coord = locate_window(&args.grid, u.window);
    DECLARE_SCORE_BIAS_AT(score_bias, args, u, coord)
    __global const storage *head_q = q + plane(&args.q, coord.grid, u.head);
    __global const storage *head_k = k + plane(&args.k, coord.grid, kv_head);
    __global const storage *head_v = v + plane(&args.v, coord.grid, kv_head);
    __global const storage *head_pad_k =
        PAD_ROW(args, pad_k, ARG_PAD_K, kv_head);
    __global const storage *head_pad_v =
        PAD_ROW(args, pad_v, ARG_PAD_V, kv_head);
    o += plane(&args.o, coord.grid, u.head);
    lse += plane(&args.lse, coord.grid, u.head);
    const float scale = HEAD_SCALE(&args, logit_scale, u.head);
    key_block keys;
    vec values[BLOCK_KEYS][V_VECS];
    row_tile tile;
#if STREAMING
    vec out[BLOCK_ROWS][V_VECS];
    float out_max[BLOCK_ROWS], out_sum[BLOCK_ROWS];
    for (int r = 0; r < BLOCK_ROWS; r++) {
        out_max[r] = -INFINITY;
        out_sum[r] = 0.0f;
        for (int cv = 0; cv < V_VECS; cv++)
            out[r][cv] = (vec)(0.0f);
    }
#endif

    const key_loop loop = loop_over_keys(&args, u.row, row_end);
    for (uint b = 0; b < loop.blocks; b++) {
        open_keys(&keys, loop_block(&args, &loop, b), &args, &coord, head_k,
                  head_pad_k);
        load_natural(values, head_v, &args.v, &keys, head_pad_v);
        load_regions(&keys, &args, &score_bias);
        for (uint row = u.row; row < row_end; row += TILE_ROWS) {
#if VARIANT != SLIDING
            if (args.row_blocks == 1 && index + 1 < args.work_tiles)
                prefetch_next(&args, index + 1, q, k, v, row);
#endif
            load_rows(&tile, &args, &coord, head_q, row, row_end, scale);
            if (!has_rows(&tile))
                continue;
            compute_logits(&tile, &keys, &args, &score_bias);

            float earlier_max[TILE_ROWS], earlier_sum[TILE_ROWS];
            vec sums[TILE_ROWS][V_VECS];
            for (int r = 0; r < TILE_ROWS; r++) {
#if STREAMING
                earlier_max[r] = out_max[tile.row[r] - u.row];
                earlier_sum[r] = out_sum[tile.row[r] - u.row];
#else
                earlier_max[r] = -INFINITY;
                earlier_sum[r] = 0.0f;
#endif
            }
            exponentiate(&tile, earlier_max, earlier_sum);
            for (int r = 0; r < TILE_ROWS; r++)
                for (int cv = 0; cv < V_VECS; cv++)
#if STREAMING
                    sums[r][cv] =
                        out[tile.row[r] - u.row][cv] * tile.rescale[r];
#else
                    sums[r][cv] = (vec)(0.0f);
#endif
            for (int cv = 0; cv < V_VECS; cv += OUT_VECS)
                multiply_values(sums, &tile, &keys, values, cv, &args);
            for (int r = 0; r < tile.count; r++) {
#if STREAMING
                for (int cv = 0; cv < V_VECS; cv++)
                    out[row + r - u.row][cv] = sums[r][cv];
                out_max[row + r - u.row] = tile.max[r];
                out_sum[row + r - u.row] = tile.sum[r];
#else
                const token at = row_token(&tile, r);
                store_row(sums[r], tile.max[r], tile.sum[r], &args, o, lse,
                          &at);
#endif
            }
        }
    }
#if STREAMING
    for (uint row = u.row; row < row_end; row++) {
        const token at = find_token(&args.grid, &coord, row);
        store_row(out[row - u.row], out_max[row - u.row], out_sum[row - u.row],
                  &args, o, lse, &at);
    }
#endif
}
