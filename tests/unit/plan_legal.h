/* SPDX-License-Identifier: Apache-2.0
 * What a plan of either pass promises to kernels and launches, written down a
 * second time. */
#ifndef UNIT_PLAN_LEGAL_H
#define UNIT_PLAN_LEGAL_H

#include "plan/planner.h"

/* what: the problem, in a failure. */
void assert_legal(const wa_problem *p, const wa_device *device,
                  const wa_plan *plan, const char *what);

#endif
