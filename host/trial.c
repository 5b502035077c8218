/* SPDX-License-Identifier: Apache-2.0
 * Makes the smallest problem that the kernel of a plan computes, and launches
 * it. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

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

/* One window of one head. All rows of an input are the same row, so that its
 * buffer is small whatever the problem's size. */
static wa_problem shrink(const wa_problem *problem)
{
    wa_problem small = *problem;
    small.windows = 1;
    small.heads = small.kv_heads = 1;
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

/* Bytes of a row of any tensor, at least. */
static size_t row_bytes(const wa_problem *problem)
{
    size_t row = problem->head_dim;
    row = problem->queries > row ? problem->queries : row;
    row = problem->keys > row ? problem->keys : row;
    return row * ELEMENT_BYTES + SPARE_BYTES;
}

static cl_mem make_buffer(cl_context context, size_t size)
{
    cl_int error;
    void *zeros = calloc(size, 1);
    if (!zeros)
        return NULL;
    const cl_mem buffer =
        clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size,
                       zeros, &error);
    free(zeros);
    return error == CL_SUCCESS ? buffer : NULL;
}

/* Bytes of a workspace; NULL: they are more than it is worth. */
#define MOST_WORKSPACE (64u * 1024u * 1024u)

static cl_mem make_workspace(cl_context context, uint64_t bytes)
{
    return bytes <= MOST_WORKSPACE
               ? make_buffer(context, (size_t)bytes + SPARE_BYTES)
               : NULL;
}

static uint64_t dense_bytes(const wa_problem *small)
{
    return small->table.used ? wa_problem_dense_bias_bytes(small) : 0;
}

void wa_trial_forward(cl_context context, cl_device_id device,
                      const wa_problem *problem, const wa_plan *plan,
                      const wa_forward_kernels *kernels,
                      const wa_table_buffers *table)
{
    wa_problem small = shrink(problem);
    wa_plan small_plan = *plan;
    wa_buffers buffers;
    cl_int error;
    small_plan.row_blocks = 1;
    const size_t rows = plan->block_rows;
    const cl_command_queue queue =
        clCreateCommandQueue(context, device, 0, &error);
    const cl_mem in = make_buffer(context, row_bytes(&small));
    const cl_mem out = make_buffer(
        context, rows * small.head_dim * ELEMENT_BYTES + SPARE_BYTES);
    const cl_mem workspace = make_workspace(context, dense_bytes(&small));
    memset(&buffers, 0, sizeof buffers);
    buffers.table = *table;
    buffers.workspace.buffer = workspace;
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_role role = wa_tensor_role(id, WA_FORWARD);
        if (small.tensor[id].used && (role == WA_INPUT || role == WA_OUTPUT))
            buffers.tensor[id].buffer = role == WA_OUTPUT ? out : in;
    }
    if (error == CL_SUCCESS && in && out && workspace &&
        wa_launch_forward(&small, &small_plan, kernels, queue, &buffers, 0,
                          NULL, NULL) == WINATTN_SUCCESS)
        clFinish(queue);
    if (workspace)
        clReleaseMemObject(workspace);
    if (out)
        clReleaseMemObject(out);
    if (in)
        clReleaseMemObject(in);
    if (error == CL_SUCCESS)
        clReleaseCommandQueue(queue);
}

void wa_trial_backward(cl_context context, cl_device_id device,
                       const wa_problem *problem, const wa_backward_plan *plan,
                       const wa_backward_kernels *kernels,
                       const wa_table_buffers *table)
{
    wa_problem small = shrink(problem);
    wa_backward_plan small_plan = *plan;
    wa_buffers buffers;
    cl_int error;
    /* no output is wanted, so only statistics are written, and a table
     * expanded */
    const uint64_t statistics =
        ((uint64_t)small.queries * ROW_NUMBERS * ELEMENT_BYTES + 15) / 16 * 16;
    small_plan.row_blocks = small_plan.key_blocks = 1;
    small_plan.slots = 1;
    small_plan.row_slots = plan->row_slots ? 1 : 0;
    small_plan.windows_per_launch = 1;
    small_plan.dense_bytes = dense_bytes(&small);
    small_plan.workspace_bytes = statistics + small_plan.dense_bytes;
    const cl_command_queue queue =
        clCreateCommandQueue(context, device, 0, &error);
    const cl_mem in = make_buffer(context, row_bytes(&small));
    const cl_mem workspace =
        make_workspace(context, small_plan.workspace_bytes);
    memset(&buffers, 0, sizeof buffers);
    buffers.table = *table;
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (small.tensor[id].used &&
            wa_tensor_role(id, WA_BACKWARD) == WA_INPUT)
            buffers.tensor[id].buffer = in;
    buffers.workspace.buffer = workspace;
    if (error == CL_SUCCESS && in && workspace &&
        wa_launch_backward(&small, &small_plan, kernels, queue, &buffers, 0, 0,
                           NULL, NULL) == WINATTN_SUCCESS)
        clFinish(queue);
    if (workspace)
        clReleaseMemObject(workspace);
    if (in)
        clReleaseMemObject(in);
    if (error == CL_SUCCESS)
        clReleaseCommandQueue(queue);
}
