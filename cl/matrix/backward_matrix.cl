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
 * A step of the ring (pipeline.cl) is a q block: one block of rows of one head
 * that sees the window's keys. All of a window's keys are in local memory.
 * Where SUBTILE_KEYS are not all of them, scores are computed twice: for the
 * rows' statistics, and again for the gradients; or once where o and lse are
 * given and windows are not small, as delta is dO . O - d_lse then, but for an
 * error that is mended where it shows (delta_errors.cl). With all keys at
 * once dP alone would be saved, which o is not worth; and units with registers
 * for that keep it (grad_softmax.cl). */
#define BACKWARD 1
#define FUSED_GRADIENTS 1
#define RECOMPUTE_SCORES (SUBTILES > 1)
#include "matrix/fused_keys.cl"
#include "matrix/fused_pipeline.cl"
#include "matrix/fused_rows.cl"
#include "matrix/waves.cl"

/* What a wave sums from q block to q block. */
typedef struct kept_sums {
#if BIAS && KEEPS_DBIAS
    float (*dbias)[ACC_PER_LANE]; /* [KEY_TILES] */
#endif
#if !SINGLE_Q_BLOCK
    /* [KEY_TURNS], of all q blocks of a window; dK times `ds_scale` */
    __private float (*dv)[DIM_TILES][ACC_PER_LANE],
        (*dk)[DIM_TILES][ACC_PER_LANE];
    float ds_scale;
#endif
    float scale; /* for d_logit_scale, of a lane's own rows */
} kept_sums;

/* ---- A q block ---- */

INLINE q_block q_block_of(uint step, const fused_job *job,
                          const fused_memory *memory,
                          const backward_args *args, const tile_scheduler *at,
                          __local const ushort *ring, int wave_of_team)
{
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const uint number = SINGLE_Q_BLOCK ? 0 : step % job->keys.q_blocks;
    __local const ushort *stage = ring + step % STAGES * STAGE_SIZE;
    __local const ushort *key_stage =
        ring + KEY_STAGE(step / job->keys.q_blocks % STAGES);
    q_block v = {.args = args,
                 .at = at,
                 .head = job->first_head + number / row_blocks,
                 .first_row =
                     BLOCK_ROWS >= NQ ? 0 : number % row_blocks * BLOCK_ROWS,
                 .key_count = NK,
                 .is_last = number + 1 == job->keys.q_blocks,
                 .fast_store = job->fast_store,
                 .scale = args->forward.scale,
                 .ds_scale = 1.0f,
                 .q = stage + Q_OFFSET,
                 .d_o = stage + D_O_OFFSET,
                 .k = key_stage + K_OFFSET,
                 .v = key_stage + V_OFFSET,
                 .lse = memory->lse_rows + step % KEY_STAGES * BLOCK_ROWS,
                 .out = memory->o_rows + wave_of_team * OUT_SIZE};
    v.row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - v.first_row);
#if VARIANT == COSINE
    v.scale = SINGLE_Q_BLOCK
                  ? job->scale
                  : cosine_scale(&args->forward, job->logit_scale, v.head);
    v.q_inverses = memory->q_inverses;
    v.k_inverses = memory->k_inverses;
#endif
    return v;
}

/* What a q block has to be measured or found before it is computed with; the
 * team meets again where there is something. Has the window several regions?
 */
