/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/matrix/backward_matrix.cl, which makes all gradients of a
 * window: every legal one whose sums fit a lane's registers has its cost. */
#include "base/text.h"
#include "family/matrix_tiling.h"
#include "plan/defines.h"
#include "plan/schedule.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Tensors that a stage of the ring holds rows of: q and dO. */
#define ROW_PLANES 2u
/* Compute units that have work at least, in parts of the device; with fewer,
 * tier local was taken to be faster. */
#define LEAST_BUSY 4u
#define MOST_STAGES 2u /* of the ring */
/* ---- What a shape follows to ---- */

/* What both passes' shapes have; a block has all keys. */
static wa_matrix_shape common_of(const wa_problem *problem,
                                 const wa_matrix_gradient_shape *s)
{
    wa_matrix_shape common = wa_matrix_rows_of(s);
    common.block_keys = problem->keys;
    return common;
}

/* Blocks of rows of a window that meet the same keys: their sums of dK and dV
 * live from one to the next. */
static uint64_t q_blocks_of(const wa_problem *problem, uint32_t block_rows)
{
    return (uint64_t)(problem->heads / problem->kv_heads) *
           wa_ceil_div(problem->queries, block_rows);
}

/* Do k, v and lse of the next window come while dK and dV of this one are
 * summed, to where this one's were? So does a team that is alone and has two
 * stages, where dK does not need k. */
static bool copies_keys_late(const wa_problem *problem,
                             const wa_matrix_unit *unit,
                             const wa_matrix_shape *s)
{
    return unit->swizzles_rows && s->windows_per_group == 1 && s->stages > 1 &&
           q_blocks_of(problem, s->block_rows) == 1 &&
           problem->variant != WINATTN_COSINE;
}

/* More than one compute S and dP twice, unless o and lse are given. */
static uint32_t subtiles_of(const wa_matrix_unit *unit,
                            const wa_matrix_gradient_shape *s,
                            const wa_matrix_tiling *t)
{
    return wa_ceil_div(t->key_tiles * unit->tile, s->subtile_keys);
}

static uint64_t ring_bytes(const wa_matrix_shape *s, const wa_matrix_tiling *t)
{
    return (uint64_t)s->windows_per_group * s->stages *
           wa_matrix_stage_bytes(t, WA_BACKWARD, ROW_PLANES);
}

/* As the kernel declares its arrays; has_tokens: with tables of where tokens
 * lie. */
static uint64_t bytes_of_arrays(const wa_problem *problem,
                                const wa_device *device,
                                const wa_matrix_shape *s,
                                const wa_matrix_tiling *t, bool has_tokens)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const bool takes_o = t->key_tiles * unit->tile > s->subtile_keys &&
                         t->dim_tiles <= WA_MATRIX_OUT_TILES &&
                         unit->queries % unit->tile == 0;
    /* P and dS of a team's rows, on their way to the waves that have keys */
    const uint64_t weight_rows =
        (uint64_t)wa_ceil_div(t->row_tiles * unit->queries, unit->tile) *
        unit->tile;
    const bool late_keys = copies_keys_late(problem, unit, s);
    const uint64_t weight_pitch =
        t->key_tiles * unit->tile + (late_keys ? 0 : wa_matrix_chunk(problem));
    const bool is_small =
        problem->queries <= unit->tile || problem->keys <= unit->tile;
    const uint64_t parts = is_small ? 2 : 1; /* of a number */
    const uint64_t waves =
        (uint64_t)s->windows_per_group * s->waves_per_window;
    /* what a team has besides its ring and rows that leave starts and ends
     * with a line, as these do: weights, tables of tokens, lse, in fp16 the
     * powers of dS */
    const uint64_t line = unit->swizzles_rows ? 128 : WA_MATRIX_CHUNK_BYTES;
    const uint64_t own =
        2 * parts * weight_rows * weight_pitch * t->element_bytes +
        (has_tokens ? (uint64_t)(s->stages + 1) * problem->queries * 16 : 0) +
        (uint64_t)(late_keys ? 1 : s->stages) * s->block_rows * 4 +
        (problem->dtype == WINATTN_FP16 ? s->waves_per_window * 4 : 0);
    uint64_t bytes =
        wa_matrix_local_bytes(problem, device, s, t, WA_BACKWARD, ROW_PLANES) +
        s->windows_per_group * ((own + line - 1) / line * line);
    if (late_keys) /* keys have one stage */
        bytes -= (s->stages - 1) * wa_matrix_stage_bytes(t, WA_BACKWARD, 0);
    if (problem->variant == WINATTN_COSINE) /* each lane's d_logit_scale */
        bytes += waves * unit->wave * 4;
    /* the largest |v| of this window and of the next */
    if (problem->dtype == WINATTN_FP16 && takes_o)
        bytes += s->windows_per_group * (uint64_t)8;
    if (wa_problem_padding(problem) == 1) /* each wave's d_pad_k, d_pad_v */
        bytes += waves * 2 * t->dim_tiles * unit->tile * 4;
    return bytes;
}

