/* SPDX-License-Identifier: Apache-2.0
 * Opens a file of weights: what its names are, what it says of the model, and
 * what the caller says instead. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "models/levels.h"
#include "models/swin_beside.h"
#include "models/swin_file.h"
#include "models/swin_rules.h"

static void replace(cl_uint *own, const cl_uint *given, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (given[i])
            own[i] = given[i];
}

/* What is not 0 in `given` replaces what the file says. */
static void overlay(wa_swin_config *own, const wa_swin_config *given)
{
    replace(&own->generation, &given->generation, 1);
    replace(&own->in_channels, &given->in_channels, 1);
    replace(own->patch, given->patch, 2);
    replace(&own->channels, &given->channels, 1);
    replace(&own->stages, &given->stages, 1);
    replace(own->depths, given->depths, WA_SWIN_STAGES);
    replace(own->heads, given->heads, WA_SWIN_STAGES);
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++) {
        replace(own->window[i], given->window[i], 2);
        replace(own->position_window[i], given->position_window[i], 2);
    }
    replace(own->hidden, given->hidden, WA_SWIN_STAGES);
    replace(&own->classes, &given->classes, 1);
    own->norm_eps = given->norm_eps;
    memcpy(own->resize, given->resize, sizeof own->resize);
    memcpy(own->crop, given->crop, sizeof own->crop);
    own->filter = given->filter;
    memcpy(own->mean, given->mean, sizeof own->mean);
    memcpy(own->deviation, given->deviation, sizeof own->deviation);
    own->rules = given->rules;
    memcpy(own->image, given->image, sizeof own->image);
    own->outer_norm_eps = given->outer_norm_eps;
    own->no_config_file = given->no_config_file;
}

/* Where the file says how many stages there are, what was said of others does
 * not matter. */
static void forget_stages(wa_swin_config *own, const wa_swin_config *given)
{
    for (uint32_t i = own->stages; !given->stages && i < WA_SWIN_STAGES; i++) {
        own->depths[i] = own->heads[i] = own->hidden[i] = 0;
        for (int axis = 0; axis < 2; axis++)
            own->window[i][axis] = own->position_window[i][axis] = 0;
    }
}

static void take_pair(cl_uint own[2], const cl_uint said[2])
{
    if (!own[0] && !own[1])
        memcpy(own, said, 2 * sizeof *own);
}

/* Do the windows have that many positions? */
static bool has_entries(const cl_uint window[2], uint64_t entries)
{
    return (2ull * window[0] - 1) * (2ull * window[1] - 1) == entries;
}

/* What the config does not have yet. Windows that only a table's size tells
 * are taken for squares, and may be others of that size; those that the caller
 * says stay. */
static void take_windows(wa_swin_beside *b, const wa_swin_file *file,
                         const wa_swin_config *given, wa_swin_config *config)
{
    for (uint32_t i = 0; i < config->stages; i++) {
        cl_uint *own = config->window[i], *said = b->window[i];
        const uint64_t entries = wa_swin_table_entries(file, i);
        if (said[0])
            wa_swin_bound_window(config, i, said);
        if (!(given && given->window[i][0]) && own[0] == own[1] && entries &&
            said[0] && said[1] && has_entries(said, entries) &&
            has_entries(own, entries))
            memcpy(own, said, 2 * sizeof *own);
        take_pair(own, said);
        if (config->generation == 2)
            take_pair(config->position_window[i], b->position_window[i]);
    }
}

/* Preparation of pictures is the file's only where the caller says nothing of
 * their sizes. */
static void take_pictures(const wa_swin_beside *b, wa_swin_config *config)
{
    if (!config->resize[0] && !config->crop[0])
        take_pair(config->resize, b->resize);
    if (b->has_filter && config->filter == WINATTN_FILTER_BICUBIC)
        config->filter = b->filter;
    take_pair(config->crop, b->crop);
    if (b->has_colours && wa_swin_has_no_colours(config)) {
        memcpy(config->mean, b->mean, sizeof b->mean);
        memcpy(config->deviation, b->deviation, sizeof b->deviation);
    }
}

