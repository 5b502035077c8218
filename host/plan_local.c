/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/forward_local.cl: every legal shape is scored with a small
 * model of a compute unit, unless tuning.c knows better. */
#include <stdio.h>
#include <string.h>

#include "plan.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Alignment between the kernel's local arrays. */
#define LOCAL_SLACK 128u

/* As the kernel declares them, in the same order. */
static uint64_t local_bytes(const wa_problem *problem, const wa_plan *plan)
{
    const wa_local_shape *s = &plan->shape.local;
    const uint64_t rows = plan->block_rows, keys = plan->block_keys;
    const uint64_t pitch = (s->stage_dims / 4) | 1;
    const uint64_t q_rows =
        (uint64_t)wa_ceil_div(plan->block_rows, s->score_rows) * s->score_rows;
    const uint64_t key_rows =
        (uint64_t)wa_ceil_div(s->stage_keys, s->score_cols) * s->score_cols;
    const uint64_t value_rows = (uint64_t)wa_ceil_div(s->stage_keys, 4) * 4;
    const uint64_t quads = q_rows * pitch + MAX(key_rows, value_rows) * pitch +
                           rows * (((keys + 3) / 4) | 1);
    uint64_t floats = rows + rows * s->row_items + rows;
    if (s->row_items > 1)
        floats += rows * s->row_items;
    if (problem->variant == WINATTN_COSINE)
        floats += rows + keys;
    return s->teams * (quads * 16 + floats * 4);
}

static bool refuse(wa_plan *plan, const char *why)
{
    snprintf(plan->refusals[WINATTN_TIER_LOCAL], WA_REASON_SIZE, "%s", why);
    return false;
}

/* Estimate of what a register tile needs next to its sums. */
static uint32_t registers_of(const wa_problem *problem, const wa_plan *plan)
{
    const wa_local_shape *s = &plan->shape.local;
    const uint32_t kept =
        plan->block_keys < problem->keys || problem->variant == WINATTN_SLIDING
            ? wa_ceil_div(problem->head_dim, s->stage_dims)
            : 1;
    const uint32_t out = s->out_rows * 4 * kept;
    const uint32_t scores =
        s->score_rows * s->score_cols + 4 * s->score_rows + 4;
    const bool streaming = kept > 1 || problem->variant == WINATTN_SLIDING;
    /* streaming sums live through the score tiles */
    const uint32_t tiles = streaming ? scores + out : MAX(scores, out + 20);
    return tiles + 24;
}

bool wa_plan_local_shape(const wa_problem *problem, const wa_device *device,
                         wa_plan *plan)
{
    const wa_local_shape *s = &plan->shape.local;
    const bool whole_keys = s->stage_keys == plan->block_keys;
    if (s->team == 0 || s->teams == 0 || s->stage_keys == 0 ||
        s->stage_dims == 0 || s->score_rows == 0 || s->score_cols == 0 ||
        s->out_rows == 0 || s->row_items == 0 || plan->block_rows == 0 ||
        plan->block_keys == 0)
        return refuse(plan, "a size of the shape is 0");
    if (s->stage_dims % 4 != 0 || (s->stage_keys % 4 != 0 && !whole_keys) ||
        s->stage_keys > plan->block_keys)
        return refuse(plan, "a stage does not divide into quads");
    if ((s->row_items & (s->row_items - 1)) != 0 || s->row_items > s->team ||
        s->team % s->row_items != 0)
        return refuse(plan, "row_items does not divide a team");
    if (wa_ceil_div(plan->block_rows, s->out_rows) * (s->stage_dims / 4) >
        s->team)
        return refuse(plan, "a team does not cover its rows of o");
    if (s->teams > 1 && problem->variant == WINATTN_SLIDING)
        return refuse(plan, "teams of one group would walk different keys");
    if (s->team * s->teams > device->max_work_group)
        return refuse(plan, "work-groups of the device are too small");
    const uint64_t bytes = local_bytes(problem, plan);
    if (bytes + LOCAL_SLACK > device->local_bytes)
        return refuse(plan, "local memory is too small");
    plan->kernel = "forward_local";
    plan->local_bytes = (uint32_t)bytes;
    plan->units_per_group = s->teams;
    plan->work_group = s->team * s->teams;
    /* the kernel's WIDE */
    plan->access_elements = problem->dtype != WINATTN_FP32 &&
                                    problem->head_dim % 8 == 0 &&
                                    s->stage_dims % 8 == 0
                                ? 8
                            : problem->head_dim % 4 == 0 ? 4
                                                         : 0;
    plan->access_bytes =
        plan->access_elements * (problem->dtype == WINATTN_FP32 ? 4 : 2);
    return true;
}

