/* SPDX-License-Identifier: Apache-2.0
 * Chooses a tier for a linear layer; shapes of tiers cpu and local; what
 * kernels are called, and their sizes and options. */
#include "models/linear_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "device/matrix_unit.h"
#include "models/options.h"
#include "plan/defines.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#define MOST_CPU_STAGE 112u

/* Of columns of y, or numbers of a row, those that blocks of so many have. */
static uint64_t padded(uint32_t all, uint32_t block)
{
    return wa_linear_blocks(all, block) * block;
}

/* A device may end a work-item's loops early: rounds of all of them, for a
 * compiler that unrolls none. NULL, or that it does. */
static const char *early_end(const wa_linear_problem *problem,
                             const wa_device *device, double rounds_of_number,
                             char why[WA_REASON_SIZE])
{
    if (device->loop_limit == 0 ||
        rounds_of_number * problem->in <= device->loop_limit)
        return NULL;
    snprintf(why, WA_REASON_SIZE,
             "the device ends a work-item's loops after %u rounds",
             device->loop_limit);
    return why;
}

/* What is demanded, else what was measured to be better than *s. */
static void choose(const wa_linear_problem *problem, const wa_device *device,
                   winattn_tier tier, const wa_linear_shape *demanded,
                   wa_linear_layout *layout, wa_linear_shape *s)
{
    layout->source[WA_LINEAR_MANY] =
        demanded ? WA_LINEAR_GIVEN : WA_LINEAR_BY_MODEL;
    if (demanded)
        *s = *demanded;
    else
        wa_linear_measured(problem, device, tier, WA_LINEAR_MANY, layout, s);
}

/* ---- Tier cpu ---- */

/* Numbers of a row at a time: of those with which a panel stays in the first-
 * level cache, what wastes least. */
static uint32_t cpu_stage(const wa_linear_problem *problem, uint32_t lanes)
{
    uint32_t best = MOST_CPU_STAGE;
    if (problem->in <= MOST_CPU_STAGE)
        return (uint32_t)padded(problem->in, lanes);
    for (uint32_t s = best; s >= MOST_CPU_STAGE / 2; s -= lanes)
        if (padded(problem->in, s) < padded(problem->in, best))
            best = s;
    return best;
}

/* A core's second-level cache has the rows, the panel and the sums. Tiles of 7
 * rows and 48 columns divide what Swin has, and fill the registers of AVX-512;
 * others have half as many. */
const char *wa_linear_plan_cpu(const wa_linear_problem *problem,
                               const wa_device *device,
                               const wa_linear_shape *shape,
                               wa_linear_layout *layout)
{
    wa_linear_shape s = {.tile_rows = 4, .tile_vecs = 3};
    s.lanes = device->vector_lanes >= 16  ? 16
              : device->vector_lanes >= 8 ? 8
                                          : 4;
    if (s.lanes == 16)
        s.tile_rows = 7;
    const uint32_t panel = s.lanes * s.tile_vecs;
    s.stage_dims = cpu_stage(problem, s.lanes);
    s.block_rows = (device->is_cpu ? 14 : 2) * s.tile_rows;
    s.block_columns =
        panel *
        (uint32_t)MIN(wa_linear_blocks(problem->out, panel), 192 / panel);
    if (device->loop_limit) {
        s.block_rows = s.tile_rows;
        s.block_columns = panel;
    }
    choose(problem, device, WINATTN_TIER_CPU, shape, layout, &s);
    WA_REFUSE(wa_linear_check_shape(problem, device, WINATTN_TIER_CPU, &s));
    const double tiles = (double)s.block_rows / s.tile_rows *
                         (s.block_columns / (s.lanes * s.tile_vecs));
    WA_REFUSE(early_end(problem, device,
                        tiles * (1.0 + s.tile_rows * (1.0 + s.tile_vecs)) +
                            8.0 * s.block_columns / s.lanes,
                        layout->refusals[WINATTN_TIER_CPU]));
    layout->tier = WINATTN_TIER_CPU;
    wa_linear_write_kernel(problem, device, layout->tier, &s,
                           &layout->kernel[WA_LINEAR_MANY]);
    snprintf(layout->reason, sizeof layout->reason,
             "%s, %u fp32 lanes: register tiles of %u rows x %u columns",
             device->is_cpu ? "a CPU" : "nothing better fits", s.lanes,
             s.tile_rows, s.tile_vecs * s.lanes);
    return NULL;
}

