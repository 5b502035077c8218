/* SPDX-License-Identifier: Apache-2.0
 * The .npy format, version 1 (numpy.lib.format). */
#include "npy.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"

static double element(const char *type, const unsigned char *from)
{
    double f64;
    float f32;
    int64_t i64;
    if (strcmp(type, "<f2") == 0)
        return kind_read(KIND_FP16, from);
    if (strcmp(type, "<f8") == 0) {
        memcpy(&f64, from, 8);
        return f64;
    }
    if (strcmp(type, "<f4") == 0) {
        memcpy(&f32, from, 4);
        return (double)f32;
    }
    if (strcmp(type, "<i8") == 0) {
        memcpy(&i64, from, 8);
        return (double)i64;
    }
    return *from;
}

npy_array npy_read(const char *folder, const char *case_name,
                   const char *tensor)
{
    npy_array array;
    char path[1024], header[4096], type[8] = "";
    unsigned char start[10];
    memset(&array, 0, sizeof array);
    snprintf(path, sizeof path, "%s/%s_%s.npy", folder, case_name, tensor);
    FILE *file = fopen(path, "rb");
    if (!file)
        return array;
    size_t length = 0;
    if (fread(start, 1, 10, file) == 10 &&
        memcmp(start, "\x93NUMPY\x01", 7) == 0)
        length = start[8] + 256u * start[9];
    if (length == 0 || length >= sizeof header ||
        fread(header, 1, length, file) != length)
        goto cleanup;
    header[length] = 0;

    const char *descr = strstr(header, "'descr': '");
    const char *shape = strstr(header, "'shape': (");
    if (!descr || !shape || !strstr(header, "'fortran_order': False"))
        goto cleanup;
    sscanf(descr + 10, "%3[^']", type);
    array.count = 1;
    for (const char *at = shape + 10; *at && *at != ')';) {
        char *end;
        const unsigned long extent = strtoul(at, &end, 10);
        if (end == at || array.axes == 8)
            break;
        array.extent[array.axes++] = extent;
        array.count *= extent;
        at = end + strspn(end, ", ");
    }
    const size_t size = strcmp(type, "|u1") == 0   ? 1
                        : strcmp(type, "<f2") == 0 ? 2
                        : strcmp(type, "<f4") == 0 ? 4
                                                   : 8;
    unsigned char *bytes = malloc(array.count * size + 1);
    double *value = malloc(sizeof *value * (array.count + 1));
    if (bytes && value &&
        fread(bytes, size, array.count, file) == array.count) {
        for (size_t i = 0; i < array.count; i++)
            value[i] = element(type, bytes + i * size);
        array.value = value;
    } else {
        free(value);
    }
    free(bytes);
cleanup:
    fclose(file);
    return array;
}

void npy_free(npy_array *array)
{
    free(array->value);
    memset(array, 0, sizeof *array);
}
