/* SPDX-License-Identifier: Apache-2.0
 * Times calls of a model, and of the same model unfused. */
#define _POSIX_C_SOURCE 200809L
#include "swin/runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "unfused/parts.h"
#include "unfused/unfused.h"

#define BATCH_GPU 64
#define BATCH_CPU 4
#define MOST_TIMES ((size_t)10000)
#define MEBIBYTE 1048576.0

/* ---- The same model unfused ---- */

/* Beside the one that is measured. */
typedef struct comparison {
    runner *r;
    unfused *model; /* NULL: there is none */
    char note[256]; /* why there is none */
} comparison;

/* Each rounds what the other keeps in registers. */
static double most_difference(winattn_dtype dtype, bool allows_tf32)
{
    static const double most[3] = {1e-4, 1e-2, 8e-2};
    return dtype == WINATTN_FP32 && allows_tf32 ? most[WINATTN_FP16]
                                                : most[dtype];
}

/* One that cannot be is no failure: the device lacks memory, say. */
static void comparison_open(runner *r, const winattn_swin_weights *weights,
                            comparison *c)
{
    *c = (comparison){.r = r};
    const winattn_status status =
        unfused_create(r->model, weights, NULL, &c->model);
    const char *reason = winattn_last_reason();
    if (status != WINATTN_SUCCESS)
        snprintf(c->note, sizeof c->note, "%s",
                 reason[0] ? reason : winattn_status_name(status));
}

static bool comparison_call(void *data)
{
    const comparison *c = data;
    const winattn_model_call call = runner_call(c->r);
    return is_good(unfused_enqueue(c->model, c->r->device->queue, &call),
                   "unfused call");
}

/* Nothing is left of what the logits were. */
static bool forget_logits(const runner *r)
{
    static const cl_uchar not_a_number = 0xff;
    const size_t size = (size_t)r->batch * r->config.classes *
                        (r->dtype == WINATTN_FP32 ? 4 : 2);
    return is_good(clEnqueueFillBuffer(r->device->queue, r->logits,
                                       &not_a_number, 1, 0, size, 0, NULL,
                                       NULL),
                   "logits");
}

/* NaN where one of them is. */
static double relative_difference(const float *a, const float *b, size_t count)
{
    double differences = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double d = (double)a[i] - b[i];
        differences += d * d;
        squares += (double)b[i] * b[i];
    }
    return sqrt(differences / squares);
}

/* Computes the logits of the runner's pictures by both. *difference: of what
 * is unfused, in the 2-norm, relative to the other. False: a call failed, or
 * they are not the same within what the type allows, which was said. */
static bool comparison_check(comparison *c, bool allows_tf32,
                             double *difference)
{
    runner *r = c->r;
    const size_t count = (size_t)r->batch * r->config.classes;
    const double most = most_difference(r->dtype, allows_tf32);
    float *fused = malloc(2 * count * sizeof *fused);
    if (!fused)
        return fail("there is no memory for logits");
    float *unfused_ones = fused + count;
    bool good = forget_logits(r) && runner_start(r) &&
                runner_read_logits(r, fused) && forget_logits(r) &&
                comparison_call(c) && runner_read_logits(r, unfused_ones);
    if (good)
        good = is_finite(r->dtype, "logits of noise", fused, count);
    if (good) {
        *difference = relative_difference(unfused_ones, fused, count);
        good = *difference <= most ||
               fail("logits of the unfused model differ by %.1e, which is "
                    "more than %.1e",
                    *difference, most);
    }
    free(fused);
    return good;
}

/* ---- Times ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_times(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* What is timed, and how long it takes until the device has done it. */
typedef struct timing {
    bool (*call)(void *data);
    void *data;
    double *times; /* MOST_TIMES of them */
    double median;
} timing;

static bool time_call(const swin_device *device, timing *t, size_t index)
{
    const double before = now();
    if (!t->call(t->data) || clFinish(device->queue) != 0)
        return false;
    t->times[index] = now() - before;
    return true;
}

/* All of them in turn, so that whatever else the machine does is shared. */
static bool measure_all(const swin_device *device, timing *all, size_t count,
                        double seconds)
{
    size_t rounds = 0;
    bool good = true;
    /* the first calls may still compile, and wake the device */
    for (size_t i = 0; good && i < count; i++)
        good = time_call(device, &all[i], 0);
    const double end = now() + seconds * (double)count;
    while (good && rounds < MOST_TIMES && (rounds < 3 || now() < end)) {
        for (size_t i = 0; good && i < count; i++)
            good = time_call(device, &all[i], rounds);
        rounds++;
    }
    for (size_t i = 0; good && i < count; i++) {
        qsort(all[i].times, rounds, sizeof(double), compare_times);
        all[i].median = all[i].times[rounds / 2];
    }
    return good;
}

