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

/* What all of a team have in local memory. */
typedef struct team_memory {
    __local storage_bits *ring;
#if HAS_LOCAL_BIAS_CACHE
    __local cached_bias *bias_cache; /* those of all teams */
#endif
#if VARIANT == COSINE
    __local float *q_factors, *k_factors;
#endif
#if COMPARES_REGIONS
    __local uchar *row_regions, *key_regions;
#endif
    int unused; /* a struct needs a member */
} team_memory;

/* What a wave keeps in registers from window to window. Pointers: compilers
 * then see that these are apart. */
typedef struct wave_memory {
#if HAS_REGISTER_BIAS_CACHE
    float (*score_bias)[ACC_PER_LANE];    /* [KEY_TILES]: what is added to its
                                             scores */
    __local const void *local_score_bias; /* that are part of these */
#endif
#if STREAMING
    row_state *states; /* [WAVE_TURNS] */
#endif
#if REUSES_MAX
    reused_max *reused;
#endif
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

#if HAS_REGISTER_BIAS_CACHE
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
#endif

#if HAS_BIAS_CACHE
/* Score bias of a window that is unlike that of the last: all teams have
 * windows of the same mask class. */
INLINE void renew_score_bias(const wave_memory *own, const team_memory *memory,
                             const kv_block *here, const row_block *block,
                             const forward_args *args, const work_item *me,
                             const wave *w)
{
    const score_bias_view score_bias =
        score_bias_at(here->tensors, args, here->of, &here->at->coord);
#if MASK_IN_LOCAL
    barrier(CLK_LOCAL_MEM_FENCE);
    cache_score_bias(memory->bias_cache, args, &score_bias, 0,
                     block->first_row, me->id);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if HAS_REGISTER_BIAS_CACHE
    load_score_bias(own, args, &score_bias,
                    (int)block->first_row + me->wave * TILE_M, w);
#if FOLDS_MAX
    if (reuses_max(own->reused, args))
        fold_max(own->score_bias, own->reused->softmax_max);
#endif
#endif
}
#endif

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
                                  .score_bias = here->score_bias};
    *work = start;
#if VARIANT == COSINE
    work->key_scale = memory->k_factors;
#endif
#if PADDING == 2
    rows->holds_padding = holds_padding(&args->grid, &here->at->coord);
#endif
#if HAS_REGISTER_BIAS_CACHE
    rows->own_score_bias = own->score_bias;
#elif HAS_LOCAL_BIAS_CACHE
    rows->local_score_bias =
        memory->bias_cache +
        (tile * ALL_KEY_TILES + here->block * KEY_TILES) * TILE_ELEMENTS;
#endif
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int row =
            min(rows->row + value_query(w->lane, i), block->row_count - 1);
        rows->scale[LANE_ROW(i)] = block->scale;
#if VARIANT == COSINE
        rows->scale[LANE_ROW(i)] = memory->q_factors[row];
#endif
#if COMPARES_REGIONS
        rows->region[LANE_ROW(i)] = memory->row_regions[row];
#endif
    }
#if COMPARES_REGIONS
    rows->key_regions =
        here->has_shift_boundary ? memory->key_regions + here->first : 0;
#endif
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

#if REUSES_MAX
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
#if FOLDS_MAX
                if (reuses_max(reused, work->args)) {
                    const score_bias_view unfolded = score_bias_at(
                        here->tensors, work->args, here->of, &here->at->coord);
                    load_score_bias(own, work->args, &unfolded,
                                    (int)block->first_row + me->wave * TILE_M,
                                    w);
                }
#endif
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
#if FOLDS_MAX
                if (reuses_max(reused, work->args))
                    fold_max(own->score_bias, reused->softmax_max);
#endif
            }
        }
}
#endif

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
#if REUSES_MAX
    attend_reusing_max(&work, rows_left, own, here, block, me, w);
#else
#if STREAMING
    row_state *state = &own->states[turn];
#else
    row_state own_state;
    row_state *state = &own_state;
#endif
    if (here->block == 0)
        start_rows(state, 0);
    attend_kv_block(state, &work, 1, w);
    if (here->block == KEY_BLOCKS - 1) {
        finish_sums(state, 1, w);
        store_window(state, &work, rows_left, own, here, block, w);
    }
#endif
}

/* ---- Windows ---- */

