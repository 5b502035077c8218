/* SPDX-License-Identifier: Apache-2.0
 * Forward pass on a matrix unit, for windows, in fp16, bf16 and, where the
 * caller allows TF32, fp32: scores, weights and sums stay in a wave's
 * registers, as fragments (fragment.cl).
 *
 * An item of the ring (pipeline.cl) is BLOCK_KEYS keys of a window; where
 * those are not all (STREAMING), sums live through the items of a window.
 * Within an item the softmax (softmax.cl) takes PASS_KEYS keys at a time and
 * streams where these are not all. A wave takes tiles of the block's rows in
 * turn. */
#include "matrix/epilogue.cl"
#include "matrix/forward_pipeline.cl"
#include "matrix/norms.cl"
#include "matrix/persistent.cl"
#include "matrix/softmax.cl"
#include "matrix/tile_scheduler.cl"
#include "matrix/waves.cl"

/* ---- Rows that leave ---- */

/* Stores o, by way of the rows' q, and lse of the rows. */
INLINE void store_rows(row_state *s, __local storage_bits *q,
                       const forward_args *args, const row_target *to,
                       __global float *lse, const wave *w)
{
    float inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        inverse[r] = s->sum[r] == 0.0f ? 0.0f : RECIPROCAL(s->sum[r]);
    if ((args->flags & ARG_LSE) != 0) {
        float sum[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            sum[r] = KEEPS_BASE ? s->exact[r] : s->sum[r];
            if (KEEPS_BASE) {
                REDUCE(sum[r], ADD);
            }
        }
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            ulong at;
            const int row = value_query(w->lane, i);
            const int r = LANE_ROW(i);
            if (value_key(w->lane, i) == 0 && row < to->count &&
                find_row(&at, &args->lse, to->grid, to->place, to->row + row))
                lse[at] = s->base[r] + log(sum[r]);
        }
    }
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES)
        store_channels(s->out + first, inverse, first, OUT_TILES,
                       q + first * UNIT_TILE, PITCH, to, w);
}

/* What all of a team have in local memory. */
typedef struct team_memory {
    __local storage_bits *ring;
#if HAS_LOCAL_TERMS
    __local kept_term *terms; /* those of all teams */
#endif
#if VARIANT == COSINE
    __local float *q_factors, *k_factors;
#endif
#if REGIONS_APART
    __local uchar *row_regions, *key_regions;
#endif
    int unused; /* a struct needs a member */
} team_memory;

/* What a wave keeps in registers from window to window. Pointers: compilers
 * then see that these are apart. */
typedef struct wave_memory {
#if HAS_OWN_TERMS
    float (*terms)[VALUES]; /* [KEY_TILES]: what is added to its scores */
    __local const void *local_terms; /* that are part of these */
#endif
#if STREAMING
    row_state *states; /* [WAVE_TURNS] */
#endif
#if CARRIES_BASE
    carried_base *carried;
#endif
    const plane_offset *o_offsets; /* see find_stores; NULL: nothing is kept */
} wave_memory;

/* What a team computes with: an item of the ring, and the window it is of. */
typedef struct kv_item {
    const walk *at;
    unit of;
    uint block; /* of keys: its number in the window */
    int first, count;
    __local storage_bits *q;
    __local const storage_bits *stage;
    const logit_terms *terms;
    const logit_tensors *tensors;
    int has_seams; /* there are several regions */
} kv_item;

/* ---- What is added to scores ---- */

#if HAS_OWN_TERMS
/* Those of all tiles of keys, of rows `row` and on, become a lane's own. */
INLINE void load_terms(const wave_memory *own, const forward_args *args,
                       const logit_terms *terms, int row, const wave *w)
{
    int lane = w->lane;
    FORGET(lane); /* nothing of this is worth a register all along */
    UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
        load_own_terms(own->terms[t], own->local_terms, args, terms, row, t,
                       lane);
}
#endif

#if HAS_TERMS_KEPT
/* Terms of a window that are unlike those of the last: all teams have windows
 * of the same kind. */
INLINE void renew_terms(const wave_memory *own, const team_memory *memory,
                        const kv_item *here, const row_block *block,
                        const forward_args *args, const work_item *me,
                        const wave *w)
{
    const logit_terms terms =
        terms_at(here->tensors, args, here->of, &here->at->place);
#if MASK_IN_LOCAL
    barrier(CLK_LOCAL_MEM_FENCE);
    keep_terms(memory->terms, args, &terms, block->first_row, me->id);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if HAS_OWN_TERMS
    load_terms(own, args, &terms,
               (int)block->first_row + me->wave * UNIT_QUERIES, w);
#if FOLDS_BASE
    if (relies_on(own->carried, args))
        fold_base(own->terms, own->carried->base);
#endif
#endif
}
#endif

