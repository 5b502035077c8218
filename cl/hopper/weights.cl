/* SPDX-License-Identifier: Apache-2.0
 * Weights of a tile of keys, w = 2^(logit - base) with a base for each row,
 * and what was summed of a row's weights before. Where they sum to more than
 * MOST_WEIGHTS, powers of two move from the weights, and from what was summed,
 * to the base; where fp32 does not hold them, the tile's largest logit is
 * looked for. */
#include "hopper/lanes.cl"
#include "hopper/tile_products.cl"

#define MOST_WEIGHTS 1024.0f

typedef struct row_weights {
    float base[2]; /* -infinity: a row that has not seen any key */
    float sum[2];  /* of the lane's weights */
    /* by which sums must be multiplied that do not have the last tile yet */
    float factor[2];
    int rescales; /* some factor of the wave's is not 1 */
    int settled;  /* all rows of the wave have a base */
} row_weights;

INLINE row_weights no_weights(void)
{
    row_weights w;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        w.base[r] = -INFINITY;
        w.sum[r] = 0.0f;
        w.factor[r] = 1.0f;
    }
    w.rescales = w.settled = 0;
    return w;
}

/* Row r of a tile whose logits are in s. */
INLINE void weigh_by_maximum(float *s, row_weights *w, const int r)
{
    float top = -INFINITY, sum = 0.0f;
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        top = fmax(top, fmax(s[SCORE(j, r, 0)], s[SCORE(j, r, 1)]));
    REDUCE(top, fmax);
    const float base = fmax(top, w->base[r]);
    const float subtracted = base == -INFINITY ? 0.0f : base;
    w->factor[r] = EXP2(w->base[r] - subtracted);
    w->base[r] = base;
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int i = 0; i < 2; i++) {
            s[SCORE(j, r, i)] = EXP2(s[SCORE(j, r, i)] - subtracted);
            sum += s[SCORE(j, r, i)];
        }
    w->sum[r] = FMA(w->sum[r], w->factor[r], sum);
}

/* Once both rows were weighed so. */
INLINE void note_bases(row_weights *w)
{
    w->rescales = 1;
    w->settled = !WAVE_ANY(w->base[0] == -INFINITY || w->base[1] == -INFINITY);
}

/* Moves a power of two to the base where a row's weights of the tile, of which
 * the lane has `sum`, are many. */
INLINE float move_to_base(float *s, row_weights *w, const int r, float sum)
{
    float all = sum;
    REDUCE(all, ADD_PAIR);
    const int power = all > MOST_WEIGHTS ? (as_int(all) >> 23) - 127 : 0;
    const float factor = as_float((127 - power) << 23);
    w->factor[r] = factor;
    w->base[r] += (float)power;
    w->sum[r] *= factor;
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int i = 0; i < 2; i++)
            s[SCORE(j, r, i)] *= factor;
    return sum * factor;
}
