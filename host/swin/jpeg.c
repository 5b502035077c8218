/* SPDX-License-Identifier: Apache-2.0
 * JPEG by libjpeg or libjpeg-turbo: as red, green and blue. */
#include <stdio.h> /* before jpeglib.h, which needs it */

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "swin/picture.h"

/* A hostile file has thousands. */
#define SCANS_MOST 64

/* A scan passes over the coefficients of a block, which for arithmetic coding
 * takes longer; afterwards these become a block of samples. */
#define COEFFICIENTS 64u
#define BLOCK_BYTES (COEFFICIENTS * sizeof(JCOEF))
#define BLOCK_WORK 16u
#define ARITHMETIC_WORK 4u
#define SAMPLE_WORK 2u

/* All that must outlive a longjmp; libjpeg keeps pointers to its parts. */
typedef struct reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    picture_cost cost;
    JSAMPLE *row;
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

/* Of so many blocks in a scan. */
static uint64_t scan_work(const struct jpeg_decompress_struct *jpeg,
                          uint64_t blocks)
{
    const unsigned coefficients = (unsigned)(jpeg->Se - jpeg->Ss) + 1;
    return blocks * (coefficients + BLOCK_WORK) *
           (jpeg->arith_code ? ARITHMETIC_WORK : 1);
}

/* Before each row of a scan that is read ahead of the pixels. */
static void on_progress(j_common_ptr jpeg)
{
    reading *r = jpeg->client_data;
    const struct jpeg_decompress_struct *j = &r->jpeg;
    uint64_t blocks = (uint64_t)j->MCUs_per_row * (uint64_t)j->blocks_in_MCU;
    if (j->input_scan_number > SCANS_MOST) {
        snprintf(r->reason, REASON_SIZE,
                 "it is no good JPEG: more than %d scans", SCANS_MOST);
        longjmp(r->back, 1);
    }
    if (j->comps_in_scan == 1)
        blocks *= (uint64_t)j->cur_comp_info[0]->v_samp_factor;
    r->cost.work += scan_work(j, blocks);
    if (!picture_affords(&r->cost, r->reason))
        longjmp(r->back, 1);
}

/* As far as it is known before the first scan. Where there are more of them,
 * all coefficients are kept. */
static void set_cost(reading *r)
{
    const struct jpeg_decompress_struct *jpeg = &r->jpeg;
    uint64_t blocks = 0;
    for (int i = 0; i < jpeg->num_components; i++)
        blocks += (uint64_t)jpeg->comp_info[i].width_in_blocks *
                  jpeg->comp_info[i].height_in_blocks;
    r->cost.work = blocks * COEFFICIENTS * SAMPLE_WORK;
    if (jpeg_has_multiple_scans(&r->jpeg))
        r->cost.memory = blocks * BLOCK_BYTES;
    else if (jpeg->arith_code)
        r->cost.work += scan_work(jpeg, blocks);
}

/* Inks as Adobe stores them, 255 being none, whether the file says that it is
 * Adobe's or not; in place, and rounded as Pillow does. */
static void set_colours(JSAMPLE *row, size_t count)
{
    JSAMPLE *to = row;
    for (const JSAMPLE *from = row; count > 0; count--, from += 4) {
        const unsigned light = from[3];
        for (int c = 0; c < 3; c++) {
            const unsigned dark = (255u - from[c]) * light + 128;
            *to++ = (JSAMPLE)(light - ((dark + (dark >> 8)) >> 8));
        }
    }
}

static bool read_all(reading *r, const unsigned char *bytes)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg_mem_src(jpeg, bytes, (unsigned long)r->cost.size);
    jpeg_read_header(jpeg, TRUE);
    set_cost(r);
    if (!picture_start(r->p, jpeg->image_height, jpeg->image_width, &r->cost,
                       r->reason))
        return false;
    const bool has_inks = jpeg->num_components == 4;
    r->row = malloc((size_t)4 * jpeg->image_width);
    if (!r->row) {
        snprintf(r->reason, REASON_SIZE, "there is no memory");
        return false;
    }
    jpeg->out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
    jpeg->progress = &r->progress;
    jpeg_start_decompress(jpeg);
    jpeg->progress = NULL;
    while (jpeg->output_scanline < jpeg->output_height) {
        const size_t y = jpeg->output_scanline;
        jpeg_read_scanlines(jpeg, &r->row, 1);
        if (has_inks)
            set_colours(r->row, jpeg->image_width);
        picture_put(r->p, y, 0, 1, jpeg->image_width, r->row);
    }
    jpeg_finish_decompress(jpeg);
    return true;
}

/* Calls of libjpeg return here where they fail. */
static bool read_guarded(reading *r, const unsigned char *bytes)
{
    if (setjmp(r->back))
        return false;
    return read_all(r, bytes);
}

bool jpeg_decode(const unsigned char *bytes, size_t size, picture *p,
                 char reason[REASON_SIZE])
{
    reading r = {.cost.size = size, .p = p, .reason = reason};
    reason[0] = 0;
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.jpeg.client_data = &r;
    r.errors.error_exit = fail;
    r.errors.emit_message = on_message;
    r.errors.output_message = print_nothing;
    r.progress.progress_monitor = on_progress;
    const bool read = read_guarded(&r, bytes);
    jpeg_destroy_decompress(&r.jpeg);
    free(r.row);
    return read;
}

/* Segments up to the first scan, found as libjpeg finds them. */
unsigned jpeg_orientation(const unsigned char *bytes, size_t size)
{
    size_t at = 2;
    while (size - at >= 4) {
        const unsigned marker = bytes[at] == 0xff ? bytes[at + 1] : 0xff;
        if (marker == 0 || marker == 0xff) { /* none begins here */
            at++;
            continue;
        }
        if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {
            at += 2; /* these have no length */
            continue;
        }
        const size_t length = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (marker == 0xda || length < 2 || length > size - at - 2)
            break;
        if (marker == 0xe1 && length >= 8 &&
            memcmp(bytes + at + 4, "Exif\0", 6) == 0)
            return exif_orientation(bytes + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}
