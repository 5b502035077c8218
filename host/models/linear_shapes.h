/* SPDX-License-Identifier: Apache-2.0
 * Shapes of linear layers' kernels, and which of them are legal. */
#ifndef WINATTN_LINEAR_SHAPES_H
#define WINATTN_LINEAR_SHAPES_H

#include "device/device.h"

#include "winattn_models.h"

/* The descriptor, checked, with nothing left to defaults. */
typedef struct wa_linear_problem {
    winattn_dtype dtype;
    winattn_tier tier;
    bool allow_tf32, layer_norm, has_bias, has_residual;
    winattn_activation activation;
    uint32_t in, out;
    float eps;
    const char *build_options; /* never NULL */
} wa_linear_problem;

/* Switches of the same names (cl/models/linear_*.cl); 0 where a tier has no
 * use for them. */
typedef struct wa_linear_shape {
    uint32_t block_rows, block_columns, stage_dims;
    uint32_t item_rows, item_columns;                    /* local */
    uint32_t lanes, tile_rows, tile_vecs;                /* cpu */
    uint32_t stages, row_waves, column_waves, dim_waves; /* matrix */
    uint32_t keeps_weight; /* matrix: 1: linear_resident_matrix.cl; may be 0 */
} wa_linear_shape;

static inline uint64_t wa_linear_blocks(uint64_t all, uint32_t block)
{
    return all / block + (all % block != 0);
}

/* What a work-group of the tier has in local memory. */
uint64_t wa_linear_local_bytes(const wa_linear_problem *problem,
                               const wa_device *device, winattn_tier tier,
                               const wa_linear_shape *shape);

/* fp32 numbers of sums that a lane of a matrix unit has. */
uint32_t wa_linear_lane_sums(const wa_device *device,
                             const wa_linear_shape *shape);

/* NULL, or why the tier's kernel does not have such a shape; of tier matrix on
 * a device that has a matrix unit. */
const char *wa_linear_check_shape(const wa_linear_problem *problem,
                                  const wa_device *device, winattn_tier tier,
                                  const wa_linear_shape *shape);

#endif
