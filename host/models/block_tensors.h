/* SPDX-License-Identifier: Apache-2.0
 * The tensors of a block, whoever has them: which there are, in the order of
 * winattn_block_weights, and how large they are. */
#ifndef WINATTN_BLOCK_TENSORS_H
#define WINATTN_BLOCK_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "winattn_models.h"

typedef enum wa_block_tensor {
    WA_BLOCK_NORM1_WEIGHT,
    WA_BLOCK_NORM1_BIAS,
    WA_BLOCK_QKV_WEIGHT,
    WA_BLOCK_QKV_BIAS,
    WA_BLOCK_PROJ_WEIGHT,
    WA_BLOCK_PROJ_BIAS,
    WA_BLOCK_NORM2_WEIGHT,
    WA_BLOCK_NORM2_BIAS,
    WA_BLOCK_FC1_WEIGHT,
    WA_BLOCK_FC1_BIAS,
    WA_BLOCK_FC2_WEIGHT,
    WA_BLOCK_FC2_BIAS,
    WA_BLOCK_TABLE,
    WA_BLOCK_LOGIT_SCALE,
    WA_BLOCK_TENSORS
} wa_block_tensor;

extern const char *const wa_block_tensor_names[WA_BLOCK_TENSORS];

_Static_assert(sizeof(winattn_block_weights) ==
                   WA_BLOCK_TENSORS * sizeof(winattn_tensor),
               "tensors of a block and nothing else");

typedef struct wa_block_shape {
    uint64_t channels, hidden, heads;
    cl_uint window[2];
    bool is_cosine;
} wa_block_shape;

/* Outputs and inputs of matrices, else elements and 1; zeros: the block has no
 * such tensor. */
void wa_block_extents(const wa_block_shape *shape,
                      uint64_t extent[WA_BLOCK_TENSORS][2]);

#endif
