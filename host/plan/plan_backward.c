/* SPDX-License-Identifier: Apache-2.0
 * Plans the backward pass: its tier, the blocks of cl/cpu/backward_*_cpu.cl,
 * and what all tiers share: slots, workspace, launches. */
#include "plan/plan_backward.h"

#include <stdio.h>
#include <string.h>

#include "../cl/common/args.h"
#include "base/status.h"

/* What a work-item may keep of keys, in private memory: a CPU's worker thread
 * has a stack of megabytes, a GPU sets the memory aside for all its threads.
 */
#define CPU_KEY_BYTES (1024u * 1024u)
#define GPU_KEY_BYTES (32u * 1024u)
/* Rows of a unit of the first kernel of two. */
#define CPU_ROWS 96u
#define GPU_ROWS 16u
/* Work-items per compute unit that keep a device busy. */
#define ITEMS_PER_UNIT 8u
/* Of a launch. */
#define MOST_ITEMS 0x7fffffffu

static uint64_t round_up(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

static uint64_t at_least_one(uint64_t x) { return x ? x : 1; }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* K and V transposed, K as it is, dK and dV, all fp32, for one key. */
static uint32_t bytes_per_key(const wa_problem *problem)
{
    return 5 * 4 * (wa_ceil_div(problem->head_dim, 16) * 16);
}

static bool plan_cpu(const wa_problem *problem, const wa_device *device,
                     wa_backward_plan *plan)
{
    const uint32_t most_bytes = device->is_cpu ? CPU_KEY_BYTES : GPU_KEY_BYTES;
    const uint32_t most_rows = device->is_cpu ? CPU_ROWS : GPU_ROWS;
    const uint32_t fitting = most_bytes / bytes_per_key(problem);
    wa_cpu_shape shape;
    wa_backward_kernel kernel;
    memset(&kernel, 0, sizeof kernel);
    plan->whole =
        problem->variant != WINATTN_SLIDING && problem->keys <= fitting;
    uint32_t keys = problem->keys;
    if (!plan->whole) {
        /* short blocks keep compute units busy and skip what is hidden */
        keys = (uint32_t)least(device->is_cpu ? 128 : 32, fitting);
        keys = keys < 16 ? 16 : keys / 16 * 16;
    }
    wa_choose_cpu_shape(problem, device, problem->queries, keys, &shape);
    const uint32_t tile = shape.tile_vecs * shape.lanes;
    kernel.block_keys = wa_ceil_div(keys, tile) * tile;
    kernel.block_rows = problem->variant == WINATTN_SLIDING
                            ? most_rows
                            : (uint32_t)least(problem->queries, most_rows);
    kernel.work_group = 1;
    const wa_problem computed = wa_problem_without_table(problem);
    wa_append_problem(&computed, device, kernel.block_rows, kernel.block_keys,
                      kernel.defines, sizeof kernel.defines);
    wa_append_cpu_shape(&shape, kernel.defines, sizeof kernel.defines);
    wa_append(kernel.defines, sizeof kernel.defines,
              " -DBACKWARD=1 -DWHOLE=%u", (uint32_t)plan->whole);
    kernel.name = "backward_keys_cpu";
    plan->kernels[WA_BACKWARD_KEYS] = kernel;
    if (!plan->whole) {
        kernel.name = "backward_rows_cpu";
        plan->kernels[WA_BACKWARD_ROWS] = kernel;
    }
    if (problem->table.used) {
        wa_backward_kernel *expand = &plan->kernels[WA_BACKWARD_EXPAND];
        expand->name = "expand_table";
        expand->work_group = 1;
        wa_append_table(problem, expand->defines, sizeof expand->defines);
    }
    plan->row_blocks = wa_ceil_div(problem->queries, kernel.block_rows);
    plan->key_blocks = wa_ceil_div(problem->keys, kernel.block_keys);
    plan->busy_groups = device->compute_units * ITEMS_PER_UNIT;
    snprintf(plan->reason, sizeof plan->reason, "%s",
             plan->whole ? "all keys of a window fit a work-item"
             : problem->variant == WINATTN_SLIDING
                 ? "rows and keys in two kernels"
                 : "a window's keys are too many for a work-item, so rows and "
                   "keys in two kernels");
    return true;
}

uint64_t wa_most_bias_slots(const wa_problem *problem, winattn_tier tier)
{
    const uint64_t logits =
        (uint64_t)problem->heads * problem->queries * problem->keys;
    const uint64_t bytes =
        tier == WINATTN_TIER_MATRIX ? WA_MATRIX_BIAS_BYTES : WA_BACKWARD_BYTES;
    return at_least_one(bytes / 4 / logits);
}

/* Rounds, of a window for each team, if windows are of so many kinds and a
 * round has windows of one (cl/matrix/matrix.cl). */
static uint64_t rounds_of_kinds(const wa_problem *problem, uint64_t teams,
                                uint64_t kinds)
{
    const uint64_t of_kind = (problem->windows + kinds - 1) / kinds;
    return kinds * ((of_kind + teams - 1) / teams);
}

/* Slots for the windows of `owners` of a slot's work-groups; `most` at most.
 */
static uint64_t deal(const wa_problem *problem, uint64_t groups,
                     uint64_t owners, uint64_t teams, uint64_t most)
{
    const uint64_t slots =
        least(at_least_one(least((groups + owners - 1) / owners, most)),
              at_least_one(rounds_of_kinds(problem, teams, 1)));
    const wa_grid *grid = &problem->grid;
    const uint64_t places =
        grid->used
            ? (uint64_t)grid->windows[0] * grid->windows[1] * grid->windows[2]
            : 1;
    /* Dealt evenly: as many rounds with fewer slots, whichever way a kernel
     * sorts windows. */
    const uint64_t kinds[] = {1, problem->mask_windows, places};
    uint64_t even = 1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const uint64_t all = rounds_of_kinds(
            problem, teams, least(kinds[i], at_least_one(problem->windows)));
        const uint64_t rounds = at_least_one((all + slots - 1) / slots);
        const uint64_t enough = (all + rounds - 1) / rounds;
        even = enough > even ? enough : even;
    }
    return even;
}

