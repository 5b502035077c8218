/* SPDX-License-Identifier: Apache-2.0
 * What a work-group of backward_rows_matrix.cl has, a block of rows of a head
 * and its teams' local memory, and what it copies to the ring
 * (grad_pipeline.cl): keys, block by block, and with the first of a window the
 * rows of q, dO and o. */
#include "matrix/grad_pipeline.cl"
#include "matrix/split_rows.cl"

/* ---- What a work-group has ---- */

/* A block of rows of a head, and what becomes of their gradients. */
typedef struct split_group {
    grad_group group;
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
    /* where keys stream: which KV block of which window is copied next */
    uint number, window;
    __global float *bias_partial; /* of the rows */
    /* in local memory, of all teams */
    __local float (*lse_rows)[STAGES][BLOCK_ROWS];
    __local uint4 (*out_staging)[OUT_STAGING_CHUNKS]; /* of each wave */
    __local uint (*bounds)[2][KEY_BOUNDS]; /* this step's, the next's */
    __local int *errors_show;              /* in a tile of rows */
    __local float4 *dbias; /* [ROW_TILES][ALL_KEY_TILES][TILE_ELEMENTS / 4] */
    __local float (*split_sums)[ROW_TILES][ROOM(SPLITS > 1, SPLIT_SIZE)];
    /* of a wave: of all windows */
    float (*dbias_sums)[ACC_PER_LANE]; /* [SHARE_TILES] */
    float scale_sum; /* for d_logit_scale, of a lane's own rows */
} split_group;

/* What a work-group of that number owns. */
INLINE void find_group(split_group *g, const backward_args *args, uint group)
{
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const uint head_blocks = forward->heads * forward->row_blocks;
    const uint head_block = group % head_blocks;
    g->window_split = group / head_blocks;
    g->head = head_block / forward->row_blocks;
    g->row_block = BLOCK_ROWS >= NQ ? 0 : head_block % forward->row_blocks;
    g->first_row = g->row_block * BLOCK_ROWS;
    g->row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - g->first_row);
    g->has_lse = TAKES_LSE ? flags & ARG_LSE : 0;
    g->differentiates = flags & (ARG_DQ | ARG_DBIAS | ARG_D_LOGIT_SCALE);
    /* only gradients tell how far that delta is off */
    g->has_o_lse =
        O_SERVES && g->has_lse && (flags & ARG_O) != 0 && g->differentiates;
    g->sums_first = STREAMING && !g->has_o_lse ? KEY_BLOCKS : 0;
    g->window_steps = g->sums_first + KEY_BLOCKS;
    const ulong head_partial =
        (ulong)g->window_split * forward->heads + g->head;
    g->bias_partial = g->group.tensors.workspace + args->bias_partials +
                      (head_partial * NQ + g->first_row) * (ulong)NK;
}

/* Sums start at 0: of all windows' dBias, and bounds. */
INLINE void clear_sums(const split_group *g, uint flags)
{
    const work_item *me = &g->group.me;
    if (RESCALES && me->lane < 2 * KEY_BOUNDS)
        g->bounds[me->team][me->lane / KEY_BOUNDS][me->lane % KEY_BOUNDS] = 0;
    clear_dbias(g->bias_partial, g->row_count * NK, flags, me->id);
    if (KEEPS_DBIAS == 2)
        for (int i = me->id; i < ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS / 4;
             i += TEAM * WINDOWS_PER_GROUP)
            g->dbias[i] = (float4)(0.0f);
}

/* ---- Copies ---- */

/* A KV block that is to be copied: a block of keys, with the first of a
 * window's its rows. */
typedef struct copied_kv_block {
    uint number; /* in the window */
    copied_rows rows, keys;
    __local ushort *to, *rows_to;
} copied_kv_block;

INLINE void copy_kv_block(const copied_kv_block *b, const int wide,
                          const split_group *g)
{
    if (b->number == 0) {
        copy_queries(b->rows_to, wide, &b->rows, &g->group);
        if (O_SERVES && g->has_o_lse)
            copy_plane(0, b->rows_to + O_OFFSET, g->group.tensors.o,
                       &b->rows.args->forward.o, wide, &b->rows, &g->group);
    }
    copy_keys(b->to, wide, &b->keys, &g->group);
}

/* Starts the copies of a KV block; after the last of a window, goes to the
 * next. Where things lie is found anew each time: registers are worth more. */
INLINE void start_kv_block(split_group *g, uint step,
                           const backward_args *args)
{
    grad_pipeline *p = &g->group.copies;
    const forward_args *forward = &args->forward;
    if (step < p->steps) {
        const uint number = STREAMING ? g->number : 0;
        const uint window_stage = (STREAMING ? g->window : step) % STAGES;
        copied_rows rows = {args,         &p->next,     g->head,
                            g->first_row, g->row_count, g->group.me.lane};
        HIDE_FROM_OPTIMIZER(rows.lane);
        HIDE_FROM_OPTIMIZER(rows.head);
        copied_kv_block b = {.number = number,
                             .rows = rows,
                             .keys = rows,
                             .to = p->ring + step % STAGES * STAGE_SIZE,
                             .rows_to = p->ring + window_stage * STAGE_SIZE};
        b.keys.head = rows.head / forward->heads_per_kv_head;
        b.keys.first = number % KEY_BLOCKS * BLOCK_KEYS;
        b.keys.count = (int)min((uint)BLOCK_KEYS, (uint)NK - b.keys.first);
        if (p->next.exists) {
            if (p->wide)
                copy_kv_block(&b, 1, g);
            else
                copy_kv_block(&b, 0, g);
        }
        if (p->next.exists && number == 0 && g->has_lse)
            copy_lse(g->lse_rows[g->group.me.team][window_stage], &b.rows,
                     &g->group);
        const int is_last = number + 1 == g->window_steps;
        if (is_last)
            next_window(&p->next, forward, g->group.me.team);
        if (STREAMING) {
            g->number = is_last ? 0 : number + 1;
            g->window += is_last;
        }
    }
    END_COPIES();
}

/* The keys of a window, the `window`-th, whose last KV block `step` is, come
 * again, in place of what was copied ahead. */
INLINE void start_again(split_group *g, uint step, const tile_scheduler *at,
                        uint window, const backward_args *args)
{
    AWAIT_COPIES(0);
    TEAM_SYNC(g->group.me.team);
    g->group.copies.next = *at;
    g->number = 0;
    g->window = window;
    g->group.copies.steps += KEY_BLOCKS;
    for (uint ahead = 1; ahead < STAGES; ahead++)
        start_kv_block(g, step + ahead, args);
}
