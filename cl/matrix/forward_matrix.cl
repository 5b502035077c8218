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
#include "matrix/norms.cl"
#include "matrix/persistent.cl"
#include "matrix/pipeline.cl"
#include "matrix/softmax.cl"
#include "matrix/tile_scheduler.cl"
#include "matrix/waves.cl"

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

/* ---- The kernel ---- */

/* Where what a lane copies and stores lies in its plane is found anew only
 * where the next window lies otherwise. */
#define FOLLOWS_GRID (GRID && CHUNKS && KEEPS_PLACES)
#define KEEPS_COPIES (FOLLOWS_GRID && KEY_BLOCKS == 1)
#define KEEPS_STORES                                                          \
    (FOLLOWS_GRID && WAVE_TURNS == 1 && DIM_TILES <= OUT_TILES)

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
    DECLARE_PADS(pad_rows)
    DECLARE_WAVE
    __local storage_bits *ring = (__local storage_bits *)rings[team];

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
#endif
        const uint head = next.owner / args.row_blocks;
        const uint first_row =
            BLOCK_ROWS >= NQ ? 0
                             : next.owner % args.row_blocks * args.block_rows;
        const int row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first_row);
        const uint kv_head = head / args.heads_per_kv_head;
        const int wide = (args.flags & ARG_WIDE_ACCESS) != 0;
        if (SHARES_OWNERS) {
            FORGET_LANE(lane_of_team);
            FORGET_LANE(wave_here.lane);
        }
#if SHARES_OWNERS
        walk here = start_walk(&args, next.round, part.rounds, team);
#else
        walk here = start_walk(&args, next.round, (uint)left, team);
#endif
        left -= here.rounds;
        const uint items = here.rounds * KEY_BLOCKS;
        float scale = args.scale;
#if VARIANT == COSINE
        scale = cosine_scale(&args, logit_scale, head);
#endif
        /* see plane_of */
        const ulong first_plane = GRID ? 0 : args.first_window;
        __global const storage *q_planes =
            q + plane(&args.q, first_plane, head);
        __global const storage *k_planes =
            k + plane(&args.k, first_plane, kv_head);
        __global const storage *v_planes =
            v + plane(&args.v, first_plane, kv_head);
        __global storage *o_planes = o + plane(&args.o, first_plane, head);
        __global float *lse_planes = lse + plane(&args.lse, first_plane, head);

        /* Starts the copies of an item; after a window's last, walks on. */
        walk there = here;
        const ulong q_chunk = chunk_of(&args.q, lane_of_team);
        const ulong k_chunk = chunk_of(&args.k, lane_of_team);
        const ulong v_chunk = chunk_of(&args.v, lane_of_team);
#define PLANE(name) (name##_planes + plane_of(&there) * args.name.window)
#define COPY_NARROW(to, name, pad, first, count, rows)                        \
    copy_rows(to, PLANE(name), name##_chunk, &args.name, &args.grid,          \
              &there.place, pad, first, count, rows, lane_of_team, 0)
#define COPY_WIDE(to, name, pad, first, count, rows)                          \
    copy_rows(to, PLANE(name), name##_chunk, &args.name, &args.grid,          \
              &there.place, pad, first, count, rows, lane_of_team, 1)
#if KEEPS_COPIES
        plane_offset q_at[COPY_TURNS(BLOCK_ROWS)],
            k_at[COPY_TURNS(BLOCK_KEYS)], v_at[COPY_TURNS(BLOCK_KEYS)];
        int has_padding;
#define FIND(name, first, rows)                                               \
    find_copies(name##_at, &args.name, &args.grid, &there.place, first, rows, \
                lane_of_team)
#define FIND_COPIES()                                                         \
    FIND(q, first_row, BLOCK_ROWS);                                           \
    FIND(k, 0, BLOCK_KEYS);                                                   \
    FIND(v, 0, BLOCK_KEYS);                                                   \
    has_padding = holds_padding(&args.grid, &there.place)
