/* SPDX-License-Identifier: Apache-2.0
 * The switches that only kernels of models have, as common/switches.h has
 * those of all: X(name, least, most). */
#ifndef MODEL_SWITCHES_H
#define MODEL_SWITCHES_H

#define MODEL_SWITCHES(X)                                                     \
    /* Linear layers: 1: there is a bias, a residual; what follows the sum,   \
     * 0 nothing, 1 GELU; columns of a work tile; a work-item's tile of it    \
     * (local); waves of a work-group below and beside each other, and those  \
     * that share the sums of a tile (matrix); stages of W that stay in local \
     * memory (linear_resident_matrix), or 1: all of W does (linear_wgmma) */ \
    X(HAS_BIAS, 0, 1)                                                         \
    X(HAS_RESIDUAL, 0, 1)                                                     \
    X(ACTIVATION, 0, 1)                                                       \
    X(BLOCK_COLUMNS, 1, 4096)                                                 \
    X(ITEM_ROWS, 4, 16)                                                       \
    X(ITEM_COLUMNS, 4, 16)                                                    \
    X(ROW_WAVES, 1, 32)                                                       \
    X(COLUMN_WAVES, 1, 32)                                                    \
    X(DIM_WAVES, 1, 32)                                                       \
    X(WEIGHT_STAGES, 1, 64)                                                   \
    X(KEEPS_WEIGHT, 0, 1)                                                     \
    /* 1: operands of fp32 are two numbers each (matrix; fragment.cl) */      \
    X(SPLITS_FP32, 0, 1)                                                      \
    /* Numbers of the hidden layer before (mlp_wgmma), or 0 */                \
    X(HIDDEN, 0, 0x7fffffff)                                                  \
    /* Norms beside the layer: 1: rows of x are normalised on the way         \
     * (linear_matrix, mlp_wgmma), where mean and squares are known           \
     * (linear_wgmma); these are found of rows of y; sums are normalised      \
     * before a residual is added */                                          \
    X(FINDS_STATISTICS, 0, 1)                                                 \
    X(TAKES_STATISTICS, 0, 1)                                                 \
    X(GIVES_STATISTICS, 0, 1)                                                 \
    X(NORMALISES, 0, 1)                                                       \
                                                                              \
    /* Rows: elements of one; of these, those that a work-item takes at       \
     * once; work-items that share a row, and rows that a work-group has at   \
     * once, as TEAM and TEAMS above */                                       \
    X(ROW_SIZE, 1, 0x7fffffff)                                                \
    X(ROW_ACCESS, 1, 8)                                                       \
    /* norm_rows, linear_matrix: 1: a row is four neighbours of a map, side   \
     * by side; norm_rows: 1: the norm is added to another tensor */          \
    X(NEIGHBOURS, 0, 1)                                                       \
    X(ADDS, 0, 1)                                                             \
    /* embed_patches: pictures are 0 bytes [height][width][channels], 1 fp32  \
     * in that order, 2 fp32 [channels][height][width]; their channels, and   \
     * height and width of a patch */                                         \
    X(PICTURE, 0, 2)                                                          \
    X(PICTURE_CHANNELS, 1, 4)                                                 \
    X(PATCH_HEIGHT, 1, 65535)                                                 \
    X(PATCH_WIDTH, 1, 65535)

#define MODEL_SWITCH_BOUNDS(name, least, most)                                \
    LEAST_##name = least, MOST_##name = most,
enum model_switch_bounds {
    MODEL_SWITCHES(MODEL_SWITCH_BOUNDS) MODEL_SWITCHES_END
};

#endif
