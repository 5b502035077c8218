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
 * rows' statistics, and again for the gradients.
 *
 *   ONE_VISIT    1: a window has one visit
 *                0: sums of dK and dV live through all visits of a window
 *   KEEPS_DBIAS  1: the sum over windows stays in registers (ONE_VISIT only)
 *                0: it is added to in the workspace (TEAMS 1) */
#ifndef ONE_VISIT
#define ONE_VISIT 1
#endif
#ifndef KEEPS_DBIAS
#define KEEPS_DBIAS 0
#endif

/* P and dS in local memory. */
#define WEIGHT_ROWS (CEIL_DIV(ROW_TILES * UNIT_QUERIES, UNIT_TILE) * UNIT_TILE)
#define WEIGHT_PITCH (KEY_TILES * UNIT_TILE + CHUNK)
#define WEIGHT_SIZE (WEIGHT_ROWS * WEIGHT_PITCH)
/* Tiles of keys that waves take in turn. */
#define KEY_STRIPES CEIL_DIV(NK, UNIT_QUERIES)
#define KEY_TURNS CEIL_DIV(KEY_STRIPES, TEAM_WAVES)
/* Tiles of channels that are summed at a time; the cosine variant needs all of
 * a row's before one can leave. */
#define ROW_SUM_TILES (PASSES > 1 || VARIANT == COSINE ? DIM_TILES : OUT_TILES)
#define KEY_SUM_TILES (!ONE_VISIT || VARIANT == COSINE ? DIM_TILES : OUT_TILES)
/* Sums of dBias that stay in registers must have constant indices. */
#if BIAS && KEEPS_DBIAS
#define GRADIENT_FOR UNROLL_FOR
#else
#define GRADIENT_FOR PASS_FOR
#endif
/* Sums that live from visit to visit must have constant indices. */
#if ONE_VISIT
#define KEY_FOR NO_UNROLL_FOR
#else
#define KEY_FOR UNROLL_FOR
#endif

/* Rounding to fp16 loses small numbers, below 2^-24 of all there are: P, and
 * so dS and dBias, is multiplied by a power of two first, and dS by one more.
 * That of dK is the same for all rows of a visit. */
#define RESCALES (DTYPE == 1)
#define P_EXPONENT (RESCALES ? 15.0f : 0.0f)
#define P_POWER (RESCALES ? 32768.0f : 1.0f)
/* P and dS go to products as sums of so many numbers of 16 bits. In small
 * windows, whose gradients are sums of few terms, the rounding of each shows.
 */
#define WEIGHT_PARTS (NQ <= UNIT_TILE || NK <= UNIT_TILE ? 2 : 1)

/* ---- Softmax of a tile of rows and its gradient ---- */

typedef struct row_statistics {
    float top[LANE_ROWS]; /* of scores; or lse, where that is known */
    /* of exponentials, and of these times dP; at first of a lane's own keys.
     * Later the former's inverse, times P_POWER, and delta. */
    float sum[LANE_ROWS], delta[LANE_ROWS];
#if RESCALES
    float flow[LANE_ROWS]; /* largest |dP| */
#if VARIANT == COSINE
    float key_flow[LANE_ROWS];    /* the same, divided by the key's norm */
    float key_inverse[LANE_ROWS]; /* largest 1 / norm of a key */
#endif
#endif
} row_statistics;

INLINE void start_statistics(row_statistics *s, const int known,
                             const float *lse)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->top[r] = known ? lse[r] : -INFINITY;
        s->sum[r] = s->delta[r] = 0.0f;
#if RESCALES
        s->flow[r] = 0.0f;
#if VARIANT == COSINE
        s->key_flow[r] = s->key_inverse[r] = 0.0f;
#endif
#endif
    }
}

/* What the norm of a row of q or k divides where that goes to a matrix unit.
 * A row of zeros adds nothing, and its factor must not make others small. */
INLINE float operand_factor(float inverse)
{
    return RESCALES && inverse >= 1.0f / NORM_EPSILON ? 0.0f : inverse;
}

/* P_POWER P, of rows whose lse is known. */
INLINE void make_p(float scores[PASS_TILES][VALUES], const float *lse)
{
    float shift[LANE_ROWS];
    shift_scores(scores, lse, shift);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        shift[r] += P_EXPONENT;
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            scores[t][i] = EXP2(FMA(scores[t][i], LOG2E, shift[LANE_ROW(i)]));
}

/* A pass's scores become exponentials of what they are less the row's maximum
 * so far, and are added to its sum. */
INLINE void make_exponentials(row_statistics *s,
                              float scores[PASS_TILES][VALUES], int first,
                              const wave *w)
{
    float top[LANE_ROWS], base[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = s->top[r];
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < (IS_TILE(first + t) ? VALUES : 0); i++)
            top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(top[r], fmax);
        /* a row that has seen nothing has no maximum to subtract */
        base[r] = top[r] == -INFINITY ? 0.0f : top[r];
        if (PASSES > 1) {
            const float keep = EXP2((s->top[r] - base[r]) * LOG2E);
            s->sum[r] *= keep;
            s->delta[r] *= keep;
        }
        s->top[r] = top[r];
    }
    shift_scores(scores, base, shift);
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < (IS_TILE(first + t) ? VALUES : 0); i++) {
            const int r = LANE_ROW(i);
            scores[t][i] = EXP2(FMA(scores[t][i], LOG2E, shift[r]));
            s->sum[r] += scores[t][i];
        }
}

