/* SPDX-License-Identifier: Apache-2.0 */
#include "session/stored_numbers.h"

#include <math.h>
#include <stdbool.h>

uint16_t wa_stored_bits(winattn_dtype dtype, int n, int power)
{
    const uint32_t sign = n < 0 ? 0x8000u : 0;
    const uint32_t size = (uint32_t)(n < 0 ? -n : n);
    uint32_t top = 0; /* the highest bit's place */
    if (size == 0)
        return 0;
    while (size >> (top + 1))
        top++;
    const uint32_t exponent = (uint32_t)((int)top + power);
    return (uint16_t)(dtype == WINATTN_FP16
                          ? sign | (exponent + 15) << 10 |
                                ((size << (10 - top)) & 0x3ffu)
                          : sign | (exponent + 127) << 7 |
                                ((size << (7 - top)) & 0x7fu));
}

double wa_scaled(double x, int power)
{
    for (; power > 0; power--)
        x *= 2.0;
    for (; power < 0; power++)
        x *= 0.5;
    return x;
}

double wa_stored_value(winattn_dtype dtype, uint16_t bits)
{
    const bool half = dtype == WINATTN_FP16;
    const int exponent = half ? bits >> 10 & 31 : bits >> 7 & 255;
    const int fraction = half ? bits & 0x3ff : bits & 0x7f;
    const int width = half ? 10 : 7, bias = half ? 15 : 127;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == (half ? 31 : 255))
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? wa_scaled(fraction + wa_scaled(1.0, width),
                                        exponent - bias - width)
                            : wa_scaled(fraction, 1 - bias - width));
}
