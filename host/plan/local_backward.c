/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/local/backward_*_local.cl: every legal one is scored
 * (local_gradient.h), and the cheapest wins. Also chosen so: whether one
 * kernel makes everything of a window, or several share it. Where that was
 * measured and matters, tuning.c has the better shape. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "plan/defines.h"
#include "plan/local_gradient.h"
#include "plan/planner.h"
#include "plan/schedule.h"
#include "plan/tuning.h"

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

/* ---- The search ---- */

typedef struct search {
    const wa_problem *problem;
    const wa_device *device;
    wa_gradient_part which;
    double cost; /* of the best; 0: none yet */
    wa_gradient_shape best;
    wa_gradient_visitor *visit; /* NULL: nobody else wants to see them */
    void *data;
    uint64_t visited;
} search;

static const struct {
    uint32_t rows, cols;
} score_tiles[] = {{8, 8}, {7, 7}, {8, 4}, {4, 8}, {6, 6}, {7, 4},
                   {4, 7}, {4, 4}, {4, 2}, {2, 4}, {2, 2}, {1, 4}};
#define SCORE_TILES (sizeof score_tiles / sizeof *score_tiles)

static void try_shape(search *find, const wa_gradient_shape *s)
{
    const wa_gradient_tiling t = wa_gradient_tiling_of(find->problem, s);
    find->visited++;
    if (wa_gradient_refusal(find->problem, find->device, find->which, s, &t) ||
        wa_gradient_registers(find->problem, find->device, find->which, s,
                              &t) > find->device->registers)
        return;
    const double cost =
        wa_gradient_cost(find->problem, find->device, find->which, s, &t);
    if (find->cost == 0 || cost < find->cost) {
        find->cost = cost;
        find->best = *s;
    }
    if (find->visit)
        find->visit(find->data, s, cost);
}

/* All teams that cover the logits. */
static void visit_teams(search *find, wa_gradient_shape s)
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
            try_shape(find, &s);
            s.keeps_tiles = true;
            if (may_keep)
                try_shape(find, &s);
        }
    }
}

/* Does the local memory suffice for rows, keys and weights? Where a work-group
 * needs all keys of a large window, it never does. */
static bool may_fit(const search *find, const wa_gradient_shape *s)
{
    const uint64_t pitch = (s->stage_dims / 4) | 1;
    const uint64_t rows = s->block_rows;
    const uint64_t quads = (rows + s->block_keys) * pitch +
                           rows * (wa_ceil_div(s->block_keys, 4) | 1);
    return quads * 16 + WA_GRADIENT_SLACK <= find->device->local_bytes;
}

static void visit_blocks(search *find, uint32_t block_rows,
                         uint32_t block_keys)
{
    const uint32_t quads = wa_ceil_div(find->problem->head_dim, 4);
    wa_gradient_shape s;
    memset(&s, 0, sizeof s);
    s.block_rows = block_rows;
    s.block_keys = block_keys;
    find->visited++;
    for (size_t i = 0; i < SCORE_TILES && may_fit(find, &s); i++) {
        wa_gradient_shape tiled = s;
        tiled.score_rows = score_tiles[i].rows;
        tiled.score_cols = score_tiles[i].cols;
        for (uint32_t parts = 1; parts <= WA_GRADIENT_MOST_STAGES &&
                                 (parts == 1 || quads / parts >= 2);
             parts *= 2) {
            tiled.stage_dims = wa_ceil_div(quads, parts) * 4;
            find->visited++;
            if (may_fit(find, &tiled))
                visit_teams(find, tiled);
        }
    }
}

/* Blocks of rows even out; those of keys are what one softmax step takes. */
static void visit_all(search *find)
{
    const wa_problem *problem = find->problem;
    const bool sliding = problem->variant == WINATTN_SLIDING;
    const uint32_t all = sliding ? MOST_ROWS : problem->queries;
    for (uint32_t rows = wa_even_size(all, MOST_ROWS); rows > 0;
         rows = rows > LEAST_ROWS ? wa_even_size(all, rows - 1) : 0) {
        uint32_t last = 0;
        if (find->which == WA_GRADIENTS_FUSED)
            visit_blocks(find, rows, problem->keys);
        for (uint32_t most = MOST_KEYS;
             find->which != WA_GRADIENTS_FUSED && most >= 16; most /= 2) {
            const uint32_t keys = sliding ? most : MIN(most, problem->keys);
            if (keys != last) /* few keys make the same block each time */
                visit_blocks(find, rows, keys);
            last = keys;
        }
    }
}

static bool choose(search *find, wa_gradient_part which)
{
    find->which = which;
    find->cost = 0;
    visit_all(find);
    return find->cost > 0;
}

