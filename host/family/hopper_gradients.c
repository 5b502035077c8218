/* SPDX-License-Identifier: Apache-2.0
 * When the gradients of windows are made by cl/hopper/window_rows_wgmma.cl and
 * cl/hopper/window_keys_wgmma.cl, or by cl/hopper/window_gradients_wgmma.cl
 * alone, and in which shapes: one for each number of rows. What is not faster
 * than fragments is left to them, as measured
 * (bench/decisions/window-gradients-use-wgmma.md). */
#include <stdio.h>

#include "family/hopper.h"
#include "plan/defines.h"
#include "plan/schedule.h"

#include "../cl/hopper/warpgroup_extents.h"

#include "../cl/hopper/gradient_windows_extents.h"

/* More keys have sums of dBias that fit no registers. */
#define MOST_TOKENS 256u
/* Consumers, with 232 registers for a work-item, of which sums of dBias take
 * 128; of 64 rows a lane has one for two keys. */
#define WARPGROUPS_TAKEN 2u
#define TAKEN_ROWS (WARPGROUPS_TAKEN * WARPGROUP_ROWS)
/* Keys of a tile where sums of dBias leave few registers. */
#define SUM_TILE 32u
#define MOST_STAGES 4u
#define LEAST_STAGES 2u
/* Where one kernel makes all: nine tiles of 16 rows, with whose weights local
 * memory is full, in three warpgroups of 160 registers. */
#define WHOLE_TOKENS 144u
#define WHOLE_TILE 48u

/* A kernel's: rows that a work-group owns and all of the other side, keys, or
 * rows, of a tile, and bytes of numbers of each. */
typedef struct window_shape {
    uint32_t rows, others, tile, other_bytes, stages;
    bool reads_o;
    bool is_whole; /* one kernel makes all */
} window_shape;

static uint32_t warpgroups(const window_shape *s)
{
    return CEIL_DIV(s->rows, WARPGROUP_ROWS);
}

static uint32_t work_items(const window_shape *s)
{
    return (warpgroups(s) + 1) * WARPGROUP;
}

/* The names are those of cl/hopper/gradient_windows_extents.h. */
static uint32_t local_bytes(const wa_problem *problem, const window_shape *s)
{
    const bool HAS_REGIONS = MASK_HAS_REGIONS(problem->mask);
    const uint32_t OWN_ROWS = s->rows, OTHER_ROWS = s->others;
    const uint32_t OTHER_BYTES = s->other_bytes;
    const bool READS_O = s->reads_o;
    const uint32_t STAGES = s->stages;
    return s->is_whole ? WHOLE_WINDOW_LOCAL_BYTES : WINDOW_LOCAL_BYTES;
}

/* ---- What the kernels compute ---- */

/* Of fewer, fragments, which have tiles of 16 rows, take as long, or less; in
 * bf16 of twelve tiles, too, and of maps, whose rows are slower to fetch, of
 * thirteen (bench/decisions/window-gradients-use-wgmma.md). */
static uint32_t least_tokens(const wa_problem *problem)
{
    if (problem->grid.used)
        return 209;
    return problem->dtype == WINATTN_FP16 ? 177 : 193;
}

static bool has_tokens(const wa_problem *problem, uint32_t tokens)
{
    return tokens >= least_tokens(problem) && tokens <= MOST_TOKENS;
}

/* Does one kernel make all? */
static bool is_whole(const wa_problem *problem)
{
    return problem->queries == WHOLE_TOKENS && problem->keys == WHOLE_TOKENS;
}

static const char *refusal(const wa_problem *problem, const wa_device *device,
                           wa_pass pass)
{
    WA_REFUSE(wa_wgmma_windows_refusal(problem, device, pass));
    if (problem->bias == WINATTN_BIAS_NONE)
        return "fragments are as fast without a bias";
    if (problem->heads != problem->kv_heads)
        return "heads that share keys are not added up";
    if (problem->head_dim != WINDOW_CHANNELS)
        return "its gradients have 32 channels";
    if (is_whole(problem) && problem->variant == WINATTN_COSINE)
        return "of 144 tokens it makes no gradients of the variant cosine";
    if (!is_whole(problem) && (!has_tokens(problem, problem->queries) ||
                               !has_tokens(problem, problem->keys)))
        return "its gradients are of windows of 144, or 177 (bf16: 193, maps: "
               "209) to 256 tokens";
    return NULL;
}

/* ---- Shapes ---- */

