/* SPDX-License-Identifier: Apache-2.0
 * What os.c makes of each operating system's own: os_posix.c has it, and
 * os_windows.c. */
#ifndef WINATTN_OS_PARTS_H
#define WINATTN_OS_PARTS_H

#include "base/os.h"

#define WA_PATH_SIZE 4096
#define WA_NO_FOLDER "what is named as its folder is none"

/* A folder of the user's own that was entered. What is put in its place later
 * is not taken, but on Windows, which keeps the user's folders to himself. */
typedef struct wa_place {
    int handle;
    const char *path;
} wa_place;

bool wa_place_enter(const char *path, wa_place *place);
void wa_place_leave(const wa_place *place);

/* What wa_own_file_read reads. */
wa_file_answer wa_place_read(const wa_place *place, const char *name,
                             size_t most, unsigned char **bytes, size_t *size);

/* Fails if the file exists; *exists then says so. */
bool wa_place_write_new(const wa_place *place, const char *name,
                        const unsigned char *bytes, size_t size, bool *exists);

/* Replaces what was called `to`. */
bool wa_place_rename(const wa_place *place, const char *from, const char *to);
void wa_place_remove(const wa_place *place, const char *name);

/* For the user alone, where the system does not do so anyway. True if it is
 * there. */
bool wa_make_one_folder(const char *path);

/* Windows knows when a file is made, not before: it says yes. */
bool wa_folder_takes_files(const char *path);

bool wa_is_separator(char c);
uint64_t wa_clock_ticks(void);

#endif
