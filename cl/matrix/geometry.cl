/* SPDX-License-Identifier: Apache-2.0
 * What the kernels for matrix units share: who computes what, how a window is
 * cut into tiles, and where a stage of the ring of copies has its tensors.
 *
 *   work-group   owns one block of query rows of one head (backward: all rows
 *                of the heads of one key head), keeps bias and mask of those
 *                rows on the chip, and walks windows; in the forward pass
 *                then perhaps those of another block
 *   team         TEAM_WAVES waves of it compute one window at a time; TEAMS
 *                teams take windows in turn
 *   wave         takes tiles of UNIT_QUERIES rows of the block
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
 *   TEAM_WAVES, TEAMS
 *   STAGES      of the ring
 *   PASS_KEYS   keys whose scores a wave has in registers at a time; a
 *               multiple of UNIT_TILE
 *   ROW_PLANES  tensors that a stage holds rows of: q; backward also dO, and
 *               then o, where the host says 3
 *   KEEPS_TERMS where what is added to the block's logits stays from window to
 *               window; 0: nowhere, 1: in local memory, 2: in registers, for
 *               which each wave must have the same rows always. With a mask, a
 *               work-group then walks the windows of one mask after those of
 *               another. 3: the bias in local memory, as the caller stores it;
 *               regions, of which there is one for each token, are compared at
 *               each score, which needs half the room of a sum.
 *
 * A kernel's file sets its features before it includes others:
 *
 *   BACKWARD    1: a stage holds dO too, and what leaves does so through rows
 *               of each wave
 *   FUSED_GRADIENTS  1: all gradients in one kernel, whose waves exchange P
 *               and dS through local memory
 *   KEYS_DOWN   1: tiles are the other way round, as gradients of keys want
 *               them: what is called rows here are keys, v beside k, and what
 *               is called keys are queries, dO beside q */
#ifndef GEOMETRY_CL
#define GEOMETRY_CL
#include "common/problem.cl"
#include "unit/fragment_tiles.cl"

REQUIRE(TEAM_WAVES)
REQUIRE(TEAMS)
REQUIRE(STAGES)
REQUIRE(PASS_KEYS)
REQUIRE(KEEPS_TERMS)

#ifndef BACKWARD
#define BACKWARD 0
#endif
#ifndef FUSED_GRADIENTS
#define FUSED_GRADIENTS 0
#endif
#ifndef KEYS_DOWN
#define KEYS_DOWN 0
#endif
#ifndef ROW_PLANES
#define ROW_PLANES (1 + BACKWARD)
#endif
REQUIRE(ROW_PLANES)

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

/* Tokens of a window, and of a block of it, that run down and across tiles. */
#if KEYS_DOWN
#define DOWN NK
#define ACROSS NQ
#define BLOCK_DOWN BLOCK_KEYS
#define BLOCK_ACROSS BLOCK_ROWS
#define OF_PAIR(of, args, terms, down, across) of(args, terms, across, down)
#else
#define DOWN NQ
#define ACROSS NK
#define BLOCK_DOWN BLOCK_ROWS
#define BLOCK_ACROSS BLOCK_KEYS
#define OF_PAIR(of, args, terms, down, across) of(args, terms, down, across)
#endif

#define TEAM (TEAM_WAVES * WAVE)
#define ROW_TILES CEIL_DIV(BLOCK_DOWN, UNIT_QUERIES)
#define WAVE_TURNS CEIL_DIV(ROW_TILES, TEAM_WAVES)
#define KEY_BLOCKS CEIL_DIV(ACROSS, BLOCK_ACROSS)
#define KEY_TILES CEIL_DIV(BLOCK_ACROSS, UNIT_TILE)
#define ALL_KEY_TILES (KEY_BLOCKS * KEY_TILES)
#define PASS_TILES (PASS_KEYS / UNIT_TILE)
#define PASSES CEIL_DIV(KEY_TILES, PASS_TILES)
#define DIM_TILES CEIL_DIV(HEAD_DIM, UNIT_TILE)
#define DIMS (DIM_TILES * UNIT_TILE)
#define PITCH ROW_PITCH(DIMS)
/* Keys past the last are one row of zeros. */
#define KEY_ROWS (BLOCK_ACROSS + (BLOCK_ACROSS % UNIT_TILE != 0))
/* The last that may be read: where tiles are whole, addresses need no care. */
#define LAST_KEY (KEY_ROWS == BLOCK_ACROSS ? INT_MAX : KEY_ROWS - 1)
#define SHORT_BLOCK (ACROSS % BLOCK_ACROSS != 0)
/* Rows leave in tiles through the q that they were computed from. */
#define ROW_ROWS (BACKWARD ? BLOCK_DOWN : ROW_TILES * UNIT_QUERIES)
#define ROW_PLANE(n) ((n)*WHOLE_LINES(ROW_ROWS * PITCH))
#define KEY_PLANE(n)                                                          \
    (ROW_PLANE(ROW_PLANES) + (n)*WHOLE_LINES(KEY_ROWS * PITCH))
