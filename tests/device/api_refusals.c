/* SPDX-License-Identifier: Apache-2.0
 * Calls that are refused, each for its reason, and write nothing. */
#include <string.h>

#include "api.h"
#include "kit/fixture.h"

/* ---- Tensors ---- */

/* What stands where a tensor's own buffer belongs. */
typedef enum stranger {
    OWN, /* nothing does */
    NONE,
    ANY,
    READ_ONLY,
    WRITE_ONLY,
    IMAGE,   /* where the device has them */
    FOREIGN, /* of another context on the same device */
    STRANGERS
} stranger;

enum { WORKSPACE = TENSORS };
#define FAR ((cl_ulong)1 << 40)
#define ABSENT NONE, 0, WINATTN_INVALID_ARGUMENT
#define NEEDLESS ANY, 0, WINATTN_INVALID_ARGUMENT
#define ODD(offset) OWN, offset, WINATTN_INVALID_LAYOUT
#define SHORT(offset) OWN, offset, WINATTN_BUFFER_TOO_SMALL
#define WRONG(buffer) buffer, 0, WINATTN_INVALID_BUFFER

typedef struct spoilt_tensor {
    int id; /* a tensor_id, or WORKSPACE */
    stranger buffer;
    cl_ulong offset; /* added to its own */
    winattn_status status;
    const char *culprit; /* NULL: no more */
} spoilt_tensor;

static const struct {
    const char *text; /* of a case */
    spoilt_tensor tensors[20];
} spoilt[] = {
    {"bias=same mask=regions mask_windows=2 dtype=fp16",
     {{T_Q, ABSENT, "q is NULL"},
      {T_K, ABSENT, "k is NULL"},
      {T_V, ABSENT, "v is NULL"},
      {T_O, ABSENT, "o is NULL"},
      {T_BIAS, ABSENT, "bias is NULL"},
      {T_QUERY_REGIONS, ABSENT, "query_regions is NULL"},
      {T_KEY_REGIONS, ABSENT, "key_regions is NULL"},
      {T_MASK, NEEDLESS, "mask is given, but"},
      {T_LOGIT_SCALE, NEEDLESS, "logit_scale is given, but"},
      {T_Q, ODD(1), "the offset of q"},
      {T_LSE, ODD(2), "the offset of lse"},
      {T_V, SHORT(FAR), "v"},
      {T_K, SHORT(UINT64_MAX - 1), "k"},
      {T_O, SHORT(258), "o needs"}, /* 256 bytes follow each tensor */
      {T_KEY_REGIONS, SHORT(257), "key_regions"},
      {T_O, WRONG(READ_ONLY), "o is written"},
      {T_K, WRONG(WRITE_ONLY), "k is read"},
      {T_V, WRONG(IMAGE), "v is no buffer"},
      {T_Q, WRONG(FOREIGN), "q belongs to another context"}}},
    /* every tensor that a problem of maps can have; the table is expanded */
    {"grid=2 size=9x10 window=4x4 shift=2x1 mask=shift bias=table_fp32 "
     "pads=3 heads=2 dim=8 tier=cpu",
     {{WORKSPACE, ABSENT,
       "workspace is NULL, but the forward pass needs 2048 bytes"},
      {WORKSPACE, OWN, 32, WINATTN_WORKSPACE_TOO_SMALL,
       "workspace needs 2048 bytes from offset 32 on, but its buffer has "
       "2048"},
      {WORKSPACE, WRONG(READ_ONLY), "workspace is written"},
      {WORKSPACE, WRONG(WRITE_ONLY), "workspace is read"},
      {T_BIAS, ABSENT, "bias is NULL"},
      {T_BIAS, ODD(2), "the offset of bias"},
      {T_Q, SHORT(FAR), "q"},
      {T_PAD_K, ODD(2), "pad_k"},
      {T_PAD_V, SHORT(FAR), "pad_v"},
      {T_MASK, NEEDLESS, "mask is given, but"}}},
    /* hidden padding has no channels */
    {"grid=2 size=9x10 window=4x4 padding=hidden heads=2 dim=8",
     {{T_PAD_V, NEEDLESS, "pad_v is given, but"}}},
    {"pass=backward tier=cpu bias=same variant=cosine logit_scale=1",
     {{T_D_O, ABSENT, "d_o is NULL"},
      {T_D_PAD_K, NEEDLESS, "d_pad_k is given, but"},
      {T_LOGIT_SCALE, ABSENT, "d_logit_scale"},
      {T_DQ, ODD(2), "dq"},
      {T_DK, SHORT(1 << 30), "dk"},
      {WORKSPACE, ABSENT, "workspace is NULL"},
      {WORKSPACE, OWN, 16, WINATTN_WORKSPACE_TOO_SMALL, "workspace needs"},
      {WORKSPACE, ODD(4), "workspace"}}},
};

/* The call of either pass; it need not be the case's. */
typedef union call {
    winattn_forward forward;
    winattn_backward backward;
    unsigned char bytes[sizeof(winattn_backward)];
} call;

static winattn_status enqueue(const fixture *f, const call *c)
{
    return f->data->c.pass == PASS_FORWARD
               ? winattn_enqueue_forward(f->plan, device.queue, &c->forward, 0,
                                         NULL, NULL)
               : winattn_enqueue_backward(f->plan, device.queue, &c->backward,
                                          0, NULL, NULL);
}

