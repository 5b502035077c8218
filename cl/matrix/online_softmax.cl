/* SPDX-License-Identifier: Apache-2.0
 * The online softmax of a wave's tile of rows (Milakov and Gimelshein 2018):
 * what it sums of the keys seen so far, and how a subtile's scores become
 * weights. */
#include "matrix/kept_weights.cl"
#include "matrix/shift_scores.cl"

/* Weights are exponentials of scores less a row's softmax_max. That is the
 * row's maximum when the wave last looked for it: any number serves as long as
 * weights stay within what the storage type represents well, which their sums
 * tell.
 *
 *   REUSES_MAX     from window to window, where a wave always has the same
 *                  rows (not where exponentials do not count, as channels are
 *                  many; and not where lse is wanted): where sums are out of
 *                  range it looks and computes the window again, and looks in
 *                  some windows to come
 *   LAZY_MAX       else from subtile to subtile: it looks where weights become
 *                  too large, or where a row has seen nothing yet
 *   FOLDS_MAX      reused maxima are subtracted from the score bias that lanes
 *                  have in registers, and these multiplied by log2 e: a weight
 *                  then takes one multiplication and addition */
#define REUSES_MAX                                                            \
    (VOTES && !STREAMING && WAVE_TURNS == 1 && DIM_TILES <= OUT_TILES)
#define LAZY_MAX (VOTES && !REUSES_MAX && (STREAMING || SUBTILES > 1))
#define FOLDS_MAX (REUSES_MAX && HAS_REGISTER_BIAS_CACHE)
/* What is added to scores is known before a subtile, where there are several.
 * A single one that folds none subtracts its softmax_max with care. */
#define QUICK_SHIFTS (!FOLDS_MAX && SUBTILES > 1)
/* What weights may be: in fp16 no more than it holds, and where all of a row
 * have less, the largest may have lost precision. The other types hold more,
 * but products with values have to stay in the range of fp32 too. */
#define LARGE_WEIGHT (DTYPE == 1 ? 32768.0f : 0x1p24f)
#define SMALL_WEIGHT (DTYPE == 1 ? NK / 256.0f : 0x1p-24f)
/* Reused maxima are so far below the maxima they come from: in the middle of
 * what sums may be in fp16. */
#define MAX_MARGIN 2.5f
/* Weights go to products as sums of so many numbers of the storage type: where
 * o has few numbers, the rounding of each weight shows. */
#if VARIANT == SLIDING /* rows may be as few as one */
#define HAS_FEW_NUMBERS (HEAD_DIM <= 32)
#else
#define HAS_FEW_NUMBERS (NQ * HEAD_DIM <= 64)
#endif
#define WEIGHT_PARTS (DTYPE != 0 && HAS_FEW_NUMBERS ? 2 : 1)

/* Do weights of this sum show that their row's softmax_max does not serve? A
 * weight that is infinite has NaN for its second part. */
#define IS_TOO_LARGE(sum)                                                     \
    (WEIGHT_PARTS > 1 ? !((sum) <= LARGE_WEIGHT) : (sum) > LARGE_WEIGHT)

/* What a wave sums of a tile of rows. */
typedef struct row_state {
    float softmax_max[LANE_ROWS]; /* -infinity: nothing was seen */
    float shift[LANE_ROWS];       /* see quick_shift */
    float sum[LANE_ROWS];         /* of weights; see EXACT_SUMS */
    float exact[LANE_ROWS]; /* with LAZY_MAX for lse: of a lane's own keys */
    float out[DIM_TILES][ACC_PER_LANE];
} row_state;

/* Where these are maxima, a weight that is nearly all of its row is 1, and
 * sums are those of weights before they are rounded, which lse needs, of a
 * lane's own keys. Else that weight's rounding would be in o, if sums were not
 * of weights as they are multiplied. */
#define EXACT_SUMS(searches) ((searches) && !LAZY_MAX)

/* What is added to a row's scores, times log2 e, where its softmax_max is an
 * ordinary number; else infinity, which says that the wave has to look. */
INLINE float quick_shift(float softmax_max)
{
    return fabs(softmax_max) <= LARGE_LOGIT ? -softmax_max * LOG2E : INFINITY;
}

/* softmax_max NULL: nothing is known. */
INLINE void start_rows(row_state *s, const float *softmax_max)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->softmax_max[r] = softmax_max ? softmax_max[r] : -INFINITY;
        s->shift[r] = quick_shift(s->softmax_max[r]);
        s->sum[r] = 0.0f;
        s->exact[r] = 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            s->out[d][i] = 0.0f;
}

/* Rows' softmax_max become their maxima up to this subtile, and what has been
 * summed follows. */
INLINE void raise_max(row_state *s,
                      float scores[TILES_PER_SUBTILE][ACC_PER_LANE], int first,
                      const wave *w)
{
    float top[LANE_ROWS], rescale[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = s->softmax_max[r];
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(top[r], fmax);
        if (STREAMING || SUBTILES > 1) {
            rescale[r] =
                top[r] == -INFINITY ? 1.0f : WEIGHT(s->softmax_max[r], top[r]);
            s->sum[r] *= rescale[r];
            s->exact[r] *= rescale[r];
        }
        s->softmax_max[r] = top[r];
        s->shift[r] = quick_shift(top[r]);
    }
    if (STREAMING || SUBTILES > 1)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                s->out[d][i] *= rescale[LANE_ROW(i)];
}

/* Does some row of the wave have no ordinary number for a maximum? */
INLINE int lacks_max(const row_state *s)
{
    int looks = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        looks |= s->shift[r] == INFINITY;
    return WAVE_ANY(looks);
}

/* Do sums of weights show that some row's maximum does not serve? */
INLINE int are_too_large(const float *sum)
{
    int large = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        large |= IS_TOO_LARGE(sum[r]);
    return WAVE_ANY(large);
}

/* Scores become what exponentials with base 2 are taken of. */
INLINE void add_shift(float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                      const float *shift)
{
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            scores[t][i] = FMA(scores[t][i], LOG2E, shift[LANE_ROW(i)]);
}

/* The same of rows with any softmax_max. */
INLINE void subtract_max(float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                         const row_state *s)
{
    float softmax_max[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) /* nothing seen: no maximum */
        softmax_max[r] =
            s->softmax_max[r] == -INFINITY ? 0.0f : s->softmax_max[r];
    shift_scores(scores, softmax_max, shift);
    add_shift(scores, shift);
}

/* These become weights, as operands, and their sums. */
INLINE void weigh_subtile(query_tile weights[TILES_PER_SUBTILE][WEIGHT_PARTS],
                          float *sum,
                          float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                          int first, const int searches, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sum[r] = 0.0f;
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        if (IS_TILE(first + t)) {
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
                scores[t][i] = EXP2(scores[t][i]);
                if (EXACT_SUMS(searches))
                    sum[LANE_ROW(i)] += scores[t][i];
            }
            float rest[ACC_PER_LANE];
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
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

/* Sums of lanes that share a row become the row's. */
INLINE void finish_sums(row_state *s, const int searches, const wave *w)
{
    if (EXACT_SUMS(searches) || SUMS_ARE_PARTS)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            REDUCE(s->sum[r], ADD);
        }
}
