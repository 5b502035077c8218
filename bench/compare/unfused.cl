/* SPDX-License-Identifier: Apache-2.0
 * What stands between the matrix products of unfused attention: rows of S
 * [rows][NK] become rows of softmax(S), and backward those of dP rows of dS.
 * Row r is query r % NQ of window-head r / NQ.
 *
 *   NQ, NK, HEAD_DIM, HEADS, KV_HEADS
 *   COSINE    S is q k^T; norms and the factor come here
 *   SLIDING   keys outside first_key .. last_key and the sink are hidden
 *   BIAS      1: bias [HEADS][NQ][NK]
 *   MASK      1: mask [mask_windows][NQ][NK]; 2: regions
 *   GROUP     work-items of a row; 1: no barrier, work-groups of any size
 *   LANES     keys that a work-item takes at once: 1 or 8 */
#define VECTOR_KEYS (NK / LANES * LANES) /* the others go one by one */

#if LANES == 8
typedef float8 vec;
#define LOAD(from) vload8(0, from)
#define STORE(x, to) vstore8(x, 0, to)
#define LOAD_REGIONS(from) convert_int8(vload8(0, from))
#define KEYS_FROM(j) ((int)(j) + (int8)(0, 1, 2, 3, 4, 5, 6, 7))
#define FOLD_LANES(f, x)                                                      \
    f(f(f((x).s0, (x).s1), f((x).s2, (x).s3)),                                \
      f(f((x).s4, (x).s5), f((x).s6, (x).s7)))
#else
typedef float vec;
#define LOAD(from) (*(from))
#define STORE(x, to) (*(to) = (x))
#define LOAD_REGIONS(from) ((int)*(from))
#define KEYS_FROM(j) (j)
#define FOLD_LANES(f, x) (x)
#endif
#define ADD(a, b) ((a) + (b))

/* 1 / max(|row|, 1e-12) */
__kernel void norms(__global const float *x, __global float *norm)
{
    const size_t row = get_global_id(0);
    float sum = 0.0f;
    for (int c = 0; c < HEAD_DIM; c++)
        sum += x[row * HEAD_DIM + c] * x[row * HEAD_DIM + c];
    norm[row] = 1.0f / fmax(sqrt(sum), 1e-12f);
}

typedef struct row_state {
    __global const float *s, *bias, *mask, *key_norm;
    __global const uchar *key_region;
    int region, first_key, last_key, sink;
    float factor, region_value;
} row_state;

/* The logits of the keys j, j + 1, ... */
#define DEFINE_LOGITS(name, TYPE, GET, GET_REGIONS, KEYS)                     \
    static TYPE name(const row_state *r, int j)                               \
    {                                                                         \
        TYPE x = GET(r->s + j);                                               \
        if (COSINE)                                                           \
            x *= r->factor * GET(r->key_norm + j);                            \
        if (BIAS)                                                             \
            x += GET(r->bias + j);                                            \
        if (MASK == 1)                                                        \
            x += GET(r->mask + j);                                            \
        if (MASK == 2)                                                        \
            x += select((TYPE)(0.0f), (TYPE)(r->region_value),                \
                        GET_REGIONS(r->key_region + j) != r->region);         \
        if (SLIDING)                                                          \
            x = select((TYPE)(-INFINITY), x,                                  \
                       KEYS(j) < r->last_key &&                               \
                           (KEYS(j) >= r->first_key || KEYS(j) < r->sink));   \
        return x;                                                             \
    }
#define GET_ONE(from) (*(from))
#define GET_ONE_REGION(from) ((int)*(from))
#define ONE_KEY(j) (j)
DEFINE_LOGITS(logit, float, GET_ONE, GET_ONE_REGION, ONE_KEY)
DEFINE_LOGITS(logits, vec, LOAD, LOAD_REGIONS, KEYS_FROM)

/* f over what the work-items of a row hold. */
#if GROUP > 1
#define ROW get_group_id(0)
#define ITEM ((int)get_local_id(0))
#define SCRATCH __local float scratch[GROUP];
#define DEFINE_REDUCE(name, f)                                                \
    static float name(float x, __local float *scratch)                        \
    {                                                                         \
        const int item = ITEM;                                                \
        scratch[item] = x;                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        for (int half_way = GROUP / 2; half_way > 0; half_way /= 2) {         \
            if (item < half_way)                                              \
                scratch[item] = f(scratch[item], scratch[item + half_way]);   \
            barrier(CLK_LOCAL_MEM_FENCE);                                     \
        }                                                                     \
        const float all = scratch[0];                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        return all;                                                           \
    }