/* The kernel keeps tables of where tokens lie, KEEPS_TOKENS in
 * cl/common/tokens.cl: on grids, where a window has one q block and there is
 * room. */
static bool keeps_tokens(const wa_problem *problem, const wa_device *device,
                         const wa_matrix_shape *s, const wa_matrix_tiling *t)
{
    return problem->grid.used && q_blocks_of(problem, s->block_rows) == 1 &&
           bytes_of_arrays(problem, device, s, t, true) + WA_MATRIX_SLACK <=
               device->local_bytes;
}

static uint64_t local_bytes(const wa_problem *problem, const wa_device *device,
                            const wa_matrix_shape *s,
                            const wa_matrix_tiling *t)
{
    return bytes_of_arrays(problem, device, s, t,
                           keeps_tokens(problem, device, s, t));
}

/* NULL if kernel and device allow the shape, else why not; registers apart. */
static const char *refusal(const wa_problem *problem, const wa_device *device,
                           const wa_matrix_gradient_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape common = common_of(problem, s);
    const bool has_bias = problem->bias != WINATTN_BIAS_NONE;
    const char *why = wa_matrix_refusal(problem, device, &common);
    if (why)
        return why;
    const wa_matrix_tiling t = wa_matrix_tiling_of(problem, unit, &common);
    const uint64_t q_blocks = q_blocks_of(problem, s->block_rows);
    if (s->stages > MOST_STAGES)
        return "a ring has too many stages";
    if (t.wave_turns > 1)
        return "a team has too few waves for its rows";
    if (s->bias_cache == WA_BIAS_CACHE_REGISTERS)
        return "registers have no room for bias and mask";
    if (s->bias_cache == WA_BIAS_CACHE_LOCAL &&
        !wa_matrix_boundaries_repeat(problem, s->windows_per_group))
        return "too few windows have the same shift boundaries for all teams";
    if (s->bias_cache != WA_BIAS_CACHE_NONE && q_blocks > 1)
        return "other blocks of rows have another bias and mask";
    if (s->keeps_dbias > 1 || (s->keeps_dbias && (!has_bias || q_blocks > 1)))
        return "sums of a bias stay in registers only where a wave has the "
               "same logits always";
    if (has_bias && !s->keeps_dbias && s->windows_per_group > 1)
        return "teams cannot share sums of a bias in the workspace";
    if (s->keeps_dbias && s->windows_per_group > 1 &&
        ring_bytes(&common, &t) < (uint64_t)t.row_tiles * t.key_tiles *
                                      unit->queries * unit->tile * 4)
        return "sums of a bias do not fit the ring, where teams add theirs";
    if (local_bytes(problem, device, &common, &t) + WA_MATRIX_SLACK >
        device->local_bytes)
        return "local memory of the device is too small";
    return NULL;
}

/* ---- The plan ---- */