/* Takes a tile's dP into account, `key` and on, given its exponentials. */
INLINE void add_flow(row_statistics *s, const float *exponentials,
                     const float *flow, int key,
                     __local const float *key_inverses, const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int r = LANE_ROW(i);
        s->delta[r] = FMA(exponentials[i], flow[i], s->delta[r]);
#if RESCALES
        s->flow[r] = fmax(s->flow[r], fabs(flow[i]));
#if VARIANT == COSINE
        const float inverse = operand_factor(
            key_inverses[min(key + value_key(w->lane, i), (int)NK - 1)]);
        s->key_flow[r] = fmax(s->key_flow[r], fabs(flow[i]) * inverse);
        s->key_inverse[r] = fmax(s->key_inverse[r], inverse);
#endif
#endif
    }
}

/* The power of two that takes numbers up to `bound` as far up as fp16 has
 * room. */
INLINE float power_for(float bound)
{
    const int exponent = (int)(as_uint(bound) >> 23); /* bound >= 0 */
    /* no more than 2^64, which norms and scales may still multiply */
    return exponent == 255
               ? 1.0f
               : as_float((uint)clamp(267 - exponent, 1, 191) << 23);
}
INLINE float inverse_power(float power)
{
    return as_float((254u << 23) - as_uint(power));
}

/* ---- Products and rows ---- */

INLINE void clear_tiles(float tiles[][VALUES], const int count)
{
    UNROLL_FOR (int t = 0; t < count; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            tiles[t][i] = 0.0f;
}

/* sums += a tile's weights times values, for channels from tile `channels` on.
 */
INLINE void add_values(float sums[ROW_SUM_TILES][VALUES],
                       const query_tile *weights, __local const ushort *values,
                       int tile, int channels, const wave *w)
{
    UNROLL_FOR (int d = 0; d < ROW_SUM_TILES; d++)
        if (channels + d < DIM_TILES) {
            const key_tile x =
                load_value(values + (channels + d) * UNIT_TILE, PITCH,
                           tile * UNIT_TILE, KEY_ROWS - 1, w);
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                multiply_tiles(sums[d], &weights[part], &x, w);
        }
}

/* A tile of P or dS goes to local memory. Changes it. */
INLINE void keep_weights(float *tile, __local ushort *weights, int query,
                         int key, const wave *w)
{
    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
        store_weights(tile, weights + part * WEIGHT_SIZE, WEIGHT_PITCH, query,
                      key, w);
        if (part + 1 < WEIGHT_PARTS)
            subtract_rounded(tile);
    }
}

/* sums += a tile's weights, the other way round, times rows of the block. */
INLINE void add_across(float sums[][VALUES], __local const ushort *weights,
                       int key, __local const ushort *rows, int first,
                       int row_count, const wave *w)
{
    MEASURE_FOR (int row = 0; row < BLOCK_ROWS; row += UNIT_TILE) {
        if (row >= row_count)
            continue; /* all waves of the team do */
        query_tile p[WEIGHT_PARTS];
        UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
            p[part] = load_weights(weights + part * WEIGHT_SIZE, WEIGHT_PITCH,
                                   row, key, w);
        UNROLL_FOR (int d = 0; d < KEY_SUM_TILES; d++)
            if (first + d < DIM_TILES) {
                const key_tile x = load_value(rows + (first + d) * UNIT_TILE,
                                              PITCH, row, row_count - 1, w);
                UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                    multiply_tiles(sums[d], &p[part], &x, w);
            }
    }
}

#if VARIANT == COSINE
/* Gradients with respect to rows of length 1 are taken back to rows x of any
 * length: (d - x^ (x^ . d)) / |x|, where d is sums times factor. Below the
 * smallest norm x^ is just a multiple of x. Leaves x^ . d in along. */
INLINE void take_back_norms(float sums[][VALUES], float *along,
                            const float *factor, const float *inverse,
                            __local const ushort *rows, int row, int last,
                            const wave *w)
{
    float part[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        along[r] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const float x = number_of(
                rows[min(row + value_query(w->lane, i), last) * PITCH +
                     d * UNIT_TILE + value_key(w->lane, i)]);
            sums[d][i] *= factor[LANE_ROW(i)];
            along[LANE_ROW(i)] = FMA(x, sums[d][i], along[LANE_ROW(i)]);
        }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(along[r], ADD);
        along[r] *= inverse[r];
        part[r] =
            inverse[r] < 1.0f / NORM_EPSILON ? along[r] * inverse[r] : 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const float x = number_of(
                rows[min(row + value_query(w->lane, i), last) * PITCH +
                     d * UNIT_TILE + value_key(w->lane, i)]);
            sums[d][i] =
                (sums[d][i] - x * part[LANE_ROW(i)]) * inverse[LANE_ROW(i)];
        }
}
#endif

#if PADDING == 1
/* Adds the rows of the padding to the wave's sum of them, OUT_TILES tiles of
 * channels from tile `first` on. `out`: room for rows that leave. */
