/* SPDX-License-Identifier: Apache-2.0
 * Rows of storage that teams of work-items normalise: each work-item has some
 * chunks of ROW_ACCESS neighbouring elements in registers, as fp32.
 *
 *   work-item  0 1 2 3 0 1 2 3 0 1      TEAM = 4, CHUNKS = 3
 *   chunk      0 0 0 0 1 1 1 1 2 2      of a row of 10 ROW_ACCESS elements
 *
 * What a row's work-items find out of their own elements goes through local
 * memory once: sums, and squares of the distances from the mean of these
 * elements, which add up without the loss of digits that squares of the
 * elements themselves would have (Chan, Golub and LeVeque 1979). */
#include "common/aligned.cl"
#include "models/model_switches.h"
#include "models/row_args.h"

REQUIRE(ROW_SIZE)
REQUIRE(ROW_ACCESS)

/* ---- Chunks ---- */

#if ROW_ACCESS == 1
typedef float chunk;
#define LOAD_UNALIGNED(p) LOAD(p, 0)
#define STORE_UNALIGNED(x, p) STORE(x, p, 0)
#define LOAD_ALIGNED(p) LOAD(p, 0)
#define STORE_ALIGNED(x, p) STORE(x, p, 0)
#define LOAD_NUMBERS(p) (*(p))
#define STORE_NUMBERS(x, p) (*(p) = (x))
#define SUM_CHUNK(x) (x)
#elif ROW_ACCESS == 4
typedef float4 chunk;
DEFINE_VECTOR_ACCESS(4)
#define LOAD_UNALIGNED(p) LOAD_VECTOR(4)(p)
#define STORE_UNALIGNED(x, p) STORE_VECTOR(4)(x, p)
#define LOAD_ALIGNED(p) load4_aligned(p)
#define STORE_ALIGNED(x, p) store4_aligned(x, p)
#define LOAD_NUMBERS(p) vload4(0, p)
#define STORE_NUMBERS(x, p) vstore4(x, 0, p)
#define SUM_CHUNK(x) (((x).s0 + (x).s1) + ((x).s2 + (x).s3))
#else
typedef float8 chunk;
DEFINE_VECTOR_ACCESS(8)
#define LOAD_UNALIGNED(p) LOAD_VECTOR(8)(p)
#define STORE_UNALIGNED(x, p) STORE_VECTOR(8)(x, p)
#define LOAD_ALIGNED(p) load8_aligned(p)
#define STORE_ALIGNED(x, p) store8_aligned(x, p)
#define LOAD_NUMBERS(p) vload8(0, p)
#define STORE_NUMBERS(x, p) vstore8(x, 0, p)
#define SUM_CHUNK(x)                                                          \
    ((((x).s0 + (x).s1) + ((x).s2 + (x).s3)) +                                \
     (((x).s4 + (x).s5) + ((x).s6 + (x).s7)))
#endif

INLINE chunk load_chunk(__global const storage *p, uint flags)
{
    return (flags & ROW_ALIGNED) != 0 ? LOAD_ALIGNED(p) : LOAD_UNALIGNED(p);
}

INLINE void store_chunk(chunk x, __global storage *p, uint flags)
{
    if ((flags & ROW_ALIGNED) != 0)
        STORE_ALIGNED(x, p);
    else
        STORE_UNALIGNED(x, p);
}

/* ---- Neighbours on a map ---- */

#if ROW_SIZE % 4 == 0
/* Where elements `at` and on of a merged row are: its four tokens stand in the
 * order even row and column; odd row; odd column; both odd. 0 where the token
 * is behind the map's end, and so all zeros. */
INLINE __global const storage *neighbour(__global const storage *map,
                                         ulong row, uint at, uint height,
                                         uint width)
{
    const uint channels = ROW_SIZE / 4;
    const uint across = width / 2 + width % 2;
    const uint down = height / 2 + height % 2;
    const uint which = at / channels;
    const ulong line = row / across;
    const uint x = 2 * (uint)(row % across) + which / 2;
    const uint y = 2 * (uint)(line % down) + which % 2;
    const ulong token = (line / down * height + y) * width + x;
    return y < height && x < width ? map + token * channels + at % channels
                                   : 0;
}
#endif
