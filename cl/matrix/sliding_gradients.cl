/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of sliding gradients on fragments share. */
#include "matrix/epilogue.cl"
#include "matrix/sliding_numbers.cl"
#include "matrix/sliding_pipeline.cl"
#include "matrix/wave_tiles.cl"

/* Scores of a tile become P_SCALE P. */
INLINE void exponentiate_tile(float *scores, float quick_scale,
                              const float *shift)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        scores[i] = EXP2(FMA(scores[i], quick_scale, shift[LANE_ROW(i)]));
}
