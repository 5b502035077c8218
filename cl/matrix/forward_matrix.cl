/* SPDX-License-Identifier: Apache-2.0
 * Forward pass on a matrix unit, for windows, in fp16, bf16 and, where the
 * caller allows TF32, fp32: scores, weights and sums stay in a wave's
 * registers, as fragments (fragment.cl).
 *
 * A step of the ring (pipeline.cl) is BLOCK_KEYS keys of a window; where
 * those are not all (STREAMING), sums live through the KV blocks of a window.
 * Within a KV block the softmax (softmax.cl) takes SUBTILE_KEYS keys at a time
 * and streams where these are not all. A wave takes tiles of the block's rows
 * in turn. */
#define HOLDS_VALUE_CHUNKS 1
#include "matrix/forward_epilogue.cl"
#include "matrix/forward_pipeline.cl"
#include "matrix/norms.cl"
#include "matrix/persistent.cl"
#include "matrix/softmax.cl"
#include "matrix/tile_scheduler.cl"
#include "matrix/waves.cl"

/* ---- Memory ---- */

/* Of rows and keys of a window: in the cosine variant, factors that make them
 * 1 long; with COMPARES_REGIONS, their regions. */
#if VARIANT == COSINE
#define DECLARE_FACTORS                                                       \
    __local float q_factors[WINDOWS_PER_GROUP][BLOCK_ROWS],                   \
        k_factors[WINDOWS_PER_GROUP][KEY_ROWS];
#else
#define DECLARE_FACTORS                                                       \
    __local float(*q_factors)[BLOCK_ROWS] = 0, (*k_factors)[KEY_ROWS] = 0;
#endif
#if COMPARES_REGIONS
#define DECLARE_REGIONS                                                       \
    __local uchar kept_row_regions[WINDOWS_PER_GROUP][BLOCK_ROWS];            \
    __local uchar kept_key_regions[WINDOWS_PER_GROUP][NK];
#else
#define DECLARE_REGIONS                                                       \
    __local uchar(*kept_row_regions)[BLOCK_ROWS] = 0,                         \
            (*kept_key_regions)[NK] = 0;
#endif

/* What all of a team have in local memory. */
typedef struct team_memory {
    __local storage_bits *ring;
    __local cached_bias *bias_cache; /* those of all teams */
    __local float *q_factors, *k_factors;
    __local uchar *row_regions, *key_regions;
} team_memory;

/* What a wave keeps in registers from window to window. Pointers: compilers
 * then see that these are apart. */
typedef struct wave_memory {
    float (*score_bias)[ACC_PER_LANE];    /* [KEY_TILES]: what is added to its
                                             scores */
    __local const void *local_score_bias; /* that are part of these */
    row_state *states;                    /* [WAVE_TURNS], with STREAMING */
    reused_max *reused;
    const plane_offset *o_offsets; /* see find_stores; NULL: nothing is kept */
} wave_memory;

/* What a team computes with: a step of the ring, and the window it is of. */
typedef struct kv_block {
    const tile_scheduler *at;
    work_tile of;
    uint block; /* of keys: its number in the window */
    int first, count;
    __local storage_bits *q;
    __local const storage_bits *stage;
    const score_bias_view *score_bias;
    const score_bias_tensors *tensors;
    int has_shift_boundary; /* there are several regions */
} kv_block;

/* ---- What is added to scores ---- */

/* Those of all tiles of keys, of rows `row` and on, become a lane's own. */
INLINE void load_score_bias(const wave_memory *own, const forward_args *args,
                            const score_bias_view *score_bias, int row,
                            const wave *w)
{
    int lane = w->lane;
    HIDE_FROM_OPTIMIZER(
        lane); /* nothing of this is worth a register all along */
    UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
        load_own_score_bias(own->score_bias[t], own->local_score_bias, args,
                            score_bias, row, t, lane);
}

/* Score bias of a window that is unlike that of the last: all teams have
 * windows of the same mask class. */
