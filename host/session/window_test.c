/* SPDX-License-Identifier: Apache-2.0
 * Launches kernels of windows with wgmma on the numbers of their self-test.
 */
#include "session/window_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/buffer.h"
#include "session/window_numbers.h"

#include "../cl/common/args.h"

#define ELEMENT_BYTES 2u

typedef struct window_launch {
    wa_window_numbers numbers;
    size_t offset; /* of all tensors of 16 bits, in elements */
    cl_command_queue queue;
    cl_mem buffer[WA_TENSORS], workspace;
} window_launch;

static void end(window_launch *x)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (x->buffer[id])
            clReleaseMemObject(x->buffer[id]);
    if (x->workspace)
        clReleaseMemObject(x->workspace);
    if (x->queue)
        clReleaseCommandQueue(x->queue);
    wa_window_numbers_free(&x->numbers);
}

/* Bytes before a tensor. */
static size_t start_of(const window_launch *x, wa_tensor_id id)
{
    const bool is_float = id == WA_LSE || id == WA_LOGIT_SCALE ||
                          id == WA_DBIAS || id == WA_D_LOGIT_SCALE;
    return is_float ? 0 : x->offset * ELEMENT_BYTES;
}

static winattn_status make_buffer(window_launch *x, cl_context context,
                                  wa_tensor_id id)
{
    const size_t start = start_of(x, id), bytes = x->numbers.bytes[id];
    char *all = calloc(start + bytes, 1);
    if (!all)
        return wa_fail_memory();
    memcpy(all + start, x->numbers.stored[id], bytes);
    const winattn_status status = wa_make_buffer(
        context, CL_MEM_READ_WRITE, start + bytes, all, &x->buffer[id]);
    free(all);
    return status;
}

/* Of what is no number, lest something be read that no kernel left. */
static winattn_status make_workspace(window_launch *x, cl_context context,
                                     const wa_plan *small)
{
    const size_t bytes = (size_t)small->workspace.all;
    if (bytes == 0)
        return WINATTN_SUCCESS;
    char *all = malloc(bytes);
    if (!all)
        return wa_fail_memory();
    memset(all, 0xff, bytes);
    const winattn_status status =
        wa_make_buffer(context, CL_MEM_READ_WRITE, bytes, all, &x->workspace);
    free(all);
    return status;
}

/* To be ended, also after a failure. twin: NULL, or that of the same numbers.
 */
static winattn_status begin(window_launch *x, cl_context context,
                            cl_device_id device, const wa_problem *test,
                            const wa_plan *small, size_t offset,
                            const window_launch *twin)
{
    cl_int error;
    memset(x, 0, sizeof *x);
    x->offset = offset;
    WA_TRY(wa_window_numbers_make(test, small->pass,
                                  twin ? &twin->numbers : NULL, &x->numbers));
    x->queue = clCreateCommandQueue(context, device, 0, &error);
    if (error != CL_SUCCESS) {
        x->queue = NULL;
        return wa_fail_cl(error, "clCreateCommandQueue");
    }
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (x->numbers.stored[id])
            WA_TRY(make_buffer(x, context, id));
    return make_workspace(x, context, small);
}

/* One split for all of the test's windows. */
static wa_plan small_backward_plan(const wa_plan *plan, const wa_problem *test)
{
    const uint64_t heads = WA_WINDOW_TEST_HEADS;
    wa_plan small = *plan;
    wa_schedule *s = &small.schedule;
    wa_workspace *w = &small.workspace;
    s->splits = 1;
    s->row_splits = s->row_splits ? 1 : 0;
    s->windows_per_launch = WA_GRADIENT_TEST_WINDOWS;
    memset(w, 0, sizeof *w);
    w->statistics = ROW_NUMBERS * sizeof(float) * s->windows_per_launch *
                    heads * test->queries;
    w->bias = sizeof(float) * heads * test->queries * test->keys;
    w->scale = sizeof(float) * heads * (s->row_splits ? s->row_blocks : 1);
    w->all = w->statistics + w->bias + w->scale;
    return small;
}

/* The plan for the test's windows: a work-group for each block of rows of a
 * head, or fewer where these may go on to another. */
static wa_plan small_plan(const wa_plan *plan, const wa_problem *test)
{
    wa_plan small = *plan;
    wa_schedule *s = &small.schedule;
    if (plan->pass == WA_BACKWARD)
        return small_backward_plan(plan, test);
    const uint32_t blocks = s->row_blocks * WA_WINDOW_TEST_HEADS;
    s->groups = s->persistent_multi_block && blocks > 2 ? blocks - 1 : blocks;
    s->windows_per_launch = WA_WINDOW_TEST_WINDOWS;
    return small;
}

/* Reads outputs, too. */
static winattn_status launch(const wa_problem *test, const wa_plan *small,
                             const wa_kernels *kernels,
                             const wa_table_buffers *table, window_launch *x)
{
    wa_buffers buffers;
    memset(&buffers, 0, sizeof buffers);
    buffers.table = *table;
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        buffers.tensor[id] = (winattn_tensor){x->buffer[id], start_of(x, id)};
    buffers.workspace.buffer = x->workspace;
    WA_TRY(
        wa_launch(test, small, kernels, x->queue, &buffers, 0, 0, NULL, NULL));
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        const wa_role role = wa_tensor_role(id, small->pass);
        if (!x->buffer[id] ||
            (role != WA_OUTPUT && role != WA_OPTIONAL_OUTPUT))
            continue;
        const cl_int error = clEnqueueReadBuffer(
            x->queue, x->buffer[id], CL_TRUE, start_of(x, id),
            x->numbers.bytes[id], x->numbers.stored[id], 0, NULL, NULL);
        if (error != CL_SUCCESS)
            return wa_fail_cl(error, "clEnqueueReadBuffer");
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_check_window_wgmma(cl_context context, cl_device_id device,
                                     const wa_problem *problem,
                                     const wa_plan *plan,
                                     const wa_kernels *kernels,
                                     const wa_table_buffers *table)
{
    const wa_problem test = wa_window_test_problem(problem, plan->pass);
    const wa_plan small = small_plan(plan, &test);
    window_launch aligned, shifted;
    memset(&shifted, 0, sizeof shifted);
    winattn_status status =
        begin(&aligned, context, device, &test, &small, 0, NULL);
    if (status == WINATTN_SUCCESS)
        status = launch(&test, &small, kernels, table, &aligned);
    if (status == WINATTN_SUCCESS)
        status = begin(&shifted, context, device, &test, &small, 1, &aligned);
    if (status == WINATTN_SUCCESS)
        status = launch(&test, &small, kernels, table, &shifted);
    if (status == WINATTN_SUCCESS)
        status = wa_window_numbers_compare(&aligned.numbers, &shifted.numbers);
    end(&aligned);
    end(&shifted);
    return status;
}
