/* SPDX-License-Identifier: Apache-2.0
 * What the shapes of a file's tensors say of the model's. */
#include <math.h>
#include <string.h>

#include "models/swin_file.h"

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

uint64_t wa_swin_table_entries(const wa_swin_file *file, uint32_t stage)
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
