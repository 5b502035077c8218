/* SPDX-License-Identifier: Apache-2.0
 * The bench's reports: written and read again, joined, refused where they are
 * damaged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/text.h"
#include "kit/cases.h"
#include "report/report.h"

#define SCRATCH "test_report.scratch"

static void write_scratch(const char *text, size_t length)
{
    FILE *file = fopen(SCRATCH, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static size_t read_scratch(char *text, size_t size)
{
    FILE *file = fopen(SCRATCH, "rb");
    assert_non_null(file);
    const size_t length = fread(text, 1, size - 1, file);
    fclose(file);
    text[length] = 0;
    return length;
}

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
        row->chain_error = NAN;
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
        row->chain = 0.0125;
        row->moves = 0.0025;
        row->chain_error = 2e-7;
        snprintf(row->chain_note, sizeof row->chain_note, "none of this");
        row->cold = 2;
        row->warm = 0.25;
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
    assert_float_equal(report_of_chain(&r, &r.rows[0]), 0.8, 1e-9);
    assert_float_equal(report_chain_speed_up(&r, &r.rows[0]), 1.25, 1e-9);
    assert_float_equal(report_of_chain(&r, &r.rows[1]), 0, 0);
    assert_float_equal(report_chain_speed_up(&r, &r.rows[1]), 0, 0);
    assert_float_equal(report_of_ceiling(&r, &r.rows[1]), 0, 0);
    assert_float_equal(report_speed_up(&r, &r.rows[1]), 0, 0);
    /* shrunk or not, they stand on one line */
    assert_true(report_first_of_case(&r, 0));
    assert_false(report_first_of_case(&r, 1));
    assert_ptr_equal(report_find_row(&r, &r.rows[0], 1), &r.rows[1]);
    /* a pass is a line of its own */
    snprintf(r.rows[1].pass, sizeof r.rows[1].pass, "backward");
    assert_true(report_first_of_case(&r, 1));
    assert_null(report_find_row(&r, &r.rows[0], 1));
    snprintf(r.rows[1].pass, sizeof r.rows[1].pass, "forward");
    /* own1 of another machine is another case */
    snprintf(r.rows[1].whole, sizeof r.rows[1].whole, "windows=9");
    assert_true(report_first_of_case(&r, 1));
    report_free(&r);
}

static void test_csv(void **state)
{
    report r = example();
    char text[8192];
    (void)state;
    assert_true(report_write_csv(&r, SCRATCH));
    read_scratch(text, sizeof text);
    size_t lines = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    assert_int_equal(lines, 3);
    assert_non_null(strstr(text, "\"a \"\"name\"\" \\ 0\""));
    assert_non_null(strstr(text, ",speed_up,memory_mb,unfused_memory_mb,"));
    assert_non_null(
        strstr(text, ",chain,moves,chain_error,of_chain,cold,warm,"));
    assert_non_null(strstr(
        text, ",0.05,0.5,0,5,0.25,12.5,0.0125,0.0025,2e-07,0.8,2,0.25,"));
    assert_non_null(
        strstr(text, ",\"none of this\",\"that: it failed\",\"windows=4\","));
    assert_non_null(
        strstr(text, ",1000000,400000000,,,,,,,,,,,,,,,,")); /* failed */
    assert_false(report_write_csv(&r, "no such folder/file"));
    report_free(&r);
}

#ifdef BENCH_HAS_CJSON

static void assert_same_number(double a, double b)
{
    assert_true(isnan(a) ? isnan(b) : a == b);
}

