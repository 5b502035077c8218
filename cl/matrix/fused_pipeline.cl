/* SPDX-License-Identifier: Apache-2.0
 * What a work-group of backward_matrix.cl has, a head and its teams' local
 * memory, and what it copies to the ring (grad_pipeline.cl): a window at a
 * time, and where rows are staged also o. */
#include "matrix/fused_rows.cl"
#include "matrix/grad_pipeline.cl"

/* ---- What a work-group has ---- */

/* A head, which alone sees its keys, and what becomes of its gradients. */
typedef struct fused_group {
    grad_group group;
    uint split; /* which windows */
    uint head;
    int has_lse;    /* lse is */
    int has_o_lse;  /* and delta comes from o */
    int fast_store; /* see q_block */
    __global float *bias_partial;
    float scale; /* of the head, with COSINE */
    /* of a wave: of all windows */
    float (*dbias_sums)[ACC_PER_LANE]; /* [KEY_TILES], with KEEPS_DBIAS */
    float scale_sum; /* for d_logit_scale, of a lane's own rows */
    /* what a team has in local memory */
    row_weights weights;
    int tile;                   /* of rows, the wave's */
    int owns;                   /* the wave has one */
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
    g->split = (uint)get_group_id(0) / forward->heads;
    g->head = (uint)get_group_id(0) % forward->heads;
    g->has_lse = TAKES_LSE && (flags & ARG_LSE) != 0;
    g->has_o_lse = O_SERVES && g->has_lse && (flags & ARG_O) != 0;
    g->fast_store =
        PADDING != 1 && (flags & (store_flags | ARG_ADD_DQ | ARG_ADD_DK |
                                  ARG_ADD_DV)) == store_flags;
    g->bias_partial = g->group.tensors.workspace + args->bias_partials +
                      ((ulong)g->split * forward->heads + g->head) * (NQ * NK);
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
    g->owns = wave_of_team < ROW_TILES;
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

/* Goes to the next window, whose tokens are perhaps `found` already. */
INLINE void find_next(tile_scheduler *at, const int found, fused_group *g,
                      const forward_args *forward)
{
    const int alike = next_window(at, forward, g->group.me.team);
    find_tokens(at, found || alike, g, forward);
}

/* ---- Copies ---- */

/* Copies of a step's window the rows, the keys, or both. */
INLINE void copy_window(uint step, const int wide, const int has_rows,
                        const int has_keys, const copied_rows *rows,
                        const fused_group *g)
{
    __local ushort *ring = g->group.copies.ring;
    copied_rows keys = *rows;
    keys.count = NK;
    if (has_rows)
        copy_queries(ring + step % STAGES * STAGE_SIZE, wide, rows, &g->group);
    if (has_keys)
        copy_keys(ring + KEY_STAGE(step % STAGES), wide, &keys, &g->group);
}

/* Starts the copies of a step, of the window at `at`: of its rows; of its keys
 * and, where it is known, lse. */
INLINE void start_copies(const fused_group *g, uint step, const int has_rows,
                         const int has_keys, const tile_scheduler *at,
                         const backward_args *args)
{
    const grad_pipeline *p = &g->group.copies;
    copied_rows rows = {args, at, g->head, 0, NQ, g->group.me.lane};
    /* where things lie is found anew each time: registers are worth more */
    HIDE_FROM_OPTIMIZER(rows.lane);
    HIDE_FROM_OPTIMIZER(rows.head);
    if (step < p->steps && at->exists) {
        if (p->wide)
            copy_window(step, 1, has_rows, has_keys, &rows, g);
        else
            copy_window(step, 0, has_rows, has_keys, &rows, g);
        if (has_keys && g->has_lse)
            copy_lse(g->lse_rows + step % KEY_STAGES * BLOCK_ROWS, &rows,
                     &g->group);
    }
    END_COPIES();
}

/* Starts those of the keys of the window behind `at`, where they come late. */
INLINE void start_next_keys(fused_group *g, uint step,
                            const tile_scheduler *at,
                            const backward_args *args)
{
    tile_scheduler next = *at;
    if (!LATE_KEYS)
        return;
    find_next(&next, 1, g, &args->forward);
    start_copies(g, step, 0, 1, &next, args);
}

/* Starts the copies of o of a step's rows, to where they will be staged. */
INLINE void start_o(const fused_group *g, uint step, const tile_scheduler *at,
                    const backward_args *args, const wave *w)
{
    const grad_pipeline *p = &g->group.copies;
    if (g->has_o_lse && step < p->steps && at->exists && g->owns) {
        const int row = g->tile * TILE_M;
        const copied_rows rows = {args, at, g->head, row, NQ - row, 0};
        copy_o(g->o_rows + g->group.me.wave * OUT_SIZE, g->group.tensors.o,
               &rows, p->wide, w);
    }
    if (LATE_COPIES) {
        END_COPIES();
    }
}
