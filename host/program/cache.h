/* SPDX-License-Identifier: Apache-2.0
 * Compiled programs in files: one folder, one file for each program, named by
 * the hash of its key. Without a cache, or with a damaged one, programs
 * are compiled. */
#ifndef WINATTN_CACHE_H
#define WINATTN_CACHE_H

#include <stdbool.h>

#include "base/sister.h"
#include "program/cache_record.h"
#include "winattn.h"

/* Once stored, the oldest files go until so much is left. */
#define WA_CACHE_MOST_BYTES ((uint64_t)256 << 20)
#define WA_CACHE_MOST_FILES 4096u

/* What winattn_set_cache_dir does. */
winattn_status wa_cache_set_folder(const char *folder);

/* Would a program be stored? */
bool wa_cache_stores(void);

/* Why there is no cache although the user wants one; NULL: there is, or the
 * user wants none. */
WA_SISTER const char *wa_cache_trouble(void);

/* The program that was stored under this key: its file's content, which the
 * caller frees, and where in it the binary is. *file becomes NULL if there is
 * none that is sound. Fails only where memory is short. */
winattn_status wa_cache_load(const char *key, unsigned char **file,
                             wa_cache_record *record);

/* Fails only where memory is short. */
winattn_status wa_cache_store(const char *key, const unsigned char *binary,
                              size_t binary_size);

/* Removes the oldest of the cache's files, and temporary files that nobody
 * writes any more; files of others in the folder are left alone. */
void wa_cache_prune(const char *folder, uint64_t most_bytes,
                    size_t most_files);

/* The name of a key's file, for tests. */
#define WA_CACHE_NAME_SIZE 48
void wa_cache_file_name(const char *key, char name[WA_CACHE_NAME_SIZE]);

#endif
