/* SPDX-License-Identifier: Apache-2.0
 * Shapes of Swin models: those that have names, and which ones can be. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "base/text.h"
#include "models/levels.h"
#include "models/swin_rules.h"
#include "models/swin_weights.h"

#define PATCH 4
#define CLASSES 1000
#define NORM_EPS 1e-5F
#define HIDDEN_FACTOR 4

/* Depths of stages but the third, and the heads' channels, are the same in all
 * models with names: 2, and 32. */
#define OTHER_DEPTH 2
#define HEAD_DIM 32

typedef struct named_model {
    const char *name;
    cl_uint generation, channels, depth;
    cl_uint window, pretraining; /* of the last stage half, where marked */
    bool half;                   /* its map is not larger */
    cl_uint resize, crop;
} named_model;

static const named_model models[] = {
    {"swin_t", 1, 96, 6, 7, 0, false, 232, 224},
    {"swin_s", 1, 96, 18, 7, 0, false, 246, 224},
    {"swin_b", 1, 128, 18, 7, 0, false, 238, 224},
    {"swin_l", 1, 192, 18, 7, 0, false, 248, 224},
    {"swin_b_384", 1, 128, 18, 12, 0, false, 384, 384},
    {"swin_l_384", 1, 192, 18, 12, 0, false, 384, 384},
    {"swin_v2_t", 2, 96, 6, 8, 0, false, 260, 256},
    {"swin_v2_s", 2, 96, 18, 8, 0, false, 260, 256},
    {"swin_v2_b", 2, 128, 18, 8, 0, false, 272, 256},
    {"swin_v2_l", 2, 192, 18, 16, 12, true, 284, 256},
    {"swin_v2_t_w16", 2, 96, 6, 16, 0, true, 284, 256},
    {"swin_v2_s_w16", 2, 96, 18, 16, 0, true, 284, 256},
    {"swin_v2_b_w16", 2, 128, 18, 16, 0, true, 284, 256},
    {"swin_v2_b_w12", 2, 128, 18, 12, 0, true, 213, 192},
    {"swin_v2_l_w12", 2, 192, 18, 12, 0, true, 213, 192},
    {"swin_v2_b_w12to16", 2, 128, 18, 16, 12, true, 284, 256},
    {"swin_v2_l_w12to16", 2, 192, 18, 16, 12, true, 284, 256},
    {"swin_v2_b_w12to24", 2, 128, 18, 24, 12, true, 384, 384},
    {"swin_v2_l_w12to24", 2, 192, 18, 24, 12, true, 384, 384},
};

#define MODELS (sizeof models / sizeof *models)

/* ---- Models with names ---- */

static void set_shape(const named_model *m, wa_swin_config *config)
{
    *config = (wa_swin_config){.struct_size = sizeof *config,
                               .generation = m->generation,
                               .in_channels = 3,
                               .patch = {PATCH, PATCH},
                               .channels = m->channels,
                               .stages = WA_SWIN_STAGES,
                               .classes = CLASSES,
                               .norm_eps = NORM_EPS,
                               .resize = {m->resize},
                               .crop = {m->crop, m->crop},
                               .filter = WINATTN_FILTER_BICUBIC,
                               /* of ImageNet (Deng et al. 2009), as
                                * torchvision has them */
                               .mean = {0.485F, 0.456F, 0.406F},
                               .deviation = {0.229F, 0.224F, 0.225F}};
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++) {
        const bool last = i + 1 == WA_SWIN_STAGES;
        const cl_uint divisor = last && m->half ? 2 : 1;
        const cl_uint channels = wa_swin_channels(config, i);
        config->depths[i] = i == 2 ? m->depth : OTHER_DEPTH;
        config->heads[i] = channels / HEAD_DIM;
        config->hidden[i] = channels * HIDDEN_FACTOR;
        for (int axis = 0; axis < 2; axis++) {
            config->window[i][axis] = m->window / divisor;
            config->position_window[i][axis] = m->pretraining / divisor;
        }
    }
}

/* Is that the model's shape, but for classes, windows and what files do not
 * say? */
