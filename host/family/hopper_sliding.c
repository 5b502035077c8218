/* SPDX-License-Identifier: Apache-2.0
 * When the sliding kernels of cl/hopper/ are taken, and in which shape: one
 * for each range of head dims, as measured on an H200
 * (bench/decisions/sliding-attention-uses-wgmma.md). */
#include <stdio.h>

#include "device/matrix_unit.h"
#include "family/hopper.h"
#include "family/matrix_sliding.h"
#include "plan/defines.h"

#include "../cl/common/args.h"
#include "../cl/hopper/warpgroup_extents.h"

#define CHANNEL_STEP 16u
#define MOST_CHANNELS 128u

/* What kernels of warpgroups compute, whatever their shape. */

/* NULL if they compute the problem, else why not. */
static const char *problem_refusal(const wa_problem *problem, wa_pass pass)
{
    if (problem->dtype == WINATTN_FP32)
        return "fp32 would be rounded";
    if (problem->head_dim % CHANNEL_STEP != 0 ||
        problem->head_dim > MOST_CHANNELS)
        return "its head dims are multiples of 16 up to 128";
    if (!wa_wgmma_copies(problem, pass))
        return "rows are not copied in 16 bytes";
    return NULL;
}

/* What a work-group of BLOCK_ROWS rows, or keys, takes. */
static const char *device_refusal(const wa_device *device, uint32_t BLOCK_ROWS,
                                  uint32_t local)
{
    if (local > device->local_bytes)
        return "the device's local memory is too small";
    if (WORK_ITEMS > device->max_work_group)
        return "the device's work-groups are too small";
    return NULL;
}

static uint32_t work_items(uint32_t BLOCK_ROWS) { return WORK_ITEMS; }

/* ---- The forward pass ---- */

typedef struct wgmma_shape {
    uint32_t block_rows, stages;
} wgmma_shape;

/* 64 channels: 256 rows 564 TFLOP/s, 192 468, 128 428; more than four stages
 * gave nothing. 128 channels: 192 rows 742, 128 605; registers end there, and
 * local memory with three stages. */
static wgmma_shape forward_shape(uint32_t head_dim)
{
    return head_dim <= PANEL_CHANNELS ? (wgmma_shape){256, 4}
                                      : (wgmma_shape){192, 3};
}

/* The names are those of cl/hopper/warpgroup_extents.h. */
static uint32_t forward_bytes(uint32_t HEAD_DIM, wgmma_shape shape)
{
    const uint32_t BLOCK_ROWS = shape.block_rows;
    const uint32_t STAGES = shape.stages;
    return WGMMA_LOCAL_BYTES;
}

static const char *take_forward(const wa_problem *problem,
                                const wa_device *device,
                                const wa_tuned_shape *none, wa_plan *plan)
{
    const wgmma_shape shape = forward_shape(problem->head_dim);
    (void)none;
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    wa_set_wgmma_access(plan);
    wa_begin_step(problem, device, "sliding_forward_wgmma", shape.block_rows,
                  TILE_KEYS, work_items(shape.block_rows),
                  forward_bytes(problem->head_dim, shape), step);
    wa_step_switch(step, WA_SWITCH(STAGES), shape.stages);
    wa_step_matrix_unit(step, device);
    plan->schedule.work_tiles_per_group = 1;
    plan->schedule.sharing_groups =
        device->compute_units ? device->compute_units : 1;
    snprintf(plan->reason, sizeof plan->reason,
             "wgmma: %u warpgroups with scores in registers, and one that "
             "fetches keys and values",
             shape.block_rows / WARPGROUP_ROWS);
    return NULL;
}

/* ---- The backward pass ---- */

/* Rows of a work-group of the kernel of rows, and keys of one of keys. */
static wgmma_shape rows_shape(uint32_t head_dim)
{
    return head_dim <= PANEL_CHANNELS ? (wgmma_shape){128, 6}
                                      : (wgmma_shape){128, 3};
}
static wgmma_shape keys_shape(uint32_t head_dim)
{
    return head_dim <= PANEL_CHANNELS ? (wgmma_shape){128, 6}
                                      : (wgmma_shape){128, 2};
}

/* Do work-groups take one work tile after the other? */
static bool stay(uint32_t HEAD_DIM) { return GRADIENTS_STAY; }

static uint32_t rows_bytes(uint32_t HEAD_DIM, wgmma_shape shape)
{
    const uint32_t BLOCK_ROWS = shape.block_rows;
    const uint32_t STAGES = shape.stages;
    return ROWS_LOCAL_BYTES;
}
static uint32_t keys_bytes(uint32_t HEAD_DIM, wgmma_shape shape)
{
    const uint32_t BLOCK_ROWS = shape.block_rows; /* here of keys */
    const uint32_t STAGES = shape.stages;
    return KEYS_LOCAL_BYTES;
}

/* Do tensor maps hold the strides of what is fetched, in 32 bits and in units
 * of 16 bytes? */
static bool maps_hold(const wa_problem *problem)
{
    static const wa_tensor_id ids[] = {WA_Q, WA_K, WA_V, WA_D_O};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const wa_tensor *tensor = &problem->tensor[ids[i]];
        for (int axis = WA_WINDOW; axis <= WA_HEAD; axis++)
            if (tensor->stride[axis] * tensor->element_size / 16 > UINT32_MAX)
                return false;
    }
    return true;
}

