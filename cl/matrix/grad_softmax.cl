/* SPDX-License-Identifier: Apache-2.0
 * The softmax of a tile of rows in the gradient kernels: P, computed again
 * from lse or anew; delta, what dS = P (dP - delta) subtracts; and powers of
 * two, without which fp16 would lose small numbers.
 *
 *   RECOMPUTE_SCORES  a feature of the kernel (geometry.cl): 1: scores are
 *          computed again for the gradients, and so is dP */
#include "matrix/grad_scale.cl"
#include "matrix/grad_tiles.cl"
#include "matrix/shift_scores.cl"

/* Where scores are kept for the gradients, dP is, too, of the last so many
 * tiles: the cosine variant has registers for half of them, and of other units
 * it is not known (bench/decisions/small-windows-have-one-gradient-kernel.md).
 */
#define KEPT_DP_TILES                                                         \
    (RECOMPUTE_SCORES || !UNROLL_SUBTILES ? 0                                 \
     : VARIANT == COSINE                  ? TILES_PER_SUBTILE / 2             \
                                          : TILES_PER_SUBTILE)
#define KEEPS_DP(t) ((t) >= TILES_PER_SUBTILE - KEPT_DP_TILES)

typedef struct row_statistics {
    float top[LANE_ROWS]; /* of scores; or lse, where that is known; INFINITY
                             of a row that sees nothing, in the end */
    /* of exponentials, and of these times dP; at first of a lane's own keys.
     * Later the former's inverse, times P_SCALE, and delta. */
    float sum[LANE_ROWS], delta[LANE_ROWS];
    /* with RESCALES: the sum of |dP|, a bound that costs little; cosine: also
     * no less than of |dP| / norm of the key, and the largest 1 / norm */
    float dp_bound[LANE_ROWS];
    float key_dp_bound[LANE_ROWS];
    float key_inverse[LANE_ROWS];
} row_statistics;

INLINE void start_statistics(row_statistics *s, const int has_lse,
                             const float *lse)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->top[r] = has_lse ? lse[r] : -INFINITY;
        s->sum[r] = s->delta[r] = 0.0f;
        s->dp_bound[r] = s->key_dp_bound[r] = s->key_inverse[r] = 0.0f;
    }
}

/* P_SCALE P of a subtile from tile `first` on, of rows whose lse is known;
 * may_be_large: see shift_scores. */
INLINE void make_p(float scores[TILES_PER_SUBTILE][ACC_PER_LANE], int first,
                   const float *lse, const int may_be_large)
{
    float shift[LANE_ROWS];
    if (may_be_large)
        shift_scores(scores, lse, shift);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        shift[r] = may_be_large ? shift[r] + P_EXPONENT
                                : FMA(-lse[r], LOG2E, P_EXPONENT);
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            scores[t][i] =
                HAS_KEY(first + t, i)
                    ? WEIGHT_SHIFTED(scores[t][i], shift[LANE_ROW(i)])
                    : 0.0f;
}

/* A subtile's scores become exponentials of what they are less the row's
 * maximum so far, and are added to its sum. */
INLINE void make_exponentials(row_statistics *s,
                              float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                              int first, const wave *w)
{
    float top[LANE_ROWS], softmax_max[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = s->top[r];
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < (IS_TILE(first + t) ? ACC_PER_LANE : 0);
                    i++)
            top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(top[r], fmax);
        /* a row that has seen nothing has no maximum to subtract */
        softmax_max[r] = top[r] == -INFINITY ? 0.0f : top[r];
        if (KEY_BLOCKS > 1 || SUBTILES > 1) {
            const float rescale = WEIGHT(s->top[r], softmax_max[r]);
            s->sum[r] *= rescale;
            s->delta[r] *= rescale;
        }
        s->top[r] = top[r];
    }
    shift_scores(scores, softmax_max, shift);
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < (IS_TILE(first + t) ? ACC_PER_LANE : 0);
                    i++) {
            const int r = LANE_ROW(i);
            scores[t][i] = HAS_KEY(first + t, i)
                               ? WEIGHT_SHIFTED(scores[t][i], shift[r])
                               : 0.0f;
            s->sum[r] += scores[t][i];
        }
}

