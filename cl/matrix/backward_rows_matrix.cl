/* SPDX-License-Identifier: Apache-2.0
 * Backward pass on a matrix unit where one kernel does not suit a window: what
 * concerns rows. backward_keys_matrix.cl follows.
 *
 *                     keys, BLOCK_KEYS at a time
 *                +-----------+
 *     Q  K^T ->  |     P     |  a wave's tile  ->  dQ += scale dS K
 *    dO  V^T ->  |    dP     |  of rows            dBias += dS
 *                |    dS     |
 *                +-----------+
 *
 * A work-group owns one block of rows of one head, as in forward_matrix.cl,
 * and iterates over windows. dS goes from registers to the product with K, so
 * waves meet only where a step of the ring arrives: BLOCK_KEYS keys of a
 * window, the first with the window's rows of q, dO and o.
 *
 * delta is dO . O - d_lse where o and lse are given and windows are not small,
 * else sum P dP - d_lse, for which a wave loops over all keys before (where
 * they stream, they come twice). From o it is a little off, which the sum of
 * dS over all keys tells; where that shows, a wave loops over them once more,
 * for dQ -= scale (error of delta) P K and dBias -= (error) P (where keys
 * stream, the team does, and they come again). The workspace gets what the
 * other kernel must know of each row (args.h).
 *
 * Where sums of dBias leave room for few rows, several waves share a tile of
 * them, each with as many keys of a KV block as the others; at a window's end
 * they add up dQ. */
#define BACKWARD 1
#define RECOMPUTE_SCORES 1
#include "matrix/split_pipeline.cl"

REQUIRE(KEEPS_DBIAS)

/* ---- A KV block ---- */

/* A step of the ring: a KV block of a window. */
typedef struct row_step {
    uint step;          /* the ring's */
    uint window;        /* the stage that has the window's rows */
    uint number, block; /* in the window; of its keys */
    int is_for_sums;    /* for statistics only */
    int mends;          /* the window's keys have come again */
} row_step;

/* What a team computes with. */
INLINE void find_step(q_block *v, const row_step *in, const split_group *g,
                      const backward_args *args, const tile_scheduler *at)
{
    place_block(v, in->window * STAGE_SIZE, in->step % STAGES * STAGE_SIZE,
                &g->group, args, at);
    v->head = g->head;
    v->scale =
        HEAD_SCALE(&args->forward, g->group.tensors.logit_scale, g->head);
    v->first_row = g->first_row;
    v->row_count = g->row_count;
    v->first_key = in->block * BLOCK_KEYS;
    v->key_count = min(BLOCK_KEYS, (int)NK - (int)v->first_key);
    v->is_last = in->number + 1 == g->window_steps;
    v->lse = g->lse_rows[g->group.me.team][in->window];
    v->out = (__local ushort *)g->out_staging[g->group.me.id / WAVE];
}

/* What a KV block has to be measured or found before it is computed with; the
 * team meets again where there is something. */
INLINE void prepare_kv_block(q_block *here, const row_step *in,
                             uint *kept_regions, const split_group *g,
                             const wave *w)
{
    const work_item *me = &g->group.me;
    const int measures = VARIANT == COSINE || (RESCALES && g->has_o_lse);
    __local uint(*bounds)[KEY_BOUNDS] = g->bounds[me->team];
    if (O_SERVES && STREAMING && me->lane == 0 && in->block == 0)
        *g->errors_show = 0;
    if (RESCALES && me->lane < KEY_BOUNDS)
        bounds[(in->step + 1) % 2][me->lane] = 0;
    if (measures && here->at->exists) /* else nobody wrote k and v */
        measure_keys(g->group.memory.inverses_n[me->team],
                     bounds[in->step % 2], here, g->has_o_lse, me->wave, w);
    if (VARIANT == COSINE && in->number == 0) {
        const measured_rows measured = {g->group.memory.inverses_m[me->team],
                                        here->q, BLOCK_ROWS, 1.0f};
        measure_rows(&measured, 1, me->wave, w);
    }
    const int has_new = find_regions(here, kept_regions, in->number == 0,
                                     &g->group.tensors.score_bias, me->lane);
    if (TEAMS_SYNC_TOGETHER || measures || has_new)
        TEAM_SYNC(me->team);
}

/* ---- A wave's rows ---- */

/* A KV block, and of the rows what belongs to it, become the wave's share of
 * its keys, from tile `first` on. */
