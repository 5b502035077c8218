/* SPDX-License-Identifier: Apache-2.0
 * Kernels with wgmma: on which devices they are taken, and what a plan says
 * where they are not. What is taken stands in the table of plan_choices.c. */
#include <string.h>

#include "plan/family.h"
#include "plan_groups.h"
#include "plan_made.h"

/* Of a sliding problem, of windows, and of windows on a map. */
#define SLIDES "variant=sliding block=256 window_blocks=4 queries=4096 "
#define V2 "variant=cosine dtype=fp16 windows=1024 heads=6 dim=32 bias=same "
#define MAPS                                                                  \
    "grid=2 batch=40 heads=6 dim=32 dtype=fp16 variant=cosine "               \
    "bias=table_same layout=packed "
#define BACK "pass=backward "
#define WINDOWS BACK "windows=900 heads=6 dim=32 "
#define BACK_MAPS BACK "grid=2 batch=40 heads=6 dim=32 "

/* Has it these kernels? They go with what it says of itself. */
static bool has_wgmma(const wa_plan *plan)
{
    bool has = false;
    for (int i = WA_STEP_FORWARD; i <= WA_STEP_KEYS; i++)
        has |= plan->step[i].kernel && strstr(plan->step[i].kernel, "wgmma");
    assert_int_equal(has, plan->family->engine > WA_ENGINE_MATRIX);
    return has;
}

/* ---- What is not ---- */

/* No kernel has wgmma, and the plan says a reason that holds `why`. */
static void assert_refused(const wa_problem *p, const wa_device *device,
                           const char *why)
{
    const wa_plan plan = plan_of(p, device);
    if (has_wgmma(&plan))
        fail_msg("%s, not refused for \"%s\"", device->name, why);
    if (!strstr(plan.refusals[WA_ENGINE_SPECIAL], why))
        fail_msg("refused for \"%s\", not \"%s\"",
                 plan.refusals[WA_ENGINE_SPECIAL], why);
    assert_legal(p, device, &plan, why);
}

static void what_they_do_not_compute_is_said(void **state)
{
    static const struct {
        const char *problem, *why;
    } refused[] = {
        {SLIDES "dtype=fp16 dim=24", "multiples of 16"},
        {SLIDES "dtype=fp16 dim=144", "multiples of 16"},
        {SLIDES "dtype=fp32 dim=64", "rounded"},
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
        {BACK SLIDES "dtype=fp16 dim=24", "multiples of 16"},
        {BACK SLIDES "dtype=fp16 dim=144", "multiples of 16"},
        {BACK SLIDES "dtype=fp32 dim=64", "rounded"},
        {WINDOWS "dtype=fp32 queries=256", "rounded"},
        {WINDOWS "dtype=fp16 queries=256 bias=same dim=64", "32 channels"},
        {WINDOWS "dtype=fp16 queries=176 bias=same", "144, or 177"},
        {WINDOWS "dtype=bf16 queries=192 bias=same", "bf16: 193"},
        {BACK_MAPS "size=56x28 window=14x14 dtype=fp16 bias=same",
         "maps: 209"},
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
        {BACK_MAPS "size=64x47 window=16x16 dtype=fp16 bias=same", "padding"},
        {BACK_MAPS "size=64x48 window=16x16 dtype=fp16 bias=table_same "
                   "table=200x200",
         "more entries"},
        {BACK_MAPS "size=64x48 window=16x8 dtype=fp16 bias=same",
         "209) to 256"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const wa_problem p = problem_of(refused[i].problem);
        assert_refused(&p, device_named("H200"), refused[i].why);
    }
}

/* One problem of each family, and what it leaves to fragments. */
static const char *const families[] = {
    SLIDES "dtype=fp16 dim=64 heads=2",
    V2 "queries=256",
    BACK SLIDES "dtype=fp16 dim=64 heads=2",
    WINDOWS "dtype=fp16 queries=256 bias=same",
    WINDOWS "dtype=fp16 queries=144 bias=same",
};
#define FAMILIES (sizeof families / sizeof *families)

/* Rows that are not 16 bytes apart, or whose elements are no neighbours. */
static void odd_strides_are_left_to_fragments(void **state)
{
    static const wa_tensor_id ids[] = {WA_Q,   WA_K,  WA_V,  WA_O,
                                       WA_D_O, WA_DQ, WA_DK, WA_DV};
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        const wa_problem even = problem_of(families[f]);
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
            for (int axis = WA_HEAD; axis <= WA_COLUMN; axis++) {
                wa_problem p = even;
                if (!p.tensor[ids[i]].used || axis == WA_AXIS_0 ||
                    axis == WA_AXIS_1)
                    continue;
                p.tensor[ids[i]].stride[axis] += axis == WA_COLUMN ? 1 : 4;
                assert_refused(&p, device_named("H200"), "16 bytes");
            }
    }
}

