/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/matrix/backward_matrix.cl, which makes all gradients of a
 * window: every legal one whose sums fit a lane's registers has its cost. */
#include "family/matrix_gradient.h"
#include "plan/defines.h"
#include "plan/schedule.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Tensors that a stage of the ring holds rows of: q and dO. */
#define ROW_PLANES 2u

/* ---- What a shape follows to ---- */

/* Do k, v and lse of the next window come while dK and dV of this one are
 * summed, to where this one's were? So does a team that is alone and has two
 * stages, where dK does not need k. */
static bool copies_keys_late(const wa_matrix_side *w)
{
    return w->device->matrix_unit->swizzles_rows &&
           w->shape.windows_per_group == 1 && w->shape.stages > 1 &&
           w->problem->variant != WINATTN_COSINE;
}

/* More than one pass computes S and dP twice, unless o and lse are given. */
static bool has_passes(const wa_matrix_side *w)
{
    return w->tiling.key_tiles * w->device->matrix_unit->tile >
           w->shape.subtile_keys;
}

/* What a team has besides its ring and rows that leave: weights, tables of
 * tokens, lse, in fp16 the powers of dS. It starts and ends with a line, as
 * these do. */
static uint64_t team_bytes(const wa_matrix_side *w, bool has_tokens)
{
    const wa_problem *problem = w->problem;
    const wa_matrix_unit *unit = w->device->matrix_unit;
    const wa_matrix_shape *s = &w->shape;
    const wa_matrix_tiling *t = &w->tiling;
    const bool late_keys = copies_keys_late(w);
    /* P and dS of a team's rows, on their way to the waves that have keys */
    const uint64_t weight_rows =
        (uint64_t)wa_ceil_div(t->row_tiles * unit->queries, unit->tile) *
        unit->tile;
    const uint64_t weight_pitch =
        t->key_tiles * unit->tile + (late_keys ? 0 : wa_matrix_chunk(problem));
    const bool is_small =
        problem->queries <= unit->tile || problem->keys <= unit->tile;
    const uint64_t parts = is_small ? 2 : 1; /* of a number */
    const uint64_t line = unit->swizzles_rows ? 128 : WA_MATRIX_CHUNK_BYTES;
    const uint64_t bytes =
        2 * parts * weight_rows * weight_pitch * t->element_bytes +
        (has_tokens ? (uint64_t)(s->stages + 1) * problem->queries * 16 : 0) +
        (uint64_t)(late_keys ? 1 : s->stages) * s->block_rows * 4 +
        (problem->dtype == WINATTN_FP16 ? s->waves_per_window * 4 : 0);
    return (bytes + line - 1) / line * line;
}

/* As the kernel declares its arrays; has_tokens: with tables of where tokens
 * lie. */
static uint64_t bytes_of_arrays(const wa_matrix_side *w, bool has_tokens)
{
    const wa_problem *problem = w->problem;
    const wa_matrix_unit *unit = w->device->matrix_unit;
    const wa_matrix_tiling *t = &w->tiling;
    const bool takes_o = has_passes(w) &&
                         t->dim_tiles <= WA_MATRIX_OUT_TILES &&
                         unit->queries % unit->tile == 0;
    uint64_t bytes = wa_matrix_local_bytes(problem, w->device, &w->shape, t,
                                           WA_BACKWARD, ROW_PLANES) +
                     w->shape.windows_per_group * team_bytes(w, has_tokens);
    if (copies_keys_late(w)) /* keys have one stage */
        bytes -=
            (w->shape.stages - 1) * wa_matrix_stage_bytes(t, WA_BACKWARD, 0);
    if (problem->variant == WINATTN_COSINE) /* each lane's d_logit_scale */
        bytes += (uint64_t)wa_matrix_waves(w) * unit->wave * 4;
    /* the largest |v| of this window and of the next */
    if (problem->dtype == WINATTN_FP16 && takes_o)
        bytes += w->shape.windows_per_group * (uint64_t)8;
    if (wa_problem_padding(problem) == 1) /* each wave's d_pad_k, d_pad_v */
        bytes +=
            (uint64_t)wa_matrix_waves(w) * 2 * t->dim_tiles * unit->tile * 4;
    return bytes;
}

/* The kernel keeps tables of where tokens lie, KEEPS_TOKENS in
 * cl/common/tokens.cl: on grids, where there is room. */
static bool keeps_tokens(const wa_matrix_side *w)
{
    return w->problem->grid.used &&
           bytes_of_arrays(w, true) + WA_MATRIX_SLACK <=
               w->device->local_bytes;
}

static uint64_t local_bytes(const wa_matrix_side *w)
{
    return bytes_of_arrays(w, keeps_tokens(w));
}

/* What refuses a shape whose block is a window, registers apart; or NULL. */
static const char *begin(const wa_problem *problem, const wa_device *device,
                         const wa_matrix_shape *shape, uint32_t keeps_dbias,
                         wa_matrix_side *w)
{
    WA_REFUSE(wa_matrix_begin_side(problem, device, shape, keeps_dbias, w));
    WA_REFUSE(wa_matrix_dbias_refusal(w, ROW_PLANES));
    if (shape->block_rows < problem->queries ||
        problem->heads != problem->kv_heads)
        return "other rows see the same keys";
    if (keeps_dbias == WA_DBIAS_LOCAL)
        return "sums of a bias stay in registers, or in the workspace";
    return wa_matrix_too_large(w, local_bytes(w));
}

