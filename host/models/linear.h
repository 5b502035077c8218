/* SPDX-License-Identifier: Apache-2.0
 * Linear layers as a part of larger calls. */
#ifndef WINATTN_LINEAR_H
#define WINATTN_LINEAR_H

#include "base/os.h"
#include "launch/chain.h"
#include "models/linear_plan.h"
#include "session/session.h"

#include "winattn_models.h"

struct winattn_linear_plan {
    wa_linear_problem problem;
    wa_session *session;
    wa_lock *lock; /* held from the first clSetKernelArg to the last enqueue */
    wa_linear_layout layout;
    cl_kernel kernels[WA_LINEAR_KERNELS]; /* NULL where there is none */
    const char *origin;                   /* of the main kernel's program */
};

/* The descriptor, checked. (linear_call.c) */
winattn_status wa_linear_read(const winattn_linear_desc *desc,
                              wa_linear_problem *problem);

/* Checks a call as winattn_enqueue_linear does, but for the queue. What it
 * leaves in *own is what wa_linear_append takes, *start what the chain has.
 * (linear_call.c) */
winattn_status wa_linear_check(const winattn_linear_plan *plan,
                               const winattn_linear *linear,
                               winattn_linear *own, uint64_t *start);

/* Bytes of workspace of a call. (linear_call.c) */
uint64_t wa_linear_workspace(const winattn_linear_plan *plan, uint64_t rows);

/* Appends the launches of a call that wa_linear_check accepted.
 * (linear_call.c) */
winattn_status wa_linear_append(const winattn_linear_plan *plan,
                                const winattn_linear *linear,
                                wa_kernel_chain *chain);

/* Which kernel a call of so many rows takes. (linear_call.c) */
wa_linear_kernel_id wa_linear_kernel_for(const wa_linear_layout *layout,
                                         const wa_linear_problem *problem,
                                         uint64_t rows);

/* The same by a kernel that is named, WA_LINEAR_MANY or WA_LINEAR_FEW. */
winattn_status wa_linear_append_as(const winattn_linear_plan *plan,
                                   const winattn_linear *linear,
                                   wa_linear_kernel_id id,
                                   wa_kernel_chain *chain);

/* A plan with a shape of the caller's, for tests and measurements: desc->tier
 * says of which tier. NULL: with its own. (linear.c) */
winattn_status wa_linear_plan_with_shape(cl_context context,
                                         cl_device_id device,
                                         const winattn_linear_desc *desc,
                                         const wa_linear_shape *shape,
                                         winattn_linear_plan **plan);

#endif