INLINE void add_padding(float tiles[][VALUES], const float *factor, int first,
                        __local float *pad_sums, __local ushort *out,
                        const row_target *to, const wave *w)
{
    __local float *scratch = (__local float *)out;
    UNROLL_FOR (int d = 0; d < OUT_TILES; d++)
        for (int half_tile = 0; half_tile < (first + d < DIM_TILES ? 2 : 0);
             half_tile++) {
            const int from = half_tile * UNIT_QUERIES / 2;
            const int rows = min(UNIT_QUERIES / 2, to->count - from);
            spread_half(scratch, tiles[d], factor, half_tile, w);
            for (int c = w->lane; c < UNIT_TILE; c += WAVE)
                for (int r = 0; r < rows; r++) {
                    const token t =
                        find_token(to->grid, to->place, to->row + from + r);
                    if (!EXISTS(t))
                        pad_sums[(first + d) * UNIT_TILE + c] +=
                            scratch[r * UNIT_TILE + c];
                }
            WAVE_SYNC();
        }
}
#endif

/* ---- Sums over windows ---- */

/* The first launch starts partial sums, the others add to them. */
INLINE void add_partial(__global float *partial, float sum, uint flags)
{
    *partial = (flags & ARG_FIRST_LAUNCH) != 0 ? sum : *partial + sum;
}

#if BIAS && KEEPS_DBIAS
/* The sums of all teams, team after team, and then to the workspace. */
INLINE void store_dbias(float sums[KEY_TILES][VALUES], __local float *shared,
                        __global float *partial, int team, int tile,
                        const int owns, uint flags, const wave *w)
{
    __local float *own = shared + tile * KEY_TILES * TERM_TILE + w->lane;
    for (int t = 1; t < TEAMS; t++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (team == t && owns)
            UNROLL_FOR (int k = 0; k < KEY_TILES; k++)
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    own[(k * VALUES + i) * WAVE] =
                        (t == 1 ? 0.0f : own[(k * VALUES + i) * WAVE]) +
                        sums[k][i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (team != 0 || !owns)
        return;
    UNROLL_FOR (int k = 0; k < KEY_TILES; k++)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const int row = tile * UNIT_QUERIES + value_query(w->lane, i);
            const int key = k * UNIT_TILE + value_key(w->lane, i);
            float sum = sums[k][i];
            if (TEAMS > 1)
                sum += own[(k * VALUES + i) * WAVE];
            if (row < NQ && key < NK)
                add_partial(partial + row * NK + key, sum, flags);
        }
}
#endif

#if VARIANT == COSINE
/* The sum of all lanes' numbers, at the first work-item of `items`. Scratch:
 * [items]. Holds barriers of the whole work-group. */
INLINE float sum_over_group(float x, __local float *scratch, int item,
                            const int items)
{
    float sum = 0.0f;
    scratch[item] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < WAVE)
        for (int i = item; i < items; i += WAVE)
            sum += scratch[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < WAVE)
        scratch[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0.0f;
    for (int i = 0; i < (item == 0 ? WAVE : 0); i++)
        sum += scratch[i];
    return sum;
}
#endif

/* lse of rows first .. first + count of a window. */
INLINE void copy_lse(__local float *to, __global const float *plane,
                     const tensor_layout *layout, const grid_layout *grid,
                     const window_place *place, uint first, int count,
                     int lane)
{
    for (int i = lane; i < count; i += TEAM) {
        ulong at;
        if (find_row(&at, layout, grid, place, first + i))
            copy_4(to + i, plane + at);
        else
            to[i] = -INFINITY;
    }
}

/* ---- A visit ---- */

/* What a team computes with. */
typedef struct visit {
    const backward_args *args;
    const walk *at;
    uint head;
    uint first_row; /* of the block */
    int row_count;
    int is_last; /* of the window */
    float scale;
    float power; /* of two, that dS is multiplied by for dK */
    /* local memory: rows of PITCH, and of WEIGHT_PITCH */
    __local const ushort *q, *d_o, *k, *v;
    __local const float *q_inverses, *k_inverses;
    __local const float *lse; /* of the rows, where known */
    __local ushort *p, *ds;
    __local ushort *out; /* of the wave, for rows that leave */
} visit;

/* A wave's tile of rows. */
typedef struct row_part {
    tile_rows rows;
    int count;                /* of its rows that exist; may be negative */
    float lse[LANE_ROWS];     /* where known */
    float d_lse[LANE_ROWS];   /* 0 where there is none */
    float inverse[LANE_ROWS]; /* 1 / norm of q */
} row_part;

INLINE int row_exists(const row_part *part, int r, const wave *w)
{
    return part->rows.row + lane_query(w->lane, r) <= part->rows.last_row;
}

/* What rows bring besides q and dO. */
INLINE void read_rows(row_part *part, const visit *here,
                      __global const float *d_lse, const wave *w)
{
    const backward_args *args = here->args;
    const grid_layout *grid = &args->forward.grid;
    const window_place *place = &here->at->place;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const int row =
            min(part->rows.row + lane_query(w->lane, r), part->rows.last_row);
        const uint in_window = here->first_row + row;
        ulong at;
        part->rows.scale[r] = here->scale;
        part->lse[r] = part->d_lse[r] = 0.0f;
        /* exponentials of what does not exist or sees nothing must be 0 */
        if ((args->forward.flags & ARG_LSE) != 0)
            part->lse[r] =
                here->lse[row] == -INFINITY || !row_exists(part, r, w)
                    ? INFINITY
                    : here->lse[row];
        if ((args->forward.flags & ARG_D_LSE) != 0 &&
            find_row(&at, &args->d_lse, grid, place, in_window))
            part->d_lse[r] =
                d_lse[plane(&args->d_lse, place->grid, here->head) + at];
#if VARIANT == COSINE
        part->inverse[r] = here->q_inverses[row];
        part->rows.scale[r] *= part->inverse[r];
#endif
    }
}

