/* SPDX-License-Identifier: Apache-2.0
 * When the gradients of windows are made by cl/hopper/window_rows_wgmma.cl and
 * cl/hopper/window_keys_wgmma.cl, and in which shapes: one for each number of
 * rows, as measured on an H200 (bench/notes.md). */
#include <stdio.h>

#include "plan/defines.h"
#include "plan/planner.h"
#include "plan/wgmma.h"

#include "../cl/hopper/warpgroup_extents.h"

#include "../cl/hopper/gradient_windows_extents.h"

/* Fragments are faster where there are fewer queries or keys: 64 rows of a
 * warpgroup then are too many, or windows too short. */
#define LEAST_TOKENS 145u
/* That compute, with 232 registers for a work-item, of which sums of dBias may
 * take so many; 64 rows need one for two keys. */
#define WARPGROUPS_TAKEN 2u
#define MOST_SUMS 128u
#define TAKEN_ROWS (WARPGROUPS_TAKEN * WARPGROUP_ROWS)
/* Keys of a tile where sums of dBias leave few registers. */
#define SUM_TILE 32u
#define MOST_STAGES 4u
#define LEAST_STAGES 2u

/* A kernel's: rows of tensors that a work-group keeps, whole waves' of those
 * that it owns; of the others all with those that fill tiles up, those of a
 * tile, and of one where sums of dBias take registers. */
typedef struct window_shape {
    uint32_t kept, others, tile, subtile, stages, number_bytes;
} window_shape;

static uint32_t work_items(void) { return (WARPGROUPS_TAKEN + 1) * WARPGROUP; }

static uint32_t bias_bytes(const wa_problem *problem)
{
    return problem->bias == WINATTN_BIAS_NONE         ? 0u
           : problem->bias_dtype == WINATTN_TERM_SAME ? 2u
                                                      : 4u;
}

/* The names are those of cl/hopper/gradient_windows_extents.h. */
static uint64_t local_bytes(const wa_problem *problem, const window_shape *s)
{
    const uint64_t OWN_ROWS = s->kept, OTHER_ROWS = s->others;
    const uint64_t OTHER_BYTES = s->number_bytes;
    const uint64_t STAGES = s->stages, BIAS_BYTES = bias_bytes(problem);
    return WINDOW_LOCAL_BYTES;
}

/* ---- What the kernels compute ---- */

static const char *problem_refusal(const wa_problem *problem)
{
    if (problem->dtype == WINATTN_FP32)
        return "fp32 would be rounded";
    if (problem->grid.used)
        return "no gradients on grids are made so";
    if (problem->mask != MASK_NONE)
        return "no gradients behind masks are made so";
    if (problem->table.used)
        return "no gradients of tables are made so";
    if (problem->heads != problem->kv_heads)
        return "heads that share keys are not added up";
    if (problem->head_dim != WINDOW_CHANNELS)
        return "its gradients have 32 channels";
    if (problem->queries < LEAST_TOKENS || problem->keys < LEAST_TOKENS)
        return "fragments are as fast for small windows";
    if (!wa_wgmma_copies(problem, WA_BACKWARD))
        return "rows are not copied in 16 bytes";
    return NULL;
}

/* ---- Shapes ---- */

/* Tiles that leave the fewest rows without a number, of these the largest. */
static uint32_t tile_of(uint32_t rows)
{
    static const uint32_t tiles[] = {64, 48, 32};
    uint32_t best = tiles[0];
    for (size_t i = 1; i < sizeof tiles / sizeof *tiles; i++)
        if (wa_ceil_div(rows, tiles[i]) * tiles[i] <
            wa_ceil_div(rows, best) * best)
            best = tiles[i];
    return best;
}

static window_shape shape_of(uint32_t own, uint32_t others, uint32_t tile)
{
    const window_shape s = {
        .kept = own < TAKEN_ROWS ? wa_ceil_div(own, 16) * 16 : TAKEN_ROWS,
        .others = wa_ceil_div(others, tile) * tile,
        .tile = tile,
        .stages = MOST_STAGES};
    return s;
}

