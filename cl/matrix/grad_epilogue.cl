/* SPDX-License-Identifier: Apache-2.0
 * How rows of dQ, dK and dV leave (epilogue.cl), in the cosine variant as
 * gradients of rows before they had length 1, and those of the padding as
 * sums. */
#ifndef GRAD_EPILOGUE_CL
#define GRAD_EPILOGUE_CL
#include "matrix/grad_softmax.cl"

#if VARIANT == COSINE
/* Gradients with respect to rows of length 1 are taken back to rows x of any
 * length: (d - x^ (x^ . d)) / |x|, where d is sums times factor. Below the
 * smallest norm x^ is just a multiple of x. Leaves x^ . d in along. */
INLINE void l2norm_backward(float sums[][ACC_PER_LANE], float *along,
                            const float *factor, const float *inverses,
                            __local const ushort *rows, int row, int last,
                            const wave *w)
{
    float part[LANE_ROWS], whole[LANE_ROWS], inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        along[r] = 0.0f;
        inverse[r] = DROPS_ZEROS && inverses[r] == 0.0f ? 1.0f / NORM_EPSILON
                                                        : inverses[r];
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            const float x = number_of(rows[swizzled_offset(
                min(row + value_query(w->lane, i), last),
                d * TILE_N + value_key(w->lane, i), PITCH)]);
            along[LANE_ROW(i)] = FMA(x, sums[d][i], along[LANE_ROW(i)]);
        }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(along[r], ADD);
        whole[r] = factor[r] * inverse[r];
        along[r] *= whole[r];
        part[r] = inverse[r] < 1.0f / NORM_EPSILON
                      ? along[r] * inverse[r] * inverse[r]
                      : 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            const float x = number_of(rows[swizzled_offset(
                min(row + value_query(w->lane, i), last),
                d * TILE_N + value_key(w->lane, i), PITCH)]);
            sums[d][i] =
                FMA(sums[d][i], whole[LANE_ROW(i)], -x * part[LANE_ROW(i)]);
        }
}
#endif

#if PADDING == 1
/* Adds the rows of the padding to the wave's sum of them, OUT_TILES tiles of
 * channels from tile `first` on. `out`: room for output staging. */
INLINE void add_padding(float tiles[][ACC_PER_LANE], const float *factor,
                        int first, __local float *pad_sums,
                        __local ushort *out, const row_target *to,
                        const wave *w)
{
    __local float *scratch = (__local float *)out;
    UNROLL_FOR (int d = 0; d < OUT_TILES; d++)
        for (int half_tile = 0; half_tile < (first + d < DIM_TILES ? 2 : 0);
             half_tile++) {
            const int from = half_tile * TILE_M / 2;
            const int rows = min(TILE_M / 2, to->count - from);
            spread_half(scratch, tiles[d], factor, half_tile, w);
            for (int c = w->lane; c < TILE_N; c += WAVE)
                for (int r = 0; r < rows; r++) {
                    const token t =
                        find_token(to->grid, to->coord, to->row + from + r);
                    if (!EXISTS(t))
                        pad_sums[(first + d) * TILE_N + c] +=
                            scratch[r * TILE_N + c];
                }
            WAVE_SYNC();
        }
}
#endif

/* Where the tile's rows of dQ go. */
INLINE row_target dq_target(__global storage *dq, const row_part *part,
                            const q_block *here)
{
    const backward_args *args = here->args;
    const uint flags = args->forward.flags;
    const row_target to = {
        .plane = dq + plane(&args->dq, here->at->coord.grid, here->head),
        .layout = &args->dq,
        .grid = &args->forward.grid,
        .coord = &here->at->coord,
        .row = here->first_row + part->rows.row,
        .count = min(part->count, TILE_M),
        .adds = (flags & ARG_ADD_DQ) != 0,
        .wide = (flags & ARG_WIDE_ACCESS) != 0};
    return to;
}

#if VARIANT == COSINE
/* Sums of dQ are taken back to q as it is; from_dq, what they were to be
 * multiplied by, becomes 1. Adds q^ . dq^ of the lane's own rows to
 * *scale_sum. */
