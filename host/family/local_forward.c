/* SPDX-License-Identifier: Apache-2.0
 * Shapes for cl/local/forward_local.cl. Every legal shape is scored with a
 * small model of a compute unit, and the cheapest wins.
 *
 * The model: a compute unit issues four instructions of 32 work-items a
 * cycle, and local memory moves 128 bytes a cycle, whoever else reads the same
 * address. The busier of the two sets the pace; what work-items wait for is
 * divided by the teams that are resident to work meanwhile. Its constants were
 * fitted to 500 shapes of nine problems on an H200 (bench/tune): the shape
 * it chose took 1.00 to 1.15 of the best one's time, 1.4 in the sliding
 * variant. Where that was measured and matters, tuning.c has the better shape.
 */
#include <stdio.h>

#include "base/text.h"
#include "family/local_gradient.h"
#include "plan/defines.h"

#include "../cl/local/forward_extents.h"
#include "../cl/local/team_extents.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Alignment between the kernel's local arrays. */
#define LOCAL_SLACK 128u
/* Cycles from the start of a staging to the end of its barrier. */
#define STAGE_WAIT 2000.0
/* What teams of one work-group cost each other by sharing barriers. */
#define TEAMS_COST 0.04
/* The streaming kernel unrolls its stages of channels. */
#define MOST_KEPT_STAGES 4u
/* Quads of o that a work-item sums at most, and that it keeps through the
 * score tiles at most: with 13 of them, code for NVIDIA spilled. */
#define MOST_SUMS 16u
#define MOST_KEPT_SUMS 8u
/* Query rows of a work tile at most; of the sliding variant always. */
#define MOST_ROWS 128u
#define SLIDING_ROWS 64u

/* ---- What a shape follows to ---- */

typedef struct tiling {
    uint32_t dim_stages, key_stages;
    uint32_t row_tiles, col_tiles; /* score tiles of a stage */
    uint32_t out_across, out_tiles;
    uint32_t q_rows, kv_rows, score_rows;
    uint32_t key_quads;
    bool streaming;
    uint64_t team_bytes; /* local memory, without gaps between arrays */
} tiling;

/* By the kernel's formulas, which name the switches that it is built with. */
static tiling tiling_of(const wa_problem *problem, const wa_local_shape *s)
{
    const uint64_t VARIANT = problem->variant;
    const uint64_t HEAD_DIM = problem->head_dim;
    const uint64_t BLOCK_ROWS = s->block_rows, BLOCK_KEYS = s->block_keys;
    const uint64_t STAGE_KEYS = s->stage_keys, STAGE_DIMS = s->stage_dims;
    const uint64_t SCORE_ROWS = s->score_rows, SCORE_COLS = s->score_cols;
    const uint64_t OUT_ROWS = s->out_rows, ROW_ITEMS = s->row_items;
    const bool STREAMING = VARIANT == SLIDING || problem->keys > BLOCK_KEYS;
    const tiling t = {.dim_stages = (uint32_t)(DIM_STAGES),
                      .key_stages = (uint32_t)(KEY_STAGES),
                      .row_tiles = (uint32_t)(ROW_TILES),
                      .col_tiles = (uint32_t)(COL_TILES),
                      .out_across = (uint32_t)(STAGE_QUADS),
                      .out_tiles = (uint32_t)(OUT_TILES),
                      .q_rows = (uint32_t)(Q_ROWS),
                      .kv_rows = (uint32_t)(KV_ROWS),
                      .score_rows = (uint32_t)(ALL_ROWS),
                      .key_quads = (uint32_t)(CEIL_DIV(BLOCK_KEYS, 4)),
                      .streaming = STREAMING,
                      .team_bytes = TEAM_LOCAL_BYTES};
    return t;
}

/* Of a work-group. */
static uint64_t local_bytes(const wa_local_shape *s, const tiling *t)
{
    return s->teams * t->team_bytes;
}

