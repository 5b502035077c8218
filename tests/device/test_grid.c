/* SPDX-License-Identifier: Apache-2.0
 * Tokens on a grid: the same bits each time, launches of any size, other
 * images, tables whose pairs are found by position. A failure prints the case;
 * `check 'CASE'` replays it.
 *
 *   test_grid forward|backward TIER
 *   test_grid backward TIER tables                pairs found by position */
#include "kit/planned.h"
#include "kit/runner.h"

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
    cmocka_unit_test(repeatable), cmocka_unit_test(pieces),
    cmocka_unit_test(other_images)};
static const struct CMUnitTest table_tests[] = {cmocka_unit_test(found_pairs)};

static const test_group groups[] = {TEST_GROUP("tables", table_tests),
                                    TEST_GROUP(NULL, fixed_tests)};

int main(int count, char **arguments)
{
    const test_program program = {.words = {WORD_PASS, WORD_TIER, WORD_PART},
                                  .part = "fixed",
                                  TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
