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

/* What a wave sums from KV block to KV block, or from window to window. */
typedef struct row_sums {
    row_state *state;
    float (*dq)[ACC_PER_LANE]; /* [DIM_TILES] */
#if BIAS && KEEPS_DBIAS == 1
    float (*dbias)[ACC_PER_LANE]; /* [SHARE_TILES] */
#endif
    float scale; /* for d_logit_scale, of a lane's own rows */
} row_sums;

/* ---- A KV block ---- */

/* A step of the ring, besides what a team computes with. */
typedef struct row_step {
    uint number, block; /* in the window; of keys */
    int is_for_sums;    /* for statistics only */
    int mends;          /* the window's keys have come again */
    int has_shift_boundary;
    __local const uint *bounds; /* of its keys */
} row_step;

/* A wave's tile of rows in a KV block. */
typedef struct row_tile {
    row_part part;
    int tile;
    int split;    /* of those who share it, the wave's number */
    int computes; /* it exists */
} row_tile;

INLINE q_block q_block_of(uint step, uint row_stage, const row_step *in,
                          const split_job *job, const split_memory *memory,
                          const backward_args *args, const tile_scheduler *at,
                          __local const ushort *ring)
{
    __local const ushort *stage = ring + step % STAGES * STAGE_SIZE;
    __local const ushort *rows = ring + row_stage * STAGE_SIZE;
    q_block v = {.args = args,
                 .at = at,
                 .head = job->head,
                 .first_row = job->first_row,
                 .first_key = in->block * BLOCK_KEYS,
                 .row_count = job->row_count,
                 .is_last = in->number + 1 == job->window_steps,
                 .scale = args->forward.scale,
                 .ds_scale = 1.0f,
                 .q = rows + Q_OFFSET,
                 .d_o = rows + D_O_OFFSET,
                 .k = stage + K_OFFSET,
                 .v = stage + V_OFFSET,
                 .lse = memory->lse_rows[row_stage],
                 .out = memory->out};
    v.key_count = min(BLOCK_KEYS, (int)NK - (int)v.first_key);
#if VARIANT == COSINE
    v.scale = cosine_scale(&args->forward, job->logit_scale, job->head);
    v.q_inverses = memory->q_inverses;
    v.k_inverses = memory->k_inverses;
#endif
    return v;
}

/* What a KV block has to be measured or found before it is computed with; the
 * team meets again where there is something. */
INLINE void prepare_kv_block(uint step, row_step *in, const q_block *now,
                             uint *kept_regions, const split_memory *memory,
                             const score_bias_tensors *tensors, work_tile of,
                             const work_item *me, const wave *w)
{
    int meets = VARIANT == COSINE;
    const uint number = in->number;
    in->bounds = 0;
    in->has_shift_boundary = 0;
#if O_SERVES && STREAMING
    if (me->lane == 0 && in->block == 0)
        *memory->errors_show = 0;
#endif
#if VARIANT == COSINE || RESCALES
    const int has_o_lse = delta_is_of_o(now->args->forward.flags);
    __local uint *bounds = 0;
    __local float *inverses = 0;
#if RESCALES
    bounds = memory->bounds[step % 2];
    in->bounds = bounds;
    if (me->lane < KEY_BOUNDS)
        memory->bounds[(step + 1) % 2][me->lane] = 0;
    meets |= has_o_lse;
#endif
#if VARIANT == COSINE
    inverses = memory->k_inverses;
#endif
    IF_ALL (meets)
        measure_keys(inverses, bounds, now->k, now->v, has_o_lse, me->wave, w);
#endif
#if VARIANT == COSINE
    IF_ALL (number == 0) {
        const measured_rows measured = {memory->q_inverses, now->q, BLOCK_ROWS,
                                        1.0f};
        measure_rows(&measured, 1, me->wave, w);
    }
#endif
#if COMPARES_REGIONS
    in->has_shift_boundary = HAS_SHIFT_BOUNDARY(*now->at);
    meets |= renew_regions(&memory->bias, kept_regions,
                           number == 0 && in->has_shift_boundary, now, tensors,
                           of, me->lane);
#endif
    if (EMULATED || meets)
        TEAM_SYNC(me->team);
}

/* What must be known of the rows before they can be differentiated: from o and
 * lse, or of all keys. */