static void set_kernel(const wa_problem *problem, const wa_device *device,
                       const wa_matrix_gradient_shape *s, wa_step *kernel)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape common = common_of(problem, s);
    const wa_matrix_tiling t = wa_matrix_tiling_of(problem, unit, &common);
    char *text = kernel->defines;
    const size_t size = sizeof kernel->defines;
    wa_begin_step(problem, device, unit->backward_kernel, s->block_rows,
                  problem->keys,
                  s->waves_per_window * s->windows_per_group * unit->wave,
                  local_bytes(problem, device, &common, &t), kernel);
    wa_append_switch(text, size, WA_SWITCH(SINGLE_Q_BLOCK),
                     q_blocks_of(problem, s->block_rows) == 1);
    wa_append_switch(text, size, WA_SWITCH(KEEPS_DBIAS), s->keeps_dbias);
    wa_append_switch(text, size, WA_SWITCH(KEEPS_TOKENS),
                     keeps_tokens(problem, device, &common, &t));
    wa_append_matrix_shape(&common, device, text, size);
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_matrix_gradient_shape *shape = &demanded->matrix_backward;
    const char *why = wa_matrix_impossible(problem, device, WA_BACKWARD);
    if (!why)
        why = refusal(problem, device, shape);
    if (why)
        return why;
    wa_step *kernel = &plan->step[WA_STEP_KEYS];
    set_kernel(problem, device, shape, kernel);
    plan->fused = true;
    plan->schedule.row_blocks =
        wa_ceil_div(problem->queries, shape->block_rows);
    plan->schedule.key_blocks = 1;
    plan->schedule.windows_per_group = shape->windows_per_group;
    /* no more than start together, of which each head has as many */
    const uint32_t groups = device->compute_units *
                            wa_matrix_resident(device, kernel->local_bytes);
    plan->schedule.busy_groups = groups < problem->kv_heads
                                     ? problem->kv_heads
                                     : groups - groups % problem->kv_heads;
    wa_set_matrix_access(problem, plan);
    return NULL;
}

/* ---- All shapes ---- */

/* Sums that a lane has besides those of a pass. */
static uint64_t kept_sums(const wa_problem *problem,
                          const wa_matrix_unit *unit,
                          const wa_matrix_gradient_shape *s,
                          const wa_matrix_tiling *t)
{
    /* dQ; of all channels where several passes add to it, or where its norm
     * counts */
    const bool all =
        subtiles_of(unit, s, t) > 1 || problem->variant == WINATTN_COSINE;
    uint64_t sums = (uint64_t)(all ? t->dim_tiles
                                   : MIN(t->dim_tiles, WA_MATRIX_OUT_TILES)) *
                    t->acc_per_lane;
    if (s->keeps_dbias)
        sums += (uint64_t)t->key_tiles * t->acc_per_lane;
    /* dK and dV of a wave's share of keys; compilers were seen to take as much
     * again */
    if (q_blocks_of(problem, s->block_rows) > 1)
        sums += 2 * 2ull * t->dim_tiles * t->acc_per_lane *
                wa_ceil_div(wa_ceil_div(problem->keys, unit->queries),
                            s->waves_per_window);
    if (problem->dtype == WINATTN_FP16) /* how rows of dS are rescaled */
        sums += 8;
    return sums;
}

/* Relative: products of tiles that a compute unit does for each logit that
 * counts, and what keeps it waiting. Fitted to 40 measurements of seven
 * problems on an H200 (driver 580.159.04, November 2026). */
