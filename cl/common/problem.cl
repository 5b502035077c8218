/* SPDX-License-Identifier: Apache-2.0
 * What every kernel knows of the problem: which unit of work it computes,
 * which keys a query sees, and what is added to a logit.
 *
 *   VARIANT 0: dot      S = scale Q K^T + bias + mask
 *   VARIANT 1: cosine   S = s_h q^ k^T + bias + mask, q^ = q / |q|
 *   VARIANT 2: sliding  S = scale Q K^T over the visible blocks
 *   HEAD_DIM            channels of a head
 *   NQ, NK              queries and keys of a window (sliding: arguments)
 *   BIAS 0: none, 1: in the storage type, 2: fp32
 *   MASK 0: none, 1: additive in the storage type, 2: additive in fp32,
 *        3: region numbers, 4: those that the shift of a grid makes
 *   TABLE 0: bias has an element for each query and key; else it is a table
 *        [entries][heads], and its entry for a query and a key is
 *        1: table_place(query) - table_place(key) + TABLE_CENTER
 *        2: index[query * NK + key]
 *   KEEPS_TABLE 1: terms are told where in local memory that table is, as
 *               fp32, and each token's table_place (tier local)
 *   ADJACENT_KEYS 1: in bias and mask, neighbouring keys are neighbours in
 *               memory; 0: their strides say where they are
 *   BLOCK_ROWS          query rows of a unit at most
 *   BLOCK_KEYS          keys that a softmax step takes at once; where they
 *                       are not all, the softmax streams */
#include "common/tokens.cl"

#define DOT 0
#define COSINE 1
#define SLIDING 2
#ifndef VARIANT
#define VARIANT DOT
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 32
#endif
#ifndef BIAS
#define BIAS 2
#endif
#ifndef MASK
#define MASK 3
#endif
#ifndef TABLE
#define TABLE 0
#endif
#ifndef KEEPS_TABLE
#define KEEPS_TABLE 0
#endif
#ifndef ADJACENT_KEYS
#define ADJACENT_KEYS 1
#endif
#if VARIANT == SLIDING
#define NQ args.queries
#define NK args.keys
#else
#ifndef NQ
#define NQ 49
#endif
#ifndef NK
#define NK 49
#endif
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 49
#endif
#ifndef BLOCK_KEYS
#define BLOCK_KEYS 64
#endif
#if VARIANT == SLIDING
#define STREAMING 1
#else
#define STREAMING (NK > BLOCK_KEYS)
#endif

#define LOG2E 1.44269504088896341f
/* Gradients: the error of rows' deltas that may stay, as a part of the 2-norm
 * of their dS. Where v's rows have nothing in common, the rounding of a stored
 * o seldom makes as much. */
#if DTYPE == 0
#define DELTA_TOLERANCE 0x1p-20f
#elif DTYPE == 1
#define DELTA_TOLERANCE 0x1.6p-11f
#else
#define DELTA_TOLERANCE 0x1.6p-8f
#endif
/* ln 100, the largest logit scale of Swin V2 (Liu et al. 2022, section 3.2),
 * as fp32 has it: a little more, so that a parameter that was clamped there is
 * behind the clamp. */
#define MAX_LOGIT_SCALE 4.6051702f
#define NORM_EPSILON 1e-12f

#if BIAS == 1
typedef storage bias_storage;
#define BIAS_SUFFIX SUFFIX
#else
typedef float bias_storage;
#define BIAS_SUFFIX _f32
#endif
#if MASK == 1
typedef storage mask_storage;
#define MASK_SUFFIX SUFFIX
#else
typedef float mask_storage;
#define MASK_SUFFIX _f32
#endif

/* The distance of neighbouring keys in bias or mask. */
#if ADJACENT_KEYS
#define TERM_STEP(layout) 1u
#else
#define TERM_STEP(layout) ((layout).column)
#endif

#if BIAS && TABLE == 2
#define BIAS_PARAMETER                                                        \
    __global const bias_storage *bias, __global const int *table_index,
#elif BIAS
#define BIAS_PARAMETER __global const bias_storage *bias,
#else
#define BIAS_PARAMETER
#endif
#if MASK == 3
#define MASK_PARAMETERS                                                       \
    __global const uchar *query_regions, __global const uchar *key_regions,
#elif MASK && MASK != 4
#define MASK_PARAMETERS __global const mask_storage *mask,
#else
#define MASK_PARAMETERS
#endif
#if VARIANT == COSINE
#define LOGIT_SCALE_PARAMETER __global const float *logit_scale,
#else
#define LOGIT_SCALE_PARAMETER
#endif
#if PADDING == 1
#define PAD_PARAMETERS                                                        \
    __global const storage *pad_k, __global const storage *pad_v,
#else
#define PAD_PARAMETERS
#endif

