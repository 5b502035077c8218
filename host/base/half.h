/* SPDX-License-Identifier: Apache-2.0
 * What numbers of 16 bits say. */
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

#endif