static bool has_shape(const wa_swin_config *own, const wa_swin_config *config)
{
    return own->generation == config->generation &&
           own->channels == config->channels &&
           own->stages == config->stages &&
           memcmp(own->patch, config->patch, sizeof own->patch) == 0 &&
           memcmp(own->depths, config->depths, sizeof own->depths) == 0;
}

void wa_swin_config_names(const wa_swin_config *config, size_t size,
                          char *text)
{
    text[0] = 0;
    for (size_t i = 0; i < MODELS; i++) {
        wa_swin_config own;
        set_shape(&models[i], &own);
        if (has_shape(&own, config))
            wa_append(text, size, "%s%s", text[0] ? ", " : "", models[i].name);
    }
}

static bool are_zeros(const cl_float numbers[3])
{
    return numbers[0] == 0 && numbers[1] == 0 && numbers[2] == 0;
}

bool wa_swin_has_no_colours(const wa_swin_config *config)
{
    return are_zeros(config->mean) && are_zeros(config->deviation);
}

void wa_swin_config_complete(wa_swin_config *config)
{
    wa_swin_config own;
    size_t fits = MODELS;
    for (uint32_t i = 0; i < config->stages && i < WA_SWIN_STAGES; i++)
        wa_swin_bound_window(config, i, config->window[i]);
    for (size_t i = 0; fits == MODELS && i < MODELS; i++) {
        set_shape(&models[i], &own);
        if (has_shape(&own, config) &&
            memcmp(own.window, config->window, sizeof own.window) == 0)
            fits = i;
    }
    set_shape(&models[fits == MODELS ? 0 : fits], &own);
    config->struct_size = sizeof *config;
    if (config->rules == WINATTN_SWIN_RULES_AUTO)
        config->rules = WINATTN_SWIN_RULES_TORCHVISION;
    if (config->norm_eps == 0)
        config->norm_eps = own.norm_eps;
    if (config->outer_norm_eps == 0)
        config->outer_norm_eps = wa_swin_rules_of(config)->keeps_eps
                                     ? own.norm_eps
                                     : config->norm_eps;
    if (!config->crop[0] && !config->crop[1])
        memcpy(config->crop, config->image[0] ? config->image : own.crop,
               sizeof own.crop);
    if (!config->resize[0] && !config->resize[1])
        wa_swin_resize(config, own.resize, config->resize);
    if (wa_swin_has_no_colours(config)) {
        memcpy(config->mean, own.mean, sizeof own.mean);
        memcpy(config->deviation, own.deviation, sizeof own.deviation);
    }
}

const char *winattn_swin_config_name(cl_uint index)
{
    return index < MODELS ? models[index].name : NULL;
}

/* A caller of an older version has a shorter struct, one of a newer version a
 * longer one, whose rest becomes 0. */
winattn_status wa_swin_config_give(const wa_swin_config *own,
                                   winattn_swin_config *config)
{
    const size_t size = config ? config->struct_size : 0;
    if (size < sizeof config->struct_size || size > WA_STRUCT_MOST)
        return WA_INVALID("config is NULL, or config.struct_size is not set");
    memset(config, 0, size);
    memcpy(config, own, size < sizeof *own ? size : sizeof *own);
    config->struct_size = size;
    return WINATTN_SUCCESS;
}

winattn_status winattn_swin_config_find(const char *name,
                                        winattn_swin_config *config)
{
    WA_TRY(wa_models_begin());
    WA_WANT(name, "name");
    for (size_t i = 0; i < MODELS; i++)
        if (strcmp(models[i].name, name) == 0) {
            wa_swin_config own;
            set_shape(&models[i], &own);
            return wa_swin_config_give(&own, config);
        }
    return WA_INVALID("no model is called %.64s", name);
}

/* ---- Which shapes can be ---- */

static winattn_status check_range(const char *name, cl_uint value,
                                  cl_uint least, cl_uint most)
{
    if (value >= least && value <= most)
        return WINATTN_SUCCESS;
    return WA_INVALID("config.%s is %u, not between %u and %u", name,
                      (unsigned)value, (unsigned)least, (unsigned)most);
}

