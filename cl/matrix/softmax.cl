/* SPDX-License-Identifier: Apache-2.0
 * The softmax of the forward pass, of a wave's tile of rows: weights from
 * scores, their sums, and the values times weights, a subtile at a time
 * (Milakov and Gimelshein 2018). */
#include "matrix/online_softmax.cl"
#include "matrix/scores.cl"

/* Rows' operands stay in registers from subtile to subtile, where the unit has
 * its own instruction to load them, which compilers do not move. */
#define HOLDS_ROWS (NATIVE_QUERIES && SUBTILES > 1 && DIM_TILES <= OUT_TILES)

/* Sums that live from KV block to KV block must have constant indices. */
#if STREAMING
#define TURN_FOR UNROLL_FOR
#else
#define TURN_FOR NO_UNROLL_FOR
#endif

/* In how many windows the wave looks after a maximum did not serve. */
#define RECHECK_WINDOWS 8

/* What it carries from window to window. */
typedef struct reused_max {
    float softmax_max[LANE_ROWS];
    int recheck_windows; /* windows to come in which that is not relied upon */
    int reuses;          /* with NOTES_REUSE: in the window to come */
} reused_max;
/* Folded maxima are in the score bias then. A single subtile that folds none
 * has no register for the answer. */
#define NOTES_REUSE (FOLDS_MAX || QUICK_SHIFTS)

/* What a wave computes them from: a tile of rows, and a KV block's keys. */
typedef struct attention_tile {
    tile_rows rows;
    int key, count;          /* the block's first key, and how many it has */
    __local storage_bits *q; /* o is staged in it */
    __local const storage_bits *stage;
    __local const float *key_scale;
    const forward_args *args;
    work_tile of;
    const score_bias_view *score_bias;
    query_tile held[DIM_TILES]; /* with HOLDS_ROWS */
} attention_tile;

/* s = logit(q k^T), of a subtile's keys from `first` of the block on. */
INLINE void score_subtile(float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                          const attention_tile *here, int first, const wave *w)
{
    multiply_subtile(scores, HOLDS_ROWS ? here->held : 0, here->q,
                     here->rows.row, here->rows.last_row,
                     here->stage + K_OFFSET, first, w);
    const score_keys keys = {here->key, here->count, here->key_scale,
                             here->score_bias, here->args};
    finish_subtile(scores, first, &keys, &here->rows, w);
}

/* p = exp(s - m) as operands, and their sums; scores become p before it is
 * rounded. looks: the rows' maxima are found first; else they have those that
 * they started with, which are ordinary numbers, and if these can be folded,
 * they are. */
INLINE void weigh_keys(query_tile weights[TILES_PER_SUBTILE][WEIGHT_PARTS],
                       float *sum,
                       float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                       row_state *s, const attention_tile *here, int first,
                       int looks, const wave *w)
{
    score_subtile(scores, here, first, w);
    if (looks) {
        raise_max(s, scores, first, w);
        subtract_max(scores, s);
    }
    if (!looks && QUICK_SHIFTS)
        add_shift(scores, s->shift);
    if (!looks && !QUICK_SHIFTS && !FOLDS_MAX)
        subtract_max(scores, s);
    weigh_subtile(weights, sum, scores, first, looks, w);
}

/* l += sums of p, o += keep(p) v. */
INLINE void add_subtile(row_state *s,
                        query_tile weights[TILES_PER_SUBTILE][WEIGHT_PARTS],
                        const float *sum,
                        float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                        const attention_tile *here, int first, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        s->sum[r] += sum[r];
    if (LAZY_MAX && (here->args->flags & ARG_LSE) != 0)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            if (IS_TILE(first + t))
                UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                    s->exact[LANE_ROW(i)] += scores[t][i];
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
        const weight_place at = {here->args, here->of,
                                 here->rows.first_row + here->rows.row,
                                 here->key + (first + t) * TILE_N};
        UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
            keep_weights(&weights[t][part], &at, 0, w);
    }
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v = load_value(here->stage + V_OFFSET, PITCH,
                                              (first + t) * TILE_N, d * TILE_N,
                                              LAST_KEY, TILE_N, w);
                UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                    multiply_tiles(s->out[d], &weights[t][part], &v, w);
            }
}