INLINE int prepare_q_block(const q_block *now, uint step, uint *kept_regions,
                           const fused_job *job, const fused_memory *memory,
                           const score_bias_tensors *tensors, work_tile of,
                           const work_item *me, const wave *w)
{
    int has_shift_boundary = 0;
    int meets = VARIANT == COSINE;
#if RESCALES && LATE_COPIES
    meets |= job->has_o_lse;
    if (job->has_o_lse && me->lane == 0)
        memory->largest_v[(step + 1) % 2] = 0;
    if (job->has_o_lse && now->at->exists) /* else nobody wrote v */
        measure_values(&memory->largest_v[step % 2], now->v, me->wave,
                       memory->own_ds_scale, w);
#endif
#if VARIANT == COSINE
    const uint number = SINGLE_Q_BLOCK ? 0 : step % job->keys.q_blocks;
    const measured_rows measured[2] = {
        {memory->q_inverses, now->q, BLOCK_ROWS, 1.0f},
        {memory->k_inverses, now->k, BLOCK_KEYS, 1.0f}};
    if (number == 0)
        measure_rows(measured, 2, me->wave, w);
    if (number != 0)
        measure_rows(measured, 1, me->wave, w);
#endif
#if COMPARES_REGIONS
    has_shift_boundary = HAS_SHIFT_BOUNDARY(*now->at);
    const int has_new =
        has_shift_boundary && has_new_regions(now->at, kept_regions);
    meets |= has_new;
    if (has_new) {
        const forward_args *forward = &now->args->forward;
        const score_bias_view regions =
            score_bias_at(tensors, forward, of, &now->at->coord);
        keep_regions(memory->row_regions, memory->key_regions, forward,
                     &regions, 0, me->lane);
    }
#endif
    if (TEAMS_SYNC_TOGETHER || meets)
        TEAM_SYNC(me->team);
    return has_shift_boundary;
}

/* The wave's tile of rows. */
INLINE row_part find_rows(const q_block *now, int has_shift_boundary,
                          const fused_memory *memory, int wave_of_team,
                          const wave *w)
{
    const int tile = memory->row_tile;
    const int exists = now->at->exists;
    row_part part = {.rows = {.row = tile * TILE_M,
                              .last_row = now->row_count - 1,
                              .first_row = (int)now->first_row,
                              .coord = now->at->coord}};
    part.count =
        exists && memory->weights.owns ? now->row_count - part.rows.row : 0;
#if PADDING == 2
    part.rows.holds_padding =
        holds_padding(&now->args->forward.grid, &now->at->coord);
#endif
#if HAS_LOCAL_BIAS_CACHE
    part.rows.local_score_bias =
        memory->bias_cache + tile * KEY_TILES * TILE_ELEMENTS;
#endif
#if COMPARES_REGIONS
    part.rows.key_regions = has_shift_boundary ? memory->key_regions : 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        part.rows.region[r] = memory->row_regions[min(
            part.rows.row + lane_query(w->lane, r), now->row_count - 1)];
#endif
    return part;
}

/* What must be known of the rows; of one subtile leaves P in `scores`, and dP
 * of tiles that keep it. */
