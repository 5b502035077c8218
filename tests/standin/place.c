/* SPDX-License-Identifier: Apache-2.0
 * Opens and closes places. */
#include "place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kit/devices.h"

place place_of(const wa_device *device)
{
    place p = {.id = standin_device(device)};
    p.context = standin_context(1, &p.id);
    p.queue = standin_queue(p.context, p.id, false);
    return p;
}

place open_place(const char *device)
{
    standin_reset();
    return place_of(made_up_device(device));
}

char place_said[8192];

winattn_status place_plan(const place *p, const winattn_desc *desc)
{
    winattn_plan *plan;
    const winattn_status status =
        winattn_plan_create(p->context, p->id, desc, &plan);
    if (status == WINATTN_SUCCESS)
        winattn_plan_describe(plan, sizeof place_said, place_said, NULL);
    else
        snprintf(place_said, sizeof place_said, "%s", winattn_last_reason());
    winattn_plan_destroy(plan);
    return status;
}

void assert_plan(const place *p, const winattn_desc *desc,
                 winattn_status status, const char *part)
{
    const winattn_status got = place_plan(p, desc);
    if (got != status || !strstr(place_said, part))
        fail_msg("%s: \"%s\" instead of %s and \"%s\"",
                 winattn_status_name(got), place_said,
                 winattn_status_name(status), part);
}

void close_place(const place *p)
{
    clReleaseCommandQueue(p->queue);
    clReleaseContext(p->context);
    assert_null(standin_alive());
    assert_null(standin_wrong(NULL));
}
