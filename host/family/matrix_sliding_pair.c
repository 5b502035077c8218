/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/matrix/sliding_rows_matrix.cl, which runs for statistics and
 * for dQ, and cl/matrix/sliding_keys_matrix.cl. Of o and lse
 * cl/matrix/sliding_given.cl makes statistics. */
#include "family/matrix_sliding.h"
#include "plan/defines.h"

#include "../cl/common/args.h"
#include "../cl/matrix/given_extents.h"

/* Local memory for what a row sees, and for bounds. */
#define SPAN_BYTES 8u
#define BOUND_BYTES 16u
/* Registers of a score: itself, its dP, and half of each as operands. */
#define SCORE_REGISTERS 3.0

/* The ring, two tensors of the work-group's own rows, and `others`. */
static uint64_t local_bytes(const wa_problem *problem, const wa_device *device,
                            const wa_matrix_shape *s, uint64_t others)
{
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, s);
    return wa_whole_lines(
               wa_matrix_local_bytes(problem, device, s, &t, WA_FORWARD, 0)) +
           2 * wa_whole_lines(t.row_plane_bytes[WA_FORWARD]) +
           wa_whole_lines(others);
}

/* With statistics no sums of a wave's lanes. */
static uint64_t rows_bytes(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s, bool statistics)
{
    const uint32_t sums =
        statistics ? 0 : s->waves_per_window * device->matrix_unit->wave * 4;
    return local_bytes(problem, device, s,
                       (uint64_t)s->block_rows * SPAN_BYTES + BOUND_BYTES +
                           sums);
}

/* s: transposed. */
static uint64_t keys_bytes(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s)
{
    const wa_problem transposed = wa_matrix_transpose(problem);
    return local_bytes(&transposed, device, s,
                       (uint64_t)s->stages * s->block_keys * ROW_NUMBERS * 4 +
                           BOUND_BYTES);
}

/* ---- What is refused; registers apart ---- */

static const char *side_refusal(const wa_problem *problem,
                                const wa_device *device,
                                const wa_matrix_shape *s, uint64_t bytes)
{
    WA_REFUSE(wa_sliding_tiles_refusal(problem, device, s));
    return bytes > device->local_bytes
               ? "local memory of the device is too small"
               : NULL;
}

static const char *rows_refusal(const wa_problem *problem,
                                const wa_device *device,
                                const wa_matrix_shape *s)
{
    return side_refusal(problem, device, s,
                        rows_bytes(problem, device, s, false));
}

static const char *keys_refusal(const wa_problem *problem,
                                const wa_device *device,
                                const wa_matrix_shape *s)
{
    return side_refusal(problem, device, s, keys_bytes(problem, device, s));
}

/* ---- The plan ---- */

/* Are dV and dK more sums than a lane has registers for, so that work-groups
 * make one of them each? */
static bool splits_dk_dv(const wa_problem *problem, const wa_device *device,
                         const wa_matrix_shape *s)
{
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, s);
    return (2 * t.dim_tiles * wa_sliding_turns(device, s) + 1) *
               t.acc_per_lane >
           wa_matrix_most_sums(problem, device, s->waves_per_window);
}

/* The kernel of rows, for statistics, perhaps with tensor maps, or for dQ. */
static void set_rows(const wa_problem *problem, const wa_device *device,
                     const wa_matrix_shape *rows, bool statistics,
                     bool has_maps, wa_step *step)
{
    wa_begin_step(problem, device, device->matrix_unit->sliding_rows_kernel,
                  rows->block_rows, rows->block_keys,
                  rows->waves_per_window * device->matrix_unit->wave,
                  rows_bytes(problem, device, rows, statistics), step);
    wa_step_switch(step, WA_SWITCH(STATISTICS), statistics);
    wa_step_switch(step, WA_SWITCH(TENSOR_MAPS), has_maps);
    wa_step_matrix_shape(step, rows, device);
}

void wa_take_sliding_statistics(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *shape, bool has_maps,
                                wa_plan *plan)
{
    const wa_matrix_shape rows = shape->matrix_backward.rows;
    const uint32_t BLOCK_ROWS = rows.block_rows;
    wa_step *given = &plan->step[WA_STEP_GIVEN];
    set_rows(problem, device, &rows, true, has_maps,
             &plan->step[WA_STEP_STATISTICS]);
    plan->schedule.bound_blocks = wa_ceil_div(problem->queries, BLOCK_ROWS);
    if (GIVEN_ITEMS > device->max_work_group ||
        GIVEN_LOCAL_BYTES > device->local_bytes)
        return; /* then o and lse are found again */
    wa_begin_step(problem, device, "sliding_given", BLOCK_ROWS,
                  rows.block_keys, GIVEN_ITEMS, GIVEN_LOCAL_BYTES, given);
    wa_step_switch(given, WA_SWITCH(TENSOR_MAPS), has_maps);
    if (device->sub_group)
        wa_step_switch(given, WA_SWITCH(SUB_GROUP), device->sub_group);
}

