/* SPDX-License-Identifier: Apache-2.0
 * Files as a whole. */
#ifndef SWIN_FILES_H
#define SWIN_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Can this be how such a file begins? False: reason says why not. */
typedef bool file_check(const unsigned char *start, size_t size, char *reason,
                        size_t reason_size);

/* The bytes of a file of at most `most`, a 0 behind them, to be freed; NULL:
 * reason says why. What `check`, unless NULL, refuses is read no further: some
 * files never end. */
unsigned char *read_file(const char *path, size_t most, file_check *check,
                         size_t *size, char *reason, size_t reason_size);

/* ---- What numpy.load reads ---- */

#define NPY_AXES 4

/* An array of fp32 in C order. False: the file could not be written. */
bool npy_write(const char *path, size_t axes, const uint64_t extent[NPY_AXES],
               const float *values);

#endif