#define COPY_FOUND(to, name, pad, first, count, rows)                         \
    copy_found(to, PLANE(name), name##_at, 0, 0, pad, count, rows,            \
               lane_of_team)
#define COPY_PADDED(to, name, pad, first, count, rows)                        \
    copy_found(to, PLANE(name), name##_at, 0, 1, pad, count, rows,            \
               lane_of_team)
        FIND_COPIES();
#else
        const int has_padding = 0;
#define FIND_COPIES()
#define COPY_FOUND COPY_WIDE
#define COPY_PADDED COPY_WIDE
#endif
#define COPY_ITEM(copy)                                                       \
    if (key == 0)                                                             \
        copy(q_to, q, 0, first_row, row_count, BLOCK_ROWS);                   \
    copy(to + K_PLACE, k, KEPT_PAD(pad_rows, 0), key, keys, BLOCK_KEYS);      \
    copy(to + V_PLACE, v, KEPT_PAD(pad_rows, 1), key, keys, BLOCK_KEYS)
#define START_COPIES(item)                                                    \
    if ((item) < items) {                                                     \
        const int key = (int)((item) % KEY_BLOCKS) * BLOCK_KEYS;              \
        const int keys = min(BLOCK_KEYS, (int)NK - key);                      \
        __local storage_bits *to = ring + (item) % STAGES * STAGE_SIZE;       \
        __local storage_bits *q_to =                                          \
            ring + (item) / KEY_BLOCKS % STAGES * STAGE_SIZE;                 \
        if (there.exists) {                                                   \
            if (!wide) {                                                      \
                COPY_ITEM(COPY_NARROW);                                       \
            } else if (has_padding) {                                         \
                COPY_ITEM(COPY_PADDED);                                       \
            } else {                                                          \
                COPY_ITEM(COPY_FOUND);                                        \
            }                                                                 \
        }                                                                     \
        if ((KEY_BLOCKS == 1 || key + BLOCK_KEYS >= NK) &&                    \
            !walk_on(&there, &args, team)) {                                  \
            FIND_COPIES();                                                    \
        }                                                                     \
    }                                                                         \
    END_COPIES()
        KEEP_PADS(pad_rows, args, kv_head, item_id)
        START_RING();
        clear_pads(ring, lane_of_team);
#if HAS_LOCAL_TERMS && !MASK_IN_LOCAL
        const unit of_head = {.window = args.first_window, .head = head};
        DECLARE_TERMS(head_terms, args, of_head)
        if (!SHARES_OWNERS || next.owner != kept_owner)
            keep_terms(kept, &args, &head_terms, first_row, item_id);
        kept_owner = next.owner;
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
/* Stores a tile of rows of the window here. */
#define STORE_ROWS(state, w)                                                  \
    do {                                                                      \
        const row_target to = {                                               \
            .plane = o_planes + plane_of(&here) * args.o.window,              \
            .layout = &args.o,                                                \
            .grid = &args.grid,                                               \
            .place = &here.place,                                             \
            .row = first_row + rows->row,                                     \
            .count = here.exists ? min(rows_left, UNIT_QUERIES) : 0,          \
            .wide = wide,                                                     \
            .found = FOUND_STORES};                                           \
        store_rows(state, q_stage + Q_PLACE + rows->row * PITCH, &args, &to,  \
                   lse_planes + plane_of(&here) * args.lse.window, w);        \
    } while (0)
/* What terms that are kept are made of, of the window here. */
#if MASK == 4
#define DECLARE_KEPT_TERMS(name)                                              \
    const logit_terms name = {.place = here.place};
#else
#define DECLARE_KEPT_TERMS(name) DECLARE_TERMS(name, args, unit_here)
#endif
#if HAS_TERMS_KEPT
        uint kept_kind = ~0u; /* of windows whose terms are kept */
#endif
#if HAS_OWN_TERMS
        float own_terms[KEY_TILES][VALUES];
#if HAS_LOCAL_TERMS
        __local const void *own_kept =
            kept + min(wave_of_team, ROW_TILES - 1) * KEY_TILES * TERM_TILE;
