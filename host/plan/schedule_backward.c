/* SPDX-License-Identifier: Apache-2.0
 * The backward pass: splits of partial sums, windows of a launch, and the
 * parts of the workspace. */
#include "plan/schedule.h"

#include <stddef.h>

#include "plan/family.h"

#include "../cl/common/args.h"

static uint64_t round_up(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

static uint64_t at_least_one(uint64_t x) { return x ? x : 1; }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t logits_of(const wa_problem *problem)
{
    return (uint64_t)problem->heads * problem->queries * problem->keys;
}

/* Does the kernel of rows sum what belongs to them? */
static bool rows_sum(const wa_schedule *s) { return s->row_groups != 0; }

uint64_t wa_most_bias_splits(const wa_problem *problem, winattn_tier tier)
{
    const uint64_t bytes =
        tier == WINATTN_TIER_MATRIX ? WA_MATRIX_BIAS_BYTES : WA_BACKWARD_BYTES;
    return at_least_one(bytes / 4 / logits_of(problem));
}

/* Rounds, of a window for each team, if windows are of so many mask classes
 * and a round has windows of one (cl/matrix/tile_scheduler.cl). */
static uint64_t rounds_of_classes(const wa_problem *problem,
                                  uint64_t windows_per_group,
                                  uint64_t mask_classes)
{
    const uint64_t rounds_per_class =
        (problem->windows + mask_classes - 1) / mask_classes;
    return mask_classes *
           ((rounds_per_class + windows_per_group - 1) / windows_per_group);
}

/* Splits for the windows of `head_blocks` of a split's work-groups; `most` at
 * most.
 */
static uint64_t even_splits(const wa_problem *problem, uint64_t groups,
                            uint64_t head_blocks, uint64_t windows_per_group,
                            uint64_t most)
{
    const uint64_t splits = least(
        at_least_one(least((groups + head_blocks - 1) / head_blocks, most)),
        at_least_one(rounds_of_classes(problem, windows_per_group, 1)));
    const wa_grid *grid = &problem->grid;
    const uint64_t windows_per_grid =
        grid->used
            ? (uint64_t)grid->windows[0] * grid->windows[1] * grid->windows[2]
            : 1;
    /* Distributed evenly: as many rounds with fewer splits, whichever way a
     * kernel sorts windows. */
    const uint64_t mask_classes[] = {1, problem->mask_windows,
                                     windows_per_grid};
    uint64_t even = 1;
    for (size_t i = 0; i < sizeof mask_classes / sizeof *mask_classes; i++) {
        const uint64_t all = rounds_of_classes(
            problem, windows_per_group,
            least(mask_classes[i], at_least_one(problem->windows)));
        const uint64_t rounds = at_least_one((all + splits - 1) / splits);
        const uint64_t enough = (all + rounds - 1) / rounds;
        even = enough > even ? enough : even;
    }
    return even;
}

uint64_t wa_whole_splits(uint64_t groups, uint64_t head_blocks)
{
    return groups < head_blocks ? head_blocks
                                : groups / head_blocks * head_blocks;
}

/* Splits of the last kernel, and where there is one that iterates over windows
 * of the kernel of rows, as many as windows are worth. */
static void choose_splits(const wa_problem *problem, wa_schedule *s,
                          uint64_t most, uint64_t *splits,
                          uint64_t *row_splits)
{
    const uint64_t row_head_blocks = (uint64_t)problem->heads * s->row_blocks;
    const uint64_t key_head_blocks = (uint64_t)problem->kv_heads *
                                     s->key_blocks *
                                     at_least_one(s->key_parts);
    const uint64_t windows_per_group = at_least_one(s->windows_per_group);
    *row_splits = 0;
    if (rows_sum(s)) { /* no more than start together */
        *splits = even_splits(problem,
                              wa_whole_splits(s->busy_groups, key_head_blocks),
                              key_head_blocks, windows_per_group, UINT64_MAX);
        *row_splits = even_splits(
            problem, wa_whole_splits(s->row_groups, row_head_blocks),
            row_head_blocks, at_least_one(s->row_windows_per_group), most);
    } else {
        *splits = even_splits(problem, s->busy_groups, key_head_blocks,
                              windows_per_group, most);
    }
}

/* What the statistics of a window take, if a kernel leaves some. */
static uint64_t row_bytes(const wa_problem *problem)
{
    return ROW_NUMBERS * 4ull * problem->heads * problem->queries;
}

/* And what blocks of rows leave (cl/matrix/sliding_numbers.cl). */
static uint64_t bound_bytes(const wa_problem *problem, const wa_schedule *s)
{
    return ROW_NUMBERS * 4ull * problem->heads * s->bound_blocks;
}

/* round: windows of which all splits and teams have work. */
static uint64_t windows_of_launch(const wa_problem *problem,
                                  const wa_device *device, const wa_plan *plan,
                                  uint64_t round)
{
    const bool sums = rows_sum(&plan->schedule);
    const uint64_t most_bytes =
        sums ? WA_MATRIX_BIAS_BYTES : WA_BACKWARD_BYTES;
    const double operations = 2.5 * wa_problem_row_operations(problem) *
                              problem->heads * problem->queries;
    const double by_time =
        wa_launch_operations(problem, device, plan) / operations;
    uint64_t windows =
        by_time < 1e9 ? (uint64_t)by_time : (uint64_t)1000000000u;
    if (!plan->fused)
        windows = least(windows, most_bytes / row_bytes(problem));
    if ((plan->fused || sums) && windows > round)
        windows = windows / round * round;
    if (plan->fused && windows < round)
        windows = round;
    return least(at_least_one(windows), at_least_one(problem->windows));
}

static void lay_out(const wa_problem *problem, wa_plan *plan)
{
    const wa_schedule *s = &plan->schedule;
    wa_workspace *w = &plan->workspace;
    const uint64_t row_splits = rows_sum(s) ? s->row_splits : s->splits;
    const uint64_t scales =
        rows_sum(s) ? row_splits * s->row_blocks : row_splits;
    if (!plan->fused)
        w->statistics = round_up(s->windows_per_launch * row_bytes(problem));
    if (problem->bias != WINATTN_BIAS_NONE)
        w->bias = round_up(row_splits * logits_of(problem) * 4);
    if (problem->variant == WINATTN_COSINE)
        w->scale = round_up(scales * problem->heads * 4);
    if (wa_problem_padding(problem) == 1)
        w->pad = round_up((uint64_t)s->splits * s->key_blocks *
                          problem->kv_heads * problem->head_dim * 4);
    if (problem->table.used)
        w->dense = round_up(wa_problem_dense_bias_bytes(problem));
    if (plan->tier == WINATTN_TIER_MATRIX &&
        problem->variant == WINATTN_SLIDING)
        w->bounds = s->windows_per_launch * bound_bytes(problem, s);
    w->maps = plan->family->own_bytes;
    w->all = w->statistics + w->bias + w->scale + w->bounds + w->maps +
             2 * w->pad + w->dense;
}

void wa_schedule_backward(const wa_problem *problem, const wa_device *device,
                          wa_plan *plan)
{
    wa_schedule *s = &plan->schedule;
    const uint64_t most = problem->bias != WINATTN_BIAS_NONE
                              ? wa_most_bias_splits(problem, plan->tier)
                              : UINT64_MAX;
    uint64_t splits, row_splits;
    choose_splits(problem, s, most, &splits, &row_splits);
    const uint64_t round =
        rows_sum(s) ? row_splits * at_least_one(s->row_windows_per_group)
                    : splits * at_least_one(s->windows_per_group);
    s->windows_per_launch = windows_of_launch(problem, device, plan, round);
    /* the first launch starts all partial sums */
    s->splits = (uint32_t)least(splits, s->windows_per_launch);
    s->row_splits = (uint32_t)least(row_splits, s->windows_per_launch);
    lay_out(problem, plan);
}
