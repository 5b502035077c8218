/* SPDX-License-Identifier: Apache-2.0
 * Files of safetensors that tests make, most of them from golden ones, with
 * something changed. */
#ifndef MODELS_FILES_H
#define MODELS_FILES_H

#include "kit/asserts.h"
#include "models/safetensors.h"
#include "models/swin_weights.h"

/* Names of golden/sources, NULL at the end. */
extern const char *const sources[];

/* The path of a source's weights; until the next call. */
const char *source_path(const char *source);
void copy_source(const char *source, const char *path);

/* A source, opened with what stands beside it, and its tensors. */
wa_swin_weights *opened(const char *source);
wa_safetensors *tensors_of(const char *source);

/* Of its shape what tensors may not say: all but hidden channels, classes and
 * what follows these. */
wa_swin_config source_config(const char *source);

/* Are the numbers of the tensor those from `values` on? */
void assert_tensor(const wa_safetensors *file, const char *name,
                   const float *values);
void assert_zeros(const float *values, size_t count);

typedef struct file_bytes {
    unsigned char *bytes; /* to be freed */
    size_t size;
} file_bytes;

file_bytes file_read(const char *path);

/* A header as a text, and so many bytes of data, 0, 1, 2... */
file_bytes file_of_header(const char *header, size_t data_size);

/* A tensor before it is written: what may be changed of it. */
typedef struct file_edit {
    char name[256];
    char type[16];
    uint32_t axes;
    uint64_t extent[WA_TENSOR_AXES];
    bool dropped;
    const void *values; /* of the type and shape; NULL: the file's */
} file_edit;

typedef void edit_tensor(file_edit *tensor, void *data);

/* The tensors of a file, each edited. Bytes stay as they are: where a shape
 * has more, zeros follow, where it has fewer, they are cut. */
file_bytes file_edited(const wa_safetensors *file, edit_tensor *edit,
                       void *data);

/* What reading the edited tensors of a source says; config: NULL, or that of
 * the source (source_config) and more. */
winattn_status read_edited(const char *source, edit_tensor *edit, void *data,
                           const wa_swin_config *config, wa_swin_weights **w);

/* Splits the file as transformers does: writes
 * model-00001-of-0000N.safetensors and so on, with an n-th of its tensors
 * each, and model.safetensors.index.json.
 */
void write_shards(const wa_safetensors *file, const char *folder,
                  unsigned shards);

#endif
