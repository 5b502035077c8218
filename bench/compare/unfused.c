/* SPDX-License-Identifier: Apache-2.0
 * Prepares and times unfused calls. */
#include "compare/unfused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifndef BENCH_HAS_CLBLAST

bool unfused_possible(void) { return false; }

void unfused_measure(const bench_device *device, const test_case *c,
                     bench_pass pass, double budget, unfused_result *result)
{
    (void)device;
    (void)c;
    (void)pass;
    (void)budget;
    memset(result, 0, sizeof *result);
    snprintf(result->note, sizeof result->note,
             "this program was built without CLBlast (Debian: "
             "libclblast-dev)");
}

void unfused_forget(void) {}

#else

#include <clblast_c.h>

#include "compare/unfused_steps.h"
#include "measure/accuracy.h"

/* Batches and rows of a launch: grids end at 65535 on some GPUs. */
#define MOST_BATCHES 65535
/* CLBlast's kernels count the elements of a buffer in 32 bits. */
#define MOST_ELEMENTS 2147483647u
#define SAMPLES 4
/* A product that is right is this good; the bound is no promise. */
#define MOST_ERROR 1e-4

/* ---- Preparing ---- */

static bool build(unfused *u)
{
    const test_case *c = &u->w.d->c;
    char options[512];
    cl_int error;
    static const char *const names[UNFUSED_KERNELS] = {
        [UNFUSED_NORMS] = "norms",
        [UNFUSED_SOFTMAX] = "softmax",
        [UNFUSED_SOFTMAX_BACKWARD] = "softmax_backward",
        [UNFUSED_SCALE_ROWS] = "scale_rows",
        [UNFUSED_PROJECT] = "project",
        [UNFUSED_SUM_QUERIES] = "sum_queries",
        [UNFUSED_SUM_WINDOWS] = "sum_windows",
        [UNFUSED_SUM_PARTS] = "sum_parts",
    };
    const char *sources[] = {bench_source("unfused.cl"),
                             bench_source("unfused_backward.cl")};
    const size_t limit = u->device->largest_group;
    /* A CPU takes a row for each work-item, with vectors where its work-items
     * are not lanes of vectors themselves. */
    u->group = u->device->is_cpu ? 1
               : c->keys <= 64   ? 32
               : c->keys <= 1024 ? 128
                                 : 256;
    while (u->group > limit)
        u->group /= 2;
    snprintf(options, sizeof options,
             "-DNQ=%d -DNK=%d -DHEAD_DIM=%d -DHEADS=%d -DKV_HEADS=%d "
             "-DCOSINE=%d -DSLIDING=%d -DBIAS=%d -DMASK=%d -DGROUP=%d "
             "-DLANES=%d",
             c->queries, c->keys, c->dim, c->heads, c->kv_heads,
             c->variant == WINATTN_COSINE, c->variant == WINATTN_SLIDING,
             c->bias != TERM_NONE,
             c->mask == TERM_NONE      ? 0
             : c->mask == TERM_REGIONS ? 2
                                       : 1,
             (int)u->group,
             u->device->is_cpu && u->device->vector_lanes >= 4 ? 8 : 1);
    u->program = clCreateProgramWithSource(u->device->context, 2, sources,
                                           NULL, &error);
    if (error != CL_SUCCESS ||
        clBuildProgram(u->program, 1, &u->device->id, options, NULL, NULL) !=
            CL_SUCCESS)
        return false;
    for (int i = 0; i < UNFUSED_KERNELS && error == CL_SUCCESS; i++)
        u->kernel[i] = clCreateKernel(u->program, names[i], &error);
    return error == CL_SUCCESS;
}

/* S, and dS beside it, take at most a quarter of the memory, and each what one
 * buffer may. */
static size_t most_items(const unfused *u, const unfused_sizes *sizes)
{
    const double item = sizes->s / (double)u->items;
    double bytes = (double)u->device->memory_bytes / (sizes->ds > 0 ? 8 : 4);
    bytes = fmin(bytes, (double)u->device->largest_buffer);
    bytes = fmin(bytes, 4.0 * MOST_ELEMENTS);
    return (size_t)fmin(fmin(bytes / item, (double)u->items), MOST_BATCHES);
}

/* True, with *mem = NULL, where nothing is wanted. */
static bool new_buffer(const unfused *u, double bytes, cl_mem *mem)
{
    cl_int error = CL_SUCCESS;
    if (bytes > 0)
        *mem = clCreateBuffer(u->device->context, CL_MEM_READ_WRITE,
                              (size_t)bytes, NULL, &error);
    return error == CL_SUCCESS;
}

static bool create_buffers(unfused *u, const unfused_sizes *sizes)
{
    const double part = (double)u->most_items / (double)u->items;
    return new_buffer(u, part * sizes->s, &u->s) &&
           new_buffer(u, part * sizes->ds, &u->ds) &&
           new_buffer(u, 16, &u->dummy) &&
           new_buffer(u, sizes->q_norm, &u->q_norm) &&
           new_buffer(u, sizes->k_norm, &u->k_norm) &&
           new_buffer(u, sizes->along, &u->along) &&
           new_buffer(u, sizes->head_sums, &u->head_sums) &&
           new_buffer(u, sizes->partial, &u->partial);
}

