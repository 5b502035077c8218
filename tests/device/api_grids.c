/* SPDX-License-Identifier: Apache-2.0
 * Calls for tokens on grids: refusals, padding and tables, sums
 * over nothing. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "kit/fixture.h"

/* Plans of both passes for tokens on a grid, with every tensor that such a
 * problem can have. */
static const char grid_text[] =
    "grid=2 size=9x10 window=4x4 shift=2x1 mask=shift bias=table_fp32 "
    "pads=3 heads=2 dim=8 tier=cpu";

static void grid_refuses(void **state)
{
    (void)state;
    fixture f = set_up(grid_text);
    winattn_forward good = f.forward, bad;
    size_t bytes = 0;
    cl_int error;
    assert_int_equal(winattn_plan_workspace_size(f.plan, &bytes),
                     WINATTN_SUCCESS);
    assert_int_equal(bytes, 2 * 16 * 16 * 4); /* the table, expanded */
    const cl_mem unwritten =
        clCreateBuffer(device.context, CL_MEM_READ_ONLY, bytes, NULL, &error);
    const cl_mem unread =
        clCreateBuffer(device.context, CL_MEM_WRITE_ONLY, bytes, NULL, &error);
    good.workspace.buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                                           bytes + 16, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
#define REFUSE(change, status, culprit)                                       \
    bad = good;                                                               \
    change;                                                                   \
    assert_status(                                                            \
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),   \
        status, culprit)
    REFUSE(bad.workspace.buffer = NULL, WINATTN_INVALID_ARGUMENT,
           "workspace is NULL, but the forward pass needs 2048 bytes");
    REFUSE(bad.workspace.offset = 32, WINATTN_WORKSPACE_TOO_SMALL,
           "workspace needs 2048 bytes from offset 32 on, but its buffer has "
           "2064");
    REFUSE(bad.workspace.buffer = unwritten, WINATTN_INVALID_BUFFER,
           "workspace is written");
    REFUSE(bad.workspace.buffer = unread, WINATTN_INVALID_BUFFER,
           "workspace is read");
    REFUSE(bad.bias.buffer = NULL, WINATTN_INVALID_ARGUMENT, "bias is NULL");
    REFUSE(bad.bias.offset += 2, WINATTN_INVALID_LAYOUT, "the offset of bias");
    REFUSE(bad.q.offset = (cl_ulong)1 << 40, WINATTN_BUFFER_TOO_SMALL, "q");
    REFUSE(bad.pad_k.offset += 2, WINATTN_INVALID_LAYOUT, "pad_k");
    REFUSE(bad.pad_v.offset = (cl_ulong)1 << 40, WINATTN_BUFFER_TOO_SMALL,
           "pad_v");
    REFUSE(bad.mask = good.bias, WINATTN_INVALID_ARGUMENT,
           "mask is given, but");
#undef REFUSE
    assert_nothing_written(&f);
    good.workspace.offset = 16;
    assert_int_equal(
        winattn_enqueue_forward(f.plan, device.queue, &good, 0, NULL, NULL),
        WINATTN_SUCCESS);
    assert_correct(&f);
    clReleaseMemObject(unread);
    clReleaseMemObject(unwritten);
    clReleaseMemObject(good.workspace.buffer);
    tear_down(&f);

    /* hidden padding has no channels */
    f = set_up("grid=2 size=9x10 window=4x4 padding=hidden heads=2 dim=8");
    bad = f.forward;
    bad.pad_v = bad.q;
    assert_status(
        winattn_enqueue_forward(f.plan, device.queue, &bad, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "pad_v is given, but");
    assert_nothing_written(&f);
    tear_down(&f);
}

/* ---- Sums of nothing ---- */

enum { TOKENS = 4, HEADS = 2, DIM = 4, ENTRIES = 5, SUMS = 3 };
/* Of a table's gradient, of d_pad_k, of d_pad_v. */
static const size_t sum_count[SUMS] = {ENTRIES * HEADS, HEADS *DIM,
                                       HEADS *DIM};

/* A backward pass with a table whose index is gone when the plan is made. */
static winattn_plan *plan_with_index(int windows)
{
    winattn_desc d;
    winattn_plan *plan;
    cl_int *index = calloc(TOKENS * TOKENS, sizeof *index);
    assert_non_null(index);
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.tier = WINATTN_TIER_CPU;
    d.heads = HEADS;
    d.head_dim = DIM;
    d.passes = WINATTN_PASS_BACKWARD;
    d.grid.axes = 1;
    d.grid.size[0] = d.grid.window[0] = TOKENS;
    d.grid.batch = (cl_ulong)windows;
    d.bias = WINATTN_BIAS_TABLE;
    d.bias_dtype = WINATTN_TERM_FP32;
    d.table.index = index;
    d.table.entries = ENTRIES;
    for (int i = 0; i < TOKENS * TOKENS; i++)
        index[i] = i % 3; /* entries 3 and 4 are nobody's */
    const winattn_status made =
        winattn_plan_create(device.context, device.id, &d, &plan);
    memset(index, -1, TOKENS * TOKENS * sizeof *index);
    free(index);
    if (made == WINATTN_UNSUPPORTED_DEVICE) /* no backward pass there */
        skip();
    assert_int_equal(made, WINATTN_SUCCESS);
    return plan;
}

