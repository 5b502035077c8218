/* SPDX-License-Identifier: Apache-2.0
 * Which kind of picture is it? */
#include "swin/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swin/files.h"

typedef bool decoder(const unsigned char *bytes, size_t size, picture *p,
                     char reason[REASON_SIZE]);

#define LONGEST_START 8

typedef struct kind {
    unsigned char start[LONGEST_START];
    size_t length;
    const char *name;
    decoder *decode; /* NULL: not in this build */
    unsigned (*orientation)(const unsigned char *bytes, size_t size);
} kind;

static const kind kinds[] = {
    {{'P', '6'}, 2, "PPM", ppm_decode, NULL},
    {{'P', '5'}, 2, "PGM", ppm_decode, NULL},
#ifdef SWIN_HAS_PNG
    {{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'},
     8,
     "PNG",
     png_decode,
     png_orientation},
#else
    {{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, 8, "PNG", NULL, NULL},
#endif
#ifdef SWIN_HAS_JPEG
    {{0xff, 0xd8, 0xff}, 3, "JPEG", jpeg_decode, jpeg_orientation},
#else
    {{0xff, 0xd8, 0xff}, 3, "JPEG", NULL, NULL},
#endif
};

/* NULL: it is none that can be read; reason says why. */
static const kind *kind_of(const unsigned char *bytes, size_t size,
                           char *reason, size_t reason_size)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (size < kinds[i].length ||
            memcmp(bytes, kinds[i].start, kinds[i].length) != 0)
            continue;
        if (kinds[i].decode)
            return &kinds[i];
        snprintf(reason, reason_size,
                 "it is a %s, which this program was built without",
                 kinds[i].name);
        return NULL;
    }
    snprintf(reason, reason_size, "it is no PPM (P6, P5), PNG or JPEG");
    return NULL;
}

static bool is_picture(const unsigned char *start, size_t size, char *reason,
                       size_t reason_size)
{
    return kind_of(start, size, reason, reason_size) != NULL;
}

bool picture_decode(const unsigned char *bytes, size_t size, bool upright,
                    picture *p, char reason[REASON_SIZE])
{
    const kind *k = kind_of(bytes, size, reason, REASON_SIZE);
    *p = (picture){.orientation = 1};
    if (k && upright && k->orientation)
        p->orientation = k->orientation(bytes, size);
    if (k && k->decode(bytes, size, p, reason))
        return true;
    picture_free(p);
    return false;
}

bool picture_read(const char *path, bool upright, picture *p,
                  char reason[REASON_SIZE])
{
    size_t size;
    unsigned char *bytes = read_file(path, PICTURE_FILE_MOST, is_picture,
                                     &size, reason, REASON_SIZE);
    *p = (picture){0};
    if (!bytes)
        return false;
    const bool read = picture_decode(bytes, size, upright, p, reason);
    free(bytes);
    return read;
}
