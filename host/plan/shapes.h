/* SPDX-License-Identifier: Apache-2.0
 * Shapes of the kernels: what a planner chooses. One list for each kernel says
 * its numbers; the struct, the -D options, the text form and the bounds follow
 * from it (shapes.c).
 *
 *   X(field, switch, least, most)
 *
 *   switch  the kernel's (switches.h) that says it; WA_NO_SWITCH:
 *           wa_append_problem does, or another shape that is made from this
 *   least, most  what the kernel understands; together with a problem and a
 *           device more is refused */
#ifndef WINATTN_SHAPES_H
#define WINATTN_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/switches.h"

/* Of any number of a shape, so that the product of two fits 32 bits. */
#define WA_LARGEST_NUMBER 65535u

#define WA_DECLARE_FIELD(field, option, least, most) uint32_t field;
/* A number with the bounds of its switch. */
#define WA_SWITCHED(X, field, name)                                           \
    X(field, WA_SWITCH_##name, LEAST_##name, MOST_##name)

/* Of cl/cpu/: */
#define WA_CPU_SHAPE(X)                                                       \
    /* of a vector: 4, 8 or 16 */                                             \
    WA_SWITCHED(X, lanes, LANES)                                              \
    /* query rows and key vectors of a register tile of logits */             \
    WA_SWITCHED(X, tile_rows, TILE_ROWS)                                      \
    WA_SWITCHED(X, tile_vecs, TILE_VECS)                                      \
    /* channel vectors of a tile of the output */                             \
    WA_SWITCHED(X, out_vecs, OUT_VECS)
typedef struct wa_cpu_shape {
    WA_CPU_SHAPE(WA_DECLARE_FIELD)
} wa_cpu_shape;

/* Of cl/local/forward_local.cl: */
#define WA_LOCAL_SHAPE(X)                                                     \
    /* query rows of a work tile, keys of a softmax step */                   \
    X(block_rows, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                         \
    X(block_keys, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                         \
    /* work-items that share a work tile, and teams of a work-group */        \
    WA_SWITCHED(X, team, TEAM)                                                \
    WA_SWITCHED(X, teams, TEAMS)                                              \
    /* keys and channels that are in local memory at once */                  \
    WA_SWITCHED(X, stage_keys, STAGE_KEYS)                                    \
    WA_SWITCHED(X, stage_dims, STAGE_DIMS)                                    \
    /* a work-item's tile of logits */                                        \
    WA_SWITCHED(X, score_rows, SCORE_ROWS)                                    \
    WA_SWITCHED(X, score_cols, SCORE_COLS)                                    \
    /* rows of its tile of o, which is a quad of channels wide */             \
    WA_SWITCHED(X, out_rows, OUT_ROWS)                                        \
    /* work-items to a row of the softmax, a power of two */                  \
    WA_SWITCHED(X, row_items, ROW_ITEMS)
typedef struct wa_local_shape {
    WA_LOCAL_SHAPE(WA_DECLARE_FIELD)
} wa_local_shape;

/* Where the bias and the mask of a block of rows wait for the next window. */
typedef enum wa_bias_cache {
    WA_BIAS_CACHE_NONE = BIAS_CACHE_NONE, /* as switches.h has them */
    WA_BIAS_CACHE_LOCAL = BIAS_CACHE_LOCAL,
    WA_BIAS_CACHE_REGISTERS = BIAS_CACHE_REGISTERS,
    WA_BIAS_CACHE_LOCAL_AND_REGIONS = BIAS_CACHE_LOCAL_AND_REGIONS
} wa_bias_cache;

/* Of cl/matrix/forward_matrix.cl and backward_keys_matrix.cl: */
#define WA_MATRIX_SHAPE(X)                                                    \
    /* query rows of a work-group, keys of a softmax step */                  \
    X(block_rows, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                         \
    X(block_keys, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                         \
    /* waves that share a window, windows that a work-group has at once */    \
    WA_SWITCHED(X, waves_per_window, WAVES_PER_WINDOW)                        \
    WA_SWITCHED(X, windows_per_group, WINDOWS_PER_GROUP)                      \
    /* of the ring in local memory */                                         \
    WA_SWITCHED(X, stages, STAGES)                                            \
    /* keys whose scores a wave has in registers at a time */                 \
    WA_SWITCHED(X, subtile_keys, SUBTILE_KEYS)                                \
    WA_SWITCHED(X, bias_cache, BIAS_CACHE)
typedef struct wa_matrix_shape {
    WA_MATRIX_SHAPE(WA_DECLARE_FIELD)
} wa_matrix_shape;

/* Of cl/local/backward_*_local.cl: */
#define WA_GRADIENT_SHAPE(X)                                                  \
    /* as in WA_LOCAL_SHAPE */                                                \
    X(block_rows, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                         \
    X(block_keys, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                         \
    WA_SWITCHED(X, team, TEAM)                                                \
    WA_SWITCHED(X, stage_dims, STAGE_DIMS)                                    \
    WA_SWITCHED(X, score_rows, SCORE_ROWS)                                    \
    WA_SWITCHED(X, score_cols, SCORE_COLS)                                    \
    WA_SWITCHED(X, out_rows, OUT_ROWS)                                        \
    /* quads of keys in a work-item's tile of dK and dV */                    \
    WA_SWITCHED(X, key_quads, KEY_QUADS)                                      \
    /* 1: q, dO, k and v have local memory each; 0: they take turns */        \
    WA_SWITCHED(X, keeps_tiles, KEEPS_TILES)
typedef struct wa_gradient_shape {
    WA_GRADIENT_SHAPE(WA_DECLARE_FIELD)
} wa_gradient_shape;

/* Where sums of dBias over windows stay. */
typedef enum wa_kept_dbias {
    WA_DBIAS_WORKSPACE,
    WA_DBIAS_REGISTERS,
    WA_DBIAS_LOCAL /* of two kernels only */
} wa_kept_dbias;

/* Of cl/matrix/backward_matrix.cl, whose blocks have all keys; or, with
 * block_keys, of backward_rows_matrix.cl. Their options are those of a
 * wa_matrix_shape that is made from it. */
#define WA_MATRIX_GRADIENT_SHAPE(X)                                           \
    /* as in WA_MATRIX_SHAPE; bias_cache is not WA_BIAS_CACHE_REGISTERS */    \
    X(block_rows, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                         \
    X(waves_per_window, WA_NO_SWITCH, 1, 32)                                  \
    X(windows_per_group, WA_NO_SWITCH, 1, 32)                                 \
    X(stages, WA_NO_SWITCH, 1, 8)                                             \
    X(subtile_keys, WA_NO_SWITCH, 1, WA_LARGEST_NUMBER)                       \
    X(bias_cache, WA_NO_SWITCH, WA_BIAS_CACHE_NONE,                           \
      WA_BIAS_CACHE_LOCAL_AND_REGIONS)                                        \
    WA_SWITCHED(X, keeps_dbias, KEEPS_DBIAS)                                  \
    /* 0: one kernel makes everything */                                      \
    X(block_keys, WA_NO_SWITCH, 0, WA_LARGEST_NUMBER)
typedef struct wa_matrix_gradient_shape {
    WA_MATRIX_GRADIENT_SHAPE(WA_DECLARE_FIELD)
    /* With block_keys, of the kernel of keys; a pass has so many rows. */
    wa_matrix_shape keys;
} wa_matrix_gradient_shape;

#undef WA_DECLARE_FIELD

/* A number of a shape. */
typedef struct wa_shape_field {
    const char *name;
    wa_switch option; /* or WA_NO_SWITCH */
    uint32_t least, most;
    size_t at; /* of the struct */
} wa_shape_field;

typedef struct wa_shape_list {
    const wa_shape_field *field;
    size_t count;
} wa_shape_list;

extern const wa_shape_list wa_cpu_numbers, wa_local_numbers, wa_matrix_numbers,
    wa_gradient_numbers, wa_matrix_gradient_numbers;

uint32_t wa_shape_number(const wa_shape_list *list, size_t index,
                         const void *shape);
void wa_shape_set_number(const wa_shape_list *list, size_t index,
                         uint32_t number, void *shape);

/* The first number that is out of its bounds, or NULL. */
const wa_shape_field *wa_shape_wrong(const wa_shape_list *list,
                                     const void *shape);

/* Appends the switches of those that have one. */
void wa_append_shape(const wa_shape_list *list, const void *shape, char *text,
                     size_t size);

#endif
