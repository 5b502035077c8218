/* SPDX-License-Identifier: Apache-2.0
 * From a window's queries and keys to weights: products of a warpgroup with a
 * tile of keys, what is added to them, and weights (weights.cl). The
 * base of a window's first tile is that of the window before, where it serves;
 * else its largest score. */
#ifndef WINDOW_SCORES_CL
#define WINDOW_SCORES_CL
#include "hopper/window_bias.cl"
#include "hopper/window_ring.cl"

#include "hopper/wgmma.cl"

/* ---- Products ---- */

#define SET_32(s) SET_8(s, 0), SET_8(s, 8), SET_8(s, 16), SET_8(s, 24)
#define HOLD_4(p, i)                                                          \
    "+r"((p)[i]), "+r"((p)[(i) + 1]), "+r"((p)[(i) + 2]), "+r"((p)[(i) + 3])
#if TILE_KEYS == 48
#define SCORE_NAMES NAMES_24
#define SET_SCORES(s) SET_8(s, 0), SET_8(s, 8), SET_8(s, 16)
#define ADD_SCORES(s) ADD_16(s), ADD_8(s, 16)
#define HOLD_ALL_WEIGHTS(p) HOLD_8(p, 0), HOLD_4(p, 8)
#define DESCRIPTORS "%24, %25"
#elif TILE_KEYS == 64
#define SCORE_NAMES NAMES_32
#define SET_SCORES(s) SET_32(s)
#define ADD_SCORES(s) ADD_32(s)
#define HOLD_ALL_WEIGHTS(p) HOLD_8(p, 0), HOLD_8(p, 8)
#define DESCRIPTORS "%32, %33"
#endif
#define HOLD_WINDOW_SCORES(s) __asm__ volatile("" : ADD_SCORES(s) : : "memory")
#define HOLD_WINDOW_WEIGHTS(p)                                                \
    __asm__ volatile("" : HOLD_ALL_WEIGHTS(p) : : "memory")

/* The lower half of a descriptor is the address in 16ths of bytes; eight rows
 * follow eight others, and what is 64 or 128 bytes wide has a swizzle as wide.
 */
INLINE ulong describe_rows(uint address)
{
    const uint swizzle = ROW_BYTES == 64 ? 2u : 1u;
    return (ulong)(8 * ROW_BYTES / 16 | swizzle << 30) << 32 | address / 16 |
           1u << 16;
}

INLINE void multiply_16(float *s, ulong queries, ulong keys, const int adds)
{
    if (adds)
        __asm__ volatile(HOPPER "{.reg .pred p; setp.ne.b32 p, 1, 0; " WGMMA(
                             "m64n" TEXT(TILE_KEYS)) "{" SCORE_NAMES
                                                     "}, " DESCRIPTORS
                                                     ", p, 1, 1, 0, 0;}"
                         : ADD_SCORES(s)
                         : "l"(queries), "l"(keys)
                         : "memory");
    else
        __asm__ volatile(HOPPER "{.reg .pred p; setp.ne.b32 p, 0, 0; " WGMMA(
                             "m64n" TEXT(TILE_KEYS)) "{" SCORE_NAMES
                                                     "}, " DESCRIPTORS
                                                     ", p, 1, 1, 0, 0;}"
                         : SET_SCORES(s)
                         : "l"(queries), "l"(keys)
                         : "memory");
}

/* Addresses. */
INLINE void multiply_window_keys(float *s, uint queries, uint keys)
{
    const ulong q = describe_rows(queries), k = describe_rows(keys);
    UNROLL_FOR (uint i = 0; i < HEAD_DIM / 16; i++)
        multiply_16(s, q + 2 * i, k + 2 * i, i > 0);
}

/* o = weights values, and what o was, if it `adds`. */
INLINE void add_window_values(float *o, const uint *p, uint values, int adds)
{
    const ulong v = describe_rows(values);
    add_or_set_values(o, p, v, adds);
    UNROLL_FOR (uint i = 1; i < TILE_KEYS / 16; i++)
        add_values(o, p + 4 * i, v + i * ROW_BYTES);
}

/* The same scores by a wave alone, of its 16 rows. */
INLINE void multiply_alone(float *s, uint queries, uint keys, int lane)
{
    UNROLL_FOR (int i = 0; i < SCORES; i++)
        s[i] = 0.0f;
    NO_UNROLL_FOR (uint step = 0; step < HEAD_DIM / 16; step++) {
        uint a[4], b[2];
        LOAD_MATRICES(
            a, queries + chunk_place(lane % 16, 2 * step + lane / 16), "");
        UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++) {
            LOAD_TWO_MATRICES(
                b[0], b[1],
                keys + chunk_place(8 * j + lane % 8, 2 * step + lane / 8 % 2),
                "");
            mma(a, b, s + 4 * j);
        }
    }
}

#endif
