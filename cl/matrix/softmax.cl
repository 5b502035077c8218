/* SPDX-License-Identifier: Apache-2.0
 * The softmax of the forward pass, of a wave's tile of rows: weights from
 * scores, their sums, and the values times weights, a pass at a time (Milakov
 * and Gimelshein 2018). */
#ifndef SOFTMAX_CL
#define SOFTMAX_CL
#include "matrix/scores.cl"

/* Rows' operands stay in registers from pass to pass, where the unit has its
 * own instruction to load them, which compilers do not move. */
#if NATIVE_QUERIES && PASSES > 1 && DIM_TILES <= OUT_TILES
#define HOLDS_ROWS 1
#define HELD_ROWS(here) ((here)->held)
#else
#define HOLDS_ROWS 0
#define HELD_ROWS(here) 0
#endif

/* Sums that live from item to item must have constant indices. */
#if STREAMING
#define TURN_FOR UNROLL_FOR
#else
#define TURN_FOR NO_UNROLL_FOR
#endif

/* Weights are exponentials of scores less a row's base. That is the row's
 * maximum when the wave last looked for it: any number serves as long as
 * weights stay within what the storage type represents well, which their sums
 * tell.
 *
 *   CARRIES_BASE   from window to window, where a wave always has the same
 *                  rows (not where exponentials do not count, as channels are
 *                  many; and not where lse is wanted): where sums are out of
 *                  range it looks and computes the window again, and looks in
 *                  some windows to come
 *   KEEPS_BASE     else from pass to pass: it looks where weights become too
 *                  large, or where a row has seen nothing yet
 *   FOLDS_BASE     carried bases are subtracted from the terms that lanes have
 *                  in registers, and these multiplied by log2 e: a weight then
 *                  takes one multiplication and addition (not of grids, which
 *                  leave no registers for it) */
#ifdef WAVE_ANY
#define CARRIES_BASE (!STREAMING && WAVE_TURNS == 1 && DIM_TILES <= OUT_TILES)
#define KEEPS_BASE (!CARRIES_BASE && (STREAMING || PASSES > 1))
#else
#define CARRIES_BASE 0
#define KEEPS_BASE 0
#define WAVE_ANY(x) 1
#endif
#define FOLDS_BASE (CARRIES_BASE && HAS_OWN_TERMS && !GRID)
/* What is added to scores is known before a pass, where there are several. A
 * single one subtracts its base with care: grids have no registers for more.
 */
#define QUICK_SHIFTS (!FOLDS_BASE && PASSES > 1)
/* What weights may be: in fp16 no more than it holds, and where all of a row
 * have less, the largest may have lost precision. The other types hold more,
 * but products with values have to stay in the range of fp32 too. */
#define LARGE_WEIGHT (DTYPE == 1 ? 32768.0f : 0x1p24f)
#define SMALL_WEIGHT (DTYPE == 1 ? NK / 256.0f : 0x1p-24f)
/* Carried bases are so far below the maxima they come from: in the middle of
 * what sums may be in fp16. */
#define BASE_BELOW 2.5f
/* First without a search, then with one: each has its own code, but what
 * emulates units is large enough. */
#if EMULATED
#define SEARCH_FOR NO_UNROLL_FOR
#else
#define SEARCH_FOR UNROLL_FOR
#endif
/* In how many windows the wave looks after a base did not serve. */
#define WARY_WINDOWS 8

/* Weights go to products as sums of so many numbers of the storage type: where
 * o has few numbers, the rounding of each weight shows. */
#define WEIGHT_PARTS (DTYPE != 0 && NQ * HEAD_DIM <= 64 ? 2 : 1)

/* What a wave sums of a tile of rows. */
typedef struct row_state {
    float base[LANE_ROWS];  /* -infinity: nothing was seen */
    float shift[LANE_ROWS]; /* see quick_shift */
    float sum[LANE_ROWS];   /* of weights; see EXACT_SUMS */
    float exact[LANE_ROWS]; /* with KEEPS_BASE for lse: of a lane's own keys */
    float out[DIM_TILES][VALUES];
} row_state;

/* Where bases are maxima, a weight that is nearly all of its row is 1, and
 * sums are those of weights before they are rounded, which lse needs, of a
 * lane's own keys. Else that weight's rounding would be in o, if sums were not
 * of weights as they are multiplied. */
#define EXACT_SUMS(searches) ((searches) && !KEEPS_BASE)

/* What it carries from window to window. */
typedef struct carried_base {
    float base[LANE_ROWS];
    int wary;   /* windows to come in which that is not relied upon */
    int relies; /* with NOTES_RELIANCE: in the window to come */
} carried_base;
/* Folded bases are in the terms then. A single pass of grids has no register
 * for the answer. */
