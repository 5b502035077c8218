/* SPDX-License-Identifier: Apache-2.0
 * The backward pass: every device has one, on the tier that was made for it;
 * and shapes that are demanded of a matrix unit. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "kit/shapes.h"
#include "kit/workloads.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

/* Every device gets a backward pass for every workload, but the one whose
 * loops end early; GPUs on a tier that was made for them. */
static void backward_is_legal(void **state)
{
    (void)state;
    static const wa_exclusions none;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t j = 0; j < workload_count * 3; j++) {
            const wa_device *device = &devices[i];
            test_case c = parsed(workload_rows[j / 3].text);
            wa_plan plan;
            wa_problem p;
            c.pass = PASS_BACKWARD;
            c.dtype = (int)(j % 3);
            const winattn_desc d = case_desc(&c);
            assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
            const winattn_status status =
                wa_plan_make(&p, device, WA_BACKWARD, &none, &plan);
            if (device->loop_limit) {
                assert_int_equal(status, WINATTN_UNSUPPORTED_DEVICE);
                assert_non_null(strstr(winattn_last_reason(), "loops"));
                continue;
            }
            if (status != WINATTN_SUCCESS)
                fail_msg("%s: %s", device->name, winattn_last_reason());
            /* large windows may not suit a matrix unit */
            if (best_tier(&p, device, WA_BACKWARD) == WINATTN_TIER_MATRIX &&
                p.keys > 256 && plan.refusals[WINATTN_TIER_MATRIX][0])
                assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
            else
                assert_int_equal(plan.tier,
                                 best_tier(&p, device, WA_BACKWARD));
            assert_legal_backward(&p, device, &plan,
                                  workload_rows[j / 3].name);
        }
}

/* On grids, of those devices of Intel's that have them. */
static void gradients_ask_for_registers(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const struct {
        const char *device, *problem;
        bool asks;
    } cases[] = {
        {"Arc A770", "grid=2 size=21x21 window=7x7 pass=backward", true},
        {"Arc A770", "queries=144 pass=backward", false},
        {"Iris Xe (TGL)", "grid=2 size=21x21 window=7x7 pass=backward", false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const wa_problem p = problem_of(cases[c].problem);
        wa_plan plan;
        assert_int_equal(wa_plan_make(&p, device_named(cases[c].device),
                                      WA_BACKWARD, &none, &plan),
                         WINATTN_SUCCESS);
        assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
        for (int i = WA_STEP_STATISTICS; i <= WA_STEP_LAST; i++)
            if (plan.step[i].kernel)
                assert_int_equal(strstr(plan.step[i].defines, "256-GRF") !=
                                     NULL,
                                 cases[c].asks);
    }
}

/* What an H200 takes for gradients, and why not its unit. */
static void backward_units(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const struct {
        const char *problem, *refusal; /* NULL: tier matrix */
    } choices[] = {
        {"dtype=fp16 bias=same", NULL},
        {"dtype=bf16 variant=cosine logit_scale=1 bias=fp32 dim=64", NULL},
        {"dtype=fp16 heads=4 kv_heads=2 mask=regions mask_windows=2", NULL},
        {"dtype=fp16 queries=256 heads=4 bias=same", NULL},
        {"dtype=bf16 grid=2 size=30x45 window=7x7 shift=3x3 mask=shift "
         "pads=3 bias=table_same",
         NULL},
        {"dtype=fp32", "fp32"},
        {"tf32=1", "forward pass only"},
        {"dtype=fp16 variant=sliding block=16", NULL},
        {"dtype=fp16 heads=2 kv_heads=1 dim=256 queries=64", NULL},
        {"dtype=fp16 dim=256 queries=256", NULL},
        {"dtype=fp16 queries=784 heads=4 bias=same", NULL},
    };
    const wa_device *h200 = device_named("H200");
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const wa_problem p = problem_of(choices[i].problem);
        const char *refusal = choices[i].refusal;
        wa_plan plan;
        assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &none, &plan),
                         WINATTN_SUCCESS);
        assert_legal_backward(&p, h200, &plan, choices[i].problem);
        if (plan.tier !=
                (refusal ? WINATTN_TIER_LOCAL : WINATTN_TIER_MATRIX) ||
            (refusal && !strstr(plan.refusals[WINATTN_TIER_MATRIX], refusal)))
            fail_msg("%s: %s, \"%s\"", choices[i].problem,
                     wa_tier_name(plan.tier),
                     plan.refusals[WINATTN_TIER_MATRIX]);
    }
    /* a unit that nobody has seen work must be demanded */
    wa_problem p = problem_of("dtype=fp16 bias=same");
    wa_matrix_unit unit = *wa_matrix_unit_named("mma");
    wa_device device = *h200;
    wa_plan plan;
    unit.proven = false;
    device.matrix_unit = &unit;
    assert_int_equal(wa_plan_make(&p, &device, WA_BACKWARD, &none, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_LOCAL);
    assert_non_null(
        strstr(plan.refusals[WINATTN_TIER_MATRIX], "must be demanded"));
    p.tier = WINATTN_TIER_MATRIX;
    assert_int_equal(wa_plan_make(&p, &device, WA_BACKWARD, &none, &plan),
                     WINATTN_SUCCESS);
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_legal_backward(&p, &device, &plan, "unproven");
}

