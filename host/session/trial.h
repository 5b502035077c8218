/* SPDX-License-Identifier: Apache-2.0
 * One launch of a new kernel, of one unit of work on zeros. Runtimes may
 * compile a kernel to the end at its first launch only (PoCL does), and a
 * binary taken before lacks that part. */
#ifndef WINATTN_TRIAL_H
#define WINATTN_TRIAL_H

#include "launch/launch_backward.h"

/* Multiply-adds that a trial may have, some tenths of a second of one core. On
 * tier cpu it has one query, whose keys make so many when they are millions;
 * kernels of other tiers compute a block of queries at least. Where that is
 * more, there is no trial: what the binary then lacks takes little time beside
 * such a window. */
#define WA_MOST_TRIAL_WORK 134217728.0 /* 2^27 */
double wa_trial_forward_work(const wa_problem *problem, const wa_plan *plan);
double wa_trial_backward_work(const wa_problem *problem,
                              const wa_backward_plan *plan);

/* Waits for the launch. The status is for those who would try again: a kernel
 * whose trial fails may still be one that runs. */
winattn_status wa_trial_forward(cl_context context, cl_device_id device,
                                const wa_problem *problem, const wa_plan *plan,
                                const wa_forward_kernels *kernels,
                                const wa_table_buffers *table);

/* The same for the kernels of the backward pass. */
winattn_status wa_trial_backward(cl_context context, cl_device_id device,
                                 const wa_problem *problem,
                                 const wa_backward_plan *plan,
                                 const wa_backward_kernels *kernels,
                                 const wa_table_buffers *table);

#endif
