/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/forward_matrix.cl: every legal one is scored, and the cheapest
 * wins. */
#include <stdio.h>
#include <string.h>

#include "plan.h"
#include "tuning.h"
#include "unit.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Alignment between the kernel's local arrays. */
#define LOCAL_SLACK 256u
/* Bytes that are copied at once; tiles of o that leave together. */
#define CHUNK_BYTES 16u
#define OUT_TILES 4u
/* A work-group of NVIDIA's has 16 barriers: one for all, one for each team. */
#define MOST_TEAMS 15u
/* Terms that a lane keeps in registers at most. */
#define MOST_OWN_TERMS 32u
/* Waves of a work-group at most. */
#define MOST_WAVES 16u

/* What a shape follows to; the names are the kernel's. */
typedef struct tiling {
    uint32_t row_tiles, wave_turns, key_tiles, dim_tiles, key_blocks;
    uint32_t pitch, values;
    bool streaming;
} tiling;

static uint32_t element_bytes(const wa_problem *problem)
{
    return problem->dtype == WINATTN_FP32 ? 4 : 2;
}

/* Elements that are copied at once. */
static uint32_t chunk_of(const wa_problem *problem)
{
    return CHUNK_BYTES / element_bytes(problem);
}

static tiling tiling_of(const wa_problem *problem, const wa_unit *unit,
                        const wa_matrix_shape *s)
{
    tiling t;
    t.row_tiles = wa_ceil_div(s->block_rows, unit->queries);
    t.wave_turns = wa_ceil_div(t.row_tiles, s->team_waves);
    t.key_tiles = wa_ceil_div(s->block_keys, unit->tile);
    t.key_blocks = wa_ceil_div(problem->keys, s->block_keys);
    t.dim_tiles = wa_ceil_div(problem->head_dim, unit->tile);
    t.pitch = t.dim_tiles * unit->tile + chunk_of(problem);
    t.values = unit->queries * unit->tile / unit->wave;
    t.streaming = t.key_blocks > 1;
    return t;
}

static bool has_terms(const wa_problem *problem)
{
    return problem->bias != WINATTN_BIAS_NONE ||
           problem->mask != WINATTN_MASK_NONE;
}

static bool has_regions(const wa_problem *problem)
{
    return problem->mask == WINATTN_MASK_REGIONS ||
           problem->mask == WINATTN_MASK_SHIFT;
}

/* Windows that lie alike in their grids must be masked alike where what masks
 * add is kept. */
static bool masks_follow_grid(const wa_problem *problem)
{
    const uint32_t *windows = problem->grid.windows;
    const uint64_t masks = problem->mask_windows;
    if (!problem->grid.used || problem->mask == WINATTN_MASK_NONE ||
        problem->mask == WINATTN_MASK_SHIFT)
        return true;
    const uint64_t places = (uint64_t)windows[0] * windows[1] * windows[2];
    return places % masks == 0 || masks % places == 0;
}

/* As the kernel declares its arrays. */
static uint64_t local_bytes(const wa_problem *problem, const wa_device *device,
                            const wa_matrix_shape *s, const tiling *t)
{
    const wa_unit *unit = device->unit;
    const uint64_t key_rows =
        s->block_keys + (s->block_keys % unit->tile != 0);
    const uint32_t element = element_bytes(problem);
    const uint64_t stage = (s->block_rows + 2 * key_rows) * t->pitch * element;
    const uint64_t waves = (uint64_t)s->teams * s->team_waves;
    uint64_t bytes = s->teams * s->stages * stage;
    bytes +=
        waves * unit->queries *
        (MIN(t->dim_tiles, OUT_TILES) * unit->tile * element + CHUNK_BYTES);
    /* the bias as it is stored, or its sum with the mask */
    const bool sums =
        problem->mask != WINATTN_MASK_NONE && s->keeps_terms == 1;
    const bool keeps_bias =
        problem->bias != WINATTN_BIAS_NONE && s->keeps_terms != 0;
    if (keeps_bias || sums)
        bytes +=
            (uint64_t)t->row_tiles * t->key_blocks * t->key_tiles *
            unit->queries * unit->tile *
            (sums || problem->bias_dtype == WINATTN_TERM_FP32 ? 4 : element);
    if (s->keeps_terms == 3)
        bytes += (uint64_t)s->teams * (s->block_rows + problem->keys);
    if (problem->variant == WINATTN_COSINE)
        bytes += s->teams * (s->block_rows + key_rows) * 4;
    if (device->emulates_unit)
        bytes += waves * unit->exchange_words * 4;
    return bytes;
}

