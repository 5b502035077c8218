/* SPDX-License-Identifier: Apache-2.0
 * cl_device_id -> wa_device. What drivers report wrongly or not at all is
 * put right here, and nowhere else. */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "device/matrix_unit.h"
#include "device/query.h"

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

/* Numbers that do not fit are the largest that do. */
static uint32_t clamped(uint64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static winattn_status query_uint(cl_device_id id, cl_device_info what,
                                 uint32_t *number)
{
    cl_uint value = 0;
    WA_TRY(wa_query(id, what, sizeof value, &value));
    *number = value;
    return WINATTN_SUCCESS;
}

static winattn_status query_size(cl_device_id id, cl_device_info what,
                                 uint32_t *number)
{
    size_t value = 0;
    WA_TRY(wa_query(id, what, sizeof value, &value));
    *number = clamped(value);
    return WINATTN_SUCCESS;
}

/* Leaves `fallback` where the device does not know. */
static winattn_status query_uint_or(cl_device_id id, cl_device_info what,
                                    uint32_t fallback, uint32_t *number)
{
    cl_uint value = fallback;
    WA_TRY(wa_query_if_known(id, what, sizeof value, &value));
    *number = value;
    return WINATTN_SUCCESS;
}

static winattn_status query_size_or(cl_device_id id, cl_device_info what,
                                    uint32_t fallback, uint32_t *number)
{
    size_t value = fallback;
    WA_TRY(wa_query_if_known(id, what, sizeof value, &value));
    *number = clamped(value);
    return WINATTN_SUCCESS;
}

/* Long texts are cut. */
static winattn_status query_name(cl_device_id id, cl_device_info what,
                                 char *name, size_t size)
{
    char *all;
    WA_TRY(wa_query_text(id, what, &all));
    snprintf(name, size, "%s", all);
    wa_make_plain(name, "");
    free(all);
    return WINATTN_SUCCESS;
}

static winattn_status query_platform(cl_device_id id, char *name, size_t size)
{
    cl_platform_id platform = NULL;
    char *all;
    WA_TRY(wa_query(id, CL_DEVICE_PLATFORM, sizeof platform, &platform));
    WA_TRY(wa_query_platform_text(platform, CL_PLATFORM_NAME, &all));
    snprintf(name, size, "%s", all);
    wa_make_plain(name, "");
    free(all);
    return WINATTN_SUCCESS;
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

/* The smallest sub-group that kernels may demand, which leaves a work-item the
 * most registers. */
static winattn_status query_sub_group(cl_device_id id, const char *extensions,
                                      wa_device *device)
{
    size_t sizes[16] = {0}, smallest = 0;
    if (device->vendor != WA_VENDOR_INTEL ||
        !wa_has_word(extensions, "cl_intel_required_subgroup_size"))
        return WINATTN_SUCCESS;
    WA_TRY(wa_query_if_known(id, INTEL_SUB_GROUP_SIZES, sizeof sizes, sizes));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] != 0 && (smallest == 0 || sizes[i] < smallest))
            smallest = sizes[i];
    device->sub_group = (uint32_t)smallest;
    return WINATTN_SUCCESS;
}

static winattn_status query_wave(cl_device_id id, wa_device *device)
{
    device->wave = device->sub_group;
    if (device->sub_group)
        return WINATTN_SUCCESS;
    switch (device->vendor) {
    case WA_VENDOR_NVIDIA:
        return query_uint_or(id, NV_WARP_SIZE, 32, &device->wave);
    case WA_VENDOR_AMD:
        return query_uint_or(id, AMD_WAVEFRONT_WIDTH, 64, &device->wave);
    case WA_VENDOR_INTEL:
        device->wave = 16;
        return WINATTN_SUCCESS;
    default:
        return query_size_or(id, PREFERRED_WORK_GROUP_SIZE_MULTIPLE, 16,
                             &device->wave);
    }
}

