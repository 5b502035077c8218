/* SPDX-License-Identifier: Apache-2.0
 * What the library makes of failures: those that last, those of which nobody
 * knows, and those of the environment. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit/cases.h"
#include "kit/child.h"
#include "place.h"

/* 16-bit windows of 49 tokens, for which there are measured shapes. */
static winattn_desc window_of_49(void)
{
    return case_desc_of("dtype=fp16 windows=100 heads=3", 0);
}

static int no_cache(void **state)
{
    (void)state;
    winattn_set_cache_dir("");
    return 0;
}

/* ---- The environment, in processes of their own ---- */

/* The file of WINATTN_TUNING is read once in a process. Fails the test unless
 * 0 comes back. */
static void in_child(int (*run)(const void *data), const void *data)
{
    const int result = child_run(run, data);
    if (result == CHILD_HAS_NO_FORK)
        skip();
    assert_int_equal(result, 0);
}

/* 0: it does. */
static int says_why(const void *data)
{
    (void)data;
    char name[5001];
    const place p = open_place("H200");
    const winattn_desc desc = window_of_49();
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    setenv("WINATTN_TUNING", name, 1);
    return place_plan(&p, &desc) != WINATTN_SUCCESS ||
           !strstr(place_said,
                   "tuning: the file of WINATTN_TUNING is not used: its "
                   "name has more than 4095 bytes\n") ||
           !strstr(place_said, "on devices of this kind");
}

static void test_long_tuning_name(void **state)
{
    (void)state;
    in_child(says_why, NULL);
}

static char tuning_file[1200];

/* Once the file could not be read for want of memory, it is read again. 0: it
 * is. */
static int reads_again(const void *failing_allocation)
{
    const place p = open_place("H200");
    const winattn_desc desc = window_of_49();
    setenv("WINATTN_TUNING", tuning_file, 1);
    standin_fail_allocation(*(const unsigned long *)failing_allocation);
    const winattn_status first = place_plan(&p, &desc);
    standin_fail_nothing();
    return (first != WINATTN_SUCCESS && first != CL_OUT_OF_HOST_MEMORY) ||
           place_plan(&p, &desc) != WINATTN_SUCCESS ||
           !strstr(place_said, "says a row that was loaded");
}

static void test_tuning_file_is_read_again(void **state)
{
    static const char row[] = "matrix-forward NVIDIA 90 any half any 49 49 32 "
                              "49:49:4:2:2:64:1\n";
    (void)state;
    FILE *file = fopen(tuning_file, "w");
    assert_non_null(file);
    for (int i = 0; i < 20; i++)
        fputs(row, file);
    assert_int_equal(fclose(file), 0);
    /* reading is among the first allocations */
    for (unsigned long failing = 1; failing <= 20; failing++)
        in_child(reads_again, &failing);
    remove(tuning_file);
}

static void test_long_cache_name(void **state)
{
    char name[2101];
    (void)state;
    const place p = open_place("PoCL");
    const winattn_desc desc = window_of_49();
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    unsetenv("WINATTN_CACHE");
    setenv("WINATTN_CACHE_DIR", name, 1);
    winattn_set_cache_dir(NULL);
    assert_plan(&p, &desc, WINATTN_SUCCESS,
                "cache: there is none: WINATTN_CACHE_DIR is too long\n");
    /* who wants no cache is not told */
    setenv("WINATTN_CACHE", "0", 1);
    assert_plan(&p, &desc, WINATTN_SUCCESS, "");
    assert_null(strstr(place_said, "cache:"));
    unsetenv("WINATTN_CACHE");
    winattn_set_cache_dir("");
    assert_plan(&p, &desc, WINATTN_SUCCESS, "");
    assert_null(strstr(place_said, "cache:"));
    unsetenv("WINATTN_CACHE_DIR");
    close_place(&p);
}

/* ---- Failures that last ---- */

/* A unit whose test can never be launched is not used, and the plan says so;
 * whoever demands it is told the status. */
static void test_resources_that_never_suffice(void **state)
{
    (void)state;
    const place p = open_place("H200");
    winattn_desc desc = window_of_49();
    assert_plan(&p, &desc, WINATTN_SUCCESS, "matrix");
    assert_true(standin_launches(NULL) > 0);
    standin_drivers.most_launches = 1; /* that was it */
    assert_plan(&p, &desc, WINATTN_SUCCESS, "forward_local");
    assert_non_null(strstr(place_said, "did not run: CL_OUT_OF_RESOURCES"));
    desc.tier = WINATTN_TIER_MATRIX;
    assert_plan(&p, &desc, CL_OUT_OF_RESOURCES, "");
    close_place(&p);
}

/* A unit that computes something else is used for no pass, and the plan says
 * so; whoever demands it is refused. */
static void test_unit_that_is_wrong(void **state)
{
    const place p = open_place("A100");
    winattn_desc desc = window_of_49();
    (void)state;
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    desc.tier = WINATTN_TIER_MATRIX;
    assert_plan(&p, &desc, WINATTN_SUCCESS, "\nbackward tier: matrix\n");
    assert_non_null(strstr(place_said, "\ntier: matrix\n"));
    standin_drivers.unit_is_wrong = true;
    assert_plan(&p, &desc, WINATTN_UNSUPPORTED_DEVICE,
                "self-test of unit mma failed: ");
    desc.tier = WINATTN_TIER_AUTO;
    for (desc.passes = WINATTN_PASS_FORWARD;
         desc.passes <= WINATTN_PASS_BACKWARD; desc.passes++) {
        assert_plan(&p, &desc, WINATTN_SUCCESS, "tier: local\n");
        assert_non_null(strstr(
            place_said, "tier matrix not taken: self-test of unit mma"));
    }
    close_place(&p);
}

