/* SPDX-License-Identifier: Apache-2.0
 * The bench's reports and lists of cases: written and read again, joined,
 * refused where they are damaged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "command/caselist.h"
#include "command/options.h"
#include "kit/workloads.h"
#include "measure/process.h"
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
        snprintf(row->command, sizeof row->command,
                 "winattn-bench --case 'x'");
        row->seconds = 0.01;
        row->error = 1e-7;
        row->unfused = 0.05;
        row->unfused_part = 0.5;
        row->memory = 0.25;
        row->unfused_memory = 12.5;
        row->chain = 0.0125;
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
    assert_float_equal(report_speed_up(&r.rows[0]), 5, 1e-9);
    assert_float_equal(report_of_chain(&r.rows[0]), 0.8, 1e-9);
    assert_float_equal(report_of_chain(&r.rows[1]), 0, 0);
    assert_float_equal(report_of_ceiling(&r, &r.rows[1]), 0, 0);
    assert_float_equal(report_speed_up(&r.rows[1]), 0, 0);
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
    assert_non_null(strstr(text, ",chain,chain_error,of_chain,cold,warm,"));
    assert_non_null(
        strstr(text, ",0.05,0.5,0,5,0.25,12.5,0.0125,2e-07,0.8,2,0.25,"));
    assert_non_null(strstr(text, ",\"none of this\",\"windows=4\","));
    assert_non_null(
        strstr(text, ",1000000,400000000,,,,,,,,,,,,,,,")); /* failed */
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
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->text, b->text);
        assert_string_equal(a->command, b->command);
        assert_string_equal(a->failure, b->failure);
        assert_float_equal(a->seconds, b->seconds, 1e-12);
        assert_float_equal(a->unfused, b->unfused, 1e-12);
        assert_float_equal(a->warm, b->warm, 1e-12);
        assert_string_equal(a->pass, b->pass);
        assert_same_number(a->error, b->error);
        assert_same_number(a->chain, b->chain);
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
    take_out(changed, "\"chain\": 0.0125, \"chain_error\": 2e-07, ");
    take_out(changed, "\"chain_note\": \"none of this\", ");
    write_scratch(changed, strlen(changed));
    if (!report_read_json(&r, SCRATCH, reason))
        fail_msg("%s", reason);
    assert_int_equal(r.row_count, 4);
    assert_true(r.rows[2].chain == 0 && isnan(r.rows[2].chain_error));
    assert_string_equal(r.rows[2].chain_note, "");
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
    refuses_changed("\"chain_error\": 2e-07", "\"chain_error\": -1",
                    "chain_error");
    refuses_changed("\"chain_note\": ", "\"note\": ", "chain_note");
    refuses_changed("\"unfused_memory_mb\": 12.5",
                    "\"unfused_memory_mb\": \"much\"", "unfused_memory_mb");
    refuses_changed("\"fma_rate\": ", "\"rate\": ", "fma_rate");
    refuses_changed("Platform 0", "\\u001b[2J", "control characters");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    refuses_changed("Platform 0", long_text, "too long");
    report_free(&r);
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

/* ---- Cases ---- */

/* Rows as a file of workloads has them. */
static void test_case_file(void **state)
{
    static const char text[] =
        "# windows, then slide rows\n"
        "name,scores,windows,heads,nq,nk,head_dim,mask_windows,notes\n"
        "swin-t-224-s1-b64,dot,4096,3,49,49,32,64,shift 3\n"
        "\n"
        "hat-ocab,dot,64,6,256,576,30,1,\"queries, keys differ\"\r\n"
        "swinv2-t-w8-b64,cosine,4096,3,64,64,32,64,\n"
        "fwa2-bench,cosine,256,6,256,256,32,16,random masks\n"
        "name,scores,batch,heads,kv_heads,queries,keys,q_offset,block,"
        "window_blocks,head_dim,notes\n"
        "self-forcing-decode,slide,1,12,12,4680,32760,28080,4680,7,128,new\n"
        "magi-like,slide,1,24,8,48600,48600,0,12150,4,128,grouped-query\n";
    caselist list = {0}, table = {0};
    char reason[CASELIST_REASON_SIZE];
    (void)state;
    write_scratch(text, sizeof text - 1);
    if (!caselist_add_file(&list, SCRATCH, reason))
        fail_msg("%s", reason);
    assert_int_equal(list.count, 6);
    for (size_t i = 0; i < list.count; i++) {
        char mine[256], theirs[256];
        assert_true(caselist_add_named(&table, list.all[i].name, reason));
        case_print(&list.all[i].c, mine, sizeof mine);
        case_print(&table.all[i].c, theirs, sizeof theirs);
        assert_string_equal(mine, theirs);
    }
    caselist_free(&list);
    caselist_free(&table);
}

