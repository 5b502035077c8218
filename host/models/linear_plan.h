/* SPDX-License-Identifier: Apache-2.0
 * Linear layer x device -> kernels and their shapes. Pure: no OpenCL calls. */
#ifndef WINATTN_LINEAR_PLAN_H
#define WINATTN_LINEAR_PLAN_H

#include "models/linear_shapes.h"
#include "models/rows.h"
#include "plan/plan.h"

typedef struct wa_linear_kernel {
    char name[64]; /* "": there is none */
    wa_linear_shape shape;
    uint32_t work_group;
    uint32_t rows; /* of a work-group, at a time */
    /* so many work-groups do all of a call; 0: as many as it has blocks */
    uint32_t most_groups;
    uint64_t local_bytes;
    char defines[WA_DEFINES_SIZE]; /* and other build options */
} wa_linear_kernel;

/* Calls of many rows and of few may have kernels of their own. */
typedef enum wa_linear_kernel_id {
    WA_LINEAR_NORM, /* of rows, before: norm_rows */
    WA_LINEAR_MANY,
    WA_LINEAR_FEW,
    WA_LINEAR_KERNELS
} wa_linear_kernel_id;

typedef struct wa_linear_layout {
    winattn_tier tier;
    wa_linear_kernel kernel[WA_LINEAR_KERNELS];
    wa_row_plan norm; /* without the kernel */
    /* WA_LINEAR_FEW serves calls that have fewer blocks of so many rows and
     * columns, those of the model's shape; 0: none */
    uint32_t few_groups;
    uint32_t few_rows, few_columns;
    char reason[WA_REASON_SIZE];
    const char *source[WA_LINEAR_KERNELS]; /* of the shape, see describe */
    char not_taken[WA_REASON_SIZE]; /* why a measured shape is not; or "" */
    char refusals[WA_TIERS][WA_REASON_SIZE]; /* "" where not refused */
} wa_linear_layout;

/* Tries the tiers, best first; `excluded` has the reasons why some must not be
 * taken, and else "". */
winattn_status wa_linear_plan_make(const wa_linear_problem *problem,
                                   const wa_device *device,
                                   char excluded[WA_TIERS][WA_REASON_SIZE],
                                   wa_linear_layout *layout);

/* A tier's planner: false, with a refusal, if it does not compute the problem
 * on the device. A demanded shape, unless NULL, is taken for all calls. */
typedef bool wa_linear_planner(const wa_linear_problem *problem,
                               const wa_device *device,
                               const wa_linear_shape *shape,
                               wa_linear_layout *layout);
wa_linear_planner wa_linear_plan_cpu, wa_linear_plan_local; /* linear_plan.c */
wa_linear_planner wa_linear_plan_matrix; /* linear_matrix.c */

/* The same of any tier but WINATTN_TIER_AUTO. */
bool wa_linear_plan_tier(const wa_linear_problem *problem,
                         const wa_device *device, winattn_tier tier,
                         const wa_linear_shape *shape,
                         wa_linear_layout *layout);

/* Registers of a work-item where two large work-groups are to find room. */
#define WA_LINEAR_ITEM_REGISTERS 128u

/* Where a layout's shape is from, but for rows. */
#define WA_LINEAR_BY_MODEL "from a model of the device"
#define WA_LINEAR_GIVEN "given by the caller"

/* Completes a kernel of the tier for its shape. (linear_kernel.c) */
void wa_linear_write_kernel(const wa_linear_problem *problem,
                            const wa_device *device, winattn_tier tier,
                            const wa_linear_shape *shape,
                            wa_linear_kernel *kernel);
/* And of a layout the kernel of norms. */
void wa_linear_write_norm(const wa_linear_problem *problem,
                          const wa_device *device, wa_linear_layout *layout);

#endif
