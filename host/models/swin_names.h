/* SPDX-License-Identifier: Apache-2.0
 * What libraries call the tensors of a Swin. */
#ifndef WINATTN_SWIN_NAMES_H
#define WINATTN_SWIN_NAMES_H

#include "models/safetensors.h"
#include "winattn_models.h"

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

#endif
