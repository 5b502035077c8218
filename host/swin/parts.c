/* SPDX-License-Identifier: Apache-2.0
 * All linear layers of a model, and all its attention, through the libraries'
 * levels below the model. */
#include "swin/parts.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "swin/runner.h"

/* The patches' layer; four of a block, and a merging, of each stage; head. */
#define MOST_LINEAR (2 + 5 * WINATTN_SWIN_STAGES)
#define MOST_ATTENTION (2 * WINATTN_SWIN_STAGES)

typedef struct linear_part {
    winattn_linear_plan *plan;
    cl_ulong rows, in, out;
    cl_uint times;
    bool adds;
} linear_part;

typedef struct attention_part {
    winattn_plan *plan;
    cl_ulong qkv, o, table; /* elements */
    cl_uint times, heads, channels;
    bool is_cosine;
    size_t workspace;
} attention_part;

struct parts {
    const options *o;
    const swin_device *device;
    linear_part linear[MOST_LINEAR];
    attention_part attention[MOST_ATTENTION];
    size_t linear_count, attention_count;
    cl_mem x, y, weights, small, workspace;
};

static size_t element_size(const parts *p)
{
    return p->o->dtype == WINATTN_FP32 ? 4 : 2;
}

/* ---- Plans ---- */

static bool add_linear(parts *p, cl_ulong rows, cl_uint in, cl_uint out,
                       cl_uint times, winattn_activation activation, bool adds)
{
    linear_part *part = &p->linear[p->linear_count];
    winattn_linear_desc desc = {.struct_size = sizeof desc};
    desc.dtype = p->o->dtype;
    desc.tier = p->o->tier;
    desc.allow_tf32 = p->o->allow_tf32;
    desc.in_features = in;
    desc.out_features = out;
    desc.has_bias = CL_TRUE;
    desc.activation = activation;
    desc.has_residual = adds;
    *part = (linear_part){.rows = rows, .in = in, .out = out, .times = times};
    part->adds = adds;
    p->linear_count++;
    return is_good(winattn_linear_plan_create(
                       p->device->context, p->device->id, &desc, &part->plan),
                   "linear layer");
}

/* The map of a stage. */
typedef struct map {
    cl_ulong batch;
    cl_uint height, width, channels;
} map;

static void set_grid(const winattn_swin_config *config, cl_uint stage,
                     const map *m, bool shifted, winattn_desc *desc)
{
    const cl_uint size[2] = {m->height, m->width};
    desc->grid.axes = desc->table.axes = 2;
    desc->grid.batch = m->batch;
    for (int axis = 0; axis < 2; axis++) {
        const cl_uint window = config->window[stage][axis];
        desc->grid.size[axis] = size[axis];
        desc->grid.window[axis] = desc->table.window[axis] = window;
        desc->grid.shift[axis] =
            shifted && size[axis] > window ? window / 2 : 0;
        if (desc->grid.shift[axis])
            desc->mask = WINATTN_MASK_SHIFT;
    }
}

static bool add_attention(parts *p, const winattn_swin_config *config,
                          cl_uint stage, const map *m, bool shifted,
                          cl_uint times)
{
    attention_part *part = &p->attention[p->attention_count];
    winattn_desc desc = {.struct_size = sizeof desc};
    winattn_strides s = {.column = 1};
    const cl_ulong tokens = m->batch * m->height * m->width;
    if (times == 0)
        return true;
    *part = (attention_part){.times = times, .heads = config->heads[stage]};
    part->channels = m->channels;
    part->is_cosine = config->generation == 2;
    part->qkv = 3 * tokens * m->channels;
    part->o = tokens * m->channels;
    part->table = (2 * (cl_ulong)config->window[stage][0] - 1) *
                  (2 * (cl_ulong)config->window[stage][1] - 1) * part->heads;
    desc.variant = part->is_cosine ? WINATTN_COSINE : WINATTN_DOT;
    desc.dtype = p->o->dtype;
    desc.tier = p->o->tier;
    desc.allow_tf32 = p->o->allow_tf32;
    desc.heads = part->heads;
    desc.head_dim = m->channels / part->heads;
    desc.bias = WINATTN_BIAS_TABLE;
    desc.bias_dtype = part->is_cosine ? WINATTN_TERM_FP32 : WINATTN_TERM_SAME;
    set_grid(config, stage, m, shifted, &desc);
    s.head = desc.head_dim;
    s.axis[1] = 3 * (cl_ulong)m->channels;
    s.axis[0] = m->width * s.axis[1];
    s.window = m->height * s.axis[0];
    desc.q = desc.k = desc.v = s;
    p->attention_count++;
    return is_good(winattn_plan_create(p->device->context, p->device->id,
                                       &desc, &part->plan),
                   "attention") &&
           is_good(winattn_plan_workspace_size(part->plan, &part->workspace),
                   "attention");
}

static bool add_stage(parts *p, const winattn_swin_config *config,
                      cl_uint stage, const map *m)
{
    const cl_ulong rows = m->batch * m->height * m->width;
    const cl_uint c = m->channels, hidden = config->hidden[stage];
    const cl_uint depth = config->depths[stage];
    const bool adds = config->generation == 1;
    const cl_ulong merged =
        m->batch * ((m->height + 1) / 2) * ((m->width + 1) / 2);
    const winattn_activation none = WINATTN_ACTIVATION_NONE;
    return add_linear(p, rows, c, 3 * c, depth, none, false) &&
           add_linear(p, rows, c, c, depth, none, adds) &&
           add_linear(p, rows, c, hidden, depth, WINATTN_ACTIVATION_GELU,
                      false) &&
           add_linear(p, rows, hidden, c, depth, none, adds) &&
           (stage + 1 == config->stages ||
            add_linear(p, merged, 4 * c, 2 * c, 1, none, false)) &&
           add_attention(p, config, stage, m, false, (depth + 1) / 2) &&
           add_attention(p, config, stage, m, true, depth / 2);
}

