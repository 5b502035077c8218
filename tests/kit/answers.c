/* SPDX-License-Identifier: Apache-2.0
 * Texts and numbers of devices, and how queries get them. */
#include "answers.h"

#include <stdio.h>
#include <string.h>

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

typedef struct vendor {
    cl_uint id;
    const char *name, *platform;
} vendor;

static const vendor *vendor_of(const wa_device *device)
{
    static const vendor vendors[] = {
        [WA_VENDOR_NVIDIA] = {0x10de, "NVIDIA Corporation", "NVIDIA CUDA"},
        [WA_VENDOR_AMD] = {0x1002, "Advanced Micro Devices, Inc.",
                           "AMD Accelerated Parallel Processing"},
        [WA_VENDOR_INTEL] = {0x8086, "Intel(R) Corporation",
                             "Intel(R) OpenCL Graphics"},
        [WA_VENDOR_ARM] = {0x13b5, "ARM", "ARM Platform"},
        [WA_VENDOR_QUALCOMM] = {0x5143, "QUALCOMM", "QUALCOMM Snapdragon(TM)"},
    };
    static const vendor other = {1, "Somebody", "Some platform"};
    return (size_t)device->vendor < sizeof vendors / sizeof *vendors &&
                   vendors[device->vendor].id
               ? &vendors[device->vendor]
               : &other;
}

const char *usual_platform(const wa_device *device)
{
    return vendor_of(device)->platform;
}

/* ---- Answers ---- */

cl_int answer(const void *bytes, size_t count, size_t size, void *value,
              size_t *needed)
{
    if (value && size < count)
        return CL_INVALID_VALUE;
    if (value && count > 0)
        memcpy(value, bytes, count);
    if (needed)
        *needed = count;
    return CL_SUCCESS;
}

cl_int answer_text(const char *text, size_t size, void *value, size_t *needed)
{
    return answer(text, strlen(text) + 1, size, value, needed);
}

cl_int answer_uint(cl_ulong number, size_t size, void *value, size_t *needed)
{
    const cl_uint is = (cl_uint)number;
    return ANSWER(is);
}

cl_int answer_size(size_t number, size_t size, void *value, size_t *needed)
{
    return ANSWER(number);
}

cl_int answer_ulong(cl_ulong number, size_t size, void *value, size_t *needed)
{
    return ANSWER(number);
}

static cl_int answer_texts(const wa_device *device, cl_device_info what,
                           size_t size, void *value, size_t *needed)
{
    char text[256];
    switch (what) {
    case CL_DEVICE_NAME:
        return answer_text(device->name, size, value, needed);
    case CL_DEVICE_VENDOR:
        return answer_text(vendor_of(device)->name, size, value, needed);
    case CL_DRIVER_VERSION:
        return answer_text(device->driver[0] ? device->driver : "1.0", size,
                           value, needed);
    case CL_DEVICE_VERSION:
        snprintf(text, sizeof text, "OpenCL %u.%u of tests",
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
    const bool is_amd = device->vendor == WA_VENDOR_AMD;
    const size_t sub_groups[3] = {device->sub_group, 16, 32};
    if (what == NV_COMPUTE_CAPABILITY_MAJOR && is_nvidia)
        return answer_uint(device->compute_capability / 10, size, value,
                           needed);
    if (what == NV_COMPUTE_CAPABILITY_MINOR && is_nvidia)
        return answer_uint(device->compute_capability % 10, size, value,
                           needed);
    if ((what == NV_WARP_SIZE && is_nvidia) ||
        (what == AMD_WAVEFRONT_WIDTH && is_amd))
        return answer_uint(device->wave, size, value, needed);
    if (what == INTEL_SUB_GROUP_SIZES && device->sub_group)
        return ANSWER(sub_groups);
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

static cl_int answer_numbers(const wa_device *device, cl_device_info what,
                             size_t size, void *value, size_t *needed)
{
    const size_t items[3] = {device->max_work_group, device->max_work_group,
                             64};
    const cl_device_id no_parent = NULL;
    switch (what) {
    case CL_DEVICE_PARENT_DEVICE:
        return ANSWER(no_parent);
    case CL_DEVICE_TYPE:
        return answer_ulong(device->is_cpu ? CL_DEVICE_TYPE_CPU
                                           : CL_DEVICE_TYPE_GPU,
                            size, value, needed);
    case CL_DEVICE_VENDOR_ID:
        return answer_uint(vendor_of(device)->id, size, value, needed);
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
        return ANSWER(items);
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

cl_int answer_device(const wa_device *device, cl_device_info what, size_t size,
                     void *value, size_t *needed)
{
    cl_int error = answer_numbers(device, what, size, value, needed);
    if (error != CL_SUCCESS)
        error = answer_texts(device, what, size, value, needed);
    if (error != CL_SUCCESS)
        error = answer_vendors(device, what, size, value, needed);
    return error;
}

void *fail_with(cl_int code, cl_int *error)
{
    if (error)
        *error = code;
    return NULL;
}

void *succeed_with(void *made, cl_int *error)
{
    if (error)
        *error = CL_SUCCESS;
    return made;
}