static winattn_status query_capability(cl_device_id id, wa_device *device)
{
    uint32_t major, minor;
    if (device->vendor != WA_VENDOR_NVIDIA)
        return WINATTN_SUCCESS;
    WA_TRY(query_uint_or(id, NV_COMPUTE_CAPABILITY_MAJOR, 0, &major));
    WA_TRY(query_uint_or(id, NV_COMPUTE_CAPABILITY_MINOR, 0, &minor));
    device->compute_capability = major * 10 + minor;
    return WINATTN_SUCCESS;
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

/* Who made the device, and what is known of its driver. */
static winattn_status query_maker(cl_device_id id, wa_device *device)
{
    cl_device_type type = 0;
    uint32_t vendor_id;
    unsigned version = 0;
    WA_TRY(wa_query(id, CL_DEVICE_TYPE, sizeof type, &type));
    WA_TRY(query_name(id, CL_DEVICE_NAME, device->name, sizeof device->name));
    WA_TRY(query_name(id, CL_DRIVER_VERSION, device->driver,
                      sizeof device->driver));
    WA_TRY(query_platform(id, device->platform, sizeof device->platform));
    WA_TRY(query_uint(id, CL_DEVICE_VENDOR_ID, &vendor_id));
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (vendors[i].id == vendor_id)
            device->vendor = vendors[i].vendor;
    /* Some runtimes claim several types; what is also a GPU is one. */
    device->is_cpu =
        (type & CL_DEVICE_TYPE_CPU) != 0 && (type & CL_DEVICE_TYPE_GPU) == 0;
    if (device->is_cpu)
        device->vendor = WA_VENDOR_OTHER;
    const bool is_pocl =
        strcmp(device->platform, "Portable Computing Language") == 0;
    /* PoCL 3.1 gives wrong results and overwrites memory in some kernels that
     * have barriers and arrays of a work-item; not with -cl-opt-disable, and
     * the same kernels are right on Oclgrind, rusticl, Intel's runtime and
     * NVIDIA's driver. */
    device->miscompiles_barriers = is_pocl;
    /* PoCL 5.0 ends in assertions of its own as it compiles kernels with
     * barriers in loops, and 6.0 gives wrong gradients, either way. */
    device->breaks_barriers =
        is_pocl && sscanf(device->driver, "%u", &version) == 1 && version >= 5;
    /* seen in the PTX of driver 580 */
    device->splits_half_vectors = device->vendor == WA_VENDOR_NVIDIA;
    /* PoCL 3.1 loads and stores them by aligned vectors; kernels that did not
     * fold these into other instructions ended by SIGSEGV on CPUs with AVX2
     * and without AVX-512 */
    device->aligns_half_vectors = is_pocl;
    /* rusticl 22.3 says 32 for kernels that run with 64 and more; NVIDIA's
     * driver 580 says 256 for kernels that were compiled for 512 to 1024 and
     * run with as many */
    device->reports_kernel_sizes = strcmp(device->platform, "rusticl") != 0 &&
                                   device->vendor != WA_VENDOR_NVIDIA;
    return WINATTN_SUCCESS;
}

/* What the device says of OpenCL C. */
static winattn_status query_language(cl_device_id id, const char *extensions,
                                     wa_device *device)
{
    cl_device_fp_config fp32 = 0;
    cl_bool compiles = CL_FALSE;
    unsigned major = 1, minor = 0;
    char text[64];
    WA_TRY(wa_query(id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof fp32, &fp32));
    device->has_fma = (fp32 & CL_FP_FMA) != 0;
    WA_TRY(query_name(id, CL_DEVICE_VERSION, text, sizeof text));
    if (sscanf(text, "OpenCL %u.%u", &major, &minor) == 2)
        device->opencl = major * 100 + minor;
    WA_TRY(query_name(id, CL_DEVICE_PROFILE, text, sizeof text));
    device->has_int64 = strcmp(text, "EMBEDDED_PROFILE") != 0 ||
                        wa_has_word(extensions, "cles_khr_int64");
    WA_TRY(wa_query(id, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiles,
                    &compiles));
    device->compiles = compiles != CL_FALSE;
    device->has_matrix_extension = wa_has_word(
        extensions, "cl_intel_subgroup_matrix_multiply_accumulate");
    device->limits_registers =
        device->vendor == WA_VENDOR_NVIDIA &&
        wa_has_word(extensions, "cl_nv_compiler_options");
    return WINATTN_SUCCESS;
}

static winattn_status query_limits(cl_device_id id, wa_device *device)
{
    cl_device_local_mem_type local_type = CL_LOCAL;
    size_t items[16] = {0};
    cl_ulong local_bytes = 0, buffer_bytes = 0;
    WA_TRY(wa_query(id, CL_DEVICE_LOCAL_MEM_TYPE, sizeof local_type,
                    &local_type));
    device->local_is_global = local_type == CL_GLOBAL;
    WA_TRY(
        query_uint(id, CL_DEVICE_MAX_COMPUTE_UNITS, &device->compute_units));
    /* whatever a driver says: launches are shared among these */
    if (device->compute_units == 0)
        device->compute_units = 1;
    /* deprecated, and there since OpenCL 1.1 */
    WA_TRY(query_uint_or(id, CL_DEVICE_MAX_CLOCK_FREQUENCY, 0,
                         &device->clock_mhz));
    WA_TRY(query_uint_or(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 1,
                         &device->vector_lanes));
    WA_TRY(query_uint(id, CL_DEVICE_ADDRESS_BITS, &device->address_bits));
    WA_TRY(query_size(id, CL_DEVICE_MAX_WORK_GROUP_SIZE,
                      &device->max_work_group));
    WA_TRY(wa_query(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items));
    if (items[0] < device->max_work_group)
        device->max_work_group = (uint32_t)items[0];
    WA_TRY(query_size(id, CL_DEVICE_MAX_PARAMETER_SIZE,
                      &device->max_parameter_bytes));
    WA_TRY(wa_query(id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local_bytes,
                    &local_bytes));
    device->local_bytes = clamped(local_bytes);
    WA_TRY(wa_query_if_known(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
                             sizeof buffer_bytes, &buffer_bytes));
    device->buffer_bytes = buffer_bytes;
    return WINATTN_SUCCESS;
}

static winattn_status query_all(cl_device_id id, const char *extensions,
                                wa_device *device)
{
    WA_TRY(query_maker(id, device));
    WA_TRY(query_language(id, extensions, device));
    WA_TRY(query_limits(id, device));
    WA_TRY(query_sub_group(id, extensions, device));
    WA_TRY(query_wave(id, device));
    WA_TRY(query_capability(id, device));
    set_registers(device);
    device->local_capacity = local_capacity_of(device);
    device->matrix_unit = wa_matrix_unit_of(device);
    return WINATTN_SUCCESS;
}

winattn_status wa_device_query(cl_device_id id, wa_device *device)
{
    char *extensions;
    memset(device, 0, sizeof *device);
    WA_TRY(wa_query_text(id, CL_DEVICE_EXTENSIONS, &extensions));
    const winattn_status status = query_all(id, extensions, device);
    free(extensions);
    return status;
}
