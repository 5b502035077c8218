/* SPDX-License-Identifier: Apache-2.0
 * winattn-bench: compares the OpenCL devices of this machine on windowed
 * attention. Here is what it is asked for; options.c has what it can be told,
 * comparison.c the run. */
#include <stdio.h>
#include <string.h>

#include "command/options.h"
#include "compare/comparison.h"
#include "kit/run.h"
#include "kit/workloads.h"
#include "measure/screen.h"
#include "report/table.h"

#define MOST_DEVICES 64

/* ---- What is asked for ---- */

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
    const summary_files files = {.json = o->json,
                                 .log = o->log,
                                 .log_lines = screen_count_lines(o->log),
                                 .advises = !o->names_cases};
    summary_print_devices(out, r);
    summary_print_end(out, r, &files);
    fflush(out);
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

static bool is_cpu(cl_device_id id)
{
    cl_device_type type = CL_DEVICE_TYPE_CPU;
    clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    return (type & CL_DEVICE_TYPE_CPU) != 0;
}

/* Those that are asked for; how many. GPUs come first: a CPU takes all the
 * time it can get. */
static size_t find_devices(const options *o, cl_device_id *ids,
                           char (*names)[256], size_t *found)
{
    cl_device_id all[MOST_DEVICES];
    char all_names[MOST_DEVICES][256];
    size_t chosen = 0;
    *found = (size_t)device_list(all, all_names, MOST_DEVICES);
    for (int cpus = 0; cpus < 2; cpus++)
        for (size_t i = 0; i < *found; i++)
            if (is_cpu(all[i]) == cpus &&
                options_take_device(o, all_names[i])) {
                ids[chosen] = all[i];
                memcpy(names[chosen++], all_names[i], sizeof all_names[i]);
            }
    return chosen;
}

static int compare_devices(const options *o, const bench_screen *screen,
                           const cl_device_id *ids, char (*names)[256],
                           size_t count)
{
    report r;
    report_start(&r);
    bool good = comparison_run(o, screen, ids, names, count, &r);
    if (o->json && !report_write_json(&r, o->json)) {
        fprintf(screen->error, "cannot write %s\n", o->json);
        good = false;
    }
    print_end(o, screen->out, &r);
    good = is_good(o, screen->error, &r) && good;
    report_free(&r);
    return output_end(screen->out, screen->error, good ? 0 : 1);
}

static int use_devices(const options *o)
{
    cl_device_id ids[MOST_DEVICES];
    char names[MOST_DEVICES][256];
    bench_screen screen;
    size_t found;
    if (!screen_open(o->log, &screen)) {
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
    return compare_devices(o, &screen, ids, names, chosen);
}

int main(int count, char **texts)
{
    options o;
    const options_result result = options_read(count, texts, &o);
    const int code = result == OPTIONS_GOOD   ? use_devices(&o)
                     : result == OPTIONS_HELP ? output_end(stdout, stderr, 0)
                                              : 2;
    options_free(&o);
    return code;
}
