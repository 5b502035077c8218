/* SPDX-License-Identifier: Apache-2.0 */
#include "family/matrix_gradient.h"

#include "base/text.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Where sums of bias and mask are kept: is there a window with the same shift
 * boundaries, one of each grid, for each team, and one for each to come? */
static bool boundaries_repeat(const wa_problem *problem,
                              uint32_t windows_per_group)
{
    const uint32_t *along = problem->grid.windows;
    return !MASK_FOLLOWS_GRID(problem->mask) ||
           problem->windows / ((uint64_t)along[0] * along[1] * along[2]) >=
               2ull * windows_per_group;
}

const char *wa_matrix_begin_side(const wa_problem *problem,
                                 const wa_device *device,
                                 const wa_matrix_shape *shape,
                                 uint32_t keeps_dbias, wa_matrix_side *s)
{
    WA_REFUSE(wa_matrix_refusal(problem, device, shape));
    *s = (wa_matrix_side){
        problem, device, *shape,
        wa_matrix_tiling_of(problem, device->matrix_unit, shape), keeps_dbias};
    if (shape->stages > WA_MATRIX_GRADIENT_STAGES)
        return "a ring has too many stages";
    if (s->tiling.streaming &&
        shape->block_keys % device->matrix_unit->tile != 0)
        return "blocks are no whole number of tiles";
    if (s->tiling.wave_turns > 1)
        return "a team has too few waves for its rows";
    if (shape->bias_cache == WA_BIAS_CACHE_REGISTERS)
        return "registers have no room for bias and mask";
    if (shape->bias_cache == WA_BIAS_CACHE_LOCAL &&
        !boundaries_repeat(problem, shape->windows_per_group))
        return "too few windows have the same shift boundaries for all teams";
    return NULL;
}

uint64_t wa_matrix_dbias_bytes(const wa_matrix_side *s)
{
    const wa_matrix_unit *unit = s->device->matrix_unit;
    return (uint64_t)s->tiling.row_tiles * s->tiling.key_blocks *
           s->tiling.key_tiles * unit->queries * unit->tile * 4;
}

const char *wa_matrix_dbias_refusal(const wa_matrix_side *s,
                                    uint32_t row_planes)
{
    const bool has_bias = s->problem->bias != WINATTN_BIAS_NONE;
    const uint64_t ring =
        (uint64_t)s->shape.windows_per_group * s->shape.stages *
        wa_matrix_stage_bytes(&s->tiling, WA_BACKWARD, row_planes);
    if (s->keeps_dbias > WA_DBIAS_LOCAL || (s->keeps_dbias && !has_bias))
        return "there are no sums of a bias, or no such place for them";
    if (s->keeps_dbias == WA_DBIAS_REGISTERS && s->tiling.streaming)
        return "sums of a bias stay in registers only where a wave has the "
               "same logits always";
    if (!has_bias || s->shape.windows_per_group == 1)
        return NULL;
    if (s->keeps_dbias != WA_DBIAS_REGISTERS)
        return "teams cannot share sums of a bias";
    return ring < wa_matrix_dbias_bytes(s)
               ? "sums of a bias do not fit the ring, where teams add theirs"
               : NULL;
}

const char *wa_matrix_too_large(const wa_matrix_side *s, uint64_t bytes)
{
    return bytes + WA_MATRIX_SLACK > s->device->local_bytes
               ? "local memory of the device is too small"
               : NULL;
}

uint32_t wa_matrix_waves(const wa_matrix_side *s)
{
    return s->shape.windows_per_group * s->shape.waves_per_window;
}

double wa_matrix_set_pass(const wa_search *find, uint64_t sums,
                          uint32_t splits, uint32_t most, wa_matrix_side *s)
{
    const uint32_t budget =
        wa_matrix_most_sums(s->problem, s->device, wa_matrix_waves(s));
    const uint64_t of_tile = s->tiling.acc_per_lane; /* S */
    const uint32_t share = s->tiling.key_tiles / splits;
    uint32_t tiles = 1;
    double spills = 0.0;
    if (sums + of_tile <= budget) {
        tiles = wa_matrix_tiles_per_subtile(
            share, (uint32_t)MIN((budget - sums) / of_tile, most));
        while (splits > 1 && share % tiles != 0)
            tiles--;
        spills = 1.0;
    } else if (find->problem->tier == WINATTN_TIER_MATRIX) {
        spills = 1.0 + (double)sums / budget;
    }
    s->shape.subtile_keys = tiles * s->device->matrix_unit->tile;
    return spills;
}

double wa_matrix_waits(const wa_matrix_side *s)
{
    const wa_problem *problem = s->problem;
    const uint32_t bias_cache = s->shape.bias_cache;
    double waits = (1.0 + 0.01 * s->shape.waves_per_window) *
                   (1.0 + 5.0 / wa_matrix_waves(s));
    if (wa_problem_has_score_bias(problem) && bias_cache == WA_BIAS_CACHE_NONE)
        waits *= 1.25;
    /* regions are compared; those of a shift differ in few windows */
    if (bias_cache == WA_BIAS_CACHE_LOCAL_AND_REGIONS)
        waits *= MASK_FOLLOWS_GRID(problem->mask) ? 1.08 : 1.28;
    if (problem->bias != WINATTN_BIAS_NONE &&
        s->keeps_dbias == WA_DBIAS_WORKSPACE)
        waits *= 2.5; /* read and written for each window */
    if (s->keeps_dbias == WA_DBIAS_LOCAL)
        waits *= 1.1;
    return waits;
}

void wa_explain_matrix_backward(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *shape, char *reason)
{
    const uint32_t keeps_dbias = shape->matrix_backward.keeps_dbias;
    const wa_matrix_shape *rows = &shape->matrix_backward.rows;
    const bool again = !rows->block_keys && rows->subtile_keys < problem->keys;
    wa_append(
        reason, WA_REASON_SIZE, "products on the %s unit%s%s%s%s",
        device->matrix_unit->name,
        rows->block_keys ? ", rows and keys in kernels of their own" : "",
        wa_matrix_bias_place(problem, rows->bias_cache),
        keeps_dbias == WA_DBIAS_REGISTERS ? ", sums of dbias in registers"
        : keeps_dbias == WA_DBIAS_LOCAL   ? ", sums of dbias in local memory"
                                          : "",
        again ? ", logits computed twice unless o and lse are given" : "");
}