static const char *prepare(unfused *u, const bench_device *device,
                           const test_case *c, bench_pass pass)
{
    /* P that is found is the first set's */
    const int calls = pass == BENCH_BACKWARD ? 1 : MOST_SETS;
    memset(u, 0, sizeof *u);
    u->device = device;
    if (!workload_create(device, c, pass, calls, true, &u->w))
        return "the device's memory does not suffice";
    u->items = (size_t)c->windows * (size_t)c->kv_heads;
    u->item_rows = (size_t)(c->heads / c->kv_heads) * (size_t)c->queries;
    const unfused_sizes sizes = unfused_sizes_of(c, pass);
    u->most_items = most_items(u, &sizes);
    if (u->most_items == 0 || !create_buffers(u, &sizes))
        return "the device's memory does not suffice for S";
    if (!build(u) || unfused_set_arguments(u) != CL_SUCCESS)
        return "the softmax kernel does not build";
    return NULL;
}

static void release(unfused *u)
{
    const cl_mem mems[] = {u->s,     u->ds,        u->q_norm,  u->k_norm,
                           u->along, u->head_sums, u->partial, u->dummy};
    clFinish(u->device->queue);
    for (size_t i = 0; i < sizeof mems / sizeof *mems; i++)
        if (mems[i])
            clReleaseMemObject(mems[i]);
    for (int i = 0; i < UNFUSED_KERNELS; i++)
        if (u->kernel[i])
            clReleaseKernel(u->kernel[i]);
    if (u->program)
        clReleaseProgram(u->program);
    workload_release(&u->w);
}

/* ---- Timing ---- */

/* Computes the P that the backward pass finds; needed again whenever
 * timed_items changes. False if that fails. */
static bool provide_p(unfused *u)
{
    return u->w.pass != BENCH_BACKWARD ||
           (unfused_enqueue_p(u, 0) == CL_SUCCESS &&
            clFinish(u->device->queue) == CL_SUCCESS);
}

/* Seconds of one call, negative if it failed. */
static double time_call(unfused *u)
{
    if (!provide_p(u))
        return -1;
    const double start = now_seconds();
    if (unfused_enqueue(u, 0) != CL_SUCCESS ||
        clFinish(u->device->queue) != CL_SUCCESS)
        return -1;
    return now_seconds() - start;
}

/* The first call builds; the next ones double what they do until they show
 * how much of it the budget allows, and leave that in timed_items. */
static const char *choose_part(unfused *u, double budget)
{
    u->timed_items = 1;
    if (time_call(u) < 0)
        return "CLBlast fails on this device";
    for (;;) {
        double seconds = time_call(u);
        if (seconds > budget / 8) /* some runtimes build for each size */
            seconds = time_call(u);
        if (seconds < 0)
            return "CLBlast fails on this device";
        const double all = seconds * (double)u->items / (double)u->timed_items;
        if (u->timed_items == u->most_items)
            return NULL;
        if (seconds > budget / 8) {
            /* measure_calls makes at least three calls */
            const double fitting = fmin((double)u->items * budget / 4 / all,
                                        (double)u->most_items);
            u->timed_items = fitting < 1 ? 1 : (size_t)fitting;
            return seconds > 4 * budget && u->timed_items == 1
                       ? "one head would take too long"
                       : NULL;
        }
        u->timed_items *= 2;
        if (u->timed_items > u->most_items)
            u->timed_items = u->most_items;
    }
}

bool unfused_possible(void) { return true; }

void unfused_measure(const bench_device *device, const test_case *c,
                     bench_pass pass, double budget, unfused_result *result)
{
    unfused u;
    memset(result, 0, sizeof *result);
    const char *failure = prepare(&u, device, c, pass);
    if (!failure)
        failure = choose_part(&u, budget);
    if (!failure && !provide_p(&u))
        failure = "a call failed";
    if (!failure) {
        const double seconds =
            measure_calls(device, unfused_enqueue, &u, budget);
        const size_t heads = (size_t)(c->heads / c->kv_heads);
        if (seconds > 0) /* sets share outputs; the first one is checked */
            unfused_enqueue(&u, 0);
        result->part = (double)u.timed_items / (double)u.items;
        result->error = accuracy_error(&u.w, u.timed_items * heads, SAMPLES);
        if (seconds < 0)
            failure = "a call failed";
        else if (!(result->error <= MOST_ERROR))
            snprintf(result->note, sizeof result->note,
                     "CLBlast's result is wrong here (error %.1e)",
                     result->error);
        else
            result->seconds = seconds / result->part;
    }
    if (failure)
        snprintf(result->note, sizeof result->note, "%s", failure);
    release(&u);
}

void unfused_forget(void) { CLBlastClearCache(); }

#endif
