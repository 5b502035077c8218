/* SPDX-License-Identifier: Apache-2.0 */
#include "device/buffer.h"

#include <stdio.h>

#include "base/status.h"

#define MOST_DEVICES 64

/* Bytes that a buffer of the context may have, which are those of the device
 * that allows most; 0: nobody knows. */
static cl_ulong find_limit(cl_context context)
{
    cl_device_id devices[MOST_DEVICES];
    size_t bytes = 0;
    cl_ulong most = 0;
    if (clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof devices, devices,
                         &bytes) != CL_SUCCESS)
        return 0;
    for (size_t i = 0; i < bytes / sizeof *devices; i++) {
        cl_ulong own = 0;
        if (clGetDeviceInfo(devices[i], CL_DEVICE_MAX_MEM_ALLOC_SIZE,
                            sizeof own, &own, NULL) == CL_SUCCESS &&
            own > most)
            most = own;
    }
    return most;
}

winattn_status wa_make_buffer(cl_context context, cl_mem_flags flags,
                              uint64_t bytes, const void *content,
                              cl_mem *buffer)
{
    cl_int error = CL_INVALID_BUFFER_SIZE;
    *buffer = NULL;
    /* older OpenCL headers lack the const */
    if (bytes <= SIZE_MAX)
        *buffer = clCreateBuffer(
            context, flags | (content ? CL_MEM_COPY_HOST_PTR : 0),
            (size_t)bytes, (void *)(uintptr_t)content, &error);
    if (error == CL_SUCCESS)
        return WINATTN_SUCCESS;
    *buffer = NULL;
    char limit[80] = "";
    const cl_ulong most = find_limit(context);
    if (most != 0)
        snprintf(limit, sizeof limit, "; a buffer has at most %llu",
                 (unsigned long long)most);
    return wa_fail(error, "clCreateBuffer of %llu bytes failed with %s (%d)%s",
                   (unsigned long long)bytes, winattn_status_name(error),
                   (int)error, limit);
}
