/* SPDX-License-Identifier: Apache-2.0
 * What the kernel sliding_given takes: read by it and by the planner. */
#ifndef GIVEN_EXTENTS_H
#define GIVEN_EXTENTS_H

/* Work-items of a work-group, and of a row. */
#define GIVEN_ITEMS 128
#define GIVEN_ROW_ITEMS 8

/* Bounds, and of each row a pair of numbers of each of its work-items. */
#define GIVEN_LOCAL_BYTES (16 + 8 * GIVEN_ROW_ITEMS * BLOCK_ROWS)

#endif
