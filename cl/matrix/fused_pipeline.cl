/* SPDX-License-Identifier: Apache-2.0
 * What a work-group of backward_matrix.cl has, the heads that see one head of
 * keys and its teams' local memory, and what it copies to the ring
 * (grad_pipeline.cl): a visit at a time, and where rows leave also o. */
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
    int known; /* lse is */
    int given; /* and delta comes from o */
    int plain; /* see visit */
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
    int row_tile;            /* the wave's */
    __local float *lse_rows; /* [KEY_STAGES][BLOCK_ROWS] */
    __local float *powers;   /* of dS, of tiles of rows; with RESCALES */
    __local uint *own_power; /* the wave's */
    __local ushort *o_rows;  /* o where rows leave: waves' follow each other */
    __local kept_term *terms; /* of all teams */
#if KEEPS_TOKENS
    __local kept_token *tables;
#endif
#if RESCALES && LATE_COPIES
    __local uint *largest_v; /* |v|^2, of this item's, the next's */
#endif
#if VARIANT == COSINE
    __local float *q_inverses, *k_inverses;
    __local float *lane_sums; /* of all teams */
#endif
#if REGIONS_APART
    __local uchar *row_regions, *key_regions;
#endif
    __local float *pads; /* sums of the padding, of the wave: [2][DIMS] */
} fused_memory;

INLINE fused_job find_job(const backward_args *args, uint kv_head)
{
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const uint leaves = ARG_DQ | ARG_DK | ARG_DV | ARG_WIDE_ACCESS;
    fused_job job;
    job.keys.kv_head = kv_head;
    job.keys.heads_each = forward->heads_per_kv_head;
    job.keys.first_key = 0;
    job.keys.key_count = NK;
    job.keys.visits =
        ONE_VISIT ? 1 : job.keys.heads_each * CEIL_DIV(NQ, BLOCK_ROWS);
    job.first_head = kv_head * job.keys.heads_each;
    job.known = TAKES_LSE && (flags & ARG_LSE) != 0;
    job.given = O_SERVES && job.known && (flags & ARG_O) != 0;
    job.plain =
        !EMULATED && PADDING != 1 &&
        (flags & (leaves | ARG_ADD_DQ | ARG_ADD_DK | ARG_ADD_DV)) == leaves;
    return job;
}

