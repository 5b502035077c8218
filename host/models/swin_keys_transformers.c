/* SPDX-License-Identifier: Apache-2.0
 * Keys of transformers' config.json and preprocessor_config.json. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "models/swin_keys.h"

/* ---- The model ---- */

/* The backbone shifts all maps, also those that one window covers. */
static winattn_status take_architectures(wa_key_context *c, const cJSON *item)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, item) if (
        wa_key_is_text(
            one, "SwinBackbone")) return wa_key_refuse(c, item,
                                                       "is SwinBackbone, "
                                                       "whose way to shift "
                                                       "maps is not computed");
    return WINATTN_SUCCESS;
}

static winattn_status take_model_type(wa_key_context *c, const cJSON *item)
{
    return wa_key_is_text(item, c->config->generation == 2 ? "swinv2" : "swin")
               ? WINATTN_SUCCESS
               : wa_key_refuse(c, item,
                               c->config->generation == 2 ? "is not swinv2"
                                                          : "is not swin");
}

static const wa_key transformers_keys[] = {
    {"model_type", take_model_type},
    {"architectures", take_architectures},
    {"image_size", wa_key_take_image},
    {"window_size", wa_key_take_window},
    {"pretrained_window_sizes", wa_key_take_old_windows},
    {"layer_norm_eps", wa_key_take_eps},
    {"patch_size", wa_key_hold_patch},
    {"num_channels", wa_key_hold_input},
    {"embed_dim", wa_key_hold_channels},
    {"depths", wa_key_hold_depths},
    {"num_heads", wa_key_hold_heads},
    {"mlp_ratio", wa_key_hold_mlp_ratio},
    {"qkv_bias", wa_key_hold_qkv_bias},
    {"hidden_act", wa_key_want_gelu},
    {"use_absolute_embeddings", wa_key_want_nothing},
    {"path_norm", wa_key_want_yes},
    {"patch_norm", wa_key_want_yes},
    /* of training, of what is returned, of where the file is from */
    {"attention_probs_dropout_prob", NULL},
    {"drop_path_rate", NULL},
    {"encoder_stride", NULL},
    {"hidden_dropout_prob", NULL},
    {"hidden_size", NULL},
    {"num_hidden_layers", NULL},
    {"num_layers", NULL},
    {"out_features", NULL},
    {"out_indices", NULL},
    {"stage_names", NULL},
};

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
                           WA_COUNT(transformers_keys));
}

/* ---- Pictures ---- */

static winattn_status take_size(const wa_key_context *c, const cJSON *item,
                                cl_uint size[2], cl_uint *shorter)
{
    const cJSON *height = cJSON_GetObjectItemCaseSensitive(item, "height");
    const cJSON *width = cJSON_GetObjectItemCaseSensitive(item, "width");
    const cJSON *edge =
        cJSON_GetObjectItemCaseSensitive(item, "shortest_edge");
    int keys = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, item) keys += !cJSON_IsNull(one);
    if (cJSON_IsObject(item) && keys == 2 && height && width) {
        size[0] = wa_key_read_count(height, WA_SIDE_MOST);
        size[1] = wa_key_read_count(width, WA_SIDE_MOST);
    } else if (cJSON_IsObject(item) && keys == 1 && edge && shorter) {
        *shorter = wa_key_read_count(edge, WA_SIDE_MOST);
        return *shorter ? WINATTN_SUCCESS
                        : wa_key_refuse(c, item, "is no size that is known");
    } else if (!cJSON_IsObject(item)) {
        wa_key_read_sides(item, WA_SIDE_MOST, size);
    }
    return size[0] && size[1]
               ? WINATTN_SUCCESS
               : wa_key_refuse(c, item, "is no size that is known");
}

static winattn_status take_resize(wa_key_context *c, const cJSON *item)
{
    return take_size(c, item, c->size, &c->shorter);
}

static winattn_status take_crop(wa_key_context *c, const cJSON *item)
{
    return wa_key_is_nothing(item) ? WINATTN_SUCCESS
                                   : take_size(c, item, c->input, NULL);
}

static winattn_status take_crops(wa_key_context *c, const cJSON *item)
{
    c->crops = cJSON_IsTrue(item);
    return WINATTN_SUCCESS;
}

/* Numbers of Pillow's filters. */
static winattn_status take_resample(wa_key_context *c, const cJSON *item)
{
    const cl_uint number = wa_key_read_count(item, 10);
    if (number != 2 && number != 3)
        return wa_key_refuse(
            c, item,
            "is neither 2 (bilinear) nor 3 (bicubic), the filters "
            "that there are");
    c->beside->has_filter = true;
    c->beside->filter =
        number == 3 ? WINATTN_FILTER_BICUBIC : WINATTN_FILTER_BILINEAR;
    return WINATTN_SUCCESS;
}

static winattn_status want_255th(wa_key_context *c, const cJSON *item)
{
    return cJSON_IsNumber(item) && fabs(item->valuedouble * 255 - 1) < 1e-6
               ? WINATTN_SUCCESS
               : wa_key_refuse(c, item, "is not 1 / 255");
}

static winattn_status take_normalises(wa_key_context *c, const cJSON *item)
{
    c->normalises = cJSON_IsTrue(item);
    return WINATTN_SUCCESS;
}

static const wa_key picture_keys[] = {
    {"do_resize", wa_key_want_yes},
    {"size", take_resize},
    {"resample", take_resample},
    {"do_center_crop", take_crops},
    {"crop_size", take_crop},
    {"do_rescale", wa_key_want_yes},
    {"rescale_factor", want_255th},
    {"do_normalize", take_normalises},
    {"image_mean", wa_key_take_mean},
    {"image_std", wa_key_take_deviation},
    /* which class it was, and how it takes pictures in Python */
    {"_valid_processor_keys", NULL},
    {"data_format", NULL},
    {"default_to_square", NULL},
    {"device", NULL},
    {"disable_grouping", NULL},
    {"do_convert_rgb", NULL},
    {"feature_extractor_type", NULL},
    {"image_processor_type", NULL},
    {"input_data_format", NULL},
    {"num_channels", NULL},
    {"return_tensors", NULL},
};

winattn_status wa_swin_keys_pictures(const cJSON *object,
                                     wa_swin_beside *beside)
{
    static const cl_float ones[3] = {1, 1, 1};
    wa_key_context c = {.name = "preprocessor_config.json",
                        .beside = beside,
                        .normalises = true};
    if (object)
        WA_TRY(
            wa_key_read_all(&c, object, picture_keys, WA_COUNT(picture_keys)));
    if (c.shorter && !(c.crops && c.input[0]))
        return wa_fail(WINATTN_INVALID_FILE,
                       "preprocessor_config.json: size is a shortest_edge, "
                       "and nothing is cut out of that: pictures of sizes of "
                       "their own are not computed in one model; say --resize "
                       "and --no-config");
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
