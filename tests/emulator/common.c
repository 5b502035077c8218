/* SPDX-License-Identifier: Apache-2.0
 * Kernels and launches, of OpenCL's and of CUDA's driver. */
#include "common.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u
/* Larger ones take memory only where they are written. */
#define MOST_FILLED ((size_t)64 << 20)

bool emulated_is_ptx(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n");
        if (strncmp(text, "//", 2) != 0)
            return strncmp(text, ".version", 8) == 0;
        text += strcspn(text, "\n");
    }
}

const ptx_kernel *emulated_kernel(const ptx_module *module, const char *name)
{
    for (size_t i = 0; i < module->kernel_count; i++)
        if (strcmp(module->kernels[i].name, name) == 0)
            return &module->kernels[i];
    return NULL;
}

/* The words are those of ptxas. */
bool emulated_fits(const ptx_kernel *kernel, const emulated_limits *most,
                   char *line, size_t line_size)
{
    if (kernel->shared_bytes <= most->shared_bytes &&
        kernel->parameter_bytes <= most->parameter_bytes &&
        kernel->required_items <= most->items)
        return true;
    snprintf(line, line_size,
             "error   : Entry function '%s' uses too much: 0x%zx bytes "
             "of shared data (0x%zx max), %zu of parameters (%zu max), "
             "%zu work-items (%zu max)\n",
             kernel->name, kernel->shared_bytes, most->shared_bytes,
             kernel->parameter_bytes, most->parameter_bytes,
             kernel->required_items, most->items);
    return false;
}

unsigned char *emulated_memory(size_t bytes)
{
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    unsigned char *made = aligned_alloc(PAGE_BYTES, bytes);
    if (made && bytes <= MOST_FILLED)
        memset(made, 0xff, bytes);
    return made;
}

bool emulated_launch(const char *device, const ptx_kernel *kernel,
                     ptx_launch launch, char reason[EMULATED_REASON])
{
    static atomic_uint launches;
    launch.seed = atomic_fetch_add(&launches, 1);
    if (ptx_run(kernel, &launch, reason, EMULATED_REASON))
        return true;
    fprintf(stderr, "emulator: %s: %s, %zu groups of %zu: %s\n", device,
            kernel->name, launch.groups, launch.items, reason);
    return false;
}
