/* SPDX-License-Identifier: Apache-2.0
 * Rows whose sums are no finite numbers: infinities or NaNs are among their
 * keys or values, or among those of keys that only other rows see, as 0 times
 * them is NaN too. A wave computes one after the other with ordinary
 * instructions, its lanes a key each; slow, and right whatever the numbers
 * are. */
#include "hopper/head_planes.cl"
#include "hopper/row_weights.cl"

#define LANE_CHANNELS ((HEAD_DIM + WAVE - 1) / WAVE)

typedef struct exact_row {
    float top; /* largest logit, times log2 e */
    float sum;
    float out[LANE_CHANNELS]; /* of channels lane, lane + WAVE, ... */
} exact_row;

/* Adds keys [first, first + count), at most WAVE, all of them seen. */
INLINE void add_keys(exact_row *row, __global const storage *q,
                     const row_plane *k, const row_plane *v, uint first,
                     uint count, float scale, int lane)
{
    const int has = (uint)lane < count;
    float logit = -INFINITY;
    if (has) {
        const ulong at = (ulong)(first + lane) * k->pitch;
        float dot = 0.0f;
        NO_UNROLL_FOR (uint c = 0; c < HEAD_DIM; c++)
            dot = FMA(LOAD(q, c), LOAD(k->rows, at + c), dot);
        logit = dot * scale;
    }
    float top = logit;
    REDUCE_WAVE(top, fmax);
    top = fmax(top, row->top);
    const float subtracted = top == -INFINITY ? 0.0f : top;
    const float factor = EXP2(row->top - subtracted);
    const float weight = has ? EXP2(logit - subtracted) : 0.0f;
    row->top = top;
    row->sum = FMA(row->sum, factor, weight);
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        row->out[i] *= factor;
    NO_UNROLL_FOR (uint j = 0; j < count; j++) {
        const float p = of_lane(weight, (int)j);
        const ulong at = (ulong)(first + j) * v->pitch;
        UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
            row->out[i] =
                FMA(p, LOAD(v->rows, at + min(lane + i * WAVE, HEAD_DIM - 1)),
                    row->out[i]);
    }
}

/* o and lse of one row. */
INLINE void compute_exactly(const forward_args *args, const head_planes *head,
                            uint row, float scale, int lane)
{
    const key_loop loop = loop_over_keys(args, row, row + 1);
    exact_row x;
    x.top = -INFINITY;
    x.sum = 0.0f;
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        x.out[i] = 0.0f;
    NO_UNROLL_FOR (uint b = 0; b < loop.blocks; b++) {
        const key_range range = loop_block(args, &loop, b);
        NO_UNROLL_FOR (uint done = 0; done < range.count; done += WAVE)
            add_keys(&x, head->q.rows + (ulong)row * head->q.pitch, &head->k,
                     &head->v, range.first + done,
                     min(range.count - done, (uint)WAVE), scale, lane);
    }
    REDUCE_WAVE(x.sum, ADD_PAIR);
    const float inverse = x.sum == 0.0f ? 0.0f : 1.0f / x.sum;
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        if (lane + i * WAVE < HEAD_DIM)
            STORE(x.out[i] * inverse, head->o,
                  (ulong)row * args->o.row + lane + i * WAVE);
    if ((args->flags & ARG_LSE) != 0 && lane == 0)
        head->lse[(ulong)row * args->lse.row] =
            (x.top + log2(x.sum)) * (1.0f / LOG2E);
}
