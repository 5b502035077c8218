/* SPDX-License-Identifier: Apache-2.0
 * Scores of a window's rows on NVIDIA's Hopper, and the first loop over its
 * keys: what the second one and the kernel of keys must know of each row. */
#include "hopper/window_tiles.cl"

REQUIRE(BLOCK_ROWS)

/* What a lane has of its two rows. */
typedef struct row_state {
    float top[2]; /* score so far; or lse, where that is known */
    /* of exponentials, of these times dP, and of |dP|; of even and of odd
     * columns, as chains of additions are slow */
    float sum[2][2], delta[2][2], bound[2][2];
    float scale[2];  /* of products of rows, to scores */
    float factor[2]; /* by which exponentials and dP are multiplied */
    float offset[2]; /* delta, times -factor */
    float back[2];   /* from there to dS */
    /* Of the wave: lse is known, and small; top is not. */
    int has_lse, is_large;
} row_state;

/* ---- Scores ---- */

/* What scores of keys need besides, loaded before products start: biases, and
 * inverses of norms. */
typedef struct score_terms {
    uint words[BIAS_WORDS];
    float2 inverse[BLOCK_KEYS / 8];
} score_terms;

INLINE void load_inverses(score_terms *terms, const wave_rows *rows,
                          uint first)
{
    UNROLL_FOR (uint j = 0; j < BLOCK_KEYS / 8; j++)
        terms->inverse[j] =
            VARIANT == COSINE
                ? load_floats(other_numbers(rows->ring, rows->stage) +
                              4 * (first + 8 * j + 2 * (rows->lane % 4)))
                : (float2)(1.0f);
}

INLINE void load_terms(score_terms *terms, const wave_rows *rows, uint first)
{
    load_biases(terms->words, rows, first);
    load_inverses(terms, rows, first);
}

/* Products of rows become scores. regions: has the window several? */
INLINE void finish_scores(float *s, const row_state *x,
                          const score_terms *terms, const wave_rows *rows,
                          uint first, const int regions)
{
    UNROLL_FOR (uint j = 0; j < BLOCK_KEYS / 8; j++) {
        float bias[8];
        float *own = s + 4 * j;
        unpack_pairs(bias, terms->words + PAIR_WORDS * (j / 2));
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (uint i = 0; i < 2; i++) {
                const int n = 2 * r + (int)i;
                float score = own[n];
                if (VARIANT == COSINE)
                    score *= i ? terms->inverse[j].y : terms->inverse[j].x;
                own[n] = FMA(score, x->scale[r], bias[j % 2 * 4 + n]);
            }
    }
    if (HAS_REGIONS && regions) {
        const lane_regions known = regions_of_lane(rows);
        UNROLL_FOR (uint c = 0; c < BLOCK_KEYS; c += 16)
            add_region_values(s + c / 2, &known, first + c);
    }
}

/* ---- Statistics ---- */

/* A lane has statistics of its own columns at first. Scores become
 * exponentials of what they are less the largest so far. */
INLINE void add_exponentials(row_state *x, float *s)
{
    float subtracted[2], top[2][2];
    UNROLL_FOR (int r = 0; r < 2; r++)
        top[r][0] = top[r][1] = x->top[r];
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                top[r][i] = fmax(top[r][i], s[SCORE(j, r, i)]);
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const float now = fmax(top[r][0], top[r][1]);
        /* who has seen nothing has no maximum to subtract */
        subtracted[r] = now == -INFINITY ? 0.0f : now;
        const float rescale = EXP2((x->top[r] - subtracted[r]) * LOG2E);
        x->top[r] = now;
        UNROLL_FOR (int i = 0; i < 2; i++) {
            x->sum[r][i] *= rescale;
            x->delta[r][i] *= rescale;
        }
    }
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] =
                    EXP2((s[SCORE(j, r, i)] - subtracted[r]) * LOG2E);
}

/* The same less lse. */
INLINE void exponentiate(const row_state *x, float *s)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] =
                    EXP2(FMA(s[SCORE(j, r, i)], LOG2E, -x->top[r] * LOG2E));
}

