/* SPDX-License-Identifier: Apache-2.0
 * What a work-group of backward_rows_matrix.cl has, a block of rows of a head
 * and its teams' local memory, and what it copies to the ring
 * (grad_pipeline.cl): keys, block by block, and with the first of a window the
 * rows of q, dO and o. */
#ifndef SPLIT_PIPELINE_CL
#define SPLIT_PIPELINE_CL
#include "matrix/grad_pipeline.cl"
#include "matrix/split_rows.cl"
#include "matrix/waves.cl"

/* ---- What a work-group has ---- */

/* A block of rows of a head, and what becomes of their gradients. */
typedef struct split_job {
    uint window_split; /* which windows */
    uint head, row_block;
    uint first_row;
    int row_count;
    /* Not 0 where some gradient is wanted here, and where there is an lse:
     * bits of the flags as they are, as 0 or 1 of each would keep a register.
     */
    int differentiates, has_lse;
    int has_o_lse; /* delta is from o */
    /* KV blocks of a window: all keys for statistics, all for gradients */
    uint sums_first, window_steps;
    __global const float *d_lse;
    __global storage *dq;
    __global float *workspace;
    __global float *bias_partial; /* of the rows */
#if VARIANT == COSINE
    __global const float *logit_scale;
#endif
} split_job;

/* Local memory, of all teams: a pointer to what one team has of an array would
 * keep a register. */
typedef struct split_memory {
    __local cached_bias *bias_cache;
    __local float (*lse_rows)[STAGES][BLOCK_ROWS];
    __local uint4 (*out_staging)[OUT_STAGING_CHUNKS]; /* of each wave */
#if RESCALES
    __local uint (*bounds)[2][KEY_BOUNDS]; /* this step's, the next's */
#endif
#if O_SERVES && STREAMING
    __local int *errors_show; /* in a tile of rows */
#endif
#if BIAS && KEEPS_DBIAS == 2
    __local float4 *dbias; /* [ROW_TILES][ALL_KEY_TILES][TILE_ELEMENTS / 4] */
#endif
#if SPLITS > 1
    __local float (*split_sums)[ROW_TILES][SPLIT_SIZE];
#endif
#if VARIANT == COSINE
    __local float (*q_inverses)[BLOCK_ROWS], (*k_inverses)[KEY_ROWS];
    __local float *lane_sums; /* of all work-items */
#endif
#if COMPARES_REGIONS
    __local uchar (*row_regions)[BLOCK_ROWS], (*key_regions)[NK];
#endif
} split_memory;

#if RESCALES
#define BOUNDS_OF(memory, team, step) ((memory)->bounds[team][(step) % 2])
#else
#define BOUNDS_OF(memory, team, step) 0
#endif

/* Sums of dBias in registers, among a function's parameters and arguments. */
#if BIAS && KEEPS_DBIAS == 1
#define DBIAS_PARAMETER float dbias_sums[SHARE_TILES][ACC_PER_LANE],
#define DBIAS_ARGUMENT dbias_sums,
#else
#define DBIAS_PARAMETER
#define DBIAS_ARGUMENT
#endif

/* What a work-group of that number owns; tensors are left to the caller. */
INLINE split_job find_job(const backward_args *args, __global float *workspace,
                          uint group)
{
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const uint head_blocks = forward->heads * forward->row_blocks;
    const uint head_block = group % head_blocks;
    split_job job;
    job.window_split = group / head_blocks;
    job.head = head_block / forward->row_blocks;
    job.row_block = BLOCK_ROWS >= NQ ? 0 : head_block % forward->row_blocks;
    job.first_row = job.row_block * BLOCK_ROWS;
    job.row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - job.first_row);
    job.has_lse = TAKES_LSE ? flags & ARG_LSE : 0;
    job.differentiates = flags & (ARG_DQ | ARG_DBIAS | ARG_D_LOGIT_SCALE);
    /* only gradients tell how far that delta is off */
    job.has_o_lse =
        O_SERVES && job.has_lse && (flags & ARG_O) != 0 && job.differentiates;
    job.sums_first = STREAMING && !job.has_o_lse ? KEY_BLOCKS : 0;
    job.window_steps = job.sums_first + KEY_BLOCKS;
    const ulong head_partial =
        (ulong)job.window_split * forward->heads + job.head;
    job.workspace = workspace;
    job.bias_partial = workspace + args->bias_partials +
                       (head_partial * NQ + job.first_row) * (ulong)NK;
    return job;
}

