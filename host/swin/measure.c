/* SPDX-License-Identifier: Apache-2.0
 * Times whole calls, and their parts by themselves. */
#define _POSIX_C_SOURCE 200809L
#include "swin/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "swin/parts.h"

#define BATCH_GPU 64
#define BATCH_CPU 4
#define MOST_TIMES 10000
#define MEBIBYTE 1048576.0

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

double measure_median(const swin_device *device, swin_call *call, void *data,
                      double seconds)
{
    double *times = calloc(MOST_TIMES, sizeof *times);
    if (!times)
        fprintf(stderr, "winattn-swin: there is no memory for times\n");
    size_t count = 0;
    double median = -1;
    /* the first call may still compile, and wakes the device */
    bool good = times && call(data) && clFinish(device->queue) == 0;
    const double start = now();
    while (good && count < MOST_TIMES &&
           (count < 3 || now() < start + seconds)) {
        const double before = now();
        good = call(data) && clFinish(device->queue) == 0;
        times[count++] = now() - before;
    }
    if (good) {
        qsort(times, count, sizeof *times, compare_times);
        median = times[count / 2];
    }
    free(times);
    return median;
}

static bool call_model(void *data) { return runner_start(data); }

/* Any pictures do. */
static bool send_noise(runner *r)
{
    const size_t size = r->picture_bytes * r->batch;
    unsigned char *noise = malloc(size);
    uint32_t state = 1;
    if (!noise) {
        fprintf(stderr, "winattn-swin: there is no memory for %u pictures\n",
                (unsigned)r->batch);
        return false;
    }
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

static void print_memory(const runner *r)
{
    const double weights = weight_bytes(r);
    const double all = weights + (double)r->buffer_bytes;
    printf("  memory: %.1f MiB, of which weights %.1f MiB\n", all / MEBIBYTE,
           weights / MEBIBYTE);
}

static bool measure_batch(const options *o, const swin_device *device,
                          const winattn_swin_weights *weights,
                          const winattn_swin_config *config, cl_uint batch)
{
    runner r;
    fprintf(stderr, "batch %u: making the model\n", (unsigned)batch);
    if (!runner_open(o, device, weights, config, batch, false, &r))
        return false;
    fprintf(stderr, "batch %u: %.1f s of calls\n", (unsigned)batch,
            o->seconds);
    double median = -1;
    if (send_noise(&r))
        median = measure_median(device, call_model, &r, o->seconds);
    if (median > 0) {
        printf("batch %u: %.3f ms, %.1f pictures/s\n", (unsigned)batch,
               1e3 * median, batch / median);
        print_memory(&r);
        fflush(stdout);
    }
    runner_close(&r);
    return median > 0 && measure_parts(o, device, config, batch, median);
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
