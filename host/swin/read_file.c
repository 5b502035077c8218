/* SPDX-License-Identifier: Apache-2.0
 * Reads files with what C has. */
#include "swin/read_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 65536

unsigned char *read_file(const char *path, size_t most, size_t *size,
                         char *reason, size_t reason_size)
{
    unsigned char *bytes = NULL;
    size_t room = 0, done = 0;
    FILE *file = fopen(path, "rb");
    if (!file) {
        snprintf(reason, reason_size, "%s", strerror(errno));
        return NULL;
    }
    for (;;) {
        if (done == room) {
            room = room ? 2 * room : FIRST_ROOM;
            unsigned char *more = realloc(bytes, room + 1);
            if (!more) {
                snprintf(reason, reason_size, "there is no memory for it");
                break;
            }
            bytes = more;
        }
        const size_t count = fread(bytes + done, 1, room - done, file);
        done += count;
        if (done > most) {
            snprintf(reason, reason_size, "it has more than %zu bytes", most);
            break;
        }
        if (count == 0 && ferror(file)) {
            snprintf(reason, reason_size, "it cannot be read");
            break;
        }
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
