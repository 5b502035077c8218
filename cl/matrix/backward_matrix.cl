/* SPDX-License-Identifier: Apache-2.0
 * Backward pass on a matrix unit, for fp16 and bf16 and for windows: all
 * gradients of a window in one kernel. First each wave has a tile of rows and
 * all keys; what keys need of that goes through local memory, in 16 bits, to
 * waves that have a tile of keys and all rows.
 *
 *                     keys
 *                +-----------+
 *     Q  K^T ->  |     P     |  rows  ->  dV += P^T dO
 *    dO  V^T ->  |    dP     |
 *                |    dS     |        ->  dQ += scale dS K
 *                +-----------+            dK += scale dS^T Q
 *                                         dBias += dS
 *
 * P is exp(S - lse), and dS = P (dP - delta), delta = sum P dP - d_lse.
 *
 * A step of the ring (pipeline.cl) is a window: all rows of a head, which
 * alone sees its keys, and all keys are in local memory. Where SUBTILE_KEYS
 * are not all of them, scores are computed twice: for the rows' statistics,
 * and again for the gradients; or once where o and lse are given and windows
 * are not small, as delta is dO . O - d_lse then, but for an error that is
 * mended where it shows (delta_errors.cl). With all keys at once dP alone
 * would be saved, which o is not worth; and units with registers for that keep
 * it (grad_softmax.cl). */
#define BACKWARD 1
#define FUSED_GRADIENTS 1
#define RECOMPUTE_SCORES (SUBTILES > 1)
#include "matrix/fused_keys.cl"
#include "matrix/fused_pipeline.cl"
#include "matrix/fused_rows.cl"

/* ---- A window ---- */

INLINE void find_step(q_block *v, uint step, const fused_group *g,
                      const backward_args *args, const tile_scheduler *at)
{
    place_block(v, step % STAGES * STAGE_SIZE, KEY_STAGE(step % STAGES),
                &g->group, args, at);
    v->head = g->head;
    v->first_row = 0;
    v->row_count = NQ;
    v->key_count = NK;
    v->fast_store = g->fast_store;
    if (VARIANT == COSINE)
        v->scale = g->scale;
    v->lse = g->lse_rows + step % KEY_STAGES * BLOCK_ROWS;
    v->out = g->o_rows + g->group.me.wave * OUT_SIZE;
}

/* What a window has to be measured or found before it is computed with; the
 * team meets again where there is something. */
INLINE void prepare_window(q_block *here, uint step, uint *kept_regions,
                           const fused_group *g, const wave *w)
{
    const work_item *me = &g->group.me;
    int meets = VARIANT == COSINE;
    if (RESCALES && LATE_COPIES) {
        meets |= g->has_o_lse;
        if (g->has_o_lse && me->lane == 0)
            g->largest_v[(step + 1) % 2] = 0;
        if (g->has_o_lse && here->at->exists) /* else nobody wrote v */
            measure_values(&g->largest_v[step % 2], here->v, me->wave,
                           g->own_ds_scale, w);
    }
    if (VARIANT == COSINE) {
        const measured_rows measured[2] = {
            {g->group.memory.inverses_m[me->team], here->q, BLOCK_ROWS, 1.0f},
            {g->group.memory.inverses_n[me->team], here->k, BLOCK_KEYS, 1.0f}};
        measure_rows(measured, 2, me->wave, w);
    }
    meets |= find_regions(here, kept_regions, 1, &g->group.tensors.score_bias,
                          me->lane);
    if (TEAMS_SYNC_TOGETHER || meets)
        TEAM_SYNC(me->team);
}

/* What must be known of the rows; of one subtile leaves P in `p`, and dP of
 * tiles that keep it. */
