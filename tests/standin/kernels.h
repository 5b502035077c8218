/* SPDX-License-Identifier: Apache-2.0
 * What the source of a program says of its kernels. */
#ifndef STANDIN_KERNELS_H
#define STANDIN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_MOST_PARAMETERS 32

typedef struct kernel_parameter {
    bool is_buffer;
    size_t size; /* bytes that clSetKernelArg must be told */
} kernel_parameter;

typedef struct kernel_facts {
    char name[64];
    size_t work_group;  /* that it demands; 0: any */
    size_t local_bytes; /* that it declares, without gaps between arrays */
    unsigned parameter_count;
    kernel_parameter parameters[KERNEL_MOST_PARAMETERS];
} kernel_facts;

typedef struct kernel_list {
    kernel_facts *all;
    size_t count;
} kernel_list;

/* The kernels of a source that is compiled with these options. */
kernel_list kernels_read(const char *source, const char *options);
void kernels_free(kernel_list *list);

/* NULL if there is none of that name. */
const kernel_facts *kernels_find(const kernel_list *list, const char *name);

#endif
