/* SPDX-License-Identifier: Apache-2.0
 * To be loaded before OpenCL's loader: launches of winattn's forward kernels
 * end with the number that FAILING_CALLS says, as a device may let them, and
 * questions for platforms or their devices with that of FAILING_PLATFORMS or
 * FAILING_DEVICES, and the clock goes SLOW_MACHINE times as fast, as it does
 * for those who wait. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <CL/cl.h>

typedef cl_int get_platforms(cl_uint, cl_platform_id *, cl_uint *);
typedef cl_int get_devices(cl_platform_id, cl_device_type, cl_uint,
                           cl_device_id *, cl_uint *);

cl_int clGetPlatformIDs(cl_uint most, cl_platform_id *platforms,
                        cl_uint *count)
{
    const char *code = getenv("FAILING_PLATFORMS");
    get_platforms *real;
    *(void **)&real = dlsym(RTLD_NEXT, "clGetPlatformIDs");
    return code ? atoi(code) : real(most, platforms, count);
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type,
                      cl_uint most, cl_device_id *devices, cl_uint *count)
{
    const char *code = getenv("FAILING_DEVICES");
    get_devices *real;
    *(void **)&real = dlsym(RTLD_NEXT, "clGetDeviceIDs");
    return code ? atoi(code) : real(platform, type, most, devices, count);
}

typedef cl_int enqueue(cl_command_queue, cl_kernel, cl_uint, const size_t *,
                       const size_t *, const size_t *, cl_uint,
                       const cl_event *, cl_event *);
typedef cl_int get_info(cl_kernel, cl_kernel_info, size_t, void *, size_t *);

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                              cl_uint dim, const size_t *offset,
                              const size_t *global, const size_t *local,
                              cl_uint waits, const cl_event *wait,
                              cl_event *event)
{
    const char *code = getenv("FAILING_CALLS");
    char name[64] = "";
    enqueue *real;
    get_info *kernel_info;
    *(void **)&real = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    /* linkers that drivers start have this file, too, but no OpenCL */
    *(void **)&kernel_info = dlsym(RTLD_NEXT, "clGetKernelInfo");
    kernel_info(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (code && strncmp(name, "forward", 7) == 0)
        return atoi(code);
    return real(queue, kernel, dim, offset, global, local, waits, wait, event);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    typedef int get_time(clockid_t, struct timespec *);
    const char *text = getenv("SLOW_MACHINE");
    const long long times = text ? atoi(text) : 1;
    get_time *real;
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    const int result = real(clock, now);
    if (clock == CLOCK_MONOTONIC && times > 1) {
        const long long fraction = now->tv_nsec * times;
        now->tv_sec = now->tv_sec * times + fraction / 1000000000;
        now->tv_nsec = fraction % 1000000000;
    }
    return result;
}
