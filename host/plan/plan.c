/* SPDX-License-Identifier: Apache-2.0
 * Completes what a kernel family chose, and says what a plan is. */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "plan/defines.h"
#include "plan/planner.h"
#include "plan/schedule.h"

#include "../cl/common/args.h"

/* Of a launch. */
#define MOST_ITEMS 0x7fffffffu

const char *wa_tier_name(winattn_tier tier)
{
    static const char *const names[WA_TIERS] = {"auto", "cpu", "local",
                                                "matrix"};
    return names[tier];
}

/* ---- Helpers of families ---- */

uint32_t wa_even_size(uint32_t all, uint32_t most)
{
    return most == 0 ? 0 : wa_ceil_div(all, wa_ceil_div(all, most));
}

double wa_plan_key_blocks(const wa_problem *problem, uint32_t block_rows,
                          uint32_t block_keys)
{
    double keys = wa_problem_seen_keys(problem);
    if (problem->variant != WINATTN_SLIDING)
        return wa_ceil_div(problem->keys, block_keys);
    /* rows of one work tile may lie in different blocks of tokens */
    keys += (double)block_rows + problem->block;
    keys = keys < problem->keys ? keys : problem->keys;
    return keys / block_keys + 2.0; /* a part at each end, the sink's too */
}

/* ---- Completion ---- */

/* Kernels number their blocks with 32 bits. */
#define MOST_BLOCKS ((uint64_t)1 << 30)

static winattn_status check_blocks(const wa_problem *problem,
                                   const wa_plan *plan)
{
    const wa_schedule *s = &plan->schedule;
    const uint32_t row_blocks =
        s->bound_blocks > s->row_blocks ? s->bound_blocks : s->row_blocks;
    const uint64_t rows =
        plan->fused ? 0 : (uint64_t)problem->heads * row_blocks;
    const uint64_t keys = (uint64_t)problem->kv_heads * s->key_blocks *
                          (s->key_parts ? s->key_parts : 1);
    if (rows > MOST_BLOCKS || keys > MOST_BLOCKS)
        return WA_UNSUPPORTED("heads x blocks of %s of a window is above 2^30",
                              rows > MOST_BLOCKS ? "queries" : "keys");
    return WINATTN_SUCCESS;
}

void wa_plan_begin(wa_pass pass, wa_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->pass = pass;
}

static winattn_status finish_forward(const wa_problem *problem,
                                     const wa_device *device, wa_plan *plan)
{
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    const uint64_t row_blocks =
        wa_ceil_div(problem->queries, step->block_rows);
    plan->streams = problem->variant == WINATTN_SLIDING ||
                    problem->keys > step->block_keys;
    if (row_blocks * problem->heads > MOST_BLOCKS)
        return WA_UNSUPPORTED("heads x queries / %u is above 2^30",
                              step->block_rows);
    wa_schedule_forward(problem, device, plan);
    return WINATTN_SUCCESS;
}

static winattn_status finish_backward(const wa_problem *problem,
                                      const wa_device *device, wa_plan *plan)
{
    plan->step[WA_STEP_SUM].kernel = "sum_partials";
    plan->step[WA_STEP_SUM].work_group = SUM_ELEMENTS * SUM_PARTS;
    plan->step[WA_STEP_SUM].local_bytes = 4 * SUM_ELEMENTS * SUM_PARTS;
    if (problem->table.used) {
        wa_step *sum = &plan->step[WA_STEP_SUM_TABLE];
        sum->kernel = "sum_table";
        sum->work_group = TABLE_ITEMS;
        sum->local_bytes = 4 * TABLE_ITEMS;
        wa_step_switch(sum, WA_SWITCH(LISTED), problem->table.is_listed);
        plan->schedule.entries_per_launch = MOST_ITEMS / TABLE_ITEMS;
    }
    wa_schedule_backward(problem, device, plan);
    return check_blocks(problem, plan);
}

winattn_status wa_plan_finish(const wa_problem *problem,
                              const wa_device *device, wa_plan *plan)
{
    return plan->pass == WA_FORWARD ? finish_forward(problem, device, plan)
                                    : finish_backward(problem, device, plan);
}

/* ---- What a plan says of itself ---- */

static void describe_forward(const wa_plan *plan, char *text, size_t size)
{
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    wa_append(text, size, "tier: %s\nkernel: %s\n", wa_tier_name(plan->tier),
              step->kernel);
    wa_append(text, size, "tile: %u queries x %u keys%s\n", step->block_rows,
              step->block_keys, plan->streams ? ", streaming" : "");
    wa_append(text, size, "work-group size: %u\nlocal bytes: %u\n",
              step->work_group, step->local_bytes);
}

static void describe_backward(const wa_plan *plan, char *text, size_t size)
{
    const wa_schedule *s = &plan->schedule;
    wa_append(text, size, "backward tier: %s\n", wa_tier_name(plan->tier));
    for (int i = WA_STEP_FIRST; i <= WA_STEP_LAST; i++) {
        const wa_step *step = &plan->step[i];
        if (step->kernel)
            wa_append(text, size,
                      "backward kernel: %s, tile %u queries x %u keys, "
                      "work-group size %u, local bytes %u\n",
                      step->kernel, step->block_rows, step->block_keys,
                      step->work_group, step->local_bytes);
    }
    if (s->row_splits)
        wa_append(text, size,
                  "backward partial sums: %u of rows, %u of keys\n",
                  s->row_splits, s->splits);
    else
        wa_append(text, size, "backward partial sums: %u\n", s->splits);
}

void wa_plan_describe(const wa_plan *plan, char *text, size_t size)
{
    const bool is_forward = plan->pass == WA_FORWARD;
    const char *pass = is_forward ? "" : "backward ";
    (is_forward ? describe_forward : describe_backward)(plan, text, size);
    wa_append(text, size, "%sworkspace bytes: %llu\n", pass,
              (unsigned long long)plan->workspace.all);
    wa_append(text, size, "%sreason: %s\n", pass, plan->reason);
    if (plan->untuned[0])
        wa_append(text, size, "%smeasured shape not taken: %s\n", pass,
                  plan->untuned);
    for (size_t i = WA_TIERS; i < WA_ENGINES; i++)
        if (plan->refusals[i][0])
            wa_append(text, size, "%s%s not used: %s\n", pass,
                      wa_engine_name((wa_engine)i), plan->refusals[i]);
    for (size_t i = 0; i < WA_TIERS; i++)
        if (plan->refusals[i][0])
            wa_append(text, size, "%stier %s not taken: %s\n", pass,
                      wa_tier_name((winattn_tier)i), plan->refusals[i]);
    if (is_forward)
        wa_append(text, size, "defines: %s\n",
                  plan->step[WA_STEP_FORWARD].defines);
}