INLINE void renew_score_bias(const wave_memory *own, const team_memory *memory,
                             const kv_block *here, const row_block *block,
                             const forward_args *args, const work_item *me,
                             const wave *w)
{
    const score_bias_view score_bias =
        score_bias_at(here->tensors, args, here->of, &here->at->coord);
    if (MASK_IN_LOCAL) {
        barrier(CLK_LOCAL_MEM_FENCE);
        cache_score_bias(memory->bias_cache, args, &score_bias, 0,
                         block->first_row, me->id);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (HAS_REGISTER_BIAS_CACHE) {
        load_score_bias(own, args, &score_bias,
                        (int)block->first_row + me->wave * TILE_M, w);
        if (FOLDS_MAX && reuses_max(own->reused, args))
            fold_max(own->score_bias, own->reused->softmax_max);
    }
}

/* ---- A tile of rows ---- */

/* Starts what a wave computes of tile `tile` of the block's rows. */
INLINE void start_tile(attention_tile *work, int tile, const wave_memory *own,
                       const team_memory *memory, const kv_block *here,
                       const row_block *block, const forward_args *args,
                       const wave *w)
{
    tile_rows *rows = &work->rows;
    const attention_tile start = {.rows = {.row = tile * TILE_M,
                                           .last_row = block->row_count - 1,
                                           .first_row = (int)block->first_row,
                                           .coord = here->at->coord},
                                  .key = here->first,
                                  .count = here->count,
                                  .q = here->q,
                                  .stage = here->stage,
                                  .args = args,
                                  .of = here->of,
                                  .score_bias = here->score_bias};
    *work = start;
    work->key_scale = memory->k_factors;
    rows->holds_padding =
        PADDING == 2 && holds_padding(&args->grid, &here->at->coord);
    rows->own_score_bias = own->score_bias;
    rows->local_score_bias =
        memory->bias_cache +
        (tile * ALL_KEY_TILES + here->block * KEY_TILES) * TILE_ELEMENTS;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int row =
            min(rows->row + value_query(w->lane, i), block->row_count - 1);
        rows->scale[LANE_ROW(i)] =
            VARIANT == COSINE ? memory->q_factors[row] : block->scale;
        if (COMPARES_REGIONS)
            rows->region[LANE_ROW(i)] = memory->row_regions[row];
    }
    if (COMPARES_REGIONS)
        rows->key_regions =
            here->has_shift_boundary ? memory->key_regions + here->first : 0;
}

/* Stores a tile of rows of a window, of which so many are left. */
INLINE void store_window(row_state *s, const attention_tile *work,
                         int rows_left, const wave_memory *own,
                         const kv_block *here, const row_block *block,
                         const wave *w)
{
    const forward_args *args = work->args;
    const uint plane = plane_of(here->at);
    const row_target to = {.plane = block->o + plane * args->o.window,
                           .layout = &args->o,
                           .grid = &args->grid,
                           .coord = &here->at->coord,
                           .row = block->first_row + work->rows.row,
                           .count =
                               here->at->exists ? min(rows_left, TILE_M) : 0,
                           .wide = block->wide,
                           .found = own->o_offsets};
    store_rows(s, here->q + Q_OFFSET + work->rows.row * PITCH, args, &to,
               block->lse + plane * args->lse.window, w);
}

/* Attends to a window and stores its rows: with the maxima of windows before,
 * and where these do not serve with its own, which are carried then. */
INLINE void attend_reusing_max(attention_tile *work, int rows_left,
                               const wave_memory *own, const kv_block *here,
                               const row_block *block, const work_item *me,
                               const wave *w)
{
    reused_max *reused = own->reused;
    int is_done = 0;
    /* first without a search, then with one: each has its own code */
    UNROLL_FOR (int searches = 0; searches < 2; searches++)
        if (!is_done && (searches || reuses_max(reused, work->args))) {
            row_state state;
            wave again = *w;
            if (searches) {
                HIDE_FROM_OPTIMIZER(again.lane); /* nothing is kept for this */
                if (FOLDS_MAX && reuses_max(reused, work->args)) {
                    const score_bias_view unfolded = score_bias_at(
                        here->tensors, work->args, here->of, &here->at->coord);
                    load_score_bias(own, work->args, &unfolded,
                                    (int)block->first_row + me->wave * TILE_M,
                                    w);
                }
            }
            is_done = attend_window(&state, reused, work, searches, &again);
            if (is_done)
                store_window(&state, work, rows_left, own, here, block,
                             &again);
            if (searches) {
                set_reused_max(reused, &state);
                reused->recheck_windows = reused->recheck_windows > 0
                                              ? reused->recheck_windows - 1
                                              : RECHECK_WINDOWS;
                note_reuse(reused, work->args);
                if (FOLDS_MAX && reuses_max(reused, work->args))
                    fold_max(own->score_bias, reused->softmax_max);
            }
        }
}

