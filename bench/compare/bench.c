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
#include "measure/process.h"
#include "report/plot.h"
#include "report/table.h"

#define MOST_DEVICES 64

/* ---- What is asked for ---- */

static bool write_files(const options *o, const report *r)
{
    char reason[REPORT_REASON_SIZE];
    bool good = true;
    if (o->csv && !report_write_csv(r, o->csv)) {
        fprintf(stderr, "cannot write %s\n", o->csv);
        good = false;
    }
    if (o->json && !report_write_json(r, o->json)) {
        fprintf(stderr, "cannot write %s\n", o->json);
        good = false;
    }
    if (o->plot && !plot_write(r, o->plot, reason)) {
        fprintf(stderr, "%s\n", reason);
        good = false;
    }
    return good;
}

/* A device may lack what a case needs, as the rows say; but a case that was
 * asked for by name should have a result somewhere. */
static bool has_results(const options *o, const report *r)
{
    const size_t missing = o->names_cases ? report_without_result(r) : 0;
    fflush(stdout);
    if (missing > 0)
        fprintf(stderr,
                "no result for %zu of the comparison's rows, see above\n",
                missing);
    return missing == 0;
}

static bool merge(const options *o)
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
        good = write_files(o, &r);
    }
    report_free(&r);
    return good;
}

static void list(char (*names)[256], size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("%s\n", names[i]);
    for (size_t i = 0; i < workload_count; i++)
        printf("%-20s %s\n", workload_rows[i].name, workload_rows[i].text);
    for (size_t i = 0; i < map_count; i++)
        printf("%-20s %s\n", map_rows[i].name, map_rows[i].text);
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
    fflush(stdout);
    return true;
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

static int run_options(const options *o, const char *argument_0)
{
    cl_device_id ids[MOST_DEVICES];
    char names[MOST_DEVICES][256];
    char reason[REPORT_REASON_SIZE];
    if (o->plot && !plot_possible(o->plot, reason)) {
        fprintf(stderr, "%s\n", reason);
        return 2;
    }
    if (o->merge_count > 0)
        return merge(o) ? 0 : 1;
    const int found = device_list(ids, names, MOST_DEVICES);
    size_t chosen = 0;
    for (int i = 0; i < found; i++)
        if (options_take_device(o, names[i])) {
            ids[chosen] = ids[i];
            memmove(names[chosen++], names[i], sizeof names[i]);
        }
    sort_devices(ids, names, chosen);
    if (o->lists) {
        list(names, chosen);
        return 0;
    }
    if (chosen == 0) {
        fprintf(stderr, "no OpenCL device%s%s among %d\n",
                o->device_count ? " named like " : "",
                o->device_count ? o->device[0] : "", found);
        return 2;
    }
    if (o->first_result)
        return print_first_result(o, ids[0]) ? 0 : 1;
    report r;
    report_start(&r);
    bool good = comparison_run(o, ids, names, chosen, argument_0, &r);
    table_print_comparison(stdout, &r);
    good = write_files(o, &r) && good;
    good = has_results(o, &r) && good;
    report_free(&r);
    return good ? 0 : 1;
}

int main(int count, char **texts)
{
    options o;
    const options_result result = options_read(count, texts, &o);
    const int code = result == OPTIONS_GOOD   ? run_options(&o, texts[0])
                     : result == OPTIONS_HELP ? 0
                                              : 2;
    options_free(&o);
    return code;
}
