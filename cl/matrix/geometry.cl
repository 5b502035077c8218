/* SPDX-License-Identifier: Apache-2.0
 * What the kernels for matrix units share: which wave has what, how a window
 * is cut into tiles, and where a stage of the ring of copies has its tensors.
 *
 *   work-group   owns one block of query rows of one head (kernels of keys:
 *                one block of keys), keeps bias and mask of those rows on the
 *                chip, and iterates over windows; in the forward pass then
 *                perhaps those of another block
 *   team         WAVES_PER_WINDOW waves of it compute one window at a time;
 *                WINDOWS_PER_GROUP teams take windows in turn
 *   wave         takes tiles of TILE_M rows of the block
 *
 * q, k and v of the windows to come travel to a ring in local memory while
 * waves compute:
 *
 *            stage 0              stage 1
 *       +-----+----+----+    +-----+----+----+
 *       |  Q  | K  | V  |    |  Q  | K  | V  |     as the caller stores
 *       +-----+----+----+    +-----+----+----+     them; backward also dO
 *        computed from        being filled
 *
 *   WAVES_PER_WINDOW, WINDOWS_PER_GROUP
 *   STAGES      of the ring
 *   SUBTILE_KEYS  keys whose scores a wave has in registers at a time; a
 *               multiple of TILE_N
 *   ROW_PLANES  tensors that a stage holds rows of: q; backward also dO, and
 *               then o, where the host says 3
 *   BIAS_CACHE  where what is added to the block's logits stays from window to
 *               window; 0: nowhere, 1: in local memory, 2: in registers, for
 *               which each wave must have the same rows always. With a mask, a
 *               work-group then iterates over the windows of one mask after
 *               those of another. 3: the bias in local memory, as the caller
 *               stores it; regions, of which there is one for each token, are
 *               compared at each score, which needs half the room of a sum.
 *
 * A kernel's file sets its features before it includes others:
 *
 *   BACKWARD    1: a stage holds dO too, and what leaves does so through rows
 *               of each wave
 *   FUSED_GRADIENTS  1: all gradients in one kernel, whose waves exchange P
 *               and dS through local memory
 *   HOLDS_VALUE_CHUNKS  1: lanes have registers for where in a tile of values
 *               their chunks lie (unit_mma.cl)
 *   S_TRANSPOSED  1: tiles are the other way round, as gradients of keys want
 *               them: what is called rows here are keys, v beside k, and what
 *               is called keys are queries, dO beside q */
#include "common/problem.cl"
#include "unit/fragment_tiles.cl"

REQUIRE(BLOCK_ROWS)
/* Of a window; where it slides, nobody asks here. */
#if VARIANT == SLIDING
#define WINDOW_QUERIES BLOCK_ROWS
#define WINDOW_KEYS BLOCK_KEYS
#else
REQUIRE(NQ)
#define WINDOW_QUERIES NQ
#define WINDOW_KEYS NK
#endif
REQUIRE(WAVES_PER_WINDOW)
REQUIRE(WINDOWS_PER_GROUP)
REQUIRE(STAGES)
REQUIRE(SUBTILE_KEYS)
REQUIRE(BIAS_CACHE)

#ifndef BACKWARD
#define BACKWARD 0
#endif
#ifndef FUSED_GRADIENTS
#define FUSED_GRADIENTS 0
#endif
#ifndef S_TRANSPOSED
#define S_TRANSPOSED 0
#endif
#ifndef ROW_PLANES
#define ROW_PLANES (1 + BACKWARD)
#endif
REQUIRE(ROW_PLANES)

/* Tokens of a window, and of a block of it, that run down and across tiles. */
#if S_TRANSPOSED
#define SEQ_M WINDOW_KEYS
#define SEQ_N WINDOW_QUERIES
#define BLOCK_M BLOCK_KEYS
#define BLOCK_N BLOCK_ROWS
#define OF_PAIR(of, args, score_bias, m, n) of(args, score_bias, n, m)
#else
#define SEQ_M WINDOW_QUERIES
#define SEQ_N WINDOW_KEYS
#define BLOCK_M BLOCK_ROWS
#define BLOCK_N BLOCK_KEYS
#define OF_PAIR(of, args, score_bias, m, n) of(args, score_bias, m, n)
#endif

#include "matrix/matrix_extents.h"

#define TEAM (WAVES_PER_WINDOW * WAVE)
#define TILES_PER_SUBTILE (SUBTILE_KEYS / TILE_N)
#define SUBTILES CEIL_DIV(KEY_TILES, TILES_PER_SUBTILE)
/* The last that may be read: where tiles are whole, addresses need no care. */
#define LAST_KEY (KEY_ROWS == BLOCK_N ? INT_MAX : KEY_ROWS - 1)
#define SHORT_BLOCK (SEQ_N % BLOCK_N != 0)
/* Where a stage has its tensors: those of rows, then k and v. */
#define ROW_PLANE(n) ((n)*ROW_PLANE_SIZE)
#define KEY_PLANE(n) (ROW_PLANE(ROW_PLANES) + (n)*KEY_PLANE_SIZE)
#if S_TRANSPOSED
#define Q_OFFSET KEY_PLANE(0)
#define D_O_OFFSET KEY_PLANE(1)
#define K_OFFSET ROW_PLANE(0)
#define V_OFFSET ROW_PLANE(1)
#else
#define Q_OFFSET ROW_PLANE(0)
#define D_O_OFFSET ROW_PLANE(1)
#define O_OFFSET ROW_PLANE(2)
#define K_OFFSET KEY_PLANE(0)
#define V_OFFSET KEY_PLANE(1)
#endif
/* Of the backward pass in one kernel, where a team is alone and has two
 * stages: these are of q and dO; k, v and lse of the next window come to where
 * this one's were while dK and dV are summed. Not in the cosine variant, whose
 * dK needs k. */