/* Work-groups of whole slots, at most so many where that is one. */
static uint64_t whole_slots(uint64_t groups, uint64_t owners)
{
    return groups < owners ? owners : groups / owners * owners;
}

static void choose_slots(const wa_problem *problem, const wa_device *device,
                         wa_backward_plan *plan)
{
    const uint64_t logits =
        (uint64_t)problem->heads * problem->queries * problem->keys;
    const bool has_bias = problem->bias != WINATTN_BIAS_NONE;
    /* does the kernel of rows sum what belongs to them? */
    const bool rows_sum = plan->row_groups != 0;
    const uint64_t most =
        has_bias ? wa_most_bias_slots(problem, plan->tier) : UINT64_MAX;
    const uint64_t teams = at_least_one(plan->teams);
    const uint64_t row_teams = at_least_one(plan->row_teams);
    const uint64_t row_owners = (uint64_t)problem->heads * plan->row_blocks;
    const uint64_t key_owners = (uint64_t)problem->kv_heads *
                                plan->key_blocks *
                                at_least_one(plan->key_parts);
    uint64_t slots, row_slots = 0;
    if (rows_sum) { /* no more than start together */
        slots = deal(problem, whole_slots(plan->busy_groups, key_owners),
                     key_owners, teams, UINT64_MAX);
        row_slots = deal(problem, whole_slots(plan->row_groups, row_owners),
                         row_owners, row_teams, most);
    } else {
        slots = deal(problem, plan->busy_groups, key_owners, teams, most);
    }

    const uint64_t row_bytes =
        ROW_NUMBERS * 4ull * problem->heads * problem->queries;
    const uint64_t most_bytes =
        rows_sum ? WA_MATRIX_BIAS_BYTES : WA_BACKWARD_BYTES;
    const double operations = 2.5 * wa_problem_row_operations(problem) *
                              problem->heads * problem->queries;
    const double by_time = wa_launch_operations(device) / operations;
    uint64_t windows =
        by_time < 1e9 ? (uint64_t)by_time : (uint64_t)1000000000u;
    /* slots and teams that all have work */
    const uint64_t round = rows_sum ? row_slots * row_teams : slots * teams;
    if (!plan->whole)
        windows = least(windows, most_bytes / row_bytes);
    if ((plan->whole || rows_sum) && windows > round)
        windows = windows / round * round;
    if (plan->whole && windows < round)
        windows = round;
    plan->windows_per_launch =
        least(at_least_one(windows), at_least_one(problem->windows));
    /* the first launch starts all partial sums */
    slots = least(slots, plan->windows_per_launch);
    row_slots = least(row_slots, plan->windows_per_launch);
    plan->slots = (uint32_t)slots;
    plan->row_slots = (uint32_t)row_slots;

    plan->statistics_bytes =
        plan->whole ? 0 : round_up(plan->windows_per_launch * row_bytes);
    plan->bias_bytes =
        has_bias ? round_up((rows_sum ? row_slots : slots) * logits * 4) : 0;
    plan->scale_bytes =
        problem->variant == WINATTN_COSINE
            ? round_up((rows_sum ? row_slots * plan->row_blocks : slots) *
                       problem->heads * 4)
            : 0;
    plan->pad_bytes = wa_problem_padding(problem) == 1
                          ? round_up(slots * plan->key_blocks *
                                     problem->kv_heads * problem->head_dim * 4)
                          : 0;
    plan->dense_bytes = problem->table.used
                            ? round_up(wa_problem_dense_bias_bytes(problem))
                            : 0;
    plan->workspace_bytes = plan->statistics_bytes + plan->bias_bytes +
                            plan->scale_bytes + 2 * plan->pad_bytes +
                            plan->dense_bytes;
}

