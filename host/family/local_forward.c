/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/local/forward_local.cl. Every legal shape is scored with a
 * small model of a compute unit (local_model.c), and the cheapest wins. */
#include <stdio.h>

#include "base/text.h"
#include "family/local_gradient.h"
#include "family/local_model.h"
#include "plan/defines.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Alignment between the kernel's local arrays. */
#define LOCAL_SLACK 128u
/* The streaming kernel unrolls its stages of channels. */
#define MOST_KEPT_STAGES 4u
/* Quads of o that a work-item sums at most, and that it keeps through the
 * score tiles at most: with 13 of them, code for NVIDIA spilled. */
#define MOST_SUMS 16u
#define MOST_KEPT_SUMS 8u
/* Query rows of a work tile at most; of the sliding variant always. */
#define MOST_ROWS 128u
#define SLIDING_ROWS 64u

/* NULL if the numbers of a shape say what a tiling follows from. */
static const char *malformed(const wa_local_shape *s)
{
    if (!wa_shape_is_sound(&wa_local_numbers, s))
        return "a number of the shape is out of its bounds";
    if (s->stage_keys > s->block_keys || s->stage_dims % 4 != 0 ||
        (s->stage_keys % 4 != 0 && s->stage_keys != s->block_keys))
        return "a stage is no whole number of quads";
    return NULL;
}

/* NULL if kernel and device allow the shape, else why not. */
static const char *refusal(const wa_problem *problem, const wa_device *device,
                           const wa_local_shape *s, const wa_local_tiling *t)
{
    if ((s->row_items & (s->row_items - 1)) != 0 ||
        s->team % s->row_items != 0)
        return "row_items does not divide a team";
    if (t->out_tiles * t->out_across > s->team)
        return "a team does not cover its rows of o";
    if (s->stage_dims / 4 > s->team)
        return "a team does not cover a row";
    if (t->streaming && t->dim_stages > MOST_KEPT_STAGES)
        return "a streaming softmax would keep too many stages of channels";
    if (s->teams > 1 && problem->variant == WINATTN_SLIDING)
        return "teams of a work-group would walk different keys";
    /* seen with ocloc 22.43, see cl/local/team.cl */
    if (device->sub_group && t->streaming && t->dim_stages > 1)
        return "Intel's compiler would keep sums in private memory";
    if (device->sub_group && s->teams > 1)
        return "Intel's compiler would spill the addresses of teams";
    if (s->team * s->teams > device->max_work_group)
        return "work-groups of the device are too small";
    if (wa_local_bytes(s, t) + LOCAL_SLACK > device->local_bytes)
        return "local memory of the device is too small";
    if (device->loop_limit &&
        wa_local_rounds(problem, s, t) > device->loop_limit)
        return "the device ends a work-item's loops too early";
    return NULL;
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_local_shape *shape = &demanded->local_forward;
    WA_REFUSE(malformed(shape));
    const wa_local_tiling t = wa_local_tiling_of(problem, shape);
    WA_REFUSE(refusal(problem, device, shape, &t));
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    wa_begin_step(problem, device, "forward_local", shape->block_rows,
                  shape->block_keys, shape->team * shape->teams,
                  wa_local_bytes(shape, &t), step);
    wa_step_shape(step, &wa_local_numbers, shape);
    wa_step_local_options(step, problem, device);
    plan->schedule.work_tiles_per_group = shape->teams;
    wa_local_require_access(problem, shape->stage_dims, plan);
    return NULL;
}

/* ---- All shapes ---- */

static const struct {
    uint32_t rows, cols;
} score_tiles[] = {{8, 8}, {7, 7}, {6, 6}, {4, 8}, {4, 7},
                   {4, 6}, {4, 4}, {2, 8}, {2, 4}, {1, 4}};
#define SCORE_TILES (sizeof score_tiles / sizeof *score_tiles)

static void visit_teams(wa_search *find, wa_local_shape s)
{
    const uint32_t most = MIN(find->device->max_work_group, 256);
    const uint32_t step = MAX(find->device->wave, 32);
    for (s.team = step; s.team <= most; s.team += step) {
        find->visited++;
        const uint32_t down = s.team / (s.stage_dims / 4);
        if (down == 0)
            continue;
        s.out_rows = wa_ceil_div(s.block_rows, down);
        s.row_items = 1;
        while (s.row_items * 2 * s.block_rows <= s.team &&
               s.team % (s.row_items * 2) == 0)
            s.row_items *= 2;
        const wa_local_tiling t = wa_local_tiling_of(find->problem, &s);
        if (s.out_rows > MOST_SUMS ||
            (t.streaming && s.out_rows * t.dim_stages > MOST_KEPT_SUMS) ||
            wa_local_registers(find->problem, find->device, &s, &t) >
                find->device->registers)
            continue;
        for (s.teams = 1; s.teams * s.team <= most; s.teams *= 2) {
            find->visited++;
            if (!refusal(find->problem, find->device, &s, &t)) {
                const wa_tuned_shape shape = {.local_forward = s};
                find->fits = true;
                find->visit(
                    find->data, &shape,
                    wa_local_cost(find->problem, find->device, &s, &t));
            }
        }
    }
}

