/* SPDX-License-Identifier: Apache-2.0
 * What callers of linear layers may give and what they may not; which kernels
 * plans have, also on devices that are made up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/child.h"
#include "kit/devices.h"
#include "linear_case.h"

/* A plan with everything, and buffers that are large enough. */
typedef struct prepared {
    winattn_linear_desc desc;
    winattn_linear_plan *plan;
    winattn_linear call;
    cl_mem in, out, workspace;
} prepared;

static cl_mem new_buffer(size_t size, cl_mem_flags flags)
{
    cl_int error;
    const float zero = 0;
    cl_mem mem = clCreateBuffer(device.context, flags, size, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    assert_int_equal(clEnqueueFillBuffer(device.queue, mem, &zero, sizeof zero,
                                         0, size, 0, NULL, NULL),
                     CL_SUCCESS);
    return mem;
}

static void prepare(prepared *p)
{
    memset(p, 0, sizeof *p);
    p->desc.struct_size = sizeof p->desc;
    p->desc.in_features = 12;
    p->desc.out_features = 20;
    p->desc.layer_norm = p->desc.has_bias = p->desc.has_residual = true;
    assert_int_equal(winattn_linear_plan_create(device.context, device.id,
                                                &p->desc, &p->plan),
                     WINATTN_SUCCESS);
    p->in = new_buffer(4096, CL_MEM_READ_WRITE);
    p->out = new_buffer(10 * 20 * 4, CL_MEM_READ_WRITE);
    p->workspace = new_buffer(480, CL_MEM_READ_WRITE);
    p->call.struct_size = sizeof p->call;
    p->call.rows = 10;
    p->call.x.buffer = p->call.weight.buffer = p->call.bias.buffer =
        p->call.norm_weight.buffer = p->call.norm_bias.buffer =
            p->call.residual.buffer = p->in;
    p->call.y.buffer = p->out;
    p->call.workspace.buffer = p->workspace;
}

static void tear(prepared *p)
{
    winattn_linear_plan_destroy(p->plan);
    clReleaseMemObject(p->in);
    clReleaseMemObject(p->out);
    clReleaseMemObject(p->workspace);
}

static void refuses(const winattn_linear_desc *desc, winattn_status status,
                    const char *culprit)
{
    winattn_linear_plan *plan = (winattn_linear_plan *)desc;
    assert_status(
        winattn_linear_plan_create(device.context, device.id, desc, &plan),
        status, culprit);
    assert_null(plan);
}

static void wrong_descriptors_are_refused(void **state)
{
    (void)state;
    const winattn_linear_desc right = {
        .struct_size = sizeof right, .in_features = 3, .out_features = 5};
    winattn_linear_desc d = right;
    refuses(NULL, WINATTN_INVALID_ARGUMENT, "linear_desc is NULL");
    d.struct_size = 8;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "struct_size");
    d = right;
    d.in_features = 0;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "in_features is 0");
    d.in_features = 65537;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "in_features is 65537");
    d = right;
    d.out_features = 1048577;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "out_features");
    d = right;
    d.dtype = (winattn_dtype)3;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "dtype");
    d = right;
    d.tier = (winattn_tier)-1;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "tier");
    d = right;
    d.activation = (winattn_activation)2;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "activation");
    d = right;
    d.eps = 1e-6f;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "eps");
    d.layer_norm = true;
    d.eps = NAN;
    refuses(&d, WINATTN_INVALID_ARGUMENT, "eps");
    assert_status(
        winattn_linear_plan_create(device.context, device.id, &right, NULL),
        WINATTN_INVALID_ARGUMENT, "plan is NULL");
    winattn_linear_plan_destroy(NULL);
}

