/* SPDX-License-Identifier: Apache-2.0
 * Reads config.json, by cJSON. */
#include "models/swin_beside.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/status.h"

#define PATH_SIZE 4096
#define FILE_MOST ((size_t)1 << 20)
#define SIDE_MOST 65535u

/* What such a file says; zeros: nothing. */
typedef struct beside {
    cl_uint image[2], window;            /* of pictures, and largest ones */
    cl_uint old_image[2], old_window;    /* of the pretraining */
    cl_uint old_windows[WA_SWIN_STAGES]; /* the same, stage by stage */
    cl_float norm_eps;
} beside;

static cl_uint read_count(const cJSON *item, cl_uint most)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1) ||
        !(item->valuedouble <= most) ||
        floor(item->valuedouble) != item->valuedouble)
        return 0;
    return (cl_uint)item->valuedouble;
}

/* One number for both sides, or an array whose last two they are. */
static void read_sides(const cJSON *item, cl_uint sides[2])
{
    const int count = cJSON_GetArraySize(item);
    for (int i = 0; i < 2; i++)
        sides[i] = cJSON_IsArray(item) && count >= 2
                       ? read_count(cJSON_GetArrayItem(item, count - 2 + i),
                                    SIDE_MOST)
                       : read_count(item, SIDE_MOST);
}

static void read_transformers(const cJSON *object, beside *b)
{
    const cJSON *old =
        cJSON_GetObjectItemCaseSensitive(object, "pretrained_window_sizes");
    const cJSON *eps =
        cJSON_GetObjectItemCaseSensitive(object, "layer_norm_eps");
    b->window =
        read_count(cJSON_GetObjectItemCaseSensitive(object, "window_size"),
                   WA_SWIN_WINDOW_MOST);
    read_sides(cJSON_GetObjectItemCaseSensitive(object, "image_size"),
               b->image);
    for (int i = 0; cJSON_IsArray(old) && i < (int)WA_SWIN_STAGES; i++)
        b->old_windows[i] =
            read_count(cJSON_GetArrayItem(old, i), WA_SWIN_WINDOW_MOST);
    if (cJSON_IsNumber(eps) && eps->valuedouble > 0 && eps->valuedouble < 1)
        b->norm_eps = (cl_float)eps->valuedouble;
}

/* The number at the text's start, which moves behind it; 0: there is none. */
static cl_uint next_number(const char **text, cl_uint most)
{
    cl_uint number = 0;
    for (; **text >= '0' && **text <= '9'; ++*text)
        number =
            number > most ? number : 10 * number + (cl_uint)(**text - '0');
    return number <= most ? number : 0;
}

/* timm's names end with ..._window8_256 or ..._window12to16_192to256. */
static void read_timm(const char *name, beside *b)
{
    static const char mark[] = "_window";
    cl_uint sizes[2][2] = {{0}};
    const char *at = strstr(name, mark);
    if (!at)
        return;
    at += sizeof mark - 1;
    for (int i = 0; i < 2; i++) {
        sizes[i][0] = sizes[i][1] = next_number(&at, SIDE_MOST);
        if (strncmp(at, "to", 2) == 0) {
            at += 2;
            sizes[i][1] = next_number(&at, SIDE_MOST);
        }
        at += *at == '_';
    }
    if (sizes[0][0] > WA_SWIN_WINDOW_MOST || sizes[0][1] > WA_SWIN_WINDOW_MOST)
        return;
    b->window = sizes[0][1];
    b->image[0] = b->image[1] = sizes[1][1];
    if (sizes[0][0] != sizes[0][1]) {
        b->old_window = sizes[0][0];
        b->old_image[0] = b->old_image[1] = sizes[1][0];
    }
}

/* Windows are not larger than the map of a stage. 0: not known. */
static cl_uint window_of(cl_uint window, cl_uint image, cl_uint patch,
                         uint32_t stage)
{
    cl_uint side = patch ? image / patch : 0;
    for (uint32_t i = 0; i < stage; i++)
        side = (side + 1) / 2;
    return window < side ? window : side;
}

static void use(const beside *b, wa_swin_config *config)
{
    for (uint32_t i = 0; i < config->stages; i++)
        for (int axis = 0; axis < 2; axis++) {
            const cl_uint patch = config->patch[axis];
            cl_uint old = b->old_windows[i];
            if (!old)
                old = window_of(b->old_window, b->old_image[axis], patch, i);
            if (config->window[i][axis])
                continue;
            config->window[i][axis] =
                window_of(b->window, b->image[axis], patch, i);
            if (config->generation == 2 && !config->position_window[i][axis])
                config->position_window[i][axis] = old;
        }
    if (config->norm_eps == 0)
        config->norm_eps = b->norm_eps;
}

void wa_swin_beside_read(const char *text, size_t size, wa_swin_config *config)
{
    beside b = {0};
    wa_global_lock_take(); /* as in safetensors_header.c */
    cJSON *object = cJSON_ParseWithLength(text, size);
    wa_global_lock_release();
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "model_type");
    const cJSON *name =
        cJSON_GetObjectItemCaseSensitive(object, "architecture");
    if (cJSON_IsString(type) && strncmp(type->valuestring, "swin", 4) == 0)
        read_transformers(object, &b);
    else if (cJSON_IsString(name))
        read_timm(name->valuestring, &b);
    cJSON_Delete(object);
    use(&b, config);
}

winattn_status wa_swin_beside(const char *path, wa_swin_config *config)
{
    char beside_path[PATH_SIZE];
    unsigned char *bytes;
    size_t size, folder = strlen(path);
    while (folder > 0 && path[folder - 1] != '/' && path[folder - 1] != '\\')
        folder--;
    const int length = snprintf(beside_path, sizeof beside_path,
                                "%.*sconfig.json", (int)folder, path);
    if (folder >= PATH_SIZE || length < 0 || length >= PATH_SIZE)
        return WINATTN_SUCCESS;
    const wa_file_answer answer =
        wa_file_read(beside_path, FILE_MOST, &bytes, &size);
    if (answer == WA_FILE_NO_MEMORY)
        return wa_fail_memory();
    if (answer != WA_FILE_READ)
        return WINATTN_SUCCESS;
    wa_swin_beside_read((const char *)bytes, size, config);
    free(bytes);
    return WINATTN_SUCCESS;
}
