/* SPDX-License-Identifier: Apache-2.0
 * Finds and reads the files beside the weights. */
#include "models/swin_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"
#include "models/swin_keys.h"

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
    if (!beside_path)
        return wa_fail_memory();
    const wa_file_answer answer = wa_file_map_open(beside_path, &map);
    const bool missing = answer != WA_FILE_READ && is_missing(beside_path);
    free(beside_path);
    if (answer == WA_FILE_NO_MEMORY)
        return wa_fail_memory();
    if (missing)
        return WINATTN_SUCCESS;
    if (answer != WA_FILE_READ)
        return wa_fail(WINATTN_INVALID_FILE,
                       "%s beside the file cannot be read", name);
    winattn_status status = WINATTN_SUCCESS;
    if (map.size > FILE_MOST)
        status = wa_fail(WINATTN_INVALID_FILE,
                         "%s beside the file has %zu bytes, more than %zu",
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
        return wa_fail(WINATTN_INVALID_FILE,
                       "config.json beside the file is of %s, but the "
                       "tensors' names are those of %s",
                       is_timm ? "timm" : "transformers", file->names->origin);
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
        status = wa_fail(WINATTN_INVALID_FILE, "%s beside the file is no JSON",
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
    if (status == WINATTN_SUCCESS)
        status = read_text(path, "preprocessor_config.json", &pictures_text);
    if (status == WINATTN_SUCCESS)
        status = wa_swin_beside_parse(config_text, pictures_text, file, config,
                                      beside);
    free(config_text);
    free(pictures_text);
    return status;
}
