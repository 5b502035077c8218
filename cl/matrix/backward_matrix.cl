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
#include "matrix/fused_keys.cl"
#include "matrix/fused_rows.cl"
#include "matrix/grad_pipeline.cl"
#include "matrix/waves.cl"

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
    __local uint largest_v[TEAMS][2]; /* |v|^2, of this item's, the next's */
#endif
#if REGIONS_APART
    __local uchar kept_row_regions[TEAMS][BLOCK_ROWS];
    __local uchar kept_key_regions[TEAMS][NK];
#endif
#if PADDING == 1
    __local float pad_sums[TEAMS * TEAM_WAVES][2 * DIMS];
#endif
    DECLARE_PADS(pad_rows)
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    DECLARE_WAVE
    __local uchar *own_memory = (__local uchar *)team_memory[team];
    __local ushort *ring = (__local ushort *)own_memory;
    __local float *lse_rows = (__local float *)(own_memory + LSE_PLACE);
#if RESCALES
    /* of dS, of tiles of rows */
    __local float *row_powers = (__local float *)(own_memory + POWER_PLACE);
    __local uint *own_power = (__local uint *)row_powers + wave_of_team;
#else
    __local uint *own_power = 0;
#endif
    const int row_tile = min(wave_of_team, ROW_TILES - 1);
    row_weights weights = {.p = (__local ushort *)(own_memory + WEIGHT_PLACE),
                           .owns = wave_of_team < ROW_TILES};
    weights.ds = weights.p + WEIGHT_PARTS * WEIGHT_SIZE;

    /* what this work-group owns */
    const uint heads_each = forward->heads_per_kv_head;
    const uint kv_heads = forward->heads / heads_each;
    const uint kv_head = (uint)get_group_id(0) % kv_heads;
    const uint slot = (uint)get_group_id(0) / kv_heads;
    const uint first_head = kv_head * heads_each;
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const uint visits = ONE_VISIT ? 1 : heads_each * row_blocks;
    const int wide = (flags & ARG_WIDE_ACCESS) != 0;
    const int known = TAKES_LSE && (flags & ARG_LSE) != 0;
    const int given = O_SERVES && known && (flags & ARG_O) != 0;
    const uint leaves = ARG_DQ | ARG_DK | ARG_DV | ARG_WIDE_ACCESS;
    const int plain =
        !EMULATED && PADDING != 1 &&
        (flags & (leaves | ARG_ADD_DQ | ARG_ADD_DK | ARG_ADD_DV)) == leaves;
    walk here = start_slot(forward, slot, team);
#if KEEPS_TOKENS
    __local kept_token *tables =
        (__local kept_token *)(own_memory + TOKEN_PLACE);
    uint table = 0; /* of the last window that was found */
/* A walk has come to a window, whose tokens are where those of the last are,
 * or else get the next table, for all who pass the team's next barrier. */
#define FIND_TOKENS(walk, alike)                                              \
    if (!(alike)) {                                                           \
        table = table == (TOKEN_TABLES - 1) * NQ ? 0 : table + NQ;            \
        keep_tokens(tables + table, forward, &walk.place, lane_of_team);      \
    }                                                                         \
    walk.place.tokens = tables + table;
    keep_tokens(tables, forward, &here.place, lane_of_team);
    here.place.tokens = tables;
    barrier(CLK_LOCAL_MEM_FENCE);
#else
#define FIND_TOKENS(walk, alike) (void)(alike);
#endif
    const uint items = here.rounds * visits;
    const ulong head_partial = (ulong)slot * forward->heads + first_head;
    __global float *bias_partials =
        workspace + args.bias_partials + head_partial * (NQ * NK);
    __global float *scale_partials =
        workspace + args.scale_partials + head_partial;

    const uint first_key = 0;
    const int key_count = NK;
    walk there = here;
#define COPY_NUMBERS(item)                                                    \
    if (known)                                                                \
    copy_lse(lse_rows + (item) % KEY_STAGES * BLOCK_ROWS,                     \
             lse + plane(&forward->lse, there.place.grid, head),              \
             &forward->lse, &forward->grid, &there.place, first, count, lane)
