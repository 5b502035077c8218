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
        char bad[64], text[4096];
        demand d;
        memset(&d, 0, sizeof d);
        if (!demand_parse(texts[i], &c, &d, bad)) {
            fprintf(stderr, "unknown: %s\n", bad);
            failures++;
            continue;
        }
        if (verbose && case_describe(&device, &c, text))
            printf("%s", text);
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
