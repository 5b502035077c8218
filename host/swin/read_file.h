/* SPDX-License-Identifier: Apache-2.0
 * Files as a whole. */
#ifndef SWIN_READ_FILE_H
#define SWIN_READ_FILE_H

#include <stddef.h>

/* The bytes of a file of at most `most`, a 0 behind them, to be freed; NULL:
 * reason says why. */
unsigned char *read_file(const char *path, size_t most, size_t *size,
                         char *reason, size_t reason_size);

#endif
