/* SPDX-License-Identifier: Apache-2.0
 * The platform and its devices, and what they answer. */
#include "driver.h"

#include "driver_version.h"

#define DEVICE_UUID 0x106a /* as headers may not know */
#define PLATFORM_VERSION "OpenCL 3.0 emulated"

struct _cl_platform_id driver_platform = {&driver_dispatch};

/* ---- Platform ---- */

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what,
                         size_t size, void *value, size_t *needed)
{
    if (platform != &driver_platform)
        return CL_INVALID_PLATFORM;
    switch (what) {
    case CL_PLATFORM_NAME:
        return answer_text("Emulated GPUs", size, value, needed);
    case CL_PLATFORM_VENDOR:
        return answer_text("winattn", size, value, needed);
    case CL_PLATFORM_VERSION:
        return answer_text(PLATFORM_VERSION, size, value, needed);
    case CL_PLATFORM_PROFILE:
        return answer_text("FULL_PROFILE", size, value, needed);
    case CL_PLATFORM_EXTENSIONS:
        return answer_text("cl_khr_icd", size, value, needed);
    case CL_PLATFORM_ICD_SUFFIX_KHR:
        return answer_text("EMULATED", size, value, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type,
                      cl_uint count, cl_device_id *devices, cl_uint *found)
{
    const cl_device_type all = CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
                               CL_DEVICE_TYPE_ACCELERATOR |
                               CL_DEVICE_TYPE_CUSTOM | CL_DEVICE_TYPE_DEFAULT;
    cl_uint most = driver_device_count;
    if (platform && platform != &driver_platform)
        return CL_INVALID_PLATFORM;
    if (type != CL_DEVICE_TYPE_ALL && (type == 0 || (type & ~all)))
        return CL_INVALID_DEVICE_TYPE;
    if ((count == 0) != (devices == NULL) || (!devices && !found))
        return CL_INVALID_VALUE;
    if (found)
        *found = 0;
    if (!(type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT)) ||
        !compiler_is_there())
        return CL_DEVICE_NOT_FOUND;
    if (type == CL_DEVICE_TYPE_DEFAULT)
        most = 1;
    if (found)
        *found = most;
    for (cl_uint i = 0; devices && i < count && i < most; i++)
        devices[i] = &driver_devices[i];
    return CL_SUCCESS;
}

/* ---- Device ---- */

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size,
                       void *value, size_t *needed)
{
    const cl_platform_id platform = &driver_platform;
    if (!device_is(device))
        return CL_INVALID_DEVICE;
    switch (what) {
    case CL_DEVICE_PLATFORM:
        return ANSWER(platform);
    case CL_DEVICE_NAME:
        return answer_text(device->name, size, value, needed);
    case CL_DRIVER_VERSION:
        return answer_text(DRIVER_VERSION, size, value, needed);
    case CL_DEVICE_EXTENSIONS:
        return answer_text(device->extensions, size, value, needed);
    case CL_DEVICE_MAX_PARAMETER_SIZE:
        return answer_size(device->parameter_bytes, size, value, needed);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return answer_ulong(MEMORY_BYTES / 4, size, value, needed);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        return answer_ulong(MEMORY_BYTES, size, value, needed);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
        return answer_uint(ADDRESS_ALIGN * 8, size, value, needed);
    case CL_DEVICE_IMAGE_SUPPORT:
        return answer_uint(CL_FALSE, size, value, needed);
    case DEVICE_UUID:
        return device->uuid ? answer(device->uuid, EMULATED_UUID_BYTES, size,
                                     value, needed)
                            : CL_INVALID_VALUE;
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
        return answer_uint(1, size, value, needed);
    default:
        return answer_device(device->is, what, size, value, needed);
    }
}

bool device_is(cl_device_id device)
{
    for (cl_uint i = 0; i < driver_device_count; i++)
        if (device == &driver_devices[i])
            return true;
    return false;
}

/* A whole device is not counted. */
cl_int clRetainDevice(cl_device_id device)
{
    return device_is(device) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int clReleaseDevice(cl_device_id device)
{
    return device_is(device) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int clCreateSubDevices(cl_device_id device,
                          const cl_device_partition_property *how,
                          cl_uint count, cl_device_id *devices, cl_uint *found)
{
    (void)how;
    (void)count;
    (void)devices;
    (void)found;
    return device_is(device) ? CL_INVALID_VALUE : CL_INVALID_DEVICE;
}
