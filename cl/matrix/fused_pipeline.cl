/* SPDX-License-Identifier: Apache-2.0
 * What a work-group of backward_matrix.cl has, the heads that see one head of
 * keys and its teams' local memory, and what it copies to the ring
 * (grad_pipeline.cl): a q block at a time, and where rows are staged also o.
 */
#ifndef FUSED_PIPELINE_CL
#define FUSED_PIPELINE_CL
#include "matrix/fused_rows.cl"
#include "matrix/grad_pipeline.cl"
#include "matrix/waves.cl"

/* ---- What a work-group has ---- */

/* All heads that see one head of keys, and what becomes of their gradients. */
typedef struct fused_job {
    kv_block keys;
    uint first_head;
    int has_lse;    /* lse is */
    int has_o_lse;  /* and delta comes from o */
    int fast_store; /* see q_block */
    __global const float *d_lse;
    __global storage *dq, *dk, *dv;
    __global float *bias_partials;
#if VARIANT == COSINE
    __global const float *logit_scale;
    __global float *scale_partials;
    float scale; /* of the first head */
#endif
} fused_job;

/* What all of a team have in local memory. */
typedef struct fused_memory {
    row_weights weights;
    int row_tile;               /* the wave's */
    __local float *lse_rows;    /* [KEY_STAGES][BLOCK_ROWS] */
    __local float *ds_scales;   /* of dS, of tiles of rows; with RESCALES */
    __local uint *own_ds_scale; /* the wave's */
    __local ushort
        *o_rows; /* o where rows are staged: waves' follow each other */
    __local cached_bias *bias_cache; /* of all teams */
#if KEEPS_TOKENS
    __local kept_token *tables;
#endif
#if RESCALES && LATE_COPIES
    __local uint *largest_v; /* |v|^2, of this step's, the next's */
#endif
#if VARIANT == COSINE
    __local float *q_inverses, *k_inverses;
    __local float *lane_sums; /* of all teams */
#endif
#if COMPARES_REGIONS
    __local uchar *row_regions, *key_regions;
#endif
    __local float *pads; /* sums of the padding, of the wave: [2][DIMS] */
} fused_memory;

INLINE fused_job find_job(const backward_args *args, uint kv_head)
{
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const uint store_flags = ARG_DQ | ARG_DK | ARG_DV | ARG_WIDE_ACCESS;
    fused_job job;
    job.keys.kv_head = kv_head;
    job.keys.heads_each = forward->heads_per_kv_head;
    job.keys.first_key = 0;
    job.keys.key_count = NK;
    job.keys.q_blocks =
        SINGLE_Q_BLOCK ? 1 : job.keys.heads_each * CEIL_DIV(NQ, BLOCK_ROWS);
    job.first_head = kv_head * job.keys.heads_each;
    job.has_lse = TAKES_LSE && (flags & ARG_LSE) != 0;
    job.has_o_lse = O_SERVES && job.has_lse && (flags & ARG_O) != 0;
    job.fast_store =
        PADDING != 1 && (flags & (store_flags | ARG_ADD_DQ | ARG_ADD_DK |
                                  ARG_ADD_DV)) == store_flags;
    return job;
}

/* A team's local memory, for one of its waves. */
INLINE fused_memory find_memory(__local uchar *all, int wave_of_team)
{
    fused_memory m;
    m.lse_rows = (__local float *)(all + LSE_OFFSET);
#if RESCALES
    m.ds_scales = (__local float *)(all + DS_SCALE_OFFSET);
    m.own_ds_scale = (__local uint *)m.ds_scales + wave_of_team;
#else
    m.ds_scales = 0;
    m.own_ds_scale = 0;
#endif
    m.weights.p = (__local ushort *)(all + WEIGHT_OFFSET);
    m.weights.ds = m.weights.p + WEIGHT_PARTS * WEIGHT_SIZE;
    m.weights.owns = wave_of_team < ROW_TILES;
    m.row_tile = min(wave_of_team, ROW_TILES - 1);
    m.o_rows = (__local ushort *)(all + OUT_OFFSET);
#if KEEPS_TOKENS
    m.tables = (__local kept_token *)(all + TOKEN_OFFSET);
#endif
    m.pads = 0;
    return m;
}

/* Zeros where nothing else is stored. */
INLINE void clear_memory(const grad_pipeline *p, const fused_memory *memory,
                         const work_item *me)
{
    clear_pads(p->ring, me->lane);
#if RESCALES && LATE_COPIES
    if (me->lane < 2)
        memory->largest_v[me->lane] = 0;
#endif
    /* rows of weights that no tile of rows has */
    for (int i = me->lane; i < 2 * WEIGHT_PARTS * WEIGHT_SIZE / CHUNK;
         i += TEAM)
        ((__local uint4 *)memory->weights.p)[i] = (uint4)(0u);
}

/* A tile scheduler has come to a window, whose tokens are where those of the
 * last are, or else get the next table, for all who pass the team's next
 * barrier. */
