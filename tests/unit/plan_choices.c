/* SPDX-License-Identifier: Apache-2.0
 * What is chosen for devices that nobody here owns stands in a table, and is
 * legal for what people run and for problems drawn at random. */
#include <stdio.h>
#include <string.h>

#include "kit/workloads.h"
#include "plan_groups.h"
#include "plan_legal.h"
#include "plan_made.h"

static const struct {
    const char *device, *problem, *tier;
    uint32_t work_group, local_bytes, block_rows;
} expected[] = {
#include "expected_plans.inc"
};

static void table(void **state)
{
    (void)state;
    size_t seen = 0;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t j = 0; j < sizeof expected / sizeof *expected; j++) {
            if (strcmp(expected[j].device, devices[i].name) != 0)
                continue;
            const wa_problem p = problem_of(expected[j].problem);
            const wa_plan plan = plan_of(&p, &devices[i]);
            seen++;
            if (devices[i].compute_capability == 90 && !has_hopper())
                continue;
            if (strcmp(wa_tier_name(plan.tier), expected[j].tier) != 0 ||
                plan.step[WA_STEP_FORWARD].work_group !=
                    expected[j].work_group ||
                plan.step[WA_STEP_FORWARD].local_bytes !=
                    expected[j].local_bytes ||
                plan.step[WA_STEP_FORWARD].block_rows !=
                    expected[j].block_rows)
                fail_msg("%s, %s: now %s %u %u %u\n%s", expected[j].device,
                         expected[j].problem, wa_tier_name(plan.tier),
                         plan.step[WA_STEP_FORWARD].work_group,
                         plan.step[WA_STEP_FORWARD].local_bytes,
                         plan.step[WA_STEP_FORWARD].block_rows,
                         plan.step[WA_STEP_FORWARD].defines);
        }
    assert_int_equal(seen, sizeof expected / sizeof *expected);
    /* every device stands in the table */
    assert_true(seen >= 3 * made_up_count);
}

void print_choices(void)
{
    static const char *const problems[] = {
        "bias=fp32 mask=regions mask_windows=4",
        "variant=cosine queries=256 bias=same dtype=fp16",
        "queries=144 dtype=bf16",
        "variant=sliding dim=64 block=256 queries=4096",
        "tf32=1 queries=64 bias=same",
    };
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t j = 0; j < sizeof problems / sizeof *problems; j++) {
            const wa_problem p = problem_of(problems[j]);
            const wa_plan plan = plan_of(&p, &devices[i]);
            printf("{\"%s\", \"%s\", \"%s\", %u, %u, %u},\n", devices[i].name,
                   problems[j], wa_tier_name(plan.tier),
                   plan.step[WA_STEP_FORWARD].work_group,
                   plan.step[WA_STEP_FORWARD].local_bytes,
                   plan.step[WA_STEP_FORWARD].block_rows);
        }
}

static void workloads(void **state)
{
    (void)state;
    for (size_t i = 0; i < made_up_count; i++)
        for (size_t w = 0; w < workload_count; w++)
            for (int dtype = 0; dtype <= WINATTN_BF16; dtype++)
                for (int tier = 0; tier < WA_TIERS; tier++) {
                    wa_problem p = problem_of(workload_rows[w].text);
                    p.dtype = (winattn_dtype)dtype;
                    p.allows_tf32 = dtype == WINATTN_FP32 && w % 2;
                    p.tier = (winattn_tier)tier;
                    wa_plan plan;
                    if (!plan_or_refusal(&p, &devices[i], &plan))
                        continue;
                    assert_legal(&p, &devices[i], &plan,
                                 workload_rows[w].name);
                    if (tier != WINATTN_TIER_AUTO)
                        assert_int_equal(plan.tier, tier);
                    else if (devices[i].loop_limit == 0)
                        assert_int_equal(
                            plan.tier, best_tier(&p, &devices[i], WA_FORWARD));
                }
}

static void random_problems(void **state)
{
    (void)state;
    random_state r = random_seeded(1);
    for (int round = 0; round < 100; round++) {
        test_case c = case_default();
        c.variant = random_int(&r, 0, 2);
        c.dtype = random_int(&r, 0, 2);
        c.tf32 = c.dtype == WINATTN_FP32 && round % 4 < 2;
        c.queries = random_int(&r, 1, round % 2 ? 64 : 1000);
        c.keys = random_int(&r, 1, round % 2 ? 64 : 1000);
        c.dim = random_int(&r, 1, 256);
        c.heads = c.kv_heads = random_int(&r, 1, 32);
        if (c.variant == WINATTN_SLIDING)
            c.block = random_int(&r, 1, 100);
        else
            c.bias = random_int(&r, 0, 2);
        const winattn_desc d = case_desc(&c);
        wa_problem p;
        assert_int_equal(wa_problem_read(&d, &p), WINATTN_SUCCESS);
        char text[256];
        case_print(&c, text, sizeof text);
        for (size_t i = 0; i < made_up_count; i++)
            for (int tier = 0; tier < WA_TIERS; tier++) {
                p.tier = (winattn_tier)tier;
                wa_plan plan;
                if (plan_or_refusal(&p, &devices[i], &plan))
                    assert_legal(&p, &devices[i], &plan, text);
            }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(table),
    cmocka_unit_test(workloads),
    cmocka_unit_test(random_problems),
};
const test_group plan_choices = TEST_GROUP(NULL, tests);
