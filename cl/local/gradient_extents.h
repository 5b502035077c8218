/* SPDX-License-Identifier: Apache-2.0
 * What a team of the backward pass has in local memory: formulas for kernels
 * and planner, as team_extents.h explains. */
#ifndef GRADIENT_EXTENTS_H
#define GRADIENT_EXTENTS_H

#define COL_TILES CEIL_DIV(BLOCK_KEYS, SCORE_COLS)
#define BLOCK_QUADS CEIL_DIV(BLOCK_KEYS, 4)
#define KEY_TILES CEIL_DIV(BLOCK_QUADS, KEY_QUADS)
#define KV_ROWS LARGER(COL_TILES *SCORE_COLS, BLOCK_QUADS * 4)
#define WEIGHT_PITCH (BLOCK_QUADS | 1)
/* The last tile of keys may reach behind the last row. */
#define WEIGHT_QUADS (ALL_ROWS * WEIGHT_PITCH + KEY_QUADS)

/* ---- Of both kernels ---- */

/* Q, dO, K and V have memory each, or take turns. */
#define TILE_COPIES (KEEPS_TILES ? 2 : 1)
#define Q_QUADS (Q_ROWS * DIM_PITCH)
#define KV_QUADS (KV_ROWS * DIM_PITCH)
#define HAS_INVERSES (VARIANT == COSINE)
/* The backward pass needs each token a dozen times. On a grid, what leads to
 * its place fills registers that the sums need, so that a team keeps tokens in
 * local memory. */
#define LISTS_TOKENS GRID
#define TOKEN_BYTES 16 /* of a kept_token */
/* A head's table of biases, where a block has all queries and keys. */
#define TABLE_ENTRIES (2 * TABLE_CENTER + 1)
#define TABLE_TOKENS LARGER(BLOCK_ROWS, BLOCK_KEYS)

/* With numbers that tiles of logits hand to their rows, and rows whose tokens
 * are listed apart from those of keys. */
#define GRADIENT_BYTES(part_count, kept_rows)                                 \
    (QUAD_BYTES * (TILE_COPIES * (Q_QUADS + KV_QUADS) + WEIGHT_QUADS) +       \
     FLOAT_BYTES * ((part_count) + 3 * Q_ROWS) +                              \
     (HAS_INVERSES ? FLOAT_BYTES * (Q_ROWS + KV_ROWS) : 0) +                  \
     (LISTS_TOKENS ? TOKEN_BYTES * ((kept_rows) + BLOCK_KEYS) : 0) +          \
     (KEEPS_TABLE ? FLOAT_BYTES * (TABLE_ENTRIES + TABLE_TOKENS) : 0))

/* ---- backward_rows_local.cl ---- */

/* What a softmax and P dP sum, or what delta is checked by. */
#define SQUARE_TILES CEIL_DIV(COL_TILES, 2)
#define ROWS_PART_COUNT                                                       \
    (Q_ROWS * (2 * COL_TILES + (STATISTICS ? 0 : SQUARE_TILES)))
#define ROWS_HAVE_ALONG (VARIANT == COSINE && !STATISTICS)
/* And the verdict of all work-items, a number. */
#define ROWS_LOCAL_BYTES                                                      \
    (GRADIENT_BYTES(ROWS_PART_COUNT, BLOCK_ROWS) +                            \
     FLOAT_BYTES * (1 + (ROWS_HAVE_ALONG ? Q_ROWS : 0)))

/* ---- backward_keys_local.cl ---- */

/* What a softmax and P dP sum. */
#define KEYS_PART_COUNT (FUSED ? 2 * Q_ROWS * COL_TILES : 0)
/* The keys are all of the window, and so the rows are among them. */
#define KEYS_KEPT_ROWS (FUSED ? 0 : BLOCK_ROWS)
#define KEYS_HAVE_ALONG (VARIANT == COSINE)
/* And a number of each work-item. */
#define KEYS_LOCAL_BYTES                                                      \
    (GRADIENT_BYTES(KEYS_PART_COUNT, KEYS_KEPT_ROWS) +                        \
     (KEYS_HAVE_ALONG ? FLOAT_BYTES * (Q_ROWS + TEAM) : 0))

#endif
