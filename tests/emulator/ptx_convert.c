/* SPDX-License-Identifier: Apache-2.0
 * Conversions from one type to another. */
#include "ptx_code.h"

#include <math.h>

#include "storage.h"

/* ---- 16 bits ---- */

static float halves[1 << 16];

static void __attribute__((constructor)) fill_halves(void)
{
    for (unsigned i = 0; i < 1 << 16; i++) {
        const uint16_t bits = (uint16_t)i;
        halves[i] = (float)kind_read(KIND_FP16, &bits);
    }
}

float ptx_half(uint16_t bits) { return halves[bits]; }

uint16_t ptx_to_half(double x)
{
    uint16_t bits;
    kind_write(KIND_FP16, x, &bits);
    return bits;
}

uint16_t ptx_to_bf16(double x)
{
    uint16_t bits;
    kind_write(KIND_BF16, x, &bits);
    return bits;
}

/* ---- Floats ---- */

static double rounded(ptx_rounding rounding, double x)
{
    switch (rounding) {
    case ROUND_ZERO:
        return trunc(x);
    case ROUND_DOWN:
        return floor(x);
    case ROUND_UP:
        return ceil(x);
    default:
        return nearbyint(x);
    }
}

static double read_float(ptx_width width, uint64_t bits)
{
    return width.type == TYPE_BF16 ? ptx_bf16((uint16_t)bits)
           : width.bits == 16      ? ptx_half((uint16_t)bits)
                                   : float_of(bits);
}

/* 13 bits are dropped, to the nearest, away from zero. */
static uint64_t to_tf32(double x)
{
    const uint64_t bits = bits_of((float)x);
    return isfinite(x) ? (bits + 0x1000) & ~(uint64_t)0x1fff : bits;
}

static uint64_t write_float(const ptx_instruction *i, double x)
{
    if (i->ftz && fabs(x) < 0x1p-126)
        x = copysign(0, x);
    if (i->width.type == TYPE_BF16)
        return ptx_to_bf16(x);
    if (i->width.type == TYPE_TF32)
        return to_tf32(x);
    return i->width.bits == 16 ? ptx_to_half(x) : bits_of((float)x);
}

/* The nearest that there is; of a NaN 0. */
static uint64_t write_integer(ptx_width width, double x)
{
    const bool is_signed = width.type == TYPE_SIGNED;
    const double end = ldexp(1.0, (int)width.bits - is_signed);
    if (isnan(x))
        return 0;
    if (x >= end)
        return is_signed ? ((uint64_t)1 << (width.bits - 1)) - 1
                         : cut(UINT64_MAX, width.bits);
    if (is_signed)
        return x <= -end ? (uint64_t)1 << (width.bits - 1)
                         : cut((uint64_t)(int64_t)x, width.bits);
    return x <= 0 ? 0 : (uint64_t)x;
}

static bool is_float(ptx_width width)
{
    return width.type == TYPE_FLOAT || width.type == TYPE_BF16 ||
           width.type == TYPE_TF32;
}

/* The nearest float, of all bits at once. */
static uint64_t from_integer(const ptx_instruction *i, uint64_t bits)
{
    const bool is_signed = i->from.type == TYPE_SIGNED;
    const int64_t x = signed_of(bits, i->from.bits);
    const uint64_t y = cut(bits, i->from.bits);
    if (i->width.bits == 32)
        return bits_of(is_signed ? (float)x : (float)y);
    return write_float(i, is_signed ? (double)x : (double)y);
}

static uint64_t converted(const ptx_instruction *i, uint64_t bits)
{
    if (is_float(i->from)) {
        double x = read_float(i->from, bits);
        if (i->ftz && fabs(x) < 0x1p-126 && i->from.bits == 32)
            x = copysign(0, x);
        if (is_float(i->width))
            return write_float(i, i->to_integer ? rounded(i->rounding, x) : x);
        return write_integer(i->width, rounded(i->rounding, x));
    }
    if (is_float(i->width))
        return from_integer(i, bits);
    const uint64_t whole = i->from.type == TYPE_SIGNED
                               ? (uint64_t)signed_of(bits, i->from.bits)
                               : cut(bits, i->from.bits);
    /* registers are wider than 8 bits */
    return i->width.type == TYPE_SIGNED
               ? (uint64_t)signed_of(whole, i->width.bits)
               : cut(whole, i->width.bits);
}

/* Two to a word, the first to its upper half. */
static uint64_t pair(const ptx_instruction *i, uint64_t high, uint64_t low)
{
    uint16_t (*const to)(double) =
        i->width.type == TYPE_HALVES ? ptx_to_half : ptx_to_bf16;
    return (uint64_t)to(float_of(high)) << 16 | to(float_of(low));
}

void run_convert(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    uint64_t *to = lanes_of(wave, i, 0);
    const uint64_t *a = lanes_of(wave, i, 1);
    const bool is_pair =
        i->width.type == TYPE_HALVES || i->width.type == TYPE_BF16S;
    const bool narrows = is_float(i->width) && is_float(i->from) &&
                         !i->to_integer && i->rounding > ROUND_NEAREST;
    if (narrows || (is_pair && i->operand_count < 3)) {
        ptx_fail(wave->group, "a conversion of another kind");
        return;
    }
    LANE_FOR (lanes)
        to[lane] = is_pair ? pair(i, a[lane], lanes_of(wave, i, 2)[lane])
                           : converted(i, a[lane]);
}
