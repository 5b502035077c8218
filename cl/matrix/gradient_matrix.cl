/* SPDX-License-Identifier: Apache-2.0
 * What the gradient kernels for matrix units share: softmax of a tile of rows
 * and its gradient, powers of two that fp16 needs, norms, the padding, sums
 * over windows.
 *
 *   KEEPS_DBIAS  sums of dBias over windows of a tile of rows
 *                0: are added to in the workspace (TEAMS 1)
 *                1: stay in registers, for which a wave must have the same
 *                   rows and keys always, and indices be constant
 *                2: stay in local memory, in 16 bytes for each lane (TEAMS 1)
 *   AGAIN        1: scores are computed again for the gradients */
#include "matrix/matrix.cl"

#ifndef KEEPS_DBIAS
#define KEEPS_DBIAS 0
#endif
#ifndef AGAIN
#define AGAIN (PASSES > 1)
#endif

/* Sums of dBias that stay in registers must have constant indices. */
#if BIAS && KEEPS_DBIAS == 1
#define GRADIENT_FOR UNROLL_FOR
#else
#define GRADIENT_FOR PASS_FOR
#endif

/* Rounding to fp16 loses small numbers, below 2^-24 of all there are: P, and
 * so dS and dBias, is multiplied by a power of two first, and dS by one more.
 * Where rows are summed, for dK, that is the same for all rows of a visit. */
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
    float flow[LANE_ROWS]; /* sum of |dP|: a bound that costs little */
#if VARIANT == COSINE
    float key_flow[LANE_ROWS];    /* no less than of |dP| / norm of the key */
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

/* P_POWER P of a pass from tile `first` on, of rows whose lse is known;
 * may_be_large: see shift_scores. */
INLINE void make_p(float scores[PASS_TILES][VALUES], int first,
                   const float *lse, const int may_be_large)
{
    float shift[LANE_ROWS];
    if (may_be_large)
        shift_scores(scores, lse, shift);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        shift[r] = may_be_large ? shift[r] + P_EXPONENT
                                : FMA(-lse[r], LOG2E, P_EXPONENT);
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            scores[t][i] =
                HAS_KEY(first + t, i)
                    ? EXP2(FMA(scores[t][i], LOG2E, shift[LANE_ROW(i)]))
                    : 0.0f;
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
        if (KEY_BLOCKS > 1 || PASSES > 1) {
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
            scores[t][i] = HAS_KEY(first + t, i)
                               ? EXP2(FMA(scores[t][i], LOG2E, shift[r]))
                               : 0.0f;
            s->sum[r] += scores[t][i];
        }
}

/* Takes a tile's dP into account, given its exponentials. */
INLINE void add_flow(row_statistics *s, const float *exponentials,
                     const float *flow, int tile)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int r = LANE_ROW(i);
        if (!HAS_KEY(tile, i))
            continue;
        s->delta[r] = FMA(exponentials[i], flow[i], s->delta[r]);
#if RESCALES
        s->flow[r] += fabs(flow[i]);
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

/* A tile becomes operands, whose sum it is. Changes it. */
INLINE void make_operand_parts(query_tile *operands, float *tile,
                               const wave *w)
{
    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
        operands[part] = make_weights(tile, w);
        if (part + 1 < WEIGHT_PARTS)
            subtract_rounded(tile);
    }
}

/* sums += a tile's weights times values, for `count` tiles of channels from
 * tile `channels` on. */
INLINE void add_values(float sums[][VALUES], const int count,
                       const query_tile *weights, __local const ushort *values,
                       int tile, int channels, const wave *w)
{
    UNROLL_FOR (int d = 0; d < count; d++)
        if (HAS_CHANNELS(channels + d)) {
            const key_tile x = load_value(values, PITCH, tile * UNIT_TILE,
                                          (channels + d) * UNIT_TILE, LAST_KEY,
                                          KEY_PART(tile), w);
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                multiply_tiles(sums[d], &weights[part], &x, w);
        }
}

#if VARIANT == COSINE
/* Gradients with respect to rows of length 1 are taken back to rows x of any
 * length: (d - x^ (x^ . d)) / |x|, where d is sums times factor. Below the
 * smallest norm x^ is just a multiple of x. Leaves x^ . d in along. */
