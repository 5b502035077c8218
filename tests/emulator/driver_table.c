/* SPDX-License-Identifier: Apache-2.0
 * The devices. Each has the numbers of one that tests/kit/devices.c has for
 * plans, and a name as that vendor's driver gives it, from which AMD's units
 * follow. */
#include "driver.h"

/* Of other vendors clang must be told what their compilers know. Functions
 * that kernels are written in are inlined at -O1, too; the interpreter knows
 * no calls. Loops that are unrolled only at -O3 are no fault of theirs. */
#define OPTIONS "-O1 -Wno-pass-failed"
#define FOREIGN_OPTIONS OPTIONS " -Xclang -cl-ext=+cl_khr_fp16 "

#define COMMON_EXTENSIONS                                                     \
    "cl_khr_icd cl_khr_byte_addressable_store "                               \
    "cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics "  \
    "cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics "

#define NVIDIA                                                                \
    .dispatch = &driver_dispatch, .options = OPTIONS,                         \
    .parameter_bytes = EMULATED_PARAMETER_BYTES,                              \
    .extensions = COMMON_EXTENSIONS "cl_nv_compiler_options "                 \
                                    "cl_nv_device_attribute_query "           \
                                    "cl_nv_pragma_unroll "                    \
                                    "cl_khr_device_uuid"

#define AMD(target)                                                           \
    .dispatch = &driver_dispatch, .name = target " (emulated)",               \
    .prelude = "amd.h", .options = FOREIGN_OPTIONS "-D__" target "__=1",      \
    .parameter_bytes = 1024,                                                  \
    .extensions =                                                             \
        COMMON_EXTENSIONS "cl_khr_fp16 cl_amd_device_attribute_query"

#define INTEL(lanes)                                                          \
    .dispatch = &driver_dispatch, .prelude = "intel.h",                       \
    .options = FOREIGN_OPTIONS "-D__LEAST_LANES__=" #lanes,                   \
    .parameter_bytes = 1024,                                                  \
    .extensions =                                                             \
        COMMON_EXTENSIONS "cl_khr_fp16 cl_khr_subgroups cl_intel_subgroups "  \
                          "cl_intel_subgroups_char "                          \
                          "cl_intel_required_subgroup_size "                  \
                          "cl_intel_subgroup_matrix_multiply_accumulate "     \
                          "cl_intel_bfloat16_conversions"

struct _cl_device_id driver_devices[] = {
    {NVIDIA, .like = "H200", .name = EMULATED_H200,
     .uuid = EMULATED_H200_UUID},
    {AMD("gfx1100"), .like = "gfx1100 (RX 7900 XTX)"},
    {AMD("gfx1201"), .like = "gfx1201 (RX 9070 XT)"},
    {AMD("gfx942"), .like = "gfx942 (MI300X)"},
    {INTEL(8), .like = "Arc A770", .name = "Arc A770 (emulated DG2)"},
    {INTEL(16), .like = "Max 1100 (PVC)", .name = "Max 1100 (emulated PVC)"},
};
const cl_uint driver_device_count =
    sizeof driver_devices / sizeof *driver_devices;
