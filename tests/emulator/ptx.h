/* SPDX-License-Identifier: Apache-2.0
 * Programs in PTX (NVIDIA, "Parallel Thread Execution ISA"), as compilers of
 * OpenCL write them for sm_90, and their execution.
 *
 * What the hardware does at some time of its own is done here at the latest
 * time that it may be: what asynchronous copies bring is there once somebody
 * has waited for them, products of a warpgroup once they were waited for. So
 * a wait that is missing gives wrong numbers. Local memory and registers hold
 * NaNs at first.
 *
 * Threads: a module is read only; launches share nothing. */
#ifndef TESTS_EMULATOR_PTX_H
#define TESTS_EMULATOR_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_parameter {
    size_t size, offset; /* in the block of all parameters */
    bool is_pointer;     /* to global memory: 8 bytes, an address of ours */
} ptx_parameter;

typedef struct ptx_kernel {
    const char *name;
    size_t parameter_count;
    const ptx_parameter *parameters;
    size_t parameter_bytes;
    size_t required_items; /* .reqntid; 0: any number */
    size_t shared_bytes;   /* of a work-group */
    size_t dynamic_align;  /* of what is .extern, behind these; 0: nothing */
    size_t private_bytes;  /* of a work-item, in memory */
    const struct ptx_code *code;
} ptx_kernel;

typedef struct ptx_module {
    size_t kernel_count;
    ptx_kernel *kernels;
    struct ptx_data *data; /* of the module itself */
} ptx_module;

/* A copy is made of the text. NULL: it is not understood, and why, with the
 * number of the line. */
ptx_module *ptx_read(const char *text, char *reason, size_t reason_size);
void ptx_free(ptx_module *module);

/* Memory that kernels may touch. */
typedef struct ptx_range {
    unsigned char *start;
    size_t bytes;
} ptx_range;

typedef struct ptx_launch {
    const unsigned char *parameters; /* parameter_bytes of them */
    size_t groups, items;            /* work-groups, and work-items of each */
    size_t wave_lanes;               /* at most 64 */
    size_t dynamic_bytes;            /* of local memory behind the kernel's */
    const ptx_range *ranges;         /* of global memory */
    size_t range_count;
    unsigned seed; /* of the order in which waves go on */
} ptx_launch;

/* Runs all work-groups. False: a kernel did what hardware need not survive (an
 * address outside of memory or not aligned, waves that wait for ever, ...),
 * and what that was. */
bool ptx_run(const ptx_kernel *kernel, const ptx_launch *launch, char *reason,
             size_t reason_size);

#endif
