/* SPDX-License-Identifier: Apache-2.0
 * Shapes of the kernels: what a planner chooses. A shape is its numbers, of 32
 * bits each, in the order in which rows of the tuning table have them; which
 * switch says a number to the kernel stands in shapes.c. */
#ifndef WINATTN_SHAPES_H
#define WINATTN_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/switches.h"

/* Of any number of a shape, so that the product of two fits 32 bits. */
#define WA_LARGEST_NUMBER 65535u

/* A shape of cl/cpu/. */
typedef struct wa_cpu_shape {
    uint32_t lanes;     /* of a vector: 4, 8 or 16 */
    uint32_t tile_rows; /* query rows and key vectors of a register tile of */
    uint32_t tile_vecs; /* logits */
    uint32_t out_vecs;  /* channel vectors of a tile of the output */
} wa_cpu_shape;

/* A shape of cl/local/forward_local.cl. */
typedef struct wa_local_shape {
    uint32_t block_rows, block_keys; /* of a work tile, of a softmax step */
    uint32_t team;                   /* work-items that share a work tile */
    uint32_t teams;                  /* of a work-group */
    uint32_t stage_keys, stage_dims; /* that are in local memory at once */
    uint32_t score_rows, score_cols; /* a work-item's tile of logits */
    uint32_t out_rows; /* of its tile of o, which is a quad of channels wide */
    uint32_t
        row_items; /* work-items to a row of the softmax, a power of two */
} wa_local_shape;

/* Where the bias and the mask of a block of rows wait for the next window. */
typedef enum wa_bias_cache {
    WA_BIAS_CACHE_NONE = BIAS_CACHE_NONE, /* as switches.h has them */
    WA_BIAS_CACHE_LOCAL = BIAS_CACHE_LOCAL,
    WA_BIAS_CACHE_REGISTERS = BIAS_CACHE_REGISTERS,
    WA_BIAS_CACHE_LOCAL_AND_REGIONS = BIAS_CACHE_LOCAL_AND_REGIONS
} wa_bias_cache;

/* A shape of kernels of cl/matrix/. */
typedef struct wa_matrix_shape {
    uint32_t block_rows, block_keys; /* of a work-group, of a softmax step */
    uint32_t waves_per_window;       /* that share a window */
    uint32_t windows_per_group;      /* that a work-group has at once */
    uint32_t stages;                 /* of the ring in local memory */
    uint32_t subtile_keys; /* whose scores a wave has in registers at a time */
    uint32_t bias_cache;
} wa_matrix_shape;

/* A shape of cl/local/backward_*_local.cl. */
typedef struct wa_gradient_shape {
    uint32_t block_rows, block_keys; /* as in wa_local_shape */
    uint32_t team, stage_dims, score_rows, score_cols, out_rows;
    uint32_t key_quads;   /* of keys in a work-item's tile of dK and dV */
    uint32_t keeps_tiles; /* 1: q, dO, k and v have local memory each; 0: they
                             take turns */
} wa_gradient_shape;

/* Where sums of dBias over windows stay. */
typedef enum wa_kept_dbias {
    WA_DBIAS_WORKSPACE,
    WA_DBIAS_REGISTERS,
    WA_DBIAS_LOCAL /* of two kernels only */
} wa_kept_dbias;

/* A shape of cl/matrix/backward_matrix.cl alone, whose blocks are windows; or,
 * with rows.block_keys, of backward_rows_matrix.cl and
 * backward_keys_matrix.cl, for which a pass has so many rows. */
typedef struct wa_matrix_gradient_shape {
    wa_matrix_shape rows;
    uint32_t keeps_dbias;
    wa_matrix_shape keys;
} wa_matrix_gradient_shape;

/* The switches of a shape's numbers; WA_NO_SWITCH: wa_begin_step says it.
 */
typedef struct wa_shape_list {
    const wa_switch *option;
    size_t count;
} wa_shape_list;

extern const wa_shape_list wa_cpu_numbers, wa_local_numbers, wa_matrix_numbers,
    wa_gradient_numbers;

/* Are all numbers what the kernel understands? Together with a problem and a
 * device more is refused. */
bool wa_shape_is_sound(const wa_shape_list *list, const void *shape);

#endif
