/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/local/backward_*_local.cl: every legal one is scored
 * (local_gradient.h), and the cheapest wins. Also chosen so: whether one
 * kernel makes everything of a window, or several share it. Where that was
 * measured and matters, tuning.c has the better shape. */
#include <stdio.h>

#include "base/text.h"
#include "family/local_gradient.h"
#include "plan/defines.h"
#include "plan/family.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Of a block, where a window has more. */
#define MOST_ROWS 128u
#define MOST_KEYS 128u
#define MOST_OUT_ROWS 16u
/* Blocks of so many rows or fewer are not made smaller still. */
#define LEAST_ROWS 8u
/* Work-groups that follow each other on a compute unit. How many it holds at
 * once is a guess; were they all to start together but for a few, those would
 * double the time. */
#define WAVES 3u

/* ---- All shapes ---- */

static const struct {
    uint32_t rows, cols;
} score_tiles[] = {{8, 8}, {7, 7}, {8, 4}, {4, 8}, {6, 6}, {7, 4},
                   {4, 7}, {4, 4}, {4, 2}, {2, 4}, {2, 2}, {1, 4}};
#define SCORE_TILES (sizeof score_tiles / sizeof *score_tiles)

static void try_shape(wa_search *find, wa_gradient_part which,
                      const wa_gradient_shape *s)
{
    const wa_gradient_tiling t = wa_gradient_tiling_of(find->problem, s);
    wa_tuned_shape shape = find->shape;
    find->visited++;
    if (wa_gradient_refusal(find->problem, find->device, which, s, &t) ||
        wa_gradient_registers(find->problem, find->device, which, s, &t) >
            find->device->registers)
        return;
    if (which == WA_GRADIENTS_FUSED)
        shape.local_backward.fused = *s;
    else if (which == WA_GRADIENTS_ROWS)
        shape.local_pair.rows = *s;
    else
        shape.local_pair.keys = *s;
    find->visit(find->data, &shape,
                wa_gradient_cost(find->problem, find->device, which, s, &t));
}

/* All teams that cover the logits. */
static void visit_teams(wa_search *find, wa_gradient_part which,
                        wa_gradient_shape s)
{
    const uint32_t step = MAX(find->device->wave, 32);
    const uint32_t most = MIN(find->device->max_work_group, 256);
    const uint32_t across = s.stage_dims / 4;
    const uint64_t tiles = (uint64_t)wa_ceil_div(s.block_rows, s.score_rows) *
                           wa_ceil_div(s.block_keys, s.score_cols);
    const bool may_keep = s.stage_dims >= find->problem->head_dim &&
                          find->problem->variant != WINATTN_COSINE;
    for (s.team = step; s.team <= most && tiles <= most; s.team += step) {
        find->visited++;
        if (s.team < tiles || s.team < across)
            continue;
        s.out_rows = wa_ceil_div(s.block_rows, s.team / across);
        if (s.out_rows > MOST_OUT_ROWS)
            continue;
        for (s.key_quads = 1; s.key_quads <= 2; s.key_quads++) {
            s.keeps_tiles = false;
            try_shape(find, which, &s);
            s.keeps_tiles = true;
            if (may_keep)
                try_shape(find, which, &s);
        }
    }
}

static void visit_blocks(wa_search *find, wa_gradient_part which,
                         uint32_t block_rows, uint32_t block_keys)
{
    const uint32_t quads = wa_ceil_div(find->problem->head_dim, 4);
    find->visited++;
    for (size_t i = 0;
         i < SCORE_TILES &&
         wa_local_may_fit(find->device, block_rows, block_keys, block_keys, 0);
         i++) {
        wa_gradient_shape tiled = {.block_rows = block_rows,
                                   .block_keys = block_keys,
                                   .score_rows = score_tiles[i].rows,
                                   .score_cols = score_tiles[i].cols};
        for (uint32_t parts = 1; parts <= WA_GRADIENT_MOST_STAGES &&
                                 (parts == 1 || quads / parts >= 2);
             parts *= 2) {
            tiled.stage_dims = wa_ceil_div(quads, parts) * 4;
            find->visited++;
            if (wa_local_may_fit(find->device, block_rows, block_keys,
                                 block_keys, tiled.stage_dims))
                visit_teams(find, which, tiled);
        }
    }
}