/* Demanded shapes, most of which cl/matrix/backward_matrix.cl and, of two
 * kernels, those of rows and of keys cannot compute. */
static const char plain[] = "dtype=fp16 queries=50 bias=same";
static const char masked[] =
    "dtype=fp16 queries=50 bias=same mask=regions mask_windows=2";
static const char shifted[] =
    "dtype=fp16 grid=2 size=14x14 window=7x7 shift=3x3 mask=shift "
    "bias=table_same";
static const struct {
    const char *problem, *shape, *refusal; /* NULL: none */
} demanded[] = {
    {plain, "50:4:3:1:64:1:1", NULL},
    {plain, "50:5:1:2:64:0:0", NULL},
    {plain, "32:2:1:1:16:0:0", NULL},
    {masked, "50:4:2:1:64:3:1", NULL},
    {shifted, "49:4:2:1:64:3:1", NULL},
    {plain, "0:4:1:1:64:0:0", "out of its bounds"},
    {plain, "50:4:1:1:20:0:0", "tiles"},
    {plain, "40:4:1:1:64:0:0", "tiles"},
    {plain, "50:3:1:1:64:0:0", "too few waves"},
    {plain, "50:4:7:1:64:0:1", "too small"},
    {plain, "50:4:1:1:64:2:1", "no room for bias and mask"},
    {plain, "50:4:1:1:64:3:1", "no regions"},
    {plain, "32:2:1:1:64:1:0", "another bias"},
    {plain, "32:2:1:1:64:0:1", "the same logits"},
    {plain, "50:4:2:1:64:0:0", "share sums"},
    {shifted, "49:4:2:1:64:1:1", "same shift boundaries"},
    {"dtype=fp16 queries=200 dim=64 bias=fp32", "200:13:1:1:16:1:0",
     "local memory"},
    {"dtype=fp16 queries=50 keys=400 dim=8 heads=1 bias=same",
     "50:4:2:1:400:0:1", "ring"},
    /* in two kernels */
    {plain, "50:4:2:1:64:1:1:50:50:50:4:2:1:64:1", NULL},
    {masked, "32:2:1:2:16:3:2:32:16:16:1:4:2:16:3", NULL},
    {shifted, "49:2:1:1:16:3:0:49:49:49:4:2:1:64:0", NULL},
    {"dtype=fp16 queries=64 bias=same", "32:8:1:2:16:1:1:64:64:64:4:2:1:64:1",
     NULL},
    {plain, "50:4:2:1:64:1:1:50:50:0:4:2:1:64:1", "out of its bounds"},
    {plain, "50:4:2:1:64:1:1:20:50:50:4:2:1:64:1", "tiles"},
    {plain, "50:4:2:1:64:1:1:50:20:50:4:2:1:64:1", "tiles"},
    {plain, "50:3:2:1:16:1:1:50:50:50:4:2:1:64:1", "the same logits"},
    {plain, "50:4:1:1:16:1:1:32:50:50:4:2:1:64:1", "the same logits"},
    {plain, "50:3:1:1:16:1:2:32:50:50:4:2:1:64:1", "its rows"},
    {plain, "50:4:1:1:64:1:3:50:50:50:4:2:1:64:1", "no such place"},
    {plain, "50:4:2:1:64:1:2:50:50:50:4:2:1:64:1", "cannot share"},
    {plain, "50:8:1:1:16:1:1:50:50:50:4:2:1:64:1", "equal shares"},
    {plain, "50:4:1:1:64:1:1:50:50:50:3:2:1:64:1", "its keys"},
    {plain, "50:4:1:1:64:2:1:50:50:50:4:2:1:64:1",
     "no room for bias and mask"},
    {plain, "50:4:1:1:64:1:1:50:50:50:4:2:1:64:3", "no regions"},
    {"dtype=fp16 queries=50 bias=same heads=2 kv_heads=1",
     "50:4:1:1:64:1:1:50:50:50:4:2:1:64:1", "another bias"},
    {shifted, "49:4:1:1:64:3:1:49:49:49:4:2:1:64:1", "same shift boundaries"},
    {"dtype=fp16 queries=512 dim=32 heads=1 bias=same",
     "128:8:1:1:64:0:2:128:64:64:4:2:1:64:0", "local memory"},
    {"queries=50", "50:4:1:1:64:0:0", "fp32"},
    {"tf32=1 queries=50", "50:4:1:1:64:0:0", "forward pass only"},
};

