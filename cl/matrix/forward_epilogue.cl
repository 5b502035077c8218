/* SPDX-License-Identifier: Apache-2.0
 * How o and lse of a wave's tile of rows leave the forward pass. */
#include "matrix/epilogue.cl"
#include "matrix/online_softmax.cl"

/* Stores o, by way of the rows' q, and lse of the rows. */
INLINE void store_rows(row_state *s, __local storage_bits *q,
                       const forward_args *args, const row_target *to,
                       __global float *lse, const wave *w)
{
    float inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        inverse[r] = s->sum[r] == 0.0f
                         ? 0.0f
                         : KEPT_SCALE(args) * RECIPROCAL(s->sum[r]);
    if ((args->flags & ARG_LSE) != 0) {
        float sum[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            sum[r] = LAZY_MAX ? s->exact[r] : s->sum[r];
            if (LAZY_MAX) {
                REDUCE(sum[r], ADD);
            }
        }
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            ulong at;
            const int row = value_query(w->lane, i);
            const int r = LANE_ROW(i);
            if (value_key(w->lane, i) == 0 && row < to->count &&
                find_row(&at, &args->lse, to->grid, to->coord, to->row + row))
                lse[at] = s->softmax_max[r] + log(sum[r]);
        }
    }
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES)
        store_channels(s->out + first, inverse, first, OUT_TILES,
                       q + first * TILE_N, PITCH, to, w);
}
