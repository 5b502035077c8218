/* SPDX-License-Identifier: Apache-2.0
 * A picture, for those who read one kind of file. */
#ifndef SWIN_PICTURE_H
#define SWIN_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No side is longer, and no picture has more pixels. */
#define PICTURE_SIDE_MOST 65535u
#define PICTURE_PIXELS_MOST ((uint64_t)1 << 27)
#define REASON_SIZE 320

typedef struct picture {
    uint32_t height, width;
    unsigned char *pixels; /* [height, width, 3]: red, green, blue */
    /* Of those who read one kind of file: EXIF's number, and pixels from the
     * first one stored to its place, to the next one's of its row, and to the
     * next row's. */
    unsigned orientation;
    ptrdiff_t first, right, down;
} picture;

void picture_free(picture *p);

/* What reading a file takes: bytes of memory, and work in about nanoseconds of
 * a fast machine. */
typedef struct picture_cost {
    size_t size; /* of the file, in bytes */
    uint64_t memory, work;
} picture_cost;

/* Sets the sizes of what is stored as height x width pixels, and takes memory
 * for them, whose cost it adds to what there is beside them: refuses what is
 * too large, what so few bytes cannot say, and what costs more than they may.
 */
bool picture_start(picture *p, uint64_t height, uint64_t width,
                   picture_cost *cost, char reason[REASON_SIZE]);

/* May a file of that size cost so much? */
bool picture_affords(const picture_cost *cost, char reason[REASON_SIZE]);

/* Puts `count` stored pixels of row y where they belong: columns x, x + step
 * and so on. */
void picture_put(picture *p, size_t y, size_t x, size_t step, size_t count,
                 const unsigned char *pixels);

bool ppm_decode(const unsigned char *bytes, size_t size, picture *p,
                char reason[REASON_SIZE]);
bool png_decode(const unsigned char *bytes, size_t size, picture *p,
                char reason[REASON_SIZE]);
bool jpeg_decode(const unsigned char *bytes, size_t size, picture *p,
                 char reason[REASON_SIZE]);

/* EXIF's orientation, 1 to 8, of a file; 1 where it says none. */
unsigned png_orientation(const unsigned char *bytes, size_t size);
unsigned jpeg_orientation(const unsigned char *bytes, size_t size);

/* The orientation, 1 to 8, of EXIF's block in a file, which begins as a TIFF
 * does; 1 where it says none, or none that there is. */
unsigned exif_orientation(const unsigned char *block, size_t size);

/* ---- Files ---- */

/* Files are not larger than that, in bytes. */
#define PICTURE_FILE_MOST ((size_t)1 << 30)

/* upright: turned as EXIF says. False: reason says why not, and *p has nothing
 * to free. */
bool picture_read(const char *path, bool upright, picture *p,
                  char reason[REASON_SIZE]);

/* The same of a file that is in memory. */
bool picture_decode(const unsigned char *bytes, size_t size, bool upright,
                    picture *p, char reason[REASON_SIZE]);

#endif