INLINE void find_statistics(row_statistics *s,
                            float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                            float kept_dp[TILES_PER_SUBTILE][ACC_PER_LANE],
                            row_part *part, const q_block *now,
                            const score_bias_view *score_bias, uint step,
                            const fused_job *job, const fused_memory *memory,
                            const wave *w)
{
    read_rows(part, now, job->d_lse, w);
    const int takes_lse = lse_serves(job->has_lse, part, w);
    start_statistics(s, job->has_o_lse || takes_lse, part->lse);
    if (!job->has_o_lse) {
        add_statistics(s, scores, kept_dp, part, now, score_bias, takes_lse,
                       w);
        finish_statistics(s, part, takes_lse, w);
        if (SUBTILES == 1 && !takes_lse)
            UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
                UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                    scores[t][i] *= s->sum[LANE_ROW(i)];
    }
    if (job->has_o_lse) {
#if STAGES > 1 /* else all copies are there */
        AWAIT_COPIES(1);
        WAVE_SYNC();
#endif
        take_delta(s, part, now, memory->o_rows, w);
#if RESCALES && LATE_COPIES
        /* |dP| is at most |dO| |v| */
        float square[LANE_ROWS];
        multiply_rows(square, now->d_o, now->d_o, part, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            s->dp_bound[r] =
                sqrt(square[r] * as_float(memory->largest_v[step % 2]));
#endif
    }
}

/* P and dS of the wave's tile of rows go to local memory, and dQ is stored. */
INLINE void compute_rows(const q_block *now, uint step, kept_sums *sums,
                         int has_shift_boundary,
                         const score_bias_view *score_bias,
                         const fused_job *job, const fused_memory *memory,
                         int wave_of_team, const wave *w)
{
    const int exists = now->at->exists;
    const int computes = exists && memory->weights.owns;
    row_part part =
        find_rows(now, has_shift_boundary, memory, wave_of_team, w);
    float scores[TILES_PER_SUBTILE][ACC_PER_LANE];
    float kept_dp[TILES_PER_SUBTILE][ACC_PER_LANE];
    row_statistics statistics;
    if (computes)
        find_statistics(&statistics, scores, kept_dp, &part, now, score_bias,
                        step, job, memory, w);
#if BIAS
    const dbias_target dbias = {
#if KEEPS_DBIAS
        .sums = sums->dbias,
#endif
        .workspace = job->bias_partials +
                     (ulong)(now->head - job->first_head) * (NQ * NK) +
                     now->first_row * NK,
        .keys = NK
    };
#else
    const dbias_target dbias = {.workspace = 0};
#endif
    if (computes)
        differentiate_rows(scores, kept_dp, &dbias, job->dq, &sums->scale,
                           &statistics, &part, now, score_bias,
                           &memory->weights, job->has_o_lse,
                           memory->own_ds_scale, w);
}

/* The power of two that dS of all rows gets, for dK. */
INLINE float aligned_ds_scale(const fused_memory *memory, uint number,
                              float kept_ds_scale)
{
    float ds_scale = 1.0f;
#if RESCALES
    ds_scale =
        SINGLE_Q_BLOCK || number == 0 ? memory->ds_scales[0] : kept_ds_scale;
    UNROLL_FOR (int t = 0; t < ROW_TILES; t++)
        ds_scale = fmin(ds_scale, memory->ds_scales[t]);
#endif
    return ds_scale;
}

/* dV and dK of the wave's tiles of keys, once P and dS of all rows are there.
 */
INLINE void compute_keys(q_block *now, uint number, kept_sums *sums,
                         const fused_job *job, const fused_memory *memory,
                         const work_item *me, const wave *w)
{
#if SINGLE_Q_BLOCK
    now->ds_scale = aligned_ds_scale(memory, number, 1.0f);
    KEY_FOR (int turn = 0; turn < KEY_TURNS; turn++)
        add_keys(turn, now, job, memory, me->team, me->wave, w);
#else
    const float earlier = sums->ds_scale;
    now->ds_scale = aligned_ds_scale(memory, number, earlier);
    KEY_FOR (int turn = 0; turn < KEY_TURNS; turn++)
        add_kept_keys(sums->dv + turn, sums->dk + turn, earlier, number == 0,
                      turn, now, job, memory, me->wave, w);
    sums->ds_scale = now->ds_scale;
#endif
}

/* ---- Gradients that windows share ---- */

/* What is added to in the workspace starts at 0. */
INLINE void clear_partials(const fused_job *job, uint flags, int item)
{
    const int starts = (flags & ARG_FIRST_LAUNCH) != 0;
#if VARIANT == COSINE && !SINGLE_Q_BLOCK
    if (starts && (flags & ARG_D_LOGIT_SCALE) != 0 && item == 0)
        for (uint i = 0; i < job->keys.heads_each; i++)
            job->scale_partials[i] = 0.0f;
#endif
#if BIAS && !KEEPS_DBIAS
    if (starts && (flags & ARG_DBIAS) != 0)
        for (uint i = item; i < job->keys.heads_each * NQ * NK;
             i += TEAM * WINDOWS_PER_GROUP)
            job->bias_partials[i] = 0.0f;
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
}

#if VARIANT == COSINE
/* What all lanes have summed for a head's d_logit_scale. Holds barriers of the
 * work-group. */
INLINE void leave_scale(kept_sums *sums, uint head, const fused_job *job,
                        const fused_memory *memory,
                        const forward_args *forward, const work_item *me)
{
    __global float *partial = job->scale_partials + (head - job->first_head);
    const float sum = sum_over_group(sums->scale, memory->lane_sums, me->id,
                                     TEAM * WINDOWS_PER_GROUP);
    sums->scale = 0.0f;
    if (me->id == 0 && (forward->flags & ARG_D_LOGIT_SCALE) != 0) {
        const float own = scale_gradient(forward, job->logit_scale, head, sum);
        if (SINGLE_Q_BLOCK)
            add_partial(partial, own, forward->flags);
        else
            *partial += own;
    }
}
#endif

/* ---- Windows ---- */

/* All gradients of the windows of a tile scheduler. */
INLINE void differentiate_windows(tile_scheduler here, kept_sums *sums,
                                  grad_pipeline *pipeline,
                                  const fused_job *job,
                                  const fused_memory *memory,
                                  const score_bias_tensors *tensors,
                                  const backward_args *args, work_item *me,
                                  wave *w)
{
    uint table = 0; /* of tokens, of the last window that was found */
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    for (uint step = 0; step < pipeline->steps; step++) {
        HIDE_LANE(me->lane);
        RELOAD_ARGS(backward_args, now_args, args)
        const forward_args *forward = &now_args->forward;
        look_ahead(pipeline, &here, &table, memory, forward, me);
        HIDE_LANE(w->lane);
        const uint number = SINGLE_Q_BLOCK ? 0 : step % job->keys.q_blocks;
        q_block now = q_block_of(step, job, memory, now_args, &here,
                                 pipeline->ring, me->wave);
        const work_tile of = {.window = window_of(&here, forward),
                              .head = now.head,
                              .row = now.first_row};
        const score_bias_view score_bias =
            block_score_bias(&cached_mask_class, memory->bias_cache, tensors,
                             &here, of, forward, 0, me->id);
        await_stage(me->team);
        start_q_block(pipeline, step + AHEAD, job, memory, now_args, me->team,
                      me->lane);
        await_copies(me->team);
        const int has_shift_boundary = prepare_q_block(
            &now, step, &kept_regions, job, memory, tensors, of, me, w);
        /* 1. tiles of rows; waves without one wait */
        compute_rows(&now, step, sums, has_shift_boundary, &score_bias, job,
                     memory, me->wave, w);
        TEAM_SYNC(me->team); /* P and dS are there */
        start_next_keys(pipeline, step + 1, &here, &table, job, memory,
                        forward, me);
        /* 2. tiles of keys */
        compute_keys(&now, number, sums, job, memory, me, w);
#if VARIANT == COSINE && !SINGLE_Q_BLOCK
        leave_scale(sums, now.head, job, memory, forward, me);
#endif
        if (now.is_last) {
            const int alike = next_window(&here, forward, me->team);
            find_tokens(&here, STAGES > 1 || alike, &table, memory, forward,
                        me->lane);
        }
        start_o(pipeline, step + 1, &here, job, memory, forward, me->wave, w);
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
#if VARIANT == COSINE
    __local float q_inverses[WINDOWS_PER_GROUP][BLOCK_ROWS],
        k_inverses[WINDOWS_PER_GROUP][KEY_ROWS];
    __local float lane_sums[TEAM * WINDOWS_PER_GROUP];
#endif
#if RESCALES && LATE_COPIES
    __local uint largest_v[WINDOWS_PER_GROUP][2];
#endif
#if COMPARES_REGIONS
    __local uchar kept_row_regions[WINDOWS_PER_GROUP][BLOCK_ROWS];
    __local uchar kept_key_regions[WINDOWS_PER_GROUP][NK];
#endif
#if PADDING == 1
    __local float pad_sums[WINDOWS_PER_GROUP * WAVES_PER_WINDOW][2 * DIMS];
#endif
    DECLARE_PADS(pads)
    const forward_args *forward = &args.forward;
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    fused_memory memory =
        find_memory((__local uchar *)team_memory[me.team], me.wave);
    memory.bias_cache = BIAS_CACHE_OR_NULL(bias_cache);
#if RESCALES && LATE_COPIES
    memory.largest_v = largest_v[me.team];
#endif
#if VARIANT == COSINE
    memory.q_inverses = q_inverses[me.team];
    memory.k_inverses = k_inverses[me.team];
    memory.lane_sums = lane_sums;
#endif
#if COMPARES_REGIONS
    memory.row_regions = kept_row_regions[me.team];
    memory.key_regions = kept_key_regions[me.team];
#endif
#if PADDING == 1
    memory.pads = pad_sums[me.id / WAVE];
    for (int i = w.lane; i < 2 * DIMS; i += WAVE)
        memory.pads[i] = 0.0f;
#endif

    /* what this work-group owns */
    const uint kv_heads = forward->heads / forward->heads_per_kv_head;
    const uint split = (uint)get_group_id(0) / kv_heads;
    fused_job job = find_job(&args, (uint)get_group_id(0) % kv_heads);
    job.d_lse = d_lse;
    job.dq = dq;
    job.dk = dk;
    job.dv = dv;
    tile_scheduler here = start_split(forward, split, me.team);
    keep_first_tokens(&here, &memory, forward, me.lane);
    const ulong head_partial = (ulong)split * forward->heads + job.first_head;
    job.bias_partials =
        workspace + args.bias_partials + head_partial * (NQ * NK);
    grad_pipeline pipeline = {
        .next = here,
        .steps = here.rounds * job.keys.q_blocks,
        .ring = (__local ushort *)team_memory[me.team],
        .pad_k = KEPT_PAD(pads, 0),
        .pad_v = KEPT_PAD(pads, 1),
        .from = {.q = q, .k = k, .v = v, .o = o, .d_o = d_o, .lse = lse},
        .wide = (forward->flags & ARG_WIDE_ACCESS) != 0};
#if PADDING == 1
    keep_pads(pads, PAD_ROW(*forward, pad_k, ARG_PAD_K, job.keys.kv_head),
              PAD_ROW(*forward, pad_v, ARG_PAD_V, job.keys.kv_head), forward,
              me.id);
#endif
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_q_block(&pipeline, ahead, &job, &memory, &args, me.team,
                      me.lane);
    start_late_keys(&pipeline, 0, &here, &job, &memory, forward, me.lane);
    clear_memory(&pipeline, &memory, &me);
#if HAS_LOCAL_BIAS_CACHE
    cache_head_score_bias(bias_cache, &tensors, forward, job.first_head, 0,
                          me.id);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    kept_sums sums = {.scale = 0.0f};
#if BIAS && KEEPS_DBIAS
    float dbias_sums[KEY_TILES][ACC_PER_LANE];
    clear_tiles(dbias_sums, KEY_TILES);
    sums.dbias = dbias_sums;
#endif
#if !SINGLE_Q_BLOCK
    float dv_sums[KEY_TURNS][DIM_TILES][ACC_PER_LANE];
    float dk_sums[KEY_TURNS][DIM_TILES][ACC_PER_LANE];
    sums.dv = dv_sums;
    sums.dk = dk_sums;
    sums.ds_scale = 1.0f;
#endif
#if VARIANT == COSINE
    job.logit_scale = logit_scale;
    job.scale = cosine_scale(forward, logit_scale, job.first_head);
    job.scale_partials = workspace + args.scale_partials + head_partial;
#endif
    clear_partials(&job, forward->flags, me.id);
    start_o(&pipeline, 0, &here, &job, &memory, forward, me.wave, &w);
    differentiate_windows(here, &sums, &pipeline, &job, &memory, &tensors,
                          &args, &me, &w);

    barrier(CLK_LOCAL_MEM_FENCE);
#if BIAS && KEEPS_DBIAS
    if ((forward->flags & ARG_DBIAS) != 0)
        store_dbias(dbias_sums, KEY_TILES, (__local float *)team_memory,
                    job.bias_partials, me.team, memory.row_tile, 0, NQ,
                    memory.weights.owns, forward->flags, &w);
#endif
#if VARIANT == COSINE && SINGLE_Q_BLOCK
    leave_scale(&sums, job.first_head, &job, &memory, forward, &me);
#endif
#if PADDING == 1
    store_pad_sums(pad_sums, workspace, &args,
                   (ulong)split * kv_heads + job.keys.kv_head, 1, 1, me.id);
#endif
}