/* What a KV block has to be measured or found before it is computed with; the
 * team meets again where there is something. */
INLINE void prepare_kv_block(kv_block *here, const team_memory *memory,
                             uint *kept_regions, const row_block *block,
                             const forward_args *args, const work_item *me,
                             const wave *w)
{
#if VARIANT == COSINE
    const measured_rows measured[2] = {
        {memory->k_factors, here->stage + K_OFFSET, BLOCK_KEYS, 1.0f},
        {memory->q_factors, here->q + Q_OFFSET, BLOCK_ROWS, block->scale}};
    if (here->block == 0)
        measure_rows(measured, 2, me->wave, w);
    if (here->block != 0)
        measure_rows(measured, 1, me->wave, w);
#endif
#if COMPARES_REGIONS
    here->has_shift_boundary = HAS_SHIFT_BOUNDARY(*here->at);
    const int has_new = here->block == 0 && here->has_shift_boundary &&
                        has_new_regions(here->at, kept_regions);
    if (has_new) {
        const score_bias_view regions =
            score_bias_at(here->tensors, args, here->of, &here->at->coord);
        keep_regions(memory->row_regions, memory->key_regions, args, &regions,
                     block->first_row, me->lane);
    }
#endif
#if VARIANT == COSINE
    TEAM_SYNC(me->team);
#elif COMPARES_REGIONS
    /* teams' windows may lie unlike */
    if (TEAMS_SYNC_TOGETHER || has_new)
        TEAM_SYNC(me->team);
#endif
}

