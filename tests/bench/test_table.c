/* SPDX-License-Identifier: Apache-2.0
 * What the bench prints fits a terminal, whatever it says: tables 100 columns,
 * summaries a screen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/asserts.h"
#include "report/table.h"

#define SCRATCH "test_table.scratch"
#define TEXT_SIZE 65536

static char text[TEXT_SIZE];

/* Reads back what was printed; how many lines, each narrow enough. */
static size_t finish(FILE *file)
{
    size_t lines = 0, width = 0;
    const long length = ftell(file);
    rewind(file);
    assert_in_range(length, 0, TEXT_SIZE - 1);
    assert_int_equal(fread(text, 1, TEXT_SIZE - 1, file), length);
    text[length] = 0;
    fclose(file);
    for (const char *p = text; *p; p++) {
        width = *p == '\n' ? 0 : width + 1;
        if (width > TABLE_WIDTH)
            fail_msg("too wide: %.120s", p - width + 1);
        lines += *p == '\n';
    }
    return lines;
}

static FILE *begin(void)
{
    FILE *file = fopen(SCRATCH, "w+");
    assert_non_null(file);
    return file;
}

static void fill(char *to, size_t size, char with)
{
    memset(to, with, size - 1);
    to[size - 1] = 0;
}

/* So many devices with long names, and rows of all kinds with large numbers.
 */
static report example(size_t devices)
{
    static const char *const texts[] = {"windows=3", "grid=2 size=9x9",
                                        "variant=sliding block=3"};
    report r;
    report_start(&r);
    for (size_t d = 0; d < devices; d++) {
        report_device *device = report_add_device(&r);
        fill(device->platform, sizeof device->platform, 'p');
        fill(device->name, sizeof device->name, 'n');
        fill(device->driver, sizeof device->driver, 'd');
        fill(device->commit, sizeof device->commit, 'c');
        device->copy_bandwidth = 98765.4e9;
        device->fma_rate = 9876543.2e9;
        for (size_t i = 0; i < 6; i++) {
            report_row *row = report_add_row(&r);
            row->device = d;
            fill(row->name, sizeof row->name, 'x');
            memcpy(row->name + 40, ":w123456", 9);
            snprintf(row->text, sizeof row->text, "%s", texts[i % 3]);
            snprintf(row->whole, sizeof row->whole, "%s", texts[i % 3]);
            snprintf(row->pass, sizeof row->pass,
                     i < 3 ? "forward" : "backward");
            snprintf(row->dtype, sizeof row->dtype, "fp32");
            snprintf(row->tier, sizeof row->tier, "matrix/local");
            row->seconds = 1e-3;
            row->bytes = 50e9;
            row->operations = 4000e9;
            row->error = 1.2e-7;
            row->memory = 123456;
            row->unfused = 123.4;
            row->unfused_part = 0.5;
            row->unfused_error = 1e-7;
        }
    }
    return r;
}

static void test_rows(void **state)
{
    report r = example(1);
    FILE *file = begin();
    (void)state;
    r.rows[1].seconds = 1e-4;
    table_print_device(file, &r, 0);
    table_print_heading(file);
    for (size_t i = 0; i < r.row_count; i++)
        table_print_row(file, &r, &r.rows[i]);
    assert_int_equal(finish(file), 4 + r.row_count);
    /* what was shrunk shows even behind a long name */
    assert_non_null(strstr(text, "xxx..:w123456 forward  fp32  mat/loc "));
    assert_non_null(strstr(text, " 1000 us") ? strstr(text, " 1000 us")
                                             : strstr(text, " 1.00 ms"));
    assert_non_null(strstr(text, " ~>9999x\n"));
    /* above a ceiling no wider than below */
    assert_non_null(strstr(text, " 50.6% copy 1.2e-07 "));
    assert_non_null(strstr(text, "  506% copy 1.2e-07 "));
    report_free(&r);
}

/* Beside a time stands what failed and was left out. */
static void test_refused(void **state)
{
    report r = example(1);
    (void)state;
    snprintf(r.rows[0].refused, sizeof r.rows[0].refused,
             "wgmma: the compiler says no");
    FILE *file = begin();
    table_print_row(file, &r, &r.rows[0]);
    assert_int_equal(finish(file), 2);
    assert_non_null(
        strstr(text, ">9999x\n    without wgmma: the compiler says no\n"));
    fill(r.rows[0].refused, sizeof r.rows[0].refused, 'w');
    file = begin();
    table_print_row(file, &r, &r.rows[0]);
    assert_int_equal(finish(file), 2);
    report_free(&r);
}

