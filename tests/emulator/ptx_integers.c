/* SPDX-License-Identifier: Apache-2.0
 * What each lane computes by itself, of integers, bits and predicates; sums
 * and so on of floats are passed on (ptx_floats.c). */
#include "ptx_code.h"

/* to[lane] = value of a, b and c, the operands after the first. */
#define FOR_EACH(value)                                                       \
    do {                                                                      \
        uint64_t *to = lanes_of(wave, i, 0);                                  \
        const uint64_t *a = lanes_of(wave, i, 1);                             \
        const uint64_t *b = i->operand_count > 2 ? lanes_of(wave, i, 2) : a;  \
        const uint64_t *c = i->operand_count > 3 ? lanes_of(wave, i, 3) : a;  \
        (void)b;                                                              \
        (void)c;                                                              \
        LANE_FOR (lanes)                                                      \
            to[lane] = (value);                                               \
    } while (0)

#define EACH(name, value)                                                     \
    void run_##name(ptx_wave *wave, const ptx_instruction *i,                 \
                    lane_mask lanes)                                          \
    {                                                                         \
        FOR_EACH(value);                                                      \
    }

static bool is_float(const ptx_instruction *i)
{
    return i->width.type == TYPE_FLOAT || i->width.type == TYPE_HALVES ||
           i->width.type == TYPE_BF16S || i->width.type == TYPE_BF16;
}

static bool is_signed(const ptx_instruction *i)
{
    return i->width.type == TYPE_SIGNED;
}

/* One register to another, parts into one, or one into parts. */
void run_move(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const unsigned bits = i->width.bits, count = i->operand_count;
    if (count == 2) {
        FOR_EACH(cut(a[lane], bits));
        return;
    }
    const unsigned part = bits / (count - 1);
    LANE_FOR (lanes) {
        if (i->lead > 1) {
            const uint64_t whole = lanes_of(wave, i, count - 1)[lane];
            for (unsigned n = 0; n + 1 < count; n++)
                lanes_of(wave, i, n)[lane] = cut(whole >> (n * part), part);
        } else {
            uint64_t whole = 0;
            for (unsigned n = 1; n < count; n++)
                whole |= cut(lanes_of(wave, i, n)[lane], part)
                         << ((n - 1) * part);
            lanes_of(wave, i, 0)[lane] = whole;
        }
    }
}

/* Each half of a word by itself. */
static uint64_t of_pairs(const ptx_instruction *i, uint64_t a, uint64_t b,
                         char operation)
{
    const bool is_signed_pair = i->width.type == TYPE_SIGNED_PAIR;
    uint64_t all = 0;
    for (unsigned shift = 0; shift < 32; shift += 16) {
        const uint64_t x = a >> shift & 0xffff, y = b >> shift & 0xffff;
        const bool is_larger =
            is_signed_pair ? signed_of(x, 16) > signed_of(y, 16) : x > y;
        const uint64_t one = operation == '+'                  ? x + y
                             : is_larger == (operation == 'M') ? x
                                                               : y;
        all |= cut(one, 16) << shift;
    }
    return all;
}

static bool is_pair(const ptx_instruction *i)
{
    return i->width.type == TYPE_PAIR || i->width.type == TYPE_SIGNED_PAIR;
}

/* Of floats and of pairs what `operation` says, of integers the value. */
#define ARITHMETIC(name, operation, value)                                    \
    void run_##name(ptx_wave *wave, const ptx_instruction *i,                 \
                    lane_mask lanes)                                          \
    {                                                                         \
        if (is_float(i))                                                      \
            ptx_calculate(wave, i, lanes, operation);                         \
        else if (is_pair(i))                                                  \
            FOR_EACH(of_pairs(i, a[lane], b[lane], operation));               \
        else                                                                  \
            FOR_EACH(value);                                                  \
    }
ARITHMETIC(add, '+', cut(a[lane] + b[lane], i->width.bits))

ARITHMETIC(sub, '-', cut(a[lane] - b[lane], i->width.bits))

/* As wide as is asked for. */
static uint64_t product(const ptx_instruction *i, uint64_t a, uint64_t b)
{
    const unsigned bits = i->width.bits;
    __extension__ typedef __int128 wide;
    __extension__ typedef unsigned __int128 unsigned_wide;
    const unsigned_wide all =
        is_signed(i)
            ? (unsigned_wide)((wide)signed_of(a, bits) * signed_of(b, bits))
            : (unsigned_wide)cut(a, bits) * cut(b, bits);
    if (i->is_wide)
        return cut((uint64_t)all, 2 * bits);
    return cut((uint64_t)(i->is_high ? all >> bits : all), bits);
}

ARITHMETIC(multiply, '*', product(i, a[lane], b[lane]))

void run_multiply_add(ptx_wave *wave, const ptx_instruction *i,
                      lane_mask lanes)
{
    const unsigned bits = i->is_wide ? 2 * i->width.bits : i->width.bits;
    if (is_float(i))
        run_fuse(wave, i, lanes);
    else
        FOR_EACH(cut(product(i, a[lane], b[lane]) + c[lane], bits));
}

static uint64_t quotient(const ptx_instruction *i, uint64_t a, uint64_t b,
                         bool wants_rest)
{
    const unsigned bits = i->width.bits;
    if (cut(b, bits) == 0)
        return cut(UINT64_MAX, bits);
    if (is_signed(i)) {
        const int64_t x = signed_of(a, bits), y = signed_of(b, bits);
        if (y == -1)
            return wants_rest ? 0 : cut(0 - (uint64_t)x, bits);
        return cut((uint64_t)(wants_rest ? x % y : x / y), bits);
    }
    a = cut(a, bits);
    b = cut(b, bits);
    return wants_rest ? a % b : a / b;
}

