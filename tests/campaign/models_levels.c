/* SPDX-License-Identifier: Apache-2.0
 * Draws descriptors of the library of models, and spoils them. What tensors
 * must have is in models_slots.c. */
#include "models_levels.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- Fields ---- */

typedef struct field {
    const char *name;
    size_t place, bytes;
    bool is_float;
} field;

#define OF(type, name, is_float)                                              \
    {                                                                         \
#name, offsetof(type, name), sizeof(((type *)NULL)->name), is_float   \
    }
#define LINEAR(name) OF(winattn_linear_desc, name, false)
#define ATTENTION(name) OF(winattn_window_attention_desc, name, false)
#define BLOCK(name) OF(winattn_block_desc, name, false)
#define MODEL(name) OF(winattn_model_desc, name, false)
#define CONFIG(name) OF(winattn_swin_config, name, false)

static const field linear_fields[] = {
    LINEAR(dtype),
    LINEAR(tier),
    LINEAR(allow_tf32),
    LINEAR(in_features),
    LINEAR(out_features),
    LINEAR(layer_norm),
    OF(winattn_linear_desc, eps, true),
    LINEAR(has_bias),
    LINEAR(activation),
    LINEAR(has_residual),
};
static const field attention_fields[] = {
    ATTENTION(dtype),        ATTENTION(tier),       ATTENTION(allow_tf32),
    ATTENTION(variant),      ATTENTION(windows),    ATTENTION(window[0]),
    ATTENTION(window[1]),    ATTENTION(channels),   ATTENTION(heads),
    ATTENTION(mask_windows), ATTENTION(mask_dtype), ATTENTION(table_dtype),
};
static const field block_fields[] = {
    BLOCK(dtype),       BLOCK(tier),
    BLOCK(allow_tf32),  BLOCK(variant),
    BLOCK(order),       BLOCK(batch),
    BLOCK(height),      BLOCK(width),
    BLOCK(window[0]),   BLOCK(window[1]),
    BLOCK(shift[0]),    BLOCK(shift[1]),
    BLOCK(channels),    BLOCK(heads),
    BLOCK(hidden),      OF(winattn_block_desc, eps, true),
    BLOCK(table_dtype), BLOCK(grid_options),
};
static const field model_fields[] = {
    MODEL(dtype),  MODEL(tier),  MODEL(allow_tf32), MODEL(batch),
    MODEL(height), MODEL(width), MODEL(pictures),
};
static const field config_fields[] = {
    CONFIG(generation),
    CONFIG(in_channels),
    CONFIG(patch[0]),
    CONFIG(patch[1]),
    CONFIG(channels),
    CONFIG(stages),
    CONFIG(depths[0]),
    CONFIG(depths[1]),
    CONFIG(heads[0]),
    CONFIG(heads[1]),
    CONFIG(window[0][0]),
    CONFIG(window[1][1]),
    CONFIG(position_window[0][0]),
    CONFIG(hidden[0]),
    CONFIG(hidden[1]),
    CONFIG(classes),
    OF(winattn_swin_config, norm_eps, true),
    CONFIG(filter),
    OF(winattn_swin_config, mean[0], true),
    OF(winattn_swin_config, deviation[2], true),
};

typedef struct field_list {
    const field *all;
    size_t count;
} field_list;
#define LIST(fields)                                                          \
    {                                                                         \
        fields, sizeof fields / sizeof *fields                                \
    }
static const field_list of_levels[LEVELS] = {
    LIST(linear_fields), LIST(attention_fields), LIST(block_fields),
    LIST(model_fields)};
static const field_list of_config = LIST(config_fields);

static size_t print_fields(const field_list *list, const void *from,
                           char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < list->count && used < size; i++) {
        const field *f = &list->all[i];
        const unsigned char *at = (const unsigned char *)from + f->place;
        cl_ulong value = 0;
        cl_float number;
        memcpy(&value, at, f->bytes);
        memcpy(&number, at, sizeof number);
        if (value == 0)
            continue;
        used += f->is_float
                    ? (size_t)snprintf(text + used, size - used, " %s=%g",
                                       f->name, (double)number)
                    : (size_t)snprintf(text + used, size - used, " %s=%llu",
                                       f->name, (unsigned long long)value);
    }
    return used;
}

