/* SPDX-License-Identifier: Apache-2.0
 * What work-groups of linear_wgmma.cl compute, and where they have what in
 * local memory. */
#include "common/storage.cl"
#define HEAD_DIM 64 /* of swizzled_chunk: rows of one panel */
#define WARPGROUPS (ROW_WAVES / 4)
#include "hopper/warpgroup_extents.h"

#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"
#include "hopper/stored_numbers.cl"
#include "hopper/wgmma.cl"
/* behind the unit's file */
#include "models/gelu_half.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(BLOCK_COLUMNS)
REQUIRE(STAGE_DIMS)
REQUIRE(STAGES)
REQUIRE(ROW_WAVES)
REQUIRE(ROW_SIZE)
REQUIRE(KEEPS_WEIGHT)
REQUIRE(HIDDEN)
REQUIRE(TAKES_STATISTICS)
REQUIRE(GIVES_STATISTICS)
REQUIRE(NORMALISES)

#define TEAM_GROUPS (BLOCK_ROWS / WARPGROUP_ROWS)
#define TEAMS (WARPGROUPS / TEAM_GROUPS)
#define TEAM_WAVES (TEAM_GROUPS * (WARPGROUP / WAVE))
#define RESULT_PANELS CEIL_DIV(BLOCK_COLUMNS, STAGE_DIMS)

/* What a work-group computes: tensors from their starts on. */
typedef struct layer {
    const linear_args *args;
    __global const storage *x, *weight, *bias, *residual;
    __global const storage *norm_weight, *norm_bias;
    __global const float2 *x_statistics;
    __global float2 *y_statistics;
    __global storage *y;
    uint column_blocks, blocks, groups;
    uint memory; /* address of local memory */
} layer;

INLINE uint first_row_of(const layer *l, uint block)
{
    return block / l->column_blocks * BLOCK_ROWS;
}
INLINE uint first_column_of(const layer *l, uint block)
{
    return block % l->column_blocks * BLOCK_COLUMNS;
}

/* ---- Local memory ---- */

INLINE uint kept_panel(const layer *l, uint panel)
{
    return l->memory + panel * W_PANEL_BYTES;
}
/* Stage n, counted from the work-group's first block on. */
INLINE uint stage_at(const layer *l, uint n)
{
    return l->memory + KEPT_WEIGHT_BYTES + n % ROW_STAGES * PANEL_STAGE_BYTES;
}
/* Of a wave's 16 rows in a stage, what the lane says where it is of the four
 * matrices that 32 bytes of each are, number c. */
INLINE uint matrices_at(uint rows, uint lane, const uint c)
{
    return swizzled_chunk(rows, lane % 16, 2 * c + lane / 16);
}
INLINE uint filled_at(const layer *l, uint n)
{
    return l->memory + KEPT_WEIGHT_BYTES + ROW_STAGES * PANEL_STAGE_BYTES +
           n % ROW_STAGES * 8;
}
INLINE uint read_at(const layer *l, uint n)
{
    return filled_at(l, n) + ROW_STAGES * 8;
}
/* A turn: products of the block before have found their stages. Else a team
 * could look for a stage that is to be filled twice until then. */
INLINE uint turn_at(const layer *l, uint team)
{
    return filled_at(l, 0) + ROW_STAGES * 16 + team * 8;
}
INLINE uint parity_of(uint n) { return n / ROW_STAGES % 2; }

/* ---- The kernels ---- */

#define LAYER_PARAMETERS                                                      \
    LINEAR_PARAMETERS, const linear_norm_args norm,                           \
        __global const storage *norm_weight,                                  \
        __global const storage *norm_bias,                                    \
        __global const float2 *x_statistics, __global float2 *y_statistics

/* A kernel's arguments as a layer, with tensors from their starts on. */
#define LAYER(name, local_memory)                                             \
    START_TENSORS                                                             \
    const uint column_blocks = (args.out - 1) / BLOCK_COLUMNS + 1;            \
    const layer name = {.args = &args,                                        \
                        .norm_weight = norm_weight + norm.weight,             \
                        .norm_bias = norm_bias + norm.bias,                   \
                        .x_statistics = x_statistics + norm.x_statistics,     \
                        .y_statistics = y_statistics + norm.y_statistics,     \
                        .x = x,                                               \
                        .weight = weight,                                     \
                        .bias = bias,                                         \
                        .residual = residual,                                 \
                        .y = y,                                               \
                        .column_blocks = column_blocks,                       \
                        .blocks = (((uint)args.rows - 1) / BLOCK_ROWS + 1) *  \
                                  column_blocks,                              \
                        .groups = (uint)get_num_groups(0),                    \
                        .memory = local_address(local_memory)};

INLINE void make_layer_barriers(const layer *l, uint item)
{
    if (item < 2 * ROW_STAGES + TEAMS)
        make_mbarrier(filled_at(l, 0) + 8 * item,
                      item < ROW_STAGES ? WARPGROUP : TEAM_WAVES);
    barrier(CLK_LOCAL_MEM_FENCE);
}