#if KEYS_DOWN
#define Q_PLACE KEY_PLANE(0)
#define D_O_PLACE KEY_PLANE(1)
#define K_PLACE ROW_PLANE(0)
#define V_PLACE ROW_PLANE(1)
#else
#define Q_PLACE ROW_PLANE(0)
#define D_O_PLACE ROW_PLANE(1)
#define O_PLACE ROW_PLANE(2)
#define K_PLACE KEY_PLANE(0)
#define V_PLACE KEY_PLANE(1)
#endif
/* Of the backward pass in one kernel, where a team is alone and has two
 * stages: these are of q and dO; k, v and lse of the next window come to where
 * this one's were while dK and dV are summed. Not in the cosine variant, whose
 * dK needs k. */
#if SWIZZLES_ROWS && FUSED_GRADIENTS
#define LATE_KEYS (ONE_VISIT && TEAMS == 1 && STAGES > 1 && VARIANT != COSINE)
#else
#define LATE_KEYS 0
#endif
#define STAGE_SIZE (LATE_KEYS ? ROW_PLANE(ROW_PLANES) : KEY_PLANE(2))
#define KEY_STAGES (LATE_KEYS ? 1 : STAGES)
/* Where in the ring KEY_PLANE counts from, for the keys of stage n. */
#define KEY_STAGE(n) ((LATE_KEYS ? STAGES - 1 : (n)) * STAGE_SIZE)
#define RING_SIZE ((STAGES - 1) * STAGE_SIZE + KEY_PLANE(2))
/* Gradients leave through rows of each wave, OUT_DIMS channels at a time. */
#define OUT_TILES (DIM_TILES < 4 ? DIM_TILES : 4)
#define OUT_DIMS (OUT_TILES * UNIT_TILE)
#define OUT_PITCH ROW_PITCH(OUT_DIMS)
/* Is there a tile of channels of this number? Known where groups are whole. */
#define HAS_CHANNELS(tile) (DIM_TILES % OUT_TILES == 0 || (tile) < DIM_TILES)
#define LARGE_LOGIT 1024.0f
/* terms of a tile: [VALUES / TERM_GROUP][WAVE][TERM_GROUP] */
#define TERM_GROUP 4
#define TERM_TILE (VALUES * WAVE)
#define REGIONS_APART (MASK >= 3 && KEEPS_TERMS == 3)
#define KEPT_MASK (MASK && KEEPS_TERMS && !REGIONS_APART)
#define HAS_TERMS_KEPT ((BIAS && KEEPS_TERMS) || KEPT_MASK)
/* In local memory is the bias as the caller stores it, or the sum. */
#define MASK_IN_LOCAL (MASK && KEEPS_TERMS == 1)
#define HAS_LOCAL_TERMS ((BIAS && KEEPS_TERMS) || MASK_IN_LOCAL)
#define HAS_OWN_TERMS (HAS_TERMS_KEPT && KEEPS_TERMS == 2)

/* Is there a tile of keys of this number? Has it all its keys? Constant where
 * the tiles divide everything. */
#define IS_TILE(tile) (KEY_TILES % PASS_TILES == 0 || (tile) < KEY_TILES)
#define IS_WHOLE(tile)                                                        \
    (!(KEY_BLOCKS > 1 && SHORT_BLOCK) &&                                      \
     (BLOCK_ACROSS % UNIT_TILE == 0 ||                                        \
      ((tile) + 1) * UNIT_TILE <= BLOCK_ACROSS))
/* Gradients do with fewer reads by code that is longer: on grids, whose code
 * is longest, that pays in bf16, and padding leaves no registers for it
 * (bench/notes.md). */
#define SPARES_GRADIENTS (BACKWARD && (!GRID || (DTYPE == 2 && !PADDING)))
/* Tokens of a tile, of so many in all, that are read and computed with: where
 * instructions are shorter than tiles, the last tile may do with less. The
 * forward pass gains nothing by it. */
#if UNROLL_PASSES && SPARES_GRADIENTS
#define TILE_PART(tile, all)                                                  \
    ((all) % UNIT_TILE == 0                                                   \
         ? UNIT_TILE                                                          \
         : min(UNIT_TILE, (CEIL_DIV((int)(all), KEY_SIDE) * KEY_SIDE -        \
                           (tile)*UNIT_TILE)))
#else
#define TILE_PART(tile, all) UNIT_TILE
#endif
#define KEY_PART(tile) TILE_PART(tile, BLOCK_ACROSS)
/* Is value i of a tile of scores one of these? */
#define HAS_KEY(tile, i)                                                      \
    (BLOCK_ACROSS % UNIT_TILE == 0 ||                                         \
     (i) / C_ELEMENTS * KEY_SIDE < KEY_PART(tile))
/* Passes that are not alike must be unrolled for these to be constants, and
 * all must be where terms are in registers. */
#if HAS_OWN_TERMS || (UNROLL_PASSES && (KEY_TILES % PASS_TILES != 0 ||        \
                                        BLOCK_ACROSS % UNIT_TILE != 0))
#define PASS_FOR UNROLL_FOR
#else
#define PASS_FOR NO_UNROLL_FOR
#endif
#if UNROLL_PASSES
#define MEASURE_FOR UNROLL_FOR
#else
#define MEASURE_FOR NO_UNROLL_FOR
#endif

#if HEAD_DIM % CHUNK == 0
#define CHUNKS (HEAD_DIM / CHUNK)
#else
#define CHUNKS 0
#endif

#endif
