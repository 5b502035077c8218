/* SPDX-License-Identifier: Apache-2.0
 * What a shape of cl/local/forward_local.cl takes, and what a small model of a
 * compute unit expects of it. */
#ifndef WINATTN_LOCAL_MODEL_H
#define WINATTN_LOCAL_MODEL_H

#include "plan/family.h"

/* What a shape follows to. */
typedef struct wa_local_tiling {
    uint32_t dim_stages, key_stages;
    uint32_t row_tiles, col_tiles; /* score tiles of a stage */
    uint32_t out_across, out_tiles;
    uint32_t q_rows, kv_rows, score_rows;
    uint32_t key_quads;
    bool streaming;
    uint64_t team_bytes; /* local memory, without gaps between arrays */
} wa_local_tiling;
wa_local_tiling wa_local_tiling_of(const wa_problem *problem,
                                   const wa_local_shape *shape);

/* Bytes of local memory that a work-group has, and registers that a work-item
 * needs, which is an estimate. */
uint64_t wa_local_bytes(const wa_local_shape *shape,
                        const wa_local_tiling *tiling);
uint32_t wa_local_registers(const wa_problem *problem, const wa_device *device,
                            const wa_local_shape *shape,
                            const wa_local_tiling *tiling);

/* Work-groups that a compute unit holds at once, of either pass: of so many
 * bytes and work-items, with so many registers each. */
double wa_local_resident(const wa_device *device, uint64_t bytes,
                         double registers, uint32_t items);

/* Rounds of all loops of a work-item, for compilers that unroll none. */
double wa_local_rounds(const wa_problem *problem, const wa_local_shape *shape,
                       const wa_local_tiling *tiling);
/* Cycles of a compute unit for each logit. */
double wa_local_cost(const wa_problem *problem, const wa_device *device,
                     const wa_local_shape *shape,
                     const wa_local_tiling *tiling);

#endif
