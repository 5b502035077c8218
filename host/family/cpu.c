/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/cpu/, of both passes. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "plan/defines.h"
#include "plan/family.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* ---- The forward pass ---- */

/* K^T and V of a block of keys should stay in a core's second-level cache,
 * and on the stack of a runtime's worker thread; a GPU sets aside as much
 * memory for every work-item that it could run at once. */
#define BLOCK_BYTES (256u * 1024u)
#define GPU_BLOCK_BYTES (32u * 1024u)
/* Rows of a work tile. Each work tile transposes its keys once, so few rows
 * cost time (64 rows: 3%), and many leave cores idle at the end. */
#define WINDOW_ROWS 576u
#define SLIDING_ROWS 96u
#define GPU_ROWS 32u

/* Vector registers that hold sums. AVX-512 has 32 registers, AVX2 and SSE 16;
 * but tiles that fill them were slower (49 keys, PoCL: 28 sums reach 170 GF/s,
 * 14 sums 205), as bias, mask and maxima need registers too. */
static uint32_t sums_in_registers(uint32_t lanes)
{
    return lanes == 16 ? 16 : 12;
}

/* Cost of a tile, in cycles for one channel, per useful row and key: two FMA
 * or two loads start in a cycle, and a sum waits four cycles for itself. Loads
 * beside the FMA cost a little too, which decides between equals. */
static double tile_cost(uint32_t rows, uint32_t vecs, uint32_t all_rows,
                        uint32_t all_vecs)
{
    const double fma = rows * vecs / 2.0;
    const double loads = (rows + vecs) / 2.0;
    double cycles = fma > loads ? fma : loads;
    cycles = (cycles > 4.0 ? cycles : 4.0) + 0.1 * loads;
    return cycles * wa_ceil_div(all_rows, rows) * wa_ceil_div(all_vecs, vecs);
}

/* The three axes that a token on a grid is found along. */
#define AXIS_ROUNDS 3.0

/* Rounds of all loops of a work tile, for compilers that unroll none. */
static double rounds_of(const wa_problem *problem, const wa_cpu_shape *s,
                        const wa_step *step)
{
    const double lanes = s->lanes, rows = s->tile_rows, vecs = s->tile_vecs;
    const double keys = step->block_keys, key_vecs = keys / lanes;
    const double channel_vecs = wa_ceil_div(problem->head_dim, s->lanes);
    const double passes = wa_ceil_div((uint32_t)channel_vecs, s->out_vecs);
    const double out_vecs = s->out_vecs, value_vecs = passes * out_vecs;
    const double row_loads = 1.0 + channel_vecs * (1.0 + lanes);

    const double load_keys =
        key_vecs * (1.0 + channel_vecs * (1.0 + lanes * (3.0 + lanes) +
                                          6.0 * lanes)) + /* transpose */
        keys * (1.0 + value_vecs * (1.0 + lanes)) +
        key_vecs * (1.0 + lanes);
    const double logits = key_vecs / vecs *
                          (rows * (1.0 + vecs) +
                           problem->head_dim * (1.0 + vecs * (1.0 + rows)) +
                           vecs * (1.0 + rows * (1.0 + 2.0 * lanes)));
    const double values = passes * (2.0 * rows * (1.0 + out_vecs) +
                                    keys * (1.0 + rows * (1.0 + out_vecs)));
    double tile = 5.0 * rows * row_loads + logits +
                  rows * (1.0 + 2.0 * key_vecs) + values +
                  3.0 * rows * (1.0 + value_vecs);
    double find_keys = 0.0, find_row = 0.0;
    if (problem->grid.used) {
        find_row = AXIS_ROUNDS;
        find_keys = keys * (2.0 + AXIS_ROUNDS) + key_vecs * (1.0 + lanes);
        /* found, looked at, prefetched in q, k and v; its logits adjusted */
        tile += rows * (2.0 + 4.0 * AXIS_ROUNDS) +
                key_vecs / vecs * rows * (1.0 + vecs);
    }
    return wa_plan_key_blocks(problem, step->block_rows, step->block_keys) *
               (load_keys + find_keys +
                wa_ceil_div(step->block_rows, s->tile_rows) * tile) +
           step->block_rows * (row_loads + value_vecs + find_row);
}

static uint32_t lanes_of(const wa_device *device)
{
    return device->vector_lanes >= 16 ? 16 : device->vector_lanes >= 8 ? 8 : 4;
}

