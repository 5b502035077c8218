/* SPDX-License-Identifier: Apache-2.0
 * Names of the pictures of tests/golden, and small ones that would cost a lot
 * to read. */
#ifndef MODELS_BOMBS_H
#define MODELS_BOMBS_H

#include <stddef.h>
#include <stdint.h>

/* In golden/pictures, NULL at the end. */
extern const char *const golden_pictures[];

typedef struct bomb {
    unsigned char *bytes; /* to be freed */
    size_t size;
} bomb;

/* CRCs of all chunks of a PNG become right; `to` has its length. */
void png_mend(unsigned char *png, size_t size);

/* Red, green, blue, alpha of `depth` bits; of the pixels there is what a
 * stored block of `data` zeros has, and then a thousandth of what would be
 * needed. */
bomb bomb_png(uint32_t height, uint32_t width, unsigned depth, size_t data);

/* A PNG with `count` compressed texts of `size` letters each. */
bomb bomb_texts(size_t count, size_t size);

/* A JPEG with three components and this SOF: a first scan, then `scans` that
 * pass over all coefficients of a component and change none. */
bomb bomb_jpeg(unsigned sof, unsigned height, unsigned width, unsigned scans);

#endif
