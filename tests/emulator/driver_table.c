/* SPDX-License-Identifier: Apache-2.0
 * The devices. Each has the numbers that tests/kit/devices.c has for plans of
 * its kind, and a name as that vendor's driver gives it, from which AMD's
 * units follow. */
#include "driver.h"

#define KIB 1024u

/* Of other vendors clang must be told what their compilers know. Functions
 * that kernels are written in are inlined at -O1, too; the interpreter knows
 * no calls. Loops that are unrolled only at -O3 are no fault of theirs. */
#define OPTIONS "-O1 -Wno-pass-failed"
#define FOREIGN_OPTIONS OPTIONS " -Xclang -cl-ext=+cl_khr_fp16 "

#define COMMON_EXTENSIONS                                                     \
    "cl_khr_icd cl_khr_byte_addressable_store "                               \
    "cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics "  \
    "cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics "    \
    "cl_khr_fp64 "

/* What it says of local memory is the limit of arguments. */
#define NVIDIA                                                                \
    .dispatch = &driver_dispatch, .options = OPTIONS,                         \
    .vendor = "NVIDIA Corporation", .vendor_id = VENDOR_NVIDIA,               \
    .version = "OpenCL 3.0 CUDA", .wave = 32, .most_items = 1024,             \
    .said_bytes = 48 * KIB, .parameter_bytes = 4352,                          \
    .extensions = COMMON_EXTENSIONS "cl_nv_compiler_options "                 \
                                    "cl_nv_device_attribute_query "           \
                                    "cl_nv_pragma_unroll"

#define AMD(target)                                                           \
    .dispatch = &driver_dispatch, .vendor = "Advanced Micro Devices, Inc.",   \
    .vendor_id = VENDOR_AMD, .version = "OpenCL 2.0 AMD-APP",                 \
    .name = target " (emulated)", .prelude = "amd.h",                         \
    .options = FOREIGN_OPTIONS "-D__" target "__=1", .most_items = 256,       \
    .shared_bytes = 64 * KIB, .said_bytes = 64 * KIB,                         \
    .parameter_bytes = 1024,                                                  \
    .extensions =                                                             \
        COMMON_EXTENSIONS "cl_khr_fp16 cl_amd_device_attribute_query"

#define INTEL(lanes, kib)                                                     \
    .dispatch = &driver_dispatch, .vendor = "Intel(R) Corporation",           \
    .vendor_id = VENDOR_INTEL, .version = "OpenCL 3.0 NEO", .wave = lanes,    \
    .prelude = "intel.h",                                                     \
    .options = FOREIGN_OPTIONS "-D__LEAST_LANES__=" #lanes,                   \
    .most_items = 1024, .shared_bytes = (kib)*KIB, .said_bytes = (kib)*KIB,   \
    .parameter_bytes = 1024,                                                  \
    .extensions =                                                             \
        COMMON_EXTENSIONS "cl_khr_fp16 cl_khr_subgroups cl_intel_subgroups "  \
                          "cl_intel_subgroups_char "                          \
                          "cl_intel_required_subgroup_size "                  \
                          "cl_intel_subgroup_matrix_multiply_accumulate "     \
                          "cl_intel_bfloat16_conversions"

struct _cl_device_id driver_devices[] = {
    {NVIDIA, .name = "H200 (emulated)", .capability = {9, 0},
     .compute_units = 132, .clock_mhz = 1980, .shared_bytes = 227 * KIB},
    {AMD("gfx1100"), .compute_units = 48, .clock_mhz = 2500, .wave = 32},
    {AMD("gfx1201"), .compute_units = 32, .clock_mhz = 2970, .wave = 32},
    {AMD("gfx942"), .compute_units = 304, .clock_mhz = 2100, .wave = 64},
    {INTEL(8, 64), .name = "Arc A770 (emulated DG2)", .compute_units = 512,
     .clock_mhz = 2400, .sub_groups = {8, 16, 32}},
    {INTEL(16, 128), .name = "Max 1100 (emulated PVC)", .compute_units = 448,
     .clock_mhz = 1550, .sub_groups = {16, 32}},
};
const cl_uint driver_device_count =
    sizeof driver_devices / sizeof *driver_devices;
