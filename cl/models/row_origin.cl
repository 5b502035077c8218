/* SPDX-License-Identifier: Apache-2.0
 * Rows that are normalised on the way to a product. Of a row x with mean m and
 * factor f, and an origin o,
 *
 *     norm(x) W^T + b = f ((x - o) g) W^T + f (o - m) s + b'
 *
 * with g the norm's weights, s the sums of rows of W times these, and b' the
 * bias and what the norm's bias adds to it. What is rounded are numbers of x,
 * each row's by itself, as a norm's results are; W is as it was given. Rows
 * whose mean is far from 0 lose nothing where their origin is not. */

/* Origins are smaller, so that fp16 has x - o. */
#define LARGE 0x7400u

/* A row's origin, twice: the middle of its first eight numbers, where they are
 * all on one side of 0, and none is eight times another; else 0. So numbers
 * that differ little from a mean far from 0 are near to the origin. Where the
 * first eight are unlike the others, x is rounded as when it was stored. */
INLINE uint origin_of(uint4 first)
{
    const uint words[4] = {first.x, first.y, first.z, first.w};
    const uint any = first.x | first.y | first.z | first.w;
    const uint all = first.x & first.y & first.z & first.w;
    uint least = 0x7fffu, most = 0u;
    UNROLL_FOR (int i = 0; i < 4; i++) {
        const uint low = words[i] & 0x7fffu, high = words[i] >> 16 & 0x7fffu;
        least = min(least, min(low, high));
        most = max(most, max(low, high));
    }
    const uint sign = (any | any >> 16) & 0x8000u;
    if (((all & all >> 16) & 0x8000u) != sign ||
        most - least >= 3u * (EXPONENT & -EXPONENT) || most >= LARGE)
        return 0u;
    return ((least + most) / 2u | sign) * 0x10001u;
}
