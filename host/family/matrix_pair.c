/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/matrix/backward_rows_matrix.cl and
 * cl/matrix/backward_keys_matrix.cl, which share the work of a gradient. Those
 * of either kernel have costs, whose sum is the pair's. */
#include "family/matrix_gradient.h"
#include "plan/defines.h"

#include "../cl/common/args.h"

/* Tensors that a stage of the ring holds rows of: q and dO, and o if delta may
 * be taken from it; k and v. */
#define ROW_PLANES 2u
#define KEY_PLANES 2u
/* Registers for what the kernel of rows knows of a tile's, with which ptxas
 * was seen to spill few. */
#define ROW_REGISTERS 24u
/* And for norms. */
#define NORM_REGISTERS 8u
#define MOST_SPLITS 8u /* of a tile of rows */
/* Tiles of keys of a pass: more in flight gain nothing. */
#define MOST_TILES 4u
/* Bytes of the bounds of an item's keys, this one's and the next's. */
#define BOUND_BYTES 24u

/* Are dV and dK more sums than a lane has registers for, so that work-groups
 * make one of them each? */
static bool splits_dk_dv(const wa_matrix_side *s)
{
    return (2 * s->tiling.dim_tiles + 1) * s->tiling.acc_per_lane >
           wa_matrix_most_sums(s->problem, s->device, 8);
}

/* Waves that share a tile of rows in the kernel of rows. */
static uint32_t splits_of(const wa_matrix_side *s)
{
    return s->shape.waves_per_window / s->tiling.row_tiles;
}

/* O_SERVES of cl/matrix/split_rows.cl: can the kernel of rows take delta from
 * o? */
static bool o_serves(const wa_matrix_side *s)
{
    const wa_matrix_unit *unit = s->device->matrix_unit;
    return unit->votes && s->problem->queries > unit->tile &&
           s->problem->keys > unit->tile &&
           !(s->tiling.streaming && s->shape.windows_per_group > 1);
}

/* ---- Local memory, as the kernels declare their arrays ---- */

static uint64_t rows_bytes(const wa_matrix_side *s)
{
    const wa_problem *problem = s->problem;
    const wa_matrix_unit *unit = s->device->matrix_unit;
    const uint64_t windows = s->shape.windows_per_group;
    uint64_t bytes =
        wa_matrix_local_bytes(problem, s->device, &s->shape, &s->tiling,
                              WA_BACKWARD, ROW_PLANES + o_serves(s));
    if (s->keeps_dbias == WA_DBIAS_LOCAL)
        bytes += wa_matrix_dbias_bytes(s);
    /* dQ of waves that share a tile of rows */
    bytes += windows * s->tiling.row_tiles * (splits_of(s) - 1) *
             s->tiling.dim_tiles * unit->queries * unit->tile * 4;
    /* lse */
    bytes += windows * s->shape.stages * s->shape.block_rows * 4;
    if (problem->dtype == WINATTN_FP16)
        bytes += windows * BOUND_BYTES;
    if (o_serves(s) && s->tiling.streaming)
        bytes += 4;                         /* whether errors show */
    if (problem->variant == WINATTN_COSINE) /* each lane's d_logit_scale */
        bytes += (uint64_t)wa_matrix_waves(s) * unit->wave * 4;
    return bytes;
}

static uint64_t keys_bytes(const wa_matrix_side *s)
{
    const wa_problem *problem = s->problem;
    const uint32_t tile = s->device->matrix_unit->tile;
    const uint64_t windows = s->shape.windows_per_group;
    const uint32_t block_n = s->shape.block_keys; /* rows of a q block */
    uint64_t bytes = wa_matrix_local_bytes(
        problem, s->device, &s->shape, &s->tiling, WA_BACKWARD, KEY_PLANES);
    if (problem->variant == WINATTN_COSINE) /* theirs the workspace has */
        bytes -= windows * (block_n + (block_n % tile != 0)) * 4;
    bytes += windows * s->shape.stages * block_n * ROW_NUMBERS * 4;
    if (wa_problem_padding(problem) == 1) /* each wave's d_pad_k, d_pad_v */
        bytes +=
            (uint64_t)wa_matrix_waves(s) * 2 * s->tiling.dim_tiles * tile * 4;
    return bytes;
}

/* ---- What is refused; registers apart ---- */

