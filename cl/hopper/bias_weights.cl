/* SPDX-License-Identifier: Apache-2.0
 * Weights of biases. A bias is the same in all windows, so what it makes of a
 * weight, 2^((bias - top) log2 e) with the row's largest bias as top, is found
 * once and multiplies pairs of weights as they are packed: a weight is then
 * 2^((score - base) log2 e) of one window times that of the bias. Both are
 * rounded to the storage type, and so is their product.
 *
 * The biases' are WEIGHT_UNIT times as large, so that small ones are no
 * subnormal numbers of fp16. */
#ifndef BIAS_WEIGHTS_CL
#define BIAS_WEIGHTS_CL
#include "hopper/window_bias.cl"

/* A weight whose score is the row's base and whose bias its largest. */
#define WEIGHT_UNIT (BIAS ? 8192.0f : 1.0f)

#if BIAS
/* Two weights times two others, packed. */
INLINE uint multiply_pairs(uint x, uint y)
{
    uint z;
    __asm__("mul.rn." MMA_TYPE "x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}

/* In place of the biases of 16 rows, by a wave, from its lane's first chunk
 * on; and the rows' largest ones to `tops`. */
INLINE void weigh_biases(uint biases, uint tops, int lane)
{
    const uint chunks = KEY_TILES * (TILE_KEYS / 16);
    float top[2] = {-INFINITY, -INFINITY};
    NO_UNROLL_FOR (uint c = 0; c < chunks; c++) {
        float bias[8];
        load_biases(bias, biases + c * CHUNK_BIAS_BYTES, 0);
        UNROLL_FOR (uint n = 0; n < 8; n++)
            top[n / 2 % 2] = fmax(top[n / 2 % 2], bias[n]);
    }
    UNROLL_FOR (uint r = 0; r < 2; r++) {
        REDUCE(top[r], fmax);
        /* of a row that sees no key, too, weights are numbers: 0 */
        top[r] = top[r] == -INFINITY ? 0.0f : top[r];
        if (lane % 4 == 0)
            store_word(tops + (lane / 4 + 8 * r) * 4, as_uint(top[r]));
    }
    NO_UNROLL_FOR (uint c = 0; c < chunks; c++) {
        const uint at = biases + c * CHUNK_BIAS_BYTES;
        float x[8];
        load_biases(x, at, 0);
        UNROLL_FOR (uint n = 0; n < 8; n++)
            x[n] = WEIGHT_UNIT * EXP2((x[n] - top[n / 2 % 2]) * LOG2E);
        const uint4 chunk = {PACK(x[0], x[1]), PACK(x[2], x[3]),
                             PACK(x[4], x[5]), PACK(x[6], x[7])};
        store_chunk(at, chunk);
    }
}
#endif

#endif