uint64_t wa_visit_gradient_shapes(const wa_problem *problem,
                                  const wa_device *device,
                                  wa_gradient_visitor *visit, void *data)
{
    search find = {
        .problem = problem, .device = device, .visit = visit, .data = data};
    if (problem->variant != WINATTN_SLIDING)
        choose(&find, WA_GRADIENTS_FUSED);
    return find.visited;
}

/* Takes a shape; NULL, or why it cannot be. */
static const char *demand(search *find, wa_gradient_part which,
                          const wa_gradient_shape *shape)
{
    if (wa_shape_wrong(&wa_gradient_numbers, shape))
        return "a number of the shape is out of its bounds";
    if (shape->stage_dims % 4 != 0)
        return "a stage is no whole number of quads";
    const wa_gradient_tiling t = wa_gradient_tiling_of(find->problem, shape);
    find->which = which;
    find->best = *shape;
    return wa_gradient_refusal(find->problem, find->device, which, shape, &t);
}

/* ---- The plan ---- */

/* NVIDIA's compiler takes more registers than it needs for fewer stalls, and
 * a compute unit then holds fewer work-groups than the model has found room
 * for: on an H200, windows of 49 tokens took 765 us so, and 501 us with 128
 * registers. With fewer than that the model's guess is not trusted. */
#define LEAST_LIMIT 128u
#define MOST_REGISTERS 255u
static void append_register_limit(const search *find, wa_gradient_part which,
                                  char *text, size_t size)
{
    const wa_device *device = find->device;
    const wa_gradient_shape *s = &find->best;
    if (!device->limits_registers)
        return;
    const wa_gradient_tiling t = wa_gradient_tiling_of(find->problem, s);
    const uint32_t groups =
        (uint32_t)wa_gradient_resident(find->problem, device, which, s, &t);
    const uint32_t limit = device->register_words / (groups * s->team) / 8 * 8;
    if (limit >= MOST_REGISTERS)
        return;
    wa_append_switch(text, size, WA_SWITCH(LIMITS_REGISTERS), 1);
    wa_append(text, size, "-cl-nv-maxrregcount=%u ", MAX(limit, LEAST_LIMIT));
}

static void set_kernel(const search *find, wa_gradient_part which,
                       const char *name, wa_step *kernel)
{
    const wa_problem *problem = find->problem;
    const wa_gradient_shape *s = &find->best;
    const wa_gradient_tiling t = wa_gradient_tiling_of(problem, s);
    kernel->kernel = name;
    kernel->block_rows = s->block_rows;
    kernel->block_keys = s->block_keys;
    kernel->work_group = s->team;
    kernel->local_bytes = (uint32_t)wa_gradient_local_bytes(problem, which, s);
    char *text = kernel->defines;
    const size_t size = sizeof kernel->defines;
    wa_append_problem(problem, find->device, s->block_rows, s->block_keys,
                      text, size);
    wa_append_shape(&wa_gradient_numbers, s, text, size);
    if (which == WA_GRADIENTS_STATISTICS || which == WA_GRADIENTS_ROWS) {
        wa_append_switch(text, size, WA_SWITCH(STATISTICS),
                         which == WA_GRADIENTS_STATISTICS);
    } else {
        wa_append_switch(text, size, WA_SWITCH(FUSED),
                         which == WA_GRADIENTS_FUSED);
        wa_append_switch(text, size, WA_SWITCH(SINGLE_Q_BLOCK),
                         wa_gradient_is_single_q_block(problem, which, s));
        wa_append_switch(
            text, size, WA_SWITCH(KEEPS_DBIAS),
            wa_gradient_keeps_dbias(problem, find->device, which, s, &t));
        wa_append_switch(text, size, WA_SWITCH(KEEPS_TABLE),
                         wa_gradient_keeps_table(problem, which, s));
    }
    wa_append_local_options(problem, find->device, text, size);
    append_register_limit(find, which, text, size);
    /* On grids 128 registers are too few for Intel's compiler, which then
     * keeps sums in memory. From Xe-HPG on, which have matrix units, a
     * hardware thread may have twice as many. */
    if (problem->grid.used && find->device->vendor == WA_VENDOR_INTEL &&
        find->device->has_matrix_extension)
        wa_append(text, size, "-cl-intel-256-GRF-per-thread ");
}

static void require_access(const wa_problem *problem,
                           const wa_gradient_shape *s, wa_plan *plan)
{
    const uint32_t elements = wa_local_access_elements(problem, s->stage_dims);
    const uint32_t bytes = elements * (problem->dtype != WINATTN_FP32 ? 2 : 4);
    plan->access_elements = MAX(plan->access_elements, elements);
    plan->access_bytes = MAX(plan->access_bytes, bytes);
}

static uint32_t busy_groups(const search *find)
{
    const wa_gradient_tiling t =
        wa_gradient_tiling_of(find->problem, &find->best);
    return find->device->compute_units *
           (uint32_t)wa_gradient_resident(find->problem, find->device,
                                          find->which, &find->best, &t);
}

