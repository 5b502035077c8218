/* SPDX-License-Identifier: Apache-2.0
 * Kernels with wgmma: on which devices and for which problems they are taken,
 * and what a plan says where they are not. */
#include <string.h>

#include "plan/family.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

#define WINDOWED "variant=sliding block=256 window_blocks=4 queries=4096 "
#define KERNEL "sliding_forward_wgmma"
#define ROWS_KERNEL "sliding_rows_wgmma"
#define KEYS_KERNEL "sliding_keys_wgmma"

static const char *kernel_of(const wa_plan *plan)
{
    return plan->step[WA_STEP_FORWARD].kernel;
}

/* Kernels go with what the plan says of itself. */
static bool has_gradients(const wa_plan *plan)
{
    const char *rows = plan->step[WA_STEP_ROWS].kernel;
    const char *keys = plan->step[WA_STEP_KEYS].kernel;
    const bool of_rows = rows && strcmp(rows, ROWS_KERNEL) == 0;
    assert_int_equal(of_rows, (plan->family->engine > WA_ENGINE_MATRIX));
    assert_int_equal(strcmp(keys, KEYS_KERNEL) == 0,
                     (plan->family->engine > WA_ENGINE_MATRIX));
    return of_rows;
}

static void hopper_takes_them(void **state)
{
    static const struct {
        const char *problem;
        uint32_t block_rows, work_group;
    } taken[] = {
        {WINDOWED "dtype=fp16 dim=64", 256, 640},
        {WINDOWED "dtype=bf16 dim=16 sink=70", 256, 640},
        {WINDOWED "dtype=bf16 dim=128 heads=4 kv_heads=2", 192, 512},
        {WINDOWED "dtype=fp16 dim=80 layout=interleaved", 192, 512},
        {"variant=sliding block=7 queries=64 keys=9000 dtype=fp16 dim=48 "
         "query_offset=8000",
         256, 640},
        /* a step of a stream, which takes the program of the others */
        {"variant=sliding block=1 queries=1 keys=1 dtype=fp16 dim=64", 256,
         640},
    };
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const wa_problem p = problem_of(taken[i].problem);
        const wa_plan plan = plan_of(&p, h200);
        const wa_step *step = &plan.step[WA_STEP_FORWARD];
        assert_string_equal(step->kernel, KERNEL);
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_int_equal(step->block_rows, taken[i].block_rows);
        assert_int_equal(step->work_group, taken[i].work_group);
        assert_int_equal(plan.schedule.sharing_groups, h200->compute_units);
        assert_int_equal(plan.refusals[WA_ENGINE_SPECIAL][0], 0);
    }
}

static void what_they_do_not_compute_is_said(void **state)
{
    static const struct {
        const char *problem, *why;
    } refused[] = {
        {WINDOWED "dtype=fp16 dim=24", "multiples of 16"},
        {WINDOWED "dtype=fp16 dim=144", "multiples of 16"},
        {WINDOWED "dtype=fp32 dim=64", "rounded"},
    };
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const wa_problem p = problem_of(refused[i].problem);
        const wa_plan plan = plan_of(&p, h200);
        assert_string_not_equal(kernel_of(&plan), KERNEL);
        assert_non_null(
            strstr(plan.refusals[WA_ENGINE_SPECIAL], refused[i].why));
    }
    /* rows that are not 16 bytes apart, or whose elements are no neighbours */
    for (int axis = WA_HEAD; axis <= WA_COLUMN; axis++)
        for (wa_tensor_id id = WA_Q; id <= WA_V; id++) {
            wa_problem p = problem_of(WINDOWED "dtype=fp16 dim=64 heads=2");
            p.tensor[id].stride[axis] += axis == WA_COLUMN ? 1 : 4;
            if (axis == WA_AXIS_0 || axis == WA_AXIS_1)
                continue;
            const wa_plan plan = plan_of(&p, h200);
            assert_string_not_equal(kernel_of(&plan), KERNEL);
            assert_non_null(
                strstr(plan.refusals[WA_ENGINE_SPECIAL], "16 bytes"));
        }
}

