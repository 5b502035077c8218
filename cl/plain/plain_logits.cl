/* SPDX-License-Identifier: Apache-2.0
 * Kernels of this folder are the formulas as they stand, for comparisons: a
 * session computes a small problem with them and with kernels that it does not
 * trust yet (host/session/family_check.h). They are short, so that they
 * compile soon, and a work-item computes a row, or a key, by itself. They know
 * no padding and no d_lse, and want tokens to start at 16 bytes and to have a
 * multiple of eight channels, which are neighbours.
 *
 *   logit = scale q k + bias + mask        dot
 *           scale q^ k^ + bias + mask      cosine, q^ = q / |q|
 *           scale q k, or -infinity        sliding */
#include "common/aligned.cl"
#include "common/problem.cl"

REQUIRE(BLOCK_ROWS)

/* What all logits of a head of a window have in common. */
typedef struct window_head {
    window_coord coord;
    score_bias_view score_bias;
    __global const storage *q, *k, *v;
    float scale;
} window_head;

INLINE window_head find_head(const forward_args *args, work_tile u,
                             const score_bias_tensors *tensors,
                             __global const storage *q,
                             __global const storage *k,
                             __global const storage *v, float scale)
{
    const window_coord coord = locate_window(&args->grid, u.window);
    const uint kv_head = u.head / args->heads_per_kv_head;
    const window_head head = {.coord = coord,
                              .score_bias = score_bias_of(tensors, args, u),
                              .q = q + plane(&args->q, coord.grid, u.head),
                              .k = k + plane(&args->k, coord.grid, kv_head),
                              .v = v + plane(&args->v, coord.grid, kv_head),
                              .scale = scale};
    return head;
}

/* ---- Channels of a token ---- */

INLINE plane_offset offset_of(const forward_args *args,
                              const window_coord *coord,
                              const tensor_layout *layout, uint row)
{
    const token at = find_token(&args->grid, coord, row);
    return token_offset(layout, &at);
}

/* Those of a token, eight at a time. */
#define EIGHTS (HEAD_DIM / 8)

INLINE void clear(float8 x[EIGHTS])
{
    UNROLL_FOR (int i = 0; i < EIGHTS; i++)
        x[i] = (float8)(0.0f);
}

INLINE float sum_of(float8 x)
{
    const float4 half_sums = x.lo + x.hi;
    return half_sums.x + half_sums.y + half_sums.z + half_sums.w;
}

INLINE float multiply(const float8 x[EIGHTS], __global const storage *y)
{
    float8 sums = (float8)(0.0f);
    UNROLL_FOR (int i = 0; i < EIGHTS; i++)
        sums = FMA(x[i], load8_aligned(y + 8 * i), sums);
    return sum_of(sums);
}

/* sums += factor y */
INLINE void add(float8 sums[EIGHTS], float factor, __global const storage *y)
{
    UNROLL_FOR (int i = 0; i < EIGHTS; i++)
        sums[i] = FMA((float8)(factor), load8_aligned(y + 8 * i), sums[i]);
}

INLINE void store(const float8 x[EIGHTS], float factor, __global storage *to)
{
    UNROLL_FOR (int i = 0; i < EIGHTS; i++)
        store8_aligned(x[i] * factor, to + 8 * i);
}

/* 1 / |y|, and 1 where rows of q and k are taken as they are. */
INLINE float inverse_length(__global const storage *y)
{
    float8 squares = (float8)(0.0f);
    UNROLL_FOR (int i = 0; VARIANT == COSINE && i < EIGHTS; i++)
        squares =
            FMA(load8_aligned(y + 8 * i), load8_aligned(y + 8 * i), squares);
    return VARIANT == COSINE ? inverse_norm(sum_of(squares)) : 1.0f;
}

/* A work-item's own row of q or k: y^, or y. */
INLINE void load_own(float8 x[EIGHTS], __global const storage *y)
{
    clear(x);
    add(x, inverse_length(y), y);
}

/* ---- Logits ---- */

/* own: the row of one, other: that of the other, as it is stored. */
INLINE float logit(const forward_args *args, const window_head *head,
                   const float8 own[EIGHTS], __global const storage *other,
                   uint row, uint key)
{
    if (VARIANT == SLIDING && !sees(args, visible_span(args, row), key))
        return -INFINITY;
    return multiply(own, other) * inverse_length(other) * head->scale +
           added_to_logit(args, &head->score_bias, row, key);
}

/* exp(x - max) of a logit that is seen, else 0. */
INLINE float exponential(float x, float max)
{
    return x == -INFINITY ? 0.0f : exp(x - max);
}
