/* SPDX-License-Identifier: Apache-2.0
 * A folder for the files of a test program, made in the working folder and
 * removed with all that is in it. Whatever fails here but scratch_make fails
 * the test. */
#ifndef KIT_SCRATCH_H
#define KIT_SCRATCH_H

#include "asserts.h"

bool scratch_make(void);
void scratch_remove(void);

/* The path of a folder in it, which is not made; until the next call. */
const char *folder_named(const char *name);

void write_bytes(const char *path, const void *bytes, size_t size);
/* A file, or a folder with all that is in it; or nothing, if there is none. */
void remove_all(const char *path);

#endif
