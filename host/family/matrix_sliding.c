/* SPDX-License-Identifier: Apache-2.0
 * Shapes for the sliding kernels of matrix units: what they have in common,
 * and those of cl/matrix/sliding_forward_matrix.cl, which are all scored. */
#include "family/matrix_sliding.h"

#include "plan/defines.h"

/* Local memory for what a row sees, the first key and the one past the last.
 */
#define SPAN_BYTES 8u
/* And for what a wave has found among values. */
#define FOUND_BYTES 4u
/* A stage has so many tiles of keys at most, a wave so many of rows. */
#define MOST_KEY_TILES 8u
#define MOST_TURNS 2u
#define MOST_WAVES 8u

uint32_t wa_sliding_turns(const wa_device *device, const wa_matrix_shape *s)
{
    return s->block_rows /
           (s->waves_per_window * device->matrix_unit->queries);
}

static uint64_t local_bytes(const wa_problem *problem, const wa_device *device,
                            const wa_matrix_shape *s)
{
    const wa_matrix_tiling t =
        wa_matrix_tiling_of(problem, device->matrix_unit, s);
    /* the ring has keys and values only, q is there once */
    return wa_whole_lines(
               wa_matrix_local_bytes(problem, device, s, &t, WA_FORWARD, 0)) +
           wa_whole_lines(t.row_plane_bytes[WA_FORWARD]) +
           wa_whole_lines((uint64_t)s->block_rows * SPAN_BYTES +
                          (uint64_t)s->waves_per_window * FOUND_BYTES);
}

const char *wa_sliding_tiles_refusal(const wa_problem *problem,
                                     const wa_device *device,
                                     const wa_matrix_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const uint32_t tiles = s->waves_per_window * unit->queries;
    WA_REFUSE(wa_matrix_refusal(problem, device, s));
    if (s->windows_per_group != 1 || s->bias_cache != WA_BIAS_CACHE_NONE)
        return "sliding kernels have one team and no bias";
    if (tiles == 0 || s->block_rows == 0 || s->block_rows % tiles != 0)
        return "waves have different numbers of tiles of rows";
    if (s->block_keys % unit->tile != 0 || s->block_keys == 0)
        return "blocks of keys are no whole number of tiles";
    return NULL;
}

static const char *refusal(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s)
{
    WA_REFUSE(wa_sliding_tiles_refusal(problem, device, s));
    return local_bytes(problem, device, s) > device->local_bytes
               ? "local memory of the device is too small"
               : NULL;
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_matrix_shape *shape = &demanded->matrix_forward;
    WA_REFUSE(wa_matrix_impossible(problem, device, WA_FORWARD));
    WA_REFUSE(refusal(problem, device, shape));
    wa_take_matrix_forward(problem, device, shape,
                           device->matrix_unit->sliding_forward_kernel,
                           local_bytes(problem, device, shape), plan);
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    wa_step_matrix_shape(step, shape, device);
    return NULL;
}

/* ---- All shapes ---- */

/* Registers of a lane that a wave's tiles of rows take: sums, all of q where
 * it stays in registers (HOLDS_ROWS of the kernel) or else a tile's channels,
 * scores and weights. */
static double registers_of(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_tiling t = wa_matrix_tiling_of(problem, unit, s);
    const uint32_t tiles = s->subtile_keys / unit->tile;
    const uint32_t turns = wa_sliding_turns(device, s);
    const bool holds_q = device->vendor == WA_VENDOR_NVIDIA && turns == 1;
    /* operands of 16 bits lie in pairs */
    const double operand = problem->dtype == WINATTN_FP32 ? 1.0 : 0.5;
    return turns * t.acc_per_lane *
           (t.dim_tiles + operand * (holds_q ? t.dim_tiles : 1) +
            (1.0 + operand) * tiles);
}

/* Of registers above a budget; relative. */
static double excess_cost(double registers, double budget)
{
    const double excess = registers / (budget > 1.0 ? budget : 1.0);
    return registers > budget ? excess * excess : 1.0;
}

/* Waves of a work-group that were the fastest on an H200. */
#define BEST_WAVES 4u

