/* SPDX-License-Identifier: Apache-2.0
 * The functions of winattn_models.h, and scenarios in which they are called.
 */
#include <string.h>

#include "models_world.h"
#include "subjects.h"

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
    return models_read_files() ||
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

void subjects_begin(const char *folder) { models_set_folder(folder); }

void subjects_end(world *w)
{
    (void)w;
    models_end();
}

/* ---- Scenarios ---- */

#define CORE                                                                  \
    .windows = 4, .heads = 2, .queries = 20, .keys = 20, .head_dim = 16,      \
    .passes = WINATTN_PASS_FORWARD

const scenario scenarios[] = {
    {.name = "PoCL, Swin", .device = "PoCL", .desc = {CORE}, .generation = 1},
    {.name = "H200, matrix, Swin V2, queue out of order",
     .device = "H200",
     .desc = {.dtype = WINATTN_FP16, CORE},
     .out_of_order = true,
     .generation = 2},
    {.name = "MI210, Swin, cold cache",
     .device = "gfx90a (MI210)",
     .desc = {.dtype = WINATTN_BF16, CORE},
     .has_cache = true,
     .generation = 1},
    {.name = "PoCL, Swin V2, warm cache, queue out of order",
     .device = "PoCL",
     .desc = {CORE},
     .out_of_order = true,
     .has_cache = true,
     .is_warm = true,
     .generation = 2},
    {.name = "A100, no linear layer for its unit builds",
     .device = "A100",
     .desc = {.dtype = WINATTN_FP16, CORE},
     .refused = "-DDIM_WAVES=",
     .generation = 1},
};
const size_t scenario_count = sizeof scenarios / sizeof *scenarios;
