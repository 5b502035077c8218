/* SPDX-License-Identifier: Apache-2.0
 * Files beside the weights: finds them, and reads keys that several have. */
#include "models/swin_keys.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "base/text.h"
#include "models/swin_file.h"

/* ---- Values ---- */

winattn_status wa_key_refuse(const wa_key_context *c, const cJSON *item,
                             const char *why)
{
    return WA_BAD_FILE("%s: %.64s %s; without config files (no_config_file, "
                       "--no-config) the tensors and options alone count",
                       c->name, item->string, why);
}

bool wa_key_is_nothing(const cJSON *item)
{
    return cJSON_IsNull(item) || cJSON_IsFalse(item) ||
           (cJSON_IsNumber(item) && item->valuedouble == 0) ||
           (cJSON_IsString(item) && !item->valuestring[0]) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child);
}

bool wa_key_is_text(const cJSON *item, const char *text)
{
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

/* A whole number from 1 to most; 0: it is none. */
cl_uint wa_key_read_count(const cJSON *item, cl_uint most)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1) ||
        !(item->valuedouble <= most) ||
        floor(item->valuedouble) != item->valuedouble)
        return 0;
    return (cl_uint)item->valuedouble;
}

/* One number for both sides, or an array whose last two they are. */
bool wa_key_read_sides(const cJSON *item, cl_uint most, cl_uint sides[2])
{
    const int count = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    for (int i = 0; i < 2; i++)
        sides[i] = cJSON_IsArray(item)
                       ? wa_key_read_count(
                             cJSON_GetArrayItem(item, count - 2 + i), most)
                       : wa_key_read_count(item, most);
    return sides[0] && sides[1];
}

/* What transformers' PretrainedConfig may have of any model, and what those
 * write who train and convert: of training, of texts, of what is returned, of
 * where the file is from. */
static const char passed[] =
    "_attn_implementation _attn_implementation_autoset _commit_hash "
    "_name_or_path _num_labels _processor_class add_cross_attention "
    "attn_implementation auto_map begin_suppress_tokens bos_token_id "
    "chunk_size_feed_forward cross_attention_hidden_size "
    "decoder_start_token_id diversity_penalty do_sample dtype early_stopping "
    "encoder_no_repeat_ngram_size eos_token_id finetuning_task "
    "gradient_checkpointing id2label initializer_range label2id "
    "length_penalty license max_length min_length model_input_names "
    "no_repeat_ngram_size num_beam_groups num_beams num_classes num_labels "
    "num_return_sequences output_attentions output_hidden_states "
    "output_scores pad_token_id padding pretrained problem_type "
    "processor_class remove_invalid_values repetition_penalty return_dict "
    "return_dict_in_generate scriptable sep_token_id tags temperature "
    "tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p "
    "torch_dtype torchscript transformers.js_config transformers_version "
    "typical_p use_bfloat16 use_cache use_checkpoint";

winattn_status wa_key_read(wa_key_context *c, const wa_key *key,
                           const cJSON *item)
{
    c->why = key->why;
    return key->read(c, item) ? WINATTN_SUCCESS
                              : wa_key_refuse(c, item, c->why);
}

winattn_status wa_key_read_all(wa_key_context *c, const cJSON *object,
                               const wa_key *keys, size_t count,
                               const char *own_passed)
{
    const cJSON *item;
    if (!cJSON_IsObject(object))
        return WA_BAD_FILE("%s is no object", c->name);
    cJSON_ArrayForEach(item, object)
    {
        size_t i = 0;
        if (cJSON_IsNull(item)) /* as if the key were not there */
            continue;
        while (i < count && strcmp(keys[i].name, item->string) != 0)
            i++;
        if (i < count)
            WA_TRY(wa_key_read(c, &keys[i], item));
        else if (!wa_key_is_nothing(item) &&
                 !wa_has_word(passed, item->string) &&
                 !wa_has_word(own_passed, item->string))
            return wa_key_refuse(c, item, "is a key that is not known");
    }
    return WINATTN_SUCCESS;
}

/* ---- What tensors say too ---- */

bool wa_key_hold_patch(wa_key_context *c, const cJSON *item)
{
    cl_uint patch[2];
    return wa_key_read_sides(item, WA_SIDE_MOST, patch) &&
           patch[0] == c->config->patch[0] && patch[1] == c->config->patch[1];
}

bool wa_key_hold_input(wa_key_context *c, const cJSON *item)
{
    return wa_key_read_count(item, WA_SIDE_MOST) == c->config->in_channels;
}

/* One number of each stage, or one that doubles from stage to stage. */
bool wa_key_hold_channels(wa_key_context *c, const cJSON *item)
{
    bool agrees = true;
    for (uint32_t i = 0; i < c->config->stages; i++) {
        const cJSON *own =
            cJSON_IsArray(item) ? cJSON_GetArrayItem(item, (int)i) : item;
        const cl_uint times = cJSON_IsArray(item) ? 1 : 1u << i;
        agrees =
            agrees && wa_key_read_count(own, WA_SWIN_CHANNELS_MOST) * times ==
                          wa_swin_channels(c->config, i);
    }
    return agrees;
}

