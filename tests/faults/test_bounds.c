/* SPDX-License-Identifier: Apache-2.0
 * What is bounded, whatever the caller gives: the work of a warm-up, rows
 * of the tuning table, lists of a table of biases. Steps are counted, not
 * seconds. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit/cases.h"
#include "kit/devices.h"
#include "launch/bias_table.h"
#include "place.h"
#include "plan/tuning.h"
#include "session/warmup.h"

#include "../cl/common/args.h"

static int no_cache(void **state)
{
    (void)state;
    unsetenv("WINATTN_CACHE");
    winattn_set_cache_dir("");
    winattn_load_tuning(NULL);
    standin_most_bytes = (size_t)256 << 20;
    return 0;
}

#define BOTH_PASSES (WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD)

/* ---- The warm-up ---- */

/* The number that an option -D<name>= gives. */
static double option(const standin_launch *launch, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "-D%s=", name);
    const char *at = strstr(launch->options, text);
    return at ? strtod(at + strlen(text), NULL) : 0;
}

/* Pairs of a query and a key that a launch of one unit computes, at most. */
static double pairs_of(const standin_launch *launch)
{
    forward_args args; /* those of gradients start with them */
    memcpy(&args, launch->arguments[0].bytes, sizeof args);
    const bool cpu = strstr(launch->kernel, "_cpu") != NULL;
    const double rows = cpu ? args.block_rows : option(launch, "BLOCK_ROWS");
    return strstr(launch->kernel, "_keys_")
               ? option(launch, "BLOCK_KEYS") * args.queries
               : rows * args.keys;
}

/* Launches of plan_create, each of which must be little work. */
static size_t check_warm_ups(const char *device, winattn_tier tier,
                             winattn_variant variant, cl_uint queries,
                             cl_uint keys)
{
    const cl_uint head_dim = 32;
    const standin_launch *launches;
    winattn_desc desc = case_desc_of("windows=1 heads=1", BOTH_PASSES);
    winattn_programs *programs; /* for them kernels are warmed up */
    winattn_plan *plan;
    const place p = open_place(device);
    desc.variant = variant;
    desc.tier = tier;
    desc.queries = queries;
    desc.keys = keys;
    desc.block = variant == WINATTN_SLIDING ? 64 : 0;
    assert_int_equal(winattn_programs_create(p.context, p.id, &programs), 0);
    standin_forget();
    if (winattn_plan_create(p.context, p.id, &desc, &plan) != WINATTN_SUCCESS)
        fail_msg("%s: %s", device, winattn_last_reason());
    const size_t count = standin_launches(&launches);
    for (size_t i = 0; i < count; i++)
        if (pairs_of(&launches[i]) * head_dim > WA_MOST_WARM_UP_WORK)
            fail_msg("%s, %u x %u: a warm-up of %s has %g pairs", device,
                     queries, keys, launches[i].kernel,
                     pairs_of(&launches[i]));
    winattn_plan_destroy(plan);
    winattn_programs_destroy(programs);
    close_place(&p);
    return count;
}

/* Kernels whose units are large have a small warm-up, or none. */
static void test_warm_ups_are_little_work(void **state)
{
    (void)state;
    static const struct {
        cl_uint queries, keys;
        bool cpu, local; /* is a warm-up little work? */
    } windows[] = {{1, 1, true, true},
                   {49, 49, true, true},
                   {1000, 1000, true, true},
                   {100000, 100000, true, false},
                   {49, 1u << 22, false, false},
                   {1u << 20, 1u << 20, true, false},
                   {49, INT32_MAX, false, false},
                   {INT32_MAX, 49, true, false}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const cl_uint queries = windows[i].queries, keys = windows[i].keys;
        const size_t cpu = check_warm_ups("PoCL", WINATTN_TIER_CPU,
                                          WINATTN_DOT, queries, keys);
        const size_t local = check_warm_ups("PoCL", WINATTN_TIER_LOCAL,
                                            WINATTN_DOT, queries, keys);
        const size_t sliding = check_warm_ups("PoCL", WINATTN_TIER_CPU,
                                              WINATTN_SLIDING, queries, keys);
        assert_int_equal(cpu > 0, windows[i].cpu);
        assert_int_equal(local > 0, windows[i].local);
        assert_true(sliding >= 2);
    }
}

