/* SPDX-License-Identifier: Apache-2.0
 * Runs cases given as text, one per argument, and prints what it found: the
 * line that a failing test prints is such a call. Its words may also demand a
 * plan (kit/demand.h).
 *
 *   check 'variant=cosine dtype=fp16 tier=local queries=64 keys=64' */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/demand.h"

static void describe(const test_device *device, const test_case *c)
{
    case_buffers *d = data_make(c);
    winattn_plan *plan = NULL;
    char text[4096];
    if (!d)
        return;
    const winattn_desc desc = data_desc(d);
    if (winattn_plan_create(device->context, device->id, &desc, &plan) ==
            WINATTN_SUCCESS &&
        winattn_plan_describe(plan, sizeof text, text, NULL) ==
            WINATTN_SUCCESS)
        printf("%s", text);
    winattn_plan_destroy(plan);
    data_free(d);
}

int main(int count, char **texts)
{
    test_device device;
    char reason[256];
    int failures = 0;
    const bool verbose = getenv("WINATTN_TEST_VERBOSE") != NULL;
    if (!device_open(&device, reason)) {
        fprintf(stderr, "%s\n", reason);
        return 2;
    }
    printf("device: %s\n", device.name);
    for (int i = 1; i < count; i++) {
        test_case c = case_default();
        case_result result;
        char bad[64];
        demand d;
        memset(&d, 0, sizeof d);
        if (!demand_parse(texts[i], &c, &d, bad)) {
            fprintf(stderr, "unknown: %s\n", bad);
            failures++;
            continue;
        }
        if (verbose)
            describe(&device, &c);
        const bool passed = demand_run(&device, &c, &d, &result);
        printf("%s  %s: relative error %.2e, %.3f of the allowed (lse %.3f) "
               "%s\n",
               passed ? "ok    " : "FAILED", texts[i], result.o_relative,
               result.o_error, result.lse_error, result.failure);
        failures += !passed;
    }
    device_close(&device);
    return failures != 0;
}
