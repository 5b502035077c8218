/* SPDX-License-Identifier: Apache-2.0
 * winattn-info [TEXT]: for each device whose "platform / name" holds TEXT what
 * was queried and probed, which tiers it has, and what the cases of the bench
 * would get. Calls the rooms behind the public interface. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "device/matrix_unit.h"
#include "kit/run.h"
#include "kit/workloads.h"
#include "measure/measure.h"
#include "measure/screen.h"
#include "measure/workload.h"
#include "plan/planner.h"
#include "program/cache.h"
#include "session/session.h"

#define MOST_DEVICES 64

/* ---- What is known of a device ---- */

typedef enum field_kind { NUMBER, TRUTH, VERSION, VENDOR } field_kind;

typedef struct field {
    const char *label;
    size_t offset;
    field_kind kind;
    const char *zero; /* what 0 means, NULL: 0 */
} field;

#define FIELD(name) offsetof(wa_device, name)
static const field fields[] = {
    {"vendor", FIELD(vendor), VENDOR, NULL},
    {"OpenCL", FIELD(opencl), VERSION, NULL},
    {"is a CPU", FIELD(is_cpu), TRUTH, NULL},
    {"has a compiler", FIELD(compiles), TRUTH, NULL},
    {"64-bit integers", FIELD(has_int64), TRUTH, NULL},
    {"fp32 FMA in hardware", FIELD(has_fma), TRUTH, NULL},
    {"compute units", FIELD(compute_units), NUMBER, NULL},
    {"clock, MHz", FIELD(clock_mhz), NUMBER, "unknown"},
    {"largest work-group", FIELD(max_work_group), NUMBER, NULL},
    {"work-items in lockstep", FIELD(wave), NUMBER, "unknown"},
    {"sub-group that kernels demand", FIELD(sub_group), NUMBER, "none"},
    {"fp32 lanes of a vector", FIELD(vector_lanes), NUMBER, NULL},
    {"registers of a work-item", FIELD(registers), NUMBER, "unknown"},
    {"registers of a compute unit", FIELD(register_words), NUMBER, "unknown"},
    {"local bytes of a kernel", FIELD(local_bytes), NUMBER, NULL},
    {"local bytes of a compute unit", FIELD(local_capacity), NUMBER,
     "unknown"},
    {"local memory is ordinary memory", FIELD(local_is_global), TRUTH, NULL},
    {"bytes of kernel parameters", FIELD(max_parameter_bytes), NUMBER, NULL},
    {"address bits", FIELD(address_bits), NUMBER, NULL},
    {"NVIDIA compute capability x 10", FIELD(compute_capability), NUMBER,
     "none"},
    {"miscompiles barriers", FIELD(miscompiles_barriers), TRUTH, NULL},
    {"breaks barriers", FIELD(breaks_barriers), TRUTH, NULL},
    {"loads half vectors one by one", FIELD(splits_half_vectors), TRUTH, NULL},
    {"takes half vectors for aligned", FIELD(aligns_half_vectors), TRUTH,
     NULL},
    {"reports sizes of kernels", FIELD(reports_kernel_sizes), TRUTH, NULL},
    {"rounds after which loops end", FIELD(loop_limit), NUMBER, "no limit"},
};

static void write_field(const field *f, const wa_device *device, char text[32])
{
    const char *at = (const char *)device + f->offset;
    uint32_t number = 0;
    wa_vendor vendor;
    bool truth;
    switch (f->kind) {
    case TRUTH:
        memcpy(&truth, at, sizeof truth);
        snprintf(text, 32, "%s", truth ? "yes" : "no");
        break;
    case VENDOR:
        memcpy(&vendor, at, sizeof vendor);
        snprintf(text, 32, "%s", wa_vendor_name(vendor));
        break;
    case VERSION:
        memcpy(&number, at, sizeof number);
        snprintf(text, 32, "%u.%u", number / 100, number % 100);
        break;
    case NUMBER:
        memcpy(&number, at, sizeof number);
        if (number == 0 && f->zero)
            snprintf(text, 32, "%s", f->zero);
        else
            snprintf(text, 32, "%u", number);
    }
}

static void print_fields(const wa_device *queried, const wa_device *probed)
{
    printf("  %-34s %12s %16s\n", "", "queried", "probed otherwise");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char before[32], after[32];
        write_field(&fields[i], queried, before);
        write_field(&fields[i], probed, after);
        printf("  %-34s %12s", fields[i].label, before);
        if (strcmp(before, after) != 0)
            printf(" %16s", after);
        printf("\n");
    }
}

static void print_unit(const wa_device *device)
{
    const wa_matrix_unit *unit = device->matrix_unit;
    printf("  %-34s ", "matrix unit");
    if (!unit)
        printf("%12s\n", "none");
    else
        printf("%12s (%s, tiles of %u queries x %u keys)\n", unit->name,
               unit->proven ? "proven" : "not proven: must be demanded",
               unit->queries, unit->tile);
}

/* ---- Tiers ---- */

/* Creates plans: only a build says whether a tier is there. Reasons of a no
 * go to *exclusions, as in winattn_plan_create. Tier matrix has no fp32. */
static void print_tiers(const bench_device *device, wa_exclusions *exclusions)
{
    printf("  tiers\n");
    for (int tier = WINATTN_TIER_AUTO + 1; tier < WA_TIERS; tier++) {
        const char *name = wa_tier_name((winattn_tier)tier);
        winattn_plan *plan;
        test_case c = case_default();
        c.tier = tier;
        c.dtype = tier == WINATTN_TIER_MATRIX ? WINATTN_FP16 : WINATTN_FP32;
        const winattn_desc desc = case_desc(&c);
        if (winattn_plan_create(device->context, device->id, &desc, &plan) ==
            WINATTN_SUCCESS) {
            printf("    %-8s yes\n", name);
            winattn_plan_destroy(plan);
        } else {
            char *reason = exclusions->reason[tier];
            snprintf(reason, WA_REASON_SIZE, "%.200s", winattn_last_reason());
            printf("    %-8s no: %s\n", name, reason);
        }
    }
}

