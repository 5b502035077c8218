/* SPDX-License-Identifier: Apache-2.0
 * Planning for devices that nobody here owns: the choices are legal, stand
 * in a table, and do not depend on what must not compile anew. */
#include <string.h>

#include "kit/runner.h"
#include "plan_groups.h"
#include "plan_made.h"

int main(int count, char **arguments)
{
    const test_group groups[] = {plan_choices, plan_options,  plan_tiers,
                                 plan_dealt,   plan_backward, plan_rows,
                                 plan_wgmma};
    enum { ALL = sizeof groups / sizeof *groups, OF_HOPPER = 1 };
    find_units();
    if (count == 2 && strcmp(arguments[1], "--print") == 0) {
        print_choices();
        return 0;
    }
    chosen.part = "plan";
    /* the last one is of Hopper */
    return runner_run(groups, has_hopper() ? ALL : ALL - OF_HOPPER);
}