static void test_round_trip(void **state)
{
    report r = example(), joined;
    char reason[REPORT_REASON_SIZE];
    (void)state;
    report_start(&joined);
    assert_true(report_write_json(&r, SCRATCH));
    for (int i = 0; i < 2; i++)
        if (!report_read_json(&joined, SCRATCH, reason))
            fail_msg("%s", reason);
    assert_int_equal(joined.device_count, 4);
    assert_int_equal(joined.row_count, 4);
    for (size_t i = 0; i < 4; i++) {
        const report_row *a = &r.rows[i % 2], *b = &joined.rows[i];
        assert_int_equal(b->device, i);
        assert_string_equal(joined.devices[i].source, SCRATCH);
        assert_string_equal(joined.devices[i].name, r.devices[i % 2].name);
        assert_string_equal(joined.devices[i].date, r.devices[i % 2].date);
        assert_string_equal(joined.devices[i].version, "7.8.9");
        assert_string_equal(joined.devices[i].commit, "v7-8-gabc");
        assert_string_equal(joined.devices[i].regime, "burst");
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->text, b->text);
        assert_string_equal(a->command, b->command);
        assert_string_equal(a->failure, b->failure);
        assert_string_equal(a->refused, b->refused);
        assert_float_equal(a->seconds, b->seconds, 1e-12);
        assert_float_equal(a->unfused, b->unfused, 1e-12);
        assert_float_equal(a->warm, b->warm, 1e-12);
        assert_string_equal(a->pass, b->pass);
        assert_same_number(a->error, b->error);
        assert_same_number(a->chain, b->chain);
        assert_same_number(a->moves, b->moves);
        assert_same_number(a->chain_error, b->chain_error);
        assert_string_equal(a->chain_note, b->chain_note);
        assert_same_number(a->memory, b->memory);
        assert_same_number(a->unfused_memory, b->unfused_memory);
    }
    /* what was merged can be merged again */
    assert_true(report_write_json(&joined, SCRATCH));
    report again;
    report_start(&again);
    assert_true(report_read_json(&again, SCRATCH, reason));
    assert_int_equal(again.row_count, 4);
    report_free(&again);
    report_free(&joined);
    report_free(&r);
}

static void refuses(const char *text, size_t length, const char *expected)
{
    report r = example();
    char reason[REPORT_REASON_SIZE] = "";
    write_scratch(text, length);
    assert_false(report_read_json(&r, SCRATCH, reason));
    if (!strstr(reason, expected))
        fail_msg("\"%s\" does not say \"%s\"", reason, expected);
    assert_int_equal(r.device_count, 2);
    assert_int_equal(r.row_count, 2);
    report_free(&r);
}

/* The example's file with the first `from` changed. */
static void change_example(const char *from, const char *to,
                           char changed[8192])
{
    char text[8192];
    report r = example();
    assert_true(report_write_json(&r, SCRATCH));
    report_free(&r);
    read_scratch(text, sizeof text);
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(changed, 8192, "%.*s%s%s", (int)(at - text), text, to,
             at + strlen(from));
}

static void refuses_changed(const char *from, const char *to,
                            const char *expected)
{
    char changed[8192];
    change_example(from, to, changed);
    refuses(changed, strlen(changed), expected);
}

/* Takes out what an older file has not. */
static void take_out(char text[8192], const char *part)
{
    char *at = strstr(text, part);
    assert_non_null(at);
    memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

/* Files of before devices said version and commit: one version for all. */
static void test_older_devices(void **state)
{
    const char *both = "\"winattn\": \"7.8.9\", \"commit\": \"v7-8-gabc\", ";
    char changed[8192], reason[REPORT_REASON_SIZE];
    report r;
    (void)state;
    report_start(&r);
    change_example(both, "", changed);
    take_out(changed, both);
    write_scratch(changed, strlen(changed));
    if (!report_read_json(&r, SCRATCH, reason))
        fail_msg("%s", reason);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(r.devices[i].version, report_version);
        assert_string_equal(r.devices[i].commit, "");
    }
    report_free(&r);
    refuses_changed("v7-8-gabc", "\\u0007", "control characters");
}

/* Files of before there were columns of memory, and of the chain. */
static void test_older_file(void **state)
{
    char changed[8192], reason[REPORT_REASON_SIZE];
    report r;
    (void)state;
    report_start(&r);
    change_example("\"memory_mb\": 0.25, \"unfused_memory_mb\": 12.5, ", "",
                   changed);
    write_scratch(changed, strlen(changed));
    if (!report_read_json(&r, SCRATCH, reason))
        fail_msg("%s", reason);
    assert_int_equal(r.row_count, 2);
    assert_true(isnan(r.rows[0].memory) && isnan(r.rows[0].unfused_memory));
    assert_float_equal(r.rows[0].seconds, 0.01, 1e-12);
    assert_float_equal(r.rows[0].chain, 0.0125, 1e-12);
    take_out(changed, "\"moves\": 0.0025, ");
    write_scratch(changed, strlen(changed));
    if (!report_read_json(&r, SCRATCH, reason))
        fail_msg("%s", reason);
    assert_float_equal(r.rows[2].chain, 0.0125, 1e-12);
    assert_true(r.rows[2].moves == 0);
    take_out(changed, "\"chain\": 0.0125, \"chain_error\": 2e-07, ");
    take_out(changed, "\"chain_note\": \"none of this\", ");
    take_out(changed, "\"refused\": \"that: it failed\", ");
    write_scratch(changed, strlen(changed));
    if (!report_read_json(&r, SCRATCH, reason))
        fail_msg("%s", reason);
    assert_int_equal(r.row_count, 6);
    assert_true(r.rows[4].chain == 0 && isnan(r.rows[4].chain_error));
    assert_string_equal(r.rows[4].chain_note, "");
    assert_string_equal(r.rows[4].refused, "");
    report_free(&r);
}

