/* SPDX-License-Identifier: Apache-2.0
 * cl_device_id -> wa_device. What drivers report wrongly or not at all is
 * put right here, and nowhere else. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "unit.h"

/* Numbers from the vendors' extension documents (cl_nv_device_attribute_query,
 * cl_amd_device_attribute_query, cl_intel_required_subgroup_size); not every
 * OpenCL header has them. */
#define NV_COMPUTE_CAPABILITY_MAJOR 0x4000
#define NV_COMPUTE_CAPABILITY_MINOR 0x4001
#define NV_WARP_SIZE 0x4003
#define AMD_WAVEFRONT_WIDTH 0x4043
#define INTEL_SUB_GROUP_SIZES 0x4108
#define PREFERRED_WORK_GROUP_SIZE_MULTIPLE 0x1067 /* OpenCL 3.0 */

static const struct {
    cl_uint id;
    wa_vendor vendor;
    const char *name;
} vendors[] = {
    {0x10de, WA_VENDOR_NVIDIA, "NVIDIA"},     {0x1002, WA_VENDOR_AMD, "AMD"},
    {0x8086, WA_VENDOR_INTEL, "Intel"},       {0x13b5, WA_VENDOR_ARM, "Arm"},
    {0x5143, WA_VENDOR_QUALCOMM, "Qualcomm"},
};

const char *wa_vendor_name(wa_vendor vendor)
{
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].vendor == vendor)
            return vendors[i].name;
    return "other";
}

/* Queries that a device may not know leave `fallback`. */
static uint32_t query_uint(cl_device_id id, cl_device_info what,
                           uint32_t fallback)
{
    cl_uint value = 0;
    return clGetDeviceInfo(id, what, sizeof value, &value, NULL) == CL_SUCCESS
               ? value
               : fallback;
}

static uint32_t query_size(cl_device_id id, cl_device_info what,
                           uint32_t fallback)
{
    size_t value = 0;
    if (clGetDeviceInfo(id, what, sizeof value, &value, NULL) != CL_SUCCESS)
        return fallback;
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static uint32_t query_ulong(cl_device_id id, cl_device_info what)
{
    cl_ulong value = 0;
    if (clGetDeviceInfo(id, what, sizeof value, &value, NULL) != CL_SUCCESS)
        return 0;
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Long strings are cut. */
static void query_text(cl_device_id id, cl_device_info what, char *text,
                       size_t size)
{
    size_t needed = 0;
    text[0] = 0;
    if (clGetDeviceInfo(id, what, 0, NULL, &needed) != CL_SUCCESS ||
        needed == 0)
        return;
    char *all = malloc(needed + 1);
    if (!all)
        return;
    if (clGetDeviceInfo(id, what, needed, all, NULL) == CL_SUCCESS) {
        all[needed] = 0;
        snprintf(text, size, "%s", all);
    }
    free(all);
}

static bool has_extension(cl_device_id id, const char *name)
{
    static const size_t size = 65536;
    char *list = malloc(size);
    bool found = false;
    if (!list)
        return false;
    query_text(id, CL_DEVICE_EXTENSIONS, list, size);
    for (const char *at = list; (at = strstr(at, name)) != NULL;) {
        const char after = at[strlen(name)];
        found = found || ((at == list || at[-1] == ' ') &&
                          (after == ' ' || after == 0));
        at += strlen(name);
    }
    free(list);
    return found;
}

static void query_platform(cl_device_id id, char *text, size_t size)
{
    cl_platform_id platform = NULL;
    size_t needed = 0;
    text[0] = 0;
    if (clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof platform, &platform,
                        NULL) != CL_SUCCESS ||
        clGetPlatformInfo(platform, CL_PLATFORM_NAME, 0, NULL, &needed) !=
            CL_SUCCESS)
        return;
    char *all = malloc(needed + 1);
    if (!all)
        return;
    if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, needed, all, NULL) ==
        CL_SUCCESS) {
        all[needed] = 0;
        snprintf(text, size, "%s", all);
    }
    free(all);
}

/* Registers that a work-item can use without spilling, and registers of a
 * compute unit (of 32 bits). NVIDIA: 255 of 65,536. AMD: 256, of 65,536 on
 * RDNA and more on CDNA. Intel: a thread has 128 vector registers, each of as
 * many words as the smallest sub-group has lanes (8 before Xe-HPC and Xe2, 16
 * since), but arguments lie in them too and ocloc 22.43 wastes many; 131,072
 * words in an Xe core. Others are taken to be small. */
static void set_registers(wa_device *device)
{
    switch (device->vendor) {
    case WA_VENDOR_NVIDIA:
        device->registers = 200;
        device->register_words = 65536;
        break;
    case WA_VENDOR_AMD:
        device->registers = 120;
        device->register_words = 65536;
        break;
    case WA_VENDOR_INTEL:
        device->registers = device->sub_group ? 80 : 64;
        device->register_words = 131072;
        break;
    default:
        device->registers = 64;
        device->register_words = 32768;
        break;
    }
}

/* The smallest that kernels may demand, which leaves a work-item the most
 * registers. */
static uint32_t sub_group_of(cl_device_id id, wa_vendor vendor)
{
    size_t sizes[16] = {0}, smallest = 0;
    if (vendor != WA_VENDOR_INTEL ||
        !has_extension(id, "cl_intel_required_subgroup_size") ||
        clGetDeviceInfo(id, INTEL_SUB_GROUP_SIZES, sizeof sizes, sizes,
                        NULL) != CL_SUCCESS)
        return 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] != 0 && (smallest == 0 || sizes[i] < smallest))
            smallest = sizes[i];
    return (uint32_t)smallest;
}

