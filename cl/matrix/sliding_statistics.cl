/* SPDX-License-Identifier: Apache-2.0
 * Statistics of sliding gradients: what a block of rows leaves of itself, and
 * of its share of the keys, for the kernels behind it (sliding_numbers.cl). */
#ifndef SLIDING_STATISTICS_CL
#define SLIDING_STATISTICS_CL
#include "matrix/sliding_gradients.cl"
#include "matrix/sliding_rows.cl"

REQUIRE(STATISTICS)

/* The largest finite |element| of rows [first, first + count) of v that a
 * work-item finds in its share of them. */
INLINE float largest_element(__global const storage *v,
                             const forward_args *args, uint first, uint count,
                             int item)
{
    float largest = 0.0f;
    if (DTYPE != 0 && HEAD_DIM % 8 == 0 &&
        (args->flags & ARG_WIDE_ACCESS) != 0) {
        /* sizes of either type are in the order of their bits */
        ushort8 top = (ushort8)(0);
        for (uint i = item; i < count * (HEAD_DIM / 8); i += TEAM) {
            const uint row = i / (HEAD_DIM / 8);
            const ushort8 bits =
                *(__global const ushort8 *)(v +
                                            element(&args->v, first + row,
                                                    8 * (i - row * (HEAD_DIM /
                                                                    8))));
            const ushort8 size = bits & (ushort8)(0x7fff);
            const ushort8 finite = as_ushort8(size < (ushort8)(EXPONENT));
            top = max(top, size & finite);
        }
        const ushort4 four = max(top.lo, top.hi);
        const ushort2 two = max(four.lo, four.hi);
        return number_of(max(two.x, two.y));
    }
    for (uint i = item; i < count * HEAD_DIM; i += TEAM) {
        const uint row = i / HEAD_DIM;
        const float x =
            fabs(LOAD(v, element(&args->v, first + row, i - row * HEAD_DIM)));
        largest = x < INFINITY ? fmax(largest, x) : largest;
    }
    return largest;
}

/* Leaves a block of rows' bounds, of which `found` has those of its rows: the
 * largest |element| of v in its share of the keys joins them. */
INLINE void store_bounds(__local uint *found, __global const storage *v,
                         __global float *bounds, const forward_args *args,
                         const work_tile *tile, int item)
{
    const uint shares = args->row_blocks * args->heads_per_kv_head;
    const uint share =
        tile->head % args->heads_per_kv_head * args->row_blocks +
        tile->row / args->block_rows;
    const uint each = args->keys / shares + 1;
    const uint first = min((ulong)share * each, (ulong)args->keys);
    const float largest =
        largest_element(v, args, first, min(each, args->keys - first), item);
    atomic_max(&found[BOUND_VALUE], as_uint(largest));
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < BOUND_NUMBERS)
        bounds[share * BOUND_NUMBERS + item] = as_float(found[item]);
}

#endif