static void add_switches(const wa_device *device, uint32_t stages,
                         bool has_maps, wa_step *step)
{
    wa_step_switch(step, WA_SWITCH(STAGES), stages);
    wa_step_switch(step, WA_SWITCH(TENSOR_MAPS), has_maps);
    wa_step_matrix_unit(step, device);
}

static void set_steps(const wa_problem *problem, const wa_device *device,
                      wgmma_shape rows, wgmma_shape keys, bool has_maps,
                      wa_step *first, wa_step *last)
{
    const uint32_t dim = problem->head_dim;
    wa_begin_step(problem, device, "sliding_rows_wgmma", rows.block_rows,
                  TILE_KEYS, work_items(rows.block_rows),
                  rows_bytes(dim, rows), first);
    add_switches(device, rows.stages, has_maps, first);
    wa_begin_step(problem, device, "sliding_keys_wgmma", TILE_KEYS,
                  keys.block_rows, work_items(keys.block_rows),
                  keys_bytes(dim, keys), last);
    add_switches(device, keys.stages, has_maps, last);
}

static const char *refusal(const wa_problem *problem, const wa_device *device,
                           wa_pass pass)
{
    const uint32_t dim = problem->head_dim;
    const wgmma_shape forward = forward_shape(dim);
    const wgmma_shape rows = rows_shape(dim), keys = keys_shape(dim);
    if (!wa_has_wgmma(device))
        return "";
    WA_REFUSE(problem_refusal(problem, pass));
    if (pass == WA_FORWARD)
        return device_refusal(device, forward.block_rows,
                              forward_bytes(dim, forward));
    WA_REFUSE(device_refusal(device, rows.block_rows, rows_bytes(dim, rows)));
    return device_refusal(device, keys.block_rows, keys_bytes(dim, keys));
}

/* Where maps do not serve, copies may. */
static const char *maps_refusal(const wa_problem *problem,
                                const wa_device *device, wa_pass pass)
{
    return refusal(problem, device, pass) || !maps_hold(problem) ? "" : NULL;
}

static void say_none(const wa_device *device, bool fits, char *why)
{
    (void)device, (void)fits;
    snprintf(why, WA_REASON_SIZE,
             "no kernel on fragments makes statistics of its rows");
}

/* statistics: the shape of the kernel that makes them. */
static const char *take_gradients(const wa_problem *problem,
                                  const wa_device *device,
                                  const wa_tuned_shape *statistics,
                                  wa_plan *plan)
{
    const bool has_maps = plan->family == &wa_hopper_sliding_maps;
    const uint32_t dim = problem->head_dim;
    const wgmma_shape rows = rows_shape(dim), keys = keys_shape(dim);
    wa_schedule *s = &plan->schedule;
    wa_take_sliding_statistics(problem, device, statistics, has_maps, plan);
    set_steps(problem, device, rows, keys, has_maps, &plan->step[WA_STEP_ROWS],
              &plan->step[WA_STEP_KEYS]);
    if (has_maps)
        set_steps(problem, device, rows, keys, false,
                  &plan->step[WA_STEP_UNALIGNED_ROWS],
                  &plan->step[WA_STEP_UNALIGNED_KEYS]);
    wa_set_wgmma_access(plan);
    plan->fused = false;
    s->row_blocks = wa_ceil_div(problem->queries, rows.block_rows);
    s->key_blocks = wa_ceil_div(problem->keys, keys.block_rows);
    s->windows_per_group = 1;
    s->busy_groups = UINT32_MAX; /* each window has its own work tiles */
    if (stay(dim))
        s->sharing_groups = device->compute_units ? device->compute_units : 1;
    snprintf(
        plan->reason, sizeof plan->reason,
        "wgmma: rows and keys in kernels of their own, %u and %u warpgroups "
        "with scores in registers, and one that fetches",
        rows.block_rows / WARPGROUP_ROWS, keys.block_rows / WARPGROUP_ROWS);
    return NULL;
}

const wa_family wa_hopper_sliding = {.engine = WA_ENGINE_SPECIAL,
                                     .name = "wgmma",
                                     .pass = WA_FORWARD,
                                     .slides = true,
                                     .tuned = WA_TUNED_KERNELS,
                                     .speed = WA_WGMMA_SPEED,
                                     .refusal = refusal,
                                     .take = take_forward};

const wa_family wa_hopper_sliding_maps = {.engine = WA_ENGINE_MORE_SPECIAL,
                                          .name = "tensor maps",
                                          .pass = WA_BACKWARD,
                                          .slides = true,
                                          .tuned = WA_TUNED_KERNELS,
                                          .speed = WA_WGMMA_SPEED,
                                          .own_bytes = SLIDING_MAP_ROOM,
                                          .refusal = maps_refusal,
                                          .visit = {wa_visit_sliding_rows},
                                          .take = take_gradients};

const wa_family wa_hopper_sliding_pair = {.engine = WA_ENGINE_SPECIAL,
                                          .name = "wgmma",
                                          .pass = WA_BACKWARD,
                                          .slides = true,
                                          .tuned = WA_TUNED_KERNELS,
                                          .speed = WA_WGMMA_SPEED,
                                          .refusal = refusal,
                                          .visit = {wa_visit_sliding_rows},
                                          .say_none = say_none,
                                          .take = take_gradients};
