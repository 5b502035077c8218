/* SPDX-License-Identifier: Apache-2.0 */
#include "family/local_gradient.h"

#include "family/local_model.h"
#include "plan/planner.h"
#include "plan/schedule.h"

#include "../cl/common/switches.h"
#include "../cl/local/gradient_extents.h"
#include "../cl/local/team_extents.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Of a table of biases in local memory: windows of 16 x 16. */
#define MOST_KEPT_ENTRIES 961u

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

/* By the kernels' formulas, which name the switches that they are built with.
 */
wa_gradient_tiling wa_gradient_tiling_of(const wa_problem *problem,
                                         const wa_gradient_shape *s)
{
    const uint32_t HEAD_DIM = problem->head_dim;
    const uint32_t BLOCK_ROWS = s->block_rows, BLOCK_KEYS = s->block_keys;
    const uint32_t STAGE_DIMS = s->stage_dims;
    const uint32_t SCORE_ROWS = s->score_rows, SCORE_COLS = s->score_cols;
    const uint32_t OUT_ROWS = s->out_rows, KEY_QUADS = s->key_quads;
    const wa_gradient_tiling t = {.dim_stages = DIM_STAGES,
                                  .row_tiles = ROW_TILES,
                                  .col_tiles = COL_TILES,
                                  .out_across = STAGE_QUADS,
                                  .out_tiles = OUT_TILES,
                                  .key_quads = BLOCK_QUADS,
                                  .key_tiles = KEY_TILES,
                                  .q_rows = Q_ROWS,
                                  .kv_rows = KV_ROWS};
    return t;
}

bool wa_gradient_is_single_q_block(const wa_problem *problem,
                                   wa_gradient_part which,
                                   const wa_gradient_shape *s)
{
    return which == WA_GRADIENTS_FUSED && problem->queries <= s->block_rows &&
           problem->heads == problem->kv_heads;
}

bool wa_gradient_keeps_table(const wa_problem *problem, wa_gradient_part which,
                             const wa_gradient_shape *s)
{
    const wa_table *table = &problem->table;
    return table->used && !table->has_index &&
           table->entries <= MOST_KEPT_ENTRIES &&
           wa_gradient_is_single_q_block(problem, which, s);
}

uint64_t wa_gradient_local_bytes(const wa_problem *problem,
                                 wa_gradient_part which,
                                 const wa_gradient_shape *s)
{
    const uint64_t VARIANT = problem->variant;
    const uint64_t GRID = problem->grid.used;
    const uint64_t TABLE_CENTER = problem->table.center;
    const uint64_t BLOCK_ROWS = s->block_rows, BLOCK_KEYS = s->block_keys;
    const uint64_t TEAM = s->team, STAGE_DIMS = s->stage_dims;
    const uint64_t SCORE_ROWS = s->score_rows, SCORE_COLS = s->score_cols;
    const uint64_t OUT_ROWS = s->out_rows, KEY_QUADS = s->key_quads;
    const uint64_t KEEPS_TILES = s->keeps_tiles;
    const bool KEEPS_TABLE = wa_gradient_keeps_table(problem, which, s);
    const bool STATISTICS = which == WA_GRADIENTS_STATISTICS;
    const bool FUSED = which == WA_GRADIENTS_FUSED;
    return which == WA_GRADIENTS_STATISTICS || which == WA_GRADIENTS_ROWS
               ? ROWS_LOCAL_BYTES
               : KEYS_LOCAL_BYTES;
}

/* Registers of a work-item: what is live in the busiest of its products, and
 * addresses; without a sum of dBias. */
uint32_t wa_gradient_registers(const wa_problem *problem,
                               const wa_device *device, wa_gradient_part which,
                               const wa_gradient_shape *s,
                               const wa_gradient_tiling *t)
{
    const uint32_t tile = s->score_rows * s->score_cols;
    const uint32_t logits = tile + 4 * s->score_rows + 4;
    const uint32_t keys = 4 * 4 * s->key_quads * t->dim_stages;
    const uint32_t rows = 4 * s->out_rows * t->dim_stages;
    const uint32_t loaded = 4 * (s->key_quads + 1);
    /* sums of the padding's gradients, which live through all windows */
    const bool sums_pads =
        (which == WA_GRADIENTS_FUSED || which == WA_GRADIENTS_KEYS) &&
        wa_problem_padding(problem) == 1;
    const uint32_t pads = sums_pads ? 8 * t->dim_stages : 0;
    uint32_t most;
    if (which == WA_GRADIENTS_ROWS)
        most = logits + rows;
    else if (which == WA_GRADIENTS_KEYS)
        most = logits + 2 * keys;
    else if (wa_gradient_is_single_q_block(problem, which, s))
        most = MAX(logits, MAX(tile + keys + loaded, keys + rows + 10));
    else
        most = 2 * keys + MAX(logits, rows + 10);
    /* compilers were seen to take a quarter more; where the budget is but a
     * guess, that is left to chance, and so are the padding's sums, with which
     * no shape for a part of the keys would fit it */
    return 16 + most + (device->registers > 64 ? pads + most / 4 : 0);
}

bool wa_gradient_keeps_dbias(const wa_problem *problem,
                             const wa_device *device, wa_gradient_part which,
                             const wa_gradient_shape *s,
                             const wa_gradient_tiling *t)
{
    return problem->bias != WINATTN_BIAS_NONE &&
           wa_gradient_is_single_q_block(problem, which, s) &&
           wa_gradient_registers(problem, device, which, s, t) +
                   s->score_rows * s->score_cols <=
               device->registers;
}

