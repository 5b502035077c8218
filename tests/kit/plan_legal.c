/* SPDX-License-Identifier: Apache-2.0
 * What plans promise: steps are those of the pass and fit the device, options
 * are read, the parts of the workspace hold what the steps leave there, and
 * shapes are such that the kernels compute right. Work-groups and bytes of
 * local memory are compared with the kernels' texts elsewhere
 * (standin/test_planned_sources.c). */
#include "plan_legal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/matrix_unit.h"
#include "plan/family.h"
#include "plan/schedule.h"
#include "program/source.h"

#include "../cl/common/args.h"

/* Remembers what is not so. */
#define REQUIRE(condition)                                                    \
    if (!(condition))                                                         \
    broken = #condition

bool device_with_unit(const wa_device *of, size_t number, wa_device *device)
{
    *device = *of;
    for (size_t u = 0; number > 0 && u < WA_MATRIX_UNITS; u++)
        if (&wa_matrix_units[u] != of->matrix_unit &&
            wa_matrix_unit_suits(&wa_matrix_units[u], of) && --number == 0)
            device->matrix_unit = &wa_matrix_units[u];
    return number == 0;
}

/* ---- Options ---- */

bool has_define(const char *defines, const char *name, unsigned value)
{
    char text[64];
    snprintf(text, sizeof text, "-D%s=%u ", name, value);
    return strstr(defines, text) != NULL;
}

uint32_t define_of(const char *defines, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "-D%s=", name);
    const char *at = strstr(defines, text);
    return at ? (uint32_t)strtoul(at + strlen(text), NULL, 10) : 0;
}

#define MOST_KERNELS 64
#define MOST_NAMES 64
#define NAME_SIZE 64

/* The text of a kernel, and switches that were seen to be required there. */
typedef struct program {
    const char *kernel;
    char *text;
    char names[MOST_NAMES][NAME_SIZE];
    size_t count;
} program;

/* NULL: the kernel has no text, or there are too many. */
static program *program_of(const char *kernel)
{
    static program programs[MOST_KERNELS];
    size_t i = 0;
    while (i < MOST_KERNELS && programs[i].kernel &&
           strcmp(programs[i].kernel, kernel) != 0)
        i++;
    if (i == MOST_KERNELS)
        return NULL;
    if (!programs[i].kernel &&
        wa_source_of_kernel(kernel, &programs[i].text) == WINATTN_SUCCESS &&
        programs[i].text)
        programs[i].kernel = kernel;
    return programs[i].kernel ? &programs[i] : NULL;
}

/* Does a file of it REQUIRE the switch? */
static bool reads(program *of, const char *name)
{
    char line[NAME_SIZE + 16];
    for (size_t i = 0; i < of->count; i++)
        if (strcmp(of->names[i], name) == 0)
            return true;
    snprintf(line, sizeof line, "\nREQUIRE(%s)\n", name);
    if (of->count == MOST_NAMES || strlen(name) >= NAME_SIZE ||
        !strstr(of->text, line))
        return false;
    strcpy(of->names[of->count++], name);
    return true;
}

/* Each switch is sent once, and somebody reads it. Names of extensions are for
 * a compiler's own headers. */
static const char *broken_options(const wa_step *step)
{
    static char broken[WA_DEFINES_SIZE + 128];
    char options[WA_DEFINES_SIZE];
    const char *seen[MOST_NAMES];
    size_t count = 0;
    program *of = program_of(step->kernel);
    if (!of)
        return "a kernel without a text";
    strcpy(options, step->defines);
    for (char *word = strtok(options, " "); word; word = strtok(NULL, " ")) {
        const char *wrong = NULL;
        word[strcspn(word, "=")] = 0;
        if (strncmp(word, "-D", 2) == 0 && strncmp(word, "-Dcl_", 5) != 0 &&
            !reads(of, word + 2))
            wrong = "read by nobody";
        for (size_t i = 0; i < count; i++)
            if (strcmp(seen[i], word) == 0)
                wrong = "sent twice";
        if (wrong) {
            snprintf(broken, sizeof broken, "%s: %s", word, wrong);
            return broken;
        }
        if (count == MOST_NAMES)
            return "too many options";
        seen[count++] = word;
    }
    return NULL;
}

/* ---- Steps ---- */