static void backward_shapes_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof demanded / sizeof *demanded; i++) {
        const wa_problem p = problem_of(demanded[i].problem);
        const wa_device *h200 = device_named("H200");
        wa_tuned_shape shape;
        wa_plan plan;
        wa_plan_begin(WA_BACKWARD, &plan);
        assert_true(wa_tuned_shape_parse(WA_MATRIX_BACKWARD, demanded[i].shape,
                                         &shape));
        const bool taken =
            plan_shape(WA_MATRIX_BACKWARD, &p, h200, &shape, &plan);
        const char *why = plan.refusals[WINATTN_TIER_MATRIX];
        if (taken != !demanded[i].refusal ||
            (!taken && !strstr(why, demanded[i].refusal)))
            fail_msg("%s %s: \"%s\"", demanded[i].problem, demanded[i].shape,
                     why);
        if (!taken)
            continue;
        wa_plan_finish(&p, h200, &plan);
        snprintf(plan.reason, sizeof plan.reason, "demanded");
        assert_legal_backward(&p, h200, &plan, demanded[i].shape);
    }
}

/* Half of the work-items, where their registers did not suffice. */
static void backward_has_fewer_waves(void **state)
{
    (void)state;
    const wa_problem p = problem_of("dtype=fp16 bias=same windows=1000");
    const wa_device *h200 = device_named("H200");
    wa_exclusions learnt;
    wa_plan plan;
    memset(&learnt, 0, sizeof learnt);
    for (uint32_t most = 1024; most > 32; most /= 2) {
        learnt.most_items[WINATTN_TIER_MATRIX] = most;
        assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &learnt, &plan),
                         WINATTN_SUCCESS);
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_in_range(plan.step[WA_STEP_KEYS].work_group, 1, most);
        assert_legal_backward(&p, h200, &plan, "fewer waves");
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(backward_is_legal),
    cmocka_unit_test(gradients_ask_for_registers),
    cmocka_unit_test(backward_units),
    cmocka_unit_test(backward_shapes_are_refused),
    cmocka_unit_test(backward_has_fewer_waves),
};
const test_group plan_backward = TEST_GROUP(NULL, tests);
