/* SPDX-License-Identifier: Apache-2.0
 * Keys of timm's config.json. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "models/swin_keys.h"
#include "models/swin_rules.h"

/* The number at the text's start, which moves behind it; 0: there is none. */
static cl_uint next_number(const char **text, cl_uint most)
{
    cl_uint number = 0;
    for (; **text >= '0' && **text <= '9'; ++*text)
        number =
            number > most ? number : 10 * number + (cl_uint)(**text - '0');
    return number <= most ? number : 0;
}

/* timm's names end with ..._window8_256 or ..._window12to16_192to256, and with
 * the pictures' size alone where tensors say the windows. What model_args say
 * comes later, and counts instead. */
static winattn_status take_architecture(wa_key_context *c, const cJSON *item)
{
    static const char mark[] = "_window";
    cl_uint sizes[2][2] = {{0}};
    if (!cJSON_IsString(item))
        return wa_key_refuse(c, item, "is no text");
    const char *name = item->valuestring;
    const char *at = strstr(name, mark);
    at = at ? at + sizeof mark - 1 : NULL;
    for (int i = 0; at && i < 2; i++) {
        sizes[i][0] = sizes[i][1] = next_number(&at, WA_SIDE_MOST);
        if (strncmp(at, "to", 2) == 0) {
            at += 2;
            sizes[i][1] = next_number(&at, WA_SIDE_MOST);
        }
        at += *at == '_';
    }
    if (sizes[0][0] > WA_SWIN_WINDOW_MOST || sizes[0][1] > WA_SWIN_WINDOW_MOST)
        return wa_key_refuse(c, item, "names windows of more than 64");
    wa_swin_config old = *c->config;
    old.rules = WINATTN_SWIN_RULES_TIMM;
    old.image[0] = old.image[1] = sizes[1][0];
    for (uint32_t i = 0; sizes[0][0] && i < c->config->stages; i++) {
        cl_uint *positions = c->beside->position_window[i];
        c->beside->window[i][0] = c->beside->window[i][1] = sizes[0][1];
        if (sizes[0][0] == sizes[0][1])
            continue;
        positions[0] = positions[1] = sizes[0][0];
        wa_swin_bound_window(&old, i, positions);
    }
    c->beside->image[0] = c->beside->image[1] = sizes[1][1];
    return WINATTN_SUCCESS;
}

static const wa_key timm_arguments[] = {
    {"img_size", wa_key_take_image, WA_KEY_NO_SIZE},
    {"window_size", wa_key_take_window, WA_KEY_NO_WINDOW},
    {"pretrained_window_sizes", wa_key_take_old_windows, WA_KEY_NO_WINDOW},
    {"patch_size", wa_key_hold_patch, WA_KEY_HELD},
    {"in_chans", wa_key_hold_input, WA_KEY_HELD},
    {"embed_dim", wa_key_hold_channels, WA_KEY_HELD},
    {"depths", wa_key_hold_depths, WA_KEY_HELD},
    {"num_heads", wa_key_hold_heads, WA_KEY_HELD},
    {"head_dim", wa_key_hold_head_dim, WA_KEY_HELD},
    {"mlp_ratio", wa_key_hold_mlp_ratio, WA_KEY_HELD},
    {"qkv_bias", wa_key_hold_qkv_bias, WA_KEY_HELD},
    {"act_layer", wa_key_want_gelu, WA_KEY_NOT_GELU},
    {"norm_layer", wa_key_want_layer_norm, "is not layernorm"},
    {"embed_layer", wa_key_want_nothing, WA_KEY_SET},
    {"global_pool", wa_key_want_average, WA_KEY_NOT_AVG},
    {"always_partition", wa_key_want_nothing, WA_KEY_SET},
    {"patch_norm", wa_key_want_yes, WA_KEY_FALSE},
};

/* These are of training, of what is returned, of which sizes are let in. */
static const char timm_arguments_passed[] =
    "attn_drop_rate drop_path_rate drop_rate dynamic_img_size features_only "
    "out_indices output_fmt proj_drop_rate strict_img_size weight_init";

static bool take_input_size(wa_key_context *c, const cJSON *item)
{
    return wa_key_read_sides(item, WA_SIDE_MOST, c->input);
}

static bool take_interpolation(wa_key_context *c, const cJSON *item)
{
    const bool is_cubic = wa_key_is_text(item, "bicubic");
    c->beside->has_filter = true;
    c->beside->filter =
        is_cubic ? WINATTN_FILTER_BICUBIC : WINATTN_FILTER_BILINEAR;
    return is_cubic || wa_key_is_text(item, "bilinear");
}

static bool take_crop_pct(wa_key_context *c, const cJSON *item)
{
    c->crop_fraction = item->valuedouble;
    return cJSON_IsNumber(item) && c->crop_fraction > 0.01 &&
           c->crop_fraction <= 1;
}

