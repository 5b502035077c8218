/* SPDX-License-Identifier: Apache-2.0
 * From a file of safetensors to a Swin's weights. */
#ifndef WINATTN_SWIN_FILE_H
#define WINATTN_SWIN_FILE_H

#include "models/safetensors.h"
#include "models/swin_weights.h"

/* ---- Names (swin_names.c) ---- */

#define WA_NAME_SIZE 256
#define WA_INNER_NAMES 2

/* Of a block, and of what stands between stages. */
typedef enum wa_swin_part {
    WA_PART_NORM1,
    WA_PART_NORM2,
    WA_PART_QKV,
    WA_PART_QUERY, /* each of the three by itself, where names say so */
    WA_PART_KEY,
    WA_PART_VALUE,
    WA_PART_PROJ,
    WA_PART_FC1,
    WA_PART_FC2,
    WA_PART_ATTENTION, /* what the rest starts with: tables, buffers */
    WA_PART_POSITION_MLP,
    WA_PART_MERGE_NORM,
    WA_PART_MERGE_LINEAR,
    WA_PARTS
} wa_swin_part;

/* A tensor's name is the model's prefix, and then
 *
 *   of a block       stages (step * stage + first) blocks (block) . part . ...
 *   between stages   stages (step * stage + merge) . part . ...
 *   of the rest      what is named below, and after it . ...
 *
 * where ... is weight, bias and so on, but for separate biases. The head
 * stands behind the wrapper's prefix alone. */
typedef struct wa_swin_names {
    const char *origin;       /* for people */
    winattn_swin_rules rules; /* of the library that gives these names */
    const char
        *inner[WA_INNER_NAMES]; /* before the names of all but the head */
    const char *patch, *patch_norm, *norm, *head;
    const char *stages, *blocks;
    uint32_t step, first, merge;
    const char *parts[WA_PARTS]; /* NULL: names have none */
} wa_swin_names;

/* What names start with: all of the model, as a wrapper puts it there
 * (DistributedDataParallel's "module."), and behind that all but the head. */
typedef struct wa_swin_prefix {
    char wrapper[WA_NAME_SIZE];
    char model[WA_NAME_SIZE]; /* the wrapper's is its start */
} wa_swin_prefix;

/* Whose names has the file, and behind what? NULL: they are nobody's that is
 * known, or several models are in the file; says which. */
winattn_status wa_swin_names_of(const wa_safetensors *file,
                                const wa_swin_names **names,
                                wa_swin_prefix *prefix);

/* Names of the given names' tensors; cut where they are longer, which no name
 * of a file is. suffix: "weight", or "" for none. */
void wa_name_rest(const char *prefix, const char *part, const char *suffix,
                  char name[WA_NAME_SIZE]);
void wa_name_block(const wa_swin_names *names, const char *prefix,
                   uint32_t stage, uint32_t block, wa_swin_part part,
                   const char *suffix, char name[WA_NAME_SIZE]);
void wa_name_merge(const wa_swin_names *names, const char *prefix,
                   uint32_t stage, wa_swin_part part, const char *suffix,
                   char name[WA_NAME_SIZE]);

/* Is it a buffer that follows from the shape, and so says nothing? */
bool wa_name_is_buffer(const char *name);

/* ---- Files ---- */

/* A file whose names are known. */
typedef struct wa_swin_file {
    const wa_safetensors *tensors;
    const wa_swin_names *names;
    wa_swin_prefix prefix;
} wa_swin_file;

/* What the file says of the model's shape; the rest is 0. What is wrong shows
 * when the weights are loaded. */
void wa_swin_infer(const wa_swin_file *file, wa_swin_config *config);

/* The tensor of a block, or NULL. */
const wa_file_tensor *wa_swin_find(const wa_swin_file *file, uint32_t stage,
                                   uint32_t block, wa_swin_part part,
                                   const char *suffix);

/* Has any block biases of q, k and v? */
bool wa_swin_has_qkv_bias(const wa_swin_file *file,
                          const wa_swin_config *config);

/* Loads all tensors; file has what the config needs, and nothing else. */
winattn_status wa_swin_load(const wa_swin_file *file,
                            const wa_swin_config *config,
                            wa_swin_weights **weights);

/* The same as winattn_swin_weights_open, of a file that is in memory. */
winattn_status wa_swin_weights_read(const unsigned char *bytes, size_t size,
                                    const winattn_swin_config *config,
                                    wa_swin_weights **weights);

/* Biases of all relative positions in windows of a stage, into its table:
 * 16 sigmoid(second relu(first (y, x) + bias)) of log-spaced coordinates (Liu
 * et al. 2022, sections 3.2 and 3.3). first: [units, 2]; second: [heads,
 * units]. */
void wa_position_table(const wa_swin_config *config, uint32_t stage,
                       uint64_t units, const float *first, const float *bias,
                       const float *second, float *table);

/* What a table takes, in products, and the most that all tables of a file may
 * take: more than four times what the largest Swin V2 that has a name needs,
 * and about a second. */
#define WA_POSITION_STEPS_MOST ((uint64_t)1 << 32)
uint64_t wa_position_steps(const wa_swin_config *config, uint32_t stage,
                           uint64_t units);

/* A coordinate in windows of `window` tokens as the position MLP sees it,
 * measured in those of `position_window`. */
double wa_log_coordinate(int difference, uint32_t position_window);

/* ---- What stands beside a file of weights (swin_keys.c) ---- */

/* What such files say; zeros: nothing. Windows are those that the model was
 * asked for, which its maps may bound. */
typedef struct wa_swin_beside {
    winattn_swin_rules rules; /* of the library that wrote config.json */
    cl_uint image[2];
    cl_uint window[WA_SWIN_STAGES][2], position_window[WA_SWIN_STAGES][2];
    cl_float norm_eps;
    cl_uint resize[2], crop[2];
    bool has_filter, has_colours;
    winattn_filter filter;
    cl_float mean[3], deviation[3];
} wa_swin_beside;

/* Reads config.json in the folder of the weights, as transformers and timm
 * write it, and transformers' preprocessor_config.json; *beside is zeros where
 * there is none, or it is nothing of theirs. config: what the tensors and the
 * caller say of the model. Each key is followed, or says nothing of what is
 * computed, or is refused, with its name. */
winattn_status wa_swin_beside_read(const char *path, const wa_swin_file *file,
                                   const wa_swin_config *config,
                                   wa_swin_beside *beside);

/* The same of texts; NULL: there is no such file. */
winattn_status wa_swin_beside_parse(const char *config_text,
                                    const char *pictures_text,
                                    const wa_swin_file *file,
                                    const wa_swin_config *config,
                                    wa_swin_beside *beside);

#endif
