/* SPDX-License-Identifier: Apache-2.0
 * Files beside the weights, key by key: each key of each file that a library
 * writes, and each argument that its models take, is followed, or compared
 * with the tensors, or refused with its name, or says nothing of what is
 * computed.
 */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files.h"
#include "kit/scratch.h"
#include "models/swin_file.h"

/* What becomes of a key that says something else. */
typedef enum fate {
    PASSED, /* nothing */
    FOLLOWED,
    REFUSED
} fate;

typedef struct key_row {
    const char *object; /* in the file; NULL: the file itself */
    const char *name;   /* or several, with spaces between */
    const char *value;  /* another one than the file has */
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
    {NULL, "patch_size num_channels embed_dim mlp_ratio", "8", REFUSED},
    {NULL, "depths num_heads", "[2, 2, 6, 2]", REFUSED},
    {NULL, "depths", "[2, 2, 2]", REFUSED},
    {NULL, "qkv_bias path_norm patch_norm", "false", REFUSED},
    {NULL, "hidden_act", "\"relu\"", REFUSED},
    {NULL, "hidden_act", "\"gelu_new\"", REFUSED},
    {NULL, "use_absolute_embeddings", "true", REFUSED},
    {NULL, "quantization_config", "{\"bits\": 8}", REFUSED},
    {NULL, "a_later_version's", "1", REFUSED},
    {NULL, "a_later_version's", "false", PASSED},
    {NULL, "pruned_heads", "{\"0\": [1]}", REFUSED},
    {NULL,
     "_attn_implementation_autoset _num_labels max_length padding "
     "gradient_checkpointing attention_probs_dropout_prob drop_path_rate "
     "dtype torch_dtype encoder_stride hidden_dropout_prob hidden_size "
     "id2label initializer_range label2id num_labels num_layers "
     "out_features out_indices output_attentions output_hidden_states "
     "problem_type return_dict stage_names transformers_version use_cache "
     "tie_word_embeddings chunk_size_feed_forward _name_or_path "
     "_commit_hash finetuning_task num_hidden_layers",
     "\"x\"", PASSED},
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
    {NULL, "do_rescale do_resize", "false", REFUSED},
    {NULL, "image_mean image_std", "[0.5, 0.5, 0.5]", FOLLOWED},
    {NULL, "image_mean", "[0.5, 0.5]", REFUSED},
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
    {NULL,
     "image_processor_type feature_extractor_type processor_class "
     "do_convert_rgb default_to_square data_format",
     "\"x\"", PASSED},
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
    {NULL,
     "_attn_implementation_autoset num_classes num_features label_names "
     "label_descriptions",
     "\"x\"", PASSED},
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
    {arguments, "patch_size in_chans embed_dim head_dim mlp_ratio", "8",
     REFUSED},
    {arguments, "depths num_heads", "[2, 2, 6, 2]", REFUSED},
    {arguments, "qkv_bias", "false", REFUSED},
    {arguments, "act_layer", "\"relu\"", REFUSED},
    {arguments, "norm_layer embed_layer", "\"rmsnorm\"", REFUSED},
    {arguments, "global_pool", "\"\"", REFUSED},
    {arguments, "always_partition", "true", REFUSED},
    {arguments, "a_later_version's", "1", REFUSED},
    {arguments,
     "num_classes dynamic_img_size strict_img_size drop_rate proj_drop_rate "
     "attn_drop_rate drop_path_rate features_only out_indices weight_init",
     "\"x\"", PASSED},
    {pretrained, "input_size", "[3, 128, 0]", REFUSED},
    {pretrained, "input_size", "[3, 128, 96]", PASSED}, /* img_size counts */
    {pretrained, "fixed_input_size", "true", PASSED},
    {pretrained, "interpolation", "\"bilinear\"", FOLLOWED},
    {pretrained, "interpolation", "\"lanczos\"", REFUSED},
    {pretrained, "crop_pct", "2", REFUSED},
    {pretrained, "crop_pct", "0.5", PASSED}, /* as img_size is no square */
    {pretrained, "crop_mode", "\"squash\"", FOLLOWED},
    {pretrained, "crop_mode", "\"border\"", REFUSED},
    {pretrained, "mean std", "[0.5, 0.5, 0.5]", FOLLOWED},
    {pretrained, "mean", "7", REFUSED},
    {pretrained,
     "tag custom_load num_classes pool_size first_conv classifier license",
     "\"x\"", PASSED},
};

/* ---- A file of weights and what is beside it ---- */

typedef struct source {
    wa_swin_file file;
    wa_swin_config config;
    cJSON *beside;   /* its config.json */
    cJSON *pictures; /* and preprocessor_config.json, NULL if there is none */
} source;

