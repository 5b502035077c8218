/* SPDX-License-Identifier: Apache-2.0
 * Rows whose sums are no finite numbers: infinities or NaNs are among their
 * keys or values, or among those of keys that only other rows see, as 0 times
 * them is NaN too. A wave computes one after the other with ordinary
 * instructions, its lanes a key each; slow, and right whatever the numbers
 * are: logits are not times log2 e here, so that fp32 holds what types store.
 */
#include "common/problem.cl"
#include "hopper/lanes.cl"
#include "hopper/window_places.cl"

typedef struct tensors {
    __global const storage *q, *k, *v;
    __global storage *o;
    __global float *lse;
} tensors;

/* A head's rows in a window. They are found where they are used: addresses
 * that wait in registers through the loop over keys are too many. */
typedef struct head_planes {
    window_place place;
    tensors rows;
} head_planes;

INLINE head_planes find_planes(const tensors *all, const forward_args *args,
                               work_tile of)
{
    const uint kv_head = of.head / args->heads_per_kv_head;
    head_planes planes = {.place = find_place(args, of.window)};
    const window_place *at = &planes.place;
    planes.rows.q = all->q + plane_at(&args->q, at, of.head);
    planes.rows.k = all->k + plane_at(&args->k, at, kv_head);
    planes.rows.v = all->v + plane_at(&args->v, at, kv_head);
    planes.rows.o = all->o + plane_at(&args->o, at, of.head);
    planes.rows.lse = all->lse + plane_at(&args->lse, at, of.head);
    return planes;
}

/* Are all numbers of a wave's rows finite? A sum of 0 counts by what is said
 * of its inverse. */
INLINE int are_finite(const float *o, const float *sum, const float *inverse)
{
    float zero[4] = {sum[0] * 0.0f, sum[1] * 0.0f, inverse[0] * 0.0f,
                     inverse[1] * 0.0f};
    UNROLL_FOR (int i = 0; i < HEAD_DIM / 2; i++)
        zero[i % 4] = FMA(o[i], 0.0f, zero[i % 4]);
    return !WAVE_ANY(!(zero[0] + zero[1] + (zero[2] + zero[3]) == 0.0f));
}

#define LANE_CHANNELS ((HEAD_DIM + WAVE - 1) / WAVE)

typedef struct exact_row {
    uint row;
    int lane;
    float scale; /* of logits */
    float top;   /* largest logit */
    float sum;
    float out[LANE_CHANNELS]; /* of channels lane, lane + WAVE, ... */
} exact_row;

/* q k, with rows of length 1 in the cosine variant. */
INLINE float multiply_rows(__global const storage *q,
                           __global const storage *k)
{
    float dot = 0.0f, of_q = 0.0f, of_k = 0.0f;
    NO_UNROLL_FOR (uint c = 0; c < HEAD_DIM; c++) {
        const float x = LOAD(q, c), y = LOAD(k, c);
        dot = FMA(x, y, dot);
        if (VARIANT == COSINE) {
            of_q = FMA(x, x, of_q);
            of_k = FMA(y, y, of_k);
        }
    }
    if (VARIANT == COSINE)
        dot *= inverse_norm(of_q) * inverse_norm(of_k);
    return dot;
}

/* Adds keys [first, first + count), at most WAVE, all of them seen. */
INLINE void add_keys(exact_row *x, const forward_args *args,
                     const head_planes *head, const score_bias_view *view,
                     uint first, uint count)
{
    const window_place *place = &head->place;
    const int lane = x->lane, has = (uint)lane < count;
    float logit = -INFINITY;
    if (has) {
        const uint key = first + (uint)lane;
        logit = x->scale *
                multiply_rows(head->rows.q + row_at(&args->q, place, x->row),
                              head->rows.k + row_at(&args->k, place, key));
        logit += added_to_logit(args, view, (int)x->row, (int)key);
    }
    float top = logit;
    REDUCE_WAVE(top, fmax);
    top = fmax(top, x->top);
    const float subtracted = top == -INFINITY ? 0.0f : top;
    const float factor = WEIGHT(x->top, subtracted);
    const float weight = has ? WEIGHT(logit, subtracted) : 0.0f;
    x->top = top;
    x->sum = FMA(x->sum, factor, weight);
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        x->out[i] *= factor;
    NO_UNROLL_FOR (uint j = 0; j < count; j++) {
        const float p = of_lane(weight, (int)j);
        __global const storage *v =
            head->rows.v + row_at(&args->v, place, first + j);
        UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
            x->out[i] =
                FMA(p, LOAD(v, (ulong)min(lane + i * WAVE, HEAD_DIM - 1)),
                    x->out[i]);
    }
}

/* o and lse of one row. */
INLINE void compute_exactly(const forward_args *args, const head_planes *head,
                            const score_bias_view *view, uint row, float scale,
                            int lane)
{
    const key_loop loop = loop_over_keys(args, row, row + 1);
    exact_row x;
    x.row = row;
    x.lane = lane;
    x.scale = scale;
    x.top = -INFINITY;
    x.sum = 0.0f;
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        x.out[i] = 0.0f;
    NO_UNROLL_FOR (uint b = 0; b < loop.blocks; b++) {
        const key_range range = loop_block(args, &loop, b);
        NO_UNROLL_FOR (uint done = 0; done < range.count; done += WAVE)
            add_keys(&x, args, head, view, range.first + done,
                     min(range.count - done, (uint)WAVE));
    }
    REDUCE_WAVE(x.sum, ADD_PAIR);
    const float inverse = x.sum == 0.0f ? 0.0f : 1.0f / x.sum;
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        if (lane + i * WAVE < HEAD_DIM)
            STORE(x.out[i] * inverse,
                  head->rows.o + row_at(&args->o, &head->place, row),
                  (ulong)(lane + i * WAVE));
    if ((args->flags & ARG_LSE) != 0 && lane == 0)
        head->rows.lse[row_at(&args->lse, &head->place, row)] =
            FMA(log2(x.sum), 1.0f / LOG2E, x.top);
}