/* Waves that `items` work-items of a team of `team` take, in rounds. */
static double waves(uint32_t items, uint32_t team, uint32_t wave)
{
    const uint32_t rounds = items / team;
    return (double)rounds * wa_ceil_div(team, wave) +
           wa_ceil_div(items % team, wave);
}

/* Cycles of a compute unit per query row. Costs of one instruction of a wave:
 * an FMA a quarter cycle, a quad from or to local memory four cycles where
 * each work-item takes another one, two where neighbours share it. */
static double shape_cost(const wa_problem *problem, const wa_device *device,
                         const wa_plan *plan)
{
    const wa_local_shape *s = &plan->shape.local;
    const uint32_t wave = MIN(device->wave ? device->wave : 16, s->team);
    const double fma = 0.25 * wave / 32.0, quad = 3.0 * wave / 32.0;
    const uint32_t dim_stages = wa_ceil_div(problem->head_dim, s->stage_dims);
    const uint32_t key_stages = wa_ceil_div(plan->block_keys, s->stage_keys);
    const double stage_quads = s->stage_dims / 4;
    const uint32_t row_tiles = wa_ceil_div(plan->block_rows, s->score_rows);
    const uint32_t col_tiles = wa_ceil_div(s->stage_keys, s->score_cols);
    const uint32_t out_tiles =
        wa_ceil_div(plan->block_rows, s->out_rows) * (s->stage_dims / 4);
    const double key_quads = wa_ceil_div(plan->block_keys, 4);

    const double score_waves =
        waves(row_tiles * col_tiles, s->team, wave) * key_stages;
    const double sums = s->score_rows * s->score_cols;
    double cycles = score_waves * dim_stages *
                    (stage_quads * ((s->score_rows + s->score_cols) * quad +
                                    4.0 * sums * fma) +
                     sums * 2.0);
    cycles +=
        wa_ceil_div(out_tiles, wave) * (double)dim_stages *
        (key_quads * ((4.0 + s->out_rows) * quad + 16.0 * s->out_rows * fma) +
         s->out_rows * 8.0);
    cycles += waves(plan->block_rows * s->row_items, s->team, wave) *
              wa_ceil_div((uint32_t)key_quads, s->row_items) *
              (4.0 * quad + 24.0 * fma);
    const double staged =
        (plan->block_rows + 2.0 * plan->block_keys) * problem->head_dim / 4.0;
    cycles += staged / wave * (2.0 * quad + 8.0 * fma);

    /* What a team waits for: memory, barriers, chains of dependent steps. */
    const double phases = 2.0 + 2.0 * dim_stages * key_stages;
    const double wait = phases * 700.0 + cycles / wa_ceil_div(s->team, wave);
    const double by_memory =
        (double)device->local_capacity / (plan->local_bytes + 1024);
    const double by_items = 2048.0 / plan->work_group;
    double resident = MIN(MIN(by_memory, by_items), 16.0);
    resident = MAX((double)(uint32_t)resident, 1.0) * s->teams;
    const double time = MAX(cycles, wait / resident) + 0.25 * wait / resident;
    return time / plan->block_rows /
           (plan->block_keys < problem->keys ? (double)plan->block_keys
                                             : problem->keys);
}

static const struct {
    uint32_t rows, cols;
} score_tiles[] = {{8, 8}, {7, 7}, {6, 6}, {4, 8}, {4, 4}, {2, 4}, {1, 4}};
#define SCORE_TILES (sizeof score_tiles / sizeof *score_tiles)