void level_print(const level_desc *desc, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s:", level_name(desc->level));
    used += print_fields(&of_levels[desc->level], desc->u.bytes, text + used,
                         size - used);
    if (desc->level == LEVEL_MODEL && used < size)
        print_fields(&of_config, &desc->config, text + used, size - used);
}

static void spoil(random_state *r, const field_list *list, void *desc)
{
    const field *f = &list->all[below(r, (cl_uint)list->count)];
    unsigned char *at = (unsigned char *)desc + f->place;
    cl_ulong value = 0;
    memcpy(&value, at, f->bytes);
    value = chance(r, 40) ? value + (cl_ulong)(chance(r, 50) ? 1 : -1)
                          : special_number(r);
    memcpy(at, &value, f->bytes);
}

/* ---- Right ones ---- */

static winattn_tier draw_tier(random_state *r)
{
    return (winattn_tier)ONE_OF(r, 0, 0, 0, 0, 1, 2, 3);
}

static void draw_linear(random_state *r, winattn_linear_desc *d)
{
    d->dtype = (winattn_dtype)below(r, 3);
    d->tier = draw_tier(r);
    d->allow_tf32 = d->dtype == WINATTN_FP32 && chance(r, 30);
    d->in_features = (cl_uint)ONE_OF(r, 1, 3, 8, 32, 48, 96, 100, 192, 384,
                                     768, 1024, 4096, 65536);
    d->out_features = (cl_uint)ONE_OF(r, 1, 3, 10, 32, 96, 100, 288, 1000,
                                      1536, 4096, 1048576);
    d->layer_norm = chance(r, 40);
    if (d->layer_norm && chance(r, 30))
        d->eps = 1e-3f;
    d->has_bias = chance(r, 70);
    d->activation = (winattn_activation)below(r, 2);
    d->has_residual = chance(r, 40);
}

/* Heads and channels that go together. */
static cl_uint draw_heads(random_state *r, cl_uint *channels)
{
    const cl_uint heads = (cl_uint)ONE_OF(r, 1, 2, 3, 4, 6, 24);
    *channels = heads * (cl_uint)ONE_OF(r, 1, 5, 8, 16, 24, 32, 32, 64, 256);
    return heads;
}

static cl_uint draw_side(random_state *r)
{
    return (cl_uint)ONE_OF(r, 1, 2, 3, 4, 7, 7, 8, 8, 12, 16);
}

static void draw_attention(random_state *r, winattn_window_attention_desc *d)
{
    d->dtype = (winattn_dtype)below(r, 3);
    d->tier = draw_tier(r);
    d->allow_tf32 = d->dtype == WINATTN_FP32 && chance(r, 30);
    d->variant = (winattn_variant)below(r, 2);
    d->windows = ONE_OF(r, 1, 2, 3, 64, 1000);
    d->window[0] = draw_side(r);
    d->window[1] = draw_side(r);
    d->heads = draw_heads(r, &d->channels);
    d->mask_windows = ONE_OF(r, 0, 0, 1, 4, 64);
    d->mask_dtype = (winattn_term_dtype)below(r, 2);
    d->table_dtype = (winattn_term_dtype)below(r, 2);
}

