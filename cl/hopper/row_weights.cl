/* SPDX-License-Identifier: Apache-2.0
 * From scores of a tile of keys to weights (weights.cl), in place, where rows
 * see some of the keys. The first tile's largest score is the base of all
 * others too, so that a maximum is looked for in few tiles, and what is summed
 * stays as exact as with it. */
#include "hopper/tile_runs.cl"
#include "hopper/weights.cl"

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
        UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] *= scale;
        if (!tile.whole)
            hide_unseen(s, r, args, tile, rows[lane / 4 + 8 * r], lane);
        weigh_by_maximum(s, w, r);
    }
    note_bases(w);
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