/* Scores of a pass. */
INLINE void score_pass(float scores[PASS_TILES][VALUES], int first,
                       const visit *here, const tile_rows *rows,
                       const logit_terms *terms, const wave *w)
{
    multiply_pass(scores, here->q, rows->row, rows->last_row, here->k, first,
                  w);
    finish_pass(scores, here->k_inverses, first, 0, NK, &here->args->forward,
                terms, rows, w);
}

/* dO of a tile of rows stays in registers where that is not much. */
#define KEPT_FLOW_TILES (DIM_TILES <= 4 ? DIM_TILES : 0)
typedef struct flow_rows {
    int row, last_row;
    query_tile tile[KEPT_FLOW_TILES + 1];
} flow_rows;

INLINE query_tile load_flow(const flow_rows *rows, int d, const visit *here,
                            const wave *w)
{
    return load_query(here->d_o + d * UNIT_TILE, PITCH, rows->row,
                      rows->last_row, w);
}

INLINE flow_rows read_flow(const tile_rows *rows, const visit *here,
                           const wave *w)
{
    flow_rows flow = {.row = rows->row, .last_row = rows->last_row};
    UNROLL_FOR (int d = 0; d < KEPT_FLOW_TILES; d++)
        flow.tile[d] = load_flow(&flow, d, here, w);
    return flow;
}

/* dP of a tile of keys. */
INLINE void multiply_flow(float *flow, const flow_rows *rows, int tile,
                          const visit *here, const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        flow[i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        const query_tile q =
            d < KEPT_FLOW_TILES ? rows->tile[d] : load_flow(rows, d, here, w);
        const key_tile v = load_key(here->v + d * UNIT_TILE, PITCH,
                                    tile * UNIT_TILE, KEY_ROWS - 1, w);
        multiply_tiles(flow, &q, &v, w);
    }
}

/* After the last pass. */
INLINE void finish_statistics(row_statistics *s, const row_part *part,
                              const int known, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(s->delta[r], ADD);
        if (known) {
            s->delta[r] /= P_POWER;
        } else {
            REDUCE(s->sum[r], ADD);
            const float sum = s->sum[r];
            const int sees = sum != 0.0f && row_exists(part, r, w);
            s->sum[r] = sees ? RECIPROCAL(sum) : 0.0f;
            s->delta[r] *= s->sum[r];
            s->sum[r] *= P_POWER;
            if (PASSES > 1)
                s->top[r] = sees ? s->top[r] + log(sum) : INFINITY;
        }
        s->delta[r] -= part->d_lse[r];
#if RESCALES
        REDUCE(s->flow[r], fmax);
#if VARIANT == COSINE
        REDUCE(s->key_flow[r], fmax);
        REDUCE(s->key_inverse[r], fmax);
#endif
#endif
    }
}

/* A first walk over all keys, for what must be known of the rows. Of one pass
 * leaves the exponentials, or where lse is known P. */
INLINE void find_statistics(row_statistics *s,
                            float scores[PASS_TILES][VALUES],
                            const row_part *part, const visit *here,
                            const logit_terms *terms, const int known,
                            const wave *w)
{
    const flow_rows flow_rows_here = read_flow(&part->rows, here, w);
    start_statistics(s, known, part->lse);
    PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES) {
        score_pass(scores, first, here, &part->rows, terms, w);
        if (known)
            make_p(scores, s->top);
        else
            make_exponentials(s, scores, first, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t)) {
                float flow[VALUES];
                multiply_flow(flow, &flow_rows_here, first + t, here, w);
                add_flow(s, scores[t], flow, (first + t) * UNIT_TILE,
                         here->k_inverses, w);
            }
    }
    finish_statistics(s, part, known, w);
}

/* A bound of the part's |dS|, as it goes to dK; P is at most 1. */
INLINE float bound_of(const row_statistics *s, const row_part *part,
                      const visit *here, const wave *w)
{
    float bound = 0.0f;
#if RESCALES
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        float own = s->flow[r] + fabs(s->delta[r]);
#if VARIANT == COSINE
        own *= operand_factor(part->inverse[r]) * fabs(here->scale);
#endif
        bound = row_exists(part, r, w) ? fmax(bound, own) : bound;
    }
#endif
    return bound;
}

#if BIAS
/* Adds a tile of dS, times a factor, to what is summed over windows. */
INLINE void add_dbias(float *sums, __global float *partial, const float *ds,
                      float factor, int tile, const row_part *part,
                      const visit *here, const wave *w)
{
#if KEEPS_DBIAS
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        sums[i] = !EMULATED || here->at->exists ? FMA(ds[i], factor, sums[i])
                                                : sums[i];
#else
    if ((here->args->forward.flags & ARG_DBIAS) == 0)
        return;
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int row = value_query(w->lane, i);
        const int key = tile * UNIT_TILE + value_key(w->lane, i);
        if (row < part->count && key < NK)
            partial[(here->first_row + part->rows.row + row) * NK + key] +=
                ds[i] * factor;
    }
