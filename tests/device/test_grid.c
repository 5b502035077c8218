/* SPDX-License-Identifier: Apache-2.0
 * Tokens on a grid: windows, shifts, paddings and tables of biases, against
 * the oracle. A failure prints the case; `check 'CASE'` replays it.
 *
 *   test_grid forward|backward TIER few           each third row
 *   test_grid forward|backward TIER fixed         each row in one dtype
 *   test_grid forward|backward TIER fixed FIRST N
 *                                                 some rows, and what is none
 *   test_grid forward|backward TIER rows FIRST N  some rows alone
 *   test_grid forward|backward TIER all           in every dtype
 *   test_grid forward|backward TIER random FIRST_SEED COUNT
 *   test_grid backward TIER tables                pairs found by position */
#include "kit/planned.h"
#include "kit/runner.h"

/* Of both passes. */
static const char *const table[] = {
    /* one axis to three; sizes that the window divides, and not */
    "grid=1 size=21 window=7 dim=8",
    "grid=1 size=40 window=16 shift=5 mask=shift pads=3 dim=10 batch=3",
    "grid=2 size=14x21 window=7x7 shift=3x3 mask=shift bias=table_same",
    "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift bias=table_fp32 "
    "pads=3 batch=2",
    "grid=2 size=9x5 window=4x3 shift=1x2 mask=shift pads=1 bias=fp32 dim=24",
    "grid=3 size=5x9x6 window=2x4x3 shift=1x2x1 mask=shift bias=table_same "
    "pads=3 dim=16",
    "grid=3 size=4x8x4 window=2x4x4 shift=1x2x0 mask=shift bias=table_fp32",
    /* a window as large as the map, or larger; one token */
    "grid=2 size=5x20 window=8x8 shift=4x4 mask=shift pads=3 bias=table_same",
    "grid=2 size=8x20 window=8x8 shift=4x4 mask=shift padding=hidden",
    "grid=3 size=1x1x1 window=2x2x2 shift=1x1x1 mask=shift pads=3 dim=8",
    "grid=2 size=6x3 window=1x1 pads=3 dim=8 bias=table_same",
    /* paddings: values, zeros, half of each, hidden; with nothing to pad */
    "grid=2 size=9x10 window=4x4 pads=0 bias=same dim=8",
    "grid=2 size=9x10 window=4x4 pads=2 variant=cosine logit_scale=1 dim=8",
    "grid=2 size=9x10 window=4x4 padding=hidden shift=2x1 mask=shift dim=20 "
    "bias=table_fp32",
    "grid=2 size=8x8 window=4x4 pads=3 shift=2x2 mask=shift",
    "grid=2 size=8x8 window=4x4 padding=hidden shift=2x2 mask=shift",
    "grid=1 size=3 window=50 padding=hidden bias=same data=nan",
    /* circles */
    "grid=2 size=8x12 window=4x6 shift=2x3 periodic=1x1 mask=shift "
    "bias=table_same dim=16",
    "grid=2 size=9x12 window=4x6 shift=2x3 periodic=0x1 mask=shift pads=3 "
    "bias=table_same dim=16",
    /* region values; shifts without a mask; other masks over windows */
    "grid=2 size=10x15 window=5x4 shift=2x3 mask=shift region_value=-inf "
    "pads=3 dim=16",
    "grid=2 size=10x15 window=5x4 shift=2x3 mask=shift region_value=-inf "
    "padding=hidden dim=16",
    "grid=2 size=10x15 window=5x4 shift=4x1 mask=shift region_value=1.5 "
    "pads=3 dim=16",
    "grid=2 size=10x15 window=5x4 shift=2x3 pads=3 bias=fp32 dim=16",
    "grid=2 size=9x8 window=4x4 shift=1x1 mask=same mask_windows=6 batch=2 "
    "pads=3 dim=16",
    "grid=2 size=9x8 window=4x4 shift=1x1 mask=fp32 mask_windows=5 batch=2 "
    "padding=hidden data=masked bias=table_same dim=16",
    "grid=2 size=9x8 window=4x4 mask=regions mask_windows=4 batch=2 pads=3 "
    "dim=16",
    /* tables of other windows, the caller's index, tables without a grid */
    "grid=3 size=5x9x7 window=2x4x3 table=4x4x5 sliced=1 bias=table_same "
    "pads=3 dim=8",
    "grid=3 size=5x9x7 window=2x4x3 table=4x6x3 bias=table_fp32 pads=3 dim=8",
    "grid=2 size=9x10 window=3x5 bias=table_same entries=7 pads=3 dim=8",
    "grid=2 size=9x10 window=3x5 bias=table_fp32 entries=1000 layout=padded "
    "pads=3 dim=8",
    "windows=5 queries=30 table=5x6 bias=table_same dim=16",
    "windows=5 queries=20 keys=30 table=6x6 sliced=1 bias=table_fp32 dim=16",
    "windows=5 queries=20 keys=30 entries=11 bias=table_same dim=16",
    /* more partial sums than one kernel adds up (TABLE_PARTIALS) */
    "windows=2 heads=4 queries=384 keys=384 table=16x24 bias=table_same dim=8",
    /* cosine; several query heads to a key head; scales */
    "grid=2 size=9x13 window=8x8 shift=4x4 variant=cosine logit_scale=2.3 "
    "mask=shift bias=table_same pads=3",
    "grid=2 size=9x13 window=6x4 shift=3x1 variant=cosine mask=shift "
    "heads=6 kv_heads=2 pads=3 dim=10",
    "grid=2 size=9x13 window=6x4 shift=3x1 variant=cosine logit_scale=3 "
    "data=zero pads=3 bias=table_fp32 dim=16",
    "grid=2 size=9x13 window=6x4 shift=3x1 heads=4 kv_heads=1 bias=table_same "
    "pads=3 mask=shift scale=-0.7 dim=16",
    /* layouts */
    "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift bias=table_same "
    "layout=packed pads=3",
    "grid=3 size=3x6x7 window=2x3x4 shift=1x1x1 mask=shift bias=table_fp32 "
    "layout=packed pads=3 dim=24 batch=2",
    "grid=2 size=9x7 window=4x4 layout=interleaved pads=1 dim=8",
    "grid=2 size=9x7 window=4x4 layout=tokens batch=2 pads=2 dim=16 "
    "bias=table_same",
    "grid=2 size=9x7 window=4x4 shift=1x2 mask=shift layout=padded batch=2 "
    "pads=3 dim=10 bias=table_same",
    "grid=3 size=4x5x6 window=2x3x4 shift=1x1x1 mask=shift layout=padded "
    "pads=3 dim=16 variant=cosine logit_scale=1 bias=table_fp32",
    "grid=2 size=9x7 window=4x4 layout=aligned batch=2 pads=3 dim=16 "
    "bias=table_fp32",
    "grid=2 size=9x7 window=4x4 shift=1x2 mask=shift layout=strided batch=2 "
    "pads=3 dim=20 bias=table_same",
    "grid=2 size=9x7 window=4x4 layout=broadcast batch=2 pads=3 dim=16 "
    "bias=table_same mask=same mask_windows=3",
    /* what rows hold */
    "grid=2 size=9x7 window=4x4 shift=1x2 mask=shift pads=3 data=nan "
    "bias=table_same dim=16",
    "grid=2 size=9x7 window=4x4 shift=1x2 mask=shift padding=hidden data=nan "
    "bias=same dim=16",
    "grid=2 size=9x7 window=4x4 mask=fp32 mask_windows=3 pads=3 data=lowest",
    /* no window, many windows */
    "grid=2 size=9x7 window=4x4 batch=0 pads=3 bias=table_same dim=8",
    "grid=2 size=61x99 window=2x2 shift=1x1 mask=shift bias=table_fp32 "
    "pads=3 dim=4 heads=1 batch=2",
    /* rolled before they are padded: axes that are padded, shifted, both */
    "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift bias=table_same "
    "roll_first=1 layout=packed pads=3 batch=2 dim=16",
    "grid=2 size=9x12 window=4x6 shift=1x4 mask=shift bias=table_fp32 "
    "roll_first=1 padding=hidden variant=cosine logit_scale=2 dim=16",
    "grid=1 size=9 window=5 shift=3 roll_first=1 pads=3 dim=10 batch=3",
    "grid=3 size=5x9x6 window=2x4x3 shift=1x3x1 mask=shift bias=table_same "
    "roll_first=1 pads=3 dim=16",
    /* shifted windows that cover an axis, by more than there is of it */
    "grid=2 size=5x20 window=8x8 shift=4x4 mask=shift roll_first=1 pads=3 "
    "bias=table_same dim=16",
    "grid=3 size=2x7x1 window=7x7x4 shift=5x3x2 mask=shift roll_first=1 "
    "pads=3 bias=table_same dim=8",
    "grid=2 size=8x8 window=8x8 shift=4x4 mask=shift region_value=-inf "
    "roll_first=1 bias=table_same dim=16",
    "grid=2 size=5x20 window=8x8 shift=4x4 mask=shift shift_all=1 pads=3 "
    "bias=table_same dim=16",
    "grid=3 size=2x7x1 window=7x7x4 shift=5x3x2 mask=shift shift_all=1 "
    "padding=hidden bias=table_same dim=8",
};
#define ROWS (sizeof table / sizeof *table)

