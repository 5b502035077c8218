/* SPDX-License-Identifier: Apache-2.0
 * Pixels of a picture: what they may cost, and where they go. */
#include "swin/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
