/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/matrix/backward_rows_matrix.cl and
 * cl/matrix/backward_keys_matrix.cl, which share the work of a gradient. Those
 * of either kernel have costs, whose sum is the pair's. */
#include "family/matrix_tiling.h"
#include "plan/defines.h"

#include "../cl/common/args.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Tensors that a stage of the ring holds rows of: q and dO, and o if delta may
 * be taken from it; k and v. */
#define ROW_PLANES 2u
#define KEY_PLANES 2u
#define MOST_STAGES 2u /* of a ring */
/* Registers for what the kernel of rows knows of a tile's, with which ptxas
 * was seen to spill few. */
#define ROW_REGISTERS 24u
/* And for norms. */
#define NORM_REGISTERS 8u
#define MOST_SPLITS 8u /* of a tile of rows */
/* Bytes of the bounds of an item's keys, this one's and the next's. */
#define BOUND_BYTES 24u

/* What either kernel sees: its tiles have rows of what it computes gradients
 * of. To the kernel of keys, problem and shape are the other way round. */
typedef struct side {
    const wa_problem *problem;
    wa_matrix_shape shape;
    wa_matrix_tiling tiling;
} side;

static side rows_side(const wa_problem *problem, const wa_device *device,
                      const wa_matrix_gradient_shape *s)
{
    side rows = {.problem = problem, .shape = wa_matrix_rows_of(s)};
    if (s->block_rows && s->block_keys && s->waves_per_window)
        rows.tiling =
            wa_matrix_tiling_of(problem, device->matrix_unit, &rows.shape);
    return rows;
}

/* transposed: the problem, turned. */
static side keys_side(const wa_problem *transposed, const wa_device *device,
                      const wa_matrix_shape *s)
{
    side keys = {.problem = transposed, .shape = *s};
    keys.shape.block_rows = s->block_keys;
    keys.shape.block_keys = s->block_rows;
    if (s->block_rows && s->block_keys && s->waves_per_window)
        keys.tiling =
            wa_matrix_tiling_of(transposed, device->matrix_unit, &keys.shape);
    return keys;
}

static uint64_t waves_of(const side *s)
{
    return (uint64_t)s->shape.windows_per_group * s->shape.waves_per_window;
}

/* Are dV and dK more sums than a lane has registers for, so that work-groups
 * make one of them each? */
static bool splits_dk_dv(const side *s, const wa_device *device)
{
    return 2 * s->tiling.dim_tiles * s->tiling.acc_per_lane +
               s->tiling.acc_per_lane >
           wa_matrix_most_sums(s->problem, device, 8);
}

/* Waves that share a tile of rows in the kernel of rows. */
static uint32_t splits_of(const side *s)
{
    return s->shape.waves_per_window > s->tiling.row_tiles
               ? s->shape.waves_per_window / s->tiling.row_tiles
               : 1;
}

/* O_SERVES of cl/matrix/split_rows.cl: can the kernel of rows take delta from
 * o? */
static bool o_serves(const side *s, const wa_matrix_unit *unit)
{
    return unit->votes && s->problem->queries > unit->tile &&
           s->problem->keys > unit->tile &&
           !(s->tiling.streaming && s->shape.windows_per_group > 1);
}

static uint32_t row_planes(const side *s, const wa_matrix_unit *unit)
{
    return ROW_PLANES + o_serves(s, unit);
}

/* ---- Local memory, as the kernels declare their arrays ---- */

static uint64_t dbias_bytes(const wa_matrix_unit *unit,
                            const wa_matrix_tiling *t)
{
    return (uint64_t)t->row_tiles * t->key_blocks * t->key_tiles *
           unit->queries * unit->tile * 4;
}

static uint64_t rows_bytes(const side *s, const wa_device *device,
                           uint32_t keeps_dbias)
{
    const wa_problem *problem = s->problem;
    uint64_t bytes =
        wa_matrix_local_bytes(problem, device, &s->shape, &s->tiling,
                              WA_BACKWARD, row_planes(s, device->matrix_unit));
    if (keeps_dbias == WA_DBIAS_LOCAL)
        bytes += dbias_bytes(device->matrix_unit, &s->tiling);
    /* dQ of waves that share a tile of rows */
    bytes += (uint64_t)s->shape.windows_per_group * s->tiling.row_tiles *
             (splits_of(s) - 1) * s->tiling.dim_tiles *
             device->matrix_unit->queries * device->matrix_unit->tile * 4;
    /* lse */
    bytes += (uint64_t)s->shape.windows_per_group * s->shape.stages *
             s->shape.block_rows * 4;
    if (problem->dtype == WINATTN_FP16)
        bytes += (uint64_t)s->shape.windows_per_group * BOUND_BYTES;
    if (o_serves(s, device->matrix_unit) && s->tiling.streaming)
        bytes += 4;                         /* whether errors show */
    if (problem->variant == WINATTN_COSINE) /* each lane's d_logit_scale */
        bytes += waves_of(s) * device->matrix_unit->wave * 4;
    return bytes;
}

