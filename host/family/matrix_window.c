/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/matrix/forward_matrix.cl: every legal one is scored, and the
 * cheapest wins. Those of the sliding variant are matrix_sliding.c's. */
#include "base/text.h"
#include "family/matrix_sliding.h"
#include "family/matrix_tiling.h"
#include "plan/defines.h"
#include "plan/schedule.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Biases and masks of scores that a lane keeps in registers at most. */
#define MOST_OWN_SCORE_BIAS 32u

static uint64_t local_bytes(const wa_problem *problem, const wa_device *device,
                            const wa_matrix_shape *s)
{
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, s);
    return wa_matrix_local_bytes(problem, device, s, &t, WA_FORWARD, 1);
}

/* NULL if kernel and device allow the shape, else why not. */
static const char *refusal(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    WA_REFUSE(wa_matrix_refusal(problem, device, s));
    if (s->bias_cache == WA_BIAS_CACHE_LOCAL &&
        MASK_FOLLOWS_GRID(problem->mask))
        return "registers or regions serve better where shift boundaries are "
               "few";
    const wa_matrix_tiling t = wa_matrix_tiling_of(problem, unit, s);
    if (t.streaming && s->block_keys % unit->tile != 0)
        return "blocks of keys are no whole number of tiles";
    if (s->bias_cache == WA_BIAS_CACHE_REGISTERS &&
        (t.streaming || t.wave_turns > 1))
        return "bias and mask in registers need a wave of its own for each "
               "tile";
    if (problem->head_dim > 64 &&
        s->waves_per_window * s->windows_per_group * unit->wave > 256)
        return "sums of so many channels leave work-groups too few registers";
    if (local_bytes(problem, device, s) > device->local_bytes)
        return "local memory of the device is too small";
    return NULL;
}

/* Where a compute unit has fewer work tiles than a work-group has teams, some
 * of these stay idle, so that no unit does: another shape would be another
 * program. */
void wa_take_matrix_forward(const wa_problem *problem, const wa_device *device,
                            const wa_matrix_shape *shape, const char *kernel,
                            uint64_t bytes, wa_plan *plan)
{
    wa_begin_step(problem, device, kernel, shape->block_rows,
                  shape->block_keys,
                  shape->waves_per_window * shape->windows_per_group *
                      device->matrix_unit->wave,
                  bytes, &plan->step[WA_STEP_FORWARD]);
    const uint64_t tiles =
        (uint64_t)wa_ceil_div(problem->queries, shape->block_rows) *
        problem->windows * problem->heads;
    const uint64_t units = MAX(device->compute_units, 1);
    const uint32_t busy = (uint32_t)MIN(shape->windows_per_group,
                                        MAX((tiles + units - 1) / units, 1));
    plan->schedule.work_tiles_per_group = busy;
    plan->schedule.idle_teams = shape->windows_per_group - busy;
    wa_set_matrix_access(problem, plan);
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_matrix_shape *shape = &demanded->matrix_forward;
    WA_REFUSE(wa_matrix_impossible(problem, device, WA_FORWARD));
    WA_REFUSE(refusal(problem, device, shape));
    wa_take_matrix_forward(problem, device, shape,
                           device->matrix_unit->forward_kernel,
                           local_bytes(problem, device, shape), plan);
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    wa_share_windows(problem, device,
                     wa_matrix_resident(device, step->local_bytes), plan);
    wa_step_matrix_shape(step, shape, device);
    return NULL;
}

/* ---- All shapes ---- */

/* Tiles of keys of a pass: as many as registers hold; of large windows no more
 * than were seen to pay (256 tokens: passes of 32 keys 390 us, of 64 398, of
 * 128 493). */
#define LARGE_TILES_PER_SUBTILE 4u
/* Registers that a score takes on NVIDIA's units where its bias and mask come
 * from global memory, with what these and their addresses do (as ptxas
 * spilled). */
#define LOADED_BIAS_REGISTERS 3u
static uint32_t tiles_per_subtile(const wa_problem *problem,
                                  const wa_device *device,
                                  const wa_matrix_shape *s,
                                  const wa_matrix_tiling *t)
{
    const bool loads_score_bias = device->vendor == WA_VENDOR_NVIDIA &&
                                  wa_problem_has_score_bias(problem) &&
                                  s->bias_cache == WA_BIAS_CACHE_NONE;
    const uint32_t budget = wa_matrix_most_sums(
        problem, device, s->waves_per_window * s->windows_per_group);
    const uint32_t kept = t->dim_tiles * t->acc_per_lane;
    const uint32_t each =
        t->acc_per_lane * (loads_score_bias ? LOADED_BIAS_REGISTERS : 1);
    uint32_t most = budget > kept + each ? (budget - kept) / each : 1;
    if (t->key_tiles > 2 * LARGE_TILES_PER_SUBTILE)
        most = MIN(most, LARGE_TILES_PER_SUBTILE);
    return wa_matrix_tiles_per_subtile(t->key_tiles, most);
}