static uint32_t wave_of(cl_device_id id, wa_vendor vendor)
{
    switch (vendor) {
    case WA_VENDOR_NVIDIA:
        return query_uint(id, NV_WARP_SIZE, 32);
    case WA_VENDOR_AMD:
        return query_uint(id, AMD_WAVEFRONT_WIDTH, 64);
    case WA_VENDOR_INTEL:
        return 16;
    default:
        return query_size(id, PREFERRED_WORK_GROUP_SIZE_MULTIPLE, 16);
    }
}

/* Local memory of a compute unit, shared by its work-groups; never less than
 * what one kernel may declare. NVIDIA's numbers by compute capability (CUDA C
 * programming guide, table "technical specifications"). */
static uint32_t local_capacity_of(const wa_device *device)
{
    uint32_t kib = 0;
    if (device->vendor == WA_VENDOR_NVIDIA) {
        const uint32_t cc = device->compute_capability;
        kib = cc >= 90 && cc < 120   ? 228
              : cc == 80 || cc == 87 ? 164
              : cc >= 80             ? 100
              : cc == 75             ? 64
                                     : 96;
    }
    return kib * 1024 > device->local_bytes ? kib * 1024 : device->local_bytes;
}

winattn_status wa_device_query(cl_device_id id, wa_device *device)
{
    cl_device_type type = 0;
    cl_bool compiles = CL_FALSE;
    cl_device_local_mem_type local_type = CL_LOCAL;
    char text[64];
    memset(device, 0, sizeof *device);
    const cl_int error =
        clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clGetDeviceInfo");

    query_text(id, CL_DEVICE_NAME, device->name, sizeof device->name);
    query_text(id, CL_DRIVER_VERSION, device->driver, sizeof device->driver);
    query_platform(id, device->platform, sizeof device->platform);
    const uint32_t vendor_id = query_uint(id, CL_DEVICE_VENDOR_ID, 0);
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].id == vendor_id)
            device->vendor = vendors[i].vendor;
    /* Some runtimes claim several types; what is also a GPU is one. */
    device->is_cpu =
        (type & CL_DEVICE_TYPE_CPU) != 0 && (type & CL_DEVICE_TYPE_GPU) == 0;
    if (device->is_cpu)
        device->vendor = WA_VENDOR_OTHER;
    /* PoCL 3.1 gives wrong results and overwrites memory in some kernels that
     * have barriers and arrays of a work-item; not with -cl-opt-disable, and
     * the same kernels are right on Oclgrind, rusticl, Intel's runtime and
     * NVIDIA's driver. */
    device->miscompiles_barriers =
        strcmp(device->platform, "Portable Computing Language") == 0;
    /* seen in the PTX of driver 580 */
    device->splits_half_vectors = device->vendor == WA_VENDOR_NVIDIA;
    /* rusticl 22.3 says 32 for kernels that run with 64 and more; NVIDIA's
     * driver 580 says 256 for kernels that were compiled for 512 to 1024 and
     * run with as many */
    device->reports_kernel_sizes = strcmp(device->platform, "rusticl") != 0 &&
                                   device->vendor != WA_VENDOR_NVIDIA;

    cl_device_fp_config fp32 = 0;
    clGetDeviceInfo(id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof fp32, &fp32, NULL);
    device->has_fma = (fp32 & CL_FP_FMA) != 0;

    query_text(id, CL_DEVICE_VERSION, text, sizeof text);
    unsigned major = 1, minor = 0;
    if (sscanf(text, "OpenCL %u.%u", &major, &minor) == 2)
        device->opencl = major * 100 + minor;
    query_text(id, CL_DEVICE_PROFILE, text, sizeof text);
    device->has_int64 = strcmp(text, "EMBEDDED_PROFILE") != 0 ||
                        has_extension(id, "cles_khr_int64");
    clGetDeviceInfo(id, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiles,
                    &compiles, NULL);
    device->compiles = compiles != CL_FALSE;
    clGetDeviceInfo(id, CL_DEVICE_LOCAL_MEM_TYPE, sizeof local_type,
                    &local_type, NULL);
    device->local_is_global = local_type == CL_GLOBAL;

    device->compute_units = query_uint(id, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
    device->clock_mhz = query_uint(id, CL_DEVICE_MAX_CLOCK_FREQUENCY, 0);
    device->address_bits = query_uint(id, CL_DEVICE_ADDRESS_BITS, 32);
    device->max_work_group = query_size(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1);
    size_t items[16] = {0};
    if (clGetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items,
                        NULL) == CL_SUCCESS &&
        items[0] < device->max_work_group)
        device->max_work_group = (uint32_t)items[0];
    device->max_parameter_bytes =
        query_size(id, CL_DEVICE_MAX_PARAMETER_SIZE, 256);
    device->local_bytes = query_ulong(id, CL_DEVICE_LOCAL_MEM_SIZE);
    device->vector_lanes =
        query_uint(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 1);
    device->sub_group = sub_group_of(id, device->vendor);
    device->wave =
        device->sub_group ? device->sub_group : wave_of(id, device->vendor);
    set_registers(device);
    if (device->vendor == WA_VENDOR_NVIDIA)
        device->compute_capability =
            query_uint(id, NV_COMPUTE_CAPABILITY_MAJOR, 0) * 10 +
            query_uint(id, NV_COMPUTE_CAPABILITY_MINOR, 0);
    device->local_capacity = local_capacity_of(device);
    device->has_matrix_extension =
        has_extension(id, "cl_intel_subgroup_matrix_multiply_accumulate");
    device->unit = wa_unit_of(device);
    return WINATTN_SUCCESS;
}