static uint64_t keys_bytes(const side *s, const wa_device *device)
{
    const wa_problem *problem = s->problem;
    const uint32_t tile = device->matrix_unit->tile;
    const uint32_t block_n = s->shape.block_keys; /* rows of a q block */
    uint64_t bytes = wa_matrix_local_bytes(
        problem, device, &s->shape, &s->tiling, WA_BACKWARD, KEY_PLANES);
    if (problem->variant == WINATTN_COSINE) /* theirs the workspace has */
        bytes -= (uint64_t)s->shape.windows_per_group *
                 (block_n + (block_n % tile != 0)) * 4;
    bytes += (uint64_t)s->shape.windows_per_group * s->shape.stages * block_n *
             ROW_NUMBERS * 4;
    if (wa_problem_padding(problem) == 1) /* each wave's d_pad_k, d_pad_v */
        bytes += waves_of(s) * 2 * s->tiling.dim_tiles * tile * 4;
    return bytes;
}

/* ---- What is refused; registers apart ---- */

static const char *side_refusal(const side *s, const wa_device *device)
{
    const wa_problem *problem = s->problem;
    const char *why = wa_matrix_refusal(problem, device, &s->shape);
    if (why)
        return why;
    if (s->shape.stages > MOST_STAGES)
        return "a ring has too many stages";
    if (s->tiling.streaming &&
        s->shape.block_keys % device->matrix_unit->tile != 0)
        return "blocks are no whole number of tiles";
    if (s->shape.bias_cache == WA_BIAS_CACHE_REGISTERS)
        return "registers have no room for bias and mask";
    if (s->shape.bias_cache == WA_BIAS_CACHE_LOCAL &&
        !wa_matrix_boundaries_repeat(problem, s->shape.windows_per_group))
        return "too few windows have the same shift boundaries for all teams";
    return NULL;
}

static const char *too_large(uint64_t bytes, const wa_device *device)
{
    return bytes + WA_MATRIX_SLACK > device->local_bytes
               ? "local memory of the device is too small"
               : NULL;
}

static const char *rows_refusal(const side *s, const wa_device *device,
                                uint32_t keeps_dbias)
{
    const wa_matrix_tiling *t = &s->tiling;
    const bool has_bias = s->problem->bias != WINATTN_BIAS_NONE;
    const char *why = side_refusal(s, device);
    if (why)
        return why;
    if (t->wave_turns > 1 && t->streaming)
        return "a team has too few waves for its rows";
    const uint32_t splits = splits_of(s);
    const uint32_t tiles_per_subtile =
        s->shape.subtile_keys / device->matrix_unit->tile;
    if (splits > 1 && (s->shape.waves_per_window % t->row_tiles != 0 ||
                       s->problem->keys % s->shape.block_keys != 0 ||
                       s->shape.block_keys % device->matrix_unit->tile != 0 ||
                       t->key_tiles % splits != 0 ||
                       t->key_tiles / splits % tiles_per_subtile != 0))
        return "waves that share rows have no equal shares of keys";
    if (keeps_dbias > 2 || (keeps_dbias && !has_bias))
        return "there are no sums of a bias, or no such place for them";
    if (keeps_dbias == WA_DBIAS_REGISTERS &&
        (t->streaming || t->wave_turns > 1))
        return "sums of a bias stay in registers only where a wave has the "
               "same logits always";
    if (has_bias && keeps_dbias != WA_DBIAS_REGISTERS &&
        s->shape.windows_per_group > 1)
        return "teams cannot share sums of a bias";
    if (keeps_dbias == WA_DBIAS_REGISTERS && s->shape.windows_per_group > 1 &&
        (uint64_t)s->shape.windows_per_group * s->shape.stages *
                wa_matrix_stage_bytes(t, WA_BACKWARD,
                                      row_planes(s, device->matrix_unit)) <
            dbias_bytes(device->matrix_unit, t))
        return "sums of a bias do not fit the ring, where teams add theirs";
    return too_large(rows_bytes(s, device, keeps_dbias), device);
}

