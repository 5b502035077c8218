/* SPDX-License-Identifier: Apache-2.0
 * winattn-bench: compares the OpenCL devices of this machine on windowed
 * attention. See usage(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/run.h"
#include "kit/workloads.h"
#include "report.h"
#include "workload.h"

#define MOST_DEVICES 64
#define MOST_CASES 64
#define SAMPLES 6
/* What is assumed of a kernel before the device has shown something. */
#define FIRST_GUESS 0.03
/* Calls that a measurement makes at least, with those that warm up. */
#define LEAST_CALLS 9.0
/* Share of a row's time that calls take; builds and data take the rest. */
#define TIMED_SHARE 0.4

/* Those that a default run measures. */
static const char *const common_cases[] = {
    "swin-t-224-s1-b64", "swin-b-384-s1-b16", "swinv2-t-w8-b64",
    "swinv2-b-w16-b32",  "swinir-720p",       "hat-ocab",
    "fwa1-bench",        "swba-narrow",
};
static const char *const dtype_names[] = {"fp32", "fp16", "bf16"};
static const char *const tier_names[] = {"auto", "cpu", "local"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct bench_case {
    char name[64];
    test_case c;
} bench_case;

typedef struct options {
    const char *device; /* part of "platform / device"; NULL: all */
    double seconds;     /* of the whole run */
    bool dtype[3];
    int tier;
    bool shrinks;
    const char *csv, *json;
    bench_case cases[MOST_CASES];
    size_t case_count;
} options;

static void usage(FILE *to)
{
    fputs(
        "winattn-bench [OPTION ...]\n"
        "  --list               devices and cases, then end\n"
        "  --device TEXT        devices whose \"platform / name\" holds TEXT\n"
        "  --case NAME          a case of the list, or `all`; repeatable\n"
        "  --case 'FIELD=VALUE ...'  a case of your own, for instance\n"
        "                       'windows=64 heads=3 queries=49 dim=32'\n"
        "  --dtype TYPE         fp32, fp16 or bf16; repeatable\n"
        "  --tier TIER          cpu or local instead of the plan's choice\n"
        "  --seconds N          of the whole run, 150 by default; large\n"
        "                       cases are shrunk to fit, and named so\n"
        "  --whole              shrink nothing\n"
        "  --csv FILE, --json FILE\n",
        to);
}

/* ---- Options ---- */

static bool add_case(options *o, const char *name, const char *text)
{
    char bad[64];
    if (o->case_count == MOST_CASES) {
        fprintf(stderr, "more than %d cases\n", MOST_CASES);
        return false;
    }
    bench_case *b = &o->cases[o->case_count++];
    b->c = case_default();
    b->c.lse = 0;
    snprintf(b->name, sizeof b->name, "%s", name);
    if (case_parse(text, &b->c, bad))
        return true;
    fprintf(stderr, "unknown: %s\n", bad);
    return false;
}

static bool add_named(options *o, const char *name)
{
    const bool all = strcmp(name, "all") == 0;
    bool found = false;
    if (strchr(name, '='))
        return add_case(o, "own", name);
    for (size_t i = 0; i < workload_count; i++)
        if (all || strcmp(workload_rows[i].name, name) == 0) {
            found = true;
            if (!add_case(o, workload_rows[i].name, workload_rows[i].text))
                return false;
        }
    if (!found)
        fprintf(stderr, "no case %s; see --list\n", name);
    return found;
}

static bool choose(const char *const *names, size_t count, const char *name,
                   int *index)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) {
            *index = (int)i;
            return true;
        }
    fprintf(stderr, "unknown: %s\n", name);
    return false;
}

static void list(void)
{
    cl_device_id ids[MOST_DEVICES];
    char names[MOST_DEVICES][256];
    const int count = device_list(ids, names, MOST_DEVICES);
    for (int i = 0; i < count; i++)
        printf("%s\n", names[i]);
    for (size_t i = 0; i < workload_count; i++)
        printf("%-20s %s\n", workload_rows[i].name, workload_rows[i].text);
}