static const char *begin_rows(const wa_problem *problem,
                              const wa_device *device,
                              const wa_matrix_shape *shape,
                              uint32_t keeps_dbias, wa_matrix_side *s)
{
    const wa_matrix_tiling *t = &s->tiling;
    const uint32_t tile = device->matrix_unit->tile;
    WA_REFUSE(wa_matrix_begin_side(problem, device, shape, keeps_dbias, s));
    WA_REFUSE(wa_matrix_dbias_refusal(s, ROW_PLANES + o_serves(s)));
    const uint32_t splits = splits_of(s);
    if (shape->waves_per_window % t->row_tiles != 0)
        return "tiles of rows have different numbers of waves";
    if (splits > 1 &&
        (problem->keys % shape->block_keys != 0 ||
         shape->block_keys % tile != 0 || t->key_tiles % splits != 0 ||
         t->key_tiles / splits % (shape->subtile_keys / tile)))
        return "waves that share rows have no equal shares of keys";
    return wa_matrix_too_large(s, rows_bytes(s));
}

/* It owns no rows of dBias. */
static const char *begin_keys(const wa_problem *transposed,
                              const wa_device *device,
                              const wa_matrix_shape *shape, wa_matrix_side *s)
{
    WA_REFUSE(wa_matrix_begin_side(transposed, device, shape,
                                   WA_DBIAS_REGISTERS, s));
    if (shape->bias_cache != WA_BIAS_CACHE_NONE &&
        transposed->bias != WINATTN_BIAS_NONE &&
        transposed->heads != transposed->kv_heads)
        return "other heads have another bias";
    return wa_matrix_too_large(s, keys_bytes(s));
}

/* ---- The plan ---- */

static void set_plan(const wa_matrix_side *rows, const wa_matrix_side *keys,
                     wa_plan *plan)
{
    const wa_problem *problem = rows->problem;
    const wa_device *device = rows->device;
    const wa_matrix_unit *unit = device->matrix_unit;
    wa_schedule *s = &plan->schedule;
    wa_step *first = &plan->step[WA_STEP_ROWS];
    wa_step *last = &plan->step[WA_STEP_KEYS];
    wa_begin_step(problem, device, unit->rows_kernel, rows->shape.block_rows,
                  rows->shape.block_keys, wa_matrix_waves(rows) * unit->wave,
                  rows_bytes(rows), first);
    wa_step_switch(first, WA_SWITCH(ROW_PLANES), ROW_PLANES + o_serves(rows));
    wa_step_switch(first, WA_SWITCH(KEEPS_DBIAS), rows->keeps_dbias);
    wa_step_matrix_shape(first, &rows->shape, device);
    wa_begin_step(problem, device, unit->keys_kernel, keys->shape.block_keys,
                  keys->shape.block_rows, wa_matrix_waves(keys) * unit->wave,
                  keys_bytes(keys), last);
    s->key_parts = splits_dk_dv(keys) ? 2 : 1;
    wa_step_switch(last, WA_SWITCH(SPLIT_DK_DV), s->key_parts - 1);
    wa_step_matrix_shape(last, &keys->shape, device);
    plan->fused = false;
    s->row_blocks = wa_ceil_div(problem->queries, rows->shape.block_rows);
    s->key_blocks = wa_ceil_div(problem->keys, keys->shape.block_rows);
    s->row_windows_per_group = rows->shape.windows_per_group;
    /* those that start together */
    s->row_groups =
        device->compute_units * wa_matrix_resident(device, first->local_bytes);
    s->windows_per_group = keys->shape.windows_per_group;
    s->busy_groups =
        device->compute_units * wa_matrix_resident(device, last->local_bytes);
    wa_set_matrix_access(problem, plan);
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_matrix_gradient_shape *shape = &demanded->matrix_backward;
    const wa_matrix_shape of_keys = wa_matrix_transpose_shape(&shape->keys);
    const wa_problem transposed = wa_matrix_transpose(problem);
    wa_matrix_side rows, keys;
    WA_REFUSE(wa_matrix_impossible(problem, device, WA_BACKWARD));
    WA_REFUSE(
        begin_rows(problem, device, &shape->rows, shape->keeps_dbias, &rows));
    WA_REFUSE(begin_keys(&transposed, device, &of_keys, &keys));
    set_plan(&rows, &keys, plan);
    return NULL;
}

/* ---- All shapes ---- */

/* Fitted to nothing yet: the products that a compute unit does for each logit
 * that counts, and what was seen of the other kernels for matrix units. */
