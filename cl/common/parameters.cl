/* SPDX-License-Identifier: Apache-2.0
 * The parameters of kernels: which there are, how bias and mask are stored,
 * and which work tile a kernel computes. problem.cl includes it, behind the
 * switches BIAS, MASK, TABLE, VARIANT, PADDING and ADJACENT_KEYS. */

#if BIAS == 1
typedef storage bias_storage;
#define BIAS_SUFFIX SUFFIX
#else
typedef float bias_storage;
#define BIAS_SUFFIX _f32
#endif
#if MASK == MASK_ARRAY
typedef storage mask_storage;
#define MASK_SUFFIX SUFFIX
#else
typedef float mask_storage;
#define MASK_SUFFIX _f32
#endif

/* The distance of neighbouring keys in bias or mask. */
#define KEY_STRIDE(layout) (ADJACENT_KEYS ? 1u : (layout).column)

#if BIAS && TABLE == 2
#define BIAS_PARAMETER                                                        \
    __global const bias_storage *bias, __global const int *table_index,
#define BIAS_TENSORS .bias = bias, .table_index = table_index,
#elif BIAS
#define BIAS_PARAMETER __global const bias_storage *bias,
#define BIAS_TENSORS .bias = bias,
#else
#define BIAS_PARAMETER
#define BIAS_TENSORS .bias = 0,
#endif
#if MASK_READS_REGIONS(MASK)
#define MASK_PARAMETERS                                                       \
    __global const uchar *query_regions, __global const uchar *key_regions,
#define MASK_TENSORS                                                          \
    .query_regions = query_regions, .key_regions = key_regions,
#elif MASK_READS_ARRAY(MASK)
#define MASK_PARAMETERS __global const mask_storage *mask,
#define MASK_TENSORS .mask = mask,
#else
#define MASK_PARAMETERS
#define MASK_TENSORS .mask = 0,
#endif
#if VARIANT == COSINE
#define LOGIT_SCALE_PARAMETER __global const float *logit_scale,
#define LOGIT_SCALE_OR_NULL logit_scale
#define LOGIT_SCALE logit_scale
#define HEAD_SCALE(args, logit_scale, head)                                   \
    cosine_scale(args, logit_scale, head)
#else
#define LOGIT_SCALE_PARAMETER
#define LOGIT_SCALE_OR_NULL 0
#define LOGIT_SCALE 0
#define HEAD_SCALE(args, logit_scale, head) ((args)->scale)
#endif
#if PADDING == 1
#define PAD_PARAMETERS                                                        \
    __global const storage *pad_k, __global const storage *pad_v,
/* The channels of a key head's tokens of the padding, 0 for zeros. */
#define PAD_ROW(args, name, flag, kv_head)                                    \
    ((args).flags & flag ? name + plane(&(args).name, 0, kv_head) : 0)
#else
#define PAD_PARAMETERS
#define PAD_ROW(args, name, flag, kv_head) 0
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

typedef struct work_tile {
    ulong window;
    uint head;
    uint row; /* first query row */
} work_tile;

INLINE work_tile find_work_tile(const forward_args *args, uint index)
{
    const uint in_launch = args->first_work_tile + index;
    const uint window_head = in_launch / args->row_blocks;
    work_tile u;
    u.row = (in_launch - window_head * args->row_blocks) * args->block_rows;
    u.window = args->first_window + window_head / args->heads;
    u.head = window_head % args->heads;
    return u;
}

/* Where numbers of a head's rows are, which kernels of gradients leave each
 * other on tiers cpu and local. */
INLINE __global float *statistics_of(__global float *workspace,
                                     const backward_args *args, work_tile of)
{
    const forward_args *forward = &args->forward;
    const ulong window = of.window - forward->first_window;
    return workspace + args->workspace +
           (window * forward->heads + of.head) * forward->queries *
               ROW_NUMBERS;
}