static winattn_status take_beside(const char *path, const wa_swin_file *file,
                                  const wa_swin_config *given,
                                  wa_swin_config *config)
{
    wa_swin_beside b = {0};
    if (path && !config->no_config_file)
        WA_TRY(wa_swin_beside_read(path, file, config, &b));
    if (config->rules == WINATTN_SWIN_RULES_AUTO)
        config->rules = b.rules ? b.rules : file->names->rules;
    take_pair(config->image, b.image);
    if (config->norm_eps == 0)
        config->norm_eps = b.norm_eps;
    take_windows(&b, file, given, config);
    take_pictures(&b, config);
    return WINATTN_SUCCESS;
}

/* What loops go by before all is checked. */
static winattn_status check_counts(const wa_swin_config *config)
{
    bool good = config->stages <= WA_SWIN_STAGES;
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++)
        good = good && config->depths[i] <= WA_SWIN_DEPTH_MOST;
    return good ? WINATTN_SUCCESS
                : wa_fail(WINATTN_INVALID_ARGUMENT,
                          "config.stages is above %u, or depths above %u",
                          WA_SWIN_STAGES, WA_SWIN_DEPTH_MOST);
}

static winattn_status check_windows(const wa_swin_config *config)
{
    char names[300];
    for (uint32_t i = 0; i < config->stages && i < WA_SWIN_STAGES; i++) {
        if (config->window[i][0] && config->window[i][1])
            continue;
        wa_swin_config_names(config, sizeof names, names);
        return wa_fail(WINATTN_INVALID_FILE,
                       "the file does not say how large the windows of stage "
                       "%u are, so that config must%s%s",
                       (unsigned)i, names[0] ? "; models like it are " : "",
                       names);
    }
    return WINATTN_SUCCESS;
}

/* A shape that cannot be is the file's fault, unless the caller has a hand in
 * it. */
static winattn_status check_shape(const wa_swin_config *config, bool given)
{
    char reason[300];
    const winattn_status status = wa_swin_config_check(config);
    if (status == WINATTN_SUCCESS || given)
        return status;
    snprintf(reason, sizeof reason, "%s", winattn_last_reason());
    return wa_fail(WINATTN_INVALID_FILE,
                   "by what the file says, %s: no model has that", reason);
}

/* path: NULL, or where the file is. */
static winattn_status read_model(const wa_safetensors *tensors,
                                 const char *path, const wa_swin_config *given,
                                 wa_swin_weights **weights)
{
    wa_swin_file file = {.tensors = tensors};
    wa_swin_config config;
    WA_TRY(wa_swin_names_of(tensors, &file.names, &file.prefix));
    wa_swin_infer(&file, &config);
    if (given) {
        overlay(&config, given);
        WA_TRY(check_counts(&config));
        forget_stages(&config, given);
    }
    WA_TRY(take_beside(path, &file, given, &config));
    WA_TRY(check_windows(&config));
    wa_swin_config_complete(&config);
    WA_TRY(check_shape(&config, given != NULL));
    return wa_swin_load(&file, &config, weights);
}

static winattn_status read_and_close(wa_safetensors *tensors, const char *path,
                                     const winattn_swin_config *config,
                                     wa_swin_weights **weights)
{
    wa_swin_config given;
    winattn_status status = WINATTN_SUCCESS;
    if (config)
        status = wa_read_struct("swin_config", config, &given, sizeof given,
                                offsetof(winattn_swin_config, resize));
    if (status == WINATTN_SUCCESS)
        status = read_model(tensors, path, config ? &given : NULL, weights);
    wa_safetensors_close(tensors);
    return status;
}

winattn_status wa_swin_weights_read(const unsigned char *bytes, size_t size,
                                    const winattn_swin_config *config,
                                    wa_swin_weights **weights)
{
    wa_safetensors *tensors;
    *weights = NULL;
    WA_TRY(wa_safetensors_read(bytes, size, &tensors));
    return read_and_close(tensors, NULL, config, weights);
}

winattn_status winattn_swin_weights_open(const char *path,
                                         const winattn_swin_config *config,
                                         winattn_swin_weights **weights)
{
    wa_safetensors *tensors;
    WA_TRY(wa_models_begin());
    if (!weights)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "weights is NULL");
    *weights = NULL;
    if (!path)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "path is NULL");
    WA_TRY(wa_safetensors_open(path, &tensors));
    return read_and_close(tensors, wa_safetensors_path(tensors), config,
                          weights);
}
