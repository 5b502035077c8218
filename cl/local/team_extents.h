/* SPDX-License-Identifier: Apache-2.0
 * Extents of a team's tiles in local memory, by which kernels declare their
 * arrays and the planner knows how much they take.
 *
 * These are formulas of switches (switches.h). In a kernel a switch's name is
 * its number; in host/plan/ it is a variable with the number that the kernel
 * would be built with, in functions that name them so. forward_extents.h and
 * gradient_extents.h go on from here.
 *
 * Local arrays are made of float4 ("quads"); the pitch of their rows is an odd
 * number of quads, so that neighbouring rows lie in different banks. */
#ifndef TEAM_EXTENTS_H
#define TEAM_EXTENTS_H

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

#define STAGE_QUADS (STAGE_DIMS / 4)
#define DIM_STAGES CEIL_DIV(HEAD_DIM, STAGE_DIMS)
#define DIM_PITCH (STAGE_QUADS | 1)
#define ROW_TILES CEIL_DIV(BLOCK_ROWS, SCORE_ROWS)
#define OUT_TILES CEIL_DIV(BLOCK_ROWS, OUT_ROWS)
#define Q_ROWS (ROW_TILES * SCORE_ROWS)
/* rows of the score matrix, for whole tiles of both kinds */
#define ALL_ROWS LARGER(Q_ROWS, OUT_TILES *OUT_ROWS)

#define QUAD_BYTES 16
#define FLOAT_BYTES 4

#endif
