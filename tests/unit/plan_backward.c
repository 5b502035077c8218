/* SPDX-License-Identifier: Apache-2.0
 * Shapes of gradients that are demanded of a matrix unit. */
#include <stdio.h>
#include <string.h>

#include "kit/shapes.h"
#include "plan_groups.h"
#include "plan_made.h"

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
    {masked, "50:4:2:1:64:3:1", NULL},
    {shifted, "49:4:2:1:64:3:1", NULL},
    {plain, "0:4:1:1:64:0:0", "out of its bounds"},
    {plain, "50:4:1:1:20:0:0", "tiles"},
    {plain, "40:4:1:1:64:0:0", "tiles"},
    {plain, "50:3:1:1:64:0:0", "too few waves"},
    {plain, "50:4:7:1:64:0:1", "too small"},
    {plain, "50:4:1:1:64:2:1", "no room for bias and mask"},
    {plain, "50:4:1:1:64:3:1", "no regions"},
    {plain, "32:2:1:1:64:1:0", "the same keys"},
    {plain, "50:4:1:1:64:0:2", "in registers, or in the workspace"},
    {"dtype=fp16 queries=50 heads=2 kv_heads=1", "50:4:1:1:64:0:0",
     "the same keys"},
    {plain, "50:4:2:1:64:0:0", "share sums"},
    {shifted, "49:4:2:1:64:1:1", "same shift boundaries"},
    {"dtype=fp16 queries=200 dim=64 bias=fp32", "200:13:1:1:16:1:0",
     "local memory"},
    {"dtype=fp16 queries=50 keys=400 dim=8 heads=1 bias=same",
     "50:4:2:1:400:0:1", "ring"},
    /* in two kernels */
    {plain, "50:4:2:1:64:1:1:50:50:50:4:2:1:64:1", NULL},
    {masked, "32:2:1:2:16:3:2:32:16:16:1:4:2:16:3", NULL},
    {shifted, "49:4:1:1:16:3:0:49:49:49:4:2:1:64:0", NULL},
    {"dtype=fp16 queries=64 bias=same", "32:8:1:2:16:1:1:64:64:64:4:2:1:64:1",
     NULL},
    {plain, "50:4:2:1:64:1:1:50:50:0:4:2:1:64:1", "out of its bounds"},
    {plain, "50:4:2:1:64:1:1:20:50:50:4:2:1:64:1", "tiles"},
    {plain, "50:4:2:1:64:1:1:50:20:50:4:2:1:64:1", "tiles"},
    {plain, "50:3:2:1:16:1:1:50:50:50:4:2:1:64:1", "too few waves"},
    {plain, "50:4:1:1:16:1:1:32:50:50:4:2:1:64:1", "the same logits"},
    {plain, "50:3:1:1:16:1:2:32:50:50:4:2:1:64:1", "too few waves"},
    {plain, "50:4:1:1:64:1:3:50:50:50:4:2:1:64:1", "no such place"},
    {plain, "50:4:2:1:64:1:2:50:50:50:4:2:1:64:1", "cannot share"},
    {plain, "50:6:1:1:16:1:1:50:50:50:4:2:1:64:1", "numbers of waves"},
    {plain, "50:8:1:1:16:1:1:50:50:50:4:2:1:64:1", "equal shares"},
    {plain, "50:4:1:1:64:1:1:50:50:50:3:2:1:64:1", "too few waves"},
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
        assert_legal(&p, h200, &plan, demanded[i].shape);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(backward_shapes_are_refused),
};
const test_group plan_backward = TEST_GROUP(NULL, tests);
