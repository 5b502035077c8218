/* SPDX-License-Identifier: Apache-2.0 */
#include "session/stored_numbers.h"

#include <math.h>
#include <string.h>

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

double wa_stored_value(winattn_dtype dtype, uint16_t bits)
{
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (dtype == WINATTN_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float number;
        memcpy(&number, &wide, sizeof number);
        return number;
    }
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * fraction * 0x1p-24;
    const uint64_t wide = (uint64_t)(bits & 0x8000) << 48 |
                          (uint64_t)(exponent + 1023 - 15) << 52 |
                          (uint64_t)fraction << 42;
    double number;
    memcpy(&number, &wide, sizeof number);
    return number;
}
