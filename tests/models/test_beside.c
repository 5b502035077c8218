/* SPDX-License-Identifier: Apache-2.0
 * Files beside the weights, key by key: each key of each file that a library
 * writes, and each argument that its models take, is followed, or compared
 * with the tensors, or refused with its name, or says nothing of what is
 * computed.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "kit/asserts.h"
#include "kit/scratch.h"
#include "models/swin_beside.h"

/* What becomes of a key that says something else. */
typedef enum fate {
    PASSED, /* nothing */
    FOLLOWED,
    REFUSED
} fate;

typedef struct key_row {
    const char *object; /* in the file; NULL: the file itself */
    const char *name;
    const char *value; /* another one than the file has */
    fate fate;
} key_row;

/* ---- transformers ---- */

static const key_row transformers_rows[] = {
    {NULL, "model_type", "\"swin\"", REFUSED},
    {NULL, "architectures", "[\"SwinBackbone\"]", REFUSED},
    {NULL, "image_size", "[32, 96]", FOLLOWED},
    {NULL, "image_size", "[64]", REFUSED},
    {NULL, "window_size", "3", FOLLOWED},
    {NULL, "window_size", "65", REFUSED},
    {NULL, "window_size", "-4", REFUSED},
    {NULL, "window_size", "4.5", REFUSED},
    {NULL, "window_size", "\"4\"", REFUSED},
    {NULL, "pretrained_window_sizes", "[3, 3, 0, 3]", FOLLOWED},
    {NULL, "pretrained_window_sizes", "[3, 3]", REFUSED},
    {NULL, "layer_norm_eps", "1e-6", FOLLOWED},
    {NULL, "layer_norm_eps", "-1e-6", REFUSED},
    {NULL, "patch_size", "4", REFUSED},
    {NULL, "num_channels", "1", REFUSED},
    {NULL, "embed_dim", "8", REFUSED},
    {NULL, "depths", "[2, 2, 6, 2]", REFUSED},
    {NULL, "depths", "[2, 2, 2]", REFUSED},
    {NULL, "num_heads", "[1, 2, 4, 4]", REFUSED},
    {NULL, "mlp_ratio", "4.0", REFUSED},
    {NULL, "qkv_bias", "false", REFUSED},
    {NULL, "hidden_act", "\"relu\"", REFUSED},
    {NULL, "hidden_act", "\"gelu_new\"", REFUSED},
    {NULL, "use_absolute_embeddings", "true", REFUSED},
    {NULL, "path_norm", "false", REFUSED},
    {NULL, "quantization_config", "{\"bits\": 8}", REFUSED},
    {NULL, "a_later_version's", "1", REFUSED},
    {NULL, "a_later_version's", "false", PASSED},
    {NULL, "patch_norm", "false", REFUSED},
    {NULL, "_attn_implementation_autoset", "true", PASSED},
    {NULL, "_num_labels", "7", PASSED},
    {NULL, "max_length", "128", PASSED},
    {NULL, "padding", "\"max_length\"", PASSED},
    {NULL, "gradient_checkpointing", "true", PASSED},
    {NULL, "pruned_heads", "{\"0\": [1]}", REFUSED},
    {NULL, "attention_probs_dropout_prob", "0.5", PASSED},
    {NULL, "drop_path_rate", "0.5", PASSED},
    {NULL, "dtype", "\"float32\"", PASSED},
    {NULL, "torch_dtype", "\"float32\"", PASSED},
    {NULL, "encoder_stride", "8", PASSED},
    {NULL, "hidden_dropout_prob", "0.5", PASSED},
    {NULL, "hidden_size", "7", PASSED},
    {NULL, "id2label", "{\"0\": \"cat\"}", PASSED},
    {NULL, "initializer_range", "0.5", PASSED},
    {NULL, "label2id", "{\"cat\": 0}", PASSED},
    {NULL, "num_labels", "7", PASSED},
    {NULL, "num_layers", "7", PASSED},
    {NULL, "out_features", "[\"stage1\"]", PASSED},
    {NULL, "out_indices", "[1]", PASSED},
    {NULL, "output_attentions", "true", PASSED},
    {NULL, "output_hidden_states", "true", PASSED},
    {NULL, "problem_type", "\"regression\"", PASSED},
    {NULL, "return_dict", "true", PASSED},
    {NULL, "stage_names", "[\"stem\"]", PASSED},
    {NULL, "transformers_version", "\"4.0\"", PASSED},
    {NULL, "use_cache", "true", PASSED},
    {NULL, "tie_word_embeddings", "true", PASSED},
    {NULL, "chunk_size_feed_forward", "1", PASSED},
    {NULL, "_name_or_path", "\"x\"", PASSED},
    {NULL, "_commit_hash", "\"x\"", PASSED},
    {NULL, "finetuning_task", "\"x\"", PASSED},
    {NULL, "num_hidden_layers", "7", PASSED},
};

