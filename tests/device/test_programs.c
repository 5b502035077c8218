/* SPDX-License-Identifier: Apache-2.0
 * Kernels against the oracle, program by program. A row of a table is a
 * program: what differs at compile time, which is what costs time. Each is
 * built once, and computes some 10 to 40 cases that differ at run time only
 * (program_cases.c): sizes, layouts, scales, data, masks' values. A row whose
 * cases build more programs than it says fails: a model that is given an image
 * of another size compiles nothing. The first case gives the same bits each
 * time. A failing case prints the call of `check` that replays it.
 *
 *   test_programs forward|backward TARGET PART EXTENT [FIRST [COUNT]]
 *   test_programs forward|backward TARGET random all [SEED [COUNT]]
 *   test_programs forward TARGET workloads all [FIRST [COUNT]]
 *   test_programs backward TIER given all
 *
 * TARGET: a matrix unit, or a tier, and of matrix the device's unit. PART: of
 * the tables, or all. EXTENT: of rows and types; quick: each row on one of the
 * units, in one type; ci: likewise on another; all: in each type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kit/runner.h"
#include "kit/workloads.h"
#include "program/program_set.h"
#include "program_cases.h"
#include "programs.h"
#include "random_programs.h"

static const program_table *const tables[] = {matrix_programs,
                                              matrix_gradients, local_programs,
                                              cpu_programs, hopper_programs};

/* What ran. */
static size_t rows_run, rows_failed, rows_refused, cases_run, programs_built;

/* The first case of a row, and how many programs others may build. */
static unsigned read_row(const char *row, int dtype, test_case *c, demand *d)
{
    char bad[64], words[512];
    snprintf(words, sizeof words, "%.*s", (int)strcspn(row, "|"), row);
    memset(d, 0, sizeof *d);
    *c = case_default();
    c->heads = c->kv_heads = 1;
    c->dtype = dtype;
    c->tier = chosen.tier;
    c->pass = chosen.pass;
    c->tf32 = chosen.tier == WINATTN_TIER_MATRIX && dtype == WINATTN_FP32;
    d->unit = chosen.tier == WINATTN_TIER_MATRIX ? chosen.matrix_unit : NULL;
    char *more = strstr(words, " more=");
    if (more)
        *more = 0;
    char *only = strstr(words, " only=1");
    if (only)
        memset(only, ' ', strlen(" only=1"));
    if (!demand_parse(words, c, d, bad))
        fail_msg("%s: unknown: %s", row, bad);
    return more ? (unsigned)atoi(more + strlen(" more=")) : 0;
}

/* The first case with other words. A work-group iterates over windows. */
static void vary(const test_case *base, const demand *demanded,
                 const char *text, int seed, test_case *c, demand *d)
{
    char bad[64];
    *c = *base;
    *d = *demanded;
    c->seed = seed;
    if (!program_parse(text, c, d, bad))
        fail_msg("%s: unknown: %s", text, bad);
    if (base->heads > 1) { /* then they count */
        c->heads = base->heads;
        c->kv_heads = base->kv_heads;
    }
    if (c->tier == WINATTN_TIER_MATRIX && d->shape[0] && !d->groups)
        d->groups = c->pass == PASS_FORWARD ? 1 : 2;
    if (!demand_fit(c, d))
        fail_msg("no shape: %s", d->shape);
}

/* False: it failed, and that was printed. */
static bool run_one(const test_case *c, const demand *d, bool first)
{
    char text[1024];
    case_result result;
    const clock_t start = clock();
    const unsigned before = wa_programs_built();
    const bool passed = demand_run(&device, c, d, &result);
    demand_print(c, d, text, sizeof text);
    announce("  %5.2f s, %u built, %.2f of the allowed: %s\n",
             (double)(clock() - start) / CLOCKS_PER_SEC,
             wa_programs_built() - before, result.o_error, text);
    cases_run++;
    if (passed)
        return true;
    /* a device may lack what a demanded shape takes */
    if (first && is_excused(&result)) {
        rows_refused++;
        return false;
    }
    printf("check '%s'\n%s\n", text, result.failure);
    rows_failed += first;
    return false;
}

