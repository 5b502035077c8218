/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/matrix/sliding_rows_matrix.cl, which runs for statistics and
 * for dQ, and cl/matrix/sliding_keys_matrix.cl. The cheapest of each make the
 * cheapest pair. Of o and lse cl/matrix/sliding_given.cl makes statistics. */
#include "plan/defines.h"
#include "plan/matrix_sliding.h"

#include "../cl/common/args.h"
#include "../cl/matrix/given_extents.h"

/* Local memory for what a row sees, and for bounds. */
#define SPAN_BYTES 8u
#define BOUND_BYTES 16u
/* Registers of a score: itself, its dP, and half of each as operands. */
#define SCORE_REGISTERS 3.0

/* To the kernel of keys problem and shape are the other way round. */
static wa_problem transpose(const wa_problem *problem)
{
    wa_problem transposed = *problem;
    transposed.queries = problem->keys;
    transposed.keys = problem->queries;
    return transposed;
}

static wa_matrix_shape transpose_shape(const wa_matrix_shape *s)
{
    wa_matrix_shape transposed = *s;
    transposed.block_rows = s->block_keys;
    transposed.block_keys = s->block_rows;
    return transposed;
}

static wa_matrix_shape rows_of(const wa_matrix_gradient_shape *s)
{
    const wa_matrix_shape rows = {.block_rows = s->block_rows,
                                  .block_keys = s->block_keys,
                                  .waves_per_window = s->waves_per_window,
                                  .windows_per_group = s->windows_per_group,
                                  .stages = s->stages,
                                  .subtile_keys = s->subtile_keys,
                                  .bias_cache = s->bias_cache};
    return rows;
}

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
    const wa_problem transposed = transpose(problem);
    return local_bytes(&transposed, device, s,
                       (uint64_t)s->stages * s->block_keys * ROW_NUMBERS * 4 +
                           BOUND_BYTES);
}

/* ---- What is refused; registers apart ---- */

static const char *side_refusal(const wa_problem *problem,
                                const wa_device *device,
                                const wa_matrix_shape *s, uint64_t bytes)
{
    const char *why = wa_sliding_tiles_refusal(problem, device, s);
    if (why)
        return why;
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

const char *wa_sliding_pair_refusal(const wa_problem *problem,
                                    const wa_device *device,
                                    const wa_matrix_gradient_shape *shape)
{
    const wa_matrix_shape rows = rows_of(shape);
    const wa_matrix_shape keys = transpose_shape(&shape->keys);
    if (!shape->block_keys)
        return "sliding gradients are made by two kernels";
    if (shape->keeps_dbias)
        return "there are no sums of a bias";
    const char *why = rows_refusal(problem, device, &rows);
    return why ? why : keys_refusal(problem, device, &keys);
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

/* A step, but for its options. */
static void set_kernel(const wa_device *device, const wa_matrix_shape *s,
                       const char *name, uint64_t bytes, wa_step *step)
{
    step->kernel = name;
    step->work_group = s->waves_per_window * device->matrix_unit->wave;
    step->local_bytes = (uint32_t)bytes;
}

/* The switches of the problem; those of the kernel and of the shape follow. */
static void start_options(const wa_problem *problem, const wa_device *device,
                          wa_step *step)
{
    step->defines[0] = 0;
    wa_append_problem(problem, device, step->block_rows, step->block_keys,
                      step->defines, sizeof step->defines);
}

/* The kernel of rows, for statistics, perhaps with tensor maps, or for dQ. */
static void set_rows(const wa_problem *problem, const wa_device *device,
                     const wa_matrix_shape *rows, bool statistics,
                     bool has_maps, wa_step *step)
{
    char *text = step->defines;
    const size_t size = sizeof step->defines;
    set_kernel(device, rows, device->matrix_unit->sliding_rows_kernel,
               rows_bytes(problem, device, rows, statistics), step);
    step->block_rows = rows->block_rows;
    step->block_keys = rows->block_keys;
    start_options(problem, device, step);
    wa_append_switch(text, size, WA_SWITCH(STATISTICS), statistics);
    wa_append_switch(text, size, WA_SWITCH(TENSOR_MAPS), has_maps);
    wa_append_matrix_shape(rows, device, text, size);
}

/* The steps that leave statistics of rows; of the same blocks of rows. */
static void set_statistics(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *rows, wa_plan *plan)
{
    const uint32_t BLOCK_ROWS = rows->block_rows;
    wa_step *given = &plan->step[WA_STEP_GIVEN];
    char *text = given->defines;
    const size_t size = sizeof given->defines;
    set_rows(problem, device, rows, true, plan->has_maps,
             &plan->step[WA_STEP_STATISTICS]);
    plan->schedule.bound_blocks = wa_ceil_div(problem->queries, BLOCK_ROWS);
    if (GIVEN_ITEMS > device->max_work_group ||
        GIVEN_LOCAL_BYTES > device->local_bytes)
        return; /* then o and lse are found again */
    given->kernel = "sliding_given";
    given->block_rows = BLOCK_ROWS;
    given->block_keys = rows->block_keys;
    given->work_group = GIVEN_ITEMS;
    given->local_bytes = GIVEN_LOCAL_BYTES;
    start_options(problem, device, given);
    wa_append_switch(text, size, WA_SWITCH(TENSOR_MAPS), plan->has_maps);
    if (device->sub_group)
        wa_append_switch(text, size, WA_SWITCH(SUB_GROUP), device->sub_group);
}

void wa_take_sliding_pair(const wa_problem *problem, const wa_device *device,
                          const wa_matrix_gradient_shape *shape, wa_plan *plan)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape rows = rows_of(shape);
    const wa_matrix_shape keys = transpose_shape(&shape->keys);
    wa_schedule *s = &plan->schedule;
    set_statistics(problem, device, &rows, plan);
    set_rows(problem, device, &rows, false, false, &plan->step[WA_STEP_ROWS]);
    wa_step *last = &plan->step[WA_STEP_KEYS];
    s->key_parts = splits_dk_dv(problem, device, &keys) ? 2 : 1;
    set_kernel(device, &keys, unit->sliding_keys_kernel,
               keys_bytes(problem, device, &keys), last);
    last->block_rows = shape->keys.block_rows;
    last->block_keys = shape->keys.block_keys;
    start_options(problem, device, last);
    wa_append_switch(last->defines, sizeof last->defines,
                     WA_SWITCH(SPLIT_DK_DV), s->key_parts - 1);
    wa_append_matrix_shape(&keys, device, last->defines, sizeof last->defines);
    plan->fused = false;
    s->row_blocks = wa_ceil_div(problem->queries, rows.block_rows);
    s->key_blocks = wa_ceil_div(problem->keys, shape->keys.block_keys);
    s->windows_per_group = 1;
    s->busy_groups = UINT32_MAX; /* each window has its own */
}

/* ---- The search ---- */

static double registers_of(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s, double gradients)
{
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, s);
    const uint32_t tiles = s->subtile_keys / device->matrix_unit->tile;
    return wa_sliding_turns(device, s) * t.acc_per_lane *
           (gradients * t.dim_tiles + SCORE_REGISTERS * tiles);
}

