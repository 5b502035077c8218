/* SPDX-License-Identifier: Apache-2.0
 * Linear layers, window attention, blocks, weights and models that are small,
 * and have all that such things can have. */
#define _GNU_SOURCE /* memmem */
#include "models_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/safetensors.h"
#include "models/shards.h"

static struct {
    winattn_linear_plan *linear;
    winattn_window_attention_plan *attention;
    winattn_block_plan *block;
    winattn_swin_weights *weights;
    winattn_model *model;
} made;

static char beside[1024]; /* the file with a config.json */
static char shard_index[1024];

void models_end(void)
{
    winattn_linear_plan_destroy(made.linear);
    winattn_window_attention_plan_destroy(made.attention);
    winattn_block_plan_destroy(made.block);
    winattn_model_destroy(made.model);
    winattn_swin_weights_destroy(made.weights);
    memset(&made, 0, sizeof made);
}

/* ---- Outcomes ---- */

/* Is there a handle where the status says so, and no reason then? */
static bool agrees(winattn_status status, const void *handle)
{
    return status == WINATTN_SUCCESS ? handle && !winattn_last_reason()[0]
                                     : !handle;
}

/* A new handle takes the place of the one before. */
#define KEEP(status, place, handle, destroy)                                  \
    do {                                                                      \
        if (!agrees(status, handle))                                          \
            return WINATTN_INVALID_ARGUMENT; /* nobody expects that here */   \
        if ((status) != WINATTN_SUCCESS)                                      \
            return status;                                                    \
        destroy(place);                                                       \
        (place) = (handle);                                                   \
    } while (0)

/* A description may be too long to be kept: its length and a sum are the
 * outcome. Where programs come from follows from what the cache has. */
#define MOST_TEXT (1 << 18)
static char text[MOST_TEXT];

static winattn_status give_text(world *w, winattn_status status, size_t needed)
{
    unsigned long sum = 0;
    if (status != WINATTN_SUCCESS)
        return status;
    if (needed != strlen(text) + 1)
        return WINATTN_INVALID_ARGUMENT;
    for (const char *line = text; *line;) {
        const size_t length = strcspn(line, "\n");
        const bool is_origin =
            w->is->has_cache && memmem(line, length, "program: ", 9) != NULL;
        for (size_t i = 0; i < length && !is_origin; i++)
            sum = sum * 31 + (unsigned char)line[i];
        line += length + (line[length] == '\n');
    }
    snprintf(w->outcome, sizeof w->outcome, "text %lx", sum);
    return status;
}

#define DESCRIBE(object, function)                                            \
    winattn_status describe_##object(world *w)                                \
    {                                                                         \
        size_t needed = 0;                                                    \
        const winattn_status status =                                         \
            function(made.object, MOST_TEXT, text, &needed);                  \
        return give_text(w, status, needed);                                  \
    }

static winattn_status give_size(world *w, winattn_status status, size_t size)
{
    snprintf(w->outcome, sizeof w->outcome, "%zu bytes", size);
    return status;
}

/* Of the object, and of what else the function takes. */
#define WORKSPACE(object, function, ...)                                      \
    winattn_status object##_workspace(world *w)                               \
    {                                                                         \
        size_t size = 0;                                                      \
        const winattn_status status = function(__VA_ARGS__, &size);           \
        return give_size(w, status, size);                                    \
    }

/* ---- Linear layers ---- */

DESCRIBE(linear, winattn_linear_plan_describe)

winattn_status create_linear(world *w)
{
    winattn_linear_desc desc = {.struct_size = sizeof desc};
    winattn_linear_plan *plan = (void *)w;
    desc.dtype = w->is->desc.dtype;
    desc.in_features = 96;
    desc.out_features = 200;
    desc.layer_norm = desc.has_bias = desc.has_residual = CL_TRUE;
    desc.activation = WINATTN_ACTIVATION_GELU;
    const winattn_status status =
        winattn_linear_plan_create(w->context, w->id, &desc, &plan);
    KEEP(status, made.linear, plan, winattn_linear_plan_destroy);
    return describe_linear(w);
}

WORKSPACE(linear, winattn_linear_plan_workspace_size, made.linear, 1000)

winattn_status enqueue_linear(world *w)
{
    const winattn_tensor all = {w->memory, 0};
    const winattn_linear call = {.struct_size = sizeof call,
                                 .rows = 1000,
                                 .x = all,
                                 .weight = all,
                                 .bias = all,
                                 .norm_weight = all,
                                 .norm_bias = all,
                                 .residual = all,
                                 .y = all,
                                 .workspace = all};
    cl_event event = NULL;
    standin_forget();
    const winattn_status status =
        winattn_enqueue_linear(made.linear, w->queue, &call, 0, NULL, &event);
    return world_end_call(w, status, event);
}

/* ---- Window attention ---- */

DESCRIBE(attention, winattn_window_attention_plan_describe)

