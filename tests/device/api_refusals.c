/* SPDX-License-Identifier: Apache-2.0
 * Calls that are refused, each for its reason, and write nothing. */
#include <string.h>

#include "api.h"
#include "kit/fixture.h"

static void enqueue_refuses(void **state)
{
    (void)state;
    fixture f = set_up("bias=same mask=regions mask_windows=2 dtype=fp16");
    winattn_forward good = f.forward, bad;
#define REFUSE(change, status, culprit)                                       \
    bad = good;                                                               \
    change;                                                                   \
    assert_status(                                                            \
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),   \
        status, culprit)
    assert_status(
        winattn_enqueue_forward(NULL, device.queue, &good, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "plan");
    assert_status(winattn_enqueue_forward(f.plan, NULL, &good, 0, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "queue");
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, NULL, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "forward");
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &good, 1, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "wait_list");
    REFUSE(bad.struct_size = 8, WINATTN_INVALID_ARGUMENT, "struct_size");
    REFUSE(bad.struct_size = 8192, WINATTN_INVALID_ARGUMENT, "is 8192");
    REFUSE(bad.q.buffer = NULL, WINATTN_INVALID_ARGUMENT, "q is NULL");
    REFUSE(bad.k.buffer = NULL, WINATTN_INVALID_ARGUMENT, "k is NULL");
    REFUSE(bad.v.buffer = NULL, WINATTN_INVALID_ARGUMENT, "v is NULL");
    REFUSE(bad.o.buffer = NULL, WINATTN_INVALID_ARGUMENT, "o is NULL");
    REFUSE(bad.bias.buffer = NULL, WINATTN_INVALID_ARGUMENT, "bias is NULL");
    REFUSE(bad.query_regions.buffer = NULL, WINATTN_INVALID_ARGUMENT,
           "query_regions is NULL");
    REFUSE(bad.key_regions.buffer = NULL, WINATTN_INVALID_ARGUMENT,
           "key_regions is NULL");
    REFUSE(bad.mask = good.bias, WINATTN_INVALID_ARGUMENT,
           "mask is given, but");
    REFUSE(bad.logit_scale = good.bias, WINATTN_INVALID_ARGUMENT,
           "logit_scale is given, but");
    REFUSE(bad.q.offset += 1, WINATTN_INVALID_LAYOUT, "the offset of q");
    REFUSE(bad.lse.offset += 2, WINATTN_INVALID_LAYOUT, "the offset of lse");
    REFUSE(bad.v.offset = (cl_ulong)1 << 40, WINATTN_BUFFER_TOO_SMALL, "v");
    REFUSE(bad.k.offset = UINT64_MAX - 1, WINATTN_BUFFER_TOO_SMALL, "k");
    REFUSE(bad.o.offset += 258, WINATTN_BUFFER_TOO_SMALL, "o needs");
    REFUSE(bad.key_regions.offset += 257, WINATTN_BUFFER_TOO_SMALL,
           "key_regions");
#undef REFUSE
    assert_nothing_written(&f);
    /* and the same call, unspoilt, works; 256 bytes follow each tensor */
    good.o.offset += 0;
    assert_int_equal(
        winattn_enqueue_forward(f.plan, device.queue, &good, 0, NULL, NULL),
        WINATTN_SUCCESS);
    assert_correct(&f);
    tear_down(&f);
}

static void assert_refused(const fixture *f, const winattn_forward *call,
                           winattn_status status, const char *culprit)
{
    assert_status(
        winattn_enqueue_forward(f->plan, device.queue, call, 0, NULL, NULL),
        status, culprit);
}

static void refuses_one_way_buffers(const fixture *f, size_t size)
{
    winattn_forward bad = f->forward;
    cl_int error;
    cl_mem read_only =
        clCreateBuffer(device.context, CL_MEM_READ_ONLY, size, NULL, &error);
    cl_mem write_only =
        clCreateBuffer(device.context, CL_MEM_WRITE_ONLY, size, NULL, &error);
    bad.o.buffer = read_only;
    assert_refused(f, &bad, WINATTN_INVALID_BUFFER, "o is written");
    bad = f->forward;
    bad.k.buffer = write_only;
    assert_refused(f, &bad, WINATTN_INVALID_BUFFER, "k is read");
    clReleaseMemObject(read_only);
    clReleaseMemObject(write_only);
}

static void refuses_images(const fixture *f)
{
    cl_bool images = CL_FALSE;
    clGetDeviceInfo(device.id, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images,
                    NULL);
    if (!images)
        return;
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    winattn_forward bad = f->forward;
    cl_image_desc shape;
    cl_int error;
    memset(&shape, 0, sizeof shape);
    shape.image_type = CL_MEM_OBJECT_IMAGE2D;
    shape.image_width = shape.image_height = 64;
    cl_mem image = clCreateImage(device.context, CL_MEM_READ_WRITE, &format,
                                 &shape, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    bad.v.buffer = image;
    assert_refused(f, &bad, WINATTN_INVALID_BUFFER, "v is no buffer");
    clReleaseMemObject(image);
}

/* Of another context on the same device. */
static void refuses_foreign_objects(const fixture *f, size_t size)
{
    winattn_forward bad = f->forward;
    cl_int error;
    cl_context context =
        clCreateContext(NULL, 1, &device.id, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    cl_mem foreign =
        clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &error);
    cl_command_queue queue =
        clCreateCommandQueue(context, device.id, 0, &error);
    bad.q.buffer = foreign;
    assert_refused(f, &bad, WINATTN_INVALID_BUFFER,
                   "q belongs to another context");
    assert_status(
        winattn_enqueue_forward(f->plan, queue, &f->forward, 0, NULL, NULL),
        WINATTN_INVALID_QUEUE, "context");
    clReleaseCommandQueue(queue);
    clReleaseMemObject(foreign);
    clReleaseContext(context);
}

static void buffer_kinds(void **state)
{
    (void)state;
    fixture f = set_up("");
    const size_t size = f.data->buffer[0].size;
    refuses_one_way_buffers(&f, size);
    refuses_images(&f);
    refuses_foreign_objects(&f, size);
    assert_nothing_written(&f);
    tear_down(&f);
}

/* A queue of the right context and the wrong device. */
static void queue_of_other_device(void **state)
{
    (void)state;
    cl_device_id parts[2], both[2];
    cl_uint count = 0;
    cl_int error;
    const cl_device_partition_property one_each[] = {
        CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_uint most_parts = 0;
    clGetDeviceInfo(device.id, CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
                    sizeof most_parts, &most_parts, NULL);
    /* rusticl 22.3 lacks the function itself */
    if (most_parts < 2 ||
        clCreateSubDevices(device.id, one_each, 2, parts, &count) !=
            CL_SUCCESS ||
        count < 2)
        skip();
    both[0] = parts[0];
    both[1] = parts[1];
    cl_context context = clCreateContext(NULL, 2, both, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(context, both[1], 0, &error);
    assert_int_equal(error, CL_SUCCESS);
    const test_case c = parsed("");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    winattn_forward f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    assert_int_equal(winattn_plan_create(context, both[0], &desc, &plan),
                     WINATTN_SUCCESS);
    assert_status(winattn_enqueue_forward(plan, queue, &f, 0, NULL, NULL),
                  WINATTN_INVALID_QUEUE, "device");
    winattn_plan_destroy(plan);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    clReleaseDevice(parts[0]);
    clReleaseDevice(parts[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(enqueue_refuses),
    cmocka_unit_test(buffer_kinds),
    cmocka_unit_test(queue_of_other_device),
};
const test_group api_refusals = TEST_GROUP(NULL, tests);
