/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/local/backward_*_local.cl: every legal one is scored with a
 * small model of a compute unit, and the cheapest wins. Also chosen so:
 * whether one kernel makes everything of a window, or several share it. Where
 * that was measured and matters, tuning.c has the better shape.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "plan/defines.h"
#include "plan/planner.h"
#include "plan/schedule.h"
#include "plan/tuning.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Alignment between the kernels' local arrays. */
#define LOCAL_SLACK 128u
/* The model: cycles of a compute unit for what a wave of 32 work-items does.
 * Fitted to 28 shapes of five problems on an H200, whose times it meets within
 * a third, 23 of them within a fifth.
 * A quad to or from local memory, */
#define QUAD_CYCLES 2.3
/* a multiply-add, */
#define FMA_CYCLES 0.37
/* a tile's exponential and so on, for each logit, */
#define TILE_CYCLES 2.0
/* an addition to a sum in the workspace, */
#define DBIAS_CYCLES 90.0
/* and the time from the start of a staging to the end of its barrier, which
 * work-groups on the same unit share. */
#define STAGE_WAIT 1800.0
/* Sums of all stages of channels are unrolled. */
#define MOST_STAGES 4u
/* Of a block, where a window has more. */
#define MOST_ROWS 128u
#define MOST_KEYS 128u
#define MOST_OUT_ROWS 16u
/* Blocks of so many rows or fewer are not made smaller still. */
#define LEAST_ROWS 8u
/* Of a table of biases in local memory: windows of 16 x 16. */
#define MOST_KEPT_ENTRIES 961u

/* Work-groups that follow each other on a compute unit. How many it holds at
 * once is a guess; were they all to start together but for a few, those would
 * double the time. */
#define WAVES 3u

typedef enum part { WHOLE, STATISTICS, ROWS, KEYS } part;

/* ---- What a shape follows to ---- */

typedef struct tiling {
    uint32_t dim_stages;
    uint32_t row_tiles, col_tiles; /* of logits */
    uint32_t out_across, out_tiles, key_tiles;
    uint32_t q_rows, kv_rows, weight_rows;
    uint32_t key_quads; /* of a block */
} tiling;

static tiling tiling_of(const wa_problem *problem, const wa_gradient_shape *s)
{
    tiling t;
    t.dim_stages = wa_ceil_div(problem->head_dim, s->stage_dims);
    t.row_tiles = wa_ceil_div(s->block_rows, s->score_rows);
    t.col_tiles = wa_ceil_div(s->block_keys, s->score_cols);
    t.out_across = s->stage_dims / 4;
    t.out_tiles = wa_ceil_div(s->block_rows, s->out_rows);
    t.key_quads = wa_ceil_div(s->block_keys, 4);
    t.key_tiles = wa_ceil_div(t.key_quads, s->key_quads);
    t.q_rows = t.row_tiles * s->score_rows;
    t.kv_rows = MAX(t.col_tiles * s->score_cols, t.key_quads * 4);
    t.weight_rows = MAX(t.q_rows, t.out_tiles * s->out_rows);
    return t;
}

/* All rows of one head see all keys, so nothing is kept from visit to visit.
 */
static bool is_one_visit(const wa_problem *problem, part which,
                         const wa_gradient_shape *s)
{
    return which == WHOLE && problem->queries <= s->block_rows &&
           problem->heads == problem->kv_heads;
}

/* A work-group's one head has its table of biases in local memory. */
static bool keeps_table(const wa_problem *problem, part which,
                        const wa_gradient_shape *s)
{
    const wa_table *table = &problem->table;
    return table->used && !table->has_index &&
           table->entries <= MOST_KEPT_ENTRIES &&
           is_one_visit(problem, which, s);
}