/* ---- Tier local ---- */

/* Columns that blocks waste least with; of equals the most. */
static uint32_t local_columns(const wa_linear_problem *problem,
                              uint32_t item_columns)
{
    uint32_t best = 128;
    for (uint32_t columns = 128; columns >= 32; columns -= 32)
        if (columns % item_columns == 0 &&
            padded(problem->out, columns) < padded(problem->out, best))
            best = columns;
    return best;
}

const char *wa_linear_plan_local(const wa_linear_problem *problem,
                                 const wa_device *device,
                                 const wa_linear_shape *shape,
                                 wa_linear_layout *layout)
{
    const uint32_t item = device->registers >= 100 ? 8 : 4;
    wa_linear_shape few = {.block_rows = 32,
                           .block_columns = 32,
                           .stage_dims = item == 8 ? 32 : 16,
                           .item_rows = 4,
                           .item_columns = 4};
    wa_linear_shape s = {.block_rows = 16 * item,
                         .block_columns = local_columns(problem, item),
                         .stage_dims = 16,
                         .item_rows = item,
                         .item_columns = item};
    while (wa_linear_check_shape(problem, device, WINATTN_TIER_LOCAL, &s) &&
           s.block_rows > s.item_rows)
        s.block_rows /= 2;
    const wa_linear_shape model = s;
    layout->source[WA_LINEAR_FEW] = WA_LINEAR_BY_MODEL;
    choose(problem, device, WINATTN_TIER_LOCAL, shape, layout, &s);
    if (!shape)
        wa_linear_measured(problem, device, WINATTN_TIER_LOCAL, WA_LINEAR_FEW,
                           layout, &few);
    WA_REFUSE(wa_linear_check_shape(problem, device, WINATTN_TIER_LOCAL, &s));
    WA_REFUSE(early_end(problem, device,
                        (s.item_rows + 1.0) * (s.item_columns + 1.0),
                        layout->refusals[WINATTN_TIER_LOCAL]));
    layout->tier = WINATTN_TIER_LOCAL;
    wa_linear_write_kernel(problem, device, layout->tier, &s,
                           &layout->kernel[WA_LINEAR_MANY]);
    if (!shape &&
        !wa_linear_check_shape(problem, device, WINATTN_TIER_LOCAL, &few)) {
        wa_linear_write_kernel(problem, device, layout->tier, &few,
                               &layout->kernel[WA_LINEAR_FEW]);
        layout->few_groups = device->compute_units;
        layout->few_rows = model.block_rows;
        layout->few_columns = model.block_columns;
    }
    snprintf(layout->reason, sizeof layout->reason,
             "work-groups with %u x %u of y, work-items with %u x %u",
             s.block_rows, s.block_columns, s.item_rows, s.item_columns);
    return NULL;
}

/* ---- The choice ---- */

bool wa_linear_plan_tier(const wa_linear_problem *problem,
                         const wa_device *device, winattn_tier tier,
                         const wa_linear_shape *shape,
                         wa_linear_layout *layout)
{
    static wa_linear_planner *const planners[WA_TIERS] = {
        [WINATTN_TIER_CPU] = wa_linear_plan_cpu,
        [WINATTN_TIER_LOCAL] = wa_linear_plan_local,
        [WINATTN_TIER_MATRIX] = wa_linear_plan_matrix};
    const char *why = wa_tier_refusal(device, tier);
    if (!why && (problem->norms || problem->hidden || problem->merges) &&
        tier != WINATTN_TIER_MATRIX)
        why = "norms, a hidden layer and neighbours are beside layers on tier "
              "matrix alone";
    if (!why)
        why = planners[tier](problem, device, shape, layout);
    if (why && why != layout->refusals[tier])
        snprintf(layout->refusals[tier], WA_REASON_SIZE, "%s", why);
    return !why;
}