static const char *broken_step(const wa_device *device, const wa_plan *plan,
                               const wa_step *step)
{
    const char *broken = NULL;
    if (!step->kernel)
        return step->defines[0] ? "options without a kernel" : NULL;
    REQUIRE(step->work_group >= 1);
    REQUIRE(step->work_group <= device->max_work_group);
    REQUIRE(step->local_bytes <= device->local_bytes);
    REQUIRE(strlen(step->defines) + 1 < sizeof step->defines);
    if (step < &plan->step[WA_STEP_GIVEN] || step > &plan->step[WA_STEP_KEYS])
        return broken ? broken : broken_options(step);
    REQUIRE(has_define(step->defines, "BLOCK_KEYS", step->block_keys));
    REQUIRE((plan->tier == WINATTN_TIER_LOCAL) ==
            (strstr(step->kernel, "_local") != NULL));
    REQUIRE((strstr(step->defines, "-cl-opt-disable") != NULL) ==
            (device->miscompiles_barriers && plan->tier != WINATTN_TIER_CPU));
    return broken ? broken : broken_options(step);
}

/* Steps of the other pass, and those that a plan has no use for. */
static const char *broken_steps(const wa_problem *p, const wa_plan *plan)
{
    const wa_step *step = plan->step;
    const bool has_table = p->table.used;
    const char *broken = NULL;
    REQUIRE(!step[WA_STEP_EXPAND].kernel || has_table);
    if (plan->pass == WA_FORWARD) {
        REQUIRE(step[WA_STEP_FORWARD].kernel);
        for (int i = WA_STEP_GIVEN; i < WA_STEPS; i++)
            REQUIRE(!step[i].kernel);
        return broken;
    }
    REQUIRE(!step[WA_STEP_FORWARD].kernel);
    REQUIRE(step[WA_STEP_KEYS].kernel && step[WA_STEP_SUM].kernel);
    REQUIRE(plan->fused == !step[WA_STEP_ROWS].kernel);
    REQUIRE(!step[WA_STEP_STATISTICS].kernel ||
            (!plan->fused && (plan->tier == WINATTN_TIER_LOCAL ||
                              p->variant == WINATTN_SLIDING)));
    REQUIRE(!step[WA_STEP_GIVEN].kernel ||
            (step[WA_STEP_STATISTICS].kernel &&
             step[WA_STEP_GIVEN].block_rows ==
                 step[WA_STEP_STATISTICS].block_rows));
    REQUIRE(has_table == (step[WA_STEP_SUM_TABLE].kernel != NULL));
    return broken;
}

/* ---- The workspace ---- */

/* Parts have what is needed and are filled up to the next one's place. */
static bool holds(uint64_t part, uint64_t needed)
{
    return part % 16 == 0 && part >= needed && part < needed + 16;
}

static const char *broken_workspace(const wa_problem *p, const wa_plan *plan)
{
    const wa_schedule *s = &plan->schedule;
    const wa_workspace *w = &plan->workspace;
    const bool is_backward = plan->pass == WA_BACKWARD;
    /* of what rows have: the kernel of rows sums it, where it iterates over
     * windows */
    const uint64_t splits = s->row_splits ? s->row_splits : s->splits;
    const uint64_t sums = s->row_splits ? splits * s->row_blocks : splits;
    const uint64_t rows = (uint64_t)p->heads * p->queries;
    const char *broken = NULL;
    REQUIRE(holds(w->statistics,
                  is_backward && !plan->fused
                      ? s->windows_per_launch * rows * ROW_NUMBERS * 4
                      : 0));
    REQUIRE(holds(w->bias, is_backward && p->bias != WINATTN_BIAS_NONE
                               ? splits * rows * p->keys * 4
                               : 0));
    REQUIRE(holds(w->scale, is_backward && p->variant == WINATTN_COSINE
                                ? sums * p->heads * 4
                                : 0));
    REQUIRE(holds(w->pad, is_backward && wa_problem_padding(p) == 1
                              ? (uint64_t)s->splits * s->key_blocks *
                                    p->kv_heads * p->head_dim * 4
                              : 0));
    REQUIRE(holds(w->dense,
                  p->table.used &&
                          (is_backward || plan->step[WA_STEP_EXPAND].kernel)
                      ? rows * p->keys * 4
                      : 0));
    REQUIRE(holds(w->bounds, is_backward && p->variant == WINATTN_SLIDING &&
                                     plan->tier == WINATTN_TIER_MATRIX
                                 ? s->windows_per_launch * p->heads *
                                       s->bound_blocks * ROW_NUMBERS * 4
                                 : 0));
    REQUIRE(w->maps == (plan->family->engine == WA_ENGINE_MORE_SPECIAL
                            ? SLIDING_MAP_ROOM
                            : 0));
    REQUIRE(w->all == w->statistics + w->bias + w->scale + w->bounds +
                          w->maps + 2 * w->pad + w->dense);
    return broken;
}

