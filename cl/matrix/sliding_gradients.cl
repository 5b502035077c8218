/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of sliding gradients on fragments share: a work-group's own
 * block of rows or keys, which stays in local memory, how it comes there, and
 * how its gradients leave. */
#include "matrix/epilogue.cl"
#include "matrix/kept_weights.cl"
#include "matrix/sliding_numbers.cl"
#include "matrix/sliding_pipeline.cl"
#include "matrix/wave_tiles.cl"

/* Two tensors' rows of a wave stay in registers where that is not much. */
#if NATIVE_QUERIES &&                                                         \
    (S_TRANSPOSED ? KEEPS_OPERANDS : WAVE_TURNS * DIM_TILES <= 8)
#define HELD(held) (held)
#define HOLDS_ROWS 1
#else
#define HELD(held) 0
#define HOLDS_ROWS 0
#endif

/* Starts the copies of a head's rows of a tensor. */
INLINE void copy_own(__local storage_bits *to, __global const storage *tensor,
                     const tensor_layout *layout, uint head,
                     const stage_rows *of)
{
    const plane_rows x = {.plane =
                              tensor + plane(layout, of->coord->grid, head),
                          .layout = layout,
                          .grid = &of->args->grid,
                          .coord = of->coord,
                          .chunk = chunk_of(layout, of->lane),
                          .first = of->first,
                          .count = of->count,
                          .lane = of->lane,
                          .wide = of->wide};
    copy_rows(to, &x, BLOCK_M);
}

/* Sums of a gradient of the wave's rows, from `row` of the block on, each
 * times its factor, go to the block's, through `staging`, which has room for
 * all of it. */
INLINE void store_own(float (*sums)[DIM_TILES][ACC_PER_LANE],
                      float factor[WAVE_TURNS][LANE_ROWS], int row,
                      const row_target *block, __local storage_bits *staging,
                      const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        const int at = row + m * TILE_M;
        row_target to = *block;
        to.row += at;
        to.count = min(block->count - at, TILE_M);
        UNROLL_FOR (int d = 0; d < DIM_TILES; d += OUT_TILES)
            store_channels(sums[m] + d, factor[m], d, OUT_TILES,
                           staging + at * PITCH + d * TILE_N, PITCH, &to, w);
    }
}