static const char *fit(const wa_problem *problem, const wa_device *device,
                       window_shape *s)
{
    while (s->stages > LEAST_STAGES &&
           local_bytes(problem, s) > device->local_bytes)
        s->stages--;
    if (local_bytes(problem, s) > device->local_bytes)
        return "the device's local memory is too small";
    if (work_items() > device->max_work_group)
        return "the device's work-groups are too small";
    return NULL;
}

static const char *fit_rows(const wa_problem *problem, const wa_device *device,
                            window_shape *s)
{
    *s = shape_of(problem->queries, problem->keys, SUM_TILE);
    s->subtile = SUM_TILE;
    s->number_bytes = BYTES_OF_KEY;
    if (problem->bias != WINATTN_BIAS_NONE && s->others / 2 > MOST_SUMS)
        return "sums of dbias do not fit its registers";
    return fit(problem, device, s);
}

static const char *fit_keys(const wa_problem *problem, const wa_device *device,
                            window_shape *s)
{
    *s = shape_of(problem->keys, problem->queries, tile_of(problem->queries));
    s->number_bytes = BYTES_OF_ROW;
    return fit(problem, device, s);
}

/* ---- The plan ---- */

static void set_step(const wa_problem *problem, const wa_device *device,
                     const char *kernel, const window_shape *s, wa_step *step)
{
    char *text = step->defines;
    const size_t size = sizeof step->defines;
    step->kernel = kernel;
    step->work_group = work_items();
    step->local_bytes = (uint32_t)local_bytes(problem, s);
    text[0] = 0;
    wa_append_problem(problem, device, step->block_rows, step->block_keys,
                      text, size);
    wa_append_switch(text, size, WA_SWITCH(STAGES), s->stages);
    if (s->subtile)
        wa_append_switch(text, size, WA_SWITCH(SUBTILE_KEYS), s->subtile);
    wa_append_matrix_unit_options(device, text, size);
}

bool wa_plan_wgmma_window_backward(const wa_problem *problem,
                                   const wa_device *device, wa_plan *plan)
{
    wa_step *first = &plan->step[WA_STEP_ROWS];
    wa_step *last = &plan->step[WA_STEP_KEYS];
    wa_schedule *s = &plan->schedule;
    window_shape rows, keys;
    if (problem->variant == WINATTN_SLIDING || !wa_has_wgmma(device))
        return false;
    const char *why = problem_refusal(problem);
    if (!why)
        why = fit_rows(problem, device, &rows);
    if (!why)
        why = fit_keys(problem, device, &keys);
    if (why) {
        snprintf(plan->wgmma_refusal, sizeof plan->wgmma_refusal, "%s", why);
        return false;
    }
    first->block_rows = TAKEN_ROWS;
    first->block_keys = rows.tile;
    set_step(problem, device, "window_rows_wgmma", &rows, first);
    last->block_rows = keys.tile;
    last->block_keys = TAKEN_ROWS;
    set_step(problem, device, "window_keys_wgmma", &keys, last);
    wa_take_wgmma(plan);
    plan->fused = false;
    s->row_blocks = wa_ceil_div(problem->queries, TAKEN_ROWS);
    s->key_blocks = wa_ceil_div(problem->keys, TAKEN_ROWS);
    s->row_windows_per_group = s->windows_per_group = 1;
    /* registers allow one on a compute unit */
    s->row_groups = s->busy_groups =
        device->compute_units ? device->compute_units : 1;
    snprintf(plan->reason, sizeof plan->reason,
             "wgmma: rows and keys in kernels of their own, %u warpgroups "
             "with scores%s in registers, and one that fetches",
             WARPGROUPS_TAKEN,
             problem->bias == WINATTN_BIAS_NONE ? "" : " and sums of dbias");
    return true;
}
