/* SPDX-License-Identifier: Apache-2.0
 * Pictures from files: PPM and PGM, and PNG and JPEG where libpng and libjpeg
 * were there when the program was built. Files may be hostile: what is no
 * picture, or a damaged one, is refused with a reason. */
#ifndef SWIN_PICTURE_FILE_H
#define SWIN_PICTURE_FILE_H

#include "swin/picture.h"

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
