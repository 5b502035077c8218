/* SPDX-License-Identifier: Apache-2.0
 * What dS of a row sums to over keys and should not is in dQ times a mean key:
 * what all keys have in common goes by the plain mean of a few of them. */
#ifndef MEAN_KEY_CL
#define MEAN_KEY_CL
#include "common/problem.cl"
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"

INLINE float number_of(ushort bits)
{
#if DTYPE == 1
    return vload_half(0, (const half *)&bits);
#else
    return as_float((uint)bits << 16);
#endif
}

/* What dS of 16 keys, packed in pairs, sums to in each of the lane's rows is
 * added to sums[0] and sums[2]: as a product with ones, in fewer instructions
 * than additions. */
INLINE void add_row_sums(float *sums, const uint *ds)
{
    const uint one = DTYPE == 1 ? 0x3c00 : 0x3f80;
    const uint ones[2] = {one << 16 | one, one << 16 | one};
    mma(ds, ones, sums);
}

/* take_mean_key: of `count` keys, at most 16, of swizzled rows in local
 * memory; chunk_of says where 8 channels of a row are. error: of the lane's
 * two rows. */
#define DEFINE_TAKE_MEAN_KEY(chunk_of)                                        \
    INLINE void take_mean_key(float *dq, const float *error, uint keys,       \
                              uint count, int lane)                           \
    {                                                                         \
        UNROLL_FOR (int j = 0; j < HEAD_DIM / 8; j++) {                       \
            float mean[2] = {0.0f, 0.0f};                                     \
            UNROLL_FOR (uint r = 0; r < 2; r++) {                             \
                const uint key = lane / 4 + 8 * r;                            \
                const uint pair =                                             \
                    load_word(chunk_of(keys, key, j) + lane % 4 * 4);         \
                UNROLL_FOR (int i = 0; i < 2; i++)                            \
                    mean[i] += key < count                                    \
                                   ? number_of((ushort)(pair >> 16 * i))      \
                                   : 0.0f;                                    \
            }                                                                 \
            UNROLL_FOR (int i = 0; i < 2; i++) {                              \
                mean[i] += LANE_XOR(mean[i], 4);                              \
                mean[i] += LANE_XOR(mean[i], 8);                              \
                mean[i] += LANE_XOR(mean[i], 16);                             \
                UNROLL_FOR (int r = 0; r < 2; r++)                            \
                    dq[SCORE(j, r, i)] =                                      \
                        FMA(error[r], mean[i] * (-1.0f / count),              \
                            dq[SCORE(j, r, i)]);                              \
            }                                                                 \
        }                                                                     \
    }

#endif