/* Of the backward pass only. */
static const char *const backward_table[] = {
    "grid=2 size=9x7 window=4x4 shift=2x2 mask=shift bias=table_same pads=3 "
    "accumulate=127 dim=16 d_lse=1",
    "grid=2 size=9x7 window=4x4 shift=2x2 mask=shift variant=cosine "
    "logit_scale=1 bias=table_fp32 pads=3 accumulate=127 layout=padded dim=16",
    "grid=2 size=9x7 window=4x4 batch=0 pads=3 bias=table_same dim=8 "
    "accumulate=127",
    "grid=2 size=9x7 window=4x4 pads=3 outputs=32 dim=8",
    "grid=2 size=9x7 window=4x4 pads=3 outputs=64 dim=8 layout=strided",
    "grid=2 size=9x7 window=4x4 pads=3 outputs=96 dim=8 accumulate=32 "
    "variant=cosine",
    "grid=2 size=9x7 window=4x4 outputs=8 bias=table_same pads=3 dim=8",
    "grid=2 size=9x7 window=4x4 outputs=7 bias=table_same pads=3 dim=8",
    "grid=2 size=9x7 window=4x4 padding=hidden shift=1x2 mask=shift given=1 "
    "d_lse=1 bias=table_fp32 dim=16",
    "grid=3 size=3x5x6 window=2x3x4 shift=1x1x2 mask=shift pads=3 given=1 "
    "d_lse=1 layout=packed bias=table_same dim=16",
    "grid=2 size=40x45 window=7x7 shift=3x3 mask=shift bias=table_same "
    "pads=3 heads=3",
    /* keys that one kernel does not hold */
    "grid=2 size=25x34 window=30x30 pads=3 dim=250 heads=1 bias=table_fp32",
};
#define BACKWARD_ROWS (sizeof backward_table / sizeof *backward_table)

