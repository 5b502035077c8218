/* SPDX-License-Identifier: Apache-2.0
 * The second half of backward_matrix.cl: tiles of keys, whose dV and dK are
 * products of P and dS, the other way round, and rows of dO and q. */
#ifndef FUSED_KEYS_CL
#define FUSED_KEYS_CL
#include "matrix/fused_pipeline.cl"
#include "matrix/fused_tile.cl"
#include "matrix/grad_epilogue.cl"

#if RESCALES
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
#endif

/* sums += weights of `count` tiles of keys, the other way round, times rows of
 * the block. aligns: they are dS, whose tiles of rows have `ds_scales` and get
 * `ds_scale`. */
INLINE void add_transposed(float (*sums)[KEY_SUM_TILES][ACC_PER_LANE],
                           const int count, __local const ushort *weights,
                           int key, __local const ushort *rows, int first,
                           int row_count, const int aligns,
                           __local const float *ds_scales, float ds_scale,
                           const wave *w)
{
    MEASURE_FOR (int row = 0; row < BLOCK_ROWS; row += TILE_N) {
        if (row >= row_count)
            continue; /* all waves of the team do */
        const int part_rows = TILE_PART(row / TILE_N, BLOCK_ROWS);
        query_tile p[STRIPES_AT_ONCE][WEIGHT_PARTS];
        UNROLL_FOR (int n = 0; n < count; n++)
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
                p[n][part] =
                    load_weights(weights + part * WEIGHT_SIZE, WEIGHT_PITCH,
                                 row, key + n * TILE_M, part_rows, w);
#if RESCALES
                if (aligns)
                    align_ds_scale(&p[n][part], ds_scales, row, ds_scale, w);
#endif
            }
        UNROLL_FOR (int d = 0; d < KEY_SUM_TILES; d++)
            if (HAS_CHANNELS(first + d)) {
                const key_tile x =
                    load_value(rows, PITCH, row, (first + d) * TILE_N,
                               row_count - 1, part_rows, w);
                UNROLL_FOR (int n = 0; n < count; n++)
                    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                        multiply_tiles(sums[n][d], &p[n][part], &x, w);
            }
    }
}

/* Sums of dV and dK of the wave's tiles of keys, and their stores. */
#if SINGLE_Q_BLOCK
INLINE void add_keys(int turn, const q_block *now, const fused_job *job,
                     const fused_memory *memory, int team, int wave_of_team,
                     const wave *w)
{
    const row_weights *weights = &memory->weights;
    const int job_number = turn * WAVES_PER_WINDOW + wave_of_team;
    const int tile = job_number / STRIPES_AT_ONCE * STRIPES_AT_ONCE;
    const int key = min(tile, KEY_STRIPES - STRIPES_AT_ONCE) * TILE_M;
    const int exists = now->at->exists;
    const int count = exists ? NK - tile * TILE_M : 0;
    const uint kv_head = job->keys.kv_head;
    if (count <= 0)
        return;
    CHANNEL_FOR(int first = 0; first < DIM_TILES; first += KEY_SUM_TILES)
    {
        float sums[2][KEY_SUM_TILES][ACC_PER_LANE];
        clear_tiles(sums[0], KEY_SUM_TILES);
        clear_tiles(sums[1], KEY_SUM_TILES);
#if ONE_GRADIENT
        /* teams differ, or a compute unit's waves of the same number would all
         * have the one that takes more */
        const int is_dk = (job_number + team) % 2;
        const int count_v = is_dk ? 0 : count;
        const int count_k = is_dk ? count : 0;
        if (!is_dk) {
            add_transposed(sums, 2, weights->p, key, now->d_o, first,
                           now->row_count, 0, 0, 1.0f, w);
            store_dv(sums[0], KEY_SUM_TILES, key, count_v, first, job->dv,
                     kv_head, memory->pads, now, w);
            store_dv(sums[1], KEY_SUM_TILES, key + TILE_M, count_v - TILE_M,
                     first, job->dv, kv_head, memory->pads, now, w);
        }
        if (is_dk) {
            clear_tiles(sums[0], KEY_SUM_TILES);
            clear_tiles(sums[1], KEY_SUM_TILES);
            add_transposed(sums, 2, weights->ds, key, now->q, first,
                           now->row_count, 1, memory->ds_scales, now->ds_scale,
                           w);
            store_dk(sums[0], KEY_SUM_TILES, key, count_k, first, job->dk,
                     kv_head, memory->pads, now, w);
            store_dk(sums[1], KEY_SUM_TILES, key + TILE_M, count_k - TILE_M,
                     first, job->dk, kv_head, memory->pads, now, w);
        }
#else
        add_transposed(&sums[0], 1, weights->p, key, now->d_o, first,
                       now->row_count, 0, 0, 1.0f, w);
        add_transposed(&sums[1], 1, weights->ds, key, now->q, first,
                       now->row_count, 1, memory->ds_scales, now->ds_scale, w);
        store_dv(sums[0], KEY_SUM_TILES, key, count, first, job->dv, kv_head,
                 memory->pads, now, w);
        store_dk(sums[1], KEY_SUM_TILES, key, count, first, job->dk, kv_head,
                 memory->pads, now, w);
#endif
    }
}
#else
/* Where they live from q block to q block: sums of one turn, those of dK times
 * *kept_ds_scale. */
INLINE void add_kept_keys(float kept_v[1][DIM_TILES][ACC_PER_LANE],
                          float kept_k[1][DIM_TILES][ACC_PER_LANE],
                          float kept_ds_scale, int is_first, int turn,
                          const q_block *now, const fused_job *job,
                          const fused_memory *memory, int wave_of_team,
                          const wave *w)
{
    const int tile = turn * WAVES_PER_WINDOW + wave_of_team;
    const int key = min(tile, KEY_STRIPES - 1) * TILE_M;
    const int exists = now->at->exists;
    const int count = exists ? NK - tile * TILE_M : 0;
    const uint kv_head = job->keys.kv_head;
    if (count <= 0)
        return;
    const float rescale = now->ds_scale * inverse_ds_scale(kept_ds_scale);
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            kept_v[0][d][i] = is_first ? 0.0f : kept_v[0][d][i];
            kept_k[0][d][i] = is_first ? 0.0f : kept_k[0][d][i] * rescale;
        }
    add_transposed(kept_v, 1, memory->weights.p, key, now->d_o, 0,
                   now->row_count, 0, 0, 1.0f, w);
    add_transposed(kept_k, 1, memory->weights.ds, key, now->q, 0,
                   now->row_count, 1, memory->ds_scales, now->ds_scale, w);
    if (now->is_last) {
        store_dv(kept_v[0], DIM_TILES, key, count, 0, job->dv, kv_head,
                 memory->pads, now, w);
        store_dk(kept_k[0], DIM_TILES, key, count, 0, job->dk, kv_head,
                 memory->pads, now, w);
    }
}
#endif

#endif
