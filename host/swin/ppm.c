/* SPDX-License-Identifier: Apache-2.0
 * PPM and PGM as Netpbm describes them: P6 and P5, with 8 or 16 bits. */
#include <stdio.h>

#include "swin/picture.h"

#define MOST_VALUE 65535u

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static bool is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Spaces, and comments to the end of their lines. */
static void skip_space(cursor *c)
{
    while (c->at < c->end && (is_space(*c->at) || *c->at == '#')) {
        if (*c->at == '#')
            while (c->at < c->end && *c->at != '\n' && *c->at != '\r')
                c->at++;
        else
            c->at++;
    }
}

/* A decimal number of at most MOST_VALUE after spaces, of which there is one
 * at least. */
static bool read_number(cursor *c, uint32_t *number)
{
    const unsigned char *before = c->at;
    *number = 0;
    skip_space(c);
    const unsigned char *first = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        *number = 10 * *number + (*c->at++ - (uint32_t)'0');
        if (*number > MOST_VALUE)
            return false;
    }
    return first > before && c->at > first;
}

/* Numbers of up to `most`, of one byte or two each, become 8 bits; a grey
 * pixel three of the same. False: one of them is larger. */
static bool read_pixels(const unsigned char *from, uint32_t most,
                        uint32_t colours, picture *p)
{
    const size_t bytes = most > 255 ? 2 : 1;
    const size_t count = (size_t)p->height * p->width * colours;
    unsigned char *to = p->pixels;
    for (size_t i = 0; i < count; i++, from += bytes) {
        const uint32_t value =
            bytes == 2 ? (uint32_t)from[0] << 8 | from[1] : from[0];
        if (value > most)
            return false;
        const unsigned char rounded =
            (unsigned char)((value * 510 + most) / (2 * most));
        *to++ = rounded;
        if (colours == 1) {
            *to++ = rounded;
            *to++ = rounded;
        }
    }
    return true;
}

bool ppm_decode(const unsigned char *bytes, size_t size, picture *p,
                char reason[REASON_SIZE])
{
    const uint32_t colours = bytes[1] == '6' ? 3 : 1;
    uint32_t width, height, most;
    cursor c = {bytes + 2, bytes + size};
    if (!read_number(&c, &width) || !read_number(&c, &height) ||
        !read_number(&c, &most) || most == 0 || c.at == c.end ||
        !is_space(*c.at++)) {
        snprintf(reason, REASON_SIZE,
                 "after P%c there are no width, height and largest number, "
                 "each at most %u",
                 bytes[1], MOST_VALUE);
        return false;
    }
    const uint64_t needed =
        (uint64_t)width * height * colours * (most > 255 ? 2 : 1);
    if (needed > (uint64_t)(c.end - c.at)) {
        snprintf(reason, REASON_SIZE,
                 "it is cut: %u x %u pixels have %llu bytes, of which there "
                 "are %llu",
                 (unsigned)height, (unsigned)width, (unsigned long long)needed,
                 (unsigned long long)(c.end - c.at));
        return false;
    }
    picture_cost cost = {.size = size};
    if (!picture_start(p, height, width, &cost, reason))
        return false;
    if (read_pixels(c.at, most, colours, p))
        return true;
    snprintf(reason, REASON_SIZE, "a number is larger than %u, the largest",
             (unsigned)most);
    return false;
}
