/* SPDX-License-Identifier: Apache-2.0
 * Devices that are made up, and their platforms. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

standin_driver standin_drivers;

static cl_device_id devices;
static cl_platform_id platforms;

/* ---- Devices and platforms ---- */

static cl_platform_id find_platform(const char *name)
{
    cl_platform_id platform = platforms;
    while (platform && strcmp(platform->name, name) != 0)
        platform = platform->next;
    if (!platform) {
        platform = own_calloc(1, sizeof *platform);
        snprintf(platform->name, sizeof platform->name, "%s", name);
        platform->next = platforms;
        platforms = platform;
    }
    return platform;
}

cl_device_id standin_device(const wa_device *device)
{
    cl_device_id made = devices;
    while (made && made->key != device)
        made = made->next;
    if (made)
        return made;
    made = own_calloc(1, sizeof *made);
    made->key = device;
    made->device = *device;
    made->platform = find_platform(
        device->platform[0] ? device->platform : usual_platform(device));
    made->next = devices;
    devices = made;
    return made;
}

void devices_forget(void)
{
    while (devices) {
        cl_device_id next = devices->next;
        free(devices);
        devices = next;
    }
    while (platforms) {
        cl_platform_id next = platforms->next;
        free(platforms);
        platforms = next;
    }
}

/* As if it were a sub-device; others live as long as their platform. */
cl_int clRetainDevice(cl_device_id device)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    atomic_fetch_add_explicit(&device->retained, 1, memory_order_relaxed);
    return CL_SUCCESS;
}

cl_int clReleaseDevice(cl_device_id device)
{
    if (atomic_fetch_sub_explicit(&device->retained, 1,
                                  memory_order_relaxed) <= 0)
        wrong("%s: the device was not retained", __func__);
    return CL_SUCCESS;
}

long devices_retained(void)
{
    long count = 0;
    for (cl_device_id one = devices; one; one = one->next)
        count += atomic_load_explicit(&one->retained, memory_order_relaxed);
    return count;
}

/* ---- Answers ---- */

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size,
                       void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!device)
        return CL_INVALID_DEVICE;
    return what == CL_DEVICE_PLATFORM
               ? ANSWER(device->platform)
               : answer_device(&device->device, what, size, value, needed);
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what,
                         size_t size, void *value, size_t *needed)
{
    MAY_FAIL(CL_OUT_OF_HOST_MEMORY);
    if (!platform)
        return CL_INVALID_PLATFORM;
    if (what == CL_PLATFORM_NAME)
        return answer_text(platform->name, size, value, needed);
    if (what == CL_PLATFORM_VERSION)
        return answer_text("OpenCL 3.0 stand-in", size, value, needed);
    return CL_INVALID_VALUE;
}
