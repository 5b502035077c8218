/* SPDX-License-Identifier: Apache-2.0
 * Makes the model, and moves pictures and results. */
#include "swin/runner.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool is_good(winattn_status status, const char *what)
{
    if (status == WINATTN_SUCCESS)
        return true;
    const char *reason = winattn_last_reason();
    fprintf(stderr, "winattn-swin: %s: %s\n", what,
            reason[0] ? reason : winattn_status_name(status));
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
    fprintf(stderr, "winattn-swin: %s: results are no finite numbers: ", what);
    if (dtype == WINATTN_FP16)
        fprintf(stderr, "the model left the range of fp16, which ends at "
                        "65504; --dtype bf16 and --dtype fp32 go further\n");
    else
        fprintf(stderr,
                "the model left the range of %s, or weights are none "
                "themselves\n",
                dtype_names[dtype]);
    return false;
}

static bool is_done(cl_int error, const char *what)
{
    if (error != CL_SUCCESS)
        fprintf(stderr, "winattn-swin: %s: %s\n", what,
                winattn_status_name(error));
    return error == CL_SUCCESS;
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

static float float_of(winattn_dtype dtype, uint16_t stored)
{
    uint32_t bits = (uint32_t)stored << 16;
    float value;
    if (dtype == WINATTN_FP16) {
        /* shifted to fp32's place; what that does to the exponent is put
         * right by a product, which serves small numbers too */
        bits = (uint32_t)(stored & 0x7fff) << 13;
        if (bits >= 0x0f800000) /* infinite, or NaN */
            bits |= 0x7f800000;
        memcpy(&value, &bits, sizeof value);
        if (bits < 0x0f800000)
            value *= 0x1p112F;
        return stored & 0x8000 ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

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
        values[i] = float_of(r->dtype, stored);
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
