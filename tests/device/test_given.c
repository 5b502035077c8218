/* SPDX-License-Identifier: Apache-2.0
 * What o and lse of the forward pass may cost a backward pass that is given
 * them. A failure prints the case; `check 'CASE'` replays it.
 *
 *   test_given TIER */
#include <stdio.h>

#include "kit/runner.h"

/* Deltas from a stored o are far off, as v has a mean; and few keys have a
 * row's weights, so that all of it shows in dQ; or k has a mean, so that what
 * rounding leaves of a row of dS shows. */
static const struct {
    const char *text;
    int dtype, seed;
} given_table[] = {
    {"data=steep windows=8 heads=2 queries=144 bias=fp32", WINATTN_FP16, 1},
    {"data=steep windows=8 heads=2 queries=144 bias=fp32", WINATTN_BF16, 3},
    {"data=steep windows=1 heads=1 queries=576", WINATTN_BF16, 1},
    {"data=common windows=8 heads=2 queries=49 bias=same", WINATTN_BF16, 4},
    {"data=common windows=8 heads=1 queries=144 d_lse=1", WINATTN_BF16, 5},
    {"data=common windows=2 heads=1 queries=200", WINATTN_BF16, 6},
    {"data=steep variant=sliding windows=1 heads=1 queries=256 dim=64 "
     "block=64 window_blocks=2",
     WINATTN_BF16, 2},
};

/* Of dQ, dK and dV; see case_run. */
static double error_given(const char *text, int dtype, int seed, int given)
{
    char line[512];
    case_result result;
    test_case c = parsed(text);
    c.pass = PASS_BACKWARD;
    c.tier = chosen.tier;
    c.dtype = dtype;
    c.seed = seed;
    c.given = given;
    c.outputs = 7;
    if (!case_run(&device, device.queue, &c, 0, &result)) {
        case_print(&c, line, sizeof line);
        fail_msg("%s\n%s", line, result.failure);
    }
    return result.o_error;
}

/* Errors with o and lse given are at most twice those without. */
static void run_given(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof given_table / sizeof *given_table; i++) {
        const char *text = given_table[i].text;
        const int dtype = given_table[i].dtype, seed = given_table[i].seed;
        const double own = error_given(text, dtype, seed, 0);
        for (int given = 1; given <= 2; given++) {
            const double error = error_given(text, dtype, seed, given);
            char line[512];
            snprintf(line, sizeof line,
                     "%s dtype=%d seed=%d given=%d: %.3f of the allowed, "
                     "%.3f without",
                     text, dtype, seed, given, error, own);
            announce("%s\n", line);
            if (error > 2 * own)
                fail_msg("%s", line);
        }
    }
}

int main(int count, char **arguments)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(run_given)};
    static const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {.words = {WORD_TIER}, TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
