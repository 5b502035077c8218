/* SPDX-License-Identifier: Apache-2.0
 * Shapes of linear layers' kernels: which are legal, and the local memory that
 * they take. */
#include "models/linear_plan.h"

#include "device/matrix_unit.h"
#include "plan/shapes.h"

#include "../cl/models/linear_extents.h"
#include "../cl/models/model_switches.h"
#include "../cl/unit/row_extents.h"

/* A work-item of tier cpu has its rows, panel and sums on its stack. */
#define MOST_STACK 524288u
/* Of sums: a work-item of tier matrix has as many registers, and needs some
 * for the rest. */
#define MOST_SUMS 192u

/* Is it what the switch of that name may be? */
#define IN(number, name) ((number) >= LEAST_##name && (number) <= MOST_##name)

/* ---- Tier cpu ---- */

static const char *check_cpu(const wa_linear_shape *s)
{
    const uint32_t panel = s->lanes * s->tile_vecs;
    if ((s->lanes != 4 && s->lanes != 8 && s->lanes != 16) ||
        !IN(s->tile_rows, TILE_ROWS) || !IN(s->tile_vecs, TILE_VECS) ||
        !IN(s->stage_dims, STAGE_DIMS) || s->block_rows == 0 ||
        s->block_rows > WA_LARGEST_NUMBER ||
        !IN(s->block_columns, BLOCK_COLUMNS))
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

/* ---- Tier local ---- */

static uint64_t local_bytes(const wa_linear_shape *s)
{
    return (uint64_t)s->stage_dims * (s->block_rows + s->block_columns + 8) *
           4;
}

static const char *check_local(const wa_device *device,
                               const wa_linear_shape *s)
{
    if (!IN(s->item_rows, ITEM_ROWS) || !IN(s->item_columns, ITEM_COLUMNS) ||
        !IN(s->stage_dims, STAGE_DIMS) || s->block_rows == 0 ||
        s->block_rows > WA_LARGEST_NUMBER ||
        !IN(s->block_columns, BLOCK_COLUMNS))
        return "a number is out of its bounds";
    if (s->item_rows % 4 != 0 || s->item_columns % 4 != 0 ||
        s->stage_dims % 4 != 0)
        return "work-items take quads of numbers, rows and columns";
    if (s->block_rows % s->item_rows != 0 ||
        s->block_columns % s->item_columns != 0)
        return "tiles do not divide the block";
    if (s->block_rows / s->item_rows * (s->block_columns / s->item_columns) >
            device->max_work_group ||
        local_bytes(s) > device->local_bytes)
        return "work-groups or local memory are too small";
    return NULL;
}

/* ---- Tier matrix ---- */

/* By the kernel's formulas, which name switches and what a unit's file says.
 */
static uint64_t matrix_bytes(const wa_linear_problem *problem,
                             const wa_device *device, const wa_linear_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    if (s->wgmma)
        return wa_linear_wgmma_bytes(problem, s);
    const uint64_t TILE_M = unit->queries, TILE_N = unit->tile;
    const uint64_t CHUNK = wa_linear_vector(problem);
    const bool SWIZZLES_ROWS = unit->swizzles_rows;
    const uint64_t BLOCK_ROWS = s->block_rows,
                   BLOCK_COLUMNS = s->block_columns,
                   STAGE_DIMS = s->stage_dims, STAGES = s->stages,
                   ROW_WAVES = s->row_waves, COLUMN_WAVES = s->column_waves,
                   DIM_WAVES = s->dim_waves;
    const bool HAS_RESIDUAL = problem->has_residual;
    const bool FINDS_STATISTICS = (problem->norms & WA_FINDS_STATISTICS) != 0;
    const uint64_t GROUP = ROW_WAVES * COLUMN_WAVES * DIM_WAVES * unit->wave;
    const uint64_t WEIGHT_STAGES =
        wa_linear_blocks(problem->in, s->stage_dims);
    return s->keeps_weight ? RESIDENT_BYTES : LINEAR_BYTES;
}

uint32_t wa_linear_lane_sums(const wa_device *device, const wa_linear_shape *s)
{
    return s->block_rows / s->row_waves *
           (s->block_columns / s->column_waves) / device->matrix_unit->wave;
}

/* Of linear_resident_matrix.cl. */
static const char *check_resident(const wa_linear_problem *problem,
                                  const wa_linear_shape *s)
{
    const uint64_t weight_stages =
        wa_linear_blocks(problem->in, s->stage_dims);
    if (problem->dtype == WINATTN_FP32 || problem->layer_norm ||
        s->dim_waves != 1)
        return "weights stay in local memory only in fp16 and bf16, without a "
               "norm, of waves with whole sums";
    if (weight_stages > MOST_WEIGHT_STAGES)
        return "a row has too many stages for weights to stay";
    /* or a residual comes before the one that it replaces was added */
    if (problem->has_residual && s->stages - 1 >= 2 * weight_stages)
        return "residuals would come too early";
    return NULL;
}

static const char *check_matrix(const wa_linear_problem *problem,
                                const wa_device *device,
                                const wa_linear_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    if (s->wgmma)
        return wa_linear_check_wgmma(problem, device, s);
    if (!IN(s->row_waves, ROW_WAVES) || !IN(s->column_waves, COLUMN_WAVES) ||
        !IN(s->dim_waves, DIM_WAVES) || s->block_rows == 0 ||
        s->block_rows > WA_LARGEST_NUMBER ||
        !IN(s->block_columns, BLOCK_COLUMNS) ||
        !IN(s->stage_dims, STAGE_DIMS) || s->stages < 2 ||
        !IN(s->stages, STAGES) || s->keeps_weight > 1)
        return "a number is out of its bounds";
    if (s->block_rows % (s->row_waves * unit->queries) != 0 ||
        s->block_columns % (s->column_waves * unit->tile) != 0 ||
        s->stage_dims % (s->dim_waves * unit->tile) != 0)
        return "tiles do not divide the block";
    if (s->row_waves * s->column_waves * s->dim_waves * unit->wave >
        device->max_work_group)
        return "work-groups are too small";
    if (problem->norms == WA_FINDS_STATISTICS &&
        s->row_waves * s->column_waves * s->dim_waves * unit->wave %
                s->block_rows !=
            0)
        return "work-items do not share rows evenly";
    if (wa_linear_lane_sums(device, s) > MOST_SUMS)
        return "work-items have too few registers";
    const char *why = s->keeps_weight ? check_resident(problem, s) : NULL;
    if (!why && matrix_bytes(problem, device, s) > device->local_bytes)
        why = "local memory is too small";
    return why;
}

/* ---- All ---- */

uint64_t wa_linear_local_bytes(const wa_linear_problem *problem,
                               const wa_device *device, winattn_tier tier,
                               const wa_linear_shape *shape)
{
    return tier == WINATTN_TIER_MATRIX  ? matrix_bytes(problem, device, shape)
           : tier == WINATTN_TIER_LOCAL ? local_bytes(shape)
                                        : 0;
}

const char *wa_linear_check_shape(const wa_linear_problem *problem,
                                  const wa_device *device, winattn_tier tier,
                                  const wa_linear_shape *shape)
{
    return tier == WINATTN_TIER_MATRIX  ? check_matrix(problem, device, shape)
           : tier == WINATTN_TIER_LOCAL ? check_local(device, shape)
                                        : check_cpu(shape);
}
