/* SPDX-License-Identifier: Apache-2.0
 * What each tensor of a call must have, by what winattn_models.h says of it,
 * for descriptors that a plan could be made of. */
#include <stddef.h>
#include <string.h>

#include "models_levels.h"

static cl_uint bytes_of(winattn_dtype dtype)
{
    return dtype == WINATTN_FP32 ? 4 : 2;
}

/* Adds one that is read, and needed. */
static slot *add(slot_list *list, const char *name, size_t place, wide count,
                 cl_uint element_bytes)
{
    slot *s = &list->all[list->count++];
    const slot made = {.name = name,
                       .place = place,
                       .bytes = count * element_bytes,
                       .element_bytes = element_bytes,
                       .aligned = element_bytes,
                       .is_used = true,
                       .is_wanted = true,
                       .is_read = true};
    *s = made;
    return s;
}

/* The same, where the plan may do without. */
static void add_if(slot_list *list, const char *name, size_t place, wide count,
                   cl_uint element_bytes, bool is_used)
{
    slot *s = add(list, name, place, count, element_bytes);
    s->is_used = s->is_wanted = is_used;
}

/* One that is written, and perhaps read. */
static slot *add_output(slot_list *list, const char *name, size_t place,
                        wide count, cl_uint element_bytes, bool is_read)
{
    slot *s = add(list, name, place, count, element_bytes);
    s->is_written = true;
    s->is_read = is_read;
    return s;
}

static cl_uint term_bytes(winattn_term_dtype term, cl_uint element_bytes)
{
    return term == WINATTN_TERM_FP32 ? 4 : element_bytes;
}

/* ---- Linear layers ---- */

static wide stride_of(cl_ulong stride, cl_uint columns)
{
    return stride ? stride : columns;
}

static wide matrix(wide rows, wide stride, wide columns)
{
    return rows ? (rows - 1) * stride + columns : 0;
}

#define PLACE(member) offsetof(winattn_linear, member)
void list_linear(random_state *r, const level_desc *desc,
                 const level_call *given, slot_list *l)
{
    const winattn_linear_desc *d = &desc->u.linear;
    const winattn_linear *call = &given->linear;
    (void)r;
    const cl_uint size = bytes_of(d->dtype);
    const cl_uint in = d->in_features, out = d->out_features;
    const wide rows = call->rows;
    add(l, "x", PLACE(x), matrix(rows, stride_of(call->x_stride, in), in),
        size);
    add(l, "weight", PLACE(weight),
        matrix(out, stride_of(call->weight_stride, in), in), size);
    add_if(l, "bias", PLACE(bias), out, size, d->has_bias);
    add_if(l, "norm_weight", PLACE(norm_weight), in, size, d->layer_norm);
    add_if(l, "norm_bias", PLACE(norm_bias), in, size, d->layer_norm);
    add_if(l, "residual", PLACE(residual),
           matrix(rows, stride_of(call->residual_stride, out), out), size,
           d->has_residual);
    add_output(l, "y", PLACE(y),
               matrix(rows, stride_of(call->y_stride, out), out), size, false);
}
#undef PLACE

void draw_linear_call(random_state *r, const level_desc *desc,
                      level_call *given)
{
    const winattn_linear_desc *d = &desc->u.linear;
    winattn_linear *call = &given->linear;
    call->rows = ONE_OF(r, 0, 1, 2, 7, 49, 64, 1000, 100000, 0xffffffff);
    if (chance(r, 40))
        call->x_stride = d->in_features + below(r, 9);
    if (chance(r, 20))
        call->weight_stride = d->in_features + 8 * below(r, 3);
    if (chance(r, 30))
        call->y_stride = d->out_features + below(r, 100);
    if (d->has_residual && chance(r, 30))
        call->residual_stride = d->out_features + below(r, 9);
}

void draw_small_linear_call(random_state *r, level_call *call)
{
    call->linear.rows = 1 + below(r, 300);
}

void spoil_linear_call(random_state *r, level_call *call)
{
    cl_ulong *const numbers[] = {&call->linear.rows, &call->linear.x_stride,
                                 &call->linear.weight_stride,
                                 &call->linear.residual_stride,
                                 &call->linear.y_stride};
    *numbers[below(r, 5)] = special_number(r);
}

/* ---- Window attention ---- */

static wide table_entries(const cl_uint window[2], cl_uint heads)
{
    return (2 * (wide)window[0] - 1) * (2 * (wide)window[1] - 1) * heads;
}

