/* SPDX-License-Identifier: Apache-2.0
 * Weights of a block, drawn, on the device and in fp64. */
#ifndef MODELS_BLOCK_WEIGHTS_H
#define MODELS_BLOCK_WEIGHTS_H

#include "models/block_tensors.h"
#include "reference.h"
#include "tensors.h"
#include "winattn_models.h"

typedef struct block_weights {
    model_tensor t[WA_BLOCK_TENSORS];
    winattn_block_weights given;
    ref_weights ref;
} block_weights;

block_weights weights_drawn(const winattn_block_desc *d);
void weights_free(block_weights *w);

#endif
