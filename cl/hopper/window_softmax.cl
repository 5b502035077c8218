/* SPDX-License-Identifier: Apache-2.0
 * From scores of a window's tiles of keys to weights, packed as values are
 * multiplied by them: 2^(logit - base) with a base for each row, times the
 * weight of the bias (bias_weights.cl). The base of a window's first tile is
 * that of the window before, where it serves; else the tile's largest logit.
 *
 * Logits are without their biases here, and times log2 e. */
#ifndef WINDOW_SOFTMAX_CL
#define WINDOW_SOFTMAX_CL
#include "hopper/bias_weights.cl"
#include "hopper/window_scores.cl"

typedef char regions_come_with_a_bias[HAS_REGIONS && !BIAS ? -1 : 1];

/* Of a window's first tile weights stay as they are, if these are the least
 * and the most that a row's sum to. Fewer would be subnormal numbers of fp16,
 * and more leave no room for those of other tiles. */
#define LEAST_WEIGHTS (WEIGHT_UNIT / 128)
#define MOST_WEIGHTS (WEIGHT_UNIT * 32)
/* A base goes down by so many powers of two at most, where a tile's largest
 * logits have small biases. */
#define MOST_POWERS 15
/* So many windows' largest logits are looked for after one whose weights were
 * too many or too few with the base of the window before. */
#define SEARCHES 8

typedef struct window_softmax {
    float base[2]; /* -infinity: a row that has not seen any key */
    /* Of a row's weights as they are multiplied, over all lanes: a product
     * with ones, the row's in [0] and [1] or in [2] and [3]. */
    float sum[4];
    /* by which sums must be multiplied that do not have the last tile yet */
    float factor[2];
    int rescales; /* some factor of the wave's is not 1 */
    int settled;  /* all rows of the wave have a base */
    int searches; /* that are still to be made */
} window_softmax;

/* What turns a tile's products into logits, and these into weights. */
typedef struct logit_terms {
    float scale[2];   /* of the lane's rows */
    uint key_factors; /* address of the tile's (cosine) */
    uint biases;      /* of the lane's weights of biases */
#if HAS_REGIONS
    int has_regions; /* has the window several? Then those of the tile */
    lane_regions regions;
#endif
    uint keys; /* of the tile, less the lane's first one */
} logit_terms;

/* Has the tile's window several regions? */
INLINE int compares_regions(const logit_terms *t)
{
#if HAS_REGIONS
    return t->has_regions;
#else
    return 0;
#endif
}

/* Products s of the tile's 16 keys number c become logits less what is
 * `subtracted` of each row. regions: are they compared? */
INLINE void find_16_logits(float *s, const logit_terms *t,
                           const float *subtracted, const int c, int lane,
                           const int regions)
{
    float add[8];
    UNROLL_FOR (int n = 0; n < 8; n++) {
        const int key = 16 * c + n / 4 * 8 + n % 2;
        add[n] = NK % TILE_KEYS == 0 || key < (int)t->keys
                     ? -subtracted[n / 2 % 2]
                     : -INFINITY;
    }
#if HAS_REGIONS
    if (regions)
        add_region_values(add, &t->regions, 16 * c);
#endif
#if VARIANT == COSINE
    float by[4];
    load_two_floats(by, t->key_factors + 64 * c + lane % 4 * 8);
    load_two_floats(by + 2, t->key_factors + 64 * c + 32 + lane % 4 * 8);
    UNROLL_FOR (int n = 0; n < 8; n++)
        s[n] *= by[n / 4 * 2 + n % 2];
#endif
    UNROLL_FOR (int n = 0; n < 8; n++)
        s[n] = FMA(s[n], t->scale[n / 2 % 2], add[n]);
}

/* From products to weights but for their biases, which are not packed. */
INLINE void weigh_scores(float *s, const window_softmax *w,
                         const logit_terms *t, int lane, const int regions,
                         const int from, const int to)
{
    UNROLL_FOR (int c = from; c < to; c++) {
        find_16_logits(s + 8 * c, t, w->base, c, lane, regions);
        UNROLL_FOR (int n = 0; n < 8; n++)
            s[8 * c + n] = EXP2(s[8 * c + n]);
    }
}

/* ---- What is multiplied ---- */

/* A lane's weights of biases of a tile, of 16 keys number c. */
INLINE uint4 load_bias_weights(const logit_terms *t, const int c)
{
#if BIAS
    return load_chunk(t->biases + c * CHUNK_BIAS_BYTES);
#else
    return (uint4)(0);
#endif
}

/* Packs the weights of 16 keys, and adds them to their rows' sums. */
INLINE void pack_16(uint *p, float *sum, const float *s, const uint4 bias)
{
    const uint one = DTYPE == 1 ? 0x3c00 : 0x3f80;
    const uint ones[2] = {one << 16 | one, one << 16 | one};
#if BIAS
    const uint biases[4] = {bias.x, bias.y, bias.z, bias.w};
#endif
    UNROLL_FOR (int i = 0; i < 4; i++) {
        p[i] = PACK(s[2 * i], s[2 * i + 1]);
#if BIAS
        p[i] = multiply_pairs(p[i], biases[i]);
#endif
    }
    mma(p, ones, sum);
}