/* Cases after the first; how many failed. */
static size_t run_others(const char *row, size_t number, const test_case *base,
                         const demand *demanded)
{
    size_t failures = 0;
    test_case c;
    demand d;
    char own[512];
    const bool has_own_only = strstr(row, " only=1") != NULL;
    /* half of them for one row, half for the next */
    const size_t step =
        base->pass == PASS_BACKWARD && strcmp(chosen.extent, "quick") == 0 ? 2
                                                                           : 1;
    bool suits;
    const char *text;
    while (*(row += strcspn(row, "|"))) {
        row++;
        snprintf(own, sizeof own, "%.*s", (int)strcspn(row, "|"), row);
        vary(base, demanded, own, 1, &c, &d);
        failures += !run_one(&c, &d, false);
    }
    for (size_t i = 1, n = 0; (text = program_case(base, i, &suits)); i++) {
        if (!suits || has_own_only || n++ % step != number % step)
            continue;
        vary(base, demanded, text, (int)i, &c, &d);
        failures += !run_one(&c, &d, false);
    }
    return failures;
}

/* The same bits each time, of a plan of the planner's; how many failed. */
static size_t run_again(const test_case *c, const demand *d)
{
    char text[1024];
    case_result result;
    if (d->shape[0] || d->launch || d->groups || d->pairs ||
        case_repeats(&device, c, 4, &result))
        return 0;
    demand_print(c, d, text, sizeof text);
    printf("check '%s', again\n%s\n", text, result.failure);
    return 1;
}

static void run_row(const char *row, size_t number, int dtype)
{
    winattn_programs *keeps;
    test_case base, c;
    demand demanded, d;
    announce("%zu: %s\n", number, row);
    const unsigned more = read_row(row, dtype, &base, &demanded);
    assert_int_equal(
        winattn_programs_create(device.context, device.id, &keeps),
        WINATTN_SUCCESS);
    const unsigned before = wa_programs_built();
    vary(&base, &demanded, "", (int)number + 1, &c, &d);
    rows_run++;
    if (run_one(&c, &d, true)) {
        const unsigned first = wa_programs_built();
        size_t failures = run_others(row, number, &base, &demanded);
        const unsigned built = wa_programs_built() - first;
        if (built > more) {
            printf("row %zu, %s: its cases built %u programs more\n", number,
                   row, built);
            failures++;
        }
        /* a planner may have another unit for it than the row's */
        failures += run_again(&c, &d);
        rows_failed += failures != 0;
    }
    programs_built += wa_programs_built() - before;
    winattn_programs_destroy(keeps);
}

/* Of the operands' types: fp32 is TF32 on a matrix unit, forward. */
static int first_dtype(void)
{
    const wa_matrix_unit *unit = chosen.matrix_unit;
    if (chosen.tier == WINATTN_TIER_AUTO)
        return WINATTN_FP16;
    return chosen.tier != WINATTN_TIER_MATRIX ||
                   (chosen.pass == PASS_FORWARD && unit->has_tf32)
               ? WINATTN_FP32
               : WINATTN_FP16;
}

/* Among how many GPUs, or units, rows are dealt; *own: which this is. GPUs in
 * software share them; PoCL, which compiles slowly, has some of tier local;
 * any other device has all of them. */
static size_t count_targets(size_t *own)
{
    wa_device told;
    *own = 0;
    if (chosen.tier == WINATTN_TIER_LOCAL && device_is_pocl())
        return 8;
    if (!strstr(device.name, "emulated"))
        return 1;
    if (chosen.tier == WINATTN_TIER_MATRIX) {
        *own = (size_t)(chosen.matrix_unit - wa_matrix_units);
        return WA_MATRIX_UNITS;
    }
    if (chosen.tier != WINATTN_TIER_LOCAL)
        return 2;
    assert_int_equal(wa_device_query(device.id, &told), WINATTN_SUCCESS);
    *own = told.wave < 32 ? 0u : told.wave / 32; /* 1 and 2 of 64 lanes */
    return 3;
}

