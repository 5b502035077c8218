/* SPDX-License-Identifier: Apache-2.0
 * Shapes of linear layers for a matrix unit: all that are legal are scored. */
#include <stdio.h>
#include <string.h>

#include "device/matrix_unit.h"
#include "models/linear_plan.h"

#define MATRIX WINATTN_TIER_MATRIX
#define MOST_REGISTERS 255u

/* What an element of y costs, of which a block wastes some: a tile's product,
 * reading its operands from local memory, and bringing them there. */
static double cost_of(const wa_linear_problem *problem,
                      const wa_matrix_unit *unit, const wa_linear_shape *s)
{
    const double rows = (double)s->block_rows / s->row_waves / unit->queries;
    const double columns =
        (double)s->block_columns / s->column_waves / unit->tile;
    const uint32_t waves = s->row_waves * s->column_waves;
    const double wasted =
        (double)wa_linear_blocks(problem->out, s->block_columns) *
        s->block_columns / problem->out;
    const double cost = 1.0 + 0.35 * (rows + columns) / (rows * columns) +
                        12.0 / s->block_rows + 12.0 / s->block_columns;
    return cost * wasted * (1.0 + 0.2 / waves);
}

/* Numbers of a stage: a line of 128 bytes, of fp32 in two parts two lines, or
 * half as many where that wastes less. */
static uint32_t stage_of(const wa_linear_problem *problem,
                         const wa_matrix_unit *unit)
{
    const uint32_t line =
        problem->dtype == WINATTN_FP32 && problem->allow_tf32 ? 32 : 64;
    const uint32_t half = line / 2 < unit->tile ? unit->tile : line / 2;
    return wa_linear_blocks(problem->in, line) * line <=
                   wa_linear_blocks(problem->in, half) * half
               ? line
               : half;
}

/* Stages that two work-groups of a compute unit have room for, but at least
 * two. */
static void choose_stages(const wa_linear_problem *problem,
                          const wa_device *device, wa_linear_shape *s)
{
    const uint32_t most = device->matrix_unit->copies_async ? 4 : 2;
    const uint64_t room =
        device->local_capacity / 2 > WA_RESERVED_LOCAL_BYTES
            ? device->local_capacity / 2 - WA_RESERVED_LOCAL_BYTES
            : 0;
    for (s->stages = most; s->stages > 2; s->stages--)
        if (wa_linear_local_bytes(problem, device, MATRIX, s) <= room)
            return;
}

static double search(const wa_linear_problem *problem, const wa_device *device,
                     wa_linear_shape *best)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const uint32_t most_sums = device->registers >= 100 ? 64 : 32;
    double least = 0.0;
    wa_linear_shape s = {.stage_dims = stage_of(problem, unit),
                         .dim_waves = 1};
    for (s.row_waves = 1; s.row_waves <= 8; s.row_waves *= 2)
        for (s.column_waves = 1; s.row_waves * s.column_waves <= 8;
             s.column_waves *= 2)
            for (s.block_rows = unit->queries * s.row_waves;
                 s.block_rows <= 128; s.block_rows *= 2)
                for (s.block_columns = unit->tile * s.column_waves;
                     s.block_columns <= 128;
                     s.block_columns += unit->tile * s.column_waves) {
                    choose_stages(problem, device, &s);
                    if (wa_linear_lane_sums(device, &s) > most_sums ||
                        wa_linear_check_shape(problem, device, MATRIX, &s))
                        continue;
                    const double cost = cost_of(problem, unit, &s);
                    if (least == 0.0 || cost < least) {
                        least = cost;
                        *best = s;
                    }
                }
    return least;
}

/* Of calls with few rows: small tiles, whose sums four waves share. */
static bool choose_few(const wa_linear_problem *problem,
                       const wa_device *device, wa_linear_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const uint32_t side = unit->queries > 32 ? unit->queries : 32;
    const wa_linear_shape few = {.block_rows = side,
                                 .block_columns = side,
                                 .stage_dims = 4 * unit->tile,
                                 .stages = unit->copies_async ? 4 : 2,
                                 .row_waves = 1,
                                 .column_waves = 1,
                                 .dim_waves = 4};
    *s = few;
    /* else a stage waits in registers */
    if (unit->copies_async && problem->dtype != WINATTN_FP32 &&
        problem->in >= 8 * unit->tile)
        s->stage_dims *= 2;
    return !wa_linear_check_shape(problem, device, MATRIX, s);
}

/* Does the unit multiply TF32 at more than three times the rate at which the
 * device multiplies fp32, so that three products in place of one pay? That is
 * so of NVIDIA's devices for data centres. */
static bool splits_pay(const wa_device *device)
{
    return device->compute_capability == 80 ||
           device->compute_capability == 90 ||
           device->compute_capability == 100;
}

/* NULL, or why the unit does not compute the problem. */
static const char *refusal(const wa_linear_problem *problem,
                           const wa_device *device)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    if (!unit)
        return "the device has no known matrix unit";
    if (problem->dtype == WINATTN_FP32 && !unit->has_tf32)
        return "the matrix unit has no TF32";
    if (wa_linear_splits(problem) && problem->tier != MATRIX &&
        !splits_pay(device))
        return "three products in TF32 take longer than one in fp32";
    if (!unit->proven && problem->tier != MATRIX)
        return "nobody has run the matrix unit yet: demand the tier";
    return NULL;
}

/* Work-groups that the device holds at once; where they keep weights, of each
 * block of columns as many. */