#define NOTES_RELIANCE (FOLDS_BASE || QUICK_SHIFTS)

/* What a wave computes them from: a tile of rows, and an item's keys. */
typedef struct item_rows {
    tile_rows rows;
    int key, count;          /* the item's first key, and how many it has */
    __local storage_bits *q; /* o leaves through it */
    __local const storage_bits *stage;
    __local const float *key_scale;
    const forward_args *args;
    const logit_terms *terms;
#if HOLDS_ROWS
    query_tile held[DIM_TILES];
#endif
} item_rows;

/* What is added to a row's scores, times log2 e, where its base is an ordinary
 * number; else infinity, which says that the wave has to look. */
INLINE float quick_shift(float base)
{
    return fabs(base) <= LARGE_LOGIT ? -base * LOG2E : INFINITY;
}

/* base NULL: nothing is known. */
INLINE void start_rows(row_state *s, const float *base)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->base[r] = base ? base[r] : -INFINITY;
        s->shift[r] = quick_shift(s->base[r]);
        s->sum[r] = 0.0f;
        s->exact[r] = 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            s->out[d][i] = 0.0f;
}

INLINE key_tile read_value(__local const storage_bits *stage, int d, int tile,
                           const wave *w)
{
    return load_value(stage + V_PLACE, PITCH, tile * UNIT_TILE, d * UNIT_TILE,
                      LAST_KEY, UNIT_TILE, w);
}

/* The scores of a pass, from key `first` of the item on. */
INLINE void score_pass(float scores[PASS_TILES][VALUES], const item_rows *here,
                       int first, const wave *w)
{
    multiply_pass(scores, HELD_ROWS(here), here->q, here->rows.row,
                  here->rows.last_row, here->stage + K_PLACE, first, w);
    finish_pass(scores, here->key_scale, first, here->key, here->count,
                here->args, here->terms, &here->rows, w);
}

/* Rows' bases become their maxima up to this pass, and what has been summed
 * follows. */
INLINE void raise_base(row_state *s, float scores[PASS_TILES][VALUES],
                       int first, const wave *w)
{
    float top[LANE_ROWS], keep[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = s->base[r];
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(top[r], fmax);
        if (STREAMING || PASSES > 1) {
            keep[r] = top[r] == -INFINITY
                          ? 1.0f
                          : EXP2((s->base[r] - top[r]) * LOG2E);
            s->sum[r] *= keep[r];
            s->exact[r] *= keep[r];
        }
        s->base[r] = top[r];
        s->shift[r] = quick_shift(top[r]);
    }
    if (STREAMING || PASSES > 1)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                s->out[d][i] *= keep[LANE_ROW(i)];
}

/* Scores become what exponentials with base 2 are taken of. */
INLINE void add_shift(float scores[PASS_TILES][VALUES], const float *shift)
{
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            scores[t][i] = FMA(scores[t][i], LOG2E, shift[LANE_ROW(i)]);
}

/* The same of rows with any base. */
INLINE void subtract_base(float scores[PASS_TILES][VALUES], const row_state *s)
{
    float base[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) /* nothing seen: no maximum */
        base[r] = s->base[r] == -INFINITY ? 0.0f : s->base[r];
    shift_scores(scores, base, shift);
    add_shift(scores, shift);
}

/* These become weights, as operands, and their sums. */
INLINE void weigh_pass(query_tile weights[PASS_TILES][WEIGHT_PARTS],
                       float *sum, float scores[PASS_TILES][VALUES], int first,
                       const int searches, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sum[r] = 0.0f;
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t)) {
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                scores[t][i] = EXP2(scores[t][i]);
                if (EXACT_SUMS(searches))
                    sum[LANE_ROW(i)] += scores[t][i];
            }
            float rest[VALUES];
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                rest[i] = scores[t][i];
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
                weights[t][part] = make_weights(rest, w);
                if (!EXACT_SUMS(searches))
                    add_weights(sum, &weights[t][part], rest, w);
                if (part + 1 < WEIGHT_PARTS)
                    subtract_rounded(rest);
            }
        }
}

/* Adds a pass's weights, and its values times these. */
INLINE void add_pass(row_state *s,
                     query_tile weights[PASS_TILES][WEIGHT_PARTS],
                     const float *sum, float scores[PASS_TILES][VALUES],
                     const item_rows *here, int first, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        s->sum[r] += sum[r];
    if (KEEPS_BASE && (here->args->flags & ARG_LSE) != 0)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    s->exact[LANE_ROW(i)] += scores[t][i];
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v = read_value(here->stage, d, first + t, w);
                UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                    multiply_tiles(s->out[d], &weights[t][part], &v, w);
            }
}

