/* SPDX-License-Identifier: Apache-2.0
 * A wave's sums of 16 rows, on their way to global memory. */
#include "common/problem.cl"
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"

/* Row r of the lane's two times factor[r]. staging: address of 16 swizzled
 * rows in local memory that are the wave's own by now. The rows go to `row`
 * and on of `to`, those before `end`; wide: in 16 bytes. */
INLINE void store_rows(const float *sums, const float *factor, uint staging,
                       __global storage *to, uint pitch, uint row, uint end,
                       int lane, const int wide)
{
    const uint line = lane / 4, word = lane % 4;
    UNROLL_FOR (uint j = 0; j < HEAD_DIM / 8; j++)
        UNROLL_FOR (uint r = 0; r < 2; r++)
            store_word(staging + j / 8 * (WARPGROUP_ROWS * PANEL_PITCH) +
                           (line + 8 * r) * PANEL_PITCH +
                           (j % 8 ^ line % 8) * 16 + word * 4,
                       PACK(sums[SCORE(j, r, 0)] * factor[r],
                            sums[SCORE(j, r, 1)] * factor[r]));
    WAVE_SYNC();
    const uint chunk = lane % 8;
    UNROLL_FOR (uint first = 0; first < 16; first += 4) {
        const uint i = first + lane / 8;
        __global storage *at = to + (ulong)(row + i) * pitch;
        UNROLL_FOR (uint panel = 0; panel < PANELS; panel++) {
            const uint c = panel * 8 + chunk;
            if (row + i >= end || c >= HEAD_DIM / 8)
                continue;
            const uint4 x =
                load_chunk(staging + panel * (WARPGROUP_ROWS * PANEL_PITCH) +
                           i * PANEL_PITCH + (chunk ^ i % 8) * 16);
            if (wide)
                *(__global uint4 *)(at + c * 8) = x;
            else
                vstore8(as_ushort8(x), 0, (__global ushort *)(at + c * 8));
        }
    }
}

/* Row r of the lane's two times factor[r], to 16 rows in local memory that are
 * swizzled within 64 or 128 bytes. at: where the lane says one of them to
 * STORE_MATRICES, of the first 16 channels, from which those of others differ
 * by a constant. */
INLINE void stage_rows(uint at, const float *sums, const float *factor)
{
    UNROLL_FOR (uint i = 0; i < HEAD_DIM / 16; i++) {
        uint bits[4];
        UNROLL_FOR (int n = 0; n < 4; n++)
            bits[n] = PACK(sums[8 * i + 2 * n] * factor[n % 2],
                           sums[8 * i + 2 * n + 1] * factor[n % 2]);
        STORE_MATRICES(bits, at ^ 32 * i);
    }
}

/* The flag that adds ARG_DQ, ARG_DK or ARG_DV to what is there. */
#define ADDED(gradient) ((gradient) * (ARG_ADD_DQ / ARG_DQ))
typedef char flags_lie_alike
    [ADDED(ARG_DK) == ARG_ADD_DK && ADDED(ARG_DV) == ARG_ADD_DV ? 1 : -1];

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
