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
 * An item of the ring (matrix.cl) is a visit: one block of rows of one head
 * that sees the window's keys. All of a window's keys are in local memory.
 * Where PASS_KEYS are not all of them, scores are computed twice: for the
 * rows' statistics, and again for the gradients; or once where o and lse are
 * given and windows are not small, as delta is dO . O - d_lse then, but for an
 * error that is mended where it shows (gradient_matrix.cl). With all keys at
 * once dP alone would be saved, which o is not worth.
 *
 *   ONE_VISIT    1: a window has one visit
 *                0: sums of dK and dV live through all visits of a window
 *   KEEPS_DBIAS  0 or 1 (gradient_matrix.cl); 1 with ONE_VISIT only */
#include "matrix/gradient_matrix.cl"

#ifndef ONE_VISIT
#define ONE_VISIT 1
#endif

/* A tile's dP is computed while dS of the one before is: that pays in fp16,
 * but where the cosine variant takes the registers (bench/notes.md). */
#define FLOW_AHEAD (DTYPE == 1 && VARIANT != COSINE && UNROLL_PASSES)
/* P and dS in local memory. */
#define WEIGHT_ROWS (CEIL_DIV(ROW_TILES * UNIT_QUERIES, UNIT_TILE) * UNIT_TILE)
#define WEIGHT_KEYS (KEY_TILES * UNIT_TILE)
/* Addresses cost less with a pad, but there is no room for it. */
#define WEIGHT_PITCH (LATE_KEYS ? ROW_PITCH(WEIGHT_KEYS) : WEIGHT_KEYS + CHUNK)
#define WEIGHT_SIZE (WEIGHT_ROWS * WEIGHT_PITCH)
/* Tables of where tokens are: of the window that is copied, of this one, and
 * of the last, whose rows other waves may still store. */
#define TOKEN_TABLES (KEEPS_TOKENS ? STAGES + 1 : 0)
/* A team's local memory, in bytes: the ring, each wave's rows that leave, P
 * and dS, tables of tokens, and of rows lse and powers of two. Together, for
 * one address that stays in a register: NVIDIA's compiler makes that of each
 * array anew, which takes long. */
#define OUT_SIZE (UNIT_QUERIES * OUT_PITCH)
#define OUT_PLACE (RING_SIZE * 2)
#define WEIGHT_PLACE (OUT_PLACE + TEAM_WAVES * OUT_SIZE * 2)
#define TOKEN_PLACE (WEIGHT_PLACE + 2 * WEIGHT_PARTS * WEIGHT_SIZE * 2)
#define LSE_PLACE (TOKEN_PLACE + TOKEN_TABLES * NQ * 16)
#define POWER_PLACE (LSE_PLACE + KEY_STAGES * BLOCK_ROWS * 4)
#if SWIZZLES_ROWS
#define TEAM_ALIGNMENT (LINE * 2)
#else
#define TEAM_ALIGNMENT (CHUNK * 2)
#endif
#define TEAM_BYTES                                                            \
    (CEIL_DIV(POWER_PLACE + (RESCALES ? TEAM_WAVES * 4 : 0),                  \
              TEAM_ALIGNMENT) *                                               \
     TEAM_ALIGNMENT)
/* Tiles of keys that waves take in turn. */
#define KEY_STRIPES CEIL_DIV(NK, UNIT_QUERIES)
#define KEY_TURNS CEIL_DIV(KEY_STRIPES, TEAM_WAVES)
/* Where it can, a wave makes one gradient of two of them and not both of one:
 * what it reads of dO or of q then serves twice. Not in the cosine variant,
 * where dK takes much longer. */
#define ONE_GRADIENT                                                          \
    (ONE_VISIT && VARIANT != COSINE && SPARES_GRADIENTS &&                    \
     KEY_STRIPES % 2 == 0 && TEAM_WAVES % 2 == 0)
#define STRIPES_AT_ONCE (ONE_GRADIENT ? 2 : 1)
/* Tiles of channels that are summed at a time; the cosine variant needs all of
 * a row's before one can leave. */
#define ROW_SUM_TILES (PASSES > 1 || VARIANT == COSINE ? DIM_TILES : OUT_TILES)
#define KEY_SUM_TILES (!ONE_VISIT || VARIANT == COSINE ? DIM_TILES : OUT_TILES)
/* Many channels: the code for a part of them serves for all, so that a
 * window's fits the instruction cache. Sums of all must have constant indices.
 */