static void draw_block(random_state *r, winattn_block_desc *d)
{
    d->dtype = (winattn_dtype)below(r, 3);
    d->tier = draw_tier(r);
    d->allow_tf32 = d->dtype == WINATTN_FP32 && chance(r, 30);
    d->variant = (winattn_variant)below(r, 2);
    d->order = (winattn_norm_order)below(r, 2);
    d->batch = (cl_uint)ONE_OF(r, 1, 1, 2, 5, 64);
    d->height = (cl_uint)ONE_OF(r, 1, 4, 7, 13, 14, 56, 200);
    d->width = (cl_uint)ONE_OF(r, 1, 4, 8, 14, 28, 57, 300);
    for (int a = 0; a < 2; a++) {
        d->window[a] = draw_side(r);
        d->shift[a] = chance(r, 50) ? d->window[a] / 2 : 0;
    }
    d->heads = draw_heads(r, &d->channels);
    d->hidden =
        chance(r, 60) ? 4 * d->channels : (cl_uint)ONE_OF(r, 1, 7, 64, 3000);
    d->eps = chance(r, 30) ? 1e-6f : 0;
    d->table_dtype = (winattn_term_dtype)below(r, 2);
    d->grid_options = chance(r, 30) ? (cl_bitfield)below(r, 4) : 0;
}

static void draw_config(random_state *r, winattn_swin_config *c)
{
    c->struct_size = sizeof *c;
    c->generation = 1 + below(r, 2);
    c->in_channels = (cl_uint)ONE_OF(r, 1, 3, 3, 3, 4);
    c->patch[0] = (cl_uint)ONE_OF(r, 1, 2, 4, 4, 4, 8);
    c->patch[1] = (cl_uint)ONE_OF(r, 1, 3, 4, 4, 4, 8);
    c->channels = (cl_uint)ONE_OF(r, 4, 8, 12, 24, 32, 96);
    c->stages = 1 + below(r, WINATTN_SWIN_STAGES);
    c->classes = (cl_uint)ONE_OF(r, 0, 1, 10, 1000);
    for (cl_uint i = 0; i < c->stages; i++) {
        c->depths[i] = 1 + below(r, 3);
        c->heads[i] = (cl_uint)ONE_OF(r, 1, 2, 4) << (i > 0 ? i - 1 : 0);
        for (int a = 0; a < 2; a++) {
            c->window[i][a] = (cl_uint)ONE_OF(r, 1, 2, 4, 7, 8);
            if (c->generation == 2 && chance(r, 30))
                c->position_window[i][a] = c->window[i][a] + below(r, 5);
        }
        c->hidden[i] = (cl_uint)ONE_OF(r, 1, 16, 96, 384);
    }
}

static void draw_model(random_state *r, winattn_model_desc *d,
                       winattn_swin_config *config)
{
    draw_config(r, config);
    d->dtype = (winattn_dtype)below(r, 3);
    d->tier = draw_tier(r);
    d->allow_tf32 = d->dtype == WINATTN_FP32 && chance(r, 30);
    d->batch = (cl_uint)ONE_OF(r, 1, 1, 2, 3, 64);
    d->height =
        config->patch[0] * (1 + below(r, 30)) + below(r, config->patch[0]);
    d->width =
        config->patch[1] * (1 + below(r, 30)) + below(r, config->patch[1]);
    d->pictures = (winattn_pictures)below(r, 3);
}

level_desc level_draw(random_state *r)
{
    level_desc made;
    memset(&made, 0, sizeof made);
    made.level = (level_id)ONE_OF(r, 0, 0, 0, 1, 1, 2, 2, 3);
    switch (made.level) {
    case LEVEL_LINEAR:
        draw_linear(r, &made.u.linear);
        break;
    case LEVEL_ATTENTION:
        draw_attention(r, &made.u.attention);
        break;
    case LEVEL_BLOCK:
        draw_block(r, &made.u.block);
        break;
    default:
        draw_model(r, &made.u.model, &made.config);
    }
    for (cl_ulong n = ONE_OF(r, 0, 0, 0, 1, 1, 2); n > 0; n--) {
        const bool of_weights = made.level == LEVEL_MODEL && chance(r, 40);
        spoil(r, of_weights ? &of_config : &of_levels[made.level],
              of_weights ? (void *)&made.config : made.u.bytes);
        made.is_spoilt = true;
    }
    const size_t size = level_desc_size(made.level);
    memcpy(made.u.bytes, &size, sizeof size);
    return made;
}

/* ---- The levels ---- */