/* ---- Shapes ---- */

static bool power_of_two(uint32_t x) { return x != 0 && (x & (x - 1)) == 0; }

static const char *broken_cpu(const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    const uint32_t lanes = define_of(step->defines, "LANES");
    REQUIRE(lanes == 4 || lanes == 8 || lanes == 16);
    REQUIRE(step->block_keys %
                (lanes * define_of(step->defines, "TILE_VECS")) ==
            0);
    REQUIRE(define_of(step->defines, "OUT_VECS") >= 1);
    REQUIRE(define_of(step->defines, "TILE_ROWS") >= 1);
    return broken;
}

static const char *broken_local(const wa_problem *p, const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    const uint32_t team = define_of(step->defines, "TEAM");
    const uint32_t teams = define_of(step->defines, "TEAMS");
    const uint32_t stage_keys = define_of(step->defines, "STAGE_KEYS");
    const uint32_t stage_dims = define_of(step->defines, "STAGE_DIMS");
    const uint32_t row_items = define_of(step->defines, "ROW_ITEMS");
    const uint32_t out_rows = define_of(step->defines, "OUT_ROWS");
    REQUIRE(team * teams == step->work_group);
    REQUIRE(stage_dims % 4 == 0);
    REQUIRE(stage_keys % 4 == 0 || stage_keys == step->block_keys);
    REQUIRE(stage_keys <= step->block_keys);
    REQUIRE(power_of_two(row_items) && team % row_items == 0);
    REQUIRE(wa_ceil_div(step->block_rows, out_rows) * (stage_dims / 4) <=
            team);
    REQUIRE(teams == 1 || p->variant != WINATTN_SLIDING);
    return broken;
}

/* What a kernel's options say of its blocks, which windows may end in: those
 * of `down` of `rows` run down tiles of the unit, those of `across` of `keys`
 * across. */
static const char *broken_blocks(const wa_matrix_unit *unit,
                                 const wa_step *kernel, uint32_t down,
                                 uint32_t rows, uint32_t across, uint32_t keys)
{
    const char *broken = NULL;
    const char *options = kernel->defines;
    const uint32_t waves = define_of(options, "WAVES_PER_WINDOW");
    const uint32_t teams = define_of(options, "WINDOWS_PER_GROUP");
    const uint32_t stages = define_of(options, "STAGES");
    const uint32_t subtile_keys = define_of(options, "SUBTILE_KEYS");
    REQUIRE(down >= 1 && down <= rows && across >= 1 && across <= keys);
    REQUIRE(down == rows || down % unit->queries == 0);
    REQUIRE(across == keys || across % unit->tile == 0);
    REQUIRE(waves >= 1 && teams >= 1 && teams <= 15);
    REQUIRE(waves * teams * unit->wave == kernel->work_group);
    REQUIRE(stages == 1 || (stages >= 2 && unit->copies_async));
    REQUIRE(subtile_keys >= 1 && subtile_keys % unit->tile == 0);
    return broken;
}

/* Blocks of a sliding kernel are what they are, however long windows are. */
static const char *broken_turns(const wa_matrix_unit *unit,
                                const wa_step *kernel, uint32_t down,
                                uint32_t across)
{
    const char *broken = NULL;
    const uint32_t waves = define_of(kernel->defines, "WAVES_PER_WINDOW");
    REQUIRE(waves * unit->wave == kernel->work_group);
    REQUIRE(down % (waves * unit->queries) == 0);
    REQUIRE(across % unit->tile == 0);
    return broken;
}

/* cl/matrix/forward_matrix.cl */
static const char *broken_forward(const wa_problem *p, const wa_device *device,
                                  const wa_plan *plan)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_step *step = &plan->step[WA_STEP_FORWARD];
    const wa_schedule *s = &plan->schedule;
    const uint32_t windows = define_of(step->defines, "WINDOWS_PER_GROUP");
    const char *broken = broken_blocks(unit, step, step->block_rows,
                                       p->queries, step->block_keys, p->keys);
    REQUIRE(!define_of(step->defines, "BIAS_CACHE") ||
            p->bias != WINATTN_BIAS_NONE || p->mask != MASK_NONE);
    REQUIRE(s->work_tiles_per_group >= 1);
    REQUIRE(s->work_tiles_per_group + s->idle_teams == windows);
    /* teams are idle only if the others have a window at most */
    REQUIRE(s->idle_teams == 0 ||
            (uint64_t)s->row_blocks * p->heads * p->windows <=
                (uint64_t)s->work_tiles_per_group * device->compute_units ||
            device->compute_units == 0);
    REQUIRE(s->groups >= 1);
    REQUIRE(s->groups < 65536 || s->groups == s->row_blocks * p->heads);
    REQUIRE(device->address_bits != 32 ||
            (uint64_t)s->groups * step->work_group <= UINT32_MAX);
    /* every round of a launch but the last gives each team a window */
    REQUIRE(s->windows_per_launch >= 1);
    REQUIRE(s->windows_per_launch % s->work_tiles_per_group == 0);
    return broken;
}

