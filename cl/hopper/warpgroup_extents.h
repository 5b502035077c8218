/* SPDX-License-Identifier: Apache-2.0
 * What warpgroups of NVIDIA's Hopper have: formulas by which kernels declare
 * their arrays and the planner knows how much they take. They read switches
 * (switches.h): in a kernel numbers, in the planner variables. */
#ifndef WARPGROUP_EXTENTS_H
#define WARPGROUP_EXTENTS_H

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

/* Work-items of a warpgroup, and rows of queries and keys of its tiles. */
#define WARPGROUP 128
#define WARPGROUP_ROWS 64
#ifndef TILE_KEYS
#define TILE_KEYS 64
#endif

/* Warpgroups that compute; one more fetches keys and values. */
#ifndef WARPGROUPS
#define WARPGROUPS (BLOCK_ROWS / WARPGROUP_ROWS)
#endif
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
/* What is kept for longer: forward queries of this work tile and of the next,
 * backward rows of two tensors. */
#define QUERY_STAGES 2
#define KEPT_TILES (2 * WARPGROUPS)
#define OPERAND_BYTES (KEPT_TILES * QUERY_BYTES + STAGES * STAGE_BYTES)

/* Of each stage: it is filled, it was read; of keys and values apart. Of work
 * tiles also: they are announced. */
#define MBARRIERS (3 * QUERY_STAGES + 4 * STAGES)

/* What is announced of a work tile: where it is, and what its rows see. */
#define ANNOUNCEMENT_BYTES (24 + 8 * BLOCK_ROWS)

#define RING_BYTES (OPERAND_BYTES + 8 * MBARRIERS)
#define WGMMA_LOCAL_BYTES (RING_BYTES + QUERY_STAGES * ANNOUNCEMENT_BYTES)

/* ---- The backward pass ---- */

/* Barriers of stages, and one of what is kept. */
#define KEPT_MBARRIERS (4 * STAGES + 1)
#define KEPT_MBARRIERS_EVEN (KEPT_MBARRIERS + KEPT_MBARRIERS % 2)
/* What rows see; numbers of a stage's rows; and what a work-group finds. */
#define SPAN_BYTES 8
#define NUMBER_BYTES (8 * TILE_KEYS)
#define FOUND_BYTES 32 /* kept_rows.cl */
#define ROWS_LOCAL_BYTES                                                      \
    (OPERAND_BYTES + 8 * KEPT_MBARRIERS_EVEN + SPAN_BYTES * BLOCK_ROWS +      \
     FOUND_BYTES)
#define KEYS_LOCAL_BYTES                                                      \
    (OPERAND_BYTES + 8 * KEPT_MBARRIERS_EVEN + STAGES * NUMBER_BYTES +        \
     FOUND_BYTES)

#endif
