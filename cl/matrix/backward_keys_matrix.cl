/* SPDX-License-Identifier: Apache-2.0
 * Backward pass on a matrix unit, behind backward_rows_matrix.cl: what
 * concerns keys. Tiles are the other way round (KEYS_DOWN of geometry.cl).
 *
 *                     rows, BLOCK_ROWS at a time
 *                +-----------+
 *     K  Q^T ->  |    P^T    |  a wave's tile  ->  dV += P^T dO
 *     V  dO^T -> |    dP^T   |  of keys            dK += scale dS^T Q
 *                |    dS^T   |
 *                +-----------+
 *
 * A work-group owns one block of keys of one key head and walks windows; each
 * wave has one tile of keys, whose dK and dV it sums in registers. P^T and
 * dS^T go from registers to products. An item of the ring is a visit: a block
 * of rows of a query head of the group, and what backward_rows_matrix.cl left
 * of each in the workspace; the first of a window brings the keys.
 *
 *   APART  1: dV and dK are so many sums that a work-group makes only one of
 *             them, and another the other
 *
 * Whose rows of dK and dV nobody stores (padding) may be anything. */
#include "matrix/grad_epilogue.cl"
#include "matrix/grad_pipeline.cl"
#include "matrix/grad_sums.cl"
#include "matrix/waves.cl"

#ifndef APART
#define APART 0
#endif
/* What a wave sums: dV and dK, or one of them. */
#define GRADIENTS (APART ? 1 : 2)
/* Tiles of keys, one for each wave at least. */
#define OWN_TILE min(wave_of_team, ROW_TILES - 1)

/* What is known of a row. */
INLINE float4 row_numbers(__local const float *rows, int row)
{
    return *(__local const float4 *)(rows + row * ROW_NUMBERS);
}

/* Of the rows of a visit: the largest bound of |dS|, and whether an lse is
 * large. */
INLINE float bound_of_rows(__local const float *rows, int count, int *large)
{
    float bound = 0.0f;
    *large = 0;
    for (int i = 0; i < count; i += UNIT_QUERIES) { /* the same in a tile */
        const float own = rows[i * ROW_NUMBERS + 2];
        bound = fmax(bound, fabs(own));
        *large |= (int)(as_uint(own) >> 31);
    }
    return bound;
}

/* A tile's scores become P^T times P_POWER, and its dP^T becomes dS^T as it
 * goes to dK, times `power`. */
INLINE void differentiate_tile(float *scores, float *flow,
                               __local const float *numbers, int tile,
                               int count, float power, int large,
                               const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        const float4 row = row_numbers(
            numbers, IS_WHOLE(tile) ? column : min(column, count - 1));
#if VARIANT == COSINE
        const float factor = row.w * (power / P_POWER);
#else
        const float factor = power / P_POWER;
#endif
        if (large) /* see shift_scores */
            scores[i] = EXP2(FMA(scores[i] - row.x, LOG2E, P_EXPONENT));
        else
            scores[i] =
                EXP2(FMA(scores[i], LOG2E, FMA(-row.x, LOG2E, P_EXPONENT)));
        flow[i] = scores[i] * FMA(flow[i], factor, -row.y * factor);
    }
}

/* Adds what a visit's rows bring to dV (the first sums) and dK (the last) of a
 * wave's keys, as it is to make them. `numbers`: those of the rows. */
