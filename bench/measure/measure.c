/* SPDX-License-Identifier: Apache-2.0
 * Measuring: wall clock around batches of pipelined launches. */
#define _POSIX_C_SOURCE 199309L
#include "measure/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

#define BATCHES 5
/* A burst has at least so many calls, and takes so many seconds: what the host
 * takes until the first of them runs, 0.02 to 0.1 ms, would show in 20 short
 * ones. */
#define BURST_CALLS 20u
#define BURST_SECONDS 0.01
#define BURST_PAUSE 0.05 /* seconds */

const char *const bench_regimes[BENCH_REGIMES] = {"batches", "burst"};
#define MOST_CALLS 4000u

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool bench_device_open(cl_device_id id, bench_device *device)
{
    cl_platform_id platform = NULL;
    cl_device_type type = 0;
    cl_int error;
    memset(device, 0, sizeof *device);
    device->id = id;
    clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof device->platform,
                      device->platform, NULL);
    clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof device->name, device->name,
                    NULL);
    clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof device->driver,
                    device->driver, NULL);
    wa_make_plain(device->platform, "");
    wa_make_plain(device->name, "");
    wa_make_plain(device->driver, "");
    clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    clGetDeviceInfo(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT,
                    sizeof device->vector_lanes, &device->vector_lanes, NULL);
    clGetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof device->memory_bytes,
                    &device->memory_bytes, NULL);
    clGetDeviceInfo(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
                    sizeof device->largest_buffer, &device->largest_buffer,
                    NULL);
    clGetDeviceInfo(id, CL_DEVICE_MAX_WORK_GROUP_SIZE,
                    sizeof device->largest_group, &device->largest_group,
                    NULL);
    device->is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
    device->context = clCreateContext(NULL, 1, &id, NULL, NULL, &error);
    if (error != CL_SUCCESS)
        return false;
    device->queue = clCreateCommandQueue(device->context, id, 0, &error);
    return error == CL_SUCCESS;
}

