/* SPDX-License-Identifier: Apache-2.0
 * What dS of a row sums to over keys and should not is in dQ times a mean key:
 * what all keys have in common goes by the plain mean of a few of them. */
#include "common/problem.cl"
#include "hopper/lanes.cl"
#include "hopper/tile_products.cl"

/* What dS of 16 keys, packed in pairs, sums to in each of the lane's rows is
 * added to sums[0] and sums[2]: as a product with ones, in fewer instructions
 * than additions. */
INLINE void add_row_sums(float *sums, const uint *ds)
{
    const uint one = DTYPE == 1 ? 0x3c00 : 0x3f80;
    const uint ones[2] = {one << 16 | one, one << 16 | one};
    mma(ds, ones, sums);
}

#define HOLD_MEAN_KEY(weights)                                                \
    __asm__ volatile("" : HOLD_4(weights, 0) : : "memory")

/* The weights of 16 keys, as an operand, of which dQ gets what takes out of it
 * `error`, of the lane's two rows, times the plain mean of the first `count`,
 * at most 16. */
INLINE void weigh_mean_key(uint *weights, const float *error, uint count,
                           int lane)
{
    const float part = -1.0f / count;
    UNROLL_FOR (uint c = 0; c < 2; c++) {
        const uint key = 8 * c + 2 * (lane % 4);
        UNROLL_FOR (uint r = 0; r < 2; r++)
            weights[2 * c + r] =
                PACK(key < count ? error[r] * part : 0.0f,
                     key + 1 < count ? error[r] * part : 0.0f);
    }
}
