/* SPDX-License-Identifier: Apache-2.0
 * Shapes of the kernels: what a planner chooses. The names are those of the -D
 * options, which the kernels' files explain. */
#ifndef WINATTN_SHAPES_H
#define WINATTN_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

/* Of cl/cpu/, see cpu.cl. */
typedef struct wa_cpu_shape {
    uint32_t lanes, tile_rows, tile_vecs, out_vecs;
} wa_cpu_shape;

/* Of cl/local/forward_local.cl. */
typedef struct wa_local_shape {
    uint32_t block_rows, block_keys, team, teams, stage_keys, stage_dims,
        score_rows, score_cols, out_rows, row_items;
} wa_local_shape;

/* Of cl/matrix/forward_matrix.cl. */
typedef struct wa_matrix_shape {
    uint32_t block_rows, block_keys, team_waves, teams, stages, pass_keys;
    /* 0: nowhere, 1: in local memory, 2: in registers, 3: the bias in local
     * memory, regions compared */
    uint32_t keeps_terms;
} wa_matrix_shape;

/* Of cl/local/backward_*_local.cl. */
typedef struct wa_gradient_shape {
    uint32_t block_rows, block_keys, team, stage_dims, score_rows, score_cols,
        out_rows, key_quads;
    bool keeps_tiles;
} wa_gradient_shape;

/* Of cl/matrix/backward_matrix.cl, whose blocks have all keys; or, with
 * block_keys, of cl/matrix/backward_rows_matrix.cl. */
typedef struct wa_matrix_gradient_shape {
    uint32_t block_rows, team_waves, teams, stages, pass_keys;
    uint32_t keeps_terms; /* as in wa_matrix_shape; not 2 */
    /* sums of dBias stay 0: in the workspace, 1: in registers, 2: in local
     * memory (with block_keys) */
    uint32_t keeps_dbias;
    uint32_t block_keys; /* 0: one kernel makes everything */
    /* With block_keys, of cl/matrix/backward_keys_matrix.cl; a pass has so
     * many rows. */
    wa_matrix_shape keys;
} wa_matrix_gradient_shape;

#endif
