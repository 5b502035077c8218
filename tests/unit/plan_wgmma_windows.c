/* SPDX-License-Identifier: Apache-2.0
 * Windows with wgmma: in which shapes, for which problems and on which devices
 * they are taken, and what a plan says where they are not. */
#include <string.h>

#include "plan/family.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

#define KERNEL "window_forward_wgmma"
#define FRAGMENTS "forward_matrix_mma"
#define V2 "variant=cosine dtype=fp16 windows=1024 heads=6 dim=32 bias=same "
#define MAPS                                                                  \
    "grid=2 batch=40 heads=6 dim=32 dtype=fp16 variant=cosine "               \
    "bias=table_same layout=packed "

static const char *kernel_of(const wa_plan *plan)
{
    return plan->step[WA_STEP_FORWARD].kernel;
}

static void hopper_takes_them(void **state)
{
    static const struct {
        const char *problem;
        uint32_t block_rows, block_keys, windows, stages;
    } taken[] = {
        {V2 "queries=256", 256, 64, 1, 7},
        {V2 "queries=256 dtype=bf16 variant=dot", 256, 64, 1, 7},
        {V2 "queries=256 bias=none", 256, 64, 1, 8},
        {V2 "queries=576 windows=256", 64, 48, 4, 4},
        {V2 "queries=576 windows=256 variant=dot", 64, 64, 4, 3},
        {V2 "queries=400", 64, 48, 4, 5},
        {V2 "queries=324", 112, 48, 2, 8},
        {V2 "queries=256 keys=300 heads=4 kv_heads=2", 128, 64, 2, 6},
        {V2 "queries=384", 128, 48, 2, 7},
        {V2 "queries=256 variant=dot dim=64", 128, 64, 2, 3},
        {V2 "queries=100 variant=dot", 100, 64, 2, 7},
        {V2 "queries=121 variant=dot", 121, 64, 2, 7},
        {V2 "queries=169", 169, 96, 1, 8},
        {V2 "queries=169 variant=dot", 169, 48, 2, 7},
        {V2 "queries=192 variant=dot", 192, 48, 2, 7},
        {V2 "queries=192", 192, 96, 1, 7},
        {V2 "queries=196", 196, 48, 1, 8},
        {V2 "queries=196 variant=dot", 196, 80, 1, 8},
        {V2 "queries=225 variant=dot dtype=bf16", 225, 80, 1, 6},
        {V2 "queries=392 variant=dot", 64, 80, 4, 3},
        {V2 "queries=196 variant=dot dim=64", 196, 48, 1, 5},
        {V2 "queries=169 variant=dot dim=64", 169, 64, 1, 5},
        {V2 "queries=121 variant=dot dim=64", 121, 64, 2, 3},
        {V2 "queries=256 mask=regions mask_windows=4", 256, 64, 1, 7},
        {MAPS "size=64x48 window=16x16 shift=8x8 mask=shift", 256, 64, 1, 7},
        {MAPS "size=64x48 window=16x16 shift=5x0 mask=shift variant=dot "
              "dtype=bf16",
         256, 64, 1, 7},
        {MAPS "size=48x48 window=24x24 variant=dot", 64, 64, 4, 3},
        {MAPS "size=60x60 window=15x15 variant=dot", 225, 80, 1, 6},
        {MAPS "size=40x40 window=20x20 variant=dot", 112, 80, 2, 5},
    };
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const wa_problem p = problem_of(taken[i].problem);
        const wa_plan plan = plan_of(&p, h200);
        const wa_step *step = &plan.step[WA_STEP_FORWARD];
        const wa_matrix_shape *shape = &plan.shape.matrix;
        if (strcmp(step->kernel, KERNEL) != 0)
            fail_msg("%s: %s", taken[i].problem,
                     plan.refusals[WA_ENGINE_SPECIAL]);
        if (step->block_rows != taken[i].block_rows ||
            step->block_keys != taken[i].block_keys ||
            shape->windows_per_group != taken[i].windows ||
            shape->stages != taken[i].stages)
            fail_msg("%s: %u:%u:%u:%u", taken[i].problem, step->block_rows,
                     step->block_keys, shape->windows_per_group,
                     shape->stages);
        assert_int_equal(define_of(step->defines, "STAGES"), shape->stages);
        assert_int_equal(define_of(step->defines, "WINDOWS_PER_GROUP"),
                         shape->windows_per_group);
        assert_int_equal(define_of(step->defines, "PERSISTENT_MULTI_BLOCK"),
                         plan.schedule.persistent_multi_block);
        assert_legal(&p, h200, &plan, taken[i].problem);
    }
}

