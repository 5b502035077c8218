/* SPDX-License-Identifier: Apache-2.0
 * Tries the planners of the tiers, completes what one of them chose, and says
 * what a plan is. */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "plan/defines.h"
#include "plan/planner.h"
#include "plan/schedule.h"

#include "../cl/common/args.h"

/* CL_DEVICE_MAX_PARAMETER_SIZE of the full profile, at least */
#define LEAST_PARAMETER_BYTES 1024u
/* Of a launch. */
#define MOST_ITEMS 0x7fffffffu

static const struct {
    const char *name;
    wa_planner *plan[WA_PASSES];
} tiers[WA_TIERS] = {
    [WINATTN_TIER_AUTO] = {"auto", {NULL, NULL}},
    [WINATTN_TIER_CPU] = {"cpu", {wa_plan_cpu_forward, wa_plan_cpu_backward}},
    [WINATTN_TIER_LOCAL] = {"local",
                            {wa_plan_local_forward, wa_plan_local_backward}},
    [WINATTN_TIER_MATRIX] = {"matrix",
                             {wa_plan_matrix_forward,
                              wa_plan_matrix_backward}},
};

const char *wa_tier_name(winattn_tier tier) { return tiers[tier].name; }

/* ---- Helpers of the planners ---- */

void wa_note_untuned(char untuned[WA_REASON_SIZE], winattn_tier tier,
                     const char *why)
{
    if (why[0] && !untuned[0])
        snprintf(untuned, WA_REASON_SIZE, "tier %s: %.220s",
                 wa_tier_name(tier), why);
}

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

/* ---- What no tier computes ---- */

winattn_status wa_check_device(const wa_device *device)
{
    if (!device->compiles)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "%s has no compiler for OpenCL C", device->name);
    if (!device->has_int64)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE, "%s has no 64-bit integers",
                       device->name);
    if (device->opencl < 102)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "%s has an OpenCL below 1.2", device->name);
    /* a backward kernel has nearly as many; an embedded profile has 256 */
    if (device->max_parameter_bytes < LEAST_PARAMETER_BYTES)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "%s takes %u bytes of kernel arguments, fewer than the "
                       "%u of OpenCL's full profile",
                       device->name, device->max_parameter_bytes,
                       LEAST_PARAMETER_BYTES);
    return WINATTN_SUCCESS;
}

/* Kernels number their blocks, and groups of SUM_ELEMENTS logits of a bias,
 * with 32 bits. */
#define MOST_LOGITS ((uint64_t)1 << 40)
#define MOST_BIASES ((uint64_t)1 << 35)
#define MOST_BLOCKS ((uint64_t)1 << 30)

static winattn_status check_logits(const wa_problem *problem)
{
    const uint64_t logits =
        (uint64_t)problem->heads * problem->queries * problem->keys;
    if (logits > MOST_LOGITS)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "heads x queries x keys is above 2^40");
    if (problem->bias != WINATTN_BIAS_NONE && logits > MOST_BIASES)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "heads x queries x keys of a bias is above 2^35");
    return WINATTN_SUCCESS;
}

/* A device that limits loops is a graphics pipeline on a CPU. */
static winattn_status check_backward(const wa_problem *problem,
                                     const wa_device *device)
{
    if (device->loop_limit)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "%s ends a work-item's loops after %u rounds, too few "
                       "for a backward pass",
                       device->name, device->loop_limit);
    return check_logits(problem);
}

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
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "heads x blocks of %s of a window is above 2^30",
                       rows > MOST_BLOCKS ? "queries" : "keys");
    return WINATTN_SUCCESS;
}

/* ---- Completion ---- */

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
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "heads x queries / %u is above 2^30", step->block_rows);
    if (problem->table.used && plan->tier == WINATTN_TIER_CPU) {
        plan->step[WA_STEP_EXPAND].kernel = "expand_table";
        plan->step[WA_STEP_EXPAND].work_group = 1;
    }
    wa_schedule_forward(problem, device, plan);
    wa_write_forward_defines(problem, device, plan);
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
        wa_append_switch(sum->defines, sizeof sum->defines, WA_SWITCH(LISTED),
                         problem->table.is_listed);
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

/* ---- The loop over tiers ---- */

#define TIER_CHOICES 3

/* Best first. Where a device limits loops, work-items are lanes of vectors,
 * and the tier for GPUs was 8 times as fast on llvmpipe. */
