/* SPDX-License-Identifier: Apache-2.0
 * Numbers as tensors of 16 bits store them, two in a word. */
#include "common/storage.cl"

INLINE float2 unpack(uint pair)
{
    float2 x;
#if DTYPE == 1
    __asm__("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; "
            "cvt.f32.f16 %1, h;}"
            : "=f"(x.x), "=f"(x.y)
            : "r"(pair));
#else
    x.x = as_float(pair << 16);
    x.y = as_float(pair & 0xffff0000u);
#endif
    return x;
}

/* Two neighbours, however they lie. */
INLINE uint load_pair(__global const storage *from)
{
    __global const ushort *bits = (__global const ushort *)from;
    return bits[0] | (uint)bits[1] << 16;
}

/* Eight numbers of four words. */
INLINE void unpack_pairs(float *to, const uint *words)
{
    UNROLL_FOR (uint i = 0; i < 4; i++) {
        const float2 pair = unpack(words[i]);
        to[2 * i] = pair.x;
        to[2 * i + 1] = pair.y;
    }
}

/* The squares of eight numbers, and `sum`. */
INLINE float add_squares(float sum, uint4 chunk)
{
    const uint words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    UNROLL_FOR (uint i = 0; i < 4; i++) {
        const float2 pair = unpack(words[i]);
        sum = FMA(pair.x, pair.x, sum);
        sum = FMA(pair.y, pair.y, sum);
    }
    return sum;
}
