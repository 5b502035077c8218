/* SPDX-License-Identifier: Apache-2.0
 * What the kernel of windows has in local memory (window_forward_wgmma.cl), by
 * formulas that the planner reads too; warpgroup_extents.h, which has others,
 * is included after it. */
#ifndef WINDOW_EXTENTS_H
#define WINDOW_EXTENTS_H

/* ---- Tiles and warpgroups ---- */

/* A wave has a tile of 16 rows, a warpgroup up to four. Where they are fewer,
 * waves take turns in having none. */
#define WAVE_ROWS 16
#define ROW_TILES (((BLOCK_ROWS) + WAVE_ROWS - 1) / WAVE_ROWS)
#define GROUPS_PER_WINDOW ((ROW_TILES + 3) / 4)
#define TILES_PER_GROUP                                                       \
    ((ROW_TILES + GROUPS_PER_WINDOW - 1) / GROUPS_PER_WINDOW)
#define WARPGROUPS (WINDOWS_PER_GROUP * GROUPS_PER_WINDOW)
/* In the cosine variant two waves for each team, of which one measures. */
#define FETCHING_WARPGROUPS (VARIANT == 1 && WINDOWS_PER_GROUP > 2 ? 2 : 1)
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
    (STAGES / KEY_TILES < 1 ? 2 : STAGES / KEY_TILES + 1)
#define TEAM_OPERAND_BYTES                                                    \
    (WINDOW_QUERY_STAGES * WINDOW_QUERY_BYTES + STAGES * 2 * KEY_TILE_BYTES)
/* What keys are divided by, in the cosine variant. */
#define TEAM_FACTOR_BYTES (VARIANT == 1 ? 4 * STAGES * TILE_KEYS : 0)
/* With a mask (HAS_REGIONS), of a stage of queries: what region each row is
 * of, and flags. */
#define WINDOW_REGION_BYTES                                                   \
    (HAS_REGIONS ? KEY_TILES * TILE_KEYS + ROW_TILES * WAVE_ROWS + 16 : 0)
#define TEAM_REGION_BYTES (WINDOW_QUERY_STAGES * WINDOW_REGION_BYTES)
/* On a grid, where each row of a window is, of queries or values, and keys. */
#define PLACE_BYTES (GRID ? 4 * KEY_TILES * TILE_KEYS : 0)
/* Stages are filled, are read, and have come but are not measured yet. */
#define TEAM_MBARRIERS (2 * WINDOW_QUERY_STAGES + 3 * STAGES)

#define OPERANDS_BYTES (WINDOWS_PER_GROUP * TEAM_OPERAND_BYTES)
#define FACTORS_BYTES (WINDOWS_PER_GROUP * TEAM_FACTOR_BYTES)
#define REGIONS_BYTES (WINDOWS_PER_GROUP * TEAM_REGION_BYTES)
#define PLACES_BYTES (WINDOWS_PER_GROUP * 2 * PLACE_BYTES)
#define MBARRIER_BYTES (8 * WINDOWS_PER_GROUP * TEAM_MBARRIERS)
/* Of all rows of the block and all keys. */
#define BIAS_VALUES (ROW_TILES * WAVE_ROWS * KEY_TILES * TILE_KEYS)
#define BIAS_BYTES (BIAS == 0 ? 0 : 2 * BIAS_VALUES)
#define WINDOW_LOCAL_BYTES                                                    \
    (OPERANDS_BYTES + BIAS_BYTES + FACTORS_BYTES + REGIONS_BYTES +            \
     PLACES_BYTES + MBARRIER_BYTES)

#endif
