/* SPDX-License-Identifier: Apache-2.0
 * Opens a file of weights: what its names are, what it says of the model, and
 * what the caller says instead. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "models/levels.h"
#include "models/swin_file.h"
#include "models/swin_rules.h"

/* ---- What the shapes of a file's tensors say of the model's ---- */

const wa_file_tensor *wa_swin_find(const wa_swin_file *file, uint32_t stage,
                                   uint32_t block, wa_swin_part part,
                                   const char *suffix)
{
    char name[WA_NAME_SIZE];
    if (!file->names->parts[part])
        return NULL;
    wa_name_block(file->names, file->prefix.model, stage, block, part, suffix,
                  name);
    return wa_safetensors_find(file->tensors, name);
}

/* 0: it has no such axis, or no model has so many. */
static cl_uint extent(const wa_file_tensor *tensor, uint32_t axis)
{
    if (!tensor || axis >= tensor->axes || tensor->extent[axis] > 0x7fffffff)
        return 0;
    return (cl_uint)tensor->extent[axis];
}

/* 0: there is none that fits. */
static cl_uint square_root(uint64_t square)
{
    const cl_uint root = (cl_uint)sqrt((double)(square & 0xffffffff));
    return (uint64_t)root * root == square ? root : 0;
}

static cl_uint count_blocks(const wa_swin_file *file, uint32_t stage)
{
    cl_uint depth = 0;
    while (depth <= WA_SWIN_DEPTH_MOST &&
           wa_swin_find(file, stage, depth, WA_PART_PROJ, "weight"))
        depth++;
    return depth;
}

bool wa_swin_has_qkv_bias(const wa_swin_file *file,
                          const wa_swin_config *config)
{
    static const struct {
        wa_swin_part part;
        const char *suffix;
    } biases[] = {{WA_PART_QKV, "bias"},         {WA_PART_ATTENTION, "q_bias"},
                  {WA_PART_ATTENTION, "v_bias"}, {WA_PART_QUERY, "bias"},
                  {WA_PART_KEY, "bias"},         {WA_PART_VALUE, "bias"}};
    for (uint32_t i = 0; i < config->stages && i < WA_SWIN_STAGES; i++)
        for (uint32_t j = 0; j < config->depths[i]; j++)
            for (size_t k = 0; k < sizeof biases / sizeof *biases; k++)
                if (wa_swin_find(file, i, j, biases[k].part, biases[k].suffix))
                    return true;
    return false;
}

/* Entries of the table of a stage's first block; 0: it has none. */
static uint64_t table_entries(const wa_swin_file *file, uint32_t stage)
{
    return extent(wa_swin_find(file, stage, 0, WA_PART_ATTENTION,
                               "relative_position_bias_table"),
                  0);
}

/* ---- Windows ---- */

/* From the coordinates of all positions, [1, 2 height - 1, 2 width - 1, 2]. */
static bool read_coordinates(const wa_file_tensor *coordinates,
                             cl_uint window[2], cl_uint position_window[2])
{
    if (!coordinates || coordinates->axes != 4 || coordinates->count < 2)
        return false;
    for (int axis = 0; axis < 2; axis++) {
        float most;
        if (!wa_tensor_float(coordinates,
                             coordinates->count - 2 + (uint64_t)axis, &most))
            return false;
        const cl_uint own = (extent(coordinates, 1 + (uint32_t)axis) + 1) / 2;
        /* the last is log2(8 (own - 1) / (pretraining - 1) + 1) / 3 */
        const double reach = 8 * (own - 1.0) / (exp2(3 * most) - 1);
        window[axis] = own;
        if (own > 1 && reach >= 0 && reach < WA_SWIN_WINDOW_MOST &&
            lround(reach) + 1 != (long)own)
            position_window[axis] = (cl_uint)lround(reach) + 1;
    }
    if (position_window[0] || position_window[1])
        for (int axis = 0; axis < 2; axis++)
            if (!position_window[axis])
                position_window[axis] = window[axis];
    return true;
}

/* The file has any numbers, so that a difference need not be one of int64. */
static bool falls_by_one(int64_t number, int64_t next)
{
    return number > next && (uint64_t)number - (uint64_t)next == 1;
}

/* From the numbers of the positions of all pairs of tokens: those of the first
 * query fall by one until the row of keys ends. */
static bool read_index(const wa_file_tensor *index, cl_uint window[2])
{
    if (!index || index->type != WA_TENSOR_INT64)
        return false;
    const cl_uint tokens = square_root(index->count);
    cl_uint width = 1;
    if (tokens == 0)
        return false;
    while (width < tokens && falls_by_one(wa_tensor_integer(index, width - 1),
                                          wa_tensor_integer(index, width)))
        width++;
    /* a window of one row has the same numbers as one of one column */
    if (tokens % width != 0 || (width == tokens && tokens > 1))
        return false;
    window[0] = tokens / width;
    window[1] = width;
    return true;
}