/* The parameters of every forward kernel, in the order that the host sets. */
#define FORWARD_PARAMETERS                                                    \
    const forward_args args, __global const storage *q,                       \
        __global const storage *k, __global const storage *v,                 \
        BIAS_PARAMETER MASK_PARAMETERS LOGIT_SCALE_PARAMETER PAD_PARAMETERS   \
            __global storage *o,                                              \
        __global float *lse

/* The same for the backward pass. Outputs that are not wanted are NULL, and so
 * are o and lse where the caller has not kept them. */
#define BACKWARD_PARAMETERS                                                   \
    const backward_args args, __global const storage *q,                      \
        __global const storage *k, __global const storage *v,                 \
        BIAS_PARAMETER MASK_PARAMETERS LOGIT_SCALE_PARAMETER PAD_PARAMETERS   \
            __global const storage *o,                                        \
        __global const float *lse, __global const storage *d_o,               \
        __global const float *d_lse, __global storage *dq,                    \
        __global storage *dk, __global storage *dv, __global float *workspace

/* The channels of a key head's tokens of the padding, 0 for zeros. */
#if PADDING == 1
#define PAD_ROW(args, name, flag, kv_head)                                    \
    ((args).flags & flag ? name + plane(&(args).name, 0, kv_head) : 0)
#else
#define PAD_ROW(args, name, flag, kv_head) 0
#endif

typedef struct unit {
    ulong window;
    uint head;
    uint row; /* first query row */
} unit;

INLINE unit find_unit(const forward_args *args, uint index)
{
    const uint in_launch = args->first_unit + index;
    const uint window_head = in_launch / args->row_blocks;
    unit u;
    u.row = (in_launch - window_head * args->row_blocks) * args->block_rows;
    u.window = args->first_window + window_head / args->heads;
    u.head = window_head % args->heads;
    return u;
}

/* Of a tensor without tokens on a grid: bias, mask, regions, sums. */
INLINE ulong element(const tensor_layout *layout, uint row, uint column)
{
    return (ulong)row * layout->row + (ulong)column * layout->column;
}

#if VARIANT == SLIDING
/* Keys [low, high) are what a query sees next to the sink. */
typedef struct span {
    uint low, high;
} span;

INLINE ulong block_start(const forward_args *args, ulong block)
{
    return block == 0 ? 0
                      : args->first_block + (block - 1) * (ulong)args->block;
}

INLINE span visible_span(const forward_args *args, uint row)
{
    const uint position = row + args->query_offset;
    const ulong block = position < args->first_block
                            ? 0
                            : 1 + (position - args->first_block) / args->block;
    const ulong first =
        (args->flags & ARG_WINDOW_BOUNDED) != 0 && block >= args->window
            ? block - args->window + 1
            : 0;
    const ulong keys = args->keys;
    span s;
    s.high = (uint)min(block_start(args, block + 1), keys);
    s.low = (uint)min(block_start(args, first), (ulong)s.high);
    return s;
}

INLINE int sees(const forward_args *args, span s, uint key)
{
    return key < s.high && (key >= s.low || key < args->sink);
}
#endif

/* The walk over the keys that rows [row, row_end) see: first the sink, as far
 * as it lies before the window, then the window. */
typedef struct key_walk {
    uint blocks;
#if VARIANT == SLIDING
    uint sink_end, sink_blocks;
    span first_row, last_row;
#endif
} key_walk;

/* Keys [first, first + count); mixed: some row does not see all of them. */
typedef struct key_range {
    uint first, count;
    int mixed;
} key_range;

INLINE key_walk walk_keys(const forward_args *args, uint row, uint row_end)
{
    key_walk walk;
#if VARIANT == SLIDING
    walk.first_row = visible_span(args, row);
    walk.last_row = visible_span(args, row_end - 1);
    walk.sink_end = min(args->sink, walk.first_row.low);
    walk.sink_blocks = (walk.sink_end + BLOCK_KEYS - 1) / BLOCK_KEYS;
    walk.blocks = walk.sink_blocks +
                  (walk.last_row.high - walk.first_row.low + BLOCK_KEYS - 1) /
                      BLOCK_KEYS;
#else
    walk.blocks = (NK + BLOCK_KEYS - 1) / BLOCK_KEYS;
#endif
    return walk;
}

INLINE key_range walk_block(const forward_args *args, const key_walk *walk,
                            uint b)
{
    key_range range;
#if VARIANT == SLIDING
    const int in_sink = b < walk->sink_blocks;
    range.first =
        in_sink ? b * BLOCK_KEYS
                : walk->first_row.low + (b - walk->sink_blocks) * BLOCK_KEYS;
    const uint end = min(range.first + BLOCK_KEYS,
                         in_sink ? walk->sink_end : walk->last_row.high);
    range.count = end - range.first;
    range.mixed = end > walk->first_row.high ||
                  (range.first < walk->last_row.low && end > args->sink);
#else
    range.first = b * BLOCK_KEYS;
    range.count = min(NK - range.first, (uint)BLOCK_KEYS);
    range.mixed = 0;
#endif
    return range;
}

