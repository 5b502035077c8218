/* SPDX-License-Identifier: Apache-2.0
 * What a Swin computes, in fp64, one formula after the other: what blocks and
 * models are compared with. What is attention, window or table in it is that
 * of the kit, whose tests compare it with torchvision. Results are numbers of
 * tensors.h. */
#ifndef MODELS_REFERENCE_H
#define MODELS_REFERENCE_H

#include "kit/grid.h"
#include "models/levels.h"

/* y[out] = W[out][in] x[in] + b, of each row; b may be NULL. */
void ref_linear(const double *x, const double *weight, const double *bias,
                size_t rows, size_t in, size_t out, double *y);
/* LayerNorm of each row; y may be x. */
void ref_norm(const double *x, const double *weight, const double *bias,
              size_t rows, size_t size, double eps, double *y);

/* Weights of a block, as WA_BLOCK_NORM1_WEIGHT and so on number them. */
typedef const double *ref_weights[WA_BLOCK_TENSORS];

/* What is added to the logits of windows besides the table. */
typedef struct ref_mask {
    const grid_map
        *map; /* tokens of two of its regions: -100; NULL: nothing */
    const double *added; /* [windows][tokens][tokens]; NULL: nothing */
    size_t windows;      /* of `added`, which go round */
} ref_mask;

/* Attention inside windows, between both projections: x [windows][tokens][C]
 * -> y. */
void ref_module(const winattn_block_desc *d, const ref_weights w,
                const double *x, size_t windows, const ref_mask *mask,
                double *y);

/* A whole block, as torchvision computes it: the normalised map (or with
 * WINATTN_POST_NORM the map) is padded with zeros to windows, rolled, cut,
 * projected, attended to, put together again; or as timm does, which rolls
 * first. map is changed in place. */
void ref_block(const winattn_block_desc *d, const ref_weights w, double *map);

#endif
