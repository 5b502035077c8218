/* SPDX-License-Identifier: Apache-2.0
 * Biases as drops: by how much each, times log2 e, is below the largest that a
 * work-group keeps. log2 e, and what makes fp32 of a stored number, are then
 * paid before the first window and not for each score.
 *
 * A drop is kept as bits 8 to 23 of the fp32 number -(DROP_OFFSET + drop):
 * from 8 to 32 the others are the same but for the last eight, so that a byte
 * permutation finds it again. It is exact to 2^-13 below 8, and to 2^-11
 * above, where a weight is a 256th of what it would be. Biases that are spread
 * wider, or not finite, cannot be kept so. */
#ifndef BIAS_DROPS_CL
#define BIAS_DROPS_CL
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"
#include "hopper/stored_numbers.cl"

#define DROP_OFFSET 8.0f
#define MOST_DROP 23.9f
/* The upper byte of what is from -8 to -32. */
#define DROP_BYTE 0xc1000000u
/* Half of what is lost by eight bits fewer. */
#define HALF_STEP 0x1p-13f

/* ---- How far biases are spread ---- */

/* Stored numbers as integers that are ordered like them: the largest of those
 * in upper and in lower halves of words, and of their complements. */
typedef struct bias_range {
    uint most, least;
} bias_range;

#define BIAS_RANGE_BYTES 8

INLINE uint larger_halves(uint a, uint b)
{
    uint y;
    __asm__("max.u16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

/* Four words of two numbers. */
INLINE void note_biases(bias_range *range, const uint *words)
{
    UNROLL_FOR (int i = 0; i < 4; i++) {
        const uint signs = words[i] >> 15 & 0x00010001u;
        const uint ordered = words[i] ^ (signs * 0x7fffu | 0x80008000u);
        range->most = larger_halves(range->most, ordered);
        range->least = larger_halves(range->least, ~ordered);
    }
}

/* The number that `ordered` stands for. */
INLINE float unordered(uint ordered)
{
    return unpack(ordered ^ (ordered & 0x8000u ? 0x8000u : 0xffffu)).x;
}

/* What a wave has seen, to slots of all waves. */
INLINE void keep_range(uint slots, const bias_range *range, uint wave)
{
    const uint most = max(range->most >> 16, range->most & 0xffffu);
    const uint least = max(range->least >> 16, range->least & 0xffffu);
    const uint at = slots + wave * BIAS_RANGE_BYTES;
    store_word(at, largest_of_wave(most));
    store_word(at + 4, largest_of_wave(least));
}

/* What is added to a bias times log2 e, of what all waves have seen: are the
 * biases such that it makes drops of them? */
INLINE int find_drop_shift(float *shift, uint slots, const uint waves,
                           int lane)
{
    const uint at = slots + min((uint)lane, waves - 1) * BIAS_RANGE_BYTES;
    const float most = unordered(largest_of_wave(load_word(at)));
    const float least =
        unordered(0xffffu ^ largest_of_wave(load_word(at + 4)));
    *shift = -FMA(most, LOG2E, DROP_OFFSET + HALF_STEP);
    return (most - least) * LOG2E <= MOST_DROP; /* false of no numbers */
}

/* ---- Drops ---- */

/* Four words of two biases become words of two drops. */
INLINE void drop_biases(uint *words, float shift)
{
    UNROLL_FOR (int i = 0; i < 4; i++) {
        const float2 pair = unpack(words[i]);
        __asm__("prmt.b32 %0, %1, %2, 0x6521;"
                : "=r"(words[i])
                : "r"(as_uint(FMA(pair.x, LOG2E, shift))),
                  "r"(as_uint(FMA(pair.y, LOG2E, shift))));
    }
}

/* Eight numbers -(DROP_OFFSET + drop) of four words. */
INLINE void unpack_drops(float *to, const uint *words)
{
    UNROLL_FOR (int i = 0; i < 4; i++) {
        __asm__("prmt.b32 %0, %1, %2, 0x7104;"
                : "=f"(to[2 * i])
                : "r"(words[i]), "r"(DROP_BYTE));
        __asm__("prmt.b32 %0, %1, %2, 0x7324;"
                : "=f"(to[2 * i + 1])
                : "r"(words[i]), "r"(DROP_BYTE));
    }
}

#endif
