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

/* Consumer warpgroups; behind them the producers of keys and values. */
#ifndef WARPGROUPS
#define WARPGROUPS (BLOCK_ROWS / WARPGROUP_ROWS)
#endif
#ifndef FETCHING_WARPGROUPS
#define FETCHING_WARPGROUPS 1
#endif
#define COMPUTING_WAVES (WARPGROUPS * (WARPGROUP / WAVE))
#define WORK_ITEMS ((WARPGROUPS + FETCHING_WARPGROUPS) * WARPGROUP)

/* Local memory has rows of 128 bytes, which is as far as a swizzle goes, or of
 * 64: longer ones lie in several panels. */
#define PANEL_CHANNELS 64
#ifndef ROW_BYTES
#define ROW_BYTES 128
#endif
#define PANELS ((HEAD_DIM + PANEL_CHANNELS - 1) / PANEL_CHANNELS)
#define QUERY_BYTES (PANELS * WARPGROUP_ROWS * ROW_BYTES)
#define KEY_BYTES (PANELS * TILE_KEYS * ROW_BYTES)
/* A stage has keys and values. */
#define STAGE_BYTES (2 * KEY_BYTES)
/* What is kept for longer: forward queries of this work tile and of the next,
 * backward rows of two tensors, which have room for that with fewer channels.
 */
#ifndef KEPT_TENSORS
#define KEPT_TENSORS 1
#define QUERY_STAGES 2
#endif
#define KEPT_TILES (KEPT_TENSORS * QUERY_STAGES * WARPGROUPS)
#define OPERAND_BYTES (KEPT_TILES * QUERY_BYTES + STAGES * STAGE_BYTES)

/* Of each stage: it is filled, it was read; of keys and values apart. Of work
 * tiles also: they are announced. */
#define MBARRIERS (3 * QUERY_STAGES + 4 * STAGES)

/* What is announced of a work tile: where it is, and what its rows see. */
#define ANNOUNCEMENT_BYTES (24 + 8 * BLOCK_ROWS)

#define RING_BYTES (OPERAND_BYTES + 8 * MBARRIERS)
#define WGMMA_LOCAL_BYTES (RING_BYTES + QUERY_STAGES * ANNOUNCEMENT_BYTES)

/* ---- The backward pass ---- */

/* Do work-groups of the kernels of rows and of keys stay, and take one work
 * tile after the other? */
#define GRADIENTS_STAY (HEAD_DIM <= PANEL_CHANNELS)
#define GRADIENT_STAGES (GRADIENTS_STAY ? 2u : 1u)

/* Where stages suffice, the producer shows them to products, and announces
 * them so many stages late, when they are there: a consumer holds one and
 * awaits the next. Else each consumer shows them to its own products, and so
 * what is kept, which with more channels is not in registers. */
#define SHOWN_BEHIND 2
#define FETCHING_SHOWS                                                        \
    (HEAD_DIM <= PANEL_CHANNELS && STAGES >= SHOWN_BEHIND + 2)

/* Bounds of dS, of a work tile. */
#define BOUND_BYTES 16
#define ROWS_NOTE_BYTES (ANNOUNCEMENT_BYTES + BOUND_BYTES)
/* Where keys are, and which rows see them: all, those of a warpgroup, each. */
#define KEYS_NOTE_BYTES                                                       \
    (48 + BOUND_BYTES + WARPGROUPS * (16 + 8 * WARPGROUP_ROWS))
/* Numbers of a stage's rows. */
#define NUMBER_BYTES (8 * TILE_KEYS)
/* Which work tiles each warpgroup computes again. */
#define AGAIN_BYTES 16

#define GRADIENT_RING_BYTES                                                   \
    (GRADIENT_STAGES * 2 * WARPGROUPS * QUERY_BYTES + STAGES * STAGE_BYTES +  \
     8 * (4 * GRADIENT_STAGES + 4 * STAGES))
#define ROWS_LOCAL_BYTES                                                      \
    (GRADIENT_RING_BYTES + GRADIENT_STAGES * ROWS_NOTE_BYTES + AGAIN_BYTES)
#define KEYS_LOCAL_BYTES                                                      \
    (GRADIENT_RING_BYTES + STAGES * NUMBER_BYTES +                            \
     GRADIENT_STAGES * KEYS_NOTE_BYTES)

/* ---- Linear layers (linear_wgmma.cl, mlp_wgmma.cl) ---- */

/* A panel is a line of some rows, of x or of W, with STAGE_DIMS numbers; a
 * stage has one of x, and one of W unless that stays, and two barriers. Teams
 * have one more each. With a hidden layer stages are of weights, and each
 * warpgroup has its own rows.
 */
#define ROW_PANELS CEIL_DIV(ROW_SIZE, STAGE_DIMS)
#define ROW_STAGES (HIDDEN ? ROW_WAVES / 4 * ROW_PANELS : STAGES)
#define X_PANEL_BYTES (BLOCK_ROWS * ROW_BYTES)
#define W_PANEL_BYTES (BLOCK_COLUMNS * ROW_BYTES)
#define WEIGHT_STAGE_BYTES                                                    \
    ((ROW_PANELS * STAGE_DIMS + BLOCK_COLUMNS) * ROW_BYTES)
#define KEPT_WEIGHT_BYTES                                                     \
    (HIDDEN         ? STAGES * WEIGHT_STAGE_BYTES                             \
     : KEEPS_WEIGHT ? ROW_PANELS * W_PANEL_BYTES                              \
                    : 0)
#define PANEL_STAGE_BYTES                                                     \
    (X_PANEL_BYTES + (KEEPS_WEIGHT || HIDDEN ? 0 : W_PANEL_BYTES))
#define TURNS_BYTES 24 /* of three teams */
#define LAYER_BYTES                                                           \
    (KEPT_WEIGHT_BYTES + ROW_STAGES * (PANEL_STAGE_BYTES + 16) +              \
     TURNS_BYTES + (HIDDEN ? 16 * STAGES : 0))

#endif
