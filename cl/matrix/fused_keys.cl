/* SPDX-License-Identifier: Apache-2.0
 * The second half of backward_matrix.cl: tiles of keys, whose dV and dK are
 * products of P and dS, the other way round, and rows of dO and q. */
#ifndef FUSED_KEYS_CL
#define FUSED_KEYS_CL
#include "matrix/fused_pipeline.cl"
#include "matrix/fused_tile.cl"
#include "matrix/grad_epilogue.cl"

#if RESCALES
/* What a row of dS is multiplied by to have the power `power`. */
INLINE float keep_of(__local const float *powers, int row, float power)
{
    return power *
           inverse_power(powers[min(row / UNIT_QUERIES, ROW_TILES - 1)]);
}

/* dS of rows `row` and on, of which each tile has a power of its own, gets the
 * same of all. */
INLINE void level_weights(query_tile *p, __local const float *powers, int row,
                          float power, const wave *w)
{
#if defined(TIMES_PAIR) && UNIT_QUERIES % UNIT_TILE == 0
    const float keep = keep_of(powers, row, power);
    /* fp16 has no smaller power than 2^-24 */
    const float first = VARIANT == COSINE ? fmax(keep, 1.0f / 16384) : keep;
    const uint both = PACK(first, first);
    const float second = keep * inverse_power(first);
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
                   keep_of(powers, own, power);
        }
        p->x[i / 2] = PACK(x[0], x[1]);
    }
#endif
}
#endif

/* sums += weights of `count` tiles of keys, the other way round, times rows of
 * the block. levels: they are dS, whose tiles of rows have `powers` and get
 * `power`. */
INLINE void add_across(float (*sums)[KEY_SUM_TILES][VALUES], const int count,
                       __local const ushort *weights, int key,
                       __local const ushort *rows, int first, int row_count,
                       const int levels, __local const float *powers,
                       float power, const wave *w)
{
    MEASURE_FOR (int row = 0; row < BLOCK_ROWS; row += UNIT_TILE) {
        if (row >= row_count)
            continue; /* all waves of the team do */
        const int part_rows = TILE_PART(row / UNIT_TILE, BLOCK_ROWS);
        query_tile p[STRIPES_AT_ONCE][WEIGHT_PARTS];
        UNROLL_FOR (int n = 0; n < count; n++)
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
                p[n][part] =
                    load_weights(weights + part * WEIGHT_SIZE, WEIGHT_PITCH,
                                 row, key + n * UNIT_QUERIES, part_rows, w);
#if RESCALES
                if (levels)
                    level_weights(&p[n][part], powers, row, power, w);
#endif
            }
        UNROLL_FOR (int d = 0; d < KEY_SUM_TILES; d++)
            if (HAS_CHANNELS(first + d)) {
                const key_tile x =
                    load_value(rows, PITCH, row, (first + d) * UNIT_TILE,
                               row_count - 1, part_rows, w);
                UNROLL_FOR (int n = 0; n < count; n++)
                    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                        multiply_tiles(sums[n][d], &p[n][part], &x, w);
            }
    }
}

