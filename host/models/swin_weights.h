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

#include <stdbool.h>
#include <stdint.h>

#include "winattn.h"

#define WA_SWIN_STAGES 4u

/* A model's shape; stages that it lacks have zeros. */
typedef struct wa_swin_config {
    uint32_t generation; /* 1: Swin; 2: Swin V2 */
    uint32_t in_channels;
    uint32_t patch[2]; /* height, width */
    uint32_t channels; /* of the first stage; each later one has twice */
    uint32_t stages;   /* 1 to WA_SWIN_STAGES */
    uint32_t depths[WA_SWIN_STAGES];
    uint32_t heads[WA_SWIN_STAGES];
    /* Stages may differ: Swin V2 for windows of 16 and pictures of 256 has 8
     * in its last one. */
    uint32_t window[WA_SWIN_STAGES][2];
    /* Generation 2: windows of the pretraining, which positions are measured
     * in before the position MLP; 0: those above. Tables have it in them. */
    uint32_t position_window[WA_SWIN_STAGES][2];
    uint32_t hidden[WA_SWIN_STAGES]; /* of the MLP */
    uint32_t classes;                /* 0: there is no head */
    float norm_eps;
} wa_swin_config;

/* Of the block, with C channels, M hidden ones, H heads. */
typedef struct wa_swin_block_weights {
    const float *norm1_weight, *norm1_bias; /* [C] */
    const float *qkv_weight;                /* [3C, C]: q, k, v; heads in C */
    const float *qkv_bias;                /* [3C]; k's is 0 in generation 2 */
    const float *proj_weight, *proj_bias; /* [C, C], [C] */
    const float *norm2_weight, *norm2_bias; /* [C] */
    const float *fc1_weight, *fc1_bias;     /* [M, C], [M] */
    const float *fc2_weight, *fc2_bias;     /* [C, M], [C] */
    /* [(2 window[0] - 1) (2 window[1] - 1), H], as winattn_table has it; of
     * generation 2: 16 sigmoid(the position MLP). */
    const float *table;
    const float *logit_scale; /* [H], before exp and its limit; else NULL */
} wa_swin_block_weights;

typedef struct wa_swin_stage_weights {
    const wa_swin_block_weights *blocks; /* depths[stage] of them */
    /* After the stage's blocks; NULL in the last stage. */
    const float *merge_norm_weight, *merge_norm_bias; /* [4C], or [2C] */
    const float *merge_weight;                        /* [2C, 4C] */
} wa_swin_stage_weights;

typedef struct wa_swin_weights {
    wa_swin_config config;
    const float *patch_weight; /* [C, in_channels, patch[0], patch[1]] */
    const float *patch_bias;   /* [C] */
    const float *patch_norm_weight, *patch_norm_bias; /* [C] */
    wa_swin_stage_weights stages[WA_SWIN_STAGES];
    const float *norm_weight, *norm_bias; /* channels of the last stage */
    const float *head_weight; /* [classes, those channels]; NULL: no head */
    const float *head_bias;   /* [classes] */
} wa_swin_weights;

/* Channels of a stage. */
static inline uint32_t wa_swin_channels(const wa_swin_config *config,
                                        uint32_t stage)
{
    return config->channels << stage;
}

/* Is this a model that can be: numbers in range, heads that divide channels
 * into head dims of at most 256, windows of at least 1? */
winattn_status wa_swin_config_check(const wa_swin_config *config);

/* Weights by one that draws them, the same for the same seed on every
 * machine: matrices as models are initialised, biases, norms and tables small
 * numbers too, so that none is without effect. */
winattn_status wa_swin_weights_random(const wa_swin_config *config,
                                      uint64_t seed,
                                      wa_swin_weights **weights);

/* NULL is fine. */
void wa_swin_weights_free(wa_swin_weights *weights);

#endif
