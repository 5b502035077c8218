/* SPDX-License-Identifier: Apache-2.0
 * Rows of windows whose sums are no finite numbers, or 0, one after the other
 * with ordinary instructions, as exact_rows.cl has them. Logits are not times
 * log2 e here, so that fp32 holds what types store. */
#include "hopper/window_bias.cl"
#include "hopper/window_places.cl"

typedef struct window_tensors {
    __global const storage *q, *k, *v;
    __global storage *o;
    __global float *lse;
} window_tensors;

/* A head's rows in a window. They are found where they are used: addresses
 * that wait in registers through the loop over keys are too many. */
typedef struct window_planes {
    window_place place;
    window_tensors rows;
} window_planes;

INLINE window_planes find_planes(const window_tensors *all,
                                 const forward_args *args, work_tile of)
{
    const uint kv_head = of.head / args->heads_per_kv_head;
    window_planes planes = {.place = find_place(args, of.window)};
    const window_place *at = &planes.place;
    planes.rows.q = all->q + plane_at(&args->q, at, of.head);
    planes.rows.k = all->k + plane_at(&args->k, at, kv_head);
    planes.rows.v = all->v + plane_at(&args->v, at, kv_head);
    planes.rows.o = all->o + plane_at(&args->o, at, of.head);
    planes.rows.lse = all->lse + plane_at(&args->lse, at, of.head);
    return planes;
}

#define LANE_CHANNELS ((HEAD_DIM + WAVE - 1) / WAVE)

typedef struct exact_row {
    float top; /* largest logit */
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
        of_q = FMA(x, x, of_q);
        of_k = FMA(y, y, of_k);
    }
    if (VARIANT == COSINE)
        dot *= inverse_norm(of_q) * inverse_norm(of_k);
    return dot;
}

/* Adds a key for each lane, from `first` on. */
INLINE void add_keys(exact_row *x, const forward_args *args,
                     const window_planes *head, const score_bias_view *view,
                     uint row, uint first, float scale, int lane)
{
    const window_place *place = &head->place;
    const uint key = first + (uint)lane;
    float logit = -INFINITY;
    if (key < NK) {
        logit =
            scale * multiply_rows(head->rows.q + row_at(&args->q, place, row),
                                  head->rows.k + row_at(&args->k, place, key));
        if (BIAS)
            logit += bias_of(args, view, (int)row, (int)key);
        logit += mask_of(args, view, (int)row, (int)key);
    }
    float top = logit;
    REDUCE_WAVE(top, fmax);
    top = fmax(top, x->top);
    const float subtracted = top == -INFINITY ? 0.0f : top;
    const float factor = EXP2((x->top - subtracted) * LOG2E);
    const float weight = key < NK ? EXP2((logit - subtracted) * LOG2E) : 0.0f;
    x->top = top;
    x->sum = FMA(x->sum, factor, weight);
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        x->out[i] *= factor;
    NO_UNROLL_FOR (uint j = first; j < min(first + WAVE, (uint)NK); j++) {
        const float p = of_lane(weight, (int)(j - first));
        __global const storage *v = head->rows.v + row_at(&args->v, place, j);
        UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
            x->out[i] =
                FMA(p, LOAD(v, (ulong)min(lane + i * WAVE, HEAD_DIM - 1)),
                    x->out[i]);
    }
}

/* o and lse of one row. */
INLINE void compute_exactly(const forward_args *args,
                            const window_planes *head,
                            const score_bias_view *view, uint row, float scale,
                            int lane)
{
    exact_row x;
    x.top = -INFINITY;
    x.sum = 0.0f;
    UNROLL_FOR (int i = 0; i < LANE_CHANNELS; i++)
        x.out[i] = 0.0f;
    NO_UNROLL_FOR (uint first = 0; first < NK; first += WAVE)
        add_keys(&x, args, head, view, row, first, scale, lane);
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