static test_case grid_case(const char *text)
{
    test_case c = parsed(text);
    c.pass = chosen.pass;
    c.tier = chosen.tier;
    return c;
}

/* In fp32, but for tier matrix, which takes types of 16 bits. */
static test_case small_grid_case(const char *text)
{
    test_case c = grid_case(text);
    c.dtype = chosen.tier == WINATTN_TIER_MATRIX ? WINATTN_FP16 : WINATTN_FP32;
    return c;
}

/* Rows that are numbered from `before` on. */
static void run_rows(const char *const *rows, size_t count, size_t before)
{
    const bool all_dtypes = part_is("all"), few_rows = part_is("few");
    for (size_t i = 0; i < count; i++)
        for (int dtype = 0; dtype <= WINATTN_BF16; dtype++) {
            if (!all_dtypes && dtype != (int)(few_rows ? i / 3 : i) % 3)
                continue;
            if (few_rows && i % 3 != 0)
                continue;
            if (!row_is_chosen(before + i))
                continue;
            test_case c = grid_case(rows[i]);
            c.dtype = dtype;
            c.seed = (int)i + 1;
            run_case(&c, 0);
        }
}

static void run_table(void **state)
{
    (void)state;
    run_rows(table, ROWS, 0);
    if (chosen.pass == PASS_BACKWARD)
        run_rows(backward_table, BACKWARD_ROWS, ROWS);
}

