/* SPDX-License-Identifier: Apache-2.0
 * What warpgroups of NVIDIA's Hopper have: formulas by which kernels declare
 * their arrays and the planner knows how much they take. They read switches
 * (switches.h): in a kernel numbers, in the planner variables. */
#ifndef WARPGROUP_EXTENTS_H
#define WARPGROUP_EXTENTS_H

/* Work-items of a warpgroup, and rows of queries and keys of its tiles. */
#define WARPGROUP 128
#define WARPGROUP_ROWS 64
#define TILE_KEYS 64

/* Warpgroups that compute; one more fetches keys and values. */
#define WARPGROUPS (BLOCK_ROWS / WARPGROUP_ROWS)
#define WORK_ITEMS ((WARPGROUPS + 1) * WARPGROUP)

/* Local memory has rows of 128 bytes, which is as far as a swizzle goes:
 * longer ones lie in several panels. */
#define PANEL_CHANNELS 64
#define PANEL_PITCH 128
#define PANELS ((HEAD_DIM + PANEL_CHANNELS - 1) / PANEL_CHANNELS)
#define QUERY_BYTES (PANELS * WARPGROUP_ROWS * PANEL_PITCH)
#define KEY_BYTES (PANELS * TILE_KEYS * PANEL_PITCH)
/* A stage has keys and values. */
#define STAGE_BYTES (2 * KEY_BYTES)
/* Queries of this work tile and of the next. */
#define QUERY_STAGES 2
#define OPERAND_BYTES                                                         \
    (QUERY_STAGES * WARPGROUPS * QUERY_BYTES + STAGES * STAGE_BYTES)

/* Of each stage: it is filled, it was read; of keys and values apart. Of work
 * tiles also: they are announced. */
#define MBARRIERS (3 * QUERY_STAGES + 4 * STAGES)

/* What is announced of a work tile: where it is, and what its rows see. */
#define ANNOUNCEMENT_BYTES (24 + 8 * BLOCK_ROWS)

#define RING_BYTES (OPERAND_BYTES + 8 * MBARRIERS)
#define WGMMA_LOCAL_BYTES (RING_BYTES + QUERY_STAGES * ANNOUNCEMENT_BYTES)

#endif
