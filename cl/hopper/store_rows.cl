/* SPDX-License-Identifier: Apache-2.0
 * A wave's sums of 16 rows, on their way to global memory. */
#include "common/problem.cl"
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"
#include "hopper/tile_products.cl"
#include "hopper/window_places.cl"

/* A wave's 16 rows of a head: `row`, a multiple of 16, and on, of which those
 * before `end` leave. */
typedef struct leaving_rows {
    const window_place *place;
    uint head, row, end;
    int lane;
    uint flags; /* of the call */
} leaving_rows;

/* Where a lane says rows of 16 to LOAD_MATRICES and STORE_MATRICES, of their
 * first 16 channels; those of others in a panel differ by a constant. */
INLINE uint place_of_lane(uint rows, uint lane)
{
    return swizzled_chunk(rows, lane % 16, lane / 16);
}

/* Stores row r of the lane's two sums times factor[r]. staging: address of 16
 * swizzled rows in local memory that are the wave's own by now. */
INLINE void store_rows(const float *sums, const float *factor, uint staging,
                       __global storage *tensor, const tensor_layout *layout,
                       const leaving_rows *of)
{
    const uint chunks = ROW_BYTES / 16, step = WAVE / chunks;
    const uint lane = (uint)of->lane;
    const uint row = of->row, end = of->end,
               put = place_of_lane(staging, lane);
    __global storage *to = tensor + plane_at(layout, of->place, of->head);
    UNROLL_FOR (uint i = 0; i < HEAD_DIM / 16; i++) {
        uint bits[4];
        UNROLL_FOR (int n = 0; n < 4; n++)
            bits[n] = PACK(sums[8 * i + 2 * n] * factor[n % 2],
                           sums[8 * i + 2 * n + 1] * factor[n % 2]);
        STORE_MATRICES(bits, (put ^ 32 * (i % 4)) +
                                 i / 4 * (WARPGROUP_ROWS * ROW_BYTES));
    }
    WAVE_SYNC();
    __global storage *at = to + row_at(layout, of->place, row + lane / chunks);
    UNROLL_FOR (uint first = 0; first < 16; first += step) {
        const uint i = first + lane / chunks;
        UNROLL_FOR (uint panel = 0; panel < PANELS; panel++) {
            const uint chunk = panel * chunks + lane % chunks;
            if ((end % 16 == 0 ? row : row + i) >= end ||
                chunk >= HEAD_DIM / 8)
                continue;
            const uint4 x = load_chunk(swizzled_chunk(staging, i, chunk));
            if ((of->flags & ARG_WIDE_ACCESS) != 0)
                *(__global uint4 *)(at + chunk * 8) = x;
            else
                vstore8(as_ushort8(x), 0, (__global ushort *)(at + chunk * 8));
        }
        at = GRID ? to + row_at(layout, of->place, row + i + step)
                  : at + step * layout->row;
    }
}

/* Row r of the lane's two times a factor, added to the row at `to`. */
INLINE void add_to_row(const float *sums, float factor, __global storage *to,
                       const uint r, int lane)
{
    to += 2 * (lane % 4);
    UNROLL_FOR (uint j = 0; j < HEAD_DIM / 8; j++)
        UNROLL_FOR (uint i = 0; i < 2; i++)
            STORE(FMA(sums[SCORE(j, r, i)], factor,
                      LOAD(to, (ulong)(8 * j + i))),
                  to, (ulong)(8 * j + i));
}

/* The flag that adds ARG_DQ, ARG_DK or ARG_DV to what is there. */
#define ADDED(gradient) ((gradient) * (ARG_ADD_DQ / ARG_DQ))
typedef char flags_lie_alike
    [ADDED(ARG_DK) == ARG_ADD_DK && ADDED(ARG_DV) == ARG_ADD_DV ? 1 : -1];

/* Stores one of these, if it is asked for, as store_rows does. */
INLINE void store_gradient(const float *sums, const float *factor,
                           uint staging, __global storage *tensor,
                           const tensor_layout *layout, const leaving_rows *of,
                           const uint gradient)
{
    if ((of->flags & gradient) == 0)
        return;
    if ((of->flags & ADDED(gradient)) == 0) {
        store_rows(sums, factor, staging, tensor, layout, of);
        return;
    }
    UNROLL_FOR (uint r = 0; r < 2; r++) {
        const uint own = of->row + of->lane / 4 + 8 * r;
        if (own < of->end)
            add_to_row(sums, factor[r],
                       tensor + plane_at(layout, of->place, of->head) +
                           row_at(layout, of->place, own),
                       r, of->lane);
    }
}

/* lse of the lane's two rows, given the base and the sum of their weights, to
 * the base 2. */
INLINE void store_lse(const float *base, const float *sum, __global float *to,
                      const tensor_layout *layout, const leaving_rows *of)
{
    UNROLL_FOR (uint r = 0; r < 2; r++) {
        const uint row = of->row + of->lane / 4 + 8 * r;
        if (of->lane % 4 == 0 && row < of->end)
            to[plane_at(layout, of->place, of->head) +
               row_at(layout, of->place, row)] =
                (base[r] + log2(sum[r])) * (1.0f / LOG2E);
    }
}