static void what_they_do_not_compute_is_said(void **state)
{
    static const struct {
        const char *problem, *why;
    } refused[] = {
        {V2 "queries=256 dtype=fp32 tf32=1", "rounded"},
        {V2 "queries=256 mask=same mask_windows=4", "no masks but"},
        {V2 "queries=256 mask=regions mask_windows=4 bias=none",
         "without a bias"},
        {MAPS "size=64x63 window=16x16", "padding"},
        {MAPS "size=64x48 window=16x16 table=200x200", "more entries"},
        {MAPS "size=64x48 window=16x16 dim=64", "channels or axes"},
        {MAPS "grid=3 size=8x16x16 window=4x8x8", "channels or axes"},
        {MAPS "size=48x48 window=24x24", "fetched too slowly"},
        {V2 "queries=256 bias=fp32", "another type"},
        {V2 "queries=256 dim=48", "32 and 64"},
        {V2 "queries=144", "so few tokens"},
        {V2 "queries=112", "so few tokens"},
        {V2 "queries=96 variant=dot", "so few tokens"},
        {V2 "queries=256 keys=160", "so few tokens"},
        {MAPS "size=60x60 window=15x15", "so few tokens"},
        {MAPS "size=56x56 window=14x14 variant=dot", "so few tokens"},
        {V2 "queries=256 keys=577", "at most 576"},
    };
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const wa_problem p = problem_of(refused[i].problem);
        const wa_plan plan = plan_of(&p, h200);
        if (strcmp(kernel_of(&plan), KERNEL) == 0)
            fail_msg("%s: taken", refused[i].problem);
        if (!strstr(plan.refusals[WA_ENGINE_SPECIAL], refused[i].why))
            fail_msg("%s: refused for \"%s\", not \"%s\"", refused[i].problem,
                     plan.refusals[WA_ENGINE_SPECIAL], refused[i].why);
    }
}

/* Rows that are not 16 bytes apart. */
static void odd_strides_are_left_to_fragments(void **state)
{
    static const wa_tensor_id ids[] = {WA_Q, WA_K, WA_V, WA_O};
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        for (int axis = WA_WINDOW; axis <= WA_ROW; axis++) {
            wa_problem p = problem_of(V2 "queries=256");
            if (axis == WA_AXIS_0 || axis == WA_AXIS_1)
                continue;
            p.tensor[ids[i]].stride[axis] += 4;
            const wa_plan plan = plan_of(&p, h200);
            assert_string_equal(kernel_of(&plan), FRAGMENTS);
            assert_non_null(
                strstr(plan.refusals[WA_ENGINE_SPECIAL], "16 bytes"));
        }
}

static void others_have_none(void **state)
{
    const wa_problem p = problem_of(V2 "queries=256");
    wa_plan plan;
    (void)state;
    for (size_t i = 0; i < made_up_count; i++) {
        if (!plan_or_refusal(&p, &devices[i], &plan))
            continue;
        assert_int_equal(strcmp(kernel_of(&plan), KERNEL) == 0,
                         devices[i].compute_capability == 90);
        assert_int_equal(plan.refusals[WA_ENGINE_SPECIAL][0], 0);
    }
    wa_device device = *device_named("H200");
    device.compute_capability = 100;
    plan = plan_of(&p, &device);
    assert_string_equal(kernel_of(&plan), FRAGMENTS);
    device = *device_named("H200");
    device.local_bytes = 65536;
    plan = plan_of(&p, &device);
    assert_string_equal(kernel_of(&plan), FRAGMENTS);
    assert_non_null(strstr(plan.refusals[WA_ENGINE_SPECIAL], "local memory"));
    device = *device_named("H200");
    device.max_work_group = 639;
    plan = plan_of(&p, &device);
    assert_string_equal(kernel_of(&plan), FRAGMENTS);
    assert_non_null(strstr(plan.refusals[WA_ENGINE_SPECIAL], "work-groups"));
}

/* With less local memory, other shapes of which all fits. */
static void shapes_fit(void **state)
{
    const wa_problem p = problem_of(V2 "queries=400 windows=500");
    wa_device device = *device_named("H200");
    bool was_taken = false;
    (void)state;
    for (; device.local_bytes > 40000; device.local_bytes -= 5000) {
        const wa_plan plan = plan_of(&p, &device);
        assert_legal(&p, &device, &plan, "windows of 400 tokens");
        was_taken |= (plan.family->engine > WA_ENGINE_MATRIX);
    }
    assert_true(was_taken);
}

static void a_failure_leaves_them_to_fragments(void **state)
{
    const wa_problem p = problem_of(V2 "queries=256");
    const wa_exclusions failed = {.reason[WA_ENGINE_SPECIAL] =
                                      "it was serialized"};
    const wa_plan plan =
        plan_after(&p, device_named("H200"), WA_FORWARD, &failed);
    (void)state;
    assert_string_equal(kernel_of(&plan), FRAGMENTS);
    assert_false((plan.family->engine > WA_ENGINE_MATRIX));
    assert_described(&plan, "wgmma not used: it was serialized\n");
}

/* Another batch compiles nothing. */
static void batches_share_a_program(void **state)
{
    const wa_device *h200 = device_named("H200");
    const wa_problem few = problem_of(V2 "queries=256 windows=1");
    const wa_problem many = problem_of(V2 "queries=256 windows=4000");
    const wa_plan one = plan_of(&few, h200), other = plan_of(&many, h200);
    (void)state;
    assert_string_equal(kernel_of(&one), KERNEL);
    assert_string_equal(one.step[WA_STEP_FORWARD].defines,
                        other.step[WA_STEP_FORWARD].defines);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hopper_takes_them),
    cmocka_unit_test(what_they_do_not_compute_is_said),
    cmocka_unit_test(odd_strides_are_left_to_fragments),
    cmocka_unit_test(others_have_none),
    cmocka_unit_test(shapes_fit),
    cmocka_unit_test(a_failure_leaves_them_to_fragments),
    cmocka_unit_test(batches_share_a_program),
};
const test_group plan_wgmma_windows = TEST_GROUP(NULL, tests);
