/* SPDX-License-Identifier: Apache-2.0
 * Chooses the tier and makes what is common to all kernels: the -D list and
 * the size of a launch. */
#include "plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "device/unit.h"

/* CL_DEVICE_MAX_PARAMETER_SIZE of the full profile, at least */
#define LEAST_PARAMETER_BYTES 1024u

typedef bool planner(const wa_problem *problem, const wa_device *device,
                     wa_plan *plan);

static const struct {
    const char *name;
    planner *make;
} tiers[WA_TIERS] = {
    [WINATTN_TIER_AUTO] = {"auto", NULL},
    [WINATTN_TIER_CPU] = {"cpu", wa_plan_cpu},
    [WINATTN_TIER_LOCAL] = {"local", wa_plan_local},
    [WINATTN_TIER_MATRIX] = {"matrix", wa_plan_matrix},
};

const winattn_tier *wa_tier_order(bool for_cpu)
{
    static const winattn_tier cpu_order[WA_TIER_CHOICES] = {
        WINATTN_TIER_CPU, WINATTN_TIER_LOCAL, WINATTN_TIER_MATRIX};
    static const winattn_tier gpu_order[WA_TIER_CHOICES] = {
        WINATTN_TIER_MATRIX, WINATTN_TIER_LOCAL, WINATTN_TIER_CPU};
    return for_cpu ? cpu_order : gpu_order;
}

const char *wa_tier_name(winattn_tier tier) { return tiers[tier].name; }

bool wa_tier_is_open(const wa_problem *problem,
                     const wa_exclusions *exclusions, winattn_tier tier,
                     char *refusal)
{
    if (problem->tier != WINATTN_TIER_AUTO && problem->tier != tier)
        snprintf(refusal, WA_REASON_SIZE, "the caller demands tier %s",
                 wa_tier_name(problem->tier));
    else
        snprintf(refusal, WA_REASON_SIZE, "%s", exclusions->reason[tier]);
    return refusal[0] == 0;
}

wa_device wa_device_for_tier(const wa_device *device,
                             const wa_exclusions *exclusions,
                             winattn_tier tier)
{
    wa_device seen = *device;
    if (exclusions->most_items[tier])
        seen.max_work_group = exclusions->most_items[tier];
    seen.ignores_tuning = exclusions->untuned[tier][0] != 0;
    return seen;
}

void wa_note_untuned(char untuned[WA_REASON_SIZE], winattn_tier tier,
                     const char *why)
{
    if (why[0] && !untuned[0])
        snprintf(untuned, WA_REASON_SIZE, "tier %s: %.220s",
                 wa_tier_name(tier), why);
}

winattn_status wa_fail_no_tier(const wa_problem *problem,
                               const wa_device *device, const char *kernel,
                               winattn_tier best,
                               char (*refusals)[WA_REASON_SIZE])
{
    const bool demanded = problem->tier != WINATTN_TIER_AUTO;
    /* what tier matrix refuses, others mostly take */
    const winattn_tier wanted = demanded ? problem->tier
                                : best == WINATTN_TIER_MATRIX
                                    ? WINATTN_TIER_LOCAL
                                    : best;
    return wa_fail(demanded ? WINATTN_UNSUPPORTED_PROBLEM
                            : WINATTN_UNSUPPORTED_DEVICE,
                   "no %s fits %s; tier %s: %s", kernel, device->name,
                   wa_tier_name(wanted), refusals[wanted]);
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
    /* rows of one unit may lie in different blocks of tokens */
    keys += (double)block_rows + problem->block;
    keys = keys < problem->keys ? keys : problem->keys;
    return keys / block_keys + 2.0; /* a part at each end, the sink's too */
}

void wa_append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

typedef struct define {
    const char *name;
    uint32_t value;
    bool used;
} define;

static void append_defines(const define *defines, size_t count, char *text,
                           size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (defines[i].used)
            wa_append(text, size, "-D%s=%u ", defines[i].name,
                      defines[i].value);
}

/* As cl/common/problem.cl numbers them. */
static uint32_t bias_number(const wa_problem *problem)
{
    return problem->bias == WINATTN_BIAS_NONE         ? 0u
           : problem->bias_dtype == WINATTN_TERM_SAME ? 1u
                                                      : 2u;
}

