/* SPDX-License-Identifier: Apache-2.0 */
#include "models/levels.h"

#include <stdint.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* bits / 2^shift, to nearest, ties to even; shift is 1 to 31. */
static uint32_t round_shift(uint32_t bits, uint32_t shift)
{
    const uint32_t odd = bits >> shift & 1;
    return (bits + (((uint32_t)1 << (shift - 1)) - 1) + odd) >> shift;
}

static uint16_t bf16_of(float x)
{
    const uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)round_shift(bits, 16);
}

static uint16_t fp16_of(float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x47800000) /* 2^16 and more */
        return (uint16_t)(sign | 0x7c00);
    if (size >= 0x38800000) /* 2^-14: from there on exponents fit */
        return (uint16_t)(sign | round_shift(size - 0x38000000, 13));
    if (size < 0x33000000) /* half of the smallest, 2^-25 */
        return (uint16_t)sign;
    const uint32_t fraction = (size & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | round_shift(fraction, 126 - (size >> 23)));
}

void wa_store_numbers(winattn_dtype dtype, const float *from, size_t count,
                      void *to)
{
    uint16_t *half = to;
    if (dtype == WINATTN_FP32)
        memcpy(to, from, count * sizeof *from);
    else if (dtype == WINATTN_FP16)
        for (size_t i = 0; i < count; i++)
            half[i] = fp16_of(from[i]);
    else
        for (size_t i = 0; i < count; i++)
            half[i] = bf16_of(from[i]);
}
