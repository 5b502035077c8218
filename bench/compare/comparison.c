/* SPDX-License-Identifier: Apache-2.0
 * Runs a comparison: each device, each unit of the schedule. */
#include "compare/comparison.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command/schedule.h"
#include "compare/unfused.h"
#include "report/table.h"

/* What is assumed of a kernel before the device has shown something. */
#define FIRST_GUESS 0.03
/* Rows are left out only in a run that has taken so much longer than it
 * should, as a fraction and in seconds: the machine is busy with other work.
 * Those of cases that were asked for by name are never. */
#define MOST_OVERTIME 0.5
#define LEAST_OVERTIME 90.0

typedef struct run_state {
    const options *o;
    const bench_screen *screen;
    report *r;
    schedule plan; /* of the present device */
    double start;
    double device_end; /* when the present device's part is over */
    size_t devices_later;
} run_state;

typedef struct device_state {
    bench_device device;
    char name[256]; /* "platform / device" */
    size_t index;   /* in the report */
    double efficiency[BENCH_PASSES];
    bool taught[BENCH_PASSES]; /* efficiency is no longer a guess */
} device_state;

/* What a row leaves to its comparisons. */
typedef struct measured_row {
    const bench_case *whole;
    bench_case b; /* as it was measured */
    bench_pass pass;
    report_row *row;
} measured_row;

/* ---- Time ---- */

static double seconds_left(const run_state *run)
{
    return run->o->seconds - (now_seconds() - run->start);
}

/* What timed calls of the present unit may take; negative: leave it out. What
 * the present device does not need, the next one gets. */
static double timed_share(const run_state *run)
{
    const options *o = run->o;
    const double left = run->device_end - now_seconds();
    const double timed = schedule_timed(&run->plan, left);
    const double most = fmax(MOST_OVERTIME * o->seconds, LEAST_OVERTIME);
    if (o->shrinks && !o->names_cases && seconds_left(run) < -most)
        return -1;
    return o->shrinks ? timed : fmax(timed, SCHEDULE_LEAST);
}

/* The present unit, which began at `start`, is over. */
static void finish(run_state *run, double start, double timed)
{
    schedule_finish(&run->plan, fmax(now_seconds() - start - timed, 0));
}

/* The present unit was left out, or cost nothing. */
static void skip(run_state *run) { schedule_finish(&run->plan, -1); }

static void progress(const run_state *run, const char *name, const char *what)
{
    if (!run->screen->terminal)
        return;
    fprintf(run->screen->error,
            "\r%-28.28s %-14.14s %3zu to go, about %3.0f s \r", name, what,
            run->plan.count - run->plan.next +
                run->plan.count * run->devices_later,
            fmax(seconds_left(run), 0));
    fflush(run->screen->error);
}

static void clear_progress(const run_state *run)
{
    if (run->screen->terminal)
        fprintf(run->screen->error, "\r%76s\r", "");
}

/* ---- One row ---- */

static void write_command(const device_state *d, const test_case *c,
                          report_row *row)
{
    const char *words[] = {"winattn-bench", "--device",
                           d->name,         "--whole",
                           "--pass",        row->pass,
                           "--dtype",       row->dtype,
                           "--tier",        option_tiers[c->tier],
                           "--case",        row->text};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        report_add_word(row, words[i]);
    if (d->device.regime != REGIME_BATCHES) {
        report_add_word(row, "--regime");
        report_add_word(row, bench_regimes[d->device.regime]);
    }
}

/* Shrinks to the time that there is, and measures. Types after the first keep
 * its shape unless they are far slower. */
static void measure(const run_state *run, device_state *d, bool is_first,
                    double timed, measured_row *m)
{
    report_row *row = m->row;
    const double efficiency = d->efficiency[m->pass];
    if (run->o->shrinks)
        row_shrink(&d->device, m->pass, efficiency,
                   is_first ? timed : 3 * timed, m->whole, &m->b);
    const size_t device = row->device;
    memset(row, 0, sizeof *row);
    row->device = device;
    row_measure(&d->device, &m->b.c, m->pass, timed, efficiency, row);
    snprintf(row->name, sizeof row->name, "%s", m->b.name);
}

