/* SPDX-License-Identifier: Apache-2.0
 * The levels of winattn_models.h: fields, descriptors, plans and calls. What
 * tensors must have is in models_slots.c. */
#include "models_levels.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "models/linear_plan.h"

#define MOST_LINEAR_PLANS 400u /* in a plan */

/* ---- Fields ---- */

#define LINEAR(name) FIELD_OF(winattn_linear_desc, name, false)
#define ATTENTION(name) FIELD_OF(winattn_window_attention_desc, name, false)
#define BLOCK(name) FIELD_OF(winattn_block_desc, name, false)
#define MODEL(name) FIELD_OF(winattn_model_desc, name, false)
#define CONFIG(name) FIELD_OF(winattn_swin_config, name, false)

static const field linear_fields[] = {LINEAR(dtype),
                                      LINEAR(tier),
                                      LINEAR(allow_tf32),
                                      LINEAR(in_features),
                                      LINEAR(out_features),
                                      LINEAR(layer_norm),
                                      FIELD_OF(winattn_linear_desc, eps, true),
                                      LINEAR(has_bias),
                                      LINEAR(activation),
                                      LINEAR(has_residual)};
static const field attention_fields[] = {
    ATTENTION(dtype),        ATTENTION(tier),       ATTENTION(allow_tf32),
    ATTENTION(variant),      ATTENTION(windows),    ATTENTION(window[0]),
    ATTENTION(window[1]),    ATTENTION(channels),   ATTENTION(heads),
    ATTENTION(mask_windows), ATTENTION(mask_dtype), ATTENTION(table_dtype)};
static const field block_fields[] = {
    BLOCK(dtype),       BLOCK(tier),
    BLOCK(allow_tf32),  BLOCK(variant),
    BLOCK(order),       BLOCK(batch),
    BLOCK(height),      BLOCK(width),
    BLOCK(window[0]),   BLOCK(window[1]),
    BLOCK(shift[0]),    BLOCK(shift[1]),
    BLOCK(channels),    BLOCK(heads),
    BLOCK(hidden),      FIELD_OF(winattn_block_desc, eps, true),
    BLOCK(table_dtype), BLOCK(grid_options)};
static const field model_fields[] = {
    MODEL(dtype),  MODEL(tier),  MODEL(allow_tf32), MODEL(batch),
    MODEL(height), MODEL(width), MODEL(pictures)};
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
    FIELD_OF(winattn_swin_config, norm_eps, true),
    CONFIG(filter),
    FIELD_OF(winattn_swin_config, mean[0], true),
    FIELD_OF(winattn_swin_config, deviation[2], true),
};

#define LIST(name)                                                            \
    static const field_list name##_list = {                                   \
        name##_fields, sizeof name##_fields / sizeof *name##_fields,          \
        sizeof name##_fields / sizeof *name##_fields}
LIST(linear);
LIST(attention);
LIST(block);
LIST(model);
LIST(config);

/* ---- Right ones ---- */

static winattn_tier draw_tier(random_state *r)
{
    return (winattn_tier)ONE_OF(r, 0, 0, 0, 0, 1, 2, 3);
}

