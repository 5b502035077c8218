/* SPDX-License-Identifier: Apache-2.0
 * When cl/hopper/sliding_forward_wgmma.cl is taken, and in which shape: one
 * for each range of head dims, as measured on an H200 (bench/notes.md). */
#include <stdio.h>

#include "device/matrix_unit.h"
#include "plan/planner.h"

#include "../cl/hopper/warpgroup_extents.h"

/* The one that knows sm_90a: later ones have no wgmma. */
#define HOPPER 90u
/* Of q, k, v and o. */
#define COPY_BYTES 16u
#define CHANNEL_STEP 16u
#define MOST_CHANNELS 128u
/* Fewer leave a warpgroup without a full tile of rows. */
#define LEAST_QUERIES WARPGROUP_ROWS

typedef struct wgmma_shape {
    uint32_t block_rows, stages;
} wgmma_shape;

/* 64 channels: 256 rows 564 TFLOP/s, 192 468, 128 428; more than four stages
 * gave nothing. 128 channels: 192 rows 742, 128 605; registers end there, and
 * local memory with three stages. */
static wgmma_shape shape_for(uint32_t head_dim)
{
    return head_dim <= PANEL_CHANNELS ? (wgmma_shape){256, 4}
                                      : (wgmma_shape){192, 3};
}

/* The names are those of cl/hopper/warpgroup_extents.h. */
static uint32_t local_bytes(uint32_t HEAD_DIM, wgmma_shape shape)
{
    const uint32_t BLOCK_ROWS = shape.block_rows;
    const uint32_t STAGES = shape.stages;
    return WGMMA_LOCAL_BYTES;
}

static uint32_t work_items(wgmma_shape shape)
{
    const uint32_t BLOCK_ROWS = shape.block_rows;
    return WORK_ITEMS;
}

/* Can copies of 16 bytes fetch and store all rows? */
static bool allows_copies(const wa_problem *problem)
{
    static const wa_tensor_id ids[] = {WA_Q, WA_K, WA_V, WA_O};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const wa_tensor *tensor = &problem->tensor[ids[i]];
        if (!wa_tensor_is_adjacent(tensor))
            return false;
        for (int axis = WA_WINDOW; axis <= WA_ROW; axis++)
            if (tensor->stride[axis] * tensor->element_size % COPY_BYTES != 0)
                return false;
    }
    return true;
}

/* NULL if the kernel computes it on the device, else why not. */
static const char *refusal(const wa_problem *problem, const wa_device *device)
{
    const wgmma_shape shape = shape_for(problem->head_dim);
    if (problem->dtype == WINATTN_FP32)
        return "fp32 would be rounded";
    if (problem->head_dim % CHANNEL_STEP != 0 ||
        problem->head_dim > MOST_CHANNELS)
        return "its head dims are multiples of 16 up to 128";
    if (!allows_copies(problem))
        return "rows are not copied in 16 bytes";
    if (problem->queries < LEAST_QUERIES)
        return "a warpgroup's 64 rows are more than there are queries";
    if (local_bytes(problem->head_dim, shape) > device->local_bytes)
        return "the device's local memory is too small";
    if (work_items(shape) > device->max_work_group)
        return "the device's work-groups are too small";
    return NULL;
}

bool wa_plan_wgmma_sliding(const wa_problem *problem, const wa_device *device,
                           wa_plan *plan)
{
    if (problem->variant != WINATTN_SLIDING ||
        device->vendor != WA_VENDOR_NVIDIA ||
        device->compute_capability != HOPPER || device->emulates_matrix_unit ||
        device->lacks_wgmma)
        return false;
    const char *why = refusal(problem, device);
    if (why) {
        snprintf(plan->wgmma_refusal, sizeof plan->wgmma_refusal, "%s", why);
        return false;
    }
    const wgmma_shape shape = shape_for(problem->head_dim);
    wa_step *step = &plan->step[WA_STEP_FORWARD];
    plan->is_wgmma = true;
    plan->shape.matrix.stages = shape.stages;
    step->kernel = "sliding_forward_wgmma";
    step->block_rows = shape.block_rows;
    step->block_keys = TILE_KEYS;
    step->local_bytes = local_bytes(problem->head_dim, shape);
    step->work_group = work_items(shape);
    plan->schedule.work_tiles_per_group = 1;
    plan->schedule.sharing_groups =
        device->compute_units ? device->compute_units : 1;
    plan->access_elements = COPY_BYTES / 2;
    plan->access_bytes = COPY_BYTES;
    snprintf(plan->reason, sizeof plan->reason,
             "wgmma: %u warpgroups with scores in registers, and one that "
             "fetches keys and values",
             shape.block_rows / WARPGROUP_ROWS);
    return true;
}
