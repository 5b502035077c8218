/* SPDX-License-Identifier: Apache-2.0
 * Reads files of safetensors: 8 bytes that say how long the header is, the
 * header in JSON, which says of each tensor its type, its shape and where it
 * lies, and the tensors one after the other.
 *
 * Files are somebody else's: whatever one has, it is read as that or refused
 * with a reason. What an open file's tensors say of themselves is true: their
 * bytes lie in the file, and do not overlap. */
#ifndef WINATTN_SAFETENSORS_H
#define WINATTN_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "winattn.h"

#define WA_TENSOR_AXES 8

typedef enum wa_tensor_type {
    WA_TENSOR_FP32,
    WA_TENSOR_FP16,
    WA_TENSOR_BF16,
    WA_TENSOR_INT64,
    WA_TENSOR_OTHER /* no weights are of these */
} wa_tensor_type;

typedef struct wa_file_tensor {
    const char *name;      /* printable ASCII; unique in its file */
    const char *type_name; /* as the file has it, "F32" */
    wa_tensor_type type;
    uint32_t axes;
    uint64_t extent[WA_TENSOR_AXES];
    uint64_t count;             /* of its elements */
    const unsigned char *bytes; /* little-endian; aligned to nothing */
    uint64_t offset, size;      /* in bytes, behind the header */
} wa_file_tensor;

/* Files have at most 2^53 bytes, headers and indices 4 MiB, names 255, sets
 * 1024 shards. */
typedef struct wa_safetensors wa_safetensors;

/* *file becomes the file, else NULL. Its bytes are read when they are used;
 * see wa_file_map. path: of a file, or of the index of shards (*.json), which
 * look like one file then, or of a folder that has model.safetensors or
 * model.safetensors.index.json. */
winattn_status wa_safetensors_open(const char *path, wa_safetensors **file);

/* Of the file, or of the index, whichever the path was of; NULL: it is in
 * memory. */
const char *wa_safetensors_path(const wa_safetensors *file);

/* The same of a file that is in memory, and stays there. */
winattn_status wa_safetensors_read(const unsigned char *bytes, size_t size,
                                   wa_safetensors **file);

/* The path of another file in the same folder, to be freed; NULL: out of
 * memory. */
char *wa_file_beside(const char *path, const char *name);

/* NULL is fine. */
void wa_safetensors_close(wa_safetensors *file);

size_t wa_safetensors_count(const wa_safetensors *file);

/* In the order of their names. */
const wa_file_tensor *wa_safetensors_at(const wa_safetensors *file,
                                        size_t index);

/* NULL: the file has none of that name. */
const wa_file_tensor *wa_safetensors_find(const wa_safetensors *file,
                                          const char *name);

/* "[2, 3]" */
#define WA_SHAPE_TEXT 192
void wa_shape_text(uint32_t axes, const uint64_t *extent,
                   char text[WA_SHAPE_TEXT]);

/* Element `index` of a tensor of integers, WA_TENSOR_INT64. */
int64_t wa_tensor_integer(const wa_file_tensor *tensor, uint64_t index);

/* Element `index` of a tensor of fp32, fp16 or bf16; false: it is of another
 * type. */
bool wa_tensor_float(const wa_file_tensor *tensor, uint64_t index,
                     float *value);

/* All elements of a tensor of fp32, fp16 or bf16; refuses other types. */
winattn_status wa_tensor_floats(const wa_file_tensor *tensor, float *values);

#endif
