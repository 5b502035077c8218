/* SPDX-License-Identifier: Apache-2.0
 * The -D options of kernels. */
#ifndef WINATTN_DEFINES_H
#define WINATTN_DEFINES_H

#include "base/sister.h"
#include "plan/plan.h"
#include "plan/shapes.h"

/* A step of a kernel with the options of the problem. Window count, the sizes
 * of a grid, strides, offsets, scale and, for the sliding variant, token
 * counts are kernel arguments and must not appear here, so that another batch
 * or image size compiles nothing. */
void wa_begin_step(const wa_problem *problem, const wa_device *device,
                   const char *kernel, uint32_t block_rows,
                   uint32_t block_keys, uint32_t work_group,
                   uint64_t local_bytes, wa_step *step);
/* Its options of the problem, for kernels that take any number of queries, as
 * arguments, and with block_rows 0 any number of rows: other numbers compile
 * nothing. */
void wa_step_problem_of_keys(wa_step *step, const wa_problem *problem,
                             const wa_device *device, uint32_t block_rows);
/* Its options, if it is one of cl/reduce/expand_table.cl. */
void wa_step_table(wa_step *step, const wa_problem *problem);

/* ---- More of a step's options ---- */

void wa_step_switch(wa_step *step, wa_switch which, uint32_t value);
/* The switches of a shape's numbers that have one. */
void wa_step_shape(wa_step *step, const wa_shape_list *list,
                   const void *shape);
/* Which vectors of halves the device's compiler gets wrong. */
void wa_step_half_vectors(wa_step *step, const wa_device *device,
                          winattn_dtype dtype);
WA_SISTER void wa_append_half_vectors(const wa_device *device,
                                      winattn_dtype dtype, char *text,
                                      size_t size);
/* What the kernels of tier local must know of the device and its compiler. */
void wa_step_local_options(wa_step *step, const wa_problem *problem,
                           const wa_device *device);
/* What kernels for a matrix unit must know of these; and before that, their
 * shape. */
void wa_step_matrix_unit(wa_step *step, const wa_device *device);
WA_SISTER void wa_append_matrix_unit_options(const wa_device *device,
                                             char *text, size_t size);
void wa_step_matrix_shape(wa_step *step, const wa_matrix_shape *shape,
                          const wa_device *device);

#endif
