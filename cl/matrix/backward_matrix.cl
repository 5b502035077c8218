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

/* What a wave sums from q block to q block. */
typedef struct kept_sums {
    float (*dbias)[ACC_PER_LANE]; /* [KEY_TILES], with KEEPS_DBIAS */
    /* where a window has several q blocks: [KEY_TURNS], of all of them; dK
     * times `ds_scale` */
    __private float (*dv)[KEY_SUM_TILES][ACC_PER_LANE];
    __private float (*dk)[KEY_SUM_TILES][ACC_PER_LANE];
    float ds_scale;
    float scale; /* for d_logit_scale, of a lane's own rows */
} kept_sums;
/* Turns whose sums are kept. */
#define KEPT_TURNS (SINGLE_Q_BLOCK ? 1 : KEY_TURNS)

/* ---- A q block ---- */

INLINE void find_step(q_block *v, uint step, const fused_group *g,
                      const backward_args *args, const tile_scheduler *at)
{
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const uint number = SINGLE_Q_BLOCK ? 0 : step % g->keys.q_blocks;
    place_block(v, step % STAGES * STAGE_SIZE,
                KEY_STAGE(step / g->keys.q_blocks % STAGES), &g->group, args,
                at);
    v->head = g->first_head + number / row_blocks;
    v->first_row = BLOCK_ROWS >= NQ ? 0 : number % row_blocks * BLOCK_ROWS;
    v->row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - v->first_row);
    v->key_count = NK;
    v->is_last = number + 1 == g->keys.q_blocks;
    v->fast_store = g->fast_store;
    if (VARIANT == COSINE)
        v->scale = SINGLE_Q_BLOCK
                       ? g->scale
                       : cosine_scale(&args->forward,
                                      g->group.tensors.logit_scale, v->head);
    v->lse = g->lse_rows + step % KEY_STAGES * BLOCK_ROWS;
    v->out = g->o_rows + g->group.me.wave * OUT_SIZE;
}

/* What a q block has to be measured or found before it is computed with; the
 * team meets again where there is something. */
INLINE void prepare_q_block(q_block *here, uint step, uint *kept_regions,
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
        const uint number = SINGLE_Q_BLOCK ? 0 : step % g->keys.q_blocks;
        const measured_rows measured[2] = {
            {g->group.memory.inverses_m[me->team], here->q, BLOCK_ROWS, 1.0f},
            {g->group.memory.inverses_n[me->team], here->k, BLOCK_KEYS, 1.0f}};
        if (number == 0)
            measure_rows(measured, 2, me->wave, w);
        if (number != 0)
            measure_rows(measured, 1, me->wave, w);
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
                    sqrt(square[r] * as_float(g->largest_v[step % 2]));
        }
    }
}

/* P and dS of the wave's tile of rows go to local memory, and dQ is stored. */
INLINE void compute_rows(const q_block *here, uint step, kept_sums *sums,
                         const fused_group *g, const wave *w)
{
    float p[TILES_PER_SUBTILE][ACC_PER_LANE];
    float kept_dp[TILES_PER_SUBTILE][ACC_PER_LANE];
    float dq[ROW_SUM_TILES][ACC_PER_LANE];
    query_tile operands[TILES_PER_SUBTILE][WEIGHT_PARTS], mean[WEIGHT_PARTS];
    row_work rows = {
        .part = {.rows = {.row = g->tile * TILE_M,
                          .last_row = here->row_count - 1,
                          .first_row = (int)here->first_row,
                          .coord = here->at->coord}},
        .dbias = {.sums = sums->dbias,
                  .workspace =
                      g->bias_partials +
                      (ulong)(here->head - g->first_head) * (NQ * NK) +
                      here->first_row * NK,
                  .keys = NK},
        .weights = g->weights};
    const int exists = here->at->exists;
    rows.part.count =
        exists && g->weights.owns ? here->row_count - rows.part.rows.row : 0;
    if (!exists || !g->weights.owns)
        return;
    place_tile(&rows.part.rows, g->tile, 0, here, w);
    find_statistics(&rows, p, kept_dp, here, step, g, w);
    find_factors(&rows, here, g->own_ds_scale, w);
    differentiate_rows(dq, operands, p, kept_dp, &rows, here, w);
    mend_errors(dq, mean, &rows, g->has_o_lse, here, w);
    store_dq(dq, operands, mean, &rows, g->group.tensors.dq, &sums->scale,
             here, w);
}

/* The power of two that dS of all rows gets, for dK. */
INLINE float aligned_ds_scale(const fused_group *g, uint number,
                              float kept_ds_scale)
{
    float ds_scale = 1.0f;
    if (RESCALES) {
        ds_scale =
            SINGLE_Q_BLOCK || number == 0 ? g->ds_scales[0] : kept_ds_scale;
        UNROLL_FOR (int t = 0; t < ROW_TILES; t++)
            ds_scale = fmin(ds_scale, g->ds_scales[t]);
    }
    return ds_scale;
}

/* dV and dK of the wave's tiles of keys, once P and dS of all rows are there.
 */
INLINE void compute_keys(q_block *here, uint number, kept_sums *sums,
                         const fused_group *g, const wave *w)
{
    const float earlier = SINGLE_Q_BLOCK ? 1.0f : sums->ds_scale;
    here->ds_scale = aligned_ds_scale(g, number, earlier);
    KEY_FOR (int turn = 0; turn < KEY_TURNS; turn++) {
        if (SINGLE_Q_BLOCK)
            add_keys(turn, here, g, w);
        else
            add_kept_keys(sums->dv + turn, sums->dk + turn, earlier, turn,
                          number == 0, here, g, w);
    }
    sums->ds_scale = here->ds_scale;
}