/* All tiles of blocks of so many rows and keys. */
static void visit_tiles(wa_search *find, uint32_t rows, uint32_t keys)
{
    const uint32_t lanes = lanes_of(find->device);
    const uint32_t channel_vecs = wa_ceil_div(find->problem->head_dim, lanes);
    const uint32_t sums = sums_in_registers(lanes);
    const uint32_t vecs = wa_ceil_div(keys, lanes);
    for (uint32_t r = 1; r <= 12; r++)
        for (uint32_t t = 1; t <= 8 && r * t <= sums; t++) {
            const uint32_t passes = wa_ceil_div(channel_vecs * r, sums);
            const wa_tuned_shape shape = {
                .cpu = {lanes, r, t, wa_ceil_div(channel_vecs, passes)}};
            find->visited++;
            find->visit(find->data, &shape, tile_cost(r, t, rows, vecs));
        }
}

static uint32_t forward_rows(const wa_problem *problem,
                             const wa_device *device)
{
    const bool sliding = problem->variant == WINATTN_SLIDING;
    const uint32_t most = !device->is_cpu ? GPU_ROWS
                          : sliding       ? SLIDING_ROWS
                                          : WINDOW_ROWS;
    return sliding ? most : MIN(problem->queries, most);
}

static uint32_t forward_keys(const wa_problem *problem,
                             const wa_device *device)
{
    const uint32_t lanes = lanes_of(device);
    const uint32_t bytes = device->is_cpu ? BLOCK_BYTES : GPU_BLOCK_BYTES;
    const uint32_t key_bytes =
        8 * wa_ceil_div(problem->head_dim, lanes) * lanes;
    const uint32_t most = bytes / key_bytes / 16 * 16;
    return MIN(most,
               problem->variant == WINATTN_SLIDING ? 256 : problem->keys);
}

static void visit_forward(wa_search *find)
{
    visit_tiles(find, forward_rows(find->problem, find->device),
                forward_keys(find->problem, find->device));
}

static void append_options(const wa_problem *problem, const wa_device *device,
                           const wa_cpu_shape *shape, wa_step *step)
{
    wa_step_shape(step, &wa_cpu_numbers, shape);
    wa_step_half_vectors(step, device, problem->dtype);
}

/* Its kernels know no tables. */
static void set_expand(const wa_problem *problem, wa_plan *plan)
{
    wa_step *expand = &plan->step[WA_STEP_EXPAND];
    if (!problem->table.used)
        return;
    expand->kernel = "expand_table";
    expand->work_group = 1;
    wa_step_table(expand, problem);
}

static const char *take_forward(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *chosen, wa_plan *plan)
{
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    const wa_cpu_shape *shape = &chosen->cpu;
    const uint32_t tile_keys = shape->tile_vecs * shape->lanes;
    step->block_rows = forward_rows(problem, device);
    step->block_keys =
        wa_ceil_div(forward_keys(problem, device), tile_keys) * tile_keys;
    if (device->loop_limit) {
        while (rounds_of(problem, shape, step) > device->loop_limit &&
               step->block_rows > shape->tile_rows)
            step->block_rows = wa_ceil_div(step->block_rows, 2);
        if (rounds_of(problem, shape, step) > device->loop_limit) {
            snprintf(plan->reason, sizeof plan->reason,
                     "the device ends a work-item's loops after %u rounds",
                     device->loop_limit);
            return plan->reason;
        }
    }

    const wa_problem computed = wa_problem_without_table(problem);
    wa_begin_step(&computed, device, "forward_cpu", step->block_rows,
                  step->block_keys, 1, 0, step);
    append_options(problem, device, shape, step);
    set_expand(problem, plan);
    plan->schedule.work_tiles_per_group = 1;
    plan->access_elements = shape->lanes;
    plan->access_bytes = 0;
    snprintf(plan->reason, sizeof plan->reason,
             "%s, %u fp32 lanes: register tiles of %u queries x %u keys",
             device->is_cpu ? "a CPU" : "nothing better fits", shape->lanes,
             shape->tile_rows, shape->tile_vecs * shape->lanes);
    return NULL;
}

const wa_family wa_cpu_forward = {.engine = WA_ENGINE_CPU,
                                  .pass = WA_FORWARD,
                                  .tuned = WA_TUNED_KERNELS,
                                  .visit = {visit_forward},
                                  .take = take_forward};

/* ---- The backward pass ---- */

/* What a work-item may keep of keys, in private memory: a CPU's worker thread
 * has a stack of megabytes, a GPU sets the memory aside for all its threads.
 */