/* As its ViTImageProcessor writes it. */
static const char pictures_text[] =
    "{\"do_normalize\": true, \"do_rescale\": true, \"do_resize\": true,"
    " \"image_mean\": [0.485, 0.456, 0.406],"
    " \"image_processor_type\": \"ViTImageProcessor\","
    " \"image_std\": [0.229, 0.224, 0.225], \"resample\": 3,"
    " \"rescale_factor\": 0.00392156862745098,"
    " \"size\": {\"height\": 224, \"width\": 160}}";

static const key_row picture_rows[] = {
    {NULL, "do_normalize", "false", FOLLOWED},
    {NULL, "do_rescale", "false", REFUSED},
    {NULL, "do_resize", "false", REFUSED},
    {NULL, "image_mean", "[0.5, 0.5, 0.5]", FOLLOWED},
    {NULL, "image_mean", "[0.5, 0.5]", REFUSED},
    {NULL, "image_std", "[0.5, 0.5, 0.5]", FOLLOWED},
    {NULL, "resample", "2", FOLLOWED},
    {NULL, "resample", "0", REFUSED},
    {NULL, "rescale_factor", "1", REFUSED},
    {NULL, "size", "192", FOLLOWED},
    {NULL, "size", "{\"height\": 9, \"width\": 9, \"longest_edge\": null}",
     FOLLOWED},
    {NULL, "resample", "null", FOLLOWED},
    {NULL, "size", "{\"longest_edge\": 256}", REFUSED},
    {NULL, "size", "{\"height\": 0, \"width\": 7}", REFUSED},
    {NULL, "do_center_crop", "true", PASSED}, /* without a size */
    {NULL, "crop_size", "192", PASSED},       /* without do_center_crop */
    {NULL, "do_pad", "true", REFUSED},
    {NULL, "image_processor_type", "\"x\"", PASSED},
    {NULL, "feature_extractor_type", "\"x\"", PASSED},
    {NULL, "processor_class", "\"x\"", PASSED},
    {NULL, "do_convert_rgb", "true", PASSED},
    {NULL, "default_to_square", "true", PASSED},
    {NULL, "data_format", "\"x\"", PASSED},
};

/* ---- timm ---- */

static const char arguments[] = "model_args";
static const char pretrained[] = "pretrained_cfg";