/* d_logit_scale of a head. Holds barriers of the work-group. */
INLINE void leave_head_scale(kept_sums *sums, uint head, const fused_group *g,
                             const forward_args *forward)
{
    leave_scale(sums->scale, head, g->scale_partials + (head - g->first_head),
                SINGLE_Q_BLOCK, &g->group, forward);
    sums->scale = 0.0f;
}

/* What is added to in the workspace starts at 0. */
INLINE void clear_partials(const fused_group *g, uint flags)
{
    const int item = g->group.me.id;
    const int starts = (flags & ARG_FIRST_LAUNCH) != 0;
    if (VARIANT == COSINE && !SINGLE_Q_BLOCK && starts &&
        (flags & ARG_D_LOGIT_SCALE) != 0 && item == 0)
        for (uint i = 0; i < g->keys.heads_each; i++)
            g->scale_partials[i] = 0.0f;
    clear_dbias(g->bias_partials, (int)(g->keys.heads_each * NQ * NK), flags,
                item);
}

/* ---- Windows ---- */

/* All gradients of the windows of a tile scheduler. */
INLINE void differentiate_windows(tile_scheduler at, kept_sums *sums,
                                  fused_group *g,
                                  const backward_args *kernel_args, wave *w)
{
    work_item *me = &g->group.me;
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
    uint kept_regions = ~0u;      /* and of those whose regions are */
    for (uint step = 0; step < g->group.copies.steps; step++) {
        HIDE_LANE(me->lane);
        RELOAD_ARGS(backward_args, args, kernel_args)
        const forward_args *forward = &args->forward;
        look_ahead(g, &at, forward);
        HIDE_LANE(w->lane);
        const uint number = SINGLE_Q_BLOCK ? 0 : step % g->keys.q_blocks;
        q_block here;
        find_step(&here, step, g, args, &at);
        find_score_bias(&here, &cached_mask_class,
                        &g->group.tensors.score_bias, me->id);
        await_stage(me->team);
        start_q_block(g, step + AHEAD, args);
        await_copies(me->team);
        prepare_q_block(&here, step, &kept_regions, g, w);
        /* 1. tiles of rows; waves without one wait */
        compute_rows(&here, step, sums, g, w);
        TEAM_SYNC(me->team); /* P and dS are there */
        start_next_keys(g, step + 1, &at, args);
        /* 2. tiles of keys */
        compute_keys(&here, number, sums, g, w);
        if (VARIANT == COSINE && !SINGLE_Q_BLOCK)
            leave_head_scale(sums, here.head, g, forward);
        if (here.is_last) {
            const int alike = next_window(&at, forward, me->team);
            find_tokens(&at, STAGES > 1 || alike, g, forward);
        }
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
    float dv_sums[KEPT_TURNS][KEY_SUM_TILES][ACC_PER_LANE];
    float dk_sums[KEPT_TURNS][KEY_SUM_TILES][ACC_PER_LANE];
    const forward_args *forward = &args.forward;
    fused_group own = {.group = GRAD_GROUP};
    kept_sums sums = {
        .dbias = dbias, .dv = dv_sums, .dk = dk_sums, .ds_scale = 1.0f};
    const work_item *me = &own.group.me;
    wave w = {.lane = me->id % WAVE};

    own.largest_v = largest_v[me->team];
    find_memory(&own, (__local uchar *)team_memory[me->team]);
    find_group(&own, &args);
    clear_pad_sums(&own.group, &w);
    tile_scheduler at = start_split(forward, own.split, me->team);
    find_first_tokens(&at, &own, forward);
    own.group.copies.next = at;
    own.group.copies.steps = at.rounds * own.keys.q_blocks;
    own.group.copies.wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    START_PADS(own.group, *forward, own.keys.kv_head)
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_q_block(&own, ahead, &args);
    start_late_keys(&own, 0, &at, &args);
    clear_memory(&own);
    cache_head_score_bias(own.group.memory.bias_cache,
                          &own.group.tensors.score_bias, forward,
                          own.first_head, 0, me->id);
    barrier(CLK_LOCAL_MEM_FENCE);
    clear_tiles(dbias, KEEPS_DBIAS ? KEY_TILES : 0);
    if (VARIANT == COSINE)
        own.scale = cosine_scale(forward, own.group.tensors.logit_scale,
                                 own.first_head);
    clear_partials(&own, forward->flags);
    start_o(&own, 0, &at, &args, &w);
    differentiate_windows(at, &sums, &own, &args, &w);

    barrier(CLK_LOCAL_MEM_FENCE);
    const dbias_partial to = {.rows = own.bias_partials,
                              .row_count = NQ,
                              .tile = own.tile,
                              .owns = own.weights.owns,
                              .flags = forward->flags};
    if (KEEPS_DBIAS)
        store_dbias(dbias, KEY_TILES, (__local float *)team_memory, &to,
                    me->team, &w);
    if (VARIANT == COSINE && SINGLE_Q_BLOCK)
        leave_head_scale(&sums, own.first_head, &own, forward);
    if (PADDING == 1)
        store_pad_sums(&own.group, &args,
                       (ulong)own.split *
                               (forward->heads / forward->heads_per_kv_head) +
                           own.keys.kv_head,
                       1, 1);
}
