/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/defines.h"

#include "base/text.h"
#include "device/matrix_unit.h"
#include "plan/family.h"

void wa_step_switch(wa_step *step, wa_switch which, uint32_t value)
{
    wa_append_switch(step->defines, sizeof step->defines, which, value);
}

typedef struct define {
    wa_switch name;
    uint32_t value;
    bool used;
} define;

static void append_defines(const define *defines, size_t count, wa_step *step)
{
    for (size_t i = 0; i < count; i++)
        if (defines[i].used)
            wa_step_switch(step, defines[i].name, defines[i].value);
}

/* As cl/common/problem.cl numbers them. */
static uint32_t bias_number(const wa_problem *problem)
{
    return problem->bias == WINATTN_BIAS_NONE         ? 0u
           : problem->bias_dtype == WINATTN_TERM_SAME ? 1u
                                                      : 2u;
}

static void append_grid(const wa_problem *problem, wa_step *step)
{
    const wa_grid *grid = &problem->grid;
    const uint32_t padding = wa_problem_padding(problem);
    const define defines[] = {
        {WA_SWITCH(GRID), grid->rolls_first ? 2 : 1, grid->used},
        {WA_SWITCH(WINDOW_1), grid->window[1], grid->used},
        {WA_SWITCH(WINDOW_2), grid->window[2], grid->used},
        {WA_SWITCH(PADDING), padding, padding != 0},
    };
    append_defines(defines, sizeof defines / sizeof *defines, step);
}

static void append_table(const wa_problem *problem, wa_step *step)
{
    const wa_table *table = &problem->table;
    const bool by_position = table->used && !table->has_index;
    const define defines[] = {
        {WA_SWITCH(TABLE), table->has_index ? 2u : 1u, table->used},
        {WA_SWITCH(TABLE_WINDOW_1), table->window[1], by_position},
        {WA_SWITCH(TABLE_WINDOW_2), table->window[2], by_position},
        {WA_SWITCH(TABLE_STEP_0), table->step[0], by_position},
        {WA_SWITCH(TABLE_STEP_1), table->step[1], by_position},
        {WA_SWITCH(TABLE_CENTER), table->center, by_position},
    };
    append_defines(defines, sizeof defines / sizeof *defines, step);
}

/* The one place that turns a problem into -D options. */
static void append_problem(const wa_problem *problem, const wa_device *device,
                           bool has_queries, uint32_t block_rows,
                           wa_step *step)
{
    const bool is_window = problem->variant != WINATTN_SLIDING;
    const define defines[] = {
        {WA_SWITCH(VARIANT), problem->variant, true},
        {WA_SWITCH(DTYPE), problem->dtype, true},
        {WA_SWITCH(HEAD_DIM), problem->head_dim, true},
        {WA_SWITCH(NQ), problem->queries, is_window && has_queries},
        {WA_SWITCH(NK), problem->keys, is_window},
        {WA_SWITCH(BIAS), bias_number(problem), true},
        {WA_SWITCH(MASK), problem->mask, true},
        {WA_SWITCH(ADJACENT_KEYS),
         wa_tensor_is_adjacent(&problem->tensor[WA_BIAS]) &&
             wa_tensor_is_adjacent(&problem->tensor[WA_MASK]),
         true},
        {WA_SWITCH(BLOCK_ROWS), block_rows, block_rows > 0},
        {WA_SWITCH(BLOCK_KEYS), step->block_keys, true},
        {WA_SWITCH(HAS_FMA), device->has_fma, true},
    };
    step->defines[0] = 0;
    append_defines(defines, sizeof defines / sizeof *defines, step);
    append_grid(problem, step);
    append_table(problem, step);
}

void wa_step_problem_of_keys(wa_step *step, const wa_problem *problem,
                             const wa_device *device, uint32_t block_rows)
{
    append_problem(problem, device, false, block_rows, step);
}

void wa_begin_step(const wa_problem *problem, const wa_device *device,
                   const char *kernel, uint32_t block_rows,
                   uint32_t block_keys, uint32_t work_group,
                   uint64_t local_bytes, wa_step *step)
{
    step->kernel = kernel;
    step->block_rows = block_rows;
    step->block_keys = block_keys;
    step->work_group = work_group;
    step->local_bytes = (uint32_t)local_bytes;
    append_problem(problem, device, true, block_rows, step);
}

void wa_step_table(wa_step *step, const wa_problem *problem)
{
    const define defines[] = {
        {WA_SWITCH(DTYPE), problem->dtype, true},
        {WA_SWITCH(NQ), problem->queries, true},
        {WA_SWITCH(NK), problem->keys, true},
        {WA_SWITCH(BIAS), bias_number(problem), true},
    };
    step->defines[0] = 0;
    append_defines(defines, sizeof defines / sizeof *defines, step);
    append_table(problem, step);
}

void wa_append_half_vectors(const wa_device *device, winattn_dtype dtype,
                            char *text, size_t size)
{
    const uint32_t which = device->splits_half_vectors   ? 1
                           : device->aligns_half_vectors ? 2
                                                         : 0;
    if (which && dtype == WINATTN_FP16)
        wa_append_switch(text, size, WA_SWITCH(HALVES_FROM_BITS), which);
}

void wa_step_half_vectors(wa_step *step, const wa_device *device,
                          winattn_dtype dtype)
{
    wa_append_half_vectors(device, dtype, step->defines, sizeof step->defines);
}

void wa_step_shape(wa_step *step, const wa_shape_list *list, const void *shape)
{
    const uint32_t *numbers = shape;
    for (size_t i = 0; i < list->count; i++)
        if (list->option[i] != WA_NO_SWITCH)
            wa_step_switch(step, list->option[i], numbers[i]);
}

void wa_step_local_options(wa_step *step, const wa_problem *problem,
                           const wa_device *device)
{
    wa_step_half_vectors(step, device, problem->dtype);
    if (device->sub_group)
        wa_step_switch(step, WA_SWITCH(SUB_GROUP), device->sub_group);
    if (device->miscompiles_barriers)
        wa_append(step->defines, sizeof step->defines, "-cl-opt-disable ");
}

void wa_append_matrix_unit_options(const wa_device *device, char *text,
                                   size_t size)
{
    wa_append(text, size, "%s", device->matrix_unit->options);
    if (device->vendor == WA_VENDOR_NVIDIA)
        wa_append_switch(text, size, WA_SWITCH(COMPUTE_CAPABILITY),
                         device->compute_capability);
    if (device->miscompiles_barriers)
        wa_append(text, size, "-cl-opt-disable ");
}

void wa_step_matrix_unit(wa_step *step, const wa_device *device)
{
    wa_append_matrix_unit_options(device, step->defines, sizeof step->defines);
}

void wa_step_matrix_shape(wa_step *step, const wa_matrix_shape *shape,
                          const wa_device *device)
{
    wa_step_shape(step, &wa_matrix_numbers, shape);
    wa_step_matrix_unit(step, device);
}
