/* SPDX-License-Identifier: Apache-2.0
 * The model: a compute unit issues four instructions of 32 work-items a
 * cycle, and local memory moves 128 bytes a cycle, whoever else reads the same
 * address, which sets the pace; what work-items wait for is divided by the
 * teams that are resident to work meanwhile. Its constants were fitted to 500
 * shapes of nine problems on an H200 (bench/tune): the shape it chose took
 * 1.00 to 1.15 of the best one's time, 1.4 in the sliding variant. Where that
 * was measured and matters, tuning.c has the better shape. */
#include "family/local_model.h"

#include "plan/planner.h"

#include "../cl/local/forward_extents.h"
#include "../cl/local/team_extents.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Cycles from the start of a staging to the end of its barrier. */
#define STAGE_WAIT 2000.0
/* What teams of one work-group cost each other by sharing barriers. */
#define TEAMS_COST 1.06

double wa_local_resident(const wa_device *device, uint64_t bytes,
                         double registers, uint32_t items)
{
    const double by_memory = (double)device->local_capacity /
                             ((double)bytes + WA_RESERVED_LOCAL_BYTES);
    const double by_registers =
        (double)device->register_words / (registers * items);
    const double groups =
        (uint32_t)MIN(MIN(by_memory, by_registers), MIN(2048.0 / items, 16.0));
    return MAX(groups, 1.0);
}

/* ---- What a shape follows to ---- */

/* By the kernel's formulas, which name the switches that it is built with. */
wa_local_tiling wa_local_tiling_of(const wa_problem *problem,
                                   const wa_local_shape *s)
{
    const uint64_t VARIANT = problem->variant;
    const uint64_t HEAD_DIM = problem->head_dim;
    const uint64_t BLOCK_ROWS = s->block_rows, BLOCK_KEYS = s->block_keys;
    const uint64_t STAGE_KEYS = s->stage_keys, STAGE_DIMS = s->stage_dims;
    const uint64_t SCORE_ROWS = s->score_rows, SCORE_COLS = s->score_cols;
    const uint64_t OUT_ROWS = s->out_rows, ROW_ITEMS = s->row_items;
    const bool STREAMING = VARIANT == SLIDING || problem->keys > BLOCK_KEYS;
    const wa_local_tiling t = {.dim_stages = (uint32_t)(DIM_STAGES),
                               .key_stages = (uint32_t)(KEY_STAGES),
                               .row_tiles = (uint32_t)(ROW_TILES),
                               .col_tiles = (uint32_t)(COL_TILES),
                               .out_across = (uint32_t)(STAGE_QUADS),
                               .out_tiles = (uint32_t)(OUT_TILES),
                               .q_rows = (uint32_t)(Q_ROWS),
                               .kv_rows = (uint32_t)(KV_ROWS),
                               .score_rows = (uint32_t)(ALL_ROWS),
                               .key_quads =
                                   (uint32_t)(CEIL_DIV(BLOCK_KEYS, 4)),
                               .streaming = STREAMING,
                               .team_bytes = TEAM_LOCAL_BYTES};
    return t;
}

uint64_t wa_local_bytes(const wa_local_shape *s, const wa_local_tiling *t)
{
    return s->teams * t->team_bytes;
}

/* Registers of a work-item: the larger of its two tiles, and what addresses
 * need. Where sums of o live through the score tiles it needs both, and
 * compilers were seen to take half as much again. Intel's keeps the positions
 * of bias and mask that are not added first, or that are more than a product.
 */
uint32_t wa_local_registers(const wa_problem *problem, const wa_device *device,
                            const wa_local_shape *s, const wa_local_tiling *t)
{
    const bool score_bias_first =
        problem->variant == WINATTN_DOT && t->dim_stages == 1;
    const uint32_t kept = t->streaming ? t->dim_stages : 1;
    const uint32_t out = s->out_rows * 4 * kept;
    const uint32_t kept_positions = (score_bias_first ? 0u : 1u) +
                                    (problem->table.used ? 1 : 0) +
                                    (MASK_FOLLOWS_GRID(problem->mask) ? 1 : 0);
    const uint32_t positions =
        device->sub_group ? kept_positions * (s->score_rows + s->score_cols)
                          : 0;
    const uint32_t scores =
        s->score_rows * s->score_cols + 4 * s->score_rows + 4 + positions;
    return 24 +
           (t->streaming ? scores + out + out / 2 : MAX(scores, out + 20));
}