/* As the kernels declare their arrays, in the same order. */
static uint64_t local_bytes(const wa_problem *problem, part which,
                            const wa_gradient_shape *s, const tiling *t)
{
    const uint64_t pitch = (s->stage_dims / 4) | 1;
    const uint64_t copies = s->keeps_tiles ? 2 : 1;
    const uint64_t quads = copies * (t->q_rows + t->kv_rows) * pitch +
                           (uint64_t)t->weight_rows * (t->key_quads | 1) +
                           s->key_quads;
    uint64_t floats = 3ull * t->q_rows;
    if (which != KEYS)
        floats += 2ull * t->col_tiles * t->q_rows;
    if (which == ROWS)
        floats += (uint64_t)wa_ceil_div(t->col_tiles, 2) * t->q_rows;
    if (which == STATISTICS || which == ROWS)
        floats += 1;
    if (problem->variant == WINATTN_COSINE) {
        floats += t->q_rows + t->kv_rows;
        floats += which == STATISTICS ? 0 : t->q_rows;
        floats += which == WHOLE || which == KEYS ? s->team : 0;
    }
    uint64_t tokens = 0;
    if (problem->grid.used)
        tokens = s->block_keys + (which == WHOLE ? 0 : s->block_rows);
    const uint64_t entries =
        keeps_table(problem, which, s)
            ? problem->table.entries + MAX(problem->queries, problem->keys)
            : 0;
    return quads * 16 + floats * 4 + tokens * 16 + entries * 4;
}

/* Registers of a work-item: what is live in the busiest of its products, and
 * addresses; without a sum of dBias. */
static uint32_t registers_of(const wa_problem *problem,
                             const wa_device *device, part which,
                             const wa_gradient_shape *s, const tiling *t)
{
    const uint32_t tile = s->score_rows * s->score_cols;
    const uint32_t logits = tile + 4 * s->score_rows + 4;
    const uint32_t keys = 4 * 4 * s->key_quads * t->dim_stages;
    const uint32_t rows = 4 * s->out_rows * t->dim_stages;
    const uint32_t loaded = 4 * (s->key_quads + 1);
    /* sums of the padding's gradients, which live through all windows */
    const bool sums_pads =
        (which == WHOLE || which == KEYS) && wa_problem_padding(problem) == 1;
    const uint32_t pads = sums_pads ? 8 * t->dim_stages : 0;
    uint32_t most;
    if (which == ROWS)
        most = logits + rows;
    else if (which == KEYS)
        most = logits + 2 * keys;
    else if (is_one_visit(problem, which, s))
        most = MAX(logits, MAX(tile + keys + loaded, keys + rows + 10));
    else
        most = 2 * keys + MAX(logits, rows + 10);
    /* compilers were seen to take a quarter more; where the budget is but a
     * guess, that is left to chance, and so are the padding's sums, with which
     * no shape for a part of the keys would fit it */
    return 16 + most + (device->registers > 64 ? pads + most / 4 : 0);
}

/* The sum of dBias over windows stays in registers where there are enough. */
static bool keeps_dbias(const wa_problem *problem, const wa_device *device,
                        part which, const wa_gradient_shape *s,
                        const tiling *t)
{
    return problem->bias != WINATTN_BIAS_NONE &&
           is_one_visit(problem, which, s) &&
           registers_of(problem, device, which, s, t) +
                   s->score_rows * s->score_cols <=
               device->registers;
}

/* NULL if kernel and device allow the shape, else why not; registers apart,
 * which are but an estimate. */
static const char *refusal(const wa_problem *problem, const wa_device *device,
                           part which, const wa_gradient_shape *s,
                           const tiling *t)
{
    if (t->row_tiles * t->col_tiles > s->team)
        return "a team does not cover the logits";
    if (t->out_tiles * t->out_across > s->team ||
        t->key_tiles * t->out_across > s->team)
        return "a team does not cover its gradients";
    if (t->dim_stages > MOST_STAGES ||
        (s->keeps_tiles &&
         (t->dim_stages > 1 || problem->variant == WINATTN_COSINE)))
        return "too many stages of channels";
    if (s->team > device->max_work_group)
        return "work-groups of the device are too small";
    if (local_bytes(problem, which, s, t) + LOCAL_SLACK > device->local_bytes)
        return "local memory of the device is too small";
    return NULL;
}