INLINE void find_tokens(tile_scheduler *here, int alike, uint *table,
                        const fused_memory *memory,
                        const forward_args *forward, int lane)
{
#if KEEPS_TOKENS
    if (!alike) {
        *table = *table == (TOKEN_TABLES - 1) * NQ ? 0 : *table + NQ;
        keep_tokens(memory->tables + *table, forward, &here->coord, lane);
    }
    here->coord.tokens = memory->tables + *table;
#endif
}

/* The first window's; holds a barrier. */
INLINE void keep_first_tokens(tile_scheduler *here, const fused_memory *memory,
                              const forward_args *forward, int lane)
{
#if KEEPS_TOKENS
    keep_tokens(memory->tables, forward, &here->coord, lane);
    here->coord.tokens = memory->tables;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

/* ---- Copies ---- */

/* Where a window has one q block, the one behind `here` is copied next: found
 * anew, for fewer registers. */
INLINE void look_ahead(grad_pipeline *p, const tile_scheduler *here,
                       uint *table, const fused_memory *memory,
                       const forward_args *forward, const work_item *me)
{
#if SINGLE_Q_BLOCK
    p->next = *here;
    if (STAGES > 1) {
        const int alike = next_window(&p->next, forward, me->team);
        find_tokens(&p->next, alike, table, memory, forward, me->lane);
    }
#endif
}

/* Copies lse of rows of a step, where it is known. */
INLINE void copy_block_lse(const grad_pipeline *p, uint step, uint head,
                           uint first, int count, const fused_job *job,
                           const fused_memory *memory,
                           const forward_args *forward, int lane)
{
    if (job->has_lse)
        copy_lse(memory->lse_rows + step % KEY_STAGES * BLOCK_ROWS,
                 p->from.lse + plane(&forward->lse, p->next.coord.grid, head),
                 &forward->lse, &forward->grid, &p->next.coord, first, count,
                 lane);
}

/* Starts the copies of a q block; after the last of a window, goes to the
 * next. */
INLINE void start_q_block(grad_pipeline *p, uint step, const fused_job *job,
                          const fused_memory *memory,
                          const backward_args *args, int team, int lane)
{
    if (step < p->steps) {
        const copied_q_block v = find_q_block(step, p, &job->keys, lane);
        if (p->next.exists) {
            if (p->wide)
                copy_q_block(&v, 1, p, &job->keys, args);
            else
                copy_q_block(&v, 0, p, &job->keys, args);
            if (!LATE_KEYS)
                copy_block_lse(p, step, v.head, v.first, v.count, job, memory,
                               &args->forward, v.lane);
        }
        if (v.number + 1 == job->keys.q_blocks)
            next_window(&p->next, &args->forward, team);
    }
    END_COPIES();
}

/* Starts the copies of a step's keys and lse, of the window at `at`, where
 * these come late. */
INLINE void start_late_keys(const grad_pipeline *p, uint step,
                            const tile_scheduler *at, const fused_job *job,
                            const fused_memory *memory,
                            const forward_args *forward, int lane)
{
#if LATE_KEYS
    grad_pipeline late = *p;
    uint kv_head = job->keys.kv_head;
    late.next = *at;
    HIDE_FROM_OPTIMIZER(lane);
    HIDE_FROM_OPTIMIZER(kv_head);
    if (step < p->steps && late.next.exists) {
        if (p->wide)
            copy_keys(p->ring + KEY_STAGE(0), kv_head, 0, NK, 1, &late,
                      forward, lane);
        else
            copy_keys(p->ring + KEY_STAGE(0), kv_head, 0, NK, 0, &late,
                      forward, lane);
        copy_block_lse(&late, step, kv_head, 0, NQ, job, memory, forward,
                       lane);
    }
    END_COPIES();
#endif
}

/* The same of the window behind `here`. */
INLINE void start_next_keys(const grad_pipeline *p, uint step,
                            const tile_scheduler *here, uint *table,
                            const fused_job *job, const fused_memory *memory,
                            const forward_args *forward, const work_item *me)
{
#if LATE_KEYS
    tile_scheduler next = *here;
    next_window(&next, forward, me->team);
    find_tokens(&next, 1, table, memory, forward, me->lane);
    start_late_keys(p, step, &next, job, memory, forward, me->lane);
#endif
}

/* Starts the copies of o of a step's rows, to where they will be staged. */
INLINE void start_o(const grad_pipeline *p, uint step,
                    const tile_scheduler *here, const fused_job *job,
                    const fused_memory *memory, const forward_args *forward,
                    int wave_of_team, const wave *w)
{
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const int exists = here->exists;
    if (job->has_o_lse && step < p->steps && exists && memory->weights.owns) {
        const uint number = SINGLE_Q_BLOCK ? 0 : step % job->keys.q_blocks;
        const uint row =
            (BLOCK_ROWS >= NQ ? 0 : number % row_blocks * BLOCK_ROWS) +
            memory->row_tile * TILE_M;
        copy_o(memory->o_rows + wave_of_team * OUT_SIZE,
               p->from.o + plane(&forward->o, here->coord.grid,
                                 job->first_head + number / row_blocks),
               forward, &here->coord, row, (int)NQ - (int)row, p->wide, w);
    }
    if (LATE_COPIES) {
        END_COPIES();
    }
}

#endif
