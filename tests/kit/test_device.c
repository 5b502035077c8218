/* SPDX-License-Identifier: Apache-2.0
 * Device selection. */
#include "test_device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define POCL "Portable Computing"

static bool contains(const char *text, const char *part)
{
    const size_t length = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)text[i]) ==
                                 tolower((unsigned char)part[i]))
            i++;
        if (i == length)
            return true;
    }
    return length == 0;
}

int device_list(cl_device_id *ids, char (*names)[256], int most)
{
    cl_platform_id platforms[32];
    cl_uint platform_count = 0;
    int found = 0;
    if (clGetPlatformIDs(32, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < 32; p++) {
        cl_device_id devices[32];
        cl_uint count = 0;
        char platform[128] = "";
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 32, devices,
                           &count) != CL_SUCCESS)
            continue;
        clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof platform,
                          platform, NULL);
        for (cl_uint i = 0; i < count && i < 32 && found < most; i++) {
            char name[120] = "";
            clGetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof name, name,
                            NULL);
            ids[found] = devices[i];
            snprintf(names[found], 256, "%s / %s", platform, name);
            wa_make_plain(names[found++], "");
        }
    }
    return found;
}

/* What build_options of descriptors are, of tier local and of all others. */
static char options_of_others[256], options_of_local[256 + 32];

/* For kernels that a test builds with options of its own, too. */
static void optimize_nothing(void)
{
#ifndef _WIN32 /* PoCL is elsewhere */
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
#endif
}

/* -DINLINE as runtimes/oclgrind does. PoCL 6.0 ends the process where tier cpu
 * is not optimized. */
static void choose_options(const test_device *opened)
{
    char version[64] = "";
    clGetDeviceInfo(opened->id, CL_DRIVER_VERSION, sizeof version - 1, version,
                    NULL);
    const bool is_pocl =
        strncmp(opened->name, POCL, strlen(POCL)) == 0 && atoi(version) < 5;
    const char *all = getenv("WINATTN_TEST_BUILD_OPTIONS");
    const bool calls = is_pocl && getenv("WINATTN_TEST_CALLS");
    const bool plain = is_pocl && getenv("WINATTN_TEST_UNOPTIMIZED");
    snprintf(options_of_others, sizeof options_of_others, "%s%s",
             all ? all : "", plain ? " -cl-opt-disable" : "");
    if (plain)
        optimize_nothing();
    snprintf(options_of_local, sizeof options_of_local, "%s%s",
             options_of_others, calls ? " -DINLINE=static" : "");
}

const char *device_build_options(winattn_tier tier)
{
    return tier == WINATTN_TIER_LOCAL ? options_of_local : options_of_others;
}

bool device_open(test_device *device, char reason[256])
{
    cl_device_id ids[64];
    char names[64][256];
    const char *wanted = getenv("WINATTN_TEST_DEVICE");
    const int count = device_list(ids, names, 64);
    int chosen = -1;
    memset(device, 0, sizeof *device);
    winattn_set_cache_dir(""); /* tests compile what they test */
    for (int i = 0; i < count && chosen < 0; i++)
        if (contains(names[i], wanted ? wanted : POCL))
            chosen = i;
    if (chosen < 0 && !wanted && count > 0)
        chosen = 0;
    if (chosen < 0) {
        snprintf(reason, 256, "no OpenCL device %s among %d",
                 wanted ? wanted : "", count);
        return false;
    }
    cl_int error;
    device->id = ids[chosen];
    memcpy(device->name, names[chosen], sizeof device->name);
    choose_options(device);
    clGetDeviceInfo(device->id, CL_DEVICE_PLATFORM, sizeof device->platform,
                    &device->platform, NULL);
    device->context =
        clCreateContext(NULL, 1, &device->id, NULL, NULL, &error);
    if (error == CL_SUCCESS)
        device->queue = clCreateCommandQueue(
            device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &error);
    if (error != CL_SUCCESS) {
        snprintf(reason, 256, "%.200s does not open: %d", device->name, error);
        device_close(device);
        return false;
    }
    device->unordered =
        clCreateCommandQueue(device->context, device->id,
                             CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    if (error != CL_SUCCESS)
        device->unordered = NULL;
    return true;
}

void device_close(test_device *device)
{
    if (device->unordered)
        clReleaseCommandQueue(device->unordered);
    if (device->queue)
        clReleaseCommandQueue(device->queue);
    if (device->context)
        clReleaseContext(device->context);
    memset(device, 0, sizeof *device);
}
