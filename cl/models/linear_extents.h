/* SPDX-License-Identifier: Apache-2.0
 * What linear_matrix.cl and linear_resident_matrix.cl have in local memory, in
 * elements: formulas for the kernels and their planner, as
 * matrix/matrix_extents.h explains. */
#ifndef LINEAR_EXTENTS_H
#define LINEAR_EXTENTS_H

/* Rows of a stage: of x, and of W. */
#define PITCH ROW_PITCH(STAGE_DIMS)
#define X_SIZE WHOLE_LINES(BLOCK_ROWS *PITCH)
#define W_SIZE WHOLE_LINES(BLOCK_COLUMNS *PITCH)
/* and the norm's weights */
#define SCALE_SIZE (FINDS_STATISTICS ? WHOLE_LINES(PITCH) : 0)
#define STAGE_SIZE (X_SIZE + W_SIZE + SCALE_SIZE)

/* Tiles of a wave. */
#define ROW_TILES (BLOCK_ROWS / ROW_WAVES / TILE_M)
#define COLUMN_TILES (BLOCK_COLUMNS / COLUMN_WAVES / TILE_N)
/* A wave's sums leave by way of fp32 rows of a tile, in the ring's place; all
 * tiles at once where waves share them. */
#define OUT_TILES (DIM_WAVES > 1 ? ROW_TILES : 1)
#define OUT_PITCH (COLUMN_TILES * TILE_N + 4)
#define OUT_FLOATS (OUT_TILES * TILE_M * OUT_PITCH)
#define RING_BYTES (STAGES * STAGE_SIZE * CHUNK_BYTES / CHUNK)
#define OUT_BYTES (ROW_WAVES * COLUMN_WAVES * DIM_WAVES * OUT_FLOATS * 4)
/* Where rows are normalised, work-items share one. */
#define ROW_ITEMS (GROUP < BLOCK_ROWS ? 1 : GROUP / BLOCK_ROWS)
#define NORM_BYTES (FINDS_STATISTICS ? 8 * GROUP + 4 * BLOCK_ROWS : 0)
#define ROW_PARTS_AT ((LINEAR_BYTES - NORM_BYTES) / 8)
#define LINEAR_BYTES                                                          \
    ((RING_BYTES > OUT_BYTES ? RING_BYTES : OUT_BYTES) + NORM_BYTES)

/* Of linear_resident_matrix.cl: a ring of stages of x; all of W that its
 * columns have; results, two blocks of them where a residual waits there for
 * its sums; the bias. */
#define RESULT_PITCH ROW_PITCH(BLOCK_COLUMNS)
#define RESULT_SIZE WHOLE_LINES(BLOCK_ROWS *RESULT_PITCH)
#define RESULTS (HAS_RESIDUAL ? 2 : 1)
#define RESIDENT_SIZE                                                         \
    (STAGES * X_SIZE + WEIGHT_STAGES * W_SIZE + RESULTS * RESULT_SIZE)
#define RESIDENT_BYTES                                                        \
    (RESIDENT_SIZE * CHUNK_BYTES / CHUNK + BLOCK_COLUMNS * 4)

#endif
