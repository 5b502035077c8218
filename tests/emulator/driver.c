/* SPDX-License-Identifier: Apache-2.0
 * Where OpenCL's loader comes in, and the table of functions that it calls. */
#include "driver.h"

#include <pthread.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

cl_icd_dispatch driver_dispatch;

/* ---- What is not there ---- */

static cl_int refuse(void) { return CL_INVALID_OPERATION; }

/* Of functions that return a handle or an address. */
static void *give_nothing(void) { return NULL; }

static cl_mem refuse_image(cl_context context, cl_mem_flags flags,
                           const cl_image_format *format,
                           const cl_image_desc *shape, void *host,
                           cl_int *error)
{
    (void)flags;
    (void)format;
    (void)shape;
    (void)host;
    return fail_with(object_is(context, OBJECT_CONTEXT) ? CL_INVALID_OPERATION
                                                        : CL_INVALID_CONTEXT,
                     error);
}

/* ---- The table ---- */

/* Makes a function that returns nothing what stands at an entry, whose type is
 * its function's own: parameters are not looked at, and the caller takes them
 * away. Headers differ in what they call these types. */
static void enter_nothing(void *entry, size_t size)
{
    void *(*const nothing)(void) = give_nothing;
    if (size == sizeof nothing)
        memcpy(entry, &nothing, size);
}

#define NOTHING(name)                                                         \
    enter_nothing(&driver_dispatch.name, sizeof driver_dispatch.name)

static void give_no_handles(void)
{
    NOTHING(clCreateImage2D);
    NOTHING(clCreateImage3D);
    NOTHING(clCreateSampler);
    NOTHING(clEnqueueMapImage);
    NOTHING(clCreateFromGLBuffer);
    NOTHING(clCreateFromGLTexture2D);
    NOTHING(clCreateFromGLTexture3D);
    NOTHING(clCreateFromGLTexture);
    NOTHING(clCreateFromGLRenderbuffer);
    NOTHING(clCreateProgramWithBuiltInKernels);
    NOTHING(clLinkProgram);
    NOTHING(clCreatePipe);
    NOTHING(clSVMAlloc);
    NOTHING(clCreateSamplerWithProperties);
    NOTHING(clCloneKernel);
    NOTHING(clCreateProgramWithIL);
    NOTHING(clCreateImageWithProperties);
    NOTHING(clGetExtensionFunctionAddressForPlatform);
    NOTHING(clCreateFromEGLImageKHR);
    NOTHING(clCreateEventFromEGLSyncKHR);
    NOTHING(clCreateEventFromGLsyncKHR);
}

EXPORTED void *clGetExtensionFunctionAddress(const char *name);

#define OWN(name) .name = name
static const cl_icd_dispatch own = {
    OWN(clGetPlatformInfo),
    OWN(clGetDeviceIDs),
    OWN(clGetDeviceInfo),
    OWN(clCreateContext),
    OWN(clCreateContextFromType),
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
    OWN(clEnqueueMapBuffer),
    OWN(clEnqueueUnmapMemObject),
    OWN(clEnqueueNDRangeKernel),
    OWN(clGetExtensionFunctionAddress),
    OWN(clCreateSubBuffer),
    OWN(clCreateUserEvent),
    OWN(clSetUserEventStatus),
    OWN(clCreateSubDevices),
    OWN(clRetainDevice),
    OWN(clReleaseDevice),
    OWN(clEnqueueFillBuffer),
    OWN(clEnqueueMarkerWithWaitList),
    OWN(clEnqueueBarrierWithWaitList),
    OWN(clCreateCommandQueueWithProperties),
    OWN(clCreateBufferWithProperties),
    .clCreateImage = refuse_image,
};

/* Entries of the table are all of one size. */
static void fill_table(void)
{
    void (*const missing)(void) = (void (*)(void))refuse;
    unsigned char *const to = (unsigned char *)&driver_dispatch;
    const unsigned char *const from = (const unsigned char *)&own;
    static const unsigned char nothing[sizeof missing];
    for (size_t at = 0; at < sizeof own; at += sizeof missing)
        memcpy(to + at, &missing, sizeof missing);
    give_no_handles();
    for (size_t at = 0; at < sizeof own; at += sizeof missing)
        if (memcmp(from + at, nothing, sizeof missing) != 0)
            memcpy(to + at, from + at, sizeof missing);
}

/* ---- Entry points ---- */

EXPORTED cl_int clIcdGetPlatformIDsKHR(cl_uint count,
                                       cl_platform_id *platforms,
                                       cl_uint *found);

cl_int clIcdGetPlatformIDsKHR(cl_uint count, cl_platform_id *platforms,
                              cl_uint *found)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
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
