/* SPDX-License-Identifier: Apache-2.0
 * How rows of tiles lie in local memory: formulas for kernels and planner, as
 * matrix_extents.h explains. Of a unit they read SWIZZLES_ROWS, of the storage
 * type CHUNK, the elements of 16 bytes. */
#ifndef ROW_EXTENTS_H
#define ROW_EXTENTS_H

#define CHUNK_BYTES 16
/* Eight rows' chunks of the same channels lie in different banks: either rows
 * are an odd number of chunks long, or each has its chunks in an order of its
 * own, which the unit's file says. */
#define LINE (8 * CHUNK)
#define ROW_PITCH(dims) ((dims) + (SWIZZLES_ROWS ? 0 : CHUNK))
#define WHOLE_LINES(elements)                                                 \
    (SWIZZLES_ROWS ? ((elements) + LINE - 1) / LINE * LINE : (elements))

#endif