static const key_row timm_rows[] = {
    {NULL, "architecture", "\"swinv2_base_window12to16_192to256\"", FOLLOWED},
    {NULL, "architecture", "\"swinv2_tiny_window99_256\"", REFUSED},
    {NULL, "architecture", "7", REFUSED},
    {NULL, "global_pool", "\"max\"", REFUSED},
    {NULL, "global_pool", "null", PASSED},
    {NULL, "_attn_implementation_autoset", "true", PASSED},
    {NULL, "num_classes", "7", PASSED},
    {NULL, "num_features", "7", PASSED},
    {NULL, "label_names", "[\"cat\"]", PASSED},
    {NULL, "label_descriptions", "{\"cat\": \"cat\"}", PASSED},
    {NULL, "a_later_version's", "1", REFUSED},
    {arguments, "img_size", "128", FOLLOWED},
    {arguments, "img_size", "[128, 0]", REFUSED},
    {arguments, "img_size", "null", FOLLOWED}, /* 224, as it is dynamic */
    {arguments, "window_size", "6", FOLLOWED},
    {arguments, "window_size", "[6, 4]", FOLLOWED},
    {arguments, "window_size", "[[6, 4], 4, 4, 2]", FOLLOWED},
    {arguments, "window_size", "[4, 4, 4]", REFUSED},
    {arguments, "window_size", "[4, 4, 4, 99]", REFUSED},
    {arguments, "pretrained_window_sizes", "[3, 3, 3, 0]", FOLLOWED},
    {arguments, "patch_size", "4", REFUSED},
    {arguments, "in_chans", "1", REFUSED},
    {arguments, "embed_dim", "8", REFUSED},
    {arguments, "depths", "[2, 2, 6, 2]", REFUSED},
    {arguments, "num_heads", "[1, 2, 4, 4]", REFUSED},
    {arguments, "head_dim", "8", REFUSED},
    {arguments, "mlp_ratio", "4", REFUSED},
    {arguments, "qkv_bias", "false", REFUSED},
    {arguments, "act_layer", "\"relu\"", REFUSED},
    {arguments, "norm_layer", "\"rmsnorm\"", REFUSED},
    {arguments, "embed_layer", "\"x\"", REFUSED},
    {arguments, "global_pool", "\"\"", REFUSED},
    {arguments, "always_partition", "true", REFUSED},
    {arguments, "a_later_version's", "1", REFUSED},
    {arguments, "num_classes", "7", PASSED},
    {arguments, "dynamic_img_size", "false", PASSED},
    {arguments, "strict_img_size", "false", PASSED},
    {arguments, "drop_rate", "0.5", PASSED},
    {arguments, "proj_drop_rate", "0.5", PASSED},
    {arguments, "attn_drop_rate", "0.5", PASSED},
    {arguments, "drop_path_rate", "0.5", PASSED},
    {arguments, "features_only", "true", PASSED},
    {arguments, "out_indices", "[1]", PASSED},
    {arguments, "weight_init", "\"x\"", PASSED},
    {pretrained, "input_size", "[3, 128, 0]", REFUSED},
    {pretrained, "input_size", "[3, 128, 96]", PASSED}, /* img_size counts */
    {pretrained, "fixed_input_size", "true", PASSED},
    {pretrained, "interpolation", "\"bilinear\"", FOLLOWED},
    {pretrained, "interpolation", "\"lanczos\"", REFUSED},
    {pretrained, "crop_pct", "2", REFUSED},
    {pretrained, "crop_pct", "0.5", PASSED}, /* as img_size is no square */
    {pretrained, "crop_mode", "\"squash\"", FOLLOWED},
    {pretrained, "crop_mode", "\"border\"", REFUSED},
    {pretrained, "mean", "[0.5, 0.5, 0.5]", FOLLOWED},
    {pretrained, "mean", "7", REFUSED},
    {pretrained, "std", "[0.5, 0.5, 0.5]", FOLLOWED},
    {pretrained, "tag", "\"x\"", PASSED},
    {pretrained, "custom_load", "true", PASSED},
    {pretrained, "num_classes", "7", PASSED},
    {pretrained, "pool_size", "[7, 7]", PASSED},
    {pretrained, "first_conv", "\"x\"", PASSED},
    {pretrained, "classifier", "\"x\"", PASSED},
    {pretrained, "license", "\"x\"", PASSED},
};

/* ---- A file of weights and what is beside it ---- */

typedef struct source {
    wa_safetensors *tensors;
    wa_swin_file file;
    wa_swin_config config;
} source;

static source source_of(const char *name)
{
    char path[4096];
    source s;
    snprintf(path, sizeof path, "%s/sources/%s/model.safetensors",
             GOLDEN_FOLDER, name);
    assert_status(wa_safetensors_open(path, &s.tensors), 0, "");
    s.file.tensors = s.tensors;
    assert_status(wa_swin_names_of(s.tensors, &s.file.names, &s.file.prefix),
                  0, "");
    wa_swin_infer(&s.file, &s.config);
    return s;
}

static cJSON *config_of(const char *name)
{
    char path[4096];
    unsigned char *bytes;
    size_t size;
    snprintf(path, sizeof path, "%s/sources/%s/config.json", GOLDEN_FOLDER,
             name);
    assert_int_equal(wa_file_read(path, 1 << 20, &bytes, &size), WA_FILE_READ);
    cJSON *object = cJSON_ParseWithLength((const char *)bytes, size);
    free(bytes);
    assert_non_null(object);
    return object;
}

/* One of the files is the object, the other one as it is. */
static winattn_status parse(const source *s, const cJSON *config,
                            const cJSON *pictures, wa_swin_beside *beside)
{
    char *texts[2] = {cJSON_PrintUnformatted(config),
                      pictures ? cJSON_PrintUnformatted(pictures) : NULL};
    const winattn_status status =
        wa_swin_beside_parse(texts[0], texts[1], &s->file, &s->config, beside);
    free(texts[0]);
    free(texts[1]);
    return status;
}

