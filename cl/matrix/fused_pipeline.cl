/* SPDX-License-Identifier: Apache-2.0
 * What a work-group of backward_matrix.cl has, the heads that see one head of
 * keys and its teams' local memory, and what it copies to the ring
 * (grad_pipeline.cl): a q block at a time, and where rows are staged also o.
 */
#include "matrix/fused_rows.cl"
#include "matrix/grad_pipeline.cl"

/* ---- What a work-group has ---- */

/* All heads that see one head of keys, and what becomes of their gradients. */
typedef struct fused_group {
    grad_group group;
    uint split; /* which windows */
    kv_block keys;
    uint first_head;
    int has_lse;    /* lse is */
    int has_o_lse;  /* and delta comes from o */
    int fast_store; /* see q_block */
    __global float *bias_partials, *scale_partials;
    float scale; /* of the first head */
    /* what a team has in local memory */
    row_weights weights;
    int tile;                   /* of rows, the wave's */
    __local float *lse_rows;    /* [KEY_STAGES][BLOCK_ROWS] */
    __local float *ds_scales;   /* of dS, of tiles of rows; with RESCALES */
    __local uint *own_ds_scale; /* the wave's */
    __local ushort *o_rows;     /* o where rows are staged: waves' follow */
    __local kept_token *tables;
    /* of the last window that was found; an index would be added to each row's
     * number where that is looked up */
    __local kept_token *table;
    __local uint *largest_v; /* |v|^2, of this step's, the next's */
} fused_group;

INLINE void find_group(fused_group *g, const backward_args *args)
{
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const uint store_flags = ARG_DQ | ARG_DK | ARG_DV | ARG_WIDE_ACCESS;
    const uint kv_heads = forward->heads / forward->heads_per_kv_head;
    g->split = (uint)get_group_id(0) / kv_heads;
    g->keys.kv_head = (uint)get_group_id(0) % kv_heads;
    g->keys.heads_each = forward->heads_per_kv_head;
    g->keys.first_key = 0;
    g->keys.key_count = NK;
    g->keys.q_blocks =
        SINGLE_Q_BLOCK ? 1 : g->keys.heads_each * CEIL_DIV(NQ, BLOCK_ROWS);
    g->first_head = g->keys.kv_head * g->keys.heads_each;
    g->has_lse = TAKES_LSE && (flags & ARG_LSE) != 0;
    g->has_o_lse = O_SERVES && g->has_lse && (flags & ARG_O) != 0;
    g->fast_store =
        PADDING != 1 && (flags & (store_flags | ARG_ADD_DQ | ARG_ADD_DK |
                                  ARG_ADD_DV)) == store_flags;
    const ulong head_partial =
        (ulong)g->split * forward->heads + g->first_head;
    g->bias_partials = g->group.tensors.workspace + args->bias_partials +
                       head_partial * (NQ * NK);
    g->scale_partials =
        g->group.tensors.workspace + args->scale_partials + head_partial;
}

/* A team's local memory, for one of its waves. */
INLINE void find_memory(fused_group *g, __local uchar *all)
{
    const int wave_of_team = g->group.me.wave;
    g->group.copies.ring = (__local ushort *)all;
    g->lse_rows = (__local float *)(all + LSE_OFFSET);
    g->ds_scales = RESCALES ? (__local float *)(all + DS_SCALE_OFFSET) : 0;
    g->own_ds_scale = (__local uint *)g->ds_scales + wave_of_team;
    g->weights.p = (__local ushort *)(all + WEIGHT_OFFSET);
    g->weights.ds = g->weights.p + WEIGHT_PARTS * WEIGHT_SIZE;
    g->weights.owns = wave_of_team < ROW_TILES;
    g->tile = min(wave_of_team, ROW_TILES - 1);
    g->o_rows = (__local ushort *)(all + OUT_OFFSET);
    g->tables = (__local kept_token *)(all + TOKEN_OFFSET);
}

/* Zeros where nothing else is stored. */
INLINE void clear_memory(const fused_group *g)
{
    const int lane = g->group.me.lane;
    clear_pads(g->group.copies.ring, lane);
    if (RESCALES && LATE_COPIES && lane < 2)
        g->largest_v[lane] = 0;
    /* rows of weights that no tile of rows has */
    NO_UNROLL_FOR (int i = lane; i < 2 * WEIGHT_PARTS * WEIGHT_SIZE / CHUNK;
                   i += TEAM)
        ((__local uint4 *)g->weights.p)[i] = (uint4)(0u);
}

/* Where tokens of the window are that `at` has come to: where those of the
 * last are, or else in the next table, for all who pass the team's next
 * barrier. */
