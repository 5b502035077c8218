/* SPDX-License-Identifier: Apache-2.0
 * What the bench is told: lists of cases, the rows that options ask for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/options.h"
#include "kit/scratch.h"
#include "kit/workloads.h"

#define SCRATCH "test_bench_options.scratch"

/* ---- Cases ---- */

/* Cases of the list by name, others by their fields. */
static void test_case_file(void **state)
{
    static const char text[] = "# windows, then slide rows\n"
                               "swin-t-224-s1-b64\n"
                               "\n  \n"
                               "windows=64 heads=6 queries=256 keys=576\r\n"
                               "variant=sliding queries=96 block=8";
    caselist list = {0};
    char reason[CASELIST_REASON_SIZE];
    (void)state;
    write_bytes(SCRATCH, text, sizeof text - 1);
    if (!caselist_add_file(&list, SCRATCH, reason))
        fail_msg("%s", reason);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.all[0].name, "swin-t-224-s1-b64");
    assert_int_equal(list.all[0].c.windows, 4096);
    assert_string_equal(list.all[1].name, "own1");
    assert_int_equal(list.all[1].c.keys, 576);
    assert_int_equal(list.all[2].c.block, 8);
    caselist_free(&list);
}

static void test_wrong_cases(void **state)
{
    static const struct {
        const char *text, *expected;
    } files[] = {
        {"no-such-case\n", "line 1: no case no-such-case"},
        {"#\n\nwindows=none\n", "line 3: unknown: windows=none"},
        {"windows=1 colour=red\n", "unknown: colour=red"},
        {"windows=0\n", "must be positive"},
        {"heads=4 kv_heads=3\n", "no divisor"},
        {"variant=sliding\n", "needs block"},
        {"layout=packed\n", "no choice of layout"},
        {"grid=2 size=5x5 window=3x3 layout=tokens\n", "no choice of layout"},
        {"grid=2 size=5x5 window=3x3 batch=0\n", "needs a batch"},
        {"grid=2 size=5 window=3x3\n", "needs its size"},
        {"grid=2 size=5x5 window=3\n", "unknown: window"},
        {"mask=shift\n", "needs a grid"},
        {"bias=table_same\n", "needs a grid"},
        {"# none\n", "no cases"},
    };
    caselist list = {0};
    char reason[CASELIST_REASON_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_bytes(SCRATCH, files[i].text, strlen(files[i].text));
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
         "backward fp16,"},
        {{"--dtype", "bf16"}, "forward bf16,backward bf16,"},
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

/* A default run has rows on grids, and bf16 of its first case alone. */
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
                asked || i == 0);
            assert_int_equal(
                options_take_row(&o, b, BENCH_FORWARD, WINATTN_FP16), !asked);
        }
        options_free(&o);
    }
    assert_int_equal(maps, 2 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_file),
        cmocka_unit_test(test_wrong_cases),
        cmocka_unit_test(test_numbers_of_cases),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_tf32),
        cmocka_unit_test(test_common_cases),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(SCRATCH);
    return failed;
}