static void run_random(void **state)
{
    (void)state;
    for (int i = 0; i < chosen.count; i++) {
        const test_case c =
            case_random_grid(chosen.first + i, chosen.tier, chosen.pass);
        run_case(&c, 0);
    }
}

/* A failing case must be replayed by what it prints. */
static void text_form(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 300; seed++) {
        const test_case c = case_random_grid(seed, chosen.tier, seed % 2);
        test_case again = case_default();
        char text[1024], text_again[1024];
        case_print(&c, text, sizeof text);
        assert_true(case_parse(text, &again, NULL));
        case_print(&again, text_again, sizeof text_again);
        assert_string_equal(text, text_again);
        assert_int_equal(again.windows, c.windows);
        assert_int_equal(again.queries, c.queries);
        assert_int_equal(again.keys, c.keys);
        assert_memory_equal(again.size, c.size, sizeof c.size);
        assert_memory_equal(again.window, c.window, sizeof c.window);
        assert_memory_equal(again.shift, c.shift, sizeof c.shift);
        assert_memory_equal(again.periodic, c.periodic, sizeof c.periodic);
        assert_memory_equal(again.table, c.table, sizeof c.table);
    }
}

/* The same bits each time, with another launch of the plan between. */
static void repeatable(void **state)
{
    (void)state;
    const char *text =
        chosen.pass == PASS_FORWARD
            ? "grid=2 size=23x31 window=7x7 shift=3x3 mask=shift "
              "bias=table_same pads=3 batch=2 dim=16"
            : "pass=backward grid=2 size=23x31 window=7x7 shift=3x3 "
              "mask=shift bias=table_same pads=3 batch=2 dim=16 d_lse=1 "
              "variant=cosine logit_scale=1";
    const test_case c = small_grid_case(text);
    case_result result;
    if (!case_repeats(&device, &c, 6, &result))
        fail_msg("check '%s'\n%s", text, result.failure);
}

/* Bytes of all kernels that were compiled so far. */
static size_t compiled_bytes(const winattn_programs *programs)
{
    size_t size = 0;
    winattn_programs_export(programs, 0, NULL, &size);
    return size;
}

/* A model that is given an image of another size compiles nothing. */
static void other_images(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "grid=2 size=30x45 window=7x7 shift=3x3 mask=shift bias=table_same "
        "pads=3 dim=16",
        "grid=2 size=17x150 window=7x7 shift=2x3 mask=shift bias=table_same "
        "pads=3 dim=16 batch=5 layout=packed",
        "grid=2 size=5x40 window=7x7 shift=3x1 mask=shift bias=table_same "
        "pads=1 dim=16 batch=2 layout=packed region_value=-inf"};
    winattn_plan *plans[3] = {NULL};
    winattn_programs *programs;
    size_t first = 0;
    assert_int_equal(
        winattn_programs_create(device.context, device.id, &programs),
        WINATTN_SUCCESS);
    const size_t none = compiled_bytes(programs);
    for (int i = 0; i < 3; i++) {
        const test_case c = small_grid_case(cases[i]);
        case_buffers *d = data_make(&c);
        assert_non_null(d);
        const winattn_desc desc = data_desc(d);
        assert_int_equal(
            winattn_plan_create(device.context, device.id, &desc, &plans[i]),
            WINATTN_SUCCESS);
        if (i == 0)
            first = compiled_bytes(programs);
        else if (compiled_bytes(programs) != first)
            fail_msg("compiled for '%s'", cases[i]);
        assert_true(first > none);
        data_free(d);
    }
    for (int i = 0; i < 3; i++)
        winattn_plan_destroy(plans[i]);
    winattn_programs_destroy(programs);
}

