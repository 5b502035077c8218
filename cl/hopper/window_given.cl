/* SPDX-License-Identifier: Apache-2.0
 * What the kernel of a window's rows knows of them where o and lse of the
 * forward pass are given, without a loop over keys: P = exp(S - lse), and
 * delta = dO . O - d_lse (Dao et al. 2022, appendix B), which is off by the
 * rounding of a stored o. dS of a row must sum to d_lse, which tells that
 * error E: dQ needs -E sum P k, dBias -E P, and the kernel of keys the right
 * delta. |dS| is at most 2 |dO| |v| + |d_lse|. */
#include "hopper/mean_key.cl"
#include "hopper/window_statistics.cl"

/* Of a stage each row's dO . O and |dO|^2, as pairs; of each producer wave
 * the largest |v|^2 of its keys, and whether lse serves for its rows; of each
 * consumer wave whether its errors count. */
INLINE uint given_pair(const window_ring *ring, uint stage, uint row)
{
    return given_numbers(ring, stage) + 8 * row;
}
INLINE uint value_squares(const window_ring *ring, uint stage)
{
    return given_numbers(ring, stage) + 8 * OWN_ROWS;
}
INLINE uint serving_words(const window_ring *ring, uint stage)
{
    return value_squares(ring, stage) + 16;
}
INLINE uint counting_words(const window_ring *ring, uint stage)
{
    return serving_words(ring, stage) + 16;
}

/* ---- The producer ---- */

/* Does lse of the work-item's row serve, and that of all? Else statistics are
 * looked for. */
INLINE void keep_serving(const window_ring *ring, uint stage, float lse,
                         uint item)
{
    const int serves = is_small_lse(lse);
    store_word(serving_words(ring, stage) + item / WAVE * 4,
               (uint)!WAVE_ANY(!serves));
}

/* Rows of o of window n, once all of the producer have read the last one's. */
INLINE void fetch_o(const window_call *call, uint n, uint item)
{
    const forward_args *args = &call->args->forward;
    const uint first = call->job->first;
    const window_place place = find_place(args, window_of(call, n));
    const fetched_head head = {.place = &place,
                               .head = call->job->head,
                               .item = item,
                               .wide = (args->flags & ARG_WIDE_ACCESS) != 0};
    sync_fetching();
    fetch_window_rows(window_o(call->ring), call->o, &args->o, &head, first,
                      min((uint)OWN_ROWS, NQ - first), OWN_ROWS);
    END_COPIES();
}

INLINE float multiply_chunks(float sum, uint4 x, uint4 y)
{
    const uint a[4] = {x.x, x.y, x.z, x.w}, b[4] = {y.x, y.y, y.z, y.w};
    UNROLL_FOR (uint i = 0; i < 4; i++) {
        const float2 c = unpack(a[i]), d = unpack(b[i]);
        sum = FMA(c.x, d.x, FMA(c.y, d.y, sum));
    }
    return sum;
}

/* Once a stage's rows are there, and o. */
INLINE void measure_given(const window_ring *ring, uint stage, uint item)
{
    const uint d_o = window_rows(ring, stage, OWN_SECOND);
    float delta = 0.0f, square = 0.0f, largest = 0.0f;
    UNROLL_FOR (uint chunk = 0; chunk < 4; chunk++) {
        const uint4 x = load_chunk(swizzled_chunk(d_o, item, chunk));
        delta = multiply_chunks(
            delta, x, load_chunk(swizzled_chunk(window_o(ring), item, chunk)));
        if (RESCALES)
            square = add_squares(square, x);
    }
    store_number(given_pair(ring, stage, item), delta);
    if (!RESCALES)
        return;
    store_number(given_pair(ring, stage, item) + 4, square);
    UNROLL_FOR (uint r = 0; r < OTHER_ROWS; r += WARPGROUP)
        if (r + item < NK)
            largest = as_float(
                max(as_uint(largest),
                    as_uint(square_of_row(
                        window_rows(ring, stage, OTHER_SECOND), r + item))));
    store_word(value_squares(ring, stage) + item / WAVE * 4,
               largest_of_wave(as_uint(largest)));
}

/* ---- Consumers ---- */

INLINE int lse_serves(const window_ring *ring, uint stage)
{
    const uint4 x = load_chunk(serving_words(ring, stage));
    return (x.x & x.y & x.z & x.w) != 0;
}

/* In place of statistics. lse, d_lse: of the lane's rows; inverse: of the
 * shortest key. */
INLINE void start_given(row_state *x, const wave_rows *rows, const float *lse,
                        const float *d_lse, float inverse,
                        __global float *numbers)
{
    const window_ring *ring = rows->ring;
    const uint stage = rows->stage;
    const uint own = rows->tile * 16 + rows->lane / 4;
    float values = 0.0f;
    if (RESCALES) {
        const uint4 v = load_chunk(value_squares(ring, stage));
        values = sqrt(as_float(max(max(v.x, v.y), max(v.z, v.w))));
    }
    x->is_large = 0;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = rows->row + rows->lane / 4 + 8 * r;
        const float2 pair = load_floats(given_pair(ring, stage, own + 8 * r));
        const int sees = row < NQ && lse[r] != -INFINITY;
        const float delta = pair.x - d_lse[r];
        const float bound =
            RESCALES ? FMA(2.0f * sqrt(pair.y), values, fabs(d_lse[r])) : 0.0f;
        const float ds_scale = RESCALES ? ds_scale_for(bound * inverse) : 1.0f;
        x->top[r] = sees ? lse[r] : INFINITY; /* its P is 0 */
        x->factor[r] = sees ? ds_scale : 0.0f;
        x->offset[r] = sees ? -delta * ds_scale : 0.0f;
        x->back[r] = inverse_ds_scale(ds_scale);
        if (rows->lane % 4 == 0 && row < NQ)
            vstore4((float4)(sees ? lse[r] : INFINITY, delta,
                             pack_bound(bound, 0.0f), x->scale[r]),
                    row, numbers);
    }
}