/* Fills in the plan; rows is NULL where one kernel makes everything. */
static void set_plan(const search *rows, const search *keys, wa_plan *plan)
{
    const wa_problem *problem = keys->problem;
    plan->fused = !rows;
    set_kernel(keys, keys->which, "backward_keys_local",
               &plan->step[WA_STEP_KEYS]);
    require_access(problem, &keys->best, plan);
    plan->schedule.key_blocks =
        wa_ceil_div(problem->keys, keys->best.block_keys);
    plan->schedule.row_blocks = 1;
    plan->schedule.busy_groups = WAVES * busy_groups(keys);
    if (rows) {
        set_kernel(rows, WA_GRADIENTS_STATISTICS, "backward_rows_local",
                   &plan->step[WA_STEP_STATISTICS]);
        set_kernel(rows, WA_GRADIENTS_ROWS, "backward_rows_local",
                   &plan->step[WA_STEP_ROWS]);
        require_access(problem, &rows->best, plan);
        plan->schedule.row_blocks =
            wa_ceil_div(problem->queries, rows->best.block_rows);
    }
}

bool wa_plan_gradient_shapes(const wa_problem *problem,
                             const wa_device *device,
                             const wa_gradient_shape *rows,
                             const wa_gradient_shape *keys, wa_plan *plan)
{
    search first = {.problem = problem, .device = device};
    search last = first;
    const char *why = NULL;
    if (rows)
        why = demand(&first, WA_GRADIENTS_ROWS, rows);
    else if (problem->variant == WINATTN_SLIDING ||
             keys->block_keys < problem->keys)
        why = "one kernel needs all keys of a window";
    if (!why)
        why =
            demand(&last, rows ? WA_GRADIENTS_KEYS : WA_GRADIENTS_FUSED, keys);
    if (why) {
        snprintf(plan->refusals[WINATTN_TIER_LOCAL], WA_REASON_SIZE, "%s",
                 why);
        return false;
    }
    plan->tier = WINATTN_TIER_LOCAL;
    plan->refusals[WINATTN_TIER_LOCAL][0] = 0;
    set_plan(rows ? &first : NULL, &last, plan);
    return true;
}

static const char fused_fits[] = "a window's keys fit a work-group";

static bool take_tuned(const wa_problem *problem, const wa_device *device,
                       wa_plan *plan)
{
    wa_tuned tuned;
    for (size_t i = 0;
         wa_find_tuned(WA_LOCAL_BACKWARD, problem, device, i, &tuned); i++) {
        const wa_tuned_gradient_shape *shape = &tuned.shape.local_backward;
        plan->tuned = wa_plan_gradient_shapes(problem, device, NULL,
                                              &shape->fused, plan);
        wa_note_untuned(plan->untuned, WINATTN_TIER_LOCAL,
                        plan->refusals[WINATTN_TIER_LOCAL]);
        if (!plan->tuned)
            continue;
        /* padding with given values takes registers: of four work-groups that
         * a compute unit of an H200 holds otherwise, three are left */
        const uint32_t resident =
            wa_problem_padding(problem) == 1 && shape->resident > 1
                ? shape->resident - 1
                : shape->resident;
        if (resident)
            plan->schedule.busy_groups = device->compute_units * resident;
        snprintf(plan->reason, sizeof plan->reason, "%s; %s", fused_fits,
                 tuned.reason);
        return true;
    }
    return false;
}

bool wa_plan_local_backward(const wa_problem *problem, const wa_device *device,
                            wa_plan *plan)
{
    search fused = {.problem = problem, .device = device};
    search rows = fused, keys = fused;
    if (take_tuned(problem, device, plan))
        return true;
    bool fits = problem->variant != WINATTN_SLIDING &&
                choose(&fused, WA_GRADIENTS_FUSED);
    const bool shared =
        choose(&rows, WA_GRADIENTS_ROWS) && choose(&keys, WA_GRADIENTS_KEYS);
    plan->visited += fused.visited + rows.visited + keys.visited;
    if (fits && shared)
        fits = fused.cost <= rows.cost + keys.cost;
    if (!fits && !shared) {
        snprintf(plan->refusals[WINATTN_TIER_LOCAL], WA_REASON_SIZE,
                 "no shape fits %u bytes of local memory, %u registers and "
                 "work-groups of %u",
                 device->local_bytes, device->registers,
                 device->max_work_group);
        return false;
    }
    set_plan(fits ? NULL : &rows, fits ? &fused : &keys, plan);
    plan->refusals[WINATTN_TIER_LOCAL][0] = 0;
    snprintf(plan->reason, sizeof plan->reason,
             "%s; modelled best of the shapes within %u bytes, %u "
             "registers and work-groups of %u",
             fits ? fused_fits : "rows and keys in kernels of their own",
             device->local_bytes, device->registers, device->max_work_group);
    return true;
}
