/* SPDX-License-Identifier: Apache-2.0
 * Keys of the files that libraries write beside weights. Each is followed,
 * compared with the tensors, passed over because it says nothing of what is
 * computed, or refused. A key that is not known is refused where it says
 * something: what a later version means by it would be left out silently. */
#ifndef WINATTN_SWIN_KEYS_H
#define WINATTN_SWIN_KEYS_H

#include <cjson/cJSON.h>

#include "models/swin_file.h"

#define WA_SIDE_MOST 65535u
#define WA_COUNT(array) (sizeof(array) / sizeof *(array))

/* What the reader of a key may look at, and writes to. */
typedef struct wa_key_context {
    const char *name; /* of the file, and of the object in it: for people */
    const wa_swin_file *file;
    const wa_swin_config *config;
    wa_swin_beside *beside;
    /* Of pictures: what the model sees, and what they are resized to first. */
    cl_uint input[2], size[2], shorter;
    double crop_fraction;
    bool squashes, crops, normalises;
    const char *why; /* the key's, unless its reader says another */
} wa_key_context;

/* False: the value is refused, as `why` of key or context says. */
typedef bool wa_read_key(wa_key_context *c, const cJSON *item);

typedef struct wa_key {
    const char *name;
    wa_read_key *read;
    const char *why;
} wa_key;

#define WA_KEY_HELD "is not what the tensors have: it is of another model"
#define WA_KEY_SET "is set, which is not computed"
#define WA_KEY_FALSE "is false, which is not computed"
#define WA_KEY_NOT_GELU "is not gelu, the only one that is computed"
#define WA_KEY_NOT_AVG "is not avg, the only one that is computed"
#define WA_KEY_NO_SIZE "is no size of pictures"
#define WA_KEY_NO_WINDOW "is no whole number from 1 to 64, or list of them"
#define WA_KEY_NO_COLOURS "is no three numbers"

/* ---- The files ---- */

winattn_status wa_swin_keys_transformers(const cJSON *object,
                                         const wa_swin_file *file,
                                         const wa_swin_config *config,
                                         wa_swin_beside *beside);
winattn_status wa_swin_keys_timm(const cJSON *object, const wa_swin_file *file,
                                 const wa_swin_config *config,
                                 wa_swin_beside *beside);

/* preprocessor_config.json of transformers; object may be NULL. */
winattn_status wa_swin_keys_pictures(const cJSON *object,
                                     wa_swin_beside *beside);

/* ---- What they share ---- */

/* Reads one key; refuses it where its reader does. */
winattn_status wa_key_read(wa_key_context *c, const wa_key *key,
                           const cJSON *item);

/* Goes through an object's keys. passed: words, others that say nothing of
 * what is computed. */
winattn_status wa_key_read_all(wa_key_context *c, const cJSON *object,
                               const wa_key *keys, size_t count,
                               const char *passed);

winattn_status wa_key_refuse(const wa_key_context *c, const cJSON *item,
                             const char *why);

/* null, false, 0, or empty */
bool wa_key_is_nothing(const cJSON *item);
bool wa_key_is_text(const cJSON *item, const char *text);

/* A whole number from 1 to most; 0: it is none. */
cl_uint wa_key_read_count(const cJSON *item, cl_uint most);

/* One number for both sides, or an array whose last two they are. */
bool wa_key_read_sides(const cJSON *item, cl_uint most, cl_uint sides[2]);

/* Tensors say it too, and must agree. */
wa_read_key wa_key_hold_patch, wa_key_hold_input, wa_key_hold_channels,
    wa_key_hold_depths, wa_key_hold_heads, wa_key_hold_mlp_ratio,
    wa_key_hold_qkv_bias, wa_key_hold_head_dim;

/* What is computed in one way only. */
wa_read_key wa_key_want_gelu, wa_key_want_layer_norm, wa_key_want_average,
    wa_key_want_nothing, wa_key_want_yes;

/* Followed. */
wa_read_key wa_key_take_image, wa_key_take_window, wa_key_take_old_windows,
    wa_key_take_eps, wa_key_take_mean, wa_key_take_deviation;

#endif