/* What dS of a lane's rows sums to and should not, and of its columns squares:
 * of dS, of every other 16 of them, and of P. */
typedef struct row_errors {
    float sum[4];
    float squares[2], weights[2];
} row_errors;

INLINE void clear_errors(row_errors *e)
{
    e->sum[0] = e->sum[1] = e->sum[2] = e->sum[3] = 0.0f;
    e->squares[0] = e->squares[1] = e->weights[0] = e->weights[1] = 0.0f;
}

/* So that compilers add to them where a tile ends, and keep nothing for later.
 */
INLINE void hold_errors(row_errors *e)
{
    UNROLL_FOR (int i = 0; i < 4; i++)
        if (!SUMS_OPERANDS || i % 2 == 0)
            __asm__ volatile("" : "+f"(e->sum[i]));
    UNROLL_FOR (int r = 0; r < 2; r++)
        __asm__ volatile("" : "+f"(e->squares[r]), "+f"(e->weights[r]));
}

/* Of a lane's two columns of row r, of 16 columns number `sixteen`. */
INLINE void add_errors(row_errors *e, const float *d, const float *p,
                       const uint sixteen, const int r)
{
    UNROLL_FOR (int i = 0; i < 2; i++) {
        if (!SUMS_OPERANDS)
            e->sum[2 * r + i] += d[i];
        if (sixteen % 2 == 0)
            e->squares[r] = FMA(d[i], d[i], e->squares[r]);
        e->weights[r] = FMA(p[i], p[i], e->weights[r]);
    }
}

/* What dS of the lane's rows should sum to; of one that sees nothing 0. */
INLINE void find_expected(float *expected, const row_state *x,
                          const float *d_lse)
{
    UNROLL_FOR (int r = 0; r < 2; r++)
        expected[r] = x->factor[r] != 0.0f
                          ? d_lse[r] * inverse_ds_scale(x->back[r])
                          : 0.0f;
}

/* The errors of the lane's two rows. */
INLINE void find_errors(float *error, const row_errors *e,
                        const float *expected)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        float sum = e->sum[2 * r];
        if (!SUMS_OPERANDS) {
            sum += e->sum[2 * r + 1];
            REDUCE(sum, ADD_PAIR);
        }
        error[r] = sum - expected[r];
    }
}

/* Do they count in dQ, once the plain mean of 16 keys is taken out
 * (matrix/delta_errors.cl)? The same for all of the wave. */
INLINE int errors_count(const row_errors *e, const float *error)
{
    const float allowed = 2 * DQ_TOLERANCE * DQ_TOLERANCE;
    float excess = 0.0f;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        /* four lanes share a row */
        const float left = e->weights[r] + 1.0f / (16 * 4);
        excess = FMA(error[r] * error[r], left, excess);
        excess = FMA(-allowed, e->squares[r], excess);
    }
    REDUCE_WAVE(excess, ADD_PAIR);
    return !(excess <= 0.0f); /* what is no number must not hide others' */
}

/* Is it so in any wave of the warpgroup? */
INLINE int any_of_warpgroup(const wave_rows *rows, int counts)
{
    const uint words = counting_words(rows->ring, rows->stage);
    if (rows->lane == 0)
        store_word(words + 4 * rows->tile, (uint)counts);
    sync_warpgroup(rows->tile / 4);
    const uint4 x = load_chunk(words + rows->tile / 4 * 16);
    return (x.x | x.y | x.z | x.w) != 0;
}

/* The next loop then has -E P in place of dS. */
INLINE void correct_by_errors(row_state *x, const float *error)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        x->factor[r] = 0.0f;
        x->offset[r] = -error[r];
    }
}

/* What is left leaves dQ by the plain mean of 16 keys, of length 1 in the
 * cosine variant: the weights of these, as an operand (mean_key.cl). */
INLINE void weigh_keys(uint *weights, const float *error,
                       const wave_rows *rows)
{
#if VARIANT == COSINE
    UNROLL_FOR (uint c = 0; c < 2; c++) {
        const float2 inverse =
            load_floats(other_numbers(rows->ring, rows->stage) +
                        4 * (8 * c + 2 * (rows->lane % 4)));
        UNROLL_FOR (uint r = 0; r < 2; r++)
            weights[2 * c + r] =
                PACK(error[r] * (-0.0625f * fmin(inverse.x, MOST_INVERSE)),
                     error[r] * (-0.0625f * fmin(inverse.y, MOST_INVERSE)));
    }
#else
    weigh_mean_key(weights, error, 16, rows->lane);
#endif
}

/* The kernel of keys gets the right delta. */
INLINE void leave_delta(const float *error, const row_state *x,
                        __global float *numbers, const wave_rows *rows)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = rows->row + rows->lane / 4 + 8 * r;
        if (rows->lane % 4 == 0 && row < NQ)
            numbers[row * ROW_NUMBERS + ROW_DELTA] =
                (error[r] - x->offset[r]) * x->back[r];
    }
}
