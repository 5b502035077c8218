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
 * An item of the ring (pipeline.cl) is a visit: one block of rows of one head
 * that sees the window's keys. All of a window's keys are in local memory.
 * Where PASS_KEYS are not all of them, scores are computed twice: for the
 * rows' statistics, and again for the gradients; or once where o and lse are
 * given and windows are not small, as delta is dO . O - d_lse then, but for an
 * error that is mended where it shows (delta_errors.cl). With all keys at
 * once dP alone would be saved, which o is not worth. */
#define BACKWARD 1
#define FUSED_GRADIENTS 1
#define AGAIN (PASSES > 1)
#include "matrix/fused_keys.cl"
#include "matrix/fused_pipeline.cl"
#include "matrix/fused_rows.cl"
#include "matrix/waves.cl"

/* What a wave sums from visit to visit. */
typedef struct kept_sums {
#if BIAS && KEEPS_DBIAS
    float (*dbias)[VALUES]; /* [KEY_TILES] */
#endif
#if !ONE_VISIT
    /* [KEY_TURNS], of all visits of a window; dK times `power` */
    float (*dv)[DIM_TILES][VALUES], (*dk)[DIM_TILES][VALUES];
    float power;
#endif
    float scale; /* for d_logit_scale, of a lane's own rows */
} kept_sums;

/* ---- A visit ---- */

INLINE visit visit_of(uint item, const fused_job *job,
                      const fused_memory *memory, const backward_args *args,
                      const walk *at, __local const ushort *ring,
                      int wave_of_team)
{
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const uint number = ONE_VISIT ? 0 : item % job->keys.visits;
    __local const ushort *stage = ring + item % STAGES * STAGE_SIZE;
    __local const ushort *key_stage =
        ring + KEY_STAGE(item / job->keys.visits % STAGES);
    visit v = {.args = args,
               .at = at,
               .head = job->first_head + number / row_blocks,
               .first_row =
                   BLOCK_ROWS >= NQ ? 0 : number % row_blocks * BLOCK_ROWS,
               .key_count = NK,
               .is_last = number + 1 == job->keys.visits,
               .plain = job->plain,
               .scale = args->forward.scale,
               .power = 1.0f,
               .q = stage + Q_PLACE,
               .d_o = stage + D_O_PLACE,
               .k = key_stage + K_PLACE,
               .v = key_stage + V_PLACE,
               .lse = memory->lse_rows + item % KEY_STAGES * BLOCK_ROWS,
               .out = memory->o_rows + wave_of_team * OUT_SIZE};
    v.row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - v.first_row);
#if VARIANT == COSINE
    v.scale = ONE_VISIT
                  ? job->scale
                  : cosine_scale(&args->forward, job->logit_scale, v.head);
    v.q_inverses = memory->q_inverses;
    v.k_inverses = memory->k_inverses;
#endif
    return v;
}

/* What a visit has to be measured or found before it is computed with; the
 * team meets again where there is something. Has the window several regions?
 */
INLINE int prepare_visit(const visit *now, uint item, uint *kept_regions,
                         const fused_job *job, const fused_memory *memory,
                         const logit_tensors *tensors, unit of,
                         const work_item *me, const wave *w)
{
    int has_seams = 0;
    int meets = VARIANT == COSINE;
#if RESCALES && LATE_COPIES
    meets |= job->given;
    if (job->given && me->lane == 0)
        memory->largest_v[(item + 1) % 2] = 0;
    IF_ALL (job->given)
        measure_values(&memory->largest_v[item % 2], now->v, me->wave,
                       memory->own_power, w);
#endif
#if VARIANT == COSINE
    const uint number = ONE_VISIT ? 0 : item % job->keys.visits;
    const measured_rows measured[2] = {
        {memory->q_inverses, now->q, BLOCK_ROWS, 1.0f},
        {memory->k_inverses, now->k, BLOCK_KEYS, 1.0f}};
    IF_ALL (number == 0)
        measure_rows(measured, 2, me->wave, w);
    IF_ALL (number != 0)
        measure_rows(measured, 1, me->wave, w);
#endif
#if REGIONS_APART
    has_seams = HAS_SEAMS(*now->at);
    const int has_new = has_seams && has_new_regions(now->at, kept_regions);
    meets |= has_new;
    if (has_new) {
        const forward_args *forward = &now->args->forward;
        const logit_terms regions =
            terms_at(tensors, forward, of, &now->at->place);
        keep_regions(memory->row_regions, memory->key_regions, forward,
                     &regions, 0, me->lane);
    }
#endif
    if (EMULATED || meets)
        TEAM_SYNC(me->team);
    return has_seams;
}

