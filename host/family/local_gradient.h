/* SPDX-License-Identifier: Apache-2.0
 * What a shape of cl/local/backward_*_local.cl takes, what refuses it, and
 * what a small model of a compute unit expects of it. */
#ifndef WINATTN_LOCAL_GRADIENT_H
#define WINATTN_LOCAL_GRADIENT_H

#include "plan/family.h"

/* Which of the kernels: one that makes everything, or one of those that share
 * it. */
typedef enum wa_gradient_part {
    WA_GRADIENTS_FUSED,
    WA_GRADIENTS_STATISTICS,
    WA_GRADIENTS_ROWS,
    WA_GRADIENTS_KEYS
} wa_gradient_part;

/* Alignment between the kernels' local arrays. */
#define WA_GRADIENT_SLACK 128u
/* Sums of all stages of channels are unrolled. */
#define WA_GRADIENT_MOST_STAGES 4u

/* What a shape follows to. */
typedef struct wa_gradient_tiling {
    uint32_t dim_stages;
    uint32_t row_tiles, col_tiles; /* of logits */
    uint32_t out_across, out_tiles, key_tiles;
    uint32_t q_rows, kv_rows;
    uint32_t key_quads; /* of a block */
} wa_gradient_tiling;

wa_gradient_tiling wa_gradient_tiling_of(const wa_problem *problem,
                                         const wa_gradient_shape *s);

/* All rows of one head see all keys, so nothing is kept from q block to q
 * block.
 */
bool wa_gradient_is_single_q_block(const wa_problem *problem,
                                   wa_gradient_part which,
                                   const wa_gradient_shape *s);
/* A work-group's one head has its table of biases in local memory. */
bool wa_gradient_keeps_table(const wa_problem *problem, wa_gradient_part which,
                             const wa_gradient_shape *s);
/* The sum of dBias over windows stays in registers where there are enough. */
bool wa_gradient_keeps_dbias(const wa_problem *problem,
                             const wa_device *device, wa_gradient_part which,
                             const wa_gradient_shape *s,
                             const wa_gradient_tiling *t);

/* Of what a team has in local memory, without gaps between arrays. */
uint64_t wa_gradient_local_bytes(const wa_problem *problem,
                                 wa_gradient_part which,
                                 const wa_gradient_shape *s);
/* Of a work-item, an estimate; without a sum of dBias. */
uint32_t wa_gradient_registers(const wa_problem *problem,
                               const wa_device *device, wa_gradient_part which,
                               const wa_gradient_shape *s,
                               const wa_gradient_tiling *t);
/* Work-groups that a compute unit holds at once. */
double wa_gradient_resident(const wa_problem *problem, const wa_device *device,
                            wa_gradient_part which, const wa_gradient_shape *s,
                            const wa_gradient_tiling *t);

/* NULL if kernel and device allow the shape, else why not; registers apart,
 * which are but an estimate. */
const char *wa_gradient_refusal(const wa_problem *problem,
                                const wa_device *device,
                                wa_gradient_part which,
                                const wa_gradient_shape *s,
                                const wa_gradient_tiling *t);

/* Cycles of a compute unit for each logit, of one kernel. */
double wa_gradient_cost(const wa_problem *problem, const wa_device *device,
                        wa_gradient_part which, const wa_gradient_shape *s,
                        const wa_gradient_tiling *t);

/* Asks for vector accesses of a plan's steps, WIDE of cl/local/token_rows.cl.
 */
void wa_local_require_access(const wa_problem *problem, uint32_t stage_dims,
                             wa_plan *plan);

/* Does the local memory suffice for rows, keys of a stage and scores? Most
 * blocks of a large window are left here, whatever else their shapes are; so
 * is the kernel that needs all keys. (local_forward.c) */
bool wa_local_may_fit(const wa_device *device, uint32_t rows, uint32_t keys,
                      uint32_t stage_keys, uint32_t stage_dims);

/* Of both passes' families, see wa_family. (local_forward.c) */
void wa_local_say_none(const wa_device *device, bool fits, char *why);

#endif