/* Is it the row's turn here, and in this type? */
static bool has_turn(size_t row, int dtype)
{
    const size_t types = (size_t)(3 - first_dtype());
    const bool ci = strcmp(chosen.extent, "ci") == 0;
    size_t own;
    const size_t targets = count_targets(&own);
    if (!row_is_chosen(row))
        return false;
    if (!ci && strcmp(chosen.extent, "quick") != 0)
        return true;
    return (row + own + (ci ? targets / 2 : 0)) % targets == 0 &&
           (row / targets + ci) % types == (size_t)(dtype - first_dtype());
}

static bool is_chosen(const program_table *table)
{
    const int tier = case_tier(table->tier);
    return strcmp(table->pass,
                  chosen.pass == PASS_FORWARD ? "forward" : "backward") == 0 &&
           tier == chosen.tier && (part_is("all") || part_is(table->part));
}

static void run_tables(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const program_table *table = tables[t]; table->rows; table++)
            for (size_t i = 0; is_chosen(table) && i < table->count; i++)
                for (int dtype = first_dtype(); dtype <= WINATTN_BF16; dtype++)
                    if (has_turn(i, dtype))
                        run_row(table->rows[i], i, dtype);
    printf("%zu rows, %zu refused, %zu programs, %zu cases\n", rows_run,
           rows_refused, programs_built, cases_run);
    if (rows_failed)
        fail_msg("%zu rows failed", rows_failed);
    assert_true(rows_run > 0);
}

/* What users have, of a few windows each, and the sliding ones shorter: the
 * planner's choice for large sizes. */
static void run_workloads(void **state)
{
    (void)state;
    for (size_t i = 0; i < workload_count; i++) {
        const demand none = {.unit = NULL};
        test_case c = parsed(workload_rows[i].text);
        c.tier = chosen.tier;
        c.dtype = c.tier == WINATTN_TIER_MATRIX ? 1 + (int)i % 2 : (int)i % 3;
        c.windows = c.windows > 3 ? 3 : c.windows;
        c.heads = c.kv_heads = 1;
        if (c.mask_windows > 2)
            c.mask_windows = 2;
        if (c.variant == WINATTN_SLIDING) {
            const int shrink = 64;
            c.queries = c.queries / shrink + 1;
            c.keys = c.keys / shrink + 1;
            c.query_offset /= shrink;
            c.block = c.block / shrink + 1;
        }
        if (row_is_chosen(i))
            run_one(&c, &none, true);
    }
    if (rows_failed)
        fail_msg("%zu workloads failed", rows_failed);
}

/* ---- Given o and lse ---- */

/* Deltas from a stored o are far off, as v has a mean; and few keys have a
 * row's weights, so that all of it shows in dQ; or k has a mean, so that what
 * rounding leaves of a row of dS shows. */
static const char *const given_cases[] = {
    "data=steep windows=8 heads=2 queries=144 bias=fp32 dtype=fp16",
    "data=steep windows=8 heads=2 queries=144 bias=fp32 dtype=bf16 seed=3",
    "data=steep windows=1 heads=1 queries=576 dtype=bf16",
    "data=common windows=8 heads=2 queries=49 bias=same dtype=bf16 seed=4",
    "data=common windows=8 heads=1 queries=144 d_lse=1 dtype=bf16 seed=5",
    "data=common windows=2 heads=1 queries=200 dtype=bf16 seed=6",
    "data=steep variant=sliding windows=1 heads=1 queries=256 dim=64 block=64 "
    "window_blocks=2 dtype=bf16 seed=2",
};

/* The error counts dQ, dK and dV; see case_run. */
static double error_given(const char *text, int given)
{
    case_result result;
    test_case c = parsed(text);
    c.pass = PASS_BACKWARD;
    c.tier = chosen.tier;
    c.given = given;
    c.outputs = 7;
    if (!case_run(&device, &c, &result))
        fail_msg("check 'pass=backward outputs=7 given=%d %s'\n%s", given,
                 text, result.failure);
    return result.o_error;
}

