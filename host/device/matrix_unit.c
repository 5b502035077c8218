/* SPDX-License-Identifier: Apache-2.0
 * The table of matrix units, of those for the same devices the best first. Its
 * numbers are those of the unit's file. */
#include "device/matrix_unit.h"

#include <string.h>

/* Sub-groups are of OpenCL C 2.0. ocloc 22.43 knows the functions below but
 * declares them only where these macros say so; drivers define them. */
#define INTEL_OPTIONS                                                         \
    " -cl-std=CL2.0 -cl-intel-256-GRF-per-thread"                             \
    " -Dcl_intel_subgroup_matrix_multiply_accumulate"                         \
    " -Dcl_intel_bfloat16_conversions"

const wa_matrix_unit wa_matrix_units[WA_MATRIX_UNITS] = {
    [WA_MATRIX_UNIT_MMA] = {.name = "mma",
                            .forward_kernel = "forward_matrix_mma",
                            .backward_kernel = "backward_matrix_mma",
                            .rows_kernel = "backward_rows_matrix_mma",
                            .keys_kernel = "backward_keys_matrix_mma",
                            .vendor = WA_VENDOR_NVIDIA,
                            .least_capability = 80,
                            .proven = true,
                            .copies_async = true,
                            .swizzles_rows = true,
                            .has_tf32 = true,
                            .votes = true,
                            .wave = 32,
                            .queries = 16,
                            .tile = 16,
                            .exchange_words = 192,
                            .options = ""},
    [WA_MATRIX_UNIT_WMMA11] = {.name = "wmma11",
                               .forward_kernel = "forward_matrix_wmma11",
                               .backward_kernel = "backward_matrix_wmma11",
                               .rows_kernel = "backward_rows_matrix_wmma11",
                               .keys_kernel = "backward_keys_matrix_wmma11",
                               .vendor = WA_VENDOR_AMD,
                               .targets = "gfx11",
                               .proven = false,
                               .copies_async = false,
                               .votes = true,
                               .wave = 32,
                               .queries = 16,
                               .tile = 16,
                               .exchange_words = 256,
                               .options = ""},
    [WA_MATRIX_UNIT_WMMA12] = {.name = "wmma12",
                               .forward_kernel = "forward_matrix_wmma12",
                               .backward_kernel = "backward_matrix_wmma12",
                               .rows_kernel = "backward_rows_matrix_wmma12",
                               .keys_kernel = "backward_keys_matrix_wmma12",
                               .vendor = WA_VENDOR_AMD,
                               .targets = "gfx12",
                               .proven = false,
                               .copies_async = false,
                               .votes = true,
                               .wave = 32,
                               .queries = 16,
                               .tile = 16,
                               .exchange_words = 256,
                               .options = ""},
    [WA_MATRIX_UNIT_MFMA16] = {.name = "mfma16",
                               .forward_kernel = "forward_matrix_mfma16",
                               .backward_kernel = "backward_matrix_mfma16",
                               .rows_kernel = "backward_rows_matrix_mfma16",
                               .keys_kernel = "backward_keys_matrix_mfma16",
                               .vendor = WA_VENDOR_AMD,
                               .targets = "gfx90a gfx94",
                               .proven = false,
                               .copies_async = false,
                               .votes = true,
                               .wave = 64,
                               .queries = 16,
                               .tile = 16,
                               .exchange_words = 256,
                               .options = ""},
    [WA_MATRIX_UNIT_MFMA32] = {.name = "mfma32",
                               .forward_kernel = "forward_matrix_mfma32",
                               .backward_kernel = "backward_matrix_mfma32",
                               .rows_kernel = "backward_rows_matrix_mfma32",
                               .keys_kernel = "backward_keys_matrix_mfma32",
                               .vendor = WA_VENDOR_AMD,
                               .targets = "gfx90a gfx94",
                               .proven = false,
                               .copies_async = false,
                               .votes = true,
                               .wave = 64,
                               .queries = 32,
                               .tile = 32,
                               .exchange_words = 256,
                               .options = ""},
    [WA_MATRIX_UNIT_DPAS16] = {.name = "dpas16",
                               .forward_kernel = "forward_matrix_dpas16",
                               .backward_kernel = "backward_matrix_dpas16",
                               .rows_kernel = "backward_rows_matrix_dpas16",
                               .keys_kernel = "backward_keys_matrix_dpas16",
                               .vendor = WA_VENDOR_INTEL,
                               .sub_group = 16,
                               .proven = false,
                               .copies_async = false,
                               .wave = 16,
                               .queries = 16,
                               .tile = 16,
                               .exchange_words = 192,
                               .options = INTEL_OPTIONS},
    [WA_MATRIX_UNIT_DPAS8] = {.name = "dpas8",
                              .forward_kernel = "forward_matrix_dpas8",
                              .backward_kernel = "backward_matrix_dpas8",
                              .rows_kernel = "backward_rows_matrix_dpas8",
                              .keys_kernel = "backward_keys_matrix_dpas8",
                              .vendor = WA_VENDOR_INTEL,
                              .sub_group = 8,
                              .proven = false,
                              .copies_async = false,
                              .wave = 8,
                              .queries = 8,
                              .tile = 16,
                              .exchange_words = 128,
                              .options = INTEL_OPTIONS},
};

/* Does a word of the list begin the name? */
static bool is_target(const char *targets, const char *name)
{
    while (*targets) {
        const size_t length = strcspn(targets, " ");
        if (strncmp(name, targets, length) == 0)
            return true;
        targets += length + strspn(targets + length, " ");
    }
    return false;
}

bool wa_matrix_unit_suits(const wa_matrix_unit *unit, const wa_device *device)
{
    return unit->vendor == device->vendor && !device->is_cpu &&
           unit->wave == device->wave &&
           unit->least_capability <= device->compute_capability &&
           (!unit->targets || is_target(unit->targets, device->name)) &&
           (unit->sub_group == 0 || (device->has_matrix_extension &&
                                     unit->sub_group == device->sub_group));
}

const wa_matrix_unit *wa_matrix_unit_of(const wa_device *device)
{
    for (size_t i = 0; i < WA_MATRIX_UNITS; i++)
        if (wa_matrix_unit_suits(&wa_matrix_units[i], device))
            return &wa_matrix_units[i];
    return NULL;
}

const wa_matrix_unit *wa_matrix_unit_named(const char *name)
{
    for (size_t i = 0; i < WA_MATRIX_UNITS; i++)
        if (strcmp(wa_matrix_units[i].name, name) == 0)
            return &wa_matrix_units[i];
    return NULL;
}