static winattn_status check_windows(const wa_swin_config *config, uint32_t i)
{
    for (int axis = 0; axis < 2; axis++) {
        const cl_uint position = config->position_window[i][axis];
        WA_TRY(check_range("window", config->window[i][axis], 1,
                           WA_SWIN_WINDOW_MOST));
        WA_TRY(check_range("position_window", position, 0,
                           config->generation == 2 ? WA_SWIN_WINDOW_MOST : 0));
    }
    return WINATTN_SUCCESS;
}

static winattn_status check_stage(const wa_swin_config *config, uint32_t i)
{
    const cl_uint channels = wa_swin_channels(config, i);
    WA_TRY(check_range("depths", config->depths[i], 1, WA_SWIN_DEPTH_MOST));
    WA_TRY(check_range("heads", config->heads[i], 1, WA_SWIN_HEADS_MOST));
    WA_TRY(check_range("hidden", config->hidden[i], 1, WA_SWIN_HIDDEN_MOST));
    if (channels % config->heads[i] != 0 ||
        channels / config->heads[i] > WA_SWIN_HEAD_DIM_MOST)
        return WA_UNSUPPORTED("%u channels of stage %u are not %u heads of at "
                              "most %u channels each",
                              (unsigned)channels, (unsigned)i,
                              (unsigned)config->heads[i],
                              WA_SWIN_HEAD_DIM_MOST);
    return check_windows(config, i);
}

static winattn_status check_no_stage(const wa_swin_config *config, uint32_t i)
{
    if (config->depths[i] || config->heads[i] || config->hidden[i] ||
        config->window[i][0] || config->window[i][1] ||
        config->position_window[i][0] || config->position_window[i][1])
        return WA_INVALID(
            "config says something of stage %u, but has %u stages",
            (unsigned)i, (unsigned)config->stages);
    return WINATTN_SUCCESS;
}

static winattn_status check_pictures(const wa_swin_config *config)
{
    WA_TRY(check_range("filter", (cl_uint)config->filter, 0,
                       WINATTN_FILTER_BILINEAR));
    for (int i = 0; i < 3; i++)
        if (!isfinite(config->mean[i]) || !isfinite(config->deviation[i]) ||
            !(config->deviation[i] > 0))
            return WA_INVALID("config.mean[%d] or deviation[%d] is not "
                              "finite, or the deviation not above 0",
                              i, i);
    return WINATTN_SUCCESS;
}

winattn_status wa_swin_config_check(const wa_swin_config *config)
{
    WA_TRY(check_range("generation", config->generation, 1, 2));
    WA_TRY(check_range("in_channels", config->in_channels, 1, 1024));
    WA_TRY(check_range("patch", config->patch[0], 1, 64));
    WA_TRY(check_range("patch", config->patch[1], 1, 64));
    WA_TRY(
        check_range("channels", config->channels, 1, WA_SWIN_CHANNELS_MOST));
    WA_TRY(check_range("stages", config->stages, 1, WA_SWIN_STAGES));
    WA_TRY(check_range("classes", config->classes, 0, WA_SWIN_CLASSES_MOST));
    for (uint32_t i = 0; i < WA_SWIN_STAGES; i++)
        WA_TRY(i < config->stages ? check_stage(config, i)
                                  : check_no_stage(config, i));
    if (!isfinite(config->norm_eps) || !(config->norm_eps > 0) ||
        !isfinite(config->outer_norm_eps) || config->outer_norm_eps < 0)
        return WA_INVALID("config.norm_eps is not finite or not above 0, or "
                          "outer_norm_eps not finite or below 0");
    if (config->rules != WINATTN_SWIN_RULES_AUTO &&
        !wa_swin_rules_name(config->rules))
        return WA_INVALID("config.rules is none of WINATTN_SWIN_RULES_");
    for (int i = 0; i < 2; i++)
        WA_TRY(check_range("image", config->image[i], 0, 65535));
    if (!config->image[0] != !config->image[1])
        return WA_INVALID("config.image has a height or a width, not both");
    if (config->no_norm && config->classes)
        return WA_INVALID("config has classes, but no_norm");
    return check_pictures(config);
}
