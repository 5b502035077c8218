/* SPDX-License-Identifier: Apache-2.0
 * PNG by libpng: as 8 bits of red, green and blue, transparency left out. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "swin/picture.h"

#define SIGNATURE_SIZE 8u
#define CHUNK_SIZE 12u /* of what is around a chunk's data */

/* To inflate a byte, and to undo its row's filter. */
#define BYTE_WORK ((uint64_t)5)

/* Compressed, a row has no more than twice its bytes, and what a library
 * reads ahead. Whoever goes on behind the last row has something to hide:
 * libpng inflates it all. */
#define READ_AHEAD 65536u

/* All that must outlive a longjmp. */
typedef struct reading {
    png_structp png;
    png_infop info;
    const unsigned char *at, *end;
    size_t allowed;    /* bytes that may be read until the next row */
    size_t line_bytes; /* as the file has them */
    png_bytep row;
    picture *p;
    char *reason;
} reading;

static void on_error(png_structp png, png_const_charp message)
{
    reading *r = png_get_error_ptr(png);
    snprintf(r->reason, REASON_SIZE, "it is no good PNG: %s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void read_some(png_structp png, png_bytep to, size_t count)
{
    reading *r = png_get_io_ptr(png);
    if (count > (size_t)(r->end - r->at))
        png_error(png, "it is cut");
    if (count > r->allowed)
        png_error(png, "it has more data than its pixels need");
    memcpy(to, r->at, count);
    r->at += count;
    r->allowed -= count;
}

static void read_header(reading *r, size_t size)
{
    r->allowed = size;
    png_set_read_fn(r->png, r, read_some);
    png_set_user_limits(r->png, PICTURE_SIDE_MOST, PICTURE_SIDE_MOST);
    /* what is not needed for pixels is passed over */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(r->png, r->info);
    r->line_bytes = png_get_rowbytes(r->png, r->info) + 1;
    png_set_palette_to_rgb(r->png);
    png_set_expand_gray_1_2_4_to_8(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_gray_to_rgb(r->png);
    png_read_update_info(r->png, r->info);
}

/* A pass of Adam7, or all there is. */
typedef struct pass {
    size_t x, y, right, down; /* the first pixel, and from one to the next */
} pass;

static const pass all_pixels = {0, 0, 1, 1};
static const pass adam7[] = {
    {0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
    {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2},
};

static void read_pass(reading *r, const pass *s, size_t height, size_t width)
{
    const size_t count = (width + s->right - 1 - s->x) / s->right;
    for (size_t y = s->y; count > 0 && y < height; y += s->down) {
        r->allowed = 2 * r->line_bytes + READ_AHEAD;
        png_read_row(r->png, r->row, NULL);
        picture_put(r->p, y, s->x, s->right, count, r->row);
    }
}

static bool read_rows(reading *r, size_t size)
{
    const png_uint_32 height = png_get_image_height(r->png, r->info);
    const png_uint_32 width = png_get_image_width(r->png, r->info);
    picture_cost cost = {.size = size,
                         .work = BYTE_WORK * height * r->line_bytes};
    if (png_get_rowbytes(r->png, r->info) != (size_t)3 * width)
        png_error(r->png, "its rows have an unexpected size");
    if (!picture_start(r->p, height, width, &cost, r->reason))
        return false;
    r->row = malloc((size_t)3 * width);
    if (!r->row)
        png_error(r->png, "there is no memory");
    if (png_get_interlace_type(r->png, r->info) == PNG_INTERLACE_NONE)
        read_pass(r, &all_pixels, height, width);
    else
        for (size_t i = 0; i < sizeof adam7 / sizeof *adam7; i++)
            read_pass(r, &adam7[i], height, width);
    r->allowed = size;
    png_read_end(r->png, NULL);
    return true;
}

/* Calls of libpng return here where they fail. */
static bool read_guarded(reading *r, size_t size)
{
    if (setjmp(png_jmpbuf(r->png)))
        return false;
    read_header(r, size);
    return read_rows(r, size);
}

bool png_decode(const unsigned char *bytes, size_t size, picture *p,
                char reason[REASON_SIZE])
{
    reading r = {.at = bytes, .end = bytes + size, .p = p, .reason = reason};
    bool read = false;
    snprintf(reason, REASON_SIZE, "libpng does not start");
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error,
                                   on_warning);
    if (r.png)
        r.info = png_create_info_struct(r.png);
    if (r.info)
        read = read_guarded(&r, size);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    free(r.row);
    return read;
}

/* Before libpng reads it, which puts each row in its place at once: the chunk
 * may stand behind the pixels. */
unsigned png_orientation(const unsigned char *bytes, size_t size)
{
    size_t at = SIGNATURE_SIZE;
    while (size - at >= CHUNK_SIZE) {
        const unsigned char *name = bytes + at + 4;
        const size_t length = png_get_uint_32(bytes + at);
        if (length > size - at - CHUNK_SIZE)
            break;
        if (memcmp(name, "eXIf", 4) == 0 &&
            png_get_uint_32(name + 4 + length) ==
                crc32(0, name, (uInt)length + 4))
            return exif_orientation(name + 4, length);
        at += CHUNK_SIZE + length;
    }
    return 1;
}
