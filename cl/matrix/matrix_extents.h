/* SPDX-License-Identifier: Apache-2.0
 * How a block is cut into tiles, and what tiles take in local memory: formulas
 * by which kernels for matrix units declare their arrays and the planner knows
 * how much they take.
 *
 * They read switches (switches.h) and what a unit's file says (fragment.cl).
 * In a kernel such a name is a number; in host/family/matrix_tiling.c it is a
 * variable with the number that the kernel would be built with. SEQ_M, SEQ_N,
 * BLOCK_M and BLOCK_N are tokens of a window, and of a block of it, that run
 * down and across tiles: queries and keys, or in S_TRANSPOSED kernels keys and
 * queries (geometry.cl). */
#ifndef MATRIX_EXTENTS_H
#define MATRIX_EXTENTS_H

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

#define ROW_TILES CEIL_DIV(BLOCK_M, TILE_M)
#define WAVE_TURNS CEIL_DIV(ROW_TILES, WAVES_PER_WINDOW)
#define KEY_BLOCKS CEIL_DIV(SEQ_N, BLOCK_N)
#define KEY_TILES CEIL_DIV(BLOCK_N, TILE_N)
#define ALL_KEY_TILES (KEY_BLOCKS * KEY_TILES)
#define DIM_TILES CEIL_DIV(HEAD_DIM, TILE_N)
#define DIMS (DIM_TILES * TILE_N)
#define PITCH ROW_PITCH(DIMS)
/* Keys past the last are one row of zeros. */
#define KEY_ROWS (BLOCK_N + (BLOCK_N % TILE_N != 0))

/* ---- A stage of the ring, in elements ---- */

/* Forward, rows leave in tiles through the q that they were computed from. */
#define ROW_ROWS (BACKWARD ? BLOCK_M : ROW_TILES * TILE_M)
/* of a tensor of rows, of k or v */
#define ROW_PLANE_SIZE WHOLE_LINES(ROW_ROWS *PITCH)
#define KEY_PLANE_SIZE WHOLE_LINES(KEY_ROWS *PITCH)

/* ---- Output staging ---- */

/* Gradients are stored by way of rows of each wave, OUT_DIMS channels at a
 * time. */
#define OUT_TILES (DIM_TILES < 4 ? DIM_TILES : 4)
#define OUT_DIMS (OUT_TILES * TILE_N)
#define OUT_PITCH ROW_PITCH(OUT_DIMS)
#define OUT_SIZE (TILE_M * OUT_PITCH)

/* ---- Bias cache ---- */

#define TILE_ELEMENTS (TILE_M * TILE_N)
/* Bias and mask of the block's rows and all keys. */
#define BIAS_CACHE_SIZE (ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS)

#endif