static void refuses_call(const prepared *p, const winattn_linear *call,
                         winattn_status status, const char *culprit)
{
    assert_status(
        winattn_enqueue_linear(p->plan, device.queue, call, 0, NULL, NULL),
        status, culprit);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    prepared p;
    prepare(&p);
    winattn_linear c = p.call;
    c.struct_size = 4;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "struct_size");
    c = p.call;
    c.rows = 1ull << 32;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "rows");
    c = p.call;
    c.rows = 11;
    refuses_call(&p, &c, WINATTN_BUFFER_TOO_SMALL, "y needs");
    c = p.call;
    c.x_stride = 11;
    refuses_call(&p, &c, WINATTN_INVALID_LAYOUT, "x_stride is 11");
    c.x_stride = 1ull << 32;
    refuses_call(&p, &c, WINATTN_INVALID_LAYOUT, "x_stride");
    c.x_stride = 1000;
    refuses_call(&p, &c, WINATTN_BUFFER_TOO_SMALL, "x needs");
    c = p.call;
    c.y.offset = 2;
    refuses_call(&p, &c, WINATTN_INVALID_LAYOUT, "offset of y");
    c = p.call;
    c.norm_bias.buffer = NULL;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "norm_bias is NULL");
    c = p.call;
    c.residual.buffer = NULL;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "residual is NULL");
    c = p.call;
    c.workspace.buffer = NULL;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "needs 480 bytes");
    c = p.call;
    c.workspace.offset = 16;
    refuses_call(&p, &c, WINATTN_WORKSPACE_TOO_SMALL, "workspace");
    cl_mem read_only = new_buffer(800, CL_MEM_READ_ONLY);
    c = p.call;
    c.y.buffer = read_only;
    refuses_call(&p, &c, WINATTN_INVALID_BUFFER, "y is written");
    clReleaseMemObject(read_only);
    cl_mem write_only = new_buffer(800, CL_MEM_WRITE_ONLY);
    c = p.call;
    c.workspace.buffer = write_only;
    refuses_call(&p, &c, WINATTN_INVALID_BUFFER, "workspace is read");
    clReleaseMemObject(write_only);
    assert_status(
        winattn_enqueue_linear(NULL, device.queue, &p.call, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "plan is NULL");
    assert_status(winattn_enqueue_linear(p.plan, NULL, &p.call, 0, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "queue is NULL");
    assert_status(
        winattn_enqueue_linear(p.plan, device.queue, &p.call, 1, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "wait_list");
    refuses_call(&p, NULL, WINATTN_INVALID_ARGUMENT, "linear is NULL");
    refuses_call(&p, &p.call, WINATTN_SUCCESS, "");
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    tear(&p);
}

static void parts_that_a_plan_lacks_are_refused(void **state)
{
    (void)state;
    prepared p;
    prepare(&p);
    winattn_linear_plan_destroy(p.plan);
    p.desc.layer_norm = p.desc.has_bias = p.desc.has_residual = false;
    assert_int_equal(winattn_linear_plan_create(device.context, device.id,
                                                &p.desc, &p.plan),
                     WINATTN_SUCCESS);
    size_t size = 1;
    assert_int_equal(winattn_linear_plan_workspace_size(p.plan, 10, &size),
                     WINATTN_SUCCESS);
    assert_int_equal(size, 0);
    winattn_linear c = p.call;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "bias is given");
    c.bias.buffer = c.norm_weight.buffer = NULL;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "norm_bias is given");
    c.norm_bias.buffer = NULL;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "residual is given");
    c.residual.buffer = NULL;
    c.residual_stride = 20;
    refuses_call(&p, &c, WINATTN_INVALID_ARGUMENT, "residual_stride");
    c.residual_stride = 0;
    refuses_call(&p, &c, WINATTN_SUCCESS, "");
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    tear(&p);
}

/* No rows are no launch, but an event; a queue out of order keeps the order of
 * norm and layer. */
static void events_are_given(void **state)
{
    (void)state;
    prepared p;
    cl_event first, second;
    prepare(&p);
    cl_command_queue queue =
        device.unordered ? device.unordered : device.queue;
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    winattn_linear c = p.call;
    c.rows = 0;
    assert_int_equal(
        winattn_enqueue_linear(p.plan, queue, &c, 0, NULL, &first),
        WINATTN_SUCCESS);
    assert_int_equal(
        winattn_enqueue_linear(p.plan, queue, &p.call, 1, &first, &second),
        WINATTN_SUCCESS);
    assert_int_equal(clWaitForEvents(1, &second), CL_SUCCESS);
    float y[200];
    assert_int_equal(clEnqueueReadBuffer(device.queue, p.out, CL_TRUE, 0,
                                         sizeof y, y, 0, NULL, NULL),
                     CL_SUCCESS);
    for (int i = 0; i < 200; i++)
        assert_true(y[i] == 0);
    clReleaseEvent(first);
    clReleaseEvent(second);
    tear(&p);
}