/* Attends to the windows of a tile scheduler, for a block of rows. */
INLINE void attend_windows(tile_scheduler here, forward_pipeline *pipeline,
                           const team_memory *memory,
                           const score_bias_tensors *tensors,
                           const row_block *block,
                           const forward_args *kernel_args, work_item *me,
                           wave *w)
{
    wave_memory own;
#if HAS_BIAS_CACHE
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
#endif
#if HAS_REGISTER_BIAS_CACHE
    float own_score_bias[KEY_TILES][ACC_PER_LANE];
    own.score_bias = own_score_bias;
#if HAS_LOCAL_BIAS_CACHE
    own.local_score_bias = memory->bias_cache + min(me->wave, ROW_TILES - 1) *
                                                    KEY_TILES * TILE_ELEMENTS;
#else
    own.local_score_bias = 0;
#endif
#endif
#if STREAMING
    row_state states[WAVE_TURNS];
    own.states = states;
#endif
#if REUSES_MAX
    reused_max reused;
    start_reuse(&reused);
    own.reused = &reused;
#endif
#if KEEPS_STORES
    plane_offset o_offsets[STORE_TURNS(HEAD_DIM)];
    own.o_offsets = o_offsets;
    find_stores(o_offsets, &kernel_args->o, &kernel_args->grid, &here.coord,
                block->first_row + me->wave * TILE_M, HEAD_DIM, w);
#else
    own.o_offsets = 0;
#endif
    uint kept_regions =
        ~0u; /* the mask class of windows whose regions are kept */
    for (uint step = 0; step < pipeline->steps; step++) {
        HIDE_LANE(me->lane);
        HIDE_LANE(w->lane);
        RELOAD_ARGS(forward_args, args, kernel_args)
        kv_block now = {.at = &here,
                        .of = {.window = window_of(&here, args),
                               .head = block->head,
                               .row = block->first_row},
                        .block = step % KEY_BLOCKS,
                        .q = memory->ring +
                             step / KEY_BLOCKS % STAGES * STAGE_SIZE,
                        .stage = memory->ring + step % STAGES * STAGE_SIZE,
                        .tensors = tensors};
        now.first = (int)now.block * BLOCK_KEYS;
        now.count = min(BLOCK_KEYS, (int)NK - now.first);
#if HAS_BIAS_CACHE
        const score_bias_view score_bias = {.bias = 0};
        const uint mask_class = MASK_CLASS(here);
        if (mask_class != cached_mask_class) {
            cached_mask_class = mask_class;
            renew_score_bias(&own, memory, &now, block, args, me, w);
        }
#else
        const score_bias_view score_bias =
            score_bias_of(tensors, args, now.of);
#endif
        now.score_bias = &score_bias;
        await_stage(me->team);
        start_kv_block(pipeline, step + AHEAD, block, args, me->team,
                       me->lane);
        await_copies(me->team);
        prepare_kv_block(&now, memory, &kept_regions, block, args, me, w);
        TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++)
            attend_tile(turn, &own, memory, &now, block, args, me, w);
        if ((KEY_BLOCKS == 1 || now.block == KEY_BLOCKS - 1) &&
            !next_window(&here, args, me->team)) {
#if KEEPS_STORES
            find_stores(o_offsets, &args->o, &args->grid, &here.coord,
                        block->first_row + me->wave * TILE_M, HEAD_DIM, w);
#endif
        }
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
#if VARIANT == COSINE
    __local float q_factors[WINDOWS_PER_GROUP][BLOCK_ROWS],
        k_factors[WINDOWS_PER_GROUP][KEY_ROWS];
#endif
#if COMPARES_REGIONS
    __local uchar kept_row_regions[WINDOWS_PER_GROUP][BLOCK_ROWS];
    __local uchar kept_key_regions[WINDOWS_PER_GROUP][NK];
#endif
    DECLARE_PADS(pads)
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const team_memory memory = {
        .ring = (__local storage_bits *)rings[me.team],
#if HAS_LOCAL_BIAS_CACHE
        .bias_cache = bias_cache,
#endif
#if VARIANT == COSINE
        .q_factors = q_factors[me.team],
        .k_factors = k_factors[me.team],
#endif
#if COMPARES_REGIONS
        .row_regions = kept_row_regions[me.team],
        .key_regions = kept_key_regions[me.team],
#endif
    };

    const uint dealt = count_dealt(&args);
    uint cached_head_block = ~0u; /* whose bias is cached */
    stretch part;
    NO_UNROLL_FOR (uint number = 0; find_stretch(&part, &args, dealt, number);
                   number++) {
#if PERSISTENT_MULTI_BLOCK
        if (part.rounds == 0)
            continue;
        HIDE_LANE(me.lane);
        HIDE_LANE(w.lane);
#endif
        row_block block = find_block(part.head_block, &args);
        tile_scheduler here =
            start_tile_scheduler(&args, part.first, part.rounds, me.team);
#if VARIANT == COSINE
        block.scale = cosine_scale(&args, logit_scale, block.head);
#endif
        find_planes(&block, q, k, v, o, lse, &args);
#if HAS_LOCAL_BIAS_CACHE && !MASK_IN_LOCAL
        const int has_new_bias =
            !PERSISTENT_MULTI_BLOCK || part.head_block != cached_head_block;
        const work_tile of_head = {.window = args.first_window,
                                   .head = block.head};
        const score_bias_view score_bias =
            score_bias_of(&tensors, &args, of_head);
        __local const cached_bias *bias_rows = 0;
        cached_head_block = part.head_block;
#endif
#if COPIES_BIAS_ROWS
        if (has_new_bias)
            bias_rows = copy_bias_rows((__local storage_bits *)rings[0],
                                       &score_bias, &block, &args, me.id);
#endif
        forward_pipeline pipeline =
            start_pipeline(here, memory.ring, &args, me.lane);
#if KEEPS_COPIES
        copy_offsets offsets;
        pipeline.offsets = &offsets;
#endif
        find_offsets(&pipeline, &block, &args, me.lane);
#if PADDING == 1
        keep_pads(pads, PAD_ROW(args, pad_k, ARG_PAD_K, block.kv_head),
                  PAD_ROW(args, pad_v, ARG_PAD_V, block.kv_head), &args,
                  me.id);
#endif
        pipeline.pad_k = KEPT_PAD(pads, 0);
        pipeline.pad_v = KEPT_PAD(pads, 1);
        for (uint ahead = 0; ahead < AHEAD; ahead++)
            start_kv_block(&pipeline, ahead, &block, &args, me.team, me.lane);
        clear_pads(memory.ring, me.lane);
#if COPIES_BIAS_ROWS
        AWAIT_COPIES(AHEAD);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if HAS_LOCAL_BIAS_CACHE && !MASK_IN_LOCAL
        if (has_new_bias)
            cache_score_bias(bias_cache, &args, &score_bias, bias_rows,
                             block.first_row, me.id);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        attend_windows(here, &pipeline, &memory, &tensors, &block, &args, &me,
                       &w);
        if (!PERSISTENT_MULTI_BLOCK)
            break;
        barrier(CLK_LOCAL_MEM_FENCE); /* the next may replace all */
    }
}
