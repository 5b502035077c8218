/* SPDX-License-Identifier: Apache-2.0
 * The table of made-up devices. */
#include "devices.h"

#include <stdio.h>
#include <string.h>

#include "device/matrix_unit.h"

#define KIB 1024u
#define COMMON                                                                \
    .has_int64 = true, .compiles = true, .opencl = 300, .address_bits = 64,   \
    .max_parameter_bytes = 1024, .vector_lanes = 1, .has_fma = true
#define NVIDIA                                                                \
    COMMON, .vendor = WA_VENDOR_NVIDIA, .max_work_group = 1024, .wave = 32,   \
            .registers = 200, .register_words = 65536,                        \
            .splits_half_vectors = true, .limits_registers = true
#define AMD                                                                   \
    COMMON, .reports_kernel_sizes = true, .vendor = WA_VENDOR_AMD,            \
            .max_work_group = 256, .registers = 120, .local_bytes = 64 * KIB, \
            .local_capacity = 64 * KIB
#define INTEL                                                                 \
    COMMON, .reports_kernel_sizes = true, .vendor = WA_VENDOR_INTEL,          \
            .registers = 80, .register_words = 131072
#define CPU                                                                   \
    .is_cpu = true, .has_int64 = true, .compiles = true, .opencl = 300,       \
    .address_bits = 64, .max_parameter_bytes = 1024, .registers = 64,         \
    .register_words = 32768, .local_is_global = true

#define UNIT(name) .matrix_unit = &wa_matrix_units[WA_MATRIX_UNIT_##name]

const wa_device made_up_devices[] = {
    {NVIDIA, .name = "RTX 2080 Ti", .compute_capability = 75,
     .compute_units = 68, .clock_mhz = 1545, .local_bytes = 64 * KIB,
     .local_capacity = 64 * KIB},
    {NVIDIA, .name = "A100", .compute_capability = 80, .compute_units = 108,
     .clock_mhz = 1410, .local_bytes = 163 * KIB, .local_capacity = 164 * KIB,
     UNIT(MMA)},
    {NVIDIA, .name = "RTX 3060", .compute_capability = 86, .compute_units = 28,
     .clock_mhz = 1777, .local_bytes = 99 * KIB, .local_capacity = 100 * KIB,
     UNIT(MMA)},
    {NVIDIA, .name = "RTX 4090", .compute_capability = 89,
     .compute_units = 128, .clock_mhz = 2520, .local_bytes = 99 * KIB,
     .local_capacity = 100 * KIB, UNIT(MMA)},
    {NVIDIA, .name = "H200", .compute_capability = 90, .compute_units = 132,
     .clock_mhz = 1980, .local_bytes = 227 * KIB, .local_capacity = 228 * KIB,
     UNIT(MMA)},
    {AMD, .name = "gfx1030 (RX 6800)", .compute_units = 30, .clock_mhz = 2105,
     .wave = 32, .register_words = 65536},
    {AMD, .name = "gfx1100 (RX 7900 XTX)", .compute_units = 48,
     .clock_mhz = 2500, .wave = 32, .register_words = 65536, UNIT(WMMA11)},
    {AMD, .name = "gfx1201 (RX 9070 XT)", .compute_units = 32,
     .clock_mhz = 2970, .wave = 32, .register_words = 65536, UNIT(WMMA12)},
    {AMD, .name = "gfx90a (MI210)", .compute_units = 104, .clock_mhz = 1700,
     .wave = 64, .register_words = 65536, UNIT(MFMA16)},
    {AMD, .name = "gfx942 (MI300X)", .compute_units = 304, .clock_mhz = 2100,
     .wave = 64, .register_words = 65536, UNIT(MFMA16)},
    {INTEL, .name = "Arc A770", .wave = 8, .sub_group = 8,
     .compute_units = 512, .clock_mhz = 2400, .max_work_group = 1024,
     .local_bytes = 64 * KIB, .local_capacity = 64 * KIB,
     .has_matrix_extension = true, UNIT(DPAS8)},
    {INTEL, .name = "Iris Xe (TGL)", .wave = 8, .sub_group = 8,
     .compute_units = 96, .clock_mhz = 1350, .max_work_group = 512,
     .local_bytes = 64 * KIB, .local_capacity = 64 * KIB},
    {INTEL, .name = "Iris Xe (ADL-P)", .wave = 8, .sub_group = 8,
     .compute_units = 96, .clock_mhz = 1400, .max_work_group = 512,
     .local_bytes = 64 * KIB, .local_capacity = 64 * KIB},
    {INTEL, .name = "Max 1100 (PVC)", .wave = 16, .sub_group = 16,
     .compute_units = 448, .clock_mhz = 1550, .max_work_group = 1024,
     .local_bytes = 128 * KIB, .local_capacity = 128 * KIB,
     .has_matrix_extension = true, UNIT(DPAS16)},
    {COMMON, .reports_kernel_sizes = true, .name = "Mali-G78",
     .vendor = WA_VENDOR_ARM, .compute_units = 24, .clock_mhz = 848,
     .max_work_group = 256, .wave = 16, .registers = 64,
     .register_words = 32768, .local_bytes = 32 * KIB,
     .local_capacity = 32 * KIB, .local_is_global = true},
    {COMMON, .reports_kernel_sizes = true, .name = "Adreno 740",
     .vendor = WA_VENDOR_QUALCOMM, .compute_units = 6, .clock_mhz = 680,
     .max_work_group = 1024, .wave = 64, .registers = 64,
     .register_words = 32768, .local_bytes = 32 * KIB,
     .local_capacity = 32 * KIB},
    {CPU, .name = "PoCL", .platform = "Portable Computing Language",
     .compute_units = 8, .clock_mhz = 3000, .max_work_group = 4096, .wave = 8,
     .vector_lanes = 16, .local_bytes = 1024 * KIB,
     .local_capacity = 1024 * KIB, .reports_kernel_sizes = true,
     .miscompiles_barriers = true, .aligns_half_vectors = true,
     .has_fma = true},
    {CPU, .name = "llvmpipe", .platform = "rusticl", .compute_units = 8,
     .max_work_group = 1024, .wave = 32, .vector_lanes = 4,
     .local_bytes = 32 * KIB, .local_capacity = 32 * KIB, .loop_limit = 65535},
};
const size_t made_up_count = sizeof made_up_devices / sizeof *made_up_devices;

