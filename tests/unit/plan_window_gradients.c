/* SPDX-License-Identifier: Apache-2.0
 * Gradients of windows by wgmma: for which problems and devices they are
 * taken, and what a plan says where they are not. */
#include <string.h>

#include "plan/family.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

#define WINDOWS "pass=backward windows=900 heads=6 dim=32 "
#define MAPS "pass=backward grid=2 batch=40 heads=6 dim=32 "

static bool has_wgmma(const wa_plan *plan)
{
    const char *first = plan->step[WA_STEP_ROWS].kernel;
    if (!first) /* one kernel makes all */
        first = plan->step[WA_STEP_KEYS].kernel;
    const bool has = strcmp(first, "window_rows_wgmma") == 0 ||
                     strcmp(first, "window_gradients_wgmma") == 0;
    assert_int_equal(has, (plan->family->engine > WA_ENGINE_MATRIX));
    return has;
}

/* Of a problem that an H200 takes. */
static wa_plan plan_taken(const wa_problem *p, const char *what)
{
    const wa_device *h200 = device_named("H200");
    const wa_plan plan = backward_plan_of(p, h200);
    if (!has_wgmma(&plan))
        fail_msg("%s: %s", what, plan.refusals[WA_ENGINE_SPECIAL]);
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_legal_backward(p, h200, &plan, what);
    return plan;
}

static void hopper_takes_them(void **state)
{
    static const char *const taken[] = {
        WINDOWS "dtype=fp16 queries=256 variant=cosine bias=same",
        WINDOWS "dtype=bf16 queries=256 bias=same",
        WINDOWS "dtype=bf16 queries=193 bias=same layout=tokens",
        WINDOWS "dtype=fp16 queries=256 keys=177 bias=same",
        WINDOWS "dtype=fp16 queries=256 variant=cosine bias=same "
                "mask=regions mask_windows=3",
        WINDOWS "dtype=bf16 queries=250 keys=256 bias=same mask=regions "
                "mask_windows=5",
        WINDOWS "dtype=fp16 queries=256 bias=table_same table=16x16",
        MAPS "size=64x48 window=16x16 dtype=fp16 bias=same",
        MAPS "size=64x48 window=16x16 shift=8x8 mask=shift dtype=bf16 "
             "variant=cosine bias=table_same layout=packed",
        MAPS "size=60x30 window=15x15 dtype=fp16 bias=same",
        "pass=backward windows=1 heads=1 dim=32 dtype=fp16 queries=250 "
        "bias=same",
    };
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const wa_problem p = problem_of(taken[i]);
        const wa_plan plan = plan_taken(&p, taken[i]);
        const wa_step *rows = &plan.step[WA_STEP_ROWS];
        const wa_step *keys = &plan.step[WA_STEP_KEYS];
        /* the fewer the keys, the more of them fit beside the bias */
        assert_int_equal(define_of(rows->defines, "STAGES"),
                         p.keys <= 192 ? 4 : 3);
        assert_int_equal(define_of(keys->defines, "STAGES"), 3);
    }
}

static void windows_of_144_tokens_have_one_kernel(void **state)
{
    static const char *const taken[] = {
        WINDOWS "dtype=fp16 queries=144 bias=same",
        WINDOWS "dtype=bf16 queries=144 bias=same layout=tokens mask=regions "
                "mask_windows=5",
        WINDOWS "dtype=fp16 queries=144 bias=table_same table=12x12",
        MAPS "size=36x48 window=12x12 shift=6x6 mask=shift dtype=bf16 "
             "bias=table_same layout=packed",
        "pass=backward windows=1 heads=1 dim=32 dtype=fp16 queries=144 "
        "bias=same",
        "pass=backward windows=70 heads=200 dim=32 dtype=fp16 queries=144 "
        "bias=same",
    };
    const uint32_t units = device_named("H200")->compute_units;
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const wa_problem p = problem_of(taken[i]);
        const wa_plan plan = plan_taken(&p, taken[i]);
        const wa_step *all = &plan.step[WA_STEP_KEYS];
        assert_true(plan.fused);
        assert_int_equal(define_of(all->defines, "STAGES"), 2);
        /* all start at once, unless there are too many heads */
        assert_true((uint64_t)plan.schedule.splits * p.heads <=
                    (p.heads > units ? p.heads : units));
    }
}