/* NULL if kernel and device allow the shape, else why not. */
static const char *refusal(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s)
{
    const wa_unit *unit = device->unit;
    if (s->block_rows == 0 || s->block_keys == 0 || s->team_waves == 0 ||
        s->teams == 0 || s->stages == 0 || s->pass_keys == 0)
        return "a size of the shape is 0";
    if (s->pass_keys % unit->tile != 0)
        return "a pass is no whole number of tiles";
    const tiling t = tiling_of(problem, unit, s);
    if (t.streaming && s->block_keys % unit->tile != 0)
        return "blocks of keys are no whole number of tiles";
    if (s->block_rows < problem->queries && s->block_rows % unit->queries != 0)
        return "blocks of rows are no whole number of tiles";
    if (s->keeps_terms > 3 || (s->keeps_terms == 3 && !has_regions(problem)))
        return "the problem has no regions to compare";
    if ((s->keeps_terms == 1 || s->keeps_terms == 2) &&
        !masks_follow_grid(problem))
        return "masks do not repeat from grid to grid";
    if (s->keeps_terms == 1 && problem->mask == WINATTN_MASK_SHIFT)
        return "teams may have windows with different seams";
    if (s->keeps_terms == 2 && (t.streaming || t.wave_turns > 1))
        return "terms in registers need a wave of its own for each tile";
    if (s->teams > MOST_TEAMS)
        return "a work-group has no barriers for so many teams";
    if (s->team_waves * s->teams > MOST_WAVES ||
        s->team_waves * s->teams * unit->wave > device->max_work_group ||
        (problem->head_dim > 64 &&
         s->team_waves * s->teams * unit->wave > 256))
        return "work-groups of the device are too small";
    if (local_bytes(problem, device, s, &t) + LOCAL_SLACK >
        device->local_bytes)
        return "local memory of the device is too small";
    return NULL;
}

static bool refuse(wa_plan *plan, const char *why)
{
    snprintf(plan->refusals[WINATTN_TIER_MATRIX], WA_REASON_SIZE, "%s", why);
    return false;
}

/* Is there such a kernel at all? */
static const char *impossible(const wa_problem *problem,
                              const wa_device *device)
{
    if (!device->unit)
        return "the device has no matrix unit that is known";
    if (problem->variant == WINATTN_SLIDING)
        return "it has no sliding variant";
    if (problem->dtype == WINATTN_FP32 && !device->unit->has_tf32)
        return "fp32 would be rounded, as its unit has no TF32";
    if (problem->dtype == WINATTN_FP32 && !problem->allows_tf32)
        return "fp32 would be rounded to TF32, which must be allowed";
    return NULL;
}

bool wa_plan_matrix_shape(const wa_problem *problem, const wa_device *device,
                          const wa_matrix_shape *shape, wa_plan *plan)
{
    const char *why = impossible(problem, device);
    if (!why)
        why = refusal(problem, device, shape);
    if (why)
        return refuse(plan, why);
    const tiling t = tiling_of(problem, device->unit, shape);
    plan->tier = WINATTN_TIER_MATRIX;
    plan->kernel = device->unit->kernel;
    plan->shape.matrix = *shape;
    plan->block_rows = shape->block_rows;
    plan->block_keys = shape->block_keys;
    plan->local_bytes = (uint32_t)local_bytes(problem, device, shape, &t);
    plan->units_per_group = shape->teams;
    plan->work_group = shape->team_waves * shape->teams * device->unit->wave;
    const uint32_t chunk = chunk_of(problem);
    plan->access_elements = problem->head_dim % chunk == 0 ? chunk : 0;
    plan->access_bytes = CHUNK_BYTES;
    /* NVIDIA's compiler gives a work-group the registers of a whole compute
     * unit, if there is use for them. */
    plan->resident = 1;
    if (!device->unit->copies_async)
        plan->resident =
            MAX(device->local_capacity / (plan->local_bytes + 1024), 1);
    plan->refusals[WINATTN_TIER_MATRIX][0] = 0;
    return true;
}

