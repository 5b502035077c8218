/* SPDX-License-Identifier: Apache-2.0
 * Finds the device, makes the model, and moves pictures and results. */
#include "swin/runner.h"

#include <CL/cl_ext.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/text.h"

/* ---- The devices of the machine ---- */

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
    if (!best)
        return fail("no OpenCL device%s%s%s%s",
                    part ? " has this in its name: " : "", part ? part : "",
                    all.failure[0] ? "; " : "", all.failure);
    device->id = best->id;
    device->is_cpu = best->is_cpu;
    snprintf(device->name, sizeof device->name, "%s", best->name);
    device->context = clCreateContext(NULL, 1, &best->id, NULL, NULL, &error);
    if (device->context)
        device->queue =
            clCreateCommandQueue(device->context, best->id, 0, &error);
    if (device->queue)
        return true;
    device_close(device);
    return fail("%s does not answer (%d)", best->name, (int)error);
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
    return fail("%s: no buffer of %llu bytes (%s); the device's have at most "
                "%llu: try a smaller --batch",
                what, (unsigned long long)bytes, winattn_status_name(error),
                (unsigned long long)most);
}

void device_close(swin_device *device)
{
    if (device->queue)
        clReleaseCommandQueue(device->queue);
    if (device->context)
        clReleaseContext(device->context);
    *device = (swin_device){0};
}

/* ---- The model ---- */

bool is_good(winattn_status status, const char *what)
{
    if (status == WINATTN_SUCCESS)
        return true;
    const char *reason = winattn_last_reason();
    fail("%s: %s", what, reason[0] ? reason : winattn_status_name(status));
    if (winattn_last_build_log()[0])
        fprintf(stderr, "%s\n", winattn_last_build_log());
    return false;
}

bool is_finite(winattn_dtype dtype, const char *what, const float *values,
               size_t count)
{
    size_t i = 0;
    while (i < count && isfinite(values[i]))
        i++;
    if (i == count)
        return true;
    return dtype == WINATTN_FP16
               ? fail("%s: results are no finite numbers: the model left the "
                      "range of fp16, which ends at 65504; --dtype bf16 and "
                      "--dtype fp32 go further",
                      what)
               : fail("%s: results are no finite numbers: the model left the "
                      "range of %s, or weights are none themselves",
                      what, dtype_names[dtype]);
}

static bool is_done(cl_int error, const char *what)
{
    return error == CL_SUCCESS ||
           fail("%s: %s", what, winattn_status_name(error));
}

static size_t element_size(winattn_dtype dtype)
{
    return dtype == WINATTN_FP32 ? 4 : 2;
}

static bool make_buffer(runner *r, size_t size, const char *what, cl_mem *made)
{
    r->buffer_bytes += size;
    return device_make_buffer(r->device, size ? size : 1, what, made);
}

static bool make_maps(runner *r)
{
    for (cl_uint i = 0; i < r->config.stages; i++) {
        const cl_uint *shape = r->map_shape[i];
        if (!make_buffer(r,
                         (size_t)shape[0] * shape[1] * shape[2] * shape[3] *
                             element_size(r->dtype),
                         "a stage's map", &r->maps[i]))
            return false;
    }
    return true;
}

static bool make_buffers(runner *r, bool wants_maps)
{
    size_t workspace = 0;
    for (cl_uint i = 0; i < r->config.stages; i++)
        if (!is_good(winattn_model_map_shape(r->model, i, r->map_shape[i]),
                     "map"))
            return false;
    if (!is_good(winattn_model_workspace_size(r->model, &workspace),
                 "workspace"))
        return false;
    r->workspace_bytes = workspace;
    return make_buffer(r, workspace, "workspace", &r->workspace) &&
           make_buffer(r, r->picture_bytes * r->batch, "pictures",
                       &r->pictures) &&
           (r->config.classes == 0 ||
            make_buffer(r,
                        (size_t)r->batch * r->config.classes *
                            element_size(r->dtype),
                        "logits", &r->logits)) &&
           (!wants_maps || make_maps(r));
}

bool runner_open(const options *o, const swin_device *device,
                 const winattn_swin_weights *weights,
                 const winattn_swin_config *config, cl_uint batch,
                 bool wants_maps, runner *r)
{
    winattn_model_desc desc = {.struct_size = sizeof desc};
    *r = (runner){.device = device, .config = *config};
    r->batch = batch;
    r->dtype = o->dtype;
    r->picture_bytes = (size_t)3 * config->crop[0] * config->crop[1];
    desc.dtype = o->dtype;
    desc.tier = o->tier;
    desc.allow_tf32 = o->allow_tf32;
    desc.batch = batch;
    desc.height = config->crop[0];
    desc.width = config->crop[1];
    if (is_good(winattn_model_create(device->context, device->id, &desc,
                                     weights, &r->model),
                "model") &&
        make_buffers(r, wants_maps))
        return true;
    runner_close(r);
    return false;
}

void runner_close(runner *r)
{
    cl_mem buffers[3 + WINATTN_SWIN_STAGES] = {r->pictures, r->logits,
                                               r->workspace};
    memcpy(buffers + 3, r->maps, sizeof r->maps);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i])
            clReleaseMemObject(buffers[i]);
    winattn_model_destroy(r->model);
    *r = (runner){0};
}

bool runner_send(runner *r, const unsigned char *pictures)
{
    return is_done(clEnqueueWriteBuffer(r->device->queue, r->pictures, CL_TRUE,
                                        0, r->picture_bytes * r->batch,
                                        pictures, 0, NULL, NULL),
                   "pictures");
}

winattn_model_call runner_call(const runner *r)
{
    winattn_model_call call = {.struct_size = sizeof call};
    call.pictures.buffer = r->pictures;
    memcpy(call.mean, r->config.mean, sizeof r->config.mean);
    memcpy(call.deviation, r->config.deviation, sizeof r->config.deviation);
    call.logits.buffer = r->logits;
    for (cl_uint i = 0; i < r->config.stages; i++)
        call.maps[i].buffer = r->maps[i];
    call.workspace.buffer = r->workspace;
    return call;
}

bool runner_start(runner *r)
{
    const winattn_model_call call = runner_call(r);
    return is_good(winattn_enqueue_model(r->model, r->device->queue, &call, 0,
                                         NULL, NULL),
                   "call");
}

/* ---- Results ---- */

static bool read_floats(runner *r, cl_mem buffer, size_t count, float *values)
{
    const size_t size = element_size(r->dtype);
    /* numbers of two bytes lie in the second half, until each is read */
    unsigned char *at =
        (unsigned char *)values + count * (sizeof(float) - size);
    if (!is_done(clEnqueueReadBuffer(r->device->queue, buffer, CL_TRUE, 0,
                                     count * size, at, 0, NULL, NULL),
                 "results"))
        return false;
    for (size_t i = 0; size == 2 && i < count; i++) {
        uint16_t stored;
        memcpy(&stored, at + 2 * i, sizeof stored);
        values[i] = wa_half_value(r->dtype == WINATTN_FP16, stored);
    }
    return true;
}

bool runner_read_logits(runner *r, float *logits)
{
    return read_floats(r, r->logits, (size_t)r->batch * r->config.classes,
                       logits);
}

bool runner_read_map(runner *r, cl_uint stage, float *map)
{
    const cl_uint *shape = r->map_shape[stage];
    return read_floats(r, r->maps[stage],
                       (size_t)shape[0] * shape[1] * shape[2] * shape[3], map);
}