static uint32_t groups_at_once(const wa_linear_problem *problem,
                               const wa_device *device,
                               const wa_linear_kernel *kernel)
{
    const wa_linear_shape *s = &kernel->shape;
    const uint32_t columns =
        s->keeps_weight
            ? (uint32_t)wa_linear_blocks(problem->out, s->block_columns)
            : 1;
    const bool is_limited =
        strstr(kernel->defines, "LIMITS_REGISTERS") != NULL;
    const uint64_t registers =
        (uint64_t)kernel->work_group *
        (is_limited ? WA_LINEAR_ITEM_REGISTERS : MOST_REGISTERS);
    uint64_t groups = device->local_capacity /
                      (kernel->local_bytes + WA_RESERVED_LOCAL_BYTES);
    if (groups > device->register_words / registers)
        groups = device->register_words / registers;
    if (s->wgmma)
        groups = 1;
    groups = (groups ? groups : 1) * device->compute_units;
    return columns * (uint32_t)(groups > columns ? groups / columns : 1);
}

static void write_kernel(const wa_linear_problem *problem,
                         const wa_device *device, const wa_linear_shape *s,
                         wa_linear_kernel *kernel)
{
    wa_linear_write_kernel(problem, device, MATRIX, s, kernel);
    if (s->wgmma || s->keeps_weight)
        kernel->most_groups = groups_at_once(problem, device, kernel);
}

/* The kernel of calls with few rows, if there is one; model: the shape that
 * others would have without rows of the tuning table. Where all calls are of
 * few rows, *s becomes that kernel's. */
static void add_few(const wa_linear_problem *problem, const wa_device *device,
                    const wa_linear_shape *model, wa_linear_layout *layout,
                    wa_linear_shape *s)
{
    wa_linear_shape few;
    if (!wa_linear_measured(problem, device, MATRIX, WA_LINEAR_FEW, layout,
                            &few) &&
        !choose_few(problem, device, &few))
        return;
    if (problem->norms == WA_FINDS_STATISTICS || problem->merges) {
        *s = few;
        layout->source[WA_LINEAR_MANY] = layout->source[WA_LINEAR_FEW];
    } else if (!problem->norms)
        write_kernel(problem, device, &few, &layout->kernel[WA_LINEAR_FEW]);
    layout->few_groups = device->compute_units;
    layout->few_rows = model->block_rows;
    layout->few_columns = model->block_columns;
}

/* NULL, or why a kernel of that shape does not do what is to be done beside
 * the layer. */
static const char *refuse_more(const wa_linear_problem *problem,
                               const wa_linear_shape *s)
{
    if (problem->merges && (s->wgmma || s->keeps_weight))
        return "no kernel of that shape finds neighbours";
    if (problem->merges && problem->in % (4 * wa_linear_vector(problem)) != 0)
        return "neighbours are no whole chunks";
    if (problem->norms == WA_FINDS_STATISTICS && !problem->hidden)
        return s->wgmma || s->keeps_weight || problem->has_residual ||
                       problem->dtype == WINATTN_FP32
                   ? "no kernel of that shape normalises rows on the way"
                   : NULL;
    if ((problem->norms & WA_GIVES_STATISTICS) && !problem->hidden)
        return "only an mlp in one launch finds statistics of its results";
    return (problem->norms || problem->hidden) && !s->wgmma
               ? "norms and a hidden layer are beside layers by wgmma alone"
               : NULL;
}

const char *wa_linear_plan_matrix(const wa_linear_problem *problem,
                                  const wa_device *device,
                                  const wa_linear_shape *shape,
                                  wa_linear_layout *layout)
{
    wa_linear_shape s, model;
    WA_REFUSE(refusal(problem, device));
    layout->source[WA_LINEAR_MANY] = WA_LINEAR_BY_MODEL;
    layout->source[WA_LINEAR_FEW] = WA_LINEAR_BY_MODEL;
    if (shape) {
        s = *shape;
        layout->source[WA_LINEAR_MANY] = WA_LINEAR_GIVEN;
        WA_REFUSE(wa_linear_check_shape(problem, device, MATRIX, &s));
    } else if (problem->hidden) {
        s = wa_linear_mlp_shape(problem, device);
        WA_REFUSE(wa_linear_check_shape(problem, device, MATRIX, &s));
    } else {
        const bool has_model = search(problem, device, &model) > 0.0;
        const bool measured = wa_linear_measured(problem, device, MATRIX,
                                                 WA_LINEAR_MANY, layout, &s);
        if (!measured && !has_model)
            return "work-groups or local memory are too small";
        if (!measured)
            s = model;
        if (!has_model)
            model = s;
        const char *why = problem->norms & ~(unsigned)WA_FINDS_STATISTICS
                              ? wa_linear_wgmma_refusal(problem, device)
                              : wa_linear_wgmma_loses(problem, device);
        if ((!measured || (problem->norms && !s.wgmma)) && !why)
            wa_linear_find_wgmma(problem, device, &s);
        if (!measured && why && !layout->not_taken[0])
            snprintf(layout->not_taken, sizeof layout->not_taken, "%s", why);
        add_few(problem, device, &model, layout, &s);
    }
    WA_REFUSE(refuse_more(problem, &s));
    layout->tier = MATRIX;
    write_kernel(problem, device, &s, &layout->kernel[WA_LINEAR_MANY]);
    snprintf(layout->reason, sizeof layout->reason,
             "%s%s: work-groups with %u x %u of y, %u x %u waves, %u "
             "stages of %u%s",
             s.wgmma ? "wgmma" : device->matrix_unit->name,
             wa_linear_splits(problem) ? ", fp32 in two parts" : "",
             s.block_rows, s.block_columns, s.row_waves, s.column_waves,
             s.stages, s.stage_dims,
             s.keeps_weight ? ", weights that stay" : "");
    return NULL;
}
