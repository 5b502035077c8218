/* SPDX-License-Identifier: Apache-2.0
 * The stand-in for OpenCL itself: its devices are those that were made up, and
 * it finds what a driver would; campaigns run plans on all. How it reads
 * kernels is compared with plans in test_planned_sources and
 * test_models_sources; failures, builds and binaries are looked at in
 * test_verdicts and test_bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/matrix_unit.h"
#include "kit/cases.h"
#include "kit/devices.h"
#include "place.h"
#include "plan/planner.h"
#include "program/program.h"
#include "session/session.h"

static int start(void **state)
{
    (void)state;
    setenv("WINATTN_CACHE", "0", 1);
    standin_reset();
    standin_quiet = false;
    return 0;
}

/* ---- Devices ---- */

static void check_device(const wa_device *made_up)
{
    wa_session *session;
    const place at = place_of(made_up);
    assert_int_equal(wa_session_acquire(at.context, at.id, &session),
                     WINATTN_SUCCESS);
    assert_string_equal(standin_alive(), "1 context, 1 queue, 1 device");
    wa_device is = *wa_session_device(session), want = *made_up;
    char text[256];
    want.matrix_unit = wa_matrix_unit_of(&want);
    /* which the table may leave out */
    memcpy(want.driver, is.driver, sizeof want.driver);
    memcpy(want.platform, is.platform, sizeof want.platform);
    /* by an extension that the stand-in does not have */
    want.limits_registers = is.limits_registers;
    assert_string_equal(is.name, want.name);
    assert_int_equal(is.opencl, want.opencl);
    assert_int_equal(is.max_parameter_bytes, want.max_parameter_bytes);
    if (!device_is_like(&is, &want, text))
        fail_msg("%s", text);
    wa_session_release(session);
    close_place(&at);
}

static void test_devices_are_found_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < made_up_count; i++)
        check_device(&made_up_devices[i]);
}

/* ---- Odd devices ---- */

/* Plans for devices at the edge of what drivers may say are refused with the
 * reason, for each pass alike. */
static const struct {
    const char *name; /* of standin_odd_devices */
    const char *reason;
} refused[] = {
    {"few parameter bytes", "few parameter bytes takes 256 bytes of kernel "
                            "arguments, fewer than the 1024 of OpenCL's full "
                            "profile"},
    {"embedded", "embedded has no 64-bit integers"},
    {"OpenCL 1.1", "OpenCL 1.1 has an OpenCL below 1.2"},
    {"no compiler", "no compiler has no compiler for OpenCL C"},
    {"obey \033[2J\302\233m", "obey ?[2J?m has no compiler for OpenCL C"},
};

static const wa_device *odd_device(const char *name)
{
    for (size_t i = 0; i < standin_odd_count; i++)
        if (strcmp(standin_odd_devices[i].name, name) == 0)
            return &standin_odd_devices[i];
    fail_msg("there is no device \"%s\"", name);
    return NULL;
}

static void expect_refusal(const char *name, const char *reason,
                           cl_bitfield passes)
{
    const winattn_desc desc = case_desc_of("windows=4", passes);
    const place at = place_of(odd_device(name));
    winattn_plan *plan;
    assert_int_equal(winattn_plan_create(at.context, at.id, &desc, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    assert_string_equal(winattn_last_reason(), reason);
    assert_null(plan);
    assert_int_equal(standin_builds(NULL), 0);
    close_place(&at);
}

static void test_useless_devices_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        for (cl_bitfield passes = 1; passes <= 3; passes++)
            expect_refusal(refused[i].name, refused[i].reason, passes);
}

/* A device without compute units is said to have one. */
static void test_units_are_not_zero(void **state)
{
    (void)state;
    wa_device found;
    assert_int_equal(
        wa_device_query(standin_device(odd_device("zeros")), &found),
        WINATTN_SUCCESS);
    assert_int_equal(found.compute_units, 1);
}

/* ---- Plans ---- */

/* The first launches of programs that are kept, on one token, have the offsets
 * of their own workspace, not those of the plan's. All kernels are launched,
 * once each. */
static void test_first_launches(void **state)
{
    (void)state;
    const place at = open_place("A100");
    winattn_programs *programs;
    const standin_launch *launches;
    size_t rows = 0, given = 0;
    assert_int_equal(winattn_programs_create(at.context, at.id, &programs), 0);
    const winattn_desc desc =
        case_desc_of("variant=sliding dtype=fp16 windows=1 heads=12 "
                     "queries=16384 dim=128 block=256 window_blocks=16",
                     WINATTN_PASS_BACKWARD);
    assert_plan(&at, &desc, WINATTN_SUCCESS, "");
    const size_t count = standin_launches(&launches);
    for (size_t i = 0; i < count; i++) {
        rows += strstr(launches[i].kernel, "sliding_rows_matrix_") != NULL;
        given += strcmp(launches[i].kernel, "sliding_given") == 0;
    }
    assert_int_equal(rows, 2); /* for statistics and dQ */
    assert_int_equal(given, 1);
    winattn_programs_destroy(programs);
    close_place(&at);
}

static bool refuses_half(void *data, const char *options)
{
    ++*(int *)data;
    return strstr(options, "-DDTYPE=1") != NULL;
}

static void test_drivers(void **state)
{
    (void)state;
    int asked = 0;
    const place at = open_place("gfx1100 (RX 7900 XTX)");
    winattn_desc desc = case_desc_of("windows=4 dtype=bf16 tier=matrix", 0);
    assert_plan(&at, &desc, WINATTN_SUCCESS, "");
    standin_drivers.unit_is_wrong = true;
    assert_plan(&at, &desc, WINATTN_UNSUPPORTED_DEVICE, "");
    standin_drivers.unit_is_wrong = false;
    standin_drivers.private_bytes = 4096;
    assert_plan(&at, &desc, WINATTN_UNSUPPORTED_DEVICE, "");
    standin_drivers.refuses = refuses_half;
    standin_drivers.data = &asked;
    desc.dtype = WINATTN_FP16;
    desc.tier = WINATTN_TIER_AUTO;
    assert_plan(&at, &desc, CL_BUILD_PROGRAM_FAILURE, "");
    assert_string_not_equal(winattn_last_build_log(), "");
    assert_true(asked > 0);
    close_place(&at);
}

/* ---- What is wrong ---- */

static void expect_wrong(const char *part)
{
    unsigned long count;
    const char *text = standin_wrong(&count);
    assert_non_null(text);
    assert_int_equal(count, 1);
    if (!strstr(text, part))
        fail_msg("\"%s\" lacks \"%s\"", text, part);
}

/* A kernel of two buffers and a number, in groups of 8. */
static cl_kernel make_kernel(const place *at)
{
    const char *source =
        "__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void\n"
        "add(__global float *x, __global float *y, ulong n) {}\n";
    cl_int error;
    const cl_program program =
        clCreateProgramWithSource(at->context, 1, &source, NULL, &error);
    assert_int_equal(clBuildProgram(program, 1, &at->id, "", NULL, NULL), 0);
    const cl_kernel kernel = clCreateKernel(program, "add", &error);
    assert_int_equal(error, CL_SUCCESS);
    clReleaseProgram(program);
    return kernel;
}

static cl_int launch(cl_command_queue queue, cl_kernel kernel, size_t global,
                     size_t local)
{
    return clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0,
                                  NULL, NULL);
}

