/* SPDX-License-Identifier: Apache-2.0
 * Runs a comparison: each device, each row, in the time that there is. */
#include "compare/comparison.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/chain.h"
#include "compare/row.h"
#include "compare/startup.h"
#include "compare/unfused.h"
#include "measure/process.h"
#include "report/table.h"

/* What is assumed of a kernel before the device has shown something. */
#define FIRST_GUESS 0.03
/* Seconds that timed calls get at most and at least. */
#define MOST_TIMED 2.0
#define LEAST_TIMED 0.15
/* What is assumed of the time for builds, data and checks. */
#define FIRST_OVERHEAD 0.5

/* A unit of work is a row, a comparison with unfused kernels or with a chain,
 * or the starts of a row. */
typedef struct run_state {
    const options *o;
    report *r;
    char program[1024];
    double start;
    double device_end;             /* when the present device's part is over */
    size_t units_done, units_left; /* of the present device */
    size_t units_later;            /* of those to come */
    bool shows_progress;
} run_state;

typedef struct device_state {
    bench_device device;
    char name[256]; /* "platform / device" */
    size_t index;   /* in the report */
    double efficiency[BENCH_PASSES];
    bool taught[BENCH_PASSES]; /* efficiency is no longer a guess */
    /* seconds of a row and of comparisons that were not timed calls */
    double row_overhead, unfused_overhead, chain_overhead;
} device_state;

/* ---- Time ---- */

static double seconds_left(const run_state *run)
{
    return run->o->seconds - (now_seconds() - run->start);
}

/* Of the present device's time; what it does not need the next one gets. */
static double device_left(const run_state *run)
{
    return run->device_end - now_seconds();
}

/* A machine that is busy with other work gets little done. Gradients that
 * nobody asked for do not take the time of the next device. */
static bool time_is_over(const run_state *run, bench_pass pass)
{
    const options *o = run->o;
    const bool extra = pass != BENCH_FORWARD && !o->any_pass;
    return o->shrinks && (seconds_left(run) < -0.1 * o->seconds ||
                          (extra && device_left(run) <= 0));
}

static double share_of(const run_state *run)
{
    const double units = run->units_left > 0 ? (double)run->units_left : 1;
    return fmax(device_left(run) / units, 0);
}

/* What timed calls of a unit may take that needs `overhead` besides. */
static double timed_share(const run_state *run, double overhead)
{
    return fmax(fmin(share_of(run) - overhead, MOST_TIMED), LEAST_TIMED);
}

/* `overhead` follows what is seen. */
static void follow(double *overhead, double start, double timed)
{
    const double seen = fmax(now_seconds() - start - timed, 0);
    *overhead = 0.5 * (*overhead + seen);
}

static void progress(const run_state *run, const char *name, const char *what)
{
    if (!run->shows_progress)
        return;
    const double passed = now_seconds() - run->start;
    const size_t units = run->units_left + run->units_later;
    double left = fmax(seconds_left(run), 0);
    if (run->units_done > 0)
        left = fmin(left, passed / (double)run->units_done * (double)units);
    fprintf(stderr, "\r%-28.28s %-14.14s %3zu to go, about %3.0f s \r", name,
            what, units, left);
    fflush(stderr);
}

static void clear_progress(const run_state *run)
{
    if (run->shows_progress)
        fprintf(stderr, "\r%76s\r", "");
}

static void finish_unit(run_state *run)
{
    run->units_done++;
    if (run->units_left > 0)
        run->units_left--;
}

static size_t units_of_pass(const options *o, size_t number, bench_pass pass)
{
    size_t rows = 0, starts = 0;
    for (int dtype = 0; dtype < 3; dtype++)
        rows += options_take_row(o, &o->cases.all[number], pass, dtype);
    if (pass == BENCH_FORWARD && rows > 0)
        starts = o->startup == STARTUP_ALL                    ? rows
                 : o->startup == STARTUP_FIRST && number == 0 ? 1
                                                              : 0;
    /* grids are compared with the chain, in each type */
    const size_t compared = o->cases.all[number].c.grid
                                ? (o->chain ? rows : 0)
                                : rows > 0 && o->unfused;
    return rows + compared + starts;
}