#if DIM_TILES % OUT_TILES == 0 && ROW_SUM_TILES == OUT_TILES &&               \
    KEY_SUM_TILES == OUT_TILES && !PADDING
#define CHANNEL_FOR NO_UNROLL_FOR
#else
#define CHANNEL_FOR UNROLL_FOR
#endif
/* Sums that live from visit to visit must have constant indices. */
#if ONE_VISIT
#define KEY_FOR NO_UNROLL_FOR
#else
#define KEY_FOR UNROLL_FOR
#endif

/* ---- Products and rows ---- */

/* A tile of P or dS goes to local memory. */
INLINE void keep_weights(const float *tile, __local ushort *weights, int query,
                         int key, const wave *w)
{
    float rest[VALUES];
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        rest[i] = tile[i];
    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
        store_tile(rest, weights + part * WEIGHT_SIZE, WEIGHT_PITCH, query,
                   key, WEIGHT_PITCH, w);
        if (part + 1 < WEIGHT_PARTS)
            subtract_rounded(rest);
    }
}

#if RESCALES
/* What a row of dS is multiplied by to have the power `power`. */
INLINE float keep_of(__local const float *powers, int row, float power)
{
    return power *
           inverse_power(powers[min(row / UNIT_QUERIES, ROW_TILES - 1)]);
}

/* dS of rows `row` and on, of which each tile has a power of its own, gets the
 * same of all. */
INLINE void level_weights(query_tile *p, __local const float *powers, int row,
                          float power, const wave *w)
{
#if defined(TIMES_PAIR) && UNIT_QUERIES % UNIT_TILE == 0
    const float keep = keep_of(powers, row, power);
    /* fp16 has no smaller power than 2^-24 */
    const float first = VARIANT == COSINE ? fmax(keep, 1.0f / 16384) : keep;
    const uint both = PACK(first, first);
    const float second = keep * inverse_power(first);
    const uint rest = PACK(second, second);
    UNROLL_FOR (int i = 0; i < (int)(sizeof p->x / sizeof *p->x); i++) {
        p->x[i] = TIMES_PAIR(p->x[i], both);
        if (VARIANT == COSINE)
            p->x[i] = TIMES_PAIR(p->x[i], rest);
    }
#else
    UNROLL_FOR (int i = 0; i < STEPS * QUERY_ELEMENTS; i += 2) {
        float x[2];
        UNROLL_FOR (int j = 0; j < 2; j++) {
            const int step = query_step(w->lane, (i + j) % QUERY_ELEMENTS);
            const int own = row + i / QUERY_ELEMENTS * MMA_K + SLOT_KEY(step);
            x[j] = number_of((ushort)(p->x[i / 2] >> 16 * j)) *
                   keep_of(powers, own, power);
        }
        p->x[i / 2] = PACK(x[0], x[1]);
    }
#endif
}
#endif

/* sums += weights of `count` tiles of keys, the other way round, times rows of
 * the block. levels: they are dS, whose tiles of rows have `powers` and get
 * `power`. */
INLINE void add_across(float (*sums)[KEY_SUM_TILES][VALUES], const int count,
                       __local const ushort *weights, int key,
                       __local const ushort *rows, int first, int row_count,
                       const int levels, __local const float *powers,
                       float power, const wave *w)
{
    MEASURE_FOR (int row = 0; row < BLOCK_ROWS; row += UNIT_TILE) {
        if (row >= row_count)
            continue; /* all waves of the team do */
        const int part_rows = TILE_PART(row / UNIT_TILE, BLOCK_ROWS);
        query_tile p[STRIPES_AT_ONCE][WEIGHT_PARTS];
        UNROLL_FOR (int n = 0; n < count; n++)
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
                p[n][part] =
                    load_weights(weights + part * WEIGHT_SIZE, WEIGHT_PITCH,
                                 row, key + n * UNIT_QUERIES, part_rows, w);
#if RESCALES
                if (levels)
                    level_weights(&p[n][part], powers, row, power, w);
#endif
            }
        UNROLL_FOR (int d = 0; d < KEY_SUM_TILES; d++)
            if (HAS_CHANNELS(first + d)) {
                const key_tile x =
                    load_value(rows, PITCH, row, (first + d) * UNIT_TILE,
                               row_count - 1, part_rows, w);
                UNROLL_FOR (int n = 0; n < count; n++)
                    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                        multiply_tiles(sums[n][d], &p[n][part], &x, w);
            }
    }
}