/* Registers of a work-item: the larger of its two tiles, and what addresses
 * need. Where sums of o live through the score tiles it needs both, and
 * compilers were seen to take half as much again. Intel's keeps the positions
 * of bias and mask that are not added first, or that are more than a product.
 */
static uint32_t registers_of(const wa_problem *problem,
                             const wa_device *device, const wa_local_shape *s,
                             const tiling *t)
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
static double rounds_of(const wa_problem *problem, const wa_local_shape *s,
                        const tiling *t)
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

/* NULL if the numbers of a shape say what a tiling follows from. */
static const char *malformed(const wa_local_shape *s)
{
    if (!wa_shape_is_sound(&wa_local_numbers, s))
        return "a number of the shape is out of its bounds";
    if (s->stage_keys > s->block_keys || s->stage_dims % 4 != 0 ||
        (s->stage_keys % 4 != 0 && s->stage_keys != s->block_keys))
        return "a stage is no whole number of quads";
    return NULL;
}

/* NULL if kernel and device allow the shape, else why not. */
static const char *refusal(const wa_problem *problem, const wa_device *device,
                           const wa_local_shape *s, const tiling *t)
{
    if ((s->row_items & (s->row_items - 1)) != 0 ||
        s->team % s->row_items != 0)
        return "row_items does not divide a team";
    if (t->out_tiles * t->out_across > s->team)
        return "a team does not cover its rows of o";
    if (s->stage_dims / 4 > s->team)
        return "a team does not cover a row";
    if (t->streaming && t->dim_stages > MOST_KEPT_STAGES)
        return "a streaming softmax would keep too many stages of channels";
    if (s->teams > 1 && problem->variant == WINATTN_SLIDING)
        return "teams of a work-group would walk different keys";
    /* seen with ocloc 22.43, see cl/local/team.cl */
    if (device->sub_group && t->streaming && t->dim_stages > 1)
        return "Intel's compiler would keep sums in private memory";
    if (device->sub_group && s->teams > 1)
        return "Intel's compiler would spill the addresses of teams";
    if (s->team * s->teams > device->max_work_group)
        return "work-groups of the device are too small";
    if (local_bytes(s, t) + LOCAL_SLACK > device->local_bytes)
        return "local memory of the device is too small";
    if (device->loop_limit && rounds_of(problem, s, t) > device->loop_limit)
        return "the device ends a work-item's loops too early";
    return NULL;
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *demanded, wa_plan *plan)
{
    const wa_local_shape *shape = &demanded->local_forward;
    const char *why = malformed(shape);
    if (why)
        return why;
    const tiling t = tiling_of(problem, shape);
    why = refusal(problem, device, shape, &t);
    if (why)
        return why;
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    step->kernel = "forward_local";
    plan->shape.local = *shape;
    step->block_rows = shape->block_rows;
    step->block_keys = shape->block_keys;
    step->local_bytes = (uint32_t)local_bytes(shape, &t);
    plan->schedule.work_tiles_per_group = shape->teams;
    step->work_group = shape->team * shape->teams;
    wa_local_require_access(problem, shape->stage_dims, plan);
    return NULL;
}

/* ---- The model ---- */

/* Waves that a team needs for `items` pieces of work, one to a work-item. */
static double waves(uint32_t items, uint32_t team, uint32_t wave)
{
    return (double)(items / team) * wa_ceil_div(team, wave) +
           wa_ceil_div(items % team, wave);
}

/* Work-groups that a compute unit holds at once. */
static double resident_groups(const wa_problem *problem,
                              const wa_device *device, const wa_local_shape *s,
                              const tiling *t)
{
    const double by_memory =
        (double)device->local_capacity /
        ((double)local_bytes(s, t) + WA_RESERVED_LOCAL_BYTES);
    const double by_registers =
        (double)device->register_words /
        ((registers_of(problem, device, s, t) + 40.0) * s->team * s->teams);
    const double by_items = 2048.0 / (s->team * s->teams);
    const double groups =
        (uint32_t)MIN(MIN(by_memory, by_registers), MIN(by_items, 16.0));
    return MAX(groups, 1.0);
}