static bool add_all(parts *p, const winattn_swin_config *config, cl_uint batch)
{
    map m = {batch, config->crop[0] / config->patch[0],
             config->crop[1] / config->patch[1], config->channels};
    if (!add_linear(p, m.batch * m.height * m.width,
                    config->in_channels * config->patch[0] * config->patch[1],
                    m.channels, 1, WINATTN_ACTIVATION_NONE, false))
        return false;
    for (cl_uint stage = 0; stage < config->stages; stage++) {
        if (!add_stage(p, config, stage, &m))
            return false;
        m.height = (m.height + 1) / 2;
        m.width = (m.width + 1) / 2;
        m.channels *= 2;
    }
    return config->classes == 0 ||
           add_linear(p, batch, m.channels / 2, config->classes, 1,
                      WINATTN_ACTIVATION_NONE, false);
}

/* ---- Buffers ---- */

static void grow(cl_ulong *size, cl_ulong least)
{
    *size = least > *size ? least : *size;
}

static bool make_buffer(const parts *p, cl_ulong bytes, cl_mem *made)
{
    /* small numbers, in fp16 ones */
    static const cl_uint pattern = 0x3c003c00;
    static const char what[] = "parts by themselves";
    bytes = (bytes + 16) / 4 * 4;
    return device_make_buffer(p->device, bytes, what, made) &&
           device_has_buffer(p->device, bytes, what,
                             clEnqueueFillBuffer(p->device->queue, *made,
                                                 &pattern, sizeof pattern, 0,
                                                 (size_t)bytes, 0, NULL,
                                                 NULL));
}

static bool make_buffers(parts *p)
{
    cl_ulong x = 0, y = 0, weights = 0, small = 0, workspace = 0;
    for (size_t i = 0; i < p->linear_count; i++) {
        const linear_part *part = &p->linear[i];
        grow(&x, part->rows * part->in);
        grow(&y, part->rows * part->out);
        grow(&weights, part->in * part->out);
        grow(&small, part->out);
    }
    for (size_t i = 0; i < p->attention_count; i++) {
        const attention_part *part = &p->attention[i];
        grow(&x, part->qkv);
        grow(&y, part->o);
        grow(&small, 2 * part->table); /* fp32 it may be */
        grow(&small, 2 * (cl_ulong)part->channels);
        grow(&workspace, part->workspace);
    }
    const size_t size = element_size(p);
    return make_buffer(p, x * size, &p->x) &&
           make_buffer(p, y * size, &p->y) &&
           make_buffer(p, weights * size, &p->weights) &&
           make_buffer(p, small * size, &p->small) &&
           make_buffer(p, workspace, &p->workspace);
}

parts *parts_open(const options *o, const swin_device *device,
                  const winattn_swin_config *config, cl_uint batch)
{
    parts *p = calloc(1, sizeof *p);
    if (!p) {
        fprintf(stderr, "winattn-swin: no memory to measure parts\n");
        return NULL;
    }
    p->o = o;
    p->device = device;
    if (add_all(p, config, batch) && make_buffers(p))
        return p;
    parts_close(p);
    return NULL;
}

void parts_close(parts *p)
{
    if (!p)
        return;
    const cl_mem buffers[] = {p->x, p->y, p->weights, p->small, p->workspace};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i])
            clReleaseMemObject(buffers[i]);
    for (size_t i = 0; i < p->linear_count; i++)
        winattn_linear_plan_destroy(p->linear[i].plan);
    for (size_t i = 0; i < p->attention_count; i++)
        winattn_plan_destroy(p->attention[i].plan);
    free(p);
}

/* ---- Calls ---- */

bool parts_call_linear(void *data)
{
    const parts *p = data;
    for (size_t i = 0; i < p->linear_count; i++) {
        const linear_part *part = &p->linear[i];
        winattn_linear call = {.struct_size = sizeof call};
        call.rows = part->rows;
        call.x.buffer = p->x;
        call.weight.buffer = p->weights;
        call.bias.buffer = p->small;
        call.y.buffer = p->y;
        if (part->adds)
            call.residual.buffer = p->y;
        for (cl_uint j = 0; j < part->times; j++)
            if (!is_good(winattn_enqueue_linear(part->plan, p->device->queue,
                                                &call, 0, NULL, NULL),
                         "linear layer"))
                return false;
    }
    return true;
}

bool parts_call_attention(void *data)
{
    const parts *p = data;
    for (size_t i = 0; i < p->attention_count; i++) {
        const attention_part *part = &p->attention[i];
        const size_t third = part->channels * element_size(p);
        winattn_forward call = {.struct_size = sizeof call};
        call.q.buffer = call.k.buffer = call.v.buffer = p->x;
        call.k.offset = third;
        call.v.offset = 2 * third;
        call.bias.buffer = p->small;
        if (part->is_cosine)
            call.logit_scale.buffer = p->small;
        call.o.buffer = p->y;
        if (part->workspace)
            call.workspace.buffer = p->workspace;
        for (cl_uint j = 0; j < part->times; j++)
            if (!is_good(winattn_enqueue_forward(part->plan, p->device->queue,
                                                 &call, 0, NULL, NULL),
                         "attention"))
                return false;
    }
    return true;
}
