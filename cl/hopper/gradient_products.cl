/* SPDX-License-Identifier: Apache-2.0
 * Products of a warpgroup with rows of 32 channels, which take 64 bytes of
 * local memory and are swizzled by as many: chunk c of 16 bytes of row r is
 * where chunk c ^ (r / 2 % 4) would be. */
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

/* A tile of products of 64 rows and TILE_KEYS others, given addresses. */
INLINE void multiply_tile(float *s, uint rows, uint columns)
{
    const uint a = rows_at(rows), b = rows_at(columns);
    const ulong a0 = describe_rows(a), b0 = describe_rows(b);
    const ulong a1 = describe_rows(a + 2), b1 = describe_rows(b + 2);
    set_scores(s, a0, b0);
    add_scores(s, a1, b1);
}

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
