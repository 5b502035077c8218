/* SPDX-License-Identifier: Apache-2.0
 * How plans deal work: windows to work-groups, units of work to launches, and
 * windows to splits of partial sums. */
#include <stdio.h>

#include "family/matrix_tiling.h"
#include "plan_groups.h"
#include "plan_made.h"

/* Work-groups have one head block, a block of rows of a head, unless more than
 * a tenth of those that the device holds would idle; then there are as many as
 * it holds and as there are rounds for. */
static void windows_are_dealt(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const int counts[] = {1, 2, 7, 131, 1000, 4096};
    static const char *const problems[] = {
        "dtype=fp16 heads=3 bias=same", "dtype=bf16 queries=256 heads=32",
        "dtype=fp16 queries=1000 heads=2", "dtype=fp16 heads=24"};
    size_t shared = 0;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t j = 0; j < 24; j++) {
            const int windows = counts[j % 6];
            char text[128];
            snprintf(text, sizeof text, "%s windows=%d tier=matrix",
                     problems[j / 6], windows);
            const wa_problem p = problem_of(text);
            wa_plan plan;
            const wa_schedule *s = &plan.schedule;
            if (wa_plan_make(&p, &devices[i], WA_FORWARD, &none, &plan) !=
                WINATTN_SUCCESS)
                continue; /* it has no unit */
            const uint64_t head_blocks = (uint64_t)s->row_blocks * p.heads;
            const uint64_t held =
                (uint64_t)wa_matrix_resident(
                    &devices[i], plan.step[WA_STEP_FORWARD].local_bytes) *
                devices[i].compute_units;
            const uint64_t rounds =
                head_blocks *
                wa_ceil_div((uint32_t)windows, s->work_tiles_per_group);
            const uint64_t of_last = s->groups % held;
            if (s->persistent_multi_block)
                assert_int_equal(s->groups, held < rounds ? held : rounds);
            else
                assert_int_equal(s->groups % head_blocks, 0);
            assert_true(s->groups == rounds || of_last == 0 ||
                        (held - of_last) * 10 <= s->groups - of_last + held);
            shared += s->persistent_multi_block;
        }
    assert_true(shared > 0);
}

/* A launch lasts at most about a fifth of a second at a tenth of what these
 * devices were seen or said to reach, and a slow one is still busy. */
static void launches(void **state)
{
    (void)state;
    static const wa_exclusions none;
    const wa_problem p = problem_of(
        "variant=sliding windows=1 heads=24 kv_heads=8 queries=48600 dim=128 "
        "block=12150 window_blocks=4");
    for (size_t i = 0; i < made_up_count; i++) {
        const wa_device *device = &devices[i];
        wa_plan plan;
        if (wa_plan_make(&p, device, WA_FORWARD, &none, &plan) !=
            WINATTN_SUCCESS)
            continue; /* it ends loops early */
        const double operations = wa_problem_row_operations(&p) *
                                  plan.step[WA_STEP_FORWARD].block_rows *
                                  plan.schedule.work_tiles_per_launch;
        const double peak = device->compute_units * 256.0 *
                            (device->clock_mhz ? device->clock_mhz : 500) *
                            1e6;
        assert_true(operations < 0.2 * peak ||
                    plan.schedule.work_tiles_per_launch <=
                        4 * device->compute_units *
                            plan.schedule.work_tiles_per_group);
    }
}

/* 132 units, three heads: 44 splits, or fewer where these have as many rounds
 * of three windows, which come sorted by mask or by place on a grid. Tables of
 * where tokens are stay where there is room. */
static void backward_is_dealt(void **state)
{
    (void)state;
    static const wa_exclusions none;
    static const struct {
        const char *problem;
        uint32_t splits;
        int keeps_tokens;
    } deals[] = {
        {"dtype=fp16 windows=4096 bias=same", 43, 0},
        {"dtype=fp16 windows=4096 bias=same mask=regions mask_windows=64", 44,
         0},
        {"dtype=fp16 grid=2 size=56x56 window=7x7 shift=3x3 mask=shift "
         "bias=table_same batch=64",
         44, 1},
        {"dtype=fp16 windows=3 bias=same", 1, 0},
        {"dtype=fp16 grid=2 size=48x48 window=12x12 shift=6x6 mask=shift "
         "bias=table_same batch=64",
         43, 0},
    };
    const wa_device *h200 = device_named("H200");
    for (size_t i = 0; i < sizeof deals / sizeof *deals; i++) {
        char text[256];
        wa_plan plan;
        snprintf(text, sizeof text, "%s heads=3 pass=backward",
                 deals[i].problem);
        const wa_problem p = problem_of(text);
        assert_int_equal(wa_plan_make(&p, h200, WA_BACKWARD, &none, &plan),
                         WINATTN_SUCCESS);
        assert_legal(&p, h200, &plan, text);
        assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
        assert_int_equal(plan.schedule.splits, deals[i].splits);
        assert_int_equal(
            define_of(plan.step[WA_STEP_KEYS].defines, "KEEPS_TOKENS"),
            deals[i].keeps_tokens);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_are_dealt),
    cmocka_unit_test(launches),
    cmocka_unit_test(backward_is_dealt),
};
const test_group plan_dealt = TEST_GROUP(NULL, tests);
