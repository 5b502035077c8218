/* SPDX-License-Identifier: Apache-2.0
 * Cases run with a plan that a test has changed; for tests that reach behind
 * the public interface. */
#ifndef KIT_PLANNED_H
#define KIT_PLANNED_H

#include "launch.h"
#include "plan.h"
#include "run.h"

/* What a test demands; zero leaves the planner's choice. */
typedef struct demanded_plan {
    const wa_local_shape *shape; /* of the tier local; NULL: planner's */
    uint32_t units_per_launch;
} demanded_plan;

/* Runs the case on `queue` behind a user event and checks everything. False,
 * with result->failure, if something is wrong; also if the shape is refused,
 * which result->failure then says. */
bool planned_run(const test_device *device, cl_command_queue queue,
                 const test_case *c, const demanded_plan *demand,
                 case_result *result);

/* The same for a backward pass in launches of `windows` windows, with slots
 * for half of them. */
bool planned_backward(const test_device *device, cl_command_queue queue,
                      const test_case *c, unsigned windows,
                      case_result *result);

/* "rows:keys:team:teams:stage_keys:stage_dims:score_rows:score_cols:
 * out_rows:row_items" */
bool shape_parse(const char *text, wa_local_shape *shape);
void shape_print(const wa_local_shape *shape, char *text, size_t size);

/* The call's tensors as the launcher takes them. */
wa_buffers planned_buffers(const winattn_forward *f);

#endif
