/* SPDX-License-Identifier: Apache-2.0
 * Rows of the tuning table (plan/tuning_row.h) of linear layers:
 *
 *   linear-matrix NVIDIA 90 half many gelu 96 384 128:128:96:2:2:4:1:1
 *
 * Behind the device stand the type, whether calls have many rows or few, what
 * surrounds the sums but for a bias, the numbers of features, and the shape.
 */
#ifndef WINATTN_LINEAR_ROWS_H
#define WINATTN_LINEAR_ROWS_H

#include "models/linear_plan.h"
#include "plan/tuning.h"

/* The rows that the library comes with, NULL at the end. */
extern const char *const wa_linear_built_in_rows[];

/* "linear-matrix" */
const char *wa_linear_row_kernel(winattn_tier tier);

/* What the row for a shape of the layer's kernel has behind the device. id:
 * WA_LINEAR_MANY or _FEW */
void wa_linear_row_print(const wa_linear_problem *problem, winattn_tier tier,
                         wa_linear_kernel_id id, const wa_linear_shape *shape,
                         char *text, size_t size);

/* Its shape: numbers with colons between them. */
bool wa_linear_shape_parse(winattn_tier tier, const char *text,
                           wa_linear_shape *shape);
void wa_linear_shape_print(winattn_tier tier, const wa_linear_shape *shape,
                           char *text, size_t size);

/* The best legal shape that a row has for the kernel: false if there is none,
 * and then *shape stays. Says in the layout where it is from, and why a better
 * one is not taken. */
bool wa_linear_measured(const wa_linear_problem *problem,
                        const wa_device *device, winattn_tier tier,
                        wa_linear_kernel_id id, wa_linear_layout *layout,
                        wa_linear_shape *shape);

#endif