/* ---- The model ---- */

/* Work-groups that a compute unit holds at once. */
static double resident(const wa_problem *problem, const wa_device *device,
                       part which, const wa_gradient_shape *s, const tiling *t)
{
    const double by_memory =
        (double)device->local_capacity /
        ((double)local_bytes(problem, which, s, t) + 1024.0);
    double registers = registers_of(problem, device, which, s, t);
    if (keeps_dbias(problem, device, which, s, t))
        registers += s->score_rows * s->score_cols;
    const double by_registers =
        (double)device->register_words / (registers * s->team);
    const double by_items = 2048.0 / s->team;
    const double groups =
        (uint32_t)MIN(MIN(by_memory, by_registers), MIN(by_items, 16.0));
    return MAX(groups, 1.0);
}

/* Work-groups for each compute unit, where the workspace bounds those that sum
 * a bias. */
static double groups_per_unit(const wa_problem *problem,
                              const wa_device *device, part which,
                              const wa_gradient_shape *s)
{
    const double owners =
        (double)problem->kv_heads * wa_ceil_div(problem->keys, s->block_keys);
    if (which == ROWS || problem->bias == WINATTN_BIAS_NONE)
        return 1e9;
    return owners * (double)wa_most_bias_slots(problem, WINATTN_TIER_LOCAL) /
           MAX(device->compute_units, 1);
}

/* Cycles of a compute unit for each logit, of one kernel. */
static double cost_of(const wa_problem *problem, const wa_device *device,
                      part which, const wa_gradient_shape *s, const tiling *t)
{
    const uint32_t wave = MIN(MAX(device->wave, 1), s->team);
    const double stages = t->dim_stages, across = t->out_across;
    const double tile = (double)s->score_rows * s->score_cols;
    const double tile_waves = wa_ceil_div(t->row_tiles * t->col_tiles, wave);
    const double logit_steps = 2.0 * tile_waves * stages * across;
    const double out_steps =
        which == KEYS ? 0.0
                      : wa_ceil_div(t->out_tiles * t->out_across, wave) *
                            stages * (double)t->key_quads;
    const double key_steps =
        which == ROWS ? 0.0
                      : 2.0 * stages * s->block_rows *
                            wa_ceil_div(t->key_tiles * t->out_across, wave);
    const double quads = logit_steps * (s->score_rows + s->score_cols) +
                         out_steps * (4.0 + s->out_rows) +
                         key_steps * (1.0 + s->key_quads);
    const double fma = logit_steps * 4.0 * tile +
                       out_steps * 16.0 * s->out_rows +
                       key_steps * 16.0 * s->key_quads;
    double copies_q = s->keeps_tiles ? 2.0 : which == ROWS ? 2.0 : 3.0;
    double copies_k = s->keeps_tiles ? 2.0 : which == KEYS ? 2.0 : 3.0;
    if (s->keeps_tiles && which == KEYS)
        copies_k = 0.0;
    if (s->keeps_tiles && which == ROWS)
        copies_q = 0.0;
    if (!s->keeps_tiles && which != ROWS && t->dim_stages > 1)
        copies_q += 1.0;
    const double staged = (copies_q * t->q_rows + copies_k * t->kv_rows) *
                          stages * across / wave;
    double logits = tile_waves * tile * TILE_CYCLES;
    if (which != ROWS && problem->bias != WINATTN_BIAS_NONE &&
        !keeps_dbias(problem, device, which, s, t))
        logits += tile_waves * tile * DBIAS_CYCLES;
    const double phases = (which == WHOLE ? 6.0 : 4.0) +
                          (s->keeps_tiles ? 0.0 : 2.0 + 3.0 * (stages - 1.0));
    const double busy =
        (QUAD_CYCLES * (quads + staged) + FMA_CYCLES * fma + logits) * wave /
        32.0;
    const double groups = groups_per_unit(problem, device, which, s);
    const double at_once =
        MIN(resident(problem, device, which, s, t), MAX(groups, 1.0));
    return (busy + phases * STAGE_WAIT / at_once) / MIN(groups, 1.0) /
           ((double)s->block_rows * s->block_keys);
}

