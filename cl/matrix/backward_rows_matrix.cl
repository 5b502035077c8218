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
#include "matrix/grad_pipeline.cl"
#include "matrix/split_rows.cl"
#include "matrix/waves.cl"

REQUIRE(KEEPS_DBIAS)

/* ---- Macros of this kernel, which use what its function declares ---- */

/* Starts the copies of rows of a plane of a head, in a kernel's START_COPIES:
 * `number` of four of which each may have a wave of its own, whose lanes then
 * count from 0. */
#define COPY_LANE (ONE_WAVE_PER_TENSOR ? lane & (WAVE - 1) : lane)
#define COPY(number, to, name, layout, head, pad, first, count, rows, wide)   \
    if (!ONE_WAVE_PER_TENSOR || lane / COPIERS == (number))                   \
    copy_rows(to, name + plane(&(layout), there.coord.grid, head),            \
              chunk_of(&(layout), COPY_LANE), &(layout), &forward->grid,      \
              &there.coord, pad, first, count, rows, COPY_LANE, wide)
/* `count` keys of head kv, from `first` on. */
#define COPY_KEYS(to, first, count, wide)                                     \
    COPY(2, (to) + K_OFFSET, k, forward->k, kv, KEPT_PAD(pad_rows, 0), first, \
         count, BLOCK_KEYS, wide);                                            \
    COPY(3, (to) + V_OFFSET, v, forward->v, kv, KEPT_PAD(pad_rows, 1), first, \
         count, BLOCK_KEYS, wide)
/* `count` rows of q and dO of a head, from `first` on. */
#define COPY_ROWS(to, first, count, wide)                                     \
    COPY(0, (to) + Q_OFFSET, q, forward->q, head, 0, first, count,            \
         BLOCK_ROWS, wide);                                                   \
    COPY(1, (to) + D_O_OFFSET, d_o, args.d_o, head, 0, first, count,          \
         BLOCK_ROWS, wide)
/* A KV block; with the first of a window, its rows. */
#if O_SERVES
#define COPY_O(wide)                                                          \
    if (has_o_lse)                                                            \
    COPY(0, rows_to + O_OFFSET, o, forward->o, head, 0, first_row, row_count, \
         BLOCK_ROWS, wide)
#else
#define COPY_O(wide)
#endif
#define COPY_KV_BLOCK(wide)                                                   \
    if (number == 0) {                                                        \
        COPY_ROWS(rows_to, first_row, row_count, wide);                       \
        COPY_O(wide);                                                         \
    }                                                                         \
    COPY_KEYS(to, key, keys, wide)
/* One branch for all of them: copy(wide). */
#define COPY_WIDE_OR_NOT(copy)                                                \
    if (wide) {                                                               \
        copy(1);                                                              \
    } else {                                                                  \
        copy(0);                                                              \
    }

/* Terms of logits in a kernel: at the start those of the head, for rows from
 * `first` on; and, as `score_bias`, a KV block's. */
#if MASK_IN_LOCAL
#define CACHE_HEAD_SCORE_BIAS(of_head, first)                                 \
    uint cached_mask_class = ~0u; /* of windows whose bias is cached */
#elif HAS_LOCAL_BIAS_CACHE
#define CACHE_HEAD_SCORE_BIAS(of_head, first)                                 \
    const work_tile head_work_tile = {.window = forward->first_window,        \
                                      .head = of_head};                       \
    DECLARE_SCORE_BIAS(head_score_bias, *forward, head_work_tile)             \
    cache_score_bias(bias_cache, forward, &head_score_bias, first, local_id);
#else
#define CACHE_HEAD_SCORE_BIAS(of_head, first)
#endif
#if MASK_IN_LOCAL /* all teams have windows of the same mask class */
#define DECLARE_BLOCK_SCORE_BIAS(first)                                       \
    const score_bias_view score_bias = {.unused = 0};                         \
    const uint mask_class = MASK_CLASS(here);                                 \
    IF_ALL (mask_class != cached_mask_class) {                                \
        DECLARE_SCORE_BIAS(new_score_bias, *forward, work_tile_here)          \
        cached_mask_class = mask_class;                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        cache_score_bias(bias_cache, forward, &new_score_bias, first,         \
                         local_id);                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
    }