static void assert_sums(float sums[SUMS][HEADS * DIM + 2], bool has_windows)
{
    bool some = false;
    for (int i = 0; i < ENTRIES * HEADS; i++) {
        some = some || sums[0][i] != 0.0f;
        if (i >= 3 * HEADS)
            assert_true(sums[0][i] == 0.0f);
    }
    assert_int_equal(some, has_windows);
    for (int i = 0; i < HEADS * DIM; i++)
        assert_true(sums[1][i] == 0.0f && sums[2][i] == 0.0f);
}

/* A buffer of so many bytes, with those of `content` unless it is NULL. */
static cl_mem new_buffer(size_t size, float *content)
{
    cl_int error;
    const cl_mem mem = clCreateBuffer(device.context,
                                      CL_MEM_READ_WRITE |
                                          (content ? CL_MEM_COPY_HOST_PTR : 0),
                                      size, content, &error);
    assert_int_equal(error, CL_SUCCESS);
    return mem;
}

static void run_sums(winattn_plan *plan, bool has_windows)
{
    winattn_backward b;
    float ones[TOKENS * HEADS * DIM], sums[SUMS][HEADS * DIM + 2];
    cl_mem sum[SUMS];
    size_t bytes;
    for (int i = 0; i < TOKENS * HEADS * DIM; i++)
        ones[i] = 1.0f + 0.1f * (float)(i % 7);
    const cl_mem input = new_buffer(sizeof ones, ones);
    winattn_plan_workspace_size(plan, &bytes);
    const cl_mem workspace = new_buffer(bytes, NULL);
    for (int i = 0; i < SUMS; i++)
        sum[i] = new_buffer(sum_count[i] * 4, ones);
    memset(&b, 0, sizeof b);
    b.struct_size = sizeof b;
    b.q.buffer = b.k.buffer = b.v.buffer = b.d_o.buffer = input;
    b.bias.buffer = input;
    b.dbias.buffer = sum[0];
    b.d_pad_k.buffer = sum[1];
    b.d_pad_v.buffer = sum[2];
    b.workspace.buffer = workspace;
    assert_int_equal(
        winattn_enqueue_backward(plan, device.queue, &b, 0, NULL, NULL),
        WINATTN_SUCCESS);
    for (int i = 0; i < SUMS; i++)
        assert_int_equal(clEnqueueReadBuffer(device.queue, sum[i], CL_TRUE, 0,
                                             sum_count[i] * 4, sums[i], 0,
                                             NULL, NULL),
                         CL_SUCCESS);
    assert_sums(sums, has_windows);
    b.accumulate = WINATTN_D_PAD_V << 1;
    assert_status(
        winattn_enqueue_backward(plan, device.queue, &b, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "accumulate");
    for (int i = 0; i < SUMS; i++)
        clReleaseMemObject(sum[i]);
    clReleaseMemObject(workspace);
    clReleaseMemObject(input);
}

/* A table whose index the caller frees, and d_pad_k without a padding to sum:
 * what is not there adds up to 0. */
static void sums_of_nothing(void **state)
{
    (void)state;
    for (int windows = 0; windows < 2; windows++) {
        winattn_plan *plan = plan_with_index(windows);
        run_sums(plan, windows != 0);
        winattn_plan_destroy(plan);
    }
}

/* ---- Padding ---- */

/* The padding's channels lie as those of k and v do; where none are given, it
 * does not matter how they would. */
static void pad_columns(void **state)
{
    (void)state;
    winattn_desc d;
    winattn_forward f;
    winattn_plan *plan;
    cl_int error;
    memset(&d, 0, sizeof d);
    d.struct_size = sizeof d;
    d.heads = 2;
    d.head_dim = 3;
    d.grid.axes = 1;
    d.grid.size[0] = 5;
    d.grid.window[0] = 4;
    d.grid.batch = 1;
    d.k.axis[0] = 6;
    d.k.head = 1;
    d.k.column = 2;
    assert_int_equal(winattn_plan_create(device.context, device.id, &d, &plan),
                     WINATTN_SUCCESS);
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.q.buffer = f.k.buffer = f.v.buffer = f.o.buffer = clCreateBuffer(
        device.context, CL_MEM_READ_WRITE, 5 * 6 * 4, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    const cl_mem out = clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                                      5 * 6 * 4, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    f.o.buffer = out;
    f.pad_v.buffer = f.v.buffer;
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_SUCCESS);
    f.pad_k.buffer = f.k.buffer;
    assert_status(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_INVALID_LAYOUT, "column of pad_k");
    clFinish(device.queue);
    clReleaseMemObject(out);
    clReleaseMemObject(f.q.buffer);
    winattn_plan_destroy(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(grid_refuses),
    cmocka_unit_test(sums_of_nothing),
    cmocka_unit_test(pad_columns),
};
const test_group api_grids = TEST_GROUP(NULL, tests);