INLINE void find_statistics(row_work *rows,
                            float p[TILES_PER_SUBTILE][ACC_PER_LANE],
                            float kept_dp[TILES_PER_SUBTILE][ACC_PER_LANE],
                            const q_block *here, uint step,
                            const fused_group *g, const wave *w)
{
    row_statistics *s = &rows->s;
    row_part *part = &rows->part;
    read_rows(part, here, g->group.tensors.d_lse, w);
    const int takes_lse = lse_serves(g->has_lse, part, w);
    start_statistics(s, g->has_o_lse || takes_lse, part->lse);
    if (!g->has_o_lse) {
        add_statistics(s, p, kept_dp, part, here, takes_lse, w);
        finish_statistics(s, part, takes_lse, w);
        if (SUBTILES == 1 && !takes_lse)
            UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
                UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                    p[t][i] *= s->sum[LANE_ROW(i)];
    }
    if (g->has_o_lse) {
        if (STAGES > 1) { /* else all copies are there */
            AWAIT_COPIES(1);
            WAVE_SYNC();
        }
        take_delta(s, part, here, g->o_rows, w);
        if (RESCALES && LATE_COPIES) {
            /* |dP| is at most |dO| |v| */
            float square[LANE_ROWS];
            multiply_rows(square, here->d_o, here->d_o, part, w);
            UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                s->dp_bound[r] =
                    KEPT_SCALE(&here->args->forward) *
                    sqrt(square[r] * as_float(g->largest_v[step % 2]));
        }
    }
}

/* P and dS of the wave's tile of rows go to local memory, and dQ is stored. */
INLINE void compute_rows(const q_block *here, uint step, fused_group *g,
                         const wave *w)
{
    float p[TILES_PER_SUBTILE][ACC_PER_LANE];
    float kept_dp[TILES_PER_SUBTILE][ACC_PER_LANE];
    float dq[ROW_SUM_TILES][ACC_PER_LANE];
    query_tile operands[TILES_PER_SUBTILE][WEIGHT_PARTS], mean[WEIGHT_PARTS];
    row_work rows = {.part = {.rows = {.row = g->tile * TILE_M,
                                       .last_row = here->row_count - 1,
                                       .coord = here->at->coord}},
                     .dbias = {.sums = g->dbias_sums,
                               .workspace = g->bias_partial,
                               .keys = NK},
                     .weights = g->weights};
    if (!here->at->exists || !g->owns)
        return;
    rows.part.count = here->row_count - rows.part.rows.row;
    place_tile(&rows.part.rows, g->tile, 0, here, w);
    find_statistics(&rows, p, kept_dp, here, step, g, w);
    find_factors(&rows, here, g->own_ds_scale, w);
    differentiate_rows(dq, operands, p, kept_dp, &rows, here, w);
    mend_errors(dq, mean, &rows, g->has_o_lse, here, w);
    store_dq(dq, operands, mean, &rows, g->group.tensors.dq, &g->scale_sum,
             here, w);
}

/* The power of two that dS of all rows gets, for dK. */
INLINE float aligned_ds_scale(const fused_group *g)
{
    if (!RESCALES)
        return 1.0f;
    float ds_scale = g->ds_scales[0];
    UNROLL_FOR (int t = 1; t < ROW_TILES; t++)
        ds_scale = fmin(ds_scale, g->ds_scales[t]);
    return ds_scale;
}

/* dV and dK of the wave's tiles of keys, once P and dS of all rows are there.
 */
INLINE void compute_keys(q_block *here, const fused_group *g, const wave *w)
{
    here->ds_scale = aligned_ds_scale(g);
    NO_UNROLL_FOR (int turn = 0; turn < KEY_TURNS; turn++)
        add_keys(turn, here, g, w);
}

/* ---- Windows ---- */

