/* SPDX-License-Identifier: Apache-2.0
 * Plans do not depend on what must not compile anew. */
#include <stdio.h>

#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

/* A cache of keys as it grows: no step of a pass has other options. */
static void assert_cache_may_grow(const wa_device *device, wa_pass pass,
                                  const char *type)
{
    static const wa_exclusions none;
    static const char *const caches[] = {
        "block=16 queries=16 keys=32 query_offset=16",
        "block=16 queries=1 keys=1",
        "block=16 queries=63 keys=63 query_offset=700",
        "block=16 queries=64 keys=64",
        "block=500 queries=1000 keys=9000 query_offset=8000 window_blocks=3 "
        "sink=4"};
    wa_plan first;
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        char text[160];
        snprintf(text, sizeof text, "variant=sliding %s %s", type, caches[i]);
        const wa_problem p = problem_of(text);
        wa_plan plan;
        assert_int_equal(wa_plan_make(&p, device, pass, &none, &plan),
                         WINATTN_SUCCESS);
        if (i == 0)
            first = plan;
        for (int k = 0; k < WA_STEPS; k++) {
            assert_string_equal(plan.step[k].defines, first.step[k].defines);
            if (first.step[k].kernel)
                assert_string_equal(plan.step[k].kernel, first.step[k].kernel);
            else
                assert_null(plan.step[k].kernel);
        }
    }
}

static void caches_may_grow(void **state)
{
    static const char *const types[] = {
        "dtype=fp32 dim=32", "dtype=fp16 dim=16",  "dtype=fp16 dim=64",
        "dtype=bf16 dim=80", "dtype=bf16 dim=128", "dtype=fp16 dim=200"};
    (void)state;
    for (size_t i = 0; i < made_up_count; i++) {
        /* the number of rounds of a loop may not grow */
        if (devices[i].loop_limit)
            continue;
        for (size_t j = 0; j < sizeof types / sizeof *types; j++)
            for (int pass = WA_FORWARD; pass <= WA_BACKWARD; pass++)
                assert_cache_may_grow(&devices[i], (wa_pass)pass, types[j]);
    }
}

/* Another batch, another view of the same tensors, another scale: nothing
 * compiles. */
static void same_program(void **state)
{
    (void)state;
    static const char *const changes[] = {
        "windows=1",      "windows=100000",  "scale=-3",
        "mask_windows=7", "region_value=-5", "layout=packed",
    };
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        const wa_problem p =
            problem_of("bias=fp32 mask=regions mask_windows=3");
        const wa_plan plan = plan_of(&p, device);
        for (size_t j = 0; j < sizeof changes / sizeof *changes; j++) {
            char text[128];
            snprintf(text, sizeof text,
                     "bias=fp32 mask=regions mask_windows=3 %s", changes[j]);
            const wa_problem other = problem_of(text);
            assert_string_equal(
                plan_of(&other, device).step[WA_STEP_FORWARD].defines,
                plan.step[WA_STEP_FORWARD].defines);
        }
        const wa_problem more_keys =
            problem_of("keys=50 bias=fp32 mask=regions mask_windows=3");
        assert_string_not_equal(
            plan_of(&more_keys, device).step[WA_STEP_FORWARD].defines,
            plan.step[WA_STEP_FORWARD].defines);
    }
}

/* Another image, shift, batch or view: nothing compiles, in either pass. */
static void same_grid_program(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const char *const changes[] = {
        "batch=9",
        "size=33x9",
        "shift=0x5",
        "pads=0",
        "region_value=-5",
        "layout=packed",
        "periodic=0x1 size=33x14",
    };
    static const char base[] =
        "grid=2 size=30x45 window=7x7 shift=3x3 "
        "mask=shift pads=3 bias=table_fp32 pass=backward";
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        const wa_problem p = problem_of(base);
        const wa_plan plan = plan_of(&p, device);
        wa_plan backward, other_backward;
        const bool has_backward = wa_plan_make(&p, device, WA_BACKWARD, &none,
                                               &backward) == WINATTN_SUCCESS;
        assert_int_equal(has_backward, device->loop_limit == 0);
        if (has_backward)
            assert_legal_backward(&p, device, &backward, base);
        assert_legal(&p, device, &plan, base);
        for (size_t j = 0; j < sizeof changes / sizeof *changes; j++) {
            char text[256];
            snprintf(text, sizeof text, "%s %s", base, changes[j]);
            const wa_problem other = problem_of(text);
            assert_string_equal(
                plan_of(&other, device).step[WA_STEP_FORWARD].defines,
                plan.step[WA_STEP_FORWARD].defines);
            if (!has_backward)
                continue;
            assert_int_equal(wa_plan_make(&other, device, WA_BACKWARD, &none,
                                          &other_backward),
                             WINATTN_SUCCESS);
            for (int k = 0; k < WA_STEPS; k++)
                assert_string_equal(other_backward.step[k].defines,
                                    backward.step[k].defines);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(caches_may_grow),
    cmocka_unit_test(same_program),
    cmocka_unit_test(same_grid_program),
};
const test_group plan_purity = TEST_GROUP(NULL, tests);
