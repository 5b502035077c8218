/* SPDX-License-Identifier: Apache-2.0
 * Reads files with what C has. */
#include "swin/read_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 65536

/* Also closes the file. */
static unsigned char *read_open(FILE *file, size_t most, file_check *check,
                                size_t *size, char *reason, size_t reason_size)
{
    unsigned char *bytes = NULL;
    size_t room = 0, done = 0;
    for (;;) {
        if (done == room) {
            room = room ? 2 * room : FIRST_ROOM;
            room = room > most ? most + 1 : room;
            unsigned char *more = realloc(bytes, room + 1);
            if (!more) {
                snprintf(reason, reason_size, "there is no memory for it");
                break;
            }
            bytes = more;
        }
        errno = 0;
        const size_t count = fread(bytes + done, 1, room - done, file);
        const bool is_start = done == 0;
        done += count;
        if (done > most) {
            snprintf(reason, reason_size, "it has more than %zu bytes", most);
            break;
        }
        if (count == 0 && ferror(file)) {
            snprintf(reason, reason_size, "it cannot be read: %s",
                     strerror(errno));
            break;
        }
        if (is_start && check && !check(bytes, done, reason, reason_size))
            break;
        if (count == 0) {
            fclose(file);
            bytes[done] = 0;
            *size = done;
            return bytes;
        }
    }
    free(bytes);
    fclose(file);
    return NULL;
}

unsigned char *read_file(const char *path, size_t most, file_check *check,
                         size_t *size, char *reason, size_t reason_size)
{
    FILE *file = fopen(path, "rb");
    if (file)
        return read_open(file, most, check, size, reason, reason_size);
    snprintf(reason, reason_size, "%s", strerror(errno));
    return NULL;
}
