/* SPDX-License-Identifier: Apache-2.0
 * The groups of test_plan, a file each, and what makes its table. */
#ifndef UNIT_PLAN_GROUPS_H
#define UNIT_PLAN_GROUPS_H

#include "kit/group.h"

extern const test_group plan_backward, plan_choices, plan_dealt, plan_options,
    plan_rows, plan_tiers, plan_wgmma;

/* Prints expected_plans.inc as it were now, for problems that stand there. */
void print_choices(void);

#endif
