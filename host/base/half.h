/* SPDX-License-Identifier: Apache-2.0
 * Numbers of 16 bits. */
#ifndef WINATTN_HALF_H
#define WINATTN_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Reads fp16, or bf16, which is the first half of fp32; infinities and NaNs,
 * too. */
static inline float wa_half_value(bool is_fp16, uint16_t stored)
{
    const uint32_t exponent = stored >> 10 & 31, fraction = stored & 0x3ff;
    const uint32_t sign = stored & 0x8000;
    const float small = (float)fraction * 0x1p-24f;
    uint32_t bits = (uint32_t)stored << 16;
    float value;
    if (is_fp16 && exponent == 0)
        return sign ? -small : small;
    if (is_fp16)
        bits = sign << 16 | (exponent == 31 ? 255 : exponent + 112) << 23 |
               fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bits / 2^shift, to nearest, ties to even; shift is 1 to 31. */
static inline uint32_t wa_round_shift(uint32_t bits, uint32_t shift)
{
    const uint32_t odd = bits >> shift & 1;
    return (bits + (((uint32_t)1 << (shift - 1)) - 1) + odd) >> shift;
}

/* Stores a number as fp16 or bf16: the nearest, ties to even; a NaN stays one.
 */
static inline uint16_t wa_half_of(bool is_fp16, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(is_fp16 ? sign | 0x7e00 : bits >> 16 | 0x40);
    if (!is_fp16)
        return (uint16_t)wa_round_shift(bits, 16);
    if (size >= 0x47800000) /* 2^16 and more */
        return (uint16_t)(sign | 0x7c00);
    if (size >= 0x38800000) /* 2^-14: from there on exponents fit */
        return (uint16_t)(sign | wa_round_shift(size - 0x38000000, 13));
    if (size < 0x33000000) /* half of the smallest, 2^-25 */
        return (uint16_t)sign;
    const uint32_t fraction = (size & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | wa_round_shift(fraction, 126 - (size >> 23)));
}

#endif