INLINE void add_delta(row_state *x, const float *s, const float *dp)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                x->sum[r][i] += s[n];
                x->delta[r][i] = FMA(s[n], dp[n], x->delta[r][i]);
                if (RESCALES)
                    x->bound[r][i] += fabs(dp[n]);
            }
}

/* Does an lse that is given serve? */
INLINE int is_small_lse(float lse)
{
    return fabs(lse) <= LARGE_LSE || lse == -INFINITY;
}

/* lse: of the lane's rows, if it is given. */
INLINE void start_statistics(row_state *x, const float *lse, int has_lse)
{
    int suits = has_lse;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        suits &= is_small_lse(lse[r]);
        UNROLL_FOR (int i = 0; i < 2; i++)
            x->sum[r][i] = x->delta[r][i] = x->bound[r][i] = 0.0f;
    }
    x->has_lse = !WAVE_ANY(!suits);
    UNROLL_FOR (int r = 0; r < 2; r++)
        x->top[r] = !x->has_lse           ? -INFINITY
                    : lse[r] == -INFINITY ? 0.0f
                                          : lse[r];
}

INLINE void find_statistics(row_state *x, const wave_rows *rows,
                            const int regions)
{
    score_terms terms;
    if (LOADS_AHEAD)
        load_biases(terms.words, rows, 0);
    NO_UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_KEYS) {
        float s[BLOCK_KEYS / 2], dp[BLOCK_KEYS / 2];
        if (!LOADS_AHEAD)
            load_biases(terms.words, rows, first);
        load_inverses(&terms, rows, first);
        start_tile(s, dp, rows, first);
        AWAIT_PRODUCTS(1);
        HOLD_SCORES(s);
        finish_scores(s, x, &terms, rows, first, regions);
        if (x->has_lse)
            exponentiate(x, s);
        else
            add_exponentials(x, s);
        if (LOADS_AHEAD)
            load_biases(terms.words, rows, NEXT_TILE(first));
        AWAIT_PRODUCTS(0);
        HOLD_SCORES(dp);
        add_delta(x, s, dp);
    }
}

/* The four lanes that share rows join theirs; d_lse: of the lane's rows;
 * inverse: of the shortest key. Leaves what the loop for gradients and the
 * kernel of keys, at `numbers`, must know. */
INLINE void join_statistics(row_state *x, const float *d_lse, float inverse,
                            __global float *numbers, const wave_rows *rows)
{
    int is_large = 0;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = rows->row + rows->lane / 4 + 8 * r;
        float top = x->top[r];
        REDUCE(top, fmax);
        const float subtracted = top == -INFINITY ? 0.0f : top;
        const float rescale = EXP2((x->top[r] - subtracted) * LOG2E);
        float sum = (x->sum[r][0] + x->sum[r][1]) * rescale;
        float delta = (x->delta[r][0] + x->delta[r][1]) * rescale;
        float bound = x->bound[r][0] + x->bound[r][1];
        REDUCE(sum, ADD_PAIR);
        REDUCE(delta, ADD_PAIR);
        if (RESCALES) {
            REDUCE(bound, ADD_PAIR);
        }
        const float part = sum == 0.0f ? 0.0f : RECIPROCAL(sum);
        delta = FMA(delta, part, -d_lse[r]);
        bound = FMA(bound, 2.0f, fabs(d_lse[r]));
        const float ds_scale = RESCALES ? ds_scale_for(bound * inverse) : 1.0f;
        x->top[r] = subtracted;
        const int large = !(fabs(subtracted) <= LARGE_LSE);
        is_large |= large;
        x->factor[r] = part * ds_scale;
        x->offset[r] = -delta * x->factor[r];
        x->back[r] = inverse_ds_scale(ds_scale);
        if (rows->lane % 4 == 0 && row < NQ) {
            const float log_sum = log2_unit(sum);
            /* whose sum is no number has no maximum either */
            const int apart = large && sum > 0.0f;
            const float4 known = {
                sum == 0.0f ? INFINITY
                : apart     ? subtracted
                            : FMA(log_sum, 1.0f / LOG2E, subtracted),
                delta, pack_bound(bound, apart ? log_sum : 0.0f), x->scale[r]};
            vstore4(known, row, numbers);
        }
    }
    x->is_large = WAVE_ANY(is_large);
}