/* Sums of dV and dK of the wave's tiles of keys, and they leave. */
#if ONE_VISIT
INLINE void add_keys(int turn, const visit *now, const fused_job *job,
                     const fused_memory *memory, int team, int wave_of_team,
                     const wave *w)
{
    const row_weights *weights = &memory->weights;
    const int job_number = turn * TEAM_WAVES + wave_of_team;
    const int tile = job_number / STRIPES_AT_ONCE * STRIPES_AT_ONCE;
    const int key = min(tile, KEY_STRIPES - STRIPES_AT_ONCE) * UNIT_QUERIES;
    const int exists = now->at->exists;
    const int count = exists ? NK - tile * UNIT_QUERIES : 0;
    const uint kv_head = job->keys.kv_head;
    if (!EMULATED && count <= 0)
        return;
    CHANNEL_FOR(int first = 0; first < DIM_TILES; first += KEY_SUM_TILES)
    {
        float sums[2][KEY_SUM_TILES][VALUES];
        clear_tiles(sums[0], KEY_SUM_TILES);
        clear_tiles(sums[1], KEY_SUM_TILES);
#if ONE_GRADIENT
        /* teams differ, or a compute unit's waves of the same number would all
         * have the one that takes more */
        const int is_dk = (job_number + team) % 2;
        const int count_v = is_dk ? 0 : count;
        const int count_k = is_dk ? count : 0;
        IF_ALL (EMULATED || !is_dk) {
            add_across(sums, 2, weights->p, key, now->d_o, first,
                       now->row_count, 0, 0, 1.0f, w);
            leave_dv(sums[0], KEY_SUM_TILES, key, count_v, first, job->dv,
                     kv_head, memory->pads, now, w);
            leave_dv(sums[1], KEY_SUM_TILES, key + UNIT_QUERIES,
                     count_v - UNIT_QUERIES, first, job->dv, kv_head,
                     memory->pads, now, w);
        }
        IF_ALL (EMULATED || is_dk) {
            clear_tiles(sums[0], KEY_SUM_TILES);
            clear_tiles(sums[1], KEY_SUM_TILES);
            add_across(sums, 2, weights->ds, key, now->q, first,
                       now->row_count, 1, memory->powers, now->power, w);
            leave_dk(sums[0], KEY_SUM_TILES, key, count_k, first, job->dk,
                     kv_head, memory->pads, now, w);
            leave_dk(sums[1], KEY_SUM_TILES, key + UNIT_QUERIES,
                     count_k - UNIT_QUERIES, first, job->dk, kv_head,
                     memory->pads, now, w);
        }
#else
        add_across(&sums[0], 1, weights->p, key, now->d_o, first,
                   now->row_count, 0, 0, 1.0f, w);
        add_across(&sums[1], 1, weights->ds, key, now->q, first,
                   now->row_count, 1, memory->powers, now->power, w);
        leave_dv(sums[0], KEY_SUM_TILES, key, count, first, job->dv, kv_head,
                 memory->pads, now, w);
        leave_dk(sums[1], KEY_SUM_TILES, key, count, first, job->dk, kv_head,
                 memory->pads, now, w);
#endif
    }
}
#else
/* Where they live from visit to visit: sums of one turn, those of dK times
 * *kept_power. */
INLINE void add_kept_keys(float kept_v[1][DIM_TILES][VALUES],
                          float kept_k[1][DIM_TILES][VALUES], float kept_power,
                          int is_first, int turn, const visit *now,
                          const fused_job *job, const fused_memory *memory,
                          int wave_of_team, const wave *w)
{
    const int tile = turn * TEAM_WAVES + wave_of_team;
    const int key = min(tile, KEY_STRIPES - 1) * UNIT_QUERIES;
    const int exists = now->at->exists;
    const int count = exists ? NK - tile * UNIT_QUERIES : 0;
    const uint kv_head = job->keys.kv_head;
    if (!EMULATED && count <= 0)
        return;
    const float keep = now->power * inverse_power(kept_power);
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            kept_v[0][d][i] = is_first ? 0.0f : kept_v[0][d][i];
            kept_k[0][d][i] = is_first ? 0.0f : kept_k[0][d][i] * keep;
        }
    add_across(kept_v, 1, memory->weights.p, key, now->d_o, 0, now->row_count,
               0, 0, 1.0f, w);
    add_across(kept_k, 1, memory->weights.ds, key, now->q, 0, now->row_count,
               1, memory->powers, now->power, w);
    if (now->is_last) {
        leave_dv(kept_v[0], DIM_TILES, key, count, 0, job->dv, kv_head,
                 memory->pads, now, w);
        leave_dk(kept_k[0], DIM_TILES, key, count, 0, job->dk, kv_head,
                 memory->pads, now, w);
    }
}
#endif

#endif