static cJSON *object_of(cJSON *file, const key_row *row)
{
    cJSON *object = row->object
                        ? cJSON_GetObjectItemCaseSensitive(file, row->object)
                        : file;
    assert_non_null(object);
    return object;
}

static cJSON *changed(const cJSON *file, const key_row *row)
{
    cJSON *copy = cJSON_Duplicate(file, 1);
    cJSON *object = object_of(copy, row);
    cJSON *value = cJSON_Parse(row->value);
    assert_non_null(value);
    cJSON_DeleteItemFromObjectCaseSensitive(object, row->name);
    cJSON_AddItemToObject(object, row->name, value);
    return copy;
}

static void check_row(const key_row *row, winattn_status status,
                      const wa_swin_beside *got, const wa_swin_beside *plain)
{
    const bool same = memcmp(got, plain, sizeof *got) == 0;
    if (row->fate == REFUSED) {
        assert_status(status, WINATTN_INVALID_FILE, row->name);
        return;
    }
    if (status != WINATTN_SUCCESS)
        fail_msg("%s %s: %s", row->name, row->value, winattn_last_reason());
    if (same != (row->fate == PASSED))
        fail_msg("%s %s: %s", row->name, row->value,
                 same ? "says nothing" : "is followed");
}

/* Every key that the object has stands in a row. */
static void check_keys(const cJSON *object, const char *name,
                       const key_row *rows, size_t count)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        bool found = cJSON_IsObject(item) && !name &&
                     (strcmp(item->string, arguments) == 0 ||
                      strcmp(item->string, pretrained) == 0);
        for (size_t i = 0; !found && i < count; i++)
            found = strcmp(rows[i].name, item->string) == 0 &&
                    (rows[i].object == name ||
                     (name && rows[i].object &&
                      strcmp(rows[i].object, name) == 0));
        if (!found)
            fail_msg("no row tries the key %s", item->string);
    }
}

static void walk(const char *name, const key_row *rows, size_t count)
{
    const source s = source_of(name);
    cJSON *config = config_of(name);
    wa_swin_beside plain, got;
    assert_status(parse(&s, config, NULL, &plain), 0, "");
    check_keys(config, NULL, rows, count);
    check_keys(cJSON_GetObjectItem(config, arguments), arguments, rows, count);
    check_keys(cJSON_GetObjectItem(config, pretrained), pretrained, rows,
               count);
    for (size_t i = 0; i < count; i++) {
        cJSON *other = changed(config, &rows[i]);
        check_row(&rows[i], parse(&s, other, NULL, &got), &got, &plain);
        cJSON_Delete(other);
    }
    cJSON_Delete(config);
    wa_safetensors_close(s.tensors);
}

#define ROWS(rows) rows, sizeof(rows) / sizeof *(rows)

static void test_transformers(void **state)
{
    (void)state;
    walk("transformers_v2", ROWS(transformers_rows));
}

static void test_timm(void **state)
{
    (void)state;
    walk("timm_v2", ROWS(timm_rows));
}

static void test_pictures(void **state)
{
    const source s = source_of("transformers_v2");
    cJSON *config = config_of("transformers_v2");
    cJSON *pictures = cJSON_Parse(pictures_text);
    wa_swin_beside plain, got;
    (void)state;
    assert_status(parse(&s, config, pictures, &plain), 0, "");
    assert_int_equal(plain.resize[0], 224);
    assert_int_equal(plain.resize[1], 160);
    assert_int_equal(plain.crop[1], 160);
    check_keys(pictures, NULL, ROWS(picture_rows));
    for (size_t i = 0; i < sizeof picture_rows / sizeof *picture_rows; i++) {
        cJSON *other = changed(pictures, &picture_rows[i]);
        check_row(&picture_rows[i], parse(&s, config, other, &got), &got,
                  &plain);
        cJSON_Delete(other);
    }
    cJSON_Delete(pictures);
    pictures = cJSON_Parse("{\"size\": {\"shortest_edge\": 256}}");
    assert_status(parse(&s, config, pictures, &got), WINATTN_INVALID_FILE,
                  "shortest_edge");
    cJSON_Delete(pictures);
    pictures = cJSON_Parse("[{\"size\": 7}]");
    assert_status(parse(&s, config, pictures, &got), WINATTN_INVALID_FILE,
                  "is no object");
    cJSON_Delete(pictures);
    pictures = cJSON_Parse("{\"size\": {\"shortest_edge\": 256}, \"crop_size\""
                           ": 224, \"do_center_crop\": true}");
    assert_status(parse(&s, config, pictures, &got), 0, "");
    assert_int_equal(got.resize[0], 256);
    assert_int_equal(got.resize[1], 0);
    assert_int_equal(got.crop[0], 224);
    cJSON_Delete(pictures);
    cJSON_Delete(config);
    wa_safetensors_close(s.tensors);
}

