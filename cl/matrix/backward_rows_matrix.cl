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
    uint number, block; /* in the window; of its keys */
    int is_for_sums;    /* for statistics only */
    int mends;          /* the window's keys have come again */
} row_step;

/* A wave's tile of rows in a turn. */
typedef struct row_tile {
    int tile;
    int split;    /* the wave's number among those that share it */
    int computes; /* the tile exists */
} row_tile;

/* What a KV block has to be measured or found before it is computed with; the
 * team meets again where there is something. Has the window several regions?
 */
INLINE int prepare_kv_block(const q_block *now, const row_step *in,
                            uint *kept_regions, const split_job *job,
                            const split_memory *memory,
                            const score_bias_tensors *tensors, work_tile of,
                            const work_item *me, const wave *w)
{
    int has_shift_boundary = 0;
    int meets = VARIANT == COSINE;
#if O_SERVES && STREAMING
    if (me->lane == 0 && in->block == 0)
        *memory->errors_show = 0;
#endif
#if RESCALES
    if (me->lane < KEY_BOUNDS)
        memory->bounds[me->team][(in->step + 1) % 2][me->lane] = 0;
    meets |= job->has_o_lse;
#endif
#if VARIANT == COSINE || RESCALES
    if (meets && now->at->exists) /* else nobody wrote k and v */
        measure_keys((__local float *)now->k_inverses,
                     BOUNDS_OF(memory, me->team, in->step), now->k, now->v,
                     job->has_o_lse, me->wave, w);
#endif
#if VARIANT == COSINE
    if (in->number == 0) {
        const measured_rows measured = {memory->q_inverses[me->team], now->q,
                                        BLOCK_ROWS, 1.0f};
        measure_rows(&measured, 1, me->wave, w);
    }
#endif
#if COMPARES_REGIONS
    has_shift_boundary = HAS_SHIFT_BOUNDARY(*now->at);
    const int has_new = in->number == 0 && has_shift_boundary &&
                        has_new_regions(now->at, kept_regions);
    if (has_new) {
        const forward_args *forward = &now->args->forward;
        const score_bias_view regions =
            score_bias_at(tensors, forward, of, &now->at->coord);
        keep_regions(memory->row_regions[me->team],
                     memory->key_regions[me->team], forward, &regions,
                     job->first_row, me->lane);
    }
    meets |= has_new;
#endif
    if (TEAMS_SYNC_TOGETHER || meets)
        TEAM_SYNC(me->team);
    return has_shift_boundary;
}

/* ---- A wave's rows ---- */

/* What a tile of rows has in a KV block besides its place. Fills what the
 * caller has: a row_part that is returned stays in memory with NVIDIA's
 * compiler. */
INLINE void find_rows(row_part *part, int tile, uint block, const q_block *now,
                      int has_shift_boundary, const split_memory *memory,
                      int team, const wave *w)
{
#if PADDING == 2
    part->rows.holds_padding =
        holds_padding(&now->args->forward.grid, &now->at->coord);
#endif
#if HAS_LOCAL_BIAS_CACHE
    part->rows.local_score_bias =
        memory->bias_cache +
        (tile * ALL_KEY_TILES + block * KEY_TILES) * TILE_ELEMENTS;
#endif
#if COMPARES_REGIONS
    part->rows.key_regions =
        has_shift_boundary ? memory->key_regions[team] + now->first_key : 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        part->rows.region[r] = memory->row_regions[team][min(
            part->rows.row + lane_query(w->lane, r), now->row_count - 1)];
#endif
}

/* A KV block, and of the rows what belongs to it, become the wave's share of
 * its keys, from tile `first` on, as if that were all. */
INLINE void find_share(q_block *share, row_part *own, int first)
{
    share->k += first * TILE_N * PITCH;
    share->v += first * TILE_N * PITCH;
    share->k_inverses += first * TILE_N;
    share->first_key += first * TILE_N;
    share->key_count -= first * TILE_N;
#if HAS_LOCAL_BIAS_CACHE
    own->rows.local_score_bias =
        (__local const cached_bias *)own->rows.local_score_bias +
        first * TILE_ELEMENTS;
#endif
    if (COMPARES_REGIONS && own->rows.key_regions)
        own->rows.key_regions += first * TILE_N;
}