static source source_of(const char *name)
{
    char path[4096];
    wa_safetensors *tensors = tensors_of(name);
    source s = {.file.tensors = tensors};
    assert_status(wa_swin_names_of(tensors, &s.file.names, &s.file.prefix), 0,
                  "");
    wa_swin_infer(&s.file, &s.config);
    snprintf(path, sizeof path, "%s/sources/%s/config.json", GOLDEN_FOLDER,
             name);
    const file_bytes text = file_read(path);
    s.beside = cJSON_ParseWithLength((const char *)text.bytes, text.size);
    assert_non_null(s.beside);
    free(text.bytes);
    return s;
}

static void source_free(source *s)
{
    cJSON_Delete(s->beside);
    cJSON_Delete(s->pictures);
    wa_safetensors_close((wa_safetensors *)(uintptr_t)s->file.tensors);
}

static winattn_status parse(const source *s, wa_swin_beside *beside)
{
    char *texts[2] = {cJSON_PrintUnformatted(s->beside),
                      s->pictures ? cJSON_PrintUnformatted(s->pictures)
                                  : NULL};
    const winattn_status status =
        wa_swin_beside_parse(texts[0], texts[1], &s->file, &s->config, beside);
    free(texts[0]);
    free(texts[1]);
    return status;
}

/* Parses the source with these pictures. */
static winattn_status parse_pictures(source *s, const char *pictures,
                                     wa_swin_beside *beside)
{
    cJSON_Delete(s->pictures);
    s->pictures = cJSON_Parse(pictures);
    assert_non_null(s->pictures);
    return parse(s, beside);
}

/* The source with another value of the row's key, in one of its files. */
static void check_row(source *s, cJSON **file, const key_row *row,
                      const wa_swin_beside *plain)
{
    wa_swin_beside got;
    cJSON *whole = *file;
    *file = cJSON_Duplicate(whole, 1);
    cJSON *object =
        row->object ? cJSON_GetObjectItem(*file, row->object) : *file;
    cJSON *value = cJSON_Parse(row->value);
    assert_true(object && value);
    cJSON_DeleteItemFromObjectCaseSensitive(object, row->name);
    cJSON_AddItemToObject(object, row->name, value);
    const winattn_status status = parse(s, &got);
    const bool same = memcmp(&got, plain, sizeof got) == 0;
    cJSON_Delete(*file);
    *file = whole;
    if (row->fate == REFUSED)
        assert_status(status, WINATTN_INVALID_FILE, row->name);
    else if (status != WINATTN_SUCCESS)
        fail_msg("%s %s: %s", row->name, row->value, winattn_last_reason());
    else if (same != (row->fate == PASSED))
        fail_msg("%s %s: %s", row->name, row->value,
                 same ? "says nothing" : "is followed");
}

/* Each key of the rows that are of this object, which stand for all that it
 * has. */
static void check_object(source *s, cJSON **file, const char *name,
                         const key_row *rows, size_t count)
{
    const cJSON *item;
    char tried[4096] = " model_args pretrained_cfg "; /* by themselves */
    wa_swin_beside plain;
    assert_status(parse(s, &plain), 0, "");
    for (size_t i = 0; i < count; i++) {
        char names[1024], *rest = names;
        key_row one = rows[i];
        if (one.object != name)
            continue;
        wa_append(tried, sizeof tried, "%s ", one.name);
        snprintf(names, sizeof names, "%s", one.name);
        while ((one.name = strtok_r(rest, " ", &rest)) != NULL)
            check_row(s, file, &one, &plain);
    }
    cJSON_ArrayForEach(item, (name ? cJSON_GetObjectItem(*file, name) : *file))
    {
        char word[256];
        snprintf(word, sizeof word, " %s ", item->string);
        if (!strstr(tried, word))
            fail_msg("no row tries the key %s", item->string);
    }
}

#define CHECK_OBJECT(s, file, name, rows)                                     \
    check_object((s), (file), (name), (rows), sizeof(rows) / sizeof *(rows))

static void test_transformers(void **state)
{
    (void)state;
    source s = source_of("transformers_v2");
    CHECK_OBJECT(&s, &s.beside, NULL, transformers_rows);
    source_free(&s);
}

static void test_timm(void **state)
{
    (void)state;
    source s = source_of("timm_v2");
    CHECK_OBJECT(&s, &s.beside, NULL, timm_rows);
    CHECK_OBJECT(&s, &s.beside, arguments, timm_rows);
    CHECK_OBJECT(&s, &s.beside, pretrained, timm_rows);
    source_free(&s);
}