/* Cycles of a compute unit for each logit. */
static double cost_of(const wa_problem *problem, const wa_device *device,
                      const wa_local_shape *s, const tiling *t)
{
    const uint32_t wave = MIN(MAX(device->wave, 1), s->team);
    const double stages = (double)t->dim_stages * t->key_stages;
    const double dim_quads = s->stage_dims / 4;
    const bool cosine = problem->variant == WINATTN_COSINE;
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
    double norms = 0.0;
    if (cosine)
        norms = (double)(s->block_rows + s->block_keys) * dim_quads / wave *
                t->dim_stages;

    const double fma = score_waves * stages * dim_quads * 4.0 * s->score_rows *
                           s->score_cols +
                       out_waves * t->key_quads * 16.0 * s->out_rows;
    const double moved = 4.0 * (score_quads + out_quads + staged + stored +
                                norms + 3.0 * row_quads) +
                         logits * (1.5 + 2.5 * score_bias);
    const double issued =
        0.25 * (fma + 1.1 * (score_quads + out_quads) +
                logits * (2.0 + 3.0 * score_bias) + 26.0 * row_quads +
                12.0 * (staged + stored) + 150.0 * wa_ceil_div(s->team, wave));
    const double per_wave = wave / 32.0;
    const double busy = MAX(moved, issued) * per_wave;

    const double resident = resident_groups(problem, device, s, t) * s->teams;
    const double phases =
        (t->streaming ? 1.0 : 2.0) + stages * (cosine ? 3.0 : 2.0);
    const double alone = (4.0 * issued + moved) * per_wave;
    const double wait =
        phases * STAGE_WAIT + alone / wa_ceil_div(s->team, wave);
    double log2_teams = 0.0;
    for (uint32_t n = s->teams; n > 1; n /= 2)
        log2_teams += 1.0;
    return (busy + wait / resident) * (1.0 + TEAMS_COST * log2_teams) /
           ((double)s->block_rows * s->block_keys);
}

/* ---- All shapes ---- */

static const struct {
    uint32_t rows, cols;
} score_tiles[] = {{8, 8}, {7, 7}, {6, 6}, {4, 8}, {4, 7},
                   {4, 6}, {4, 4}, {2, 8}, {2, 4}, {1, 4}};
#define SCORE_TILES (sizeof score_tiles / sizeof *score_tiles)

static void visit_teams(wa_search *find, wa_local_shape s)
{
    const uint32_t most = MIN(find->device->max_work_group, 256);
    const uint32_t step = MAX(find->device->wave, 32);
    for (s.team = step; s.team <= most; s.team += step) {
        find->visited++;
        const uint32_t down = s.team / (s.stage_dims / 4);
        if (down == 0)
            continue;
        s.out_rows = wa_ceil_div(s.block_rows, down);
        s.row_items = 1;
        while (s.row_items * 2 * s.block_rows <= s.team &&
               s.team % (s.row_items * 2) == 0)
            s.row_items *= 2;
        const tiling t = tiling_of(find->problem, &s);
        if (s.out_rows > MOST_SUMS ||
            (t.streaming && s.out_rows * t.dim_stages > MOST_KEPT_SUMS) ||
            registers_of(find->problem, find->device, &s, &t) >
                find->device->registers)
            continue;
        for (s.teams = 1; s.teams * s.team <= most; s.teams *= 2) {
            find->visited++;
            if (!refusal(find->problem, find->device, &s, &t)) {
                const wa_tuned_shape shape = {.local_forward = s};
                find->fits = true;
                find->visit(find->data, &shape,
                            cost_of(find->problem, find->device, &s, &t));
            }
        }
    }
}

bool wa_local_may_fit(const wa_device *device, uint32_t rows, uint32_t keys,
                      uint32_t stage_keys, uint32_t stage_dims)
{
    const uint64_t pitch = (stage_dims / 4) | 1;
    const uint64_t quads = ((uint64_t)rows + stage_keys) * pitch +
                           (uint64_t)rows * (wa_ceil_div(keys, 4) | 1);
    return quads * 16 + LOCAL_SLACK <= device->local_bytes;
}