/* ---- The search ---- */

/* Sums that a lane can have at a time: on NVIDIA's units a work-group has all
 * registers of a compute unit, of which addresses and operands take 60, and
 * 88 where operands are twice as long (with 76 ptxas spilled more). */
static uint32_t most_sums(const wa_problem *problem, const wa_device *device,
                          const wa_matrix_shape *s)
{
    const uint32_t others = problem->dtype == WINATTN_FP32 ? 88 : 60;
    const uint32_t items =
        s->team_waves * s->teams * MAX(device->unit->wave, 1);
    if (device->registers >= 200 && device->register_words)
        return MIN(device->register_words / items, 255) - others;
    /* AMD's waves of 32 have half the registers of those of 64; Intel's units
     * get twice what other kernels do */
    return device->vendor == WA_VENDOR_AMD && device->wave == 32 ? 48 : 64;
}

/* Tiles of keys of a pass: as many as registers hold, and all passes alike if
 * that costs less than half of them. */
static uint32_t pass_tiles(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_shape *s, const tiling *t)
{
    const uint32_t budget = most_sums(problem, device, s);
    const uint32_t kept = t->dim_tiles * t->values;
    uint32_t most =
        budget > kept + t->values ? (budget - kept) / t->values : 1;
    most = MIN(most, t->key_tiles);
    for (uint32_t n = most; n > 0 && 2 * n >= most; n--)
        if (t->key_tiles % n == 0)
            return n;
    return wa_ceil_div(t->key_tiles, wa_ceil_div(t->key_tiles, most));
}

/* Relative; fitted to 150 measurements of eight problems on an H200 (driver
 * 580.159.04, November 2026, bench/notes.md). */
static double cost_of(const wa_problem *problem, const wa_device *device,
                      const wa_matrix_shape *s)
{
    const wa_unit *unit = device->unit;
    const tiling t = tiling_of(problem, unit, s);
    const uint32_t blocks = wa_ceil_div(problem->queries, s->block_rows);
    const double waves = s->team_waves * s->teams;
    /* computed rows and keys for each that counts */
    double cost = (double)blocks * t.wave_turns * s->team_waves *
                  unit->queries / problem->queries;
    cost *= (double)t.key_blocks * t.key_tiles * unit->tile / problem->keys;
    cost *= 1.0 + 0.02 * (blocks - 1);  /* keys and values come again */
    cost *= 1.0 + 24.0 / s->block_keys; /* what an item takes besides */
    cost *= 1.0 + 0.01 * s->team_waves; /* waiting for each other */
    cost *= 1.0 + 0.02 * (wa_ceil_div(t.key_tiles * unit->tile, s->pass_keys) -
                          1); /* what sums are multiplied by */
    if (t.streaming)
        cost *= 1.1;
    if (unit->copies_async && s->stages == 1)
        cost *= 1.3;
    /* one wave does one tile of a window at a time */
    cost *= 1.0 + 0.05 * (t.wave_turns - 1);
    if (has_terms(problem) && s->keeps_terms == 0)
        cost *= 1.4;
    /* in local memory a sum is fp32, and slower to read than a bias */
    if (problem->mask != WINATTN_MASK_NONE && s->keeps_terms == 1)
        cost *= 1.08;
    /* regions are compared; those of a shift differ in few windows */
    if (s->keeps_terms == 3)
        cost *= problem->mask == WINATTN_MASK_SHIFT ? 1.08 : 1.25;
    return cost * (1.0 + 8.0 / waves);
}

typedef struct search {
    const wa_problem *problem;
    const wa_device *device;
    double cost; /* of the best so far; 0: none yet */
    wa_matrix_shape best;
} search;