const char *wa_gradient_refusal(const wa_problem *problem,
                                const wa_device *device,
                                wa_gradient_part which,
                                const wa_gradient_shape *s,
                                const wa_gradient_tiling *t)
{
    if (t->row_tiles * t->col_tiles > s->team)
        return "a team does not cover the logits";
    if (t->out_tiles * t->out_across > s->team ||
        t->key_tiles * t->out_across > s->team)
        return "a team does not cover its gradients";
    if (t->dim_stages > WA_GRADIENT_MOST_STAGES ||
        (s->keeps_tiles &&
         (t->dim_stages > 1 || problem->variant == WINATTN_COSINE)))
        return "too many stages of channels";
    if (s->team > device->max_work_group)
        return "work-groups of the device are too small";
    if (wa_gradient_local_bytes(problem, which, s) + WA_GRADIENT_SLACK >
        device->local_bytes)
        return "local memory of the device is too small";
    return NULL;
}

/* ---- The model ---- */

double wa_gradient_resident(const wa_problem *problem, const wa_device *device,
                            wa_gradient_part which, const wa_gradient_shape *s,
                            const wa_gradient_tiling *t)
{
    double registers = wa_gradient_registers(problem, device, which, s, t);
    if (wa_gradient_keeps_dbias(problem, device, which, s, t))
        registers += s->score_rows * s->score_cols;
    return wa_local_resident(device,
                             wa_gradient_local_bytes(problem, which, s),
                             registers, s->team);
}

/* Work-groups for each compute unit, where the workspace bounds those that sum
 * a bias. */
static double groups_per_unit(const wa_problem *problem,
                              const wa_device *device, wa_gradient_part which,
                              const wa_gradient_shape *s)
{
    const double head_blocks =
        (double)problem->kv_heads * wa_ceil_div(problem->keys, s->block_keys);
    if (which == WA_GRADIENTS_ROWS || problem->bias == WINATTN_BIAS_NONE)
        return 1e9;
    return head_blocks *
           (double)wa_most_bias_splits(problem, WINATTN_TIER_LOCAL) /
           MAX(device->compute_units, 1);
}

double wa_gradient_cost(const wa_problem *problem, const wa_device *device,
                        wa_gradient_part which, const wa_gradient_shape *s,
                        const wa_gradient_tiling *t)
{
    const uint32_t wave = MIN(MAX(device->wave, 1), s->team);
    const double stages = t->dim_stages, across = t->out_across;
    const double tile = (double)s->score_rows * s->score_cols;
    const double tile_waves = wa_ceil_div(t->row_tiles * t->col_tiles, wave);
    const double logit_steps = 2.0 * tile_waves * stages * across;
    const double out_steps =
        which == WA_GRADIENTS_KEYS
            ? 0.0
            : wa_ceil_div(t->out_tiles * t->out_across, wave) * stages *
                  (double)t->key_quads;
    const double key_steps =
        which == WA_GRADIENTS_ROWS
            ? 0.0
            : 2.0 * stages * s->block_rows *
                  wa_ceil_div(t->key_tiles * t->out_across, wave);
    const double quads = logit_steps * (s->score_rows + s->score_cols) +
                         out_steps * (4.0 + s->out_rows) +
                         key_steps * (1.0 + s->key_quads);
    const double fma = logit_steps * 4.0 * tile +
                       out_steps * 16.0 * s->out_rows +
                       key_steps * 16.0 * s->key_quads;
    double copies_q = s->keeps_tiles               ? 2.0
                      : which == WA_GRADIENTS_ROWS ? 2.0
                                                   : 3.0;
    double copies_k = s->keeps_tiles               ? 2.0
                      : which == WA_GRADIENTS_KEYS ? 2.0
                                                   : 3.0;
    if (s->keeps_tiles && which == WA_GRADIENTS_KEYS)
        copies_k = 0.0;
    if (s->keeps_tiles && which == WA_GRADIENTS_ROWS)
        copies_q = 0.0;
    if (!s->keeps_tiles && which != WA_GRADIENTS_ROWS && t->dim_stages > 1)
        copies_q += 1.0;
    const double staged = (copies_q * t->q_rows + copies_k * t->kv_rows) *
                          stages * across / wave;
    double logits = tile_waves * tile * TILE_CYCLES;
    if (which != WA_GRADIENTS_ROWS && problem->bias != WINATTN_BIAS_NONE &&
        !wa_gradient_keeps_dbias(problem, device, which, s, t))
        logits += tile_waves * tile * DBIAS_CYCLES;
    const double phases = (which == WA_GRADIENTS_FUSED ? 6.0 : 4.0) +
                          (s->keeps_tiles ? 0.0 : 2.0 + 3.0 * (stages - 1.0));
    const double busy =
        (QUAD_CYCLES * (quads + staged) + FMA_CYCLES * fma + logits) * wave /
        32.0;
    const double groups = groups_per_unit(problem, device, which, s);
    const double at_once = MIN(
        wa_gradient_resident(problem, device, which, s, t), MAX(groups, 1.0));
    return (busy + phases * STAGE_WAIT / at_once) / MIN(groups, 1.0) /
           ((double)s->block_rows * s->block_keys);
}

/* ---- Accesses ---- */

void wa_local_require_access(const wa_problem *problem, uint32_t stage_dims,
                             wa_plan *plan)
{
    const bool half = problem->dtype != WINATTN_FP32;
    const uint32_t elements =
        half && problem->head_dim % 8 == 0 && stage_dims % 8 == 0 ? 8
        : problem->head_dim % 4 == 0                              ? 4
                                                                  : 0;
    plan->access_elements = MAX(plan->access_elements, elements);
    plan->access_bytes = MAX(plan->access_bytes, elements * (half ? 2 : 4));
}