static uint32_t mask_number(const wa_problem *problem)
{
    return problem->mask == WINATTN_MASK_NONE         ? 0u
           : problem->mask == WINATTN_MASK_REGIONS    ? 3u
           : problem->mask == WINATTN_MASK_SHIFT      ? 4u
           : problem->mask_dtype == WINATTN_TERM_SAME ? 1u
                                                      : 2u;
}

static void append_grid(const wa_problem *problem, char *text, size_t size)
{
    const wa_grid *grid = &problem->grid;
    const uint32_t padding = wa_problem_padding(problem);
    const define defines[] = {
        {"GRID", 1, grid->used},
        {"WINDOW_0", grid->window[0], grid->used},
        {"WINDOW_1", grid->window[1], grid->used},
        {"WINDOW_2", grid->window[2], grid->used},
        {"PADDING", padding, padding != 0},
    };
    append_defines(defines, sizeof defines / sizeof *defines, text, size);
}

static void append_table(const wa_problem *problem, char *text, size_t size)
{
    const wa_table *table = &problem->table;
    const bool by_position = table->used && !table->has_index;
    const define defines[] = {
        {"TABLE", table->has_index ? 2u : 1u, table->used},
        {"TABLE_WINDOW_1", table->window[1], by_position},
        {"TABLE_WINDOW_2", table->window[2], by_position},
        {"TABLE_STEP_0", table->step[0], by_position},
        {"TABLE_STEP_1", table->step[1], by_position},
        {"TABLE_CENTER", table->center, by_position},
    };
    append_defines(defines, sizeof defines / sizeof *defines, text, size);
}

/* The one place that turns a problem into -D options. Window count, the sizes
 * of a grid, strides, offsets, scale and, for the sliding variant, token
 * counts are kernel arguments and must not appear here, so that another batch
 * or image size compiles nothing. */
void wa_append_problem(const wa_problem *problem, const wa_device *device,
                       uint32_t block_rows, uint32_t block_keys, char *text,
                       size_t size)
{
    const define defines[] = {
        {"VARIANT", problem->variant, true},
        {"DTYPE", problem->dtype, true},
        {"HEAD_DIM", problem->head_dim, true},
        {"NQ", problem->queries, problem->variant != WINATTN_SLIDING},
        {"NK", problem->keys, problem->variant != WINATTN_SLIDING},
        {"BIAS", bias_number(problem), true},
        {"MASK", mask_number(problem), true},
        {"ADJACENT_KEYS",
         wa_tensor_is_adjacent(&problem->tensor[WA_BIAS]) &&
             wa_tensor_is_adjacent(&problem->tensor[WA_MASK]),
         true},
        {"BLOCK_ROWS", block_rows, true},
        {"BLOCK_KEYS", block_keys, true},
        {"HAS_FMA", device->has_fma, true},
    };
    append_defines(defines, sizeof defines / sizeof *defines, text, size);
    append_grid(problem, text, size);
    append_table(problem, text, size);
}

void wa_append_table(const wa_problem *problem, char *text, size_t size)
{
    const define defines[] = {
        {"DTYPE", problem->dtype, true},
        {"NQ", problem->queries, true},
        {"NK", problem->keys, true},
        {"BIAS", bias_number(problem), true},
    };
    append_defines(defines, sizeof defines / sizeof *defines, text, size);
    append_table(problem, text, size);
}

void wa_append_cpu_shape(const wa_cpu_shape *shape, char *text, size_t size)
{
    wa_append(
        text, size, "-DLANES=%u -DTILE_ROWS=%u -DTILE_VECS=%u -DOUT_VECS=%u",
        shape->lanes, shape->tile_rows, shape->tile_vecs, shape->out_vecs);
}

void wa_append_local_options(const wa_problem *problem,
                             const wa_device *device, char *text, size_t size)
{
    if (device->splits_half_vectors && problem->dtype == WINATTN_FP16)
        wa_append(text, size, " -DHALVES_FROM_BITS=1");
    if (device->sub_group)
        wa_append(text, size, " -DSUB_GROUP=%u", device->sub_group);
    if (device->miscompiles_barriers)
        wa_append(text, size, " -cl-opt-disable");
}

void wa_append_unit_options(const wa_device *device, char *text, size_t size)
{
    wa_append(text, size, "-DEMULATED=%u%s", (uint32_t)device->emulates_unit,
              device->emulates_unit ? "" : device->unit->options);
    if (device->vendor == WA_VENDOR_NVIDIA)
        wa_append(text, size, " -DCOMPUTE_CAPABILITY=%u",
                  device->compute_capability);
    if (device->miscompiles_barriers)
        wa_append(text, size, " -cl-opt-disable");
}