/* ---- Rows ---- */

/* Starts copies of rows `row` and on of a window's o, of which `count` exist,
 * to the wave's rows that leave; zeros fill the tile. */
INLINE void copy_o(__local ushort *to, __global const storage *plane_of_o,
                   const forward_args *args, const window_place *place,
                   uint row, int count, int wide, const wave *w)
{
    const tensor_layout *layout = &args->o;
    for (int i = w->lane; i < UNIT_QUERIES * (DIMS - HEAD_DIM); i += WAVE)
        to[row_place(i % UNIT_QUERIES, HEAD_DIM + i / UNIT_QUERIES, PITCH)] =
            0;
#if CHUNKS
    if (wide) {
        UNROLL_FOR (int turn = 0; turn < STORE_TURNS(HEAD_DIM); turn++) {
            const int i = turn * WAVE + w->lane;
            const int r = i / CHUNKS;
            const plane_offset at =
                find_chunk(layout, &args->grid, place, row, CHUNKS, i);
            const int exists = (r < count) & !IS_PADDED(at);
            copy_16(to + row_place(r, i % CHUNKS * CHUNK, PITCH),
                    plane_of_o + (IS_PADDED(at) ? 0 : at), exists,
                    i < UNIT_QUERIES * CHUNKS);
        }
        return;
    }
#endif
    NO_UNROLL_FOR (int i = w->lane; i < UNIT_QUERIES * HEAD_DIM; i += WAVE) {
        const int r = i / HEAD_DIM, c = i % HEAD_DIM;
        ulong at;
        const int exists =
            r < count && find_row(&at, layout, &args->grid, place, row + r);
        to[row_place(r, c, PITCH)] =
            exists ? ((__global const storage_bits *)
                          plane_of_o)[at + (ulong)c * layout->column]
                   : (storage_bits)0;
    }
}

/* What dS of a row is multiplied by for dK: no less than this. */
#define LEAST_FACTOR 0x1p-60f
INLINE void find_row_factors(float factor[LANE_ROWS], const row_part *part,
                             const visit *here)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        factor[r] = 1.0f;
#if VARIANT == COSINE
        /* rows of length 0 add nothing to dK, but have a dS */
        const int is_zero = DROPS_ZEROS && part->inverse[r] == 0.0f;
        factor[r] = here->scale * (is_zero ? 1.0f : part->inverse[r]);
        if (!(fabs(factor[r]) > LEAST_FACTOR))
            factor[r] = LEAST_FACTOR;
#endif
    }
}

#if RESCALES
/* The power of two for dS of the wave's rows, which are multiplied by `factor`
 * too; P is at most 1. */
INLINE float find_power(const row_statistics *s, const float *factor,
                        const row_part *part, __local uint *slot,
                        const wave *w)
{
    float bound = 0.0f;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        if (row_exists(part, r, w))
            bound = fmax(bound,
                         (s->flow[r] + fabs(s->delta[r])) * fabs(factor[r]));
    return power_for(as_float(
        LARGEST_OF_WAVE(as_uint(part->count > 0 ? bound : 0.0f), slot, w)));
}

/* The largest |v|^2 of an item's keys goes to *largest, by all waves of the
 * team. */
