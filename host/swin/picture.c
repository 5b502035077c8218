/* SPDX-License-Identifier: Apache-2.0
 * Pixels of a picture: what they may cost, and where they go; and which kind
 * of picture a file is. */
#include "swin/picture.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swin/files.h"

/* Deflate makes 1032 bytes of one, at most, and PNG has up to 8 pixels in
 * these; a JPEG's blocks of 256 pixels take a bit at least. */
#define PIXELS_PER_BYTE 8256u

/* What a byte of a file may cost; a small one counts as SIZE_LEAST, which is
 * all that a small hostile file gets. Pictures of cameras are far below. */
#define SIZE_LEAST ((uint64_t)8 << 20)
#define MEMORY_PER_BYTE 60u
#define WORK_PER_BYTE 256u

/* What is done with a pixel, also behind this file: it becomes red, green and
 * blue, gets to its place, which is far from its neighbour's where the picture
 * is turned, and is resized. */
#define PIXEL_WORK 8u
#define TURNED_PIXEL_WORK 24u

#define COLOURS 3

bool picture_affords(const picture_cost *cost, char reason[REASON_SIZE])
{
    const uint64_t size = cost->size > SIZE_LEAST ? cost->size : SIZE_LEAST;
    if (cost->memory > size * MEMORY_PER_BYTE) {
        snprintf(reason, REASON_SIZE,
                 "reading it takes %llu MiB of memory, more than the %llu "
                 "that a file of %zu bytes may take",
                 (unsigned long long)(cost->memory >> 20),
                 (unsigned long long)(size * MEMORY_PER_BYTE >> 20),
                 cost->size);
        return false;
    }
    if (cost->work > size * WORK_PER_BYTE) {
        snprintf(reason, REASON_SIZE,
                 "reading it is more work than a file of %zu bytes may make",
                 cost->size);
        return false;
    }
    return true;
}

static bool is_turned(const picture *p) { return p->orientation >= 5; }

/* Where the stored pixels go. */
static void set_places(picture *p, ptrdiff_t height, ptrdiff_t width)
{
    const unsigned o = p->orientation;
    const bool turned = is_turned(p); /* rows become columns */
    const bool from_right = o == 2 || o == 3 || o == 7 || o == 8;
    const bool from_bottom = o == 3 || o == 4 || o == 6 || o == 7;
    p->right = turned ? height : 1;
    p->down = turned ? 1 : width;
    p->first = 0;
    if (from_right) {
        p->first += (width - 1) * p->right;
        p->right = -p->right;
    }
    if (from_bottom) {
        p->first += (height - 1) * p->down;
        p->down = -p->down;
    }
    p->height = (uint32_t)(turned ? width : height);
    p->width = (uint32_t)(turned ? height : width);
}

void picture_put(picture *p, size_t y, size_t x, size_t step, size_t count,
                 const unsigned char *pixels)
{
    unsigned char *to =
        p->pixels + COLOURS * (p->first + (ptrdiff_t)y * p->down +
                               (ptrdiff_t)x * p->right);
    const ptrdiff_t apart = COLOURS * p->right * (ptrdiff_t)step;
    if (apart == COLOURS) {
        memcpy(to, pixels, COLOURS * count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        for (ptrdiff_t c = 0; c < COLOURS; c++)
            to[(ptrdiff_t)i * apart + c] = *pixels++;
}

bool picture_start(picture *p, uint64_t height, uint64_t width,
                   picture_cost *cost, char reason[REASON_SIZE])
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
    if (height * width / PIXELS_PER_BYTE > cost->size) {
        snprintf(reason, REASON_SIZE,
                 "%llu x %llu pixels cannot be in %zu bytes: it is damaged",
                 (unsigned long long)height, (unsigned long long)width,
                 cost->size);
        return false;
    }
    cost->memory += height * width * COLOURS;
    cost->work +=
        height * width * (is_turned(p) ? TURNED_PIXEL_WORK : PIXEL_WORK);
    if (!picture_affords(cost, reason))
        return false;
    set_places(p, (ptrdiff_t)height, (ptrdiff_t)width);
    p->pixels = malloc((size_t)(height * width) * COLOURS);
    if (!p->pixels)
        snprintf(reason, REASON_SIZE, "there is no memory for its pixels");
    return p->pixels != NULL;
}

void picture_free(picture *p)
{
    free(p->pixels);
    p->pixels = NULL;
}

/* ---- Files ---- */

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

/* ---- EXIF's orientation: an entry of the first directory of a TIFF ---- */

#define HEAD_SIZE 8u
#define ENTRY_SIZE 12u
#define TAG_ORIENTATION 0x0112u

static uint32_t number(const unsigned char *at, size_t size, bool is_little)
{
    uint32_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | at[is_little ? size - 1 - i : i];
    return value;
}

/* What an entry with one whole number has; 0: it has something else. */
static uint32_t value_of(const unsigned char *entry, bool is_little)
{
    static const size_t sizes[] = {[1] = 1, [3] = 2, [4] = 4}; /* of types */
    const uint32_t type = number(entry + 2, 2, is_little);
    if (type >= sizeof sizes / sizeof *sizes ||
        number(entry + 4, 4, is_little) != 1)
        return 0;
    return number(entry + 8, sizes[type], is_little);
}

unsigned exif_orientation(const unsigned char *block, size_t size)
{
    uint32_t found = 0;
    if (size < HEAD_SIZE + 2 ||
        (memcmp(block, "II*\0", 4) != 0 && memcmp(block, "MM\0*", 4) != 0))
        return 1;
    const bool is_little = block[0] == 'I';
    const size_t directory = number(block + 4, 4, is_little);
    if (directory > size - 2)
        return 1;
    const size_t said = number(block + directory, 2, is_little);
    const size_t there = (size - 2 - directory) / ENTRY_SIZE;
    const unsigned char *entry = block + directory + 2;
    for (size_t i = 0; i < said && i < there; i++, entry += ENTRY_SIZE)
        if (number(entry, 2, is_little) == TAG_ORIENTATION)
            found = value_of(entry, is_little);
    return found >= 1 && found <= 8 ? found : 1;
}