typedef struct search {
    const wa_problem *problem;
    const wa_device *device;
    double rows_cost, keys_cost; /* of the best; 0: none yet */
    wa_matrix_shape rows, keys;  /* keys: transposed */
    wa_matrix_gradient_visitor *visit;
    void *data;
} search;

/* As long as that many keys, or rows, does a stage's wait take. */
#define KEYS_OF_STAGE 2.0

static double rows_cost(const search *find, const wa_matrix_shape *s)
{
    return wa_sliding_cost(find->problem, find->device, s,
                           registers_of(find->problem, find->device, s, 1.0),
                           rows_bytes(find->problem, find->device, s, false),
                           KEYS_OF_STAGE);
}

static double keys_cost(const search *find, const wa_matrix_shape *s)
{
    const double gradients =
        splits_dk_dv(find->problem, find->device, s) ? 1.0 : 2.0;
    return wa_sliding_cost(
               find->problem, find->device, s,
               registers_of(find->problem, find->device, s, gradients),
               keys_bytes(find->problem, find->device, s), KEYS_OF_STAGE) *
           (gradients < 2.0 ? 1.75 : 1.0); /* products that both make */
}

static void keep_best(void *data, const wa_matrix_shape *s)
{
    search *find = data;
    if (!rows_refusal(find->problem, find->device, s)) {
        const double cost = rows_cost(find, s);
        if (find->rows_cost == 0 || cost < find->rows_cost) {
            find->rows_cost = cost;
            find->rows = *s;
        }
    }
    if (!keys_refusal(find->problem, find->device, s)) {
        const double cost = keys_cost(find, s);
        if (find->keys_cost == 0 || cost < find->keys_cost) {
            find->keys_cost = cost;
            find->keys = *s;
        }
    }
}

static void visit_pair(const search *find, const wa_matrix_shape *rows,
                       const wa_matrix_shape *keys, double cost)
{
    const wa_matrix_gradient_shape pair = {.block_rows = rows->block_rows,
                                           .waves_per_window =
                                               rows->waves_per_window,
                                           .windows_per_group = 1,
                                           .stages = rows->stages,
                                           .subtile_keys = rows->subtile_keys,
                                           .block_keys = rows->block_keys,
                                           .keys = transpose_shape(keys)};
    find->visit(find->data, &pair, cost);
}

/* Each shape with the best of the other kernel. */
static void visit_pairs(void *data, const wa_matrix_shape *s)
{
    const search *find = data;
    if (!rows_refusal(find->problem, find->device, s))
        visit_pair(find, s, &find->keys, rows_cost(find, s) + find->keys_cost);
    if (!keys_refusal(find->problem, find->device, s))
        visit_pair(find, &find->rows, s, find->rows_cost + keys_cost(find, s));
}

bool wa_visit_sliding_pairs(const wa_problem *problem, const wa_device *device,
                            wa_matrix_gradient_visitor *visit, void *data,
                            uint64_t *visited)
{
    search find = {
        .problem = problem, .device = device, .visit = visit, .data = data};
    *visited += wa_visit_sliding_tiles(device, keep_best, &find);
    if (find.rows_cost == 0 || find.keys_cost == 0)
        return false;
    *visited += wa_visit_sliding_tiles(device, visit_pairs, &find);
    return true;
}

/* ---- Statistics alone ---- */

static void keep_best_rows(void *data, const wa_matrix_shape *s)
{
    search *find = data;
    if (rows_refusal(find->problem, find->device, s))
        return;
    const double cost = rows_cost(find, s);
    if (find->rows_cost == 0 || cost < find->rows_cost) {
        find->rows_cost = cost;
        find->rows = *s;
    }
}

bool wa_take_sliding_statistics(const wa_problem *problem,
                                const wa_device *device, wa_plan *plan)
{
    search find = {.problem = problem, .device = device};
    plan->visited += wa_visit_sliding_tiles(device, keep_best_rows, &find);
    if (find.rows_cost == 0)
        return false;
    set_statistics(problem, device, &find.rows, plan);
    return true;
}