INLINE void measure_values(__local uint *largest, __local const ushort *v,
                           int wave_of_team, __local uint *slot, const wave *w)
{
    const int tiles = CEIL_DIV(BLOCK_KEYS, UNIT_QUERIES);
    float most = 0.0f;
    MEASURE_FOR (int done = 0; done < tiles; done += TEAM_WAVES) {
        float square[LANE_ROWS];
        int place[LANE_ROWS];
        dot_rows(square, place, v, v, (done + wave_of_team) * UNIT_QUERIES,
                 BLOCK_KEYS, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            most = fmax(most, square[r]);
    }
    const uint bits = LARGEST_OF_WAVE(as_uint(most), slot, w);
    if (w->lane == 0)
        atomic_max(largest, bits);
}
#endif

/* P and dS of a tile of rows, on their way to waves that have keys. */
typedef struct row_weights {
    __local ushort *p, *ds;
    int owns; /* the wave has a tile of rows */
} row_weights;

/* Is delta taken from o in this kernel, where the caller has it? */
#define O_SERVES (LATE_COPIES && TAKES_O)

#if O_SERVES
/* Takes an error of delta out of what a tile of rows has left, given what it
 * makes of the sum over keys of dS, as that goes to dK. */
INLINE void mend_rows(float sums[ROW_SUM_TILES][VALUES],
                      const dbias_place *dbias, const float *error,
                      const float *to_dbias, const float *to_dq,
                      const row_part *part, const visit *here,
                      const row_weights *weights, const wave *w)
{
    float factor[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        factor[r] = -error[r] / P_POWER;
    GRADIENT_FOR (int tile = 0; tile < KEY_TILES; tile++) {
        WAVE_SYNC();
        const int key = tile * UNIT_TILE;
        int row = part->rows.row;
        wave own = *w;
        FORGET(row);

        float ds[VALUES], p[VALUES];
        query_tile operands[WEIGHT_PARTS];
        clear_tiles(&p, 1);
        clear_tiles(&ds, 1);
        if (weights->owns) {
            load_tile(p, weights->p, WEIGHT_PITCH, row, key, &own);
            load_tile(ds, weights->ds, WEIGHT_PITCH, row, key, &own);
        }
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            p[i] *= factor[LANE_ROW(i)];
            ds[i] += p[i];
        }
        if (weights->owns)
            keep_weights(ds, weights->ds, row, key, &own);
#if BIAS
        float earlier[VALUES];
        read_dbias(earlier, dbias, tile, part, here, &own);
        add_dbias(dbias, earlier, p, to_dbias, tile, part, here, &own);
#endif
#if VARIANT == COSINE
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            p[i] *= to_dq[LANE_ROW(i)] *
                    here->k_inverses[min(key + value_key(own.lane, i),
                                         (int)NK - 1)];
#endif
        make_operand_parts(operands, p, &own);
        add_values(sums, ROW_SUM_TILES, operands, here->k, tile, 0, &own);
    }
}
#endif

/* P and dS of the tile of rows go to local memory, and dQ leaves. `scores` are
 * what add_statistics has left, of one pass P_POWER P. given: delta is from o.
 * Adds q^ . dq^ of the lane's own rows to *scale_sum. slot: for the power of
 * two of dS. */
INLINE void differentiate_rows(float scores[PASS_TILES][VALUES],
                               const dbias_place *dbias, __global storage *dq,
                               float *scale_sum, const row_statistics *s,
                               const row_part *part, const visit *here,
                               const logit_terms *terms,
                               const row_weights *weights, int given,
                               __local uint *slot, const wave *w)
{
    const int stores = weights->owns;
    const tile_rows *rows = &part->rows;
    const uint flags = here->args->forward.flags;
    const flow_rows flow_rows_here = read_flow(rows, here->d_o, w);
    float sums[ROW_SUM_TILES][VALUES];
    query_tile operands[PASS_TILES][WEIGHT_PARTS];
    /* what dS is multiplied by, as dK wants it, and then for dQ and dBias */
    float factor[LANE_ROWS], shift[LANE_ROWS];
    float from_dq[LANE_ROWS], to_dbias[LANE_ROWS];
    float to_dq[LANE_ROWS];
    float power = 1.0f; /* of dS */
    find_row_factors(factor, part, here);
#if RESCALES
#if VARIANT == COSINE
    const float inverse = largest_inverse(here, slot, w);
#endif
    power = find_power(s, factor, part, slot, w);
    if (w->lane == 0)
        *slot = as_uint(power);
#endif
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        to_dq[r] = 1.0f;
        to_dbias[r] = inverse_power(power);
#if VARIANT == COSINE
        to_dbias[r] *= RECIPROCAL(factor[r]);
#endif
        from_dq[r] = here->scale * to_dbias[r];
#if RESCALES && VARIANT == COSINE
        /* lengths of q and of k may differ much: rows have powers of their own
         */
        float bound = s->flow[r];
        REDUCE(bound, fmax);
        const float own = power_for((bound + fabs(s->delta[r])) * inverse);
        to_dq[r] = own * to_dbias[r];
        from_dq[r] = here->scale * inverse_power(own);
#endif
        factor[r] *= power / P_POWER;
        shift[r] = -s->delta[r] * factor[r];
    }
    clear_tiles(sums, ROW_SUM_TILES);
#if O_SERVES
    row_errors errors;
    clear_errors(&errors);
#endif
    GRADIENT_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES) {
        if (PASSES > 1) {
            score_pass(scores, first, here, rows, terms, w);
            make_p(scores, first, s->top, 1);
        }
        float flow[VALUES];
        if (FLOW_AHEAD)
            multiply_flow(flow, &flow_rows_here, here->d_o, here->v, first, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++) {
            if (!IS_TILE(first + t))
                continue;
            const int key = (first + t) * UNIT_TILE;
            float ds[VALUES];
#if BIAS
            float earlier[VALUES];
            read_dbias(earlier, dbias, first + t, part, here, w);
#endif
            if (!FLOW_AHEAD)
                multiply_flow(flow, &flow_rows_here, here->d_o, here->v,
                              first + t, w);
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                const int r = LANE_ROW(i);
                ds[i] = HAS_KEY(first + t, i)
                            ? scores[t][i] * FMA(flow[i], factor[r], shift[r])
                            : 0.0f;
            }
#if O_SERVES && !SUMS_OPERANDS
            add_errors(&errors, ds, 0, first + t, w);
#endif
            if (FLOW_AHEAD && t + 1 < PASS_TILES && IS_TILE(first + t + 1))
                multiply_flow(flow, &flow_rows_here, here->d_o, here->v,
                              first + t + 1, w);
#if BIAS
            add_dbias(dbias, earlier, ds, to_dbias, first + t, part, here, w);
#endif
            if (stores) {
                keep_weights(scores[t], weights->p, rows->row, key, w);
                keep_weights(ds, weights->ds, rows->row, key, w);
            }
#if VARIANT == COSINE
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                const int own_key = key + value_key(w->lane, i);
                if (!HAS_KEY(first + t, i))
                    continue;
                ds[i] *= to_dq[LANE_ROW(i)] *
                         here->k_inverses[IS_WHOLE(first + t)
                                              ? own_key
                                              : min(own_key, (int)NK - 1)];
            }
