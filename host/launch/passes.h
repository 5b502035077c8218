/* SPDX-License-Identifier: Apache-2.0
 * What a launch of either pass is made of, and the parts of it. */
#ifndef WINATTN_PASSES_H
#define WINATTN_PASSES_H

#include "launch/arguments.h"
#include "launch/chain.h"

/* A call under way. Problem and buffers are those that kernels are told of: an
 * ordinary bias where a table was expanded. */
typedef struct wa_call {
    const wa_plan *plan;
    const wa_kernels *kernels;
    const wa_problem *asked; /* with its table */
    const wa_buffers *given;
    wa_problem problem;
    wa_buffers buffers;
    cl_bitfield accumulate; /* winattn_backward's */
    wa_kernel_chain chain;
} wa_call;

/* launch_forward.c */
winattn_status wa_launch_forward(wa_call *call);
/* launch_backward.c: kernels that compute on windows; *args becomes what they
 * were told. */
winattn_status wa_launch_gradients(wa_call *call, backward_args *args);
/* launch_sums.c: what windows share, from the splits that args says. */
winattn_status wa_launch_sums(wa_call *call, const backward_args *args);

/* From which byte of the workspace on the bias lies that a table stands for.
 */
static inline uint64_t wa_dense_at(const wa_plan *plan)
{
    return plan->workspace.all - plan->workspace.dense;
}

#endif