static double cost_of(const wa_problem *problem, const wa_device *device,
                      const wa_matrix_gradient_shape *s)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_matrix_shape common = common_of(problem, s);
    const wa_matrix_tiling t = wa_matrix_tiling_of(problem, unit, &common);
    const uint32_t blocks = wa_ceil_div(problem->queries, s->block_rows);
    const double waves = s->waves_per_window * s->windows_per_group;
    /* S, dP twice and dQ of each wave's rows; fitted before dP of one subtile
     * was kept */
    const double row_products = subtiles_of(unit, s, &t) > 1 ? 5.0 : 4.0;
    /* dK and dV of each wave's keys */
    const uint32_t key_shares = wa_ceil_div(problem->keys, unit->queries);
    const double key_products = 2.0 *
                                wa_ceil_div(key_shares, s->waves_per_window) *
                                s->waves_per_window / key_shares;
    /* computed rows and keys for each that counts */
    double cost = row_products * blocks * s->waves_per_window * unit->queries;
    cost += key_products * blocks * t.row_tiles * unit->queries;
    cost /= problem->queries;
    cost *= (double)t.key_tiles * unit->tile / problem->keys;
    cost *= 1.0 + 0.05 * (blocks - 1); /* a block's barriers and copies */
    cost *= 1.0 + 0.01 * s->waves_per_window; /* waiting for each other */
    if (problem->bias != WINATTN_BIAS_NONE && !s->keeps_dbias)
        cost *= 3.0; /* read and written for each window */
    if (wa_problem_has_score_bias(problem) &&
        s->bias_cache == WA_BIAS_CACHE_NONE)
        cost *= 1.25;
    /* regions are compared; those of a shift differ in few windows */
    if (s->bias_cache == WA_BIAS_CACHE_LOCAL_AND_REGIONS)
        cost *= MASK_FOLLOWS_GRID(problem->mask) ? 1.08 : 1.28;
    if (unit->copies_async && s->stages == 1)
        cost *= 1.05; /* other teams compute meanwhile */
    return cost * (1.0 + 5.0 / waves);
}

/* Tiles of keys of a pass: all, or else as many as registers hold; 0: not even
 * one. */
static uint32_t tiles_per_subtile(const wa_problem *problem,
                                  const wa_matrix_unit *unit,
                                  const wa_matrix_gradient_shape *shape,
                                  const wa_matrix_tiling *t, uint32_t budget)
{
    const uint64_t of_tile = t->acc_per_lane; /* S */
    wa_matrix_gradient_shape s = *shape;
    s.subtile_keys = t->key_tiles * unit->tile;
    if (kept_sums(problem, unit, &s, t) + t->key_tiles * of_tile <= budget)
        return t->key_tiles;
    s.subtile_keys = unit->tile;
    const uint64_t kept = kept_sums(problem, unit, &s, t);
    return kept + of_tile > budget
               ? 0
               : wa_matrix_tiles_per_subtile(
                     t->key_tiles, (uint32_t)((budget - kept) / of_tile));
}

static void try_shape(wa_search *find, wa_matrix_gradient_shape s)
{
    const wa_problem *problem = find->problem;
    const wa_device *device = find->device;
    const wa_matrix_unit *unit = device->matrix_unit;
    find->visited++;
    s.subtile_keys = unit->tile;
    const wa_matrix_shape common = common_of(problem, &s);
    const wa_matrix_tiling t = wa_matrix_tiling_of(problem, unit, &common);
    /* a compute unit's registers lie in four parts, each of which has the same
     * number of waves */
    const uint32_t budget = wa_matrix_most_sums(
        problem, device,
        wa_ceil_div(s.waves_per_window * s.windows_per_group, 4) * 4);
    const uint32_t tiles = tiles_per_subtile(problem, unit, &s, &t, budget);
    if (tiles > 0)
        s.subtile_keys = tiles * unit->tile;
    if (refusal(problem, device, &s))
        return;
    /* whoever demands the tier may have a kernel that spills */
    find->fits = true;
    if (tiles == 0 && problem->tier != WINATTN_TIER_MATRIX)
        return;
    double cost = cost_of(problem, device, &s);
    if (tiles == 0)
        cost *= 1.0 + (double)kept_sums(problem, unit, &s, &t) / budget;
    const wa_tuned_shape shape = {.matrix_backward = s};
    find->visit(find->data, &shape, cost);
}

