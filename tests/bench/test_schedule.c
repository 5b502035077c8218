/* SPDX-License-Identifier: Apache-2.0
 * How a run of the bench shares its time: simulated devices on which units
 * take what they take. */

#include "command/schedule.h"
#include "kit/asserts.h"

typedef struct outcome {
    size_t rows, comparisons, left_out;
    double end, first_share, last_share; /* of rows */
    bool compared[UNIT_KINDS][3][BENCH_PASSES];
} outcome;

static size_t kind_of(const test_case *c)
{
    return c->grid ? 0 : c->variant == WINATTN_SLIDING ? 1 : 2;
}

/* A device on which each unit takes `overhead` besides its timed calls, and
 * the first unfused one `build` more. */
static outcome simulate(const options *o, schedule *s, double seconds,
                        double overhead, double build)
{
    outcome out = {.first_share = -1};
    double now = 0;
    schedule_restart(s);
    while (s->next < s->count) {
        const schedule_unit unit = s->units[s->next];
        const double timed = schedule_timed(s, seconds - now);
        if (timed < 0) {
            assert_false(unit.must);
            out.left_out++;
            schedule_finish(s, -1);
            continue;
        }
        assert_in_range((int)(1000 * timed), 1000 * SCHEDULE_LEAST,
                        1000 * SCHEDULE_MOST);
        double took = overhead;
        if (unit.kind == UNIT_UNFUSED && build > 0) {
            took += build;
            build = 0;
        }
        now += took + timed;
        schedule_finish(s, took);
        out.compared[unit.kind][kind_of(&o->cases.all[unit.number].c)]
                    [unit.pass] = true;
        if (unit.kind != UNIT_ROW) {
            out.comparisons++;
            continue;
        }
        out.rows++;
        out.last_share = timed;
        if (out.first_share < 0)
            out.first_share = timed;
    }
    out.end = now;
    return out;
}

static void start(options *o, schedule *s)
{
    char *words[] = {"winattn-bench"};
    assert_int_equal(options_read(1, words, o), OPTIONS_GOOD);
    assert_true(schedule_make(o, true, s));
}

/* Each kind of attention is timed, and compared, in each pass. */
static void assert_all_kinds(const outcome *out)
{
    for (size_t kind = 0; kind < 3; kind++)
        for (bench_pass pass = 0; pass < BENCH_BOTH; pass++) {
            assert_true(out->compared[UNIT_ROW][kind][pass]);
            assert_true(out->compared[UNIT_UNFUSED][kind][pass]);
        }
}

/* Fast or slow, with or without time: all rows are measured. */
static void test_every_row(void **state)
{
    static const double overheads[] = {0.01, 0.5, 1.5, 3, 10};
    static const double budgets[] = {5, 40, 80, 160};
    options o;
    schedule s;
    (void)state;
    start(&o, &s);
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 4; j++) {
            const outcome out = simulate(&o, &s, budgets[j], overheads[i], 10);
            assert_int_equal(out.rows, schedule_rows(&s));
            assert_all_kinds(&out);
        }
    schedule_free(&s);
    options_free(&o);
}

/* Where there is time, nothing is left out, it is not exceeded, and the last
 * row gets as much as the first. */
static void test_spread(void **state)
{
    options o;
    schedule s;
    (void)state;
    start(&o, &s);
    const outcome out = simulate(&o, &s, 160, 0.5, 10);
    assert_int_equal(out.left_out, 0);
    assert_true(out.end <= 160);
    assert_true(out.end >= 100);
    assert_true(out.last_share >= 0.5 * out.first_share);
    /* a fast device does not wait */
    const outcome fast = simulate(&o, &s, 1000, 0.01, 0);
    assert_int_equal(fast.left_out, 0);
    assert_true(fast.end < 200);
    schedule_free(&s);
    options_free(&o);
}

/* Where it is short, comparisons go first, and the end is near what was
 * asked for as long as the rows allow it. */
static void test_shortage(void **state)
{
    options o;
    schedule s;
    (void)state;
    start(&o, &s);
    const outcome out = simulate(&o, &s, 80, 1.5, 10);
    assert_true(out.left_out > 0);
    assert_int_equal(out.rows, schedule_rows(&s));
    assert_true(out.end < 80 * 1.25);
    assert_true(out.end > 60);
    /* early comparisons do not take what later rows need */
    const outcome slow = simulate(&o, &s, 130, 2.5, 10);
    assert_true(slow.left_out > 0);
    assert_true(slow.end < 130 * 1.1);
    const outcome more = simulate(&o, &s, 160, 1.5, 10);
    assert_true(more.comparisons > out.comparisons);
    schedule_free(&s);
    options_free(&o);
}

/* What a command line asks for is what is done. */
static void test_choices(void **state)
{
    static const struct {
        const char *words[6];
        size_t rows, units; /* with comparisons */
    } lines[] = {
        {{"winattn-bench", "--case", "windows=3"}, 3, 3 + 1},
        {{"winattn-bench", "--case", "windows=3", "--no-unfused"}, 3, 3},
        {{"winattn-bench", "--case", "grid=1 size=9 window=4", "--dtype",
          "fp32"},
         1,
         1 + 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        options o;
        schedule s;
        int count = 0;
        while (count < 6 && lines[i].words[count])
            count++;
        assert_int_equal(
            options_read(count, (char **)(size_t)lines[i].words, &o),
            OPTIONS_GOOD);
        assert_true(schedule_make(&o, true, &s));
        assert_int_equal(schedule_rows(&s), lines[i].rows);
        assert_int_equal(s.count, lines[i].units);
        assert_non_null(schedule_next(&s, UNIT_ROW));
        assert_null(schedule_next(&s, UNIT_UNFUSED));
        schedule_free(&s);
        options_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_shortage),
        cmocka_unit_test(test_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
