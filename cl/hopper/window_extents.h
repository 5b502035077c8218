/* SPDX-License-Identifier: Apache-2.0
 * What the kernel of windows has in local memory (window_forward_wgmma.cl), by
 * formulas that the planner reads too; warpgroup_extents.h, which has others,
 * is included after it. */
#ifndef WINDOW_EXTENTS_H
#define WINDOW_EXTENTS_H

/* ---- Who computes what ---- */

/* A wave has a tile of 16 rows, a warpgroup up to four. Where they are fewer,
 * waves take turns in having none. */
#define WAVE_ROWS 16
#define ROW_TILES (((BLOCK_ROWS) + WAVE_ROWS - 1) / WAVE_ROWS)
#define GROUPS_PER_WINDOW ((ROW_TILES + 3) / 4)
#define TILES_PER_GROUP                                                       \
    ((ROW_TILES + GROUPS_PER_WINDOW - 1) / GROUPS_PER_WINDOW)
#define WARPGROUPS (WINDOWS_PER_GROUP * GROUPS_PER_WINDOW)
#define TILE_KEYS BLOCK_KEYS
#define KEY_TILES (((NK) + TILE_KEYS - 1) / TILE_KEYS)

/* ---- Local memory, of a team that computes a window ---- */

/* Rows are as long as a swizzle of 64 or 128 bytes. */
#define ROW_BYTES (HEAD_DIM <= 32 ? 64u : 128u)
#define SLAB_BYTES (WARPGROUP_ROWS * ROW_BYTES)
#define WINDOW_QUERY_BYTES (GROUPS_PER_WINDOW * SLAB_BYTES)
#define KEY_TILE_BYTES (TILE_KEYS * ROW_BYTES)
/* As many windows' queries as the ring has keys of, and one more. */
#define WINDOW_QUERY_STAGES                                                   \
    ((STAGES - 1) / KEY_TILES < 1 ? 2 : (STAGES - 1) / KEY_TILES + 1)
#define TEAM_OPERAND_BYTES                                                    \
    (WINDOW_QUERY_STAGES * WINDOW_QUERY_BYTES + STAGES * 2 * KEY_TILE_BYTES)
/* What keys are divided by, in the cosine variant. */
#define TEAM_FACTOR_BYTES (VARIANT == 1 ? 4 * STAGES * TILE_KEYS : 0)
/* Stages of keys are filled, and are read; queries are read. */
#define TEAM_MBARRIERS (2 * STAGES + WINDOW_QUERY_STAGES)

#define OPERANDS_BYTES (WINDOWS_PER_GROUP * TEAM_OPERAND_BYTES)
#define FACTORS_BYTES (WINDOWS_PER_GROUP * TEAM_FACTOR_BYTES)
#define MBARRIER_BYTES (8 * WINDOWS_PER_GROUP * TEAM_MBARRIERS)
/* Of all rows of the block and all keys. */
#define BIAS_VALUES (ROW_TILES * WAVE_ROWS * KEY_TILES * TILE_KEYS)
#define BIAS_BYTES (BIAS == 0 ? 0 : 2 * BIAS_VALUES)
#define WINDOW_LOCAL_BYTES                                                    \
    (OPERANDS_BYTES + BIAS_BYTES + FACTORS_BYTES + MBARRIER_BYTES)

#endif
