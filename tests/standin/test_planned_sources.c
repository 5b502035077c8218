/* SPDX-License-Identifier: Apache-2.0
 * What a plan says of a kernel, its source says too: the size of work-groups,
 * and what arrays take in local memory. Host and kernels have the formulas in
 * common (*_extents.h of cl/local/), but not which arrays there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/matrix_unit.h"
#include "family/matrix_tiling.h"
#include "kernels.h"
#include "kit/cases.h"
#include "kit/devices.h"
#include "plan/planner.h"
#include "program/program.h"
#include "standin.h"

/* Bytes between arrays that plans for matrix units count in: each array may
 * have to start with a line of 128 bytes. */
#define MOST_GAPS 512u
/* Bytes of arrays that a program has no use for, of one element each:
 * plans do not count them, and leave that room. */
#define MOST_UNUSED WA_MATRIX_SLACK

/* ---- Programs that were looked at ---- */

#define SLOTS 65536 /* of a table of hashes; 0: empty */
static uint64_t seen[SLOTS];
static size_t program_count;
static int random_cases = 40; /* or as the command line says */

/* Was the kernel with these options looked at? Now it will be. */
static bool is_known(const wa_step *step)
{
    uint64_t hash = 14695981039346656037u;
    const char *parts[] = {step->kernel, " ", step->defines};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *at = parts[i]; *at; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    size_t slot = hash % SLOTS;
    while (seen[slot] && seen[slot] != hash)
        slot = (slot + 1) % SLOTS;
    if (seen[slot])
        return true;
    assert_true(++program_count < SLOTS / 2);
    seen[slot] = hash;
    return false;
}

static void check_kernel(cl_device_id id, const wa_step *step)
{
    wa_program_source source;
    assert_int_equal(
        wa_program_source_of_kernel(id, step->kernel, step->defines, &source),
        WINATTN_SUCCESS);
    kernel_list list = kernels_read(source.text, source.options);
    const kernel_facts *kernel = kernels_find(&list, step->kernel);
    assert_non_null(kernel);
    /* a size that is demanded would lift the limit of registers */
    const bool demands = strstr(step->defines, "-DLIMITS_REGISTERS=1") == NULL;
    const bool counts_gaps = strstr(step->kernel, "_matrix_") != NULL;
    const bool has_unused = counts_gaps || strstr(step->kernel, "_local");
    if (kernel->work_group != (demands ? step->work_group : 0) ||
        kernel->local_bytes >
            step->local_bytes + (has_unused ? MOST_UNUSED : 0u) ||
        step->local_bytes >
            kernel->local_bytes + (counts_gaps ? MOST_GAPS : 0u))
        fail_msg("%s: work-group %zu, planned %u; local bytes %zu, planned "
                 "%u; %s",
                 step->kernel, kernel->work_group, step->work_group,
                 kernel->local_bytes, step->local_bytes, source.options);
    kernels_free(&list);
    wa_program_source_free(&source);
}

/* All kernels but that which expands tables, in both passes, with each tier.
 */
static void check_plans(const wa_device *made_up, wa_problem *problem)
{
    static const wa_exclusions none;
    const cl_device_id id = standin_device(made_up);
    wa_device device = *made_up;
    device.matrix_unit = wa_matrix_unit_of(made_up);
    for (int tier = WINATTN_TIER_CPU; tier < WA_TIERS; tier++)
        for (int pass = 0; pass < WA_PASSES; pass++) {
            wa_plan plan;
            problem->tier = (winattn_tier)tier;
            if (wa_plan_make(problem, &device, (wa_pass)pass, &none, &plan) !=
                WINATTN_SUCCESS)
                continue;
            for (int i = 0; i < WA_STEPS; i++)
                if (i != WA_STEP_EXPAND && plan.step[i].kernel &&
                    !is_known(&plan.step[i]))
                    check_kernel(id, &plan.step[i]);
        }
}

static void test_sources_are_as_planned(void **state)
{
    (void)state;
    for (int seed = 1; seed <= random_cases; seed++) {
        const test_case c = seed % 2 ? case_random_grid(seed, 0, seed / 2 % 2)
                                     : case_random_backward(seed, 0);
        winattn_desc desc = case_desc(&c);
        wa_problem problem;
        desc.tier = WINATTN_TIER_AUTO;
        desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
        desc.allow_tf32 = desc.dtype == WINATTN_FP32;
        if (c.entries) /* an index, which is data */
            continue;
        if (wa_problem_read(&desc, &problem) != WINATTN_SUCCESS)
            fail_msg("seed %d: %s", seed, winattn_last_reason());
        for (size_t i = 0; i < made_up_count; i++)
            check_plans(&made_up_devices[i], &problem);
    }
    print_message("%zu programs\n", program_count);
    assert_true(program_count > 30 * (size_t)random_cases);
}

int main(int count, char **arguments)
{
    if (count == 2)
        random_cases = atoi(arguments[1]);
    setenv("WINATTN_CACHE", "0", 1);
    standin_reset();
    standin_quiet = false;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources_are_as_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
