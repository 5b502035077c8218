/* SPDX-License-Identifier: Apache-2.0
 * What is known of rows (sliding_numbers.cl) whose o and lse are given: from
 * tensors as they lie in memory, by work-items that share rows, whatever the
 * matrix unit. All that a work-item reads is asked for at once, as nothing
 * else is there to hide how long it takes. */
#ifndef SLIDING_GIVEN_CL
#define SLIDING_GIVEN_CL
#include "matrix/sliding_numbers.cl"

/* Channels are read eight together. */
#define EIGHTS CEIL_DIV(HEAD_DIM, 8)
#define READS_EIGHT (DTYPE != 0 && HEAD_DIM % 8 == 0)
/* Work-items of a row, which take its eights in turn, and rows of a work-item
 * that it reads at once. */
#define ROW_ITEMS (PITCH >= 32 ? 8 : 4)
#define ITEM_ROWS CEIL_DIV(BLOCK_ROWS * ROW_ITEMS, TEAM)
#define ROWS_TOGETHER (ITEM_ROWS < 8 ? ITEM_ROWS : 8)

/* Of a tensor whose rows may be read in 16 bytes if `wide`. */
INLINE ushort8 load_eight(__global const storage *from)
{
    return *(__global const ushort8 *)from;
}

INLINE void unpack_eight(float *to, ushort8 bits)
{
    ushort own[8];
    vstore8(bits, 0, own);
    UNROLL_FOR (int i = 0; i < 8; i++)
        to[i] = number_of(own[i]);
}

/* A work-item's part of a row's dO o (x) and |dO|^2 (y). */
INLINE void add_eight(float2 *sums, const float *o, const float *d_o)
{
    UNROLL_FOR (int i = 0; i < 8; i++) {
        sums->x = FMA(o[i], d_o[i], sums->x);
        sums->y = FMA(d_o[i], d_o[i], sums->y);
    }
}

typedef struct given_rows {
    __global const storage *o, *d_o; /* of the head, from the block's first */
    const tensor_layout *o_layout, *d_o_layout;
    int count; /* that exist, at least one */
    int wide;
} given_rows;

/* Leaves the work-items' parts of the block's rows: of row r and its n-th
 * work-item in parts[n * BLOCK_ROWS + r]. A barrier must follow. */
INLINE void multiply_given(__local float2 *parts, const given_rows *rows,
                           int item)
{
    const int n = item % ROW_ITEMS, step = TEAM / ROW_ITEMS;
    for (int first = item / ROW_ITEMS; first < BLOCK_ROWS;
         first += ROWS_TOGETHER * step) {
        float2 sums[ROWS_TOGETHER];
        UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++)
            sums[m] = (float2)(0.0f);
        for (int eight = n; eight < EIGHTS; eight += ROW_ITEMS) {
#if READS_EIGHT
            ushort8 o[ROWS_TOGETHER], d_o[ROWS_TOGETHER];
            if (rows->wide) {
                UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++) {
                    const uint row = min(first + m * step, rows->count - 1);
                    o[m] = load_eight(rows->o +
                                      element(rows->o_layout, row, 8 * eight));
                    d_o[m] = load_eight(
                        rows->d_o + element(rows->d_o_layout, row, 8 * eight));
                }
                UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++) {
                    float x[8], y[8];
                    unpack_eight(x, o[m]);
                    unpack_eight(y, d_o[m]);
                    add_eight(&sums[m], x, y);
                }
                continue;
            }
#endif
            UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++) {
                const uint row = min(first + m * step, rows->count - 1);
                const int end = min(8 * eight + 8, HEAD_DIM);
                for (int c = 8 * eight; c < end; c++) {
                    const float x =
                        LOAD(rows->o, element(rows->o_layout, row, c));
                    const float y =
                        LOAD(rows->d_o, element(rows->d_o_layout, row, c));
                    sums[m].x = FMA(x, y, sums[m].x);
                    sums[m].y = FMA(y, y, sums[m].y);
                }
            }
        }
        UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++)
            if (first + m * step < BLOCK_ROWS)
                parts[n * BLOCK_ROWS + first + m * step] = sums[m];
    }
}

/* Behind that: leaves the numbers of the block's rows, and in `found` their
 * bounds. lse and d_lse: of the block's first row. */
INLINE void store_given(__local const float2 *parts, const given_rows *rows,
                        const backward_args *args, __global const float *lse,
                        __global const float *d_lse, __global float *numbers,
                        __local uint *found, int item)
{
    const int gives = (args->forward.flags & ARG_D_LSE) != 0;
    for (int row = item; row < rows->count; row += TEAM) {
        float2 sums = parts[row];
        UNROLL_FOR (int n = 1; n < ROW_ITEMS; n++)
            sums += parts[n * BLOCK_ROWS + row];
        const float own = gives ? d_lse[(ulong)row * args->d_lse.row] : 0.0f;
        const float length = sqrt(sums.y * HEAD_DIM);
        const float4 all = {shift_of(lse[(ulong)row * args->forward.lse.row]),
                            sums.x - own, length, 0.0f};
        vstore4(all, row, numbers);
        atomic_max(&found[BOUND_LENGTH], as_uint(length));
        atomic_max(&found[BOUND_D_LSE], as_uint(fabs(own)));
    }
}

/* The largest finite |element| of rows [first, first + count) of v that a
 * work-item finds in its share of them. */
INLINE float largest_element(__global const storage *v,
                             const forward_args *args, uint first, uint count,
                             int item)
{
    float largest = 0.0f;
#if READS_EIGHT
    if ((args->flags & ARG_WIDE_ACCESS) != 0) {
        /* sizes of either type are in the order of their bits */
        const uint eights = count * EIGHTS;
        ushort8 top = (ushort8)(0);
        for (uint begin = item; begin < eights; begin += 8 * TEAM) {
            ushort8 bits[8];
            UNROLL_FOR (uint m = 0; m < 8; m++) {
                const uint i = min(begin + m * TEAM, eights - 1);
                const uint row = i / EIGHTS;
                bits[m] = load_eight(v + element(&args->v, first + row,
                                                 8 * (i - row * EIGHTS)));
            }
            UNROLL_FOR (uint m = 0; m < 8; m++) {
                const ushort8 size = bits[m] & (ushort8)(0x7fff);
                const ushort8 finite = as_ushort8(size < (ushort8)(EXPONENT));
                top = max(top, size & finite);
            }
        }
        const ushort4 four = max(top.lo, top.hi);
        const ushort2 two = max(four.lo, four.hi);
        return number_of(max(two.x, two.y));
    }
#endif
    for (uint i = item; i < count * HEAD_DIM; i += TEAM) {
        const uint row = i / HEAD_DIM;
        const float x =
            fabs(LOAD(v, element(&args->v, first + row, i - row * HEAD_DIM)));
        largest = x < INFINITY ? fmax(largest, x) : largest;
    }
    return largest;
}

#endif
