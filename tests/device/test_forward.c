/* SPDX-License-Identifier: Apache-2.0
 * The forward pass against the oracle: a table of cases for every tier and
 * dtype, the shapes that people run, and seeded random cases. A failure prints
 * the case; `check 'CASE'` replays it.
 *
 *   test_forward table TIER                    each row in every dtype
 *   test_forward each TIER                     each row in one
 *   test_forward workloads TIER
 *   test_forward random TIER FIRST_SEED COUNT
 *
 * TIER is cpu, local or auto. */
#include "kit/runner.h"
#include "kit/workloads.h"

static const char *const table[] = {
    /* odd sizes */
    "queries=1 keys=1 dim=1",
    "queries=3 keys=3 dim=3",
    "queries=10 keys=10 dim=10 bias=same",
    "queries=24 keys=30 dim=24 bias=fp32",
    "queries=30 keys=24 dim=30 mask=same mask_windows=2",
    "queries=49 keys=49 dim=49 bias=same mask=regions mask_windows=2",
    "queries=80 keys=80 dim=80",
    "queries=100 keys=1 dim=100",
    "queries=1 keys=100 dim=10 bias=fp32",
    "queries=64 keys=256 dim=32 bias=same",
    "windows=1 heads=1 queries=256 dim=256",
    "windows=1 heads=1 queries=576 dim=32 bias=fp32",
    "windows=1 heads=1 queries=17 keys=900 dim=64 mask=fp32 mask_windows=1",
    /* options */
    "scale=-1.5 bias=same",
    "scale=0.01 lse=0",
    "heads=6 kv_heads=2 bias=fp32",
    "heads=5 kv_heads=1 variant=cosine logit_scale=1",
    "windows=7 bias=same mask=same mask_windows=3",
    "windows=7 bias=fp32 mask=fp32 mask_windows=3",
    "windows=7 bias=fp32 mask=regions mask_windows=7",
    "mask=regions mask_windows=1 region_value=0",
    "mask=regions mask_windows=1 region_value=-inf",
    "mask=regions mask_windows=1 region_value=2.5",
    "windows=40000 heads=1 queries=4 dim=4 bias=same mask=regions "
    "mask_windows=999",
    /* what rows hold */
    "mask=same mask_windows=2 data=masked",
    "bias=same mask=fp32 mask_windows=2 data=masked",
    "variant=cosine logit_scale=2 mask=same mask_windows=1 data=masked",
    "windows=20 bias=same mask=regions mask_windows=1 region_value=-inf "
    "data=alone",
    "mask=fp32 mask_windows=2 data=lowest bias=fp32",
    "mask=same mask_windows=2 data=lowest",
    "windows=3 bias=fp32 data=nan",
    "windows=3 variant=cosine logit_scale=1 bias=same data=nan",
    /* cosine */
    "variant=cosine",
    "variant=cosine logit_scale=2.3 bias=same mask=regions mask_windows=2",
    "variant=cosine logit_scale=4.60517",
    "variant=cosine logit_scale=4.6051702 bias=fp32",
    "variant=cosine logit_scale=7 bias=fp32",
    "variant=cosine logit_scale=-3 dim=10",
    "variant=cosine scale=9 queries=30 keys=64 dim=100",
    "variant=cosine logit_scale=3 data=tiny",
    "variant=cosine logit_scale=3 data=huge",
    "variant=cosine logit_scale=3 data=zero",
    "variant=cosine logit_scale=1 windows=1 heads=1 queries=300 dim=200",
    /* layouts */
    "layout=tokens bias=same mask=same mask_windows=2",
    "layout=packed bias=fp32",
    "layout=packed variant=cosine logit_scale=1 dim=24",
    "layout=interleaved",
    "layout=interleaved variant=sliding queries=70 block=16 dim=64",
    "layout=padded bias=same mask=same mask_windows=2",
    "layout=padded bias=fp32 mask=regions mask_windows=2 dim=10",
    "layout=aligned bias=fp32",
    "layout=strided bias=same mask=same mask_windows=2 queries=20 keys=30",
    "layout=strided bias=fp32 mask=regions mask_windows=2 dim=30",
    "layout=broadcast bias=same mask=same mask_windows=2 windows=3",
    /* sliding */
    "variant=sliding queries=100 block=16",
    "variant=sliding queries=200 block=64 window_blocks=2 dim=64",
    "variant=sliding queries=100 keys=300 block=30 first_block=7 "
    "window_blocks=3 sink=20 query_offset=200",
    "variant=sliding queries=100 keys=300 block=30 first_block=7 "
    "window_blocks=4 sink=20 sink_in_window=1 query_offset=150",
    "variant=sliding queries=70 block=1 window_blocks=10 sink=3 dim=128",
    "variant=sliding queries=300 block=100 heads=4 kv_heads=2",
    "variant=sliding queries=300 keys=100 block=20 window_blocks=2",
    "variant=sliding queries=150 keys=20 block=40 first_block=100",
    "variant=sliding queries=5 keys=700 block=13 window_blocks=50 "
    "query_offset=690 dim=30",
    "variant=sliding queries=300 block=100 data=nan window_blocks=1",
    "variant=sliding queries=300 block=7 data=nan window_blocks=2 dim=80",
    "variant=sliding queries=65 block=9 data=nan sink=4 window_blocks=1",
    "variant=sliding queries=65 block=1 data=nan window_blocks=20",
    "variant=sliding queries=40 block=8 layout=strided dim=20",
    "variant=sliding windows=1 heads=1 queries=90 block=32 dim=256",
    "variant=sliding windows=1 heads=1 queries=90 block=32 dim=200 "
    "layout=padded",
};
#define ROWS (sizeof table / sizeof *table)

