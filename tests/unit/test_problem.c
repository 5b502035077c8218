/* SPDX-License-Identifier: Apache-2.0
 * Descriptors: defaults, and every way to be wrong with its status and a
 * reason that names the culprit. No device is needed. */
#include "problem_groups.h"

int main(void)
{
    const test_group groups[] = {problem_fields, problem_grids,
                                 problem_tables};
    chosen.part = "problem";
    return runner_run(groups, sizeof groups / sizeof *groups);
}