/* ---- A tile of rows ---- */

/* Starts what a wave computes of tile `tile` of the block's rows. */
INLINE void start_tile(item_rows *work, int tile, const wave_memory *own,
                       const team_memory *memory, const kv_item *here,
                       const row_block *block, const forward_args *args,
                       const wave *w)
{
    tile_rows *rows = &work->rows;
    const item_rows start = {.rows = {.row = tile * UNIT_QUERIES,
                                      .last_row = block->row_count - 1,
                                      .first_row = (int)block->first_row,
                                      .place = here->at->place},
                             .key = here->first,
                             .count = here->count,
                             .q = here->q,
                             .stage = here->stage,
                             .args = args,
                             .terms = here->terms};
    *work = start;
#if VARIANT == COSINE
    work->key_scale = memory->k_factors;
#endif
#if PADDING == 2
    rows->holds_padding = holds_padding(&args->grid, &here->at->place);
#endif
#if HAS_OWN_TERMS
    rows->own_terms = own->terms;
#elif HAS_LOCAL_TERMS
    rows->local_terms =
        memory->terms +
        (tile * ALL_KEY_TILES + here->block * KEY_TILES) * TERM_TILE;
#endif
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int row =
            min(rows->row + value_query(w->lane, i), block->row_count - 1);
        rows->scale[LANE_ROW(i)] = block->scale;
#if VARIANT == COSINE
        rows->scale[LANE_ROW(i)] = memory->q_factors[row];
#endif
#if REGIONS_APART
        rows->region[LANE_ROW(i)] = memory->row_regions[row];
#endif
    }
#if REGIONS_APART
    rows->key_regions =
        here->has_seams ? memory->key_regions + here->first : 0;
#endif
}

/* Stores a tile of rows of a window, of which so many are left. */
INLINE void store_window(row_state *s, const item_rows *work, int rows_left,
                         const wave_memory *own, const kv_item *here,
                         const row_block *block, const wave *w)
{
    const forward_args *args = work->args;
    const uint plane = plane_of(here->at);
    const row_target to = {
        .plane = block->o + plane * args->o.window,
        .layout = &args->o,
        .grid = &args->grid,
        .place = &here->at->place,
        .row = block->first_row + work->rows.row,
        .count = here->at->exists ? min(rows_left, UNIT_QUERIES) : 0,
        .wide = block->wide,
        .found = own->o_offsets};
    store_rows(s, here->q + Q_PLACE + work->rows.row * PITCH, args, &to,
               block->lse + plane * args->lse.window, w);
}

#if CARRIES_BASE
/* Attends to a window and stores its rows: with the bases of windows before,
 * and where these do not serve with its own, which are carried then. */
INLINE void attend_carrying(item_rows *work, int rows_left,
                            const wave_memory *own, const kv_item *here,
                            const row_block *block, const work_item *me,
                            const wave *w)
{
    carried_base *carried = own->carried;
    int is_done = 0;
    SEARCH_FOR (int searches = 0; searches < 2; searches++)
        IF_ALL (!is_done && (searches || relies_on(carried, work->args))) {
            row_state state;
            wave again = *w;
            if (searches) {
                FORGET(again.lane); /* nothing is kept for this */
#if FOLDS_BASE
                if (relies_on(carried, work->args)) {
                    const logit_terms unfolded = terms_at(
                        here->tensors, work->args, here->of, &here->at->place);
                    load_terms(own, work->args, &unfolded,
                               (int)block->first_row + me->wave * UNIT_QUERIES,
                               w);
                }
#endif
            }
            is_done = attend_window(&state, carried, work, searches, &again);
            IF_ALL (is_done)
                store_window(&state, work, rows_left, own, here, block,
                             &again);
            if (searches) {
                carry_base(carried, &state);
                carried->wary =
                    carried->wary > 0 ? carried->wary - 1 : WARY_WINDOWS;
                note_reliance(carried, work->args);
#if FOLDS_BASE
                if (relies_on(carried, work->args))
                    fold_base(own->terms, carried->base);
#endif
            }
        }
}
#endif

