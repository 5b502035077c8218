/* SPDX-License-Identifier: Apache-2.0
 * Launches kernels with wgmma on the numbers of the self-test. */
#include "session/wgmma_test.h"

#include <string.h>

#include "base/status.h"
#include "device/buffer.h"
#include "session/wgmma_numbers.h"

#include "../cl/common/args.h"

typedef struct test_launch {
    wa_test_numbers numbers;
    cl_command_queue queue;
    cl_mem buffer[WA_TENSORS], workspace;
} test_launch;

/* ---- Objects ---- */

static void end(test_launch *x)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (x->buffer[id])
            clReleaseMemObject(x->buffer[id]);
    if (x->workspace)
        clReleaseMemObject(x->workspace);
    if (x->queue)
        clReleaseCommandQueue(x->queue);
    wa_test_numbers_free(&x->numbers);
}

/* To be ended, also after a failure. */
static winattn_status begin(test_launch *x, cl_context context,
                            cl_device_id device, const wa_problem *problem,
                            const wa_plan *small)
{
    cl_int error;
    memset(x, 0, sizeof *x);
    WA_TRY(wa_test_numbers_make(problem->dtype, problem->head_dim, small->pass,
                                &x->numbers));
    x->queue = clCreateCommandQueue(context, device, 0, &error);
    if (error != CL_SUCCESS) {
        x->queue = NULL;
        return wa_fail_cl(error, "clCreateCommandQueue");
    }
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_test_tensor *tensor = &x->numbers.tensor[id];
        if (tensor->heads)
            WA_TRY(wa_make_buffer(context, CL_MEM_READ_WRITE,
                                  wa_test_bytes(tensor), tensor->stored,
                                  &x->buffer[id]));
    }
    return small->workspace.all ? wa_make_buffer(context, CL_MEM_READ_WRITE,
                                                 (size_t)small->workspace.all,
                                                 NULL, &x->workspace)
                                : WINATTN_SUCCESS;
}

/* ---- The launch ---- */

static wa_problem small_problem(const wa_problem *problem,
                                const wa_test_numbers *numbers)
{
    wa_problem small = *problem;
    small.windows = 1;
    small.heads = WA_TEST_HEADS;
    small.kv_heads = 1;
    small.queries = small.keys = WA_TEST_TOKENS;
    small.block = WA_TEST_BLOCK;
    small.first_block = WA_TEST_FIRST_BLOCK;
    small.window_blocks = WA_TEST_WINDOW_BLOCKS;
    small.sink = WA_TEST_SINK;
    small.query_offset = 0;
    small.scale = WA_TEST_SCALE;
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        wa_tensor *tensor = &small.tensor[id];
        const uint64_t row = numbers->tensor[id].channels;
        if (row == 0)
            continue;
        memset(tensor->stride, 0, sizeof tensor->stride);
        tensor->stride[WA_COLUMN] = 1;
        tensor->stride[WA_ROW] = row;
        tensor->stride[WA_HEAD] = row * WA_TEST_TOKENS;
    }
    return small;
}

static uint32_t blocks_of(uint32_t size)
{
    return (WA_TEST_TOKENS + size - 1) / size;
}

/* The plan for one window, whose work tiles one work-group takes if some do
 * one after the other; the backward pass has a workspace for it, where numbers
 * of rows come first, then those of their blocks, and tensor maps. */
static wa_plan small_plan(const wa_plan *plan)
{
    const uint64_t numbers = ROW_NUMBERS * sizeof(float) * WA_TEST_HEADS;
    wa_plan small = *plan;
    wa_schedule *s = &small.schedule;
    wa_workspace *w = &small.workspace;
    if (s->sharing_groups)
        s->sharing_groups = 1;
    if (plan->pass == WA_FORWARD) {
        s->row_blocks = blocks_of(plan->step[WA_STEP_FORWARD].block_rows);
        return small;
    }
    s->row_blocks = blocks_of(plan->step[WA_STEP_ROWS].block_rows);
    s->bound_blocks = blocks_of(plan->step[WA_STEP_STATISTICS].block_rows);
    s->key_blocks = blocks_of(plan->step[WA_STEP_KEYS].block_keys);
    s->splits = 1;
    s->windows_per_launch = 1;
    *w = (wa_workspace){.statistics = numbers * WA_TEST_TOKENS,
                        .bounds = numbers * s->bound_blocks,
                        .maps = plan->workspace.maps};
    w->all = w->statistics + w->bounds + w->maps;
    return small;
}

/* Reads outputs, too. */
static winattn_status launch(const wa_problem *problem, const wa_plan *small,
                             const wa_kernels *kernels, test_launch *x)
{
    const wa_problem one = small_problem(problem, &x->numbers);
    wa_buffers buffers;
    memset(&buffers, 0, sizeof buffers);
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        buffers.tensor[id].buffer = x->buffer[id];
    buffers.workspace.buffer = x->workspace;
    WA_TRY(
        wa_launch(&one, small, kernels, x->queue, &buffers, 0, 0, NULL, NULL));
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_test_tensor *tensor = &x->numbers.tensor[id];
        if (!x->buffer[id] || wa_tensor_role(id, small->pass) == WA_INPUT)
            continue;
        const cl_int error = clEnqueueReadBuffer(
            x->queue, x->buffer[id], CL_TRUE, 0, wa_test_bytes(tensor),
            tensor->stored, 0, NULL, NULL);
        if (error != CL_SUCCESS)
            return wa_fail_cl(error, "clEnqueueReadBuffer");
    }
    return WINATTN_SUCCESS;
}

static winattn_status check(cl_context context, cl_device_id device,
                            const wa_problem *problem, const wa_plan *small,
                            const wa_kernels *kernels)
{
    test_launch x;
    winattn_status status = begin(&x, context, device, problem, small);
    if (status == WINATTN_SUCCESS)
        status = launch(problem, small, kernels, &x);
    if (status == WINATTN_SUCCESS)
        status = wa_test_numbers_compare(small->pass, &x.numbers);
    end(&x);
    return status;
}

winattn_status wa_check_wgmma(cl_context context, cl_device_id device,
                              const wa_problem *problem, const wa_plan *plan,
                              const wa_kernels *kernels)
{
    const wa_plan small = small_plan(plan);
    wa_kernels unaligned = *kernels;
    WA_TRY(check(context, device, problem, &small, kernels));
    if (!plan->step[WA_STEP_UNALIGNED_ROWS].kernel)
        return WINATTN_SUCCESS;
    unaligned.step[WA_STEP_ROWS] = kernels->step[WA_STEP_UNALIGNED_ROWS];
    unaligned.step[WA_STEP_KEYS] = kernels->step[WA_STEP_UNALIGNED_KEYS];
    return check(context, device, problem, &small, &unaligned);
}