/* Errors with o and lse given are at most twice those without. */
static void run_given(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof given_cases / sizeof *given_cases; i++) {
        const double own = error_given(given_cases[i], 0);
        for (int given = 1; given <= 2; given++) {
            const double error = error_given(given_cases[i], given);
            announce("%s given=%d: %.3f of the allowed, %.3f without\n",
                     given_cases[i], given, error, own);
            if (error > 2 * own)
                fail_msg("%s given=%d: %.3f of the allowed, %.3f without",
                         given_cases[i], given, error, own);
        }
    }
}

/* ---- Random cases ---- */

/* Most of those that tier auto draws must be computed by kernels with wgmma,
 * and none is left to others because a compiler let products wait for each
 * other, or because tensor maps failed. */
static bool is_by_wgmma(const test_case *c)
{
    char text[4096];
    if (!case_describe(&device, c, text))
        fail_msg("%s", winattn_last_reason());
    if (strstr(text, "the compiler says") ||
        strstr(text, "tensor maps not used"))
        fail_msg("%s", text);
    return strstr(text, "_wgmma") != NULL;
}

/* Programs of one case each, which is all that is random of them. */
static void run_random(void **state)
{
    (void)state;
    int by_wgmma = 0;
    wa_device told;
    assert_int_equal(wa_device_query(device.id, &told), WINATTN_SUCCESS);
    if (chosen.tier == WINATTN_TIER_AUTO && told.compute_capability != 90)
        skip(); /* it has none of these kernels */
    for (int i = 0; i < chosen.count; i++) {
        test_case c;
        demand d = {.unit = chosen.tier == WINATTN_TIER_MATRIX
                                ? chosen.matrix_unit
                                : NULL};
        random_program(chosen.first + i, chosen.pass, chosen.tier, &c, &d);
        if (chosen.tier == WINATTN_TIER_AUTO)
            by_wgmma += is_by_wgmma(&c);
        run_one(&c, &d, true);
    }
    printf("%zu cases, %zu refused\n", cases_run, rows_refused);
    if (chosen.tier == WINATTN_TIER_AUTO)
        assert_in_range(by_wgmma, chosen.count * 9 / 10, chosen.count);
    if (rows_failed)
        fail_msg("%zu cases failed", rows_failed);
}

/* A failing case must be replayed by what it prints. */
static void text_form(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 200; seed++) {
        test_case c, again = case_default();
        demand d = {.unit = chosen.matrix_unit}, d_again;
        char text[1024], text_again[1024];
        memset(&d_again, 0, sizeof d_again);
        random_program(seed, chosen.pass, chosen.tier, &c, &d);
        demand_print(&c, &d, text, sizeof text);
        assert_true(demand_parse(text, &again, &d_again, NULL));
        demand_print(&again, &d_again, text_again, sizeof text_again);
        assert_string_equal(text, text_again);
        assert_int_equal(again.windows, c.windows);
        assert_int_equal(again.kv_heads, c.kv_heads);
        assert_int_equal(again.queries, c.queries);
        assert_int_equal(again.keys, c.keys);
    }
}

int main(int count, char **arguments)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(text_form),
                                              cmocka_unit_test(run_tables)};
    static const struct CMUnitTest random_tests[] = {
        cmocka_unit_test(run_random)};
    static const struct CMUnitTest workload_tests[] = {
        cmocka_unit_test(run_workloads)};
    static const struct CMUnitTest given_tests[] = {
        cmocka_unit_test(run_given)};
    static const test_group groups[] = {
        TEST_GROUP("random", random_tests), TEST_GROUP("given", given_tests),
        TEST_GROUP("workloads", workload_tests), TEST_GROUP(NULL, tests)};
    const test_program program = {.words = {WORD_PASS, WORD_TARGET, WORD_PART,
                                            WORD_EXTENT, WORD_FIRST,
                                            WORD_COUNT},
                                  TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