static bool call_model(void *data) { return runner_start(data); }

/* Any pictures do. */
static bool send_noise(runner *r)
{
    const size_t size = r->picture_bytes * r->batch;
    unsigned char *noise = malloc(size);
    uint32_t state = 1;
    if (!noise)
        return fail("there is no memory for %u pictures", (unsigned)r->batch);
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        noise[i] = (unsigned char)(state >> 24);
    }
    const bool sent = runner_send(r, noise);
    free(noise);
    return sent;
}

/* The number behind "weights: " in what the model says of itself. */
static double weight_bytes(const runner *r)
{
    static const char name[] = "\nweights: ";
    char text[4096] = "";
    if (winattn_model_describe(r->model, sizeof text, text, NULL) != 0)
        return 0;
    const char *at = strstr(text, name);
    return at ? strtod(at + sizeof name - 1, NULL) : 0;
}

/* What is measured in turn. */
typedef enum timed { WHOLE, UNFUSED, TIMED } timed;

static void print_times(const runner *r, const timing *all)
{
    const double whole = all[WHOLE].median, weights = weight_bytes(r);
    printf("batch %u: %.3f ms, %.1f pictures/s\n", (unsigned)r->batch,
           1e3 * whole, r->batch / whole);
    printf("  memory: %.1f MiB, of which weights %.1f MiB\n",
           (weights + (double)r->buffer_bytes) / MEBIBYTE, weights / MEBIBYTE);
}

static void print_unfused(const comparison *c, const timing *all,
                          double difference)
{
    const double bytes = weight_bytes(c->r) + (double)unfused_bytes(c->model) +
                         (double)(c->r->buffer_bytes - c->r->workspace_bytes);
    printf("  unfused: %.3f ms, %.2f times as long; memory: %.1f MiB; the "
           "same logits within %.1e\n",
           1e3 * all[UNFUSED].median, all[UNFUSED].median / all[WHOLE].median,
           bytes / MEBIBYTE, difference);
}

static bool measure_runner(const options *o, runner *r, comparison *c)
{
    double *times = calloc(TIMED * MOST_TIMES, sizeof *times);
    double difference = 0;
    timing all[TIMED] = {[WHOLE] = {.call = call_model, .data = r},
                         [UNFUSED] = {.call = comparison_call, .data = c}};
    const size_t count = c->model ? TIMED : UNFUSED;
    for (int i = 0; i < TIMED; i++)
        all[i].times = times ? times + (size_t)i * MOST_TIMES : NULL;
    if (!times)
        fail("there is no memory for times");
    fprintf(stderr, "batch %u: %.1f s of calls\n", (unsigned)r->batch,
            (double)count * o->seconds);
    const bool good =
        times && send_noise(r) &&
        (!c->model || comparison_check(c, o->allow_tf32, &difference)) &&
        measure_all(r->device, all, count, o->seconds);
    if (good) {
        print_times(r, all);
        if (c->model)
            print_unfused(c, all, difference);
        else if (!o->no_unfused)
            printf("  unfused: not measured: %s\n", c->note);
        const winattn_model_call call = runner_call(r);
        print_parts(r->model, &call, o->seconds / all[WHOLE].median);
        fflush(stdout);
    }
    free(times);
    return good;
}

static bool measure_batch(const options *o, const swin_device *device,
                          const winattn_swin_weights *weights,
                          const winattn_swin_config *config, cl_uint batch)
{
    runner r;
    fprintf(stderr, "batch %u: making the model\n", (unsigned)batch);
    if (!runner_open(o, device, weights, config, batch, false, &r))
        return false;
    comparison c = {.r = &r};
    if (!o->no_unfused)
        comparison_open(&r, weights, &c);
    const bool good = measure_runner(o, &r, &c);
    unfused_destroy(c.model);
    runner_close(&r);
    return good;
}

bool measure(const options *o, const swin_device *device,
             const winattn_swin_weights *weights,
             const winattn_swin_config *config)
{
    const cl_uint batch =
        o->batch ? o->batch : (device->is_cpu ? BATCH_CPU : BATCH_GPU);
    return measure_batch(o, device, weights, config, batch) &&
           (batch == 1 || measure_batch(o, device, weights, config, 1));
}
