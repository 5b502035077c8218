/* SPDX-License-Identifier: Apache-2.0
 * Golden vectors of modules that read feature maps: which file holds which
 * tensor of a case, and in which order. */
#ifndef KIT_GOLDEN_H
#define KIT_GOLDEN_H

#include "data.h"

/* A tensor is a part of a file [windows or grids][rows][parts][heads]
 * [columns]. */
typedef struct golden_tensor {
    tensor_id id;
    const char *name;
    size_t part, parts;
} golden_tensor;

extern const golden_tensor golden_tensors[];
extern const size_t golden_count;

/* The tensor's values in the order of tensor_data.value; NULL where the file
 * cannot be read or has not as many. */
double *golden_read(const char *folder, const char *case_name,
                    const golden_tensor *g, const tensor_data *t);

/* Replaces the values of all inputs, which data_write then puts into place.
 * NULL, or the name of the first one that could not be read. */
const char *golden_fill(const char *folder, const char *case_name,
                        case_buffers *d);

#endif