static void draw_linear(random_state *r, level_desc *made)
{
    winattn_linear_desc *d = &made->u.linear;
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

static void draw_attention(random_state *r, level_desc *made)
{
    winattn_window_attention_desc *d = &made->u.attention;
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

static void draw_block(random_state *r, level_desc *made)
{
    winattn_block_desc *d = &made->u.block;
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

static void draw_model(random_state *r, level_desc *made)
{
    winattn_model_desc *d = &made->u.model;
    const winattn_swin_config *config = &made->config;
    draw_config(r, &made->config);
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

/* ---- Small ones ---- */

/* Of sizes that may differ by what compiles something. */
static void draw_small_linear(random_state *r, level_desc *made)
{
    const winattn_linear_desc d = {.struct_size = sizeof d,
                                   .in_features = 96,
                                   .out_features = 100 + 8 * below(r, 4),
                                   .layer_norm = CL_TRUE,
                                   .has_bias = CL_TRUE,
                                   .activation = WINATTN_ACTIVATION_GELU,
                                   .has_residual = CL_TRUE};
    made->u.linear = d;
}

static void draw_small_attention(random_state *r, level_desc *made)
{
    const winattn_window_attention_desc d = {.struct_size = sizeof d,
                                             .windows = 12,
                                             .window = {4, 4},
                                             .channels = 32,
                                             .heads = 2,
                                             .mask_windows = 4};
    (void)r;
    made->u.attention = d;
}

static void draw_small_block(random_state *r, level_desc *made)
{
    const winattn_block_desc d = {.struct_size = sizeof d,
                                  .batch = 2,
                                  .height = 9,
                                  .width = 12,
                                  .window = {4, 4},
                                  .shift = {2, 2},
                                  .channels = 32,
                                  .heads = 2,
                                  .hidden = 64 + 8 * below(r, 4)};
    made->u.block = d;
}

static void draw_small_model(random_state *r, level_desc *made)
{
    /* maps of 9 x 12 and 5 x 6 */
    const winattn_model_desc d = {
        .struct_size = sizeof d, .batch = 2, .height = 36, .width = 50};
    const winattn_swin_config config = {.struct_size = sizeof config,
                                        .generation = 2,
                                        .in_channels = 3,
                                        .patch = {4, 4},
                                        .channels = 16,
                                        .stages = 2,
                                        .depths = {2, 1},
                                        .heads = {1, 2},
                                        .window = {{4, 4}, {4, 4}},
                                        .hidden = {32, 64},
                                        .classes = 5};
    (void)r;
    made->u.model = d;
    made->config = config;
}

/* ---- Weights ---- */

/* What may be 0 in the shape becomes what it is. */
static winattn_status draw_weights(random_state *r, level_desc *made)
{
    const winattn_status status = winattn_swin_weights_random(
        &made->config, special_number(r), &made->weights);
    if ((status == WINATTN_SUCCESS) != (made->weights != NULL))
        report("status and weights contradict each other", "");
    if (status == WINATTN_SUCCESS &&
        winattn_swin_weights_config(made->weights, &made->config) !=
            WINATTN_SUCCESS)
        report("weights without a shape:", winattn_last_reason());
    return status;
}

static void release_weights(level_desc *made)
{
    winattn_swin_weights_destroy(made->weights);
    made->weights = NULL;
}

/* ---- Plans ---- */

/* How often shapes of linear layers are searched, by this thread. */
static _Thread_local unsigned linear_plans;
winattn_status __real_wa_linear_plan_make(
    const wa_linear_problem *problem, const wa_device *on,
    char excluded[WA_TIERS][WA_REASON_SIZE], wa_linear_layout *layout);
winattn_status __wrap_wa_linear_plan_make(
    const wa_linear_problem *problem, const wa_device *on,
    char excluded[WA_TIERS][WA_REASON_SIZE], wa_linear_layout *layout);
winattn_status __wrap_wa_linear_plan_make(
    const wa_linear_problem *problem, const wa_device *on,
    char excluded[WA_TIERS][WA_REASON_SIZE], wa_linear_layout *layout)
{
    linear_plans++;
    return __real_wa_linear_plan_make(problem, on, excluded, layout);
}

#define NOTHING_MORE
#define WITH_WEIGHTS desc->weights,
#define LEVEL_FUNCTIONS(type, more)                                           \
    PLAN_FUNCTIONS(type)                                                      \
    static winattn_status create_##type(                                      \
        const level_desc *desc, const void *given, cl_context context,        \
        cl_device_id device, void **made)                                     \
    {                                                                         \
        type *plan = *made;                                                   \
        (void)desc;                                                           \
        linear_plans = 0;                                                     \
        const winattn_status status =                                         \
            type##_create(context, device, given, more & plan);               \
        if (linear_plans > MOST_LINEAR_PLANS)                                 \
            report("a plan takes many plans of linear layers", "");           \
        *made = plan;                                                         \
        return status;                                                        \
    }
LEVEL_FUNCTIONS(winattn_linear_plan, NOTHING_MORE)
LEVEL_FUNCTIONS(winattn_window_attention_plan, NOTHING_MORE)
LEVEL_FUNCTIONS(winattn_block_plan, NOTHING_MORE)
LEVEL_FUNCTIONS(winattn_model, WITH_WEIGHTS)

static void check_map_shapes(const level_desc *desc, const void *plan,
                             cl_context context, cl_device_id device)
{
    cl_uint shape[4];
    (void)context;
    (void)device;
    for (cl_uint i = 0; i <= WINATTN_SWIN_STAGES; i++) {
        const winattn_status status = winattn_model_map_shape(plan, i, shape);
        if ((status == WINATTN_SUCCESS) != (i < desc->config.stages))
            report("a map of a stage that is none, or none of one:",
                   winattn_last_reason());
    }
}

/* ---- Calls ---- */

ENQUEUE_FUNCTION(linear)
ENQUEUE_FUNCTION(window_attention)
ENQUEUE_FUNCTION(block)
ENQUEUE_FUNCTION(model)

#define WORKSPACE_FUNCTION(type, ...)                                         \
    static winattn_status workspace_of_##type(                                \
        const level_desc *desc, const void *plan, const level_call *call,     \
        size_t *size, bool *is_sure)                                          \
    {                                                                         \
        (void)desc;                                                           \
        (void)call;                                                           \
        *is_sure = true;                                                      \
        return type##_workspace_size(plan, __VA_ARGS__);                      \
    }
WORKSPACE_FUNCTION(winattn_linear_plan, call->linear.rows, size)
WORKSPACE_FUNCTION(winattn_window_attention_plan, size)
WORKSPACE_FUNCTION(winattn_block_plan, size)
WORKSPACE_FUNCTION(winattn_model, size)

static bool has_no_rows(const level_desc *desc, const level_call *call)
{
    (void)desc;
    return call->linear.rows == 0;
}

static const char *fault(const level_desc *desc, const level_call *call,
                         bool is_cut)
{
    (void)desc;
    (void)call;
    return models_launches_fault(is_cut);
}

#define KIND(type, plan, alignment)                                           \
    .size = sizeof(type), .least = sizeof(type),                              \
    .workspace = offsetof(type, workspace), .workspace_aligned = (alignment), \
    .most_launches = 300, .has_marker = true,                                 \
    .workspace_size = workspace_of_##plan, .fault = fault
static const call_kind linear_call = {
    KIND(winattn_linear, winattn_linear_plan, 16),
    .draw = draw_linear_call,
    .draw_small = draw_small_linear_call,
    .spoil = spoil_linear_call,
    .is_empty = has_no_rows,
    .list = list_linear,
    .enqueue = enqueue_linear};
static const call_kind attention_call = {
    KIND(winattn_window_attention, winattn_window_attention_plan, 16),
    .list = list_attention, .enqueue = enqueue_window_attention};
static const call_kind block_call = {
    KIND(winattn_block, winattn_block_plan, 16), .list = list_block,
    .enqueue = enqueue_block};
static const call_kind model_call = {
    KIND(winattn_model_call, winattn_model, 256), .draw = draw_model_call,
    .spoil = spoil_model_call, .list = list_model, .enqueue = enqueue_model};

#define LEVEL(member, desc, plan)                                             \
    .desc_size = sizeof(desc), .tier = offsetof(desc, tier),                  \
    .fields = &member##_list, .draw = draw_##member,                          \
    .draw_small = draw_small_##member, .create = create_##plan,               \
    .destroy = destroy_##plan, .describe = describe_##plan,                   \
    .kinds = &member##_call, .kind_count = 1
const level levels[] = {
    [LEVEL_LINEAR] = {.name = "linear",
                      .weight = 3,
                      .desc_least = sizeof(winattn_linear_desc),
                      LEVEL(linear, winattn_linear_desc, winattn_linear_plan)},
    [LEVEL_ATTENTION] = {.name = "window attention",
                         .weight = 2,
                         .desc_least = sizeof(winattn_window_attention_desc),
                         LEVEL(attention, winattn_window_attention_desc,
                               winattn_window_attention_plan)},
    [LEVEL_BLOCK] = {.name = "block",
                     .weight = 2,
                     .desc_least = offsetof(winattn_block_desc, grid_options),
                     LEVEL(block, winattn_block_desc, winattn_block_plan)},
    [LEVEL_MODEL] = {.name = "model",
                     .weight = 1,
                     .desc_least = sizeof(winattn_model_desc),
                     .config_fields = &config_list,
                     .prepare = draw_weights,
                     .release = release_weights,
                     .check = check_map_shapes,
                     LEVEL(model, winattn_model_desc, winattn_model)},
};
const size_t level_count = sizeof levels / sizeof *levels;