INLINE void find_share(row_work *work, const q_block *here, int first)
{
    q_block *share = work->share;
    tile_rows *own = &work->own->rows;
    *share = *here;
    *work->own = *work->part;
    share->k += first * TILE_N * PITCH;
    share->v += first * TILE_N * PITCH;
    share->k_inverses += first * TILE_N;
    share->first_key += first * TILE_N;
    share->key_count -= first * TILE_N;
    if (HAS_LOCAL_BIAS_CACHE)
        own->local_score_bias =
            (__local const cached_bias *)own->local_score_bias +
            first * TILE_ELEMENTS;
    if (COMPARES_REGIONS && own->key_regions)
        own->key_regions += first * TILE_N;
}

/* Statistics of the rows from all keys, of which these are a block. */
INLINE void add_row_statistics(row_work *work, uint block, const int has_lse,
                               const q_block *here, const wave *w)
{
    row_state *state = work->state;
    row_statistics *s = &state->statistics;
    const row_part *part = work->part;
    float scores[TILES_PER_SUBTILE][ACC_PER_LANE];
    if (block == 0) {
        state->takes_lse = lse_serves(has_lse, part, w);
        start_statistics(s, state->takes_lse, part->lse);
    }
    if (RESCALES && VARIANT == COSINE)
        bound_inverses(s, here, w);
    add_statistics(s, scores, 0, part, here, state->takes_lse, w);
    if (block == KEY_BLOCKS - 1) {
        finish_statistics(s, part, state->takes_lse, w);
        if (RESCALES)
            join_bounds(s, w);
    }
}

/* What must be known of the rows before they are differentiated: from o and
 * lse, or of all keys. */
INLINE void find_statistics(row_work *work, const row_step *in,
                            const q_block *here, const split_group *g,
                            const wave *w)
{
    const int has_o_lse = g->has_o_lse;
    if (O_SERVES && work->computes && has_o_lse && in->block == 0 &&
        !in->mends)
        take_statistics(work->state, work->part, here, w);
    if (O_SERVES && RESCALES && has_o_lse)
        bound_dp(work->state, g->bounds[g->group.me.team][in->step % 2]);
    if (work->computes && !has_o_lse && (!STREAMING || in->is_for_sums))
        add_row_statistics(work, in->block, g->has_lse, here, w);
}

/* dQ and dBias of a tile of rows and the wave's share of a KV block's keys. */
INLINE void add_kv_block(row_work *work, const row_step *in,
                         int differentiates, const q_block *here,
                         const wave *w)
{
    const int mends = in->mends, is_first = in->block == 0 && !mends;
    if (is_first)
        find_large(work->state, here, w);
    choose_ds_scales(work->state, work->dq, is_first);
    if (O_SERVES && STREAMING && mends)
        differentiate_rows(work, 1, 1, w);
    else if (differentiates && work->state->large)
        differentiate_rows(work, 1, 0, w);
    else if (differentiates)
        differentiate_rows(work, 0, 0, w);
}

/* What sums of dS over all keys are off by, and does it show in dQ? */
INLINE int find_row_errors(row_work *work, const q_block *here,
                           const split_group *g, const wave *w)
{
    row_errors *errors = &work->state->errors;
    float expected[LANE_ROWS];
    if (!work->computes)
        clear_errors(errors);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        expected[r] = work->part->d_lse[r] * work->state->ds_scale[r];
    reduce_errors(errors, w);
    if (SPLITS > 1)
        join_errors(errors,
                    g->out_staging + g->group.me.team * WAVES_PER_WINDOW +
                        work->tile,
                    work->split, g->group.me.team, w);
    find_errors(errors, &work->state->statistics, expected);
    return g->has_o_lse &&
           errors_count(errors, SCRATCH_OF_ERRORS(here->out), w) &&
           work->computes;
}

/* After the last KV block: sums of dS tell how far a delta from o is off, and
 * what rounding leaves. For the most part that goes, and all of an error of
 * delta where it shows, for which a window's keys must come again where they
 * stream (1). */
