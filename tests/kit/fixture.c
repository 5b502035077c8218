/* SPDX-License-Identifier: Apache-2.0
 * A forward case on the device under test. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

fixture set_up(const char *text)
{
    fixture f;
    const test_case c = parsed(text);
    f.data = data_make(&c);
    assert_non_null(f.data);
    assert_true(buffers_create(&device, f.data, &f.buffers));
    f.desc = data_desc(f.data);
    if (winattn_plan_create(device.context, device.id, &f.desc, &f.plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    f.forward = buffers_forward(f.data, &f.buffers);
    return f;
}

void tear_down(fixture *f)
{
    winattn_plan_destroy(f->plan);
    buffers_release(&f->buffers);
    data_free(f->data);
}

void assert_correct(const fixture *f)
{
    case_result result;
    memset(&result, 0, sizeof result);
    if (!buffers_check(device.queue, f->data, &f->buffers, 0, &result))
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
