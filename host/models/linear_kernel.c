/* SPDX-License-Identifier: Apache-2.0
 * Names, sizes and options of linear layers' kernels. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "device/matrix_unit.h"
#include "models/linear_plan.h"
#include "models/options.h"
#include "plan/defines.h"

static void append(wa_linear_kernel *kernel, const char *name, uint32_t value)
{
    wa_append_option(kernel->defines, sizeof kernel->defines, name, value);
}

static void append_shape(wa_linear_kernel *kernel, winattn_tier tier,
                         uint32_t in)
{
    const wa_linear_shape *s = &kernel->shape;
    append(kernel, WA_OPTION(BLOCK_ROWS), s->block_rows);
    append(kernel, WA_OPTION(BLOCK_COLUMNS), s->block_columns);
    append(kernel, WA_OPTION(STAGE_DIMS), s->stage_dims);
    switch (tier) {
    case WINATTN_TIER_MATRIX:
        append(kernel, WA_OPTION(STAGES), s->stages);
        append(kernel, WA_OPTION(ROW_WAVES), s->row_waves);
        append(kernel, WA_OPTION(COLUMN_WAVES), s->column_waves);
        append(kernel, WA_OPTION(DIM_WAVES), s->dim_waves);
        if (s->keeps_weight)
            append(kernel, WA_OPTION(WEIGHT_STAGES),
                   (uint32_t)wa_linear_blocks(in, s->stage_dims));
        break;
    case WINATTN_TIER_LOCAL:
        append(kernel, WA_OPTION(ITEM_ROWS), s->item_rows);
        append(kernel, WA_OPTION(ITEM_COLUMNS), s->item_columns);
        break;
    default:
        append(kernel, WA_OPTION(LANES), s->lanes);
        append(kernel, WA_OPTION(TILE_ROWS), s->tile_rows);
        append(kernel, WA_OPTION(TILE_VECS), s->tile_vecs);
        break;
    }
}

/* fp32 numbers of sums that a work-item has. */
static uint32_t sums_of(winattn_tier tier, const wa_linear_kernel *kernel)
{
    const wa_linear_shape *s = &kernel->shape;
    return tier == WINATTN_TIER_LOCAL ? s->item_rows * s->item_columns
                                      : s->block_rows * s->block_columns *
                                            s->dim_waves / kernel->work_group;
}

/* NVIDIA's compiler takes more registers than it needs, and a compute unit
 * then holds one work-group, not two. */
#define MOST_LIMITED_SUMS 64u
static void append_register_limit(const wa_linear_problem *problem,
                                  const wa_device *device, winattn_tier tier,
                                  wa_linear_kernel *kernel)
{
    /* others would spill, or have room for two as they are */
    const bool suits = tier == WINATTN_TIER_MATRIX
                           ? problem->dtype != WINATTN_FP32
                           : tier == WINATTN_TIER_LOCAL &&
                                 problem->dtype == WINATTN_FP32 &&
                                 kernel->work_group >= 256;
    if (!device->limits_registers || !suits ||
        sums_of(tier, kernel) > MOST_LIMITED_SUMS ||
        2 * kernel->work_group * WA_LINEAR_ITEM_REGISTERS >
            device->register_words)
        return;
    append(kernel, WA_OPTION(LIMITS_REGISTERS), 1);
    wa_append(kernel->defines, sizeof kernel->defines,
              "-cl-nv-maxrregcount=%u ", WA_LINEAR_ITEM_REGISTERS);
}

void wa_linear_write_kernel(const wa_linear_problem *problem,
                            const wa_device *device, winattn_tier tier,
                            const wa_linear_shape *shape,
                            wa_linear_kernel *kernel)
{
    char *text = kernel->defines;
    const size_t size = sizeof kernel->defines;
    kernel->shape = *shape;
    kernel->rows = shape->block_rows;
    kernel->most_groups = 0;
    kernel->local_bytes = wa_linear_local_bytes(problem, device, tier, shape);
    kernel->work_group = 1;
    if (tier == WINATTN_TIER_LOCAL)
        kernel->work_group = shape->block_rows / shape->item_rows *
                             (shape->block_columns / shape->item_columns);
    if (tier == WINATTN_TIER_MATRIX) {
        kernel->work_group = shape->row_waves * shape->column_waves *
                             shape->dim_waves * device->matrix_unit->wave;
        snprintf(kernel->name, sizeof kernel->name, "linear_%smatrix_%s",
                 shape->keeps_weight ? "resident_" : "",
                 device->matrix_unit->name);
    } else {
        snprintf(kernel->name, sizeof kernel->name, "linear_%s",
                 wa_tier_name(tier));
    }
    text[0] = 0;
    wa_append_option(text, size, WA_OPTION(DTYPE), problem->dtype);
    wa_append_option(text, size, WA_OPTION(HAS_FMA), device->has_fma);
    wa_append_half_vectors(device, problem->dtype, text, size);
    wa_append_option(text, size, WA_OPTION(HAS_BIAS), problem->has_bias);
    wa_append_option(text, size, WA_OPTION(HAS_RESIDUAL),
                     problem->has_residual);
    wa_append_option(text, size, WA_OPTION(ACTIVATION), problem->activation);
    append_shape(kernel, tier, problem->in);
    append_register_limit(problem, device, tier, kernel);
    if (tier == WINATTN_TIER_MATRIX)
        wa_append_matrix_unit_options(device, text, size);
    if (tier == WINATTN_TIER_LOCAL && device->sub_group)
        append(kernel, WA_OPTION(SUB_GROUP), device->sub_group);
    if (tier == WINATTN_TIER_LOCAL && device->miscompiles_barriers)
        wa_append(text, size, "-cl-opt-disable ");
}

void wa_linear_write_norm(const wa_linear_problem *problem,
                          const wa_device *device, wa_linear_layout *layout)
{
    wa_linear_kernel *kernel = &layout->kernel[WA_LINEAR_NORM];
    const wa_row_desc desc = {.job = WA_ROW_NORM,
                              .dtype = problem->dtype,
                              .on_cpu = layout->tier == WINATTN_TIER_CPU,
                              .row_size = problem->in};
    memset(kernel, 0, sizeof *kernel);
    if (!problem->layer_norm)
        return;
    snprintf(kernel->name, sizeof kernel->name, "%s",
             wa_row_lay_out(&desc, device, &layout->norm, kernel->defines,
                            sizeof kernel->defines));
    kernel->rows = layout->norm.teams;
    kernel->work_group = layout->norm.team * layout->norm.teams;
    kernel->local_bytes =
        layout->norm.team > 1 ? 2ull * kernel->work_group * sizeof(float) : 0;
}
