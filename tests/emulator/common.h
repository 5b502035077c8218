/* SPDX-License-Identifier: Apache-2.0
 * What drivers of the emulated devices share, whichever interface they
 * have. */
#ifndef TESTS_EMULATOR_COMMON_H
#define TESTS_EMULATOR_COMMON_H

#include "ptx.h"

#define MEMORY_BYTES ((uint64_t)8 << 30)
/* The device that CUDA's driver has, too: both answer the same UUID. */
#define EMULATED_H200 "H200 (emulated)"
#define EMULATED_H200_UUID "emulated-H200-0" /* and a zero */
enum { EMULATED_UUID_BYTES = 16, EMULATED_PARAMETER_BYTES = 4352 };

/* Is the first line that is neither empty nor a comment a version's? */
bool emulated_is_ptx(const char *text);

/* NULL: the module has none of that name. */
const ptx_kernel *emulated_kernel(const ptx_module *module, const char *name);

/* That a kernel may have at most. */
typedef struct emulated_limits {
    size_t shared_bytes, parameter_bytes, items;
} emulated_limits;

/* False: it has more, and the line of a log that says so. */
bool emulated_fits(const ptx_kernel *kernel, const emulated_limits *most,
                   char *line, size_t line_size);

/* Memory with NaNs in it, unless it is large; starts at a page, to be freed.
 * NULL: there is none. */
unsigned char *emulated_memory(size_t bytes);

enum { EMULATED_REASON = 512 };

/* Runs a kernel with its waves in another order than the last one's. False: it
 * failed, for a reason that goes to standard error, too. */
bool emulated_launch(const char *device, const ptx_kernel *kernel,
                     ptx_launch launch, char reason[EMULATED_REASON]);

#endif