static void try_shape(search *find, wa_matrix_shape s)
{
    const wa_problem *problem = find->problem;
    const wa_device *device = find->device;
    const tiling t = tiling_of(problem, device->unit, &s);
    if ((t.streaming && t.wave_turns > 1) ||
        (s.keeps_terms == 2 && t.key_tiles * t.values > MOST_OWN_TERMS))
        return;
    s.pass_keys = pass_tiles(problem, device, &s, &t) * device->unit->tile;
    if (refusal(problem, device, &s))
        return;
    const double cost = cost_of(problem, device, &s);
    if (find->cost == 0 || cost < find->cost) {
        find->cost = cost;
        find->best = s;
    }
}

/* All ways to compute blocks of `tiles` tiles of rows. Without asynchronous
 * copies neither a ring nor several teams pay. */
static void try_teams(search *find, wa_matrix_shape s, uint32_t tiles)
{
    const bool async = find->device->unit->copies_async;
    for (s.team_waves = 1; s.team_waves <= MIN(tiles, MOST_WAVES);
         s.team_waves++)
        for (s.teams = 1;
             s.teams * s.team_waves <= (async ? MOST_WAVES : s.team_waves);
             s.teams++)
            for (s.stages = 1; s.stages <= (async ? 3 : 1); s.stages++)
                for (s.keeps_terms = 0;
                     s.keeps_terms <= (has_regions(find->problem) ? 3
                                       : has_terms(find->problem) ? 2
                                                                  : 0);
                     s.keeps_terms++)
                    try_shape(find, s);
}

/* The next smaller size of blocks after `tiles` that makes more blocks of
 * `all`, as even as they can be; 0: none. */
static uint32_t next_smaller(uint32_t all, uint32_t tiles)
{
    const uint32_t blocks = wa_ceil_div(all, tiles);
    while (--tiles > 0)
        if (wa_ceil_div(all, tiles) > blocks &&
            wa_ceil_div(all, wa_ceil_div(all, tiles)) == tiles)
            break;
    return tiles;
}

bool wa_plan_matrix(const wa_problem *problem, const wa_device *device,
                    wa_plan *plan)
{
    const char *why = impossible(problem, device);
    if (why)
        return refuse(plan, why);
    const wa_unit *unit = device->unit;
    if (!unit->proven && !device->emulates_unit &&
        problem->tier != WINATTN_TIER_MATRIX)
        return refuse(plan, "nobody has run it on such a device yet; it must "
                            "be demanded");
    const wa_matrix_shape *tuned = wa_tuned_matrix_shape(problem, device);
    if (tuned) {
        wa_matrix_shape own = *tuned;
        own.keeps_terms = has_terms(problem) ? own.keeps_terms : 0;
        if (own.keeps_terms == 1 && problem->mask == WINATTN_MASK_SHIFT)
            own.keeps_terms = 3;
        if (wa_plan_matrix_shape(problem, device, &own, plan)) {
            snprintf(plan->reason, sizeof plan->reason,
                     "measured best on devices of this kind");
            return true;
        }
    }
    const uint32_t row_tiles = wa_ceil_div(problem->queries, unit->queries);
    const uint32_t key_tiles = wa_ceil_div(problem->keys, unit->tile);
    search find = {.problem = problem, .device = device};
    for (uint32_t rows = row_tiles; rows > 0;
         rows = next_smaller(row_tiles, rows))
        for (uint32_t keys = key_tiles; keys > 0;
             keys = next_smaller(key_tiles, keys)) {
            const wa_matrix_shape s = {
                .block_rows = MIN(rows * unit->queries, problem->queries),
                .block_keys = MIN(keys * unit->tile, problem->keys)};
            try_teams(&find, s, rows);
        }
    if (find.cost == 0)
        return refuse(plan, "no shape fits the device's local memory");
    const uint32_t kept = find.best.keeps_terms;
    snprintf(plan->reason, sizeof plan->reason,
             "scores in registers of the %s%s unit%s%s", unit->name,
             device->emulates_unit ? " (emulated)" : "",
             problem->dtype == WINATTN_FP32 ? " in TF32" : "",
             !has_terms(problem) ? ""
             : kept == 2         ? ", bias and mask too"
             : kept == 1         ? ", bias and mask in local memory"
             : kept == 3         ? ", bias and regions in local memory"
                                 : ", bias and mask from global memory");
    return wa_plan_matrix_shape(problem, device, &find.best, plan);
}