/* Attends to an item, with the wave's tile of rows of that turn. */
INLINE void attend_tile(int turn, const wave_memory *own,
                        const team_memory *memory, const kv_item *here,
                        const row_block *block, const forward_args *all_args,
                        const work_item *me, const wave *w)
{
    RELOAD_ARGS(forward_args, args, all_args)
    const int tile_here = turn * TEAM_WAVES + me->wave;
    const int tile = min(tile_here, ROW_TILES - 1);
    const int rows_left = block->row_count - tile_here * UNIT_QUERIES;
    const int exists = here->at->exists;
    if (!EMULATED && (rows_left <= 0 || !exists))
        return; /* emulated waves have to keep step */
    item_rows work;
    start_tile(&work, tile, own, memory, here, block, args, w);
#if CARRIES_BASE
    attend_carrying(&work, rows_left, own, here, block, me, w);
#else
#if STREAMING
    row_state *state = &own->states[turn];
#else
    row_state own_state;
    row_state *state = &own_state;
#endif
    if (here->block == 0)
        start_rows(state, 0);
    attend_item(state, &work, 1, w);
    if (here->block == KEY_BLOCKS - 1) {
        finish_sums(state, 1, w);
        store_window(state, &work, rows_left, own, here, block, w);
    }
#endif
}

/* ---- Windows ---- */

/* What an item has to be measured or found before it is computed with; the
 * team meets again where there is something. */
INLINE void prepare_item(kv_item *here, const team_memory *memory,
                         uint *kept_regions, const row_block *block,
                         const forward_args *args, const work_item *me,
                         const wave *w)
{
#if VARIANT == COSINE
    const measured_rows measured[2] = {
        {memory->k_factors, here->stage + K_PLACE, BLOCK_KEYS, 1.0f},
        {memory->q_factors, here->q + Q_PLACE, BLOCK_ROWS, block->scale}};
    IF_ALL (here->block == 0)
        measure_rows(measured, 2, me->wave, w);
    IF_ALL (here->block != 0)
        measure_rows(measured, 1, me->wave, w);
#endif
#if REGIONS_APART
    here->has_seams = HAS_SEAMS(*here->at);
    const int has_new = here->block == 0 && here->has_seams &&
                        has_new_regions(here->at, kept_regions);
    if (has_new) {
        const logit_terms regions =
            terms_at(here->tensors, args, here->of, &here->at->place);
        keep_regions(memory->row_regions, memory->key_regions, args, &regions,
                     block->first_row, me->lane);
    }
#endif
#if VARIANT == COSINE
    TEAM_SYNC(me->team);
#elif REGIONS_APART
    if (EMULATED || has_new)
        TEAM_SYNC(me->team);
#endif
}