/* ---- Texts that are neither's, or somebody else's ---- */

static void test_texts(void **state)
{
    static const wa_swin_beside nothing;
    static const struct {
        const char *text, *culprit; /* NULL: it says nothing */
    } rows[] = {
        {"", "no JSON"},
        {"{", "no JSON"},
        {"[]", NULL},
        {"7", NULL},
        {"{}", NULL},
        {"{\"model_type\":7}", NULL},
        {"{\"model_type\":\"vit\",\"window_size\":8}", "model_type"},
        {"{\"architecture\":\"swinv2_tiny_window8_256\"}", "is of timm"},
    };
    const source s = source_of("transformers_v2");
    wa_swin_beside got;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const winattn_status status =
            wa_swin_beside_parse(rows[i].text, NULL, &s.file, &s.config, &got);
        assert_status(status, rows[i].culprit ? WINATTN_INVALID_FILE : 0,
                      rows[i].culprit ? rows[i].culprit : "");
        if (!rows[i].culprit)
            assert_memory_equal(&got, &nothing, sizeof got);
    }
    wa_safetensors_close(s.tensors);
}

/* ---- What becomes of it ---- */

static void copy_source(const char *name)
{
    char path[4096];
    wa_file_map map;
    snprintf(path, sizeof path, "%s/sources/%s/model.safetensors",
             GOLDEN_FOLDER, name);
    assert_int_equal(wa_file_map_open(path, &map), WA_FILE_READ);
    write_bytes(folder_named("model.safetensors"), map.bytes, map.size);
    wa_file_map_close(&map);
}

static wa_swin_weights *opened(const wa_swin_config *config)
{
    winattn_swin_weights *w;
    assert_status(winattn_swin_weights_open(folder_named("model.safetensors"),
                                            config, &w),
                  0, "");
    return w;
}

static void write_config(const char *text)
{
    write_bytes(folder_named("config.json"), text, strlen(text));
}

static void assert_windows(const wa_swin_weights *w, const cl_uint *windows,
                           const cl_uint *positions)
{
    for (int i = 0; i < 4; i++)
        for (int axis = 0; axis < 2; axis++) {
            assert_int_equal(w->config.window[i][axis], windows[i]);
            assert_int_equal(w->config.position_window[i][axis], positions[i]);
        }
}

/* Windows by stage and picture, and what the caller says instead. */
static void test_windows(void **state)
{
    static const cl_uint none[4] = {0}, eight[4] = {8, 8, 4, 2};
    static const cl_uint sixteen[4] = {16, 16, 16, 8};
    static const cl_uint twelve[4] = {12, 12, 12, 6};
    winattn_swin_weights *w;
    (void)state;
    copy_source("timm_v2");
    write_config("{}");
    assert_status(
        winattn_swin_weights_open(folder_named("model.safetensors"), NULL, &w),
        WINATTN_INVALID_FILE, "windows of stage 0");
    /* maps of 16 x 16 to 2 x 2: patches are 2 x 2 */
    write_config("{\"architecture\":\"swinv2_tiny_window8_32\"}");
    w = opened(NULL);
    assert_windows(w, eight, none);
    assert_int_equal(w->config.rules, WINATTN_SWIN_RULES_TIMM);
    assert_int_equal(w->config.image[1], 32);
    winattn_swin_weights_destroy(w);
    write_config("{\"architecture\":\"swinv2_base_window12to16_96to128\"}");
    w = opened(NULL);
    assert_windows(w, sixteen, twelve);
    winattn_swin_weights_destroy(w);
    /* by torchvision's rules windows are no smaller than they are */
    wa_swin_config config = {.struct_size = sizeof config,
                             .rules = WINATTN_SWIN_RULES_TORCHVISION,
                             .image = {32, 32}};
    w = opened(&config);
    assert_int_equal(w->config.window[3][0], 16);
    winattn_swin_weights_destroy(w);
    write_config("{\"architecture\":7}");
    assert_status(
        winattn_swin_weights_open(folder_named("model.safetensors"), NULL, &w),
        WINATTN_INVALID_FILE, "architecture");
    char *large = calloc(1, 7 << 20);
    assert_non_null(large);
    memset(large, ' ', (7 << 20) - 1);
    write_config(large);
    free(large);
    assert_status(
        winattn_swin_weights_open(folder_named("model.safetensors"), NULL, &w),
        WINATTN_INVALID_FILE, "config.json beside the file has 7340031 bytes");
    config.no_config_file = CL_TRUE;
    for (int i = 0; i < 4; i++)
        config.window[i][0] = config.window[i][1] = 4;
    winattn_swin_weights_destroy(opened(&config));
}