static const char *keys_refusal(const side *s, const wa_device *device)
{
    const wa_problem *problem = s->problem;
    const char *why = side_refusal(s, device);
    if (why)
        return why;
    if (s->tiling.wave_turns > 1)
        return "a team has too few waves for its keys";
    if (s->shape.bias_cache != WA_BIAS_CACHE_NONE &&
        problem->bias != WINATTN_BIAS_NONE &&
        problem->heads != problem->kv_heads)
        return "other heads have another bias";
    return too_large(keys_bytes(s, device), device);
}

/* ---- The plan ---- */

/* Those that start together. */
static uint32_t groups_of(const wa_device *device, const wa_step *kernel)
{
    return device->compute_units *
           wa_matrix_resident(device, kernel->local_bytes);
}

static void set_plan(const wa_device *device,
                     const wa_matrix_gradient_shape *shape, const side *rows,
                     const side *keys, wa_plan *plan)
{
    const wa_problem *problem = rows->problem;
    const wa_matrix_unit *unit = device->matrix_unit;
    wa_step *first = &plan->step[WA_STEP_ROWS];
    wa_step *last = &plan->step[WA_STEP_KEYS];
    const size_t size = sizeof first->defines;
    wa_begin_step(problem, device, unit->rows_kernel, shape->block_rows,
                  shape->block_keys, (uint32_t)waves_of(rows) * unit->wave,
                  rows_bytes(rows, device, shape->keeps_dbias), first);
    wa_append_switch(first->defines, size, WA_SWITCH(ROW_PLANES),
                     row_planes(rows, unit));
    wa_append_switch(first->defines, size, WA_SWITCH(KEEPS_DBIAS),
                     shape->keeps_dbias);
    wa_append_matrix_shape(&rows->shape, device, first->defines, size);
    wa_begin_step(problem, device, unit->keys_kernel, shape->keys.block_rows,
                  shape->keys.block_keys,
                  (uint32_t)waves_of(keys) * unit->wave,
                  keys_bytes(keys, device), last);
    plan->schedule.key_parts = splits_dk_dv(keys, device) ? 2 : 1;
    wa_append_switch(last->defines, size, WA_SWITCH(SPLIT_DK_DV),
                     plan->schedule.key_parts - 1);
    wa_append_matrix_shape(&keys->shape, device, last->defines, size);
    plan->fused = false;
    plan->schedule.row_blocks =
        wa_ceil_div(problem->queries, shape->block_rows);
    plan->schedule.key_blocks =
        wa_ceil_div(problem->keys, shape->keys.block_keys);
    plan->schedule.row_windows_per_group = shape->windows_per_group;
    plan->schedule.row_groups = groups_of(device, first);
    plan->schedule.windows_per_group = shape->keys.windows_per_group;
    plan->schedule.busy_groups = groups_of(device, last);
    wa_set_matrix_access(problem, plan);
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_matrix_gradient_shape *shape = &demanded->matrix_backward;
    const char *why = wa_matrix_impossible(problem, device, WA_BACKWARD);
    if (why)
        return why;
    const wa_problem transposed = wa_matrix_transpose(problem);
    const side rows = rows_side(problem, device, shape);
    const side keys = keys_side(&transposed, device, &shape->keys);
    why = rows_refusal(&rows, device, shape->keeps_dbias);
    if (!why)
        why = keys_refusal(&keys, device);
    if (!why)
        set_plan(device, shape, &rows, &keys, plan);
    return why;
}

/* ---- All shapes ---- */

/* Fitted to nothing yet: the products that a compute unit does for each logit
 * that counts, and what was seen of the other kernels for matrix units. */
static double side_cost(const side *s, const wa_device *device,
                        double products, uint32_t splits)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_problem *problem = s->problem;
    const wa_matrix_shape *shape = &s->shape;
    const uint32_t blocks = wa_ceil_div(problem->queries, shape->block_rows);
    double cost = products * blocks * s->tiling.wave_turns *
                  shape->waves_per_window / splits * unit->queries /
                  problem->queries;
    cost *= (double)s->tiling.key_blocks * s->tiling.key_tiles * unit->tile /
            problem->keys;
    cost *= 1.0 + 0.02 * (blocks - 1);      /* the other side comes again */
    cost *= 1.0 + 24.0 / shape->block_keys; /* what an item takes besides */
    cost *= 1.0 + 0.01 * shape->waves_per_window; /* waiting for each other */
    if (wa_problem_has_score_bias(problem) &&
        shape->bias_cache == WA_BIAS_CACHE_NONE)
        cost *= 1.25;
    /* regions are compared; those of a shift differ in few windows */
    if (shape->bias_cache == WA_BIAS_CACHE_LOCAL_AND_REGIONS)
        cost *= MASK_FOLLOWS_GRID(problem->mask) ? 1.08 : 1.2;
    if (unit->copies_async && shape->stages == 1)
        cost *= shape->windows_per_group > 1 ? 1.1 : 1.3;
    return cost * (1.0 + 5.0 / (double)waves_of(s));
}