static bool hold_stages(const wa_key_context *c, const cJSON *item,
                        const cl_uint *own)
{
    bool agrees = cJSON_IsArray(item) &&
                  (cl_uint)cJSON_GetArraySize(item) == c->config->stages;
    for (uint32_t i = 0; agrees && i < c->config->stages; i++)
        agrees = wa_key_read_count(cJSON_GetArrayItem(item, (int)i),
                                   WA_SIDE_MOST) == own[i];
    return agrees;
}

bool wa_key_hold_depths(wa_key_context *c, const cJSON *item)
{
    return hold_stages(c, item, c->config->depths);
}

bool wa_key_hold_heads(wa_key_context *c, const cJSON *item)
{
    return hold_stages(c, item, c->config->heads);
}

bool wa_key_hold_mlp_ratio(wa_key_context *c, const cJSON *item)
{
    bool agrees = cJSON_IsNumber(item);
    for (uint32_t i = 0; agrees && i < c->config->stages; i++)
        agrees = floor(wa_swin_channels(c->config, i) * item->valuedouble) ==
                 c->config->hidden[i];
    return agrees;
}

bool wa_key_hold_qkv_bias(wa_key_context *c, const cJSON *item)
{
    return cJSON_IsBool(item) && (cJSON_IsTrue(item) != 0) ==
                                     wa_swin_has_qkv_bias(c->file, c->config);
}

bool wa_key_hold_head_dim(wa_key_context *c, const cJSON *item)
{
    bool agrees = true;
    for (uint32_t i = 0; !cJSON_IsNull(item) && i < c->config->stages; i++)
        agrees = agrees &&
                 wa_key_read_count(item, WA_SIDE_MOST) * c->config->heads[i] ==
                     wa_swin_channels(c->config, i);
    return agrees;
}

/* ---- What is computed in one way only ---- */

bool wa_key_want_gelu(wa_key_context *c, const cJSON *item)
{
    (void)c;
    return wa_key_is_nothing(item) || wa_key_is_text(item, "gelu") ||
           wa_key_is_text(item, "gelu_python");
}

bool wa_key_want_layer_norm(wa_key_context *c, const cJSON *item)
{
    (void)c;
    return wa_key_is_nothing(item) || wa_key_is_text(item, "layernorm") ||
           wa_key_is_text(item, "LayerNorm");
}

bool wa_key_want_average(wa_key_context *c, const cJSON *item)
{
    (void)c;
    return wa_key_is_text(item, "avg");
}

bool wa_key_want_nothing(wa_key_context *c, const cJSON *item)
{
    (void)c;
    return wa_key_is_nothing(item);
}

bool wa_key_want_yes(wa_key_context *c, const cJSON *item)
{
    (void)c;
    return cJSON_IsTrue(item);
}

/* ---- Windows, pictures and colours of the model ---- */

bool wa_key_take_image(wa_key_context *c, const cJSON *item)
{
    return wa_key_read_sides(item, WA_SIDE_MOST, c->beside->image);
}

/* A number for all, or height and width for all, or one or the other of each
 * stage. */
static bool take_windows(wa_key_context *c, const cJSON *item,
                         bool may_be_none, cl_uint windows[WA_SWIN_STAGES][2])
{
    const int count = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    const bool is_pair =
        count == 2 && cJSON_IsNumber(item->child) && !may_be_none;
    const bool is_list = cJSON_IsArray(item) && !is_pair;
    if (is_list && (cl_uint)count < c->config->stages) {
        c->why = "has fewer numbers than there are stages";
        return false;
    }
    for (uint32_t i = 0; i < c->config->stages; i++) {
        const cJSON *own = is_list ? cJSON_GetArrayItem(item, (int)i) : item;
        if (!(may_be_none && wa_key_is_nothing(own)) &&
            !wa_key_read_sides(own, WA_SWIN_WINDOW_MOST, windows[i]))
            return false;
    }
    return true;
}

bool wa_key_take_window(wa_key_context *c, const cJSON *item)
{
    return take_windows(c, item, false, c->beside->window);
}

bool wa_key_take_old_windows(wa_key_context *c, const cJSON *item)
{
    return take_windows(c, item, true, c->beside->position_window);
}

bool wa_key_take_eps(wa_key_context *c, const cJSON *item)
{
    c->beside->norm_eps = (cl_float)item->valuedouble;
    return cJSON_IsNumber(item) && c->beside->norm_eps > 0 &&
           item->valuedouble < 1;
}

static bool read_colours(wa_key_context *c, const cJSON *item,
                         cl_float colours[3])
{
    for (int i = 0; i < 3; i++) {
        const cJSON *one = cJSON_GetArrayItem(item, i);
        if (!cJSON_IsNumber(one))
            return false;
        colours[i] = (cl_float)one->valuedouble;
    }
    c->beside->has_colours = true;
    return true;
}