static void assert_resize(const winattn_swin_config *config, cl_uint height,
                          cl_uint width)
{
    assert_int_equal(config->resize[0], height);
    assert_int_equal(config->resize[1], width);
}

/* timm's older config.json has all keys at the top. */
static void test_flat(void **state)
{
    static const char flat[] =
        "{\"architecture\": \"swinv2_tiny_window8_256\", \"tag\": \"x\","
        " \"input_size\": [3, 64, 64], \"fixed_input_size\": true,"
        " \"crop_pct\": 0.5, \"mean\": [0.5, 0.5, 0.5], \"num_classes\": 7}";
    static const char odd[] = "{\"architecture\": \"swinv2_tiny_window8_256\","
                              " \"pretrained_cfg\": {}, \"model_args\": [1]}";
    const source s = source_of("timm_v2");
    wa_swin_beside got;
    (void)state;
    assert_status(wa_swin_beside_parse(flat, NULL, &s.file, &s.config, &got),
                  0, "");
    assert_int_equal(got.image[0], 64);
    assert_int_equal(got.crop[1], 64);
    assert_int_equal(got.resize[0], 128);
    assert_int_equal(got.window[0][0], 8);
    assert_true(got.has_colours && got.mean[0] == 0.5F);
    assert_status(wa_swin_beside_parse(odd, NULL, &s.file, &s.config, &got),
                  WINATTN_INVALID_FILE, "model_args is no object");
    wa_safetensors_close(s.tensors);
}

/* The caller's numbers that loops go by. */
static void test_counts(void **state)
{
    winattn_swin_weights *w;
    wa_swin_config config = {.struct_size = sizeof config, .stages = 40};
    (void)state;
    copy_source("timm_v2");
    write_config("{\"architecture\":\"swinv2_tiny_window8_32\"}");
    assert_status(winattn_swin_weights_open(folder_named("model.safetensors"),
                                            &config, &w),
                  WINATTN_INVALID_ARGUMENT, "config.stages");
    config.stages = 0;
    config.depths[0] = 4000000000u;
    assert_status(winattn_swin_weights_open(folder_named("model.safetensors"),
                                            &config, &w),
                  WINATTN_INVALID_ARGUMENT, "depths");
}

/* Preparation of pictures as each library does it, where no file says more. */
static void test_preparation(void **state)
{
    static const struct {
        winattn_swin_rules rules;
        cl_uint image, height, width;
    } rows[] = {{WINATTN_SWIN_RULES_TORCHVISION, 224, 232, 0},
                {WINATTN_SWIN_RULES_TIMM, 224, 248, 0},
                {WINATTN_SWIN_RULES_TIMM, 384, 384, 0},
                {WINATTN_SWIN_RULES_MICROSOFT, 224, 256, 0},
                {WINATTN_SWIN_RULES_MICROSOFT, 384, 438, 0},
                {WINATTN_SWIN_RULES_TRANSFORMERS, 224, 224, 224}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wa_swin_config config = {.struct_size = sizeof config};
        assert_status(winattn_swin_config_find("swin_t", &config), 0, "");
        memset(config.resize, 0, sizeof config.resize);
        memset(config.crop, 0, sizeof config.crop);
        config.rules = rows[i].rules;
        config.image[0] = config.image[1] = rows[i].image;
        wa_swin_config_complete(&config);
        assert_int_equal(config.crop[0], rows[i].image);
        assert_resize(&config, rows[i].height, rows[i].width);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformers),
        cmocka_unit_test(test_timm),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_preparation),
    };
    if (!scratch_make())
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
