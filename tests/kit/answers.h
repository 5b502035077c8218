/* SPDX-License-Identifier: Apache-2.0
 * wa_device -> what a driver answers, so that wa_device_query and the probes
 * make the same wa_device of it: of the drivers that tests have, the stand-in
 * and the emulated GPUs. */
#ifndef KIT_ANSWERS_H
#define KIT_ANSWERS_H

#include "device/device.h"

/* Whoever asks gives room for `size` bytes, or asks how many there are. */
cl_int answer(const void *bytes, size_t count, size_t size, void *value,
              size_t *needed);
cl_int answer_text(const char *text, size_t size, void *value, size_t *needed);
cl_int answer_uint(cl_ulong number, size_t size, void *value, size_t *needed);
cl_int answer_size(size_t number, size_t size, void *value, size_t *needed);
cl_int answer_ulong(cl_ulong number, size_t size, void *value, size_t *needed);
#define ANSWER(expression)                                                    \
    answer(&(expression), sizeof(expression), size, value, needed)

/* Answers clGetDeviceInfo, but for the platform. What a driver reports wrongly
 * is reported wrongly. */
cl_int answer_device(const wa_device *device, cl_device_info what, size_t size,
                     void *value, size_t *needed);

/* The name that the platform of such devices has. */
const char *usual_platform(const wa_device *device);

/* Returns NULL, or what was made. */
void *fail_with(cl_int code, cl_int *error);
void *succeed_with(void *made, cl_int *error);

#endif