static call call_of(const fixture *f)
{
    call c;
    if (f->data->c.pass == PASS_FORWARD)
        c.forward = f->forward;
    else
        c.backward = f->backward;
    return c;
}

static void assert_spoilt_refused(const fixture *f, const spoilt_tensor *t,
                                  cl_mem instead)
{
    const size_t workspace = f->data->c.pass == PASS_FORWARD
                                 ? offsetof(winattn_forward, workspace)
                                 : offsetof(winattn_backward, workspace);
    winattn_tensor tensor;
    call c = call_of(f);
    unsigned char *at =
        c.bytes +
        (t->id == WORKSPACE ? workspace : tensor_place((tensor_id)t->id));
    memcpy(&tensor, at, sizeof tensor);
    tensor.offset += t->offset;
    if (t->buffer != OWN)
        tensor.buffer = instead;
    memcpy(at, &tensor, sizeof tensor);
    assert_status(enqueue(f, &c), t->status, t->culprit);
}

static cl_mem make_image(void)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                                 .image_width = 64,
                                 .image_height = 64};
    cl_bool images = CL_FALSE;
    cl_int error;
    clGetDeviceInfo(device.id, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images,
                    NULL);
    return images ? clCreateImage(device.context, CL_MEM_READ_WRITE, &format,
                                  &shape, NULL, &error)
                  : NULL;
}

static void tensors_are_checked(void **state)
{
    (void)state;
    static const cl_mem_flags flags[STRANGERS] = {
        [ANY] = CL_MEM_READ_WRITE,
        [READ_ONLY] = CL_MEM_READ_ONLY,
        [WRITE_ONLY] = CL_MEM_WRITE_ONLY,
        [FOREIGN] = CL_MEM_READ_WRITE};
    cl_mem strangers[STRANGERS] = {[IMAGE] = make_image()};
    cl_int error;
    cl_context other =
        clCreateContext(NULL, 1, &device.id, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    for (int i = 0; i < STRANGERS; i++)
        if (flags[i])
            strangers[i] =
                clCreateBuffer(i == FOREIGN ? other : device.context, flags[i],
                               1 << 20, NULL, &error);
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        const test_case c = parsed(spoilt[i].text);
        if (c.pass == PASS_BACKWARD && !has_backward())
            continue;
        fixture f = set_up_case(&c);
        for (const spoilt_tensor *t = spoilt[i].tensors; t->culprit; t++)
            if (t->buffer != IMAGE || strangers[IMAGE])
                assert_spoilt_refused(&f, t, strangers[t->buffer]);
        assert_nothing_written(&f);
        /* and the same call, unspoilt, works */
        const call good = call_of(&f);
        assert_int_equal(enqueue(&f, &good), WINATTN_SUCCESS);
        assert_correct(&f);
        tear_down(&f);
    }
    for (int i = 0; i < STRANGERS; i++)
        if (strangers[i])
            clReleaseMemObject(strangers[i]);
    clReleaseContext(other);
}

/* ---- What else a call has ---- */

static void calls_are_checked(void **state)
{
    (void)state;
    fixture f = set_up("");
    winattn_forward bad = f.forward;
    cl_int error;
    cl_context context =
        clCreateContext(NULL, 1, &device.id, NULL, NULL, &error);
    cl_command_queue queue =
        clCreateCommandQueue(context, device.id, 0, &error);
    assert_int_equal(error, CL_SUCCESS);
    const struct {
        const winattn_plan *plan;
        cl_command_queue queue;
        const winattn_forward *forward;
        cl_uint waits;
        winattn_status status;
        const char *culprit;
    } rows[] = {
        {NULL, device.queue, &bad, 0, WINATTN_INVALID_ARGUMENT, "plan"},
        {f.plan, NULL, &bad, 0, WINATTN_INVALID_ARGUMENT, "queue"},
        {f.plan, queue, &bad, 0, WINATTN_INVALID_QUEUE, "context"},
        {f.plan, device.queue, NULL, 0, WINATTN_INVALID_ARGUMENT, "forward"},
        {f.plan, device.queue, &bad, 1, WINATTN_INVALID_ARGUMENT, "wait_list"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_status(winattn_enqueue_forward(rows[i].plan, rows[i].queue,
                                              rows[i].forward, rows[i].waits,
                                              NULL, NULL),
                      rows[i].status, rows[i].culprit);
    for (size_t size = 8; size <= 8192; size += 8184) {
        bad.struct_size = size;
        assert_status(
            winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),
            WINATTN_INVALID_ARGUMENT, "struct_size is");
    }
    assert_nothing_written(&f);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    tear_down(&f);
}

/* A queue of the right context and the wrong device. */
static void queue_of_other_device(void **state)
{
    (void)state;
    cl_device_id parts[2];
    cl_int error;
    if (!make_parts(parts))
        skip();
    cl_context context = clCreateContext(NULL, 2, parts, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    cl_command_queue queue =
        clCreateCommandQueue(context, parts[1], 0, &error);
    assert_int_equal(error, CL_SUCCESS);
    const test_case c = parsed("");
    const winattn_desc desc = case_desc(&c);
    winattn_plan *plan;
    const winattn_forward f = {.struct_size = sizeof f};
    assert_int_equal(winattn_plan_create(context, parts[0], &desc, &plan),
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
    cmocka_unit_test(tensors_are_checked),
    cmocka_unit_test(calls_are_checked),
    cmocka_unit_test(queue_of_other_device),
};
const test_group api_refusals = TEST_GROUP(NULL, tests);
