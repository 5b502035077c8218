/* SPDX-License-Identifier: Apache-2.0
 * Devices that no test of plans has: the least and the most that a driver may
 * say. */
#include "standin.h"

#define FULL .has_int64 = true, .local_is_global = true
#define USUAL                                                                 \
    FULL, .compiles = true, .opencl = 102, .address_bits = 64,                \
          .max_parameter_bytes = 1024
#define SMALL                                                                 \
    .compute_units = 4, .max_work_group = 256, .vector_lanes = 4, .wave = 16, \
    .local_bytes = 32768

const wa_device standin_odd_devices[] = {
    {USUAL, .name = "one work-item", .compute_units = 1, .max_work_group = 1,
     .vector_lanes = 1, .wave = 1, .local_bytes = 1024},
    {USUAL, .name = "zeros"},
    {USUAL, .name = "zeros, but work-groups", .max_work_group = 64,
     .local_bytes = 1024},
    {USUAL, .name = "ones", .vendor = WA_VENDOR_AMD,
     .compute_units = UINT32_MAX, .clock_mhz = UINT32_MAX,
     .max_work_group = UINT32_MAX, .vector_lanes = UINT32_MAX,
     .wave = UINT32_MAX, .local_bytes = UINT32_MAX, .has_fma = true},
    {USUAL, .name = "gfx1100, small", .vendor = WA_VENDOR_AMD,
     .compute_units = 2, .clock_mhz = 1000, .max_work_group = 64,
     .vector_lanes = 1, .wave = 32, .local_bytes = 4096},
    {USUAL, .name = "sm_80, small", .vendor = WA_VENDOR_NVIDIA,
     .compute_units = 1, .max_work_group = 256, .wave = 32,
     .compute_capability = 80, .local_bytes = 1024},
    {FULL, SMALL, .name = "few parameter bytes", .compiles = true,
     .opencl = 102, .address_bits = 64, .max_parameter_bytes = 256},
    {SMALL, .name = "embedded", .compiles = true, .opencl = 102,
     .address_bits = 32, .max_parameter_bytes = 1024},
    {FULL, SMALL, .name = "32 bits", .compiles = true, .opencl = 102,
     .address_bits = 32, .max_parameter_bytes = 1024},
    {FULL, SMALL, .name = "OpenCL 1.1", .compiles = true, .opencl = 101,
     .address_bits = 64, .max_parameter_bytes = 1024},
    {FULL, SMALL, .name = "no compiler", .opencl = 102, .address_bits = 64,
     .max_parameter_bytes = 1024},
    {FULL, SMALL, .name = "obey \033[2J\302\233m", .opencl = 102,
     .address_bits = 64, .max_parameter_bytes = 1024},
    {USUAL, .name = "CPU without vectors", .is_cpu = true, .compute_units = 64,
     .max_work_group = 8192, .wave = 128, .local_bytes = 262144},
};
const size_t standin_odd_count =
    sizeof standin_odd_devices / sizeof *standin_odd_devices;
