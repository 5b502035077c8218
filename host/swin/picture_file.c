/* SPDX-License-Identifier: Apache-2.0
 * Which kind of picture is it? */
#include "swin/picture_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swin/read_file.h"

/* Deflate makes 1032 bytes of one, at most, and PNG has up to 8 pixels in
 * these; a JPEG's blocks of 256 pixels take a bit at least. */
#define PIXELS_PER_BYTE 8256u

bool picture_start(picture *p, uint64_t height, uint64_t width, size_t size,
                   char reason[REASON_SIZE])
{
    p->pixels = NULL;
    if (!height || !width || height > PICTURE_SIDE_MOST ||
        width > PICTURE_SIDE_MOST || height * width > PICTURE_PIXELS_MOST) {
        snprintf(reason, REASON_SIZE,
                 "it has %llu x %llu pixels; sides are 1 to %u, and there "
                 "are at most %llu pixels",
                 (unsigned long long)height, (unsigned long long)width,
                 PICTURE_SIDE_MOST, (unsigned long long)PICTURE_PIXELS_MOST);
        return false;
    }
    if (height * width / PIXELS_PER_BYTE > size) {
        snprintf(reason, REASON_SIZE,
                 "%llu x %llu pixels cannot be in %zu bytes: it is damaged",
                 (unsigned long long)height, (unsigned long long)width, size);
        return false;
    }
    p->height = (uint32_t)height;
    p->width = (uint32_t)width;
    p->pixels = malloc((size_t)(height * width) * 3);
    if (!p->pixels)
        snprintf(reason, REASON_SIZE, "there is no memory for its pixels");
    return p->pixels != NULL;
}

void picture_free(picture *p)
{
    free(p->pixels);
    p->pixels = NULL;
}

typedef bool decoder(const unsigned char *bytes, size_t size, picture *p,
                     char reason[REASON_SIZE]);

#define LONGEST_START 8

static const struct {
    unsigned char start[LONGEST_START];
    size_t length;
    decoder *decode; /* NULL: not in this build */
    const char *name;
} kinds[] = {
    {{'P', '6'}, 2, ppm_decode, "PPM"},
    {{'P', '5'}, 2, ppm_decode, "PGM"},
#ifdef SWIN_HAS_PNG
    {{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, 8, png_decode, "PNG"},
#else
    {{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, 8, NULL, "PNG"},
#endif
#ifdef SWIN_HAS_JPEG
    {{0xff, 0xd8, 0xff}, 3, jpeg_decode, "JPEG"},
#else
    {{0xff, 0xd8, 0xff}, 3, NULL, "JPEG"},
#endif
};

bool picture_decode(const unsigned char *bytes, size_t size, picture *p,
                    char reason[REASON_SIZE])
{
    *p = (picture){0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (size < kinds[i].length ||
            memcmp(bytes, kinds[i].start, kinds[i].length) != 0)
            continue;
        if (!kinds[i].decode) {
            snprintf(reason, REASON_SIZE,
                     "it is a %s, which this program was built without",
                     kinds[i].name);
            return false;
        }
        if (kinds[i].decode(bytes, size, p, reason))
            return true;
        picture_free(p);
        return false;
    }
    snprintf(reason, REASON_SIZE, "it is no PPM (P6, P5), PNG or JPEG");
    return false;
}

bool picture_read(const char *path, picture *p, char reason[REASON_SIZE])
{
    size_t size;
    unsigned char *bytes =
        read_file(path, PICTURE_FILE_MOST, &size, reason, REASON_SIZE);
    *p = (picture){0};
    if (!bytes)
        return false;
    const bool read = picture_decode(bytes, size, p, reason);
    free(bytes);
    return read;
}