ARITHMETIC(divide, '/', quotient(i, a[lane], b[lane], false))

EACH(remainder, quotient(i, a[lane], b[lane], true))

static bool is_less(const ptx_instruction *i, uint64_t a, uint64_t b)
{
    const unsigned bits = i->width.bits;
    return is_signed(i) ? signed_of(a, bits) < signed_of(b, bits)
                        : cut(a, bits) < cut(b, bits);
}

ARITHMETIC(minimum, 'm',
           cut(is_less(i, b[lane], a[lane]) ? b[lane] : a[lane],
               i->width.bits))

ARITHMETIC(maximum, 'M',
           cut(is_less(i, a[lane], b[lane]) ? b[lane] : a[lane],
               i->width.bits))

/* Of floats the sign's bit, also of a NaN. */
void run_absolute(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const unsigned bits = i->width.bits;
    if (is_float(i))
        FOR_EACH(cut(a[lane], bits - 1));
    else
        FOR_EACH(
            cut(signed_of(a[lane], bits) < 0 ? 0 - a[lane] : a[lane], bits));
}

void run_negate(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const unsigned bits = i->width.bits;
    if (is_float(i))
        FOR_EACH(cut(a[lane], bits) ^ (uint64_t)1 << (bits - 1));
    else
        FOR_EACH(cut(0 - a[lane], bits));
}

EACH(and, cut(a[lane] & b[lane], i->width.bits))

EACH(or, cut(a[lane] | b[lane], i->width.bits))

EACH(xor, cut(a[lane] ^ b[lane], i->width.bits))

EACH(not, cut(~a[lane], i->width.bits))

/* Shifts by more than there is leave zeros, or the sign. */
EACH(shift_left, (uint32_t)b[lane] >= i->width.bits
                     ? 0
                     : cut(a[lane] << (uint32_t)b[lane], i->width.bits))

void run_shift_right(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const unsigned bits = i->width.bits;
    if (is_signed(i))
        FOR_EACH(
            cut((uint64_t)(signed_of(a[lane], bits) >>
                           ((uint32_t)b[lane] >= bits ? bits - 1
                                                      : (uint32_t)b[lane])),
                bits));
    else
        FOR_EACH((uint32_t)b[lane] >= bits
                     ? 0
                     : cut(a[lane], bits) >> (uint32_t)b[lane]);
}

/* Bits `first` and on, `count` of them; where there are none, the sign. */
static uint64_t field(const ptx_instruction *i, uint64_t x, uint64_t first,
                      uint64_t count)
{
    const unsigned bits = i->width.bits;
    const unsigned from = (uint8_t)first, most = (uint8_t)count;
    const unsigned there = from < bits ? bits - from : 0;
    const unsigned kept = most < there ? most : there;
    const unsigned last = kept ? from + kept - 1 : bits - 1;
    const bool negative = is_signed(i) && most > 0 && (x >> last & 1);
    const uint64_t found = kept ? cut(x >> from, kept) : 0;
    return cut(negative && kept < 64 ? found | ~(uint64_t)0 << kept : found,
               bits);
}

EACH(extract, field(i, a[lane], b[lane], c[lane]))

/* to, from, into, first, count */
void run_insert(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const uint64_t *counts = lanes_of(wave, i, 4);
    const unsigned bits = i->width.bits;
    LANE_FOR (lanes) {
        const uint64_t x = lanes_of(wave, i, 1)[lane];
        const uint64_t into = lanes_of(wave, i, 2)[lane];
        const unsigned first = (uint8_t)lanes_of(wave, i, 3)[lane];
        const unsigned count = (uint8_t)counts[lane];
        const uint64_t mask =
            first >= bits ? 0 : cut(~(uint64_t)0, count) << first;
        lanes_of(wave, i, 0)[lane] = cut(
            (into & ~mask) | (first >= bits ? 0 : x << first & mask), bits);
    }
}

EACH(count_ones, (uint64_t)__builtin_popcountll(cut(a[lane], i->width.bits)))

static uint64_t leading_zeros(uint64_t x, unsigned bits)
{
    const uint64_t kept = cut(x, bits);
    return kept ? (unsigned)__builtin_clzll(kept) - (64 - bits) : bits;
}

EACH(count_zeros, leading_zeros(a[lane], i->width.bits))

EACH(select, cut(c[lane] & 1 ? a[lane] : b[lane], i->width.bits))

/* ---- Comparisons ---- */

static bool holds(const ptx_instruction *i, uint64_t a, uint64_t b)
{
    const unsigned bits = i->width.bits;
    if (is_float(i))
        return ptx_holds(i, a, b);
    switch (i->compare) {
    case COMPARE_EQ:
        return cut(a, bits) == cut(b, bits);
    case COMPARE_NE:
        return cut(a, bits) != cut(b, bits);
    case COMPARE_LT:
        return is_less(i, a, b);
    case COMPARE_LE:
        return !is_less(i, b, a);
    case COMPARE_GT:
        return is_less(i, b, a);
    default:
        return !is_less(i, a, b);
    }
}

/* A predicate of two numbers, combined with a third operand's. */
void run_compare(ptx_wave *wave, const ptx_instruction *i, lane_mask lanes)
{
    const uint64_t *a = lanes_of(wave, i, 1), *b = lanes_of(wave, i, 2);
    const uint64_t *with = i->kind ? lanes_of(wave, i, 3) : NULL;
    uint64_t *to = lanes_of(wave, i, 0);
    LANE_FOR (lanes) {
        const uint64_t is_true = holds(i, a[lane], b[lane]);
        to[lane] = (with ? ptx_combined(i, with[lane], is_true) : is_true) & 1;
    }
}
