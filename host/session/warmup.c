/* SPDX-License-Identifier: Apache-2.0
 * Makes the smallest problem that the kernel of a plan computes, and launches
 * it. */
#include "session/warmup.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/buffer.h"

#include "../cl/common/args.h"

#define ELEMENT_BYTES 4u /* of the largest type */
#define SPARE_BYTES 1024u

/* A grid that is one window, so that its tokens lie as without a grid. */
static void shrink_grid(wa_grid *grid)
{
    grid->batch = 1;
    for (int axis = 0; axis < WINATTN_AXES; axis++) {
        grid->size[axis] = grid->window[axis];
        grid->windows[axis] = 1;
        grid->shift[axis] = 0;
    }
    grid->shift_boundaries = 0;
}

/* One window of one head, and on tier cpu, whose kernels allow it, one query.
 * All rows of an input are the same row, so that its buffer is small whatever
 * the problem's size. */
static wa_problem shrink(const wa_problem *problem, winattn_tier tier)
{
    wa_problem small = *problem;
    small.windows = 1;
    small.heads = small.kv_heads = 1;
    if (tier == WINATTN_TIER_CPU)
        small.queries = 1;
    if (problem->variant == WINATTN_SLIDING) {
        /* there the numbers of tokens are arguments */
        small.queries = small.keys = 1;
        small.query_offset = 0;
        small.sink = 0;
    }
    if (problem->grid.used)
        shrink_grid(&small.grid);
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        wa_tensor *tensor = &small.tensor[id];
        memset(tensor->stride, 0, sizeof tensor->stride);
        tensor->stride[WA_COLUMN] = 1;
    }
    uint64_t *o = small.tensor[WA_O].stride;
    o[WA_ROW] = problem->head_dim;
    o[WA_AXIS_1] = o[WA_ROW] * small.grid.window[2];
    o[WA_AXIS_0] = o[WA_AXIS_1] * small.grid.window[1];
    return small;
}

/* ---- How much it would be ---- */

/* Multiply-adds of kernels that loop over all keys for a block of rows, or all
 * rows for a block of keys. */
#define FORWARD_PRODUCTS 2.0
#define BACKWARD_PRODUCTS 5.0

static double work_of(const wa_problem *small, uint32_t rows, uint32_t keys)
{
    return ((double)rows * small->keys + (double)keys * small->queries) *
           small->head_dim;
}

double wa_warm_up_work(const wa_problem *problem, const wa_plan *plan)
{
    const wa_problem small = shrink(problem, plan->tier);
    const bool one_row = plan->tier == WINATTN_TIER_CPU;
    const bool is_forward = plan->pass == WA_FORWARD;
    double work = 0.0;
    for (int i = WA_STEP_FIRST; i <= WA_STEP_LAST; i++) {
        const wa_step *step = &plan->step[i];
        if (step->kernel)
            work += work_of(&small, one_row ? 1 : step->block_rows,
                            is_forward ? 0 : step->block_keys);
    }
    return (is_forward ? FORWARD_PRODUCTS : BACKWARD_PRODUCTS) * work;
}

/* ---- Its launch ---- */

/* Bytes of a buffer; where more are needed it is too large as well. */
#define MOST_BYTES ((uint64_t)64 << 20)

/* Bytes of a row of any tensor, at least. */
static uint64_t row_bytes(const wa_problem *problem)
{
    uint64_t row = problem->head_dim;
    row = problem->queries > row ? problem->queries : row;
    row = problem->keys > row ? problem->keys : row;
    return row * ELEMENT_BYTES;
}

static uint64_t dense_bytes(const wa_problem *small)
{
    return small->table.used ? wa_problem_dense_bias_bytes(small) : 0;
}

static winattn_status make_buffer(cl_context context, uint64_t bytes,
                                  cl_mem *buffer)
{
    const size_t size = (size_t)bytes + SPARE_BYTES;
    void *zeros = calloc(size, 1);
    WA_TRY_MEMORY(zeros);
    const winattn_status status =
        wa_make_buffer(context, CL_MEM_READ_WRITE, size, zeros, buffer);
    free(zeros);
    return status;
}

winattn_status wa_zeros_begin(wa_zeros *z, cl_context context,
                              cl_device_id device, uint64_t in, uint64_t out,
                              uint64_t workspace)
{
    cl_int error;
    memset(z, 0, sizeof *z);
    z->queue = clCreateCommandQueue(context, device, 0, &error);
    if (error != CL_SUCCESS) {
        z->queue = NULL;
        return wa_fail_cl(error, "clCreateCommandQueue");
    }
    WA_TRY(make_buffer(context, in, &z->in));
    WA_TRY(make_buffer(context, out, &z->out));
    return make_buffer(context, workspace, &z->workspace);
}

