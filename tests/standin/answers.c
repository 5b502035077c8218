/* SPDX-License-Identifier: Apache-2.0
 * wa_device -> what a driver answers, so that wa_device_query and the probes
 * make the same wa_device of it. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

standin_driver standin_drivers;

/* Of the vendors' extensions, as in host/device/device.c. */
#define NV_COMPUTE_CAPABILITY_MAJOR 0x4000
#define NV_COMPUTE_CAPABILITY_MINOR 0x4001
#define NV_WARP_SIZE 0x4003
#define AMD_WAVEFRONT_WIDTH 0x4043
#define INTEL_SUB_GROUP_SIZES 0x4108
#define PREFERRED_WORK_GROUP_SIZE_MULTIPLE 0x1067

/* What NVIDIA's driver says of local memory; a kernel may have more. */
#define NVIDIA_LOCAL_BYTES (48u * 1024u)

/* Of a buffer, and of all. */
#define MOST_BUFFER_BYTES ((cl_ulong)1 << 40)

static const struct {
    wa_vendor vendor;
    cl_uint id;
    const char *platform;
} vendors[] = {
    {WA_VENDOR_NVIDIA, 0x10de, "NVIDIA CUDA"},
    {WA_VENDOR_AMD, 0x1002, "AMD Accelerated Parallel Processing"},
    {WA_VENDOR_INTEL, 0x8086, "Intel(R) OpenCL Graphics"},
    {WA_VENDOR_ARM, 0x13b5, "ARM Platform"},
    {WA_VENDOR_QUALCOMM, 0x5143, "QUALCOMM Snapdragon(TM)"},
};

static cl_device_id devices;
static cl_platform_id platforms;

/* ---- Devices and platforms ---- */

static cl_platform_id find_platform(const char *name)
{
    cl_platform_id platform = platforms;
    while (platform && strcmp(platform->name, name) != 0)
        platform = platform->next;
    if (!platform) {
        platform = own_calloc(1, sizeof *platform);
        snprintf(platform->name, sizeof platform->name, "%s", name);
        platform->next = platforms;
        platforms = platform;
    }
    return platform;
}

static const char *platform_name(const wa_device *device)
{
    if (device->platform[0])
        return device->platform;
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].vendor == device->vendor)
            return vendors[i].platform;
    return "Some platform";
}

cl_device_id standin_device(const wa_device *device)
{
    cl_device_id made = devices;
    while (made && made->key != device)
        made = made->next;
    if (made)
        return made;
    made = own_calloc(1, sizeof *made);
    made->key = device;
    made->device = *device;
    made->platform = find_platform(platform_name(device));
    made->next = devices;
    devices = made;
    return made;
}

void devices_forget(void)
{
    while (devices) {
        cl_device_id next = devices->next;
        free(devices);
        devices = next;
    }
    while (platforms) {
        cl_platform_id next = platforms->next;
        free(platforms);
        platforms = next;
    }
}

/* As if it were a sub-device; others live as long as their platform. */
cl_int clRetainDevice(cl_device_id device)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    atomic_fetch_add_explicit(&device->retained, 1, memory_order_relaxed);
    return CL_SUCCESS;
}

cl_int clReleaseDevice(cl_device_id device)
{
    if (atomic_fetch_sub_explicit(&device->retained, 1,
                                  memory_order_relaxed) <= 0)
        wrong("%s: the device was not retained", __func__);
    return CL_SUCCESS;
}

long devices_retained(void)
{
    long count = 0;
    for (cl_device_id one = devices; one; one = one->next)
        count += atomic_load_explicit(&one->retained, memory_order_relaxed);
    return count;
}

/* ---- Answers ---- */

cl_int answer(const void *bytes, size_t count, size_t size, void *value,
              size_t *needed)
{
    if (value && size < count)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, bytes, count);
    if (needed)
        *needed = count;
    return CL_SUCCESS;
}

cl_int answer_text(const char *text, size_t size, void *value, size_t *needed)
{
    return answer(text, strlen(text) + 1, size, value, needed);
}

static cl_int answer_uint(cl_ulong number, size_t size, void *value,
                          size_t *needed)
{
    const cl_uint is = (cl_uint)number;
    return answer(&is, sizeof is, size, value, needed);
}

static cl_int answer_size(size_t number, size_t size, void *value,
                          size_t *needed)
{
    return answer(&number, sizeof number, size, value, needed);
}

static cl_int answer_ulong(cl_ulong number, size_t size, void *value,
                           size_t *needed)
{
    return answer(&number, sizeof number, size, value, needed);
}

static cl_uint vendor_id(const wa_device *device)
{
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].vendor == device->vendor)
            return vendors[i].id;
    return 1;
}