/* ---- The plan ---- */

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    wa_matrix_shape shape = demanded->matrix_backward.rows;
    wa_matrix_side w;
    shape.block_keys = problem->keys;
    WA_REFUSE(wa_matrix_impossible(problem, device, WA_BACKWARD));
    WA_REFUSE(begin(problem, device, &shape,
                    demanded->matrix_backward.keeps_dbias, &w));
    wa_step *step = &plan->step[WA_STEP_KEYS];
    wa_begin_step(problem, device, device->matrix_unit->backward_kernel,
                  shape.block_rows, shape.block_keys,
                  wa_matrix_waves(&w) * device->matrix_unit->wave,
                  local_bytes(&w), step);
    wa_step_switch(step, WA_SWITCH(KEEPS_DBIAS), w.keeps_dbias);
    wa_step_switch(step, WA_SWITCH(KEEPS_TOKENS), keeps_tokens(&w));
    wa_step_matrix_shape(step, &shape, device);
    plan->fused = true;
    plan->schedule.row_blocks = plan->schedule.key_blocks = 1;
    plan->schedule.windows_per_group = shape.windows_per_group;
    /* no more than start together, of which each head has as many */
    plan->schedule.busy_groups = (uint32_t)wa_whole_splits(
        (uint64_t)device->compute_units *
            wa_matrix_resident(device, step->local_bytes),
        problem->kv_heads);
    wa_set_matrix_access(problem, plan);
    return NULL;
}

/* ---- All shapes ---- */

/* Sums that a lane has besides those of a pass. */
static uint64_t kept_sums(const wa_matrix_side *w)
{
    const wa_problem *problem = w->problem;
    const wa_matrix_tiling *t = &w->tiling;
    /* dQ; of all channels where several passes add to it, or where its norm
     * counts */
    const bool all = has_passes(w) || problem->variant == WINATTN_COSINE;
    uint64_t sums = (uint64_t)(all ? t->dim_tiles
                                   : MIN(t->dim_tiles, WA_MATRIX_OUT_TILES)) *
                    t->acc_per_lane;
    if (w->keeps_dbias)
        sums += (uint64_t)t->key_tiles * t->acc_per_lane;
    if (problem->dtype == WINATTN_FP16) /* how rows of dS are rescaled */
        sums += 8;
    return sums;
}

/* Relative: products of tiles that a compute unit does for each logit that
 * counts, and what keeps it waiting. Fitted to 40 measurements of seven
 * problems on an H200 (driver 580.159.04, November 2026). */
static double cost_of(const wa_matrix_side *w)
{
    const wa_problem *problem = w->problem;
    const wa_matrix_unit *unit = w->device->matrix_unit;
    const wa_matrix_shape *s = &w->shape;
    const wa_matrix_tiling *t = &w->tiling;
    /* S, dP twice and dQ of each wave's rows; fitted before dP of one subtile
     * was kept */
    const double row_products = has_passes(w) ? 5.0 : 4.0;
    /* dK and dV of each wave's keys */
    const uint32_t key_shares = wa_ceil_div(problem->keys, unit->queries);
    const double key_products = 2.0 *
                                wa_ceil_div(key_shares, s->waves_per_window) *
                                s->waves_per_window / key_shares;
    /* computed rows and keys for each that counts */
    double cost =
        (row_products * s->waves_per_window + key_products * t->row_tiles) *
        unit->queries / problem->queries;
    cost *= (double)t->key_tiles * unit->tile / problem->keys;
    if (unit->copies_async && s->stages == 1)
        cost *= 1.05; /* other teams compute meanwhile */
    return cost * wa_matrix_waits(w);
}

/* A pass has all keys, or else as many as registers hold. */
static double set_pass(const wa_search *find, wa_matrix_side *w)
{
    const wa_matrix_tiling *t = &w->tiling;
    const uint32_t tile = w->device->matrix_unit->tile;
    const uint32_t budget =
        wa_matrix_most_sums(w->problem, w->device, wa_matrix_waves(w));
    w->shape.subtile_keys = t->key_tiles * tile;
    if (kept_sums(w) + (uint64_t)t->key_tiles * t->acc_per_lane <= budget)
        return 1.0;
    w->shape.subtile_keys = tile;
    return wa_matrix_set_pass(find, kept_sums(w), 1, t->key_tiles, w);
}

static void try_shape(wa_search *find, const wa_problem *problem,
                      wa_matrix_shape s)
{
    const uint32_t places = problem->bias != WINATTN_BIAS_NONE ? 2 : 1;
    for (uint32_t keeps = 0; keeps < places; keeps++) {
        wa_matrix_side w;
        if (begin(problem, find->device, &s, keeps, &w))
            continue;
        const double spills = set_pass(find, &w);
        wa_tuned_shape shape = {
            .matrix_backward = {.rows = w.shape, .keeps_dbias = keeps}};
        shape.matrix_backward.rows.block_keys = 0; /* of one kernel */
        find->fits = true;
        if (spills > 0)
            find->visit(find->data, &shape, spills * cost_of(&w));
    }
}

static void visit(wa_search *find)
{
    wa_visit_matrix_shapes(find, find->problem, WA_BACKWARD,
                           WA_MATRIX_PLANNED_WAVES, true, try_shape);
}

static bool has_shape(const wa_tuned_shape *shape)
{
    return shape->matrix_backward.rows.block_keys == 0;
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