static void infer_window(const wa_swin_file *file, uint32_t stage,
                         wa_swin_config *config)
{
    cl_uint *window = config->window[stage];
    const wa_file_tensor *table = wa_swin_find(
        file, stage, 0, WA_PART_ATTENTION, "relative_position_bias_table");
    if (read_coordinates(wa_swin_find(file, stage, 0, WA_PART_ATTENTION,
                                      "relative_coords_table"),
                         window, config->position_window[stage]))
        return;
    if (read_index(wa_swin_find(file, stage, 0, WA_PART_ATTENTION,
                                "relative_position_index"),
                   window))
        return;
    /* a table by itself is taken for that of a square */
    const cl_uint side = square_root(extent(table, 0));
    if (side % 2 == 1)
        window[0] = window[1] = (side + 1) / 2;
}

/* ---- The model ---- */

static void infer_stage(const wa_swin_file *file, uint32_t stage,
                        wa_swin_config *config)
{
    config->depths[stage] = count_blocks(file, stage);
    config->hidden[stage] =
        extent(wa_swin_find(file, stage, 0, WA_PART_FC1, "weight"), 0);
    if (config->generation == 2)
        config->heads[stage] = extent(
            wa_swin_find(file, stage, 0, WA_PART_ATTENTION, "logit_scale"), 0);
    else
        config->heads[stage] =
            extent(wa_swin_find(file, stage, 0, WA_PART_ATTENTION,
                                "relative_position_bias_table"),
                   1);
    infer_window(file, stage, config);
}

static const wa_file_tensor *find_rest(const wa_swin_file *file,
                                       const char *prefix, const char *part,
                                       const char *suffix)
{
    char name[WA_NAME_SIZE];
    wa_name_rest(prefix, part, suffix, name);
    return wa_safetensors_find(file->tensors, name);
}

void wa_swin_infer(const wa_swin_file *file, wa_swin_config *config)
{
    *config = (wa_swin_config){.struct_size = sizeof *config};
    const wa_file_tensor *patch =
        find_rest(file, file->prefix.model, file->names->patch, "weight");
    config->channels = extent(patch, 0);
    config->in_channels = extent(patch, 1);
    config->patch[0] = extent(patch, 2);
    config->patch[1] = extent(patch, 3);
    const bool second =
        wa_swin_find(file, 0, 0, WA_PART_ATTENTION, "logit_scale") ||
        wa_swin_find(file, 0, 0, WA_PART_POSITION_MLP, "0.weight");
    config->generation = second ? 2 : 1;
    while (config->stages < WA_SWIN_STAGES &&
           count_blocks(file, config->stages) > 0)
        infer_stage(file, config->stages++, config);
    config->no_norm =
        !find_rest(file, file->prefix.model, file->names->norm, "weight") &&
        !find_rest(file, file->prefix.model, file->names->norm, "bias");
    /* by both tensors, so that one without the other is missed */
    const char *head = file->names->head;
    const char *wrapper = file->prefix.wrapper;
    config->classes = extent(find_rest(file, wrapper, head, "weight"), 0);
    if (!config->classes)
        config->classes = extent(find_rest(file, wrapper, head, "bias"), 0);
}

/* ---- What the caller says of it ---- */

/* What is not 0 in `given` replaces what the file says, which alone says
 * whether there is a norm at the end. */
static void overlay(wa_swin_config *own, const wa_swin_config *given)
{
    const size_t numbers = (offsetof(wa_swin_config, norm_eps) -
                            offsetof(wa_swin_config, generation)) /
                           sizeof own->generation;
    const wa_swin_config old = *own;
    *own = *given;
    own->struct_size = old.struct_size;
    own->no_norm = old.no_norm;
    for (size_t i = 0; i < numbers; i++)
        if (!(&own->generation)[i])
            (&own->generation)[i] = (&old.generation)[i];
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
        const uint64_t entries = table_entries(file, i);
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
                : WA_INVALID("config.stages is above %u, or depths above %u",
                             WA_SWIN_STAGES, WA_SWIN_DEPTH_MOST);
}

static winattn_status check_windows(const wa_swin_config *config)
{
    char names[300];
    for (uint32_t i = 0; i < config->stages && i < WA_SWIN_STAGES; i++) {
        if (config->window[i][0] && config->window[i][1])
            continue;
        wa_swin_config_names(config, sizeof names, names);
        return WA_BAD_FILE("the file does not say how large the windows of "
                           "stage %u are, so that config must%s%s",
                           (unsigned)i,
                           names[0] ? "; models like it are " : "", names);
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
    return WA_BAD_FILE("by what the file says, %s: no model has that", reason);
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
    WA_THEN(status,
            read_model(tensors, path, config ? &given : NULL, weights));
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
    WA_WANT(weights, "weights");
    *weights = NULL;
    WA_WANT(path, "path");
    WA_TRY(wa_safetensors_open(path, &tensors));
    return read_and_close(tensors, wa_safetensors_path(tensors), config,
                          weights);
}
