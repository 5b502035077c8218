/* SPDX-License-Identifier: Apache-2.0
 * Devices at the edge of what drivers may say: either a plan is refused with
 * the reason, for each pass alike, or all its launches are legal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "standin.h"

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

static int start(void **state)
{
    (void)state;
    setenv("WINATTN_CACHE", "0", 1);
    standin_reset();
    return 0;
}

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
    winattn_desc desc = {.struct_size = sizeof desc,
                         .windows = 4,
                         .heads = 2,
                         .queries = 49,
                         .keys = 49,
                         .head_dim = 32,
                         .passes = passes};
    const cl_device_id id = standin_device(odd_device(name));
    const cl_context context = standin_context(1, &id);
    winattn_plan *plan;
    assert_int_equal(winattn_plan_create(context, id, &desc, &plan),
                     WINATTN_UNSUPPORTED_DEVICE);
    assert_string_equal(winattn_last_reason(), reason);
    assert_null(plan);
    assert_int_equal(standin_builds(NULL), 0);
    clReleaseContext(context);
    assert_null(standin_alive());
    assert_null(standin_wrong(NULL));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_useless_devices_are_refused, start),
        cmocka_unit_test_setup(test_units_are_not_zero, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