const char *level_name(level_id level)
{
    static const char *const names[LEVELS] = {"linear", "window attention",
                                              "block", "model"};
    return names[level];
}

size_t level_desc_size(level_id level)
{
    static const size_t sizes[LEVELS] = {
        sizeof(winattn_linear_desc), sizeof(winattn_window_attention_desc),
        sizeof(winattn_block_desc), sizeof(winattn_model_desc)};
    return sizes[level];
}

size_t level_desc_least(level_id level)
{
    return level == LEVEL_BLOCK ? offsetof(winattn_block_desc, grid_options)
                                : level_desc_size(level);
}

size_t level_call_size(level_id level)
{
    static const size_t sizes[LEVELS] = {
        sizeof(winattn_linear), sizeof(winattn_window_attention),
        sizeof(winattn_block), sizeof(winattn_model_call)};
    return sizes[level];
}

winattn_status level_create(const level_desc *desc, const void *given,
                            cl_context context, cl_device_id device,
                            const winattn_swin_weights *weights, void **plan)
{
    winattn_linear_plan *linear = NULL;
    winattn_window_attention_plan *attention = NULL;
    winattn_block_plan *block = NULL;
    winattn_model *model = NULL;
    winattn_status status;
    switch (desc->level) {
    case LEVEL_LINEAR:
        status = winattn_linear_plan_create(context, device, given, &linear);
        *plan = linear;
        return status;
    case LEVEL_ATTENTION:
        status = winattn_window_attention_plan_create(context, device, given,
                                                      &attention);
        *plan = attention;
        return status;
    case LEVEL_BLOCK:
        status = winattn_block_plan_create(context, device, given, &block);
        *plan = block;
        return status;
    default:
        status = winattn_model_create(context, device, given, weights, &model);
        *plan = model;
        return status;
    }
}

void level_destroy(level_id level, void *plan)
{
    switch (level) {
    case LEVEL_LINEAR:
        winattn_linear_plan_destroy(plan);
        break;
    case LEVEL_ATTENTION:
        winattn_window_attention_plan_destroy(plan);
        break;
    case LEVEL_BLOCK:
        winattn_block_plan_destroy(plan);
        break;
    default:
        winattn_model_destroy(plan);
    }
}

winattn_status level_describe(level_id level, const void *plan, size_t size,
                              char *text, size_t *needed)
{
    switch (level) {
    case LEVEL_LINEAR:
        return winattn_linear_plan_describe(plan, size, text, needed);
    case LEVEL_ATTENTION:
        return winattn_window_attention_plan_describe(plan, size, text,
                                                      needed);
    case LEVEL_BLOCK:
        return winattn_block_plan_describe(plan, size, text, needed);
    default:
        return winattn_model_describe(plan, size, text, needed);
    }
}

winattn_status level_workspace(level_id level, const void *plan,
                               const level_call *call, size_t *size)
{
    switch (level) {
    case LEVEL_LINEAR:
        return winattn_linear_plan_workspace_size(plan, call->linear.rows,
                                                  size);
    case LEVEL_ATTENTION:
        return winattn_window_attention_plan_workspace_size(plan, size);
    case LEVEL_BLOCK:
        return winattn_block_plan_workspace_size(plan, size);
    default:
        return winattn_model_workspace_size(plan, size);
    }
}

winattn_status level_enqueue(level_id level, const void *plan,
                             cl_command_queue queue, const void *call,
                             cl_uint wait_count, const cl_event *wait_list,
                             cl_event *event)
{
    switch (level) {
    case LEVEL_LINEAR:
        return winattn_enqueue_linear(plan, queue, call, wait_count, wait_list,
                                      event);
    case LEVEL_ATTENTION:
        return winattn_enqueue_window_attention(plan, queue, call, wait_count,
                                                wait_list, event);
    case LEVEL_BLOCK:
        return winattn_enqueue_block(plan, queue, call, wait_count, wait_list,
                                     event);
    default:
        return winattn_enqueue_model(plan, queue, call, wait_count, wait_list,
                                     event);
    }
}