#define CPU_KEY_BYTES (1024u * 1024u)
#define GPU_KEY_BYTES (32u * 1024u)
/* Rows of a work tile of the first kernel of two. */
#define BACKWARD_CPU_ROWS 96u
#define BACKWARD_GPU_ROWS 16u
/* Work-items per compute unit that keep a device busy. */
#define ITEMS_PER_UNIT 8u

/* K and V transposed, K as it is, dK and dV, all fp32, for one key. */
static uint32_t bytes_per_key(const wa_problem *problem)
{
    return 5 * 4 * (wa_ceil_div(problem->head_dim, 16) * 16);
}

/* The options of a step, whose kernel loops over any number of queries;
 * block_rows: 0 where it has no blocks of rows either. */
static void set_backward_defines(const wa_problem *problem,
                                 const wa_device *device, uint32_t block_rows,
                                 const wa_cpu_shape *shape, wa_step *step)
{
    const wa_problem computed = wa_problem_without_table(problem);
    wa_step_problem_of_keys(step, &computed, device, block_rows);
    append_options(problem, device, shape, step);
}

static uint32_t backward_rows(const wa_device *device)
{
    return device->is_cpu ? BACKWARD_CPU_ROWS : BACKWARD_GPU_ROWS;
}

/* Of a window, where a work-item may keep all of its keys, or of a block;
 * short blocks keep compute units busy and skip what is hidden. */
static uint32_t backward_keys(const wa_problem *problem,
                              const wa_device *device, bool *fused)
{
    const uint32_t most_bytes = device->is_cpu ? CPU_KEY_BYTES : GPU_KEY_BYTES;
    const uint32_t fitting = most_bytes / bytes_per_key(problem);
    const uint32_t keys = MIN(device->is_cpu ? 128u : 32u, fitting);
    *fused = problem->variant != WINATTN_SLIDING && problem->keys <= fitting;
    return *fused ? problem->keys : keys < 16 ? 16 : keys / 16 * 16;
}

/* No shape of the sliding variant follows from the number of queries. */
static void visit_backward(wa_search *find)
{
    const wa_problem *problem = find->problem;
    bool fused;
    const uint32_t keys = backward_keys(problem, find->device, &fused);
    visit_tiles(find,
                problem->variant == WINATTN_SLIDING
                    ? backward_rows(find->device)
                    : problem->queries,
                keys);
}

static const char *take_backward(const wa_problem *problem,
                                 const wa_device *device,
                                 const wa_tuned_shape *chosen, wa_plan *plan)
{
    const wa_cpu_shape shape = chosen->cpu;
    const bool sliding = problem->variant == WINATTN_SLIDING;
    const uint32_t rows = backward_rows(device);
    const uint32_t keys = backward_keys(problem, device, &plan->fused);
    wa_step step;
    memset(&step, 0, sizeof step);
    step.block_rows = sliding ? rows : MIN(problem->queries, rows);
    const uint32_t tile = shape.tile_vecs * shape.lanes;
    step.block_keys = wa_ceil_div(keys, tile) * tile;
    step.work_group = 1;
    step.kernel = "backward_keys_cpu";
    set_backward_defines(problem, device, 0, &shape, &step);
    wa_step_switch(&step, WA_SWITCH(FUSED), plan->fused);
    plan->step[WA_STEP_KEYS] = step;
    if (!plan->fused) {
        step.kernel = "backward_rows_cpu";
        set_backward_defines(problem, device, step.block_rows, &shape, &step);
        plan->step[WA_STEP_ROWS] = step;
    }
    set_expand(problem, plan);
    plan->schedule.row_blocks = wa_ceil_div(problem->queries, step.block_rows);
    plan->schedule.key_blocks = wa_ceil_div(problem->keys, step.block_keys);
    plan->schedule.busy_groups = device->compute_units * ITEMS_PER_UNIT;
    snprintf(plan->reason, sizeof plan->reason, "%s",
             plan->fused ? "all keys of a window fit a work-item"
             : sliding
                 ? "rows and keys in two kernels"
                 : "a window's keys are too many for a work-item, so rows and "
                   "keys in two kernels");
    return NULL;
}

const wa_family wa_cpu_backward = {.engine = WA_ENGINE_CPU,
                                   .pass = WA_BACKWARD,
                                   .tuned = WA_TUNED_KERNELS,
                                   .visit = {visit_backward},
                                   .take = take_backward};