static double rows_cost(const side *s, const wa_device *device,
                        uint32_t keeps_dbias)
{
    /* S, dP and dQ */
    double cost = side_cost(s, device, 3.0, splits_of(s));
    cost *= 1.0 + 0.02 * (splits_of(s) - 1); /* which they add up */
    if (s->problem->bias != WINATTN_BIAS_NONE &&
        keeps_dbias == WA_DBIAS_WORKSPACE)
        cost *= 2.5; /* read and written for each window */
    if (keeps_dbias == WA_DBIAS_LOCAL)
        cost *= 1.1;
    return cost;
}

static double keys_cost(const side *s, const wa_device *device)
{
    /* S, dP, dV and dK; apart S twice */
    return side_cost(s, device, splits_dk_dv(s, device) ? 5.0 : 4.0, 1);
}

/* Sums that a lane has besides those of a pass. */
static uint64_t rows_sums(const side *s, const wa_device *device,
                          uint32_t keeps_dbias)
{
    const wa_matrix_tiling *t = &s->tiling;
    /* dQ and dP */
    uint64_t sums = (uint64_t)t->dim_tiles * t->acc_per_lane + t->acc_per_lane;
    if (device->matrix_unit->copies_async)
        sums += ROW_REGISTERS;
    if (s->problem->variant == WINATTN_COSINE)
        sums += NORM_REGISTERS;
    if (keeps_dbias == WA_DBIAS_REGISTERS)
        sums += (uint64_t)t->key_tiles / splits_of(s) * t->acc_per_lane;
    if (s->problem->dtype == WINATTN_FP16) /* how rows of dS are rescaled */
        sums += 8;
    return sums;
}

static uint64_t keys_sums(const side *s, const wa_device *device)
{
    const uint64_t gradients = splits_dk_dv(s, device) ? 1 : 2;
    return gradients * s->tiling.dim_tiles * s->tiling.acc_per_lane +
           s->tiling.acc_per_lane; /* dP */
}

/* What searches of either kernel's shapes differ by. */
typedef struct side_search {
    wa_search *find;
    const wa_problem *problem; /* as that kernel sees it */
    uint32_t row_planes, most_splits;
    void (*try)(const struct side_search *, wa_matrix_shape);
} side_search;

/* Sets the keys of a pass; what spills is dear, and only for those who demand
 * the tier. 0: they do not. */
static double set_pass(const wa_search *find, side *s, uint64_t sums,
                       uint32_t splits)
{
    const wa_device *device = find->device;
    const uint32_t budget = wa_matrix_most_sums(
        find->problem, device,
        wa_ceil_div(s->shape.waves_per_window * s->shape.windows_per_group,
                    4) *
            4);
    const uint64_t of_tile = s->tiling.acc_per_lane;
    uint32_t tiles = 0;
    if (sums + of_tile <= budget) {
        /* more than a few in flight gain nothing */
        const uint64_t most = MIN((budget - sums) / of_tile, 4);
        const uint32_t share = s->tiling.key_tiles / splits;
        tiles = wa_matrix_tiles_per_subtile(share, (uint32_t)most);
        while (splits > 1 && share % tiles != 0)
            tiles--;
    }
    s->shape.subtile_keys = (tiles ? tiles : 1) * device->matrix_unit->tile;
    if (tiles)
        return 1.0;
    return find->problem->tier == WINATTN_TIER_MATRIX
               ? 1.0 + (double)sums / budget
               : 0.0;
}

static void try_rows(const side_search *of, wa_matrix_shape common)
{
    wa_search *find = of->find;
    const uint32_t places = of->problem->bias != WINATTN_BIAS_NONE ? 3 : 1;
    for (uint32_t dbias = 0; dbias < places; dbias++) {
        wa_tuned_shape shape = find->shape;
        wa_matrix_gradient_shape *own = &shape.matrix_backward;
        own->block_rows = common.block_rows;
        own->waves_per_window = common.waves_per_window;
        own->windows_per_group = common.windows_per_group;
        own->stages = common.stages;
        own->subtile_keys = find->device->matrix_unit->tile;
        own->bias_cache = common.bias_cache;
        own->keeps_dbias = dbias;
        own->block_keys = common.block_keys;
        side s = rows_side(of->problem, find->device, own);
        find->visited++;
        if (rows_refusal(&s, find->device, dbias))
            continue;
        find->fits = true;
        const double spills = set_pass(
            find, &s, rows_sums(&s, find->device, dbias), splits_of(&s));
        own->subtile_keys = s.shape.subtile_keys;
        if (spills > 0)
            find->visit(find->data, &shape,
                        spills * rows_cost(&s, find->device, dbias));
    }
}