/* ---- The tuning table ---- */

static unsigned long comparisons;
int __real_wa_tuned_rows_compare(const wa_tuned_row *a, const wa_tuned_row *b);
int __wrap_wa_tuned_rows_compare(const wa_tuned_row *a, const wa_tuned_row *b);
int __wrap_wa_tuned_rows_compare(const wa_tuned_row *a, const wa_tuned_row *b)
{
    comparisons++;
    return __real_wa_tuned_rows_compare(a, b);
}

/* Rows for windows of `first` tokens and of so many sizes above it. */
static char *rows_for(unsigned first, unsigned count)
{
    char *text = malloc((size_t)count * 80 + 1), *at = text;
    assert_non_null(text);
    *at = 0;
    for (unsigned i = first; i < first + count; i++)
        at += sprintf(at,
                      "matrix-forward NVIDIA 90 dot half any %u %u 32 "
                      "49:49:4:2:2:64:1\n",
                      i, i);
    return text;
}

static void test_rows_are_compared_seldom(void **state)
{
    (void)state;
    char *text = rows_for(1, WA_MOST_ROWS);
    for (int round = 0; round < 2; round++) { /* the second replaces them */
        comparisons = 0;
        assert_int_equal(winattn_load_tuning(text), WINATTN_SUCCESS);
        /* n log n is 12 of each row; a C library's sort takes up to three
         * times as many */
        assert_in_range(comparisons, WA_MOST_ROWS, 64 * WA_MOST_ROWS);
    }
    free(text);
}

static void assert_refused(const char *text, const char *part)
{
    assert_int_equal(winattn_load_tuning(text), WINATTN_INVALID_ARGUMENT);
    if (!strstr(winattn_last_reason(), part))
        fail_msg("%s", winattn_last_reason());
}

static void test_rows_have_a_limit(void **state)
{
    (void)state;
    char *half = rows_for(1, WA_MOST_ROWS / 2);
    char *other = rows_for(WA_MOST_ROWS / 2 + 1, WA_MOST_ROWS / 2);
    char *more = rows_for(WA_MOST_ROWS + 1, 1);
    char *all = rows_for(1, WA_MOST_ROWS + 1);
    assert_refused(all, "more than 4096 rows");
    assert_int_equal(winattn_load_tuning(half), WINATTN_SUCCESS);
    assert_int_equal(winattn_load_tuning(other), WINATTN_SUCCESS);
    assert_refused(more, "more than 4096 rows");
    assert_int_equal(winattn_load_tuning(half), WINATTN_SUCCESS);
    assert_int_equal(winattn_load_tuning(NULL), WINATTN_SUCCESS);
    assert_int_equal(winattn_load_tuning(more), WINATTN_SUCCESS);
    free(half);
    free(other);
    free(more);
    free(all);
}

static void test_text_has_a_limit(void **state)
{
    (void)state;
    char *text = malloc((size_t)WA_MOST_TUNING_TEXT + 2);
    assert_non_null(text);
    memset(text, '\n', (size_t)WA_MOST_TUNING_TEXT + 1);
    text[WA_MOST_TUNING_TEXT + 1] = 0;
    assert_refused(text, "more than 1048576 bytes");
    text[WA_MOST_TUNING_TEXT] = 0;
    /* empty lines take no room */
    standin_most_bytes = 1 << 16;
    assert_int_equal(winattn_load_tuning(text), WINATTN_SUCCESS);
    free(text);
}

