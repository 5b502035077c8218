/* SPDX-License-Identifier: Apache-2.0
 * The .npy format, version 1 (numpy.lib.format). */
#include "swin/npy.h"

#include <stdio.h>
#include <string.h>

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