#define START_COPIES START_VISIT
    KEEP_PADS(pad_rows, *forward, kv_head, item_id)
/* Starts the copies of an item's keys and lse, of the window that a walk is
 * at. */
#define COPY_LATE_KEYS(wide) COPY_KEYS(ring + KEY_STAGE(0), 0, NK, wide)
#define START_KEYS(item, at)                                                  \
    if (LATE_KEYS) {                                                          \
        const walk there = at;                                                \
        const int first = 0, count = NQ;                                      \
        DECLARE_COPIER                                                        \
        const uint head = kv;                                                 \
        if ((item) < items && there.exists) {                                 \
            COPY_WIDE_OR_NOT(COPY_LATE_KEYS)                                  \
            COPY_NUMBERS(item);                                               \
        }                                                                     \
        END_COPIES();                                                         \
    }
    START_RING();
    START_KEYS(0, here)
    clear_pads(ring, lane_of_team);
#if RESCALES && LATE_COPIES
    if (lane_of_team < 2)
        largest_v[team][lane_of_team] = 0;
#endif
    /* rows of weights that no tile of rows has */
    for (int i = lane_of_team; i < 2 * WEIGHT_PARTS * WEIGHT_SIZE / CHUNK;
         i += TEAM)
        ((__local uint4 *)weights.p)[i] = (uint4)(0u);
    KEEP_HEAD_TERMS(first_head, 0)
#if PADDING == 1
    for (int i = w->lane; i < 2 * DIMS; i += WAVE)
        pad_sums[item_id / WAVE][i] = 0.0f;
#endif
#if BIAS && !KEEPS_DBIAS
    if ((flags & ARG_FIRST_LAUNCH) != 0 && (flags & ARG_DBIAS) != 0)
        for (uint i = item_id; i < heads_each * NQ * NK; i += TEAM * TEAMS)
            bias_partials[i] = 0.0f;
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#if BIAS && KEEPS_DBIAS
    float dbias_sums[KEY_TILES][VALUES];
    clear_tiles(dbias_sums, KEY_TILES);
#else
    float dbias_sums[KEY_TILES][VALUES]; /* not used */
#endif
    float scale_sum = 0.0f; /* for d_logit_scale, of a lane's own rows */
#if VARIANT == COSINE
    if (!ONE_VISIT && (flags & ARG_FIRST_LAUNCH) != 0 &&
        (flags & ARG_D_LOGIT_SCALE) != 0 && item_id == 0)
        for (uint i = 0; i < heads_each; i++)
            scale_partials[i] = 0.0f;
#endif
#if VARIANT == COSINE
    const float only_scale = /* of all visits, where they are of one head */
        cosine_scale(forward, logit_scale, first_head);
#endif
#if !ONE_VISIT
    float kept_v[KEY_TURNS][DIM_TILES][VALUES];
    float kept_k[KEY_TURNS][DIM_TILES][VALUES];
    float kept_power = 1.0f; /* that of kept_k */
#endif

    /* o of an item's rows, where they will leave: the waves' rows that leave
     * follow each other */
    __local ushort *o_rows = (__local ushort *)(own_memory + OUT_PLACE);