#if VARIANT == COSINE
INLINE float cosine_scale(const forward_args *args,
                          __global const float *logit_scale, uint head)
{
    if ((args->flags & ARG_LOGIT_SCALE) == 0)
        return args->scale;
    const float x = logit_scale[args->logit_scale_offset + head];
    return x >= MAX_LOGIT_SCALE ? 100.0f : exp(x);
}

/* Its gradient, given what it would be without the clamp, behind which the
 * scale stands still. */
INLINE float scale_gradient(const forward_args *args,
                            __global const float *logit_scale, uint head,
                            float sum)
{
    return logit_scale[args->logit_scale_offset + head] >= MAX_LOGIT_SCALE
               ? 0.0f
               : sum;
}

INLINE float inverse_norm(float sum_of_squares)
{
    return 1.0f / fmax(sqrt(sum_of_squares), NORM_EPSILON);
}
#endif

/* What is added to the logits of one window-head. */
typedef struct logit_terms {
#if BIAS
    __global const bias_storage *bias;
#if TABLE == 2
    __global const int *index;
#endif
#if KEEPS_TABLE
    __local const float *table;
    __local const int *table_places;
#endif
#endif
#if MASK == 3
    __global const uchar *query_regions, *key_regions;
#elif MASK == 4
    window_place place;
#elif MASK
    __global const mask_storage *mask;
#endif
    int unused; /* a struct needs a member */
} logit_terms;

#if BIAS && TABLE == 2
#define SET_BIAS(t, args, u)                                                  \
    (t).bias = bias + plane(&(args).bias, 0, (u).head);                       \
    (t).index = table_index;
#elif BIAS
#define SET_BIAS(t, args, u)                                                  \
    (t).bias = bias + plane(&(args).bias, 0, (u).head);
#else
#define SET_BIAS(t, args, u)
#endif

#if MASK == 3
#define SET_MASK(t, args, u, place_of)                                        \
    const ulong mask_window = remainder_of((u).window, (args).mask_windows);  \
    (t).query_regions =                                                       \
        query_regions + plane(&(args).query_regions, mask_window, 0);         \
    (t).key_regions = key_regions + plane(&(args).key_regions, mask_window, 0);
#elif MASK == 4
#define SET_MASK(t, args, u, place_of) (t).place = (place_of);
#elif MASK
#define SET_MASK(t, args, u, place_of)                                        \
    (t).mask =                                                                \
        mask + plane(&(args).mask,                                            \
                     remainder_of((u).window, (args).mask_windows), 0);
#else
#define SET_MASK(t, args, u, place_of)
#endif
/* Declares `name`: the terms of unit u, from the kernel's parameters, for
 * kernels that have the window's place and for those that have not. */
#define DECLARE_TERMS_AT(name, args, u, place_of)                             \
    logit_terms name = {.unused = 0};                                         \
    SET_BIAS(name, args, u)                                                   \
    SET_MASK(name, args, u, place_of)
#define DECLARE_TERMS(name, args, u)                                          \
    DECLARE_TERMS_AT(name, args, u, place_window(&(args).grid, (u).window))

#if BIAS
#if TABLE == 1
/* Positions are told apart by these multiples along each axis; TABLE_WINDOW_1
 * and _2 are the window in which a token's number is its position. */
INLINE int table_place(uint token)
{
    return (int)(token / (TABLE_WINDOW_1 * TABLE_WINDOW_2) * TABLE_STEP_0 +
                 token / TABLE_WINDOW_2 % TABLE_WINDOW_1 * TABLE_STEP_1 +
                 token % TABLE_WINDOW_2);
}
#endif

/* Where the bias of a row and a key lies, in elements from terms->bias. */
INLINE int bias_at(const forward_args *args, const logit_terms *terms, int row,
                   int key)
{
#if TABLE == 1
    return (table_place(row) - table_place(key) + TABLE_CENTER) *
           (int)args->bias.row;
#elif TABLE == 2
    return terms->index[row * (int)NK + key] * (int)args->bias.row;
#else
    return row * (int)args->bias.row + key * (int)TERM_STEP(args->bias);
#endif
}
#endif

#if MASK >= 3
/* Regions of a row and of a key of the window; region_value is added where
 * they differ. */
INLINE uint query_region(const forward_args *args, const logit_terms *terms,
                         int row)
{
#if MASK == 3
    return terms->query_regions[row * (int)args->query_regions.row];
#else
    return seam_sides(&args->grid, &terms->place, row);
#endif
}
INLINE uint key_region(const forward_args *args, const logit_terms *terms,
                       int key)
{
#if MASK == 3
    return terms->key_regions[key * (int)args->key_regions.row];
#else
    return seam_sides(&args->grid, &terms->place, key);
#endif
}
#endif
