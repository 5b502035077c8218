/* SPDX-License-Identifier: Apache-2.0
 * What callers of linear layers may give and what they may not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/child.h"
#include "linear_case.h"
#include "tensors.h"

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

static void wrong_descriptors_are_refused(void **state)
{
    (void)state;
    const winattn_linear_desc good = {
        .struct_size = sizeof good, .in_features = 3, .out_features = 5};
    winattn_linear_plan *plan = (winattn_linear_plan *)(uintptr_t)&good;
#define REFUSED(field, value, culprit)                                        \
    do {                                                                      \
        winattn_linear_desc bad = good;                                       \
        bad.field = value;                                                    \
        assert_status(winattn_linear_plan_create(device.context, device.id,   \
                                                 &bad, &plan),                \
                      WINATTN_INVALID_ARGUMENT, culprit);                     \
        assert_null(plan);                                                    \
    } while (0)
    REFUSED(struct_size, 8, "struct_size");
    REFUSED(in_features, 0, "in_features is 0");
    REFUSED(in_features, 65537, "in_features is 65537");
    REFUSED(out_features, 1048577, "out_features");
    REFUSED(dtype, (winattn_dtype)3, "dtype");
    REFUSED(tier, (winattn_tier)-1, "tier");
    REFUSED(activation, (winattn_activation)2, "activation");
    REFUSED(eps, 1e-6f, "eps");
    REFUSED(eps, (bad.layer_norm = true, NAN), "eps");
#undef REFUSED
    assert_status(
        winattn_linear_plan_create(device.context, device.id, NULL, &plan),
        WINATTN_INVALID_ARGUMENT, "linear_desc is NULL");
    assert_status(
        winattn_linear_plan_create(device.context, device.id, &good, NULL),
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

/* What of a call is no tensor; campaigns have wrong tensors. */
static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    prepared p;
    prepare(&p);
    winattn_linear bad = p.call;
    bad.rows = 1ull << 32;
    refuses_call(&p, &bad, WINATTN_INVALID_ARGUMENT, "rows");
    bad = p.call;
    bad.x_stride = 11;
    refuses_call(&p, &bad, WINATTN_INVALID_LAYOUT, "x_stride is 11");
    bad.x_stride = 1ull << 32;
    refuses_call(&p, &bad, WINATTN_INVALID_LAYOUT, "x_stride");
    refuses_call(&p, &p.call, WINATTN_SUCCESS, "");
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    winattn_linear_plan_destroy(p.plan);
    p.desc.has_residual = false;
    assert_status(winattn_linear_plan_create(device.context, device.id,
                                             &p.desc, &p.plan),
                  0, "");
    bad = p.call;
    bad.residual.buffer = NULL;
    bad.residual_stride = 20;
    refuses_call(&p, &bad, WINATTN_INVALID_ARGUMENT, "residual_stride");
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
    static const double odd[ROWS] = {INFINITY, NAN, 30, -30, 0, 1};
    static const double one = 1;
    for (int tier = WINATTN_TIER_CPU;
         tier <= (keeps_barriers() ? WINATTN_TIER_LOCAL : WINATTN_TIER_CPU);
         tier++) {
        const winattn_linear_desc desc = {.struct_size = sizeof desc,
                                          .tier = (winattn_tier)tier,
                                          .in_features = 1,
                                          .out_features = 1,
                                          .activation =
                                              WINATTN_ACTIVATION_GELU};
        const model_tensor x = tensor_of(KIND_FP32, odd, ROWS, 0);
        const model_tensor weight = tensor_of(KIND_FP32, &one, 1, 0);
        model_tensor y = tensor_empty(KIND_FP32, ROWS, 0);
        const winattn_linear call = {.struct_size = sizeof call,
                                     .rows = ROWS,
                                     .x = x.at,
                                     .weight = weight.at,
                                     .y = y.at};
        winattn_linear_plan *plan;
        assert_status(winattn_linear_plan_create(device.context, device.id,
                                                 &desc, &plan),
                      0, "");
        assert_status(
            winattn_enqueue_linear(plan, device.queue, &call, 0, NULL, NULL),
            0, "");
        tensor_read(&y);
        assert_true(isinf(y.value[0]) && y.value[0] > 0);
        assert_true(isnan(y.value[1]));
        assert_true(y.value[2] == 30 && y.value[3] == 0 && y.value[4] == 0);
        assert_true(fabs(y.value[5] - 0.841344746) < 1e-6);
        tensors_free();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_descriptors_are_refused),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(events_are_given),
        cmocka_unit_test(children_are_refused),
        cmocka_unit_test(gelu_keeps_what_is_no_number),
        cmocka_unit_test(plans_describe_themselves),
    };
    if (!runner_open())
        return 77;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_close();
    return failed;
}
