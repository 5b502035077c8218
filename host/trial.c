/* SPDX-License-Identifier: Apache-2.0
 * Makes the smallest problem that the kernel of a plan computes, and launches
 * it. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

#include "launch.h"

#define ELEMENT_BYTES 4u /* of the largest type */
#define SPARE_BYTES 1024u

/* One window of one head. All rows of an input are the same row, so that its
 * buffer is small whatever the problem's size. */
static void shrink(const wa_problem *problem, const wa_plan *plan,
                   wa_problem *small, wa_plan *small_plan)
{
    *small = *problem;
    *small_plan = *plan;
    small->windows = 1;
    small->heads = small->kv_heads = 1;
    small_plan->row_blocks = 1;
    if (problem->variant == WINATTN_SLIDING) {
        /* there the numbers of tokens are arguments */
        small->queries = small->keys = 1;
        small->query_offset = 0;
        small->sink = 0;
    }
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        wa_tensor *tensor = &small->tensor[id];
        memset(tensor->stride, 0, sizeof tensor->stride);
        tensor->stride[WA_COLUMN] = 1;
    }
    small->tensor[WA_O].stride[WA_ROW] = problem->head_dim;
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

void wa_trial_forward(cl_context context, cl_device_id device,
                      const wa_problem *problem, const wa_plan *plan,
                      cl_kernel kernel)
{
    wa_problem small;
    wa_plan small_plan;
    wa_buffers buffers;
    cl_int error;
    if (plan->workspace_bytes != 0)
        return;
    shrink(problem, plan, &small, &small_plan);
    size_t row = small.head_dim;
    row = small.queries > row ? small.queries : row;
    row = small.keys > row ? small.keys : row;
    const size_t rows = plan->block_rows;
    const cl_command_queue queue =
        clCreateCommandQueue(context, device, 0, &error);
    const cl_mem in = make_buffer(context, row * ELEMENT_BYTES + SPARE_BYTES);
    const cl_mem out = make_buffer(
        context, rows * small.head_dim * ELEMENT_BYTES + SPARE_BYTES);
    memset(&buffers, 0, sizeof buffers);
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (small.tensor[id].used && !wa_tensor_is_optional(id))
            buffers.tensor[id].buffer = wa_tensor_is_output(id) ? out : in;
    if (error == CL_SUCCESS && in && out &&
        wa_launch_forward(&small, &small_plan, kernel, queue, &buffers, 0,
                          NULL, NULL) == WINATTN_SUCCESS)
        clFinish(queue);
    if (out)
        clReleaseMemObject(out);
    if (in)
        clReleaseMemObject(in);
    if (error == CL_SUCCESS)
        clReleaseCommandQueue(queue);
}
