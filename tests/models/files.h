/* SPDX-License-Identifier: Apache-2.0
 * Files of safetensors that tests make, most of them from golden ones, with
 * something changed. */
#ifndef MODELS_FILES_H
#define MODELS_FILES_H

#include "kit/asserts.h"
#include "models/safetensors.h"
#include "models/swin_weights.h"

/* The golden models, NULL at the end. */
extern const char *const golden_models[];

/* The path of a golden model's file; until the next call. */
const char *golden_path(const char *model);

/* The shape of a golden model, as its CASE_shape says. */
wa_swin_config golden_config(const char *model);

/* A golden model, opened, and its tensors. */
wa_swin_weights *opened(const char *model, const wa_swin_config *config);
wa_safetensors *tensors_of(const char *model);

/* Are the numbers of the tensor those from `values` on? */
void assert_tensor(const wa_safetensors *file, const char *name,
                   const float *values);
void assert_zeros(const float *values, size_t count);

typedef struct file_bytes {
    unsigned char *bytes; /* to be freed */
    size_t size;
} file_bytes;

/* A header as a text, and so many bytes of data, 0, 1, 2... */
file_bytes file_of_header(const char *header, size_t data_size);

/* A tensor before it is written: what may be changed of it. */
typedef struct file_edit {
    char name[256];
    char type[16];
    uint32_t axes;
    uint64_t extent[WA_TENSOR_AXES];
    bool dropped;
    const void *values; /* NULL: the file's */
} file_edit;

typedef void edit_tensor(file_edit *tensor, void *data);

/* The tensors of a file, each edited. Bytes stay as they are: where a shape
 * has more, zeros follow, where it has fewer, they are cut. */
file_bytes file_edited(const wa_safetensors *file, edit_tensor *edit,
                       void *data);

#endif
