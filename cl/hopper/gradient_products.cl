/* SPDX-License-Identifier: Apache-2.0
 * Products of a warpgroup with rows of 32 channels, which take 64 bytes of
 * local memory and are swizzled by as many: chunk c of 16 bytes of row r is
 * where chunk c ^ (r / 2 % 4) would be. */
#ifndef GRADIENT_PRODUCTS_CL
#define GRADIENT_PRODUCTS_CL
#include "hopper/gradient_windows_extents.h"
#include "hopper/wgmma.cl"

typedef char rows_have_64_bytes[HEAD_DIM == WINDOW_CHANNELS ? 1 : -1];

/* Rows at an address, as an operand (wgmma.cl): its descriptor's lower half,
 * and all of it. */
INLINE uint rows_at(uint address) { return address / 16 | 1u << 16; }
INLINE ulong describe_rows(uint operand)
{
    return (ulong)(8 * WINDOW_PITCH / 16 | 2u << 30) << 32 | operand;
}

INLINE uint window_chunk(uint rows, uint row, uint chunk)
{
    return rows + row * WINDOW_PITCH + (chunk ^ row / 2 % 4) * 16;
}

/* multiply_n: sums = rows columns^T of 64 rows and n others, given addresses;
 * hold_n: what is in flight stays where it is. */
#define DEFINE_PRODUCT(n, names, set, add)                                    \
    INLINE void multiply_##n(float *s, uint rows, uint columns)               \
    {                                                                         \
        const uint a = rows_at(rows), b = rows_at(columns);                   \
        const ulong a0 = describe_rows(a), b0 = describe_rows(b);             \
        const ulong a1 = describe_rows(a + 2), b1 = describe_rows(b + 2);     \
        __asm__ volatile(HOPPER "{.reg .pred p; setp.ne.b32 p, 0, 0; " WGMMA( \
                             "m64n" #n) "{" names                             \
                                        "}, %[a], %[b], p, 1, 1, 0, 0;}"      \
                         : set(s)                                             \
                         : [a] "l"(a0), [b] "l"(b0)                           \
                         : "memory");                                         \
        __asm__ volatile(HOPPER "{.reg .pred p; setp.ne.b32 p, 1, 0; " WGMMA( \
                             "m64n" #n) "{" names                             \
                                        "}, %[a], %[b], p, 1, 1, 0, 0;}"      \
                         : add(s)                                             \
                         : [a] "l"(a1), [b] "l"(b1)                           \
                         : "memory");                                         \
    }                                                                         \
    INLINE void hold_##n(float *s)                                            \
    {                                                                         \
        __asm__ volatile("" : add(s) : : "memory");                           \
    }

DEFINE_PRODUCT(32, NAMES_16, SET_16, ADD_16)
DEFINE_PRODUCT(48, NAMES_24, SET_24, ADD_24)
DEFINE_PRODUCT(64, NAMES_32, SET_32, ADD_32)

/* Of packed weights, n / 4 of them. */
INLINE void hold_words(uint *x, const int count)
{
    UNROLL_FOR (int i = 0; i < count; i++)
        __asm__ volatile("" : "+r"(x[i]) : : "memory");
}

/* sums += weights rows, of `count` rows in 16s. */
INLINE void add_products(float *sums, const uint *weights, uint rows,
                         const int count)
{
    const uint b = rows_at(rows);
    UNROLL_FOR (int i = 0; i < count / 16; i++)
        add_values(sums, weights + 4 * i,
                   describe_rows(b + i * (16 * WINDOW_PITCH / 16)));
}

#endif
