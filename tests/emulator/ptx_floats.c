/* SPDX-License-Identifier: Apache-2.0
 * What each lane computes by itself, of floating-point numbers. What hardware
 * computes approximately is exact here but for rounding. */
#include "ptx_code.h"

#include <math.h>

/* Subnormal numbers are zeros, where an instruction says so. */
static float flushed(const ptx_instruction *i, float x)
{
    return i->ftz && fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float read_number(const ptx_instruction *i, uint64_t bits)
{
    return i->width.bits == 16 ? ptx_half((uint16_t)bits)
                               : flushed(i, float_of(bits));
}

static float chosen(char operation, float a, float b)
{
    switch (operation) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '/':
        return a / b;
    case 'm':
        return fminf(a, b);
    default:
        return fmaxf(a, b);
    }
}

/* Two halves in one word. */
static uint64_t of_halves(uint64_t a, uint64_t b, char operation)
{
    const float low =
        chosen(operation, ptx_half((uint16_t)a), ptx_half((uint16_t)b));
    const float high = chosen(operation, ptx_half((uint16_t)(a >> 16)),
                              ptx_half((uint16_t)(b >> 16)));
    return ptx_to_half(low) | (uint64_t)ptx_to_half(high) << 16;
}

void ptx_calculate(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes,
                   char operation)
{
    uint64_t *to = lanes_of(wave, i, 0);
    const uint64_t *a = lanes_of(wave, i, 1), *b = lanes_of(wave, i, 2);
    LANE_FOR (lanes) {
        if (i->width.type == TYPE_HALVES)
            to[lane] = of_halves(a[lane], b[lane], operation);
        else
            to[lane] = bits_of(
                flushed(i, chosen(operation, flushed(i, float_of(a[lane])),
                                  flushed(i, float_of(b[lane])))));
    }
}

/* a b + c, of numbers of 16 bits: rounded once, as double has room for all of
 * it but what is far below the result. */
static uint16_t fused_short(bool is_half, uint64_t a, uint64_t b, uint64_t c)
{
    if (is_half)
        return ptx_to_half(fma((double)ptx_half((uint16_t)a),
                               (double)ptx_half((uint16_t)b),
                               (double)ptx_half((uint16_t)c)));
    return ptx_to_bf16(fma((double)float_of(a << 16),
                           (double)float_of(b << 16),
                           (double)float_of(c << 16)));
}

static uint64_t fused(const ptx_instruction *i, uint64_t a, uint64_t b,
                      uint64_t c)
{
    const bool is_half = i->width.type == TYPE_HALVES;
    if (is_half || i->width.type == TYPE_BF16S)
        return fused_short(is_half, a & 0xffff, b & 0xffff, c & 0xffff) |
               (uint64_t)fused_short(is_half, a >> 16, b >> 16, c >> 16) << 16;
    return bits_of(
        flushed(i, fmaf(flushed(i, float_of(a)), flushed(i, float_of(b)),
                        flushed(i, float_of(c)))));
}

void run_fuse(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    uint64_t *to = lanes_of(wave, i, 0);
    const uint64_t *a = lanes_of(wave, i, 1), *b = lanes_of(wave, i, 2);
    const uint64_t *c = lanes_of(wave, i, 3);
    LANE_FOR (lanes)
        to[lane] = fused(i, a[lane], b[lane], c[lane]);
}

bool ptx_holds(const ptx_instruction *i, uint64_t a, uint64_t b)
{
    const float x = read_number(i, a), y = read_number(i, b);
    const bool ordered = !isnan(x) && !isnan(y);
    if (i->compare == COMPARE_NUM)
        return ordered;
    if (i->compare == COMPARE_NAN)
        return !ordered;
    if (!ordered)
        return i->is_unordered;
    switch (i->compare) {
    case COMPARE_EQ:
        return x == y;
    case COMPARE_NE:
        return x != y;
    case COMPARE_LT:
        return x < y;
    case COMPARE_LE:
        return x <= y;
    case COMPARE_GT:
        return x > y;
    default:
        return x >= y;
    }
}

/* ---- Functions of one number ---- */

static float inverse(float x) { return 1 / x; }
static float inverse_root(float x) { return (float)(1 / sqrt((double)x)); }

static void apply(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes,
                  float (*function)(float))
{
    uint64_t *to = lanes_of(wave, i, 0);
    const uint64_t *a = lanes_of(wave, i, 1);
    LANE_FOR (lanes)
        to[lane] =
            bits_of(flushed(i, function(flushed(i, float_of(a[lane])))));
}

#define OF_ONE(name, function)                                                \
    void run_##name(ptx_wave *wave, const ptx_instruction *i,                 \
                    lane_mask lanes)                                          \
    {                                                                         \
        apply(wave, i, lanes, function);                                      \
    }
OF_ONE(square_root, sqrtf)
OF_ONE(reciprocal, inverse)
OF_ONE(reciprocal_root, inverse_root)
OF_ONE(exp2, exp2f)
OF_ONE(log2, log2f)
