/* SPDX-License-Identifier: Apache-2.0
 * What the bench says of errors, bytes and operations: a wrong result must
 * show, whichever output it is in. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/runner.h"
#include "measure/accuracy.h"

#define SAMPLES 6
/* What is promised of fp32 gradients. */
#define GOOD 1e-5

static bench_device bench; /* the device under test */

/* One call of both passes on the first set. */
static void compute(const workload *w)
{
    winattn_desc desc = w->desc;
    winattn_plan *plan;
    size_t size;
    cl_int error = CL_SUCCESS;
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    if (winattn_plan_create(bench.context, bench.id, &desc, &plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    winattn_forward f = buffers_forward(w->d, &w->set[0]);
    winattn_backward b = buffers_backward(w->d, &w->set[0]);
    assert_int_equal(winattn_plan_workspace_size(plan, &size), 0);
    if (size > 0)
        b.workspace.buffer = clCreateBuffer(bench.context, CL_MEM_READ_WRITE,
                                            size, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    f.workspace = b.workspace;
    assert_int_equal(
        winattn_enqueue_forward(plan, bench.queue, &f, 0, NULL, NULL),
        WINATTN_SUCCESS);
    assert_int_equal(
        winattn_enqueue_backward(plan, bench.queue, &b, 0, NULL, NULL),
        WINATTN_SUCCESS);
    assert_int_equal(clFinish(bench.queue), CL_SUCCESS);
    if (b.workspace.buffer)
        clReleaseMemObject(b.workspace.buffer);
    winattn_plan_destroy(plan);
}

static double error_of(const workload *w)
{
    return accuracy_error(w, accuracy_all(&w->d->c), SAMPLES);
}

static void write_element(cl_mem mem, size_t at, cl_float x)
{
    assert_int_equal(clEnqueueWriteBuffer(bench.queue, mem, CL_TRUE,
                                          at * sizeof x, sizeof x, &x, 0, NULL,
                                          NULL),
                     CL_SUCCESS);
}

static void finds_errors(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "windows=5 heads=3 queries=20 bias=same mask=regions mask_windows=2",
        "windows=4 heads=4 kv_heads=2 queries=9 keys=14 variant=cosine "
        "bias=fp32",
        "windows=2 heads=2 queries=50 variant=sliding block=16 "
        "window_blocks=2",
        "grid=2 size=5x7 window=3x4 shift=1x2 mask=shift bias=table_same "
        "batch=3 heads=2 dim=8 layout=packed pads=3",
        "grid=1 size=9 window=4 shift=1 mask=shift bias=table_fp32 "
        "heads=2 kv_heads=1 dim=5 layout=packed padding=hidden",
        "grid=3 size=4x6x5 window=2x3x3 shift=1x1x1 mask=shift "
        "bias=table_same heads=2 dim=4 variant=cosine logit_scale=2 pads=1",
        "grid=2 size=6x8 window=3x4 bias=same mask=regions mask_windows=4 "
        "heads=2 dim=8",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const test_case c = parsed(cases[i]);
        workload w;
        assert_true(workload_create(&bench, &c, BENCH_BOTH, 1, false, &w));
        assert_true(isnan(error_of(&w))); /* nothing was computed yet */
        compute(&w);
        if (!(error_of(&w) <= GOOD))
            fail_msg("%s: error %g", cases[i], error_of(&w));
        static const tensor_id outputs[] = {T_O,  T_DQ,    T_DK,
                                            T_DV, T_DBIAS, T_D_LOGIT_SCALE};
        for (size_t j = 0; j < sizeof outputs / sizeof *outputs; j++) {
            const cl_mem mem = workload_mem(&w, 0, outputs[j]);
            const char *name = tensor_names[outputs[j]];
            if (!mem)
                continue;
            size_t bytes;
            clGetMemObjectInfo(mem, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
            const size_t last = bytes / sizeof(cl_float) - 1;
            write_element(mem, last, 1e3f);
            if (!(error_of(&w) > 0.1))
                fail_msg("%s: error in %s not seen", cases[i], name);
            write_element(mem, last, NAN);
            if (!isnan(error_of(&w)))
                fail_msg("%s: NaN in %s not seen", cases[i], name);
            compute(&w);
        }
        assert_true(error_of(&w) <= GOOD);
        workload_release(&w);
    }
}

/* Of a long line of tokens the oracle sees the end only, of sums over many
 * windows a few rows. */
static void large_cases(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "windows=1 heads=1 queries=2048 dim=64 variant=sliding block=128 "
        "window_blocks=16",
        "windows=400 heads=2 queries=64 dim=32 bias=same"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const test_case c = parsed(cases[i]);
        workload w;
        assert_true(workload_create(&bench, &c, BENCH_BOTH, 1, false, &w));
        compute(&w);
        assert_true(error_of(&w) <= GOOD);
        const size_t k_last = (size_t)c.windows * (size_t)c.heads *
                                  (size_t)c.keys * (size_t)c.dim -
                              1;
        write_element(workload_mem(&w, 0, T_DK), k_last, 1e3f);
        assert_true(error_of(&w) > 0.1);
        workload_release(&w);
    }
}

static void floors(void **state)
{
    (void)state;
    const test_case c = parsed("windows=5 heads=4 kv_heads=2 queries=10 "
                               "keys=20 dim=8 dtype=fp16");
    const double q = 5 * 4 * 10 * 8, k = 5 * 2 * 20 * 8;
    const double product = 2.0 * 5 * 4 * 10 * 20 * 8;
    assert_float_equal(workload_bytes(&c, BENCH_FORWARD), 2 * (2 * q + 2 * k),
                       0);
    assert_float_equal(workload_bytes(&c, BENCH_BACKWARD), 2 * (3 * q + 4 * k),
                       0);
    assert_float_equal(workload_bytes(&c, BENCH_BOTH), 2 * (5 * q + 6 * k), 0);
    assert_float_equal(workload_operations(&c, BENCH_FORWARD), 2 * product, 0);
    assert_float_equal(workload_operations(&c, BENCH_BACKWARD), 5 * product,
                       0);
    assert_float_equal(workload_operations(&c, BENCH_BOTH), 7 * product, 0);
    /* of a grid its tokens count: 3 x 35, 12 windows of 12 with padding */
    static const char *const paddings[] = {"padding=values", "padding=hidden"};
    /* windows' tokens: 3, 2 along the first axis, 4, 3 along the other one */
    static const float pairs[] = {3 * 35 * 12, 3 * 13 * 25};
    for (int i = 0; i < 2; i++) {
        test_case grid = parsed("grid=2 size=5x7 window=3x4 batch=3 heads=4 "
                                "dim=8 layout=packed dtype=fp16");
        assert_true(case_parse(paddings[i], &grid, NULL));
        assert_float_equal(workload_bytes(&grid, BENCH_FORWARD),
                           2 * 4 * (3 * 35 * 4 * 8), 0);
        assert_float_equal(workload_bytes(&grid, BENCH_BACKWARD),
                           2 * 7 * (3 * 35 * 4 * 8), 0);
        assert_float_equal(workload_lse_bytes(&grid, BENCH_BACKWARD),
                           4 * (3 * 35 * 4), 0);
        assert_float_equal(workload_operations(&grid, BENCH_FORWARD),
                           2 * 2 * 4 * 8 * pairs[i], 0);
    }
    assert_float_equal(workload_lse_bytes(&c, BENCH_FORWARD), 0, 0);
    assert_float_equal(workload_lse_bytes(&c, BENCH_BOTH), 4 * 5 * 4 * 10, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(floors),
        cmocka_unit_test(finds_errors),
        cmocka_unit_test(large_cases),
    };
    const test_group group = TEST_GROUP(NULL, tests);
    chosen.part = "accuracy";
    if (!runner_open() || !bench_device_open(device.id, &bench))
        return 1;
    const int failures = runner_run(&group, 1);
    bench_device_close(&bench);
    runner_close();
    return failures;
}
