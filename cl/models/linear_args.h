/* SPDX-License-Identifier: Apache-2.0
 * The arguments of a linear layer's kernels, shared by host and device:
 * numbers that may change from call to call without a rebuild. Where a tensor
 * starts is counted in its elements. */
#ifndef LINEAR_ARGS_H
#define LINEAR_ARGS_H

/* Set in flags where vectors of 16 bytes, which start with every such number
 * of elements of a row, may be read or written at once. */
#define LINEAR_WIDE_X 1u
#define LINEAR_WIDE_WEIGHT 2u
#define LINEAR_WIDE_OUT 4u /* y, residual and bias */

typedef struct linear_args {
    arg_u64 rows;
    arg_u64 first_row; /* of the launch */
    arg_u64 x, weight, bias, residual, y;
    /* from row to row; NEIGHBOURS: of x from line to line */
    arg_u32 x_stride, weight_stride, residual_stride, y_stride;
    arg_u32 in, out;
    arg_u32 flags;
    arg_f32 eps; /* of a norm beside the layer */
} linear_args;

/* linear_wgmma, mlp_wgmma: norms beside the layer. */
typedef struct linear_norm_args {
    arg_u64 weight, bias;
    arg_u64 x_statistics, y_statistics; /* in pairs of fp32 */
} linear_norm_args;

/* mlp_wgmma: the hidden layer. */
typedef struct mlp_args {
    arg_u64 weight, bias, weight_stride;
} mlp_args;

#endif