#endif
            make_operand_parts(operands[t], ds, w);
#if O_SERVES && SUMS_OPERANDS
            add_errors(&errors, ds, operands[t], first + t, w);
#endif
            if (ROW_SUM_TILES == DIM_TILES)
                add_values(sums, ROW_SUM_TILES, operands[t], here->k,
                           first + t, 0, w);
        }
    }
#if O_SERVES
    IF_ALL (given) {
        float expected[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            expected[r] = part->d_lse[r] * factor[r] * P_POWER;
        reduce_errors(&errors, w);
        find_errors(&errors, part, expected);
        float of_dq[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            of_dq[r] = errors.sum[r] * to_dq[r];
        take_mean_key(sums, of_dq, here, w);
        IF_ALL (errors_count(&errors, (__local float *)here->out, w)) {
            UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                of_dq[r] = -of_dq[r];
            take_mean_key(sums, of_dq, here, w);
            mend_rows(sums, dbias, errors.sum, to_dbias, to_dq, part, here,
                      weights, w);
        }
    }
#endif
    const row_target to = dq_target(dq, part, here);
#if VARIANT == COSINE
    take_back_rows(sums, from_dq, scale_sum, part, here, w);
#endif
    if (!here->plain && (flags & ARG_DQ) == 0)
        return;
    CHANNEL_FOR(int first = 0; first < DIM_TILES; first += OUT_TILES)
    {
        if (ROW_SUM_TILES != DIM_TILES) {
            clear_tiles(sums, ROW_SUM_TILES);
            UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
                if (IS_TILE(t))
                    add_values(sums, ROW_SUM_TILES, operands[t], here->k, t,
                               first, w);
        }
        leave_channels(sums + (ROW_SUM_TILES == DIM_TILES ? first : 0),
                       from_dq, first, &to, here, w);
    }
}

/* ---- The kernel ---- */

#if KEEPS_TOKENS
INLINE void keep_tokens(__local kept_token *table, const forward_args *args,
                        const window_place *place, int lane)
{
    for (int i = lane; i < NQ; i += TEAM)
        table[i] = keep_token(&args->grid, place, i);
}
#endif

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
