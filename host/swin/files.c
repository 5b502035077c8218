/* SPDX-License-Identifier: Apache-2.0
 * Reads files with what C has. */
#include "swin/files.h"

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

/* ---- The .npy format, version 1 (numpy.lib.format) ---- */

#define START_SIZE 10
#define HEADER_SIZE 118 /* with the start a multiple of 64, as it must be */

bool npy_write(const char *path, size_t axes, const uint64_t extent[NPY_AXES],
               const float *values)
{
    static const unsigned char start[START_SIZE] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, HEADER_SIZE, 0};
    static const uint32_t one = 1;
    char header[HEADER_SIZE + 1];
    size_t count = 1;
    const bool little = *(const unsigned char *)&one == 1;
    int length = snprintf(header, sizeof header,
                          "{'descr': '%cf4', 'fortran_order': False, "
                          "'shape': (",
                          little ? '<' : '>');
    for (size_t i = 0; i < axes && length < HEADER_SIZE; i++) {
        count *= (size_t)extent[i];
        length += snprintf(header + length, sizeof header - (size_t)length,
                           "%llu, ", (unsigned long long)extent[i]);
    }
    if (length + 4 > HEADER_SIZE)
        return false;
    length += snprintf(header + length, sizeof header - (size_t)length, ")}");
    memset(header + length, ' ', (size_t)(HEADER_SIZE - length));
    header[HEADER_SIZE - 1] = '\n';
    FILE *file = fopen(path, "wb");
    if (!file)
        return false;
    const bool written = fwrite(start, 1, START_SIZE, file) == START_SIZE &&
                         fwrite(header, 1, HEADER_SIZE, file) == HEADER_SIZE &&
                         fwrite(values, sizeof *values, count, file) == count;
    return fclose(file) == 0 && written;
}