INLINE void take_back_norms(float sums[][VALUES], float *along,
                            const float *factor, const float *inverses,
                            __local const ushort *rows, int row, int last,
                            const wave *w)
{
    float part[LANE_ROWS], whole[LANE_ROWS], inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        along[r] = 0.0f;
        inverse[r] = DROPS_ZEROS && inverses[r] == 0.0f ? 1.0f / NORM_EPSILON
                                                        : inverses[r];
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const float x = number_of(
                rows[row_place(min(row + value_query(w->lane, i), last),
                               d * UNIT_TILE + value_key(w->lane, i), PITCH)]);
            along[LANE_ROW(i)] = FMA(x, sums[d][i], along[LANE_ROW(i)]);
        }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(along[r], ADD);
        whole[r] = factor[r] * inverse[r];
        along[r] *= whole[r];
        part[r] = inverse[r] < 1.0f / NORM_EPSILON
                      ? along[r] * inverse[r] * inverse[r]
                      : 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const float x = number_of(
                rows[row_place(min(row + value_query(w->lane, i), last),
                               d * UNIT_TILE + value_key(w->lane, i), PITCH)]);
            sums[d][i] =
                FMA(sums[d][i], whole[LANE_ROW(i)], -x * part[LANE_ROW(i)]);
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

/* ---- What o and lse of the forward pass may do ---- */

/* Both are rounded, and gradients may cancel what is exact of them. An lse
 * serves alone while its rounding is far below that of P. delta from o always
 * does, since the sum of a row's dS over its keys must be d_lse: that tells
 * how far delta is off, and where it shows the row is mended. But in small
 * windows the rounding of o always shows. Both take a vote of the wave. */
#ifdef WAVE_ANY
#define TAKES_LSE 1
#define TAKES_O (WEIGHT_PARTS == 1)
#else
#define TAKES_LSE 0
#define TAKES_O 0
#endif
#define MOST_LSE 64.0f /* without o */
/* A larger one, unless rounded up, might make exponentials overflow. */
#define LARGE_LSE 0x1p22f

/* What dS of a row sums over keys; its squares of one tile among so many, as
 * an estimate does for these, and of a lane's own keys. */
typedef struct row_errors {
    float sum[LANE_ROWS], squares[LANE_ROWS];
} row_errors;
#define LANES_OF_ROW (WAVE * LANE_ROWS / UNIT_QUERIES)
#define SAMPLED (CEIL_DIV(4, PASS_TILES) * PASS_TILES)
/* Of a key, in a mean of keys of length 1: a number of 16 bits. */
#define MOST_INVERSE 16384.0f

INLINE void clear_errors(row_errors *e)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        e->sum[r] = e->squares[r] = 0.0f;
}

/* Are sums of dS made of `operands`, as they go to the product with K? The
 * cosine variant has those times norms. */
#define SUMS_OPERANDS (VARIANT != COSINE)

/* Of a tile of dS. */
INLINE void add_errors(row_errors *e, const float *ds,
                       const query_tile *operands, int tile, const wave *w)
{
    if (SUMS_OPERANDS)
        add_weights(e->sum, operands, ds, w);
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        if (!HAS_KEY(tile, i))
            continue;
        const int r = LANE_ROW(i);
        if (!SUMS_OPERANDS)
            e->sum[r] += ds[i];
        if (tile % SAMPLED == 0)
            e->squares[r] = FMA(ds[i], ds[i], e->squares[r]);
    }
}

/* What is known of rows, `count` numbers. */
INLINE void copy_numbers(__local float *to, __global const float *from,
                         int count, int lane)
{
    for (int i = lane; i < count; i += TEAM)
        copy_4(to + i, from + i);
}

/* ---- A visit ---- */

/* For RELOAD_ARGS in these kernels, which call args.forward forward. */
#define RELOAD_BACKWARD_ARGS                                                  \
    RELOAD_ARGS(backward_args)                                                \
    const forward_args *forward = &args.forward;

/* Starts the copies of rows of a plane of a head, in a kernel's START_COPIES:
 * `number` of four of which each may have a wave of its own, whose lanes then
 * count from 0. */
