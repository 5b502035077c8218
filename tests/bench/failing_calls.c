/* SPDX-License-Identifier: Apache-2.0
 * To be loaded before OpenCL's loader: launches of winattn's forward kernels
 * end with the number that FAILING_CALLS says, as a device may let them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

typedef cl_int enqueue(cl_command_queue, cl_kernel, cl_uint, const size_t *,
                       const size_t *, const size_t *, cl_uint,
                       const cl_event *, cl_event *);

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                              cl_uint dim, const size_t *offset,
                              const size_t *global, const size_t *local,
                              cl_uint waits, const cl_event *wait,
                              cl_event *event)
{
    const char *code = getenv("FAILING_CALLS");
    char name[64] = "";
    enqueue *real;
    *(void **)&real = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (code && strncmp(name, "forward", 7) == 0)
        return atoi(code);
    return real(queue, kernel, dim, offset, global, local, waits, wait, event);
}