static void others_have_none(void **state)
{
    const wa_problem p = problem_of(WINDOWED "dtype=fp16 dim=64");
    (void)state;
    for (size_t i = 0; i < made_up_count; i++) {
        wa_plan plan;
        if (!plan_or_refusal(&p, &devices[i], &plan))
            continue;
        assert_int_equal(strcmp(kernel_of(&plan), KERNEL) == 0,
                         devices[i].compute_capability == 90);
        assert_int_equal(plan.refusals[WA_ENGINE_SPECIAL][0], 0);
    }
    /* later ones have other instructions; too little room */
    wa_device device = *device_named("H200");
    device.compute_capability = 100;
    wa_plan plan = plan_of(&p, &device);
    assert_string_not_equal(kernel_of(&plan), KERNEL);
    device = *device_named("H200");
    device.local_bytes = 100000;
    plan = plan_of(&p, &device);
    assert_string_not_equal(kernel_of(&plan), KERNEL);
    assert_non_null(strstr(plan.refusals[WA_ENGINE_SPECIAL], "local memory"));
    device = *device_named("H200");
    device.max_work_group = 512;
    plan = plan_of(&p, &device);
    assert_string_not_equal(kernel_of(&plan), KERNEL);
    assert_non_null(strstr(plan.refusals[WA_ENGINE_SPECIAL], "work-groups"));
}

/* Only they are excluded, and the plan says why. */
static void a_failure_leaves_it_to_fragments(void **state)
{
    const wa_problem p = problem_of(WINDOWED "dtype=fp16 dim=64");
    const wa_exclusions failed = {.reason[WA_ENGINE_SPECIAL] =
                                      "it was serialized"};
    const wa_plan plan =
        plan_after(&p, device_named("H200"), WA_FORWARD, &failed);
    (void)state;
    assert_string_equal(kernel_of(&plan), "sliding_forward_matrix_mma");
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_false((plan.family->engine > WA_ENGINE_MATRIX));
    assert_described(&plan, "wgmma not used: it was serialized\n");
}

/* Caches of keys grow, and calls have other numbers of heads, without another
 * program. */
static void numbers_of_tokens_compile_nothing(void **state)
{
    const wa_device *h200 = device_named("H200");
    const wa_problem first = problem_of(WINDOWED "dtype=fp16 dim=64");
    const wa_plan one = plan_of(&first, h200);
    const wa_problem second = problem_of(
        "variant=sliding block=31 sink=5 queries=200 keys=70000 windows=3 "
        "heads=5 dtype=fp16 dim=64 query_offset=69000");
    const wa_plan other = plan_of(&second, h200);
    (void)state;
    assert_string_equal(kernel_of(&other), KERNEL);
    assert_string_equal(one.step[WA_STEP_FORWARD].defines,
                        other.step[WA_STEP_FORWARD].defines);
}

/* ---- The backward pass ---- */

#define GRADIENTS "pass=backward " WINDOWED

static void gradients_are_taken(void **state)
{
    static const struct {
        const char *problem;
        uint32_t rows_stages, keys_stages;
    } taken[] = {
        {GRADIENTS "dtype=fp16 dim=64", 6, 6},
        {GRADIENTS "dtype=bf16 dim=16 sink=70", 6, 6},
        {GRADIENTS "dtype=bf16 dim=128 heads=4 kv_heads=2", 3, 2},
        {GRADIENTS "dtype=fp16 dim=80 layout=interleaved windows=70", 3, 2},
        {"pass=backward variant=sliding block=7 queries=64 keys=9000 "
         "dtype=fp16 dim=48 "
         "query_offset=8000",
         6, 6},
        {"pass=backward variant=sliding block=7 queries=64 keys=64 dtype=bf16 "
         "dim=32",
         6, 6},
    };
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const wa_problem p = problem_of(taken[i].problem);
        const wa_plan plan = backward_plan_of(&p, h200);
        assert_true(has_gradients(&plan));
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_int_equal(define_of(plan.step[WA_STEP_ROWS].defines, "STAGES"),
                         taken[i].rows_stages);
        assert_int_equal(define_of(plan.step[WA_STEP_KEYS].defines, "STAGES"),
                         taken[i].keys_stages);
        assert_legal_backward(&p, h200, &plan, taken[i].problem);
    }
}

