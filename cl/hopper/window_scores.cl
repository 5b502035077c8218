/* SPDX-License-Identifier: Apache-2.0
 * From a window's queries and keys to weights: products of a warpgroup with a
 * tile of keys, what is added to them, and weights (weights.cl). The
 * base of a window's first tile is that of the window before, where it serves;
 * else its largest score. */
#include "hopper/window_bias.cl"
#include "hopper/window_ring.cl"

typedef char regions_come_with_a_bias[HAS_REGIONS && !BIAS ? -1 : 1];

#include "hopper/wave_scores.cl"
#include "hopper/weights.cl"

/* ---- Weights ---- */

/* Of a row's weights of a window's first tile the least sum with which they
 * stay as they are, lest all weights of fp16 be small. */
#define LEAST_WEIGHTS 0.125f
/* So many windows' largest scores are looked for after one whose weights were
 * too many or too few with the base of the window before. */
#define SEARCHES 8

typedef struct window_weights {
    row_weights rows;
    int searches; /* that are still to be made */
} window_weights;

/* What turns a tile's products into logits, times log2 e. */
typedef struct logit_terms {
    float scale[2];   /* of the lane's rows */
    uint key_factors; /* address of the tile's (cosine) */
    uint bias;        /* of the lane's biases */
#if HAS_REGIONS
    int has_regions; /* has the window several? Then those of the tile */
    lane_regions regions;
#endif
    uint keys; /* of the tile, less the lane's first one */
} logit_terms;

/* Of the tile's 16 keys number c the lane's eight products: each is multiplied
 * by the row's scale and, in the cosine variant, by `by`, and `add` is added,
 * which with a bias is not yet times log2 e. regions: are they compared? */
INLINE void find_terms(float *by, float *add, const logit_terms *t,
                       const int c, int lane, const int regions)
{
#if VARIANT == COSINE
    const float2 low = load_floats(t->key_factors + 64 * c + lane % 4 * 8);
    const float2 high =
        load_floats(t->key_factors + 64 * c + 32 + lane % 4 * 8);
    const float factors[4] = {low.x, low.y, high.x, high.y};
#endif
    UNROLL_FOR (int n = 0; n < 8; n++) {
#if VARIANT == COSINE
        by[n] = factors[n / 4 * 2 + n % 2];
#endif
#if !BIAS
        const int key = 16 * c + n / 4 * 8 + n % 2;
        add[n] = key < (int)t->keys ? 0.0f : -INFINITY;
#endif
    }
#if BIAS
    load_biases(add, t->bias, c);
#endif
#if HAS_REGIONS
    if (regions)
        add_region_values(add, &t->regions, 16 * c);
#endif
}

/* Has the tile's window several regions? */
INLINE int compares_regions(const logit_terms *t)
{
#if HAS_REGIONS
    return t->has_regions;
#else
    return 0;
#endif
}

/* s: products, which become logits. */
INLINE void find_logits(float *s, const logit_terms *t, int lane)
{
    UNROLL_FOR (int c = 0; c < TILE_KEYS / 16; c++) {
        float by[8], add[8];
        find_terms(by, add, t, c, lane, compares_regions(t));
        UNROLL_FOR (int n = 0; n < 8; n++) {
            float *x = s + 8 * c + n;
            const int r = n / 2 % 2;
            *x = FMA(VARIANT == COSINE ? *x * by[n] : *x, t->scale[r],
                     BIAS ? add[n] * LOG2E : add[n]);
        }
    }
}

/* The first tile, and those of which rows have no base yet or fp32 does not
 * hold the weights. */
INLINE void weigh_with_maxima(float *s, row_weights *w, const logit_terms *t,
                              int lane)
{
    find_logits(s, t, lane);
    UNROLL_FOR (int r = 0; r < 2; r++)
        weigh_by_maximum(s, w, r);
    note_bases(w);
}

/* Given that all rows have a base, be it of the window before; sum: of the
 * lane's weights. */
INLINE void weigh_with_bases(float *s, float *sum, const row_weights *w,
                             const logit_terms *t, int lane, const int regions)
{
    sum[0] = sum[1] = 0.0f;
    UNROLL_FOR (int c = 0; c < TILE_KEYS / 16; c++) {
        float by[8], add[8];
        find_terms(by, add, t, c, lane, regions);
        UNROLL_FOR (int n = 0; n < 8; n++) {
            float *x = s + 8 * c + n;
            const int r = n / 2 % 2;
            *x = EXP2(FMA(VARIANT == COSINE ? *x * by[n] : *x, t->scale[r],
                          BIAS ? FMA(add[n], LOG2E, -w->base[r])
                          : NK % TILE_KEYS == 0 ? -w->base[r]
                                                : add[n] - w->base[r]));
        }
        UNROLL_FOR (int n = 0; n < 8; n += 2)
            sum[n / 2 % 2] += s[8 * c + n] + s[8 * c + n + 1];
    }
}

/* Did these bases serve? Then the tile's sums are added. */
INLINE int add_weights(row_weights *w, const float *sum, int is_first)
{
    int serve = fmax(sum[0], sum[1]) <= MOST_WEIGHTS;
    if (is_first)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            float all = sum[r];
            REDUCE(all, ADD_PAIR);
            serve &= all >= LEAST_WEIGHTS && all <= MOST_WEIGHTS;
        }
    if (WAVE_ANY(!serve))
        return 0;
    UNROLL_FOR (int r = 0; r < 2; r++)
        w->sum[r] = is_first ? sum[r] : w->sum[r] + sum[r];
    return 1;
}

/* From products to weights. False: of bases that may not serve, with `sum`, so
 * that add_weights and maybe weigh_again must follow. */
INLINE int weigh_tile(float *s, float *sum, window_weights *own,
                      const logit_terms *t, int lane, int is_first)
{
    row_weights *w = &own->rows;
    if (w->settled && !(is_first && own->searches > 0)) {
        if (compares_regions(t))
            weigh_with_bases(s, sum, w, t, lane, 1);
        else
            weigh_with_bases(s, sum, w, t, lane, 0);
        return 0;
    }
    if (is_first) {
        own->searches = max(own->searches - 1, 0);
        w->base[0] = w->base[1] = -INFINITY;
        w->sum[0] = w->sum[1] = 0.0f;
    }
    weigh_with_maxima(s, w, t, lane);
    return 1;
}

/* Where bases did not serve: powers of two move to them, or maxima are looked
 * for. Addresses of the wave's 16 queries and of the tile's keys. */
INLINE void weigh_again(float *s, const float *sum, window_weights *own,
                        const logit_terms *t, uint queries, uint keys,
                        int lane, int is_first)
{
    row_weights *w = &own->rows;
    /* four lanes share a row */
    if (!is_first && !WAVE_ANY(!(sum[0] + sum[1] < 0x1p123f))) {
        UNROLL_FOR (int r = 0; r < 2; r++)
            w->sum[r] += move_to_base(s, w, r, sum[r]);
        return;
    }
    multiply_alone(s, queries, keys, 0, 0, lane);
    if (is_first) {
        own->searches = SEARCHES;
        w->base[0] = w->base[1] = -INFINITY;
        w->sum[0] = w->sum[1] = 0.0f;
    }
    weigh_with_maxima(s, w, t, lane);
}
