/* SPDX-License-Identifier: Apache-2.0
 * The functions of winattn_models.h, called for the campaign's levels, which
 * are small, and scenarios in which they are. What steps make is kept beside
 * the world. */
#define _GNU_SOURCE /* memmem */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/scratch.h"
#include "models/files.h"
#include "subjects.h"

static struct {
    void *object[LEVELS]; /* plans, and a model */
    winattn_swin_weights *weights;
} made;

static char beside[1024]; /* the file with a config.json */
static char shard_index[1024];

void subjects_end(world *w)
{
    (void)w;
    for (size_t i = 0; i < LEVELS; i++)
        levels[i].destroy(made.object[i]);
    winattn_swin_weights_destroy(made.weights);
    memset(&made, 0, sizeof made);
}

/* What is drawn becomes Swin's or Swin V2's, in the scenario's type. */
static level_desc desc_of(const world *w, size_t which)
{
    const bool is_v2 = w->is->generation == 2;
    random_state r = random_seeded(1);
    level_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.of = &levels[which];
    desc.of->draw_small(&r, &desc);
    desc.config.generation = w->is->generation;
    desc.weights = made.weights;
    level_set(&desc, "dtype", w->desc.dtype);
    level_set(&desc, "variant", is_v2 ? WINATTN_COSINE : WINATTN_DOT);
    level_set(&desc, "order", is_v2 ? WINATTN_POST_NORM : WINATTN_PRE_NORM);
    return desc;
}

/* ---- Outcomes ---- */

/* Is there a handle where the status says so, and no reason then? */
static bool agrees(winattn_status status, const void *handle)
{
    return status == WINATTN_SUCCESS ? handle && !winattn_last_reason()[0]
                                     : !handle;
}

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

/* ---- Plans and models ---- */

static winattn_status describe_object(world *w)
{
    size_t needed = 0;
    const winattn_status status = levels[w->level].describe(
        made.object[w->level], MOST_TEXT, text, &needed);
    return give_text(w, status, needed);
}

/* A new one takes the place of the one before. */
static winattn_status create_object(world *w)
{
    const level_desc desc = desc_of(w, w->level);
    void *object = w;
    const winattn_status status =
        desc.of->create(&desc, desc.u.bytes, w->context, w->id, &object);
    if (!agrees(status, object))
        return WINATTN_INVALID_ARGUMENT; /* nobody expects that here */
    if (status != WINATTN_SUCCESS)
        return status;
    desc.of->destroy(made.object[w->level]);
    made.object[w->level] = object;
    return describe_object(w);
}

static winattn_status create_model(world *w)
{
    w->level = LEVEL_MODEL;
    return create_object(w);
}

static winattn_status create_objects(world *w)
{
    winattn_status status = WINATTN_SUCCESS;
    for (w->level = 0; w->level < LEVELS && status == WINATTN_SUCCESS;
         w->level++)
        status = create_object(w);
    return status;
}

static winattn_status object_workspace(world *w)
{
    const level_desc desc = desc_of(w, w->level);
    const level_call call = {.linear = {.rows = 1000}};
    size_t size = 0;
    bool is_sure;
    const winattn_status status = desc.of->kinds->workspace_size(
        &desc, made.object[w->level], &call, &size, &is_sure);
    snprintf(w->outcome, sizeof w->outcome, "%zu bytes", size);
    return status;
}

static winattn_status map_shape(world *w)
{
    cl_uint shape[4] = {0, 0, 0, 0};
    const winattn_status status =
        winattn_model_map_shape(made.object[LEVEL_MODEL], 1, shape);
    snprintf(w->outcome, sizeof w->outcome, "%u x %u x %u x %u", shape[0],
             shape[1], shape[2], shape[3]);
    return status;
}

static winattn_status enqueue_object(world *w)
{
    const level_desc desc = desc_of(w, w->level);
    return world_call(w, &desc, made.object[w->level], desc.of->kinds);
}

/* ---- Weights ---- */

static winattn_status describe_weights(world *w)
{
    size_t needed = 0;
    const winattn_status status =
        winattn_swin_weights_describe(made.weights, MOST_TEXT, text, &needed);
    return give_text(w, status, needed);
}

static winattn_status keep_weights(world *w, winattn_status status,
                                   winattn_swin_weights *weights)
{
    if (!agrees(status, weights))
        return WINATTN_INVALID_ARGUMENT;
    if (status != WINATTN_SUCCESS)
        return status;
    winattn_swin_weights_destroy(made.weights);
    made.weights = weights;
    return describe_weights(w);
}

static winattn_status draw_weights(world *w)
{
    const level_desc desc = desc_of(w, LEVEL_MODEL);
    winattn_swin_weights *weights = (void *)w;
    const winattn_status status =
        winattn_swin_weights_random(&desc.config, 7, &weights);
    return keep_weights(w, status, weights);
}

static winattn_status open_file(world *w, const char *path)
{
    winattn_swin_weights *weights = (void *)w;
    const winattn_status status =
        winattn_swin_weights_open(path, NULL, &weights);
    return keep_weights(w, status, weights);
}

static winattn_status open_weights(world *w)
{
    return open_file(w, GOLDEN_FOLDER
                     "/sources/torchvision_v1/model.safetensors");
}

static winattn_status open_weights_beside(world *w)
{
    return open_file(w, beside);
}

