/* SPDX-License-Identifier: Apache-2.0
 * What plan.h and the kernels' texts promise each other, of every plan of
 * either pass: options are read, steps are those of the pass, and the parts of
 * the workspace hold what the steps leave there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/workloads.h"
#include "plan/family.h"
#include "plan/plan.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"
#include "program/source.h"

#include "../cl/common/args.h"

#define RANDOM_CASES 40

/* ---- Texts of programs ---- */

#define MOST_KERNELS 64
#define MOST_NAMES 64
#define NAME_SIZE 64

typedef struct program {
    const char *kernel;
    char *text;                        /* without comments */
    char names[MOST_NAMES][NAME_SIZE]; /* that were seen to be read */
    size_t count;
} program;

static program programs[MOST_KERNELS];
static size_t program_count;

static void blank_comments(char *text)
{
    for (char *at = text; (at = strstr(at, "/*"));) {
        const char *end = strstr(at, "*/");
        assert_non_null(end);
        while (at < end + 2)
            *at++ = ' ';
    }
    assert_null(strstr(text, "//"));
}

static program *program_of(const char *kernel)
{
    for (size_t i = 0; i < program_count; i++)
        if (strcmp(programs[i].kernel, kernel) == 0)
            return &programs[i];
    assert_true(program_count < MOST_KERNELS);
    program *made = &programs[program_count++];
    made->kernel = kernel;
    assert_int_equal(wa_source_of_kernel(kernel, &made->text),
                     WINATTN_SUCCESS);
    if (!made->text)
        fail_msg("no text of kernel %s", kernel);
    blank_comments(made->text);
    return made;
}

static int free_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < program_count; i++)
        free(programs[i].text);
    memset(programs, 0, sizeof programs);
    program_count = 0;
    return 0;
}

/* Does a file of it REQUIRE the switch? */
static bool reads(program *of, const char *name)
{
    char line[NAME_SIZE + 16];
    for (size_t i = 0; i < of->count; i++)
        if (strcmp(of->names[i], name) == 0)
            return true;
    assert_true(of->count < MOST_NAMES && strlen(name) < NAME_SIZE);
    snprintf(line, sizeof line, "\nREQUIRE(%s)\n", name);
    if (!strstr(of->text, line))
        return false;
    strcpy(of->names[of->count++], name);
    return true;
}

/* ---- Contracts ---- */

typedef struct planned {
    const wa_problem *problem;
    const wa_device *device;
    const wa_plan *plan;
    const char *what; /* the problem, in a failure */
} planned;

static void fail_of(const planned *of, const char *why)
{
    fail_msg("%s, %s: %s", of->device->name, of->what, why);
}

/* NULL, or what is wrong with an option: "-D" and a name, or another one.
 * Names of extensions are for a compiler's own headers. */
static const char *wrong_option(const char *option, program *text)
{
    if (strncmp(option, "-D", 2) != 0 || strncmp(option, "-Dcl_", 5) == 0)
        return NULL;
    return reads(text, option + 2) ? NULL : "nobody reads";
}

/* Each is sent once, and somebody reads it. */
static void assert_options(const planned *of, const wa_step *step)
{
    char options[WA_DEFINES_SIZE], why[WA_DEFINES_SIZE + 256];
    const char *seen[MOST_NAMES];
    size_t count = 0;
    program *text = program_of(step->kernel);
    strcpy(options, step->defines);
    for (char *word = strtok(options, " "); word; word = strtok(NULL, " ")) {
        word[strcspn(word, "=")] = 0;
        const char *wrong = wrong_option(word, text);
        for (size_t i = 0; i < count; i++)
            if (strcmp(seen[i], word) == 0)
                wrong = "sent twice";
        if (wrong) {
            snprintf(why, sizeof why, "%s: %s %s in %s", step->kernel, wrong,
                     word, step->defines);
            fail_of(of, why);
        }
        assert_true(count < MOST_NAMES);
        seen[count++] = word;
    }
}

/* Steps of the other pass, and those that a plan has no use for. */
static void assert_steps(const planned *of)
{
    const wa_plan *plan = of->plan;
    const wa_step *step = plan->step;
    const bool has_table = of->problem->table.used;
    const char *broken = NULL;
    if (plan->pass == WA_FORWARD) {
        REQUIRE(step[WA_STEP_FORWARD].kernel);
        for (int i = WA_STEP_GIVEN; i < WA_STEPS; i++)
            REQUIRE(!step[i].kernel);
    } else {
        REQUIRE(!step[WA_STEP_FORWARD].kernel);
        REQUIRE(step[WA_STEP_KEYS].kernel && step[WA_STEP_SUM].kernel);
        REQUIRE(plan->fused == !step[WA_STEP_ROWS].kernel);
        REQUIRE(!step[WA_STEP_STATISTICS].kernel ||
                (!plan->fused && (plan->tier == WINATTN_TIER_LOCAL ||
                                  of->problem->variant == WINATTN_SLIDING)));
        REQUIRE(!step[WA_STEP_GIVEN].kernel ||
                (step[WA_STEP_STATISTICS].kernel &&
                 step[WA_STEP_GIVEN].block_rows ==
                     step[WA_STEP_STATISTICS].block_rows));
        REQUIRE(has_table == (step[WA_STEP_SUM_TABLE].kernel != NULL));
    }
    REQUIRE(!step[WA_STEP_EXPAND].kernel || has_table);
    for (int i = 0; i < WA_STEPS; i++) {
        REQUIRE(step[i].kernel || !step[i].defines[0]);
        REQUIRE(!step[i].kernel || step[i].work_group >= 1);
        REQUIRE(step[i].work_group <= of->device->max_work_group);
        REQUIRE(step[i].local_bytes <= of->device->local_bytes);
    }
    if (broken)
        fail_of(of, broken);
}