/* Attends to a KV block, with the wave's tile of rows of that turn. */
INLINE void attend_tile(int turn, const wave_memory *own,
                        const team_memory *memory, const kv_block *here,
                        const row_block *block, const forward_args *all_args,
                        const work_item *me, const wave *w)
{
    RELOAD_ARGS(forward_args, args, all_args)
    const int tile_here = turn * WAVES_PER_WINDOW + me->wave;
    const int tile = min(tile_here, ROW_TILES - 1);
    const int rows_left = block->row_count - tile_here * TILE_M;
    const int exists = here->at->exists;
    if (rows_left <= 0 || !exists)
        return;
    attention_tile work;
    start_tile(&work, tile, own, memory, here, block, args, w);
    if (REUSES_MAX) {
        attend_reusing_max(&work, rows_left, own, here, block, me, w);
        return;
    }
    row_state of_window;
    row_state *state = STREAMING ? &own->states[turn] : &of_window;
    if (here->block == 0)
        start_rows(state, 0);
    attend_kv_block(state, &work, 1, w);
    if (here->block == KEY_BLOCKS - 1) {
        finish_sums(state, 1, w);
        store_window(state, &work, rows_left, own, here, block, w);
    }
}

/* ---- Windows ---- */

/* What a KV block has to be measured or found before it is computed with; the
 * team meets again where there is something. */
INLINE void prepare_kv_block(kv_block *here, const team_memory *memory,
                             uint *kept_regions, const row_block *block,
                             const forward_args *args, const work_item *me,
                             const wave *w)
{
    if (VARIANT == COSINE) {
        const measured_rows measured[2] = {
            {memory->k_factors, here->stage + K_OFFSET, BLOCK_KEYS, 1.0f},
            {memory->q_factors, here->q + Q_OFFSET, BLOCK_ROWS, block->scale}};
        if (here->block == 0)
            measure_rows(measured, 2, me->wave, w);
        if (here->block != 0)
            measure_rows(measured, 1, me->wave, w);
    }
    here->has_shift_boundary = HAS_SHIFT_BOUNDARY(*here->at);
    const int has_new = COMPARES_REGIONS && here->block == 0 &&
                        here->has_shift_boundary &&
                        has_new_regions(here->at, kept_regions);
    if (has_new) {
        const score_bias_view regions =
            score_bias_at(here->tensors, args, here->of, &here->at->coord);
        keep_regions(memory->row_regions, memory->key_regions, args, &regions,
                     block->first_row, me->lane);
    }
    /* teams' windows may lie unlike */
    if (VARIANT == COSINE ||
        (COMPARES_REGIONS && (TEAMS_SYNC_TOGETHER || has_new)))
        TEAM_SYNC(me->team);
}

/* A step of the ring. */
INLINE kv_block find_kv_block(uint step, const tile_scheduler *at,
                              const team_memory *memory,
                              const score_bias_tensors *tensors,
                              const row_block *block, const forward_args *args)
{
    kv_block b = {.at = at,
                  .of = {.window = window_of(at, args),
                         .head = block->head,
                         .row = block->first_row},
                  .block = step % KEY_BLOCKS,
                  .q = memory->ring + step / KEY_BLOCKS % STAGES * STAGE_SIZE,
                  .stage = memory->ring + step % STAGES * STAGE_SIZE,
                  .tensors = tensors};
    b.first = (int)b.block * BLOCK_KEYS;
    b.count = min(BLOCK_KEYS, (int)NK - b.first);
    return b;
}