static void what_they_do_not_compute_is_said(void **state)
{
    static const struct {
        const char *problem, *why;
    } refused[] = {
        {WINDOWS "dtype=fp32 queries=256", "rounded"},
        {WINDOWS "dtype=fp16 queries=256 bias=same dim=64", "32 channels"},
        {WINDOWS "dtype=fp16 queries=176 bias=same", "144, or 177"},
        {WINDOWS "dtype=bf16 queries=192 bias=same", "bf16: 193"},
        {MAPS "size=56x28 window=14x14 dtype=fp16 bias=same", "maps: 209"},
        {WINDOWS "dtype=fp16 queries=144 keys=128 bias=same", "144"},
        {WINDOWS "dtype=fp16 queries=128 keys=144 bias=same", "144"},
        {WINDOWS "dtype=fp16 queries=144 bias=same variant=cosine", "cosine"},
        {WINDOWS "dtype=fp16 queries=256 keys=176 bias=same", "209) to 256"},
        {WINDOWS "dtype=fp16 queries=256 keys=257 bias=same", "209) to 256"},
        {WINDOWS "dtype=fp16 queries=257 keys=256 bias=same", "209) to 256"},
        {WINDOWS "dtype=fp16 queries=256", "without a bias"},
        {WINDOWS "dtype=fp16 queries=256 mask=same mask_windows=3", "masks"},
        {WINDOWS "dtype=fp16 queries=256 bias=same kv_heads=2", "share keys"},
        {WINDOWS "dtype=fp16 queries=256 bias=fp32", "another type"},
        {WINDOWS "dtype=fp16 queries=256 bias=table_fp32 table=16x16",
         "another type"},
        {MAPS "size=64x47 window=16x16 dtype=fp16 bias=same", "padding"},
        {MAPS "size=64x48 window=16x16 dtype=fp16 bias=table_same "
              "table=200x200",
         "more entries"},
        {MAPS "size=64x48 window=16x8 dtype=fp16 bias=same", "209) to 256"},
    };
    static const wa_tensor_id ids[] = {WA_Q,  WA_K,  WA_V, WA_D_O,
                                       WA_DQ, WA_DK, WA_DV};
    const wa_device *h200 = device_named("H200");
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const wa_problem p = problem_of(refused[i].problem);
        assert_gradients_refused(&p, h200, refused[i].why);
    }
    assert_odd_strides_refused(WINDOWS "dtype=fp16 queries=256 bias=same", ids,
                               sizeof ids / sizeof *ids);
}

static void others_have_none(void **state)
{
    const wa_problem p =
        problem_of(WINDOWS "dtype=fp16 queries=256 bias=same");
    const wa_exclusions none = {.reason[WA_ENGINE_SPECIAL] = ""};
    (void)state;
    for (size_t i = 0; i < made_up_count; i++) {
        wa_plan plan;
        if (wa_plan_make(&p, &devices[i], WA_BACKWARD, &none, &plan) !=
            WINATTN_SUCCESS)
            continue;
        assert_int_equal(has_wgmma(&plan),
                         devices[i].compute_capability == 90);
        assert_int_equal(plan.refusals[WA_ENGINE_SPECIAL][0], 0);
    }
    wa_device device = *device_named("H200");
    device.compute_capability = 100;
    assert_gradients_refused(&p, &device, "");
    /* fewer stages, down to two, and then none */
    device = *device_named("H200");
    for (uint32_t stages = 3; stages > 1; stages--) {
        const wa_plan plan = backward_plan_of(&p, &device);
        const wa_step *rows = &plan.step[WA_STEP_ROWS];
        const wa_step *keys = &plan.step[WA_STEP_KEYS];
        assert_true(has_wgmma(&plan));
        assert_int_equal(define_of(rows->defines, "STAGES"), stages);
        assert_int_equal(define_of(keys->defines, "STAGES"), stages);
        assert_legal_backward(&p, &device, &plan, "less local memory");
        device.local_bytes =
            (rows->local_bytes < keys->local_bytes ? rows->local_bytes
                                                   : keys->local_bytes) -
            1;
    }
    assert_gradients_refused(&p, &device, "local memory");
    device = *device_named("H200");
    device.max_work_group = 383;
    assert_gradients_refused(&p, &device, "work-groups");
    const wa_problem whole =
        problem_of(WINDOWS "dtype=fp16 queries=144 bias=same");
    device.max_work_group = 511;
    assert_gradients_refused(&whole, &device, "work-groups");
    device = *device_named("H200");
    device.local_bytes = 200u << 10;
    assert_gradients_refused(&whole, &device, "local memory");
}

/* Only they are excluded, and the plan says why. */
static void a_failure_leaves_them_to_fragments(void **state)
{
    const wa_problem p =
        problem_of(WINDOWS "dtype=fp16 queries=256 bias=same");
    const wa_exclusions failed = {.reason[WA_ENGINE_SPECIAL] =
                                      "it was serialized"};
    const wa_plan plan =
        plan_after(&p, device_named("H200"), WA_BACKWARD, &failed);
    (void)state;
    assert_false(has_wgmma(&plan));
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_legal_backward(&p, device_named("H200"), &plan, "fragments");
    assert_described(&plan, "wgmma not used: it was serialized\n");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hopper_takes_them),
    cmocka_unit_test(windows_of_144_tokens_have_one_kernel),
    cmocka_unit_test(what_they_do_not_compute_is_said),
    cmocka_unit_test(others_have_none),
    cmocka_unit_test(a_failure_leaves_them_to_fragments),
};
const test_group plan_window_gradients = TEST_GROUP(NULL, tests);
