/* SPDX-License-Identifier: Apache-2.0
 * A Swin's weights in the one form that the model is made from, whatever
 * library named them: fp32 numbers of the host, matrices as [outputs, inputs].
 *
 * Of a token x, with the projections and norms of a block:
 *
 *     generation 1   x += attention(norm1(x)),  x += mlp(norm2(x))
 *     generation 2   x += norm1(attention(x)),  x += norm2(mlp(x))
 *
 * and between stages, of the four neighbours' channels side by side:
 *
 *     generation 1   merge_weight merge_norm(neighbours),  merge_norm of 4C
 *     generation 2   merge_norm(merge_weight neighbours),  merge_norm of 2C
 *
 * The neighbours stand in the order even row and column; odd row, even column;
 * even row, odd column; odd row and column (Liu et al. 2021, section 3.1). */
#ifndef WINATTN_SWIN_WEIGHTS_H
#define WINATTN_SWIN_WEIGHTS_H

#include "models/levels.h"

#define WA_SWIN_STAGES WINATTN_SWIN_STAGES

/* Of any model that can be; what files say must not make us take a thousand
 * times their size. */
#define WA_SWIN_CHANNELS_MOST 16384u
#define WA_SWIN_DEPTH_MOST 1024u
#define WA_SWIN_HIDDEN_MOST 1048576u
#define WA_SWIN_CLASSES_MOST 1048576u
#define WA_SWIN_WINDOW_MOST 64u
#define WA_SWIN_HEAD_DIM_MOST 256u
#define WA_SWIN_HEADS_MOST 512u

typedef winattn_swin_config wa_swin_config;

/* Of a block (levels.h); qkv's heads lie in C, its bias of k is 0 in
 * generation 2. A table is as winattn_table has it, of generation 2
 * 16 sigmoid(the position MLP); logit_scale, before exp and its limit, is NULL
 * in generation 1. */
typedef union wa_swin_block_weights {
    struct {
        const float *norm1_weight, *norm1_bias, *qkv_weight, *qkv_bias;
        const float *proj_weight, *proj_bias, *norm2_weight, *norm2_bias;
        const float *fc1_weight, *fc1_bias, *fc2_weight, *fc2_bias;
        const float *table, *logit_scale;
    };
    const float *all[WA_BLOCK_TENSORS];
} wa_swin_block_weights;

typedef struct wa_swin_stage_weights {
    const wa_swin_block_weights *blocks; /* depths[stage] of them */
    /* After the stage's blocks; NULL in the last stage. */
    const float *merge_norm_weight, *merge_norm_bias; /* [4C], or [2C] */
    const float *merge_weight;                        /* [2C, 4C] */
} wa_swin_stage_weights;

/* The caller's winattn_swin_weights. */
typedef struct winattn_swin_weights {
    wa_swin_config config;
    const float *patch_weight; /* [C, in_channels, patch[0], patch[1]] */
    const float *patch_bias;   /* [C] */
    const float *patch_norm_weight, *patch_norm_bias; /* [C] */
    wa_swin_stage_weights stages[WA_SWIN_STAGES];
    /* channels of the last stage; with no_norm NULL, and no head */
    const float *norm_weight, *norm_bias;
    const float *head_weight; /* [classes, those channels]; NULL: no head */
    const float *head_bias;   /* [classes] */

    float *values;                 /* where they all lie */
    uint64_t count;                /* of them, gaps among them */
    wa_swin_block_weights *blocks; /* of all stages */
    char origin[512]; /* what winattn_swin_weights_describe says */
} wa_swin_weights;

/* ---- All tensors of a model, one by one ---- */

typedef enum wa_swin_group {
    WA_SWIN_START,
    WA_SWIN_BLOCK,
    WA_SWIN_MERGE,
    WA_SWIN_END
} wa_swin_group;

/* In each group weights, at even indices, and their biases take turns, but for
 * WA_BLOCK_TABLE and what is behind it. */
typedef struct wa_swin_tensor {
    const wa_swin_config *config;
    wa_swin_group group;
    uint32_t stage, block; /* of START and END: whose channels it has; 0 */
    uint32_t index;        /* in the group, in the order of the struct */
    uint32_t axes;
    uint64_t extent[4], count;
} wa_swin_tensor;

/* Sees those that the model has, in the order in which they lie in memory. */
typedef winattn_status wa_swin_visitor(void *data, const wa_swin_tensor *t,
                                       const float **values);
winattn_status wa_swin_visit(wa_swin_weights *weights, wa_swin_visitor *visit,
                             void *data);

/* Channels of a stage. */
static inline uint32_t wa_swin_channels(const wa_swin_config *config,
                                        uint32_t stage)
{
    return config->channels << stage;
}

/* Is this a model that can be: numbers in range, heads that divide channels
 * into head dims of at most 256? */
winattn_status wa_swin_config_check(const wa_swin_config *config);

/* Puts in what may be left out: rules, eps of norms, and what is said of
 * pictures; and makes windows as small as the rules have them. */
void wa_swin_config_complete(wa_swin_config *config);

/* Is nothing said of mean and deviation? */
bool wa_swin_has_no_colours(const wa_swin_config *config);

/* Names of models of that shape, whatever their windows; "": none. */
void wa_swin_config_names(const wa_swin_config *config, size_t size,
                          char *text);

/* Copies what the caller's struct has room for. */
winattn_status wa_swin_config_give(const wa_swin_config *own,
                                   winattn_swin_config *config);

/* Weights of that shape, which is checked first, without arrays so far. */
winattn_status wa_swin_weights_create(const wa_swin_config *config,
                                      wa_swin_weights **weights);

/* Gives them their arrays, all 0. */
winattn_status wa_swin_weights_allocate(wa_swin_weights *weights);

/* The same array, to be written while the weights are made. */
static inline float *wa_writable(const float *values)
{
    return (float *)(uintptr_t)values;
}

#endif
