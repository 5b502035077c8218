/* SPDX-License-Identifier: Apache-2.0
 * Which shapes of linear layers are legal, and which were measured. */
#include "models/linear_shapes.h"

#include <stdio.h>

#include "plan/tuning.h"

/* A work-item of tier cpu has its rows, panel and sums on its stack. */
#define MOST_STACK 524288u

const char *wa_linear_check_cpu(const wa_linear_shape *s)
{
    const uint32_t panel = s->lanes * s->tile_vecs;
    if ((s->lanes != 4 && s->lanes != 8 && s->lanes != 16) ||
        !WA_LINEAR_IN(s->tile_rows, TILE_ROWS) ||
        !WA_LINEAR_IN(s->tile_vecs, TILE_VECS) ||
        !WA_LINEAR_IN(s->stage_dims, STAGE_DIMS) || s->block_rows == 0 ||
        s->block_rows > WA_LARGEST_NUMBER ||
        !WA_LINEAR_IN(s->block_columns, BLOCK_COLUMNS))
        return "a number is out of its bounds";
    if (s->block_rows % s->tile_rows != 0 || s->block_columns % panel != 0 ||
        s->stage_dims % s->lanes != 0)
        return "tiles do not divide the block";
    const uint64_t numbers =
        (uint64_t)s->block_rows * (s->stage_dims + s->block_columns) +
        (uint64_t)s->stage_dims * panel;
    return numbers * 4 > MOST_STACK ? "a work-item's stack is too small"
                                    : NULL;
}

uint64_t wa_linear_local_bytes(const wa_linear_shape *s)
{
    return (uint64_t)s->stage_dims * (s->block_rows + s->block_columns + 8) *
           4;
}

const char *wa_linear_check_local(const wa_device *device,
                                  const wa_linear_shape *s)
{
    if (!WA_LINEAR_IN(s->item_rows, ITEM_ROWS) ||
        !WA_LINEAR_IN(s->item_columns, ITEM_COLUMNS) ||
        !WA_LINEAR_IN(s->stage_dims, STAGE_DIMS) || s->block_rows == 0 ||
        s->block_rows > WA_LARGEST_NUMBER ||
        !WA_LINEAR_IN(s->block_columns, BLOCK_COLUMNS))
        return "a number is out of its bounds";
    if (s->item_rows % 4 != 0 || s->item_columns % 4 != 0 ||
        s->stage_dims % 4 != 0)
        return "work-items take quads of numbers, rows and columns";
    if (s->block_rows % s->item_rows != 0 ||
        s->block_columns % s->item_columns != 0)
        return "tiles do not divide the block";
    if (s->block_rows / s->item_rows * (s->block_columns / s->item_columns) >
            device->max_work_group ||
        wa_linear_local_bytes(s) > device->local_bytes)
        return "work-groups or local memory are too small";
    return NULL;
}

const char *wa_linear_check_shape(const wa_linear_problem *problem,
                                  const wa_device *device, winattn_tier tier,
                                  const wa_linear_shape *shape)
{
    return tier == WINATTN_TIER_MATRIX
               ? wa_linear_check_matrix(problem, device, shape)
           : tier == WINATTN_TIER_LOCAL ? wa_linear_check_local(device, shape)
                                        : wa_linear_check_cpu(shape);
}

/* ---- Rows of the tuning table ---- */

wa_tuned_kernel wa_linear_tuned_kernel(winattn_tier tier)
{
    return tier == WINATTN_TIER_MATRIX  ? WA_LINEAR_MATRIX
           : tier == WINATTN_TIER_LOCAL ? WA_LINEAR_LOCAL
                                        : WA_LINEAR_CPU;
}

wa_linear_key wa_linear_key_of(const wa_linear_problem *problem,
                               wa_linear_kernel_id id)
{
    const wa_linear_key key = {
        .half = problem->dtype != WINATTN_FP32,
        .few = id == WA_LINEAR_FEW,
        .in = problem->in,
        .out = problem->out,
        .terms = (problem->layer_norm ? WA_LINEAR_NORM : 0u) |
                 (problem->activation ? WA_LINEAR_GELU : 0u) |
                 (problem->has_residual ? WA_LINEAR_RESIDUAL : 0u)};
    return key;
}

bool wa_linear_measured(const wa_linear_problem *problem,
                        const wa_device *device, winattn_tier tier,
                        wa_linear_kernel_id id, wa_linear_layout *layout,
                        wa_linear_shape *shape)
{
    const wa_linear_key key = wa_linear_key_of(problem, id);
    wa_tuned found;
    if (device->loop_limit) /* shapes of other devices have longer ones */
        return false;
    for (size_t i = 0; wa_find_tuned_linear(wa_linear_tuned_kernel(tier), &key,
                                            device, i, &found);
         i++) {
        const char *why =
            wa_linear_check_shape(problem, device, tier, &found.shape.linear);
        if (!why) {
            *shape = found.shape.linear;
            layout->source[id] = found.reason;
            return true;
        }
        if (!layout->not_taken[0])
            snprintf(layout->not_taken, sizeof layout->not_taken, "%s", why);
    }
    return false;
}