#endif
}
#endif

/* P and dS of the tile of rows go to local memory, and dQ leaves. `scores` are
 * what find_statistics has left. dbias_sums and bias_partial: where dBias is
 * summed, one of them. Adds q^ . dq^ of the lane's own rows to *scale_sum. */
INLINE void differentiate_rows(
    float scores[PASS_TILES][VALUES], float dbias_sums[][VALUES],
    __global float *bias_partial, __global storage *dq, float *scale_sum,
    const row_statistics *s, const row_part *part, const visit *here,
    const logit_terms *terms, const int known, const int stores, const wave *w)
{
    const tile_rows *rows = &part->rows;
    const backward_args *args = here->args;
    const uint flags = args->forward.flags;
    const flow_rows flow_rows_here = read_flow(rows, here, w);
    float sums[ROW_SUM_TILES][VALUES];
    query_tile operands[PASS_TILES][WEIGHT_PARTS];
    /* what dS is multiplied by: at once, and then for dQ and for dK */
    float at_once[LANE_ROWS], to_dk[LANE_ROWS], to_dq[LANE_ROWS];
    float from_dq[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
#if VARIANT == COSINE
        at_once[r] = 1.0f;
        to_dk[r] =
            here->power * operand_factor(part->inverse[r]) * here->scale;
        to_dq[r] = 1.0f;
#if RESCALES
        to_dq[r] =
            power_for(s->key_flow[r] + fabs(s->delta[r]) * s->key_inverse[r]);
#endif
#else
        at_once[r] = to_dq[r] = here->power;
#endif
        from_dq[r] = here->scale * inverse_power(to_dq[r]);
    }
    clear_tiles(sums, ROW_SUM_TILES);
    GRADIENT_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES) {
        if (PASSES > 1) {
            score_pass(scores, first, here, rows, terms, w);
            make_p(scores, s->top);
        } else if (!known) {
            UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    scores[t][i] *= s->sum[LANE_ROW(i)];
        }
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++) {
            if (!IS_TILE(first + t))
                continue;
            const int key = (first + t) * UNIT_TILE;
            float ds[VALUES];
            multiply_flow(ds, &flow_rows_here, first + t, here, w);
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                const int r = LANE_ROW(i);
                const float factor = at_once[r] / P_POWER;
                ds[i] =
                    scores[t][i] * FMA(ds[i], factor, -s->delta[r] * factor);
            }
#if BIAS
            add_dbias(dbias_sums[first + t], bias_partial, ds,
                      VARIANT == COSINE ? 1.0f : inverse_power(here->power),
                      first + t, part, here, w);
#endif
            if (stores)
                keep_weights(scores[t], here->p, rows->row, key, w);
#if VARIANT == COSINE
            float operand[VALUES];
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                operand[i] = ds[i] * to_dk[LANE_ROW(i)];
                ds[i] *= to_dq[LANE_ROW(i)] *
                         operand_factor(here->k_inverses[min(
                             key + value_key(w->lane, i), (int)NK - 1)]);
            }
            if (stores)
                keep_weights(operand, here->ds, rows->row, key, w);
#endif
            UNROLL_FOR (int n = 0; n < WEIGHT_PARTS; n++) {
                operands[t][n] = make_weights(ds, w);
#if VARIANT != COSINE
                if (stores)
                    store_weights(ds, here->ds + n * WEIGHT_SIZE, WEIGHT_PITCH,
                                  rows->row, key, w);
#endif
                if (n + 1 < WEIGHT_PARTS)
                    subtract_rounded(ds);
            }
            if (ROW_SUM_TILES == DIM_TILES)
                add_values(sums, operands[t], here->k, first + t, 0, w);
        }
    }
    const row_target to = {
        .plane = dq + plane(&args->dq, here->at->place.grid, here->head),
        .layout = &args->dq,
        .grid = &args->forward.grid,
        .place = &here->at->place,
        .row = here->first_row + rows->row,
        .count = min(part->count, UNIT_QUERIES),
        .adds = (flags & ARG_ADD_DQ) != 0,
        .wide = (flags & ARG_WIDE_ACCESS) != 0};
#if VARIANT == COSINE
    float along[LANE_ROWS];
    take_back_norms(sums, along, from_dq, part->inverse, here->q, rows->row,
                    rows->last_row, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        if (value_key(w->lane, 0) == 0 && lane_query(w->lane, r) < part->count)
            *scale_sum += along[r];
        from_dq[r] = 1.0f;
    }
#endif
    if ((flags & ARG_DQ) == 0)
        return;
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES) {
        if (ROW_SUM_TILES != DIM_TILES) {
            clear_tiles(sums, ROW_SUM_TILES);
            UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
                if (IS_TILE(t))
                    add_values(sums, operands[t], here->k, t, first, w);
        }
        store_channels(sums + (ROW_SUM_TILES == DIM_TILES ? first : 0),
                       from_dq, first, here->out, &to, w);
    }
}

/* dV and dK of a tile of keys, from `key` on, of which `count` exist: adds
 * what the visit's rows bring, KEY_SUM_TILES tiles of channels from tile
 * `first` on. After the last visit they leave. pad_sums: [2][DIMS], of the
 * wave. */