/* Attends to the windows of a walk, for a block of rows. */
INLINE void attend_windows(walk here, forward_pipeline *pipeline,
                           const team_memory *memory,
                           const logit_tensors *tensors,
                           const row_block *block,
                           const forward_args *kernel_args, work_item *me,
                           wave *w)
{
    wave_memory own;
#if HAS_TERMS_KEPT
    uint kept_kind = ~0u; /* of windows whose terms are kept */
#endif
#if HAS_OWN_TERMS
    float own_terms[KEY_TILES][VALUES];
    own.terms = own_terms;
#if HAS_LOCAL_TERMS
    own.local_terms =
        memory->terms + min(me->wave, ROW_TILES - 1) * KEY_TILES * TERM_TILE;
#else
    own.local_terms = 0;
#endif
#endif
#if STREAMING
    row_state states[WAVE_TURNS];
    own.states = states;
#endif
#if CARRIES_BASE
    carried_base carried;
    start_carrying(&carried);
    own.carried = &carried;
#endif
#if KEEPS_STORES
    plane_offset o_offsets[STORE_TURNS(HEAD_DIM)];
    own.o_offsets = o_offsets;
    find_stores(o_offsets, &kernel_args->o, &kernel_args->grid, &here.place,
                block->first_row + me->wave * UNIT_QUERIES, HEAD_DIM, w);
#else
    own.o_offsets = 0;
#endif
    uint kept_regions = ~0u; /* the kind of windows whose regions are kept */
    for (uint item = 0; item < pipeline->items; item++) {
        FORGET_LANE(me->lane);
        FORGET_LANE(w->lane);
        RELOAD_ARGS(forward_args, args, kernel_args)
        kv_item now = {.at = &here,
                       .of = {.window = window_of(&here, args),
                              .head = block->head,
                              .row = block->first_row},
                       .block = item % KEY_BLOCKS,
                       .q = memory->ring +
                            item / KEY_BLOCKS % STAGES * STAGE_SIZE,
                       .stage = memory->ring + item % STAGES * STAGE_SIZE,
                       .tensors = tensors};
        now.first = (int)now.block * BLOCK_KEYS;
        now.count = min(BLOCK_KEYS, (int)NK - now.first);
#if HAS_TERMS_KEPT
        const logit_terms terms = {.unused = 0};
        const uint kind = MASK_KIND(here);
        if (kind != kept_kind) {
            kept_kind = kind;
            renew_terms(&own, memory, &now, block, args, me, w);
        }
#else
        const logit_terms terms = terms_of(tensors, args, now.of);
#endif
        now.terms = &terms;
        await_stage(me->team);
        start_item(pipeline, item + AHEAD, block, args, me->team, me->lane);
        await_copies(me->team);
        prepare_item(&now, memory, &kept_regions, block, args, me, w);
        TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++)
            attend_tile(turn, &own, memory, &now, block, args, me, w);
        if ((KEY_BLOCKS == 1 || now.block == KEY_BLOCKS - 1) &&
            !walk_on(&here, args, me->team)) {
#if KEEPS_STORES
            find_stores(o_offsets, &args->o, &args->grid, &here.place,
                        block->first_row + me->wave * UNIT_QUERIES, HEAD_DIM,
                        w);
#endif
        }
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
#if VARIANT == COSINE
    __local float q_factors[TEAMS][BLOCK_ROWS], k_factors[TEAMS][KEY_ROWS];
#endif
#if REGIONS_APART
    __local uchar kept_row_regions[TEAMS][BLOCK_ROWS];
    __local uchar kept_key_regions[TEAMS][NK];
#endif
    DECLARE_PADS(pads)
    DECLARE_EXCHANGES(exchanges)
    work_item me = this_work_item();
    wave w = wave_of(&me, exchanges);
    const logit_tensors tensors = {BIAS_TENSORS MASK_TENSORS.unused = 0};
    const team_memory memory = {
        .ring = (__local storage_bits *)rings[me.team],
#if HAS_LOCAL_TERMS
        .terms = kept,
#endif
#if VARIANT == COSINE
        .q_factors = q_factors[me.team],
        .k_factors = k_factors[me.team],
#endif
#if REGIONS_APART
        .row_regions = kept_row_regions[me.team],
        .key_regions = kept_key_regions[me.team],
#endif
    };

    /* of the rounds of this work-group the next one, and how many are left */
    const uint group = (uint)get_group_id(0);
    const uint rounds = count_rounds(&args);
    const owned_round end = first_round(&args, rounds, group + 1);
    owned_round next = first_round(&args, rounds, group);
    ulong left =
        (ulong)(end.owner - next.owner) * rounds + end.round - next.round;
    uint kept_owner = ~0u; /* whose terms are kept */
    NO_UNROLL_FOR (uint number = 0; left > 0; number++) {
#if SHARES_OWNERS
        const stretch part = stretch_of(&args, rounds, group, number);
        if (part.rounds == 0)
            continue;
        next.owner = part.owner;
        next.round = part.first;
        const uint own_rounds = part.rounds;
        FORGET_LANE(me.lane);
        FORGET_LANE(w.lane);
#else
        const uint own_rounds = (uint)left;
#endif
        row_block block = find_block(next.owner, &args);
        walk here = start_walk(&args, next.round, own_rounds, me.team);
        left -= here.rounds;
#if VARIANT == COSINE
        block.scale = cosine_scale(&args, logit_scale, block.head);
#endif
        find_planes(&block, q, k, v, o, lse, &args);
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
            start_item(&pipeline, ahead, &block, &args, me.team, me.lane);
        clear_pads(memory.ring, me.lane);
#if HAS_LOCAL_TERMS && !MASK_IN_LOCAL
        if (!SHARES_OWNERS || next.owner != kept_owner) {
            const unit of_head = {.window = args.first_window,
                                  .head = block.head};
            const logit_terms terms = terms_of(&tensors, &args, of_head);
            keep_terms(kept, &args, &terms, block.first_row, me.id);
        }
        kept_owner = next.owner;
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        attend_windows(here, &pipeline, &memory, &tensors, &block, &args, &me,
                       &w);
        if (!SHARES_OWNERS)
            break;
        barrier(CLK_LOCAL_MEM_FENCE); /* the next may replace all */
    }
}
