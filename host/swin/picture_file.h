/* SPDX-License-Identifier: Apache-2.0
 * Pictures from files: PPM and PGM, and PNG and JPEG where libpng and libjpeg
 * were there when the program was built. Files may be hostile: what is no
 * picture, or a damaged one, is refused with a reason. */
#ifndef SWIN_PICTURE_FILE_H
#define SWIN_PICTURE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No side is longer, and no picture has more pixels. */
#define PICTURE_SIDE_MOST 65535u
#define PICTURE_PIXELS_MOST ((uint64_t)1 << 27)
/* Files are not larger either, in bytes. */
#define PICTURE_FILE_MOST ((size_t)1 << 30)

#define REASON_SIZE 320

typedef struct picture {
    uint32_t height, width;
    unsigned char *pixels; /* [height, width, 3]: red, green, blue */
} picture;

/* False: reason says why not, and *p has nothing to free. */
bool picture_read(const char *path, picture *p, char reason[REASON_SIZE]);

/* The same of a file that is in memory. */
bool picture_decode(const unsigned char *bytes, size_t size, picture *p,
                    char reason[REASON_SIZE]);

void picture_free(picture *p);

/* ---- For those who read one kind of file ---- */

/* Sets the sizes, and takes memory for the pixels, of a file of `size` bytes:
 * refuses what is too large, and what so few bytes cannot say. */
bool picture_start(picture *p, uint64_t height, uint64_t width, size_t size,
                   char reason[REASON_SIZE]);

bool ppm_decode(const unsigned char *bytes, size_t size, picture *p,
                char reason[REASON_SIZE]);
bool png_decode(const unsigned char *bytes, size_t size, picture *p,
                char reason[REASON_SIZE]);
bool jpeg_decode(const unsigned char *bytes, size_t size, picture *p,
                 char reason[REASON_SIZE]);

#endif
