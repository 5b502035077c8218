/* SPDX-License-Identifier: Apache-2.0
 * Plans that take their programs from the folder, or do without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "cache.h"
#include "kit/fixture.h"
#include "program/cache_record.h"

static void warm_is_like_cold(void **state)
{
    (void)state;
    const char *const cases[] = {CPU_CASE, other_case()};
    outcome cold, warm;
    if (!gives_binaries())
        skip();
    winattn_set_cache_dir(folder_named("warm"));
    for (int i = 0; i < 2; i++) {
        run_here(cases[i], &cold);
        assert_int_equal(cold.built, 1);
        assert_string_equal(cold.origin, "compiled from source");
        run_here(cases[i], &warm);
        assert_int_equal(warm.built, 0);
        assert_string_equal(warm.origin, "from the cache");
        assert_memory_equal(warm.o, cold.o, sizeof cold.o);
    }
    /* elsewhere, and off */
    winattn_set_cache_dir(folder_named("elsewhere"));
    run_here(CPU_CASE, &cold);
    assert_int_equal(cold.built, 1);
    winattn_set_cache_dir("");
    run_here(CPU_CASE, &cold);
    assert_int_equal(cold.built, 1);
    winattn_set_cache_dir(folder_named("warm"));
    run_here(CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
}

/* Options are part of the key, and so is a failed build no record. */
static void options_matter(void **state)
{
    (void)state;
    test_case c = case_default();
    winattn_plan *plan;
    char origin[40];
    if (!gives_binaries())
        skip();
    winattn_set_cache_dir(folder_named("options"));
    assert_true(case_parse(CPU_CASE, &c, NULL));
    winattn_desc desc = case_desc(&c);
    const char *const options[] = {"-DUNUSED=1", "-DUNUSED=2"};
    for (int i = 0; i < 4; i++) {
        desc.build_options = options[i % 2];
        plan = make_plan(&desc);
        describe_origin(plan, origin);
        assert_string_equal(origin,
                            i < 2 ? "compiled from source" : "from the cache");
        winattn_plan_destroy(plan);
    }
    for (int i = 0; i < 2; i++) {
        desc.build_options = "-Dforward_args=int";
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &desc, &plan),
            CL_BUILD_PROGRAM_FAILURE);
        assert_true(strlen(winattn_last_build_log()) > 10);
    }
}

/* Leaves a sound file of a program that the driver must refuse. */
static void replace_program(const char *path, void *unused)
{
    static unsigned char rubbish[16384];
    unsigned char *bytes;
    size_t size;
    wa_cache_record record;
    (void)unused;
    assert_int_equal(wa_file_read(path, SIZE_MAX, &bytes, &size),
                     WA_FILE_READ);
    assert_null(wa_cache_record_read(bytes, size, &record));
    for (size_t i = 0; i < sizeof rubbish; i++)
        rubbish[i] = (unsigned char)(i * 2654435761u >> 13);
    record.binary = rubbish;
    record.binary_size = sizeof rubbish;
    unsigned char *bad = malloc(wa_cache_record_size(&record));
    assert_non_null(bad);
    wa_cache_record_write(&record, bad);
    write_bytes(path, bad, wa_cache_record_size(&record));
    free(bad);
    free(bytes);
}

/* Which bytes are damage, cache_bytes.c says, and cache_folder.c of files. */
static void refused_programs_are_rebuilt(void **state)
{
    (void)state;
    outcome good, again;
    char folder[4200];
    /* rusticl 22.3 aborts the process at a program that is none */
    if (!gives_binaries() || strncmp(device.name, "rusticl", 7) == 0)
        skip();
    use_folder("spoilt", folder);
    run_here(CPU_CASE, &good);
    assert_true(for_files(folder, replace_program, NULL) > 0);
    run_here(CPU_CASE, &again);
    assert_int_equal(again.built, 1);
    assert_memory_equal(again.o, good.o, sizeof good.o);
    run_here(CPU_CASE, &again);
    assert_int_equal(again.built, 0);
}

static void plans_do_without_a_folder(void **state)
{
    (void)state;
    outcome result;
    char path[4200];
    snprintf(path, sizeof path, "%s", folder_named("no folder"));
    write_bytes(path, "x", 1);
    winattn_set_cache_dir(path);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 1);
}

static void processes_share(void **state)
{
    (void)state;
    char folder[4200];
    outcome result;
    if (!gives_binaries())
        skip();
    snprintf(folder, sizeof folder, "%s", folder_named("shared"));
    const pid_t children[2] = {start_child("plan", folder),
                               start_child("plan", folder)};
    for (int i = 0; i < 2; i++)
        assert_child_succeeds(children[i]);
    winattn_set_cache_dir(folder);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 0);
    run_here(other_case(), &result);
    assert_int_equal(result.built, 0);
}

/* A part of a device, in a context of its own. */
static void parts_of_devices(void **state)
{
    (void)state;
    cl_device_id parts[2];
    cl_int error;
    outcome cold, warm;
    if (!gives_binaries() || !make_parts(parts))
        skip();
    const test_device whole = device;
    device.id = parts[0];
    device.context = clCreateContext(NULL, 1, &parts[0], NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    device.queue = clCreateCommandQueue(device.context, parts[0], 0, &error);
    assert_int_equal(error, CL_SUCCESS);
    winattn_set_cache_dir(folder_named("part"));
    run_here(CPU_CASE, &cold);
    run_here(CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
    assert_memory_equal(warm.o, cold.o, sizeof cold.o);
    clReleaseCommandQueue(device.queue);
    clReleaseContext(device.context);
    device = whole;
    clReleaseDevice(parts[0]);
    clReleaseDevice(parts[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(warm_is_like_cold),
    cmocka_unit_test(options_matter),
    cmocka_unit_test(refused_programs_are_rebuilt),
    cmocka_unit_test(plans_do_without_a_folder),
    cmocka_unit_test(processes_share),
    cmocka_unit_test(parts_of_devices),
};
const test_group cache_plans = TEST_GROUP(NULL, tests);
