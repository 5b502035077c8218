/* SPDX-License-Identifier: Apache-2.0
 * The groups of test_plan, a file each, and what makes its table. */
#ifndef UNIT_PLAN_GROUPS_H
#define UNIT_PLAN_GROUPS_H

#include "kit/group.h"

extern const test_group plan_backward, plan_choices, plan_contract, plan_dealt,
    plan_grid, plan_matrix, plan_purity, plan_refusals, plan_rows, plan_wgmma;

/* Makes expected_plans.inc. */
void print_choices(void);

#endif
