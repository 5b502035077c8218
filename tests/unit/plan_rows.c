/* SPDX-License-Identifier: Apache-2.0
 * Rows of the tuning table: those that are built in, the text of one, and what
 * plans take of those that were loaded. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "plan/tuning.h"
#include "plan_groups.h"
#include "plan_made.h"

static const char *parsed_row(const char *text, wa_tuned_row *row)
{
    return wa_tuned_row_parse(text, strlen(text), row);
}

/* Text, row and text again, and none twice. */
static void check_rows(const char *const *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[WA_ROW_TEXT_SIZE];
        wa_tuned_row row;
        const char *why = parsed_row(rows[i], &row);
        if (why)
            fail_msg("%s: %s", rows[i], why);
        wa_tuned_row_print(&row, text, sizeof text);
        assert_string_equal(text, rows[i]);
        for (size_t j = 0; j < i; j++) {
            wa_tuned_row other;
            assert_null(parsed_row(rows[j], &other));
            assert_int_not_equal(wa_tuned_rows_compare(&row, &other), 0);
        }
    }
}

/* Of the sister's kernels, whose words it reads itself. */
static const char *const of_sister[] = {
    "x-matrix NVIDIA 90 half some 96 384 64:96:96:3:2:2:1:1",
    "x-matrix NVIDIA 90 half some 96 385 64:96:96:3:2:2:1:1",
    "y-cpu \"A GPU (rev 2)\" any 8"};

static void built_in_rows(void **state)
{
    (void)state;
    check_rows(wa_built_in_rows, WA_BUILT_IN_ROWS);
    check_rows(of_sister, sizeof of_sister / sizeof *of_sister);
}

static const struct {
    const char *text, *wrong; /* NULL: it is right */
} texts[] = {
    {"matrix-backward NVIDIA 90 dot half bias 49 49 32 49:4:3:2:64:3:1", NULL},
    {"\t matrix-forward  AMD 0 any any any any 50 8 1:2:3:4:5:6:0 \r", NULL},
    {"local-forward \"A GPU (rev 2)\" sliding fp32 none any any 64 "
     "1:2:3:4:5:6:7:8:9:10",
     NULL},
    {"local-backward \"x\" cosine half regions 4 5 6 1:2:3:4:5:6:7:8:1", NULL},
    {"x-local  AMD 0 any words 1:2:3\r", NULL},
    {"", "no kernel"},
    {"local", "no kernel"},
    {"\"local-forward\" NVIDIA 80", "no kernel"},
    {"local-forward", "no vendor"},
    {"local-forward nvidia 80 any", "no vendor"},
    {"local-forward NVIDIA any any", "no vendor"},
    {"local-forward NVIDIA -80 any", "no vendor"},
    {"local-forward \"x any any any", "no vendor"},
    {"local-forward \"\" any any any", "no vendor"},
    {"local-forward NVIDIA 80 dots", "no variant"},
    {"local-forward NVIDIA 80 dot fp16", "no type"},
    {"local-forward NVIDIA 80 dot half shift", "no score bias"},
    {"local-forward NVIDIA 80 dot half bias 0 49 32", "no numbers"},
    {"local-forward NVIDIA 80 dot half bias 49 any any", "no numbers"},
    {"local-forward NVIDIA 80 dot half bias 49 9999999999 8", "no numbers"},
    {"matrix-forward NVIDIA 80 dot half bias 49 49 32", "no shape"},
    {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6",
     "no shape"},
    {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:7:8",
     "no shape"},
    {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:70000",
     "no shape"},
    {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:-1",
     "no shape"},
    {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2::4:5:6:7",
     "no shape"},
    {"matrix-forward NVIDIA 80 dot half bias 49 49 32 1:2:3:4:5:6:7 8",
     "more than"},
    {"x NVIDIA 90 half 1:2:3", "no kernel"},
    {"-matrix NVIDIA 90 half 1:2:3", "no kernel"},
    {"matrix-forwards NVIDIA 90 half 1:2:3", "no kernel"},
    {"x-matrix half 1:2:3", "no vendor"},
    {"x-matrix NVIDIA 90 1:2:3", "no shape"},
    {"x-matrix NVIDIA 90 half", "no shape"},
    {"x-matrix NVIDIA 90 half 1:2: ", "no shape"},
    {"x-matrix NVIDIA 90 half 1:2 \"3\"", "no shape"},
};