INLINE void differentiate_keys(float sums_v[][VALUES], float sums_k[][VALUES],
                               int key, int count, int first,
                               __global storage *dv, __global storage *dk,
                               uint kv_head, __local float *pad_sums,
                               const visit *here, const wave *w)
{
    const backward_args *args = here->args;
    const uint flags = args->forward.flags;
    const window_place *place = &here->at->place;
    add_across(sums_v, here->p, key, here->d_o, first, here->row_count, w);
    add_across(sums_k, here->ds, key, here->q, first, here->row_count, w);
    if (!here->is_last)
        return;
    float of_v[LANE_ROWS], of_k[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        of_v[r] = 1.0f / P_POWER;
        of_k[r] = inverse_power(here->power);
#if VARIANT != COSINE
        of_k[r] *= here->scale;
#endif
    }
#if VARIANT == COSINE
    float along[LANE_ROWS], inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        inverse[r] =
            here->k_inverses[min(key + lane_query(w->lane, r), (int)NK - 1)];
    take_back_norms(sums_k, along, of_k, inverse, here->k, key, NK - 1, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        of_k[r] = 1.0f;
#endif
    row_target to_v = {.plane = dv + plane(&args->dv, place->grid, kv_head),
                       .layout = &args->dv,
                       .grid = &args->forward.grid,
                       .place = place,
                       .row = key,
                       .count = min(count, UNIT_QUERIES),
                       .adds = (flags & ARG_ADD_DV) != 0,
                       .wide = (flags & ARG_WIDE_ACCESS) != 0};
    row_target to_k = to_v;
    to_k.plane = dk + plane(&args->dk, place->grid, kv_head);
    to_k.layout = &args->dk;
    to_k.adds = (flags & ARG_ADD_DK) != 0;
    UNROLL_FOR (int d = 0; d < KEY_SUM_TILES; d += OUT_TILES) {
        if ((flags & ARG_DV) != 0)
            store_channels(sums_v + d, of_v, first + d, here->out, &to_v, w);
        if ((flags & ARG_DK) != 0)
            store_channels(sums_k + d, of_k, first + d, here->out, &to_k, w);
#if PADDING == 1
        if (EMULATED || holds_padding(&args->forward.grid, place)) {
            add_padding(sums_k + d, of_k, first + d, pad_sums, here->out,
                        &to_k, w);
            add_padding(sums_v + d, of_v, first + d, pad_sums + DIMS,
                        here->out, &to_v, w);
        }
#endif
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(backward_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    __local uint4 rings[TEAMS][STAGES * STAGE_SIZE / CHUNK];
    __local uint4
        out_rows[TEAMS * TEAM_WAVES][UNIT_QUERIES * OUT_PITCH / CHUNK];
    __local uint4 weight_tiles[TEAMS][2 * WEIGHT_PARTS * WEIGHT_SIZE / CHUNK];
#if HAS_LOCAL_TERMS
    __local kept_term kept[ROW_TILES * KEY_TILES * TERM_TILE]
        __attribute__((aligned(16)));
#endif
#if VARIANT == COSINE
    __local float q_inverses[TEAMS][BLOCK_ROWS], k_inverses[TEAMS][KEY_ROWS];
    __local float lane_sums[TEAM * TEAMS];
#endif
#if REGIONS_APART
    __local uchar kept_row_regions[TEAMS][BLOCK_ROWS];
    __local uchar kept_key_regions[TEAMS][NK];
#endif
    __local float lse_rows[TEAMS][STAGES][BLOCK_ROWS];
#if RESCALES
    __local uint bounds[TEAMS][2]; /* of dS, of this visit and the next */
#endif
#if PADDING == 1
    __local float pad_sums[TEAMS * TEAM_WAVES][2 * DIMS];
#endif
    DECLARE_PADS(pad_rows)
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const int item_id = (int)get_local_id(0);
    const int team = item_id / TEAM;
    int lane_of_team = item_id % TEAM;
    const int wave_of_team = lane_of_team / WAVE;
#if EMULATED
    __local uint exchanges[TEAMS * TEAM_WAVES][EXCHANGE_WORDS];
    wave wave_here = {.lane = item_id % WAVE,
                      .exchange = exchanges[item_id / WAVE]};
#else
    wave wave_here = {.lane = item_id % WAVE};
#endif
    const wave *w = &wave_here;
    __local ushort *ring = (__local ushort *)rings[team];
    const int owns_rows = wave_of_team < ROW_TILES;
    const int row_tile = min(wave_of_team, ROW_TILES - 1);

    /* what this work-group owns */
    const uint heads_each = forward->heads_per_kv_head;
    const uint kv_heads = forward->heads / heads_each;
    const uint kv_head = (uint)get_group_id(0) % kv_heads;
    const uint slot = (uint)get_group_id(0) / kv_heads;
    const uint first_head = kv_head * heads_each;
    const uint row_blocks = CEIL_DIV(NQ, BLOCK_ROWS);
    const uint visits = ONE_VISIT ? 1 : heads_each * row_blocks;
    const int wide = (flags & ARG_WIDE_ACCESS) != 0;
    const int known = (flags & ARG_LSE) != 0;
    walk here = start_walk(forward, slot, team);
    const uint items = here.rounds * visits;
    const ulong head_partial = (ulong)slot * forward->heads + first_head;
    __global float *bias_partials =
        workspace + args.bias_partials + head_partial * (NQ * NK);
    __global float *scale_partials =
        workspace + args.scale_partials + head_partial;

    /* Starts the copies of one visit; after the last of a window, walks on.
     * Where things lie is found anew each time: registers are worth more. */
    walk there = here;
#define COPY(to, name, layout, head, pad, first, count, rows)                 \
    copy_rows(to, name + plane(&(layout), there.place.grid, head),            \
              chunk_of(&(layout), lane), &(layout), &forward->grid,           \
              &there.place, pad, first, count, rows, lane, wide)
#define START_COPIES(item)                                                    \
    if ((item) < items) {                                                     \
        const uint number = ONE_VISIT ? 0 : (item) % visits;                  \
        const uint first = number % row_blocks * BLOCK_ROWS;                  \
        const int count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first);       \
        __local ushort *to = ring + (item) % STAGES * STAGE_SIZE;             \
        __local ushort *keys_to =                                             \
            ring + (item) / visits % STAGES * STAGE_SIZE;                     \
        int lane = lane_of_team;                                              \
        uint kv = kv_head;                                                    \
        FORGET(lane);                                                         \
        FORGET(kv);                                                           \
        const uint head = kv * heads_each + number / row_blocks;              \
        if (there.exists) {                                                   \
            COPY(to + Q_PLACE, q, forward->q, head, 0, first, count,          \
                 BLOCK_ROWS);                                                 \
            COPY(to + D_O_PLACE, d_o, args.d_o, head, 0, first, count,        \
                 BLOCK_ROWS);                                                 \
            if (known)                                                        \
                copy_lse(lse_rows[team][(item) % STAGES],                     \
                         lse + plane(&forward->lse, there.place.grid, head),  \
                         &forward->lse, &forward->grid, &there.place, first,  \
                         count, lane);                                        \
        }                                                                     \
        if (there.exists && number == 0) {                                    \
            COPY(keys_to + K_PLACE, k, forward->k, kv, KEPT_PAD(pad_rows, 0), \
                 0, NK, BLOCK_KEYS);                                          \
            COPY(keys_to + V_PLACE, v, forward->v, kv, KEPT_PAD(pad_rows, 1), \
                 0, NK, BLOCK_KEYS);                                          \
        }                                                                     \
        if (number + 1 == visits)                                             \
            walk_on(&there, forward, team);                                   \
    }                                                                         \
    END_COPIES()
    KEEP_PADS(pad_rows, *forward, kv_head, item_id)
    for (uint item = 0; item + 1 < STAGES; item++) {
        START_COPIES(item);
    }
    clear_pads(ring, lane_of_team);
    /* rows of weights that no tile of rows has */
    for (int i = lane_of_team; i < 2 * WEIGHT_PARTS * WEIGHT_SIZE / CHUNK;
         i += TEAM)
        weight_tiles[team][i] = (uint4)(0u);
#if HAS_LOCAL_TERMS && !MASK_IN_LOCAL
    const unit of_head = {.window = forward->first_window, .head = first_head};
    DECLARE_TERMS(head_terms, *forward, of_head)
    keep_terms(kept, forward, &head_terms, 0, item_id);
#endif
#if RESCALES
    if (lane_of_team < 2)
        bounds[team][lane_of_team] = 0;
#endif
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
#if MASK_IN_LOCAL
    uint kept_kind = ~0u; /* of windows whose terms are kept */
#endif
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
#if !ONE_VISIT
    float kept_v[KEY_TURNS][DIM_TILES][VALUES];
    float kept_k[KEY_TURNS][DIM_TILES][VALUES];
    float kept_power = 1.0f; /* that of kept_k */
#endif

    for (uint item = 0; item < items; item++) {
        FORGET_LANE(lane_of_team);
        FORGET_LANE(wave_here.lane);
        const uint number = ONE_VISIT ? 0 : item % visits;
        __local const ushort *stage = ring + item % STAGES * STAGE_SIZE;
        __local const ushort *key_stage =
            ring + item / visits % STAGES * STAGE_SIZE;
        visit now = {.args = &args,
                     .at = &here,
                     .head = first_head + number / row_blocks,
                     .first_row = BLOCK_ROWS >= NQ
                                      ? 0
                                      : number % row_blocks * BLOCK_ROWS,
                     .is_last = number + 1 == visits,
                     .scale = forward->scale,
                     .power = 1.0f,
                     .q = stage + Q_PLACE,
                     .d_o = stage + D_O_PLACE,
                     .k = key_stage + K_PLACE,
                     .v = key_stage + V_PLACE,
                     .lse = lse_rows[team][item % STAGES],
                     .p = (__local ushort *)weight_tiles[team],
                     .out = (__local ushort *)out_rows[item_id / WAVE]};
        now.ds = now.p + WEIGHT_PARTS * WEIGHT_SIZE;
        now.row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - now.first_row);
#if VARIANT == COSINE
        now.scale = cosine_scale(forward, logit_scale, now.head);
        now.q_inverses = q_inverses[team];
        now.k_inverses = k_inverses[team];
#endif
        const unit unit_here = {.window = window_of(&here, forward),
                                .head = now.head,
                                .row = now.first_row};
#if HAS_TERMS_KEPT
        const logit_terms terms = {.unused = 0};
#else
        DECLARE_TERMS(terms, *forward, unit_here)
#endif
#if MASK_IN_LOCAL
        const uint kind = MASK_KIND(here);
        if (kind != kept_kind) { /* all teams have windows of this kind */
            DECLARE_TERMS(new_terms, *forward, unit_here)
            kept_kind = kind;
            barrier(CLK_LOCAL_MEM_FENCE);
            keep_terms(kept, forward, &new_terms, 0, item_id);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#endif
#if STAGES == 1
        TEAM_SYNC(team); /* all have read the last item */
        START_COPIES(item);
        AWAIT_COPIES(0);
        TEAM_SYNC(team);
#else
        AWAIT_COPIES(STAGES - 2);
        TEAM_SYNC(team); /* this item is there, the last one was read */
        START_COPIES(item + STAGES - 1);
#endif
#if RESCALES
        if (lane_of_team == 0)
            bounds[team][(item + 1) % 2] = 0;
#endif
#if VARIANT == COSINE
        if (number == 0)
            measure_rows(k_inverses[team], now.k, BLOCK_KEYS, 1.0f,
                         wave_of_team, w);
        measure_rows(q_inverses[team], now.q, BLOCK_ROWS, 1.0f, wave_of_team,
                     w);
#endif
#if REGIONS_APART
        const int has_seams = HAS_SEAMS(here);
        if (has_seams) {
            DECLARE_REGIONS(regions, *forward, unit_here, here)
            keep_regions(kept_row_regions[team], kept_key_regions[team],
                         forward, &regions, 0, lane_of_team);
        }
#endif
#if VARIANT == COSINE
        TEAM_SYNC(team);
#elif REGIONS_APART
        if (EMULATED || has_seams)
            TEAM_SYNC(team);
#endif

        /* 1. tiles of rows; waves without one wait */
        const int computes = EMULATED || (here.exists && owns_rows);
        row_part part = {.rows = {.row = row_tile * UNIT_QUERIES,
                                  .last_row = now.row_count - 1,
                                  .first_row = (int)now.first_row,
                                  .place = here.place}};
        part.count =
            here.exists && owns_rows ? now.row_count - part.rows.row : 0;
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
            find_statistics(&statistics, scores, &part, &now, &terms, known,
                            w);
        }
#if RESCALES
        if (computes && part.count > 0 && value_key(w->lane, 0) == 0)
            atomic_max(&bounds[team][item % 2],
                       as_uint(bound_of(&statistics, &part, &now, w)));
        TEAM_SYNC(team);
        now.power = power_for(as_float(bounds[team][item % 2]));
#if !ONE_VISIT
        now.power = number == 0 ? now.power : fmin(now.power, kept_power);
#endif
#endif
        if (computes)
            differentiate_rows(scores, dbias_sums,
                               bias_partials +
                                   (ulong)(now.head - first_head) * (NQ * NK),
                               dq, &scale_sum, &statistics, &part, &now,
                               &terms, known, owns_rows, w);
        TEAM_SYNC(team); /* P and dS are there */

        /* 2. tiles of keys */
        KEY_FOR (int turn = 0; turn < KEY_TURNS; turn++) {
            const int tile = turn * TEAM_WAVES + wave_of_team;
            const int key = min(tile, KEY_STRIPES - 1) * UNIT_QUERIES;
            const int count = here.exists ? NK - tile * UNIT_QUERIES : 0;
#if PADDING == 1
            __local float *pads = pad_sums[item_id / WAVE];
#else
            __local float *pads = 0;
#endif
            if (!EMULATED && count <= 0)
                continue;
#if ONE_VISIT
            UNROLL_FOR (int first = 0; first < DIM_TILES;
                        first += KEY_SUM_TILES) {
                float sums_v[KEY_SUM_TILES][VALUES];
                float sums_k[KEY_SUM_TILES][VALUES];
                clear_tiles(sums_v, KEY_SUM_TILES);
                clear_tiles(sums_k, KEY_SUM_TILES);
                differentiate_keys(sums_v, sums_k, key, count, first, dv, dk,
                                   kv_head, pads, &now, w);
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
            differentiate_keys(kept_v[turn], kept_k[turn], key, count, 0, dv,
                               dk, kv_head, pads, &now, w);
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
        if (now.is_last)
            walk_on(&here, forward, team);
    }

    barrier(CLK_LOCAL_MEM_FENCE);
#if BIAS && KEEPS_DBIAS
    if ((flags & ARG_DBIAS) != 0)
        store_dbias(dbias_sums, (__local float *)rings, bias_partials, team,
                    row_tile, owns_rows, flags, w);
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
    const ulong pad_at = ((ulong)slot * kv_heads + kv_head) * HEAD_DIM;
    for (int c = item_id; c < HEAD_DIM; c += TEAM * TEAMS) {
        float sum_k = 0.0f, sum_v = 0.0f;
        for (int i = 0; i < TEAMS * TEAM_WAVES; i++) {
            sum_k += pad_sums[i][c];
            sum_v += pad_sums[i][DIMS + c];
        }
        if ((flags & ARG_D_PAD_K) != 0)
            add_partial(workspace + args.pad_k_partials + pad_at + c, sum_k,
                        flags);
        if ((flags & ARG_D_PAD_V) != 0)
            add_partial(workspace + args.pad_v_partials + pad_at + c, sum_v,
                        flags);
    }
#endif
}