/* Of rows for the same the last one counts, at its own place. */
static void test_rows_are_replaced(void **state)
{
    (void)state;
    const wa_device *h200 = made_up_device("H200");
    wa_problem problem;
    wa_tuned found;
    const winattn_desc desc =
        case_desc_of("dtype=fp16 windows=1 heads=1 queries=7", 0);
    assert_int_equal(wa_problem_read(&desc, &problem), WINATTN_SUCCESS);
    assert_int_equal(
        winattn_load_tuning(
            "matrix-forward NVIDIA 90 dot half any 7 7 32 1:7:4:2:2:64:1\n"
            "matrix-forward NVIDIA 80 dot half any 7 7 32 2:7:4:2:2:64:1\n"
            "matrix-forward NVIDIA 90 any half any 7 7 32 3:7:4:2:2:64:1\n"
            "matrix-forward NVIDIA 90 dot half any 7 7 32 4:7:4:2:2:64:1\n"),
        WINATTN_SUCCESS);
    assert_int_equal(
        winattn_load_tuning(
            "matrix-forward NVIDIA 80 dot half any 7 7 32 5:7:4:2:2:64:1\n"),
        WINATTN_SUCCESS);
    static const uint32_t rows[] = {5, 4, 3}; /* the last first */
    for (size_t i = 0; i < 3; i++) {
        assert_true(
            wa_find_tuned(WA_MATRIX_FORWARD, &problem, h200, i, &found));
        assert_int_equal(found.shape.matrix_forward.block_rows, rows[i]);
    }
    assert_false(wa_find_tuned(WA_MATRIX_FORWARD, &problem, h200, 3, &found));
}

/* ---- Tables of biases ---- */

static winattn_desc with_table(cl_uint entries)
{
    static const cl_int index[1] = {0};
    winattn_desc desc =
        case_desc_of("heads=1 queries=1 dim=4 bias=table_same", BOTH_PASSES);
    desc.table.index = index;
    desc.table.entries = entries;
    return desc;
}

/* Too many entries are refused, and before memory is taken for them. */
static void test_entries_have_a_limit(void **state)
{
    (void)state;
    const place p = open_place("PoCL");
    winattn_desc desc = with_table(INT32_MAX);
    standin_most_bytes = 1 << 20;
    assert_plan(&p, &desc, WINATTN_UNSUPPORTED_PROBLEM, "2147483647 entries");
    assert_non_null(strstr(place_said, "16777216"));
    /* nothing is summed for them */
    desc.passes = WINATTN_PASS_FORWARD;
    assert_plan(&p, &desc, WINATTN_SUCCESS, "");
    /* by its window, which only takes its first token, it needs no lists */
    desc.passes |= WINATTN_PASS_BACKWARD;
    desc.table.index = NULL;
    desc.table.entries = 0;
    desc.table.axes = 1;
    desc.table.window[0] = 1u << 23 | 1u;
    desc.table.sliced = CL_TRUE;
    assert_plan(&p, &desc, WINATTN_SUCCESS, "");
    standin_most_bytes = (size_t)256 << 20;
    desc = with_table(WA_MOST_SUMMED_ENTRIES);
    assert_plan(&p, &desc, WINATTN_SUCCESS, "");
    close_place(&p);
}

/* So are lists that the device has no buffer for. */
static void test_lists_fit_the_device(void **state)
{
    (void)state;
    const place p = open_place("PoCL");
    wa_device device = *made_up_device("PoCL");
    wa_table_buffers buffers = {NULL, NULL, NULL};
    winattn_desc desc = with_table(1000);
    wa_problem problem;
    assert_int_equal(wa_problem_read(&desc, &problem), WINATTN_SUCCESS);
    device.buffer_bytes = 4000; /* which lists of 999 entries would take */
    standin_fail_allocation(1);
    assert_int_equal(
        wa_table_buffers_make(p.context, &device, &problem, &buffers),
        WINATTN_UNSUPPORTED_DEVICE);
    assert_int_equal(standin_allocations(), 0);
    standin_fail_nothing();
    assert_non_null(strstr(winattn_last_reason(), "4004 bytes"));
    device.buffer_bytes = 4004;
    assert_int_equal(
        wa_table_buffers_make(p.context, &device, &problem, &buffers),
        WINATTN_SUCCESS);
    wa_table_buffers_release(&buffers);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_warm_ups_are_little_work, no_cache),
        cmocka_unit_test_setup(test_rows_are_compared_seldom, no_cache),
        cmocka_unit_test_setup(test_rows_have_a_limit, no_cache),
        cmocka_unit_test_setup(test_text_has_a_limit, no_cache),
        cmocka_unit_test_setup(test_rows_are_replaced, no_cache),
        cmocka_unit_test_setup(test_entries_have_a_limit, no_cache),
        cmocka_unit_test_setup(test_lists_fit_the_device, no_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
