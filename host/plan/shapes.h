/* SPDX-License-Identifier: Apache-2.0
 * Shapes of the kernels: what a planner chooses. One list for each kernel says
 * its numbers; the struct, the -D options, the text form and the bounds follow
 * from it (shapes.c).
 *
 *   X(field, option, least, most)
 *
 *   option  the -D option that says it; NULL: wa_append_problem does, or
 *           another shape that is made from this one
 *   least, most  what the kernel understands; together with a problem and a
 *           device more is refused */
#ifndef WINATTN_SHAPES_H
#define WINATTN_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of any number of a shape, so that the product of two fits 32 bits. */
#define WA_LARGEST_NUMBER 65535u

#define WA_DECLARE_FIELD(field, option, least, most) uint32_t field;

/* Of cl/cpu/: */
#define WA_CPU_SHAPE(X)                                                       \
    /* of a vector: 4, 8 or 16 */                                             \
    X(lanes, "LANES", 4, 16)                                                  \
    /* query rows and key vectors of a register tile of logits */             \
    X(tile_rows, "TILE_ROWS", 1, 12)                                          \
    X(tile_vecs, "TILE_VECS", 1, 8)                                           \
    /* channel vectors of a tile of the output */                             \
    X(out_vecs, "OUT_VECS", 1, 64)
typedef struct wa_cpu_shape {
    WA_CPU_SHAPE(WA_DECLARE_FIELD)
} wa_cpu_shape;

/* Of cl/local/forward_local.cl: */
#define WA_LOCAL_SHAPE(X)                                                     \
    /* query rows of a unit of work, keys of a softmax step */                \
    X(block_rows, NULL, 1, WA_LARGEST_NUMBER)                                 \
    X(block_keys, NULL, 1, WA_LARGEST_NUMBER)                                 \
    /* work-items that share a unit, and teams of a work-group */             \
    X(team, "TEAM", 1, WA_LARGEST_NUMBER)                                     \
    X(teams, "TEAMS", 1, WA_LARGEST_NUMBER)                                   \
    /* keys and channels that are in local memory at once */                  \
    X(stage_keys, "STAGE_KEYS", 1, WA_LARGEST_NUMBER)                         \
    X(stage_dims, "STAGE_DIMS", 1, 256)                                       \
    /* a work-item's tile of logits */                                        \
    X(score_rows, "SCORE_ROWS", 1, 16)                                        \
    X(score_cols, "SCORE_COLS", 1, 16)                                        \
    /* rows of its tile of o, which is a quad of channels wide */             \
    X(out_rows, "OUT_ROWS", 1, 64)                                            \
    /* work-items to a row of the softmax, a power of two */                  \
    X(row_items, "ROW_ITEMS", 1, 64)
typedef struct wa_local_shape {
    WA_LOCAL_SHAPE(WA_DECLARE_FIELD)
} wa_local_shape;

/* Where the bias and the mask of a block of rows wait for the next window. */
typedef enum wa_kept_terms {
    WA_TERMS_NOWHERE,      /* they come from global memory each time */
    WA_TERMS_LOCAL,        /* their sum, in local memory */
    WA_TERMS_REGISTERS,    /* their sum, in registers; forward only */
    WA_TERMS_LOCAL_REGIONS /* the bias in local memory, regions compared */
} wa_kept_terms;

/* Of cl/matrix/forward_matrix.cl and backward_keys_matrix.cl: */
#define WA_MATRIX_SHAPE(X)                                                    \
    /* query rows of a work-group, keys of a softmax step */                  \
    X(block_rows, NULL, 1, WA_LARGEST_NUMBER)                                 \
    X(block_keys, NULL, 1, WA_LARGEST_NUMBER)                                 \
    /* waves that share a window, windows that a work-group has at once */    \
    X(team_waves, "TEAM_WAVES", 1, 32)                                        \
    X(teams, "TEAMS", 1, 32)                                                  \
    /* of the ring in local memory */                                         \
    X(stages, "STAGES", 1, 8)                                                 \
    /* keys whose scores a wave has in registers at a time */                 \
    X(pass_keys, "PASS_KEYS", 1, WA_LARGEST_NUMBER)                           \
    X(keeps_terms, "KEEPS_TERMS", WA_TERMS_NOWHERE, WA_TERMS_LOCAL_REGIONS)
typedef struct wa_matrix_shape {
    WA_MATRIX_SHAPE(WA_DECLARE_FIELD)
} wa_matrix_shape;

/* Of cl/local/backward_*_local.cl: */
#define WA_GRADIENT_SHAPE(X)                                                  \
    /* as in WA_LOCAL_SHAPE */                                                \
    X(block_rows, NULL, 1, WA_LARGEST_NUMBER)                                 \
    X(block_keys, NULL, 1, WA_LARGEST_NUMBER)                                 \
    X(team, "TEAM", 1, WA_LARGEST_NUMBER)                                     \
    X(stage_dims, "STAGE_DIMS", 1, 256)                                       \
    X(score_rows, "SCORE_ROWS", 1, 16)                                        \
    X(score_cols, "SCORE_COLS", 1, 16)                                        \
    X(out_rows, "OUT_ROWS", 1, 64)                                            \
    /* quads of keys in a work-item's tile of dK and dV */                    \
    X(key_quads, "KEY_QUADS", 1, 16)                                          \
    /* 1: q, dO, k and v have local memory each; 0: they take turns */        \
    X(keeps_tiles, "KEEPS_TILES", 0, 1)
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
    /* as in WA_MATRIX_SHAPE; keeps_terms is not WA_TERMS_REGISTERS */        \
    X(block_rows, NULL, 1, WA_LARGEST_NUMBER)                                 \
    X(team_waves, NULL, 1, 32)                                                \
    X(teams, NULL, 1, 32)                                                     \
    X(stages, NULL, 1, 8)                                                     \
    X(pass_keys, NULL, 1, WA_LARGEST_NUMBER)                                  \
    X(keeps_terms, NULL, WA_TERMS_NOWHERE, WA_TERMS_LOCAL_REGIONS)            \
    X(keeps_dbias, "KEEPS_DBIAS", WA_DBIAS_WORKSPACE, WA_DBIAS_LOCAL)         \
    /* 0: one kernel makes everything */                                      \
    X(block_keys, NULL, 0, WA_LARGEST_NUMBER)
typedef struct wa_matrix_gradient_shape {
    WA_MATRIX_GRADIENT_SHAPE(WA_DECLARE_FIELD)
    /* With block_keys, of the kernel of keys; a pass has so many rows. */
    wa_matrix_shape keys;
} wa_matrix_gradient_shape;

#undef WA_DECLARE_FIELD

/* A number of a shape. */
typedef struct wa_shape_field {
    const char *name, *option;
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

/* Appends "-Doption=number " of those that have an option. */
void wa_append_shape(const wa_shape_list *list, const void *shape, char *text,
                     size_t size);

#endif