static void test_wrong_cases(void **state)
{
    static const struct {
        const char *text, *expected;
    } files[] = {
        {"a,dot,1,1,4,4,4,1\n", "line 1: no line before it"},
        {"name,windows\nx,none\n", "line 2: unknown: windows=none"},
        {"name,windows,colour\nx,1,red\n", "unknown: colour=red"},
        {"name,windows\nx,\"1\n", "open quote"},
        {"name,windows\nx,0\n", "must be positive"},
        {"name,heads,kv_heads\nx,4,3\n", "no divisor"},
        {"name,scores\nx,slide\n", "needs block"},
        {"name,layout\nx,packed\n", "no choice of layout"},
        {"name,grid,size,window,layout\nx,2,5x5,3x3,tokens\n",
         "no choice of layout"},
        {"name,grid,size,window,batch\nx,2,5x5,3x3,0\n", "needs a batch"},
        {"name,grid,size,window\nx,2,5,3x3\n", "needs its size"},
        {"name,grid,size,window\nx,2,5x5,3\n", "unknown: window"},
        {"name,mask\nx,shift\n", "needs a grid"},
        {"name,bias\nx,table_same\n", "needs a grid"},
        {"name,windows\n", "no cases"},
    };
    caselist list = {0};
    char reason[CASELIST_REASON_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_scratch(files[i].text, strlen(files[i].text));
        assert_false(caselist_add_file(&list, SCRATCH, reason));
        if (!strstr(reason, files[i].expected))
            fail_msg("\"%s\" does not say \"%s\"", reason, files[i].expected);
    }
    assert_false(caselist_add_file(&list, "no such file", reason));
    assert_false(caselist_add_named(&list, "no such case", reason));
    assert_int_equal(list.count, 0);
    assert_true(caselist_add_text(&list, NULL, "windows=3", reason));
    assert_true(caselist_add_text(&list, NULL, "dtype=fp16", reason));
    assert_string_equal(list.all[1].name, "own2");
    assert_true(list.all[1].names_dtype && !list.all[0].names_dtype);
    assert_true(caselist_add_text(&list, NULL, "pass=backward", reason));
    assert_true(list.all[2].names_pass && list.all[2].backward);
    assert_false(list.all[0].names_pass || list.all[0].backward);
    assert_false(caselist_add_text(&list, NULL, "accumulate=1", reason));
    assert_non_null(strstr(reason, "accumulate"));
    assert_true(caselist_add_named(&list, "all", reason));
    assert_int_equal(list.count, workload_count + map_count + 3);
    assert_true(
        caselist_add_text(&list, NULL, "grid=1 size=9 window=4", reason));
    caselist_free(&list);
}

