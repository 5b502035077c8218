/* SPDX-License-Identifier: Apache-2.0
 * What the tuner says of its winner. */
#include <string.h>

#include "kit/asserts.h"
#include "tune/verdict.h"

static char said[2048];

/* Times are in microseconds. */
static bool report(double gain, const double with_row[VERDICT_TURNS],
                   const double without[VERDICT_TURNS])
{
    const bench_device device = {.name = "a device", .driver = "1.2"};
    const verdict_job j = {.device = &device, .gain = gain, .what = "a case"};
    verdict_times times;
    FILE *to = tmpfile();
    assert_non_null(to);
    for (int i = 0; i < VERDICT_TURNS; i++) {
        times.with_row[i] = with_row[i] * 1e-6;
        times.without[i] = without[i] * 1e-6;
    }
    const bool good = verdict_report(to, &j, &times, "the row");
    rewind(to);
    said[fread(said, 1, sizeof said - 1, to)] = 0;
    fclose(to);
    return good;
}

static const double quiet[] = {100, 101, 99, 100, 102};
static const double faster[] = {80, 79, 81, 80, 80};
static const double busy[] = {100, 260, 90, 101, 700};

static void what_wins_is_a_row(void **state)
{
    (void)state;
    assert_true(report(0.03, faster, quiet));
    assert_non_null(strstr(said, "80.0 us, plan's own choice 100.0 us (1.25x)"
                                 ": a row\n# a device, driver 1.2, winattn "));
    assert_non_null(strstr(said, ": a case: 80.0 us instead of 100.0\n"
                                 "the row\n"));
    assert_null(strstr(said, "differed"));
}

static void no_row_says_what_it_takes(void **state)
{
    (void)state;
    assert_true(report(0.03, quiet, quiet));
    assert_non_null(
        strstr(said, "(1.00x): no row, which takes 3% (--gain)\n"));
    assert_null(strstr(said, "the row"));
    assert_null(strstr(said, "differed"));
}

static void times_of_a_busy_machine_are_said_to_be(void **state)
{
    (void)state;
    assert_true(report(0.03, faster, busy));
    assert_non_null(strstr(said, "differed by 604%"));
    assert_non_null(strstr(said, "when it is idle"));
    assert_true(report(0.03, busy, quiet));
    assert_non_null(strstr(said, "differed by 604%"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_wins_is_a_row),
        cmocka_unit_test(no_row_says_what_it_takes),
        cmocka_unit_test(times_of_a_busy_machine_are_said_to_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
