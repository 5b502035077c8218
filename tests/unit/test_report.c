/* SPDX-License-Identifier: Apache-2.0
 * What follows from the numbers of a report, and the file that it becomes,
 * which tests/bench/test_pictures.py reads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "kit/asserts.h"
#include "report/report.h"

#define SCRATCH "test_report.scratch"

/* Two devices, a row each; the second failed. */
static report example(void)
{
    report r;
    report_start(&r);
    for (int i = 0; i < 2; i++) {
        report_device *device = report_add_device(&r);
        report_row *row = report_add_row(&r);
        assert_non_null(device);
        assert_non_null(row);
        snprintf(device->platform, sizeof device->platform, "Platform %d", i);
        snprintf(device->name, sizeof device->name, "a \"name\" \\ %d", i);
        snprintf(device->driver, sizeof device->driver, "1.2, 3");
        report_date(device->date);
        snprintf(device->version, sizeof device->version, "7.8.9");
        snprintf(device->commit, sizeof device->commit, "v7-8-gabc");
        snprintf(device->regime, sizeof device->regime, "burst");
        device->copy_bandwidth = 1e10;
        device->fma_rate = 2e11;
        row->device = (size_t)i;
        snprintf(row->name, sizeof row->name, i ? "case" : "case:w%d", 4);
        snprintf(row->whole, sizeof row->whole, "windows=8");
        snprintf(row->text, sizeof row->text, "windows=4");
        snprintf(row->dtype, sizeof row->dtype, "fp16");
        snprintf(row->pass, sizeof row->pass, "forward");
        row->bytes = 1e6;
        row->operations = 4e8;
        row->error = row->memory = row->unfused_memory = NAN;
        if (i == 1) {
            snprintf(row->failure, sizeof row->failure, "did not");
            continue;
        }
        snprintf(row->tier, sizeof row->tier, "cpu");
        snprintf(row->refused, sizeof row->refused, "that: it failed");
        snprintf(row->command, sizeof row->command,
                 "winattn-bench --case 'x'");
        row->seconds = 0.01;
        row->error = 1e-7;
        row->unfused = 0.05;
        row->unfused_part = 0.5;
        row->memory = 0.25;
        row->unfused_memory = 12.5;
        row->moves = 0.0025;
    }
    return r;
}

static void test_fractions(void **state)
{
    report r = example();
    (void)state;
    assert_float_equal(report_of_copy(&r, &r.rows[0]), 0.01, 1e-9);
    assert_float_equal(report_of_fma(&r, &r.rows[0]), 0.2, 1e-9);
    assert_float_equal(report_of_ceiling(&r, &r.rows[0]), 0.2, 1e-9);
    assert_float_equal(report_speed_up(&r, &r.rows[0]), 5, 1e-9);
    assert_float_equal(report_of_ceiling(&r, &r.rows[1]), 0, 0);
    assert_float_equal(report_speed_up(&r, &r.rows[1]), 0, 0);
    /* shrunk or not, they stand on one line */
    assert_true(report_first_of_case(&r, 0));
    assert_false(report_first_of_case(&r, 1));
    /* a pass is a line of its own */
    snprintf(r.rows[1].pass, sizeof r.rows[1].pass, "backward");
    assert_true(report_first_of_case(&r, 1));
    snprintf(r.rows[1].pass, sizeof r.rows[1].pass, "forward");
    /* own1 of another machine is another case */
    snprintf(r.rows[1].whole, sizeof r.rows[1].whole, "windows=9");
    assert_true(report_first_of_case(&r, 1));
    report_free(&r);
}

/* As JSON has them: marks in texts, and numbers that are none. */
static void test_json(void **state)
{
    report r = example();
    char text[8192];
    (void)state;
    assert_true(report_write_json(&r, SCRATCH));
    FILE *file = fopen(SCRATCH, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_non_null(strstr(text, "\"name\": \"a \\\"name\\\" \\\\ 0\""));
    assert_non_null(strstr(text, "\"commit\": \"v7-8-gabc\""));
    assert_non_null(strstr(text, "\"seconds\": 0.01, "));
    assert_non_null(strstr(text, "\"error\": null, "));
    r.rows[0].command[0] = 0;
    report_add_word(&r.rows[0], "a-b/c.d=e");
    report_add_word(&r.rows[0], "it's $x");
    report_add_word(&r.rows[0], "");
    assert_string_equal(r.rows[0].command, "a-b/c.d=e 'it'\\''s $x' ''");
    assert_false(report_write_json(&r, "no such folder/file"));
    report_free(&r);
}

static void test_plain_texts(void **state)
{
    static const struct {
        const char *text, *kept, *plain;
    } cases[] = {
        {"Gerät 图 \xf0\x9f\x99\x82", "", "Gerät 图 \xf0\x9f\x99\x82"},
        {"a\033[2Jb\r\n\tc\x7f", "", "a?[2Jb???c?"},
        {"a\033[2Jb\r\n\tc", "\n\t", "a?[2Jb?\n\tc"},
        {"\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "", "???\xc2\xa0"},
        {"Ā\xc4\x80", "", "ĀĀ"}, /* a byte of it is one of those above */
        {"\x9b"
         "2J \xe5\x9b \xff \xc0\x80",
         "", "?2J ?? ? ??"},
        {"\xf0\x9f\x99", "", "???"}, /* cut */
        {"", "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].text);
        wa_make_plain(text, cases[i].kept);
        assert_string_equal(text, cases[i].plain);
    }
    /* what winattn says of untrusted texts */
    wa_fail(WINATTN_INVALID_FILE, "%s: is there twice",
            "\033]0;x\007\xc2\x9b");
    assert_string_equal(winattn_last_reason(), "?]0;x??: is there twice");
    wa_keep_build_log("1 error:\n\t\033[31mx");
    assert_string_equal(winattn_last_build_log(), "1 error:\n\t?[31mx");
}

/* Lines of the comparison that nobody has times for. */
static void test_without_result(void **state)
{
    report r = example();
    (void)state;
    assert_int_equal(report_without_result(&r), 0); /* the first has */
    r.rows[0].seconds = 0;
    assert_int_equal(report_without_result(&r), 1); /* one line, twice */
    snprintf(r.rows[0].dtype, sizeof r.rows[0].dtype, "fp32");
    assert_int_equal(report_without_result(&r), 2);
    r.rows[1].seconds = 1;
    assert_int_equal(report_without_result(&r), 1);
    report_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_plain_texts),
        cmocka_unit_test(test_without_result),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(SCRATCH);
    return failed;
}