#define COPY_LANE (COPIES_APART ? lane & (WAVE - 1) : lane)
#define COPY(number, to, name, layout, head, pad, first, count, rows, wide)   \
    if (!COPIES_APART || lane / COPIERS == (number))                          \
    copy_rows(to, name + plane(&(layout), there.place.grid, head),            \
              chunk_of(&(layout), COPY_LANE), &(layout), &forward->grid,      \
              &there.place, pad, first, count, rows, COPY_LANE, wide)
/* `count` keys of head kv, from `first` on. */
#define COPY_KEYS(to, first, count, wide)                                     \
    COPY(2, (to) + K_PLACE, k, forward->k, kv, KEPT_PAD(pad_rows, 0), first,  \
         count, BLOCK_KEYS, wide);                                            \
    COPY(3, (to) + V_PLACE, v, forward->v, kv, KEPT_PAD(pad_rows, 1), first,  \
         count, BLOCK_KEYS, wide)
/* `count` rows of q and dO of a head, from `first` on. */
#define COPY_ROWS(to, first, count, wide)                                     \
    COPY(0, (to) + Q_PLACE, q, forward->q, head, 0, first, count, BLOCK_ROWS, \
         wide);                                                               \
    COPY(1, (to) + D_O_PLACE, d_o, args.d_o, head, 0, first, count,           \
         BLOCK_ROWS, wide)
/* One branch for all of them: copy(wide). */
#define COPY_WIDE_OR_NOT(copy)                                                \
    if (wide) {                                                               \
        copy(1);                                                              \
    } else {                                                                  \
        copy(0);                                                              \
    }

/* A work-item and the head of keys, for copies: where things lie is found anew
 * each time, as registers are worth more. */
#define DECLARE_COPIER                                                        \
    int lane = lane_of_team;                                                  \
    uint kv = kv_head;                                                        \
    FORGET(lane);                                                             \
    FORGET(kv);

/* Starts the copies of one visit, a block of rows of one head, with the first
 * also those of the keys first_key .. first_key + key_count, unless these come
 * late; after the last of a window, walks on. COPY_NUMBERS() is the kernel's,
 * for what else rows bring. */
#define COPY_VISIT(wide)                                                      \
    COPY_ROWS(to, first, count, wide);                                        \
    if (!LATE_KEYS && number == 0) {                                          \
        COPY_KEYS(keys_to, first_key, key_count, wide);                       \
    }
#define START_VISIT(item)                                                     \
    if ((item) < items) {                                                     \
        const uint number = (item) % visits;                                  \
        const uint row_block = number % CEIL_DIV(NQ, BLOCK_ROWS);             \
        const uint first = row_block * BLOCK_ROWS;                            \
        const int count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first);       \
        __local ushort *to = ring + (item) % STAGES * STAGE_SIZE;             \
        __local ushort *keys_to = ring + KEY_STAGE((item) / visits % STAGES); \
        DECLARE_COPIER                                                        \
        const uint head =                                                     \
            kv * heads_each + number / CEIL_DIV(NQ, BLOCK_ROWS);              \
        if (there.exists) {                                                   \
            COPY_WIDE_OR_NOT(COPY_VISIT)                                      \
            if (!LATE_KEYS) {                                                 \
                COPY_NUMBERS(item);                                           \
            }                                                                 \
        }                                                                     \
        if (number + 1 == visits)                                             \
            walk_on(&there, forward, team);                                   \
    }                                                                         \
    END_COPIES()

/* Terms of logits in a kernel: at the start those of the head, for rows from
 * `first` on; and, as `terms`, an item's. */
#if MASK_IN_LOCAL
#define KEEP_HEAD_TERMS(of_head, first)                                       \
    uint kept_kind = ~0u; /* of windows whose terms are kept */
#elif HAS_LOCAL_TERMS
#define KEEP_HEAD_TERMS(of_head, first)                                       \
    const unit head_unit = {.window = forward->first_window,                  \
                            .head = of_head};                                 \
    DECLARE_TERMS(head_terms, *forward, head_unit)                            \
    keep_terms(kept, forward, &head_terms, first, item_id);
#else
#define KEEP_HEAD_TERMS(of_head, first)
#endif
#if MASK_IN_LOCAL /* all teams have windows of the same kind */
#define DECLARE_ITEM_TERMS(first)                                             \
    const logit_terms terms = {.unused = 0};                                  \
    const uint kind = MASK_KIND(here);                                        \
    if (kind != kept_kind) {                                                  \
        DECLARE_TERMS(new_terms, *forward, unit_here)                         \
        kept_kind = kind;                                                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        keep_terms(kept, forward, &new_terms, first, item_id);                \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
    }
