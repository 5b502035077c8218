/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/forward_cpu.cl. */
#include <stdio.h>

#include "plan.h"

/* K^T and V of a block of keys should stay in a core's second-level cache,
 * and on the stack of a runtime's worker thread. */
#define BLOCK_BYTES (256u * 1024u)
/* Rows of a unit. Each unit transposes its keys once, so few rows cost time
 * (64 rows: 3%), and many leave cores idle at the end. */
#define WINDOW_ROWS 576u
#define SLIDING_ROWS 96u

/* Vector registers that can hold sums: AVX-512 has 32 registers, AVX2 and SSE
 * 16; two or more hold operands. */
static uint32_t sums_in_registers(uint32_t lanes)
{
    return lanes == 16 ? 28 : 12;
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

bool wa_plan_cpu(const wa_problem *problem, const wa_device *device,
                 wa_plan *plan)
{
    const bool sliding = problem->variant == WINATTN_SLIDING;
    wa_cpu_shape *shape = &plan->shape.cpu;
    shape->lanes = device->vector_lanes >= 16  ? 16
                   : device->vector_lanes >= 8 ? 8
                                               : 4;
    const uint32_t channel_vecs = wa_ceil_div(problem->head_dim, shape->lanes);
    const uint32_t key_bytes = 8 * channel_vecs * shape->lanes;
    uint32_t block_keys = BLOCK_BYTES / key_bytes / 64 * 64;
    if (sliding)
        block_keys = block_keys < 256 ? block_keys : 256;
    else if (problem->keys < block_keys)
        block_keys = problem->keys;
    plan->block_rows = sliding                          ? SLIDING_ROWS
                       : problem->queries < WINDOW_ROWS ? problem->queries
                                                        : WINDOW_ROWS;

    const uint32_t sums = sums_in_registers(shape->lanes);
    const uint32_t vecs = wa_ceil_div(block_keys, shape->lanes);
    double best = 0;
    for (uint32_t r = 1; r <= 12; r++)
        for (uint32_t t = 1; t <= 8 && r * t <= sums; t++) {
            const double cost = tile_cost(r, t, plan->block_rows, vecs);
            if (best == 0 || cost < best) {
                best = cost;
                shape->tile_rows = r;
                shape->tile_vecs = t;
            }
        }
    plan->block_keys =
        wa_ceil_div(vecs, shape->tile_vecs) * shape->tile_vecs * shape->lanes;
    const uint32_t passes = wa_ceil_div(channel_vecs * shape->tile_rows, sums);
    shape->out_vecs = wa_ceil_div(channel_vecs, passes);

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