void wa_append_matrix_shape(const wa_matrix_shape *s, const wa_device *device,
                            char *text, size_t size)
{
    wa_append(text, size,
              "-DTEAM_WAVES=%u -DTEAMS=%u -DSTAGES=%u -DPASS_KEYS=%u "
              "-DKEEPS_TERMS=%u ",
              s->team_waves, s->teams, s->stages, s->pass_keys,
              s->keeps_terms);
    wa_append_unit_options(device, text, size);
}

static void write_defines(const wa_problem *problem, const wa_device *device,
                          wa_plan *plan)
{
    const wa_problem computed =
        plan->expands_table ? wa_problem_without_table(problem) : *problem;
    plan->defines[0] = 0;
    wa_append_problem(&computed, device, plan->block_rows, plan->block_keys,
                      plan->defines, sizeof plan->defines);
    if (plan->tier == WINATTN_TIER_CPU) {
        wa_append_cpu_shape(&plan->shape.cpu, plan->defines,
                            sizeof plan->defines);
    } else if (plan->tier == WINATTN_TIER_MATRIX) {
        wa_append(plan->defines, sizeof plan->defines, "-DSHARES_OWNERS=%u ",
                  (uint32_t)plan->shares_owners);
        wa_append_matrix_shape(&plan->shape.matrix, device, plan->defines,
                               sizeof plan->defines);
    } else {
        const wa_local_shape *s = &plan->shape.local;
        wa_append(plan->defines, sizeof plan->defines,
                  "-DTEAM=%u -DTEAMS=%u -DSTAGE_KEYS=%u -DSTAGE_DIMS=%u "
                  "-DSCORE_ROWS=%u -DSCORE_COLS=%u -DOUT_ROWS=%u "
                  "-DROW_ITEMS=%u",
                  s->team, s->teams, s->stage_keys, s->stage_dims,
                  s->score_rows, s->score_cols, s->out_rows, s->row_items);
        wa_append_local_options(problem, device, plan->defines,
                                sizeof plan->defines);
    }
}

/* A desktop GPU resets a kernel after about two seconds, and it must draw in
 * between: aim at a tenth of a second on a device that reaches a twentieth of
 * its fp32 peak, assuming 16 FMA lanes per compute unit where nothing better
 * is known. A launch also stays below 2^31 work-items. */
double wa_launch_operations(const wa_device *device)
{
    const double lanes = device->is_cpu                       ? 16.0
                         : device->vendor == WA_VENDOR_NVIDIA ? 128.0
                         : device->vendor == WA_VENDOR_AMD    ? 64.0
                                                              : 16.0;
    const double clock = (device->clock_mhz ? device->clock_mhz : 500) * 1e6;
    const double rate = device->compute_units * lanes * 2.0 * clock / 20.0;
    return 0.1 * rate;
}

static uint32_t units_per_launch(const wa_problem *problem,
                                 const wa_device *device, const wa_plan *plan)
{
    const double unit = wa_problem_row_operations(problem) * plan->block_rows;
    const double by_time = wa_launch_operations(device) / unit;
    const double by_items =
        2147483647.0 / plan->work_group * plan->units_per_group / 2.0;
    double most = by_time < by_items ? by_time : by_items;
    /* enough for every compute unit to be busy */
    const double least = 4.0 * device->compute_units * plan->units_per_group;
    most = most > least ? most : least;
    return most < 1e9 ? (uint32_t)most : 1000000000u;
}

/* cl/matrix/forward_matrix.cl counts on it. */
#define MOST_SHARING 65535u

/* Work-groups, as many as the device holds at once, share the windows of the
 * blocks of rows of the heads, their owners. Each has one owner, unless more
 * than a tenth would idle then: to go on to another takes registers, which
 * cost a twentieth of the time on an H200. Each has a round
 * (cl/matrix/matrix.cl) of a launch at least, and all have as many where a
 * launch holds that many. */
