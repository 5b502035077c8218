/* SPDX-License-Identifier: Apache-2.0
 * From scores of a tile of keys to weights, in place: w = 2^(scale s - base),
 * with a base for each row. The first tile's largest score is the base of all
 * others too; where a row's weights sum to more than MOST_WEIGHTS, powers of
 * two move from the weights, and from what was summed before, to the base. So
 * a maximum is looked for in few tiles, and what is summed stays as exact as
 * with it. Where fp32 does not hold the weights, the tile gets a base of its
 * own. */
#ifndef ROW_WEIGHTS_CL
#define ROW_WEIGHTS_CL
#include "hopper/lanes.cl"
#include "hopper/tile_runs.cl"
#include "hopper/wgmma.cl"

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

/* -infinity where row r does not see the key. Numbers of keys are counted from
 * the lane's first one, so that they are constants; no branches. */
INLINE void hide_unseen(float *s, const int r, const forward_args *args,
                        key_tile tile, span seen, int lane)
{
    const int own = (int)tile.first + 2 * (lane % 4);
    const int high = (int)min(tile.end, seen.high) - own;
    const int low = (int)seen.low - own;
    const int sink = (int)min(args->sink, seen.high) - own;
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int i = 0; i < 2; i++) {
            const int key = 8 * j + i;
            const int seen_here = (key < high) & ((key >= low) | (key < sink));
            s[SCORE(j, r, i)] = seen_here ? s[SCORE(j, r, i)] : -INFINITY;
        }
}

/* Tiles of which some row does not see all keys, and the first. `rows`: what
 * the wave's 16 see. */
INLINE void weigh_exactly(float *s, row_weights *w, float scale,
                          const forward_args *args, key_tile tile,
                          __local const span *rows, int lane)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        float top = -INFINITY, sum = 0.0f;
        UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] *= scale;
        if (!tile.whole)
            hide_unseen(s, r, args, tile, rows[lane / 4 + 8 * r], lane);
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

/* Tiles that all rows see entirely, given that all have a base. False: some
 * weight is larger than fp32 holds, and nothing has changed but s, which is
 * worth nothing. */
INLINE int weigh(float *s, row_weights *w, float scale)
{
    float sum[2];
    UNROLL_FOR (int r = 0; r < 2; r++) {
        sum[r] = 0.0f;
        UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++) {
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] =
                    EXP2(FMA(s[SCORE(j, r, i)], scale, -w->base[r]));
            sum[r] += s[SCORE(j, r, 0)] + s[SCORE(j, r, 1)];
        }
    }
    w->rescales = WAVE_ANY(!(fmax(sum[0], sum[1]) <= MOST_WEIGHTS));
    if (w->rescales) {
        /* four lanes share a row */
        if (WAVE_ANY(!(sum[0] + sum[1] < 0x1p123f)))
            return 0;
        UNROLL_FOR (int r = 0; r < 2; r++)
            sum[r] = move_to_base(s, w, r, sum[r]);
    }
    UNROLL_FOR (int r = 0; r < 2; r++)
        w->sum[r] += sum[r];
    return 1;
}

INLINE void pack_weights(uint *p, const float *s)
{
    UNROLL_FOR (int i = 0; i < WEIGHTS; i++)
        p[i] = PACK(s[2 * i], s[2 * i + 1]);
}

#endif
