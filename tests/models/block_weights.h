/* SPDX-License-Identifier: Apache-2.0
 * Weights of a block, drawn, on the device and in fp64. */
#ifndef MODELS_BLOCK_WEIGHTS_H
#define MODELS_BLOCK_WEIGHTS_H

#include "reference.h"
#include "tensors.h"
#include "winattn_models.h"

/* In the order of winattn_block_weights. */
enum {
    NORM1_WEIGHT,
    NORM1_BIAS,
    QKV_WEIGHT,
    QKV_BIAS,
    PROJ_WEIGHT,
    PROJ_BIAS,
    NORM2_WEIGHT,
    NORM2_BIAS,
    FC1_WEIGHT,
    FC1_BIAS,
    FC2_WEIGHT,
    FC2_BIAS,
    TABLE,
    LOGIT_SCALE,
    WEIGHTS
};

typedef struct block_weights {
    model_tensor t[WEIGHTS];
    winattn_block_weights given;
    ref_weights ref;
} block_weights;

block_weights weights_drawn(const winattn_block_desc *d);
void weights_free(block_weights *w);

#endif