/* 0, or which call went wrong. */
static int use_all(const void *data)
{
    const prepared *p = data;
    winattn_linear_plan *plan = p->plan;
    if (winattn_linear_plan_create(device.context, device.id, &p->desc,
                                   &plan) != WINATTN_INVALID_PROCESS ||
        plan)
        return 1;
    if (winattn_enqueue_linear(p->plan, device.queue, &p->call, 0, NULL,
                               NULL) != WINATTN_INVALID_PROCESS)
        return 2;
    winattn_linear_plan_destroy(p->plan);
    return 0;
}

/* Of a process that was forked. */
static void children_are_refused(void **state)
{
    (void)state;
    prepared p;
    prepare(&p);
    const int result = child_run(use_all, &p);
    if (result != CHILD_HAS_NO_FORK)
        assert_int_equal(result, 0);
    refuses_call(&p, &p.call, WINATTN_SUCCESS, "");
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    tear(&p);
}

/* GELU of what is no ordinary number: infinity stays, what is far below 0
 * becomes 0, NaN stays NaN; and only in its row. */
static void gelu_keeps_what_is_no_number(void **state)
{
    (void)state;
    enum { ROWS = 6 };
    static const winattn_tier tiers[] = {WINATTN_TIER_CPU, WINATTN_TIER_LOCAL};
    float x[ROWS] = {INFINITY, NAN, 30.0f, -30.0f, 0.0f, 1.0f}, one = 1;
    cl_int error;
    for (int t = 0; t < (keeps_barriers() ? 2 : 1); t++) {
        float y[ROWS];
        const winattn_linear_desc desc = {.struct_size = sizeof desc,
                                          .tier = tiers[t],
                                          .in_features = 1,
                                          .out_features = 1,
                                          .activation =
                                              WINATTN_ACTIVATION_GELU};
        winattn_linear_plan *plan;
        winattn_linear call = {.struct_size = sizeof call, .rows = ROWS};
        assert_int_equal(winattn_linear_plan_create(device.context, device.id,
                                                    &desc, &plan),
                         WINATTN_SUCCESS);
        call.x.buffer = clCreateBuffer(device.context, CL_MEM_COPY_HOST_PTR,
                                       sizeof x, x, &error);
        assert_int_equal(error, CL_SUCCESS);
        call.weight.buffer = clCreateBuffer(
            device.context, CL_MEM_COPY_HOST_PTR, sizeof one, &one, &error);
        assert_int_equal(error, CL_SUCCESS);
        call.y.buffer = new_buffer(sizeof y, CL_MEM_READ_WRITE);
        assert_int_equal(
            winattn_enqueue_linear(plan, device.queue, &call, 0, NULL, NULL),
            WINATTN_SUCCESS);
        assert_int_equal(clEnqueueReadBuffer(device.queue, call.y.buffer,
                                             CL_TRUE, 0, sizeof y, y, 0, NULL,
                                             NULL),
                         CL_SUCCESS);
        assert_true(isinf(y[0]) && y[0] > 0);
        assert_true(isnan(y[1]));
        assert_true(y[2] == 30.0f && y[3] == 0.0f && y[4] == 0.0f);
        assert_true(fabs(y[5] - 0.841344746) < 1e-6);
        clReleaseMemObject(call.x.buffer);
        clReleaseMemObject(call.weight.buffer);
        clReleaseMemObject(call.y.buffer);
        winattn_linear_plan_destroy(plan);
    }
}