static void rows_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        wa_tuned_row row;
        const char *why = parsed_row(texts[i].text, &row);
        if (!why != !texts[i].wrong || (why && !strstr(why, texts[i].wrong)))
            fail_msg("%s: \"%s\"", texts[i].text, why ? why : "");
    }
}

static void load(const char *text)
{
    if (winattn_load_tuning(text) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
}

static void assert_has(wa_plan plan, const char *name, unsigned value)
{
    assert_true(has_define(plan.step[WA_STEP_FORWARD].defines, name, value));
}

/* Before built-in ones, if they are for this device, problem and kernel. */
static void loaded_rows_are_taken(const wa_problem *p, const wa_device *h200)
{
    load("matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:3:2:64:1\n"
         "# what follows is for another device, problem or kernel\n\n"
         "matrix-forward NVIDIA 100 any half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward AMD 0 any half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward \"H2000\" any half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 cosine half any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any fp32 any 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any half mask 49 49 32 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any half any 49 49 33 49:49:4:2:2:64:1\n"
         "matrix-forward NVIDIA 90 any half any 49 50 32 49:49:4:2:2:64:1\n"
         "matrix-backward NVIDIA 90 any half any 49 49 32 49:4:2:1:64:1:1");
    const wa_plan plan = plan_of(p, h200);
    assert_true(plan.tuned);
    assert_non_null(strstr(plan.reason, "loaded"));
    assert_has(plan, "WINDOWS_PER_GROUP", 3);
    const wa_plan backward = backward_plan_of(p, h200);
    assert_true(backward.tuned);
    assert_non_null(strstr(backward.reason, "loaded"));
    assert_int_equal(backward.schedule.windows_per_group, 2);
    assert_legal(p, h200, &backward, "loaded");
}

/* By name, for regions, and the same again; a wrong line adds nothing. */
static void last_rows_come_first(const wa_problem *p, const wa_device *h200)
{
    const wa_problem shifted =
        problem_of("dtype=fp16 bias=same mask=regions mask_windows=4");
    load("matrix-forward \"H200\" dot half regions 49 49 32 49:49:4:1:2:64:2\n"
         "matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:1:1:64:1\n");
    assert_has(plan_of(&shifted, h200), "STAGES", 1);
    load("matrix-forward \"H200\" dot half regions 49 49 32 49:49:4:1:2:64:2");
    assert_has(plan_of(&shifted, h200), "STAGES", 2);
    assert_has(plan_of(p, h200), "STAGES", 1);

    assert_int_equal(
        winattn_load_tuning(
            "matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:2:2:64:1\n"
            "#\nmatrix-forward NVIDIA 90 dot half any 49 49 32 0"),
        WINATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(winattn_last_reason(), "line 3: no shape"));
    assert_has(plan_of(p, h200), "STAGES", 1);
}

/* Where one is not allowed: here a built-in one. */
static void next_row_is_taken(const wa_problem *p, const wa_device *h200)
{
    load("matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:9:2:64:1");
    const wa_plan plan = plan_of(p, h200);
    assert_true(plan.tuned);
    assert_null(strstr(plan.reason, "loaded"));
    assert_non_null(strstr(plan.untuned, "tier matrix: "));
    assert_has(plan, "WINDOWS_PER_GROUP", 4);
}

/* Where rows were seen not to build. */
static void own_choice_is_taken(const wa_problem *p, const wa_device *h200)
{
    wa_plan plan;
    wa_exclusions learnt;
    memset(&learnt, 0, sizeof learnt);
    strcpy(learnt.untuned[WINATTN_TIER_MATRIX], "it spills");
    assert_int_equal(wa_plan_make(p, h200, WA_FORWARD, &learnt, &plan),
                     WINATTN_SUCCESS);
    assert_false(plan.tuned);
    assert_int_equal(plan.tier, WINATTN_TIER_MATRIX);
    assert_string_equal(plan.untuned, "tier matrix: it spills");
}

/* Loaded rows come before built-in ones, the last first; where one is not
 * allowed the next is taken, and at last the planner's own. */
static void loaded_rows(void **state)
{
    (void)state;
    const wa_problem p = problem_of("dtype=fp16 bias=same windows=1000");
    const wa_device *h200 = device_named("H200");
    assert_has(plan_of(&p, h200), "WINDOWS_PER_GROUP", 4);
    loaded_rows_are_taken(&p, h200);
    last_rows_come_first(&p, h200);
    load(NULL);
    next_row_is_taken(&p, h200);
    own_choice_is_taken(&p, h200);
    load(NULL);
}

typedef struct offered {
    char words[4][64];
    size_t count, wanted; /* is taken */
} offered;

static bool take(void *data, const char *words, const char *reason)
{
    offered *o = data;
    assert_non_null(strstr(reason, "measured"));
    snprintf(o->words[o->count++], sizeof o->words[0], "%s", words);
    return o->count == o->wanted;
}

/* Rows of the sister are offered for the kernel and the device that they name,
 * the last one first, and built-in ones behind those that were loaded; one
 * with the same words replaces another. */
static void rows_of_the_sister(void **state)
{
    (void)state;
    static const char *const built_in[] = {"x-matrix NVIDIA 80 a 8:8", NULL};
    const wa_device *h200 = device_named("H200");
    offered o = {.count = 0}, one = {.wanted = 2};
    load("x-matrix NVIDIA 90 a b 1:1\n"
         "matrix-forward NVIDIA 90 dot half any 49 49 32 49:49:4:2:2:64:1\n"
         "x-matrix NVIDIA 90 a 2:2\n"
         "x-matrix NVIDIA 100 a 3:3\n"
         "x-local NVIDIA 90 a 4:4\n"
         "xx-matrix NVIDIA 90 a 5:5\n"
         "x-matrix NVIDIA 90 a  b 6:6\n");
    assert_false(wa_offer_rows("x-matrix", h200, built_in, take, &o));
    assert_int_equal(o.count, 3);
    assert_string_equal(o.words[0], "a b 6:6");
    assert_string_equal(o.words[1], "a 2:2");
    assert_string_equal(o.words[2], "a 8:8");
    assert_true(wa_offer_rows("x-matrix", h200, built_in, take, &one));
    assert_int_equal(one.count, 2);
    load(NULL);
}

/* No shape that somebody writes into a row leads to a plan that is not legal,
 * or to none. */
static void wild_rows(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "dtype=fp16 bias=same mask=regions mask_windows=4",
        "dtype=fp16 queries=20 keys=33 dim=24",
        "variant=cosine dim=12 bias=fp32",
        "dtype=bf16 variant=sliding dim=64 block=16 queries=100",
    };
    static const char *const kernels[] = {"local-forward", "matrix-forward",
                                          "local-backward", "matrix-backward"};
    static const int numbers[] = {0, 1, 2, 3, 4, 8, 16, 20, 32, 49, 64, 65535};
    const wa_device *h200 = device_named("H200");
    random_state r = random_seeded(5);
    int taken = 0;
    for (int i = 0; i < 3000; i++) {
        wa_problem p = problem_of(problems[i % 4]);
        const int kernel = random_int(&r, 0, 3);
        char text[WA_ROW_TEXT_SIZE] = "", shape[128] = "";
        const bool matrix = kernel % 2 == 1;
        for (int n = matrix ? 7 : 10; n > 0; n--)
            wa_append(shape, sizeof shape, "%d%s",
                      numbers[random_int(&r, 0, 11)], n > 1 ? ":" : "");
        snprintf(text, sizeof text, "%s NVIDIA 90 %s any any any any %u %s",
                 kernels[kernel],
                 p.variant == WINATTN_SLIDING ? "sliding" : "any", p.head_dim,
                 shape);
        load(NULL);
        load(text);
        p.tier = matrix ? WINATTN_TIER_MATRIX : WINATTN_TIER_LOCAL;
        if (matrix &&
            !suits_matrix(&p, h200, kernel < 2 ? WA_FORWARD : WA_BACKWARD))
            continue;
        if (kernel < 2) {
            const wa_plan plan = plan_of(&p, h200);
            taken += plan.tuned;
            assert_in_range(plan.step[WA_STEP_FORWARD].local_bytes, 1,
                            h200->local_bytes);
            assert_in_range(plan.step[WA_STEP_FORWARD].work_group, 1,
                            h200->max_work_group);
        } else {
            const wa_plan plan = backward_plan_of(&p, h200);
            taken += plan.tuned;
            assert_legal(&p, h200, &plan, text);
        }
    }
    assert_in_range(taken, 5, 3000);
    load(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(built_in_rows), cmocka_unit_test(rows_are_read),
    cmocka_unit_test(loaded_rows),   cmocka_unit_test(rows_of_the_sister),
    cmocka_unit_test(wild_rows),
};
const test_group plan_rows = TEST_GROUP(NULL, tests);
