/* SPDX-License-Identifier: Apache-2.0
 * Which tier is taken, and why not a better one: problems that a matrix unit
 * does not compute, an attempt that failed, a device that lacks something. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "plan_groups.h"
#include "plan_made.h"

/* NVIDIA's from compute capability 8.0 on have a unit that was run. */
static void units_are_found(void **state)
{
    (void)state;
    size_t found = 0;
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        if (device->vendor != WA_VENDOR_NVIDIA)
            continue;
        assert_int_equal(device->matrix_unit == wa_matrix_unit_named("mma"),
                         device->compute_capability >= 80);
        found += has_proven_unit(device);
    }
    assert_true(found >= 4);
    assert_null(wa_matrix_unit_named("none"));
}

/* ---- Problems ---- */

#define BACK "pass=backward "
static const struct {
    const char *device, *problem, *refusal; /* NULL: tier matrix */
} problems[] = {
    {"H200", "dtype=fp16", NULL},
    {"H200", "dtype=bf16 variant=cosine bias=same", NULL},
    {"H200", "dtype=fp16 mask=regions mask_windows=2 dim=20", NULL},
    {"H200", "tf32=1", NULL},
    {"H200", "tf32=1 variant=sliding block=16", NULL},
    {"H200", "dtype=fp16 variant=sliding block=16", NULL},
    {"H200", "dtype=fp32", "TF32, which must be allowed"},
    {"gfx942 (MI300X)", "tf32=1", "no TF32"},
    {"RTX 2080 Ti", "dtype=fp16", "no matrix unit"},
    {"Mali-G78", "dtype=fp16", "no matrix unit"},
    {"H200", BACK "dtype=fp16 bias=same", NULL},
    {"H200", BACK "dtype=bf16 variant=cosine logit_scale=1 bias=fp32 dim=64",
     NULL},
    {"H200", BACK "dtype=fp16 heads=4 kv_heads=2 mask=regions mask_windows=2",
     NULL},
    {"H200", BACK "dtype=fp16 queries=256 heads=4 bias=same", NULL},
    {"H200",
     BACK "dtype=bf16 grid=2 size=30x45 window=7x7 shift=3x3 mask=shift "
          "pads=3 bias=table_same",
     NULL},
    {"H200", BACK "dtype=fp16 variant=sliding block=16", NULL},
    {"H200", BACK "dtype=fp16 heads=2 kv_heads=1 dim=256 queries=64", NULL},
    {"H200", BACK "dtype=fp16 dim=256 queries=256", NULL},
    {"H200", BACK "dtype=fp16 queries=784 heads=4 bias=same", NULL},
    {"H200", BACK "dtype=fp32", "fp32"},
    {"H200", BACK "tf32=1", "forward pass only"},
};

static void assert_unit_refused(const wa_problem *p, const wa_device *device,
                                const char *why)
{
    static const wa_exclusions none;
    wa_problem demanding = *p;
    wa_plan plan = plan_of(p, device);
    assert_int_not_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_non_null(strstr(plan.refusals[WINATTN_TIER_MATRIX], why));
    demanding.tier = WINATTN_TIER_MATRIX;
    assert_status(wa_plan_make(&demanding, device, pass_of(p), &none, &plan),
                  WINATTN_UNSUPPORTED_PROBLEM, why);
    assert_non_null(strstr(winattn_last_reason(), "tier matrix: "));
}

static void units_compute_problems(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const wa_problem p = problem_of(problems[i].problem);
        const wa_device *device = device_named(problems[i].device);
        if (problems[i].refusal) {
            assert_unit_refused(&p, device, problems[i].refusal);
            continue;
        }
        const wa_plan plan = plan_of(&p, device);
        assert_legal(&p, device, &plan, problems[i].problem);
        if (plan.tier != WINATTN_TIER_MATRIX)
            fail_msg("%s: %s", problems[i].problem,
                     plan.refusals[WINATTN_TIER_MATRIX]);
    }
    const wa_problem p = problem_of("dtype=fp16 dim=128");
    wa_device poor = *device_named("H200");
    poor.local_bytes = poor.local_capacity = 2048;
    assert_unit_refused(&p, &poor, "local memory");
    poor = *device_named("H200");
    poor.max_work_group = 16; /* less than a wave */
    assert_unit_refused(&p, &poor, "no shape fits");
}

/* Nobody has seen it work: whoever wants it must say so. */
static void unproven_units_are_demanded(void **state)
{
    static const char *const texts[] = {"dtype=fp16",
                                        BACK "dtype=fp16 bias=same"};
    (void)state;
    wa_matrix_unit unit = *wa_matrix_unit_named("mma");
    wa_device device = *device_named("H200");
    unit.proven = false;
    device.matrix_unit = &unit;
    for (int pass = 0; pass < WA_PASSES; pass++) {
        wa_problem p = problem_of(texts[pass]);
        wa_plan plan = plan_of(&p, &device);
        assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
        assert_non_null(
            strstr(plan.refusals[WINATTN_TIER_MATRIX], "must be demanded"));
        p.tier = WINATTN_TIER_MATRIX;
        plan = plan_of(&p, &device);
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_legal(&p, &device, &plan, "unproven");
    }
}