/* 0: go on; 1: all is done; 2: wrong options. */
static int read_options(int count, char **texts, options *o)
{
    int dtype;
    bool any_dtype = false;
    memset(o, 0, sizeof *o);
    o->seconds = 150;
    o->shrinks = true;
    for (int i = 1; i < count; i++) {
        const char *name = texts[i];
        bool good = true;
        if (strcmp(name, "--help") == 0) {
            usage(stdout);
            return 1;
        }
        if (strcmp(name, "--list") == 0) {
            list();
            return 1;
        }
        if (strcmp(name, "--whole") == 0) {
            o->shrinks = false;
            continue;
        }
        const char *value = i + 1 < count ? texts[++i] : NULL;
        if (!value) {
            usage(stderr);
            return 2;
        }
        if (strcmp(name, "--device") == 0) {
            o->device = value;
        } else if (strcmp(name, "--case") == 0) {
            good = add_named(o, value);
        } else if (strcmp(name, "--dtype") == 0) {
            good = choose(dtype_names, COUNT(dtype_names), value, &dtype);
            if (good)
                o->dtype[dtype] = any_dtype = true;
        } else if (strcmp(name, "--tier") == 0) {
            good = choose(tier_names, COUNT(tier_names), value, &o->tier);
        } else if (strcmp(name, "--seconds") == 0) {
            o->seconds = atof(value);
        } else if (strcmp(name, "--csv") == 0) {
            o->csv = value;
        } else if (strcmp(name, "--json") == 0) {
            o->json = value;
        } else {
            usage(stderr);
            return 2;
        }
        if (!good)
            return 2;
    }
    const bool any_case = o->case_count > 0;
    for (size_t i = 0; !any_case && i < COUNT(common_cases); i++)
        if (!add_named(o, common_cases[i]))
            return 2;
    for (int i = 0; !any_dtype && i < 3; i++)
        o->dtype[i] = true;
    return 0;
}

/* ---- Measuring one row ---- */

typedef struct call {
    const workload *w;
    const winattn_plan *plan;
} call;

static winattn_status enqueue_call(void *data, unsigned round)
{
    const call *c = data;
    const winattn_forward f = workload_forward(c->w, round);
    return winattn_enqueue_forward(c->plan, c->w->device->queue, &f, 0, NULL,
                                   NULL);
}

/* The least time that the device could need. */
static double floor_seconds(const bench_device *device, const test_case *c)
{
    return fmax(workload_bytes(c) / device->copy_bandwidth,
                workload_operations(c) / device->fma_rate);
}

/* Fewer windows, or fewer tokens and as many blocks of them, until the calls
 * of a measurement fit into `seconds`. */
static void shrink(const bench_device *device, double efficiency,
                   double seconds, bench_case *b)
{
    test_case *c = &b->c;
    char mark[24] = "";
    for (;;) {
        const double expected = floor_seconds(device, c) / efficiency;
        if (expected * LEAST_CALLS <= seconds)
            break;
        if (c->windows > 1) {
            c->windows = (c->windows + 1) / 2;
            if (c->mask_windows > c->windows)
                c->mask_windows = c->windows;
            snprintf(mark, sizeof mark, ":w%d", c->windows);
        } else if (c->variant == WINATTN_SLIDING && c->queries >= 128) {
            c->queries /= 2;
            c->keys /= 2;
            c->query_offset /= 2;
            c->block = (c->block + 1) / 2;
            snprintf(mark, sizeof mark, ":t%d", c->queries);
        } else if (c->heads > 1 && c->heads == c->kv_heads) {
            c->heads = c->kv_heads = (c->heads + 1) / 2;
            snprintf(mark, sizeof mark, ":h%d", c->heads);
        } else {
            break;
        }
    }
    strncat(b->name, mark, sizeof b->name - strlen(b->name) - 1);
}

static void plan_tier(const winattn_plan *plan, char tier[16])
{
    char text[2048] = "";
    winattn_plan_describe(plan, sizeof text, text, NULL);
    const char *line = strstr(text, "tier: ");
    if (line)
        sscanf(line, "tier: %15s", tier);
}

/* `seconds` is what building, filling buffers and timing may take together. */
static void measure_row(const bench_device *device, const bench_case *b,
                        double seconds, double efficiency, report_row *row)
{
    workload w;
    winattn_plan *plan = NULL;
    const double expected = floor_seconds(device, &b->c) / efficiency;
    const double calls = ceil(TIMED_SHARE * seconds / expected) + LEAST_CALLS;
    snprintf(row->name, sizeof row->name, "%s", b->name);
    case_print(&b->c, row->text, sizeof row->text);
    row->dtype = dtype_names[b->c.dtype];
    row->pass = "forward";
    row->bytes = workload_bytes(&b->c);
    row->operations = workload_operations(&b->c);
    row->error = NAN;
    const winattn_desc desc = case_desc(&b->c);
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &plan);
    if (status != WINATTN_SUCCESS) {
        snprintf(row->failure, sizeof row->failure, "%s: %.200s",
                 winattn_status_name(status), winattn_last_reason());
        return;
    }
    plan_tier(plan, row->tier);
    if (!workload_create(device, &b->c, (int)fmin(calls, 1e6), &w)) {
        snprintf(row->failure, sizeof row->failure,
                 "the device's memory does not suffice");
    } else {
        call c = {&w, plan};
        row->seconds =
            measure_calls(device, enqueue_call, &c, TIMED_SHARE * seconds);
        if (row->seconds > 0)
            row->error = workload_error(&w, SAMPLES);
        else
            snprintf(row->failure, sizeof row->failure,
                     "a call failed: %.200s", winattn_last_reason());
        workload_release(&w);
    }
    winattn_plan_destroy(plan);
}

