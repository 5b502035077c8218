/* SPDX-License-Identifier: Apache-2.0
 * One launch of a new kernel, of one unit of work on zeros. Runtimes may
 * compile a kernel to the end at its first launch only (PoCL does), and a
 * binary taken before lacks that part. */
#ifndef WINATTN_TRIAL_H
#define WINATTN_TRIAL_H

#include "launch_backward.h"

/* Waits for the launch, and forgets what fails. */
void wa_trial_forward(cl_context context, cl_device_id device,
                      const wa_problem *problem, const wa_plan *plan,
                      const wa_forward_kernels *kernels,
                      const wa_table_buffers *table);

/* The same for the kernels of the backward pass. */
void wa_trial_backward(cl_context context, cl_device_id device,
                       const wa_problem *problem, const wa_backward_plan *plan,
                       const wa_backward_kernels *kernels,
                       const wa_table_buffers *table);

#endif