/* Statistics of the rows from all keys, of which these are a block. */
INLINE void add_row_statistics(row_state *state, const row_part *part,
                               uint block, const int has_lse,
                               const q_block *now,
                               const score_bias_view *score_bias,
                               const wave *w)
{
    float scores[TILES_PER_SUBTILE][ACC_PER_LANE];
    if (block == 0) {
        state->takes_lse = lse_serves(has_lse, part, w);
        start_statistics(&state->statistics, state->takes_lse, part->lse);
    }
#if RESCALES && VARIANT == COSINE
    bound_inverses(&state->statistics, now, w);
#endif
    add_statistics(&state->statistics, scores, 0, part, now, score_bias,
                   state->takes_lse, w);
    if (block == KEY_BLOCKS - 1) {
        finish_statistics(&state->statistics, part, state->takes_lse, w);
#if RESCALES
        join_bounds(&state->statistics, w);
#endif
    }
}

/* What must be known of the rows before they are differentiated: from o and
 * lse, or of all keys. */
INLINE void find_statistics(row_state *state, const row_part *part,
                            int computes, const row_step *in,
                            const q_block *now,
                            const score_bias_view *score_bias,
                            const split_job *job, const split_memory *memory,
                            int team, const wave *w)
{
    const int has_o_lse = job->has_o_lse;
#if O_SERVES
    if (computes && has_o_lse && in->block == 0 && !in->mends)
        take_statistics(state, part, now, now->q + (O_OFFSET - Q_OFFSET), w);
#if RESCALES
    if (has_o_lse)
        bound_dp(state, BOUNDS_OF(memory, team, in->step));
#endif
#endif
    if (computes && !has_o_lse && (!STREAMING || in->is_for_sums))
        add_row_statistics(state, part, in->block, job->has_lse, now,
                           score_bias, w);
}

/* dQ and dBias of a tile of rows and the wave's share of a KV block's keys. */
INLINE void add_kv_block(row_state *state,
                         float dq_sums[DIM_TILES][ACC_PER_LANE],
                         const dbias_target *dbias, const row_part *own,
                         const q_block *share, const row_step *in,
                         int differentiates, const q_block *now,
                         const score_bias_view *score_bias, const wave *w)
{
    const int mends = in->mends, is_first = in->block == 0 && !mends;
    if (is_first)
        find_large(state, now, w);
    choose_ds_scales(state, dq_sums, is_first);
    if (O_SERVES && STREAMING && mends)
        differentiate_rows(state, dq_sums, dbias, 1, 1, own, share, score_bias,
                           w);
    else if (differentiates && state->large)
        differentiate_rows(state, dq_sums, dbias, 1, 0, own, share, score_bias,
                           w);
    else if (differentiates)
        differentiate_rows(state, dq_sums, dbias, 0, 0, own, share, score_bias,
                           w);
}

#if O_SERVES
/* After the last KV block: sums of dS tell how far a delta from o is off, and
 * what rounding leaves. For the most part that goes, and all of an error of
 * delta where it shows, for which a window's keys must come again where they
 * stream (1). */