static void gradients_that_are_not_computed(void **state)
{
    static const struct {
        const char *problem, *why;
    } refused[] = {
        {GRADIENTS "dtype=fp16 dim=24", "multiples of 16"},
        {GRADIENTS "dtype=fp16 dim=144", "multiples of 16"},
        {GRADIENTS "dtype=fp32 dim=64", "rounded"},
    };
    static const wa_tensor_id ids[] = {WA_Q,   WA_K,  WA_V,  WA_O,
                                       WA_D_O, WA_DQ, WA_DK, WA_DV};
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const wa_problem p = problem_of(refused[i].problem);
        assert_gradients_refused(&p, h200, refused[i].why);
    }
    /* as forward, of all that is read or written */
    assert_odd_strides_refused(GRADIENTS "dtype=fp16 dim=64 heads=2", ids,
                               sizeof ids / sizeof *ids);
}

static void others_have_no_gradients(void **state)
{
    const wa_problem p = problem_of(GRADIENTS "dtype=fp16 dim=64");
    const wa_problem wide = problem_of(GRADIENTS "dtype=fp16 dim=128");
    const wa_exclusions none = {.reason[WA_ENGINE_SPECIAL] = ""};
    (void)state;
    for (size_t i = 0; i < made_up_count; i++) {
        wa_plan plan;
        if (wa_plan_make(&p, &devices[i], WA_BACKWARD, &none, &plan) !=
            WINATTN_SUCCESS)
            continue;
        assert_int_equal(has_gradients(&plan),
                         devices[i].compute_capability == 90);
        assert_int_equal(plan.refusals[WA_ENGINE_SPECIAL][0], 0);
    }
    wa_device device = *device_named("H200");
    device.compute_capability = 100;
    assert_gradients_refused(&p, &device, "");
    /* what the kernel that takes the most has, and a byte less */
    device = *device_named("H200");
    for (int i = 0; i < 2; i++) {
        const wa_problem *of = i ? &wide : &p;
        const wa_plan plan = backward_plan_of(of, device_named("H200"));
        const uint32_t rows = plan.step[WA_STEP_ROWS].local_bytes;
        const uint32_t keys = plan.step[WA_STEP_KEYS].local_bytes;
        device.local_bytes = rows > keys ? rows : keys;
        const wa_plan fits = backward_plan_of(of, &device);
        assert_true(has_gradients(&fits));
        assert_legal_backward(of, &device, &fits, "all of local memory");
        device.local_bytes--;
        assert_gradients_refused(of, &device, "local memory");
    }
    device = *device_named("H200");
    device.max_work_group = 383;
    assert_gradients_refused(&p, &device, "work-groups");
}

static void failed_gradients_are_left_to_fragments(void **state)
{
    const wa_problem p = problem_of(GRADIENTS "dtype=fp16 dim=64");
    const wa_exclusions failed = {.reason[WA_ENGINE_SPECIAL] =
                                      "it was serialized"};
    const wa_plan plan =
        plan_after(&p, device_named("H200"), WA_BACKWARD, &failed);
    (void)state;
    assert_false(has_gradients(&plan));
    assert_string_equal(plan.step[WA_STEP_KEYS].kernel,
                        "sliding_keys_matrix_mma");
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_legal_backward(&p, device_named("H200"), &plan, "fragments");
    assert_described(&plan, "wgmma not used: it was serialized\n");
}

/* All programs of a plan agree on whether there are tensor maps; where there
 * are, others do without. */