INLINE void differentiate_keys(float sums[GRADIENTS][DIM_TILES][VALUES],
                               int makes_v, int makes_k, const int large,
                               __local const float *numbers,
                               const tile_rows *keys, const visit *here,
                               const logit_terms *terms, const wave *w)
{
    const flow_rows values = read_flow(keys, here->v, w);
    PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES) {
        float scores[PASS_TILES][VALUES];
        multiply_pass(scores, 0, here->k, keys->row, keys->last_row, here->q,
                      first, w);
        finish_pass(scores, numbers + 3, first, (int)here->first_row,
                    here->row_count, &here->args->forward, terms, keys, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++) {
            if (!IS_TILE(first + t))
                continue;
            query_tile operands[WEIGHT_PARTS];
            float flow[VALUES];
            clear_tiles(&flow, 1);
            IF_ALL (makes_k)
                multiply_flow(flow, &values, here->v, here->d_o, first + t, w);
            differentiate_tile(scores[t], flow, numbers, first + t,
                               here->row_count, here->power, large, w);
            IF_ALL (makes_v) {
                make_operand_parts(operands, scores[t], w);
                add_values(sums[0], DIM_TILES, operands, here->d_o, first + t,
                           0, w);
            }
            IF_ALL (makes_k) {
                make_operand_parts(operands, flow, w);
                add_values(sums[GRADIENTS - 1], DIM_TILES, operands, here->q,
                           first + t, 0, w);
            }
        }
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_keys_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
#if VARIANT == COSINE
    __local float k_inverses[TEAMS][BLOCK_KEYS];
#endif
#if REGIONS_APART
    __local uchar kept_key_regions[TEAMS][BLOCK_KEYS];
    __local uchar kept_row_regions[TEAMS][NQ];
#endif
    __local float4 row_numbers_kept[TEAMS][STAGES][BLOCK_ROWS];
#if PADDING == 1
    __local float pad_sums[TEAMS * TEAM_WAVES][2 * DIMS];
#endif
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    DECLARE_PADS(pad_rows)
    DECLARE_WAVE
    __local ushort *ring = (__local ushort *)rings[team];

    /* what this work-group owns */
    const uint heads_each = forward->heads_per_kv_head;
    const uint kv_heads = forward->heads / heads_each;
    const uint owners = kv_heads * args.key_blocks;
    const uint group = (uint)get_group_id(0) / (APART ? 2 : 1);
    const uint owner = group % owners;
    const uint slot = group / owners;
    const int makes_v = !APART || get_group_id(0) % 2 == 0;
    const int makes_k = !APART || !makes_v;
    const uint kv_head = owner / args.key_blocks;
    const uint key_block = BLOCK_KEYS >= NK ? 0 : owner % args.key_blocks;
    const uint first_key = key_block * BLOCK_KEYS;
    const int key_count = (int)min((uint)BLOCK_KEYS, (uint)NK - first_key);
    const uint visits = heads_each * KEY_BLOCKS;
    const int wide = (flags & ARG_WIDE_ACCESS) != 0;
    walk here = start_slot(forward, slot, team);
    const uint items = here.rounds * visits;

    walk there = here;
#define COPY_NUMBERS(item)                                                    \
    copy_numbers(                                                             \
        (__local float *)row_numbers_kept[team][(item) % STAGES],             \
        workspace + args.workspace +                                          \
            (((ulong)there.window * forward->heads + head) * NQ + first) *    \
                ROW_NUMBERS,                                                  \
        count * ROW_NUMBERS, lane)
#define START_COPIES START_VISIT
    KEEP_PADS(pad_rows, *forward, kv_head, item_id)
    START_RING();
    clear_pads(ring, lane_of_team);
    KEEP_HEAD_TERMS(kv_head, first_key)
#if PADDING == 1
    for (int i = w->lane; i < 2 * DIMS; i += WAVE)
        pad_sums[item_id / WAVE][i] = 0.0f;
    __local float *pads = pad_sums[item_id / WAVE];
#else
    __local float *pads = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    float sums[GRADIENTS][DIM_TILES][VALUES];
    float power = 1.0f; /* of two, that sums of dK are multiplied by */

    DECLARE_KEPT_REGIONS
    for (uint item = 0; item < items; item++) {
        FORGET_LANE(lane_of_team);
        RELOAD_BACKWARD_ARGS
        FORGET_LANE(wave_here.lane);
        const uint number = item % visits;
        const uint block = number % KEY_BLOCKS;
        __local const ushort *stage = ring + item % STAGES * STAGE_SIZE;
        __local const ushort *key_stage =
            ring + item / visits % STAGES * STAGE_SIZE;
        __local const float *numbers =
            (__local const float *)row_numbers_kept[team][item % STAGES];
        visit now = {.args = &args,
                     .at = &here,
                     .head = kv_head * heads_each + number / KEY_BLOCKS,
                     .first_row = block * BLOCK_ROWS,
                     .first_key = first_key,
                     .key_count = key_count,
                     .is_last = number + 1 == visits,
                     .scale = forward->scale,
                     .q = stage + Q_PLACE,
                     .d_o = stage + D_O_PLACE,
                     .k = key_stage + K_PLACE,
                     .v = key_stage + V_PLACE,
                     .out = (__local ushort *)out_rows[item_id / WAVE]};
        now.row_count = min(BLOCK_ROWS, (int)NQ - (int)now.first_row);
#if VARIANT == COSINE
        now.k_inverses = k_inverses[team];
#endif
        const unit unit_here = {.window = window_of(&here, forward),
                                .head = now.head,
                                .row = now.first_row};
        DECLARE_ITEM_TERMS(first_key)
        AWAIT_ITEM(item);
#if VARIANT == COSINE
        IF_ALL (number == 0) { /* each wave its own keys' */
            const measured_rows measured = {k_inverses[team], now.k,
                                            BLOCK_KEYS, 1.0f};
            measure_rows(&measured, 1, wave_of_team, w);
            WAVE_SYNC();
        }
#endif
#if REGIONS_APART
        const int has_seams = HAS_SEAMS(here);
        const int has_new =
            number == 0 && has_seams && has_new_regions(&here, &kept_regions);
        if (has_new) {
            DECLARE_REGIONS(regions, *forward, unit_here, here)
            keep_regions(kept_key_regions[team], kept_row_regions[team],
                         forward, &regions, first_key, lane_of_team);
        }
        if (EMULATED || has_new)
            TEAM_SYNC(team);
#endif
        const int key = OWN_TILE * UNIT_QUERIES;
        const int count =
            here.exists ? key_count - wave_of_team * UNIT_QUERIES : 0;
        if (EMULATED || count > 0) { /* emulated waves have to keep step */
            tile_rows keys = {.row = key,
                              .last_row = key_count - 1,
                              .first_row = (int)first_key,
                              .place = here.place};
#if HAS_LOCAL_TERMS
            keys.local_terms =
                kept +
                (OWN_TILE * ALL_KEY_TILES + block * KEY_TILES) * TERM_TILE;
#endif
#if REGIONS_APART
            keys.key_regions =
                has_seams ? kept_row_regions[team] + now.first_row : 0;
#endif
            UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
                const int own =
                    min(key + lane_query(w->lane, r), key_count - 1);
                keys.scale[r] = now.scale;
#if VARIANT == COSINE
                keys.scale[r] = k_inverses[team][own];
#endif
#if REGIONS_APART
                keys.region[r] = kept_key_regions[team][own];
#endif
            }
            int large;
            const float earlier = power;
            const float bound = bound_of_rows(numbers, now.row_count, &large);
            power = RESCALES ? power_for(bound) : 1.0f;
            if (number == 0) {
                UNROLL_FOR (int g = 0; g < GRADIENTS; g++)
                    clear_tiles(sums[g], DIM_TILES);
            } else if (RESCALES && makes_k) {
                power = fmin(power, earlier);
                const float keep = power * inverse_power(earlier);
                UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
                    UNROLL_FOR (int i = 0; i < VALUES; i++)
                        sums[GRADIENTS - 1][d][i] *= keep;
            }
            now.power = power;
#define DIFFERENTIATE(large)                                                  \
    differentiate_keys(sums, makes_v, makes_k, large, numbers, &keys, &now,   \
                       &terms, w)
#if EMULATED /* waves have to keep step */
            DIFFERENTIATE(large);
#else
            if (large)
                DIFFERENTIATE(1);
            else
                DIFFERENTIATE(0);
#endif
            IF_ALL (now.is_last && makes_v)
                leave_dv(sums[0], DIM_TILES, key, count, 0, dv, kv_head, pads,
                         &now, w);
            IF_ALL (now.is_last && makes_k)
                leave_dk(sums[GRADIENTS - 1], DIM_TILES, key, count, 0, dk,
                         kv_head, pads, &now, w);
        }
        if (now.is_last)
            walk_on(&here, forward, team);
    }
#if PADDING == 1
    barrier(CLK_LOCAL_MEM_FENCE);
    store_pad_sums(pad_sums, workspace, &args,
                   ((ulong)slot * args.key_blocks + key_block) * kv_heads +
                       kv_head,
                   makes_k, makes_v, item_id);
#endif
}
