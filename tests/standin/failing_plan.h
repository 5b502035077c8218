/* SPDX-License-Identifier: Apache-2.0
 * A plan for the made-up H200 while one call or allocation after the other
 * fails. */
#ifndef FAILING_PLAN_H
#define FAILING_PLAN_H

#include "winattn.h"

/* Whatever fails on the way, nothing of it is left, and each failure has a
 * reason. start: makes a new world of the test's, before each plan. At least
 * `least` calls, and as many allocations, are made. */
void any_call_of_plan_may_fail(const winattn_desc *desc, int (*start)(void **),
                               unsigned long least);

#endif
