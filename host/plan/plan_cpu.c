/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/cpu/forward_cpu.cl. */
#include <stdio.h>

#include "plan/plan.h"

/* K^T and V of a block of keys should stay in a core's second-level cache,
 * and on the stack of a runtime's worker thread; a GPU sets aside as much
 * memory for every work-item that it could run at once. */
#define BLOCK_BYTES (256u * 1024u)
#define GPU_BLOCK_BYTES (32u * 1024u)
/* Rows of a unit. Each unit transposes its keys once, so few rows cost time
 * (64 rows: 3%), and many leave cores idle at the end. */
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

/* Rounds of all loops of a unit, for compilers that unroll none. */
static double rounds_of(const wa_problem *problem, const wa_plan *plan)
{
    const wa_cpu_shape *s = &plan->shape.cpu;
    const double lanes = s->lanes, rows = s->tile_rows, vecs = s->tile_vecs;
    const double keys = plan->block_keys, key_vecs = keys / lanes;
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
    return wa_plan_key_blocks(problem, plan->block_rows, plan->block_keys) *
               (load_keys + find_keys +
                wa_ceil_div(plan->block_rows, s->tile_rows) * tile) +
           plan->block_rows * (row_loads + value_vecs + find_row);
}

static uint32_t lanes_of(const wa_device *device)
{
    return device->vector_lanes >= 16 ? 16 : device->vector_lanes >= 8 ? 8 : 4;
}

void wa_choose_cpu_shape(const wa_problem *problem, const wa_device *device,
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

bool wa_plan_cpu(const wa_problem *problem, const wa_device *device,
                 wa_plan *plan)
{
    const bool sliding = problem->variant == WINATTN_SLIDING;
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
    plan->block_rows =
        sliding || problem->queries > most_rows ? most_rows : problem->queries;

    wa_choose_cpu_shape(problem, device, plan->block_rows, block_keys, shape);
    const uint32_t tile_keys = shape->tile_vecs * lanes;
    plan->block_keys = wa_ceil_div(block_keys, tile_keys) * tile_keys;
    if (device->loop_limit) {
        while (rounds_of(problem, plan) > device->loop_limit &&
               plan->block_rows > shape->tile_rows)
            plan->block_rows = wa_ceil_div(plan->block_rows, 2);
        if (rounds_of(problem, plan) > device->loop_limit) {
            snprintf(plan->refusals[WINATTN_TIER_CPU], WA_REASON_SIZE,
                     "the device ends a work-item's loops after %u rounds",
                     device->loop_limit);
            return false;
        }
    }

    plan->kernel = "forward_cpu";
    plan->units_per_group = 1;
    plan->work_group = 1;
    plan->access_elements = shape->lanes;
    plan->access_bytes = 0;
    snprintf(plan->reason, sizeof plan->reason,
             "%s, %u fp32 lanes: register tiles of %u queries x %u keys",
             device->is_cpu ? "a CPU" : "nothing better fits", shape->lanes,
             shape->tile_rows, shape->tile_vecs * shape->lanes);
    return true;
}