#define START_O(item)                                                         \
    if (given && (item) < items && here.exists && weights.owns) {             \
        const uint number = ONE_VISIT ? 0 : (item) % visits;                  \
        const uint row =                                                      \
            (BLOCK_ROWS >= NQ ? 0 : number % row_blocks * BLOCK_ROWS) +       \
            row_tile * UNIT_QUERIES;                                          \
        copy_o(o_rows + wave_of_team * OUT_SIZE,                              \
               o + plane(&forward->o, here.place.grid,                        \
                         first_head + number / row_blocks),                   \
               forward, &here.place, row, (int)NQ - (int)row, wide, w);       \
    }                                                                         \
    if (LATE_COPIES) {                                                        \
        END_COPIES();                                                         \
    }
    START_O(0)

    DECLARE_KEPT_REGIONS
    for (uint item = 0; item < items; item++) {
        FORGET_LANE(lane_of_team);
        RELOAD_BACKWARD_ARGS
#if ONE_VISIT /* what is copied next: found anew, for fewer registers */
        walk there = here;
        if (STAGES > 1) {
            const int alike = walk_on(&there, forward, team);
            FIND_TOKENS(there, alike)
        }
#endif
        FORGET_LANE(wave_here.lane);
        const uint number = ONE_VISIT ? 0 : item % visits;
        __local const ushort *stage = ring + item % STAGES * STAGE_SIZE;
        __local const ushort *key_stage =
            ring + KEY_STAGE(item / visits % STAGES);
        visit now = {.args = &args,
                     .at = &here,
                     .head = first_head + number / row_blocks,
                     .first_row = BLOCK_ROWS >= NQ
                                      ? 0
                                      : number % row_blocks * BLOCK_ROWS,
                     .key_count = NK,
                     .is_last = number + 1 == visits,
                     .plain = plain,
                     .scale = forward->scale,
                     .power = 1.0f,
                     .q = stage + Q_PLACE,
                     .d_o = stage + D_O_PLACE,
                     .k = key_stage + K_PLACE,
                     .v = key_stage + V_PLACE,
                     .lse = lse_rows + item % KEY_STAGES * BLOCK_ROWS,
                     .out = o_rows + wave_of_team * OUT_SIZE};
        now.row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - now.first_row);
#if VARIANT == COSINE
        now.scale = ONE_VISIT ? only_scale
                              : cosine_scale(forward, logit_scale, now.head);
        now.q_inverses = q_inverses[team];
        now.k_inverses = k_inverses[team];
#endif
        const unit unit_here = {.window = window_of(&here, forward),
                                .head = now.head,
                                .row = now.first_row};
        DECLARE_ITEM_TERMS(0)
        AWAIT_ITEM(item);
        int meets = VARIANT == COSINE; /* the team, once more */
#if RESCALES && LATE_COPIES
        meets |= given;
        if (given && lane_of_team == 0)
            largest_v[team][(item + 1) % 2] = 0;
        IF_ALL (given)
            measure_values(&largest_v[team][item % 2], now.v, wave_of_team,
                           own_power, w);
#endif
#if VARIANT == COSINE
        const measured_rows measured[2] = {
            {q_inverses[team], now.q, BLOCK_ROWS, 1.0f},
            {k_inverses[team], now.k, BLOCK_KEYS, 1.0f}};
        IF_ALL (number == 0)
            measure_rows(measured, 2, wave_of_team, w);
        IF_ALL (number != 0)
            measure_rows(measured, 1, wave_of_team, w);
#endif
#if REGIONS_APART
        const int has_seams = HAS_SEAMS(here);
        const int has_new = has_seams && has_new_regions(&here, &kept_regions);
        meets |= has_new;
        if (has_new) {
            DECLARE_REGIONS(regions, *forward, unit_here, here)
            keep_regions(kept_row_regions[team], kept_key_regions[team],
                         forward, &regions, 0, lane_of_team);
        }
#endif
        if (EMULATED || meets)
            TEAM_SYNC(team);

        /* 1. tiles of rows; waves without one wait */
        const int computes = EMULATED || (here.exists && weights.owns);
        row_part part = {.rows = {.row = row_tile * UNIT_QUERIES,
                                  .last_row = now.row_count - 1,
                                  .first_row = (int)now.first_row,
                                  .place = here.place}};
        part.count =
            here.exists && weights.owns ? now.row_count - part.rows.row : 0;
#if PADDING == 2
        part.rows.holds_padding = holds_padding(&forward->grid, &here.place);
#endif
#if HAS_LOCAL_TERMS
        part.rows.local_terms = kept + row_tile * KEY_TILES * TERM_TILE;
