/* SPDX-License-Identifier: Apache-2.0
 * How rows of dQ, dK and dV leave (epilogue.cl), in the cosine variant as
 * gradients of rows before they had length 1, and those of the padding as
 * sums. */
#include "matrix/grad_pipeline.cl"
#include "matrix/grad_softmax.cl"

/* The rows of a plane in local memory that a tile has, and 1 / their norms. */
typedef struct normed_rows {
    __local const ushort *rows;
    int row, last;
    const float *inverse;
} normed_rows;

/* Channel i of a lane's values of a tile of channels. */
INLINE float channel_of(const normed_rows *x, int d, int i, const wave *w)
{
    return number_of(
        x->rows[swizzled_offset(min(x->row + value_query(w->lane, i), x->last),
                                d * TILE_N + value_key(w->lane, i), PITCH)]);
}

/* Gradients with respect to rows of length 1 are taken back to rows x of any
 * length: (d - x^ (x^ . d)) / |x|, where d is sums times factor. Below the
 * smallest norm x^ is just a multiple of x. Leaves x^ . d in along. */
INLINE void l2norm_backward(float sums[][ACC_PER_LANE], float *along,
                            const float *factor, const normed_rows *of,
                            const wave *w)
{
    float part[LANE_ROWS], whole[LANE_ROWS], inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        along[r] = 0.0f;
        inverse[r] = DROPS_ZEROS && of->inverse[r] == 0.0f
                         ? 1.0f / NORM_EPSILON
                         : of->inverse[r];
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            const float x = channel_of(of, d, i, w);
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
            const float x = channel_of(of, d, i, w);
            sums[d][i] =
                FMA(sums[d][i], whole[LANE_ROW(i)], -x * part[LANE_ROW(i)]);
        }
}

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

/* Where the tile's rows of dQ go. */
INLINE row_target dq_target(__global storage *dq, const row_part *part,
                            const q_block *here)
{
    return target_of(dq, &here->args->dq, here->head,
                     here->first_row + part->rows.row,
                     min(part->count, TILE_M), ARG_ADD_DQ,
                     &here->args->forward, &here->at->coord);
}

/* Sums of dQ are taken back to q as it is; from_dq, what they were to be
 * multiplied by, becomes 1. Adds q^ . dq^ of the lane's own rows to
 * *scale_sum. */
INLINE void l2norm_backward_rows(float sums[][ACC_PER_LANE], float *from_dq,
                                 float *scale_sum, const row_part *part,
                                 const q_block *here, const wave *w)
{
    float along[LANE_ROWS];
    const normed_rows q = {.rows = here->q,
                           .row = part->rows.row,
                           .last = part->rows.last_row,
                           .inverse = part->inverse};
    l2norm_backward(sums, along, from_dq, &q, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        if (value_key(w->lane, 0) == 0 && lane_query(w->lane, r) < part->count)
            *scale_sum += along[r];
        from_dq[r] = 1.0f;
    }
}

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

/* A wave's keys whose gradients are stored: from `key` of the block on, of
 * which `count` exist; their channels from tile `first` on. */
typedef struct stored_keys {
    const grad_group *group;
    uint kv_head;
    int key, count, first;
} stored_keys;

/* Sums of `tiles` tiles of channels of dK, or else dV, each row times its
 * factor. */
INLINE void store_key_gradients(float sums[][ACC_PER_LANE],
                                const float *factor, const int tiles,
                                const int is_dk, const stored_keys *keys,
                                const q_block *here, const wave *w)
{
    const grad_group *g = keys->group;
    const backward_args *args = here->args;
    const forward_args *forward = &args->forward;
    const tensor_layout *layout = is_dk ? &args->dk : &args->dv;
    const uint stores = is_dk ? ARG_DK : ARG_DV;
    const uint adds = is_dk ? ARG_ADD_DK : ARG_ADD_DV;
    const row_target to =
        target_of(is_dk ? g->tensors.dk : g->tensors.dv, layout, keys->kv_head,
                  here->first_key + keys->key, min(keys->count, TILE_M), adds,
                  forward, &here->at->coord);
    UNROLL_FOR (int d = 0; d < tiles; d += OUT_TILES) {
        if (here->fast_store || (forward->flags & stores) != 0)
            store_epilogue(sums + d, factor, keys->first + d, &to, here, w);
        if (PADDING == 1 && holds_padding(&forward->grid, &here->at->coord))
            add_padding(sums + d, factor, keys->first + d,
                        g->memory.pad_sums[g->me.id / WAVE] +
                            (is_dk ? 0 : DIMS),
                        here->out, &to, w);
    }
}

INLINE void store_dv(float sums[][ACC_PER_LANE], const int tiles,
                     const stored_keys *keys, const q_block *here,
                     const wave *w)
{
    float factor[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        factor[r] = KEPT_SCALE(&here->args->forward) / P_SCALE;
    store_key_gradients(sums, factor, tiles, 0, keys, here, w);
}

INLINE void store_dk(float sums[][ACC_PER_LANE], const int tiles,
                     const stored_keys *keys, const q_block *here,
                     const wave *w)
{
    float factor[LANE_ROWS], along[LANE_ROWS], inverse[LANE_ROWS];
    const normed_rows k = {.rows = here->k,
                           .row = keys->key,
                           .last = here->key_count - 1,
                           .inverse = inverse};
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        factor[r] = inverse_ds_scale(here->ds_scale);
        if (VARIANT != COSINE)
            factor[r] *= here->scale;
    }
    if (VARIANT == COSINE) {
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            inverse[r] = here->k_inverses[min(
                keys->key + lane_query(w->lane, r), here->key_count - 1)];
        l2norm_backward(sums, along, factor, &k, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            factor[r] = 1.0f;
    }
    store_key_gradients(sums, factor, tiles, 1, keys, here, w);
}