void wa_backward_plan_finish(const wa_problem *problem,
                             const wa_device *device, wa_backward_plan *plan)
{
    plan->kernels[WA_BACKWARD_SUM].name = "sum_partials";
    plan->kernels[WA_BACKWARD_SUM].work_group = SUM_ELEMENTS * SUM_PARTS;
    if (problem->table.used) {
        wa_backward_kernel *sum = &plan->kernels[WA_BACKWARD_SUM_TABLE];
        sum->name = "sum_table";
        sum->work_group = TABLE_ITEMS;
        if (!problem->table.is_listed)
            wa_append(sum->defines, sizeof sum->defines, "-DLISTED=0");
        plan->entries_per_launch = MOST_ITEMS / TABLE_ITEMS;
    }
    choose_slots(problem, device, plan);
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

static winattn_status check_blocks(const wa_problem *problem,
                                   const wa_backward_plan *plan)
{
    const uint64_t rows =
        plan->whole ? 0 : (uint64_t)problem->heads * plan->row_blocks;
    const uint64_t keys = (uint64_t)problem->kv_heads * plan->key_blocks *
                          at_least_one(plan->key_parts);
    if (rows > MOST_BLOCKS || keys > MOST_BLOCKS)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "heads x blocks of %s of a window is above 2^30",
                       rows > MOST_BLOCKS ? "queries" : "keys");
    return WINATTN_SUCCESS;
}

winattn_status wa_backward_plan_make(const wa_problem *problem,
                                     const wa_device *device,
                                     const wa_exclusions *exclusions,
                                     wa_backward_plan *plan)
{
    static bool (*const make[WA_TIERS])(const wa_problem *, const wa_device *,
                                        wa_backward_plan *) = {
        [WINATTN_TIER_CPU] = plan_cpu,
        [WINATTN_TIER_LOCAL] = wa_plan_backward_local,
        [WINATTN_TIER_MATRIX] = wa_plan_backward_matrix};
    const winattn_tier *order = wa_tier_order(device->is_cpu);
    memset(plan, 0, sizeof *plan);
    WA_TRY(wa_check_device(device));
    if (device->loop_limit)
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "%s ends a work-item's loops after %u rounds, too few "
                       "for a backward pass",
                       device->name, device->loop_limit);
    WA_TRY(check_logits(problem));
    for (size_t i = 0; i < WA_TIER_CHOICES; i++) {
        const winattn_tier tier = order[i];
        const wa_device seen = wa_device_for_tier(device, exclusions, tier);
        wa_note_untuned(plan->untuned, tier, exclusions->untuned[tier]);
        if (wa_tier_is_open(problem, exclusions, tier, plan->refusals[tier]) &&
            make[tier](problem, &seen, plan)) {
            plan->tier = tier;
            wa_backward_plan_finish(problem, device, plan);
            return check_blocks(problem, plan);
        }
    }
    return wa_fail_no_tier(problem, device, "backward kernel", order[0],
                           plan->refusals);
}

void wa_backward_plan_describe(const wa_backward_plan *plan, char *text,
                               size_t size)
{
    wa_append(text, size, "backward tier: %s\n", wa_tier_name(plan->tier));
    for (int i = WA_BACKWARD_FIRST; i <= WA_BACKWARD_LAST; i++) {
        const wa_backward_kernel *kernel = &plan->kernels[i];
        if (kernel->name)
            wa_append(text, size,
                      "backward kernel: %s, tile %u queries x %u keys, "
                      "work-group size %u, local bytes %u\n",
                      kernel->name, kernel->block_rows, kernel->block_keys,
                      kernel->work_group, kernel->local_bytes);
    }
    if (plan->row_slots)
        wa_append(text, size,
                  "backward partial sums: %u of rows, %u of keys\n",
                  plan->row_slots, plan->slots);
    else
        wa_append(text, size, "backward partial sums: %u\n", plan->slots);
    wa_append(text, size, "backward workspace bytes: %llu\n",
              (unsigned long long)plan->workspace_bytes);
    wa_append(text, size, "backward reason: %s\n", plan->reason);
    if (plan->untuned[0])
        wa_append(text, size, "backward measured shape not taken: %s\n",
                  plan->untuned);
    for (size_t i = 0; i < WA_TIERS; i++)
        if (plan->refusals[i][0])
            wa_append(text, size, "backward tier %s not taken: %s\n",
                      wa_tier_name((winattn_tier)i), plan->refusals[i]);
}