/* The wave's tile of rows. */
INLINE row_part find_rows(const visit *now, int has_seams,
                          const fused_memory *memory, int wave_of_team,
                          const wave *w)
{
    const int tile = memory->row_tile;
    const int exists = now->at->exists;
    row_part part = {.rows = {.row = tile * UNIT_QUERIES,
                              .last_row = now->row_count - 1,
                              .first_row = (int)now->first_row,
                              .place = now->at->place}};
    part.count =
        exists && memory->weights.owns ? now->row_count - part.rows.row : 0;
#if PADDING == 2
    part.rows.holds_padding =
        holds_padding(&now->args->forward.grid, &now->at->place);
#endif
#if HAS_LOCAL_TERMS
    part.rows.local_terms = memory->terms + tile * KEY_TILES * TERM_TILE;
#endif
#if REGIONS_APART
    part.rows.key_regions = has_seams ? memory->key_regions : 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        part.rows.region[r] = memory->row_regions[min(
            part.rows.row + lane_query(w->lane, r), now->row_count - 1)];
#endif
    return part;
}

/* What must be known of the rows; of one pass leaves P in `scores`. */
INLINE void find_statistics(row_statistics *s,
                            float scores[PASS_TILES][VALUES], row_part *part,
                            const visit *now, const logit_terms *terms,
                            uint item, const fused_job *job,
                            const fused_memory *memory, const wave *w)
{
    read_rows(part, now, job->d_lse, w);
    const int takes_lse = job->known && !exceeds_lse(part, w);
    start_statistics(s, job->given || takes_lse, part->lse);
    IF_ALL (!job->given) {
        add_statistics(s, scores, part, now, terms, takes_lse, w);
        finish_statistics(s, part, takes_lse, w);
        if (PASSES == 1 && !takes_lse)
            UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    scores[t][i] *= s->sum[LANE_ROW(i)];
    }
    IF_ALL (job->given) {
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
            s->flow[r] =
                sqrt(square[r] * as_float(memory->largest_v[item % 2]));
#endif
    }
}

/* P and dS of the wave's tile of rows go to local memory, and dQ leaves. */
INLINE void compute_rows(const visit *now, uint item, kept_sums *sums,
                         int has_seams, const logit_terms *terms,
                         const fused_job *job, const fused_memory *memory,
                         int wave_of_team, const wave *w)
{
    const int exists = now->at->exists;
    const int computes = EMULATED || (exists && memory->weights.owns);
    row_part part = find_rows(now, has_seams, memory, wave_of_team, w);
    float scores[PASS_TILES][VALUES];
    row_statistics statistics;
    if (computes)
        find_statistics(&statistics, scores, &part, now, terms, item, job,
                        memory, w);
#if BIAS
    const dbias_place dbias = {
#if KEEPS_DBIAS
        .sums = sums->dbias,
#endif
        .workspace = job->bias_partials +
                     (ulong)(now->head - job->first_head) * (NQ * NK) +
                     now->first_row * NK,
        .keys = NK
    };
#else
    const dbias_place dbias = {.workspace = 0};
#endif
    if (computes)
        differentiate_rows(scores, &dbias, job->dq, &sums->scale, &statistics,
                           &part, now, terms, &memory->weights, job->given,
                           memory->own_power, w);
}

