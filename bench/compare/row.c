/* SPDX-License-Identifier: Apache-2.0
 * Shrinks, plans, runs, times and checks a case. */
#include "compare/comparison.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command/options.h"
#include "compare/unfused.h"
#include "measure/accuracy.h"
#include "measure/workload.h"

#define SAMPLES 6
/* Calls that a measurement makes at least, with those that warm up. */
#define LEAST_CALLS 9.0

/* The least time that the device could need. */
static double floor_seconds(const bench_device *device, const test_case *c,
                            bench_pass pass)
{
    return fmax(workload_bytes(c, pass) / device->copy_bandwidth,
                workload_operations(c, pass) / device->fma_rate);
}

void row_shrink(const bench_device *device, bench_pass pass, double efficiency,
                double seconds, const bench_case *whole, bench_case *b)
{
    test_case *c = &b->c;
    char mark[24] = "";
    for (;;) {
        const double expected = floor_seconds(device, c, pass) / efficiency;
        if (expected * LEAST_CALLS <= seconds)
            break;
        if (c->grid && c->batch > 1) {
            c->batch -= c->batch / 2; /* rounds up */
            case_derive(c);
        } else if (!c->grid && c->windows > 1) {
            c->windows -= c->windows / 2;
            if (c->mask_windows > c->windows)
                c->mask_windows = c->windows;
        } else if (c->variant == WINATTN_SLIDING && c->queries >= 128) {
            c->queries /= 2;
            c->keys /= 2;
            c->query_offset /= 2;
            c->block -= c->block / 2;
        } else if (c->heads > 1 && c->heads == c->kv_heads) {
            c->heads -= c->heads / 2;
            c->kv_heads = c->heads;
        } else {
            break;
        }
    }
    if (c->heads != whole->c.heads)
        snprintf(mark, sizeof mark, ":h%d", c->heads);
    else if (c->queries != whole->c.queries)
        snprintf(mark, sizeof mark, ":t%d", c->queries);
    else if (c->batch != whole->c.batch)
        snprintf(mark, sizeof mark, ":b%d", c->batch);
    else if (c->windows != whole->c.windows)
        snprintf(mark, sizeof mark, ":w%d", c->windows);
    const size_t base = report_base_length(b->name);
    snprintf(b->name + base, sizeof b->name - base, "%s", mark);
}

/* "local", and where the passes differ "local/cpu". */
static void plan_tier(const winattn_plan *plan, bench_pass pass, char tier[16])
{
    char forward[16], backward[16];
    call_described(plan, "tier: ", forward, sizeof forward);
    call_described(plan, "backward tier: ", backward, sizeof backward);
    if (pass == BENCH_BOTH && strcmp(forward, backward) != 0)
        snprintf(tier, 16, "%.7s/%.7s", forward, backward);
    else
        snprintf(tier, 16, "%s", pass == BENCH_FORWARD ? forward : backward);
}

/* What the plan does without as a compiler or a self-test refused it, which a
 * time alone would not show. What there is no kernel for, or is slower, is
 * none of it. */
static void plan_refused(const winattn_plan *plan, bench_pass pass,
                         char refused[160])
{
    static const struct {
        const char *line, *name;
        bool backward;
    } all[] = {{"wgmma not used: ", "wgmma", false},
               {"backward wgmma not used: ", "wgmma", true},
               {"backward tensor maps not used: ", "tensor maps", true},
               {"tier matrix not taken: ", "tier matrix", false},
               {"backward tier matrix not taken: ", "tier matrix", true},
               {"tier local not taken: ", "tier local", false},
               {"backward tier local not taken: ", "tier local", true}};
    for (size_t i = 0; i < sizeof all / sizeof *all && !refused[0]; i++) {
        char why[128];
        if (pass == (all[i].backward ? BENCH_FORWARD : BENCH_BACKWARD))
            continue;
        call_described(plan, all[i].line, why, sizeof why);
        if (strstr(why, "failed") || strstr(why, "says"))
            snprintf(refused, 160, "%s: %s", all[i].name, why);
    }
}