/* cl/matrix/backward_rows_matrix.cl and backward_keys_matrix.cl */
static const char *broken_pair(const wa_problem *p, const wa_matrix_unit *unit,
                               const wa_plan *plan)
{
    const wa_step *first = &plan->step[WA_STEP_ROWS];
    const wa_step *last = &plan->step[WA_STEP_KEYS];
    const wa_schedule *s = &plan->schedule;
    const bool has_bias = p->bias != WINATTN_BIAS_NONE;
    const bool streams = first->block_keys < p->keys;
    const uint32_t keeps_dbias = define_of(first->defines, "KEEPS_DBIAS");
    const uint32_t waves = define_of(first->defines, "WAVES_PER_WINDOW");
    const uint32_t tiles = wa_ceil_div(first->block_rows, unit->queries);
    const char *of_rows =
        broken_blocks(unit, first, first->block_rows, p->queries,
                      first->block_keys, p->keys);
    const char *broken = broken_blocks(unit, last, last->block_keys, p->keys,
                                       last->block_rows, p->queries);
    if (of_rows)
        return of_rows;
    REQUIRE(s->row_blocks == wa_ceil_div(p->queries, first->block_rows));
    REQUIRE(waves >= tiles && waves % tiles == 0);
    REQUIRE(keeps_dbias <= 2 && (keeps_dbias == 0 || has_bias));
    REQUIRE(keeps_dbias != 1 || !streams);
    REQUIRE(keeps_dbias == 1 || !has_bias || s->row_windows_per_group == 1);
    REQUIRE(wa_ceil_div(last->block_keys, unit->queries) <=
            define_of(last->defines, "WAVES_PER_WINDOW"));
    REQUIRE(define_of(last->defines, "BIAS_CACHE") == 0 || !has_bias ||
            p->heads == p->kv_heads);
    REQUIRE(s->row_splits >= 1 && s->row_splits <= s->windows_per_launch);
    return broken;
}

/* cl/matrix/backward_matrix.cl */
static const char *broken_whole(const wa_problem *p,
                                const wa_matrix_unit *unit,
                                const wa_plan *plan)
{
    const wa_step *kernel = &plan->step[WA_STEP_KEYS];
    const wa_schedule *s = &plan->schedule;
    const char *options = kernel->defines;
    const uint32_t rows = kernel->block_rows;
    const uint32_t teams = define_of(options, "WINDOWS_PER_GROUP");
    const uint32_t keeps_dbias = define_of(options, "KEEPS_DBIAS");
    const bool has_bias = p->bias != WINATTN_BIAS_NONE;
    const char *broken = broken_blocks(unit, kernel, rows, p->queries,
                                       kernel->block_keys, p->keys);
    REQUIRE(s->row_splits == 0);
    REQUIRE(s->row_blocks == wa_ceil_div(p->queries, rows));
    REQUIRE(wa_ceil_div(rows, unit->queries) <=
            define_of(options, "WAVES_PER_WINDOW"));
    /* All rows are one block, and all keys, which only these rows see. */
    REQUIRE(p->heads == p->kv_heads && rows >= p->queries);
    REQUIRE(kernel->block_keys == p->keys);
    REQUIRE(keeps_dbias <= 1 && (!keeps_dbias || has_bias));
    REQUIRE(keeps_dbias || !has_bias || teams == 1);
    /* every round of a launch but the last gives each team a window */
    REQUIRE(s->windows_per_launch >= p->windows ||
            s->windows_per_launch % (s->splits * teams) == 0);
    REQUIRE(s->splits == 1 || s->splits * p->kv_heads <= s->busy_groups);
    return broken;
}