static void test_refusals(void **state)
{
    report r;
    char reason[REPORT_REASON_SIZE], long_text[400];
    (void)state;
    report_start(&r);
    assert_false(report_read_json(&r, "no such file", reason));
    assert_non_null(strstr(reason, "cannot be opened"));
    refuses("", 0, "damaged");
    refuses("device,seconds\n", 15, "damaged");
    refuses("[]", 2, "no report");
    refuses("{\"devices\": [], \"rows\": []}", 27, "no report");
    refuses_changed("\"format\": 1", "\"format\": 2", "format 2");
    refuses_changed("\"rows\": [", "\"rows\": 3, \"x\": [", "no rows");
    refuses_changed("\"device\": 1", "\"device\": 2", "not there");
    refuses_changed("\"device\": 1", "\"device\": 0.5", "not there");
    refuses_changed("\"seconds\": 0.01", "\"seconds\": -1", "seconds");
    refuses_changed("\"seconds\": 0.01", "\"seconds\": 0", "neither");
    refuses_changed("\"seconds\": 0.01", "\"seconds\": 1e999", "seconds");
    refuses_changed("\"memory_mb\": 0.25", "\"memory_mb\": -1", "memory_mb");
    refuses_changed("\"chain\": 0.0125", "\"chain\": null", "chain");
    refuses_changed("\"moves\": 0.0025", "\"moves\": -1", "moves");
    refuses_changed("\"chain_error\": 2e-07", "\"chain_error\": -1",
                    "chain_error");
    refuses_changed("\"chain_note\": ", "\"note\": ", "chain_note");
    refuses_changed("\"unfused_memory_mb\": 12.5",
                    "\"unfused_memory_mb\": \"much\"", "unfused_memory_mb");
    refuses_changed("\"fma_rate\": ", "\"rate\": ", "fma_rate");
    refuses_changed("Platform 0", "\\u001b[2J", "control characters");
    refuses_changed("Platform 0", "\\u009b2J", "control characters");
    refuses_changed("Platform 0",
                    "\x9b"
                    "2J",
                    "no UTF-8");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    refuses_changed("Platform 0", long_text, "too long");
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
    /* what winattn says of strangers */
    wa_fail(WINATTN_INVALID_FILE, "%s: is there twice",
            "\033]0;x\007\xc2\x9b");
    assert_string_equal(winattn_last_reason(), "?]0;x??: is there twice");
    wa_keep_build_log("1 error:\n\t\033[31mx");
    assert_string_equal(winattn_last_build_log(), "1 error:\n\t?[31mx");
}

/* Wherever a file ends or a byte is wrong, it is refused or read whole. */
static void test_damage(void **state)
{
    char text[8192], reason[REPORT_REASON_SIZE];
    report r = example();
    (void)state;
    assert_true(report_write_json(&r, SCRATCH));
    const size_t length = read_scratch(text, sizeof text);
    for (size_t i = 0; i + 2 < length; i++)
        refuses(text, i, "");
    random_state random = random_seeded(7);
    for (int i = 0; i < 2000; i++) {
        const size_t at = (size_t)random_int(&random, 0, (int)length - 1);
        const char kept = text[at];
        text[at] = (char)random_int(&random, 0, 255);
        write_scratch(text, length);
        report damaged;
        report_start(&damaged);
        if (report_read_json(&damaged, SCRATCH, reason))
            assert_int_equal(damaged.row_count, 2);
        else
            assert_int_equal(damaged.row_count, 0);
        report_free(&damaged);
        text[at] = kept;
    }
    report_free(&r);
}

#endif

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
        cmocka_unit_test(test_csv),
#ifdef BENCH_HAS_CJSON
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_older_file),
        cmocka_unit_test(test_older_devices),
        cmocka_unit_test(test_plain_texts),
        cmocka_unit_test(test_damage),
#endif
        cmocka_unit_test(test_without_result),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(SCRATCH);
    return failed;
}