static void plans_describe_themselves(void **state)
{
    (void)state;
    prepared p;
    char text[8192];
    size_t needed = 0;
    prepare(&p);
    assert_int_equal(winattn_linear_plan_describe(p.plan, 0, NULL, &needed),
                     WINATTN_SUCCESS);
    assert_in_range(needed, 100, sizeof text);
    assert_int_equal(winattn_linear_plan_describe(p.plan, needed, text, NULL),
                     WINATTN_SUCCESS);
    assert_int_equal(strlen(text) + 1, needed);
    assert_non_null(strstr(text, "\ntier: "));
    assert_non_null(strstr(text, "\nnorm kernel: norm_rows\n"));
    assert_status(winattn_linear_plan_describe(p.plan, 5, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "text is NULL");
    tear(&p);
}

/* ---- Made-up devices ---- */

static void check_planned(const wa_linear_problem *p, const wa_device *told)
{
    static const char *const types[] = {"fp32", "fp16", "bf16"};
    char excluded[WA_TIERS][WA_REASON_SIZE];
    wa_linear_layout layout;
    memset(excluded, 0, sizeof excluded);
    if (wa_linear_plan_make(p, told, excluded, &layout) != WINATTN_SUCCESS)
        fail_msg("%s, %u -> %u: %s", told->name, p->in, p->out,
                 winattn_last_reason());
    const bool has_unit = told->matrix_unit && told->matrix_unit->proven &&
                          p->dtype != WINATTN_FP32;
    const winattn_tier wanted = told->is_cpu ? WINATTN_TIER_CPU
                                : has_unit   ? WINATTN_TIER_MATRIX
                                             : WINATTN_TIER_LOCAL;
    if (layout.tier != wanted)
        fail_msg("%s, %s: tier %s", told->name, types[p->dtype],
                 wa_tier_name(layout.tier));
    assert_string_equal(layout.kernel[WA_LINEAR_NORM].name,
                        p->layer_norm ? "norm_rows" : "");
    for (int i = 0; i < WA_LINEAR_KERNELS; i++) {
        const wa_linear_kernel *k = &layout.kernel[i];
        if (!k->name[0])
            continue;
        assert_true(k->work_group >= 1 && k->rows >= 1);
        assert_true(k->work_group <= told->max_work_group || told->is_cpu);
        assert_true(k->local_bytes <= told->local_bytes || told->is_cpu);
        /* options that no text had to be cut for */
        assert_true(strlen(k->defines) < sizeof k->defines - 2);
        assert_int_equal(k->defines[strlen(k->defines) - 1], ' ');
    }
}

static void every_device_has_a_plan(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 7, 32, 96, 100, 288, 1536, 65536};
    const size_t count = sizeof sizes / sizeof *sizes;
    for (size_t d = 0; d < made_up_count; d++)
        for (size_t i = 0; i < count * count * 3; i++) {
            const wa_linear_problem p = {.dtype = (winattn_dtype)(i % 3),
                                         .in = sizes[i / 3 % count],
                                         .out = sizes[i / 3 / count],
                                         .layer_norm = i % 2,
                                         .build_options = ""};
            if (made_up_devices[d].loop_limit == 0)
                check_planned(&p, &made_up_devices[d]);
        }
}

/* A unit that nobody has run is taken on demand only; TF32 by permission. */
static void units_need_leave(void **state)
{
    (void)state;
    const wa_device *amd = made_up_device("gfx1100 (RX 7900 XTX)");
    const wa_device *nvidia = made_up_device("H200");
    wa_linear_problem p = {
        .dtype = WINATTN_FP16, .in = 96, .out = 96, .build_options = ""};
    wa_linear_layout layout;
    memset(&layout, 0, sizeof layout);
    assert_false(wa_linear_plan_matrix(&p, amd, NULL, &layout));
    p.tier = WINATTN_TIER_MATRIX;
    assert_true(wa_linear_plan_matrix(&p, amd, NULL, &layout));
    assert_string_equal(layout.kernel[WA_LINEAR_MANY].name,
                        "linear_matrix_wmma11");
    p.dtype = WINATTN_FP32;
    assert_false(wa_linear_plan_matrix(&p, nvidia, NULL, &layout));
    p.allow_tf32 = true;
    assert_true(wa_linear_plan_matrix(&p, nvidia, NULL, &layout));
    assert_false(wa_linear_plan_matrix(&p, amd, NULL, &layout));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_descriptors_are_refused),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(parts_that_a_plan_lacks_are_refused),
        cmocka_unit_test(events_are_given),
        cmocka_unit_test(children_are_refused),
        cmocka_unit_test(gelu_keeps_what_is_no_number),
        cmocka_unit_test(plans_describe_themselves),
        cmocka_unit_test(every_device_has_a_plan),
        cmocka_unit_test(units_need_leave),
    };
    if (!runner_open())
        return 77;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_close();
    return failed;
}