static winattn_status open_weights_shards(world *w)
{
    return open_file(w, shard_index);
}

static winattn_status give_config(world *w, winattn_status status,
                                  const winattn_swin_config *config)
{
    snprintf(w->outcome, sizeof w->outcome, "%u channels, %u stages, %u x %u",
             config->channels, config->stages, config->crop[0],
             config->crop[1]);
    return status;
}

static winattn_status weights_config(world *w)
{
    winattn_swin_config config = {.struct_size = sizeof config};
    const winattn_status status =
        winattn_swin_weights_config(made.weights, &config);
    return give_config(w, status, &config);
}

static winattn_status find_config(world *w)
{
    winattn_swin_config config = {.struct_size = sizeof config};
    const winattn_status status =
        winattn_swin_config_find("swin_v2_t", &config);
    return give_config(w, status, &config);
}

static winattn_status fit_picture(world *w)
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

/* Can the library read files of weights? */
static bool reads_files(void)
{
    winattn_swin_weights *weights;
    const winattn_status status = winattn_swin_weights_open(
        GOLDEN_FOLDER "/sources/torchvision_v1/model.safetensors", NULL,
        &weights);
    winattn_swin_weights_destroy(weights);
    return status != WINATTN_UNSUPPORTED_PROBLEM;
}

/* Files that are opened: one of Swin V2 that does not say its windows, with a
 * config.json beside it that does, in a folder of their own, and the same in
 * shards. */
void subjects_begin(const char *folder)
{
    static const char windows[] = "{\"model_type\":\"swinv2\","
                                  "\"window_size\":4,\"image_size\":[64,96]}";
    char path[1100];
    snprintf(beside, sizeof beside, "%s/model.safetensors", folder);
    copy_source("transformers_v2", beside);
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_bytes(path, windows, strlen(windows));
    snprintf(shard_index, sizeof shard_index,
             "%s/model.safetensors.index.json", folder);
    if (reads_files()) {
        wa_safetensors *file = tensors_of("transformers_v2");
        write_shards(file, folder, 2);
        wa_safetensors_close(file);
    }
}

/* ---- Subjects ---- */

const subject subjects[] = {
    {"create", {draw_weights}, create_object, LEVELS},
    {"create, programs kept",
     {create_programs, draw_weights},
     create_object,
     LEVELS},
    {"create, imported",
     {create_programs, import_blob, draw_weights},
     create_object,
     LEVELS},
    {"workspace_size",
     {draw_weights, create_object},
     object_workspace,
     LEVELS},
    {"describe", {draw_weights, create_object}, describe_object, LEVELS},
    {"enqueue", {draw_weights, create_object}, enqueue_object, LEVELS},
    {"model_map_shape", {draw_weights, create_model}, map_shape, 1},
    {"swin_config_find", {NULL}, find_config, 1},
    {"swin_weights_open", {NULL}, open_weights, 1},
    {"swin_weights_open, windows beside", {NULL}, open_weights_beside, 1},
    {"swin_weights_open, shards", {NULL}, open_weights_shards, 1},
    {"swin_weights_random", {NULL}, draw_weights, 1},
    {"swin_weights_config", {draw_weights}, weights_config, 1},
    {"swin_weights_describe", {draw_weights}, describe_weights, 1},
    {"fit_picture", {NULL}, fit_picture, 1},
};
const size_t subject_count = sizeof subjects / sizeof *subjects;

/* The plans of winattn.h are made after each failure, whatever the subject. */
const subject subject_of_blob = {"blob",
                                 {create_programs, create_plan,
                                  create_other_plan, draw_weights,
                                  create_objects},
                                 NULL,
                                 1};

/* What reads files needs cJSON. */
bool subject_applies(const scenario *is, const subject *of)
{
    (void)is;
    return reads_files() ||
           (of->call != open_weights && of->call != open_weights_beside &&
            of->call != open_weights_shards);
}

/* A plan of a device with a matrix unit can do without what the self-test
 * needs. */
bool subject_needs_all(const world *w, const subject *of)
{
    return of->call == draw_weights || of->call == fit_picture ||
           (of->call == create_object && w->level == LEVEL_LINEAR &&
            of->prepare[0] == draw_weights && !w->is->has_cache &&
            strcmp(w->is->device, "PoCL") == 0);
}

/* ---- Scenarios ---- */

#define CORE "windows=4 queries=20 dim=16"

const scenario scenarios[] = {
    {.name = "PoCL, Swin", .device = "PoCL", .problem = CORE, .generation = 1},
    {.name = "H200, matrix, Swin V2, queue out of order",
     .device = "H200",
     .problem = CORE " dtype=fp16",
     .out_of_order = true,
     .generation = 2},
    {.name = "MI210, Swin, cold cache",
     .device = "gfx90a (MI210)",
     .problem = CORE " dtype=bf16",
     .has_cache = true,
     .generation = 1},
    {.name = "PoCL, Swin V2, warm cache, queue out of order",
     .device = "PoCL",
     .problem = CORE,
     .out_of_order = true,
     .has_cache = true,
     .is_warm = true,
     .generation = 2},
    {.name = "A100, no linear layer for its unit builds",
     .device = "A100",
     .problem = CORE " dtype=fp16",
     .refused = "-DDIM_WAVES=",
     .generation = 1},
};
const size_t scenario_count = sizeof scenarios / sizeof *scenarios;
