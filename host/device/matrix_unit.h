/* SPDX-License-Identifier: Apache-2.0
 * The matrix units that cl/unit/unit_*.cl describe. */
#ifndef WINATTN_MATRIX_UNIT_H
#define WINATTN_MATRIX_UNIT_H

#include <stdint.h>

#include "device/device.h"

typedef struct wa_matrix_unit {
    const char *name;            /* cl/unit/unit_<name>.cl describes it */
    const char *forward_kernel;  /* forward_matrix_<name> */
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
    bool votes;                /* WAVE_ANY of cl/unit/fragment.cl */
    uint32_t wave;             /* lanes */
    uint32_t queries;          /* of a tile of scores */
    uint32_t tile;             /* keys of one, and channels of a step */
    uint32_t exchange_words;   /* of an emulated wave, in local memory */
    const char *options;       /* for the compiler; "" */
} wa_matrix_unit;

enum {
    WA_MATRIX_UNIT_MMA,
    WA_MATRIX_UNIT_WMMA11,
    WA_MATRIX_UNIT_WMMA12,
    WA_MATRIX_UNIT_MFMA16,
    WA_MATRIX_UNIT_MFMA32,
    WA_MATRIX_UNIT_DPAS16,
    WA_MATRIX_UNIT_DPAS8,
    WA_MATRIX_UNITS
};
extern const wa_matrix_unit wa_matrix_units[WA_MATRIX_UNITS];

/* Does the device have that unit? */
bool wa_matrix_unit_suits(const wa_matrix_unit *unit, const wa_device *device);

/* The best unit of a device, or NULL. */
const wa_matrix_unit *wa_matrix_unit_of(const wa_device *device);

/* NULL if there is none of that name. */
const wa_matrix_unit *wa_matrix_unit_named(const char *name);

#endif
