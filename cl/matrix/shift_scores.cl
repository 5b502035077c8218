/* SPDX-License-Identifier: Apache-2.0
 * What a subtile's scores are made smaller by before exponentials are taken.
 */
#include "matrix/geometry.cl"

/* Softmax takes exponentials of x - softmax_max. x LOG2E - softmax_max LOG2E
 * is one operation, but its second term, which this makes, is rounded, which
 * counts where it is large: then softmax_max is subtracted from the scores
 * first. */
INLINE void shift_scores(float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                         const float *softmax_max, float *shift)
{
    int large = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        large |= fabs(softmax_max[r]) > LARGE_LOGIT;
        shift[r] = -softmax_max[r] * LOG2E;
    }
    if (large) {
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                scores[t][i] -= softmax_max[LANE_ROW(i)];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            shift[r] = 0.0f;
    }
}
