/* SPDX-License-Identifier: Apache-2.0
 * What sliding kernels of matrix units share, of both passes. */
#ifndef WINATTN_MATRIX_SLIDING_H
#define WINATTN_MATRIX_SLIDING_H

#include "family/matrix_tiling.h"

/* Their wa_family.speed: work-groups of a launch end together, and those of
 * the next begin only then. An H200 showed 100 with mma.sync. */
#define WA_SLIDING_SPEED 16.0

/* Arrays of these kernels start with lines of 128 bytes. */
static inline uint64_t wa_whole_lines(uint64_t bytes)
{
    return (bytes + 127) / 128 * 128;
}

/* NULL if kernels and the device allow a shape whose rows are those of a
 * work-group, local memory apart, else why not; tiles of rows of a wave. */
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

/* Calls visit for all shapes of tiles. */
typedef void wa_sliding_visitor(const wa_search *find,
                                const wa_matrix_shape *shape);
void wa_visit_sliding_tiles(wa_search *find, wa_sliding_visitor *visit);

/* Of the kernel of rows alone: visits its shapes, and takes one for steps that
 * leave statistics of blocks of as many rows, perhaps where tensor maps are
 * (matrix_sliding_pair.c). */
void wa_visit_sliding_rows(wa_search *find);
void wa_take_sliding_statistics(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *shape, bool has_maps,
                                wa_plan *plan);

#endif