/* ---- The run ---- */

typedef struct run_state {
    const options *o;
    report *r;
    double start;
    size_t rows_left;
} run_state;

static double seconds_left(const run_state *run)
{
    return run->o->seconds - (now_seconds() - run->start);
}

static void progress(const run_state *run, const char *what)
{
    fprintf(stderr, "\r%-48.48s %3zu to go, about %3.0f s \r", what,
            run->rows_left, fmax(seconds_left(run), 0));
    fflush(stderr);
}

static void clear_progress(void) { fprintf(stderr, "\r%76s\r", ""); }

static void bench_one_device(run_state *run, bench_device *device)
{
    const size_t index = run->r->device_count - 1;
    double efficiency = FIRST_GUESS;
    report_print_heading();
    for (size_t i = 0; i < run->o->case_count; i++)
        for (int dtype = 0; dtype < 3; dtype++) {
            if (!run->o->dtype[dtype])
                continue;
            bench_case b = run->o->cases[i];
            const double share =
                fmin(seconds_left(run) / (double)run->rows_left, 5.0);
            b.c.dtype = dtype;
            b.c.tier = run->o->tier;
            progress(run, b.name);
            if (run->o->shrinks && floor_seconds(device, &b.c) > 0)
                shrink(device, efficiency, TIMED_SHARE * fmax(share, 0.25),
                       &b);
            report_row *row = report_add_row(run->r);
            if (!row)
                return;
            row->device = index;
            measure_row(device, &b, fmax(share, 0.25), efficiency, row);
            run->rows_left--;
            clear_progress();
            report_print_row(run->r, row);
            if (!row->failure[0])
                efficiency = fmax(0.5 * report_of_ceiling(run->r, row) +
                                      0.5 * efficiency,
                                  1e-4);
        }
}

static size_t rows_of(const options *o)
{
    return o->case_count * (size_t)(o->dtype[0] + o->dtype[1] + o->dtype[2]);
}

static bool bench_device_of(run_state *run, cl_device_id id, const char *name)
{
    bench_device device;
    progress(run, name);
    report_device *entry = report_add_device(run->r);
    if (!entry)
        return false;
    const bool opened = bench_device_open(id, &device);
    if (opened)
        measure_ceilings(&device);
    clear_progress();
    snprintf(entry->platform, sizeof entry->platform, "%s", device.platform);
    snprintf(entry->name, sizeof entry->name, "%s", device.name);
    snprintf(entry->driver, sizeof entry->driver, "%s", device.driver);
    entry->copy_bandwidth = device.copy_bandwidth;
    entry->fma_rate = device.fma_rate;
    report_print_device(entry);
    const bool usable =
        opened && entry->copy_bandwidth > 0 && entry->fma_rate > 0;
    if (usable)
        bench_one_device(run, &device);
    else
        printf("  skipped: its ceilings could not be measured\n");
    bench_device_close(&device);
    return usable;
}

static bool write_files(const options *o, const report *r)
{
    bool good = true;
    if (o->csv && !report_write_csv(r, o->csv)) {
        fprintf(stderr, "cannot write %s\n", o->csv);
        good = false;
    }
    if (o->json && !report_write_json(r, o->json)) {
        fprintf(stderr, "cannot write %s\n", o->json);
        good = false;
    }
    return good;
}

int main(int count, char **texts)
{
    static options o;
    cl_device_id ids[MOST_DEVICES];
    char names[MOST_DEVICES][256];
    const int wrong = read_options(count, texts, &o);
    if (wrong)
        return wrong == 1 ? 0 : 2;
    int device_count = device_list(ids, names, MOST_DEVICES);
    int chosen = 0;
    for (int i = 0; i < device_count; i++)
        if (!o.device || strstr(names[i], o.device)) {
            ids[chosen] = ids[i];
            memmove(names[chosen++], names[i], sizeof names[i]);
        }
    if (chosen == 0) {
        fprintf(stderr, "no OpenCL device%s%s among %d\n",
                o.device ? " named like " : "", o.device ? o.device : "",
                device_count);
        return 2;
    }
    report r;
    report_start(&r);
    run_state run = {&o, &r, now_seconds(), rows_of(&o) * (size_t)chosen};
    printf("winattn-bench %d.%d.%d, %s, at most about %.0f s\n",
           WINATTN_VERSION_MAJOR, WINATTN_VERSION_MINOR, WINATTN_VERSION_PATCH,
           r.date, o.seconds);
    bool good = true;
    for (int i = 0; i < chosen; i++) {
        run.rows_left = rows_of(&o) * (size_t)(chosen - i);
        good = bench_device_of(&run, ids[i], names[i]) && good;
    }
    report_print_comparison(&r);
    good = write_files(&o, &r) && good;
    report_free(&r);
    return good ? 0 : 1;
}
