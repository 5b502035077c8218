/* SPDX-License-Identifier: Apache-2.0
 * What every attention kernel knows of the problem: the switches that say what
 * it is (switches.h). Files that stand behind them follow at the end. Who
 * reads BLOCK_ROWS or NQ, which some kernels do without, requires them. */
#include "common/tokens.cl"

REQUIRE(VARIANT)
REQUIRE(HEAD_DIM)
REQUIRE(BIAS)
REQUIRE(MASK)
REQUIRE(ADJACENT_KEYS)
REQUIRE(TABLE)
REQUIRE(KEEPS_TABLE)
REQUIRE(BLOCK_KEYS)
#if TABLE != 1
#define TABLE_WINDOW_1 1
#define TABLE_WINDOW_2 1
#define TABLE_STEP_0 0
#define TABLE_STEP_1 0
#define TABLE_CENTER 0
#endif
REQUIRE(TABLE_WINDOW_1)
REQUIRE(TABLE_WINDOW_2)
REQUIRE(TABLE_STEP_0)
REQUIRE(TABLE_STEP_1)
REQUIRE(TABLE_CENTER)
#if VARIANT == SLIDING
#define NQ args.queries
#define NK args.keys
#define KEY_COUNT(args) ((args)->keys)
#define STREAMING 1
#else
REQUIRE(NK)
#define KEY_COUNT(args) NK
#define STREAMING (NK > BLOCK_KEYS)
#endif

#define LOG2E 1.44269504088896341f
/* Gradients: the error of rows' deltas that may stay, as a part of the 2-norm
 * of their dS. Where v's rows have nothing in common, the rounding of a stored
 * o seldom makes as much. */
#define DELTA_TOLERANCE                                                       \
    (DTYPE == 0 ? 0x1p-20f : DTYPE == 1 ? 0x1.6p-11f : 0x1.6p-8f)
/* And what they may leave in rows of dQ, as a part of the 2-norm of these. An
 * error of delta is there times the row's mean key by P: nearly nothing where
 * P is spread over many keys, and a whole key where one has most of it. */
#define DQ_TOLERANCE (0.5f * DELTA_TOLERANCE)
/* Does it show in dQ what rounding leaves of a row's sum of dS? In bf16 it
 * would be off by more than is promised, where keys have much in common; in
 * the cosine variant by less than half of that. */
#define ROUNDING_SHOWS (DTYPE == 2 && VARIANT != COSINE)
/* Are sums of dS made of operands, as they go to the product with K? The
 * cosine variant has those times norms. */
#define SUMS_OPERANDS (VARIANT != COSINE)
/* Of a key, in a mean of keys of length 1: a number of 16 bits. */
#define MOST_INVERSE 16384.0f

#include "common/parameters.cl"
#include "common/weights.h"