void row_describe(const test_case *c, bench_pass pass, report_row *row)
{
    case_print(c, row->text, sizeof row->text);
    snprintf(row->dtype, sizeof row->dtype, "%s", option_dtypes[c->dtype]);
    snprintf(row->pass, sizeof row->pass, "%s", option_passes[pass]);
    row->bytes = workload_bytes(c, pass);
    row->operations = workload_operations(c, pass);
    row->error = NAN;
    row->memory = NAN;
    row->unfused_memory = c->grid ? NAN : unfused_bytes(c, pass) * 1e-6;
}

/* Results that are so far off are no rounding, of whatever type. */
#define MOST_ERROR 0.05

/* CL_OUT_OF_RESOURCES is none: drivers say it of bad addresses, too. */
static bool is_allocation(winattn_status status)
{
    return status == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
           status == CL_OUT_OF_HOST_MEMORY || status == CL_INVALID_BUFFER_SIZE;
}

/* A failed call is repeated to learn how it fails: some drivers find room for
 * buffers only when a kernel is enqueued. */
static void explain_failure(bench_call *timed, bench_pass pass,
                            report_row *row)
{
    const bool no_room = is_allocation(call_pass[pass](timed, 0));
    row->outcome = no_room ? REPORT_NO_MEMORY : REPORT_FAILED;
    snprintf(row->failure, sizeof row->failure, "a call failed: %.200s",
             winattn_last_reason());
}

/* A number beside a wrong result would be worth nothing. */
static void judge(report_row *row)
{
    if (row->error <= MOST_ERROR)
        return;
    row->outcome = REPORT_FAILED;
    row->seconds = 0;
    snprintf(row->failure, sizeof row->failure,
             "the result is wrong or could not be read: error %.1e",
             row->error);
}

/* False if a call fails. */
static bool time_pass(const workload *w, bench_call *timed, double seconds,
                      report_row *row)
{
    if (w->pass == BENCH_BACKWARD &&
        call_provide_outputs(w, w->sets) != WINATTN_SUCCESS)
        return false;
    const double measured =
        measure_calls(w->device, call_pass[w->pass], timed, seconds);
    /* once more on the first set, as all share dbias and d_logit_scale */
    if (!(measured > 0) || call_pass[w->pass](timed, 0) != WINATTN_SUCCESS)
        return false;
    row->seconds = measured;
    row->error = accuracy_error(w, accuracy_all(&w->d->c), SAMPLES);
    return true;
}

void row_measure(const bench_device *device, const test_case *c,
                 bench_pass pass, double seconds, double efficiency,
                 report_row *row)
{
    static const cl_bitfield passes[BENCH_PASSES] = {
        WINATTN_PASS_FORWARD, WINATTN_PASS_BACKWARD,
        WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD};
    workload w;
    bench_call timed;
    const double expected = floor_seconds(device, c, pass) / efficiency;
    const int calls = (int)fmin(ceil(seconds / expected) + LEAST_CALLS, 1e6);
    row_describe(c, pass, row);
    const winattn_status status = call_open(device, c, passes[pass], &timed);
    if (status != WINATTN_SUCCESS) {
        const bool refused = status == WINATTN_UNSUPPORTED_PROBLEM ||
                             status == WINATTN_UNSUPPORTED_DEVICE;
        row->outcome = refused                 ? REPORT_UNSUPPORTED
                       : is_allocation(status) ? REPORT_NO_MEMORY
                                               : REPORT_FAILED;
        snprintf(row->failure, sizeof row->failure, "%s: %.200s",
                 winattn_status_name(status), winattn_last_reason());
        call_close(&timed);
        return;
    }
    plan_tier(timed.plan, pass, row->tier);
    plan_refused(timed.plan, pass, row->refused);
    row->memory =
        ((double)timed.workspace_size + workload_lse_bytes(c, pass)) * 1e-6;
    if (!workload_create(device, c, pass, calls, false, &w)) {
        row->outcome = REPORT_NO_MEMORY;
        snprintf(row->failure, sizeof row->failure,
                 "the device's memory does not suffice");
    } else {
        timed.w = &w;
        if (time_pass(&w, &timed, seconds, row))
            judge(row);
        else
            explain_failure(&timed, pass, row);
        workload_release(&w);
    }
    call_close(&timed);
}