/* Numbers that make no sense are nobody's case; large ones that do are. */
static void test_numbers_of_cases(void **state)
{
    static const struct {
        const char *text, *expected; /* NULL: it is a case */
    } lines[] = {
        {"windows=99999999999", "unknown: windows=99999999999"},
        {"queries=1e3", "unknown: queries=1e3"},
        {"keys=0x10", "unknown: keys=0x10"},
        {"heads=", "unknown: heads="},
        {"scale=0x3", "unknown: scale=0x3"},
        {"scale=1e999", "unknown: scale=1e999"},
        {"heads=-3", "must be positive"},
        {"variant=sliding block=4 query_offset=-1", "must not be negative"},
        {"variant=sliding block=4 sink=-1", "must not be negative"},
        {"variant=sliding block=4 first_block=-1", "must not be negative"},
        {"variant=sliding block=4 window_blocks=-1", "must not be negative"},
        {"grid=2 size=99999x99999 window=1x1", "unknown: the grid's windows"},
        {"grid=1 size=9 window=1 batch=2147483647", "the grid's windows"},
        {"grid=2 size=1x1 window=99999x99999", "unknown: a window's tokens"},
        {"grid=2 size=5x5 window=5x5 bias=table_same table=99999x99999",
         "unknown: the table's entries"},
        {"grid=1 size=5 window=5 bias=table_same table=-3", "must not be"},
        {"grid=1 size=2147483647 window=2", NULL},
        {"scale=-1e-3 region_value=-inf mask=regions mask_windows=1", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        caselist list = {0};
        char reason[CASELIST_REASON_SIZE] = "";
        const bool good =
            caselist_add_text(&list, NULL, lines[i].text, reason);
        if (good != !lines[i].expected ||
            (!good && !strstr(reason, lines[i].expected)))
            fail_msg("%s: \"%s\"", lines[i].text, reason);
        caselist_free(&list);
    }
}

/* Rows that a command line asks for, of its first case: "pass dtype" each. */
static void rows_of(const char *a, const char *b, const char *c, const char *d,
                    char text[256])
{
    const char *words[] = {"winattn-bench", a, b, c, d};
    int count = 1;
    options o;
    while (count < 5 && words[count])
        count++;
    text[0] = 0;
    assert_int_equal(options_read(count, (char **)(void *)words, &o),
                     OPTIONS_GOOD);
    for (bench_pass pass = 0; pass < BENCH_PASSES; pass++)
        for (int dtype = 0; dtype < 3; dtype++)
            if (options_take_row(&o, &o.cases.all[0], pass, dtype)) {
                const size_t used = strlen(text);
                snprintf(text + used, 256 - used, "%s %s,",
                         option_passes[pass], option_dtypes[dtype]);
            }
    options_free(&o);
}

static void test_passes(void **state)
{
    static const struct {
        const char *words[4], *rows;
    } lines[] = {
        {{NULL},
         "forward fp32,forward fp16,forward bf16,backward fp32,"
         "backward fp16,both fp32,both fp16,"},
        {{"--dtype", "bf16"}, "forward bf16,backward bf16,both bf16,"},
        {{"--pass", "forward", "--dtype", "fp16"}, "forward fp16,"},
        {{"--pass", "both,backward", "--dtype", "fp16"},
         "backward fp16,both fp16,"},
        {{"--pass", "both", "--pass", "forward"},
         "forward fp32,forward fp16,forward bf16,both fp32,both fp16,"
         "both bf16,"},
        {{"--case", "windows=3"}, "forward fp32,forward fp16,forward bf16,"},
        {{"--case", "windows=3 dtype=fp32 pass=backward"}, "backward fp32,"},
        {{"--case", "dtype=fp32 pass=backward", "--pass", "forward"},
         "forward fp32,"},
    };
    char rows[256];
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *const *w = lines[i].words;
        rows_of(w[0], w[1], w[2], w[3], rows);
        assert_string_equal(rows, lines[i].rows);
    }
    const char *wrong[] = {"winattn-bench", "--pass", "backward,"};
    options o;
    assert_int_equal(options_read(3, (char **)(void *)wrong, &o),
                     OPTIONS_WRONG);
    options_free(&o);
}

/* A permission for rows of fp32, by a flag or by the case. */
static void test_tf32(void **state)
{
    static const struct {
        const char *words[4];
        bool allowed;
    } lines[] = {{{"winattn-bench", "--case", "windows=3"}, false},
                 {{"winattn-bench", "--case", "windows=3", "--tf32"}, true},
                 {{"winattn-bench", "--case", "windows=3 tf32=1"}, true}};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        options o;
        assert_int_equal(options_read(lines[i].words[3] ? 4 : 3,
                                      (char **)(size_t)lines[i].words, &o),
                         OPTIONS_GOOD);
        for (int dtype = 0; dtype < 3; dtype++)
            assert_int_equal(options_tf32(&o, &o.cases.all[0], dtype),
                             lines[i].allowed && dtype == WINATTN_FP32);
        options_free(&o);
    }
}

/* A default run has rows on grids, and not all types of them. */
static void test_common_cases(void **state)
{
    const char *words[] = {"winattn-bench", "--dtype", "bf16"};
    size_t maps = 0;
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        options o;
        assert_int_equal(
            options_read(asked ? 3 : 1, (char **)(void *)words, &o),
            OPTIONS_GOOD);
        for (size_t i = 0; i < o.cases.count; i++) {
            const bench_case *b = &o.cases.all[i];
            maps += b->c.grid != 0;
            assert_int_equal(
                options_take_row(&o, b, BENCH_FORWARD, WINATTN_BF16),
                asked || !b->c.grid);
            assert_int_equal(
                options_take_row(&o, b, BENCH_FORWARD, WINATTN_FP16), !asked);
        }
        options_free(&o);
    }
    assert_int_equal(maps, 2 * 4);
}

static void test_words(void **state)
{
    char command[64] = "";
    (void)state;
    assert_true(process_append_word(command, sizeof command, "a-b/c.d=e"));
    assert_true(process_append_word(command, sizeof command, "it's $x"));
    assert_true(process_append_word(command, sizeof command, ""));
    assert_string_equal(command, "a-b/c.d=e 'it'\\''s $x' ''");
    assert_false(process_append_word(command, 24, "more than fits"));
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
        cmocka_unit_test(test_damage),
#endif
        cmocka_unit_test(test_case_file),
        cmocka_unit_test(test_wrong_cases),
        cmocka_unit_test(test_numbers_of_cases),
        cmocka_unit_test(test_without_result),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_tf32),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_common_cases),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(SCRATCH);
    return failed;
}