/* cl/matrix/sliding_rows_matrix.cl and sliding_keys_matrix.cl */
static const char *broken_sliding_pair(const wa_problem *p,
                                       const wa_matrix_unit *unit,
                                       const wa_plan *plan)
{
    const wa_step *rows = &plan->step[WA_STEP_ROWS];
    const wa_step *keys = &plan->step[WA_STEP_KEYS];
    const wa_schedule *s = &plan->schedule;
    const char *of_rows =
        broken_turns(unit, rows, rows->block_rows, rows->block_keys);
    const char *broken =
        broken_turns(unit, keys, keys->block_keys, keys->block_rows);
    REQUIRE(plan->step[WA_STEP_GIVEN].kernel);
    REQUIRE(plan->step[WA_STEP_STATISTICS].block_rows == rows->block_rows);
    REQUIRE(s->bound_blocks == s->row_blocks);
    /* each window has work-groups of its own, unless they are too many */
    REQUIRE(s->row_splits == 0);
    REQUIRE(s->splits == s->windows_per_launch ||
            s->windows_per_launch * p->kv_heads * s->key_blocks > INT32_MAX);
    return of_rows ? of_rows : broken;
}

/* Those of kernels with wgmma are chosen from few, which say in their texts
 * what they rely on, and stand in a table (plan_wgmma.c). */
static const char *broken_fragments(const wa_problem *p,
                                    const wa_device *device,
                                    const wa_plan *plan)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    const wa_step *forward = &plan->step[WA_STEP_FORWARD];
    const bool slides = p->variant == WINATTN_SLIDING;
    if (plan->family->engine > WA_ENGINE_MATRIX)
        return NULL;
    if (plan->pass == WA_BACKWARD)
        return slides        ? broken_sliding_pair(p, unit, plan)
               : plan->fused ? broken_whole(p, unit, plan)
                             : broken_pair(p, unit, plan);
    return slides ? broken_turns(unit, forward, forward->block_rows,
                                 forward->block_keys)
                  : broken_forward(p, device, plan);
}

/* ---- Schedules ---- */

static const char *broken_launches(const wa_problem *p,
                                   const wa_device *device,
                                   const wa_plan *plan)
{
    const char *broken = NULL;
    const wa_schedule *s = &plan->schedule;
    const wa_step *forward = &plan->step[WA_STEP_FORWARD];
    const wa_step *last = &plan->step[WA_STEP_KEYS];
    if (plan->pass == WA_FORWARD) {
        REQUIRE(s->row_blocks == wa_ceil_div(p->queries, forward->block_rows));
        REQUIRE(s->work_tiles_per_launch >= 1);
        REQUIRE(plan->tier == WINATTN_TIER_MATRIX || s->groups == 0);
        REQUIRE(!s->groups ||
                has_define(forward->defines, "PERSISTENT_MULTI_BLOCK",
                           s->persistent_multi_block));
        REQUIRE(!s->sharing_groups ||
                s->sharing_groups == device->compute_units);
        return broken;
    }
    /* kernels with wgmma loop over tiles of a window's keys */
    const bool loops = plan->fused && plan->family->engine > WA_ENGINE_MATRIX;
    const uint64_t splits = s->row_splits ? s->row_splits : s->splits;
    REQUIRE(!plan->fused || loops || last->block_keys >= p->keys);
    REQUIRE(loops || s->key_blocks == wa_ceil_div(p->keys, last->block_keys));
    REQUIRE(s->splits >= 1 && s->splits <= s->windows_per_launch);
    /* all start at once, unless there are too many heads */
    REQUIRE(!loops || s->splits == 1 ||
            s->splits * p->heads <= device->compute_units);
    REQUIRE(splits == 1 || p->bias == WINATTN_BIAS_NONE ||
            splits * p->heads * p->queries * p->keys * 4 <=
                (plan->tier == WINATTN_TIER_MATRIX ? WA_MATRIX_BIAS_BYTES
                                                   : WA_BACKWARD_BYTES));
    return broken;
}

const char *broken_plan(const wa_problem *p, const wa_device *device,
                        const wa_plan *plan)
{
    const bool is_forward = plan->pass == WA_FORWARD;
    const char *broken = broken_steps(p, plan);
    REQUIRE(plan->reason[0] != 0);
    REQUIRE(plan->refusals[plan->tier][0] == 0);
    for (int i = 0; !broken && i < WA_STEPS; i++)
        broken = broken_step(device, plan, &plan->step[i]);
    if (!broken)
        broken = broken_launches(p, device, plan);
    if (!broken)
        broken = broken_workspace(p, plan);
    if (!broken && plan->tier == WINATTN_TIER_MATRIX)
        broken = broken_fragments(p, device, plan);
    if (!broken && is_forward && plan->tier != WINATTN_TIER_MATRIX)
        broken = plan->tier == WINATTN_TIER_CPU ? broken_cpu(plan)
                                                : broken_local(p, plan);
    return broken;
}
