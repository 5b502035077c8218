/* SPDX-License-Identifier: Apache-2.0
 * What EXIF says of a picture. */
#ifndef SWIN_EXIF_H
#define SWIN_EXIF_H

#include <stddef.h>

/* The orientation, 1 to 8, of EXIF's block in a file, which begins as a TIFF
 * does; 1 where it says none, or none that there is. */
unsigned exif_orientation(const unsigned char *block, size_t size);

#endif