#elif HAS_TERMS_KEPT
#define DECLARE_ITEM_TERMS(first) const logit_terms terms = {.unused = 0};
#else
#define DECLARE_ITEM_TERMS(first) DECLARE_TERMS(terms, *forward, unit_here)
#endif

/* What a team computes with. */
typedef struct visit {
    const backward_args *args;
    const walk *at;
    uint head;
    uint first_row, first_key; /* of the blocks, counted from the window's */
    int row_count, key_count;
    int is_last; /* of the window */
    int plain;   /* all gradients leave in whole chunks, added to nothing */
    float scale;
    float power; /* of two, that dS is multiplied by for dK */
    /* local memory: rows of PITCH */
    __local const ushort *q, *d_o, *k, *v;
    __local const float *q_inverses, *k_inverses;
    __local const float *lse; /* of the rows, where known */
    __local ushort *out;      /* of the wave, for rows that leave */
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

/* Is an lse of the tile too large to serve? The same at all lanes. */
INLINE int exceeds_lse(const row_part *part, const wave *w)
{
    int exceeds = 0;
#ifdef WAVE_ANY
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        exceeds |= part->lse[r] != INFINITY && fabs(part->lse[r]) > MOST_LSE;
    exceeds = WAVE_ANY(exceeds);
#endif
    return exceeds;
}

/* What rows bring besides q and dO. */
INLINE void read_rows(row_part *part, const visit *here,
                      __global const float *d_lse, const wave *w)
{
    const backward_args *args = here->args;
    const grid_layout *grid = &args->forward.grid;
    const window_place *place = &here->at->place;
    int rows[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        rows[r] =
            min(part->rows.row + lane_query(w->lane, r), part->rows.last_row);
        part->rows.scale[r] = here->scale;
        part->lse[r] = part->d_lse[r] = 0.0f;
#if VARIANT == COSINE
        part->inverse[r] = here->q_inverses[rows[r]];
        part->rows.scale[r] *= part->inverse[r];
#endif
    }
    const int known = TAKES_LSE && (args->forward.flags & ARG_LSE) != 0;
    if (known)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const float lse = here->lse[rows[r]];
            part->lse[r] = fabs(lse) > LARGE_LSE
                               ? lse + fmin(fabs(lse), FLT_MAX) * 0x1p-22f
                               : lse;
        }
    /* exponentials of what does not exist or sees nothing must be 0 */
    if (known)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            part->lse[r] = part->lse[r] == -INFINITY || !row_exists(part, r, w)
                               ? INFINITY
                               : part->lse[r];
    if ((args->forward.flags & ARG_D_LSE) != 0)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            ulong at;
            if (find_row(&at, &args->d_lse, grid, place,
                         here->first_row + rows[r]))
                part->d_lse[r] =
                    d_lse[plane(&args->d_lse, place->grid, here->head) + at];
        }
}

/* Scores of a pass. */
INLINE void score_pass(float scores[PASS_TILES][VALUES], int first,
                       const visit *here, const tile_rows *rows,
                       const logit_terms *terms, const wave *w)
{
    multiply_pass(scores, 0, here->q, rows->row, rows->last_row, here->k,
                  first, w);
    finish_pass(scores, here->k_inverses, first, (int)here->first_key,
                here->key_count, &here->args->forward, terms, rows, w);
}

/* dO of a tile of rows, or v of a tile of keys, stays in registers where that
 * is not much. */
#define KEPT_FLOW_TILES (DIM_TILES <= 4 ? DIM_TILES : 0)
typedef struct flow_rows {
    int row, last_row;
    query_tile tile[KEPT_FLOW_TILES + 1];
} flow_rows;

INLINE query_tile load_flow(const flow_rows *rows, int d,
                            __local const ushort *plane_of_rows, const wave *w)
{
    return load_query(plane_of_rows, PITCH, rows->row, d * UNIT_TILE,
                      rows->last_row, w);
}