#else
        __local const void *own_kept = 0;
#endif
#define LOAD_OWN_TERMS(terms)                                                 \
    do {                                                                      \
        int lane = w->lane;                                                   \
        FORGET(lane); /* nothing of this is worth a register all along */     \
        UNROLL_FOR (int t = 0; t < KEY_TILES; t++)                            \
            load_own_terms(own_terms[t], own_kept, &args, &terms,             \
                           (int)first_row + wave_of_team * UNIT_QUERIES, t,   \
                           lane);                                             \
    } while (0)
#endif

#if STREAMING
        row_state kept_states[WAVE_TURNS];
#endif
#if CARRIES_BASE
        carried_base carried = {.wary = 1};
        const int wants_lse = (args.flags & ARG_LSE) != 0; /* exact sums */
/* Are carried bases relied upon in the window to come? Folded ones are in
 * own_terms then. A single pass of grids has no register for the answer. */
#define RELIES_NOW (carried.wary == 0 && !wants_lse)
#if FOLDS_BASE || QUICK_SHIFTS
        int relies = 0;
#define RELIES relies
#define NOTE_RELIANCE() relies = RELIES_NOW
#else
#define RELIES RELIES_NOW
#define NOTE_RELIANCE()
#endif
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            carried.base[r] = 0.0f;
#endif
#if KEEPS_STORES
        plane_offset o_at[STORE_TURNS(HEAD_DIM)];
#define FOUND_STORES o_at
#define FIND_STORES()                                                         \
    find_stores(o_at, &args.o, &args.grid, &here.place,                       \
                first_row + wave_of_team * UNIT_QUERIES, HEAD_DIM, w)
        FIND_STORES();
