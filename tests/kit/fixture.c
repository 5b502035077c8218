/* SPDX-License-Identifier: Apache-2.0
 * A case on the device under test. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

winattn_plan *make_plan(const winattn_desc *desc)
{
    winattn_plan *plan;
    if (winattn_plan_create(device.context, device.id, desc, &plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    return plan;
}

void enqueue_forward(const fixture *f, const winattn_plan *plan)
{
    assert_int_equal(winattn_enqueue_forward(plan, device.queue, &f->forward,
                                             0, NULL, NULL),
                     WINATTN_SUCCESS);
}

fixture set_up_case(const test_case *c)
{
    fixture f;
    size_t size = 0;
    cl_int error = CL_SUCCESS;
    memset(&f, 0, sizeof f);
    f.data = data_make(c);
    assert_non_null(f.data);
    assert_true(buffers_create(&device, f.data, &f.buffers));
    f.desc = data_desc(f.data);
    f.plan = make_plan(&f.desc);
    assert_int_equal(winattn_plan_workspace_size(f.plan, &size),
                     WINATTN_SUCCESS);
    if (size != 0)
        f.workspace = clCreateBuffer(device.context, CL_MEM_READ_WRITE, size,
                                     NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    if (c->pass == PASS_BACKWARD)
        f.backward = buffers_backward(f.data, &f.buffers);
    else
        f.forward = buffers_forward(f.data, &f.buffers);
    f.forward.workspace.buffer = f.backward.workspace.buffer = f.workspace;
    return f;
}

fixture set_up(const char *text)
{
    const test_case c = parsed(text);
    return set_up_case(&c);
}

void tear_down(fixture *f)
{
    winattn_plan_destroy(f->plan);
    if (f->workspace)
        clReleaseMemObject(f->workspace);
    buffers_release(&f->buffers);
    data_free(f->data);
}

void assert_correct(const fixture *f)
{
    case_result result;
    memset(&result, 0, sizeof result);
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    if (!buffers_check(device.queue, f->data, &f->buffers, &result))
        fail_msg("%s", result.failure);
}

void assert_nothing_written(const fixture *f)
{
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    for (int i = 0; i < f->data->buffers; i++) {
        const buffer_image *image = &f->data->buffer[i];
        unsigned char *bytes = malloc(image->size);
        assert_non_null(bytes);
        assert_int_equal(clEnqueueReadBuffer(device.queue, f->buffers.mem[i],
                                             CL_TRUE, 0, image->size, bytes, 0,
                                             NULL, NULL),
                         CL_SUCCESS);
        assert_memory_equal(bytes, image->bytes, image->size);
        free(bytes);
    }
}

void plan_text(const winattn_plan *plan, char text[4096])
{
    assert_int_equal(winattn_plan_describe(plan, 4096, text, NULL),
                     WINATTN_SUCCESS);
}
