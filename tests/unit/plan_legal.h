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

#endif