/* Takes a subtile into account. Maxima are looked for where a row has none;
 * with LAZY_MAX also where those of before make weights too large. */
INLINE void attend_subtile(row_state *s, const attention_tile *here, int first,
                           const int searches, const wave *w)
{
    float scores[TILES_PER_SUBTILE][ACC_PER_LANE], sum[LANE_ROWS];
    query_tile weights[TILES_PER_SUBTILE][WEIGHT_PARTS];
    const int looks = LAZY_MAX ? lacks_max(s) : searches;
    weigh_keys(weights, sum, scores, s, here, first, looks, w);
    if (LAZY_MAX && are_too_large(sum) && !looks) {
        wave again = *w; /* of which nothing is kept for this rare case */
        HIDE_FROM_OPTIMIZER(again.lane);
        weigh_keys(weights, sum, scores, s, here, first, 1, &again);
    }
    add_subtile(s, weights, sum, scores, here, first, w);
}

/* Attends to all of a KV block's keys. */
INLINE void attend_kv_block(row_state *s, attention_tile *here,
                            const int searches, const wave *w)
{
    UNROLL_FOR (int d = 0; HOLDS_ROWS && d < DIM_TILES; d++)
        here->held[d] = load_query(here->q, PITCH, here->rows.row, d * TILE_N,
                                   here->rows.last_row, w);
    SUBTILE_FOR (int first = 0; first < KEY_TILES; first += TILES_PER_SUBTILE)
        attend_subtile(s, here, first, searches, w);
}

/* Is a reused maximum relied upon in the window to come? Never for an lse,
 * which wants exact sums. */
INLINE int may_rely(const reused_max *c, const forward_args *args)
{
    return c->recheck_windows == 0 && (args->flags & ARG_LSE) == 0;
}
INLINE int reuses_max(const reused_max *c, const forward_args *args)
{
    return NOTES_REUSE ? c->reuses : may_rely(c, args);
}
INLINE void note_reuse(reused_max *c, const forward_args *args)
{
    if (NOTES_REUSE)
        c->reuses = may_rely(c, args);
}

INLINE void start_reuse(reused_max *c)
{
    c->recheck_windows = 1;
    c->reuses = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        c->softmax_max[r] = 0.0f;
}

/* Attends to a window, looking for maxima or with those of others. 0: these do
 * not serve, and nothing of this is worth anything. */
INLINE int attend_window(row_state *s, const reused_max *reused,
                         const attention_tile *here, const int searches,
                         const wave *w)
{
    int fails = 0;
    attention_tile folded = *here;
    if (FOLDS_MAX)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            folded.rows.scale[r] *= searches ? 1.0f : LOG2E;
    start_rows(s, reused->softmax_max);
    if (searches)
        start_rows(s, 0);
    attend_kv_block(s, &folded, searches, w);
    finish_sums(s, searches, w);
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            FORCE_EARLY(s->out[d][i]); /* products do not wait for the sums */
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        fails |= !(s->sum[r] >= SMALL_WEIGHT && s->sum[r] <= LARGE_WEIGHT);
    int serves = searches;
    if (!searches)
        serves = !WAVE_ANY(fails);
    return serves;
}

/* Takes the maxima of a window with maxima for those to come, but not those of
 * rows that saw nothing, or NaN. */
INLINE void set_reused_max(reused_max *reused, const row_state *s)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        if (fabs(s->softmax_max[r]) <= LARGE_LOGIT)
            reused->softmax_max[r] = s->softmax_max[r] - MAX_MARGIN;
}

INLINE void fold_max(float (*score_bias)[ACC_PER_LANE],
                     const float *softmax_max)
{
    UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            score_bias[t][i] = FMA(score_bias[t][i], LOG2E,
                                   -softmax_max[LANE_ROW(i)] * LOG2E);
}
