/* SPDX-License-Identifier: Apache-2.0
 * What is the same on every operating system; what differs is in os_posix.c
 * and os_windows.c. */
#include <stdio.h>
#include <string.h>

#include "base/os_parts.h"

/* Processes that write at once, and what crashed ones left behind. */
#define TEMPORARY_NAMES 100

/* A process's number may come again, but not at the same time. */
wa_unique wa_unique_take(void)
{
    static uint64_t calls; /* guarded by the cache's lock */
    wa_unique numbers = {.time = wa_clock_ticks(),
                         .process = wa_process_number()};
    wa_cache_lock_take();
    numbers.call = calls++;
    wa_cache_lock_release();
    return numbers;
}

bool wa_folder_make(const char *path)
{
    char part[WA_PATH_SIZE];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return false;
    wa_place place;
    if (wa_place_enter(path, &place)) {
        wa_place_leave(&place);
        return wa_folder_takes_files(path);
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i < length; i++)
        if (wa_is_separator(part[i])) {
            part[i] = 0;
            wa_make_one_folder(part); /* only the last one must succeed */
            part[i] = path[i];
        }
    return wa_make_one_folder(part) && !wa_folder_trouble(path) &&
           wa_folder_takes_files(path);
}

wa_file_answer wa_own_file_read(const char *folder, const char *name,
                                size_t most, unsigned char **bytes,
                                size_t *size)
{
    wa_place place;
    if (!wa_place_enter(folder, &place))
        return WA_FILE_UNREADABLE;
    const wa_file_answer answer =
        wa_place_read(&place, name, most, bytes, size);
    wa_place_leave(&place);
    return answer;
}

bool wa_file_replace(const char *folder, const char *name,
                     const unsigned char *bytes, size_t size)
{
    wa_place place;
    char temporary[64];
    bool written = false, exists = true;
    if (!wa_place_enter(folder, &place))
        return false;
    for (int i = 0; !written && exists && i < TEMPORARY_NAMES; i++) {
        snprintf(temporary, sizeof temporary, WA_TEMPORARY "%lu-%d",
                 wa_process_number(), i);
        written = wa_place_write_new(&place, temporary, bytes, size, &exists);
    }
    if (written && !wa_place_rename(&place, temporary, name)) {
        wa_place_remove(&place, temporary);
        written = false;
    }
    wa_place_leave(&place);
    return written;
}

void wa_file_remove(const char *folder, const char *name)
{
    wa_place place;
    if (wa_place_enter(folder, &place)) {
        wa_place_remove(&place, name);
        wa_place_leave(&place);
    }
}
