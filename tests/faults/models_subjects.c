/* SPDX-License-Identifier: Apache-2.0
 * The functions of winattn_models.h, and scenarios in which they are called.
 */
#include <string.h>

#include "models_world.h"
#include "subjects.h"

const subject subjects[] = {
    {"linear_plan_create", {NULL}, create_linear},
    {"linear_plan_create, imported",
     {create_programs, import_blob},
     create_linear},
    {"linear_plan_workspace_size", {create_linear}, linear_workspace},
    {"linear_plan_describe", {create_linear}, describe_linear},
    {"enqueue_linear", {create_linear}, enqueue_linear},
    {"window_attention_plan_create", {NULL}, create_attention},
    {"window_attention_plan_workspace_size",
     {create_attention},
     attention_workspace},
    {"window_attention_plan_describe", {create_attention}, describe_attention},
    {"enqueue_window_attention", {create_attention}, enqueue_attention},
    {"block_plan_create", {NULL}, create_block},
    {"block_plan_create, programs kept", {create_programs}, create_block},
    {"block_plan_workspace_size", {create_block}, block_workspace},
    {"block_plan_describe", {create_block}, describe_block},
    {"enqueue_block", {create_block}, enqueue_block},
    {"swin_config_find", {NULL}, find_config},
    {"swin_weights_open", {NULL}, open_weights},
    {"swin_weights_open, windows beside", {NULL}, open_weights_beside},
    {"swin_weights_open, shards", {NULL}, open_weights_shards},
    {"swin_weights_random", {NULL}, draw_weights},
    {"swin_weights_config", {draw_weights}, weights_config},
    {"swin_weights_describe", {draw_weights}, describe_weights},
    {"fit_picture", {NULL}, fit_picture},
    {"model_create", {draw_weights}, create_model},
    {"model_create, imported",
     {create_programs, import_blob, draw_weights},
     create_model},
    {"model_workspace_size", {draw_weights, create_model}, model_workspace},
    {"model_map_shape", {draw_weights, create_model}, map_shape},
    {"model_describe", {draw_weights, create_model}, describe_model},
    {"enqueue_model", {draw_weights, create_model}, enqueue_model},
};
const size_t subject_count = sizeof subjects / sizeof *subjects;

/* The plans of winattn.h are made after each failure, whatever the subject. */
const subject subject_of_blob = {
    "blob",
    {create_programs, create_plan, create_other_plan, create_linear,
     create_attention, create_block, draw_weights, create_model},
    NULL};

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
bool subject_needs_all(const scenario *is, const subject *of)
{
    return of->call == draw_weights || of->call == fit_picture ||
           (of->call == create_linear && !of->prepare[0] && !is->has_cache &&
            strcmp(is->device, "PoCL") == 0);
}

bool subjects_begin(const char *folder) { return models_set_folder(folder); }

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