static void leave_out(const bench_case *b, bench_pass pass, report_row *row)
{
    snprintf(row->name, sizeof row->name, "%s", b->name);
    row_describe(&b->c, pass, row);
    row->outcome = REPORT_NO_TIME;
    snprintf(row->failure, sizeof row->failure, REPORT_NO_TIME_NOTE);
}

static void learn(device_state *d, const report *r, bench_pass pass,
                  const report_row *row)
{
    const double seen = report_of_ceiling(r, row);
    double *efficiency = &d->efficiency[pass];
    if (row->seconds > 0)
        *efficiency =
            fmax(d->taught[pass] ? 0.5 * (seen + *efficiency) : seen, 1e-4);
    d->taught[pass] = d->taught[pass] || row->seconds > 0;
}

/* Are both as large, or shrunk to other numbers of windows, images or heads,
 * of which an unfused time is a multiple? Of tokens it is none. */
static bool is_comparable(const report_row *a, const report_row *b)
{
    return strcmp(a->name, b->name) == 0 ||
           (!strstr(a->name, ":t") && !strstr(b->name, ":t"));
}

/* Another type's row of the same case, whose unfused products were timed. */
static const report_row *find_compared(const report *r, const report_row *row)
{
    for (size_t i = 0; i < r->row_count; i++) {
        const report_row *other = &r->rows[i];
        if (other != row && other->device == row->device &&
            strcmp(other->whole, row->whole) == 0 &&
            strcmp(other->pass, row->pass) == 0 && is_comparable(other, row) &&
            (other->unfused > 0 || other->unfused_note[0]))
            return other;
    }
    return NULL;
}

/* What a library that knows windows only computes of a case on a grid: as many
 * windows, with bias and regions expanded. */
static test_case case_on_windows(const test_case *c)
{
    test_case neat = *c;
    neat.grid = neat.padding = neat.pads = neat.sliced = 0;
    neat.layout = LAYOUT_CONTIGUOUS;
    memset(neat.table, 0, sizeof neat.table);
    if (c->bias == TERM_TABLE_SAME)
        neat.bias = TERM_SAME;
    if (c->bias == TERM_TABLE_FP32)
        neat.bias = TERM_FP32;
    if (c->mask == TERM_SHIFT) {
        neat.mask = TERM_REGIONS;
        neat.mask_windows = c->windows / c->batch;
    }
    return neat;
}

/* On grids kernels that partition and reverse move the tokens once more. */
static void set_unfused(report_row *row, double products, double part,
                        double error, const char note[160])
{
    row->unfused = products > 0 ? products + row->moves : 0;
    row->unfused_part = part;
    row->unfused_error = error;
    memcpy(row->unfused_note, note, sizeof row->unfused_note);
}

/* The products are the same for all types: a row takes the time that another
 * type's has. */
static void take_compared(const report *r, report_row *row)
{
    const report_row *other = find_compared(r, row);
    if (!(row->seconds > 0) || !other)
        return;
    const double times = row->operations / other->operations;
    set_unfused(row, times * (other->unfused - other->moves),
                fmin(other->unfused_part / times, 1), other->unfused_error,
                other->unfused_note);
}

static void compare(run_state *run, device_state *d, measured_row *m)
{
    report_row *row = m->row;
    const test_case windows = m->b.c.grid ? case_on_windows(&m->b.c) : m->b.c;
    const double timed = timed_share(run), start = now_seconds();
    unfused_result result;
    if (!(row->seconds > 0)) {
        skip(run);
        return;
    }
    if (timed < 0) {
        snprintf(row->unfused_note, sizeof row->unfused_note,
                 REPORT_NO_TIME_NOTE);
        skip(run);
        return;
    }
    progress(run, m->b.name, "unfused");
    unfused_measure(&d->device, &windows, m->pass, timed, &result);
    set_unfused(row, result.seconds, result.part, result.error, result.note);
    finish(run, start, timed);
}

/* ---- The run ---- */

