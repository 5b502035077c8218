/* SPDX-License-Identifier: Apache-2.0
 * Matrix units: which devices have one that is taken, for which problems, and
 * what their lanes have room for. */
#include <string.h>

#include "family/matrix_tiling.h"
#include "kit/shapes.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

/* NVIDIA's from compute capability 8.0 on have one that was run, and AUTO
 * takes it for what it computes. */
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
    const wa_device *h200 = device_named("H200");
    const struct {
        const char *problem;
        winattn_tier tier;
    } choices[] = {
        {"dtype=fp16", WINATTN_TIER_MATRIX},
        {"dtype=bf16 variant=cosine bias=same", WINATTN_TIER_MATRIX},
        {"dtype=fp16 mask=regions mask_windows=2 dim=20", WINATTN_TIER_MATRIX},
        {"dtype=fp32", WINATTN_TIER_LOCAL},
        {"tf32=1", WINATTN_TIER_MATRIX},
        {"tf32=1 variant=sliding block=16", WINATTN_TIER_MATRIX},
        {"dtype=fp16 variant=sliding block=16", WINATTN_TIER_MATRIX},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const wa_problem p = problem_of(choices[i].problem);
        assert_int_equal(plan_of(&p, h200).tier, choices[i].tier);
    }
}

/* Nobody has seen it work: whoever wants it must say so. */
static void unproven_units_are_demanded(void **state)
{
    (void)state;
    wa_matrix_unit unit = *wa_matrix_unit_named("mma");
    wa_device device = *device_named("H200");
    unit.proven = false;
    device.matrix_unit = &unit;
    wa_problem p = problem_of("dtype=fp16");
    wa_plan plan = plan_of(&p, &device);
    assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
    assert_non_null(
        strstr(plan.refusals[WINATTN_TIER_MATRIX], "must be demanded"));
    p.tier = WINATTN_TIER_MATRIX;
    plan = plan_of(&p, &device);
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_legal(&p, &device, &plan, "unproven");
}

/* fp32 is rounded where the caller allows it, and where that gains time: in
 * the forward pass. */
static void tf32_is_allowed(void **state)
{
    (void)state;
    static const wa_exclusions none;
    const wa_device *h200 = device_named("H200");
    const wa_problem p = problem_of("tf32=1 bias=same pass=backward");
    const wa_problem half = problem_of("dtype=fp16 bias=same");
    const wa_problem odd = problem_of("tf32=1 dim=30");
    wa_plan backward;
    const wa_plan plan = plan_of(&p, h200);
    assert_true(
        has_define(plan.step[WA_STEP_FORWARD].defines, "DTYPE", WINATTN_FP32));
    assert_non_null(strstr(plan.reason, "TF32"));
    assert_int_equal(plan.access_elements, 4);
    assert_int_equal(plan.access_bytes, 16);
    assert_int_equal(plan_of(&half, h200).access_elements, 8);
    assert_int_equal(plan_of(&odd, h200).access_elements, 0);
    assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &none, &backward),
                     WINATTN_SUCCESS);
    assert_int_equal(backward.tier, WINATTN_TIER_LOCAL);

    /* the same shape: rows are twice as long */
    const wa_matrix_shape shape = {.block_rows = 16,
                                   .block_keys = 49,
                                   .waves_per_window = 1,
                                   .windows_per_group = 2,
                                   .stages = 2,
                                   .subtile_keys = 64,
                                   .bias_cache = 1};
    wa_plan narrow, wide;
    const wa_tuned_shape own = {.matrix_forward = shape};
    assert_true(plan_shape(WA_MATRIX_FORWARD, &half, h200, &own, &narrow));
    assert_true(plan_shape(WA_MATRIX_FORWARD, &p, h200, &own, &wide));
    assert_int_equal(wide.step[WA_STEP_FORWARD].local_bytes,
                     2 * narrow.step[WA_STEP_FORWARD].local_bytes);
}

/* NVIDIA's compute units deal waves to four parts, of which each has its own
 * registers; what a lane keeps must find room there. */
static void lanes_have_registers(void **state)
{
    (void)state;
    const wa_device *h200 = device_named("H200");
    const wa_problem half = problem_of("dtype=fp16 bias=same");
    const wa_problem tf32 = problem_of("tf32=1 bias=same queries=64");
    assert_int_equal(wa_matrix_most_sums(&half, h200, 16), 128 - 60);
    assert_int_equal(wa_matrix_most_sums(&half, h200, 13), 128 - 60);
    assert_int_equal(wa_matrix_most_sums(&half, h200, 12), 170 - 60);
    assert_int_equal(wa_matrix_most_sums(&half, h200, 4), 255 - 60);
    assert_int_equal(wa_matrix_most_sums(&tf32, h200, 16), 128 - 88);
    assert_int_equal(wa_matrix_most_sums(&tf32, h200, 24), 0);

    /* sums of a bias and a mask that find no room in local memory */
    const wa_problem large =
        problem_of("dtype=fp16 queries=256 bias=same mask=same "
                   "mask_windows=4 windows=64 heads=4");
    const wa_device *small = device_named("RTX 4090");
    const wa_plan plan = plan_of(&large, small);
    const wa_matrix_shape *s = &plan.shape.matrix;
    const uint32_t values = 16 * 16 / 32;
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_int_equal(s->bias_cache, 0);
    assert_true(
        3 * values * s->subtile_keys / 16 + 2 * values <=
        wa_matrix_most_sums(&large, small,
                            s->waves_per_window * s->windows_per_group));

    /* bias and mask of TF32 in registers, where 16 waves have none left */
    const wa_plan narrow = plan_of(&tf32, h200);
    s = &narrow.shape.matrix;
    assert_true(s->bias_cache != 2 ||
                s->waves_per_window * s->windows_per_group <= 12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(units_are_found),
    cmocka_unit_test(unproven_units_are_demanded),
    cmocka_unit_test(tf32_is_allowed),
    cmocka_unit_test(lanes_have_registers),
};
const test_group plan_matrix = TEST_GROUP(NULL, tests);
