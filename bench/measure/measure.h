/* SPDX-License-Identifier: Apache-2.0
 * Times, and the two ceilings that a device's times are compared with. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>

#include "winattn.h"

/* How calls are timed: a device that computes all the time lowers its clock,
 * so that times differ by as much as an eighth. */
typedef enum bench_regime {
    REGIME_BATCHES, /* some batches, one right after the other */
    REGIME_BURST    /* batches of few calls, and a pause before each with a
                       call that is not timed */
} bench_regime;
#define BENCH_REGIMES 2
extern const char *const bench_regimes[BENCH_REGIMES];

typedef struct bench_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    char platform[128];
    char name[128];
    char driver[128];
    bool is_cpu;
    cl_uint vector_lanes;
    cl_ulong memory_bytes;
    cl_ulong largest_buffer;
    size_t largest_group;  /* work-items */
    double copy_bandwidth; /* bytes read + written per second */
    double fma_rate;       /* fp32 operations per second, an FMA counts 2 */
    bench_regime regime;
} bench_device;

bool bench_device_open(cl_device_id id, bench_device *device);
void bench_device_close(bench_device *device);

/* Fills in copy_bandwidth and fma_rate; 0 where a measurement failed. */
void measure_ceilings(bench_device *device);

double now_seconds(void);

/* The least first. */
void measure_sort(double *times, size_t count);

/* The text of a .cl file here, embedded by CMake. */
const char *bench_source(const char *name);

/* Enqueues the round-th call of what is timed. */
typedef winattn_status bench_enqueue(void *data, unsigned round);

/* Median time of one call over batches of pipelined calls that together take
 * about `budget` seconds, or as the device's regime has it; negative if a call
 * failed. */
double measure_calls(const bench_device *device, bench_enqueue *enqueue,
                     void *data, double budget);

#endif