/* ---- The search ---- */

typedef struct search {
    const wa_problem *problem;
    const wa_device *device;
    part which;
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
    const tiling t = tiling_of(find->problem, s);
    find->visited++;
    if (refusal(find->problem, find->device, find->which, s, &t) ||
        registers_of(find->problem, find->device, find->which, s, &t) >
            find->device->registers)
        return;
    const double cost =
        cost_of(find->problem, find->device, find->which, s, &t);
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
    return quads * 16 + LOCAL_SLACK <= find->device->local_bytes;
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
        for (uint32_t parts = 1;
             parts <= MOST_STAGES && (parts == 1 || quads / parts >= 2);
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
        if (find->which == WHOLE)
            visit_blocks(find, rows, problem->keys);
        for (uint32_t most = MOST_KEYS; find->which != WHOLE && most >= 16;
             most /= 2) {
            const uint32_t keys = sliding ? most : MIN(most, problem->keys);
            if (keys != last) /* few keys make the same block each time */
                visit_blocks(find, rows, keys);
            last = keys;
        }
    }
}

static bool choose(search *find, part which)
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
        choose(&find, WHOLE);
    return find.visited;
}

/* Takes a shape; NULL, or why it cannot be. */
static const char *demand(search *find, part which,
                          const wa_gradient_shape *shape)
{
    if (wa_shape_wrong(&wa_gradient_numbers, shape))
        return "a number of the shape is out of its bounds";
    if (shape->stage_dims % 4 != 0)
        return "a stage is no whole number of quads";
    const tiling t = tiling_of(find->problem, shape);
    find->which = which;
    find->best = *shape;
    return refusal(find->problem, find->device, which, shape, &t);
}

/* ---- The plan ---- */

/* NVIDIA's compiler takes more registers than it needs for fewer stalls, and
 * a compute unit then holds fewer work-groups than the model has found room
 * for: on an H200, windows of 49 tokens took 765 us so, and 501 us with 128
 * registers. With fewer than that the model's guess is not trusted. */
#define LEAST_LIMIT 128u
#define MOST_REGISTERS 255u
static void append_register_limit(const search *find, part which, char *text,
                                  size_t size)
{
    const wa_device *device = find->device;
    const wa_gradient_shape *s = &find->best;
    if (!device->limits_registers)
        return;
    const tiling t = tiling_of(find->problem, s);
    const uint32_t groups =
        (uint32_t)resident(find->problem, device, which, s, &t);
    const uint32_t limit = device->register_words / (groups * s->team) / 8 * 8;
    if (limit < MOST_REGISTERS)
        wa_append(text, size, "-DLIMITS_REGISTERS=1 -cl-nv-maxrregcount=%u ",
                  MAX(limit, LEAST_LIMIT));
}

static void set_kernel(const search *find, part which, const char *name,
                       wa_step *kernel)
{
    const wa_problem *problem = find->problem;
    const wa_gradient_shape *s = &find->best;
    const tiling t = tiling_of(problem, s);
    kernel->kernel = name;
    kernel->block_rows = s->block_rows;
    kernel->block_keys = s->block_keys;
    kernel->work_group = s->team;
    kernel->local_bytes = (uint32_t)local_bytes(problem, which, s, &t);
    char *text = kernel->defines;
    const size_t size = sizeof kernel->defines;
    wa_append_problem(problem, find->device, s->block_rows, s->block_keys,
                      text, size);
    wa_append_shape(&wa_gradient_numbers, s, text, size);
    wa_append(text, size, "-DBACKWARD=1 ");
    if (which == STATISTICS || which == ROWS)
        wa_append(text, size, "-DSTATISTICS=%u ",
                  (uint32_t)(which == STATISTICS));
    else
        wa_append(text, size,
                  "-DWHOLE=%u -DONE_VISIT=%u -DKEEPS_DBIAS=%u "
                  "-DKEEPS_TABLE=%u ",
                  (uint32_t)(which == WHOLE),
                  (uint32_t)is_one_visit(problem, which, s),
                  (uint32_t)keeps_dbias(problem, find->device, which, s, &t),
                  (uint32_t)keeps_table(problem, which, s));
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
    const tiling t = tiling_of(find->problem, &find->best);
    return find->device->compute_units *
           (uint32_t)resident(find->problem, find->device, find->which,
                              &find->best, &t);
}