winattn_status create_attention(world *w)
{
    winattn_window_attention_desc desc = {.struct_size = sizeof desc};
    winattn_window_attention_plan *plan = (void *)w;
    desc.dtype = w->is->desc.dtype;
    desc.variant = w->is->generation == 2 ? WINATTN_COSINE : WINATTN_DOT;
    desc.windows = 12;
    desc.window[0] = desc.window[1] = 4;
    desc.channels = 32;
    desc.heads = 2;
    desc.mask_windows = 4;
    const winattn_status status =
        winattn_window_attention_plan_create(w->context, w->id, &desc, &plan);
    KEEP(status, made.attention, plan, winattn_window_attention_plan_destroy);
    return describe_attention(w);
}

WORKSPACE(attention, winattn_window_attention_plan_workspace_size,
          made.attention)

winattn_status enqueue_attention(world *w)
{
    const winattn_tensor all = {w->memory, 0};
    winattn_window_attention call = {.struct_size = sizeof call,
                                     .x = all,
                                     .qkv_weight = all,
                                     .qkv_bias = all,
                                     .proj_weight = all,
                                     .proj_bias = all,
                                     .table = all,
                                     .mask = all,
                                     .y = all,
                                     .workspace = all};
    cl_event event = NULL;
    if (w->is->generation == 2)
        call.logit_scale = all;
    standin_forget();
    const winattn_status status = winattn_enqueue_window_attention(
        made.attention, w->queue, &call, 0, NULL, &event);
    return world_end_call(w, status, event);
}

/* ---- Blocks ---- */

DESCRIBE(block, winattn_block_plan_describe)

winattn_status create_block(world *w)
{
    const bool is_v2 = w->is->generation == 2;
    winattn_block_desc desc = {.struct_size = sizeof desc};
    winattn_block_plan *plan = (void *)w;
    desc.dtype = w->is->desc.dtype;
    desc.variant = is_v2 ? WINATTN_COSINE : WINATTN_DOT;
    desc.order = is_v2 ? WINATTN_POST_NORM : WINATTN_PRE_NORM;
    desc.batch = 2;
    desc.height = 9; /* padded */
    desc.width = 12;
    desc.window[0] = desc.window[1] = 4;
    desc.shift[0] = desc.shift[1] = 2;
    desc.channels = 32;
    desc.heads = 2;
    desc.hidden = 128;
    const winattn_status status =
        winattn_block_plan_create(w->context, w->id, &desc, &plan);
    KEEP(status, made.block, plan, winattn_block_plan_destroy);
    return describe_block(w);
}

WORKSPACE(block, winattn_block_plan_workspace_size, made.block)

winattn_status enqueue_block(world *w)
{
    const winattn_tensor all = {w->memory, 0};
    winattn_block call = {.struct_size = sizeof call,
                          .x = all,
                          .y = all,
                          .weights = {.norm1_weight = all,
                                      .norm1_bias = all,
                                      .qkv_weight = all,
                                      .qkv_bias = all,
                                      .proj_weight = all,
                                      .proj_bias = all,
                                      .norm2_weight = all,
                                      .norm2_bias = all,
                                      .fc1_weight = all,
                                      .fc1_bias = all,
                                      .fc2_weight = all,
                                      .fc2_bias = all,
                                      .table = all},
                          .workspace = all};
    cl_event event = NULL;
    if (w->is->generation == 2)
        call.weights.logit_scale = all;
    standin_forget();
    const winattn_status status =
        winattn_enqueue_block(made.block, w->queue, &call, 0, NULL, &event);
    return world_end_call(w, status, event);
}

/* ---- Weights ---- */

/* Two stages, the second of odd maps, shifted blocks, and a head. */
static winattn_swin_config config_of(const world *w)
{
    const winattn_swin_config config = {.struct_size = sizeof config,
                                        .generation = w->is->generation,
                                        .in_channels = 3,
                                        .patch = {4, 4},
                                        .channels = 32,
                                        .stages = 2,
                                        .depths = {2, 1},
                                        .heads = {2, 4},
                                        .window = {{4, 4}, {4, 4}},
                                        .hidden = {128, 256},
                                        .classes = 10};
    return config;
}

static winattn_status keep_weights(world *w, winattn_status status,
                                   winattn_swin_weights *weights)
{
    KEEP(status, made.weights, weights, winattn_swin_weights_destroy);
    return describe_weights(w);
}

winattn_status draw_weights(world *w)
{
    const winattn_swin_config config = config_of(w);
    winattn_swin_weights *weights = (void *)w;
    const winattn_status status =
        winattn_swin_weights_random(&config, 7, &weights);
    return keep_weights(w, status, weights);
}

static winattn_status open_file(world *w, const char *path)
{
    winattn_swin_weights *weights = (void *)w;
    const winattn_status status =
        winattn_swin_weights_open(path, NULL, &weights);
    return keep_weights(w, status, weights);
}

winattn_status open_weights(world *w)
{
    return open_file(w, GOLDEN_FOLDER
                     "/sources/torchvision_v1/model.safetensors");
}