INLINE void find_tokens(tile_scheduler *at, int alike, fused_group *g,
                        const forward_args *forward)
{
#if KEEPS_TOKENS
    if (!alike) {
        g->table = g->table == g->tables + (TOKEN_TABLES - 1) * NQ
                       ? g->tables
                       : g->table + NQ;
        NO_UNROLL_FOR (int i = g->group.me.lane; i < NQ; i += TEAM)
            g->table[i] = keep_token(&forward->grid, &at->coord, i);
    }
    at->coord.tokens = g->table;
#endif
}

/* The first window's; holds a barrier. */
INLINE void find_first_tokens(tile_scheduler *at, fused_group *g,
                              const forward_args *forward)
{
    g->table = g->tables + (TOKEN_TABLES - 1) * NQ; /* the first is the next */
    find_tokens(at, 0, g, forward);
    if (KEEPS_TOKENS)
        barrier(CLK_LOCAL_MEM_FENCE);
}

/* ---- Copies ---- */

/* Where a window has one q block, the one behind `at` is copied next: found
 * anew, for fewer registers. */
INLINE void look_ahead(fused_group *g, const tile_scheduler *at,
                       const forward_args *forward)
{
    tile_scheduler *next = &g->group.copies.next;
    if (!SINGLE_Q_BLOCK)
        return;
    *next = *at;
    if (STAGES > 1) {
        const int alike = next_window(next, forward, g->group.me.team);
        find_tokens(next, alike, g, forward);
    }
}

/* Copies lse of a step's rows, where it is known. */
INLINE void copy_block_lse(const fused_group *g, uint step,
                           const copied_rows *rows)
{
    if (g->has_lse)
        copy_lse(g->lse_rows + step % KEY_STAGES * BLOCK_ROWS, rows,
                 &g->group);
}

/* Starts the copies of a q block; after the last of a window, goes to the
 * next. */
INLINE void start_q_block(fused_group *g, uint step, const backward_args *args)
{
    grad_pipeline *p = &g->group.copies;
    if (step < p->steps) {
        copied_q_block v;
        if (start_copies(&v, step, &g->group, &g->keys, args) && !LATE_KEYS)
            copy_block_lse(g, step, &v.rows);
        if (v.number + 1 == g->keys.q_blocks)
            next_window(&p->next, &args->forward, g->group.me.team);
    }
    END_COPIES();
}

/* Starts the copies of a step's keys and lse, of the window at `at`, where
 * these come late. */
INLINE void start_late_keys(const fused_group *g, uint step,
                            const tile_scheduler *at,
                            const backward_args *args)
{
    const grad_pipeline *p = &g->group.copies;
    copied_rows keys = {args, at, g->keys.kv_head, 0, NK, g->group.me.lane};
    if (!LATE_KEYS)
        return;
    HIDE_FROM_OPTIMIZER(keys.lane);
    HIDE_FROM_OPTIMIZER(keys.head);
    if (step < p->steps && at->exists) {
        if (p->wide)
            copy_keys(p->ring + KEY_STAGE(0), 1, &keys, &g->group);
        else
            copy_keys(p->ring + KEY_STAGE(0), 0, &keys, &g->group);
        copied_rows rows = keys;
        rows.count = NQ;
        copy_block_lse(g, step, &rows);
    }
    END_COPIES();
}

/* Starts those of the window behind `at`. */
INLINE void start_next_keys(fused_group *g, uint step,
                            const tile_scheduler *at,
                            const backward_args *args)
{
    tile_scheduler next = *at;
    if (!LATE_KEYS)
        return;
    next_window(&next, &args->forward, g->group.me.team);
    find_tokens(&next, 1, g, &args->forward);
    start_late_keys(g, step, &next, args);
}

/* Starts the copies of o of a step's rows, to where they will be staged. */
INLINE void start_o(const fused_group *g, uint step, const tile_scheduler *at,
                    const backward_args *args, const wave *w)
{
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const grad_pipeline *p = &g->group.copies;
    if (g->has_o_lse && step < p->steps && at->exists && g->weights.owns) {
        const uint number = SINGLE_Q_BLOCK ? 0 : step % g->keys.q_blocks;
        const uint row =
            (BLOCK_ROWS >= NQ ? 0 : number % row_blocks * BLOCK_ROWS) +
            g->tile * TILE_M;
        const uint head = g->first_head + number / row_blocks;
        const copied_rows rows = {args, at, head, row, (int)NQ - (int)row, 0};
        copy_o(g->o_rows + g->group.me.wave * OUT_SIZE, g->group.tensors.o,
               &rows, p->wide, w);
    }
    if (LATE_COPIES) {
        END_COPIES();
    }
}
