/* SPDX-License-Identifier: Apache-2.0
 * What every kernel knows of the problem: the switches that say what it is.
 * Files that stand behind them follow at the end.
 *
 *   VARIANT 0: dot      S = scale Q K^T + bias + mask
 *   VARIANT 1: cosine   S = s_h q^ k^T + bias + mask, q^ = q / |q|
 *   VARIANT 2: sliding  S = scale Q K^T over the visible blocks
 *   HEAD_DIM            channels of a head
 *   NQ, NK              queries and keys of a window (sliding: arguments)
 *   BIAS 0: none, 1: in the storage type, 2: fp32
 *   MASK 0: none, 1: additive in the storage type, 2: additive in fp32,
 *        3: region numbers, 4: those that the shift of a grid makes
 *   TABLE 0: bias has an element for each query and key; else it is a table
 *        [entries][heads], and its entry for a query and a key is
 *        1: table_place(query) - table_place(key) + TABLE_CENTER
 *        2: index[query * NK + key]
 *   KEEPS_TABLE 1: terms are told where in local memory that table is, as
 *               fp32, and each token's table_place (tier local)
 *   ADJACENT_KEYS 1: in bias and mask, neighbouring keys are neighbours in
 *               memory; 0: their strides say where they are
 *   BLOCK_ROWS          query rows of a unit at most
 *   BLOCK_KEYS          keys that a softmax step takes at once; where they
 *                       are not all, the softmax streams */
#include "common/tokens.cl"

#define DOT 0
#define COSINE 1
#define SLIDING 2
#ifndef VARIANT
#define VARIANT DOT
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 32
#endif
#ifndef BIAS
#define BIAS 2
#endif
#ifndef MASK
#define MASK 3
#endif
#ifndef TABLE
#define TABLE 0
#endif
#ifndef KEEPS_TABLE
#define KEEPS_TABLE 0
#endif
#ifndef ADJACENT_KEYS
#define ADJACENT_KEYS 1
#endif
#if VARIANT == SLIDING
#define NQ args.queries
#define NK args.keys
#else
#ifndef NQ
#define NQ 49
#endif
#ifndef NK
#define NK 49
#endif
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 49
#endif
#ifndef BLOCK_KEYS
#define BLOCK_KEYS 64
#endif
#if VARIANT == SLIDING
#define STREAMING 1
#else
#define STREAMING (NK > BLOCK_KEYS)
#endif

#define LOG2E 1.44269504088896341f
/* Gradients: the error of rows' deltas that may stay, as a part of the 2-norm
 * of their dS. Where v's rows have nothing in common, the rounding of a stored
 * o seldom makes as much. */
#if DTYPE == 0
#define DELTA_TOLERANCE 0x1p-20f
#elif DTYPE == 1
#define DELTA_TOLERANCE 0x1.6p-11f
#else
#define DELTA_TOLERANCE 0x1.6p-8f
#endif

#include "common/cosine.cl"
#include "common/parameters.cl"
#include "common/score_bias.cl"
#include "common/visibility.cl"