/* Blocks of rows even out; those of keys are what one softmax step takes. */
static void visit_all(wa_search *find, wa_gradient_part which)
{
    const wa_problem *problem = find->problem;
    const bool sliding = problem->variant == WINATTN_SLIDING;
    const uint32_t all = sliding ? MOST_ROWS : problem->queries;
    for (uint32_t rows = wa_even_size(all, MOST_ROWS); rows > 0;
         rows = rows > LEAST_ROWS ? wa_even_size(all, rows - 1) : 0) {
        if (which == WA_GRADIENTS_FUSED)
            visit_blocks(find, which, rows, problem->keys);
        for (uint32_t keys = MOST_KEYS;
             which != WA_GRADIENTS_FUSED && keys >= 16; keys /= 2)
            if (sliding || keys / 2 < problem->keys || keys == 16)
                visit_blocks(find, which, rows,
                             sliding ? keys : MIN(keys, problem->keys));
    }
}

static void visit_whole(wa_search *find)
{
    if (find->problem->variant != WINATTN_SLIDING)
        visit_all(find, WA_GRADIENTS_FUSED);
}

static void visit_shapes_of_rows(wa_search *find)
{
    visit_all(find, WA_GRADIENTS_ROWS);
}

static void visit_shapes_of_keys(wa_search *find)
{
    visit_all(find, WA_GRADIENTS_KEYS);
}

/* ---- The plan ---- */

/* NVIDIA's compiler takes more registers than it needs for fewer stalls, and
 * a compute unit then holds fewer work-groups than the model has found room
 * for: on an H200, windows of 49 tokens took 765 us so, and 501 us with 128
 * registers. With fewer than that the model's guess is not trusted. */
#define LEAST_LIMIT 128u
static void append_register_limit(const wa_problem *problem,
                                  const wa_device *device,
                                  wa_gradient_part which,
                                  const wa_gradient_shape *s, wa_step *kernel)
{
    if (!device->limits_registers)
        return;
    const wa_gradient_tiling t = wa_gradient_tiling_of(problem, s);
    const uint32_t groups =
        (uint32_t)wa_gradient_resident(problem, device, which, s, &t);
    const uint32_t limit = device->register_words / (groups * s->team) / 8 * 8;
    if (limit >= 255) /* as many as there are */
        return;
    wa_step_switch(kernel, WA_SWITCH(LIMITS_REGISTERS), 1);
    wa_append(kernel->defines, sizeof kernel->defines,
              "-cl-nv-maxrregcount=%u ", MAX(limit, LEAST_LIMIT));
}

static void set_kernel(const wa_problem *problem, const wa_device *device,
                       wa_gradient_part which, const wa_gradient_shape *s,
                       const char *name, wa_step *kernel)
{
    const wa_gradient_tiling t = wa_gradient_tiling_of(problem, s);
    wa_begin_step(problem, device, name, s->block_rows, s->block_keys, s->team,
                  wa_gradient_local_bytes(problem, which, s), kernel);
    wa_step_shape(kernel, &wa_gradient_numbers, s);
    if (which == WA_GRADIENTS_STATISTICS || which == WA_GRADIENTS_ROWS) {
        wa_step_switch(kernel, WA_SWITCH(STATISTICS),
                       which == WA_GRADIENTS_STATISTICS);
    } else {
        wa_step_switch(kernel, WA_SWITCH(FUSED), which == WA_GRADIENTS_FUSED);
        wa_step_switch(kernel, WA_SWITCH(SINGLE_Q_BLOCK),
                       wa_gradient_is_single_q_block(problem, which, s));
        wa_step_switch(kernel, WA_SWITCH(KEEPS_DBIAS),
                       wa_gradient_keeps_dbias(problem, device, which, s, &t));
        wa_step_switch(kernel, WA_SWITCH(KEEPS_TABLE),
                       wa_gradient_keeps_table(problem, which, s));
    }
    wa_step_local_options(kernel, problem, device);
    append_register_limit(problem, device, which, s, kernel);
    /* On grids 128 registers are too few for Intel's compiler, which then
     * keeps sums in memory. From Xe-HPG on, which have matrix units, a
     * hardware thread may have twice as many. */
    if (problem->grid.used && device->vendor == WA_VENDOR_INTEL &&
        device->has_matrix_extension)
        wa_append(kernel->defines, sizeof kernel->defines,
                  "-cl-intel-256-GRF-per-thread ");
}

