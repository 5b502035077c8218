/* SPDX-License-Identifier: Apache-2.0
 * The public calls on a device: lifetimes, events, threads. Campaigns have
 * refusals (campaign/calls.c). */
#include "api.h"

int main(int count, char **arguments)
{
    const test_group groups[] = {api_plans,    api_shapes, api_grids,
                                 api_backward, api_order,  api_threads};
    const test_program program = {.part = "api", TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
