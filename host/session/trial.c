/* SPDX-License-Identifier: Apache-2.0
 * Makes the smallest problem that the kernel of a plan computes, and launches
 * it. */
#include "session/trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

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
    grid->seams = 0;
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

/* ---- How much a trial would be ---- */

/* Multiply-adds of kernels that walk all keys for a block of rows, or all rows
 * for a block of keys. */
#define FORWARD_PRODUCTS 2.0
#define BACKWARD_PRODUCTS 5.0

static double work_of(const wa_problem *small, uint32_t rows, uint32_t keys)
{
    return ((double)rows * small->keys + (double)keys * small->queries) *
           small->head_dim;
}

double wa_trial_forward_work(const wa_problem *problem, const wa_plan *plan)
{
    const wa_problem small = shrink(problem, plan->tier);
    const bool one_row = plan->tier == WINATTN_TIER_CPU;
    return FORWARD_PRODUCTS *
           work_of(&small, one_row ? 1 : plan->block_rows, 0);
}

double wa_trial_backward_work(const wa_problem *problem,
                              const wa_backward_plan *plan)
{
    const wa_problem small = shrink(problem, plan->tier);
    const bool one_row = plan->tier == WINATTN_TIER_CPU;
    double work = 0.0;
    for (int i = WA_BACKWARD_FIRST; i <= WA_BACKWARD_LAST; i++) {
        const wa_backward_kernel *kernel = &plan->kernels[i];
        if (kernel->name)
            work += work_of(&small, one_row ? 1 : kernel->block_rows,
                            kernel->block_keys);
    }
    return BACKWARD_PRODUCTS * work;
}

/* ---- Its launch ---- */

/* Bytes of a buffer; where more are needed the trial is too large as well. */
#define MOST_BYTES ((uint64_t)64 << 20)

typedef struct trial {
    cl_command_queue queue;
    cl_mem in, out, workspace;
    wa_buffers buffers;
} trial;

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
    cl_int error;
    void *zeros = calloc(size, 1);
    if (!zeros)
        return wa_fail_memory();
    *buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                             size, zeros, &error);
    free(zeros);
    if (error == CL_SUCCESS)
        return WINATTN_SUCCESS;
    *buffer = NULL;
    return wa_fail_cl(error, "clCreateBuffer");
}

static winattn_status make_queue(cl_context context, cl_device_id device,
                                 cl_command_queue *queue)
{
    cl_int error;
    *queue = clCreateCommandQueue(context, device, 0, &error);
    if (error == CL_SUCCESS)
        return WINATTN_SUCCESS;
    *queue = NULL;
    return wa_fail_cl(error, "clCreateCommandQueue");
}

/* Makes what the launch needs; to be ended, also after a failure. */
static winattn_status begin(trial *t, cl_context context, cl_device_id device,
                            const wa_problem *small, uint64_t out_bytes,
                            uint64_t workspace_bytes,
                            const wa_table_buffers *table)
{
    memset(t, 0, sizeof *t);
    WA_TRY(make_queue(context, device, &t->queue));
    WA_TRY(make_buffer(context, row_bytes(small), &t->in));
    WA_TRY(make_buffer(context, out_bytes, &t->out));
    WA_TRY(make_buffer(context, workspace_bytes, &t->workspace));
    t->buffers.workspace.buffer = t->workspace;
    t->buffers.table = *table;
    return WINATTN_SUCCESS;
}

static void end(trial *t)
{
    if (t->workspace)
        clReleaseMemObject(t->workspace);
    if (t->out)
        clReleaseMemObject(t->out);
    if (t->in)
        clReleaseMemObject(t->in);
    if (t->queue)
        clReleaseCommandQueue(t->queue);
}

/* The tensors that a pass must have. */
static void set_tensors(trial *t, const wa_problem *small, wa_pass pass)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_role role = wa_tensor_role(id, pass);
        if (small->tensor[id].used && (role == WA_INPUT || role == WA_OUTPUT))
            t->buffers.tensor[id].buffer = role == WA_OUTPUT ? t->out : t->in;
    }
}

static winattn_status finish(const trial *t)
{
    const cl_int error = clFinish(t->queue);
    return error == CL_SUCCESS ? WINATTN_SUCCESS
                               : wa_fail_cl(error, "clFinish");
}

/* Is it little enough? */
static bool suits(const wa_problem *small, double work, uint64_t workspace)
{
    return work <= WA_MOST_TRIAL_WORK && row_bytes(small) <= MOST_BYTES &&
           workspace <= MOST_BYTES;
}

winattn_status wa_trial_forward(cl_context context, cl_device_id device,
                                const wa_problem *problem, const wa_plan *plan,
                                const wa_forward_kernels *kernels,
                                const wa_table_buffers *table)
{
    const wa_problem small = shrink(problem, plan->tier);
    const uint64_t workspace = dense_bytes(&small);
    const uint64_t out =
        (uint64_t)plan->block_rows * small.head_dim * ELEMENT_BYTES;
    wa_plan small_plan = *plan;
    trial t;
    if (!suits(&small, wa_trial_forward_work(problem, plan), workspace))
        return WINATTN_SUCCESS;
    small_plan.row_blocks = 1;
    if (plan->tier == WINATTN_TIER_CPU)
        small_plan.block_rows = 1;
    winattn_status status =
        begin(&t, context, device, &small, out, workspace, table);
    set_tensors(&t, &small, WA_FORWARD);
    if (status == WINATTN_SUCCESS)
        status = wa_launch_forward(&small, &small_plan, kernels, t.queue,
                                   &t.buffers, 0, NULL, NULL);
    if (status == WINATTN_SUCCESS)
        status = finish(&t);
    end(&t);
    return status;
}

winattn_status wa_trial_backward(cl_context context, cl_device_id device,
                                 const wa_problem *problem,
                                 const wa_backward_plan *plan,
                                 const wa_backward_kernels *kernels,
                                 const wa_table_buffers *table)
{
    const wa_problem small = shrink(problem, plan->tier);
    /* no output is wanted, so only statistics are written, and a table
     * expanded */
    const uint64_t statistics =
        ((uint64_t)small.queries * ROW_NUMBERS * ELEMENT_BYTES + 15) / 16 * 16;
    wa_backward_plan small_plan = *plan;
    trial t;
    small_plan.row_blocks = small_plan.key_blocks = 1;
    if (plan->tier == WINATTN_TIER_CPU)
        small_plan.kernels[WA_BACKWARD_ROWS].block_rows = 1;
    small_plan.slots = 1;
    small_plan.row_slots = plan->row_slots ? 1 : 0;
    small_plan.windows_per_launch = 1;
    small_plan.dense_bytes = dense_bytes(&small);
    small_plan.workspace_bytes = statistics + small_plan.dense_bytes;
    if (!suits(&small, wa_trial_backward_work(problem, plan),
               small_plan.workspace_bytes))
        return WINATTN_SUCCESS;
    winattn_status status = begin(&t, context, device, &small, 0,
                                  small_plan.workspace_bytes, table);
    set_tensors(&t, &small, WA_BACKWARD);
    if (status == WINATTN_SUCCESS)
        status = wa_launch_backward(&small, &small_plan, kernels, t.queue,
                                    &t.buffers, 0, 0, NULL, NULL);
    if (status == WINATTN_SUCCESS)
        status = finish(&t);
    end(&t);
    return status;
}
