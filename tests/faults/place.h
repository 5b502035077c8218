/* SPDX-License-Identifier: Apache-2.0
 * A device of kit/devices.h on the stand-in, and a context of it. */
#ifndef FAULTS_PLACE_H
#define FAULTS_PLACE_H

#include "standin.h"

typedef struct place {
    cl_device_id id;
    cl_context context;
} place;

/* After standin_reset. */
place open_place(const char *device);

/* The context must be all that is left, and nothing may have gone wrong; else
 * the test fails. */
void close_place(const place *p);

#endif
