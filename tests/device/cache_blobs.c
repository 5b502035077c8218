/* SPDX-License-Identifier: Apache-2.0
 * Blobs of programs: what goes out comes in again, and nothing else. */
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "program/cache_record.h"
#include "program/program.h"

static winattn_programs *make_programs(void)
{
    winattn_programs *programs;
    assert_int_equal(
        winattn_programs_create(device.context, device.id, &programs),
        WINATTN_SUCCESS);
    return programs;
}

static unsigned char *export_all(const winattn_programs *programs,
                                 size_t *size)
{
    assert_int_equal(winattn_programs_export(programs, 0, NULL, size),
                     WINATTN_SUCCESS);
    unsigned char *blob = malloc(*size);
    assert_non_null(blob);
    assert_int_equal(winattn_programs_export(programs, *size, blob, NULL),
                     WINATTN_SUCCESS);
    return blob;
}

static void programs_stay(void **state)
{
    (void)state;
    outcome result;
    winattn_set_cache_dir("");
    winattn_programs *programs = make_programs();
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 1);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 0);
    winattn_programs_destroy(programs);
    run_here(CPU_CASE, &result);
    assert_int_equal(result.built, 1);
}

static void blobs_travel(void **state)
{
    (void)state;
    outcome cold[2], warm;
    size_t size, size_again, needed = 0;
    if (!gives_binaries())
        skip();
    winattn_set_cache_dir("");
    winattn_programs *programs = make_programs();
    run_here(CPU_CASE, &cold[0]);
    run_here(other_case(), &cold[1]);
    unsigned char *blob = export_all(programs, &size);
    assert_int_equal(
        winattn_programs_export(programs, size - 1, blob, &needed),
        WINATTN_INVALID_ARGUMENT);
    assert_int_equal(needed, size);
    winattn_programs_destroy(programs);

    /* as in another process: nothing of it is left */
    programs = make_programs();
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    run_here(CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
    assert_string_equal(warm.origin, "imported");
    assert_memory_equal(warm.o, cold[0].o, sizeof warm.o);
    /* used and unused, both go out again */
    unsigned char *second = export_all(programs, &size_again);
    winattn_programs_destroy(programs);
    programs = make_programs();
    assert_int_equal(winattn_programs_import(programs, size_again, second),
                     WINATTN_SUCCESS);
    run_here(other_case(), &warm);
    assert_int_equal(warm.built, 0);
    assert_memory_equal(warm.o, cold[1].o, sizeof warm.o);
    run_here(CPU_CASE, &warm);
    assert_int_equal(warm.built, 0);
    winattn_programs_destroy(programs);
    free(second);
    free(blob);
}

static void assert_refused(winattn_programs *programs, const void *blob,
                           size_t size, const char *culprit)
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, blob, size);
    assert_int_equal(winattn_programs_import(programs, size, copy),
                     WINATTN_INVALID_BLOB);
    if (!strstr(winattn_last_reason(), culprit))
        fail_msg("\"%s\" does not name \"%s\"", winattn_last_reason(),
                 culprit);
    free(copy);
}

/* A blob of one record with this key. */
static unsigned char *blob_with_key(const char *key, size_t key_size,
                                    size_t *size)
{
    const wa_cache_record record = {key, key_size,
                                    (const unsigned char *)"binary", 6};
    *size = WA_BLOB_HEADER + wa_cache_record_size(&record);
    unsigned char *blob = malloc(*size);
    assert_non_null(blob);
    wa_blob_write_header(blob, 1, *size);
    wa_cache_record_write(&record, blob + WA_BLOB_HEADER);
    return blob;
}

/* Sound, but of another version, device or driver. */
static void foreign_blobs_are_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "winattn: ", "platform: ",     "platform version: ",
        "vendor: ",  "device: ",       "device version: ",
        "driver: ",  "address bits: ", "program: ",
        "source: "};
    wa_program_source program_source;
    size_t size;
    winattn_programs *programs = make_programs();
    assert_int_equal(wa_program_source_of_kernel(device.id, "forward_cpu",
                                                 "-DX", &program_source),
                     WINATTN_SUCCESS);
    const size_t length = strlen(program_source.key);
    unsigned char *blob = blob_with_key(program_source.key, length, &size);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    free(blob);
    char *key = malloc(length + 2);
    assert_non_null(key);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        memcpy(key, program_source.key, length + 1);
        char *line = strstr(key, lines[i]);
        assert_non_null(line);
        line += strlen(lines[i]);
        memmove(line + 1, line, strlen(line) + 1);
        *line = '#';
        blob = blob_with_key(key, length + 1, &size);
        assert_refused(programs, blob, size,
                       strcmp(lines[i], "program: ") == 0 ? "source: "
                                                          : lines[i]);
        free(blob);
    }
    /* keys that end early, or hold a 0 */
    for (size_t cut = 1; cut + 20 < length; cut += 7) {
        blob = blob_with_key(program_source.key, cut, &size);
        assert_int_equal(winattn_programs_import(programs, size, blob),
                         strstr(program_source.key, "options: ") -
                                     program_source.key <=
                                 (ptrdiff_t)cut + 1
                             ? WINATTN_SUCCESS
                             : WINATTN_INVALID_BLOB);
        free(blob);
    }
    memcpy(key, program_source.key, length + 1);
    key[length - 3] = 0;
    blob = blob_with_key(key, length, &size);
    assert_refused(programs, blob, size, "blob");
    free(blob);
    free(key);
    wa_program_source_free(&program_source);
    winattn_programs_destroy(programs);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    winattn_programs *programs = (winattn_programs *)&device;
    size_t size = 0;
    char byte = 0;
    assert_int_equal(winattn_programs_create(NULL, device.id, &programs),
                     WINATTN_INVALID_ARGUMENT);
    assert_null(programs);
    assert_int_equal(winattn_programs_create(device.context, NULL, &programs),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_create(device.context, device.id, NULL),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_import(NULL, 1, &byte),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_export(NULL, 0, NULL, &size),
                     WINATTN_INVALID_ARGUMENT);
    winattn_programs_destroy(NULL);
    programs = make_programs();
    assert_int_equal(winattn_programs_import(programs, 1, NULL),
                     WINATTN_INVALID_ARGUMENT);
    assert_int_equal(winattn_programs_import(programs, 1, &byte),
                     WINATTN_INVALID_BLOB);
    assert_int_equal(winattn_programs_export(programs, 5, NULL, &size),
                     WINATTN_INVALID_ARGUMENT);
    /* nothing to export is a blob too */
    unsigned char *blob = export_all(programs, &size);
    assert_int_equal(winattn_programs_import(programs, size, blob),
                     WINATTN_SUCCESS);
    free(blob);
    winattn_programs_destroy(programs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(programs_stay),
    cmocka_unit_test(blobs_travel),
    cmocka_unit_test(foreign_blobs_are_refused),
    cmocka_unit_test(arguments_are_checked),
};
const test_group cache_blobs = TEST_GROUP(NULL, tests);