static bool may_fit(const wa_search *find, const wa_local_shape *s)
{
    return wa_local_may_fit(find->device, s->block_rows, s->block_keys,
                            s->stage_keys, s->stage_dims);
}

/* Channels of a stage: all, or halves of them down to 16; keys likewise. */
static void visit_stages(wa_search *find, wa_local_shape s)
{
    const uint32_t quads = wa_ceil_div(find->problem->head_dim, 4);
    for (uint32_t parts = 1; parts == 1 || quads / parts >= 4; parts *= 2) {
        s.stage_dims = wa_ceil_div(quads, parts) * 4;
        for (uint32_t split = 1; split <= 8; split *= 2) {
            s.stage_keys = wa_ceil_div(s.block_keys, split);
            if (split > 1)
                s.stage_keys = wa_ceil_div(s.stage_keys, 4) * 4;
            if (split > 1 && s.stage_keys < 16)
                break;
            find->visited++;
            if (may_fit(find, &s))
                visit_teams(find, s);
        }
    }
}

/* Shapes whose softmax takes block_keys keys at a time. */
static void visit_rows(wa_search *find, uint32_t block_keys)
{
    const uint32_t all = find->problem->variant == WINATTN_SLIDING
                             ? SLIDING_ROWS
                             : find->problem->queries;
    const uint32_t least = MIN(all, 8);
    wa_local_shape s = {.block_keys = block_keys};
    for (s.block_rows = wa_even_size(all, MOST_ROWS); s.block_rows >= least;
         s.block_rows = wa_even_size(all, s.block_rows - 1)) {
        find->visited++;
        for (size_t i = 0; i < SCORE_TILES && may_fit(find, &s); i++) {
            wa_local_shape tiled = s;
            tiled.score_rows = score_tiles[i].rows;
            tiled.score_cols = score_tiles[i].cols;
            visit_stages(find, tiled);
        }
    }
}

static void visit(wa_search *find)
{
    if (find->problem->variant != WINATTN_SLIDING)
        visit_rows(find, find->problem->keys);
    if (find->fits)
        return;
    for (uint32_t keys = 128; keys >= 16; keys /= 2)
        visit_rows(find, keys);
}

void wa_local_say_none(const wa_device *device, bool fits, char *why)
{
    (void)fits;
    snprintf(why, WA_REASON_SIZE,
             "no shape fits %u bytes of local memory, %u registers and "
             "work-groups of %u%s",
             device->local_bytes, device->registers, device->max_work_group,
             device->loop_limit ? " on a device that ends long loops early"
                                : "");
}

static void explain(const wa_problem *problem, const wa_device *device,
                    const wa_tuned_shape *best, char *reason)
{
    const wa_local_shape *shape = &best->local_forward;
    const char *kept = problem->variant == WINATTN_SLIDING ||
                               shape->block_keys < problem->keys
                           ? "streaming softmax"
                       : shape->block_rows < problem->queries
                           ? "whole rows of the attention matrix"
                           : "whole attention matrix";
    wa_append(reason, WA_REASON_SIZE,
              "%s in local memory; modelled best of the shapes within %u "
              "bytes, %u registers and work-groups of %u",
              kept, device->local_bytes, device->registers,
              device->max_work_group);
}

static void add_options(const wa_problem *problem, const wa_device *device,
                        const wa_plan *plan, char *text, size_t size)
{
    wa_append_shape(&wa_local_numbers, &plan->shape.local, text, size);
    wa_append_local_options(problem, device, text, size);
}

const wa_family wa_local_forward = {.engine = WA_ENGINE_LOCAL,
                                    .pass = WA_FORWARD,
                                    .tuned = WA_LOCAL_FORWARD,
                                    .visit = {visit},
                                    .say_none = wa_local_say_none,
                                    .explain = explain,
                                    .take = take,
                                    .add_options = add_options};