static const char *fit(const wa_problem *problem, const wa_device *device,
                       window_shape *s)
{
    while (s->stages > LEAST_STAGES &&
           local_bytes(problem, s) > device->local_bytes)
        s->stages--;
    if (local_bytes(problem, s) > device->local_bytes)
        return "the device's local memory is too small";
    if (work_items(s) > device->max_work_group)
        return "the device's work-groups are too small";
    return NULL;
}

/* ---- The plan ---- */

static void set_step(const wa_problem *problem, const wa_device *device,
                     const char *kernel, uint32_t block_rows,
                     uint32_t block_keys, const window_shape *s, wa_step *step)
{
    wa_begin_step(problem, device, kernel, block_rows, block_keys,
                  work_items(s), local_bytes(problem, s), step);
    wa_step_switch(step, WA_SWITCH(STAGES), s->stages);
    wa_step_matrix_unit(step, device);
}

/* NULL, or why not. */
static const char *plan_whole(const wa_problem *problem,
                              const wa_device *device, wa_plan *plan)
{
    window_shape shape = {.rows = WHOLE_TOKENS,
                          .others = WHOLE_TOKENS,
                          .tile = WHOLE_TILE,
                          .other_bytes = BYTES_OF_KEY,
                          .stages = MOST_STAGES,
                          .is_whole = true};
    wa_schedule *s = &plan->schedule;
    WA_REFUSE(fit(problem, device, &shape));
    set_step(problem, device, "window_gradients_wgmma", WHOLE_TOKENS,
             WHOLE_TILE, &shape, &plan->step[WA_STEP_KEYS]);
    plan->fused = true;
    s->row_blocks = s->key_blocks = s->windows_per_group = 1;
    /* registers allow one on a compute unit */
    s->busy_groups =
        (uint32_t)wa_whole_splits(device->compute_units, problem->heads);
    snprintf(plan->reason, sizeof plan->reason,
             "wgmma: all gradients of a window at once, %u warpgroups with "
             "scores and sums of dbias in registers, and one that fetches",
             warpgroups(&shape));
    return NULL;
}

/* NULL, or why not. */
static const char *plan_pair(const wa_problem *problem,
                             const wa_device *device, wa_plan *plan)
{
    window_shape rows = {.rows = TAKEN_ROWS,
                         .others =
                             CEIL_DIV(problem->keys, SUM_TILE) * SUM_TILE,
                         .tile = SUM_TILE,
                         .other_bytes = BYTES_OF_KEY,
                         .stages = MOST_STAGES,
                         .reads_o = !problem->grid.used};
    window_shape keys = {.rows = TAKEN_ROWS,
                         .others =
                             CEIL_DIV(problem->queries, TILE_KEYS) * TILE_KEYS,
                         .tile = TILE_KEYS,
                         .other_bytes = BYTES_OF_ROW,
                         .stages = MOST_STAGES};
    wa_schedule *s = &plan->schedule;
    WA_REFUSE(fit(problem, device, &rows));
    WA_REFUSE(fit(problem, device, &keys));
    set_step(problem, device, "window_rows_wgmma", TAKEN_ROWS, rows.tile,
             &rows, &plan->step[WA_STEP_ROWS]);
    set_step(problem, device, "window_keys_wgmma", keys.tile, TAKEN_ROWS,
             &keys, &plan->step[WA_STEP_KEYS]);
    plan->fused = false;
    s->row_blocks = wa_ceil_div(problem->queries, TAKEN_ROWS);
    s->key_blocks = wa_ceil_div(problem->keys, TAKEN_ROWS);
    s->row_windows_per_group = s->windows_per_group = 1;
    /* registers allow one on a compute unit */
    s->row_groups = s->busy_groups =
        device->compute_units ? device->compute_units : 1;
    snprintf(plan->reason, sizeof plan->reason,
             "wgmma: rows and keys in kernels of their own, %u warpgroups "
             "with scores and sums of dbias in registers, and one that "
             "fetches",
             warpgroups(&rows));
    return NULL;
}

static const char *take(const wa_problem *problem, const wa_device *device,
                        const wa_tuned_shape *none, wa_plan *plan)
{
    (void)none;
    WA_REFUSE(
        (is_whole(problem) ? plan_whole : plan_pair)(problem, device, plan));
    wa_set_wgmma_access(plan);
    return NULL;
}

const wa_family wa_hopper_gradients = {.engine = WA_ENGINE_SPECIAL,
                                       .name = "wgmma",
                                       .pass = WA_BACKWARD,
                                       .tuned = WA_TUNED_KERNELS,
                                       .speed = WA_WGMMA_SPEED,
                                       .refusal = refusal,
                                       .take = take};