static bool knows_no_denorms(void *data, const char *options)
{
    (void)data;
    return strstr(options, "-cl-denorms-are-zero") != NULL;
}

/* A driver that does not know an option of speed builds without it, from
 * source and from binaries. */
static void test_option_that_is_not_known(void **state)
{
    static unsigned char blob[65536];
    const winattn_desc desc = window_of_49();
    winattn_programs *programs;
    const standin_build *builds;
    size_t size = 0;
    (void)state;
    for (int from_blob = 0; from_blob < 2; from_blob++) {
        const place p = open_place("PoCL");
        standin_drivers.refuses = knows_no_denorms;
        assert_int_equal(winattn_programs_create(p.context, p.id, &programs),
                         0);
        if (from_blob)
            assert_int_equal(winattn_programs_import(programs, size, blob), 0);
        assert_plan(&p, &desc, WINATTN_SUCCESS,
                    from_blob ? "program: imported" : "program: compiled");
        const size_t count = standin_builds(&builds);
        const standin_build *last = &builds[count - 1];
        assert_int_equal(last->result, CL_SUCCESS);
        assert_int_equal(last->source == NULL, from_blob);
        assert_non_null(strstr(last->options, "-cl-std=CL1.2 -D"));
        assert_int_equal(
            winattn_programs_export(programs, sizeof blob, blob, &size), 0);
        winattn_programs_destroy(programs);
        close_place(&p);
    }
}

/* How large, and how large it could be. */
static void test_buffer_that_is_too_large(void **state)
{
    static const cl_int index[49 * 49];
    winattn_desc desc = window_of_49();
    winattn_programs *programs;
    (void)state;
    const place p = open_place("PoCL");
    /* what a session makes is there already */
    assert_int_equal(winattn_programs_create(p.context, p.id, &programs), 0);
    desc.bias = WINATTN_BIAS_TABLE;
    desc.table.index = index;
    desc.table.entries = 1;
    standin_fail_call("clCreateBuffer", 1, CL_INVALID_BUFFER_SIZE);
    assert_plan(&p, &desc, CL_INVALID_BUFFER_SIZE,
                "clCreateBuffer of 9604 bytes failed with "
                "CL_INVALID_BUFFER_SIZE (-61); a buffer has at most "
                "1099511627776");
    standin_fail_nothing();
    winattn_programs_destroy(programs);
    close_place(&p);
}

/* A query that a device does not know is no failure where only some know it;
 * otherwise it is one. The device is never said to lack anything. */
static void test_queries_that_are_not_known(void **state)
{
    static const char *const devices[] = {"H200", "gfx90a (MI210)", "Arc A770",
                                          "Mali-G78", "PoCL"};
    const winattn_desc desc = window_of_49();
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        unsigned long n = 0, known_by_all = 0;
        for (const char *failed = ""; failed;) {
            const place p = open_place(devices[i]);
            standin_fail_call("clGetDeviceInfo", ++n, CL_INVALID_VALUE);
            const winattn_status status = place_plan(&p, &desc);
            failed = standin_failed();
            if (status != WINATTN_SUCCESS && status != CL_INVALID_VALUE)
                fail_msg("%s: query %lu: %s: %s", devices[i], n,
                         winattn_status_name(status), place_said);
            known_by_all += status == CL_INVALID_VALUE;
            close_place(&p);
        }
        assert_in_range(known_by_all, 15, n - 2);
    }
}

/* ---- Blobs ---- */

/* A damaged blob is one, whatever else fails. */
static void test_damaged_blob(void **state)
{
    static unsigned char blob[65536];
    const winattn_desc desc = window_of_49();
    winattn_programs *programs;
    size_t size = 0;
    (void)state;
    const place p = open_place("PoCL");
    assert_int_equal(winattn_programs_create(p.context, p.id, &programs), 0);
    assert_plan(&p, &desc, WINATTN_SUCCESS, "");
    assert_int_equal(
        winattn_programs_export(programs, sizeof blob, blob, &size), 0);
    blob[size / 2] ^= 1;
    for (unsigned long n = 1; n < 40; n++) {
        standin_fail_allocation(n);
        assert_int_equal(winattn_programs_import(programs, size, blob),
                         WINATTN_INVALID_BLOB);
        standin_fail_call(NULL, n, CL_OUT_OF_HOST_MEMORY);
        assert_int_equal(winattn_programs_import(programs, size, blob),
                         WINATTN_INVALID_BLOB);
    }
    standin_fail_nothing();
    winattn_programs_destroy(programs);
    close_place(&p);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_long_tuning_name, no_cache),
        cmocka_unit_test_setup(test_tuning_file_is_read_again, no_cache),
        cmocka_unit_test(test_long_cache_name),
        cmocka_unit_test_setup(test_resources_that_never_suffice, no_cache),
        cmocka_unit_test_setup(test_unit_that_is_wrong, no_cache),
        cmocka_unit_test_setup(test_option_that_is_not_known, no_cache),
        cmocka_unit_test_setup(test_buffer_that_is_too_large, no_cache),
        cmocka_unit_test_setup(test_queries_that_are_not_known, no_cache),
        cmocka_unit_test_setup(test_damaged_blob, no_cache),
    };
    if (count != 2) {
        fputs("test_verdicts FILE\n", stderr);
        return EXIT_FAILURE;
    }
    snprintf(tuning_file, sizeof tuning_file, "%s", arguments[1]);
    unsetenv("WINATTN_TUNING");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
