/* SPDX-License-Identifier: Apache-2.0
 * The matrix units that cl/unit/unit_*.cl describe. */
#ifndef WINATTN_MATRIX_UNIT_H
#define WINATTN_MATRIX_UNIT_H

#include <stdint.h>

#include "device/device.h"

typedef struct wa_matrix_unit {
    const char *name;           /* cl/unit/unit_<name>.cl describes it */
    const char *forward_kernel; /* forward_matrix_<name> */
    /* sliding_forward_matrix_<name> and so on */
    const char *sliding_forward_kernel, *sliding_rows_kernel,
        *sliding_keys_kernel;
    const char *backward_kernel; /* backward_matrix_<name> */
    /* backward_rows_matrix_<name>, backward_keys_matrix_<name> */
    const char *rows_kernel, *keys_kernel;
    wa_vendor vendor;
    uint32_t least_capability; /* NVIDIA: 80 is 8.0; else 0 */
    const char *targets;       /* AMD: such as "gfx90a gfx94"; else NULL */
    uint32_t sub_group;        /* Intel: that kernels demand; else 0 */
    bool proven;               /* seen to work on silicon */
    bool copies_async;         /* local memory fills while waves compute */
    bool swizzles_rows;        /* rows of local memory have no gaps */
    bool has_tf32;             /* multiplies fp32, rounded to TF32 */
    bool votes;                /* VOTES of cl/unit/fragment.cl */
    uint32_t wave;             /* lanes */
    uint32_t queries;          /* of a tile of scores */
    uint32_t tile;             /* keys of one, and channels of a step */
    const char *options;       /* for the compiler; "" */
} wa_matrix_unit;

/* Sub-groups are of OpenCL C 2.0. ocloc 22.43 knows the functions below but
 * declares them only where these macros say so; drivers define them. */
#define WA_INTEL_UNIT_OPTIONS                                                 \
    " -cl-std=CL2.0 -cl-intel-256-GRF-per-thread"                             \
    " -Dcl_intel_subgroup_matrix_multiply_accumulate"                         \
    " -Dcl_intel_bfloat16_conversions"

/* X(ID, name, what it is), of those for the same devices the best first. The
 * numbers are those of the unit's file. */
#define WA_MATRIX_UNIT_ROWS(X)                                                \
    X(MMA, mma, .vendor = WA_VENDOR_NVIDIA, .least_capability = 80,           \
      .proven = true, .copies_async = true, .swizzles_rows = true,            \
      .has_tf32 = true, .votes = true, .wave = 32, .queries = 16, .tile = 16, \
      .options = "")                                                          \
    X(WMMA11, wmma11, .vendor = WA_VENDOR_AMD, .targets = "gfx11",            \
      .proven = false, .copies_async = false, .votes = true, .wave = 32,      \
      .queries = 16, .tile = 16, .options = "")                               \
    X(WMMA12, wmma12, .vendor = WA_VENDOR_AMD, .targets = "gfx12",            \
      .proven = false, .copies_async = false, .votes = true, .wave = 32,      \
      .queries = 16, .tile = 16, .options = "")                               \
    X(MFMA16, mfma16, .vendor = WA_VENDOR_AMD, .targets = "gfx90a gfx94",     \
      .proven = false, .copies_async = false, .votes = true, .wave = 64,      \
      .queries = 16, .tile = 16, .options = "")                               \
    X(DPAS16, dpas16, .vendor = WA_VENDOR_INTEL, .sub_group = 16,             \
      .proven = false, .copies_async = false, .wave = 16, .queries = 16,      \
      .tile = 16, .options = WA_INTEL_UNIT_OPTIONS)                           \
    X(DPAS8, dpas8, .vendor = WA_VENDOR_INTEL, .sub_group = 8,                \
      .proven = false, .copies_async = false, .wave = 8, .queries = 8,        \
      .tile = 16, .options = WA_INTEL_UNIT_OPTIONS)

#define WA_DECLARE_UNIT(id, unit, ...) WA_MATRIX_UNIT_##id,
enum { WA_MATRIX_UNIT_ROWS(WA_DECLARE_UNIT) WA_MATRIX_UNITS };
#undef WA_DECLARE_UNIT
extern const wa_matrix_unit wa_matrix_units[WA_MATRIX_UNITS];

/* Does the device have that unit? */
bool wa_matrix_unit_suits(const wa_matrix_unit *unit, const wa_device *device);

/* The best unit of a device, or NULL. */
const wa_matrix_unit *wa_matrix_unit_of(const wa_device *device);

/* NULL if there is none of that name. */
const wa_matrix_unit *wa_matrix_unit_named(const char *name);

#endif