INLINE void find_statistics(row_state *state, const row_tile *own,
                            const row_step *step, const q_block *now,
                            const score_bias_view *score_bias, const wave *w)
{
    const int computes = own->computes;
    const uint flags = now->args->forward.flags;
    const int has_lse = lse_serves(flags), has_o_lse = delta_is_of_o(flags);
    const int is_for_sums = step->is_for_sums, mends = step->mends;
    const uint block = step->block;
#if O_SERVES
    IF_ALL (computes && has_o_lse && block == 0 && !mends)
        take_statistics(state, &own->part, now, now->q + (O_OFFSET - Q_OFFSET),
                        w);
#if RESCALES
    if (has_o_lse)
        bound_dp(state, step->bounds);
#endif
#endif
    IF_ALL (computes && !has_o_lse && (!STREAMING || is_for_sums)) {
        row_statistics *s = &state->statistics;
        float scores[TILES_PER_SUBTILE][ACC_PER_LANE];
        IF_ALL (block == 0) {
            state->takes_lse = has_lse && !exceeds_lse(&own->part, w);
            start_statistics(s, state->takes_lse, own->part.lse);
        }
#if RESCALES && VARIANT == COSINE
        bound_inverses(s, now, w);
#endif
        add_statistics(s, scores, &own->part, now, score_bias,
                       state->takes_lse, w);
        IF_ALL (block == KEY_BLOCKS - 1) {
            finish_statistics(s, &own->part, state->takes_lse, w);
#if RESCALES
            join_bounds(s, w);
#endif
        }
    }
}

/* dQ and dBias of the tile of rows and a KV block's keys, of which the wave
 * has a share: that block, of the rows `part`. */
INLINE void add_kv_block(row_sums *sums, const row_tile *own,
                         const row_part *part, const q_block *share,
                         const dbias_target *dbias, const row_step *step,
                         const q_block *now, const score_bias_view *score_bias,
                         const wave *w)
{
    row_state *state = sums->state;
    const int mends = step->mends;
    const int wanted = wants_rows(now->args->forward.flags);
    const int is_for_sums = step->is_for_sums, exists = own->computes;
    const uint block = step->block;
    const int is_first = block == 0 && !mends;
    const int computes = exists && !is_for_sums;
    IF_ALL (computes) {
        IF_ALL (is_first)
            find_large(state, now, w);
        choose_ds_scales(state, sums->dq, is_first);
    }
    IF_ALL (computes) {
#if EMULATED /* waves have to keep step */
        differentiate_rows(state, sums->dq, dbias, 1, mends, part, share,
                           score_bias, w);
#else
        if (O_SERVES && STREAMING && mends)
            differentiate_rows(state, sums->dq, dbias, 1, 1, part, share,
                               score_bias, w);
        else if (wanted && state->large)
            differentiate_rows(state, sums->dq, dbias, 1, 0, part, share,
                               score_bias, w);
        else if (wanted)
            differentiate_rows(state, sums->dq, dbias, 0, 0, part, share,
                               score_bias, w);
#endif
    }
}

#if O_SERVES
/* After the last step, if delta is from o: sums of dS tell how far it is off.
 * What that leaves in dQ for the most part goes, and all of it where it shows,
 * for which a window's keys must come again where they stream (1). */
INLINE int mend_window(row_sums *sums, const row_tile *own,
                       const row_part *part, const q_block *share,
                       const dbias_target *dbias, const q_block *now,
                       const score_bias_view *score_bias,
                       const split_memory *memory, int team, const wave *w)
{
    row_state *state = sums->state;
    const int computes = own->computes, split = own->split;
    float expected[LANE_ROWS], of_dq[LANE_ROWS];
    IF_ALL (!computes)
        clear_errors(&state->errors);
    expect_sums(expected, state, &own->part);
    reduce_errors(&state->errors, w);
#if SPLITS > 1
    join_errors(&state->errors, memory->team_out + own->tile, split, team, w);
#endif
    find_errors(&state->errors, &own->part, expected);
    /* by the first of who share rows; emulated waves keep step */
    const int takes_mean = computes && (EMULATED || split == 0);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        of_dq[r] = split == 0 ? state->errors.sum[r] : 0.0f;
    IF_ALL (takes_mean)
        take_mean_key(sums->dq, of_dq, now, w);
    int shows = errors_count(&state->errors, SCRATCH_OF_ERRORS(now->out), w) &&
                computes;
#if STREAMING
    if (shows && w->lane == 0)
        *memory->errors_show = 1;
    TEAM_SYNC(team);
    shows = *memory->errors_show;
#else
    IF_ALL (shows)
        differentiate_rows(state, sums->dq, dbias, 1, 1, part, share,
                           score_bias, w);
#endif
    IF_ALL (takes_mean && shows) {
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            of_dq[r] = -of_dq[r];
        take_mean_key(sums->dq, of_dq, now, w);
    }
    return STREAMING && shows;
}
#endif

