/* SPDX-License-Identifier: Apache-2.0 */
#include "session/stored_numbers.h"

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