/* Sums start at 0: of all windows' dBias, and bounds. */
INLINE void clear_sums(const split_job *job, const split_memory *memory,
                       uint flags, const work_item *me)
{
#if RESCALES
    __local uint(*bounds)[KEY_BOUNDS] = memory->bounds[me->team];
    if (me->lane < 2 * KEY_BOUNDS)
        bounds[me->lane / KEY_BOUNDS][me->lane % KEY_BOUNDS] = 0;
#endif
#if BIAS && !KEEPS_DBIAS
    if ((flags & ARG_FIRST_LAUNCH) != 0 && (flags & ARG_DBIAS) != 0)
        for (int i = me->id; i < job->row_count * NK;
             i += TEAM * WINDOWS_PER_GROUP)
            job->bias_partial[i] = 0.0f;
    barrier(CLK_GLOBAL_MEM_FENCE);
#elif BIAS && KEEPS_DBIAS == 2
    for (int i = me->id; i < ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS / 4;
         i += TEAM * WINDOWS_PER_GROUP)
        memory->dbias[i] = (float4)(0.0f);
#endif
}

/* ---- Copies ---- */

/* Copies that are under way. */
typedef struct split_pipeline {
    grad_pipeline ring;
    /* where keys stream: which KV block of which window is copied next */
    uint number, window;
} split_pipeline;

/* A KV block that is to be copied: a block of keys, with the first of a
 * window's its rows. */
typedef struct copied_kv_block {
    uint number; /* in the window */
    uint head, kv_head;
    uint key; /* the first, and how many there are */
    int keys;
    int lane; /* of the copying team */
    __local ushort *to, *rows_to;
} copied_kv_block;

INLINE void copy_kv_block(const copied_kv_block *b, const int wide,
                          const grad_pipeline *p, const split_job *job,
                          const backward_args *args)
{
    const forward_args *forward = &args->forward;
    if (b->number == 0) {
        copy_queries(b->rows_to, b->head, job->first_row, job->row_count, wide,
                     p, args, b->lane);
        if (O_SERVES && job->has_o_lse)
            copy_plane(0, b->rows_to + O_OFFSET, p->from.o, &forward->o,
                       b->head, 0, job->first_row, job->row_count, BLOCK_ROWS,
                       wide, p, forward, b->lane);
    }
    copy_keys(b->to, b->kv_head, b->key, b->keys, wide, p, forward, b->lane);
}

/* Starts the copies of a KV block; after the last of a window, goes to the
 * next. Where things lie is found anew each time: registers are worth more. */
INLINE void start_kv_block(split_pipeline *pipeline, uint step,
                           const split_job *job, const split_memory *memory,
                           const backward_args *args, int team, int lane)
{
    grad_pipeline *p = &pipeline->ring;
    const forward_args *forward = &args->forward;
    if (step < p->steps) {
        const uint number = STREAMING ? pipeline->number : 0;
        const uint window_stage =
            (STREAMING ? pipeline->window : step) % STAGES;
        copied_kv_block b = {.number = number,
                             .key = number % KEY_BLOCKS * BLOCK_KEYS};
        b.keys = (int)min((uint)BLOCK_KEYS, (uint)NK - b.key);
        b.to = p->ring + step % STAGES * STAGE_SIZE;
        b.rows_to = p->ring + window_stage * STAGE_SIZE;
        b.lane = lane;
        b.head = job->head;
        HIDE_FROM_OPTIMIZER(b.lane);
        HIDE_FROM_OPTIMIZER(b.head);
        b.kv_head = b.head / forward->heads_per_kv_head;
        if (p->next.exists) {
            if (p->wide)
                copy_kv_block(&b, 1, p, job, args);
            else
                copy_kv_block(&b, 0, p, job, args);
        }
        if (p->next.exists && number == 0 && job->has_lse)
            copy_lse(memory->lse_rows[team][window_stage],
                     p->from.lse +
                         plane(&forward->lse, p->next.coord.grid, b.head),
                     &forward->lse, &forward->grid, &p->next.coord,
                     job->first_row, job->row_count, b.lane);
        const int is_last = number + 1 == job->window_steps;
        if (is_last)
            next_window(&p->next, forward, team);
        if (STREAMING) {
            pipeline->number = is_last ? 0 : number + 1;
            pipeline->window += is_last;
        }
    }
    END_COPIES();
}

/* The keys of a window, whose last KV block `step` is, come again, in place of
 * what was copied ahead. */
INLINE void start_again(split_pipeline *pipeline, uint step,
                        const tile_scheduler *here, uint window,
                        const split_job *job, const split_memory *memory,
                        const backward_args *args, int team, int lane)
{
    AWAIT_COPIES(0);
    TEAM_SYNC(team);
    pipeline->ring.next = *here;
    pipeline->number = 0;
    pipeline->window = window;
    pipeline->ring.steps += KEY_BLOCKS;
    for (uint ahead = 1; ahead < STAGES; ahead++)
        start_kv_block(pipeline, step + ahead, job, memory, args, team, lane);
}

#endif