/* dQ of the tile of rows leaves, and what the other kernel must know. */
INLINE void leave_window(row_sums *sums, row_tile *own, const q_block *now,
                         const split_job *job, const split_memory *memory,
                         int team, const wave *w)
{
    row_part *part = &own->part;
#if SPLITS > 1
    add_splits(sums->dq, memory->splits[own->tile], own->split, team, w);
    part->count = own->split == 0 ? part->count : 0;
#endif
    if (EMULATED || part->count > 0) {
        const backward_args *args = now->args;
#if O_SERVES
        if (delta_is_of_o(args->forward.flags))
            mend_delta(sums->state);
#endif
        store_dq(sums->state, sums->dq, job->dq, &sums->scale, part, now, w);
        store_statistics(
            sums->state,
            job->workspace + args->workspace +
                (((ulong)now->at->window * args->forward.heads + job->head) *
                     NQ +
                 job->first_row + part->rows.row) *
                    ROW_NUMBERS,
            part, now, w);
    }
}

/* Takes a KV block into account in the wave's tile of rows of that turn, which
 * leaves after the window's last. 1: its keys must come again. */
INLINE int compute_rows(int turn, row_sums *sums, const row_step *step,
                        const q_block *now, const score_bias_view *score_bias,
                        const split_job *job, const split_memory *memory,
                        const work_item *me, const wave *w)
{
    const int tile_here =
        SPLITS > 1 ? me->wave % ROW_TILES : turn * WAVES_PER_WINDOW + me->wave;
    const int exists = now->at->exists;
    const int count = exists ? job->row_count - tile_here * TILE_M : 0;
    row_tile own = {.tile = min(tile_here, ROW_TILES - 1),
                    .split = SPLITS > 1 ? me->wave / ROW_TILES : 0,
                    /* emulated waves have to keep step; who shares rows must
                     * meet */
                    .computes = EMULATED || count > 0};
    const int is_last = now->is_last;
    int comes_again = 0;
    if (SPLITS == 1 && !own.computes && !(O_SERVES && STREAMING))
        return 0;
    own.part = find_rows(now, own.tile, count, step->block * KEY_TILES,
                         step->has_shift_boundary, &memory->bias, w);
    read_rows(&own.part, now, job->d_lse, w);
    find_statistics(sums->state, &own, step, now, score_bias, w);
#if SPLITS > 1
    key_share own_keys;
    find_share(&own_keys, own.split, &own.part, now);
    const q_block *share = &own_keys.here;
    const row_part *part = &own_keys.part;
#else
    const q_block *share = now;
    const row_part *part = &own.part;
#endif
    const dbias_target dbias = {
#if BIAS && KEEPS_DBIAS == 1
        .sums = sums->dbias,
#elif BIAS && KEEPS_DBIAS == 2
        .kept = memory->dbias +
                (own.tile * ALL_KEY_TILES + (int)step->block * KEY_TILES +
                 own.split * SHARE_TILES) *
                    TILE_ELEMENTS / 4,
#endif
        .workspace = job->bias_partial + share->first_key,
        .keys = (int)NK - (int)share->first_key
    };
    add_kv_block(sums, &own, part, share, &dbias, step, now, score_bias, w);
#if O_SERVES
    const uint flags = now->args->forward.flags;
    const int has_o_lse = delta_is_of_o(flags), wanted = wants_rows(flags);
    const int mends = step->mends;
    IF_ALL (wanted && is_last && has_o_lse && !mends)
        comes_again = mend_window(sums, &own, part, share, &dbias, now,
                                  score_bias, memory, me->team, w);
#endif
    IF_ALL (is_last && !comes_again)
        leave_window(sums, &own, now, job, memory, me->team, w);
    return comes_again;
}

/* ---- Windows ---- */