/* The power of two that dS of all rows gets, for dK. */
INLINE float level_power(const fused_memory *memory, uint number,
                         float kept_power)
{
    float power = 1.0f;
#if RESCALES
    power = ONE_VISIT || number == 0 ? memory->powers[0] : kept_power;
    UNROLL_FOR (int t = 0; t < ROW_TILES; t++)
        power = fmin(power, memory->powers[t]);
#endif
    return power;
}

/* dV and dK of the wave's tiles of keys, once P and dS of all rows are there.
 */
INLINE void compute_keys(visit *now, uint number, kept_sums *sums,
                         const fused_job *job, const fused_memory *memory,
                         const work_item *me, const wave *w)
{
#if ONE_VISIT
    now->power = level_power(memory, number, 1.0f);
    KEY_FOR (int turn = 0; turn < KEY_TURNS; turn++)
        add_keys(turn, now, job, memory, me->team, me->wave, w);
#else
    const float earlier = sums->power;
    now->power = level_power(memory, number, earlier);
    KEY_FOR (int turn = 0; turn < KEY_TURNS; turn++)
        add_kept_keys(sums->dv + turn, sums->dk + turn, earlier, number == 0,
                      turn, now, job, memory, me->wave, w);
    sums->power = now->power;
#endif
}

/* ---- Gradients that windows share ---- */

/* What is added to in the workspace starts at 0. */
INLINE void clear_partials(const fused_job *job, uint flags, int item)
{
    const int starts = (flags & ARG_FIRST_LAUNCH) != 0;
#if VARIANT == COSINE && !ONE_VISIT
    if (starts && (flags & ARG_D_LOGIT_SCALE) != 0 && item == 0)
        for (uint i = 0; i < job->keys.heads_each; i++)
            job->scale_partials[i] = 0.0f;
#endif
#if BIAS && !KEEPS_DBIAS
    if (starts && (flags & ARG_DBIAS) != 0)
        for (uint i = item; i < job->keys.heads_each * NQ * NK;
             i += TEAM * TEAMS)
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
    const float sum =
        sum_over_group(sums->scale, memory->lane_sums, me->id, TEAM * TEAMS);
    sums->scale = 0.0f;
    if (me->id == 0 && (forward->flags & ARG_D_LOGIT_SCALE) != 0) {
        const float own = scale_gradient(forward, job->logit_scale, head, sum);
        if (ONE_VISIT)
            add_partial(partial, own, forward->flags);
        else
            *partial += own;
    }
}
#endif

/* ---- Windows ---- */