#if SWIZZLES_ROWS && FUSED_GRADIENTS
#define LATE_KEYS (WINDOWS_PER_GROUP == 1 && STAGES > 1 && VARIANT != COSINE)
#else
#define LATE_KEYS 0
#endif
#define STAGE_SIZE (LATE_KEYS ? ROW_PLANE(ROW_PLANES) : KEY_PLANE(2))
#define KEY_STAGES (LATE_KEYS ? 1 : STAGES)
/* Where in the ring KEY_PLANE counts from, for the keys of stage n. */
#define KEY_STAGE(n) ((LATE_KEYS ? STAGES - 1 : (n)) * STAGE_SIZE)
#define RING_SIZE ((STAGES - 1) * STAGE_SIZE + KEY_PLANE(2))
/* Is there a tile of channels of this number? Known where groups are whole. */
#define HAS_CHANNELS(tile) (DIM_TILES % OUT_TILES == 0 || (tile) < DIM_TILES)
#define LARGE_LOGIT 1024.0f
/* score bias of a tile: [ACC_PER_LANE / BIAS_GROUP][WAVE][BIAS_GROUP] */
#define BIAS_GROUP 4
#define COMPARES_REGIONS                                                      \
    (MASK_HAS_REGIONS(MASK) && BIAS_CACHE == BIAS_CACHE_LOCAL_AND_REGIONS)
#define MASK_IN_CACHE (MASK && BIAS_CACHE && !COMPARES_REGIONS)
#define HAS_BIAS_CACHE ((BIAS && BIAS_CACHE) || MASK_IN_CACHE)
/* In local memory is the bias as the caller stores it, or the sum. */
#define MASK_IN_LOCAL (MASK && BIAS_CACHE == BIAS_CACHE_LOCAL)
#define HAS_LOCAL_BIAS_CACHE ((BIAS && BIAS_CACHE) || MASK_IN_LOCAL)
#define HAS_REGISTER_BIAS_CACHE                                               \
    (HAS_BIAS_CACHE && BIAS_CACHE == BIAS_CACHE_REGISTERS)

/* Is there a tile of keys of this number? Has it all its keys? Constant where
 * the tiles divide everything. */
#define IS_TILE(tile)                                                         \
    (KEY_TILES % TILES_PER_SUBTILE == 0 || (tile) < KEY_TILES)
#define IS_FULL_TILE(tile)                                                    \
    (!(KEY_BLOCKS > 1 && SHORT_BLOCK) &&                                      \
     (BLOCK_N % TILE_N == 0 || ((tile) + 1) * TILE_N <= BLOCK_N))
/* Gradients do with fewer reads by code that is longer: on grids, whose code
 * is longest, that pays in bf16, and padding leaves no registers for it
 * (bench/decisions/small-windows-have-one-gradient-kernel.md). */
#define SPARES_GRADIENTS (BACKWARD && (!GRID || (DTYPE == 2 && !PADDING)))
/* Tokens of a tile, of so many in all, that are read and computed with: where
 * instructions are shorter than tiles, the last tile may do with less. The
 * forward pass gains nothing by it. */
#if UNROLL_SUBTILES && SPARES_GRADIENTS
#define TILE_PART(tile, all)                                                  \
    ((all) % TILE_N == 0                                                      \
         ? TILE_N                                                             \
         : min(TILE_N,                                                        \
               (CEIL_DIV((int)(all), KEY_SIDE) * KEY_SIDE - (tile)*TILE_N)))
#else
#define TILE_PART(tile, all) TILE_N
#endif
#define KEY_PART(tile) TILE_PART(tile, BLOCK_N)
/* Is value i of a tile of scores one of these? */
#define HAS_KEY(tile, i)                                                      \
    (BLOCK_N % TILE_N == 0 || (i) / C_ELEMENTS * KEY_SIDE < KEY_PART(tile))

/* Subtiles that are not alike must be unrolled for these to be constants, and
 * all must be where the score bias is in registers. */
#if HAS_REGISTER_BIAS_CACHE ||                                                \
    (UNROLL_SUBTILES &&                                                       \
     (KEY_TILES % TILES_PER_SUBTILE != 0 || BLOCK_N % TILE_N != 0))
#define SUBTILE_FOR UNROLL_FOR
#else
#define SUBTILE_FOR NO_UNROLL_FOR
#endif
#if UNROLL_SUBTILES
#define MEASURE_FOR UNROLL_FOR
#else
#define MEASURE_FOR NO_UNROLL_FOR
#endif

#if HEAD_DIM % CHUNK == 0
#define CHUNKS (HEAD_DIM / CHUNK)
#else
#define CHUNKS 0
#endif