static size_t units_of_device(const options *o)
{
    size_t units = 0;
    for (bench_pass pass = 0; pass < BENCH_PASSES; pass++)
        for (size_t i = 0; i < o->cases.count; i++)
            units += units_of_pass(o, i, pass);
    return units;
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
        process_append_word(row->command, sizeof row->command, words[i]);
}

/* Shrinks to the time that there is, and measures. Types after the first keep
 * its shape unless they are far slower. */
static void measure(const run_state *run, device_state *d,
                    const bench_case *whole, bench_pass pass, bool is_first,
                    bench_case *b, report_row *row)
{
    const double efficiency = d->efficiency[pass];
    const double start = now_seconds();
    const double timed = timed_share(run, d->row_overhead);
    if (run->o->shrinks)
        row_shrink(&d->device, pass, efficiency, is_first ? timed : 3 * timed,
                   whole, b);
    const size_t device = row->device;
    memset(row, 0, sizeof *row);
    row->device = device;
    row_measure(&d->device, &b->c, pass, timed, efficiency, row);
    follow(&d->row_overhead, start, timed);
    snprintf(row->name, sizeof row->name, "%s", b->name);
}

static void leave_out(const bench_case *b, bench_pass pass, report_row *row)
{
    snprintf(row->name, sizeof row->name, "%s", b->name);
    row_describe(&b->c, pass, row);
    snprintf(row->failure, sizeof row->failure, "no time was left");
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

/* The products are the same for all types, and so is a time that another row
 * of the same shape has. */
static void compare(run_state *run, device_state *d, const bench_case *b,
                    bench_pass pass, report_row *row)
{
    const report *r = run->r;
    unfused_result result;
    for (size_t i = 0; i + 1 < r->row_count; i++) {
        const report_row *other = &r->rows[i];
        if (other->device == d->index && strcmp(other->name, row->name) == 0 &&
            strcmp(other->whole, row->whole) == 0 &&
            strcmp(other->pass, row->pass) == 0 &&
            (other->unfused > 0 || other->unfused_note[0])) {
            row->unfused = other->unfused;
            row->unfused_part = other->unfused_part;
            row->unfused_error = other->unfused_error;
            memcpy(row->unfused_note, other->unfused_note,
                   sizeof row->unfused_note);
            return;
        }
    }
    if (device_left(run) > 0 || !run->o->shrinks) {
        progress(run, b->name, "unfused");
        const double start = now_seconds();
        const double timed = timed_share(run, d->unfused_overhead);
        unfused_measure(&d->device, &b->c, pass, timed, &result);
        follow(&d->unfused_overhead, start, timed);
        row->unfused = result.seconds;
        row->unfused_part = result.part;
        row->unfused_error = result.error;
        memcpy(row->unfused_note, result.note, sizeof row->unfused_note);
    } else {
        snprintf(row->unfused_note, sizeof row->unfused_note,
                 "no time was left");
    }
    finish_unit(run);
}

/* As many buffers in turn as the row had. */
static void compare_chain(run_state *run, device_state *d, const bench_case *b,
                          bench_pass pass, report_row *row)
{
    if (device_left(run) > 0 || !run->o->shrinks) {
        chain_result result;
        progress(run, b->name, "chain");
        const double start = now_seconds();
        const double timed = timed_share(run, d->chain_overhead);
        chain_measure(
            &d->device, &b->c, pass,
            row_calls(&d->device, &b->c, pass, timed, d->efficiency[pass]),
            timed, &result);
        follow(&d->chain_overhead, start, timed);
        row->chain = result.seconds;
        row->chain_error = result.error;
        memcpy(row->chain_note, result.note, sizeof row->chain_note);
    } else {
        snprintf(row->chain_note, sizeof row->chain_note, "no time was left");
    }
    finish_unit(run);
}

static void time_starts(run_state *run, const device_state *d,
                        const bench_case *b, report_row *row)
{
    double most = fmin(fmax(6 * share_of(run), 20), device_left(run) / 2);
    if (!run->o->shrinks)
        most = 180;
    progress(run, b->name, "first result");
    if (most > 1 && !startup_measure(run->program, d->name, &b->c, most,
                                     &row->cold, &row->warm))
        row->cold = row->warm = 0;
    finish_unit(run);
}

/* ---- The run ---- */

/* Measures a row of which device, name and command are still missing. */
static void bench_row(run_state *run, device_state *d, const bench_case *whole,
                      bench_pass pass, bool is_first, bench_case *b,
                      report_row *row)
{
    char what[32];
    const int dtype = b->c.dtype, tier = b->c.tier, tf32 = b->c.tf32;
    snprintf(what, sizeof what, "%s %s", option_passes[pass],
             option_dtypes[dtype]);
    progress(run, b->name, what);
    if (time_is_over(run, pass))
        leave_out(b, pass, row);
    else
        measure(run, d, whole, pass, is_first, b, row);
    const bool guessed = !d->taught[pass];
    learn(d, run->r, pass, row);
    /* a guess may have shrunk it too far */
    if (guessed && d->taught[pass] && run->o->shrinks &&
        strcmp(b->name, whole->name) != 0) {
        *b = *whole;
        b->c.dtype = dtype;
        b->c.tier = tier;
        b->c.tf32 = tf32;
        measure(run, d, whole, pass, true, b, row);
    }
    test_case common = whole->c;
    common.dtype = WINATTN_FP32;
    common.tier = WINATTN_TIER_AUTO;
    common.tf32 = 0;
    case_print(&common, row->whole, sizeof row->whole);
    write_command(d, &b->c, row);
    finish_unit(run);
}

static bool bench_pass_of(run_state *run, device_state *d, size_t number,
                          bench_pass pass)
{
    const options *o = run->o;
    const bench_case *whole = &o->cases.all[number];
    bench_case b = *whole;
    bool is_first = true;
    for (int dtype = 0; dtype < 3; dtype++) {
        if (!options_take_row(o, whole, pass, dtype))
            continue;
        report_row *row = report_add_row(run->r);
        if (!row)
            return false;
        row->device = d->index;
        b.c.dtype = dtype;
        b.c.tier = options_tier(o, whole);
        b.c.tf32 = options_tf32(o, whole, dtype);
        bench_row(run, d, whole, pass, is_first, &b, row);
        if (row->seconds > 0 && b.c.grid && o->chain)
            compare_chain(run, d, &b, pass, row);
        if (o->unfused && row->seconds > 0 && !b.c.grid)
            compare(run, d, &b, pass, row);
        if (row->seconds > 0 && pass == BENCH_FORWARD &&
            (o->startup == STARTUP_ALL ||
             (o->startup == STARTUP_FIRST && number == 0 && is_first)))
            time_starts(run, d, &b, row);
        is_first = false;
        clear_progress(run);
        table_print_row(stdout, run->r, row);
        if (o->replay)
            printf("    %s\n", row->command);
    }
    return true;
}

static bool bench_cases(run_state *run, device_state *d, bench_pass pass,
                        size_t first, size_t end)
{
    bool good = true;
    for (size_t i = first; i < end && good; i++) {
        const size_t left = run->units_left - units_of_pass(run->o, i, pass);
        good = bench_pass_of(run, d, i, pass);
        run->units_left = left;
    }
    return good;
}

/* Where time runs short, there are all passes of the first case and the
 * forward rows of the others. */
static void bench_device_of(run_state *run, device_state *d)
{
    const size_t count = run->o->cases.count;
    const size_t first = count < 1 ? count : 1;
    bool good = true;
    table_print_heading(stdout);
    for (bench_pass pass = 0; pass < BENCH_PASSES && good; pass++)
        good = bench_cases(run, d, pass, 0, first);
    for (bench_pass pass = 0; pass < BENCH_PASSES && good; pass++)
        good = bench_cases(run, d, pass, first, count);
    table_print_notes(stdout, run->r, d->index);
}

/* A machine that was busy at first, or became it, has lower ceilings than it
 * should: the larger of two measurements counts. */
static void measure_again(const run_state *run, device_state *d,
                          report_device *entry)
{
    bench_device *device = &d->device;
    const double copy = entry->copy_bandwidth, fma = entry->fma_rate;
    progress(run, d->name, "ceilings");
    measure_ceilings(device);
    clear_progress(run);
    entry->copy_bandwidth = fmax(copy, device->copy_bandwidth);
    entry->fma_rate = fmax(fma, device->fma_rate);
    if (entry->copy_bandwidth > 1.05 * copy || entry->fma_rate > 1.05 * fma)
        printf("  ceilings once more: copy %.1f GB/s, multiply-add %.1f "
               "GFLOP/s; the comparison takes the larger\n",
               device->copy_bandwidth * 1e-9, device->fma_rate * 1e-9);
}

static bool open_and_bench(run_state *run, cl_device_id id, const char *name)
{
    device_state d;
    memset(&d, 0, sizeof d);
    progress(run, name, "ceilings");
    report_device *entry = report_add_device(run->r);
    if (!entry)
        return false;
    const bool opened = bench_device_open(id, &d.device);
    if (opened)
        measure_ceilings(&d.device);
    clear_progress(run);
    snprintf(d.name, sizeof d.name, "%.255s", name);
    d.index = run->r->device_count - 1;
    for (bench_pass pass = 0; pass < BENCH_PASSES; pass++)
        d.efficiency[pass] = FIRST_GUESS;
    d.row_overhead = d.unfused_overhead = d.chain_overhead = FIRST_OVERHEAD;
    snprintf(entry->platform, sizeof entry->platform, "%s", d.device.platform);
    snprintf(entry->name, sizeof entry->name, "%s", d.device.name);
    snprintf(entry->driver, sizeof entry->driver, "%s", d.device.driver);
    report_date(entry->date);
    snprintf(entry->version, sizeof entry->version, "%s", report_version);
    snprintf(entry->commit, sizeof entry->commit, "%s", report_commit);
    entry->copy_bandwidth = d.device.copy_bandwidth;
    entry->fma_rate = d.device.fma_rate;
    table_print_device(stdout, entry);
    const bool usable =
        opened && entry->copy_bandwidth > 0 && entry->fma_rate > 0;
    if (usable) {
        bench_device_of(run, &d);
        measure_again(run, &d, entry);
    } else {
        printf("  skipped: its ceilings could not be measured\n");
    }
    unfused_forget();
    bench_device_close(&d.device);
    return usable;
}

bool comparison_run(const options *o, const cl_device_id *ids,
                    char (*names)[256], size_t count, const char *argument_0,
                    report *r)
{
    run_state run = {.o = o, .r = r, .start = now_seconds()};
    char date[32];
    bool good = true;
    run.shows_progress = process_on_terminal();
    process_own_path(argument_0, run.program, sizeof run.program);
    report_date(date);
    printf("winattn-bench %d.%d.%d, %s, at most about %.0f s\n",
           WINATTN_VERSION_MAJOR, WINATTN_VERSION_MINOR, WINATTN_VERSION_PATCH,
           date, o->seconds);
    table_print_legend(stdout);
    for (size_t i = 0; i < count; i++) {
        const double left = fmax(seconds_left(&run), 0);
        run.device_end = now_seconds() + left / (double)(count - i);
        run.units_left = units_of_device(o);
        run.units_later = run.units_left * (count - i - 1);
        good = open_and_bench(&run, ids[i], names[i]) && good;
    }
    return good;
}