/* Attends to the windows of a tile scheduler, for a block of rows. */
INLINE void attend_windows(tile_scheduler here, forward_pipeline *pipeline,
                           const team_memory *memory,
                           const score_bias_tensors *tensors,
                           const row_block *block,
                           const forward_args *kernel_args, work_item *me,
                           wave *w)
{
    const int first_row = (int)block->first_row + me->wave * TILE_M;
    float own_score_bias[KEY_TILES][ACC_PER_LANE];
    row_state states[WAVE_TURNS];
    reused_max reused;
    plane_offset o_offsets[STORE_TURNS(HEAD_DIM)];
    const wave_memory own = {.score_bias = own_score_bias,
                             .local_score_bias = memory->bias_cache +
                                                 min(me->wave, ROW_TILES - 1) *
                                                     KEY_TILES * TILE_ELEMENTS,
                             .states = states,
                             .reused = &reused,
                             .o_offsets = KEEPS_STORES ? o_offsets : 0};
    start_reuse(&reused);
    if (KEEPS_STORES)
        find_stores(o_offsets, &kernel_args->o, &kernel_args->grid,
                    &here.coord, first_row, HEAD_DIM, w);
    /* the mask classes of windows whose bias is cached, and whose regions are
     * kept */
    uint cached_mask_class = ~0u, kept_regions = ~0u;
    for (uint step = 0; step < pipeline->steps; step++) {
        HIDE_LANE(me->lane);
        HIDE_LANE(w->lane);
        RELOAD_ARGS(forward_args, args, kernel_args)
        kv_block now =
            find_kv_block(step, &here, memory, tensors, block, args);
        score_bias_view score_bias = {.bias = 0};
        const uint mask_class = MASK_CLASS(here);
        if (!HAS_BIAS_CACHE)
            score_bias = score_bias_of(tensors, args, now.of);
        else if (mask_class != cached_mask_class)
            renew_score_bias(&own, memory, &now, block, args, me, w);
        cached_mask_class = mask_class;
        now.score_bias = &score_bias;
        await_stage(me->team);
        start_kv_block(pipeline, step + AHEAD, block, args, me->team,
                       me->lane);
        await_copies(me->team);
        prepare_kv_block(&now, memory, &kept_regions, block, args, me, w);
        TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++)
            attend_tile(turn, &own, memory, &now, block, args, me, w);
        if ((KEY_BLOCKS == 1 || now.block == KEY_BLOCKS - 1) &&
            step + 1 < pipeline->steps &&
            !next_window(&here, args, me->team) && KEEPS_STORES)
            find_stores(o_offsets, &args->o, &args->grid, &here.coord,
                        first_row, HEAD_DIM, w);
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
    DECLARE_FACTORS
    DECLARE_REGIONS
    DECLARE_PADS(pads)
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const team_memory memory = {
        .ring = (__local storage_bits *)rings[me.team],
        .bias_cache = bias_cache,
        .q_factors = q_factors[me.team],
        .k_factors = k_factors[me.team],
        .row_regions = kept_row_regions[me.team],
        .key_regions = kept_key_regions[me.team],
    };

    const uint dealt = count_dealt(&args);
    uint cached_head_block = ~0u; /* whose bias is cached */
    stretch part;
    NO_UNROLL_FOR (uint number = 0; find_stretch(&part, &args, dealt, number);
                   number++) {
        if (PERSISTENT_MULTI_BLOCK) {
            if (part.rounds == 0)
                continue;
            HIDE_LANE(me.lane);
            HIDE_LANE(w.lane);
        }
        row_block block = find_block(part.head_block, &args);
        tile_scheduler here =
            start_tile_scheduler(&args, part.first, part.rounds, me.team);
        block.scale = HEAD_SCALE(&args, logit_scale, block.head);
        find_planes(&block, q, k, v, o, lse, &args);
        const head_bias bias = start_head_bias(
            !PERSISTENT_MULTI_BLOCK || part.head_block != cached_head_block,
            &tensors, (__local storage_bits *)rings[0], &block, &args, me.id);
        cached_head_block = part.head_block;
        forward_pipeline pipeline =
            start_pipeline(here, memory.ring, &args, me.lane);
        copy_offsets offsets;
        pipeline.offsets = &offsets;
        find_offsets(&pipeline, &block, &args, me.lane);
        if (PADDING == 1)
            keep_pads(pads, PAD_ROW(args, pad_k, ARG_PAD_K, block.kv_head),
                      PAD_ROW(args, pad_v, ARG_PAD_V, block.kv_head), &args,
                      me.id);
        pipeline.pad_k = KEPT_PAD(pads, 0);
        pipeline.pad_v = KEPT_PAD(pads, 1);
        for (uint ahead = 0; ahead < AHEAD; ahead++)
            start_kv_block(&pipeline, ahead, &block, &args, me.team, me.lane);
        clear_pads(memory.ring, me.lane);
        finish_head_bias(bias_cache, &bias, &tensors, &block, &args, me.id);
        attend_windows(here, &pipeline, &memory, &tensors, &block, &args, &me,
                       &w);
        if (!PERSISTENT_MULTI_BLOCK)
            break;
        barrier(CLK_LOCAL_MEM_FENCE); /* the next may replace all */
    }
}