/* Work-items of a work-group of the kernel that has most. */
static uint32_t most_items(const wa_problem *p)
{
    const wa_plan plan = plan_of(p, device_named("H200"));
    uint32_t most = 0;
    for (int i = WA_STEP_FORWARD; i <= WA_STEP_KEYS; i++)
        if (plan.step[i].kernel && plan.step[i].work_group > most)
            most = plan.step[i].work_group;
    return most;
}

static void other_devices_have_none(void **state)
{
    static const wa_exclusions none;
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        const wa_problem p = problem_of(families[f]);
        for (size_t i = 0; i < made_up_count; i++) {
            wa_plan plan;
            if (wa_plan_make(&p, &devices[i], pass_of(&p), &none, &plan) !=
                WINATTN_SUCCESS)
                continue;
            assert_int_equal(has_wgmma(&plan),
                             devices[i].compute_capability == 90);
            assert_int_equal(plan.refusals[WA_ENGINE_SPECIAL][0], 0);
        }
        /* later ones have other instructions; too little room */
        wa_device device = *device_named("H200");
        device.compute_capability = 100;
        assert_refused(&p, &device, "");
        device = *device_named("H200");
        device.local_bytes = 65536;
        assert_refused(&p, &device, "local memory");
        device = *device_named("H200");
        device.max_work_group = most_items(&p) - 1;
        assert_refused(&p, &device, "work-groups");
    }
}

/* With less local memory, other shapes of which all fits, or none; with what
 * the largest kernel has, the same. */
static void shapes_fit(void **state)
{
    static const char *const problems[] = {
        V2 "queries=400 windows=500", BACK SLIDES "dtype=fp16 dim=64",
        BACK SLIDES "dtype=fp16 dim=128",
        WINDOWS "dtype=fp16 queries=256 bias=same",
        WINDOWS "dtype=fp16 queries=144 bias=same"};
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const wa_problem p = problem_of(problems[i]);
        wa_device device = *device_named("H200");
        int taken = 0;
        while (device.local_bytes > 40000) {
            const wa_plan plan = plan_of(&p, &device);
            uint32_t most = 0;
            assert_legal(&p, &device, &plan, problems[i]);
            for (int s = WA_STEP_FORWARD; s <= WA_STEP_KEYS; s++)
                if (plan.step[s].local_bytes > most)
                    most = plan.step[s].local_bytes;
            if (!has_wgmma(&plan))
                break;
            taken++;
            device.local_bytes = most < device.local_bytes ? most : most - 1;
        }
        assert_true(taken > 1); /* at first, and with that much */
        assert_true(device.local_bytes > 40000);
    }
}

/* ---- After a failure ---- */

/* Only they are excluded, and the plan says why. */
static void a_failure_leaves_it_to_fragments(void **state)
{
    const wa_exclusions failed = {.reason[WA_ENGINE_SPECIAL] =
                                      "it was serialized"};
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        const wa_problem p = problem_of(families[f]);
        const wa_plan plan =
            plan_after(&p, device_named("H200"), pass_of(&p), &failed);
        assert_false(has_wgmma(&plan));
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_legal(&p, device_named("H200"), &plan, "fragments");
        assert_described(&plan, "wgmma not used: it was serialized\n");
    }
}

/* All programs of a plan agree on whether there are tensor maps; where there
 * are, others do without. */
static void assert_maps(const wa_plan *plan, bool has_maps)
{
    assert_true(has_wgmma(plan));
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
        wa_problem p = problem_of(BACK SLIDES "dtype=fp16 dim=64 heads=2");
        uint64_t *stride =
            &p.tensor[ids[i / 2]].stride[i % 2 ? WA_HEAD : WA_WINDOW];
        *stride = most;
        wa_plan plan = plan_of(&p, h200);
        assert_maps(&plan, true);
        *stride += 8;
        plan = plan_of(&p, h200);
        assert_maps(&plan, false);
    }
}

static void failed_maps_are_left_to_copies(void **state)
{
    const wa_problem p = problem_of(BACK SLIDES "dtype=fp16 dim=64");
    const wa_exclusions failed = {.reason[WA_ENGINE_MORE_SPECIAL] =
                                      "it was wrong"};
    const wa_plan plan =
        plan_after(&p, device_named("H200"), WA_BACKWARD, &failed);
    (void)state;
    assert_maps(&plan, false);
    assert_legal(&p, device_named("H200"), &plan, "copies");
    assert_described(&plan, "backward tensor maps not used: it was wrong\n");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_they_do_not_compute_is_said),
    cmocka_unit_test(odd_strides_are_left_to_fragments),
    cmocka_unit_test(other_devices_have_none),
    cmocka_unit_test(shapes_fit),
    cmocka_unit_test(a_failure_leaves_it_to_fragments),
    cmocka_unit_test(maps_are_taken_where_they_hold_strides),
    cmocka_unit_test(failed_maps_are_left_to_copies),
};
const test_group plan_wgmma = TEST_GROUP(NULL, tests);