/* All ways to compute blocks of `tiles` tiles of rows. Without asynchronous
 * copies neither a ring nor several teams pay. */
static void try_teams(wa_search *find, wa_matrix_gradient_shape s,
                      uint32_t tiles)
{
    static const uint32_t bias_caches[] = {0, 1, 3}; /* of bias and mask */
    const bool async = find->device->matrix_unit->copies_async;
    const uint32_t bias_cache_count =
        wa_matrix_has_regions(find->problem)       ? 3
        : wa_problem_has_score_bias(find->problem) ? 2
                                                   : 1;
    const int biases = find->problem->bias != WINATTN_BIAS_NONE ? 2 : 1;
    for (s.waves_per_window = tiles;
         s.waves_per_window <= WA_MATRIX_PLANNED_WAVES; s.waves_per_window++)
        for (s.windows_per_group = 1;
             s.windows_per_group * s.waves_per_window <=
             (async ? WA_MATRIX_PLANNED_WAVES : s.waves_per_window);
             s.windows_per_group++)
            for (s.stages = 1; s.stages <= (async ? MOST_STAGES : 1);
                 s.stages++)
                for (uint32_t i = 0; i < bias_cache_count; i++)
                    for (int keeps = 0; keeps < biases; keeps++) {
                        s.bias_cache = bias_caches[i];
                        s.keeps_dbias = (uint32_t)keeps;
                        try_shape(find, s);
                    }
}

/* In one kernel, a work-group has all keys of a window, and the workspace
 * bounds partial sums of a large bias. */
static bool leaves_idle(const wa_problem *problem, const wa_device *device)
{
    return problem->tier != WINATTN_TIER_MATRIX &&
           problem->bias != WINATTN_BIAS_NONE &&
           wa_most_bias_splits(problem, WINATTN_TIER_MATRIX) *
                   problem->kv_heads * LEAST_BUSY <
               device->compute_units;
}

/* A wave has one tile of rows. */
static void visit(wa_search *find)
{
    const wa_problem *problem = find->problem;
    const wa_matrix_unit *unit = find->device->matrix_unit;
    const uint32_t all = wa_ceil_div(problem->queries, unit->queries);
    for (uint32_t rows = wa_even_size(all, WA_MATRIX_PLANNED_WAVES);
         rows > 0 && !leaves_idle(problem, find->device);
         rows = wa_even_size(all, rows - 1)) {
        const wa_matrix_gradient_shape s = {
            .block_rows = MIN(rows * unit->queries, problem->queries)};
        try_teams(find, s, rows);
    }
}

static bool has_shape(const wa_tuned_shape *shape)
{
    return shape->matrix_backward.block_keys == 0;
}

void wa_explain_matrix_backward(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *shape, char *reason)
{
    const wa_matrix_gradient_shape *best = &shape->matrix_backward;
    const bool again = !best->block_keys && best->subtile_keys < problem->keys;
    wa_append(
        reason, WA_REASON_SIZE, "products on the %s unit%s%s%s%s",
        device->matrix_unit->name,
        best->block_keys ? ", rows and keys in kernels of their own" : "",
        wa_matrix_bias_place(problem, best->bias_cache),
        best->keeps_dbias == WA_DBIAS_REGISTERS
            ? ", sums of dbias in registers"
        : best->keeps_dbias == WA_DBIAS_LOCAL
            ? ", sums of dbias in local memory"
            : "",
        again ? ", logits computed twice unless o and lse are given" : "");
}

const wa_family wa_matrix_whole = {.engine = WA_ENGINE_MATRIX,
                                   .pass = WA_BACKWARD,
                                   .tuned = WA_MATRIX_BACKWARD,
                                   .refusal = wa_matrix_unwanted,
                                   .has_shape = has_shape,
                                   .visit = {visit},
                                   .say_none = wa_matrix_say_none,
                                   .explain = wa_explain_matrix_backward,
                                   .take = take};