INLINE int mend_window(row_work *work, const q_block *here,
                       const split_group *g, const wave *w)
{
    int shows = find_row_errors(work, here, g, w);
    /* by the first of who share rows */
    const int takes_mean = work->computes && work->split == 0;
    float of_dq[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        of_dq[r] = work->split == 0 ? work->state->errors.sum[r] : 0.0f;
    if (takes_mean)
        take_mean_key(work->dq, of_dq, here, w);
    if (STREAMING) {
        if (shows && w->lane == 0)
            *g->errors_show = 1;
        TEAM_SYNC(g->group.me.team);
        shows = *g->errors_show;
    } else if (shows) {
        differentiate_rows(work, 1, 1, w);
    }
    if (takes_mean && shows) {
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            of_dq[r] = -of_dq[r];
        take_mean_key(work->dq, of_dq, here, w);
    }
    return STREAMING && shows;
}

/* dQ of the tile of rows leaves, and what the other kernel must know. */
INLINE void leave_window(row_work *work, const q_block *here, split_group *g,
                         const wave *w)
{
    const backward_args *args = here->args;
    row_state *state = work->state;
    row_part *part = work->part;
    const ulong head_of_window =
        (ulong)here->at->window * args->forward.heads + g->head;
    __global float *numbers =
        g->group.tensors.workspace + args->workspace +
        (head_of_window * NQ + g->first_row + part->rows.row) * ROW_NUMBERS;
    if (SPLITS > 1) {
        add_splits(work->dq, g->split_sums[g->group.me.team][work->tile],
                   work->split, g->group.me.team, w);
        part->count = work->split == 0 ? part->count : 0;
    }
    if (part->count <= 0)
        return;
    if (O_SERVES && g->has_o_lse) /* the other kernel gets the right one */
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            state->statistics.delta[r] +=
                state->errors.sum[r] * inverse_ds_scale(state->ds_scale[r]);
    store_dq(state, work->dq, g->group.tensors.dq, &g->scale_sum, part, here,
             w);
    store_statistics(state, numbers, part, here, w);
}

/* Takes a KV block into account in the wave's tile of rows, which leaves after
 * the window's last. 1: its keys must come again. */
INLINE int compute_rows(row_state *state, __private float (*dq)[ACC_PER_LANE],
                        const row_step *in, const q_block *here,
                        split_group *g, const wave *w)
{
    const work_item *me = &g->group.me;
    const int tile = SPLITS > 1 ? me->wave % ROW_TILES : me->wave;
    const int count = here->at->exists ? g->row_count - tile * TILE_M : 0;
    row_part part = {.rows = {.last_row = g->row_count - 1,
                              .first_row = (int)g->first_row,
                              .coord = here->at->coord},
                     .count = count};
    row_part own;
    q_block share;
    row_work work = {.state = state,
                     .dq = dq,
                     .tile = tile,
                     .split = SPLITS > 1 ? me->wave / ROW_TILES : 0,
                     .computes = count > 0,
                     .part = &part,
                     .own = &own,
                     .share = &share};
    const int first = work.split * SHARE_TILES;
    int comes_again = 0;
    /* who shares rows, or has the team's keys come again, must meet */
    if (SPLITS == 1 && !work.computes && !(O_SERVES && STREAMING))
        return 0;
    work.part->rows.row = work.tile * TILE_M;
    place_tile(&work.part->rows, work.tile, in->block, here, w);
    read_rows(work.part, here, g->group.tensors.d_lse, w);
    find_statistics(&work, in, here, g, w);
    find_share(&work, here, first);
    work.dbias.sums = g->dbias_sums;
    work.dbias.kept = g->dbias + (work.tile * ALL_KEY_TILES +
                                  (int)in->block * KEY_TILES + first) *
                                     TILE_ELEMENTS / 4;
    work.dbias.workspace = g->bias_partial + work.share->first_key;
    work.dbias.keys = (int)NK - (int)work.share->first_key;
    if (work.computes && !in->is_for_sums)
        add_kv_block(&work, in, g->differentiates, here, w);
    if (O_SERVES && g->differentiates && here->is_last && !in->mends)
        comes_again = mend_window(&work, here, g, w);
    if (here->is_last && !comes_again)
        leave_window(&work, here, g, w);
    return comes_again;
}

/* ---- Windows ---- */

/* dQ of the windows of a tile scheduler, and what they share. */
INLINE void differentiate_windows(tile_scheduler at, split_group *g,
                                  const backward_args *kernel_args, wave *w)
{
    work_item *me = &g->group.me;
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    /* these live from KV block to KV block where keys stream */
    row_state state;
    float dq[DIM_TILES][ACC_PER_LANE];
    /* the block's number in its window, and the window's; mends: the window's
     * keys have come again */
    uint number = 0, window = 0;
    int mends = 0;
    for (uint step = 0; step < g->group.copies.steps; step++) {
        HIDE_LANE(me->lane);
        RELOAD_ARGS(backward_args, args, kernel_args)
        HIDE_LANE(w->lane);
        const row_step in = {.step = step,
                             .window = (STREAMING ? window : step) % STAGES,
                             .number = number,
                             .block = number % KEY_BLOCKS,
                             .is_for_sums = number < g->sums_first,
                             .mends = mends};
        q_block here;
        find_step(&here, &in, g, args, &at);
        find_score_bias(&here, &cached_mask_class,
                        &g->group.tensors.score_bias, me->id);
        await_stage(me->team);
        start_kv_block(g, step + AHEAD, args);
        await_copies(me->team);
        prepare_kv_block(&here, &in, &kept_regions, g, w);
        const int comes_again = compute_rows(&state, dq, &in, &here, g, w);
        if (STREAMING) {
            if (O_SERVES && comes_again)
                start_again(g, step, &at, window, args);
            number = here.is_last ? 0 : number + 1;
            window += here.is_last && !comes_again;
            mends = here.is_last ? comes_again : mends;
        }
        if (here.is_last && !comes_again)
            next_window(&at, &args->forward, me->team);
    }
}

/* What windows share leaves, by way of the teams' rings. Holds barriers of the
 * work-group. */
INLINE void leave_sums(split_group *g, __local float *rings,
                       const backward_args *args, const wave *w)
{
    const forward_args *forward = &args->forward;
    const work_item *me = &g->group.me;
    const dbias_partial to = {.rows = g->bias_partial,
                              .row_count = g->row_count,
                              .tile = me->wave % ROW_TILES,
                              .first_tile = me->wave / ROW_TILES * SHARE_TILES,
                              .owns = 1,
                              .flags = forward->flags};
    const ulong block =
        (ulong)g->window_split * forward->row_blocks + g->row_block;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (KEEPS_DBIAS == 1)
        store_dbias(g->dbias_sums, SHARE_TILES, rings, &to, me->team, w);
    if (KEEPS_DBIAS == 2)
        store_kept_dbias(g->dbias, &to, me->wave, w);
    if (VARIANT == COSINE)
        leave_scale(g->scale_sum, g->head,
                    g->group.tensors.workspace + args->scale_partials +
                        block * forward->heads + g->head,
                    &g->group, forward);
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_rows_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
    __local float4 dbias_kept[ROOM(
        KEEPS_DBIAS == 2, ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS / 4)];
    __local float split_sums[ROOM(SPLITS > 1, WINDOWS_PER_GROUP)][ROW_TILES]
                            [ROOM(SPLITS > 1, SPLIT_SIZE)];
    DECLARE_GRAD_MEMORY
    __local float lse_rows[WINDOWS_PER_GROUP][STAGES][BLOCK_ROWS];
    __local uint bounds[ROOM(RESCALES, WINDOWS_PER_GROUP)][2][KEY_BOUNDS];
    __local int errors_show;
    float dbias_sums[ROOM(KEEPS_DBIAS == 1, SHARE_TILES)][ACC_PER_LANE];
    const forward_args *forward = &args.forward;
    split_group own = {.group = GRAD_GROUP,
                       .lse_rows = lse_rows,
                       .out_staging = out_staging,
                       .bounds = bounds,
                       .errors_show = &errors_show,
                       .dbias = dbias_kept,
                       .split_sums = split_sums,
                       .dbias_sums = dbias_sums,
                       .scale_sum = 0.0f};
    const work_item *me = &own.group.me;
    wave w = {.lane = me->id % WAVE};

    find_group(&own, &args, (uint)get_group_id(0));
    const tile_scheduler at = start_split(forward, own.window_split, me->team);
    own.group.copies.next = at;
    own.group.copies.steps = at.rounds * own.window_steps;
    own.group.copies.ring = (__local ushort *)rings[me->team];
    own.group.copies.wide = forward->flags & ARG_WIDE_ACCESS;
    START_PADS(own.group, *forward, own.head / forward->heads_per_kv_head)
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_kv_block(&own, ahead, &args);
    clear_pads(own.group.copies.ring, me->lane);
    cache_head_score_bias(own.group.memory.bias_cache,
                          &own.group.tensors.score_bias, forward, own.head,
                          own.first_row, me->id);
    clear_sums(&own, forward->flags);
    barrier(CLK_LOCAL_MEM_FENCE);
    clear_tiles(dbias_sums, KEEPS_DBIAS == 1 ? SHARE_TILES : 0);
    differentiate_windows(at, &own, &args, &w);
    leave_sums(&own, (__local float *)rings, &args, &w);
}