/* All gradients of the windows of a tile scheduler. */
INLINE void differentiate_windows(tile_scheduler at, fused_group *g,
                                  const backward_args *kernel_args, wave *w)
{
    work_item *me = &g->group.me;
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    for (uint step = 0; step < g->group.copies.steps; step++) {
        HIDE_LANE(me->lane);
        RELOAD_ARGS(backward_args, args, kernel_args)
        const forward_args *forward = &args->forward;
        /* the window that is copied next is found anew, for fewer registers */
        tile_scheduler ahead = at;
        if (STAGES > 1)
            find_next(&ahead, 0, g, forward);
        HIDE_LANE(w->lane);
        q_block here;
        find_step(&here, step, g, args, &at);
        find_score_bias(&here, &cached_mask_class,
                        &g->group.tensors.score_bias, me->id);
        await_stage(me->team);
        start_copies(g, step + AHEAD, 1, !LATE_KEYS, &ahead, args);
        await_copies(me->team);
        prepare_window(&here, step, &kept_regions, g, w);
        /* 1. tiles of rows; waves without one wait */
        compute_rows(&here, step, g, w);
        TEAM_SYNC(me->team); /* P and dS are there */
        start_next_keys(g, step + 1, &at, args);
        /* 2. tiles of keys */
        compute_keys(&here, g, w);
        find_next(&at, STAGES > 1, g, forward);
        start_o(g, step + 1, &at, args, w);
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    __local uint4 team_memory[WINDOWS_PER_GROUP][TEAM_BYTES / 16]
        __attribute__((aligned(128)));
    DECLARE_BIAS_CACHE
    DECLARE_GRAD_MEMORY
    __local uint largest_v[ROOM(RESCALES, WINDOWS_PER_GROUP)][2];
    float dbias[ROOM(KEEPS_DBIAS, KEY_TILES)][ACC_PER_LANE];
    const forward_args *forward = &args.forward;
    fused_group own = {.group = GRAD_GROUP, .dbias_sums = dbias};
    const work_item *me = &own.group.me;
    wave w = {.lane = me->id % WAVE};

    own.largest_v = largest_v[me->team];
    find_memory(&own, (__local uchar *)team_memory[me->team]);
    find_group(&own, &args);
    clear_pad_sums(&own.group, &w);
    tile_scheduler at = start_split(forward, own.split, me->team);
    find_first_tokens(&at, &own, forward);
    own.group.copies.steps = at.rounds;
    own.group.copies.wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    START_PADS(own.group, *forward, own.head)
    if (AHEAD > 0)
        start_copies(&own, 0, 1, !LATE_KEYS, &at, &args);
    if (LATE_KEYS)
        start_copies(&own, 0, 0, 1, &at, &args);
    clear_memory(&own);
    cache_head_score_bias(own.group.memory.bias_cache,
                          &own.group.tensors.score_bias, forward, own.head, 0,
                          me->id);
    barrier(CLK_LOCAL_MEM_FENCE);
    clear_tiles(dbias, KEEPS_DBIAS ? KEY_TILES : 0);
    if (VARIANT == COSINE)
        own.scale =
            cosine_scale(forward, own.group.tensors.logit_scale, own.head);
    clear_dbias(own.bias_partial, NQ * NK, forward->flags, me->id);
    start_o(&own, 0, &at, &args, &w);
    differentiate_windows(at, &own, &args, &w);

    barrier(CLK_LOCAL_MEM_FENCE);
    const dbias_partial to = {.rows = own.bias_partial,
                              .row_count = NQ,
                              .tile = own.tile,
                              .owns = own.owns,
                              .flags = forward->flags};
    if (KEEPS_DBIAS)
        store_dbias(dbias, KEY_TILES, (__local float *)team_memory, &to,
                    me->team, &w);
    const ulong head_of_split = (ulong)own.split * forward->heads + own.head;
    if (VARIANT == COSINE)
        leave_scale(own.scale_sum, own.head,
                    own.group.tensors.workspace + args.scale_partials +
                        head_of_split,
                    &own.group, forward);
    if (PADDING == 1)
        store_pad_sums(&own.group, &args, head_of_split, 1, 1);
}