bool wa_local_may_fit(const wa_device *device, uint32_t rows, uint32_t keys,
                      uint32_t stage_keys, uint32_t stage_dims)
{
    const uint64_t pitch = (stage_dims / 4) | 1;
    const uint64_t quads = ((uint64_t)rows + stage_keys) * pitch +
                           (uint64_t)rows * (wa_ceil_div(keys, 4) | 1);
    return quads * 16 + LOCAL_SLACK <= device->local_bytes;
}

static bool may_fit(const wa_search *find, const wa_local_shape *s)
{
    return wa_local_may_fit(find->device, s->block_rows, s->block_keys,
                            s->stage_keys, s->stage_dims);
}

/* Channels of a stage: all, or halves of them down to 16; keys likewise. */
static void visit_stages(wa_search *find, wa_local_shape s)
{
    const uint32_t quads = wa_ceil_div(find->problem->head_dim, 4);
    for (uint32_t parts = 1; parts == 1 || quads / parts >= 4; parts *= 2) {
        s.stage_dims = wa_ceil_div(quads, parts) * 4;
        for (uint32_t split = 1; split <= 8; split *= 2) {
            s.stage_keys = wa_ceil_div(s.block_keys, split);
            if (split > 1)
                s.stage_keys = wa_ceil_div(s.stage_keys, 4) * 4;
            if (split > 1 && s.stage_keys < 16)
                break;
            find->visited++;
            if (may_fit(find, &s))
                visit_teams(find, s);
        }
    }
}

/* Shapes whose softmax takes block_keys keys at a time. */
static void visit_rows(wa_search *find, uint32_t block_keys)
{
    const uint32_t all = find->problem->variant == WINATTN_SLIDING
                             ? SLIDING_ROWS
                             : find->problem->queries;
    const uint32_t least = MIN(all, 8);
    wa_local_shape s = {.block_keys = block_keys};
    for (s.block_rows = wa_even_size(all, MOST_ROWS); s.block_rows >= least;
         s.block_rows = wa_even_size(all, s.block_rows - 1)) {
        find->visited++;
        for (size_t i = 0; i < SCORE_TILES && may_fit(find, &s); i++) {
            wa_local_shape tiled = s;
            tiled.score_rows = score_tiles[i].rows;
            tiled.score_cols = score_tiles[i].cols;
            visit_stages(find, tiled);
        }
    }
}

static void visit(wa_search *find)
{
    if (find->problem->variant != WINATTN_SLIDING)
        visit_rows(find, find->problem->keys);
    if (find->fits)
        return;
    for (uint32_t keys = 128; keys >= 16; keys /= 2)
        visit_rows(find, keys);
}

void wa_local_say_none(const wa_device *device, bool fits, char *why)
{
    (void)fits;
    snprintf(why, WA_REASON_SIZE,
             "no shape fits %u bytes of local memory, %u registers and "
             "work-groups of %u%s",
             device->local_bytes, device->registers, device->max_work_group,
             device->loop_limit ? " on a device that ends long loops early"
                                : "");
}

static void explain(const wa_problem *problem, const wa_device *device,
                    const wa_tuned_shape *best, char *reason)
{
    const wa_local_shape *shape = &best->local_forward;
    const char *kept = problem->variant == WINATTN_SLIDING ||
                               shape->block_keys < problem->keys
                           ? "streaming softmax"
                       : shape->block_rows < problem->queries
                           ? "whole rows of the attention matrix"
                           : "whole attention matrix";
    wa_append(reason, WA_REASON_SIZE,
              "%s in local memory; modelled best of the shapes within %u "
              "bytes, %u registers and work-groups of %u",
              kept, device->local_bytes, device->registers,
              device->max_work_group);
}

const wa_family wa_local_forward = {.engine = WA_ENGINE_LOCAL,
                                    .pass = WA_FORWARD,
                                    .tuned = WA_LOCAL_FORWARD,
                                    .visit = {visit},
                                    .say_none = wa_local_say_none,
                                    .explain = explain,
                                    .take = take};