static const char *refusal(const wa_problem *problem, const wa_device *device,
                           wa_gradient_part which, const wa_gradient_shape *s)
{
    if (!wa_shape_is_sound(&wa_gradient_numbers, s))
        return "a number of the shape is out of its bounds";
    if (s->stage_dims % 4 != 0)
        return "a stage is no whole number of quads";
    const wa_gradient_tiling t = wa_gradient_tiling_of(problem, s);
    return wa_gradient_refusal(problem, device, which, s, &t);
}

static void take_keys(const wa_problem *problem, const wa_device *device,
                      wa_gradient_part which, const wa_gradient_shape *s,
                      wa_plan *plan)
{
    const wa_gradient_tiling t = wa_gradient_tiling_of(problem, s);
    plan->fused = which == WA_GRADIENTS_FUSED;
    set_kernel(problem, device, which, s, "backward_keys_local",
               &plan->step[WA_STEP_KEYS]);
    wa_local_require_access(problem, s->stage_dims, plan);
    plan->schedule.key_blocks = wa_ceil_div(problem->keys, s->block_keys);
    plan->schedule.row_blocks = 1;
    plan->schedule.busy_groups =
        WAVES * device->compute_units *
        (uint32_t)wa_gradient_resident(problem, device, which, s, &t);
}

static const char *take_whole(const wa_problem *problem,
                              const wa_device *device,
                              const wa_tuned_shape *shape, wa_plan *plan)
{
    const wa_tuned_gradient_shape *s = &shape->local_backward;
    if (problem->variant == WINATTN_SLIDING ||
        s->fused.block_keys < problem->keys)
        return "one kernel needs all keys of a window";
    WA_REFUSE(refusal(problem, device, WA_GRADIENTS_FUSED, &s->fused));
    take_keys(problem, device, WA_GRADIENTS_FUSED, &s->fused, plan);
    /* padding with given values takes registers: of four work-groups that a
     * compute unit of an H200 holds otherwise, three are left */
    const uint32_t resident =
        wa_problem_padding(problem) == 1 && s->resident > 1 ? s->resident - 1
                                                            : s->resident;
    if (resident)
        plan->schedule.busy_groups = device->compute_units * resident;
    return NULL;
}

static const char *take_pair(const wa_problem *problem,
                             const wa_device *device,
                             const wa_tuned_shape *shape, wa_plan *plan)
{
    const wa_gradient_pair *s = &shape->local_pair;
    WA_REFUSE(refusal(problem, device, WA_GRADIENTS_ROWS, &s->rows));
    WA_REFUSE(refusal(problem, device, WA_GRADIENTS_KEYS, &s->keys));
    take_keys(problem, device, WA_GRADIENTS_KEYS, &s->keys, plan);
    set_kernel(problem, device, WA_GRADIENTS_STATISTICS, &s->rows,
               "backward_rows_local", &plan->step[WA_STEP_STATISTICS]);
    set_kernel(problem, device, WA_GRADIENTS_ROWS, &s->rows,
               "backward_rows_local", &plan->step[WA_STEP_ROWS]);
    wa_local_require_access(problem, s->rows.stage_dims, plan);
    plan->schedule.row_blocks =
        wa_ceil_div(problem->queries, s->rows.block_rows);
    return NULL;
}

/* ---- The families ---- */

static void explain(const wa_problem *problem, const wa_device *device,
                    const wa_tuned_shape *shape, char *reason)
{
    (void)problem, (void)shape;
    wa_append(reason, WA_REASON_SIZE,
              "modelled best of the shapes within %u bytes, %u registers and "
              "work-groups of %u",
              device->local_bytes, device->registers, device->max_work_group);
}

const wa_family wa_local_whole = {.engine = WA_ENGINE_LOCAL,
                                  .pass = WA_BACKWARD,
                                  .tuned = WA_LOCAL_BACKWARD,
                                  .what = "a window's keys fit a work-group; ",
                                  .visit = {visit_whole},
                                  .say_none = wa_local_say_none,
                                  .explain = explain,
                                  .take = take_whole};

const wa_family wa_local_pair = {
    .engine = WA_ENGINE_LOCAL,
    .pass = WA_BACKWARD,
    .tuned = WA_TUNED_KERNELS,
    .what = "rows and keys in kernels of their own; ",
    .visit = {visit_shapes_of_rows, visit_shapes_of_keys},
    .say_none = wa_local_say_none,
    .explain = explain,
    .take = take_pair};