winattn_status open_weights_beside(world *w) { return open_file(w, beside); }

winattn_status open_weights_shards(world *w)
{
    return open_file(w, shard_index);
}

DESCRIBE(weights, winattn_swin_weights_describe)

static winattn_status give_config(world *w, winattn_status status,
                                  const winattn_swin_config *config)
{
    snprintf(w->outcome, sizeof w->outcome, "%u channels, %u stages, %u x %u",
             config->channels, config->stages, config->crop[0],
             config->crop[1]);
    return status;
}

winattn_status weights_config(world *w)
{
    winattn_swin_config config = {.struct_size = sizeof config};
    const winattn_status status =
        winattn_swin_weights_config(made.weights, &config);
    return give_config(w, status, &config);
}

winattn_status find_config(world *w)
{
    winattn_swin_config config = {.struct_size = sizeof config};
    const winattn_status status =
        winattn_swin_config_find("swin_v2_t", &config);
    return give_config(w, status, &config);
}

winattn_status fit_picture(world *w)
{
    static unsigned char pixels[40 * 50 * 3], fitted[16 * 16 * 3];
    const winattn_swin_config config = {
        .struct_size = sizeof config, .resize = {18, 0}, .crop = {16, 16}};
    unsigned long sum = 0;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (unsigned char)(i * i % 251);
    memset(fitted, 0, sizeof fitted);
    const winattn_status status =
        winattn_fit_picture(&config, 40, 50, 0, pixels, fitted);
    for (size_t i = 0; i < sizeof fitted; i++)
        sum = sum * 31 + fitted[i];
    snprintf(w->outcome, sizeof w->outcome, "%lx", sum);
    return status;
}

bool models_read_files(void)
{
    winattn_swin_weights *weights;
    const winattn_status status = winattn_swin_weights_open(
        GOLDEN_FOLDER "/sources/torchvision_v1/model.safetensors", NULL,
        &weights);
    winattn_swin_weights_destroy(weights);
    return status != WINATTN_UNSUPPORTED_PROBLEM;
}

static bool copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    const size_t size = in ? fread(bytes, 1, sizeof bytes, in) : 0;
    const bool written = out && fwrite(bytes, 1, size, out) == size;
    if (in)
        fclose(in);
    return out && fclose(out) == 0 && written && size > 0;
}

static bool split(const char *path, const char *folder)
{
    wa_safetensors *file;
    if (wa_safetensors_open(path, &file) != WINATTN_SUCCESS)
        return false;
    const bool written = write_shards(file, folder, 2);
    wa_safetensors_close(file);
    return written;
}

bool models_set_folder(const char *folder)
{
    char path[1100];
    snprintf(beside, sizeof beside, "%s/model.safetensors", folder);
    if (!copy_file(GOLDEN_FOLDER "/sources/transformers_v2/model.safetensors",
                   beside)) {
        perror(beside);
        return false;
    }
    snprintf(shard_index, sizeof shard_index,
             "%s/model.safetensors.index.json", folder);
    if (models_read_files() && !split(beside, folder)) {
        perror(shard_index);
        return false;
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "wb");
    if (file)
        fputs("{\"model_type\":\"swinv2\",\"window_size\":4,"
              "\"image_size\":[64,96]}",
              file);
    if (!file || fclose(file) != 0) {
        perror(path);
        return false;
    }
    return true;
}

/* ---- Models ---- */

DESCRIBE(model, winattn_model_describe)

winattn_status create_model(world *w)
{
    winattn_model_desc desc = {.struct_size = sizeof desc};
    winattn_model *model = (void *)w;
    desc.dtype = w->is->desc.dtype;
    desc.batch = 2;
    desc.height = 36; /* maps of 9 x 12 and 5 x 6 */
    desc.width = 50;
    const winattn_status status =
        winattn_model_create(w->context, w->id, &desc, made.weights, &model);
    KEEP(status, made.model, model, winattn_model_destroy);
    return describe_model(w);
}

WORKSPACE(model, winattn_model_workspace_size, made.model)

winattn_status map_shape(world *w)
{
    cl_uint shape[4] = {0, 0, 0, 0};
    const winattn_status status =
        winattn_model_map_shape(made.model, 1, shape);
    snprintf(w->outcome, sizeof w->outcome, "%u x %u x %u x %u", shape[0],
             shape[1], shape[2], shape[3]);
    return status;
}

winattn_status enqueue_model(world *w)
{
    const winattn_tensor all = {w->memory, 0};
    const winattn_model_call call = {.struct_size = sizeof call,
                                     .pictures = all,
                                     .mean = {0.5f, 0.5f, 0.5f},
                                     .deviation = {0.2f, 0.2f, 0.2f},
                                     .logits = all,
                                     .maps = {all},
                                     .workspace = all};
    cl_event event = NULL;
    standin_forget();
    const winattn_status status =
        winattn_enqueue_model(made.model, w->queue, &call, 0, NULL, &event);
    return world_end_call(w, status, event);
}