#define PLACE(member) offsetof(winattn_window_attention, member)
void list_attention(random_state *r, const level_desc *desc,
                    const level_call *given, slot_list *l)
{
    const winattn_window_attention_desc *d = &desc->u.attention;
    (void)r;
    (void)given;
    const cl_uint size = bytes_of(d->dtype);
    const wide tokens = (wide)d->window[0] * d->window[1], c = d->channels;
    add(l, "x", PLACE(x), d->windows * tokens * c, size);
    add(l, "qkv_weight", PLACE(qkv_weight), 3 * c * c, size);
    add(l, "qkv_bias", PLACE(qkv_bias), 3 * c, size);
    add(l, "proj_weight", PLACE(proj_weight), c * c, size);
    add(l, "proj_bias", PLACE(proj_bias), c, size);
    add(l, "table", PLACE(table), table_entries(d->window, d->heads),
        term_bytes(d->table_dtype, size));
    add_if(l, "logit_scale", PLACE(logit_scale), d->heads, 4,
           d->variant == WINATTN_COSINE);
    add_if(l, "mask", PLACE(mask), d->mask_windows * tokens * tokens,
           term_bytes(d->mask_dtype, size), d->mask_windows != 0);
    add_output(l, "y", PLACE(y), d->windows * tokens * c, size, false);
}
#undef PLACE

/* ---- Blocks ---- */

#define PLACE(member) offsetof(winattn_block, member)
void list_block(random_state *r, const level_desc *desc,
                const level_call *given, slot_list *l)
{
    const winattn_block_desc *d = &desc->u.block;
    (void)r;
    (void)given;
    const cl_uint size = bytes_of(d->dtype);
    const wide c = d->channels, h = d->hidden;
    const wide map = (wide)d->batch * d->height * d->width * c;
    add(l, "x", PLACE(x), map, size);
    add(l, "norm1_weight", PLACE(weights.norm1_weight), c, size);
    add(l, "norm1_bias", PLACE(weights.norm1_bias), c, size);
    add(l, "qkv_weight", PLACE(weights.qkv_weight), 3 * c * c, size);
    add(l, "qkv_bias", PLACE(weights.qkv_bias), 3 * c, size);
    add(l, "proj_weight", PLACE(weights.proj_weight), c * c, size);
    add(l, "proj_bias", PLACE(weights.proj_bias), c, size);
    add(l, "norm2_weight", PLACE(weights.norm2_weight), c, size);
    add(l, "norm2_bias", PLACE(weights.norm2_bias), c, size);
    add(l, "fc1_weight", PLACE(weights.fc1_weight), h * c, size);
    add(l, "fc1_bias", PLACE(weights.fc1_bias), h, size);
    add(l, "fc2_weight", PLACE(weights.fc2_weight), c * h, size);
    add(l, "fc2_bias", PLACE(weights.fc2_bias), c, size);
    add(l, "table", PLACE(weights.table), table_entries(d->window, d->heads),
        term_bytes(d->table_dtype, size));
    add_if(l, "logit_scale", PLACE(weights.logit_scale), d->heads, 4,
           d->variant == WINATTN_COSINE);
    add_output(l, "y", PLACE(y), map, size, true);
}
#undef PLACE

/* ---- Models ---- */

#define PLACE(member) offsetof(winattn_model_call, member)
void list_model(random_state *r, const level_desc *desc,
                const level_call *given, slot_list *l)
{
    static const char *const maps[] = {"maps[0]", "maps[1]", "maps[2]",
                                       "maps[3]"};
    const winattn_model_desc *d = &desc->u.model;
    (void)given;
    const winattn_swin_config *config = &desc->config;
    const cl_uint size = bytes_of(d->dtype);
    wide height = d->height / config->patch[0];
    wide width = d->width / config->patch[1], c = config->channels;
    add(l, "pictures", PLACE(pictures),
        (wide)d->batch * d->height * d->width * config->in_channels,
        d->pictures == WINATTN_PICTURES_BYTES ? 1 : 4);
    const size_t outputs = l->count;
    for (cl_uint i = 0; i < WINATTN_SWIN_STAGES; i++) {
        slot *map =
            add_output(l, maps[i], PLACE(maps) + i * sizeof(winattn_tensor),
                       d->batch * height * width * c, size, true);
        map->is_used = i < config->stages;
        if (i + 1 < config->stages) {
            height = (height + 1) / 2;
            width = (width + 1) / 2;
            c *= 2;
        }
    }
    add_output(l, "features", PLACE(features), d->batch * c, size, true);
    add_output(l, "logits", PLACE(logits), (wide)d->batch * config->classes,
               size, false)
        ->is_used = config->classes != 0;
    /* features are what all models have, should all else be left out */
    bool has_any = false;
    for (size_t i = l->count; i-- > outputs;) {
        slot *s = &l->all[i];
        s->is_optional = true;
        s->is_wanted = s->is_used && chance(r, 40);
        has_any = has_any || s->is_wanted;
    }
    l->all[l->count - 2].is_wanted |= !has_any;
}
#undef PLACE

void draw_model_call(random_state *r, const level_desc *desc,
                     level_call *given)
{
    winattn_model_call *call = &given->model;
    (void)desc;
    if (chance(r, 30))
        return; /* numbers as they are */
    for (int i = 0; i < 4; i++) {
        call->mean[i] = 0.1f * (cl_float)below(r, 10);
        call->deviation[i] = 0.1f * (cl_float)(1 + below(r, 9));
    }
}

void spoil_model_call(random_state *r, level_call *call)
{
    const cl_uint bits = (cl_uint)special_number(r);
    memcpy(chance(r, 50) ? &call->model.mean[below(r, 4)]
                         : &call->model.deviation[below(r, 4)],
           &bits, sizeof bits);
}
