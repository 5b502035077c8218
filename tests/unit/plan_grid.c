/* SPDX-License-Identifier: Apache-2.0
 * What the options say of a grid, and which steps its table takes. */
#include <stdio.h>
#include <string.h>

#include "plan/defines.h"
#include "plan_groups.h"
#include "plan_made.h"

static void assert_grid(const char *defines)
{
    assert_true(has_define(defines, "GRID", 1));
    assert_true(has_define(defines, "NQ", 42));
    assert_true(has_define(defines, "NK", 42));
    assert_true(has_define(defines, "WINDOW_1", 7));
    assert_true(has_define(defines, "WINDOW_2", 6));
    assert_true(has_define(defines, "MASK", 4));
    assert_true(has_define(defines, "PADDING", 1));
    assert_true(has_define(defines, "BIAS", 2));
    assert_null(strstr(defines, "TABLE"));
}

static void assert_table(const char *table)
{
    assert_true(has_define(table, "TABLE", 1));
    assert_true(has_define(table, "BIAS", 1));
    assert_true(has_define(table, "TABLE_WINDOW_1", 7));
    assert_true(has_define(table, "TABLE_WINDOW_2", 6));
    assert_true(has_define(table, "TABLE_STEP_0", 143));
    assert_true(has_define(table, "TABLE_STEP_1", 11));
    assert_true(has_define(table, "TABLE_CENTER", 71));
}

/* Tier cpu sees an ordinary bias, which is in the workspace. */
static void cpu_expands_tables(const wa_device *device)
{
    const uint64_t dense = 5 * 42 * 42 * 4; /* a multiple of 16 */
    const wa_problem p = problem_of(
        "grid=2 size=30x45 window=7x6 shift=3x3 mask=shift "
        "bias=table_same dtype=fp16 heads=5 pass=backward tier=cpu");
    char table[WA_DEFINES_SIZE] = "";
    const wa_plan plan = plan_of(&p, device);
    assert_grid(plan.step[WA_STEP_FORWARD].defines);
    assert_true(plan.step[WA_STEP_EXPAND].kernel);
    assert_int_equal(plan.workspace.all, dense);
    wa_append_table(&p, table, sizeof table);
    assert_table(table);
    const wa_plan backward = backward_plan_of(&p, device);
    assert_string_equal(backward.step[WA_STEP_EXPAND].defines, table);
    assert_non_null(backward.step[WA_STEP_SUM_TABLE].kernel);
    assert_int_equal(backward.workspace.dense, dense);
    assert_int_equal(backward.workspace.pad,
                     (backward.schedule.splits * backward.schedule.key_blocks *
                          p.kv_heads * p.head_dim * 4 +
                      15) /
                         16 * 16);
}

/* Tier local reads the table in place. */
static void local_reads_tables(const wa_device *device)
{
    const wa_problem p =
        problem_of("grid=2 size=28x12 window=7x6 shift=3x3 mask=shift "
                   "bias=table_same pass=backward tier=local");
    const wa_plan plan = plan_of(&p, device);
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "TABLE", 1));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "PADDING"));
    assert_false(plan.step[WA_STEP_EXPAND].kernel);
    assert_int_equal(plan.workspace.all, 0);
    const wa_plan backward = backward_plan_of(&p, device);
    assert_null(backward.step[WA_STEP_EXPAND].kernel);
    assert_non_null(backward.step[WA_STEP_SUM_TABLE].kernel);
    assert_int_equal(backward.workspace.pad, 0);
}

/* Hidden padding needs no sums. */
static void hidden_padding(const wa_device *device)
{
    const wa_problem p =
        problem_of("grid=1 size=20 window=7 padding=hidden pass=backward "
                   "tier=cpu");
    const wa_plan plan = plan_of(&p, device);
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, "PADDING", 2));
    const wa_plan backward = backward_plan_of(&p, device);
    assert_int_equal(backward.workspace.pad + backward.workspace.dense, 0);
}

/* The order of roll and padding is compiled in, where it matters. */
static void rolled_first(const wa_device *device)
{
    static const char *const sizes[] = {"20x21", "21x21"};
    for (uint32_t i = 0; i < 2; i++) {
        char text[128];
        snprintf(text, sizeof text,
                 "grid=2 size=%s window=7x7 shift=3x3 mask=shift roll_first=1",
                 sizes[i]);
        const wa_problem p = problem_of(text);
        const wa_plan plan = plan_of(&p, device);
        assert_true(
            has_define(plan.step[WA_STEP_FORWARD].defines, "GRID", 2 - i));
    }
}

/* Without a grid no option names one. */
static void no_grid(const wa_device *device)
{
    const wa_problem p = problem_of("bias=same mask=same mask_windows=2");
    const wa_plan plan = plan_of(&p, device);
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "GRID"));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "WINDOW"));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "PADDING"));
    assert_null(strstr(plan.step[WA_STEP_FORWARD].defines, "TABLE"));
}

static void grid_options(void **state)
{
    (void)state;
    const wa_device *device = device_named("H200");
    cpu_expands_tables(device);
    local_reads_tables(device);
    hidden_padding(device);
    rolled_first(device);
    no_grid(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(grid_options),
};
const test_group plan_grid = TEST_GROUP(NULL, tests);
