/* SPDX-License-Identifier: Apache-2.0
 * Numbers as bits. */
#include "storage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t kind_size(storage_kind kind)
{
    return kind == KIND_FP32 ? 4 : kind == KIND_U8 ? 1 : 2;
}

/* x rounded to `digits` binary digits, at most so fine as 2^lowest. */
static double round_binary(double x, int digits, int lowest)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &exponent);
    int unit = exponent - digits;
    unit = unit < lowest ? lowest : unit;
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

double kind_round(storage_kind kind, double x)
{
    double y = x;
    if (kind == KIND_FP32)
        return (float)x;
    if (kind == KIND_U8)
        return x;
    if (kind == KIND_FP16) {
        y = round_binary(x, 11, -24);
        return fabs(y) > 65504 ? copysign(INFINITY, y) : y;
    }
    y = round_binary(x, 8, -133);
    return fabs(y) > 3.3895313892515355e38 ? copysign(INFINITY, y) : y;
}

void kind_write(storage_kind kind, double x, void *to)
{
    const float single = (float)kind_round(kind, x);
    uint32_t bits;
    memcpy(&bits, &single, 4);
    /* all bits of a NaN set: arithmetic on its bits would show */
    if (isnan(x))
        bits = 0x7fffffff;
    if (kind == KIND_FP32) {
        memcpy(to, &bits, 4);
    } else if (kind == KIND_U8) {
        *(unsigned char *)to = (unsigned char)x;
    } else if (kind == KIND_BF16) {
        const uint16_t half = (uint16_t)(bits >> 16);
        memcpy(to, &half, 2);
    } else {
        const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
        const double size = fabs((double)single);
        uint16_t half;
        if (isnan(x))
            half = 0x7fff;
        else if (isinf(size))
            half = 0x7c00;
        else if (size < 0x1p-14)
            half = (uint16_t)(size * 0x1p24);
        else
            half = (uint16_t)(((bits >> 13) & 0x3ff) |
                              ((((bits >> 23) & 0xff) - 112) << 10));
        half |= sign;
        memcpy(to, &half, 2);
    }
}

double kind_read(storage_kind kind, const void *from)
{
    uint16_t half;
    float single;
    if (kind == KIND_U8)
        return *(const unsigned char *)from;
    if (kind == KIND_FP32) {
        memcpy(&single, from, 4);
        return single;
    }
    memcpy(&half, from, 2);
    if (kind == KIND_BF16) {
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&single, &bits, 4);
        return single;
    }
    const int exponent = half >> 10 & 31, fraction = half & 0x3ff;
    double x = exponent == 31  ? (fraction ? NAN : INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(fraction + 1024, exponent - 25);
    return half & 0x8000 ? -x : x;
}

unsigned char *odd_memory(size_t bytes, size_t element, unsigned char **odd)
{
    enum { LINE = 64 };
    unsigned char *memory = malloc(bytes + 2 * LINE);
    if (!memory)
        return NULL;
    memset(memory, 0xff, bytes + 2 * LINE);
    *odd = memory + LINE - (uintptr_t)memory % LINE + element;
    return memory;
}