INLINE void pack_weights(uint *p, float *sum, const float *s,
                         const logit_terms *t)
{
    float other[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL_FOR (int c = 0; c < TILE_KEYS / 16; c++)
        pack_16(p + 4 * c, c % 2 ? other : sum, s + 8 * c,
                load_bias_weights(t, c));
    UNROLL_FOR (int i = 0; i < 4; i += 2)
        sum[i] += other[i];
}

/* ---- Bases ---- */

/* Is a tile, with which rows' weights are `sum`, as it should be? */
INLINE int weights_serve(const float *sum, int is_first)
{
    int serves = sum[0] + sum[2] < INFINITY;
    if (is_first)
        serves = fmin(sum[0], sum[2]) >= LEAST_WEIGHTS &&
                 fmax(sum[0], sum[2]) <= MOST_WEIGHTS;
    return !WAVE_ANY(!serves);
}

/* -infinity where a bias makes a weight 0. */
INLINE void hide_weightless(float *s, const logit_terms *t)
{
#if BIAS
    UNROLL_FOR (int c = 0; c < TILE_KEYS / 16; c++) {
        const uint4 x = load_bias_weights(t, c);
        const uint biases[4] = {x.x, x.y, x.z, x.w};
        UNROLL_FOR (int n = 0; n < 8; n++)
            if ((biases[n / 2] >> n % 2 * 16 & 0xffff) == 0)
                s[8 * c + n] = -INFINITY;
    }
#endif
}

/* What row r's weights of the tile sum to, with those of its biases. */
INLINE float sum_with_biases(const float *s, const logit_terms *t, const int r)
{
    float sum = 0.0f;
    UNROLL_FOR (int c = 0; c < TILE_KEYS / 16; c++) {
        float by[8];
#if BIAS
        load_biases(by, t->biases, c);
#endif
        UNROLL_FOR (int n = 2 * r; n < 8; n += n % 2 ? 3 : 1)
            sum += BIAS ? s[8 * c + n] * by[n] : s[8 * c + n];
    }
    REDUCE(sum, ADD_PAIR);
    return sum;
}

/* Row r, whose logits are in s. The base is the largest of them and of those
 * before, and less where the row's weights would be too small. */
INLINE void weigh_by_maximum(float *s, window_softmax *w, const logit_terms *t,
                             const int r)
{
    float top = -INFINITY;
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        top = fmax(top, fmax(s[SCORE(j, r, 0)], s[SCORE(j, r, 1)]));
    REDUCE(top, fmax);
    const float base = fmax(top, w->base[r]);
    const float subtracted = base == -INFINITY ? 0.0f : base;
    const float factor = EXP2(w->base[r] - subtracted);
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int i = 0; i < 2; i++)
            s[SCORE(j, r, i)] = EXP2(s[SCORE(j, r, i)] - subtracted);
    const float all =
        FMA(w->sum[2 * r], factor, sum_with_biases(s, t, r)) / WEIGHT_UNIT;
    const int power =
        all > 0.0f ? clamp(127 - (as_int(all) >> 23), 0, MOST_POWERS) : 0;
    const float raise = as_float((127 + power) << 23);
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int i = 0; i < 2; i++)
            s[SCORE(j, r, i)] *= raise;
    w->base[r] = base - (float)power;
    w->factor[r] = factor * raise;
    w->sum[2 * r] *= w->factor[r];
    w->sum[2 * r + 1] *= w->factor[r];
}

/* The first tile, and those of which rows have no base yet or their type does
 * not hold the weights. s: products. */
INLINE void weigh_with_maxima(uint *p, float *s, window_softmax *w,
                              const logit_terms *t, int lane)
{
    const float nothing[2] = {0.0f, 0.0f};
    UNROLL_FOR (int c = 0; c < TILE_KEYS / 16; c++)
        find_16_logits(s + 8 * c, t, nothing, c, lane, compares_regions(t));
    hide_weightless(s, t);
    UNROLL_FOR (int r = 0; r < 2; r++)
        weigh_by_maximum(s, w, t, r);
    pack_weights(p, w->sum, s, t);
    w->rescales = 1;
    w->settled = !WAVE_ANY(w->base[0] == -INFINITY || w->base[1] == -INFINITY);
}

/* ---- A tile ---- */

/* Is it tried with the bases that there are? */
INLINE int tries_bases(const window_softmax *w, int is_first)
{
    return w->settled && !(is_first && w->searches > 0);
}

#define HALF 2
/* While the values of the tile before are multiplied. */
INLINE void start_weights(float *s, const window_softmax *w,
                          const logit_terms *t, int lane, const int is_first)
{
    if (!tries_bases(w, is_first))
        return;
    if (compares_regions(t))
        weigh_scores(s, w, t, lane, 1, 0, HALF);
    else
        weigh_scores(s, w, t, lane, 0, 0, HALF);
}

/* Once they have been. Addresses of the wave's 16 queries and of the tile's
 * keys, for scores that are needed a second time. */
INLINE void end_weights(uint *p, float *s, window_softmax *w,
                        const logit_terms *t, uint queries, uint keys,
                        int lane, int is_first)
{
    if (tries_bases(w, is_first)) {
        float sum[4];
        UNROLL_FOR (int i = 0; i < 4; i++)
            sum[i] = is_first ? 0.0f : w->sum[i];
        if (compares_regions(t))
            weigh_scores(s, w, t, lane, 1, HALF, TILE_KEYS / 16);
        else
            weigh_scores(s, w, t, lane, 0, HALF, TILE_KEYS / 16);
        pack_weights(p, sum, s, t);
        if (weights_serve(sum, is_first)) {
            UNROLL_FOR (int i = 0; i < 4; i++)
                w->sum[i] = sum[i];
            w->rescales = 0;
            return;
        }
        multiply_alone(s, queries, keys, lane);
        w->searches = is_first ? SEARCHES : w->searches;
    } else if (is_first) {
        w->searches = max(w->searches - 1, 0);
    }
    if (is_first)
        UNROLL_FOR (int i = 0; i < 4; i++) {
            w->base[i / 2] = -INFINITY;
            w->sum[i] = 0.0f;
        }
    weigh_with_maxima(p, s, w, t, lane);
}

#endif