#else
#define FOUND_STORES 0
#define FIND_STORES()
#endif
        DECLARE_KEPT_REGIONS
        for (uint item = 0; item < items; item++) {
            FORGET_LANE(lane_of_team);
            FORGET_LANE(wave_here.lane);
            RELOAD_ARGS(forward_args)
            const uint block = item % KEY_BLOCKS;
            const int key = (int)block * BLOCK_KEYS;
            const int count = min(BLOCK_KEYS, (int)NK - key);
            const unit unit_here = {.window = window_of(&here, &args),
                                    .head = head,
                                    .row = first_row};
#if HAS_TERMS_KEPT
            const logit_terms terms = {.unused = 0};
            const uint kind = MASK_KIND(here);
            if (kind != kept_kind) {
                DECLARE_KEPT_TERMS(new_terms)
                kept_kind = kind;
#if MASK_IN_LOCAL /* all teams have windows of this kind */
                barrier(CLK_LOCAL_MEM_FENCE);
                keep_terms(kept, &args, &new_terms, first_row, item_id);
                barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if HAS_OWN_TERMS
                LOAD_OWN_TERMS(new_terms);
#if FOLDS_BASE
                if (RELIES)
                    fold_base(own_terms, carried.base);
#endif
#endif
            }
#else
            DECLARE_TERMS(terms, args, unit_here)
#endif
            __local const storage_bits *stage =
                ring + item % STAGES * STAGE_SIZE;
            __local storage_bits *q_stage =
                ring + item / KEY_BLOCKS % STAGES * STAGE_SIZE;
            AWAIT_ITEM(item);
#if VARIANT == COSINE
            const measured_rows measured[2] = {
                {k_factors[team], stage + K_PLACE, BLOCK_KEYS, 1.0f},
                {q_factors[team], q_stage + Q_PLACE, BLOCK_ROWS, scale}};
            IF_ALL (block == 0)
                measure_rows(measured, 2, wave_of_team, w);
            IF_ALL (block != 0)
                measure_rows(measured, 1, wave_of_team, w);
            __local const float *key_scale = k_factors[team];
#else
            __local const float *key_scale = 0;
#endif
#if REGIONS_APART
            const int has_seams = HAS_SEAMS(here);
            const int has_new = block == 0 && has_seams &&
                                has_new_regions(&here, &kept_regions);
            if (has_new) {
                DECLARE_REGIONS(regions, args, unit_here, here)
                keep_regions(kept_row_regions[team], kept_key_regions[team],
                             &args, &regions, first_row, lane_of_team);
            }
#endif
#if VARIANT == COSINE
            TEAM_SYNC(team);
#elif REGIONS_APART
            if (EMULATED || has_new)
                TEAM_SYNC(team);
#endif
            TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++) {
                RELOAD_ARGS(forward_args)
                const int tile_here = turn * TEAM_WAVES + wave_of_team;
                const int tile = min(tile_here, ROW_TILES - 1);
                const int rows_left = row_count - tile_here * UNIT_QUERIES;
                if (!EMULATED && (rows_left <= 0 || !here.exists))
                    continue; /* emulated waves have to keep step */
#if STREAMING
                row_state *state = &kept_states[turn];
#elif !CARRIES_BASE
                row_state own_state;
                row_state *state = &own_state;
#endif
                item_rows work = {.rows = {.row = tile * UNIT_QUERIES,
                                           .last_row = row_count - 1,
                                           .first_row = (int)first_row,
                                           .place = here.place},
                                  .key = key,
                                  .count = count,
                                  .q = q_stage + Q_PLACE,
                                  .stage = stage,
                                  .key_scale = key_scale,
                                  .args = &args,
                                  .terms = &terms};
                tile_rows *rows = &work.rows;
#if PADDING == 2
                rows->holds_padding = holds_padding(&args.grid, &here.place);
#endif
#if HAS_OWN_TERMS
                rows->own_terms = own_terms;
#elif HAS_LOCAL_TERMS
                rows->local_terms =
                    kept +
                    (tile * ALL_KEY_TILES + block * KEY_TILES) * TERM_TILE;
#endif
                UNROLL_FOR (int i = 0; i < VALUES; i++) {
                    const int row = min(rows->row + value_query(w->lane, i),
                                        row_count - 1);
                    rows->scale[LANE_ROW(i)] = scale;
#if VARIANT == COSINE
                    rows->scale[LANE_ROW(i)] = q_factors[team][row];
#endif
#if REGIONS_APART
                    rows->region[LANE_ROW(i)] = kept_row_regions[team][row];
#endif
                }
#if REGIONS_APART
                rows->key_regions =
                    has_seams ? kept_key_regions[team] + key : 0;
#endif
#if CARRIES_BASE
                int is_done = 0;
                SEARCH_FOR (int searches = 0; searches < 2; searches++)
                    IF_ALL (!is_done && (searches || RELIES)) {
                        row_state state;
                        wave own = *w;
                        if (searches) {
                            FORGET(own.lane); /* nothing is kept for this */
#if FOLDS_BASE
                            if (RELIES) {
                                DECLARE_KEPT_TERMS(unfolded)
                                LOAD_OWN_TERMS(unfolded);
                            }
#endif
                        }
                        is_done = attend_window(&state, &carried, &work,
                                                searches, &own);
                        IF_ALL (is_done)
                            STORE_ROWS(&state, &own);
                        if (searches) {
                            carry_base(&carried, &state);
                            carried.wary = carried.wary > 0 ? carried.wary - 1
                                                            : WARY_WINDOWS;
                            NOTE_RELIANCE();
#if FOLDS_BASE
                            if (RELIES)
                                fold_base(own_terms, carried.base);
#endif
                        }
                    }
#else
                if (block == 0)
                    start_rows(state, 0);
                attend_item(state, &work, 1, w);
                if (block == KEY_BLOCKS - 1) {
                    finish_sums(state, 1, w);
                    STORE_ROWS(state, w);
                }
#endif
            }
            if ((KEY_BLOCKS == 1 || block == KEY_BLOCKS - 1) &&
                !walk_on(&here, &args, team)) {
                FIND_STORES();
            }
        }
        if (!SHARES_OWNERS)
            break;
        barrier(CLK_LOCAL_MEM_FENCE); /* the next may replace all */
    }
}
