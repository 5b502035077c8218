/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of sliding attention on matrix units: what is known of rows
 * (sliding_numbers.cl) whose o and lse are given, in place of a loop over keys
 * (sliding_rows_matrix.cl with STATISTICS). Delta, the sum of P dP, is dO . O
 * (Dao et al. 2022, appendix B). No unit computes here: work-items that share
 * a row ask for all they read at once, and many work-groups wait for it. */
#include "matrix/given_extents.h"
#include "matrix/sliding_bounds.cl"
#include "matrix/tensor_maps.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(SUB_GROUP)

/* Rows that a work-item reads at once. */
#define ITEM_ROWS CEIL_DIV(BLOCK_ROWS *GIVEN_ROW_ITEMS, GIVEN_ITEMS)
#define ROWS_TOGETHER (ITEM_ROWS < 4 ? ITEM_ROWS : 4)
#define ROW_STEP (GIVEN_ITEMS / GIVEN_ROW_ITEMS)

/* A block of rows: tensors from its first one on. */
typedef struct given_rows {
    __global const storage *o, *d_o;
    const backward_args *args;
    uint count; /* that exist, at least one */
} given_rows;

/* Adds what eight channels of ROWS_TOGETHER rows have of dO o (x) and of
 * |dO|^2 (y). Not all of it is asked for at once, which would take registers
 * also where eight channels are read together. */
INLINE void add_eight(float2 *sums, const given_rows *rows, const uint *row,
                      uint eight)
{
    const tensor_layout *o = &rows->args->forward.o, *d_o = &rows->args->d_o;
    const uint end = min(8 * eight + 8, (uint)HEAD_DIM);
    NO_UNROLL_FOR (uint c = 8 * eight; c < end; c++)
        UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++) {
            const float x = LOAD(rows->o, element(o, row[m], c));
            const float y = LOAD(rows->d_o, element(d_o, row[m], c));
            sums[m] += (float2)(x * y, y * y);
        }
}

#if READS_EIGHT
/* The same, of all at once. */
INLINE void add_wide(float2 *sums, const given_rows *rows, const uint *row,
                     uint eight)
{
    const tensor_layout *o = &rows->args->forward.o, *d_o = &rows->args->d_o;
    ushort8 x[ROWS_TOGETHER], y[ROWS_TOGETHER];
    UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++) {
        x[m] = load_eight(rows->o + element(o, row[m], 8 * eight));
        y[m] = load_eight(rows->d_o + element(d_o, row[m], 8 * eight));
    }
    UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++) {
        const float8 a = floats_of(x[m]), b = floats_of(y[m]);
        sums[m] += (float2)(dot(a.lo, b.lo) + dot(a.hi, b.hi),
                            dot(b.lo, b.lo) + dot(b.hi, b.hi));
    }
}
#endif

/* Leaves the work-items' parts: of row r and the n-th of those that share it
 * in parts[n * BLOCK_ROWS + r]. */
INLINE void multiply_rows(__local float2 *parts, const given_rows *rows,
                          uint item)
{
    const uint n = item % GIVEN_ROW_ITEMS;
    for (uint first = item / GIVEN_ROW_ITEMS; first < BLOCK_ROWS;
         first += ROWS_TOGETHER * ROW_STEP) {
        float2 sums[ROWS_TOGETHER];
        uint row[ROWS_TOGETHER];
        UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++) {
            sums[m] = (float2)(0.0f);
            row[m] = min(first + m * ROW_STEP, rows->count - 1);
        }
        for (uint eight = n; eight < EIGHTS; eight += GIVEN_ROW_ITEMS) {
#if READS_EIGHT
            if ((rows->args->forward.flags & ARG_WIDE_ACCESS) != 0) {
                add_wide(sums, rows, row, eight);
                continue;
            }
#endif
            add_eight(sums, rows, row, eight);
        }
        UNROLL_FOR (int m = 0; m < ROWS_TOGETHER; m++)
            if (first + m * ROW_STEP < BLOCK_ROWS)
                parts[n * BLOCK_ROWS + first + m * ROW_STEP] = sums[m];
    }
}

/* Behind that and a barrier: leaves the numbers of rows, and in `found` their
 * bounds. lse and d_lse: of the block's first row. */
INLINE void store_numbers(__local const float2 *parts, const given_rows *rows,
                          __global const float *lse,
                          __global const float *d_lse, __global float *numbers,
                          __local uint *found, uint item)
{
    const backward_args *args = rows->args;
    const int gives = (args->forward.flags & ARG_D_LSE) != 0;
    for (uint row = item; row < rows->count; row += GIVEN_ITEMS) {
        float2 sums = parts[row];
        UNROLL_FOR (int n = 1; n < GIVEN_ROW_ITEMS; n++)
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

__kernel __attribute__((reqd_work_group_size(GIVEN_ITEMS, 1, 1)))
SUB_GROUP_SIZE void
sliding_given(BACKWARD_PARAMETERS)
{
    __local float2 parts[GIVEN_ROW_ITEMS * BLOCK_ROWS];
    __local uint found[BOUND_NUMBERS];
    const forward_args *forward = &args.forward;
    const uint item = (uint)get_local_id(0);
    const work_tile tile = find_work_tile(forward, (uint)get_group_id(0));
    const uint kv_head = tile.head / forward->heads_per_kv_head;
    const given_rows rows = {
        .o = o + plane(&forward->o, tile.window, tile.head) +
             (ulong)tile.row * forward->o.row,
        .d_o = d_o + plane(&args.d_o, tile.window, tile.head) +
               (ulong)tile.row * args.d_o.row,
        .args = &args,
        .count =
            min(tile.row + forward->block_rows, forward->queries) - tile.row};
    if ((forward->flags & ARG_D_LSE) != 0)
        d_lse += plane(&args.d_lse, tile.window, tile.head) +
                 (ulong)tile.row * args.d_lse.row;
    if (item < BOUND_NUMBERS)
        found[item] = 0;
    leave_tensor_maps(q, k, v, d_o, workspace, &args, item);
    multiply_rows(parts, &rows, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    store_numbers(parts, &rows,
                  lse + plane(&forward->lse, tile.window, tile.head) +
                      (ulong)tile.row * forward->lse.row,
                  d_lse,
                  row_numbers_of(workspace, &args, tile.window, tile.head) +
                      tile.row * ROW_NUMBERS,
                  found, item);
    store_bounds(found, v + plane(&forward->v, tile.window, kv_head),
                 bounds_of(workspace, &args, tile.window, kv_head), forward,
                 &tile, item, GIVEN_ITEMS);
}