static cl_int answer_texts(const wa_device *device, cl_device_info what,
                           size_t size, void *value, size_t *needed)
{
    char text[256];
    switch (what) {
    case CL_DEVICE_NAME:
        return answer_text(device->name, size, value, needed);
    case CL_DEVICE_VENDOR:
        return answer_text(wa_vendor_name(device->vendor), size, value,
                           needed);
    case CL_DRIVER_VERSION:
        return answer_text(device->driver[0] ? device->driver : "1.0", size,
                           value, needed);
    case CL_DEVICE_VERSION:
        snprintf(text, sizeof text, "OpenCL %u.%u stand-in",
                 device->opencl / 100, device->opencl % 100);
        return answer_text(text, size, value, needed);
    case CL_DEVICE_PROFILE:
        return answer_text(device->has_int64 ? "FULL_PROFILE"
                                             : "EMBEDDED_PROFILE",
                           size, value, needed);
    case CL_DEVICE_EXTENSIONS:
        snprintf(text, sizeof text, "cl_khr_byte_addressable_store%s%s",
                 device->sub_group ? " cl_intel_required_subgroup_size" : "",
                 device->has_matrix_extension
                     ? " cl_intel_subgroup_matrix_multiply_accumulate"
                     : "");
        return answer_text(text, size, value, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

/* What only devices of a vendor know. */
static cl_int answer_vendors(const wa_device *device, cl_device_info what,
                             size_t size, void *value, size_t *needed)
{
    const bool is_nvidia = device->vendor == WA_VENDOR_NVIDIA;
    const size_t sub_groups[3] = {device->sub_group, 16, 32};
    switch (what) {
    case NV_COMPUTE_CAPABILITY_MAJOR:
        if (is_nvidia)
            return answer_uint(device->compute_capability / 10, size, value,
                               needed);
        break;
    case NV_COMPUTE_CAPABILITY_MINOR:
        if (is_nvidia)
            return answer_uint(device->compute_capability % 10, size, value,
                               needed);
        break;
    case NV_WARP_SIZE:
        if (is_nvidia)
            return answer_uint(device->wave, size, value, needed);
        break;
    case AMD_WAVEFRONT_WIDTH:
        if (device->vendor == WA_VENDOR_AMD)
            return answer_uint(device->wave, size, value, needed);
        break;
    case INTEL_SUB_GROUP_SIZES:
        if (device->sub_group)
            return answer(sub_groups, sizeof sub_groups, size, value, needed);
        break;
    default:
        break;
    }
    return CL_INVALID_VALUE;
}

/* A driver that says less than a kernel may declare; the probe finds out. */
static cl_ulong reported_local_bytes(const wa_device *device)
{
    return device->vendor == WA_VENDOR_NVIDIA &&
                   device->local_bytes < device->local_capacity &&
                   device->local_bytes > NVIDIA_LOCAL_BYTES
               ? NVIDIA_LOCAL_BYTES
               : device->local_bytes;
}

static cl_int answer_numbers(cl_device_id id, cl_device_info what, size_t size,
                             void *value, size_t *needed)
{
    const wa_device *device = &id->device;
    const size_t items[3] = {device->max_work_group, device->max_work_group,
                             64};
    const cl_device_id no_parent = NULL;
    switch (what) {
    case CL_DEVICE_PLATFORM:
        return answer(&id->platform, sizeof id->platform, size, value, needed);
    case CL_DEVICE_PARENT_DEVICE:
        return answer(&no_parent, sizeof no_parent, size, value, needed);
    case CL_DEVICE_TYPE:
        return answer_ulong(device->is_cpu ? CL_DEVICE_TYPE_CPU
                                           : CL_DEVICE_TYPE_GPU,
                            size, value, needed);
    case CL_DEVICE_VENDOR_ID:
        return answer_uint(vendor_id(device), size, value, needed);
    case CL_DEVICE_SINGLE_FP_CONFIG:
        return answer_ulong(CL_FP_DENORM | CL_FP_INF_NAN |
                                (device->has_fma ? CL_FP_FMA : 0),
                            size, value, needed);
    case CL_DEVICE_COMPILER_AVAILABLE:
        return answer_uint(device->compiles, size, value, needed);
    case CL_DEVICE_LOCAL_MEM_TYPE:
        return answer_uint(device->local_is_global ? CL_GLOBAL : CL_LOCAL,
                           size, value, needed);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        return answer_ulong(reported_local_bytes(device), size, value, needed);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        return answer_uint(device->compute_units, size, value, needed);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY:
        return answer_uint(device->clock_mhz, size, value, needed);
    case CL_DEVICE_ADDRESS_BITS:
        return answer_uint(device->address_bits, size, value, needed);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        return answer_size(device->max_work_group, size, value, needed);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return answer(items, sizeof items, size, value, needed);
    case CL_DEVICE_MAX_PARAMETER_SIZE:
        return answer_size(device->max_parameter_bytes, size, value, needed);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        return answer_ulong(MOST_BUFFER_BYTES, size, value, needed);
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
        return answer_uint(device->vector_lanes, size, value, needed);
    case PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
        return answer_size(device->wave, size, value, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size,
                       void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!device)
        return CL_INVALID_DEVICE;
    cl_int error = answer_numbers(device, what, size, value, needed);
    if (error != CL_SUCCESS)
        error = answer_texts(&device->device, what, size, value, needed);
    if (error != CL_SUCCESS)
        error = answer_vendors(&device->device, what, size, value, needed);
    return error;
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what,
                         size_t size, void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!platform)
        return CL_INVALID_PLATFORM;
    if (what == CL_PLATFORM_NAME)
        return answer_text(platform->name, size, value, needed);
    if (what == CL_PLATFORM_VERSION)
        return answer_text("OpenCL 3.0 stand-in", size, value, needed);
    return CL_INVALID_VALUE;
}