/* Rounds of all loops of a work-item, for compilers that unroll none. */
double wa_local_rounds(const wa_problem *problem, const wa_local_shape *s,
                       const wa_local_tiling *t)
{
    const double rows = s->score_rows, cols = s->score_cols;
    const double out_rows = s->out_rows;
    const double stages = (double)t->dim_stages * t->key_stages;
    const double staging =
        stages * s->stage_dims / s->team * (t->q_rows + 2.0 * t->kv_rows) +
        5.0 * stages;
    const double logits =
        stages * wa_ceil_div(t->row_tiles * t->col_tiles, s->team) *
        (7.0 * rows * (1.0 + cols) +
         s->stage_dims / 4.0 * (1.0 + rows + cols * (1.0 + rows)));
    double norms = 0.0;
    if (problem->variant == WINATTN_COSINE)
        norms = stages * (s->stage_dims / 4.0 + 1.0) *
                (wa_ceil_div(s->block_rows, s->team) +
                 wa_ceil_div(s->stage_keys, s->team));
    const double softmax =
        wa_ceil_div(s->block_rows, s->team / s->row_items) *
        (1.0 + s->row_items + 2.0 * wa_ceil_div(t->key_quads, s->row_items));
    const double values =
        t->dim_stages *
        (out_rows +
         t->key_quads *
             (5.0 +
              out_rows * (problem->variant == WINATTN_SLIDING ? 5.0 : 1.0)));
    return wa_plan_key_blocks(problem, s->block_rows, s->block_keys) *
               (staging + logits + norms + softmax + values) +
           2.0 * t->dim_stages * out_rows * (5.0 + s->row_items);
}

/* ---- The model ---- */

/* Waves that a team needs for `items` pieces of work, one to a work-item. */
static double waves(uint32_t items, uint32_t team, uint32_t wave)
{
    return (double)(items / team) * wa_ceil_div(team, wave) +
           wa_ceil_div(items % team, wave);
}

/* Cycles of a compute unit for each logit. */
double wa_local_cost(const wa_problem *problem, const wa_device *device,
                     const wa_local_shape *s, const wa_local_tiling *t)
{
    const uint32_t wave = MIN(MAX(device->wave, 1), s->team);
    const double stages = (double)t->dim_stages * t->key_stages;
    const double dim_quads = s->stage_dims / 4;
    const double score_bias =
        (problem->bias != WINATTN_BIAS_NONE ? 1.0 : 0.0) +
        (MASK_READS_ARRAY(problem->mask)     ? 1.0
         : MASK_READS_REGIONS(problem->mask) ? 0.3
         : problem->mask                     ? 0.1
                                             : 0.0);
    /* waves of each kind of work, and quads to or from local memory */
    const double score_waves =
        waves(t->row_tiles * t->col_tiles, s->team, wave);
    const double score_quads =
        score_waves * stages * dim_quads * (s->score_rows + s->score_cols);
    const double logits =
        score_waves * t->key_stages * s->score_rows * s->score_cols;
    const double out_waves = wa_ceil_div(t->out_tiles * t->out_across, wave) *
                             (double)t->dim_stages;
    const double out_quads = out_waves * t->key_quads * (4.0 + s->out_rows);
    const double row_quads =
        waves(s->block_rows * s->row_items, s->team, wave) *
        wa_ceil_div(t->key_quads, s->row_items);
    const double staged_rows =
        (t->streaming ? 0.0 : t->q_rows) +
        (t->col_tiles * s->score_cols + wa_ceil_div(s->stage_keys, 4) * 4.0) *
            t->key_stages;
    const double staged = staged_rows * t->dim_stages * dim_quads / wave;
    const double stored = out_waves * s->out_rows;
    const double fma = score_waves * stages * dim_quads * 4.0 * s->score_rows *
                           s->score_cols +
                       out_waves * t->key_quads * 16.0 * s->out_rows;
    const double moved =
        4.0 * (score_quads + out_quads + staged + stored + 3.0 * row_quads) +
        logits * (1.5 + 2.5 * score_bias);
    const double issued =
        0.25 * (fma + 1.1 * (score_quads + out_quads) +
                logits * (2.0 + 3.0 * score_bias) + 26.0 * row_quads +
                12.0 * (staged + stored) + 150.0 * wa_ceil_div(s->team, wave));
    const double per_wave = wave / 32.0;

    const double resident =
        s->teams *
        wa_local_resident(device, wa_local_bytes(s, t),
                          wa_local_registers(problem, device, s, t) + 40.0,
                          s->team * s->teams);
    const double phases =
        (t->streaming ? 1.0 : 2.0) +
        stages * (problem->variant == WINATTN_COSINE ? 3.0 : 2.0);
    const double alone = (4.0 * issued + moved) * per_wave;
    const double wait =
        phases * STAGE_WAIT + alone / wa_ceil_div(s->team, wave);
    return (moved * per_wave + wait / resident) *
           (s->teams > 1 ? TEAMS_COST : 1.0) /
           ((double)s->block_rows * s->block_keys);
}
