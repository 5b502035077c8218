/* SPDX-License-Identifier: Apache-2.0
 * The second half of backward_matrix.cl: tiles of keys, whose dV and dK are
 * products of P and dS, the other way round, and rows of dO and q. */
#include "matrix/fused_pipeline.cl"
#include "matrix/fused_tile.cl"
#include "matrix/grad_epilogue.cl"

/* What a row of dS is multiplied by to have the scale `ds_scale`. */
INLINE float rescale_of(__local const float *ds_scales, int row,
                        float ds_scale)
{
    return ds_scale *
           inverse_ds_scale(ds_scales[min(row / TILE_M, ROW_TILES - 1)]);
}

/* dS of rows `row` and on, of which each tile has a power of its own, gets the
 * same of all. */
INLINE void align_ds_scale(query_tile *p, __local const float *ds_scales,
                           int row, float ds_scale, const wave *w)
{
#if defined(TIMES_PAIR) && TILE_M % TILE_N == 0
    const float rescale = rescale_of(ds_scales, row, ds_scale);
    /* fp16 has no smaller power than 2^-24 */
    const float first =
        VARIANT == COSINE ? fmax(rescale, 1.0f / 16384) : rescale;
    const uint both = PACK(first, first);
    const float second = rescale * inverse_ds_scale(first);
    const uint rest = PACK(second, second);
    UNROLL_FOR (int i = 0; i < (int)(sizeof p->x / sizeof *p->x); i++) {
        p->x[i] = TIMES_PAIR(p->x[i], both);
        if (VARIANT == COSINE)
            p->x[i] = TIMES_PAIR(p->x[i], rest);
    }
#else
    UNROLL_FOR (int i = 0; i < STEPS * QUERY_ELEMENTS; i += 2) {
        float x[2];
        UNROLL_FOR (int j = 0; j < 2; j++) {
            const int step = query_step(w->lane, (i + j) % QUERY_ELEMENTS);
            const int own = row + i / QUERY_ELEMENTS * MMA_K + SLOT_KEY(step);
            x[j] = number_of((ushort)(p->x[i / 2] >> 16 * j)) *
                   rescale_of(ds_scales, own, ds_scale);
        }
        p->x[i / 2] = PACK(x[0], x[1]);
    }
#endif
}

/* P or dS of a tile of keys in local memory, the other way round, and the rows
 * of dO or q that it is multiplied by. aligns: it is dS, whose tiles of rows
 * have `ds_scales` and get `ds_scale`. */
typedef struct transposed {
    __local const ushort *weights, *rows;
    __local const float *ds_scales;
    float ds_scale;
    weight_place of; /* of the window's first row, and that key */
} transposed;

/* sums += weights of `count` tiles of keys, the other way round, times rows of
 * the window, channels from tile `first` on. */
INLINE void add_transposed(float (*sums)[KEY_SUM_TILES][ACC_PER_LANE],
                           const int count, int first, const int aligns,
                           const transposed *of, const wave *w)
{
    MEASURE_FOR (int row = 0; row < NQ; row += TILE_N) {
        const int part_rows = TILE_PART(row / TILE_N, NQ);
        query_tile p[STRIPES_AT_ONCE][WEIGHT_PARTS];
        UNROLL_FOR (int n = 0; n < count; n++)
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
                weight_place at = of->of;
                at.query += row;
                at.key += n * TILE_M;
                p[n][part] =
                    load_weights(of->weights + part * WEIGHT_SIZE,
                                 WEIGHT_PITCH, row, at.key, part_rows, w);
                if (!aligns)
                    keep_weights(&p[n][part], &at, 1, w);
                if (RESCALES && aligns)
                    align_ds_scale(&p[n][part], of->ds_scales, row,
                                   of->ds_scale, w);
            }
        UNROLL_FOR (int d = 0; d < KEY_SUM_TILES; d++)
            if (HAS_CHANNELS(first + d)) {
                const key_tile x =
                    load_value(of->rows, PITCH, row, (first + d) * TILE_N,
                               NQ - 1, part_rows, w);
                UNROLL_FOR (int n = 0; n < count; n++)
                    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                        multiply_tiles(sums[n][d], &p[n][part], &x, w);
            }
    }
}

