/* SPDX-License-Identifier: Apache-2.0
 * The -D options of kernels: appended to a text of the given size. */
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
/* Those options for kernels that take any number of queries, as arguments, and
 * with block_rows 0 any number of rows: other numbers compile nothing. */
void wa_append_problem_of_keys(const wa_problem *problem,
                               const wa_device *device, uint32_t block_rows,
                               uint32_t block_keys, char *text, size_t size);
/* Those of cl/reduce/expand_table.cl. */
void wa_append_table(const wa_problem *problem, char *text, size_t size);

/* What kernels for a matrix unit must know of the device and its compiler. */
WA_SISTER void wa_append_matrix_unit_options(const wa_device *device,
                                             char *text, size_t size);
/* Those options, after the part of the shape that wa_begin_step has not
 * appended.
 */
void wa_append_matrix_shape(const wa_matrix_shape *shape,
                            const wa_device *device, char *text, size_t size);
/* Which vectors of halves the device's compiler gets wrong. */
WA_SISTER void wa_append_half_vectors(const wa_device *device,
                                      winattn_dtype dtype, char *text,
                                      size_t size);
/* What the kernels of tier local must know of the device and its compiler. */
void wa_append_local_options(const wa_problem *problem,
                             const wa_device *device, char *text, size_t size);

#endif