static void deal_windows(const wa_problem *problem, const wa_device *device,
                         wa_plan *plan)
{
    const uint64_t owners = (uint64_t)plan->row_blocks * problem->heads;
    const uint64_t teams = plan->units_per_group;
    const uint64_t units = device->compute_units ? device->compute_units : 1;
    const uint64_t all = units * plan->resident;
    const uint64_t held = all < MOST_SHARING ? all : MOST_SHARING;
    const uint64_t turns = (owners + held - 1) / held;
    const uint64_t slots = held > owners ? held / owners : 1;
    plan->shares_owners = 10 * slots * owners < 9 * turns * held;
    uint64_t groups = plan->shares_owners ? held : slots * owners;
    const uint64_t even = plan->shares_owners ? held : slots;
    const uint64_t wanted = (problem->windows + teams - 1) / teams;
    uint64_t rounds = plan->units_per_launch / (owners * teams);
    if (rounds * owners < groups)
        rounds = (groups + owners - 1) / owners;
    if (rounds > even)
        rounds -= rounds % even;
    plan->windows_per_launch = (uint32_t)(rounds * teams);
    rounds = rounds < wanted ? rounds : wanted;
    groups = groups < rounds * owners ? groups : rounds * owners;
    plan->groups = groups ? (uint32_t)groups : 1;
}

winattn_status wa_plan_finish(const wa_problem *problem,
                              const wa_device *device, wa_plan *plan)
{
    plan->streaming = problem->variant == WINATTN_SLIDING ||
                      problem->keys > plan->block_keys;
    plan->row_blocks = wa_ceil_div(problem->queries, plan->block_rows);
    if ((uint64_t)plan->row_blocks * problem->heads > 1u << 30)
        return wa_fail(WINATTN_UNSUPPORTED_PROBLEM,
                       "heads x queries / %u is above 2^30", plan->block_rows);
    plan->expands_table =
        problem->table.used && plan->tier == WINATTN_TIER_CPU;
    if (plan->expands_table)
        plan->workspace_bytes =
            (wa_problem_dense_bias_bytes(problem) + 15) / 16 * 16;
    plan->units_per_launch = units_per_launch(problem, device, plan);
    if (plan->tier == WINATTN_TIER_MATRIX)
        deal_windows(problem, device, plan);
    write_defines(problem, device, plan);
    return WINATTN_SUCCESS;
}

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

winattn_status wa_plan_make(const wa_problem *problem, const wa_device *device,
                            const wa_exclusions *exclusions, wa_plan *plan)
{
    /* A device that limits loops is a graphics pipeline on a CPU: work-items
     * are lanes of vectors there, and the tier for GPUs was 8 times as fast
     * on llvmpipe. */
    const winattn_tier *order =
        wa_tier_order(device->is_cpu && device->loop_limit == 0);
    memset(plan, 0, sizeof *plan);
    WA_TRY(wa_check_device(device));

    for (size_t i = 0; i < WA_TIER_CHOICES; i++) {
        const winattn_tier tier = order[i];
        const wa_device seen = wa_device_for_tier(device, exclusions, tier);
        wa_note_untuned(plan->untuned, tier, exclusions->untuned[tier]);
        if (wa_tier_is_open(problem, exclusions, tier, plan->refusals[tier]) &&
            tiers[tier].make(problem, &seen, plan)) {
            plan->tier = tier;
            return wa_plan_finish(problem, device, plan);
        }
    }
    return wa_fail_no_tier(problem, device, "kernel", order[0],
                           plan->refusals);
}

void wa_plan_describe(const wa_plan *plan, const wa_device *device, char *text,
                      size_t size)
{
    text[0] = 0;
    wa_append(text, size, "device: %s (%s, driver %s)\n", device->name,
              device->platform, device->driver);
    wa_append(text, size, "tier: %s\nkernel: %s\n", wa_tier_name(plan->tier),
              plan->kernel);
    wa_append(text, size, "tile: %u queries x %u keys%s\n", plan->block_rows,
              plan->block_keys, plan->streaming ? ", streaming" : "");
    wa_append(text, size, "work-group size: %u\nlocal bytes: %u\n",
              plan->work_group, plan->local_bytes);
    wa_append(text, size, "workspace bytes: %llu\n",
              (unsigned long long)plan->workspace_bytes);
    wa_append(text, size, "reason: %s\n", plan->reason);
    if (plan->untuned[0])
        wa_append(text, size, "measured shape not taken: %s\n", plan->untuned);
    for (size_t i = 0; i < WA_TIERS; i++)
        if (plan->refusals[i][0])
            wa_append(text, size, "tier %s not taken: %s\n",
                      wa_tier_name((winattn_tier)i), plan->refusals[i]);
    wa_append(text, size, "defines: %s\n", plan->defines);
}
