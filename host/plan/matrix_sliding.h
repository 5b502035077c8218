/* SPDX-License-Identifier: Apache-2.0
 * Shapes for the sliding kernels of matrix units, as matrix_forward.c and
 * matrix_backward.c ask for them. */
#ifndef WINATTN_MATRIX_SLIDING_H
#define WINATTN_MATRIX_SLIDING_H

#include "plan/matrix_tiling.h"
#include "plan/planner.h"

/* NULL if the kernel cl/matrix/sliding_forward_matrix.cl and the device allow
 * the shape, else why not. */
const char *wa_sliding_shape_refusal(const wa_problem *problem,
                                     const wa_device *device,
                                     const wa_matrix_shape *shape);

/* Local memory of its work-groups. */
uint64_t wa_sliding_local_bytes(const wa_problem *problem,
                                const wa_device *device,
                                const wa_matrix_shape *shape);

/* As wa_visit_matrix_shapes. The shapes do not follow from the numbers of
 * tokens, so that caches of keys may grow without a build. */
uint64_t wa_visit_sliding_shapes(const wa_problem *problem,
                                 const wa_device *device,
                                 wa_matrix_visitor *visit, void *data);

#endif