static void assert_maps(const wa_plan *plan, bool has_maps)
{
    assert_true(has_gradients(plan));
    assert_int_equal(plan->family->engine == WA_ENGINE_MORE_SPECIAL, has_maps);
    for (int i = WA_STEP_GIVEN; i <= WA_STEP_KEYS; i++)
        assert_int_equal(define_of(plan->step[i].defines, "TENSOR_MAPS"),
                         has_maps);
    for (int i = WA_STEP_ROWS; i <= WA_STEP_KEYS; i++) {
        const wa_step *maps = &plan->step[i];
        const wa_step *copies =
            &plan->step[i == WA_STEP_ROWS ? WA_STEP_UNALIGNED_ROWS
                                          : WA_STEP_UNALIGNED_KEYS];
        assert_int_equal(copies->kernel != NULL, has_maps);
        if (!has_maps)
            continue;
        assert_string_equal(copies->kernel, maps->kernel);
        assert_int_equal(copies->work_group, maps->work_group);
        assert_int_equal(copies->local_bytes, maps->local_bytes);
        assert_int_equal(copies->block_rows, maps->block_rows);
        assert_int_equal(copies->block_keys, maps->block_keys);
        assert_int_equal(define_of(copies->defines, "TENSOR_MAPS"), 0);
    }
}

static void maps_are_taken_where_they_hold_strides(void **state)
{
    static const wa_tensor_id ids[] = {WA_Q, WA_K, WA_V, WA_D_O};
    const wa_device *h200 = device_named("H200");
    const uint64_t most = (uint64_t)UINT32_MAX * 8; /* elements */
    (void)state;
    for (size_t i = 0; i < 2 * sizeof ids / sizeof *ids; i++) {
        wa_problem p = problem_of(GRADIENTS "dtype=fp16 dim=64 heads=2");
        uint64_t *stride =
            &p.tensor[ids[i / 2]].stride[i % 2 ? WA_HEAD : WA_WINDOW];
        *stride = most;
        wa_plan plan = backward_plan_of(&p, h200);
        assert_maps(&plan, true);
        *stride += 8;
        plan = backward_plan_of(&p, h200);
        assert_maps(&plan, false);
    }
}

static void failed_maps_are_left_to_copies(void **state)
{
    const wa_problem p = problem_of(GRADIENTS "dtype=fp16 dim=64");
    const wa_exclusions failed = {.reason[WA_ENGINE_MORE_SPECIAL] =
                                      "it was wrong"};
    const wa_plan plan =
        plan_after(&p, device_named("H200"), WA_BACKWARD, &failed);
    (void)state;
    assert_maps(&plan, false);
    assert_legal_backward(&p, device_named("H200"), &plan, "copies");
    assert_described(&plan, "backward tensor maps not used: it was wrong\n");
}

static void numbers_of_tokens_compile_no_gradients(void **state)
{
    const wa_device *h200 = device_named("H200");
    const wa_problem first = problem_of(GRADIENTS "dtype=fp16 dim=64");
    const wa_plan one = backward_plan_of(&first, h200);
    const wa_problem second =
        problem_of("pass=backward variant=sliding block=31 sink=5 queries=200 "
                   "keys=70000 windows=3 "
                   "heads=5 dtype=fp16 dim=64 query_offset=69000");
    const wa_plan other = backward_plan_of(&second, h200);
    (void)state;
    assert_true(has_gradients(&other));
    for (int i = WA_STEP_STATISTICS; i <= WA_STEP_KEYS; i++) {
        assert_string_equal(one.step[i].kernel, other.step[i].kernel);
        assert_string_equal(one.step[i].defines, other.step[i].defines);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hopper_takes_them),
    cmocka_unit_test(what_they_do_not_compute_is_said),
    cmocka_unit_test(others_have_none),
    cmocka_unit_test(a_failure_leaves_it_to_fragments),
    cmocka_unit_test(numbers_of_tokens_compile_nothing),
    cmocka_unit_test(gradients_are_taken),
    cmocka_unit_test(gradients_that_are_not_computed),
    cmocka_unit_test(others_have_no_gradients),
    cmocka_unit_test(failed_gradients_are_left_to_fragments),
    cmocka_unit_test(maps_are_taken_where_they_hold_strides),
    cmocka_unit_test(failed_maps_are_left_to_copies),
    cmocka_unit_test(numbers_of_tokens_compile_no_gradients),
};
const test_group plan_wgmma = TEST_GROUP(NULL, tests);