static double cost_of(const wa_matrix_side *s, double products)
{
    const wa_matrix_unit *unit = s->device->matrix_unit;
    const wa_problem *problem = s->problem;
    const uint32_t blocks = wa_ceil_div(problem->queries, s->shape.block_rows);
    double cost = products * blocks * s->shape.waves_per_window *
                  unit->queries / problem->queries;
    cost *= (double)s->tiling.key_blocks * s->tiling.key_tiles * unit->tile /
            problem->keys;
    cost *= 1.0 + 0.02 * (blocks - 1);        /* the other side comes again */
    cost *= 1.0 + 24.0 / s->shape.block_keys; /* what an item takes besides */
    if (unit->copies_async && s->shape.stages == 1)
        cost *= s->shape.windows_per_group > 1 ? 1.1 : 1.3;
    return cost * wa_matrix_waits(s);
}

/* Sums that a lane has besides those of a pass: dQ and dP, or dK, dV and dP.
 */
static uint64_t row_sums(const wa_matrix_side *s)
{
    const wa_matrix_tiling *t = &s->tiling;
    uint64_t sums = (uint64_t)(t->dim_tiles + 1) * t->acc_per_lane;
    if (s->device->matrix_unit->copies_async)
        sums += ROW_REGISTERS;
    if (s->problem->variant == WINATTN_COSINE)
        sums += NORM_REGISTERS;
    if (s->keeps_dbias == WA_DBIAS_REGISTERS)
        sums += (uint64_t)t->key_tiles / splits_of(s) * t->acc_per_lane;
    if (s->problem->dtype == WINATTN_FP16) /* how rows of dS are rescaled */
        sums += 8;
    return sums;
}

static uint64_t key_sums(const wa_matrix_side *s)
{
    const uint64_t gradients = splits_dk_dv(s) ? 1 : 2;
    return (gradients * s->tiling.dim_tiles + 1) * s->tiling.acc_per_lane;
}

static void try_rows(wa_search *find, const wa_problem *problem,
                     wa_matrix_shape own)
{
    const uint32_t places = problem->bias != WINATTN_BIAS_NONE ? 3 : 1;
    for (uint32_t dbias = 0; dbias < places; dbias++) {
        wa_tuned_shape shape = find->shape;
        wa_matrix_side s;
        if (begin_rows(problem, find->device, &own, dbias, &s))
            continue;
        const uint32_t splits = splits_of(&s);
        const double spills =
            wa_matrix_set_pass(find, row_sums(&s), splits, MOST_TILES, &s);
        /* S, dP and dQ, which waves that share them add up */
        const double products = 3.0 / splits * (1.0 + 0.02 * (splits - 1));
        find->fits = true;
        shape.matrix_backward.rows = s.shape;
        shape.matrix_backward.keeps_dbias = dbias;
        if (spills > 0)
            find->visit(find->data, &shape, spills * cost_of(&s, products));
    }
}

static void try_keys(wa_search *find, const wa_problem *transposed,
                     wa_matrix_shape own)
{
    wa_tuned_shape shape = find->shape;
    wa_matrix_side s;
    if (begin_keys(transposed, find->device, &own, &s))
        return;
    const double spills =
        wa_matrix_set_pass(find, key_sums(&s), 1, MOST_TILES, &s);
    /* S, dP, dV and dK; apart S twice */
    const double products = splits_dk_dv(&s) ? 5.0 : 4.0;
    find->fits = true;
    shape.matrix_backward.keys = wa_matrix_transpose_shape(&s.shape);
    if (spills > 0)
        find->visit(find->data, &shape, spills * cost_of(&s, products));
}

static void visit_rows(wa_search *find)
{
    wa_visit_matrix_shapes(find, find->problem, WA_BACKWARD, MOST_SPLITS,
                           false, try_rows);
}

static void visit_keys(wa_search *find)
{
    const wa_problem transposed = wa_matrix_transpose(find->problem);
    wa_visit_matrix_shapes(find, &transposed, WA_BACKWARD, 1, false, try_keys);
}

static bool has_shape(const wa_tuned_shape *shape)
{
    return shape->matrix_backward.rows.block_keys != 0;
}

const wa_family wa_matrix_pair = {.engine = WA_ENGINE_MATRIX,
                                  .pass = WA_BACKWARD,
                                  .tuned = WA_MATRIX_BACKWARD,
                                  .refusal = wa_matrix_unwanted,
                                  .has_shape = has_shape,
                                  .visit = {visit_rows, visit_keys},
                                  .say_none = wa_matrix_say_none,
                                  .explain = wa_explain_matrix_backward,
                                  .take = take};
