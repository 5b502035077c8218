/* SPDX-License-Identifier: Apache-2.0
 * When calls are done and what outlives them: events and queues. */
#include <string.h>

#include "api.h"
#include "kit/fixture.h"

static void no_windows(void **state)
{
    (void)state;
    const test_case c = parsed("windows=0");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan = make_plan(&desc);
    const winattn_forward f = {.struct_size = sizeof f}; /* no buffers */
    cl_event event = NULL, gate;
    cl_int error, done = CL_QUEUED;
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_SUCCESS);
    /* its event still waits for what it was told to wait for */
    gate = clCreateUserEvent(device.context, &error);
    assert_int_equal(error, CL_SUCCESS);
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f, 1, &gate, &event),
        WINATTN_SUCCESS);
    clFlush(device.queue);
    clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof done,
                   &done, NULL);
    assert_int_not_equal(done, CL_COMPLETE);
    clSetUserEventStatus(gate, CL_COMPLETE);
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    clReleaseEvent(event);
    clReleaseEvent(gate);
    winattn_plan_destroy(plan);
}

static cl_uint device_references(cl_device_id part)
{
    cl_uint count = 0;
    assert_int_equal(clGetDeviceInfo(part, CL_DEVICE_REFERENCE_COUNT,
                                     sizeof count, &count, NULL),
                     CL_SUCCESS);
    return count;
}

/* A context may live without the sub-device that it was made of: whoever uses
 * the device holds it. */
static void sub_devices_are_held(void **state)
{
    (void)state;
    cl_device_id parts[2];
    cl_int error;
    if (!device_is_pocl() || !make_parts(parts))
        skip();
    const cl_device_id part = parts[0];
    cl_context context = clCreateContext(NULL, 1, &part, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    const cl_uint before = device_references(part);
    const test_case c = parsed("");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    winattn_programs *programs;
    assert_int_equal(winattn_programs_create(context, part, &programs),
                     WINATTN_SUCCESS);
    assert_int_equal(winattn_plan_create(context, part, &desc, &plan),
                     WINATTN_SUCCESS);
    assert_true(device_references(part) > before);
    winattn_plan_destroy(plan);
    winattn_programs_destroy(programs);
    assert_int_equal(device_references(part), before);
    clReleaseContext(context);
    clReleaseDevice(parts[0]);
    clReleaseDevice(parts[1]);
}

/* A plan may go while its call is on the way. */
static void destroy_early(void **state)
{
    (void)state;
    fixture f = set_up("windows=20 heads=3");
    enqueue_forward(&f, f.plan);
    winattn_plan_destroy(f.plan);
    f.plan = NULL;
    assert_correct(&f);
    tear_down(&f);
}

static void unordered_queue(void **state)
{
    (void)state;
    if (!device.unordered)
        skip();
    fixture f = set_up("windows=9 mask=same mask_windows=2");
    cl_int error;
    cl_event event = NULL;
    cl_event gate = clCreateUserEvent(device.context, &error);
    assert_int_equal(winattn_enqueue_forward(f.plan, device.unordered,
                                             &f.forward, 1, &gate, &event),
                     WINATTN_SUCCESS);
    clFlush(device.unordered);
    assert_nothing_written(&f); /* it waits */
    clSetUserEventStatus(gate, CL_COMPLETE);
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    assert_correct(&f);
    clReleaseEvent(event);
    clReleaseEvent(gate);
    tear_down(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_windows),
    cmocka_unit_test(sub_devices_are_held),
    cmocka_unit_test(destroy_early),
    cmocka_unit_test(unordered_queue),
};
const test_group api_order = TEST_GROUP(NULL, tests);