/* P^T dO, or else dS^T Q, of keys from `key` on. */
INLINE transposed transpose(const int is_dk, int key, const q_block *here,
                            const fused_group *g)
{
    const transposed of = {
        .weights = is_dk ? g->weights.ds : g->weights.p,
        .rows = is_dk ? here->q : here->d_o,
        .ds_scales = g->ds_scales,
        .ds_scale = here->ds_scale,
        .of = {&here->args->forward, work_tile_of(here), 0, key}};
    return of;
}

/* Stores sums of dK, or else dV, of `count` tiles of keys. */
INLINE void store_sums(__private float (*sums)[KEY_SUM_TILES][ACC_PER_LANE],
                       const int count, const int is_dk,
                       const stored_keys *keys, const q_block *here,
                       const wave *w)
{
    UNROLL_FOR (int n = 0; n < count; n++) {
        stored_keys own = *keys;
        own.key += n * TILE_M;
        own.count -= n * TILE_M;
        if (is_dk)
            store_dk(sums[n], KEY_SUM_TILES, &own, here, w);
        else
            store_dv(sums[n], KEY_SUM_TILES, &own, here, w);
    }
}

/* Sums of one of both gradients of two tiles of keys, and their stores. */
INLINE void add_one(const int is_dk, const stored_keys *keys,
                    const q_block *here, const fused_group *g, const wave *w)
{
    const transposed of = transpose(is_dk, keys->key, here, g);
    float sums[2][KEY_SUM_TILES][ACC_PER_LANE];
    clear_tiles(sums[0], KEY_SUM_TILES);
    clear_tiles(sums[1], KEY_SUM_TILES);
    add_transposed(sums, STRIPES_AT_ONCE, keys->first, is_dk, &of, w);
    store_sums(sums, STRIPES_AT_ONCE, is_dk, keys, here, w);
}

/* Sums of dV and dK of the wave's tiles of keys, and their stores. */
INLINE void add_keys(int turn, const q_block *here, const fused_group *g,
                     const wave *w)
{
    const int job_number = turn * WAVES_PER_WINDOW + g->group.me.wave;
    const int tile = job_number / STRIPES_AT_ONCE * STRIPES_AT_ONCE;
    const int exists = here->at->exists;
    stored_keys keys = {.group = &g->group,
                        .kv_head = g->head,
                        .key =
                            min(tile, KEY_STRIPES - STRIPES_AT_ONCE) * TILE_M,
                        .count = exists ? NK - tile * TILE_M : 0};
    if (keys.count <= 0)
        return;
    CHANNEL_FOR(int first = 0; first < DIM_TILES; first += KEY_SUM_TILES)
    {
        keys.first = first;
        if (ONE_GRADIENT) {
            /* teams differ, or a compute unit's waves of the same number would
             * all have the one that takes more */
            const int is_dk = (job_number + g->group.me.team) % 2;
            if (!is_dk)
                add_one(0, &keys, here, g, w);
            if (is_dk)
                add_one(1, &keys, here, g, w);
        } else {
            const transposed of_v = transpose(0, keys.key, here, g);
            const transposed of_k = transpose(1, keys.key, here, g);
            float dv[1][KEY_SUM_TILES][ACC_PER_LANE];
            float dk[1][KEY_SUM_TILES][ACC_PER_LANE];
            clear_tiles(dv[0], KEY_SUM_TILES);
            clear_tiles(dk[0], KEY_SUM_TILES);
            add_transposed(dv, 1, first, 0, &of_v, w);
            add_transposed(dk, 1, first, 1, &of_k, w);
            store_sums(dv, 1, 0, &keys, here, w);
            store_sums(dk, 1, 1, &keys, here, w);
        }
    }
}
