/* SPDX-License-Identifier: Apache-2.0
 * winattn-bench: compares the OpenCL devices of this machine on windowed
 * attention. Here is what it is asked for; options.c has what it can be told,
 * comparison.c the run. */
#include <stdio.h>
#include <string.h>

#include "command/options.h"
#include "compare/comparison.h"
#include "compare/startup.h"
#include "kit/run.h"
#include "kit/workloads.h"
#include "measure/output.h"
#include "measure/process.h"
#include "report/explain.h"
#include "report/plot.h"
#include "report/summary.h"
#include "report/table.h"

#define MOST_DEVICES 64

/* ---- What is asked for ---- */

static bool write_files(const options *o, FILE *error, const report *r)
{
    char reason[REPORT_REASON_SIZE];
    bool good = true;
    if (o->csv && !report_write_csv(r, o->csv)) {
        fprintf(error, "cannot write %s\n", o->csv);
        good = false;
    }
    if (o->json && !report_write_json(r, o->json)) {
        fprintf(error, "cannot write %s\n", o->json);
        good = false;
    }
    if (o->plot && !plot_write(r, o->plot, reason)) {
        fprintf(error, "%s\n", reason);
        good = false;
    }
    return good;
}

/* A device may lack what a case needs, as the rows say; but a case that was
 * asked for by name should have a result somewhere, and no call may fail. */
static bool is_good(const options *o, FILE *error, const report *r)
{
    const size_t failed = report_outcomes(r, REPORT_FAILED);
    const size_t missing = o->names_cases ? report_without_result(r) : 0;
    if (missing > 0)
        fprintf(error,
                "no result for %zu of the comparison's rows, see above\n",
                missing);
    if (failed > 0)
        fprintf(error, "%zu rows failed, see above\n", failed);
    return missing == 0 && failed == 0;
}

/* What a run ends with; the summary is the last screen. */
static void print_end(const options *o, FILE *out, const report *r)
{
    const summary_files files = {.csv = o->csv,
                                 .json = o->json,
                                 .plot = o->plot,
                                 .log = o->log,
                                 .log_lines = process_count_lines(o->log),
                                 .advises = !o->names_cases};
    if (r->device_count > 1)
        table_print_comparison(out, r);
    summary_print_devices(out, r);
    summary_print_end(out, r, &files);
    fflush(out);
}

static int merge(const options *o)
{
    char reason[REPORT_REASON_SIZE];
    report r;
    bool good = true;
    report_start(&r);
    for (size_t i = 0; i < o->merge_count; i++)
        if (!report_read_json(&r, o->merge[i], reason)) {
            fprintf(stderr, "%s\n", reason);
            good = false;
        }
    if (good) {
        table_print_comparison(stdout, &r);
        summary_print_devices(stdout, &r);
        good = write_files(o, stderr, &r);
    }
    report_free(&r);
    return output_end(stdout, stderr, good ? 0 : 1);
}

static void list(FILE *to, char (*names)[256], size_t count)
{
    for (size_t i = 0; i < count; i++)
        fprintf(to, "%s\n", names[i]);
    for (size_t i = 0; i < workload_count; i++)
        fprintf(to, "%-20s %s\n", workload_rows[i].name,
                workload_rows[i].text);
    for (size_t i = 0; i < map_count; i++)
        fprintf(to, "%-20s %s\n", map_rows[i].name, map_rows[i].text);
}

static bool print_first_result(const options *o, cl_device_id id)
{
    test_case c = o->cases.all[0].c;
    for (int dtype = 0; dtype < 3; dtype++)
        if (o->dtype[dtype])
            c.dtype = dtype;
    c.tier = options_tier(o, &o->cases.all[0]);
    c.tf32 = options_tf32(o, &o->cases.all[0], c.dtype);
    process_end_after((unsigned)o->seconds + 1);
    if (!startup_first_result(id, &c))
        return false;
    printf("%s\n", STARTUP_LINE);
    return output_end(stdout, stderr, 0) == 0;
}

/* GPUs come first: a CPU takes all the time it can get. */
static void sort_devices(cl_device_id *ids, char (*names)[256], size_t count)
{
    for (size_t i = 0, placed = 0; i < count; i++) {
        cl_device_type type = CL_DEVICE_TYPE_CPU;
        char name[256];
        clGetDeviceInfo(ids[i], CL_DEVICE_TYPE, sizeof type, &type, NULL);
        if ((type & CL_DEVICE_TYPE_CPU) != 0)
            continue;
        const cl_device_id id = ids[i];
        memcpy(name, names[i], sizeof name);
        memmove(ids + placed + 1, ids + placed, (i - placed) * sizeof *ids);
        memmove(names + placed + 1, names + placed,
                (i - placed) * sizeof *names);
        ids[placed] = id;
        memcpy(names[placed++], name, sizeof name);
    }
}

/* Keeps the devices that are asked for; how many. */
static size_t find_devices(const options *o, cl_device_id *ids,
                           char (*names)[256], size_t *found)
{
    size_t chosen = 0;
    *found = (size_t)device_list(ids, names, MOST_DEVICES);
    for (size_t i = 0; i < *found; i++)
        if (options_take_device(o, names[i])) {
            ids[chosen] = ids[i];
            memmove(names[chosen++], names[i], sizeof names[i]);
        }
    sort_devices(ids, names, chosen);
    return chosen;
}

static int compare_devices(const options *o, const process_screen *screen,
                           const cl_device_id *ids, char (*names)[256],
                           size_t count, const char *argument_0)
{
    report r;
    report_start(&r);
    bool good = comparison_run(o, screen, ids, names, count, argument_0, &r);
    good = write_files(o, screen->error, &r) && good;
    print_end(o, screen->out, &r);
    good = is_good(o, screen->error, &r) && good;
    report_free(&r);
    return output_end(screen->out, screen->error, good ? 0 : 1);
}

static int use_devices(const options *o, const char *argument_0)
{
    cl_device_id ids[MOST_DEVICES];
    char names[MOST_DEVICES][256];
    process_screen screen;
    size_t found;
    if (!process_screen_open(o->log, &screen)) {
        fprintf(stderr, "cannot write %s\n", o->log);
        return 2;
    }
    /* drivers already print where they are only asked for */
    const size_t chosen = find_devices(o, ids, names, &found);
    if (o->lists) {
        list(screen.out, names, chosen);
        return output_end(screen.out, screen.error, 0);
    }
    if (chosen == 0) {
        fprintf(screen.error, "no OpenCL device%s%s among %zu\n",
                o->device_count ? " named like " : "",
                o->device_count ? o->device[0] : "", found);
        return 2;
    }
    if (o->first_result)
        return print_first_result(o, ids[0]) ? 0 : 1;
    return compare_devices(o, &screen, ids, names, chosen, argument_0);
}

static int run_options(const options *o, const char *argument_0)
{
    char reason[REPORT_REASON_SIZE];
    if (o->explains) {
        explain_print(stdout);
        return output_end(stdout, stderr, 0);
    }
    if (o->plot && !plot_possible(o->plot, reason)) {
        fprintf(stderr, "%s\n", reason);
        return 2;
    }
    return o->merge_count > 0 ? merge(o) : use_devices(o, argument_0);
}

int main(int count, char **texts)
{
    options o;
    const options_result result = options_read(count, texts, &o);
    const int code = result == OPTIONS_GOOD   ? run_options(&o, texts[0])
                     : result == OPTIONS_HELP ? output_end(stdout, stderr, 0)
                                              : 2;
    options_free(&o);
    return code;
}
