/* SPDX-License-Identifier: Apache-2.0
 * How the work of a plan's steps is distributed to work-groups and launches,
 * and what of the workspace that takes. */
#ifndef WINATTN_SCHEDULE_H
#define WINATTN_SCHEDULE_H

#include "plan/plan.h"

/* Has work-groups of the forward pass iterate over windows: as many as a
 * device holds, of which a compute unit holds `resident`. Appends to the
 * step's options what its kernel must know of that. */
void wa_share_windows(const wa_problem *problem, const wa_device *device,
                      uint32_t resident, wa_plan *plan);
/* From the step, work_tiles_per_group and what shared windows left. */
void wa_schedule_forward(const wa_problem *problem, const wa_device *device,
                         wa_plan *plan);
/* From the steps, row_blocks, key_blocks, teams, busy_groups, key_parts and
 * the same of rows. */
void wa_schedule_backward(const wa_problem *problem, const wa_device *device,
                          wa_plan *plan);

/* Of work-groups that start together, those of whole splits; of one split all
 * that it has. */
uint64_t wa_whole_splits(uint64_t groups, uint64_t head_blocks);

/* Operations that one launch of the plan's kernels should have at most. */
double wa_launch_operations(const wa_problem *problem, const wa_device *device,
                            const wa_plan *plan);

/* Bytes that partial sums, and statistics of a launch, take at most; the
 * splits that follow for partial sums of a bias. */
#define WA_BACKWARD_BYTES (16u * 1024u * 1024u)
#define WA_MATRIX_BIAS_BYTES (64u * 1024u * 1024u) /* tier matrix */
uint64_t wa_most_bias_splits(const wa_problem *problem, winattn_tier tier);

#endif
