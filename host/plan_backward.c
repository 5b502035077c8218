/* SPDX-License-Identifier: Apache-2.0
 * Plans the backward pass: cl/backward_*_cpu.cl. */
#include "plan_backward.h"

#include <stdio.h>
#include <string.h>

#include "status.h"

/* What a work-item may keep of keys, in private memory: a CPU's worker thread
 * has a stack of megabytes, a GPU sets the memory aside for all its threads.
 */
#define CPU_KEY_BYTES (1024u * 1024u)
#define GPU_KEY_BYTES (32u * 1024u)
/* Rows of a unit of the first kernel of two. */
#define CPU_ROWS 96u
#define GPU_ROWS 16u
/* Of partial sums and of statistics in the workspace. */
#define MOST_BYTES (16u * 1024u * 1024u)
/* Work-items per compute unit that keep a device busy. */
#define ITEMS_PER_UNIT 8u

static uint64_t round_up(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

static uint64_t at_least_one(uint64_t x) { return x ? x : 1; }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* K and V transposed, K as it is, dK and dV, all fp32, for one key. */
static uint32_t bytes_per_key(const wa_problem *problem)
{
    return 5 * 4 * (wa_ceil_div(problem->head_dim, 16) * 16);
}

static void choose_blocks(const wa_problem *problem, const wa_device *device,
                          wa_backward_plan *plan)
{
    const uint32_t most_bytes = device->is_cpu ? CPU_KEY_BYTES : GPU_KEY_BYTES;
    const uint32_t most_rows = device->is_cpu ? CPU_ROWS : GPU_ROWS;
    const uint32_t fitting = most_bytes / bytes_per_key(problem);
    plan->whole =
        problem->variant != WINATTN_SLIDING && problem->keys <= fitting;
    uint32_t keys = problem->keys;
    if (!plan->whole) {
        /* short blocks keep compute units busy and skip what is hidden */
        keys = (uint32_t)least(device->is_cpu ? 128 : 32, fitting);
        keys = keys < 16 ? 16 : keys / 16 * 16;
    }
    wa_choose_cpu_shape(problem, device, problem->queries, keys, &plan->shape);
    const uint32_t tile = plan->shape.tile_vecs * plan->shape.lanes;
    plan->block_keys = wa_ceil_div(keys, tile) * tile;
    plan->key_blocks = wa_ceil_div(problem->keys, plan->block_keys);
    plan->block_rows = problem->variant == WINATTN_SLIDING
                           ? most_rows
                           : (uint32_t)least(problem->queries, most_rows);
    plan->row_blocks = wa_ceil_div(problem->queries, plan->block_rows);
}

static void choose_slots(const wa_problem *problem, const wa_device *device,
                         wa_backward_plan *plan)
{
    const uint64_t logits =
        (uint64_t)problem->heads * problem->queries * problem->keys;
    const bool has_bias = problem->bias != WINATTN_BIAS_NONE;
    const uint64_t owners = (uint64_t)problem->kv_heads * plan->key_blocks;
    const uint64_t busy =
        ((uint64_t)device->compute_units * ITEMS_PER_UNIT + owners - 1) /
        owners;
    uint64_t slots = busy;
    if (has_bias)
        slots = least(slots, MOST_BYTES / 4 / logits);
    slots = least(at_least_one(slots), at_least_one(problem->windows));
    /* windows dealt evenly: as many rounds with fewer slots */
    const uint64_t rounds = (problem->windows + slots - 1) / slots;
    slots = rounds ? (problem->windows + rounds - 1) / rounds : slots;
    plan->slots = (uint32_t)slots;

    const uint64_t row_bytes =
        12u * (uint64_t)problem->heads * problem->queries;
    const double operations = 2.5 * wa_problem_row_operations(problem) *
                              problem->heads * problem->queries;
    const double by_time = wa_launch_operations(device) / operations;
    uint64_t windows =
        by_time < 1e9 ? (uint64_t)by_time : (uint64_t)1000000000u;
    if (!plan->whole)
        windows = least(windows, MOST_BYTES / row_bytes);
    else /* slots that all have work */
        windows = windows / slots * slots;
    windows = windows > slots || !plan->whole ? windows : slots;
    plan->windows_per_launch =
        least(at_least_one(windows), at_least_one(problem->windows));

    plan->statistics_bytes =
        plan->whole ? 0 : round_up(plan->windows_per_launch * row_bytes);
    plan->bias_bytes = has_bias ? round_up(slots * logits * 4) : 0;
    plan->scale_bytes = problem->variant == WINATTN_COSINE
                            ? round_up(slots * problem->heads * 4)
                            : 0;
    plan->workspace_bytes =
        plan->statistics_bytes + plan->bias_bytes + plan->scale_bytes;
}

winattn_status wa_backward_plan_make(const wa_problem *problem,
                                     const wa_device *device,
                                     wa_backward_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    if (problem->tier == WINATTN_TIER_LOCAL)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "tier local has no backward pass");
    if (device->loop_limit)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "%s ends a work-item's loops after %u rounds, too few "
                       "for a backward pass",
                       device->name, device->loop_limit);
    if ((uint64_t)problem->heads * problem->queries * problem->keys >
        (uint64_t)1 << 40)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "heads x queries x keys is above 2^40");
    plan->tier = WINATTN_TIER_CPU;
    choose_blocks(problem, device, plan);
    choose_slots(problem, device, plan);
    wa_append_problem(problem, device, plan->block_rows, plan->block_keys,
                      plan->defines, sizeof plan->defines);
    wa_append_cpu_shape(&plan->shape, plan->defines, sizeof plan->defines);
    wa_append(plan->defines, sizeof plan->defines, " -DBACKWARD=1 -DWHOLE=%u",
              (uint32_t)plan->whole);
    snprintf(plan->reason, sizeof plan->reason, "%s",
             plan->whole ? "all keys of a window fit a work-item"
             : problem->variant == WINATTN_SLIDING
                 ? "rows and keys in two kernels"
                 : "a window's keys are too many for a work-item, so rows and "
                   "keys in two kernels");
    return WINATTN_SUCCESS;
}

void wa_backward_plan_describe(const wa_backward_plan *plan, char *text,
                               size_t size)
{
    wa_append(text, size, "backward tier: %s\nbackward kernels: %s\n",
              wa_tier_name(plan->tier),
              plan->whole ? "backward_keys_cpu"
                          : "backward_rows_cpu, backward_keys_cpu");
    wa_append(text, size, "backward tile: %u queries x %u keys\n",
              plan->block_rows, plan->block_keys);
    wa_append(text, size, "backward partial sums: %u\n", plan->slots);
    wa_append(text, size, "backward workspace bytes: %llu\n",
              (unsigned long long)plan->workspace_bytes);
    wa_append(text, size, "backward reason: %s\n", plan->reason);
}