#elif HAS_BIAS_CACHE
#define DECLARE_BLOCK_SCORE_BIAS(first)                                       \
    const score_bias_view score_bias = {.unused = 0};
#else
#define DECLARE_BLOCK_SCORE_BIAS(first)                                       \
    DECLARE_SCORE_BIAS(score_bias, *forward, work_tile_here)
#endif

/* For RELOAD_ARGS in these kernels, which call args.forward forward. */
#if !EMULATED && AMD_UNIT
#define RELOAD_BACKWARD_ARGS                                                  \
    RELOAD_ARGS(backward_args, reloaded, 0)                                   \
    const backward_args args = *reloaded;                                     \
    const forward_args *forward = &args.forward;
#else
#define RELOAD_BACKWARD_ARGS const forward_args *forward = &args.forward;
#endif

#define DECLARE_WAVE                                                          \
    DECLARE_EXCHANGES(exchanges)                                              \
    const work_item me = this_work_item();                                    \
    const int local_id = me.id;                                               \
    const int team = me.team;                                                 \
    int lane_of_team = me.lane;                                               \
    const int wave_of_team = me.wave;                                         \
    wave wave_here = wave_of(&me, exchanges);                                 \
    const wave *w = &wave_here;

__kernel __attribute__((reqd_work_group_size(TEAM * WINDOWS_PER_GROUP, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_rows_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
#if BIAS && KEEPS_DBIAS == 2
    __local float4 dbias_kept[ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS / 4];
#endif
#if SPLITS > 1
    __local float split_sums[WINDOWS_PER_GROUP][ROW_TILES]
                            [(SPLITS - 1) * DIM_TILES * TILE_ELEMENTS];
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
    __local uint
        bounds[WINDOWS_PER_GROUP][2][KEY_BOUNDS]; /* this step's, the next's */
#endif
#if O_SERVES && STREAMING
    __local int errors_show; /* in a tile of rows */
#endif
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    DECLARE_PADS(pad_rows)
    DECLARE_WAVE
    __local ushort *ring = (__local ushort *)rings[team];

    /* what this work-group owns */
    const uint head_blocks = forward->heads * forward->row_blocks;
    const uint head_block = (uint)get_group_id(0) % head_blocks;
    const uint window_split = (uint)get_group_id(0) / head_blocks;
    const uint own_head = head_block / forward->row_blocks;
    const uint row_block =
        BLOCK_ROWS >= NQ ? 0 : head_block % forward->row_blocks;
    const uint first_row = row_block * BLOCK_ROWS;
    const int row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first_row);
    const int wide = (flags & ARG_WIDE_ACCESS) != 0;
    const int has_lse = TAKES_LSE && (flags & ARG_LSE) != 0;
    const int differentiates =
        (flags & (ARG_DQ | ARG_DBIAS | ARG_D_LOGIT_SCALE)) != 0;
    /* only gradients tell how far that delta is off */
    const int has_o_lse =
        O_SERVES && has_lse && (flags & ARG_O) != 0 && differentiates;
    tile_scheduler here = start_split(forward, window_split, team);
    /* KV blocks of a window: all keys for statistics, all for gradients */
    const uint sums_first = STREAMING && !has_o_lse ? KEY_BLOCKS : 0;
    const uint window_steps = sums_first + KEY_BLOCKS;
    uint steps = here.rounds * window_steps;
    const ulong head_partial = (ulong)window_split * forward->heads + own_head;
    __global float *bias_partial = workspace + args.bias_partials +
                                   (head_partial * NQ + first_row) * (ulong)NK;

    /* Starts the copies of one KV block; after the last of a window, goes to
     * the next. Where things lie is found anew each time: registers are worth
     * more. */
    tile_scheduler there = here;
    /* which KV block of which window is copied next, where a window has
     * several */
#if STREAMING
    uint number_there = 0, window_there = 0;
#define NUMBER_THERE(step) number_there
#define WINDOW_THERE(step) window_there
#define STEP_THERE(is_last)                                                   \
    number_there = (is_last) ? 0 : number_there + 1;                          \
    window_there += (is_last)
#else
#define NUMBER_THERE(step) 0
#define WINDOW_THERE(step) (step)
#define STEP_THERE(is_last)
#endif
#define START_COPIES(step)                                                    \
    if ((step) < steps) {                                                     \
        const uint number = NUMBER_THERE(step);                               \
        const uint window_stage = WINDOW_THERE(step) % STAGES;                \
        const uint key = number % KEY_BLOCKS * BLOCK_KEYS;                    \
        const int keys = (int)min((uint)BLOCK_KEYS, (uint)NK - key);          \
        __local ushort *to = ring + (step) % STAGES * STAGE_SIZE;             \
        __local ushort *rows_to = ring + window_stage * STAGE_SIZE;           \
        int lane = lane_of_team;                                              \
        uint head = own_head;                                                 \
        HIDE_FROM_OPTIMIZER(lane);                                            \
        HIDE_FROM_OPTIMIZER(head);                                            \
        const uint kv = head / forward->heads_per_kv_head;                    \
        if (there.exists) {                                                   \
            COPY_WIDE_OR_NOT(COPY_KV_BLOCK)                                   \
        }                                                                     \
        if (there.exists && number == 0 && has_lse)                           \
            copy_lse(lse_rows[team][window_stage],                            \
                     lse + plane(&forward->lse, there.coord.grid, head),      \
                     &forward->lse, &forward->grid, &there.coord, first_row,  \
                     row_count, lane);                                        \
        if (number + 1 == window_steps)                                       \
            next_window(&there, forward, team);                               \
        STEP_THERE(number + 1 == window_steps);                               \
    }                                                                         \
    END_COPIES()
#if PADDING == 1
    const uint own_kv_head = own_head / forward->heads_per_kv_head;
    keep_pads(pad_rows, PAD_ROW(*forward, pad_k, ARG_PAD_K, own_kv_head),
              PAD_ROW(*forward, pad_v, ARG_PAD_V, own_kv_head), forward,
              local_id);
#endif
    for (uint ahead = 0; ahead + 1 < STAGES; ahead++) {
        START_COPIES(ahead);
    }
    clear_pads(ring, lane_of_team);
    CACHE_HEAD_SCORE_BIAS(own_head, first_row)
#if RESCALES
    if (lane_of_team < 2 * KEY_BOUNDS)
        bounds[team][lane_of_team / KEY_BOUNDS][lane_of_team % KEY_BOUNDS] = 0;
#endif
#if BIAS && !KEEPS_DBIAS
    if ((flags & ARG_FIRST_LAUNCH) != 0 && (flags & ARG_DBIAS) != 0)
        for (int i = local_id; i < row_count * NK;
             i += TEAM * WINDOWS_PER_GROUP)
            bias_partial[i] = 0.0f;
    barrier(CLK_GLOBAL_MEM_FENCE);
#elif BIAS && KEEPS_DBIAS == 2
    for (int i = local_id; i < ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS / 4;
         i += TEAM * WINDOWS_PER_GROUP)
        dbias_kept[i] = (float4)(0.0f);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#if BIAS && KEEPS_DBIAS == 1
    float dbias_sums[SHARE_TILES][ACC_PER_LANE];
    clear_tiles(dbias_sums, SHARE_TILES);
#endif
    float scale_sum = 0.0f; /* for d_logit_scale, of a lane's own rows */
    /* these live from KV block to KV block where keys stream */
    row_state state;
    float dq_sums[DIM_TILES][ACC_PER_LANE];

#if COMPARES_REGIONS
    const score_bias_tensors tensors = {BIAS_TENSORS MASK_TENSORS.unused = 0};
    uint kept_regions = ~0u; /* whose windows' regions are kept */
#endif
    /* the block's number in its window, and the window's; mends: the window's
     * keys have come again */
    uint number = 0, window_here = 0;
    int mends = 0;
    for (uint step = 0; step < steps; step++) {
        HIDE_LANE(lane_of_team);
        RELOAD_BACKWARD_ARGS
        HIDE_LANE(wave_here.lane);
        const uint window_stage = (STREAMING ? window_here : step) % STAGES;
        const uint block = number % KEY_BLOCKS;
        int comes_again = 0;                  /* do the window's keys? */
        const int sums = number < sums_first; /* statistics only */
        const int is_last = number + 1 == window_steps;
        __local const ushort *stage = ring + step % STAGES * STAGE_SIZE;
        __local const ushort *row_stage = ring + window_stage * STAGE_SIZE;
        q_block now = {.args = &args,
                       .at = &here,
                       .head = own_head,
                       .first_row = first_row,
                       .first_key = block * BLOCK_KEYS,
                       .row_count = row_count,
                       .is_last = is_last,
                       .scale = forward->scale,
                       .ds_scale = 1.0f,
                       .q = row_stage + Q_OFFSET,
                       .d_o = row_stage + D_O_OFFSET,
                       .k = stage + K_OFFSET,
                       .v = stage + V_OFFSET,
                       .lse = lse_rows[team][window_stage],
                       .out = (__local ushort *)out_staging[local_id / WAVE]};
        now.key_count = min(BLOCK_KEYS, (int)NK - (int)now.first_key);
#if VARIANT == COSINE
        now.scale = cosine_scale(forward, logit_scale, own_head);
        now.q_inverses = q_inverses[team];
        now.k_inverses = k_inverses[team];
#endif
        const work_tile work_tile_here = {.window = window_of(&here, forward),
                                          .head = own_head,
                                          .row = first_row};
        DECLARE_BLOCK_SCORE_BIAS(first_row)
        await_stage(team);
        START_COPIES(step + STAGES - 1);
        await_copies(team);
        int meets = VARIANT == COSINE; /* the team, once more */
#if O_SERVES && STREAMING
        if (lane_of_team == 0 && block == 0)
            errors_show = 0;
#endif
#if RESCALES
        if (lane_of_team < KEY_BOUNDS)
            bounds[team][(step + 1) % 2][lane_of_team] = 0;
        meets |= has_o_lse;
#endif
#if VARIANT == COSINE || RESCALES
        IF_ALL (meets)
            measure_keys((__local float *)now.k_inverses, BOUNDS_OF(step),
                         now.k, now.v, has_o_lse, wave_of_team, w);
#endif
#if VARIANT == COSINE
        IF_ALL (number == 0) {
            const measured_rows measured = {q_inverses[team], now.q,
                                            BLOCK_ROWS, 1.0f};
            measure_rows(&measured, 1, wave_of_team, w);
        }
#endif
#if COMPARES_REGIONS
        const int has_shift_boundary = HAS_SHIFT_BOUNDARY(here);
        const int has_new = number == 0 && has_shift_boundary &&
                            has_new_regions(&here, &kept_regions);
        if (has_new) {
            const score_bias_view regions =
                score_bias_at(&tensors, forward, work_tile_here, &here.coord);
            keep_regions(kept_row_regions[team], kept_key_regions[team],
                         forward, &regions, first_row, lane_of_team);
        }
        meets |= has_new;
#endif
        if (EMULATED || meets)
            TEAM_SYNC(team);

        NO_UNROLL_FOR (int turn = 0; turn < WAVE_TURNS; turn++) {
            const int tile_here = SPLITS > 1
                                      ? wave_of_team % ROW_TILES
                                      : turn * WAVES_PER_WINDOW + wave_of_team;
            const int tile = min(tile_here, ROW_TILES - 1);
            const int split = SPLITS > 1 ? wave_of_team / ROW_TILES : 0;
            row_part part = {.rows = {.row = tile * TILE_M,
                                      .last_row = row_count - 1,
                                      .first_row = (int)first_row,
                                      .coord = here.coord}};
            part.count = here.exists ? row_count - tile_here * TILE_M : 0;
            /* emulated waves have to keep step; who shares rows must meet */
            const int computes = EMULATED || part.count > 0;
            if (SPLITS == 1 && !computes && !(O_SERVES && STREAMING))
                continue;
#if PADDING == 2
            part.rows.holds_padding =
                holds_padding(&forward->grid, &here.coord);
#endif
#if HAS_LOCAL_BIAS_CACHE
            part.rows.local_score_bias =
                bias_cache +
                (tile * ALL_KEY_TILES + block * KEY_TILES) * TILE_ELEMENTS;
#endif
#if COMPARES_REGIONS
            part.rows.key_regions =
                has_shift_boundary ? kept_key_regions[team] + now.first_key
                                   : 0;
            UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                part.rows.region[r] = kept_row_regions[team][min(
                    part.rows.row + lane_query(w->lane, r), row_count - 1)];
#endif
            read_rows(&part, &now, d_lse, w);
#if O_SERVES
            IF_ALL (computes && has_o_lse && block == 0 && !mends)
                take_statistics(&state, &part, &now, row_stage + O_OFFSET, w);
#if RESCALES
            if (has_o_lse)
                bound_dp(&state, BOUNDS_OF(step));
#endif
#endif
            IF_ALL (computes && !has_o_lse && (!STREAMING || sums)) {
                float scores[TILES_PER_SUBTILE][ACC_PER_LANE];
                IF_ALL (block == 0) {
                    state.takes_lse = lse_serves(has_lse, &part, w);
                    start_statistics(&state.statistics, state.takes_lse,
                                     part.lse);
                }
#if RESCALES && VARIANT == COSINE
                bound_inverses(&state.statistics, &now, w);
#endif
                add_statistics(&state.statistics, scores, &part, &now,
                               &score_bias, state.takes_lse, w);
                IF_ALL (block == KEY_BLOCKS - 1) {
                    finish_statistics(&state.statistics, &part,
                                      state.takes_lse, w);
#if RESCALES
                    join_bounds(&state.statistics, w);
#endif
                }
            }
            /* the wave's share of the block, as if that were all */
            const int first = split * SHARE_TILES;
            q_block share = now;
            row_part own = part;
            share.k += first * TILE_N * PITCH;
            share.v += first * TILE_N * PITCH;
            share.k_inverses += first * TILE_N;
            share.first_key += first * TILE_N;
            share.key_count -= first * TILE_N;
#if HAS_LOCAL_BIAS_CACHE
            own.rows.local_score_bias =
                (__local const cached_bias *)part.rows.local_score_bias +
                first * TILE_ELEMENTS;
#endif
            if (COMPARES_REGIONS && own.rows.key_regions)
                own.rows.key_regions += first * TILE_N;
            const dbias_target dbias = {
#if BIAS && KEEPS_DBIAS == 1
                .sums = dbias_sums,
#elif BIAS && KEEPS_DBIAS == 2
                .kept = dbias_kept + (tile * ALL_KEY_TILES +
                                      (int)block * KEY_TILES + first) *
                                         TILE_ELEMENTS / 4,
#endif
                .workspace = bias_partial + share.first_key,
                .keys = (int)NK - (int)share.first_key
            };
#define DIFFERENTIATE(may_be_large, mends)                                    \
    differentiate_rows(&state, dq_sums, &dbias, may_be_large, mends, &own,    \
                       &share, &score_bias, w)
            IF_ALL (computes && !sums) {
                IF_ALL (block == 0 && !mends)
                    find_large(&state, &now, w);
                choose_ds_scales(&state, dq_sums, block == 0 && !mends);
            }
            IF_ALL (computes && !sums) {
#if EMULATED /* waves have to keep step */
                DIFFERENTIATE(1, mends);
#else
                if (O_SERVES && STREAMING && mends)
                    DIFFERENTIATE(1, 1);
                else if (differentiates && state.large)
                    DIFFERENTIATE(1, 0);
                else if (differentiates)
                    DIFFERENTIATE(0, 0);
#endif
            }
#if O_SERVES
            IF_ALL (differentiates && is_last && has_o_lse && !mends) {
                float expected[LANE_ROWS];
                IF_ALL (!computes)
                    clear_errors(&state.errors);
                expect_sums(expected, &state, &part);
                reduce_errors(&state.errors, w);
#if SPLITS > 1
                join_errors(&state.errors,
                            out_staging + team * WAVES_PER_WINDOW + tile,
                            split, team, w);
#endif
                find_errors(&state.errors, &part, expected);
                /* by the first of who share rows; emulated waves keep step */
                const int takes_mean = computes && (EMULATED || split == 0);
                float of_dq[LANE_ROWS];
                UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                    of_dq[r] = split == 0 ? state.errors.sum[r] : 0.0f;
                IF_ALL (takes_mean)
                    take_mean_key(dq_sums, of_dq, &now, w);
                int shows = errors_count(&state.errors,
                                         SCRATCH_OF_ERRORS(now.out), w) &&
                            computes;
#if STREAMING
                if (shows && w->lane == 0)
                    errors_show = 1;
                TEAM_SYNC(team);
                shows = comes_again = errors_show;
#else
                IF_ALL (shows)
                    DIFFERENTIATE(1, 1);
#endif
                IF_ALL (takes_mean && shows) {
                    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                        of_dq[r] = -of_dq[r];
                    take_mean_key(dq_sums, of_dq, &now, w);
                }
            }
#endif
            IF_ALL (is_last && !comes_again) {
#if SPLITS > 1
                add_splits(dq_sums, split_sums[team][tile], split, team, w);
                part.count = split == 0 ? part.count : 0;
#endif
                if (EMULATED || part.count > 0) {
#if O_SERVES
                    if (has_o_lse)
                        mend_delta(&state);
#endif
                    store_dq(&state, dq_sums, dq, &scale_sum, &part, &now, w);
                    store_statistics(
                        &state,
                        workspace + args.workspace +
                            (((ulong)here.window * forward->heads + own_head) *
                                 NQ +
                             first_row + part.rows.row) *
                                ROW_NUMBERS,
                        &part, &now, w);
                }
            }
        }
#if STREAMING
#if O_SERVES
        IF_ALL (comes_again) { /* in place of what was copied ahead */
            AWAIT_COPIES(0);
            TEAM_SYNC(team);
            there = here;
            number_there = 0;
            window_there = window_here;
            steps += KEY_BLOCKS;
            for (uint ahead = 1; ahead < STAGES; ahead++) {
                START_COPIES(step + ahead);
            }
        }
#endif
        number = is_last ? 0 : number + 1;
        window_here += is_last && !comes_again;
        mends = is_last ? comes_again : mends;
#endif
        if (is_last && !comes_again)
            next_window(&here, forward, team);
    }

    barrier(CLK_LOCAL_MEM_FENCE);
#if BIAS && KEEPS_DBIAS == 1
    IF_ALL ((flags & ARG_DBIAS) != 0)
        store_dbias(dbias_sums, SHARE_TILES, (__local float *)rings,
                    bias_partial, team, wave_of_team % ROW_TILES,
                    wave_of_team / ROW_TILES * SHARE_TILES, row_count,
                    wave_of_team < SPLITS * ROW_TILES, flags, w);
#elif BIAS && KEEPS_DBIAS == 2
    for (int tile = wave_of_team;
         tile < ((flags & ARG_DBIAS) != 0 ? ROW_TILES * ALL_KEY_TILES : 0);
         tile += WAVES_PER_WINDOW) {
        float own[ACC_PER_LANE];
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 4) {
            const float4 x =
                dbias_kept[(tile * TILE_ELEMENTS + i * WAVE) / 4 + w->lane];
            own[i] = x.x;
            own[i + 1] = x.y;
            own[i + 2] = x.z;
            own[i + 3] = x.w;
        }
        store_dbias_tile(own, bias_partial, tile / ALL_KEY_TILES * TILE_M,
                         row_count, tile % ALL_KEY_TILES, flags, w);
    }
#endif
#if VARIANT == COSINE
    const float sum = sum_over_group(scale_sum, lane_sums, local_id,
                                     TEAM * WINDOWS_PER_GROUP);
    if (local_id == 0 && (flags & ARG_D_LOGIT_SCALE) != 0)
        add_partial(
            workspace + args.scale_partials +
                ((ulong)window_split * forward->row_blocks + row_block) *
                    forward->heads +
                own_head,
            scale_gradient(forward, logit_scale, own_head, sum), flags);
#endif
}
