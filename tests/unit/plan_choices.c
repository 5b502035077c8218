/* SPDX-License-Identifier: Apache-2.0
 * What is chosen for devices that nobody here owns stands in a table, and is
 * legal for what people run, with each tier. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "kit/workloads.h"
#include "plan_groups.h"
#include "plan_made.h"

/* ---- The table ---- */

/* Choices for large windows were made at first when all sizes of blocks were
 * walked one by one. */
static const struct {
    const char *device, *problem, *choice;
} expected[] = {
#include "expected_plans.inc"
};
#define ROWS (sizeof expected / sizeof *expected)

/* The kernels of the problem's pass, or of both where it names none, each with
 * its blocks, work-items and local bytes; of a pass without any nothing. */
static void write_choice(const char *problem, const wa_device *device,
                         char *text, size_t size)
{
    static const wa_exclusions none;
    const test_case c = parsed(problem);
    winattn_desc d = case_desc(&c);
    wa_problem p;
    d.passes |= WINATTN_PASS_BACKWARD;
    if (!strstr(problem, "pass="))
        d.passes |= WINATTN_PASS_FORWARD;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    text[0] = 0;
    for (int pass = 0; pass < WA_PASSES; pass++) {
        wa_plan plan;
        if (!p.passes[pass] || wa_plan_make(&p, device, (wa_pass)pass, &none,
                                            &plan) != WINATTN_SUCCESS)
            continue;
        assert_legal(&p, device, &plan, problem);
        for (int i = WA_STEP_FIRST; i <= WA_STEP_LAST; i++) {
            const wa_step *step = &plan.step[i];
            if (step->kernel && i != WA_STEP_GIVEN)
                wa_append(text, size, "%s%s %ux%u %u %u", text[0] ? ", " : "",
                          step->kernel, step->block_rows, step->block_keys,
                          step->work_group, step->local_bytes);
        }
    }
    wa_forget_failure();
}

static void table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        char text[512];
        if (strstr(expected[i].choice, "wgmma") && !has_hopper())
            continue;
        write_choice(expected[i].problem, device_named(expected[i].device),
                     text, sizeof text);
        if (strcmp(text, expected[i].choice) != 0)
            fail_msg("%s on %s: now %s, not %s", expected[i].problem,
                     expected[i].device, text, expected[i].choice);
    }
}

void print_choices(void)
{
    for (size_t i = 0; i < ROWS; i++) {
        char text[512];
        write_choice(expected[i].problem, device_named(expected[i].device),
                     text, sizeof text);
        printf("{\"%s\", \"%s\",\n \"%s\"},\n", expected[i].device,
               expected[i].problem, text);
    }
}

/* ---- Legal ones ---- */

/* Only a device that ends loops early is left without a plan, or whoever
 * demands a tier. */
static void assert_may_refuse(const wa_problem *p, const wa_device *device,
                              wa_pass pass, const char *what)
{
    const char *why = winattn_last_reason();
    if (p->tier == WINATTN_TIER_MATRIX && !suits_matrix(p, device, pass) &&
        strstr(why, "tier matrix: "))
        return;
    if (device->loop_limit == 0 || !strstr(why, "loops"))
        fail_msg("%s, %s: %s", device->name, what, why);
}

/* The one that is demanded, or that which was made for such a device;
 * gradients of large windows may not suit a matrix unit. */
static void assert_expected_tier(const wa_problem *p, const wa_device *device,
                                 const wa_plan *plan, const char *what)
{
    const winattn_tier best = best_tier(p, device, plan->pass);
    const bool may_be_local = plan->pass == WA_BACKWARD && p->keys > 256 &&
                              plan->refusals[WINATTN_TIER_MATRIX][0];
    if (plan->tier != (p->tier ? p->tier : best) && !device->loop_limit &&
        !(may_be_local && plan->tier == WINATTN_TIER_LOCAL))
        fail_msg("%s on %s: tier %s", what, device->name,
                 wa_tier_name(plan->tier));
}

/* On all devices, in both passes; returns how many plans there are. */
static size_t check_problem(const wa_problem *p, const char *what)
{
    static const wa_exclusions none;
    size_t count = 0;
    for (size_t i = 0; i < made_up_count; i++)
        for (int pass = 0; pass < WA_PASSES; pass++) {
            wa_plan plan;
            const winattn_status status =
                wa_plan_make(p, &devices[i], (wa_pass)pass, &none, &plan);
            if (status != WINATTN_SUCCESS) {
                assert_may_refuse(p, &devices[i], (wa_pass)pass, what);
                continue;
            }
            assert_legal(p, &devices[i], &plan, what);
            assert_expected_tier(p, &devices[i], &plan, what);
            count++;
        }
    return count;
}

static size_t check_case(const test_case *c)
{
    char what[512];
    size_t count = 0;
    winattn_desc d = case_desc(c);
    wa_problem p;
    assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
    case_print(c, what, sizeof what);
    for (int tier = 0; tier < WA_TIERS; tier++) {
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

static void known_problems(void **state)
{
    (void)state;
    assert_true(check_rows(workload_rows, workload_count) > 1000);
    assert_true(check_rows(map_rows, map_count) > 1000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(table),
    cmocka_unit_test(known_problems),
};
const test_group plan_choices = TEST_GROUP(NULL, tests);