const wa_device *made_up_device(const char *name)
{
    for (size_t i = 0; i < made_up_count; i++)
        if (strcmp(made_up_devices[i].name, name) == 0)
            return &made_up_devices[i];
    return NULL;
}

bool device_is_like(const wa_device *seen, const wa_device *wanted,
                    char text[256])
{
#define SAME(member)                                                          \
    if (seen->member != wanted->member) {                                     \
        snprintf(text, 256, "%s: " #member " is %llu, not %llu",              \
                 wanted->name, (unsigned long long)seen->member,              \
                 (unsigned long long)wanted->member);                         \
        return false;                                                         \
    }
    SAME(vendor)
    SAME(is_cpu)
    SAME(has_int64)
    SAME(compiles)
    SAME(compute_units)
    SAME(clock_mhz)
    SAME(max_work_group)
    SAME(address_bits)
    SAME(vector_lanes)
    SAME(wave)
    SAME(sub_group)
    SAME(registers)
    SAME(register_words)
    SAME(local_bytes)
    SAME(local_capacity)
    SAME(local_is_global)
    SAME(compute_capability)
    SAME(has_fma)
    SAME(miscompiles_barriers)
    SAME(breaks_barriers)
    SAME(splits_half_vectors)
    SAME(aligns_half_vectors)
    SAME(limits_registers)
    SAME(reports_kernel_sizes)
    SAME(loop_limit)
    SAME(has_matrix_extension)
#undef SAME
    if (seen->matrix_unit == wanted->matrix_unit)
        return true;
    snprintf(text, 256, "%s: has another matrix unit", wanted->name);
    return false;
}