DEFINE_REDUCE(row_max, fmax)
DEFINE_REDUCE(row_sum, ADD)
#else
#define ROW get_global_id(0)
#define ITEM 0
#define SCRATCH
#define row_max(x, scratch) (x)
#define row_sum(x, scratch) (x)
#endif

/* Which keys a token of the sliding variant sees besides the sink. */
static void see_blocks(row_state *r, int token, int block, int first_block,
                       int window_blocks)
{
    const int here =
        token < first_block ? 0 : 1 + (token - first_block) / block;
    const int oldest = window_blocks > 0 ? here - window_blocks + 1 : 0;
    r->first_key = oldest > 0 ? first_block + (oldest - 1) * block : 0;
    r->last_key = first_block + here * block;
}

/* The largest of an item's logits. */
static float largest_logit(const row_state *r, int item)
{
    vec tops = (vec)(-INFINITY);
    for (int j = item * LANES; j < VECTOR_KEYS; j += GROUP * LANES)
        tops = fmax(tops, logits(r, j));
    float top = FOLD_LANES(fmax, tops);
    for (int j = VECTOR_KEYS + item; j < NK; j += GROUP)
        top = fmax(top, logit(r, j));
    return top;
}

/* exp(logit - top) of an item's keys, and their sum. */
static float exponentiate(const row_state *r, __global float *own, int item,
                          float top)
{
    vec sums = (vec)(0.0f);
    for (int j = item * LANES; j < VECTOR_KEYS; j += GROUP * LANES) {
        const vec p = exp(logits(r, j) - top);
        STORE(p, own + j);
        sums += p;
    }
    float sum = FOLD_LANES(ADD, sums);
    for (int j = VECTOR_KEYS + item; j < NK; j += GROUP) {
        const float p = exp(logit(r, j) - top);
        own[j] = p;
        sum += p;
    }
    return sum;
}

static void scale(__global float *own, int item, float share)
{
    for (int j = item * LANES; j < VECTOR_KEYS; j += GROUP * LANES)
        STORE(LOAD(own + j) * share, own + j);
    for (int j = VECTOR_KEYS + item; j < NK; j += GROUP)
        own[j] *= share;
}

__kernel void
softmax(__global float *s, __global const float *bias,
        __global const float *mask, __global const uchar *query_regions,
        __global const uchar *key_regions, __global const float *q_norm,
        __global const float *k_norm, __global const float *logit_scale,
        ulong mask_windows, float region_value, int block, int first_block,
        int window_blocks, int sink, int query_offset)
{
    SCRATCH
    const size_t row = ROW;
    const int item = ITEM;
    const int query = (int)(row % NQ);
    const int head = (int)(row / NQ % HEADS);
    const ulong window = row / NQ / HEADS;
    const ulong masked = window % mask_windows;
    __global float *own = s + row * NK;
    row_state r;
    r.s = own;
    r.bias = bias + ((size_t)head * NQ + query) * NK;
    r.mask = mask + (masked * NQ + query) * NK;
    r.key_region = key_regions + masked * NK;
    r.region = MASK == 2 ? query_regions[masked * NQ + query] : 0;
    r.region_value = region_value;
    r.key_norm = k_norm + (window * KV_HEADS + head / (HEADS / KV_HEADS)) * NK;
    r.factor =
        COSINE ? exp(fmin(logit_scale[head], 4.6051702f)) * q_norm[row] : 1.0f;
    r.sink = sink;
    r.first_key = 0;
    r.last_key = NK;
    if (SLIDING)
        see_blocks(&r, query + query_offset, block, first_block,
                   window_blocks);

    float top = row_max(largest_logit(&r, item), scratch);
    top = top == -INFINITY ? 0.0f : top; /* a row that sees nothing */
    const float sum = row_sum(exponentiate(&r, own, item, top), scratch);
    scale(own, item, sum > 0.0f ? 1.0f / sum : 0.0f);
}

/* ---- Backward ---- */

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