/* Takes a pass into account. searches 0: rows have the bases they started
 * with, which are ordinary numbers, and if these can be folded, they are. */
INLINE void attend_pass(row_state *s, const item_rows *here, int first,
                        const int searches, const wave *w)
{
    int looks = searches;
    float scores[PASS_TILES][VALUES], sum[LANE_ROWS];
    query_tile weights[PASS_TILES][WEIGHT_PARTS];
    if (KEEPS_BASE) {
        looks = 0;
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            looks |= s->shift[r] == INFINITY;
        looks = WAVE_ANY(looks);
    }
    score_pass(scores, here, first, w);
    IF_ALL (looks) {
        raise_base(s, scores, first, w);
        subtract_base(scores, s);
    }
    if (!looks && QUICK_SHIFTS)
        add_shift(scores, s->shift);
    if (!looks && !QUICK_SHIFTS && !FOLDS_BASE)
        subtract_base(scores, s);
    weigh_pass(weights, sum, scores, first, searches, w);
    if (KEEPS_BASE) {
        int large = 0;
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            large |= sum[r] > LARGE_WEIGHT;
        large = WAVE_ANY(large);
        IF_ALL (large && !looks) {
            wave again = *w; /* of which nothing is kept for this rare case */
            FORGET(again.lane);
            score_pass(scores, here, first, &again);
            raise_base(s, scores, first, &again);
            subtract_base(scores, s);
            weigh_pass(weights, sum, scores, first, searches, &again);
        }
    }
    add_pass(s, weights, sum, scores, here, first, w);
}

/* Attends to all of an item's keys. */
INLINE void attend_item(row_state *s, item_rows *here, const int searches,
                        const wave *w)
{
#if HOLDS_ROWS
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        here->held[d] = load_query(here->q, PITCH, here->rows.row,
                                   d * UNIT_TILE, here->rows.last_row, w);
#endif
    PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES)
        attend_pass(s, here, first, searches, w);
}

/* Sums of lanes that share a row become the row's. */
INLINE void finish_sums(row_state *s, const int searches, const wave *w)
{
    if (EXACT_SUMS(searches) || SUMS_ARE_PARTS)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            REDUCE(s->sum[r], ADD);
        }
}

#if CARRIES_BASE
/* Is a carried base relied upon in the window to come? Never for an lse, which
 * wants exact sums. */
INLINE int may_rely(const carried_base *c, const forward_args *args)
{
    return c->wary == 0 && (args->flags & ARG_LSE) == 0;
}
INLINE int relies_on(const carried_base *c, const forward_args *args)
{
    return NOTES_RELIANCE ? c->relies : may_rely(c, args);
}
INLINE void note_reliance(carried_base *c, const forward_args *args)
{
    if (NOTES_RELIANCE)
        c->relies = may_rely(c, args);
}

INLINE void start_carrying(carried_base *c)
{
    c->wary = 1;
    c->relies = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        c->base[r] = 0.0f;
}

/* Attends to a window, looking for bases or with those of others. 0: these do
 * not serve, and nothing of this is worth anything. */
INLINE int attend_window(row_state *s, const carried_base *carried,
                         const item_rows *here, const int searches,
                         const wave *w)
{
    int fails = 0;
    item_rows folded = *here;
    if (FOLDS_BASE)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            folded.rows.scale[r] *= searches ? 1.0f : LOG2E;
    start_rows(s, carried->base);
    if (searches)
        start_rows(s, 0);
    attend_item(s, &folded, searches, w);
    finish_sums(s, searches, w);
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            SETTLE(s->out[d][i]); /* products do not wait for the sums */
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        fails |= !(s->sum[r] >= SMALL_WEIGHT && s->sum[r] <= LARGE_WEIGHT);
    return searches || !WAVE_ANY(fails);
}

/* Takes the bases of a window with maxima for those to come, but not those of
 * rows that saw nothing, or NaN. */
INLINE void carry_base(carried_base *carried, const row_state *s)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        if (fabs(s->base[r]) <= LARGE_LOGIT)
            carried->base[r] = s->base[r] - BASE_BELOW;
}
#endif

#if FOLDS_BASE
INLINE void fold_base(float terms[KEY_TILES][VALUES], const float *base)
{
    UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            terms[t][i] = FMA(terms[t][i], LOG2E, -base[LANE_ROW(i)] * LOG2E);
}
#endif

#endif
