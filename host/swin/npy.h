/* SPDX-License-Identifier: Apache-2.0
 * Writes files that numpy.load reads. */
#ifndef SWIN_NPY_H
#define SWIN_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPY_AXES 4

/* An array of fp32 in C order. False: the file could not be written. */
bool npy_write(const char *path, size_t axes, const uint64_t extent[NPY_AXES],
               const float *values);

#endif
