/* SPDX-License-Identifier: Apache-2.0
 * What a device can do, as plain numbers: queried once per context and
 * device, corrected by probes, then all that plans know of the device. */
#ifndef WINATTN_DEVICE_H
#define WINATTN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "winattn.h"

typedef enum wa_vendor {
    WA_VENDOR_OTHER,
    WA_VENDOR_NVIDIA,
    WA_VENDOR_AMD,
    WA_VENDOR_INTEL,
    WA_VENDOR_ARM,
    WA_VENDOR_QUALCOMM
} wa_vendor;

struct wa_matrix_unit;

/* Bytes of local_capacity that a work-group takes beside its own. */
#define WA_RESERVED_LOCAL_BYTES 1024u

typedef struct wa_device {
    char name[128];
    char platform[64];
    char driver[64];
    wa_vendor vendor;
    bool is_cpu;
    bool has_int64;  /* an embedded profile may lack it */
    bool compiles;   /* CL_DEVICE_COMPILER_AVAILABLE */
    uint32_t opencl; /* 102 is OpenCL 1.2 */
    uint32_t compute_units;
    uint32_t clock_mhz; /* 0: unknown */
    uint32_t max_work_group;
    uint32_t max_parameter_bytes;
    uint32_t address_bits;
    uint64_t buffer_bytes; /* of one buffer, at most; 0: unknown */
    uint32_t vector_lanes; /* fp32 lanes of a native vector */
    uint32_t wave;         /* work-items that run in lockstep */
    uint32_t sub_group;    /* that kernels demand, Intel; 0: none */
    /* 32-bit registers of a work-item that a kernel can use without spilling
     * and without emptying the compute unit */
    uint32_t registers;
    uint32_t register_words;     /* of a compute unit, 32 bits each */
    uint32_t local_bytes;        /* that a kernel can declare */
    uint32_t local_capacity;     /* that the work-groups of a unit share */
    bool local_is_global;        /* local memory is ordinary memory */
    uint32_t compute_capability; /* NVIDIA: 90 is 9.0; else 0 */
    bool has_fma;                /* in hardware, fp32 */
    bool miscompiles_barriers; /* optimised kernels with barriers are wrong */
    bool breaks_barriers;      /* and so are kernels that are not optimised */
    bool splits_half_vectors;  /* vloada_half8 loads one half at a time */
    bool aligns_half_vectors;  /* vload_half8 wants a multiple of 16 bytes */
    bool limits_registers;     /* with -cl-nv-maxrregcount */
    bool reports_kernel_sizes; /* CL_KERNEL_WORK_GROUP_SIZE is right */
    /* rounds after which a work-item's loops end early, all loops counted
     * together; 0: no such limit */
    uint32_t loop_limit;
    bool has_matrix_extension; /* Intel: kernels can use its matrix unit */
    const struct wa_matrix_unit
        *matrix_unit;     /* its matrix unit, see unit.h; NULL: none */
    bool ignores_tuning;  /* a measured shape was seen not to work */
    bool ignores_special; /* tests want what else computes a problem */
} wa_device;

/* Queries only; launches nothing and builds nothing. Fails where a query
 * does, unless it is one that such devices may not know. */
winattn_status wa_device_query(cl_device_id id, wa_device *device);

const char *wa_vendor_name(wa_vendor vendor);

#endif
