/* SPDX-License-Identifier: Apache-2.0
 * PNG by libpng: as 8 bits of red, green and blue, transparency left out. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swin/picture_file.h"

/* Nobody's picture has more, in chunks that are not pixels. */
#define CHUNK_MOST ((png_alloc_size_t)8 << 20)
#define CHUNKS_MOST 1000u

/* All that must outlive a longjmp. */
typedef struct reading {
    png_structp png;
    png_infop info;
    const unsigned char *at, *end;
    png_bytepp rows;
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
    memcpy(to, r->at, count);
    r->at += count;
}

static void read_header(reading *r)
{
    png_set_read_fn(r->png, r, read_some);
    png_set_user_limits(r->png, PICTURE_SIDE_MOST, PICTURE_SIDE_MOST);
    png_set_chunk_malloc_max(r->png, CHUNK_MOST);
    png_set_chunk_cache_max(r->png, CHUNKS_MOST);
    png_read_info(r->png, r->info);
    png_set_palette_to_rgb(r->png);
    png_set_expand_gray_1_2_4_to_8(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_gray_to_rgb(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

static bool read_rows(reading *r, size_t size)
{
    const png_uint_32 height = png_get_image_height(r->png, r->info);
    const png_uint_32 width = png_get_image_width(r->png, r->info);
    if (png_get_rowbytes(r->png, r->info) != (size_t)3 * width)
        png_error(r->png, "its rows have an unexpected size");
    if (!picture_start(r->p, height, width, size, r->reason))
        return false;
    r->rows = calloc(height, sizeof *r->rows);
    if (!r->rows)
        png_error(r->png, "there is no memory");
    for (png_uint_32 y = 0; y < height; y++)
        r->rows[y] = r->p->pixels + (size_t)3 * width * y;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
    return true;
}

/* Calls of libpng return here where they fail. */
static bool read_guarded(reading *r, size_t size)
{
    if (setjmp(png_jmpbuf(r->png)))
        return false;
    read_header(r);
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
    free(r.rows);
    return read;
}
