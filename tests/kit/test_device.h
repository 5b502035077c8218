/* SPDX-License-Identifier: Apache-2.0
 * The device that tests run on. */
#ifndef KIT_TEST_DEVICE_H
#define KIT_TEST_DEVICE_H

#include <stdbool.h>

#include "winattn.h"

/* The device that the environment variable WINATTN_TEST_DEVICE names by a
 * part of "platform / device" (case does not matter), else the first that is
 * PoCL's, else the first of all. */
typedef struct test_device {
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    cl_command_queue unordered; /* NULL where the device has none */
    char name[256];             /* "platform / device" */
} test_device;

/* False, with a reason, if there is none. */
bool device_open(test_device *device, char reason[256]);
void device_close(test_device *device);
/* What build_options of a test's descriptor say for a tier: what the
 * environment variable WINATTN_TEST_BUILD_OPTIONS does. Where a PoCL below 5
 * has the device that was opened last, two more variables save most of the
 * time that it takes to compile, with the same arithmetic: with
 * WINATTN_TEST_CALLS, functions of kernels of tier local may be called, and
 * need not be inlined; with WINATTN_TEST_UNOPTIMIZED nothing is optimized (nor
 * what is built with other options, as the environment tells PoCL so),
 * which tier cpu gains from. */
const char *device_build_options(winattn_tier tier);
/* All devices of all platforms; at most `most`. */
int device_list(cl_device_id *ids, char (*names)[256], int most);

#endif