bool wa_key_take_mean(wa_key_context *c, const cJSON *item)
{
    return read_colours(c, item, c->beside->mean);
}

bool wa_key_take_deviation(wa_key_context *c, const cJSON *item)
{
    return read_colours(c, item, c->beside->deviation);
}

/* ---- The files ---- */

/* of 21,841 classes the names alone are 2 MB */
#define FILE_MOST ((size_t)6 << 20)

/* Of a file that could not be opened. */
static bool is_missing(const char *path)
{
    errno = 0;
    FILE *file = fopen(path, "rb");
    const bool missing = !file && (errno == ENOENT || errno == ENOTDIR ||
                                   errno == ENAMETOOLONG);
    if (file)
        fclose(file);
    return missing;
}

/* *text: to be freed; NULL: there is no such file. */
static winattn_status read_text(const char *path, const char *name,
                                char **text)
{
    wa_file_map map;
    char *beside_path = wa_file_beside(path, name);
    *text = NULL;
    WA_TRY_MEMORY(beside_path);
    const wa_file_answer answer = wa_file_map_open(beside_path, &map);
    const bool missing = answer != WA_FILE_READ && is_missing(beside_path);
    free(beside_path);
    if (answer == WA_FILE_NO_MEMORY)
        return wa_fail_memory();
    if (missing)
        return WINATTN_SUCCESS;
    if (answer != WA_FILE_READ)
        return WA_BAD_FILE("%s beside the file cannot be read", name);
    winattn_status status = WINATTN_SUCCESS;
    if (map.size > FILE_MOST)
        status = WA_BAD_FILE("%s beside the file has %zu bytes, more than %zu",
                             name, map.size, FILE_MOST);
    else if (!(*text = calloc(map.size + 1, 1)))
        status = wa_fail_memory();
    else if (map.bytes)
        memcpy(*text, map.bytes, map.size);
    wa_file_map_close(&map);
    return status;
}

/* Is the object of transformers, of timm, or of neither? */
static winattn_status read_config(const cJSON *object,
                                  const wa_swin_file *file,
                                  const wa_swin_config *config,
                                  wa_swin_beside *beside)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "model_type");
    const bool is_timm =
        cJSON_GetObjectItemCaseSensitive(object, "architecture") ||
        cJSON_GetObjectItemCaseSensitive(object, "pretrained_cfg");
    const winattn_swin_rules names = file->names->rules;
    if (!is_timm && !cJSON_IsString(type))
        return WINATTN_SUCCESS;
    if (is_timm ? names != WINATTN_SWIN_RULES_TIMM &&
                      names != WINATTN_SWIN_RULES_MICROSOFT
                : names != WINATTN_SWIN_RULES_TRANSFORMERS)
        return WA_BAD_FILE("config.json beside the file is of %s, but the "
                           "tensors' names are those of %s",
                           is_timm ? "timm" : "transformers",
                           file->names->origin);
    beside->rules =
        is_timm ? WINATTN_SWIN_RULES_TIMM : WINATTN_SWIN_RULES_TRANSFORMERS;
    return is_timm ? wa_swin_keys_timm(object, file, config, beside)
                   : wa_swin_keys_transformers(object, file, config, beside);
}

winattn_status wa_swin_beside_parse(const char *config_text,
                                    const char *pictures_text,
                                    const wa_swin_file *file,
                                    const wa_swin_config *config,
                                    wa_swin_beside *beside)
{
    winattn_status status = WINATTN_SUCCESS;
    *beside = (wa_swin_beside){0};
    if (!config_text)
        return WINATTN_SUCCESS;
    wa_global_lock_take(); /* as in safetensors_header.c */
    cJSON *object = cJSON_Parse(config_text);
    cJSON *pictures = pictures_text ? cJSON_Parse(pictures_text) : NULL;
    wa_global_lock_release();
    if (!object || (pictures_text && !pictures))
        status =
            WA_BAD_FILE("%s beside the file is no JSON",
                        object ? "preprocessor_config.json" : "config.json");
    else
        status = read_config(object, file, config, beside);
    if (status == WINATTN_SUCCESS &&
        beside->rules == WINATTN_SWIN_RULES_TRANSFORMERS)
        status = wa_swin_keys_pictures(pictures, beside);
    cJSON_Delete(object);
    cJSON_Delete(pictures);
    return status;
}

winattn_status wa_swin_beside_read(const char *path, const wa_swin_file *file,
                                   const wa_swin_config *config,
                                   wa_swin_beside *beside)
{
    char *config_text = NULL, *pictures_text = NULL;
    winattn_status status = read_text(path, "config.json", &config_text);
    WA_THEN(status,
            read_text(path, "preprocessor_config.json", &pictures_text));
    WA_THEN(status, wa_swin_beside_parse(config_text, pictures_text, file,
                                         config, beside));
    free(config_text);
    free(pictures_text);
    return status;
}