/* Fills in the plan; rows is NULL where one kernel makes everything. */
static void set_plan(const search *rows, const search *keys, wa_plan *plan)
{
    const wa_problem *problem = keys->problem;
    plan->whole = !rows;
    set_kernel(keys, keys->which, "backward_keys_local",
               &plan->step[WA_STEP_KEYS]);
    require_access(problem, &keys->best, plan);
    plan->schedule.key_blocks =
        wa_ceil_div(problem->keys, keys->best.block_keys);
    plan->schedule.row_blocks = 1;
    plan->schedule.busy_groups = WAVES * busy_groups(keys);
    if (rows) {
        set_kernel(rows, STATISTICS, "backward_rows_local",
                   &plan->step[WA_STEP_STATISTICS]);
        set_kernel(rows, ROWS, "backward_rows_local",
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
        why = demand(&first, ROWS, rows);
    else if (problem->variant == WINATTN_SLIDING ||
             keys->block_keys < problem->keys)
        why = "one kernel needs all keys of a window";
    if (!why)
        why = demand(&last, rows ? KEYS : WHOLE, keys);
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

static const char whole_fits[] = "a window's keys fit a work-group";

static bool take_tuned(const wa_problem *problem, const wa_device *device,
                       wa_plan *plan)
{
    wa_tuned tuned;
    for (size_t i = 0;
         wa_find_tuned(WA_LOCAL_BACKWARD, problem, device, i, &tuned); i++) {
        const wa_tuned_gradient_shape *shape = &tuned.shape.local_backward;
        plan->tuned = wa_plan_gradient_shapes(problem, device, NULL,
                                              &shape->whole, plan);
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
        snprintf(plan->reason, sizeof plan->reason, "%s; %s", whole_fits,
                 tuned.reason);
        return true;
    }
    return false;
}

bool wa_plan_local_backward(const wa_problem *problem, const wa_device *device,
                            wa_plan *plan)
{
    search whole = {.problem = problem, .device = device};
    search rows = whole, keys = whole;
    if (take_tuned(problem, device, plan))
        return true;
    bool fits = problem->variant != WINATTN_SLIDING && choose(&whole, WHOLE);
    const bool shared = choose(&rows, ROWS) && choose(&keys, KEYS);
    plan->visited += whole.visited + rows.visited + keys.visited;
    if (fits && shared)
        fits = whole.cost <= rows.cost + keys.cost;
    if (!fits && !shared) {
        snprintf(plan->refusals[WINATTN_TIER_LOCAL], WA_REASON_SIZE,
                 "no shape fits %u bytes of local memory, %u registers and "
                 "work-groups of %u",
                 device->local_bytes, device->registers,
                 device->max_work_group);
        return false;
    }
    set_plan(fits ? NULL : &rows, fits ? &whole : &keys, plan);
    plan->refusals[WINATTN_TIER_LOCAL][0] = 0;
    snprintf(plan->reason, sizeof plan->reason,
             "%s; modelled best of the shapes within %u bytes, %u "
             "registers and work-groups of %u",
             fits ? whole_fits : "rows and keys in kernels of their own",
             device->local_bytes, device->registers, device->max_work_group);
    return true;
}