static const winattn_tier *tier_order(const wa_device *device)
{
    static const winattn_tier cpu_order[TIER_CHOICES] = {
        WINATTN_TIER_CPU, WINATTN_TIER_LOCAL, WINATTN_TIER_MATRIX};
    static const winattn_tier gpu_order[TIER_CHOICES] = {
        WINATTN_TIER_MATRIX, WINATTN_TIER_LOCAL, WINATTN_TIER_CPU};
    return device->is_cpu && device->loop_limit == 0 ? cpu_order : gpu_order;
}

const char *wa_tier_refusal(const wa_device *device, winattn_tier tier)
{
    return device->breaks_barriers && tier != WINATTN_TIER_CPU
               ? "the device's compiler breaks kernels with barriers in loops"
               : NULL;
}

/* May it be tried? If not, `refusal` says why. */
static bool is_open(const wa_problem *problem, const wa_device *device,
                    const wa_exclusions *exclusions, winattn_tier tier,
                    char *refusal)
{
    const char *why = wa_tier_refusal(device, tier);
    if (problem->tier != WINATTN_TIER_AUTO && problem->tier != tier)
        snprintf(refusal, WA_REASON_SIZE, "the caller demands tier %s",
                 wa_tier_name(problem->tier));
    else if (why)
        snprintf(refusal, WA_REASON_SIZE, "%s", why);
    else
        snprintf(refusal, WA_REASON_SIZE, "%s", exclusions->reason[tier]);
    return refusal[0] == 0;
}

/* The device as a tier's planner sees it after what was learnt. */
static wa_device device_for_tier(const wa_device *device,
                                 const wa_exclusions *exclusions,
                                 winattn_tier tier)
{
    wa_device seen = *device;
    if (exclusions->most_items[tier])
        seen.max_work_group = exclusions->most_items[tier];
    seen.ignores_tuning = exclusions->untuned[tier][0] != 0;
    seen.lacks_wgmma = exclusions->wgmma[0] != 0;
    seen.lacks_maps = exclusions->maps[0] != 0;
    return seen;
}

/* Fails with the refusal of the demanded tier, else of the best. */
static winattn_status fail_no_tier(const wa_problem *problem,
                                   const wa_device *device,
                                   const wa_plan *plan, winattn_tier best)
{
    const bool demanded = problem->tier != WINATTN_TIER_AUTO;
    /* what tier matrix refuses, others mostly take */
    const winattn_tier wanted = demanded ? problem->tier
                                : best == WINATTN_TIER_MATRIX
                                    ? WINATTN_TIER_LOCAL
                                    : best;
    return wa_fail(demanded ? WINATTN_UNSUPPORTED_PROBLEM
                            : WINATTN_UNSUPPORTED_DEVICE,
                   "no %skernel fits %s; tier %s: %s",
                   plan->pass == WA_BACKWARD ? "backward " : "", device->name,
                   wa_tier_name(wanted), plan->refusals[wanted]);
}

winattn_status wa_plan_make(const wa_problem *problem, const wa_device *device,
                            wa_pass pass, const wa_exclusions *exclusions,
                            wa_plan *plan)
{
    const winattn_tier *order = tier_order(device);
    wa_plan_begin(pass, plan);
    WA_TRY(wa_check_device(device));
    if (pass == WA_BACKWARD)
        WA_TRY(check_backward(problem, device));
    snprintf(plan->wgmma_refusal, sizeof plan->wgmma_refusal, "%s",
             exclusions->wgmma);
    snprintf(plan->maps_refusal, sizeof plan->maps_refusal, "%s",
             exclusions->maps);
    for (size_t i = 0; i < TIER_CHOICES; i++) {
        const winattn_tier tier = order[i];
        const wa_device seen = device_for_tier(device, exclusions, tier);
        wa_note_untuned(plan->untuned, tier, exclusions->untuned[tier]);
        if (is_open(problem, device, exclusions, tier, plan->refusals[tier]) &&
            tiers[tier].plan[pass](problem, &seen, plan)) {
            plan->tier = tier;
            return wa_plan_finish(problem, device, plan);
        }
    }
    return fail_no_tier(problem, device, plan, order[0]);
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
    if (plan->wgmma_refusal[0])
        wa_append(text, size, "%swgmma not used: %s\n", pass,
                  plan->wgmma_refusal);
    if (plan->maps_refusal[0])
        wa_append(text, size, "%stensor maps not used: %s\n", pass,
                  plan->maps_refusal);
    for (size_t i = 0; i < WA_TIERS; i++)
        if (plan->refusals[i][0])
            wa_append(text, size, "%stier %s not taken: %s\n", pass,
                      wa_tier_name((winattn_tier)i), plan->refusals[i]);
    if (is_forward)
        wa_append(text, size, "defines: %s\n",
                  plan->step[WA_STEP_FORWARD].defines);
}
