/* SPDX-License-Identifier: Apache-2.0
 * The platform and its devices, and what they answer. */
#include "driver.h"

#include "driver_version.h"

#define PLATFORM_VERSION "OpenCL 3.0 emulated"

/* Of cl_nv_device_attribute_query, cl_amd_device_attribute_query and
 * cl_intel_required_subgroup_size; not every OpenCL header has them. */
#define NV_COMPUTE_CAPABILITY_MAJOR 0x4000
#define NV_COMPUTE_CAPABILITY_MINOR 0x4001
#define NV_REGISTERS_PER_BLOCK 0x4002
#define NV_WARP_SIZE 0x4003
#define AMD_WAVEFRONT_WIDTH 0x4043
#define INTEL_SUB_GROUP_SIZES 0x4108

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

static cl_int answer_uint(cl_uint number, size_t size, void *value,
                          size_t *needed)
{
    return ANSWER(number);
}

static cl_int answer_ulong(cl_ulong number, size_t size, void *value,
                           size_t *needed)
{
    return ANSWER(number);
}

static cl_int answer_size(size_t number, size_t size, void *value,
                          size_t *needed)
{
    return ANSWER(number);
}

static cl_int answer_texts(cl_device_id device, cl_device_info what,
                           size_t size, void *value, size_t *needed)
{
    switch (what) {
    case CL_DEVICE_NAME:
        return answer_text(device->name, size, value, needed);
    case CL_DEVICE_VENDOR:
        return answer_text(device->vendor, size, value, needed);
    case CL_DRIVER_VERSION:
        return answer_text(DRIVER_VERSION, size, value, needed);
    case CL_DEVICE_PROFILE:
        return answer_text("FULL_PROFILE", size, value, needed);
    case CL_DEVICE_VERSION:
        return answer_text(device->version, size, value, needed);
    case CL_DEVICE_EXTENSIONS:
        return answer_text(device->extensions, size, value, needed);
    default:
        return CL_INVALID_VALUE;
    }
}

/* What all devices say alike. Those of type cl_uint or cl_bool. */
static const struct {
    cl_device_info what;
    cl_uint number;
} uints[] = {
    {CL_DEVICE_ADDRESS_BITS, 64},
    {CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 1},
    {CL_DEVICE_IMAGE_SUPPORT, CL_FALSE},
    {CL_DEVICE_MEM_BASE_ADDR_ALIGN, ADDRESS_ALIGN * 8},
    {CL_DEVICE_LOCAL_MEM_TYPE, CL_LOCAL},
    {CL_DEVICE_AVAILABLE, CL_TRUE},
    {CL_DEVICE_COMPILER_AVAILABLE, CL_TRUE},
    {CL_DEVICE_PARTITION_MAX_SUB_DEVICES, 1},
};

/* Those of type cl_ulong or a set of bits. */
static const struct {
    cl_device_info what;
    cl_ulong number;
} ulongs[] = {
    {CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU},
    {CL_DEVICE_MAX_MEM_ALLOC_SIZE, MEMORY_BYTES / 4},
    {CL_DEVICE_GLOBAL_MEM_SIZE, MEMORY_BYTES},
    {CL_DEVICE_SINGLE_FP_CONFIG,
     CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST |
         CL_FP_ROUND_TO_ZERO | CL_FP_ROUND_TO_INF | CL_FP_FMA |
         CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT},
};

/* What a vendor's extension asks for; others' devices do not know it. */
static cl_int answer_vendors(cl_device_id device, cl_device_info what,
                             size_t size, void *value, size_t *needed)
{
    const bool is_nvidia = device->vendor_id == VENDOR_NVIDIA;
    size_t count = 0;
    while (count < 3 && device->sub_groups[count])
        count++;
    if (what == INTEL_SUB_GROUP_SIZES && count > 0)
        return answer(device->sub_groups, count * sizeof(size_t), size, value,
                      needed);
    if (what == AMD_WAVEFRONT_WIDTH && device->vendor_id == VENDOR_AMD)
        return ANSWER(device->wave);
    if (what == NV_WARP_SIZE && is_nvidia)
        return ANSWER(device->wave);
    if (what == NV_COMPUTE_CAPABILITY_MAJOR && is_nvidia)
        return ANSWER(device->capability[0]);
    if (what == NV_COMPUTE_CAPABILITY_MINOR && is_nvidia)
        return ANSWER(device->capability[1]);
    if (what == NV_REGISTERS_PER_BLOCK && is_nvidia)
        return answer_uint(65536, size, value, needed);
    return answer_texts(device, what, size, value, needed);
}

/* The numbers in which devices differ. */
static cl_int answer_own(cl_device_id device, cl_device_info what, size_t size,
                         void *value, size_t *needed)
{
    const size_t items[3] = {device->most_items, device->most_items, 64};
    switch (what) {
    case CL_DEVICE_VENDOR_ID:
        return ANSWER(device->vendor_id);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        return ANSWER(device->compute_units);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY:
        return ANSWER(device->clock_mhz);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        return answer_ulong(device->said_bytes, size, value, needed);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        return answer_size(device->most_items, size, value, needed);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return ANSWER(items);
    case CL_DEVICE_MAX_PARAMETER_SIZE:
        return answer_size(device->parameter_bytes, size, value, needed);
    default:
        return answer_vendors(device, what, size, value, needed);
    }
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size,
                       void *value, size_t *needed)
{
    const cl_platform_id platform = &driver_platform;
    const cl_device_id no_parent = NULL;
    if (!device_is(device))
        return CL_INVALID_DEVICE;
    for (size_t i = 0; i < sizeof uints / sizeof *uints; i++)
        if (uints[i].what == what)
            return answer_uint(uints[i].number, size, value, needed);
    for (size_t i = 0; i < sizeof ulongs / sizeof *ulongs; i++)
        if (ulongs[i].what == what)
            return answer_ulong(ulongs[i].number, size, value, needed);
    switch (what) {
    case CL_DEVICE_PLATFORM:
        return ANSWER(platform);
    case CL_DEVICE_PARENT_DEVICE:
        return ANSWER(no_parent);
    default:
        return answer_own(device, what, size, value, needed);
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
