/* SPDX-License-Identifier: Apache-2.0
 * Problem x device -> the kernels of the backward pass. Pure, like plan.h. */
#ifndef WINATTN_PLAN_BACKWARD_H
#define WINATTN_PLAN_BACKWARD_H

#include "plan.h"

typedef struct wa_backward_plan {
    winattn_tier tier;
    /* One kernel makes everything of a window; else two, the first of which
     * leaves statistics of each row in the workspace. */
    bool whole;
    wa_cpu_shape shape;
    uint32_t block_rows, row_blocks; /* of the first kernel of two */
    uint32_t block_keys, key_blocks;
    uint32_t slots; /* partial sums over windows */
    uint64_t windows_per_launch;
    /* The workspace's parts, in this order: bytes. */
    uint64_t statistics_bytes, bias_bytes, scale_bytes, workspace_bytes;
    char defines[WA_DEFINES_SIZE];
    char reason[WA_REASON_SIZE];
} wa_backward_plan;

winattn_status wa_backward_plan_make(const wa_problem *problem,
                                     const wa_device *device,
                                     wa_backward_plan *plan);

/* Its lines of winattn_plan_describe, appended. */
void wa_backward_plan_describe(const wa_backward_plan *plan, char *text,
                               size_t size);

#endif
