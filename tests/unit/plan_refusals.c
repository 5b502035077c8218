/* SPDX-License-Identifier: Apache-2.0
 * What rules a tier out: an attempt that failed, the caller, a device that
 * lacks something. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

static void exclusions(void **state)
{
    (void)state;
    const wa_device *h200 = device_named("H200");
    wa_exclusions without;
    wa_plan plan;
    wa_problem p = problem_of("");
    memset(&without, 0, sizeof without);
    strcpy(without.reason[WINATTN_TIER_LOCAL], "did not build");
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_CPU);
    assert_string_equal(plan.refusals[WINATTN_TIER_LOCAL], "did not build");
    strcpy(without.reason[WINATTN_TIER_CPU], "neither");
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    assert_non_null(strstr(winattn_last_reason(), "did not build"));
    p.tier = WINATTN_TIER_CPU;
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), "neither"));
}

/* A tier that did not build is not taken again; one that is demanded is the
 * only one. */
static void backward_falls_back(void **state)
{
    (void)state;
    const wa_problem p = problem_of("pass=backward bias=same");
    const wa_problem local = problem_of("pass=backward bias=same tier=local");
    const wa_device *device = device_named("H200");
    wa_exclusions exclusions;
    wa_plan plan;
    memset(&exclusions, 0, sizeof exclusions);
    snprintf(exclusions.reason[WINATTN_TIER_LOCAL], WA_REASON_SIZE,
             "it did not build");
    assert_int_equal(wa_plan_make(&p, device, WA_BACKWARD, &exclusions, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_CPU);
    assert_string_equal(plan.refusals[WINATTN_TIER_LOCAL], "it did not build");
    assert_int_equal(
        wa_plan_make(&local, device, WA_BACKWARD, &exclusions, &plan),
        WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), "it did not build"));
}

static void poor_devices(void **state)
{
    (void)state;
    static const wa_exclusions none;
    wa_plan plan;
    wa_problem p = problem_of("");
    const wa_device *mali = device_named("Mali-G78");
    wa_device device = *mali;
    device.has_int64 = false;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    assert_non_null(strstr(winattn_last_reason(), "64-bit"));
    device = *mali;
    device.compiles = false;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    device = *mali;
    device.opencl = 101;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    /* 1 KiB of local memory, the least of an embedded profile */
    device = *mali;
    device.local_bytes = device.local_capacity = 1024;
    assert_int_equal(wa_plan_make(&p, &device, WA_FORWARD, &none, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_CPU);
    assert_non_null(strstr(plan.refusals[WINATTN_TIER_LOCAL], "1024"));
}

static void assert_matrix_refused(const char *text, const wa_device *device,
                                  const char *why)
{
    static const wa_exclusions none;
    wa_problem p = problem_of(text);
    wa_plan plan = plan_of(&p, device);
    assert_int_not_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_non_null(strstr(plan.refusals[WINATTN_TIER_MATRIX], why));
    p.tier = WINATTN_TIER_MATRIX;
    assert_int_equal(wa_plan_make(&p, device, WA_FORWARD, &none, &plan),
                     WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), "tier matrix: "));
    assert_non_null(strstr(winattn_last_reason(), why));
}

static void matrix_refuses(void **state)
{
    (void)state;
    const wa_device *h200 = device_named("H200");
    assert_matrix_refused("dtype=fp32", h200, "TF32, which must be allowed");
    assert_matrix_refused("tf32=1", device_named("gfx942 (MI300X)"),
                          "no TF32");
    assert_matrix_refused("dtype=fp16", device_named("RTX 2080 Ti"),
                          "no matrix unit");
    assert_matrix_refused("dtype=fp16", device_named("Mali-G78"),
                          "no matrix unit");
    wa_device poor = *h200;
    poor.local_bytes = poor.local_capacity = 2048;
    assert_matrix_refused("dtype=fp16 dim=128", &poor, "local memory");
    poor = *h200;
    poor.max_work_group = 16; /* less than a wave */
    assert_matrix_refused("dtype=fp16", &poor, "no shape fits");
}

/* The way from a failed self-test to the next tier. */
static void failed_units_are_left(void **state)
{
    (void)state;
    static const char *const reason =
        "self-test of unit mma failed: score of query 0 and key 3 is 5, not 7";
    const wa_device *h200 = device_named("H200");
    wa_exclusions without;
    wa_plan plan;
    char text[4096];
    wa_problem p = problem_of("dtype=fp16 bias=same");
    memset(&without, 0, sizeof without);
    snprintf(without.reason[WINATTN_TIER_MATRIX], WA_REASON_SIZE, "%s",
             reason);
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
    assert_legal(&p, h200, &plan, "without its unit");
    text[0] = 0;
    wa_plan_describe(&plan, text, sizeof text);
    const char *line = strstr(text, "tier matrix not taken: ");
    assert_non_null(line);
    assert_non_null(strstr(line, reason));
    p.tier = WINATTN_TIER_MATRIX;
    assert_int_equal(wa_plan_make(&p, h200, WA_FORWARD, &without, &plan),
                     WINATTN_UNSUPPORTED_PROBLEM);
    assert_non_null(strstr(winattn_last_reason(), reason));
}

/* Kernels of the other tiers have barriers in loops. */
static void broken_barriers_leave_tier_cpu(void **state)
{
    static const wa_exclusions none;
    wa_device pocl = *device_named("PoCL");
    (void)state;
    pocl.breaks_barriers = true;
    for (int pass = WA_FORWARD; pass <= WA_BACKWARD; pass++)
        for (int tier = 0; tier < WA_TIERS; tier++) {
            wa_problem p = problem_of("bias=same dtype=fp16");
            wa_plan plan;
            p.tier = (winattn_tier)tier;
            const winattn_status status =
                wa_plan_make(&p, &pocl, (wa_pass)pass, &none, &plan);
            if (tier == WINATTN_TIER_AUTO || tier == WINATTN_TIER_CPU) {
                assert_int_equal(status, WINATTN_SUCCESS);
                assert_int_equal(plan.tier, WINATTN_TIER_CPU);
                continue;
            }
            assert_int_equal(status, WINATTN_UNSUPPORTED_PROBLEM);
            assert_non_null(
                strstr(winattn_last_reason(), "barriers in loops"));
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exclusions),
    cmocka_unit_test(broken_barriers_leave_tier_cpu),
    cmocka_unit_test(backward_falls_back),
    cmocka_unit_test(poor_devices),
    cmocka_unit_test(matrix_refuses),
    cmocka_unit_test(failed_units_are_left),
};
const test_group plan_refusals = TEST_GROUP(NULL, tests);