/* dQ and what windows share of the windows of a tile scheduler. */
INLINE void differentiate_windows(tile_scheduler here, row_sums *sums,
                                  split_pipeline *pipeline,
                                  const split_job *job,
                                  const split_memory *memory,
                                  const score_bias_tensors *tensors,
                                  const backward_args *args, work_item *me,
                                  wave *w)
{
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    /* the block's number in its window, and the window's; mends: the window's
     * keys have come again */
    uint number = 0, window = 0;
    int mends = 0;
    for (uint step = 0; step < pipeline->ring.steps; step++) {
        HIDE_LANE(me->lane);
        RELOAD_ARGS(backward_args, now_args, args)
        HIDE_LANE(w->lane);
        const forward_args *forward = &now_args->forward;
        const uint row_stage = (STREAMING ? window : step) % STAGES;
        row_step in = {.number = number,
                       .block = number % KEY_BLOCKS,
                       .is_for_sums = number < job->sums_first,
                       .mends = mends};
        const q_block now = q_block_of(step, row_stage, &in, job, memory,
                                       now_args, &here, pipeline->ring.ring);
        const work_tile work_tile_here = {.window = window_of(&here, forward),
                                          .head = job->head,
                                          .row = job->first_row};
        const score_bias_view score_bias = block_score_bias(
            &cached_mask_class, memory->bias.cache, tensors, &here,
            work_tile_here, forward, job->first_row, me->id);
        int comes_again = 0; /* do the window's keys? */
        await_stage(me->team);
        start_kv_block(pipeline, step + AHEAD, job, memory, now_args, me->team,
                       me->lane);
        await_copies(me->team);
        prepare_kv_block(step, &in, &now, &kept_regions, memory, tensors,
                         work_tile_here, me, w);
        NO_UNROLL_FOR (int turn = 0; turn < WAVE_TURNS; turn++)
            comes_again |= compute_rows(turn, sums, &in, &now, &score_bias,
                                        job, memory, me, w);
        if (STREAMING) {
            if (O_SERVES && comes_again)
                start_again(pipeline, step, &here, window, job, memory,
                            now_args, me->team, me->lane);
            number = now.is_last ? 0 : number + 1;
            window += now.is_last && !comes_again;
            mends = now.is_last ? comes_again : mends;
        }
        if (now.is_last && !comes_again)
            next_window(&here, forward, me->team);
    }
}

#if VARIANT == COSINE
/* What lanes have summed for d_logit_scale. Holds barriers of the work-group.
 */
INLINE void leave_scale(float own, const split_job *job,
                        const split_memory *memory, const backward_args *args,
                        int item)
{
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags;
    const ulong block =
        (ulong)job->window_split * forward->row_blocks + job->row_block;
    const float sum =
        sum_over_group(own, memory->lane_sums, item, TEAM * WINDOWS_PER_GROUP);
    if (item == 0 && (flags & ARG_D_LOGIT_SCALE) != 0)
        add_partial(job->workspace + args->scale_partials +
                        block * forward->heads + job->head,
                    scale_gradient(forward, job->logit_scale, job->head, sum),
                    flags);
}
#endif

/* What windows share leaves. `shared`: local memory of the rings. Holds
 * barriers of the work-group. */