/* Takes a tile's dP into account, given its exponentials. */
INLINE void accumulate_dp(row_statistics *s, const float *exponentials,
                          const float *dp, int tile)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int r = LANE_ROW(i);
        if (!HAS_KEY(tile, i))
            continue;
        s->delta[r] = FMA(exponentials[i], dp[i], s->delta[r]);
        if (RESCALES)
            s->dp_bound[r] += fabs(dp[i]);
    }
}

/* delta of rows whose lse and o are known (Dao et al. 2022, appendix B). */
INLINE void take_delta(row_statistics *s, const row_part *part,
                       const q_block *here, __local const ushort *o,
                       const wave *w)
{
    float dots[LANE_ROWS];
    multiply_rows(dots, here->d_o, o, part, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        s->delta[r] = dots[r] - part->d_lse[r];
}

/* After the last subtile. */
INLINE void finish_statistics(row_statistics *s, const row_part *part,
                              const int has_lse, const wave *w)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(s->delta[r], ADD);
        if (has_lse)
            s->delta[r] /= P_SCALE;
        else {
            REDUCE(s->sum[r], ADD);
            const float sum = s->sum[r];
            const int sees = sum != 0.0f && row_exists(part, r, w);
            s->sum[r] = sees ? RECIPROCAL(sum) : 0.0f;
            s->delta[r] *= s->sum[r];
            s->sum[r] *= P_SCALE;
            if (!sees)
                s->top[r] = INFINITY;
            else if (RECOMPUTE_SCORES)
                s->top[r] += log(sum);
        }
        s->delta[r] -= part->d_lse[r];
    }
}

/* 1 / norm of the shortest key; those of length 0 do not count. */
INLINE float largest_inverse(const q_block *here, __local uint *scratch,
                             const wave *w)
{
    float largest = 0.0f;
    UNROLL_FOR (int done = 0; done < BLOCK_KEYS; done += WAVE) {
        const int key = done + w->lane;
        if (key < here->key_count)
            largest = fmax(largest, here->k_inverses[key]);
    }
    return as_float(LARGEST_OF_WAVE(as_uint(largest), scratch, w));
}

/* A first loop over keys, for what must be known of the rows. Of one subtile
 * leaves the exponentials, or where lse is known P; and in kept_dp, where
 * there is one, dP of tiles that keep it. */
INLINE void add_statistics(row_statistics *s,
                           float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                           float (*kept_dp)[ACC_PER_LANE],
                           const row_part *part, const q_block *here,
                           const int has_lse, const wave *w)
{
    const dp_rows dp_rows_here = read_dp_rows(&part->rows, here, w);
    SUBTILE_FOR (int first = 0; first < KEY_TILES;
                 first += TILES_PER_SUBTILE) {
        score_subtile(scores, first, here, &part->rows, w);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            if (IS_TILE(first + t) && KEEPS_DP(t))
                multiply_dp(kept_dp[t], &dp_rows_here, first + t, here, w);
        if (has_lse)
            make_p(scores, first, s->top, 1);
        else
            make_exponentials(s, scores, first, w);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            if (IS_TILE(first + t)) {
                float dp[ACC_PER_LANE];
                if (KEEPS_DP(t))
                    copy_tile(dp, kept_dp[t]);
                else
                    multiply_dp(dp, &dp_rows_here, first + t, here, w);
                accumulate_dp(s, scores[t], dp, first + t);
            }
    }
}

/* Rows of k go to products as they are: the cosine variant's dS is divided by
 * their norms first, and multiplied by a factor of each row. */
INLINE void scale_keys(float *ds, const float *factor, int tile,
                       const q_block *here, const wave *w)
{
    UNROLL_FOR (int i = 0; i < (VARIANT == COSINE ? ACC_PER_LANE : 0); i++) {
        const int key = tile * TILE_N + value_key(w->lane, i);
        if (!HAS_KEY(tile, i))
            continue;
        ds[i] *=
            factor[LANE_ROW(i)] *
            here->k_inverses[IS_FULL_TILE(tile) ? key
                                                : min(key, BLOCK_KEYS - 1)];
    }
}
