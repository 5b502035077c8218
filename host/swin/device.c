/* SPDX-License-Identifier: Apache-2.0
 * Finds the devices of the machine. */
#include "swin/runner.h"

#include <CL/cl_ext.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define MOST_PLATFORMS 32
#define MOST_DEVICES 64

typedef struct found_device {
    cl_device_id id;
    bool is_gpu, is_cpu;
    char name[512];
} found_device;

static void read_names(const char *platform, found_device *f)
{
    char device_name[200] = "";
    cl_device_type type = 0;
    clGetDeviceInfo(f->id, CL_DEVICE_NAME, sizeof device_name - 1, device_name,
                    NULL);
    clGetDeviceInfo(f->id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    f->is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    f->is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
    snprintf(f->name, sizeof f->name, "%s / %s", platform, device_name);
    wa_make_plain(f->name, "");
}

/* Those of the machine, and what failed while they were looked for. */
typedef struct device_list {
    found_device found[MOST_DEVICES];
    size_t count;
    char failure[400]; /* of the last call that failed; "": none did */
} device_list;

/* False: it failed, and not for want of what was asked for. */
static bool is_answered(cl_int error, cl_int nothing, const char *call,
                        const char *platform, device_list *all)
{
    if (error != CL_SUCCESS && error != nothing)
        snprintf(all->failure, sizeof all->failure, "%s%s%s failed: %s (%d)",
                 platform, platform[0] ? ": " : "", call,
                 winattn_status_name(error), (int)error);
    return error == CL_SUCCESS;
}

static void add_devices(cl_platform_id platform, device_list *all)
{
    cl_device_id ids[MOST_DEVICES];
    cl_uint count = 0;
    char name[200] = "";
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
    wa_make_plain(name, "");
    if (!is_answered(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST_DEVICES,
                                    ids, &count),
                     CL_DEVICE_NOT_FOUND, "clGetDeviceIDs", name, all))
        return;
    for (cl_uint i = 0; i < count && all->count < MOST_DEVICES; i++) {
        found_device *f = &all->found[all->count++];
        *f = (found_device){.id = ids[i]};
        read_names(name, f);
    }
}

static void find_devices(device_list *all)
{
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint count = 0;
    all->count = 0;
    all->failure[0] = 0;
    if (is_answered(clGetPlatformIDs(MOST_PLATFORMS, platforms, &count),
                    CL_PLATFORM_NOT_FOUND_KHR, "clGetPlatformIDs", "", all))
        for (cl_uint i = 0; i < count && i < MOST_PLATFORMS; i++)
            add_devices(platforms[i], all);
}

bool device_print_all(void)
{
    device_list all;
    find_devices(&all);
    printf("devices:\n");
    for (size_t i = 0; i < all.count; i++)
        printf("  %s\n", all.found[i].name);
    if (all.failure[0])
        printf("  %s\n", all.failure);
    else if (all.count == 0)
        printf("  none: no OpenCL platform has one\n");
    return !all.failure[0];
}

bool device_open(const char *part, swin_device *device)
{
    device_list all;
    const found_device *best = NULL;
    cl_int error = 0;
    *device = (swin_device){0};
    find_devices(&all);
    for (size_t i = 0; i < all.count; i++)
        if ((!part || strstr(all.found[i].name, part)) &&
            (!best || (all.found[i].is_gpu && !best->is_gpu)))
            best = &all.found[i];
    if (!best) {
        fprintf(stderr, "winattn-swin: no OpenCL device%s%s%s%s\n",
                part ? " has this in its name: " : "", part ? part : "",
                all.failure[0] ? "; " : "", all.failure);
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
                        const char *what, cl_mem *made)
{
    cl_int error = CL_INVALID_BUFFER_SIZE;
    *made = NULL;
    if (bytes <= SIZE_MAX)
        *made = clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                               (size_t)bytes, NULL, &error);
    if (error == CL_SUCCESS)
        return true;
    cl_ulong most = 0;
    clGetDeviceInfo(device->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most,
                    &most, NULL);
    fprintf(stderr,
            "winattn-swin: %s: no buffer of %llu bytes (%s); the device's "
            "have at most %llu: try a smaller --batch\n",
            what, (unsigned long long)bytes, winattn_status_name(error),
            (unsigned long long)most);
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