INLINE flow_rows read_flow(const tile_rows *rows,
                           __local const ushort *plane_of_rows, const wave *w)
{
    flow_rows flow = {.row = rows->row, .last_row = rows->last_row};
    UNROLL_FOR (int d = 0; d < KEPT_FLOW_TILES; d++)
        flow.tile[d] = load_flow(&flow, d, plane_of_rows, w);
    return flow;
}

/* dP of a tile of keys, or of rows the other way round. */
INLINE void multiply_flow(float *flow, const flow_rows *rows,
                          __local const ushort *plane_of_rows,
                          __local const ushort *columns, int tile,
                          const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        flow[i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        const query_tile q = d < KEPT_FLOW_TILES
                                 ? rows->tile[d]
                                 : load_flow(rows, d, plane_of_rows, w);
        const key_tile k =
            load_key(columns, PITCH, tile * UNIT_TILE, d * UNIT_TILE, LAST_KEY,
                     KEY_PART(tile), w);
        multiply_tiles(flow, &q, &k, w);
    }
}

/* sums[r] = the product of rows r of two planes, at all lanes that share it.
 */
INLINE void multiply_rows(float sums[LANE_ROWS], __local const ushort *rows,
                          __local const ushort *others, const row_part *part,
                          const wave *w)
{
    int place[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sums[r] = 0.0f;
    dot_rows(sums, place, rows, others, part->rows.row, BLOCK_ROWS, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(sums[r], ADD);
    }
}

/* delta of rows whose lse and o are known (Dao et al. 2022, appendix B). */
INLINE void take_delta(row_statistics *s, const row_part *part,
                       const visit *here, __local const ushort *o,
                       const wave *w)
{
    float dots[LANE_ROWS];
    multiply_rows(dots, here->d_o, o, part, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        s->delta[r] = dots[r] - part->d_lse[r];
}

/* An error of delta is in dQ times the row's mean key, weighted by P. What all
 * keys have in common is taken out of `sums` by the plain mean of some, the
 * first tile from here->k on. */
INLINE void take_mean_key(float sums[][VALUES], const float *error,
                          const visit *here, const wave *w)
{
    query_tile operands[WEIGHT_PARTS];
    float x[VALUES];
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int key = value_key(w->lane, i);
        x[i] = key < here->key_count ? error[LANE_ROW(i)] * (-1.0f / UNIT_TILE)
                                     : 0.0f;
#if VARIANT == COSINE
        x[i] *= fmin(here->k_inverses[min(key, here->key_count - 1)],
                     MOST_INVERSE);
#endif
    }
    make_operand_parts(operands, x, w);
    add_values(sums, DIM_TILES, operands, here->k, 0, 0, w);
}

/* Lanes that share rows share their sums; squares stay a lane's own. */
INLINE void reduce_errors(row_errors *e, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        if (!SUMS_OPERANDS || SUMS_ARE_PARTS) {
            REDUCE(e->sum[r], ADD);
        }
    }
}

/* Sums of dS over all keys, expected[r] of which would be right, become their
 * errors. */
INLINE void find_errors(row_errors *e, const row_part *part,
                        const float *expected)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        /* a row that sees nothing, or does not exist, has no error */
        e->sum[r] = part->lse[r] == INFINITY ? 0.0f : e->sum[r] - expected[r];
}

/* Do errors show? What counts is their 2-norm and that of dS over all rows of
 * the tile. The same at all lanes; `scratch`: of the wave. */
INLINE int errors_count(const row_errors *e, __local float *scratch,
                        const wave *w)
{
    int shows = 0;
#ifdef WAVE_ANY
    const float allowed =
        LANES_OF_ROW * SAMPLED * DELTA_TOLERANCE * DELTA_TOLERANCE;
    float excess = 0.0f;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        excess = FMA(e->sum[r], e->sum[r], excess);
        excess = FMA(-allowed, e->squares[r], excess);
    }
    SUM_OF_WAVE(excess, scratch, w);
    shows = WAVE_ANY(excess > 0.0f);
#endif
    return shows;
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
            if (AGAIN)
                s->top[r] = sees ? s->top[r] + log(sum) : INFINITY;
        }
        s->delta[r] -= part->d_lse[r];
    }
}