static void try_keys(const side_search *of, wa_matrix_shape common)
{
    wa_search *find = of->find;
    wa_tuned_shape shape = find->shape;
    wa_matrix_shape *own = &shape.matrix_backward.keys;
    *own = common;
    own->block_rows = common.block_keys;
    own->block_keys = common.block_rows;
    own->subtile_keys = find->device->matrix_unit->tile;
    side s = keys_side(of->problem, find->device, own);
    find->visited++;
    if (keys_refusal(&s, find->device))
        return;
    find->fits = true;
    const double spills = set_pass(find, &s, keys_sums(&s, find->device), 1);
    own->subtile_keys = s.shape.subtile_keys;
    if (spills > 0)
        find->visit(find->data, &shape, spills * keys_cost(&s, find->device));
}

static bool has_room(const side_search *of, const wa_matrix_shape *s)
{
    wa_search *find = of->find;
    find->visited++;
    return wa_matrix_may_fit(find->problem, find->device, s, WA_BACKWARD,
                             of->row_planes);
}

/* All ways to compute blocks of `down` tiles of rows. */
static void try_teams(const side_search *of, wa_matrix_shape s, uint32_t down)
{
    const wa_search *find = of->find;
    static const uint32_t bias_caches[] = {0, 1, 3}; /* of bias and mask */
    const bool async = find->device->matrix_unit->copies_async;
    const uint32_t most_stages = async ? MOST_STAGES : 1;
    const uint32_t bias_cache_count =
        wa_matrix_has_regions(find->problem)       ? 3
        : wa_problem_has_score_bias(find->problem) ? 2
                                                   : 1;
    for (s.waves_per_window = down;
         s.waves_per_window <=
         MIN(of->most_splits * down, WA_MATRIX_PLANNED_WAVES);
         s.waves_per_window += down)
        for (s.windows_per_group = 1;
             s.windows_per_group == 1 ||
             (async && s.windows_per_group * s.waves_per_window <=
                           WA_MATRIX_PLANNED_WAVES);
             s.windows_per_group++)
            for (s.stages = 1; s.stages <= most_stages && has_room(of, &s);
                 s.stages++)
                for (uint32_t i = 0; i < bias_cache_count; i++) {
                    s.bias_cache = bias_caches[i];
                    of->try(of, s);
                }
}

static void try_side(const side_search *of)
{
    const wa_search *find = of->find;
    const wa_matrix_unit *unit = find->device->matrix_unit;
    const uint32_t row_tiles =
        wa_ceil_div(of->problem->queries, unit->queries);
    const uint32_t key_tiles = wa_ceil_div(of->problem->keys, unit->tile);
    const uint32_t most =
        wa_matrix_most_key_tiles(find->problem, find->device);
    wa_matrix_shape s = {.subtile_keys = unit->tile};
    for (uint32_t down = wa_even_size(row_tiles, WA_MATRIX_PLANNED_WAVES);
         down > 0; down = wa_even_size(row_tiles, down - 1))
        for (uint32_t block_n = wa_even_size(key_tiles, most); block_n > 0;
             block_n = wa_even_size(key_tiles, block_n - 1)) {
            s.block_rows = MIN(down * unit->queries, of->problem->queries);
            s.block_keys = MIN(block_n * unit->tile, of->problem->keys);
            s.waves_per_window = s.windows_per_group = s.stages = 1;
            if (has_room(of, &s))
                try_teams(of, s, down);
        }
}

static void visit_rows(wa_search *find)
{
    const side_search of = {find, find->problem, ROW_PLANES, MOST_SPLITS,
                            try_rows};
    try_side(&of);
}

static void visit_keys(wa_search *find)
{
    const wa_problem transposed = wa_matrix_transpose(find->problem);
    const side_search of = {find, &transposed, KEY_PLANES, 1, try_keys};
    try_side(&of);
}

static bool has_shape(const wa_tuned_shape *shape)
{
    return shape->matrix_backward.block_keys != 0;
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