/* Launches of few work tiles or windows each, and partial sums in several
 * splits. */
static void pieces(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "grid=2 size=9x10 window=4x4 shift=2x1 mask=shift bias=table_same "
        "pads=3 batch=2 dim=8",
        "grid=2 size=9x10 window=4x4 shift=2x1 mask=shift bias=table_fp32 "
        "entries=9 padding=hidden dim=8 variant=cosine logit_scale=1"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned windows = 1; windows < 6; windows += 4) {
            const test_case c = small_grid_case(cases[i]);
            case_result result;
            cl_command_queue queue = windows == 1 || !device.unordered
                                         ? device.queue
                                         : device.unordered;
            const demanded_plan forward = {.work_tiles_per_launch = windows};
            const demanded_backward backward = {.windows = windows};
            const bool passed =
                chosen.pass == PASS_FORWARD
                    ? planned_run(&device, queue, &c, &forward, &result)
                    : planned_backward(&device, queue, &c, &backward, &result);
            if (!passed &&
                !(chosen.tier == WINATTN_TIER_MATRIX && result.refused))
                fail_msg("%s, %u to a launch: %s", cases[i], windows,
                         result.failure);
        }
}

/* Gradients of tables whose pairs are found by position, as they are where a
 * window is large: of one token, of one row, of a part of a window, of tables
 * for larger windows; and of several launches. */
static void found_pairs(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "grid=2 size=6x3 window=1x1 bias=table_same pads=3 dim=4",
        "grid=1 size=9 window=5 bias=table_fp32 pads=3 dim=4",
        "grid=2 size=7x5 window=4x1 bias=table_same pads=3 dim=4",
        "grid=2 size=9x10 window=4x4 shift=2x1 mask=shift bias=table_fp32 "
        "pads=3 batch=2 dim=4",
        "grid=3 size=5x6x7 window=2x3x4 bias=table_same pads=3 dim=4",
        "grid=3 size=5x9x7 window=2x4x3 table=4x6x3 bias=table_fp32 pads=3 "
        "dim=4",
        "grid=3 size=5x9x7 window=2x4x3 table=4x4x5 sliced=1 bias=table_same "
        "pads=3 dim=4",
        "windows=5 queries=20 keys=31 table=6x6 sliced=1 bias=table_fp32 "
        "dim=4",
        "windows=3 queries=31 keys=2 table=3x4x3 sliced=1 bias=table_fp32 "
        "dim=4",
        "windows=2 heads=4 queries=384 keys=384 table=16x24 bias=table_same "
        "dim=4",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned windows = 0; windows < 2; windows++) {
            const demanded_backward demand = {.windows = windows,
                                              .finds_pairs = true};
            const test_case c = grid_case(cases[i]);
            case_result result;
            if (!planned_backward(&device, device.queue, &c, &demand, &result))
                fail_msg("%s, %u: %s", cases[i], windows, result.failure);
        }
}

static const struct CMUnitTest fixed_tests[] = {
    cmocka_unit_test(text_form), cmocka_unit_test(run_table),
    cmocka_unit_test(repeatable), cmocka_unit_test(pieces),
    cmocka_unit_test(other_images)};
static const struct CMUnitTest random_tests[] = {cmocka_unit_test(run_random)};
static const struct CMUnitTest row_tests[] = {cmocka_unit_test(run_table)};
static const struct CMUnitTest table_tests[] = {cmocka_unit_test(found_pairs)};

static const test_group groups[] = {
    TEST_GROUP("random", random_tests), TEST_GROUP("rows", row_tests),
    TEST_GROUP("tables", table_tests), TEST_GROUP(NULL, fixed_tests)};

int main(int count, char **arguments)
{
    const test_program program = {
        .words = {WORD_PASS, WORD_TIER, WORD_PART, WORD_FIRST, WORD_COUNT},
        .part = "fixed",
        TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
