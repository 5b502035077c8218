/* SPDX-License-Identifier: Apache-2.0
 * What stands between the products of unfused attention's backward pass;
 * follows unfused.cl in the same program. Rows and their numbers are those of
 * the softmax there. */

/* dP becomes dS = P (dP - delta), delta = sum P dP. */
__kernel void softmax_backward(__global const float *p, __global float *dp)
{
    SCRATCH
    const size_t row = ROW;
    const int item = ITEM;
    __global const float *p_row = p + row * NK;
    __global float *own = dp + row * NK;

    vec sums = (vec)(0.0f);
    for (int j = item * LANES; j < VECTOR_KEYS; j += GROUP * LANES)
        sums += LOAD(p_row + j) * LOAD(own + j);
    float delta = FOLD_LANES(ADD, sums);
    for (int j = VECTOR_KEYS + item; j < NK; j += GROUP)
        delta += p_row[j] * own[j];
    delta = row_sum(delta, scratch);

    for (int j = item * LANES; j < VECTOR_KEYS; j += GROUP * LANES)
        STORE(LOAD(p_row + j) * (LOAD(own + j) - delta), own + j);
    for (int j = VECTOR_KEYS + item; j < NK; j += GROUP)
        own[j] = p_row[j] * (own[j] - delta);
}

/* Cosine: dS times s / (|q| |k|), so that products with q and k as they are
 * stored give the gradients of Q^ and K^ over the norms. */
__kernel void scale_rows(__global float *ds, __global const float *q_norm,
                         __global const float *k_norm,
                         __global const float *logit_scale)
{
    const size_t row = ROW;
    const int item = ITEM;
    const int head = (int)(row / NQ % HEADS);
    const ulong window = row / NQ / HEADS;
    const float factor =
        exp(fmin(logit_scale[head], 4.6051702f)) * q_norm[row];
    __global const float *keys =
        k_norm + (window * KV_HEADS + head / (HEADS / KV_HEADS)) * NK;
    __global float *own = ds + row * NK;
    for (int j = item * LANES; j < VECTOR_KEYS; j += GROUP * LANES)
        STORE(LOAD(own + j) * (factor * LOAD(keys + j)), own + j);
    for (int j = VECTOR_KEYS + item; j < NK; j += GROUP)
        own[j] *= factor * keys[j];
}

/* Cosine: takes from a row dx what lies along x: the norm does not change
 * that. along = x . dx, which summed over queries is d logit_scale. */
__kernel void project(__global const float *x, __global const float *norm,
                      __global float *dx, __global float *along)
{
    const size_t row = get_global_id(0);
    float dot = 0.0f;
    for (int c = 0; c < HEAD_DIM; c++)
        dot += x[row * HEAD_DIM + c] * dx[row * HEAD_DIM + c];
    const float part = norm[row] * norm[row] * dot;
    for (int c = 0; c < HEAD_DIM; c++)
        dx[row * HEAD_DIM + c] -= part * x[row * HEAD_DIM + c];
    along[row] = dot;
}

/* Sums of each window-head; behind the clamp the scale stands still. */
__kernel void sum_queries(__global const float *along,
                          __global const float *logit_scale,
                          __global float *sums)
{
    const size_t at = get_global_id(0);
    float sum = 0.0f;
    for (int i = 0; i < NQ; i++)
        sum += along[at * NQ + i];
    sums[at] = logit_scale[at % HEADS] > 4.6051702f ? 0.0f : sum;
}

/* x: the elements before `end` of an array [windows][period]; every parts-th
 * window goes into a partial sum. */
__kernel void sum_windows(__global const float *x, ulong end,
                          __global float *partial)
{
    const ulong column = get_global_id(0), period = get_global_size(0);
    const ulong part = get_global_id(1), parts = get_global_size(1);
    float sum = 0.0f;
    for (ulong w = part; w * period + column < end; w += parts)
        sum += x[w * period + column];
    partial[part * period + column] = sum;
}

__kernel void sum_parts(__global const float *partial, int parts,
                        __global float *to)
{
    const size_t column = get_global_id(0), period = get_global_size(0);
    float sum = 0.0f;
    for (int i = 0; i < parts; i++)
        sum += partial[i * period + column];
    to[column] = sum;
}