/* ---- Cases ---- */

/* Milliseconds that planning takes, builds apart; the least of a few times. */
#define PLANNING_TIMES 3

/* Negative: there is no plan. */
static double planning(const wa_problem *problem, const wa_device *device,
                       wa_pass pass, const wa_exclusions *exclusions,
                       wa_plan *plan)
{
    double least = INFINITY;
    for (int i = 0; i < PLANNING_TIMES; i++) {
        const double start = now_seconds();
        if (wa_plan_make(problem, device, pass, exclusions, plan) !=
            WINATTN_SUCCESS)
            return -1;
        least = fmin(least, (now_seconds() - start) * 1e3);
    }
    return least;
}

static void print_case(const workload_row *row, int dtype,
                       const wa_device *device,
                       const wa_exclusions *exclusions)
{
    static const char *const dtypes[] = {"fp32", "fp16", "bf16"};
    wa_problem problem;
    wa_plan plan, back;
    test_case c = case_default();
    c.lse = 0;
    if (!case_parse(row->text, &c, NULL))
        return;
    c.dtype = dtype;
    winattn_desc desc = workload_desc(&c);
    desc.passes = WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD;
    printf("    %-20s %-5s ", row->name, dtypes[dtype]);
    double forward = -1;
    if (wa_problem_read(&desc, &problem) == WINATTN_SUCCESS)
        forward = planning(&problem, device, WA_FORWARD, exclusions, &plan);
    if (forward < 0) {
        printf("%s\n", winattn_last_reason());
        return;
    }
    const double backward =
        planning(&problem, device, WA_BACKWARD, exclusions, &back);
    char tile[32];
    snprintf(tile, sizeof tile, "%u x %u",
             plan.step[WA_STEP_FORWARD].block_rows,
             plan.step[WA_STEP_FORWARD].block_keys);
    printf("%-6s %-19s %11s%s %6u %7u %7.2f ", wa_tier_name(plan.tier),
           plan.step[WA_STEP_FORWARD].kernel, tile, plan.streams ? " *" : "  ",
           plan.step[WA_STEP_FORWARD].work_group,
           plan.step[WA_STEP_FORWARD].local_bytes, forward);
    if (backward < 0)
        printf("%8s\n", "none");
    else
        printf("%8.2f\n", backward);
}

static void print_cases(const wa_device *device,
                        const wa_exclusions *exclusions)
{
    printf("  cases of the bench (queries x keys of a step; *: the softmax "
           "streams over steps;\n  milliseconds that planning the forward and "
           "the backward pass takes, builds apart)\n");
    printf("    %-20s %-5s %-6s %-19s %11s   %6s %7s %7s %8s\n", "", "dtype",
           "tier", "kernel", "tile", "group", "local", "forward", "backward");
    for (size_t i = 0; i < workload_count; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_FP16; dtype++)
            print_case(&workload_rows[i], dtype, device, exclusions);
    for (size_t i = 0; i < map_count; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_FP16; dtype++)
            print_case(&map_rows[i], dtype, device, exclusions);
}

/* ---- Devices ---- */

static bool print_device(cl_device_id id, const char *name)
{
    bench_device device;
    wa_device queried;
    wa_session *session = NULL;
    wa_exclusions exclusions;
    bool good = false;
    memset(&exclusions, 0, sizeof exclusions);
    printf("%s\n", name);
    if (!bench_device_open(id, &device))
        printf("  no context\n");
    else if (wa_device_query(id, &queried) != WINATTN_SUCCESS ||
             wa_session_acquire(device.context, id, &session) !=
                 WINATTN_SUCCESS)
        printf("  %s\n", winattn_last_reason());
    else {
        const wa_device *probed = wa_session_device(session);
        printf("  driver %s, %.1f GiB of memory, buffers up to %.1f GiB\n",
               device.driver, (double)device.memory_bytes / (1 << 30),
               (double)device.largest_buffer / (1 << 30));
        print_fields(&queried, probed);
        print_unit(probed);
        print_tiers(&device, &exclusions);
        print_cases(probed, &exclusions);
        good = true;
    }
    wa_session_release(session);
    bench_device_close(&device);
    return good;
}

int main(int count, char **texts)
{
    cl_device_id ids[MOST_DEVICES];
    char names[MOST_DEVICES][256];
    const char *wanted = count > 1 ? texts[1] : "";
    if (count > 2 || wanted[0] == '-') {
        fprintf(stderr, "usage: %s [part of \"platform / device\"]\n",
                texts[0]);
        return 2;
    }
    const int found = device_list(ids, names, MOST_DEVICES);
    bool any = false, good = true;
    printf("winattn %d.%d.%d\n", WINATTN_VERSION_MAJOR, WINATTN_VERSION_MINOR,
           WINATTN_VERSION_PATCH);
    if (wa_cache_trouble())
        printf("cache: there is none: %s\n", wa_cache_trouble());
    for (int i = 0; i < found; i++) {
        if (!strstr(names[i], wanted))
            continue;
        printf("\n");
        good = print_device(ids[i], names[i]) && good;
        any = true;
    }
    if (!any)
        fprintf(stderr, "no OpenCL device%s%s among %d\n",
                wanted[0] ? " named like " : "", wanted, found);
    return output_end(stdout, stderr, any && good ? 0 : 1);
}
