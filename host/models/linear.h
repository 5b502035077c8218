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

/* Bytes that a call moves, each tensor once, but statistics of rows and what a
 * norm of its own does before it. (linear_call.c) */
uint64_t wa_linear_bytes(const winattn_linear_plan *plan, uint64_t rows);

/* What a layer with norms beside it has besides: statistics are pairs of fp32,
 * mean and squared distances from it, of each row. Where x is normalised on
 * the way, `bias` has pairs of fp32: the sum of a row of W times the norm's
 * weights, and the bias with what the norm's adds. FINDS_STATISTICS: x_scale
 * are the weights; else, and with a hidden layer, W has them in it.
 * NORMALISES: norm_weight and norm_bias. */
#define WA_STATISTICS_BYTES 8u
typedef struct wa_linear_norms {
    winattn_tensor x_statistics, y_statistics, x_scale;
    float eps;
    /* with a hidden layer: `bias` is the second one's, so that hidden_bias
     * has the pairs */
    winattn_tensor hidden_weight, hidden_bias;
    uint64_t hidden_stride;
} wa_linear_norms;

/* Appends the launches of a call that wa_linear_check accepted; or that
 * merges, where x_stride is that of a map's lines, which follow each other.
 * norms: NULL where the problem has none. (linear_call.c) */
winattn_status wa_linear_append(const winattn_linear_plan *plan,
                                const winattn_linear *linear,
                                const wa_linear_norms *norms,
                                wa_kernel_chain *chain);

/* Has a call of so many rows few, for which a kernel of their own would be
 * better; and which kernel does it take? (linear_call.c) */
bool wa_linear_is_few(const wa_linear_layout *layout,
                      const wa_linear_problem *problem, uint64_t rows);
wa_linear_kernel_id wa_linear_kernel_for(const wa_linear_layout *layout,
                                         const wa_linear_problem *problem,
                                         uint64_t rows);

/* The same by a kernel that is named, WA_LINEAR_MANY or WA_LINEAR_FEW. */
winattn_status wa_linear_append_as(const winattn_linear_plan *plan,
                                   const winattn_linear *linear,
                                   const wa_linear_norms *norms,
                                   wa_linear_kernel_id id,
                                   wa_kernel_chain *chain);

/* Compares the plan's kernel, by wgmma, with one by fragments, once in a
 * session, unless its program is from the cache, whereto only one that passed
 * came. Fails with WINATTN_UNSUPPORTED_DEVICE and the first number that is
 * wrong; with another status if the comparison could not be made.
 * (linear_check.c) */
winattn_status wa_linear_compare(const winattn_linear_plan *plan,
                                 wa_linear_kernel_id id);

/* A plan for a problem, which may have what no descriptor has; for tests with
 * a shape of the caller's, of the problem's tier. NULL: with its own. A
 * failure leaves *plan as it is. (linear.c) */
winattn_status wa_linear_plan_with_shape(cl_context context,
                                         cl_device_id device,
                                         const wa_linear_problem *problem,
                                         const wa_linear_shape *shape,
                                         winattn_linear_plan **plan);

#endif