#endif
#if REGIONS_APART
        part.rows.key_regions = has_seams ? kept_key_regions[team] : 0;
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            part.rows.region[r] = kept_row_regions[team][min(
                part.rows.row + lane_query(w->lane, r), now.row_count - 1)];
#endif
        float scores[PASS_TILES][VALUES];
        row_statistics statistics;
        if (computes) {
            read_rows(&part, &now, d_lse, w);
            const int takes_lse = known && !exceeds_lse(&part, w);
            start_statistics(&statistics, given || takes_lse, part.lse);
            IF_ALL (!given) {
                add_statistics(&statistics, scores, &part, &now, &terms,
                               takes_lse, w);
                finish_statistics(&statistics, &part, takes_lse, w);
                if (PASSES == 1 && !takes_lse)
                    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
                        UNROLL_FOR (int i = 0; i < VALUES; i++)
                            scores[t][i] *= statistics.sum[LANE_ROW(i)];
            }
            IF_ALL (given) {
#if STAGES > 1 /* else all copies are there */
                AWAIT_COPIES(1);
                WAVE_SYNC();
#endif
                take_delta(&statistics, &part, &now, o_rows, w);
#if RESCALES && LATE_COPIES
                /* |dP| is at most |dO| |v| */
                float square[LANE_ROWS];
                multiply_rows(square, now.d_o, now.d_o, &part, w);
                UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                    statistics.flow[r] =
                        sqrt(square[r] * as_float(largest_v[team][item % 2]));
#endif
            }
        }
#if BIAS
        const dbias_place dbias = {
            .sums = dbias_sums,
            .workspace = bias_partials +
                         (ulong)(now.head - first_head) * (NQ * NK) +
                         now.first_row * NK,
            .keys = NK};
#else
        const dbias_place dbias = {.workspace = 0};
#endif
        if (computes)
            differentiate_rows(scores, &dbias, dq, &scale_sum, &statistics,
                               &part, &now, &terms, &weights, given, own_power,
                               w);
        TEAM_SYNC(team); /* P and dS are there */
#if LATE_KEYS
        walk next = here;
        walk_on(&next, forward, team);
        FIND_TOKENS(next, 1)
        START_KEYS(item + 1, next)
#endif
#if RESCALES
        __local const float *powers = row_powers;
        now.power = powers[0];
#if !ONE_VISIT
        now.power = number == 0 ? powers[0] : kept_power;
#endif
        UNROLL_FOR (int t = 0; t < ROW_TILES; t++)
            now.power = fmin(now.power, powers[t]);
#else
        __local const float *powers = 0;