/* Have lanes registers for the bias and mask of their scores? With TF32, whose
 * operands are twice as long, beside o. */
static bool holds_own_score_bias(const wa_problem *problem,
                                 const wa_device *device,
                                 const wa_matrix_shape *s,
                                 const wa_matrix_tiling *t)
{
    const uint32_t own = t->key_tiles * t->acc_per_lane;
    const uint32_t others = t->dim_tiles * t->acc_per_lane;
    return own <= MOST_OWN_SCORE_BIAS &&
           (problem->dtype != WINATTN_FP32 ||
            own + others <= wa_matrix_most_sums(problem, device,
                                                s->waves_per_window *
                                                    s->windows_per_group));
}

/* Relative; fitted to 150 measurements of eight problems on an H200 (driver
 * 580.159.04, November 2026). */
static double cost_of(const wa_problem *problem, const wa_device *device,
                      const wa_matrix_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_tiling t = wa_matrix_tiling_of(problem, unit, s);
    const uint32_t blocks = wa_ceil_div(problem->queries, s->block_rows);
    const double waves = s->waves_per_window * s->windows_per_group;
    /* computed rows and keys for each that counts */
    double cost = (double)blocks * t.wave_turns * s->waves_per_window *
                  unit->queries / problem->queries;
    cost *= (double)t.key_blocks * t.key_tiles * unit->tile / problem->keys;
    cost *= 1.0 + 0.02 * (blocks - 1);        /* keys and values come again */
    cost *= 1.0 + 24.0 / s->block_keys;       /* what an item takes besides */
    cost *= 1.0 + 0.01 * s->waves_per_window; /* waiting for each other */
    cost *=
        1.0 + 0.02 * (wa_ceil_div(t.key_tiles * unit->tile, s->subtile_keys) -
                      1); /* what sums are multiplied by */
    if (t.streaming)
        cost *= 1.1;
    if (unit->copies_async && s->stages == 1)
        cost *= 1.3;
    /* one wave does one tile of a window at a time */
    cost *= 1.0 + 0.05 * (t.wave_turns - 1);
    if (wa_problem_has_score_bias(problem) &&
        s->bias_cache == WA_BIAS_CACHE_NONE)
        cost *= 1.4;
    /* in local memory a sum is fp32, and slower to read than a bias */
    if (problem->mask != MASK_NONE && s->bias_cache == WA_BIAS_CACHE_LOCAL)
        cost *= 1.08;
    /* regions are compared; those of a shift differ in few windows */
    if (s->bias_cache == WA_BIAS_CACHE_LOCAL_AND_REGIONS)
        cost *= MASK_FOLLOWS_GRID(problem->mask) ? 1.08 : 1.25;
    return cost * (1.0 + 8.0 / waves);
}

static void try_shape(wa_search *find, const wa_problem *problem,
                      wa_matrix_shape s)
{
    const wa_device *device = find->device;
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, &s);
    if (s.bias_cache == WA_BIAS_CACHE_REGISTERS &&
        !holds_own_score_bias(problem, device, &s, &t))
        return;
    s.subtile_keys =
        tiles_per_subtile(problem, device, &s, &t) * device->matrix_unit->tile;
    if (!refusal(problem, device, &s)) {
        const wa_tuned_shape shape = {.matrix_forward = s};
        find->visit(find->data, &shape, cost_of(problem, device, &s));
    }
}

static void visit(wa_search *find)
{
    wa_visit_matrix_shapes(find, find->problem, WA_FORWARD, 1, false,
                           try_shape);
}

void wa_explain_matrix_forward(const wa_problem *problem,
                               const wa_device *device,
                               const wa_tuned_shape *shape, char *reason)
{
    wa_append(reason, WA_REASON_SIZE, "scores in registers of the %s unit%s%s",
              device->matrix_unit->name,
              problem->dtype == WINATTN_FP32 ? " in TF32" : "",
              wa_matrix_bias_place(problem, shape->matrix_forward.bias_cache));
}

const wa_family wa_matrix_window = {.engine = WA_ENGINE_MATRIX,
                                    .pass = WA_FORWARD,
                                    .tuned = WA_MATRIX_FORWARD,
                                    .refusal = wa_matrix_unwanted,
                                    .visit = {visit},
                                    .say_none = wa_matrix_say_none,
                                    .explain = wa_explain_matrix_forward,
                                    .take = take};
