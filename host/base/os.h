/* SPDX-License-Identifier: Apache-2.0
 * What C11 leaves to the operating system: locks, environment, files, and what
 * tells processes apart. os_*.c are the only files that call it. Paths are
 * UTF-8, with '/' everywhere. */
#ifndef WINATTN_OS_H
#define WINATTN_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sister.h"

#if defined(_MSC_VER)
#define WA_THREAD_LOCAL __declspec(thread)
#else
#define WA_THREAD_LOCAL _Thread_local
#endif

typedef struct wa_lock wa_lock;

WA_SISTER wa_lock *wa_lock_create(void);       /* NULL: out of memory */
WA_SISTER void wa_lock_destroy(wa_lock *lock); /* NULL is fine */
WA_SISTER void wa_lock_take(wa_lock *lock);
WA_SISTER void wa_lock_release(wa_lock *lock);

/* These locks exist from the start of the program. The cache's may be taken
 * while the global one is held, not the other way round; whoever holds the
 * tuning's takes no other. */
WA_SISTER void wa_global_lock_take(void);
WA_SISTER void wa_global_lock_release(void);
void wa_cache_lock_take(void);
void wa_cache_lock_release(void);
void wa_tuning_lock_take(void);
void wa_tuning_lock_release(void);

/* What was found of something that the user may set. */
typedef enum wa_setting {
    WA_UNSET,
    WA_SET,
    WA_TOO_LONG /* for the buffer that was to hold it */
} wa_setting;

wa_setting wa_environment(const char *name, char *value, size_t size);

/* The folder for what the user's programs could make again. It need not exist.
 */
wa_setting wa_user_cache_folder(char *path, size_t size);

/* Why nothing is read from or written to a folder of the user's own: it is of
 * somebody else, or others may write to it, and "its" are the words for it.
 * NULL: nothing is wrong, or there is no such folder. Windows has lists of who
 * may what, and keeps the user's folders to himself. */
const char *wa_folder_trouble(const char *path);

/* Makes the folder, and those above it, for the user alone. True if it is
 * there, the user's own, and takes files. */
bool wa_folder_make(const char *path);

/* All bytes of a file, to be freed; unreadable if there are more than `most`.
 */
typedef enum wa_file_answer {
    WA_FILE_READ,
    WA_FILE_UNREADABLE,
    WA_FILE_NO_MEMORY
} wa_file_answer;
WA_SISTER wa_file_answer wa_file_read(const char *path, size_t most,
                                      unsigned char **bytes, size_t *size);

/* The same of a file in a folder of the user's own, which must be his own,
 * too, and no link: what others could write is not read. */
wa_file_answer wa_own_file_read(const char *folder, const char *name,
                                size_t most, unsigned char **bytes,
                                size_t *size);

/* All bytes of a file where it lies, to be read only. They change if somebody
 * writes to the file, and whoever makes it shorter takes them away, which ends
 * the program that reads them. */
typedef struct wa_file_map {
    const unsigned char *bytes; /* NULL: the file is empty */
    size_t size;
} wa_file_map;
WA_SISTER wa_file_answer wa_file_map_open(const char *path, wa_file_map *map);
WA_SISTER void wa_file_map_close(wa_file_map *map);

/* These are of files in a folder of the user's own, and do nothing in others.
 * Readers see the old content or the new one, never a part, also if several
 * processes write. The name of the file that is written first starts with
 * WA_TEMPORARY. */
#define WA_TEMPORARY "winattn-tmp-"
bool wa_file_replace(const char *folder, const char *name,
                     const unsigned char *bytes, size_t size);

void wa_file_remove(const char *folder, const char *name);

/* Calls visit for every file of a folder. */
typedef void wa_file_visitor(void *data, const char *name, uint64_t bytes,
                             double age_seconds);
void wa_folder_visit(const char *path, wa_file_visitor *visit, void *data);

unsigned long wa_process_number(void);

/* Numbers that no other call gets together, in this process or in any. */
typedef struct wa_unique {
    uint64_t time, process, call;
} wa_unique;
wa_unique wa_unique_take(void);

#endif
