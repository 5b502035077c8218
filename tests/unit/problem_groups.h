/* SPDX-License-Identifier: Apache-2.0
 * The groups of test_problem, a file each. */
#ifndef UNIT_PROBLEM_GROUPS_H
#define UNIT_PROBLEM_GROUPS_H

#include "kit/runner.h"

extern const test_group problem_fields, problem_grids, problem_tables;

#endif