/* No word of a reason is lost. */
static void test_reasons(void **state)
{
    report r = example(1);
    report_row *row = &r.rows[0];
    (void)state;
    row->outcome = REPORT_FAILED;
    for (size_t length = 0; length + 5 < sizeof row->failure; length += 5) {
        memcpy(row->failure + length, "word ", 6);
        FILE *file = begin();
        table_print_row(file, &r, row);
        finish(file);
        size_t words = 0;
        for (const char *p = text; (p = strstr(p, "word")) != NULL; p += 4)
            words++;
        assert_int_equal(words, length / 5 + 1);
    }
    fill(row->failure, sizeof row->failure, 'y'); /* and no blank */
    FILE *file = begin();
    table_print_row(file, &r, row);
    assert_true(finish(file) >= 3);
    report_free(&r);
}

/* A summary with all that there may be to say fits one screen. */
static void test_summary(void **state)
{
    char path[300];
    (void)state;
    fill(path, sizeof path, '/');
    for (size_t devices = 1; devices <= 64; devices++) {
        report r = example(devices);
        const summary_files files = {
            .json = path, .log = path, .log_lines = 1234567, .advises = true};
        r.rows[0].outcome = REPORT_FAILED;
        r.rows[1].outcome = REPORT_UNSUPPORTED;
        fill(r.rows[1].failure, sizeof r.rows[1].failure, 'f');
        r.rows[2].outcome = REPORT_NO_TIME;
        r.rows[3].outcome = REPORT_NO_MEMORY;
        snprintf(r.rows[4].unfused_note, sizeof r.rows[4].unfused_note,
                 REPORT_NO_TIME_NOTE);
        fill(r.rows[5].unfused_note, sizeof r.rows[5].unfused_note, 'u');
        FILE *file = begin();
        summary_print_devices(file, &r);
        summary_print_end(file, &r, &files);
        assert_in_range(finish(file), 10, SUMMARY_LINES);
        assert_non_null(strstr(text, "Left out: 1 row (time), 1 row (memory), "
                                     "1 comparison (time), 1 row (not "
                                     "supported), 1 comparison;\n"
                                     "          ffffffff"));
        assert_non_null(strstr(text, "FAILED: 1 row, "));
        assert_non_null(strstr(text, "(1234567 lines)"));
        report_free(&r);
    }
}

/* A reason that begins with the device's name is said of its number. */
static void test_reason_of_device(void **state)
{
    report r = example(2);
    const summary_files files = {.json = NULL};
    report_row *row = &r.rows[7];
    (void)state;
    row->outcome = REPORT_UNSUPPORTED;
    r.devices[1].name[40] = 0;
    snprintf(row->failure, sizeof row->failure,
             "unsupported device: %s is too small", r.devices[1].name);
    FILE *file = begin();
    summary_print_end(file, &r, &files);
    finish(file);
    assert_non_null(
        strstr(text, "Left out: 1 row (not supported); [2] is too small\n"));
    report_free(&r);
}

/* The means are those of each kind and pass alone. */
static void test_means(void **state)
{
    report r = example(1);
    const double unfused[] = {2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 8e-3};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        r.rows[i].unfused = unfused[i];
    }
    /* a second window: the geometric mean of 2 and 8 */
    report_row *row = report_add_row(&r);
    *row = r.rows[0];
    row->unfused = 8e-3;
    FILE *file = begin();
    summary_print_devices(file, &r);
    finish(file);
    assert_non_null(strstr(text, "over unfused  [1]    4.00x    5.00x    "
                                 "3.00x    6.00x    4.00x    8.00x\n"));
    /* 50 GB in 1 ms of 98.8 TB/s */
    assert_non_null(strstr(text, "of ceiling    [1]      51%      51%"));
    /* rows without a time count nowhere */
    r.rows[6].seconds = 0;
    file = begin();
    summary_print_devices(file, &r);
    finish(file);
    assert_non_null(strstr(text, "over unfused  [1]    2.00x    5.00x"));
    report_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_reason_of_device),
        cmocka_unit_test(test_means),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(SCRATCH);
    return failed;
}