void bench_device_close(bench_device *device)
{
    if (device->queue)
        clReleaseCommandQueue(device->queue);
    if (device->context)
        clReleaseContext(device->context);
    memset(device, 0, sizeof *device);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void measure_sort(double *times, size_t count)
{
    qsort(times, count, sizeof *times, ascending);
}

static double batch(const bench_device *device, bench_enqueue *enqueue,
                    void *data, unsigned calls, unsigned *round)
{
    const double start = now_seconds();
    for (unsigned i = 0; i < calls; i++)
        if (enqueue(data, (*round)++) != WINATTN_SUCCESS)
            return -1;
    if (clFinish(device->queue) != CL_SUCCESS)
        return -1;
    return (now_seconds() - start) / calls;
}

double measure_calls(const bench_device *device, bench_enqueue *enqueue,
                     void *data, double budget)
{
    const double start = now_seconds();
    unsigned round = 0, calls = 1;
    double times[BATCHES];
    int batches = 0;
    if (batch(device, enqueue, data, 1, &round) < 0) /* warms up */
        return -1;
    const double share = budget / (BATCHES + 1);
    for (;;) {
        const double t = batch(device, enqueue, data, calls, &round);
        if (t < 0)
            return -1;
        if (t * calls > share / 4 || calls >= MOST_CALLS) {
            calls = (unsigned)fmin(share / t, MOST_CALLS);
            times[0] = t;
            break;
        }
        calls *= 4;
    }
    calls = calls < 1 ? 1 : calls;
    if (device->regime == REGIME_BURST)
        calls = (unsigned)fmin(
            calls, fmax(BURST_CALLS, ceil(BURST_SECONDS / times[0])));
    /* a call that alone takes the budget is not repeated */
    while (batches < BATCHES &&
           (batches == 0 || now_seconds() - start < budget)) {
        if (batches == 0 && now_seconds() - start > budget)
            return times[0];
        if (device->regime == REGIME_BURST) {
            /* nothing is to be computed so long */
            for (const double end = now_seconds() + BURST_PAUSE;
                 now_seconds() < end;)
                ;
            /* wakes host and device */
            if (batch(device, enqueue, data, 1, &round) < 0)
                return -1;
        }
        times[batches] = batch(device, enqueue, data, calls, &round);
        if (times[batches++] < 0)
            return -1;
    }
    measure_sort(times, (size_t)batches);
    return times[batches / 2];
}

/* ---- Ceilings ---- */

static const char *const ceiling_source =
    "__kernel void copy(__global const uint4 *from, __global uint4 *to)\n"
    "{\n"
    "    to[get_global_id(0)] = from[get_global_id(0)];\n"
    "}\n"
    /* twelve chains that do not wait for each other */
    "#define STEP(x) x = FMA(x, a, b);\n"
    "#define ALL STEP(c0) STEP(c1) STEP(c2) STEP(c3) STEP(c4) STEP(c5) \\\n"
    "    STEP(c6) STEP(c7) STEP(c8) STEP(c9) STEP(c10) STEP(c11)\n"
    "__kernel void multiply_add(__global VEC *to, float s, int rounds)\n"
    "{\n"
    "    const VEC a = (VEC)(s), b = (VEC)(1.0f - s);\n"
    "    const VEC x = (VEC)((float)get_global_id(0));\n"
    "    VEC c0 = x, c1 = x + 1, c2 = x + 2, c3 = x + 3, c4 = x + 4,\n"
    "        c5 = x + 5, c6 = x + 6, c7 = x + 7, c8 = x + 8, c9 = x + 9,\n"
    "        c10 = x + 10, c11 = x + 11;\n"
    "    for (int i = 0; i < rounds; i++) {\n"
    "        ALL ALL ALL ALL\n"
    "    }\n"
    "    to[get_global_id(0)] = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 +\n"
    "        c9 + c10 + c11;\n"
    "}\n";
#define FMA_PER_ROUND 48

typedef struct ceiling {
    const bench_device *device;
    cl_kernel kernel; /* NULL: clEnqueueCopyBuffer */
    cl_mem from, to;
    size_t bytes, items, group;
} ceiling;

static winattn_status enqueue_ceiling(void *data, unsigned round)
{
    ceiling *c = data;
    (void)round;
    if (!c->kernel)
        return clEnqueueCopyBuffer(c->device->queue, c->from, c->to, 0, 0,
                                   c->bytes, 0, NULL, NULL);
    return clEnqueueNDRangeKernel(c->device->queue, c->kernel, 1, NULL,
                                  &c->items, c->group ? &c->group : NULL, 0,
                                  NULL, NULL);
}

static cl_kernel build_ceiling(const bench_device *device, const char *name,
                               unsigned lanes)
{
    char options[64];
    cl_int error;
    cl_kernel kernel = NULL;
    const char *source = ceiling_source;
    cl_program program =
        clCreateProgramWithSource(device->context, 1, &source, NULL, &error);
    if (error != CL_SUCCESS)
        return NULL;
    cl_device_fp_config fp32 = 0;
    clGetDeviceInfo(device->id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof fp32, &fp32,
                    NULL);
    const char *fma = fp32 & CL_FP_FMA ? "fma" : "mad";
    if (lanes > 1)
        snprintf(options, sizeof options, "-DFMA=%s -DVEC=float%u", fma,
                 lanes);
    else
        snprintf(options, sizeof options, "-DFMA=%s -DVEC=float", fma);
    if (clBuildProgram(program, 1, &device->id, options, NULL, NULL) ==
        CL_SUCCESS)
        kernel = clCreateKernel(program, name, &error);
    clReleaseProgram(program);
    return kernel;
}

static double copy_bandwidth(const bench_device *device)
{
    cl_int error;
    double best = 0;
    cl_ulong bytes = device->memory_bytes / 4;
    bytes = bytes > 1u << 30 ? 1u << 30 : bytes;
    bytes = bytes > device->largest_buffer ? device->largest_buffer : bytes;
    ceiling c = {.device = device, .bytes = (size_t)(bytes / 8192 * 4096)};
    c.from = clCreateBuffer(device->context, CL_MEM_READ_WRITE, c.bytes, NULL,
                            &error);
    c.to = clCreateBuffer(device->context, CL_MEM_READ_WRITE, c.bytes, NULL,
                          &error);
    const cl_uint one = 0x3f800001;
    if (c.from && c.to &&
        clEnqueueFillBuffer(device->queue, c.from, &one, sizeof one, 0,
                            c.bytes, 0, NULL, NULL) == CL_SUCCESS)
        for (int by_kernel = 0; by_kernel < 2; by_kernel++) {
            if (by_kernel) {
                c.kernel = build_ceiling(device, "copy", 1);
                if (!c.kernel)
                    break;
                c.items = c.bytes / 16;
                clSetKernelArg(c.kernel, 0, sizeof c.from, &c.from);
                clSetKernelArg(c.kernel, 1, sizeof c.to, &c.to);
            }
            const double t = measure_calls(device, enqueue_ceiling, &c, 0.3);
            const double rate = t > 0 ? 2.0 * (double)c.bytes / t : 0;
            best = rate > best ? rate : best;
        }
    if (c.kernel)
        clReleaseKernel(c.kernel);
    if (c.from)
        clReleaseMemObject(c.from);
    if (c.to)
        clReleaseMemObject(c.to);
    return best;
}

static double fma_rate(const bench_device *device)
{
    static const unsigned widths[] = {1, 4, 8, 16};
    const cl_float s = 0.999f;
    double best = 0;
    cl_int error;
    cl_uint units = 1;
    clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units,
                    &units, NULL);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        /* CPUs need their vectors spelled out; GPUs do not */
        if (device->is_cpu ? widths[i] < 4 : widths[i] > 4)
            continue;
        ceiling c = {.device = device};
        c.group = device->is_cpu ? 1 : 128;
        c.items = device->is_cpu ? units * 16 : units * 2048 * 8;
        cl_int rounds = device->is_cpu ? 20000 : 400;
        c.to = clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                              c.items * 4 * widths[i], NULL, &error);
        c.kernel = build_ceiling(device, "multiply_add", widths[i]);
        if (c.to && c.kernel) {
            clSetKernelArg(c.kernel, 0, sizeof c.to, &c.to);
            clSetKernelArg(c.kernel, 1, sizeof s, &s);
            /* a slow device gets fewer rounds */
            for (cl_int tried = 1; tried < rounds; tried *= 4) {
                clSetKernelArg(c.kernel, 2, sizeof tried, &tried);
                if (measure_calls(device, enqueue_ceiling, &c, 0.0) > 0.01)
                    rounds = tried;
            }
            clSetKernelArg(c.kernel, 2, sizeof rounds, &rounds);
            const double t = measure_calls(device, enqueue_ceiling, &c, 0.3);
            const double rate = t > 0 ? 2.0 * FMA_PER_ROUND * rounds *
                                            widths[i] * (double)c.items / t
                                      : 0;
            best = rate > best ? rate : best;
        }
        if (c.kernel)
            clReleaseKernel(c.kernel);
        if (c.to)
            clReleaseMemObject(c.to);
    }
    return best;
}

void measure_ceilings(bench_device *device)
{
    device->copy_bandwidth = copy_bandwidth(device);
    device->fma_rate = fma_rate(device);
}
