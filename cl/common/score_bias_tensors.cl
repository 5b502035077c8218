/* SPDX-License-Identifier: Apache-2.0
 * Bias and mask as a kernel has them in its parameters, for functions that go
 * from one work tile to another. Behind problem.cl. */
#ifndef SCORE_BIAS_TENSORS_CL
#define SCORE_BIAS_TENSORS_CL

typedef struct score_bias_tensors {
#if BIAS
    __global const bias_storage *bias;
#if TABLE == 2
    __global const int *table_index;
#endif
#endif
#if MASK_READS_REGIONS(MASK)
    __global const uchar *query_regions, *key_regions;
#elif MASK_READS_ARRAY(MASK)
    __global const mask_storage *mask;
#endif
    int unused; /* a struct needs a member */
} score_bias_tensors;
#if BIAS && TABLE == 2
#define BIAS_TENSORS .bias = bias, .table_index = table_index,
#elif BIAS
#define BIAS_TENSORS .bias = bias,
#else
#define BIAS_TENSORS
#endif
#if MASK_READS_REGIONS(MASK)
#define MASK_TENSORS                                                          \
    .query_regions = query_regions, .key_regions = key_regions,
#elif MASK_READS_ARRAY(MASK)
#define MASK_TENSORS .mask = mask,
#else
#define MASK_TENSORS
#endif
/* Those of a kernel's parameters. */
#define SCORE_BIAS_TENSORS                                                    \
    {                                                                         \
        BIAS_TENSORS MASK_TENSORS.unused = 0                                  \
    }

/* What is added to the logits of a work tile. */
INLINE score_bias_view score_bias_of(const score_bias_tensors *tensors,
                                     const forward_args *args, work_tile u)
{
#if BIAS
    __global const bias_storage *bias = tensors->bias;
#if TABLE == 2
    __global const int *table_index = tensors->table_index;
#endif
#endif
#if MASK_READS_REGIONS(MASK)
    __global const uchar *query_regions = tensors->query_regions;
    __global const uchar *key_regions = tensors->key_regions;
#elif MASK_READS_ARRAY(MASK)
    __global const mask_storage *mask = tensors->mask;
#endif
    DECLARE_SCORE_BIAS(score_bias, *args, u)
    return score_bias;
}

#endif