/* A team's local memory, for one of its waves. */
INLINE fused_memory find_memory(__local uchar *all, int wave_of_team)
{
    fused_memory m;
    m.lse_rows = (__local float *)(all + LSE_PLACE);
#if RESCALES
    m.powers = (__local float *)(all + POWER_PLACE);
    m.own_power = (__local uint *)m.powers + wave_of_team;
#else
    m.powers = 0;
    m.own_power = 0;
#endif
    m.weights.p = (__local ushort *)(all + WEIGHT_PLACE);
    m.weights.ds = m.weights.p + WEIGHT_PARTS * WEIGHT_SIZE;
    m.weights.owns = wave_of_team < ROW_TILES;
    m.row_tile = min(wave_of_team, ROW_TILES - 1);
    m.o_rows = (__local ushort *)(all + OUT_PLACE);
#if KEEPS_TOKENS
    m.tables = (__local kept_token *)(all + TOKEN_PLACE);
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

/* A walk has come to a window, whose tokens are where those of the last are,
 * or else get the next table, for all who pass the team's next barrier. */
INLINE void find_tokens(walk *here, int alike, uint *table,
                        const fused_memory *memory,
                        const forward_args *forward, int lane)
{
#if KEEPS_TOKENS
    if (!alike) {
        *table = *table == (TOKEN_TABLES - 1) * NQ ? 0 : *table + NQ;
        keep_tokens(memory->tables + *table, forward, &here->place, lane);
    }
    here->place.tokens = memory->tables + *table;
#endif
}

/* The first window's; holds a barrier. */
INLINE void keep_first_tokens(walk *here, const fused_memory *memory,
                              const forward_args *forward, int lane)
{
#if KEEPS_TOKENS
    keep_tokens(memory->tables, forward, &here->place, lane);
    here->place.tokens = memory->tables;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

/* ---- Copies ---- */

/* Where a window has one visit, the one behind `here` is copied next: found
 * anew, for fewer registers. */
INLINE void look_ahead(grad_pipeline *p, const walk *here, uint *table,
                       const fused_memory *memory, const forward_args *forward,
                       const work_item *me)
{
#if ONE_VISIT
    p->next = *here;
    if (STAGES > 1) {
        const int alike = walk_on(&p->next, forward, me->team);
        find_tokens(&p->next, alike, table, memory, forward, me->lane);
    }
#endif
}

/* Copies lse of rows of an item, where it is known. */
INLINE void copy_item_lse(const grad_pipeline *p, uint item, uint head,
                          uint first, int count, const fused_job *job,
                          const fused_memory *memory,
                          const forward_args *forward, int lane)
{
    if (job->known)
        copy_lse(memory->lse_rows + item % KEY_STAGES * BLOCK_ROWS,
                 p->from.lse + plane(&forward->lse, p->next.place.grid, head),
                 &forward->lse, &forward->grid, &p->next.place, first, count,
                 lane);
}

/* Starts the copies of a visit; after the last of a window, walks on. */
INLINE void start_visit(grad_pipeline *p, uint item, const fused_job *job,
                        const fused_memory *memory, const backward_args *args,
                        int team, int lane)
{
    if (item < p->items) {
        const copied_visit v = find_visit(item, p, &job->keys, lane);
        if (p->next.exists) {
            if (p->wide)
                copy_visit(&v, 1, p, &job->keys, args);
            else
                copy_visit(&v, 0, p, &job->keys, args);
            if (!LATE_KEYS)
                copy_item_lse(p, item, v.head, v.first, v.count, job, memory,
                              &args->forward, v.lane);
        }
        if (v.number + 1 == job->keys.visits)
            walk_on(&p->next, &args->forward, team);
    }
    END_COPIES();
}

/* Starts the copies of an item's keys and lse, of the window at `at`, where
 * these come late. */
INLINE void start_late_keys(const grad_pipeline *p, uint item, const walk *at,
                            const fused_job *job, const fused_memory *memory,
                            const forward_args *forward, int lane)
{
#if LATE_KEYS
    grad_pipeline late = *p;
    uint kv_head = job->keys.kv_head;
    late.next = *at;
    FORGET(lane);
    FORGET(kv_head);
    if (item < p->items && late.next.exists) {
        if (p->wide)
            copy_keys(p->ring + KEY_STAGE(0), kv_head, 0, NK, 1, &late,
                      forward, lane);
        else
            copy_keys(p->ring + KEY_STAGE(0), kv_head, 0, NK, 0, &late,
                      forward, lane);
        copy_item_lse(&late, item, kv_head, 0, NQ, job, memory, forward, lane);
    }
    END_COPIES();
#endif
}

/* The same of the window behind `here`. */
INLINE void start_next_keys(const grad_pipeline *p, uint item,
                            const walk *here, uint *table,
                            const fused_job *job, const fused_memory *memory,
                            const forward_args *forward, const work_item *me)
{
#if LATE_KEYS
    walk next = *here;
    walk_on(&next, forward, me->team);
    find_tokens(&next, 1, table, memory, forward, me->lane);
    start_late_keys(p, item, &next, job, memory, forward, me->lane);
#endif
}

/* Starts the copies of o of an item's rows, to where they will leave. */
INLINE void start_o(const grad_pipeline *p, uint item, const walk *here,
                    const fused_job *job, const fused_memory *memory,
                    const forward_args *forward, int wave_of_team,
                    const wave *w)
{
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const int exists = here->exists;
    if (job->given && item < p->items && exists && memory->weights.owns) {
        const uint number = ONE_VISIT ? 0 : item % job->keys.visits;
        const uint row =
            (BLOCK_ROWS >= NQ ? 0 : number % row_blocks * BLOCK_ROWS) +
            memory->row_tile * UNIT_QUERIES;
        copy_o(memory->o_rows + wave_of_team * OUT_SIZE,
               p->from.o + plane(&forward->o, here->place.grid,
                                 job->first_head + number / row_blocks),
               forward, &here->place, row, (int)NQ - (int)row, p->wide, w);
    }
    if (LATE_COPIES) {
        END_COPIES();
    }
}

#endif
