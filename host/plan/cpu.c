/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/cpu/, of both passes. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "plan/defines.h"
#include "plan/planner.h"

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
static double rounds_of(const wa_problem *problem, const wa_plan *plan)
{
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    const wa_cpu_shape *s = &plan->shape.cpu;
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

static void choose_shape(const wa_problem *problem, const wa_device *device,
                         uint32_t rows, uint32_t keys, wa_cpu_shape *shape)
{
    shape->lanes = lanes_of(device);
    const uint32_t channel_vecs = wa_ceil_div(problem->head_dim, shape->lanes);
    const uint32_t sums = sums_in_registers(shape->lanes);
    const uint32_t vecs = wa_ceil_div(keys, shape->lanes);
    double best = 0;
    for (uint32_t r = 1; r <= 12; r++)
        for (uint32_t t = 1; t <= 8 && r * t <= sums; t++) {
            const double cost = tile_cost(r, t, rows, vecs);
            if (best == 0 || cost < best) {
                best = cost;
                shape->tile_rows = r;
                shape->tile_vecs = t;
            }
        }
    const uint32_t passes = wa_ceil_div(channel_vecs * shape->tile_rows, sums);
    shape->out_vecs = wa_ceil_div(channel_vecs, passes);
}

bool wa_plan_cpu_forward(const wa_problem *problem, const wa_device *device,
                         wa_plan *plan)
{
    const bool sliding = problem->variant == WINATTN_SLIDING;
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    wa_cpu_shape *shape = &plan->shape.cpu;
    const uint32_t lanes = lanes_of(device);
    const uint32_t channel_vecs = wa_ceil_div(problem->head_dim, lanes);
    const uint32_t key_bytes = 8 * channel_vecs * lanes;
    const uint32_t block_bytes =
        device->is_cpu ? BLOCK_BYTES : GPU_BLOCK_BYTES;
    uint32_t block_keys = block_bytes / key_bytes / 16 * 16;
    if (sliding)
        block_keys = block_keys < 256 ? block_keys : 256;
    else if (problem->keys < block_keys)
        block_keys = problem->keys;
    const uint32_t most_rows = !device->is_cpu ? GPU_ROWS
                               : sliding       ? SLIDING_ROWS
                                               : WINDOW_ROWS;
    step->block_rows =
        sliding || problem->queries > most_rows ? most_rows : problem->queries;

    choose_shape(problem, device, step->block_rows, block_keys, shape);
    const uint32_t tile_keys = shape->tile_vecs * lanes;
    step->block_keys = wa_ceil_div(block_keys, tile_keys) * tile_keys;
    if (device->loop_limit) {
        while (rounds_of(problem, plan) > device->loop_limit &&
               step->block_rows > shape->tile_rows)
            step->block_rows = wa_ceil_div(step->block_rows, 2);
        if (rounds_of(problem, plan) > device->loop_limit) {
            snprintf(plan->refusals[WINATTN_TIER_CPU], WA_REASON_SIZE,
                     "the device ends a work-item's loops after %u rounds",
                     device->loop_limit);
            return false;
        }
    }

    step->kernel = "forward_cpu";
    plan->schedule.work_tiles_per_group = 1;
    step->work_group = 1;
    plan->access_elements = shape->lanes;
    plan->access_bytes = 0;
    snprintf(plan->reason, sizeof plan->reason,
             "%s, %u fp32 lanes: register tiles of %u queries x %u keys",
             device->is_cpu ? "a CPU" : "nothing better fits", shape->lanes,
             shape->tile_rows, shape->tile_vecs * shape->lanes);
    return true;
}

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
    step->defines[0] = 0;
    wa_append_problem_of_keys(&computed, device, block_rows, step->block_keys,
                              step->defines, sizeof step->defines);
    wa_append_shape(&wa_cpu_numbers, shape, step->defines,
                    sizeof step->defines);
    wa_append_half_vectors(device, problem->dtype, step->defines,
                           sizeof step->defines);
}

bool wa_plan_cpu_backward(const wa_problem *problem, const wa_device *device,
                          wa_plan *plan)
{
    const uint32_t most_bytes = device->is_cpu ? CPU_KEY_BYTES : GPU_KEY_BYTES;
    const uint32_t most_rows =
        device->is_cpu ? BACKWARD_CPU_ROWS : BACKWARD_GPU_ROWS;
    const uint32_t fitting = most_bytes / bytes_per_key(problem);
    wa_cpu_shape shape;
    wa_step step;
    memset(&step, 0, sizeof step);
    const bool sliding = problem->variant == WINATTN_SLIDING;
    plan->fused = !sliding && problem->keys <= fitting;
    uint32_t keys = problem->keys;
    if (!plan->fused) {
        /* short blocks keep compute units busy and skip what is hidden */
        keys = MIN(device->is_cpu ? 128u : 32u, fitting);
        keys = keys < 16 ? 16 : keys / 16 * 16;
    }
    step.block_rows = sliding ? most_rows : MIN(problem->queries, most_rows);
    /* no shape of the sliding variant follows from the number of queries */
    choose_shape(problem, device, sliding ? most_rows : problem->queries, keys,
                 &shape);
    const uint32_t tile = shape.tile_vecs * shape.lanes;
    step.block_keys = wa_ceil_div(keys, tile) * tile;
    step.work_group = 1;
    step.kernel = "backward_keys_cpu";
    set_backward_defines(problem, device, 0, &shape, &step);
    wa_append_switch(step.defines, sizeof step.defines, WA_SWITCH(FUSED),
                     plan->fused);
    plan->step[WA_STEP_KEYS] = step;
    if (!plan->fused) {
        step.kernel = "backward_rows_cpu";
        set_backward_defines(problem, device, step.block_rows, &shape, &step);
        plan->step[WA_STEP_ROWS] = step;
    }
    if (problem->table.used) {
        wa_step *expand = &plan->step[WA_STEP_EXPAND];
        expand->kernel = "expand_table";
        expand->work_group = 1;
        wa_append_table(problem, expand->defines, sizeof expand->defines);
    }
    plan->schedule.row_blocks = wa_ceil_div(problem->queries, step.block_rows);
    plan->schedule.key_blocks = wa_ceil_div(problem->keys, step.block_keys);
    plan->schedule.busy_groups = device->compute_units * ITEMS_PER_UNIT;
    snprintf(plan->reason, sizeof plan->reason, "%s",
             plan->fused ? "all keys of a window fit a work-item"
             : sliding
                 ? "rows and keys in two kernels"
                 : "a window's keys are too many for a work-item, so rows and "
                   "keys in two kernels");
    return true;
}
