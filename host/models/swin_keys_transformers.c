/* SPDX-License-Identifier: Apache-2.0
 * Keys of transformers' config.json and preprocessor_config.json. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "models/swin_keys.h"

/* ---- The model ---- */

/* The backbone shifts all maps, also those that one window covers. */
static bool take_architectures(wa_key_context *c, const cJSON *item)
{
    const cJSON *one;
    bool shifts_all = false;
    (void)c;
    cJSON_ArrayForEach(one, item) shifts_all |=
        wa_key_is_text(one, "SwinBackbone");
    return !shifts_all;
}

static bool take_model_type(wa_key_context *c, const cJSON *item)
{
    const bool is_v2 = c->config->generation == 2;
    c->why = is_v2 ? "is not swinv2" : "is not swin";
    return wa_key_is_text(item, is_v2 ? "swinv2" : "swin");
}

static const wa_key transformers_keys[] = {
    {"model_type", take_model_type, "is not swin"},
    {"architectures", take_architectures,
     "is SwinBackbone, whose way to shift maps is not computed"},
    {"image_size", wa_key_take_image, WA_KEY_NO_SIZE},
    {"window_size", wa_key_take_window, WA_KEY_NO_WINDOW},
    {"pretrained_window_sizes", wa_key_take_old_windows, WA_KEY_NO_WINDOW},
    {"layer_norm_eps", wa_key_take_eps, "is no number between 0 and 1"},
    {"patch_size", wa_key_hold_patch, WA_KEY_HELD},
    {"num_channels", wa_key_hold_input, WA_KEY_HELD},
    {"embed_dim", wa_key_hold_channels, WA_KEY_HELD},
    {"depths", wa_key_hold_depths, WA_KEY_HELD},
    {"num_heads", wa_key_hold_heads, WA_KEY_HELD},
    {"mlp_ratio", wa_key_hold_mlp_ratio, WA_KEY_HELD},
    {"qkv_bias", wa_key_hold_qkv_bias, WA_KEY_HELD},
    {"hidden_act", wa_key_want_gelu, WA_KEY_NOT_GELU},
    {"use_absolute_embeddings", wa_key_want_nothing, WA_KEY_SET},
    {"path_norm", wa_key_want_yes, WA_KEY_FALSE},
    {"patch_norm", wa_key_want_yes, WA_KEY_FALSE},
};

/* These are of training, of what is returned, of where the file is from. */
static const char transformers_keys_passed[] =
    "attention_probs_dropout_prob drop_path_rate encoder_stride "
    "hidden_dropout_prob hidden_size num_hidden_layers num_layers "
    "out_features out_indices stage_names";

winattn_status wa_swin_keys_transformers(const cJSON *object,
                                         const wa_swin_file *file,
                                         const wa_swin_config *config,
                                         wa_swin_beside *beside)
{
    wa_key_context c = {.name = "config.json",
                        .file = file,
                        .config = config,
                        .beside = beside};
    return wa_key_read_all(&c, object, transformers_keys,
                           WA_COUNT(transformers_keys),
                           transformers_keys_passed);
}

/* ---- Pictures ---- */

static bool take_size(const cJSON *item, cl_uint size[2], cl_uint *shorter)
{
    const cJSON *height = cJSON_GetObjectItemCaseSensitive(item, "height");
    const cJSON *width = cJSON_GetObjectItemCaseSensitive(item, "width");
    const cJSON *edge =
        cJSON_GetObjectItemCaseSensitive(item, "shortest_edge");
    int keys = 0;
    const cJSON *one;
    if (!cJSON_IsObject(item))
        return wa_key_read_sides(item, WA_SIDE_MOST, size);
    cJSON_ArrayForEach(one, item) keys += !cJSON_IsNull(one);
    if (keys == 1 && edge && shorter)
        return (*shorter = wa_key_read_count(edge, WA_SIDE_MOST)) != 0;
    if (keys == 2 && height && width) {
        size[0] = wa_key_read_count(height, WA_SIDE_MOST);
        size[1] = wa_key_read_count(width, WA_SIDE_MOST);
    }
    return size[0] && size[1];
}

static bool take_resize(wa_key_context *c, const cJSON *item)
{
    return take_size(item, c->size, &c->shorter);
}

static bool take_crop(wa_key_context *c, const cJSON *item)
{
    return wa_key_is_nothing(item) || take_size(item, c->input, NULL);
}

static bool take_crops(wa_key_context *c, const cJSON *item)
{
    c->crops = cJSON_IsTrue(item);
    return true;
}

/* Numbers of Pillow's filters. */
static bool take_resample(wa_key_context *c, const cJSON *item)
{
    const cl_uint number = wa_key_read_count(item, 10);
    c->beside->has_filter = true;
    c->beside->filter =
        number == 3 ? WINATTN_FILTER_BICUBIC : WINATTN_FILTER_BILINEAR;
    return number == 2 || number == 3;
}

static bool want_255th(wa_key_context *c, const cJSON *item)
{
    (void)c;
    return cJSON_IsNumber(item) && fabs(item->valuedouble * 255 - 1) < 1e-6;
}

static bool take_normalises(wa_key_context *c, const cJSON *item)
{
    c->normalises = cJSON_IsTrue(item);
    return true;
}

static const wa_key picture_keys[] = {
    {"do_resize", wa_key_want_yes, WA_KEY_FALSE},
    {"size", take_resize, "is no size that is known"},
    {"resample", take_resample,
     "is neither 2 (bilinear) nor 3 (bicubic), the filters that there are"},
    {"do_center_crop", take_crops, NULL},
    {"crop_size", take_crop, "is no size that is known"},
    {"do_rescale", wa_key_want_yes, WA_KEY_FALSE},
    {"rescale_factor", want_255th, "is not 1 / 255"},
    {"do_normalize", take_normalises, NULL},
    {"image_mean", wa_key_take_mean, WA_KEY_NO_COLOURS},
    {"image_std", wa_key_take_deviation, WA_KEY_NO_COLOURS},
};

/* Which class it was, and how it takes pictures in Python. */
static const char picture_keys_passed[] =
    "_valid_processor_keys data_format default_to_square device "
    "disable_grouping do_convert_rgb feature_extractor_type "
    "image_processor_type input_data_format num_channels return_tensors";

winattn_status wa_swin_keys_pictures(const cJSON *object,
                                     wa_swin_beside *beside)
{
    static const cl_float ones[3] = {1, 1, 1};
    wa_key_context c = {.name = "preprocessor_config.json",
                        .beside = beside,
                        .normalises = true};
    if (object)
        WA_TRY(wa_key_read_all(&c, object, picture_keys,
                               WA_COUNT(picture_keys), picture_keys_passed));
    if (c.shorter && !(c.crops && c.input[0]))
        return WA_BAD_FILE(
            "preprocessor_config.json: size is a shortest_edge, and nothing "
            "is cut out of that: pictures of sizes of their own are not "
            "computed in one model; say --resize and --no-config");
    if (!c.normalises) {
        beside->has_colours = true;
        memset(beside->mean, 0, sizeof beside->mean);
        memcpy(beside->deviation, ones, sizeof ones);
    }
    beside->resize[0] = c.shorter ? c.shorter : c.size[0];
    beside->resize[1] = c.shorter ? 0 : c.size[1];
    if (c.crops && c.input[0])
        memcpy(beside->crop, c.input, sizeof c.input);
    else
        memcpy(beside->crop, c.size, sizeof c.size);
    return WINATTN_SUCCESS;
}
