/* SPDX-License-Identifier: Apache-2.0
 * Enqueues the backward pass. */
#ifndef WINATTN_LAUNCH_BACKWARD_H
#define WINATTN_LAUNCH_BACKWARD_H

#include "launch/launch.h"
#include "plan/plan_backward.h"

/* NULL where the plan has no such part. */
typedef struct wa_backward_kernels {
    cl_kernel part[WA_BACKWARD_PARTS];
} wa_backward_kernels;

/* `accumulate` is winattn_backward's. The kernels must not be used by another
 * thread meanwhile. */
winattn_status wa_launch_backward(const wa_problem *problem,
                                  const wa_backward_plan *plan,
                                  const wa_backward_kernels *kernels,
                                  cl_command_queue queue,
                                  const wa_buffers *buffers,
                                  cl_bitfield accumulate, cl_uint wait_count,
                                  const cl_event *wait_list, cl_event *event);

#endif
