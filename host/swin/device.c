/* SPDX-License-Identifier: Apache-2.0
 * Finds the devices of the machine. */
#include "swin/device.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MOST_PLATFORMS 32
#define MOST_DEVICES 64

typedef struct found_device {
    cl_device_id id;
    bool is_gpu, is_cpu;
    char name[512];
} found_device;

static void read_names(cl_platform_id platform, found_device *f)
{
    char platform_name[200] = "", device_name[200] = "";
    cl_device_type type = 0;
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof platform_name - 1,
                      platform_name, NULL);
    clGetDeviceInfo(f->id, CL_DEVICE_NAME, sizeof device_name - 1, device_name,
                    NULL);
    clGetDeviceInfo(f->id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    f->is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    f->is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
    snprintf(f->name, sizeof f->name, "%s / %s", platform_name, device_name);
}

static size_t find_devices(found_device found[MOST_DEVICES])
{
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint platform_count = 0;
    size_t count = 0;
    if (clGetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count) != 0)
        return 0;
    for (cl_uint i = 0; i < platform_count && i < MOST_PLATFORMS; i++) {
        cl_device_id ids[MOST_DEVICES];
        cl_uint id_count = 0;
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MOST_DEVICES, ids,
                           &id_count) != 0)
            continue;
        for (cl_uint j = 0; j < id_count && count < MOST_DEVICES; j++) {
            found[count].id = ids[j];
            read_names(platforms[i], &found[count++]);
        }
    }
    return count;
}

void device_print_all(void)
{
    found_device found[MOST_DEVICES];
    const size_t count = find_devices(found);
    printf("devices:\n");
    for (size_t i = 0; i < count; i++)
        printf("  %s\n", found[i].name);
    if (count == 0)
        printf("  none: no OpenCL platform has one\n");
}

bool device_open(const char *part, swin_device *device)
{
    found_device found[MOST_DEVICES];
    const found_device *best = NULL;
    const size_t count = find_devices(found);
    cl_int error = 0;
    *device = (swin_device){0};
    for (size_t i = 0; i < count; i++)
        if ((!part || strstr(found[i].name, part)) &&
            (!best || (found[i].is_gpu && !best->is_gpu)))
            best = &found[i];
    if (!best) {
        fprintf(stderr, "winattn-swin: no OpenCL device%s%s\n",
                part ? " has this in its name: " : "", part ? part : "");
        return false;
    }
    device->id = best->id;
    device->is_cpu = best->is_cpu;
    snprintf(device->name, sizeof device->name, "%s", best->name);
    device->context = clCreateContext(NULL, 1, &best->id, NULL, NULL, &error);
    if (device->context)
        device->queue =
            clCreateCommandQueue(device->context, best->id, 0, &error);
    if (device->queue)
        return true;
    fprintf(stderr, "winattn-swin: %s does not answer (%d)\n", best->name,
            (int)error);
    device_close(device);
    return false;
}

bool device_make_buffer(const swin_device *device, cl_ulong bytes,
                        const char *what, const char *hint, cl_mem *made)
{
    cl_int error = CL_INVALID_BUFFER_SIZE;
    cl_ulong most = 0;
    *made = NULL;
    if (bytes <= SIZE_MAX)
        *made = clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                               (size_t)bytes, NULL, &error);
    if (error == CL_SUCCESS)
        return true;
    clGetDeviceInfo(device->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most,
                    &most, NULL);
    fprintf(stderr,
            "winattn-swin: %s: no buffer of %llu bytes (%s); the device's "
            "have at most %llu%s\n",
            what, (unsigned long long)bytes, winattn_status_name(error),
            (unsigned long long)most, hint);
    return false;
}

void device_close(swin_device *device)
{
    if (device->queue)
        clReleaseCommandQueue(device->queue);
    if (device->context)
        clReleaseContext(device->context);
    *device = (swin_device){0};
}