static bool take_crop_mode(wa_key_context *c, const cJSON *item)
{
    c->squashes = wa_key_is_text(item, "squash");
    return c->squashes || wa_key_is_text(item, "center");
}

/* Others are where the weights are from, and names of classes. */
static const wa_key timm_pictures[] = {
    {"input_size", take_input_size, WA_KEY_NO_SIZE},
    {"interpolation", take_interpolation, "is neither bicubic nor bilinear"},
    {"crop_pct", take_crop_pct, "is no number from 0.01 to 1"},
    {"crop_mode", take_crop_mode, "is neither center nor squash"},
    {"mean", wa_key_take_mean, WA_KEY_NO_COLOURS},
    {"std", wa_key_take_deviation, WA_KEY_NO_COLOURS},
};

static winattn_status take_pretrained(wa_key_context *c, const cJSON *item)
{
    const char *name = c->name;
    c->name = "config.json, pretrained_cfg";
    for (size_t i = 0; i < WA_COUNT(timm_pictures); i++) {
        const cJSON *own =
            cJSON_GetObjectItemCaseSensitive(item, timm_pictures[i].name);
        if (own && !cJSON_IsNull(own))
            WA_TRY(wa_key_read(c, &timm_pictures[i], own));
    }
    c->name = name;
    if (c->input[0] && c->crop_fraction == 0)
        c->crop_fraction = 0.875; /* what timm takes without a word */
    /* the model is made for these, unless img_size says otherwise */
    if (cJSON_IsTrue(
            cJSON_GetObjectItemCaseSensitive(item, "fixed_input_size")) &&
        c->input[0])
        memcpy(c->beside->image, c->input, sizeof c->input);
    return WINATTN_SUCCESS;
}

/* A model that takes pictures of any size, and is not told which it is made
 * for, is made for these, whatever its name says (build_model_with_cfg). */
#define SIZE_UNTOLD 224

static winattn_status take_arguments(wa_key_context *c, const cJSON *item)
{
    c->name = "config.json, model_args";
    if (cJSON_IsTrue(
            cJSON_GetObjectItemCaseSensitive(item, "dynamic_img_size")) ||
        cJSON_IsFalse(
            cJSON_GetObjectItemCaseSensitive(item, "strict_img_size")))
        c->beside->image[0] = c->beside->image[1] = SIZE_UNTOLD;
    return wa_key_read_all(c, item, timm_arguments, WA_COUNT(timm_arguments),
                           timm_arguments_passed);
}

/* The model sees what it is made for. Pictures that are no squares keep their
 * ratio in timm, which a resizing cannot say here. */
static void set_pictures(const wa_key_context *c)
{
    wa_swin_beside *b = c->beside;
    const cl_uint *size = b->image[0] ? b->image : c->input;
    if (!size[0] || c->crop_fraction == 0)
        return;
    memcpy(b->crop, size, sizeof b->crop);
    for (int i = 0; i < (c->squashes ? 2 : 1); i++)
        if (c->squashes || size[0] == size[1])
            b->resize[i] = (cl_uint)floor(size[i] / c->crop_fraction);
}

/* At the top, beside what is read by name. */
static const wa_key timm_keys[] = {
    {"global_pool", wa_key_want_average, WA_KEY_NOT_AVG},
};

/* Also of transformers' wrapper of timm's models. */
static const char timm_keys_passed[] =
    "architecture model_args pretrained_cfg num_features label_names "
    "label_descriptions labels architectures do_pooling model_type";

winattn_status wa_swin_keys_timm(const cJSON *object, const wa_swin_file *file,
                                 const wa_swin_config *config,
                                 wa_swin_beside *beside)
{
    /* the later one counts */
    static const struct {
        const char *name;
        winattn_status (*take)(wa_key_context *c, const cJSON *item);
    } order[] = {{"architecture", take_architecture},
                 {"pretrained_cfg", take_pretrained},
                 {"model_args", take_arguments}};
    wa_key_context c = {.name = "config.json",
                        .file = file,
                        .config = config,
                        .beside = beside};
    /* once the keys of pretrained_cfg stood at the top, among others */
    const bool is_flat =
        !cJSON_GetObjectItemCaseSensitive(object, "pretrained_cfg");
    if (!is_flat)
        WA_TRY(wa_key_read_all(&c, object, timm_keys, WA_COUNT(timm_keys),
                               timm_keys_passed));
    for (size_t i = 0; i < WA_COUNT(order); i++) {
        const cJSON *item =
            is_flat && order[i].take == take_pretrained
                ? object
                : cJSON_GetObjectItemCaseSensitive(object, order[i].name);
        if (item && !cJSON_IsNull(item))
            WA_TRY(order[i].take(&c, item));
    }
    set_pictures(&c);
    return WINATTN_SUCCESS;
}
