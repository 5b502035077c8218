/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of a window's gradients have in local memory: formulas by
 * which they declare it and the planner knows how much it is. A kernel has
 * OWN_ROWS rows of two tensors and all rows of two others, OTHER_ROWS of them
 * with those that fill the last tile up; of each of these OTHER_BYTES; with a
 * mask (HAS_REGIONS) what region each row is of; of a bias 16 bits for each
 * pair; and, where it reads o (READS_O), rows of that of one window. Where one
 * kernel makes all gradients, it owns all rows and has weights of all pairs
 * besides. */
#ifndef GRADIENT_WINDOWS_EXTENTS_H
#define GRADIENT_WINDOWS_EXTENTS_H

/* A row in local memory, of 32 channels. */
#define WINDOW_CHANNELS 32
#define WINDOW_PITCH 64

/* Of a stage, which has a window: tensors; and numbers that belong to rows. */
#define WINDOW_STAGE_BYTES ((OWN_ROWS + OTHER_ROWS) * 2 * WINDOW_PITCH)
#define WINDOW_REGION_BYTES (HAS_REGIONS ? OTHER_ROWS + OWN_ROWS + 16 : 0)
/* What follows from o: of each row two numbers; and a word of each wave, three
 * times. */
#define WINDOW_GIVEN_BYTES (READS_O ? 8 * OWN_ROWS + 64 : 0)
#define WINDOW_NUMBER_BYTES                                                   \
    (OTHER_BYTES * OTHER_ROWS + 4 * OWN_ROWS + 16 + WINDOW_REGION_BYTES +     \
     WINDOW_GIVEN_BYTES)
/* In the kernel of rows, or of all: a norm, or d_lse; in that of keys. */
#define BYTES_OF_KEY 4
#define BYTES_OF_ROW 20
/* It is filled, it was read. */
#define WINDOW_BARRIER_BYTES 16
#define WINDOW_PAIR_BYTES (2 * OWN_ROWS * OTHER_ROWS)
#define WINDOW_O_BYTES (READS_O ? OWN_ROWS * WINDOW_PITCH : 0)
/* Of each wave a sum. */
#define WINDOW_SUM_BYTES 64
#define WINDOW_LOCAL_BYTES                                                    \
    (WINDOW_SUM_BYTES +                                                       \
     STAGES *                                                                 \
         (WINDOW_STAGE_BYTES + WINDOW_NUMBER_BYTES + WINDOW_BARRIER_BYTES) +  \
     WINDOW_PAIR_BYTES + WINDOW_O_BYTES)

/* ---- One kernel for all gradients ---- */

/* P and dS of a window lie in panels of 16 keys, whose rows are swizzled by
 * their 32 bytes. */
#define PANEL_KEYS 16
#define WEIGHT_PITCH (2 * PANEL_KEYS)
#define WEIGHT_PANEL_BYTES (OWN_ROWS * WEIGHT_PITCH)
#define WEIGHT_BYTES (OTHER_ROWS / PANEL_KEYS * WEIGHT_PANEL_BYTES)
/* Of a wave, for rows that leave. */
#define STAGING_BYTES (16 * WINDOW_PITCH)
#define WHOLE_WINDOW_LOCAL_BYTES                                              \
    (2 * WEIGHT_BYTES +                                                       \
     4 * CEIL_DIV(OWN_ROWS, WARPGROUP_ROWS) * STAGING_BYTES +                 \
     WINDOW_LOCAL_BYTES)

#endif
