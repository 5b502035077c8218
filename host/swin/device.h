/* SPDX-License-Identifier: Apache-2.0
 * The device that the model runs on. */
#ifndef SWIN_DEVICE_H
#define SWIN_DEVICE_H

#include <stdbool.h>

#include "winattn.h"

typedef struct swin_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    bool is_cpu;
    char name[512]; /* "platform / device" */
} swin_device;

/* The first GPU, else the first device, whose name has `part` in it, or any
 * if that is NULL. False: why not was said on stderr. */
bool device_open(const char *part, swin_device *device);
void device_close(swin_device *device);

/* False: a call failed, which was printed as well. */
bool device_print_all(void);

/* Makes a buffer. False: on stderr stands for what how many bytes could not be
 * had, and how many there can be. */
bool device_make_buffer(const swin_device *device, cl_ulong bytes,
                        const char *what, cl_mem *made);

#endif
