/* SPDX-License-Identifier: Apache-2.0
 * Reads the .npy files of tests/golden: C order; float64, float32, float16,
 * int64 or uint8. */
#ifndef KIT_NPY_H
#define KIT_NPY_H

#include <stddef.h>

typedef struct npy_array {
    size_t axes;
    size_t extent[8];
    size_t count;
    double *value; /* whatever the file's type; NULL on failure */
} npy_array;

/* folder/case_name.npy. On failure value is NULL. */
npy_array npy_read(const char *folder, const char *case_name,
                   const char *tensor);
void npy_free(npy_array *array);

#endif