/* Measures a row of which device, name and command are still missing. */
static void bench_row(run_state *run, device_state *d, bool is_first,
                      measured_row *m)
{
    char what[32];
    report_row *row = m->row;
    const bench_pass pass = m->pass;
    const test_case shape = m->b.c;
    const double start = now_seconds();
    const double timed = timed_share(run);
    snprintf(what, sizeof what, "%s %s", option_passes[pass],
             option_dtypes[shape.dtype]);
    progress(run, m->b.name, what);
    const bool guessed = !d->taught[pass];
    if (timed < 0)
        leave_out(&m->b, pass, row);
    else
        measure(run, d, is_first, timed, m);
    learn(d, run->r, pass, row);
    /* a guess may have shrunk it too far */
    if (guessed && d->taught[pass] && run->o->shrinks &&
        strcmp(m->b.name, m->whole->name) != 0) {
        m->b = *m->whole;
        m->b.c.dtype = shape.dtype;
        m->b.c.tier = shape.tier;
        m->b.c.tf32 = shape.tf32;
        measure(run, d, true, timed, m);
    }
    test_case common = m->whole->c;
    common.dtype = WINATTN_FP32;
    common.tier = WINATTN_TIER_AUTO;
    common.tf32 = 0;
    case_print(&common, row->whole, sizeof row->whole);
    write_command(d, &m->b.c, row);
    if (timed < 0)
        skip(run);
    else
        finish(run, start, timed);
}

/* Rows that a device cannot have stand in one line at the end, unless they
 * were asked for by name. */
static void print_row(const run_state *run, const report_row *row)
{
    FILE *out = run->screen->out;
    clear_progress(run);
    if (row->outcome == REPORT_MEASURED || row->outcome == REPORT_FAILED ||
        run->o->names_cases)
        table_print_row(out, run->r, row);
    if (run->o->replay)
        fprintf(out, "    %s\n", row->command);
}

/* A unit that is a row, and those that belong to it. */
static bool bench_unit(run_state *run, device_state *d, bool is_first,
                       measured_row *m)
{
    const options *o = run->o;
    const schedule_unit unit = *schedule_next(&run->plan, UNIT_ROW);
    m->row = report_add_row(run->r);
    if (!m->row)
        return false;
    m->row->device = d->index;
    m->b.c.dtype = unit.dtype;
    m->b.c.tier = options_tier(o, m->whole);
    m->b.c.tf32 = options_tf32(o, m->whole, unit.dtype);
    bench_row(run, d, is_first, m);
    if (m->b.c.grid) /* read and written, as fast as the device copies */
        m->row->moves = 2 * m->row->bytes / d->device.copy_bandwidth;
    if (schedule_next(&run->plan, UNIT_UNFUSED))
        compare(run, d, m);
    else
        take_compared(run->r, m->row);
    print_row(run, m->row);
    return true;
}

static bool bench_device_of(run_state *run, device_state *d)
{
    const schedule_unit *unit;
    measured_row m;
    bool good = true;
    memset(&m, 0, sizeof m);
    table_print_heading(run->screen->out);
    while (good && (unit = schedule_next(&run->plan, UNIT_ROW))) {
        const bench_case *whole = &run->o->cases.all[unit->number];
        const bool is_first = whole != m.whole || unit->pass != m.pass;
        if (is_first)
            m.b = *whole;
        m.whole = whole;
        m.pass = unit->pass;
        good = bench_unit(run, d, is_first, &m);
    }
    return good;
}

/* A machine that was busy at first, or became it, has lower ceilings than it
 * should: the larger of two measurements counts. */
static void measure_again(const run_state *run, device_state *d)
{
    bench_device *device = &d->device;
    report_device *entry = &run->r->devices[d->index];
    const double copy = entry->copy_bandwidth, fma = entry->fma_rate;
    progress(run, d->name, "ceilings");
    measure_ceilings(device);
    clear_progress(run);
    entry->copy_bandwidth = fmax(copy, device->copy_bandwidth);
    entry->fma_rate = fmax(fma, device->fma_rate);
    if (entry->copy_bandwidth > 1.05 * copy || entry->fma_rate > 1.05 * fma)
        table_print_line(run->screen->out,
                         "  ceilings again: copy %.1f GB/s, multiply-add %.1f "
                         "GFLOP/s; the larger ones count",
                         device->copy_bandwidth * 1e-9,
                         device->fma_rate * 1e-9);
}