#define SAMPLES 300 /* window-heads of a case that are compared */

static void run_table(void **state)
{
    (void)state;
    const bool each = part_is("each");
    for (size_t i = 0; i < ROWS; i++)
        for (int dtype = 0; dtype <= WINATTN_BF16; dtype++) {
            if (each && dtype != (int)i % 3)
                continue;
            test_case c = parsed(table[i]);
            c.tier = chosen.tier;
            c.dtype = dtype;
            c.seed = (int)i + 1;
            run_case(&c, SAMPLES);
        }
}

/* A few windows each, and the sliding ones shorter. */
static void run_workloads(void **state)
{
    (void)state;
    for (size_t i = 0; i < workload_count; i++) {
        test_case c = parsed(workload_rows[i].text);
        c.tier = chosen.tier;
        c.dtype = (int)i % 3;
        c.windows = c.windows > 3 ? 3 : c.windows;
        c.heads = c.kv_heads = 1;
        if (c.mask_windows > 2)
            c.mask_windows = 2;
        if (c.variant == WINATTN_SLIDING) {
            const int shrink = 64;
            c.queries = c.queries / shrink + 1;
            c.keys = c.keys / shrink + 1;
            c.query_offset /= shrink;
            c.block = c.block / shrink + 1;
        }
        run_case(&c, SAMPLES);
    }
}

static void run_random(void **state)
{
    (void)state;
    for (int i = 0; i < chosen.count; i++) {
        const test_case c = case_random(chosen.first + i, chosen.tier);
        run_case(&c, SAMPLES);
    }
}

/* A failing case must be replayed by what it prints. */
static void text_form(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 200; seed++) {
        const test_case c = case_random(seed, chosen.tier);
        test_case again = case_default();
        char text[512], text_again[512];
        case_print(&c, text, sizeof text);
        assert_true(case_parse(text, &again, NULL));
        case_print(&again, text_again, sizeof text_again);
        assert_string_equal(text, text_again);
        assert_int_equal(again.kv_heads, c.kv_heads);
        assert_int_equal(again.keys, c.keys);
    }
}

static const struct CMUnitTest table_tests[] = {cmocka_unit_test(run_table),
                                                cmocka_unit_test(text_form)};
static const struct CMUnitTest workload_tests[] = {
    cmocka_unit_test(run_workloads)};
static const struct CMUnitTest random_tests[] = {cmocka_unit_test(run_random)};

static const test_group groups[] = {TEST_GROUP("random", random_tests),
                                    TEST_GROUP("workloads", workload_tests),
                                    TEST_GROUP(NULL, table_tests)};

int main(int count, char **arguments)
{
    const test_program program = {
        .words = {WORD_PART, WORD_TIER, WORD_FIRST, WORD_COUNT},
        .part = "table",
        TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