#endif

        /* 2. tiles of keys */
        KEY_FOR (int turn = 0; turn < KEY_TURNS; turn++) {
            const int job = turn * TEAM_WAVES + wave_of_team;
            const int tile = job / STRIPES_AT_ONCE * STRIPES_AT_ONCE;
            const int key =
                min(tile, KEY_STRIPES - STRIPES_AT_ONCE) * UNIT_QUERIES;
            const int count = here.exists ? NK - tile * UNIT_QUERIES : 0;
#if PADDING == 1
            __local float *pads = pad_sums[item_id / WAVE];
#else
            __local float *pads = 0;
#endif
            if (!EMULATED && count <= 0)
                continue;
#if ONE_VISIT
            CHANNEL_FOR(int first = 0; first < DIM_TILES;
                        first += KEY_SUM_TILES)
            {
                float sums[2][KEY_SUM_TILES][VALUES];
                clear_tiles(sums[0], KEY_SUM_TILES);
                clear_tiles(sums[1], KEY_SUM_TILES);
#if ONE_GRADIENT
                /* teams differ, or a compute unit's waves of the same number
                 * would all have the one that takes more */
                const int is_dk = (job + team) % 2;
                const int count_v = is_dk ? 0 : count;
                const int count_k = is_dk ? count : 0;
                IF_ALL (EMULATED || !is_dk) {
                    add_across(sums, 2, weights.p, key, now.d_o, first,
                               now.row_count, 0, 0, 1.0f, w);
                    leave_dv(sums[0], KEY_SUM_TILES, key, count_v, first, dv,
                             kv_head, pads, &now, w);
                    leave_dv(sums[1], KEY_SUM_TILES, key + UNIT_QUERIES,
                             count_v - UNIT_QUERIES, first, dv, kv_head, pads,
                             &now, w);
                }
                IF_ALL (EMULATED || is_dk) {
                    clear_tiles(sums[0], KEY_SUM_TILES);
                    clear_tiles(sums[1], KEY_SUM_TILES);
                    add_across(sums, 2, weights.ds, key, now.q, first,
                               now.row_count, 1, powers, now.power, w);
                    leave_dk(sums[0], KEY_SUM_TILES, key, count_k, first, dk,
                             kv_head, pads, &now, w);
                    leave_dk(sums[1], KEY_SUM_TILES, key + UNIT_QUERIES,
                             count_k - UNIT_QUERIES, first, dk, kv_head, pads,
                             &now, w);
                }
#else
                add_across(&sums[0], 1, weights.p, key, now.d_o, first,
                           now.row_count, 0, 0, 1.0f, w);
                add_across(&sums[1], 1, weights.ds, key, now.q, first,
                           now.row_count, 1, powers, now.power, w);
                leave_dv(sums[0], KEY_SUM_TILES, key, count, first, dv,
                         kv_head, pads, &now, w);
                leave_dk(sums[1], KEY_SUM_TILES, key, count, first, dk,
                         kv_head, pads, &now, w);
#endif
            }
#else
            const float keep = now.power * inverse_power(kept_power);
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
                UNROLL_FOR (int i = 0; i < VALUES; i++) {
                    kept_v[turn][d][i] =
                        number == 0 ? 0.0f : kept_v[turn][d][i];
                    kept_k[turn][d][i] =
                        number == 0 ? 0.0f : kept_k[turn][d][i] * keep;
                }
            add_across(&kept_v[turn], 1, weights.p, key, now.d_o, 0,
                       now.row_count, 0, 0, 1.0f, w);
            add_across(&kept_k[turn], 1, weights.ds, key, now.q, 0,
                       now.row_count, 1, powers, now.power, w);
            if (now.is_last) {
                leave_dv(kept_v[turn], DIM_TILES, key, count, 0, dv, kv_head,
                         pads, &now, w);
                leave_dk(kept_k[turn], DIM_TILES, key, count, 0, dk, kv_head,
                         pads, &now, w);
            }
#endif
        }
#if !ONE_VISIT
        kept_power = now.power;
#if VARIANT == COSINE
        const float sum =
            sum_over_group(scale_sum, lane_sums, item_id, TEAM * TEAMS);
        scale_sum = 0.0f;
        if (item_id == 0 && (flags & ARG_D_LOGIT_SCALE) != 0)
            scale_partials[now.head - first_head] +=
                scale_gradient(forward, logit_scale, now.head, sum);
#endif
#endif
        if (now.is_last) {
            const int alike = walk_on(&here, forward, team);
            FIND_TOKENS(here, STAGES > 1 || alike)
        }
        START_O(item + 1)
    }

    barrier(CLK_LOCAL_MEM_FENCE);
#if BIAS && KEEPS_DBIAS
    if ((flags & ARG_DBIAS) != 0)
        store_dbias(dbias_sums, KEY_TILES, (__local float *)team_memory,
                    bias_partials, team, row_tile, 0, NQ, weights.owns, flags,
                    w);
#endif
#if VARIANT == COSINE && ONE_VISIT
    const float sum =
        sum_over_group(scale_sum, lane_sums, item_id, TEAM * TEAMS);
    if (item_id == 0 && (flags & ARG_D_LOGIT_SCALE) != 0)
        add_partial(scale_partials,
                    scale_gradient(forward, logit_scale, first_head, sum),
                    flags);
#endif
#if PADDING == 1
    store_pad_sums(pad_sums, workspace, &args,
                   (ulong)slot * kv_heads + kv_head, 1, 1, item_id);
#endif
}