/* Parts have what is needed and are filled up to the next one's place. */
static bool holds(uint64_t part, uint64_t needed)
{
    return part % 16 == 0 && part >= needed && part < needed + 16;
}

static void assert_workspace(const planned *of)
{
    const wa_problem *p = of->problem;
    const wa_schedule *s = &of->plan->schedule;
    const wa_workspace *w = &of->plan->workspace;
    const bool expands = of->plan->step[WA_STEP_EXPAND].kernel != NULL;
    const bool is_backward = of->plan->pass == WA_BACKWARD;
    /* of what rows have: the kernel of rows sums it, where it iterates over
     * windows */
    const uint64_t splits = s->row_splits ? s->row_splits : s->splits;
    const uint64_t sums = s->row_splits ? splits * s->row_blocks : splits;
    const uint64_t rows = (uint64_t)p->heads * p->queries;
    const char *broken = NULL;
    REQUIRE(holds(w->statistics,
                  is_backward && !of->plan->fused
                      ? s->windows_per_launch * rows * ROW_NUMBERS * 4
                      : 0));
    REQUIRE(holds(w->bias, is_backward && p->bias != WINATTN_BIAS_NONE
                               ? splits * rows * p->keys * 4
                               : 0));
    REQUIRE(holds(w->scale, is_backward && p->variant == WINATTN_COSINE
                                ? sums * p->heads * 4
                                : 0));
    REQUIRE(holds(w->pad, is_backward && wa_problem_padding(p) == 1
                              ? (uint64_t)s->splits * s->key_blocks *
                                    p->kv_heads * p->head_dim * 4
                              : 0));
    REQUIRE(holds(w->dense, p->table.used && (is_backward || expands)
                                ? rows * p->keys * 4
                                : 0));
    REQUIRE(holds(w->bounds, is_backward && p->variant == WINATTN_SLIDING &&
                                     of->plan->tier == WINATTN_TIER_MATRIX
                                 ? s->windows_per_launch * p->heads *
                                       s->bound_blocks * ROW_NUMBERS * 4
                                 : 0));
    REQUIRE(w->maps == (of->plan->family->engine == WA_ENGINE_MORE_SPECIAL
                            ? SLIDING_MAP_ROOM
                            : 0));
    REQUIRE(w->all == w->statistics + w->bias + w->scale + w->bounds +
                          w->maps + 2 * w->pad + w->dense);
    if (broken)
        fail_of(of, broken);
}

/* ---- Problems ---- */

/* On all devices, in both passes. */
static size_t check_problem(const wa_problem *p, const char *what)
{
    static const wa_exclusions none;
    size_t count = 0;
    for (size_t i = 0; i < made_up_count; i++)
        for (int pass = 0; pass < WA_PASSES; pass++) {
            wa_plan plan;
            if (wa_plan_make(p, &devices[i], (wa_pass)pass, &none, &plan) !=
                WINATTN_SUCCESS)
                continue;
            const planned of = {p, &devices[i], &plan, what};
            assert_steps(&of);
            assert_workspace(&of);
            for (int s = 0; s < WA_STEPS; s++)
                if (plan.step[s].kernel)
                    assert_options(&of, &plan.step[s]);
            count++;
        }
    return count;
}

/* With each tier by demand, one of whose plans is that of WINATTN_TIER_AUTO.
 */
static size_t check_case(const test_case *c)
{
    char what[512];
    size_t count = 0;
    const winattn_desc d = case_desc(c);
    wa_problem p;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    case_print(c, what, sizeof what);
    for (int tier = WINATTN_TIER_CPU; tier < WA_TIERS; tier++) {
        p.tier = (winattn_tier)tier;
        count += check_problem(&p, what);
    }
    return count;
}

static size_t check_rows(const workload_row *rows, size_t row_count)
{
    size_t count = 0;
    for (size_t i = 0; i < row_count; i++)
        for (int dtype = 0; dtype <= WINATTN_BF16; dtype++) {
            test_case c = parsed(rows[i].text);
            c.dtype = dtype;
            c.tf32 = dtype == WINATTN_FP32 && i % 2;
            count += check_case(&c);
        }
    return count;
}

static void known_plans(void **state)
{
    (void)state;
    assert_true(check_rows(workload_rows, workload_count) > 1000);
    assert_true(check_rows(map_rows, map_count) > 1000);
}

static void random_plans(void **state)
{
    (void)state;
    for (int seed = 1; seed <= RANDOM_CASES; seed++) {
        const test_case made[] = {
            case_random(seed, WINATTN_TIER_AUTO),
            case_random_backward(seed, WINATTN_TIER_AUTO),
            case_random_grid(seed, WINATTN_TIER_AUTO, PASS_FORWARD),
            case_random_grid(seed, WINATTN_TIER_AUTO, PASS_BACKWARD)};
        for (size_t i = 0; i < sizeof made / sizeof *made; i++)
            assert_true(check_case(&made[i]) > 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(known_plans, free_programs),
    cmocka_unit_test_teardown(random_plans, free_programs),
};
const test_group plan_contract = TEST_GROUP(NULL, tests);