#if RESCALES && VARIANT == COSINE
/* 1 / norm of the shortest key; those of length 0 do not count. */
INLINE float largest_inverse(const visit *here, __local uint *slot,
                             const wave *w)
{
    float largest = 0.0f;
    UNROLL_FOR (int done = 0; done < BLOCK_KEYS; done += WAVE) {
        const int key = done + w->lane;
        if (key < here->key_count)
            largest = fmax(largest, here->k_inverses[key]);
    }
    return as_float(LARGEST_OF_WAVE(as_uint(largest), slot, w));
}
#endif

/* A first walk over keys, for what must be known of the rows. Of one pass
 * leaves the exponentials, or where lse is known P. */
INLINE void add_statistics(row_statistics *s, float scores[PASS_TILES][VALUES],
                           const row_part *part, const visit *here,
                           const logit_terms *terms, const int known,
                           const wave *w)
{
    const flow_rows flow_rows_here = read_flow(&part->rows, here->d_o, w);
    PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES) {
        score_pass(scores, first, here, &part->rows, terms, w);
        if (known)
            make_p(scores, first, s->top, 1);
        else
            make_exponentials(s, scores, first, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t)) {
                float flow[VALUES];
                multiply_flow(flow, &flow_rows_here, here->d_o, here->v,
                              first + t, w);
                add_flow(s, scores[t], flow, first + t);
            }
    }
}

/* ---- Sums over windows ---- */

/* The first launch starts partial sums, the others add to them. */
INLINE void add_partial(__global float *partial, float sum, uint flags)
{
    *partial = (flags & ARG_FIRST_LAUNCH) != 0 ? sum : *partial + sum;
}

#if BIAS && KEEPS_DBIAS
/* A tile's sums go to the workspace: tile `tile` of keys, rows row .. of
 * row_count. */
INLINE void store_dbias_tile(const float *sums, __global float *partial,
                             int row, int row_count, int tile, uint flags,
                             const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int r = row + value_query(w->lane, i);
        const int key = tile * UNIT_TILE + value_key(w->lane, i);
        if (r < row_count && key < NK)
            add_partial(partial + r * NK + key, sums[i], flags);
    }
}
#endif

#if BIAS && KEEPS_DBIAS == 1
/* The sums of all teams, team after team, and then to the workspace: of tile
 * `tile` of rows and `count` tiles of keys from `first` on. */
