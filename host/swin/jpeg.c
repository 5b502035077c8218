/* SPDX-License-Identifier: Apache-2.0
 * JPEG by libjpeg or libjpeg-turbo. */
#include <stdio.h> /* before jpeglib.h, which needs it */

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>

#include "swin/picture_file.h"

/* A hostile file has thousands, each of which passes over all pixels. */
#define SCANS_MOST 64

/* All that must outlive a longjmp; libjpeg keeps pointers to its parts. */
typedef struct reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    picture *p;
    char *reason;
} reading;

static void fail(j_common_ptr jpeg)
{
    char message[JMSG_LENGTH_MAX];
    reading *r = jpeg->client_data;
    jpeg->err->format_message(jpeg, message);
    snprintf(r->reason, REASON_SIZE, "it is no good JPEG: %s", message);
    longjmp(r->back, 1);
}

/* Level -1: pixels are damaged, or missing. What else libjpeg may say is no
 * reason to refuse. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA &&
        jpeg->err->msg_code != JWRN_ADOBE_XFORM)
        fail(jpeg);
}

static void print_nothing(j_common_ptr jpeg) { (void)jpeg; }

static void on_progress(j_common_ptr jpeg)
{
    reading *r = jpeg->client_data;
    if (r->jpeg.input_scan_number > SCANS_MOST) {
        snprintf(r->reason, REASON_SIZE,
                 "it is no good JPEG: more than %d scans", SCANS_MOST);
        longjmp(r->back, 1);
    }
}

static bool read_all(reading *r, const unsigned char *bytes, size_t size)
{
    jpeg_create_decompress(&r->jpeg);
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, bytes, (unsigned long)size);
    jpeg_read_header(&r->jpeg, TRUE);
    if (!picture_start(r->p, r->jpeg.image_height, r->jpeg.image_width, size,
                       r->reason))
        return false;
    r->jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&r->jpeg);
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW row =
            r->p->pixels + (size_t)3 * r->p->width * r->jpeg.output_scanline;
        jpeg_read_scanlines(&r->jpeg, &row, 1);
    }
    jpeg_finish_decompress(&r->jpeg);
    return true;
}

/* Calls of libjpeg return here where they fail. */
static bool read_guarded(reading *r, const unsigned char *bytes, size_t size)
{
    if (setjmp(r->back))
        return false;
    return read_all(r, bytes, size);
}

bool jpeg_decode(const unsigned char *bytes, size_t size, picture *p,
                 char reason[REASON_SIZE])
{
    reading r = {.p = p, .reason = reason};
    reason[0] = 0;
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.jpeg.client_data = &r;
    r.errors.error_exit = fail;
    r.errors.emit_message = on_message;
    r.errors.output_message = print_nothing;
    r.progress.progress_monitor = on_progress;
    const bool read = read_guarded(&r, bytes, size);
    jpeg_destroy_decompress(&r.jpeg);
    return read;
}
