/* SPDX-License-Identifier: Apache-2.0
 * Shrinks, plans, runs, times and checks a case. */
#include "row.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "workload.h"

#define SAMPLES 6
/* Calls that a measurement makes at least, with those that warm up. */
#define LEAST_CALLS 9.0

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

void row_shrink(const bench_device *device, double efficiency, double seconds,
                const bench_case *whole, bench_case *b)
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
        } else if (c->variant == WINATTN_SLIDING && c->queries >= 128) {
            c->queries /= 2;
            c->keys /= 2;
            c->query_offset /= 2;
            c->block = (c->block + 1) / 2;
        } else if (c->heads > 1 && c->heads == c->kv_heads) {
            c->heads = c->kv_heads = (c->heads + 1) / 2;
        } else {
            break;
        }
    }
    if (c->heads != whole->c.heads)
        snprintf(mark, sizeof mark, ":h%d", c->heads);
    else if (c->queries != whole->c.queries)
        snprintf(mark, sizeof mark, ":t%d", c->queries);
    else if (c->windows != whole->c.windows)
        snprintf(mark, sizeof mark, ":w%d", c->windows);
    const size_t base = report_base_length(b->name);
    snprintf(b->name + base, sizeof b->name - base, "%s", mark);
}

static void plan_tier(const winattn_plan *plan, char tier[16])
{
    char text[2048] = "";
    winattn_plan_describe(plan, sizeof text, text, NULL);
    const char *line = strstr(text, "tier: ");
    if (line)
        sscanf(line, "tier: %15s", tier);
}

void row_measure(const bench_device *device, const test_case *c,
                 double seconds, double efficiency, report_row *row)
{
    workload w;
    winattn_plan *plan = NULL;
    const double expected = floor_seconds(device, c) / efficiency;
    const double calls = ceil(seconds / expected) + LEAST_CALLS;
    case_print(c, row->text, sizeof row->text);
    snprintf(row->dtype, sizeof row->dtype, "%s", option_dtypes[c->dtype]);
    snprintf(row->pass, sizeof row->pass, "forward");
    row->bytes = workload_bytes(c);
    row->operations = workload_operations(c);
    row->error = NAN;
    const winattn_desc desc = case_desc(c);
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &plan);
    if (status != WINATTN_SUCCESS) {
        snprintf(row->failure, sizeof row->failure, "%s: %.200s",
                 winattn_status_name(status), winattn_last_reason());
        return;
    }
    plan_tier(plan, row->tier);
    if (!workload_create(device, c, (int)fmin(calls, 1e6), &w)) {
        snprintf(row->failure, sizeof row->failure,
                 "the device's memory does not suffice");
    } else {
        call timed = {&w, plan};
        row->seconds = measure_calls(device, enqueue_call, &timed, seconds);
        if (row->seconds > 0) {
            row->error = workload_error(&w, SAMPLES);
        } else {
            row->seconds = 0;
            snprintf(row->failure, sizeof row->failure,
                     "a call failed: %.200s", winattn_last_reason());
        }
        workload_release(&w);
    }
    winattn_plan_destroy(plan);
}
