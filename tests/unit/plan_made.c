/* SPDX-License-Identifier: Apache-2.0
 * Plans of texts for made-up devices. */
#include "plan_made.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

wa_device devices[MOST_DEVICES];

void find_units(void)
{
    for (size_t i = 0; i < made_up_count && i < MOST_DEVICES; i++) {
        devices[i] = made_up_devices[i];
        devices[i].matrix_unit = wa_matrix_unit_of(&devices[i]);
    }
}

const wa_device *device_named(const char *name)
{
    const wa_device *device = made_up_device(name);
    assert_non_null(device);
    return &devices[device - made_up_devices];
}

wa_problem problem_of(const char *text)
{
    const test_case c = parsed(text);
    const winattn_desc d = case_desc(&c);
    wa_problem p;
    if (wa_problem_read(&d, &p) != WINATTN_SUCCESS)
        fail_msg("%s: %s", text, winattn_last_reason());
    return p;
}

static const wa_exclusions none;

wa_plan plan_after(const wa_problem *p, const wa_device *device, wa_pass pass,
                   const wa_exclusions *failed)
{
    wa_plan plan;
    if (wa_plan_make(p, device, pass, failed, &plan) != WINATTN_SUCCESS)
        fail_msg("%s: %s", device->name, winattn_last_reason());
    return plan;
}

wa_pass pass_of(const wa_problem *p)
{
    return p->passes[WA_BACKWARD] ? WA_BACKWARD : WA_FORWARD;
}

wa_plan plan_of(const wa_problem *p, const wa_device *device)
{
    return plan_after(p, device, pass_of(p), &none);
}

wa_plan backward_plan_of(const wa_problem *p, const wa_device *device)
{
    return plan_after(p, device, WA_BACKWARD, &none);
}

void assert_described(const wa_plan *plan, const char *line)
{
    char text[4096] = "";
    wa_plan_describe(plan, text, sizeof text);
    if (!strstr(text, line))
        fail_msg("\"%s\" is not in \"%s\"", line, text);
}

bool has_hopper(void) { return wa_engine_name(WA_ENGINE_SPECIAL)[0] != 0; }

bool has_proven_unit(const wa_device *device)
{
    return device->matrix_unit && device->matrix_unit->proven;
}

bool suits_matrix(const wa_problem *p, const wa_device *device, wa_pass pass)
{
    return device->matrix_unit && (p->dtype != WINATTN_FP32 ||
                                   (pass == WA_FORWARD && p->allows_tf32 &&
                                    device->matrix_unit->has_tf32));
}

winattn_tier best_tier(const wa_problem *p, const wa_device *device,
                       wa_pass pass)
{
    return device->is_cpu ? WINATTN_TIER_CPU
           : has_proven_unit(device) && suits_matrix(p, device, pass)
               ? WINATTN_TIER_MATRIX
               : WINATTN_TIER_LOCAL;
}

void assert_legal(const wa_problem *p, const wa_device *device,
                  const wa_plan *plan, const char *what)
{
    const char *broken = broken_plan(p, device, plan);
    if (broken)
        fail_msg("%s on %s: not %s\n%s", what, device->name, broken,
                 plan->step[wa_main_step(plan->pass)].defines);
}