INLINE void leave_sums(row_sums *sums, __local float *shared,
                       const split_job *of, const split_memory *memory,
                       const backward_args *args, const work_item *me,
                       const wave *w)
{
    const uint flags = args->forward.flags;
    /* the job is found again, as what is kept of it would cost registers */
    uint group = (uint)get_group_id(0);
    HIDE_FROM_OPTIMIZER(group);
    split_job job = find_job(args, of->workspace, group);
#if BIAS && KEEPS_DBIAS == 1
    if ((flags & ARG_DBIAS) != 0)
        store_dbias(sums->dbias, SHARE_TILES, shared, job.bias_partial,
                    me->team, me->wave % ROW_TILES,
                    me->wave / ROW_TILES * SHARE_TILES, job.row_count,
                    me->wave < SPLITS * ROW_TILES, flags, w);
#elif BIAS && KEEPS_DBIAS == 2
    store_kept_dbias(memory->dbias, job.bias_partial, job.row_count, me->wave,
                     flags, w);
#endif
#if VARIANT == COSINE
    job.logit_scale = of->logit_scale;
    leave_scale(sums->scale, &job, memory, args, me->id);
#endif
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_rows_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
#if BIAS && KEEPS_DBIAS == 2
    __local float4 dbias_kept[ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS / 4];
#endif
#if SPLITS > 1
    __local float split_sums[WINDOWS_PER_GROUP][ROW_TILES][SPLIT_SIZE];
#endif
#if VARIANT == COSINE
    __local float q_inverses[WINDOWS_PER_GROUP][BLOCK_ROWS],
        k_inverses[WINDOWS_PER_GROUP][KEY_ROWS];
    __local float lane_sums[TEAM * WINDOWS_PER_GROUP];
#endif
#if COMPARES_REGIONS
    __local uchar kept_row_regions[WINDOWS_PER_GROUP][BLOCK_ROWS];
    __local uchar kept_key_regions[WINDOWS_PER_GROUP][NK];
#endif
    __local float lse_rows[WINDOWS_PER_GROUP][STAGES][BLOCK_ROWS];
#if RESCALES
    __local uint bounds[WINDOWS_PER_GROUP][2][KEY_BOUNDS];
#endif
#if O_SERVES && STREAMING
    __local int errors_show;
#endif
    DECLARE_PADS(pads)
    DECLARE_EXCHANGES(exchanges)
    const forward_args *forward = &args.forward;
    work_item me = this_work_item();
    wave w = wave_of(&me, exchanges);
    const score_bias_tensors tensors = {BIAS_TENSORS MASK_TENSORS.unused = 0};
    const split_memory memory = {
        .bias =
            {
                .cache = BIAS_CACHE_OR_NULL(bias_cache),
#if COMPARES_REGIONS
                .row_regions = kept_row_regions[me.team],
                .key_regions = kept_key_regions[me.team],
#endif
            },
        .lse_rows = lse_rows[me.team],
        .out = (__local ushort *)out_staging[me.id / WAVE],
#if RESCALES
        .bounds = bounds[me.team],
#endif
#if O_SERVES && STREAMING
        .errors_show = &errors_show,
#endif
#if BIAS && KEEPS_DBIAS == 2
        .dbias = dbias_kept,
#endif
#if SPLITS > 1
        .team_out = out_staging + me.team * WAVES_PER_WINDOW,
        .splits = split_sums[me.team],
#endif
#if VARIANT == COSINE
        .q_inverses = q_inverses[me.team],
        .k_inverses = k_inverses[me.team],
        .lane_sums = lane_sums,
#endif
    };

    split_job job = find_job(&args, workspace, (uint)get_group_id(0));
    job.d_lse = d_lse;
    job.dq = dq;
#if VARIANT == COSINE
    job.logit_scale = logit_scale;
#endif
    const tile_scheduler here =
        start_split(forward, job.window_split, me.team);
    split_pipeline pipeline = {
        .ring = {
            .next = here,
            .steps = here.rounds * job.window_steps,
            .ring = (__local ushort *)rings[me.team],
            .pad_k = KEPT_PAD(pads, 0),
            .pad_v = KEPT_PAD(pads, 1),
            .from = {.q = q, .k = k, .v = v, .o = o, .d_o = d_o, .lse = lse},
            .wide = (forward->flags & ARG_WIDE_ACCESS) != 0}};
#if PADDING == 1
    const uint kv_head = job.head / forward->heads_per_kv_head;
    keep_pads(pads, PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head),
              PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head), forward, me.id);
#endif
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_kv_block(&pipeline, ahead, &job, &memory, &args, me.team,
                       me.lane);
    clear_pads(pipeline.ring.ring, me.lane);
#if HAS_LOCAL_BIAS_CACHE
    cache_head_score_bias(bias_cache, &tensors, forward, job.head,
                          job.first_row, me.id);
#endif
    clear_sums(&job, &memory, forward->flags, &me);
    barrier(CLK_LOCAL_MEM_FENCE);
    row_state state; /* this and dQ live from KV block to KV block where keys
                        stream */
    float dq_sums[DIM_TILES][ACC_PER_LANE];
    row_sums sums = {.state = &state, .dq = dq_sums, .scale = 0.0f};
#if BIAS && KEEPS_DBIAS == 1
    float dbias_sums[SHARE_TILES][ACC_PER_LANE];
    clear_tiles(dbias_sums, SHARE_TILES);
    sums.dbias = dbias_sums;
#endif
    differentiate_windows(here, &sums, &pipeline, &job, &memory, &tensors,
                          &args, &me, &w);

    barrier(CLK_LOCAL_MEM_FENCE);
    leave_sums(&sums, (__local float *)rings, &job, &memory, &args, &me, &w);
}