static void test_pictures(void **state)
{
    source s = source_of("transformers_v2");
    wa_swin_beside got;
    (void)state;
    assert_status(parse_pictures(&s, pictures_text, &got), 0, "");
    assert_int_equal(got.resize[0], 224);
    assert_int_equal(got.resize[1], 160);
    assert_int_equal(got.crop[1], 160);
    CHECK_OBJECT(&s, &s.pictures, NULL, picture_rows);
    assert_status(
        parse_pictures(&s, "{\"size\": {\"shortest_edge\": 256}}", &got),
        WINATTN_INVALID_FILE, "shortest_edge");
    assert_status(parse_pictures(&s, "[{\"size\": 7}]", &got),
                  WINATTN_INVALID_FILE, "is no object");
    assert_status(parse_pictures(&s,
                                 "{\"size\": {\"shortest_edge\": 256}, "
                                 "\"crop_size\": 224, "
                                 "\"do_center_crop\": true}",
                                 &got),
                  0, "");
    assert_int_equal(got.resize[0], 256);
    assert_int_equal(got.resize[1], 0);
    assert_int_equal(got.crop[0], 224);
    source_free(&s);
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
    source s = source_of("transformers_v2");
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
    source_free(&s);
}

/* ---- What becomes of it ---- */

static winattn_status open_beside(const wa_swin_config *config,
                                  wa_swin_weights **w)
{
    return winattn_swin_weights_open(folder_named("model.safetensors"), config,
                                     w);
}

static void copy_timm(void)
{
    copy_source("timm_v2", folder_named("model.safetensors"));
}

static void write_config(const char *text)
{
    write_bytes(folder_named("config.json"), text, strlen(text));
}

/* Weights of `config` have these for the stages, along both axes. */
static void assert_windows(const wa_swin_config *config,
                           const cl_uint *windows, const cl_uint *positions)
{
    winattn_swin_weights *w;
    assert_status(open_beside(config, &w), 0, "");
    for (int i = 0; i < 4; i++)
        for (int axis = 0; axis < 2; axis++) {
            assert_int_equal(w->config.window[i][axis], windows[i]);
            assert_int_equal(w->config.position_window[i][axis], positions[i]);
        }
    winattn_swin_weights_destroy(w);
}

/* Windows by stage and picture, and what the caller says instead. */
static void test_windows(void **state)
{
    static const cl_uint none[4] = {0}, eight[4] = {8, 8, 4, 2};
    static const cl_uint sixteen[4] = {16, 16, 16, 8};
    static const cl_uint twelve[4] = {12, 12, 12, 6};
    winattn_swin_weights *w;
    (void)state;
    copy_timm();
    write_config("{}");
    assert_status(open_beside(NULL, &w), WINATTN_INVALID_FILE,
                  "windows of stage 0");
    /* maps of 16 x 16 to 2 x 2: patches are 2 x 2 */
    write_config("{\"architecture\":\"swinv2_tiny_window8_32\"}");
    assert_windows(NULL, eight, none);
    assert_status(open_beside(NULL, &w), 0, "");
    assert_int_equal(w->config.rules, WINATTN_SWIN_RULES_TIMM);
    assert_int_equal(w->config.image[1], 32);
    winattn_swin_weights_destroy(w);
    write_config("{\"architecture\":\"swinv2_base_window12to16_96to128\"}");
    assert_windows(NULL, sixteen, twelve);
    /* by torchvision's rules windows are no smaller than they are */
    wa_swin_config config = {.struct_size = sizeof config,
                             .rules = WINATTN_SWIN_RULES_TORCHVISION,
                             .image = {32, 32}};
    assert_status(open_beside(&config, &w), 0, "");
    assert_int_equal(w->config.window[3][0], 16);
    winattn_swin_weights_destroy(w);
    write_config("{\"architecture\":7}");
    assert_status(open_beside(NULL, &w), WINATTN_INVALID_FILE, "architecture");
    char *large = calloc(1, 7 << 20);
    assert_non_null(large);
    memset(large, ' ', (7 << 20) - 1);
    write_config(large);
    free(large);
    assert_status(open_beside(NULL, &w), WINATTN_INVALID_FILE,
                  "config.json beside the file has 7340031 bytes");
    config.no_config_file = CL_TRUE;
    for (int i = 0; i < 4; i++)
        config.window[i][0] = config.window[i][1] = 4;
    assert_status(open_beside(&config, &w), 0, "");
    winattn_swin_weights_destroy(w);
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
    source s = source_of("timm_v2");
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
    source_free(&s);
}

/* The caller's numbers that loops go by. */
static void test_counts(void **state)
{
    winattn_swin_weights *w;
    wa_swin_config config = {.struct_size = sizeof config, .stages = 40};
    (void)state;
    copy_timm();
    write_config("{\"architecture\":\"swinv2_tiny_window8_32\"}");
    assert_status(open_beside(&config, &w), WINATTN_INVALID_ARGUMENT,
                  "config.stages");
    config.stages = 0;
    config.depths[0] = 4000000000u;
    assert_status(open_beside(&config, &w), WINATTN_INVALID_ARGUMENT,
                  "depths");
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
        assert_int_equal(config.resize[0], rows[i].height);
        assert_int_equal(config.resize[1], rows[i].width);
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