static void consider(const wa_problem *problem, const wa_device *device,
                     const wa_plan *candidate, double *best_cost,
                     wa_plan *best)
{
    wa_plan plan = *candidate;
    wa_local_shape *s = &plan.shape.local;
    for (s->team = 32; s->team <= MIN(device->max_work_group, 256);
         s->team += 32) {
        const uint32_t across = s->stage_dims / 4;
        const uint32_t down = s->team / across;
        if (down == 0)
            continue;
        s->out_rows = wa_ceil_div(plan.block_rows, down);
        s->row_items = 1;
        while (s->row_items * 2 * plan.block_rows <= s->team &&
               s->team % (s->row_items * 2) == 0)
            s->row_items *= 2;
        if (s->out_rows > 16 ||
            registers_of(problem, &plan) > device->registers)
            continue;
        for (s->teams = 1; s->teams <= 8; s->teams *= 2) {
            if (!wa_plan_local_shape(problem, device, &plan))
                break;
            const double cost = shape_cost(problem, device, &plan);
            if (*best_cost == 0 || cost < *best_cost) {
                *best_cost = cost;
                *best = plan;
            }
        }
    }
}

/* All shapes whose softmax takes `block_keys` keys at once. */
static void search(const wa_problem *problem, const wa_device *device,
                   uint32_t block_keys, uint32_t most_rows, double *best_cost,
                   wa_plan *best)
{
    wa_plan plan = *best;
    wa_local_shape *s = &plan.shape.local;
    const uint32_t all_dims = wa_ceil_div(problem->head_dim, 4) * 4;
    plan.block_keys = block_keys;
    for (uint32_t split = 1; split <= most_rows; split++) {
        plan.block_rows = wa_ceil_div(most_rows, split);
        if (split > 1 && plan.block_rows == wa_ceil_div(most_rows, split - 1))
            continue;
        for (size_t t = 0; t < SCORE_TILES; t++) {
            s->score_rows = score_tiles[t].rows;
            s->score_cols = score_tiles[t].cols;
            for (uint32_t dims = all_dims; dims >= 8 || dims == all_dims;
                 dims /= 2) {
                s->stage_dims = wa_ceil_div(dims, 4) * 4;
                for (uint32_t parts = 1; parts <= block_keys; parts *= 2) {
                    s->stage_keys =
                        parts == 1
                            ? block_keys
                            : wa_ceil_div(wa_ceil_div(block_keys, parts), 4) *
                                  4;
                    if (parts > 1 && s->stage_keys < 16)
                        break;
                    consider(problem, device, &plan, best_cost, best);
                }
                if (dims < 8)
                    break;
            }
        }
    }
}

bool wa_plan_local(const wa_problem *problem, const wa_device *device,
                   wa_plan *plan)
{
    const bool sliding = problem->variant == WINATTN_SLIDING;
    /* Token counts of the sliding variant change from call to call. */
    const uint32_t most_rows = sliding ? 64 : MIN(problem->queries, 128);
    double cost = 0;
    if (device->max_work_group < 32)
        return refuse(plan, "work-groups of the device are below 32");
    if (!sliding)
        search(problem, device, problem->keys, most_rows, &cost, plan);
    const char *kept = "whole attention matrix";
    if (cost != 0 && plan->block_rows < problem->queries)
        kept = "whole rows of the attention matrix";
    if (cost == 0) {
        kept = "streaming softmax";
        for (uint32_t keys = 128; keys >= 16; keys /= 2)
            search(problem, device, keys, most_rows, &cost, plan);
    }
    if (cost == 0)
        return refuse(plan, "no shape fits local memory, registers and "
                            "work-group size");
    plan->refusals[WINATTN_TIER_LOCAL][0] = 0;
    snprintf(plan->reason, sizeof plan->reason,
             "%s in local memory; modelled best of the shapes within %u "
             "bytes, %u registers and work-groups of %u",
             kept, device->local_bytes, device->registers,
             device->max_work_group);
    return true;
}