/* From this way on the buffer is released, too. */
#define RELEASES 7
#define WRONG_WAYS 9

static void go_wrong(int way, cl_command_queue queue, cl_kernel kernel,
                     cl_mem x)
{
    const cl_ulong n = 1;
    switch (way) {
    case 0:
        assert_int_not_equal(launch(queue, kernel, 16, 8), CL_SUCCESS);
        expect_wrong("argument 2 was not set");
        break;
    case 1:
        clSetKernelArg(kernel, 2, 4, &n);
        expect_wrong("argument 2 has 4 bytes, not 8");
        break;
    case 2:
        clSetKernelArg(kernel, 3, 8, &n);
        expect_wrong("no argument 3");
        break;
    case 3:
        assert_int_not_equal(launch(queue, kernel, 16, 16), CL_SUCCESS);
        expect_wrong("another work-group");
        break;
    case 4:
        launch(queue, kernel, 20, 8);
        expect_wrong("no multiple");
        break;
    case 5:
        launch(queue, kernel, 0, 8);
        expect_wrong("nothing is launched");
        break;
    case 6: /* nothing is wrong with a buffer that is retained */
        clRetainMemObject(x);
        clReleaseMemObject(x);
        assert_int_equal(launch(queue, kernel, 16, 8), CL_SUCCESS);
        assert_null(standin_wrong(NULL));
        break;
    case 7:
        clReleaseMemObject(x);
        launch(queue, kernel, 16, 8);
        expect_wrong("the buffer was released before");
        break;
    default:
        clReleaseMemObject(x);
        clReleaseMemObject(x);
        expect_wrong("the buffer was released before");
    }
}

static void test_wrong_is_found(void **state)
{
    (void)state;
    const cl_ulong n = 1;
    standin_quiet = true;
    for (int way = 0; way < WRONG_WAYS; way++) {
        const bool releases = way >= RELEASES;
        const place at = open_place("PoCL");
        const cl_kernel kernel = make_kernel(&at);
        const cl_mem x = standin_buffer(at.context, CL_MEM_READ_WRITE, 4);
        clSetKernelArg(kernel, 0, sizeof x, &x);
        clSetKernelArg(kernel, 1, sizeof x, NULL);
        if (way != 0)
            clSetKernelArg(kernel, 2, sizeof n, &n);
        go_wrong(way, at.queue, kernel, x);
        assert_string_equal(standin_alive(),
                            releases ? "1 context, 1 queue, 1 program, 1 "
                                       "kernel"
                                     : "1 context, 1 queue, 1 buffer, 1 "
                                       "program, 1 kernel");
        if (!releases)
            clReleaseMemObject(x);
        clReleaseKernel(kernel);
        clReleaseCommandQueue(at.queue);
        clReleaseContext(at.context);
        assert_null(standin_alive());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_devices_are_found_again, start),
        cmocka_unit_test_setup(test_useless_devices_are_refused, start),
        cmocka_unit_test_setup(test_units_are_not_zero, start),
        cmocka_unit_test_setup(test_first_launches, start),
        cmocka_unit_test_setup(test_drivers, start),
        cmocka_unit_test_setup(test_wrong_is_found, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
