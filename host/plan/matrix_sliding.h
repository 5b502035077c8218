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

/* Arrays of these kernels start with lines of 128 bytes. */
static inline uint64_t wa_whole_lines(uint64_t bytes)
{
    return (bytes + 127) / 128 * 128;
}

/* The same of what its gradient kernels share: refusal of a shape whose rows
 * are those of a work-group, local memory apart; tiles of rows of a wave. */
const char *wa_sliding_tiles_refusal(const wa_problem *problem,
                                     const wa_device *device,
                                     const wa_matrix_shape *shape);
uint32_t wa_sliding_turns(const wa_device *device,
                          const wa_matrix_shape *shape);

/* What a kernel's model expects of a shape: `registers` of a lane for tiles,
 * `local` bytes of a work-group; that the wait for a stage takes as long as so
 * many of its keys. */
double wa_sliding_cost(const wa_problem *problem, const wa_device *device,
                       const wa_matrix_shape *shape, double registers,
                       uint64_t local, double keys_of_stage);

/* Calls visit for all shapes of tiles, and returns how many there were. */
typedef void wa_sliding_visitor(void *data, const wa_matrix_shape *shape);
uint64_t wa_visit_sliding_tiles(const wa_device *device,
                                wa_sliding_visitor *visit, void *data);

/* As wa_matrix_pair_refusal and so on, of cl/matrix/sliding_rows_matrix.cl and
 * sliding_keys_matrix.cl (matrix_sliding_backward.c). */
const char *wa_sliding_pair_refusal(const wa_problem *problem,
                                    const wa_device *device,
                                    const wa_matrix_gradient_shape *shape);
void wa_take_sliding_pair(const wa_problem *problem, const wa_device *device,
                          const wa_matrix_gradient_shape *shape,
                          wa_plan *plan);
bool wa_visit_sliding_pairs(const wa_problem *problem, const wa_device *device,
                            wa_matrix_gradient_visitor *visit, void *data,
                            uint64_t *visited);

/* Takes the best kernel of statistics, for kernels behind it that are not
 * those of fragments; false if there is none (matrix_sliding_backward.c). */
bool wa_take_sliding_statistics(const wa_problem *problem,
                                const wa_device *device, wa_plan *plan);

/* As wa_visit_matrix_shapes. The shapes do not follow from the numbers of
 * tokens, so that caches of keys may grow without a build. */
uint64_t wa_visit_sliding_shapes(const wa_problem *problem,
                                 const wa_device *device,
                                 wa_matrix_visitor *visit, void *data);

#endif
