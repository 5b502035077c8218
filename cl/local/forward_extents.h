/* SPDX-License-Identifier: Apache-2.0
 * What teams of forward_local.cl have in local memory: formulas for kernel and
 * planner, as team_extents.h explains. Besides switches they read STREAMING,
 * whether keys come in several blocks. */
#ifndef FORWARD_EXTENTS_H
#define FORWARD_EXTENTS_H

#define KEY_STAGES CEIL_DIV(BLOCK_KEYS, STAGE_KEYS)
#define COL_TILES CEIL_DIV(STAGE_KEYS, SCORE_COLS)
#define VALUE_ROWS (CEIL_DIV(STAGE_KEYS, 4) * 4)
#define KV_ROWS LARGER(COL_TILES *SCORE_COLS, VALUE_ROWS)
#define SCORE_PITCH (CEIL_DIV(BLOCK_KEYS, 4) | 1)

/* Arrays of a team: how long they are, and whether there are any. */
#define Q_QUADS (Q_ROWS * DIM_PITCH)
#define KV_QUADS (KV_ROWS * DIM_PITCH)
#define SCORE_QUADS (ALL_ROWS * SCORE_PITCH)
/* partial sums and maxima of rows */
#define ROW_PARTS (BLOCK_ROWS * ROW_ITEMS)
#define HAS_PART_MAXIMA (ROW_ITEMS > 1)
/* what later blocks of keys multiply the sums of earlier ones by */
#define HAS_RESCALES STREAMING
/* what norms make of rows and keys */
#define HAS_FACTORS (VARIANT == COSINE)

/* Of a team, without gaps between arrays. */
#define TEAM_LOCAL_BYTES                                                      \
    (QUAD_BYTES * (Q_QUADS + KV_QUADS + SCORE_QUADS) +                        \
     FLOAT_BYTES *                                                            \
         (BLOCK_ROWS + ROW_PARTS + (HAS_RESCALES ? BLOCK_ROWS : 0) +          \
          (HAS_PART_MAXIMA ? ROW_PARTS : 0) +                                 \
          (HAS_FACTORS ? BLOCK_ROWS + BLOCK_KEYS : 0)))

#endif