static const char *refusal(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_gradient_shape *shape)
{
    const wa_matrix_shape rows = shape->rows;
    const wa_matrix_shape keys = wa_matrix_transpose_shape(&shape->keys);
    if (!shape->rows.block_keys)
        return "sliding gradients are made by two kernels";
    if (shape->keeps_dbias)
        return "there are no sums of a bias";
    WA_REFUSE(rows_refusal(problem, device, &rows));
    return keys_refusal(problem, device, &keys);
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_matrix_gradient_shape *shape = &demanded->matrix_backward;
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape rows = shape->rows;
    const wa_matrix_shape keys = wa_matrix_transpose_shape(&shape->keys);
    wa_schedule *s = &plan->schedule;
    WA_REFUSE(wa_matrix_impossible(problem, device, WA_BACKWARD));
    WA_REFUSE(refusal(problem, device, shape));
    wa_take_sliding_statistics(problem, device, demanded, false, plan);
    set_rows(problem, device, &rows, false, false, &plan->step[WA_STEP_ROWS]);
    wa_step *last = &plan->step[WA_STEP_KEYS];
    s->key_parts = splits_dk_dv(problem, device, &keys) ? 2 : 1;
    wa_begin_step(problem, device, unit->sliding_keys_kernel,
                  shape->keys.block_rows, shape->keys.block_keys,
                  keys.waves_per_window * unit->wave,
                  keys_bytes(problem, device, &keys), last);
    wa_step_switch(last, WA_SWITCH(SPLIT_DK_DV), s->key_parts - 1);
    wa_step_matrix_shape(last, &keys, device);
    plan->fused = false;
    s->row_blocks = wa_ceil_div(problem->queries, rows.block_rows);
    s->key_blocks = wa_ceil_div(problem->keys, shape->keys.block_keys);
    s->windows_per_group = 1;
    s->busy_groups = UINT32_MAX; /* each window has its own */
    wa_set_matrix_access(problem, plan);
    return NULL;
}

/* ---- All shapes ---- */

static double registers_of(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s, double gradients)
{
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, s);
    const uint32_t tiles = s->subtile_keys / device->matrix_unit->tile;
    return wa_sliding_turns(device, s) * t.acc_per_lane *
           (gradients * t.dim_tiles + SCORE_REGISTERS * tiles);
}

/* As long as that many keys, or rows, does a stage's wait take. */
#define KEYS_OF_STAGE 2.0

static double rows_cost(const wa_search *find, const wa_matrix_shape *s)
{
    return wa_sliding_cost(find->problem, find->device, s,
                           registers_of(find->problem, find->device, s, 1.0),
                           rows_bytes(find->problem, find->device, s, false),
                           KEYS_OF_STAGE);
}

static double keys_cost(const wa_search *find, const wa_matrix_shape *s)
{
    const double gradients =
        splits_dk_dv(find->problem, find->device, s) ? 1.0 : 2.0;
    return wa_sliding_cost(
               find->problem, find->device, s,
               registers_of(find->problem, find->device, s, gradients),
               keys_bytes(find->problem, find->device, s), KEYS_OF_STAGE) *
           (gradients < 2.0 ? 1.75 : 1.0); /* products that both make */
}

static void try_rows(const wa_search *find, const wa_matrix_shape *s)
{
    wa_tuned_shape shape = find->shape;
    if (rows_refusal(find->problem, find->device, s))
        return;
    shape.matrix_backward.rows = *s;
    find->visit(find->data, &shape, rows_cost(find, s));
}

static void try_keys(const wa_search *find, const wa_matrix_shape *s)
{
    wa_tuned_shape shape = find->shape;
    if (keys_refusal(find->problem, find->device, s))
        return;
    shape.matrix_backward.keys = wa_matrix_transpose_shape(s);
    find->visit(find->data, &shape, keys_cost(find, s));
}

void wa_visit_sliding_rows(wa_search *find)
{
    wa_visit_sliding_tiles(find, try_rows);
}

static void visit_keys(wa_search *find)
{
    wa_visit_sliding_tiles(find, try_keys);
}

const wa_family wa_matrix_sliding_pair = {
    .engine = WA_ENGINE_MATRIX,
    .pass = WA_BACKWARD,
    .slides = true,
    .speed = WA_SLIDING_SPEED,
    .tuned = WA_MATRIX_BACKWARD,
    .refusal = wa_matrix_unwanted,
    .visit = {wa_visit_sliding_rows, visit_keys},
    .say_none = wa_matrix_say_none,
    .explain = wa_explain_matrix_backward,
    .take = take};