INLINE void store_dbias(float (*sums)[VALUES], const int count,
                        __local float *shared, __global float *partial,
                        int team, int tile, int first, int row_count,
                        const int owns, uint flags, const wave *w)
{
    __local float *own =
        shared + (tile * KEY_TILES + first) * TERM_TILE + w->lane;
    for (int t = 1; t < TEAMS; t++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (team == t && owns)
            UNROLL_FOR (int k = 0; k < count; k++)
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    own[(k * VALUES + i) * WAVE] =
                        (t == 1 ? 0.0f : own[(k * VALUES + i) * WAVE]) +
                        sums[k][i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (team != 0 || !owns)
        return;
    UNROLL_FOR (int k = 0; k < count; k++) {
        if (TEAMS > 1)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                sums[k][i] += own[(k * VALUES + i) * WAVE];
        store_dbias_tile(sums[k], partial, tile * UNIT_QUERIES, row_count,
                         first + k, flags, w);
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

#if PADDING == 1
/* The sums of all waves, [2][DIMS] of each, go to the workspace, as they were
 * made; `owner` counts the blocks of keys of all slots and heads. Behind a
 * barrier. */
INLINE void store_pad_sums(__local float (*pad_sums)[2 * DIMS],
                           __global float *workspace,
                           const backward_args *args, ulong owner, int makes_k,
                           int makes_v, int item)
{
    const uint flags = args->forward.flags;
    for (int c = item; c < HEAD_DIM; c += TEAM * TEAMS) {
        const ulong at = owner * HEAD_DIM + c;
        float sum_k = 0.0f, sum_v = 0.0f;
        for (int i = 0; i < TEAMS * TEAM_WAVES; i++) {
            sum_k += pad_sums[i][c];
            sum_v += pad_sums[i][DIMS + c];
        }
        if (makes_k && (flags & ARG_D_PAD_K) != 0)
            add_partial(workspace + args->pad_k_partials + at, sum_k, flags);
        if (makes_v && (flags & ARG_D_PAD_V) != 0)
            add_partial(workspace + args->pad_v_partials + at, sum_v, flags);
    }
}
#endif

/* lse of rows first .. first + count of a window. */
INLINE void copy_lse(__local float *to, __global const float *plane,
                     const tensor_layout *layout, const grid_layout *grid,
                     const window_place *place, uint first, int count,
                     int lane)
{
    UNROLL_FOR (int done = 0; done < BLOCK_DOWN; done += TEAM) {
        const int i = done + lane;
        ulong at;
        if (i >= count)
            continue;
        if (find_row(&at, layout, grid, place, first + i))
            copy_4(to + i, plane + at);
        else
            to[i] = -INFINITY;
    }
}

/* Where sums of dBias are, one of them, for keys of an item. */
typedef struct dbias_place {
    float (*sums)[VALUES];     /* of the wave's rows */
    __local float4 *kept;      /* the same */
    __global float *workspace; /* of the block's rows, NK apart */
    int keys;                  /* that exist there, in the workspace */
} dbias_place;

#if BIAS

/* What the workspace has of a tile. It is asked for long before it is needed.
 */
INLINE void read_dbias(float *earlier, const dbias_place *to, int tile,
                       const row_part *part, const visit *here, const wave *w)
{
#if !KEEPS_DBIAS
    if ((here->args->forward.flags & ARG_DBIAS) == 0)
        return;
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int row = value_query(w->lane, i);
        const int key = tile * UNIT_TILE + value_key(w->lane, i);
        if (row < part->count && key < to->keys)
            earlier[i] = to->workspace[(part->rows.row + row) * NK + key];
    }
#endif
}

/* Adds a tile of dS, each row times its factor, to what is summed over
 * windows. */
INLINE void add_dbias(const dbias_place *to, const float *earlier,
                      const float *ds, const float *factor, int tile,
                      const row_part *part, const visit *here, const wave *w)
{
    const int exists = !EMULATED || part->count > 0;
#if KEEPS_DBIAS == 1
    float *sums = to->sums[tile];
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        if (!HAS_KEY(tile, i))
            continue;
        uint sum = as_uint(FMA(ds[i], factor[LANE_ROW(i)], sums[i]));
        FORGET(sum); /* LLVM would add all tiles up behind the last one */
        sums[i] = exists ? as_float(sum) : sums[i];
    }
#elif KEEPS_DBIAS == 2
    UNROLL_FOR (int i = 0; i < VALUES; i += 4) {
        __local float4 *at =
            to->kept + (tile * TERM_TILE + i * WAVE) / 4 + w->lane;
        float4 sums = *at;
        sums.x = FMA(ds[i], factor[LANE_ROW(i)], sums.x);
        sums.y = FMA(ds[i + 1], factor[LANE_ROW(i + 1)], sums.y);
        sums.z = FMA(ds[i + 2], factor[LANE_ROW(i + 2)], sums.z);
        sums.w = FMA(ds[i + 3], factor[LANE_ROW(i + 3)], sums.w);
        if (exists)
            *at = sums;
    }
#else
    if ((here->args->forward.flags & ARG_DBIAS) == 0)
        return;
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int row = value_query(w->lane, i);
        const int key = tile * UNIT_TILE + value_key(w->lane, i);
        if (row < part->count && key < to->keys)
            to->workspace[(part->rows.row + row) * NK + key] =
                FMA(ds[i], factor[LANE_ROW(i)], earlier[i]);
    }
#endif
}
#endif

/* ---- Rows that leave ---- */

/* Where the tile's rows of dQ go. */
INLINE row_target dq_target(__global storage *dq, const row_part *part,
                            const visit *here)
{
    const backward_args *args = here->args;
    const uint flags = args->forward.flags;
    const row_target to = {
        .plane = dq + plane(&args->dq, here->at->place.grid, here->head),
        .layout = &args->dq,
        .grid = &args->forward.grid,
        .place = &here->at->place,
        .row = here->first_row + part->rows.row,
        .count = min(part->count, UNIT_QUERIES),
        .adds = (flags & ARG_ADD_DQ) != 0,
        .wide = (flags & ARG_WIDE_ACCESS) != 0};
    return to;
}

#if VARIANT == COSINE
/* Sums of dQ are taken back to q as it is; from_dq, what they were to be
 * multiplied by, becomes 1. Adds q^ . dq^ of the lane's own rows to
 * *scale_sum. */
INLINE void take_back_rows(float sums[][VALUES], float *from_dq,
                           float *scale_sum, const row_part *part,
                           const visit *here, const wave *w)
{
    float along[LANE_ROWS];
    take_back_norms(sums, along, from_dq, part->inverse, here->q,
                    part->rows.row, part->rows.last_row, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        if (value_key(w->lane, 0) == 0 && lane_query(w->lane, r) < part->count)
            *scale_sum += along[r];
        from_dq[r] = 1.0f;
    }
}
#endif

/* OUT_TILES tiles of channels leave, from tile `first` on, each row times its
 * factor. */
INLINE void leave_channels(float (*tiles)[VALUES], const float *factor,
                           int first, const row_target *to, const visit *here,
                           const wave *w)
{
    row_target plain = *to;
    plain.adds = 0;
    plain.wide = 1;
    if (here->plain) /* one branch for all that it says */
        store_channels(tiles, factor, first, OUT_TILES, here->out, OUT_PITCH,
                       &plain, w);
    else
        store_channels(tiles, factor, first, OUT_TILES, here->out, OUT_PITCH,
                       to, w);
}

/* Sums of `tiles` tiles of channels of dV or dK, from tile `first` on, leave,
 * each row times its factor: of keys from `key` of the block on, of which
 * `count` exist. stores: the flag of the output, adds: that of adding to it;
 * pad_sums: [DIMS], of the wave. */
INLINE void leave_keys(float sums[][VALUES], const float *factor,
                       const int tiles, int key, int count, int first,
                       __global storage *to_plane, const tensor_layout *layout,
                       uint stores, uint adds, __local float *pad_sums,
                       const visit *here, const wave *w)
{
    const forward_args *forward = &here->args->forward;
    const row_target to = {.plane = to_plane,
                           .layout = layout,
                           .grid = &forward->grid,
                           .place = &here->at->place,
                           .row = here->first_key + key,
                           .count = min(count, UNIT_QUERIES),
                           .adds = (forward->flags & adds) != 0,
                           .wide = (forward->flags & ARG_WIDE_ACCESS) != 0};
    UNROLL_FOR (int d = 0; d < tiles; d += OUT_TILES) {
        IF_ALL (here->plain || (forward->flags & stores) != 0)
            leave_channels(sums + d, factor, first + d, &to, here, w);
#if PADDING == 1
        if (EMULATED || holds_padding(&forward->grid, &here->at->place))
            add_padding(sums + d, factor, first + d, pad_sums, here->out, &to,
                        w);
#endif
    }
}

/* pad_sums: [2][DIMS], of the wave. */
INLINE void leave_dv(float sums[][VALUES], const int tiles, int key, int count,
                     int first, __global storage *dv, uint kv_head,
                     __local float *pad_sums, const visit *here, const wave *w)
{
    const backward_args *args = here->args;
    float factor[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        factor[r] = 1.0f / P_POWER;
    leave_keys(sums, factor, tiles, key, count, first,
               dv + plane(&args->dv, here->at->place.grid, kv_head), &args->dv,
               ARG_DV, ARG_ADD_DV, pad_sums + DIMS, here, w);
}

INLINE void leave_dk(float sums[][VALUES], const int tiles, int key, int count,
                     int first, __global storage *dk, uint kv_head,
                     __local float *pad_sums, const visit *here, const wave *w)
{
    const backward_args *args = here->args;
    float factor[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        factor[r] = inverse_power(here->power);
#if VARIANT != COSINE
        factor[r] *= here->scale;
#endif
    }
#if VARIANT == COSINE
    float along[LANE_ROWS], inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        inverse[r] = here->k_inverses[min(key + lane_query(w->lane, r),
                                          here->key_count - 1)];
    take_back_norms(sums, along, factor, inverse, here->k, key,
                    here->key_count - 1, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        factor[r] = 1.0f;
#endif
    leave_keys(sums, factor, tiles, key, count, first,
               dk + plane(&args->dk, here->at->place.grid, kv_head), &args->dk,
               ARG_DK, ARG_ADD_DK, pad_sums, here, w);
}