winattn_status wa_zeros_end(wa_zeros *z, winattn_status status)
{
    const cl_int error =
        status == WINATTN_SUCCESS ? clFinish(z->queue) : CL_SUCCESS;
    wa_release_buffer(z->workspace);
    wa_release_buffer(z->out);
    wa_release_buffer(z->in);
    if (z->queue)
        clReleaseCommandQueue(z->queue);
    WA_THEN(status, wa_cl_status(error, "clFinish"));
    return status;
}

/* The tensors that a pass must have. */
static void set_tensors(const wa_zeros *z, const wa_problem *small,
                        wa_pass pass, wa_buffers *b)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_role role = wa_tensor_role(id, pass);
        if (small->tensor[id].used && (role == WA_INPUT || role == WA_OUTPUT))
            b->tensor[id].buffer = role == WA_OUTPUT ? z->out : z->in;
    }
}

/* And those with which it takes another kernel for statistics, which alone is
 * left to be launched then. */
static void set_given(const wa_zeros *z, const wa_problem *small,
                      wa_buffers *b)
{
    static const wa_tensor_id given[] = {WA_O, WA_LSE};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (small->tensor[given[i]].used)
            b->tensor[given[i]].buffer = z->in;
}

/* Is it little enough? */
static bool suits(const wa_problem *small, double work, uint64_t workspace)
{
    return work <= WA_MOST_WARM_UP_WORK && row_bytes(small) <= MOST_BYTES &&
           workspace <= MOST_BYTES;
}

/* What is written besides outputs, of one window with one block of rows. */
static wa_workspace shrink_workspace(const wa_problem *small,
                                     const wa_plan *plan)
{
    wa_workspace w = {.dense = dense_bytes(small),
                      .maps = plan->workspace.maps};
    if (plan->pass == WA_BACKWARD)
        w.statistics =
            ((uint64_t)small->queries * ROW_NUMBERS * ELEMENT_BYTES + 15) /
            16 * 16;
    if (plan->workspace.bounds)
        w.bounds = (uint64_t)ROW_NUMBERS * ELEMENT_BYTES;
    w.all = w.statistics + w.bounds + w.maps + w.dense;
    return w;
}

/* The plan for one window. Without an output that is wanted, the backward pass
 * writes statistics only, and expands a table. */
static void shrink_plan(const wa_problem *small, wa_plan *plan)
{
    wa_schedule *schedule = &plan->schedule;
    schedule->row_blocks = schedule->key_blocks = schedule->bound_blocks = 1;
    if (plan->tier == WINATTN_TIER_CPU)
        plan->step[WA_STEP_FORWARD].block_rows =
            plan->step[WA_STEP_ROWS].block_rows = 1;
    schedule->splits = 1;
    schedule->row_splits = schedule->row_splits ? 1 : 0;
    if (plan->pass == WA_BACKWARD)
        schedule->windows_per_launch = 1;
    plan->workspace = shrink_workspace(small, plan);
}

winattn_status wa_warm_up(cl_context context, cl_device_id device,
                          const wa_problem *problem, const wa_plan *plan,
                          const wa_kernels *kernels,
                          const wa_table_buffers *table)
{
    const wa_problem small = shrink(problem, plan->tier);
    /* the forward pass always writes o */
    const uint64_t out = (uint64_t)plan->step[WA_STEP_FORWARD].block_rows *
                         small.head_dim * ELEMENT_BYTES;
    wa_plan small_plan = *plan;
    wa_zeros z;
    shrink_plan(&small, &small_plan);
    if (!suits(&small, wa_warm_up_work(problem, plan),
               small_plan.workspace.all))
        return WINATTN_SUCCESS;
    winattn_status status = wa_zeros_begin(
        &z, context, device, row_bytes(&small), out, small_plan.workspace.all);
    wa_buffers buffers = {.workspace.buffer = z.workspace, .table = *table};
    set_tensors(&z, &small, plan->pass, &buffers);
    WA_THEN(status, wa_launch(&small, &small_plan, kernels, z.queue, &buffers,
                              0, 0, NULL, NULL));
    if (status == WINATTN_SUCCESS && kernels->step[WA_STEP_GIVEN]) {
        const wa_kernels given = {.step[WA_STEP_GIVEN] =
                                      kernels->step[WA_STEP_GIVEN]};
        set_given(&z, &small, &buffers);
        status = wa_launch(&small, &small_plan, &given, z.queue, &buffers, 0,
                           0, NULL, NULL);
    }
    return wa_zeros_end(&z, status);
}