winattn_status wa_linear_plan_make(const wa_linear_problem *problem,
                                   const wa_device *device,
                                   char excluded[WA_TIERS][WA_REASON_SIZE],
                                   wa_linear_layout *layout)
{
    static const winattn_tier of_gpu[] = {
        WINATTN_TIER_MATRIX, WINATTN_TIER_LOCAL, WINATTN_TIER_CPU};
    static const winattn_tier of_cpu[] = {WINATTN_TIER_CPU, WINATTN_TIER_LOCAL,
                                          WINATTN_TIER_MATRIX};
    const winattn_tier *tiers = device->is_cpu ? of_cpu : of_gpu;
    memset(layout, 0, sizeof *layout);
    if (!device->compiles || !device->has_int64)
        return WA_BAD_DEVICE("the device has no %s", device->compiles
                                                         ? "64-bit integers"
                                                         : "compiler");
    memcpy(layout->refusals, excluded, sizeof layout->refusals);
    const char *first = "";
    for (size_t i = 0; i < 3; i++) {
        const winattn_tier tier = tiers[i];
        if (problem->tier != WINATTN_TIER_AUTO && problem->tier != tier)
            continue;
        if (!layout->refusals[tier][0] &&
            wa_linear_plan_tier(problem, device, tier, NULL, layout)) {
            wa_linear_write_norm(problem, device, layout);
            return WINATTN_SUCCESS;
        }
        if (!first[0])
            first = layout->refusals[tier];
    }
    return WA_UNSUPPORTED("%s", first);
}

/* ---- Names, sizes and options of kernels ---- */

static void append(wa_linear_kernel *kernel, const char *name, uint32_t value)
{
    wa_append_option(kernel->defines, sizeof kernel->defines, name, value);
}

static void append_shape(const wa_linear_problem *problem, winattn_tier tier,
                         wa_linear_kernel *kernel)
{
    const wa_linear_shape *s = &kernel->shape;
    const uint32_t in = problem->in;
    const unsigned norms = problem->norms;
    append(kernel, WA_OPTION(BLOCK_ROWS), s->block_rows);
    append(kernel, WA_OPTION(BLOCK_COLUMNS), s->block_columns);
    append(kernel, WA_OPTION(STAGE_DIMS), s->stage_dims);
    if (s->wgmma) {
        append(kernel, WA_OPTION(STAGES), s->stages);
        append(kernel, WA_OPTION(ROW_WAVES), s->row_waves);
        append(kernel, WA_OPTION(ROW_SIZE), in);
        append(kernel, WA_OPTION(KEEPS_WEIGHT), s->keeps_weight);
        append(kernel, WA_OPTION(HIDDEN), problem->hidden);
        if (problem->hidden)
            append(kernel, WA_OPTION(FINDS_STATISTICS),
                   (norms & WA_FINDS_STATISTICS) != 0);
        append(kernel, WA_OPTION(TAKES_STATISTICS),
               (norms & WA_TAKES_STATISTICS) != 0);
        append(kernel, WA_OPTION(GIVES_STATISTICS),
               (norms & WA_GIVES_STATISTICS) != 0);
        append(kernel, WA_OPTION(NORMALISES), (norms & WA_NORMALISES) != 0);
        return;
    }
    switch (tier) {
    case WINATTN_TIER_MATRIX:
        append(kernel, WA_OPTION(STAGES), s->stages);
        append(kernel, WA_OPTION(ROW_WAVES), s->row_waves);
        append(kernel, WA_OPTION(COLUMN_WAVES), s->column_waves);
        append(kernel, WA_OPTION(DIM_WAVES), s->dim_waves);
        if (wa_linear_splits(problem))
            append(kernel, WA_OPTION(SPLITS_FP32), 1);
        append(kernel, WA_OPTION(FINDS_STATISTICS), norms != 0);
        append(kernel, WA_OPTION(NEIGHBOURS), problem->merges);
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
    if (!device->limits_registers || !suits || kernel->shape.wgmma ||
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
        if (shape->wgmma) { /* and a warpgroup that fetches */
            kernel->work_group += 128;
            strcpy(kernel->name,
                   problem->hidden ? "mlp_wgmma" : "linear_wgmma");
        }
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
    append_shape(problem, tier, kernel);
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