/* Vectors of what rows hold: of TF32 four numbers, in the forward pass. */
static void vectors_are_of_the_type(void **state)
{
    static const struct {
        const char *problem;
        uint32_t elements;
    } rows[] = {{"tf32=1 bias=same", 4},
                {"dtype=fp16 bias=same", 8},
                {"tf32=1 dim=30", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wa_problem p = problem_of(rows[i].problem);
        const wa_plan plan = plan_of(&p, device_named("H200"));
        assert_int_equal(plan.access_elements, rows[i].elements);
        assert_int_equal(plan.access_bytes, 16);
        assert_int_equal(strstr(plan.reason, "TF32") != NULL, p.allows_tf32);
    }
}

/* ---- Failures ---- */

/* A tier that did not build, or whose unit is wrong, is not taken again; one
 * that is demanded is the only one. */
static void failed_tiers_are_left(void **state)
{
    static const struct {
        const char *problem;
        winattn_tier failed, next;
    } rows[] = {
        {"bias=same", WINATTN_TIER_LOCAL, WINATTN_TIER_CPU},
        {BACK "bias=same", WINATTN_TIER_LOCAL, WINATTN_TIER_CPU},
        {"dtype=fp16 bias=same", WINATTN_TIER_MATRIX, WINATTN_TIER_LOCAL},
        {BACK "dtype=fp16 bias=same", WINATTN_TIER_MATRIX, WINATTN_TIER_LOCAL},
    };
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wa_problem p = problem_of(rows[i].problem);
        wa_exclusions without;
        char line[64];
        memset(&without, 0, sizeof without);
        strcpy(without.reason[rows[i].failed], "did not build");
        wa_plan plan = plan_after(&p, h200, pass_of(&p), &without);
        assert_int_equal(plan.tier, rows[i].next);
        assert_legal(&p, h200, &plan, rows[i].problem);
        snprintf(line, sizeof line, "tier %s not taken: did not build\n",
                 wa_tier_name(rows[i].failed));
        assert_described(&plan, line);
        p.tier = rows[i].failed;
        assert_status(wa_plan_make(&p, h200, pass_of(&p), &without, &plan),
                      WINATTN_UNSUPPORTED_PROBLEM, "did not build");
        p.tier = WINATTN_TIER_AUTO;
        for (int tier = WINATTN_TIER_CPU; tier < (int)rows[i].failed; tier++)
            strcpy(without.reason[tier], "neither");
        assert_status(wa_plan_make(&p, h200, pass_of(&p), &without, &plan),
                      WINATTN_UNSUPPORTED_DEVICE, "tier local: ");
    }
}

/* Half of the work-items, where their registers did not suffice. */
static void gradients_have_fewer_waves(void **state)
{
    (void)state;
    const wa_problem p = problem_of(BACK "dtype=fp16 bias=same windows=1000");
    const wa_device *h200 = device_named("H200");
    wa_exclusions learnt;
    memset(&learnt, 0, sizeof learnt);
    for (uint32_t most = 1024; most > 32; most /= 2) {
        learnt.most_items[WINATTN_TIER_MATRIX] = most;
        const wa_plan plan = plan_after(&p, h200, WA_BACKWARD, &learnt);
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_in_range(plan.step[WA_STEP_KEYS].work_group, 1, most);
        assert_legal(&p, h200, &plan, "fewer waves");
    }
}

/* ---- Devices ---- */

static void poor_devices(void **state)
{
    (void)state;
    static const wa_exclusions none;
    wa_plan plan;
    const wa_problem p = problem_of("");
    wa_device poor[3];
    for (int i = 0; i < 3; i++)
        poor[i] = *device_named("Mali-G78");
    poor[0].has_int64 = false;
    poor[1].compiles = false;
    poor[2].opencl = 101;
    static const char *const reasons[] = {"64-bit", "compiler", "below 1.2"};
    for (int i = 0; i < 3; i++)
        assert_status(wa_plan_make(&p, &poor[i], WA_FORWARD, &none, &plan),
                      WINATTN_UNSUPPORTED_DEVICE, reasons[i]);
    /* 1 KiB of local memory, the least of an embedded profile */
    wa_device device = *device_named("Mali-G78");
    device.local_bytes = device.local_capacity = 1024;
    plan = plan_of(&p, &device);
    assert_int_equal(plan.tier, WINATTN_TIER_CPU);
    assert_non_null(strstr(plan.refusals[WINATTN_TIER_LOCAL], "1024"));
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
            assert_status(status, WINATTN_UNSUPPORTED_PROBLEM,
                          "barriers in loops");
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(units_are_found),
    cmocka_unit_test(units_compute_problems),
    cmocka_unit_test(unproven_units_are_demanded),
    cmocka_unit_test(vectors_are_of_the_type),
    cmocka_unit_test(failed_tiers_are_left),
    cmocka_unit_test(gradients_have_fewer_waves),
    cmocka_unit_test(poor_devices),
    cmocka_unit_test(broken_barriers_leave_tier_cpu),
};
const test_group plan_tiers = TEST_GROUP(NULL, tests);
