/* SPDX-License-Identifier: Apache-2.0
 * What the kernels rely on in a plan, written down a second time. */
#ifndef UNIT_PLAN_LEGAL_H
#define UNIT_PLAN_LEGAL_H

#include "plan/planner.h"

/* Remembers what is not so. */
#define REQUIRE(condition)                                                    \
    if (!(condition))                                                         \
    broken = #condition

/* Plans of either pass; what: the problem, in a failure. */
void assert_legal(const wa_problem *p, const wa_device *device,
                  const wa_plan *plan, const char *what);
void assert_legal_backward(const wa_problem *p, const wa_device *device,
                           const wa_plan *plan, const char *what);

/* Gradients of which no kernel has wgmma, which the plan says a reason for
 * that holds `why`. */
void assert_gradients_refused(const wa_problem *p, const wa_device *device,
                              const char *why);
/* The same, on an H200, where rows of one of the tensors are not 16 bytes
 * apart, or its elements are no neighbours. */
void assert_odd_strides_refused(const char *problem, const wa_tensor_id *ids,
                                size_t count);

#endif
