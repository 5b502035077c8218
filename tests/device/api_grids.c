/* SPDX-License-Identifier: Apache-2.0
 * Calls for tokens on grids: padding and tables, sums over nothing. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "kit/fixture.h"

/* ---- Sums of nothing ---- */

enum { TOKENS = 4, HEADS = 2, DIM = 4, ENTRIES = 5, SUMS = 3 };
/* Of a table's gradient, of d_pad_k, of d_pad_v. */
static const size_t sum_count[SUMS] = {ENTRIES * HEADS, HEADS *DIM,
                                       HEADS *DIM};

/* A backward pass with a table whose index is gone when the plan is made. */
static winattn_plan *plan_with_index(int windows)
{
    cl_int *index = calloc(TOKENS * TOKENS, sizeof *index);
    assert_non_null(index);
    const winattn_desc d = {.struct_size = sizeof d,
                            .tier = WINATTN_TIER_CPU,
                            .heads = HEADS,
                            .head_dim = DIM,
                            .passes = WINATTN_PASS_BACKWARD,
                            .grid = {.axes = 1,
                                     .size = {TOKENS},
                                     .window = {TOKENS},
                                     .batch = (cl_ulong)windows},
                            .bias = WINATTN_BIAS_TABLE,
                            .bias_dtype = WINATTN_TERM_FP32,
                            .table = {.index = index, .entries = ENTRIES}};
    for (int i = 0; i < TOKENS * TOKENS; i++)
        index[i] = i % 3; /* entries 3 and 4 are nobody's */
    winattn_plan *plan = make_plan(&d);
    memset(index, -1, TOKENS * TOKENS * sizeof *index);
    free(index);
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
    if (!has_backward())
        skip();
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
    const winattn_desc d = {
        .struct_size = sizeof d,
        .heads = 2,
        .head_dim = 3,
        .grid = {.axes = 1, .size = {5}, .window = {4}, .batch = 1},
        .k = {.axis = {6}, .head = 1, .column = 2}};
    winattn_plan *plan = make_plan(&d);
    const winattn_tensor in = {new_buffer(5 * 6 * 4, NULL), 0};
    const winattn_tensor out = {new_buffer(5 * 6 * 4, NULL), 0};
    winattn_forward f = {.struct_size = sizeof f,
                         .q = in,
                         .k = in,
                         .v = in,
                         .pad_v = in,
                         .o = out};
    assert_int_equal(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_SUCCESS);
    f.pad_k = in;
    assert_status(
        winattn_enqueue_forward(plan, device.queue, &f, 0, NULL, NULL),
        WINATTN_INVALID_LAYOUT, "column of pad_k");
    clFinish(device.queue);
    clReleaseMemObject(out.buffer);
    clReleaseMemObject(in.buffer);
    winattn_plan_destroy(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sums_of_nothing),
    cmocka_unit_test(pad_columns),
};
const test_group api_grids = TEST_GROUP(NULL, tests);