/* Relative; fitted to some 30 measurements of two problems on an H200 (driver
 * 580.159.04, November 2026). */
double wa_sliding_cost(const wa_problem *problem, const wa_device *device,
                       const wa_matrix_shape *s, double registers,
                       uint64_t local, double keys_of_stage)
{
    const double budget =
        wa_matrix_most_sums(problem, device, s->waves_per_window);
    /* a tile of keys is read for all of a wave's tiles of rows */
    const double turns = wa_sliding_turns(device, s);
    double cost = 1.0 + 0.3 / turns;
    cost *= 1.0 + keys_of_stage / s->block_keys;
    cost *= 1.0 + 16.0 / (turns * s->subtile_keys);
    cost *= s->waves_per_window > BEST_WAVES
                ? 1.25
                : 1.0 + 0.15 * (BEST_WAVES / s->waves_per_window - 1);
    cost *= excess_cost(registers, budget);
    if (device->matrix_unit->copies_async) {
        cost *= s->stages == 1 ? 1.3 : 1.0 + 0.05 / (s->stages - 1);
        /* work-groups of few waves want company */
        if (s->waves_per_window <= BEST_WAVES &&
            2 * (local + WA_RESERVED_LOCAL_BYTES) > device->local_capacity)
            cost *= 1.3;
    }
    return cost;
}

void wa_visit_sliding_tiles(wa_search *find, wa_sliding_visitor *visit)
{
    const wa_matrix_unit *unit = find->device->matrix_unit;
    const uint32_t most_stages =
        unit->copies_async ? WA_MATRIX_MOST_STAGES : 1;
    wa_matrix_shape s = {.windows_per_group = 1,
                         .bias_cache = WA_BIAS_CACHE_NONE};
    for (uint32_t turns = 1; turns <= MOST_TURNS; turns++)
        for (s.waves_per_window = 1; s.waves_per_window <= MOST_WAVES;
             s.waves_per_window *= 2)
            for (uint32_t keys = 1; keys <= MOST_KEY_TILES; keys *= 2)
                for (s.stages = 1; s.stages <= most_stages; s.stages++)
                    for (uint32_t tiles = 1; tiles <= keys; tiles *= 2) {
                        s.block_rows =
                            turns * s.waves_per_window * unit->queries;
                        s.block_keys = keys * unit->tile;
                        s.subtile_keys = tiles * unit->tile;
                        find->visited++;
                        visit(find, &s);
                    }
}

/* As long as that many keys does a stage's wait take, on the same H200. */
#define KEYS_OF_STAGE 4.0

/* What addresses and operands leave of the 256 registers of Intel's hardware
 * threads: with 128 channels 131 are spilled where subtiles have 32 keys, none
 * with 16 (IGC 1.0.12504, Max). */
#define INTEL_REGISTERS 176.0

static void try_shape(const wa_search *find, const wa_matrix_shape *s)
{
    const wa_problem *problem = find->problem;
    const wa_device *device = find->device;
    const wa_tuned_shape shape = {.matrix_forward = *s};
    if (refusal(problem, device, s))
        return;
    const double registers = registers_of(problem, device, s);
    double cost =
        wa_sliding_cost(problem, device, s, registers,
                        local_bytes(problem, device, s), KEYS_OF_STAGE);
    if (device->vendor == WA_VENDOR_INTEL)
        cost *= excess_cost(registers, INTEL_REGISTERS);
    find->visit(find->data, &shape, cost);
}

static void visit(wa_search *find) { wa_visit_sliding_tiles(find, try_shape); }

/* Shapes do not follow from the numbers of tokens, so that caches of keys may
 * grow without a build. */
const wa_family wa_matrix_sliding = {.engine = WA_ENGINE_MATRIX,
                                     .pass = WA_FORWARD,
                                     .slides = true,
                                     .speed = WA_SLIDING_SPEED,
                                     .tuned = WA_MATRIX_FORWARD,
                                     .refusal = wa_matrix_unwanted,
                                     .visit = {visit},
                                     .say_none = wa_matrix_say_none,
                                     .explain = wa_explain_matrix_forward,
                                     .take = take};
