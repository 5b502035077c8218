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

/* ---- Of rows whose o and lse are given ---- */

/* Then a row's numbers are sums over its channels, and lanes that have 16
 * bytes of it each need no local memory: all that a wave reads is on its way
 * at once. */
#define GIVEN_LANES (HEAD_DIM / 8)
#define READS_GIVEN                                                           \
    (STATISTICS && XORS_ALL_LANES && DTYPE != 0 && HEAD_DIM % 16 == 0 &&      \
     (GIVEN_LANES & (GIVEN_LANES - 1)) == 0 && GIVEN_LANES <= WAVE)

#if READS_GIVEN
#define GIVEN_AT_ONCE (WAVE / GIVEN_LANES)
/* Rows that a lane has parts of, at once. */
#define GIVEN_ROWS                                                            \
    (WAVE_ROWS / GIVEN_AT_ONCE < 8 ? WAVE_ROWS / GIVEN_AT_ONCE : 8)
typedef char waves_have_whole_rounds
    [WAVE_ROWS % (GIVEN_ROWS * GIVEN_AT_ONCE) == 0 ? 1 : -1];

/* A block of rows: where the first ones are. */
typedef struct given_rows {
    __global const storage *o, *d_o;
    __global const float *lse, *d_lse; /* d_lse: NULL, which is 0 */
    __global float *numbers;
    uint o_pitch, d_o_pitch, lse_pitch, d_lse_pitch;
    int count;
} given_rows;

INLINE float sum_of_pairs(uint4 x, uint4 y)
{
    const uint a[4] = {x.x, x.y, x.z, x.w}, b[4] = {y.x, y.y, y.z, y.w};
    float sum = 0.0f;
    UNROLL_FOR (int i = 0; i < 4; i++) {
        sum = FMA(number_of((ushort)a[i]), number_of((ushort)b[i]), sum);
        sum = FMA(number_of((ushort)(a[i] >> 16)),
                  number_of((ushort)(b[i] >> 16)), sum);
    }
    return sum;
}

/* Leaves the numbers of a lane's rows from `first` on, and in `bounds` the
 * largest length and |d_lse|. */
INLINE void leave_given(const given_rows *all, int first, int lane,
                        float *bounds)
{
    uint4 o[GIVEN_ROWS], d_o[GIVEN_ROWS];
    float lse[GIVEN_ROWS], d_lse[GIVEN_ROWS];
    const int own = first + lane / GIVEN_LANES;
    const uint channel = lane % GIVEN_LANES * 8;
    UNROLL_FOR (int i = 0; i < GIVEN_ROWS; i++) {
        const ulong row = min(own + i * GIVEN_AT_ONCE, all->count - 1);
        o[i] =
            *(__global const uint4 *)(all->o + row * all->o_pitch + channel);
        d_o[i] = *(__global const uint4 *)(all->d_o + row * all->d_o_pitch +
                                           channel);
        lse[i] = all->lse[row * all->lse_pitch];
        d_lse[i] = all->d_lse ? all->d_lse[row * all->d_lse_pitch] : 0.0f;
    }
    UNROLL_FOR (int i = 0; i < GIVEN_ROWS; i++) {
        const int row = own + i * GIVEN_AT_ONCE;
        float delta = sum_of_pairs(o[i], d_o[i]);
        float square = sum_of_pairs(d_o[i], d_o[i]);
        UNROLL_FOR (int mask = 1; mask < GIVEN_LANES; mask *= 2) {
            delta += LANE_XOR(delta, mask);
            square += LANE_XOR(square, mask);
        }
        const float length = sqrt(square * HEAD_DIM);
        const float4 numbers = {shift_of(lse[i]), delta - d_lse[i], length,
                                0.0f};
        if (channel == 0 && row < all->count)
            vstore4(numbers, row, all->numbers);
        bounds[0] = fmax(bounds[0], length);
        bounds[1] = fmax(bounds[1], fabs(d_lse[i]));
    }
}

/* A block's rows, of which `d_lse` and `numbers` begin with the first, and the
 * bounds; as its work-group's only work. */
INLINE void
leave_given_block(__global const storage *o, __global const float *lse,
                  __global const storage *d_o, __global const float *d_lse,
                  __global const storage *v, __global float *numbers,
                  __global float *bounds, __local uint *found,
                  const backward_args *args, const work_tile *tile, ulong grid,
                  int count, const work_item *me, const wave *w)
{
    const forward_args *forward = &args->forward;
    const given_rows given = {
        .o = o + plane(&forward->o, grid, tile->head) +
             (ulong)tile->row * forward->o.row,
        .d_o = d_o + plane(&args->d_o, grid, tile->head) +
               (ulong)tile->row * args->d_o.row,
        .lse = lse + plane(&forward->lse, grid, tile->head) +
               (ulong)tile->row * forward->lse.row,
        .d_lse = (forward->flags & ARG_D_LSE) != 0 ? d_lse : 0,
        .numbers = numbers,
        .o_pitch = forward->o.row,
        .d_o_pitch = args->d_o.row,
        .lse_pitch = forward->lse.row,
        .d_lse_pitch = args->d_lse.row,
        .count = count};
    float largest[2] = {0.0f, 0.0f};
    if (me->id < BOUND_NUMBERS)
        found[me->id] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    NO_UNROLL_FOR (int i = 0; i < WAVE_ROWS; i += GIVEN_ROWS * GIVEN_AT_ONCE)
        leave_given(&given, me->wave * WAVE_ROWS + i, w->lane, largest);
    atomic_max(&found[BOUND_LENGTH],
               LARGEST_OF_WAVE(as_uint(largest[0]), 0, 0));
    atomic_max(&found[BOUND_D_LSE],
               LARGEST_OF_WAVE(as_uint(largest[1]), 0, 0));
    store_bounds(found, v, bounds, forward, tile, me->id);
}
#else
#define leave_given_block(o, lse, d_o, d_lse, v, numbers, bounds, found,      \
                          args, tile, grid, count, me, w)
#endif

#endif