INLINE int mend_window(row_state *state,
                       float dq_sums[DIM_TILES][ACC_PER_LANE],
                       const dbias_target *dbias, const row_tile *rows,
                       const row_part *part, const row_part *own,
                       const q_block *share, const q_block *now,
                       const score_bias_view *score_bias, int has_o_lse,
                       const split_memory *memory, int team, const wave *w)
{
    const int split = rows->split, computes = rows->computes;
    int shows = 0;
    float expected[LANE_ROWS];
    if (!computes)
        clear_errors(&state->errors);
    expect_sums(expected, state, part);
    reduce_errors(&state->errors, w);
#if SPLITS > 1
    join_errors(&state->errors,
                memory->out_staging + team * WAVES_PER_WINDOW + rows->tile,
                split, team, w);
#endif
    find_errors(&state->errors, &state->statistics, expected);
    /* by the first of who share rows */
    const int takes_mean = computes && split == 0;
    float of_dq[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        of_dq[r] = split == 0 ? state->errors.sum[r] : 0.0f;
    if (takes_mean)
        take_mean_key(dq_sums, of_dq, now, w);
    if (has_o_lse)
        shows = errors_count(&state->errors, SCRATCH_OF_ERRORS(now->out), w) &&
                computes;
#if STREAMING
    if (shows && w->lane == 0)
        *memory->errors_show = 1;
    TEAM_SYNC(team);
    shows = *memory->errors_show;
#else
    if (shows)
        differentiate_rows(state, dq_sums, dbias, 1, 1, own, share, score_bias,
                           w);
#endif
    if (takes_mean && shows) {
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            of_dq[r] = -of_dq[r];
        take_mean_key(dq_sums, of_dq, now, w);
    }
    return STREAMING && shows;
}
#endif

/* dQ of the tile of rows leaves, and what the other kernel must know. */
INLINE void leave_window(row_state *state,
                         float dq_sums[DIM_TILES][ACC_PER_LANE],
                         float *scale_sum, const row_tile *rows,
                         row_part *part, const q_block *now,
                         const split_job *job, const split_memory *memory,
                         int team, const wave *w)
{
    const backward_args *args = now->args;
#if SPLITS > 1
    add_splits(dq_sums, memory->split_sums[team][rows->tile], rows->split,
               team, w);
    part->count = rows->split == 0 ? part->count : 0;
#endif
    if (part->count > 0) {
#if O_SERVES
        if (job->has_o_lse)
            mend_delta(state);
#endif
        store_dq(state, dq_sums, job->dq, scale_sum, part, now, w);
        store_statistics(
            state,
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
INLINE int compute_rows(int turn, row_state *state,
                        float dq_sums[DIM_TILES][ACC_PER_LANE],
                        DBIAS_PARAMETER float *scale_sum, const row_step *in,
                        const q_block *now, int has_shift_boundary,
                        const score_bias_view *score_bias,
                        const split_job *job, const split_memory *memory,
                        const work_item *me, const wave *w)
{
    const int tile_here =
        SPLITS > 1 ? me->wave % ROW_TILES : turn * WAVES_PER_WINDOW + me->wave;
    row_part part = {.rows = {.last_row = job->row_count - 1,
                              .first_row = (int)job->first_row,
                              .coord = now->at->coord}};
    part.count = now->at->exists ? job->row_count - tile_here * TILE_M : 0;
    const row_tile rows = {.tile = min(tile_here, ROW_TILES - 1),
                           .split = SPLITS > 1 ? me->wave / ROW_TILES : 0,
                           .computes = part.count > 0};
    const int first = rows.split * SHARE_TILES;
    int comes_again = 0;
    /* who shares rows, or has the team's keys come again, must meet */
    if (SPLITS == 1 && !rows.computes && !(O_SERVES && STREAMING))
        return 0;
    part.rows.row = rows.tile * TILE_M;
    find_rows(&part, rows.tile, in->block, now, has_shift_boundary, memory,
              me->team, w);
    read_rows(&part, now, job->d_lse, w);
    find_statistics(state, &part, rows.computes, in, now, score_bias, job,
                    memory, me->team, w);
    q_block share = *now;
    row_part own = part;
    find_share(&share, &own, first);
    const dbias_target dbias = {
#if BIAS && KEEPS_DBIAS == 1
        .sums = dbias_sums,
#elif BIAS && KEEPS_DBIAS == 2
        .kept = memory->dbias + (rows.tile * ALL_KEY_TILES +
                                 (int)in->block * KEY_TILES + first) *
                                    TILE_ELEMENTS / 4,
#endif
        .workspace = job->bias_partial + share.first_key,
        .keys = (int)NK - (int)share.first_key
    };
    if (rows.computes && !in->is_for_sums)
        add_kv_block(state, dq_sums, &dbias, &own, &share, in,
                     job->differentiates, now, score_bias, w);
#if O_SERVES
    if (job->differentiates && now->is_last && !in->mends)
        comes_again =
            mend_window(state, dq_sums, &dbias, &rows, &part, &own, &share,
                        now, score_bias, job->has_o_lse, memory, me->team, w);
#endif
    if (now->is_last && !comes_again)
        leave_window(state, dq_sums, scale_sum, &rows, &part, now, job, memory,
                     me->team, w);
    return comes_again;
}

/* ---- Windows ---- */

/* dQ of the windows of a tile scheduler, and what they share. */
INLINE void
differentiate_windows(tile_scheduler here, DBIAS_PARAMETER float *scale_sum,
                      split_pipeline *pipeline, const split_job *job,
                      const split_memory *memory,
                      const score_bias_tensors *tensors,
                      const backward_args *args, work_item *me, wave *w)
{
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    /* these live from KV block to KV block where keys stream */
    row_state state;
    float dq_sums[DIM_TILES][ACC_PER_LANE];
    /* the block's number in its window, and the window's; mends: the window's
     * keys have come again */
    uint number = 0, window_here = 0;
    int mends = 0;
    for (uint step = 0; step < pipeline->ring.steps; step++) {
        HIDE_LANE(me->lane);
        RELOAD_ARGS(backward_args, now_args, args)
        HIDE_LANE(w->lane);
        const forward_args *forward = &now_args->forward;
        const uint window_stage = (STREAMING ? window_here : step) % STAGES;
        const row_step in = {.step = step,
                             .number = number,
                             .block = number % KEY_BLOCKS,
                             .is_for_sums = number < job->sums_first,
                             .mends = mends};
        const int is_last = number + 1 == job->window_steps;
        __local const ushort *stage =
            pipeline->ring.ring + step % STAGES * STAGE_SIZE;
        __local const ushort *row_stage =
            pipeline->ring.ring + window_stage * STAGE_SIZE;
        q_block now = {
            .args = now_args,
            .at = &here,
            .head = job->head,
            .first_row = job->first_row,
            .first_key = in.block * BLOCK_KEYS,
            .row_count = job->row_count,
            .is_last = is_last,
            .scale = forward->scale,
            .ds_scale = 1.0f,
            .q = row_stage + Q_OFFSET,
            .d_o = row_stage + D_O_OFFSET,
            .k = stage + K_OFFSET,
            .v = stage + V_OFFSET,
            .lse = memory->lse_rows[me->team][window_stage],
            .out = (__local ushort *)memory->out_staging[me->id / WAVE]};
        now.key_count = min(BLOCK_KEYS, (int)NK - (int)now.first_key);
#if VARIANT == COSINE
        now.scale = cosine_scale(forward, job->logit_scale, job->head);
        now.q_inverses = memory->q_inverses[me->team];
        now.k_inverses = memory->k_inverses[me->team];
#endif
        const work_tile of = {.window = window_of(&here, forward),
                              .head = job->head,
                              .row = job->first_row};
        const score_bias_view score_bias =
            block_score_bias(&cached_mask_class, memory->bias_cache, tensors,
                             &here, of, forward, job->first_row, me->id);
        int comes_again = 0; /* do the window's keys? */
        await_stage(me->team);
        start_kv_block(pipeline, step + AHEAD, job, memory, now_args, me->team,
                       me->lane);
        await_copies(me->team);
        const int has_shift_boundary = prepare_kv_block(
            &now, &in, &kept_regions, job, memory, tensors, of, me, w);
        NO_UNROLL_FOR (int turn = 0; turn < WAVE_TURNS; turn++)
            comes_again |= compute_rows(
                turn, &state, dq_sums, DBIAS_ARGUMENT scale_sum, &in, &now,
                has_shift_boundary, &score_bias, job, memory, me, w);
#if STREAMING
#if O_SERVES
        if (comes_again)
            start_again(pipeline, step, &here, window_here, job, memory,
                        now_args, me->team, me->lane);
#endif
        number = is_last ? 0 : number + 1;
        window_here += is_last && !comes_again;
        mends = is_last ? comes_again : mends;
#endif
        if (is_last && !comes_again)
            next_window(&here, forward, me->team);
    }
}

/* ---- Gradients that windows share ---- */

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
    const forward_args *forward = &args.forward;
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const split_memory memory = {
        .bias_cache = BIAS_CACHE_OR_NULL(bias_cache),
        .lse_rows = lse_rows,
        .out_staging = out_staging,
#if RESCALES
        .bounds = bounds,
#endif
#if O_SERVES && STREAMING
        .errors_show = &errors_show,
#endif
#if BIAS && KEEPS_DBIAS == 2
        .dbias = dbias_kept,
#endif
#if SPLITS > 1
        .split_sums = split_sums,
#endif
#if VARIANT == COSINE
        .q_inverses = q_inverses,
        .k_inverses = k_inverses,
        .lane_sums = lane_sums,
#endif
#if COMPARES_REGIONS
        .row_regions = kept_row_regions,
        .key_regions = kept_key_regions,
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
            .wide = forward->flags & ARG_WIDE_ACCESS}};
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
#if BIAS && KEEPS_DBIAS == 1
    float dbias_sums[SHARE_TILES][ACC_PER_LANE];
    clear_tiles(dbias_sums, SHARE_TILES);
#endif
    float scale_sum = 0.0f; /* for d_logit_scale, of a lane's own rows */
    differentiate_windows(here, DBIAS_ARGUMENT & scale_sum, &pipeline, &job,
                          &memory, &tensors, &args, &me, &w);

    barrier(CLK_LOCAL_MEM_FENCE);
#if BIAS && KEEPS_DBIAS == 1
    if ((forward->flags & ARG_DBIAS) != 0)
        store_dbias(dbias_sums, SHARE_TILES, (__local float *)rings,
                    job.bias_partial, me.team, me.wave % ROW_TILES,
                    me.wave / ROW_TILES * SHARE_TILES, job.row_count,
                    me.wave < SPLITS * ROW_TILES, forward->flags, &w);
#elif BIAS && KEEPS_DBIAS == 2
    store_kept_dbias(dbias_kept, job.bias_partial, job.row_count, me.wave,
                     forward->flags, &w);
#endif
#if VARIANT == COSINE
    leave_scale(scale_sum, &job, &memory, &args, me.id);
#endif
}
