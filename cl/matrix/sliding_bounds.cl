/* SPDX-License-Identifier: Apache-2.0
 * What bounds dS of a block of rows (sliding_numbers.cl), by the `items`
 * work-items of who leaves numbers of its rows. */
#include "matrix/sliding_numbers.cl"

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define EIGHTS CEIL_DIV(HEAD_DIM, 8)
/* May eight channels be read together, if ARG_WIDE_ACCESS? */
#define READS_EIGHT (DTYPE != 0 && HEAD_DIM % 8 == 0)

#if READS_EIGHT
INLINE ushort8 load_eight(__global const storage *from)
{
    return *(__global const ushort8 *)from;
}

INLINE float8 floats_of(ushort8 bits)
{
#if DTYPE == 1
    return vload_half8(0, (const half *)&bits);
#else
    return as_float8(convert_uint8(bits) << 16);
#endif
}

/* The largest of so many bits, less signs, that a work-item has of `eights`
 * chunks of v from row `first` on: sizes of either type are in the order of
 * their bits. What it reads it asks for at once. */
INLINE uint largest_bits(__global const storage *v,
                         const tensor_layout *layout, uint first, uint eights,
                         uint item, const uint items)
{
    uint4 top = (uint4)(0);
    for (uint begin = item; begin < eights; begin += 8 * items) {
        uint4 pairs[8];
        UNROLL_FOR (uint m = 0; m < 8; m++) {
            const uint i = min(begin + m * items, eights - 1);
            const uint row = i / EIGHTS;
            const ulong at =
                element(layout, first + row, 8 * (i - row * EIGHTS));
            pairs[m] = *(__global const uint4 *)(v + at);
        }
        UNROLL_FOR (uint m = 0; m < 8; m++)
            top = max(top, max(pairs[m] & 0x7fff, pairs[m] >> 16 & 0x7fff));
    }
    const uint2 two = max(top.lo, top.hi);
    return max(two.x, two.y);
}
#endif

/* The largest finite |element| of rows [first, first + count) of v that a
 * work-item finds in its share of them. */
INLINE float largest_element(__global const storage *v,
                             const forward_args *args, uint first, uint count,
                             uint item, const uint items)
{
    const uint eights = count * EIGHTS;
    float largest = 0.0f;
#if READS_EIGHT
    if ((args->flags & ARG_WIDE_ACCESS) != 0) {
        const uint bits =
            largest_bits(v, &args->v, first, eights, item, items);
        if (bits < EXPONENT)
            return floats_of((ushort8)(bits)).s0;
    }
#endif
    /* the same share, as others do not look at it */
    for (uint i = item; i < eights; i += items) {
        const uint row = i / EIGHTS, begin = 8 * (i - row * EIGHTS);
        for (uint c = begin; c < min(begin + 8, (uint)HEAD_DIM); c++) {
            const float x = fabs(LOAD(v, element(&args->v, first + row, c)));
            largest = x < INFINITY ? fmax(largest, x) : largest;
        }
    }
    return largest;
}

/* Leaves a block of rows' bounds, of which `found` has those of its rows: the
 * largest |element| of v in its share of the keys joins them. v: of the key
 * head. */
INLINE void store_bounds(__local uint *found, __global const storage *v,
                         __global float *bounds, const forward_args *args,
                         const work_tile *tile, uint item, const uint items)
{
    const uint shares = args->row_blocks * args->heads_per_kv_head;
    const uint share =
        tile->head % args->heads_per_kv_head * args->row_blocks +
        tile->row / args->block_rows;
    const uint each = args->keys / shares + 1;
    const uint first = min((ulong)share * each, (ulong)args->keys);
    if (RESCALES) {
        const uint count = min(each, args->keys - first);
        atomic_max(
            &found[BOUND_VALUE],
            as_uint(KEPT_SCALE(args) *
                    largest_element(v, args, first, count, item, items)));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < BOUND_NUMBERS)
        bounds[share * BOUND_NUMBERS + item] = as_float(found[item]);
}