/* Writes down what the device is, before anything is measured. */
static bool open_device(run_state *run, cl_device_id id, const char *name,
                        device_state *d)
{
    report_device *entry = report_add_device(run->r);
    memset(d, 0, sizeof *d);
    if (!entry)
        return false;
    const bool opened = bench_device_open(id, &d->device);
    d->device.regime = run->o->regime;
    snprintf(entry->regime, sizeof entry->regime, "%s",
             bench_regimes[run->o->regime]);
    snprintf(d->name, sizeof d->name, "%.255s", name);
    d->index = run->r->device_count - 1;
    for (bench_pass pass = 0; pass < BENCH_PASSES; pass++)
        d->efficiency[pass] = FIRST_GUESS;
    snprintf(entry->platform, sizeof entry->platform, "%s",
             d->device.platform);
    snprintf(entry->name, sizeof entry->name, "%s", d->device.name);
    snprintf(entry->driver, sizeof entry->driver, "%s", d->device.driver);
    snprintf(entry->version, sizeof entry->version, "%s", report_version);
    snprintf(entry->commit, sizeof entry->commit, "%s", report_commit);
    report_date(entry->date);
    return opened;
}

static bool open_and_bench(run_state *run, cl_device_id id, const char *name)
{
    device_state d;
    progress(run, name, "ceilings");
    bool usable = open_device(run, id, name, &d);
    report_device *entry = &run->r->devices[d.index];
    if (usable) {
        measure_ceilings(&d.device);
        entry->copy_bandwidth = d.device.copy_bandwidth;
        entry->fma_rate = d.device.fma_rate;
        usable = entry->copy_bandwidth > 0 && entry->fma_rate > 0;
    }
    clear_progress(run);
    table_print_device(run->screen->out, run->r, d.index);
    if (usable) {
        usable = bench_device_of(run, &d);
        measure_again(run, &d);
    } else {
        table_print_line(run->screen->out,
                         "  skipped: its ceilings could not be measured");
    }
    unfused_forget();
    bench_device_close(&d.device);
    return usable;
}

/* What is there, and what is to come. */
static void announce(const run_state *run, char (*names)[256], size_t count)
{
    const options *o = run->o;
    FILE *out = run->screen->out;
    const size_t rows = schedule_rows(&run->plan);
    char time[64] = "as long as it takes: nothing is shrunk";
    if (o->shrinks)
        snprintf(time, sizeof time, "about %.0f s in all", o->seconds);
    table_print_line(
        out,
        "winattn-bench %s%s%s: %zu device%s, %zu case%s, %zu row%s "
        "on each, %s",
        report_version, report_commit[0] ? " " : "", report_commit, count,
        count == 1 ? "" : "s", o->cases.count, o->cases.count == 1 ? "" : "s",
        rows, rows == 1 ? "" : "s", time);
    for (size_t i = 0; i < count; i++)
        table_print_line(out, "  [%zu] %s", i + 1, names[i]);
    if (o->unfused && !unfused_possible())
        table_print_line(out,
                         "built without CLBlast (Debian: libclblast-dev): "
                         "nothing unfused to compare with");
    table_print_line(out, "Column `unfused`: times as fast as that. "
                          "bench/README.md says what all columns mean.");
    fflush(out);
}

bool comparison_run(const options *o, const bench_screen *screen,
                    const cl_device_id *ids, char (*names)[256], size_t count,
                    report *r)
{
    run_state run = {.o = o, .screen = screen, .r = r, .start = now_seconds()};
    bool good = schedule_make(o, unfused_possible(), &run.plan);
    if (!good)
        return false;
    announce(&run, names, count);
    for (size_t i = 0; i < count; i++) {
        const double left = fmax(seconds_left(&run), 0);
        run.device_end = now_seconds() + left / (double)(count - i);
        run.devices_later = count - i - 1;
        schedule_restart(&run.plan);
        good = open_and_bench(&run, ids[i], names[i]) && good;
    }
    schedule_free(&run.plan);
    return good;
}