/* All gradients of the windows of a walk. */
INLINE void
differentiate_windows(walk here, kept_sums *sums, grad_pipeline *pipeline,
                      const fused_job *job, const fused_memory *memory,
                      const logit_tensors *tensors, const backward_args *args,
                      work_item *me, wave *w)
{
    uint table = 0;          /* of tokens, of the last window that was found */
    uint kept_kind = ~0u;    /* of windows whose terms are kept */
    uint kept_regions = ~0u; /* and of those whose regions are */
    for (uint item = 0; item < pipeline->items; item++) {
        FORGET_LANE(me->lane);
        RELOAD_ARGS(backward_args, now_args, args)
        const forward_args *forward = &now_args->forward;
        look_ahead(pipeline, &here, &table, memory, forward, me);
        FORGET_LANE(w->lane);
        const uint number = ONE_VISIT ? 0 : item % job->keys.visits;
        visit now = visit_of(item, job, memory, now_args, &here,
                             pipeline->ring, me->wave);
        const unit of = {.window = window_of(&here, forward),
                         .head = now.head,
                         .row = now.first_row};
        const logit_terms terms = item_terms(
            &kept_kind, memory->terms, tensors, &here, of, forward, 0, me->id);
        await_stage(me->team);
        start_visit(pipeline, item + AHEAD, job, memory, now_args, me->team,
                    me->lane);
        await_copies(me->team);
        const int has_seams = prepare_visit(&now, item, &kept_regions, job,
                                            memory, tensors, of, me, w);
        /* 1. tiles of rows; waves without one wait */
        compute_rows(&now, item, sums, has_seams, &terms, job, memory,
                     me->wave, w);
        TEAM_SYNC(me->team); /* P and dS are there */
        start_next_keys(pipeline, item + 1, &here, &table, job, memory,
                        forward, me);
        /* 2. tiles of keys */
        compute_keys(&now, number, sums, job, memory, me, w);
#if VARIANT == COSINE && !ONE_VISIT
        leave_scale(sums, now.head, job, memory, forward, me);
#endif
        if (now.is_last) {
            const int alike = walk_on(&here, forward, me->team);
            find_tokens(&here, STAGES > 1 || alike, &table, memory, forward,
                        me->lane);
        }
        start_o(pipeline, item + 1, &here, job, memory, forward, me->wave, w);
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    __local uint4 team_memory[TEAMS][TEAM_BYTES / 16]
        __attribute__((aligned(128)));
    DECLARE_KEPT
#if VARIANT == COSINE
    __local float q_inverses[TEAMS][BLOCK_ROWS], k_inverses[TEAMS][KEY_ROWS];
    __local float lane_sums[TEAM * TEAMS];
#endif
#if RESCALES && LATE_COPIES
    __local uint largest_v[TEAMS][2];
#endif
#if REGIONS_APART
    __local uchar kept_row_regions[TEAMS][BLOCK_ROWS];
    __local uchar kept_key_regions[TEAMS][NK];
#endif
#if PADDING == 1
    __local float pad_sums[TEAMS * TEAM_WAVES][2 * DIMS];
#endif
    DECLARE_PADS(pads)
    DECLARE_EXCHANGES(exchanges)
    const forward_args *forward = &args.forward;
    work_item me = this_work_item();
    wave w = wave_of(&me, exchanges);
    const logit_tensors tensors = {BIAS_TENSORS MASK_TENSORS.unused = 0};
    fused_memory memory =
        find_memory((__local uchar *)team_memory[me.team], me.wave);
    memory.terms = LOCAL_TERMS(kept);
#if RESCALES && LATE_COPIES
    memory.largest_v = largest_v[me.team];
#endif
#if VARIANT == COSINE
    memory.q_inverses = q_inverses[me.team];
    memory.k_inverses = k_inverses[me.team];
    memory.lane_sums = lane_sums;
#endif
#if REGIONS_APART
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
    const uint slot = (uint)get_group_id(0) / kv_heads;
    fused_job job = find_job(&args, (uint)get_group_id(0) % kv_heads);
    job.d_lse = d_lse;
    job.dq = dq;
    job.dk = dk;
    job.dv = dv;
    walk here = start_slot(forward, slot, me.team);
    keep_first_tokens(&here, &memory, forward, me.lane);
    const ulong head_partial = (ulong)slot * forward->heads + job.first_head;
    job.bias_partials =
        workspace + args.bias_partials + head_partial * (NQ * NK);
    grad_pipeline pipeline = {
        .next = here,
        .items = here.rounds * job.keys.visits,
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
        start_visit(&pipeline, ahead, &job, &memory, &args, me.team, me.lane);
    start_late_keys(&pipeline, 0, &here, &job, &memory, forward, me.lane);
    clear_memory(&pipeline, &memory, &me);
#if HAS_LOCAL_TERMS
    keep_head_terms(kept, &tensors, forward, job.first_head, 0, me.id);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    kept_sums sums = {.scale = 0.0f};
#if BIAS && KEEPS_DBIAS
    float dbias_sums[KEY_TILES][VALUES];
    clear_tiles(dbias_sums, KEY_TILES);
    sums.dbias = dbias_sums;
#endif
#if !ONE_VISIT
    float dv_sums[KEY_TURNS][DIM_TILES][VALUES];
    float dk_sums[KEY_TURNS][DIM_TILES][VALUES];
    sums.dv = dv_sums;
    sums.dk = dk_sums;
    sums.power = 1.0f;
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
#if VARIANT == COSINE && ONE_VISIT
    leave_scale(&sums, job.first_head, &job, &memory, forward, &me);
#endif
#if PADDING == 1
    store_pad_sums(pad_sums, workspace, &args,
                   (ulong)slot * kv_heads + job.keys.kv_head, 1, 1, me.id);
#endif
}
