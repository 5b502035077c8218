/* SPDX-License-Identifier: Apache-2.0
 * Where OpenCL's loader comes in, and the table of functions that it calls. */
#include "driver.h"

#include <pthread.h>
#include <string.h>

#include "kit/devices.h"

#define EXPORTED __attribute__((visibility("default")))

/* ---- The table ---- */

EXPORTED void *clGetExtensionFunctionAddress(const char *name);

/* What nobody here calls is not there. */
#define OWN(name) .name = name
const cl_icd_dispatch driver_dispatch = {
    OWN(clGetPlatformInfo),
    OWN(clGetDeviceIDs),
    OWN(clGetDeviceInfo),
    OWN(clCreateContext),
    OWN(clRetainContext),
    OWN(clReleaseContext),
    OWN(clGetContextInfo),
    OWN(clCreateCommandQueue),
    OWN(clRetainCommandQueue),
    OWN(clReleaseCommandQueue),
    OWN(clGetCommandQueueInfo),
    OWN(clCreateBuffer),
    OWN(clRetainMemObject),
    OWN(clReleaseMemObject),
    OWN(clGetMemObjectInfo),
    OWN(clCreateProgramWithSource),
    OWN(clCreateProgramWithBinary),
    OWN(clRetainProgram),
    OWN(clReleaseProgram),
    OWN(clBuildProgram),
    OWN(clGetProgramInfo),
    OWN(clGetProgramBuildInfo),
    OWN(clCreateKernel),
    OWN(clRetainKernel),
    OWN(clReleaseKernel),
    OWN(clSetKernelArg),
    OWN(clGetKernelInfo),
    OWN(clGetKernelWorkGroupInfo),
    OWN(clWaitForEvents),
    OWN(clGetEventInfo),
    OWN(clRetainEvent),
    OWN(clReleaseEvent),
    OWN(clGetEventProfilingInfo),
    OWN(clFlush),
    OWN(clFinish),
    OWN(clEnqueueReadBuffer),
    OWN(clEnqueueWriteBuffer),
    OWN(clEnqueueCopyBuffer),
    OWN(clEnqueueNDRangeKernel),
    OWN(clGetExtensionFunctionAddress),
    OWN(clCreateUserEvent),
    OWN(clSetUserEventStatus),
    OWN(clCreateSubDevices),
    OWN(clRetainDevice),
    OWN(clReleaseDevice),
    OWN(clEnqueueFillBuffer),
    OWN(clEnqueueMarkerWithWaitList),
};

/* ---- Entry points ---- */

EXPORTED cl_int clIcdGetPlatformIDsKHR(cl_uint count,
                                       cl_platform_id *platforms,
                                       cl_uint *found);

static void find_devices(void)
{
    for (cl_uint i = 0; i < driver_device_count; i++)
        driver_devices[i].is = made_up_device(driver_devices[i].like);
}

cl_int clIcdGetPlatformIDsKHR(cl_uint count, cl_platform_id *platforms,
                              cl_uint *found)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_devices);
    if ((count == 0 && platforms) || (!platforms && !found))
        return CL_INVALID_VALUE;
    if (platforms)
        platforms[0] = &driver_platform;
    if (found)
        *found = 1;
    return CL_SUCCESS;
}

void *clGetExtensionFunctionAddress(const char *name)
{
    void (*found)(void) = NULL;
    void *address;
    if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0)
        found = (void (*)(void))clIcdGetPlatformIDsKHR;
    else if (strcmp(name, "clGetPlatformInfo") == 0)
        found = (void (*)(void))clGetPlatformInfo;
    memcpy(&address, &found, sizeof address);
    return address;
}