INLINE void l2norm_backward_rows(float sums[][ACC_PER_LANE], float *from_dq,
                                 float *scale_sum, const row_part *part,
                                 const q_block *here, const wave *w)
{
    float along[LANE_ROWS];
    l2norm_backward(sums, along, from_dq, part->inverse, here->q,
                    part->rows.row, part->rows.last_row, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        if (value_key(w->lane, 0) == 0 && lane_query(w->lane, r) < part->count)
            *scale_sum += along[r];
        from_dq[r] = 1.0f;
    }
}
#endif

/* OUT_TILES tiles of channels are stored, from tile `first` on, each row times
 * its factor. */
INLINE void store_epilogue(float (*tiles)[ACC_PER_LANE], const float *factor,
                           int first, const row_target *to,
                           const q_block *here, const wave *w)
{
    row_target fast_store = *to;
    fast_store.adds = 0;
    fast_store.wide = 1;
    if (here->fast_store) /* one branch for all that it says */
        store_channels(tiles, factor, first, OUT_TILES, here->out, OUT_PITCH,
                       &fast_store, w);
    else
        store_channels(tiles, factor, first, OUT_TILES, here->out, OUT_PITCH,
                       to, w);
}

/* Sums of `tiles` tiles of channels of dV or dK, from tile `first` on, are
 * stored, each row times its factor: of keys from `key` of the block on, of
 * which `count` exist. stores: the flag of the output, adds: that of adding to
 * it; pad_sums: [DIMS], of the wave. */
INLINE void store_key_gradients(float sums[][ACC_PER_LANE],
                                const float *factor, const int tiles, int key,
                                int count, int first,
                                __global storage *to_plane,
                                const tensor_layout *layout, uint stores,
                                uint adds, __local float *pad_sums,
                                const q_block *here, const wave *w)
{
    const forward_args *forward = &here->args->forward;
    const row_target to = {.plane = to_plane,
                           .layout = layout,
                           .grid = &forward->grid,
                           .coord = &here->at->coord,
                           .row = here->first_key + key,
                           .count = min(count, TILE_M),
                           .adds = (forward->flags & adds) != 0,
                           .wide = (forward->flags & ARG_WIDE_ACCESS) != 0};
    UNROLL_FOR (int d = 0; d < tiles; d += OUT_TILES) {
        if (here->fast_store || (forward->flags & stores) != 0)
            store_epilogue(sums + d, factor, first + d, &to, here, w);
#if PADDING == 1
        if (holds_padding(&forward->grid, &here->at->coord))
            add_padding(sums + d, factor, first + d, pad_sums, here->out, &to,
                        w);
#endif
    }
}

/* pad_sums: [2][DIMS], of the wave. */
INLINE void store_dv(float sums[][ACC_PER_LANE], const int tiles, int key,
                     int count, int first, __global storage *dv, uint kv_head,
                     __local float *pad_sums, const q_block *here,
                     const wave *w)
{
    const backward_args *args = here->args;
    float factor[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        factor[r] = 1.0f / P_SCALE;
    store_key_gradients(sums, factor, tiles, key, count, first,
                        dv + plane(&args->dv, here->at->coord.grid, kv_head),
                        &args->dv, ARG_DV, ARG_ADD_DV, pad_sums + DIMS, here,
                        w);
}

INLINE void store_dk(float sums[][ACC_PER_LANE], const int tiles, int key,
                     int count, int first, __global storage *dk, uint kv_head,
                     __local float *pad_sums, const q_block *here,
                     const wave *w)
{
    const backward_args *args = here->args;
    float factor[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        factor[r] = inverse_ds_scale(here->ds_scale);
#if VARIANT != COSINE
        factor[r] *= here->scale;
#endif
    }
#if VARIANT == COSINE
    float along[LANE_ROWS], inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        inverse[r] = here->k_inverses[min(key + lane_query(w->lane, r),
                                          here->key_count - 1)];
    l2norm_backward(sums, along, factor, inverse, here->k, key,
                    here->key_count - 1, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        factor[r] = 1.0f;
#endif
    store_key_gradients(sums, factor, tiles, key, count, first,
                        dk + plane(&args->dk, here->at->coord.grid, kv_head),
                        &args->dk, ARG_DK, ARG_ADD_DK, pad_sums, here, w);
}

#endif
