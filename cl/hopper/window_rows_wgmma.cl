/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of windows on NVIDIA's Hopper: what concerns rows.
 * window_keys_wgmma.cl follows.
 *
 * A work-group owns BLOCK_ROWS rows of a head, 64 for each of its warpgroups
 * but the last, the producer, and goes from window to window. All keys of a
 * window are in local memory, over which a warpgroup loops twice, BLOCK_KEYS
 * at a time: for statistics,
 *
 *   S = scale Q K^T + bias,  sums of exp(S - max) and of that times dO V^T,
 *
 * and for gradients,
 *
 *   dS = P (dO V^T - delta),  dQ += scale dS K,  dBias += dS.
 *
 * Sums of dBias over windows stay in registers. Where o and lse are given,
 * statistics follow from these (window_given.cl), and the second loop comes
 * again for a warpgroup where it shows that o was rounded. Of lse alone only
 * that counts that it is near the logarithm of the sum of exponentials: P sums
 * to 1 and dS to d_lse whatever was rounded there. The kernel of keys gets
 * from each row, by way of the workspace, (x) lse, +infinity where it sees
 * nothing, or where that is large the largest score; (y) delta; (z) a bound of
 * |dS| and, with such a score, the logarithm of the sum (pack_bound); (w) what
 * q k^ is multiplied by (cosine). */
#define TILE_KEYS BLOCK_KEYS
#define OWN_ROWS BLOCK_ROWS
#define OTHER_ROWS (CEIL_DIV(NK, BLOCK_KEYS) * BLOCK_KEYS)
#define OTHER_BYTES BYTES_OF_KEY
#define ROW_BYTES 64
#define OWNS_KEYS 0
/* Not of maps, where the producer has enough to do. */
#define READS_O (!GRID)
#include "hopper/window_bias_sums.cl"
#include "hopper/window_given.cl"

/* ---- Gradients ---- */

/* Scores become exponentials, of BLOCK_KEYS keys. Large ones lose the row's
 * top first, in a branch: asked for each score, ptxas computes both ways. */
INLINE void exponentiate_again(float *s, const row_state *x,
                               const int may_be_large)
{
    const int large = may_be_large && x->is_large;
    if (large) {
        UNROLL_FOR (int n = 0; n < BLOCK_KEYS / 2; n++)
            s[n] -= x->top[n / 2 % 2];
        HOLD_SCORES(s);
    }
    UNROLL_FOR (int n = 0; n < BLOCK_KEYS / 2; n++) {
        const float top = large ? 0.0f : x->top[n / 2 % 2];
        s[n] = EXP2(FMA(s[n], LOG2E, -top * LOG2E));
    }
}

/* Are sums of dS made of its operands, in any case or if it measures errors?
 */
#define SUMS_ROWS(measures) (ROUNDING_SHOWS || ((measures) && SUMS_OPERANDS))

/* These and dP become dS, as an operand. */
INLINE void differentiate(uint *ds, row_errors *errors, float *d_bias,
                          const float *e, const float *dp, const row_state *x,
                          const float2 *inverse, const int measures)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            float d[2];
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                d[i] = e[n] * FMA(dp[n], x->factor[r], x->offset[r]);
                d_bias[n] = FMA(d[i], x->back[r], d_bias[n]);
            }
            ds[2 * j + r] = VARIANT == COSINE ? PACK(d[0] * inverse[j].x,
                                                     d[1] * inverse[j].y)
                                              : PACK(d[0], d[1]);
            if (measures)
                add_errors(errors, d, e + SCORE(j, r, 0), j / 2, r);
        }
    if (SUMS_ROWS(measures))
        UNROLL_FOR (int c = 0; c < BLOCK_KEYS / 16; c++)
            add_row_sums(errors->sum, ds + 4 * c);
}

/* Adds a window's to dq and d_bias, and to errors what dS sums to where it
 * measures them. */
INLINE void find_gradients(float *dq, row_errors *errors, float *d_bias,
                           const row_state *x, const wave_rows *rows,
                           const int regions, const int measures)
{
    uint ds[BLOCK_KEYS / 4];
    UNROLL_FOR (int i = 0; i < BLOCK_KEYS / 4; i++)
        ds[i] = 0;
    UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_KEYS) {
        float s[BLOCK_KEYS / 2], dp[BLOCK_KEYS / 2];
        score_terms terms;
        load_terms(&terms, rows, first);
        start_tile(s, dp, rows, first);
        AWAIT_PRODUCTS(1);
        HOLD_SCORES(s);
        HOLD_OUTS(dq);
        HOLD_WEIGHTS(ds);
        finish_scores(s, x, &terms, rows, first, regions);
        exponentiate_again(s, x, !measures);
        AWAIT_PRODUCTS(0);
        HOLD_SCORES(dp);
        differentiate(ds, errors, d_bias + first / 2, s, dp, x, terms.inverse,
                      measures);
        if (SUMS_ROWS(measures)) /* what is to be added must not wait there */
            __asm__ volatile("" : "+f"(errors->sum[0]), "+f"(errors->sum[2]));
        if (measures)
            hold_errors(errors);
        /* now, as what is to be added takes as many registers */
        HOLD_SCORES(d_bias + first / 2);
        HOLD_WEIGHTS(ds);
        HOLD_OUTS(dq);
        start_products();
        multiply_values(dq, ds, other_rows(rows, OTHER_FIRST, first),
                        BLOCK_KEYS);
        end_products();
    }
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(dq);
    HOLD_WEIGHTS(ds);
}

/* What rows of dS sum to and should not leaves dQ by the plain mean of 16
 * keys. */
INLINE void take_mean_key(float *dq, const float *error, const wave_rows *rows)
{
    uint weights[4];
    weigh_keys(weights, error, rows);
    HOLD_MEAN_KEY(weights);
    HOLD_OUTS(dq);
    start_products();
    multiply_values(dq, weights, other_rows(rows, OTHER_FIRST, 0), 16);
    end_products();
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(dq);
}

/* ---- The producer ---- */

/* Norms of a stage's rows, and what follows from o, once these are there. */
INLINE void measure_window(const window_ring *ring, uint stage, int has_o,
                           uint item)
{
    if (VARIANT == COSINE || has_o)
        sync_fetching();
    if (has_o)
        measure_given(ring, stage, item);
#if VARIANT == COSINE
    float largest = 0.0f;
    UNROLL_FOR (uint r = 0; r < OTHER_ROWS; r += WARPGROUP) {
        const uint row = r + item;
        float inverse = 0.0f;
        if (row < NK)
            inverse =
                inverse_of_row(window_rows(ring, stage, OTHER_FIRST), row);
        largest = fmax(largest, inverse);
        if (row < OTHER_ROWS)
            store_number(other_numbers(ring, stage) + 4 * row, inverse);
    }
    measure_own_rows(ring, stage, item);
    store_word(wave_numbers(ring, stage) + item / WAVE * 4,
               largest_of_wave(as_uint(largest)));
#endif
    arrive(window_filled(ring, stage));
}

/* What comes later is under way before an earlier window is measured, where
 * there are stages for that. */
#define LAG (STAGES > 2 ? 1 : 0)
INLINE void fetch(const window_call *call, uint item)
{
    const window_ring *ring = call->ring;
    const window_job *job = call->job;
    const forward_args *forward = &call->args->forward;
    const uint count = job->windows.count;
    NO_UNROLL_FOR (uint n = 0; n < count + LAG; n++) {
        if (n < count) {
            float own_lse = 0.0f;
            if (job->has_o) {
                const window_place place =
                    find_place(forward, window_of(call, n));
                own_lse = number_of_row(call->lse, &forward->lse, &place,
                                        job->head, job->first + item);
            }
            fetch_window(call, n, item);
            if (job->has_o)
                keep_serving(ring, n % STAGES, own_lse, item);
            if (LAG == 0 && job->has_o)
                fetch_o(call, n, item);
        } else {
            END_COPIES();
        }
        AWAIT_COPIES(LAG);
        if (n >= LAG)
            measure_window(ring, (n - LAG) % STAGES, job->has_o, item);
        if (LAG > 0 && n < count && job->has_o)
            fetch_o(call, n, item);
    }
}

/* ---- Consumers ---- */

/* What a lane has from window to window. */
typedef struct row_sums {
    float scale;       /* for d_logit_scale, of its own rows */
    float next_lse[2]; /* if it is given */
} row_sums;

/* Reads those of the lane's two rows, from `row` on, of window n. */
INLINE void read_numbers(float *to, __global const float *numbers,
                         const tensor_layout *layout, const window_call *call,
                         uint n, uint row)
{
    const window_place place =
        find_place(&call->args->forward, window_of(call, n));
    UNROLL_FOR (uint r = 0; r < 2; r++)
        to[r] = number_of_row(numbers, layout, &place, call->job->head,
                              row + 8 * r);
}

/* lse of window n, which then comes while the one before is computed. */
INLINE void read_next_lse(row_sums *sums, const window_call *call, uint n,
                          uint wave, int lane)
{
    const window_job *job = call->job;
    if (job->has_lse && n < job->windows.count)
        read_numbers(sums->next_lse, call->lse, &call->args->forward.lse, call,
                     n, job->first + wave * 16 + lane / 4);
}

/* Gradients of rows of which all is known, added to dq, which is 0, and
 * d_bias. regions: has the window several? error: with ROUNDING_SHOWS what
 * rows of dS sum to and should not. */
INLINE void compute_known(float *dq, float *error, float *d_bias,
                          const row_state *x, const float *d_lse,
                          const wave_rows *rows, int regions)
{
    row_errors errors;
    clear_errors(&errors);
    if (regions)
        find_gradients(dq, &errors, d_bias, x, rows, 1, 0);
    else
        find_gradients(dq, &errors, d_bias, x, rows, 0, 0);
    if (ROUNDING_SHOWS) {
        float expected[2];
        find_expected(expected, x, d_lse);
        find_errors(error, &errors, expected);
    }
}

/* The same behind start_given: where errors count in some row of the
 * warpgroup's, all are taken out by a loop more, and the plain mean of keys
 * has what is left. */
INLINE void compute_given(float *dq, float *error, float *d_bias, row_state *x,
                          const float *d_lse, __global float *numbers,
                          const wave_rows *rows, int regions)
{
    wave_rows own = *rows;
    row_errors errors;
    float expected[2];
    int corrects = 0, goes_on;
    clear_errors(&errors);
    find_expected(expected, x, d_lse);
    do {
        /* addresses that follow are not to wait in registers */
        HIDE_FROM_OPTIMIZER(own.first);
        HIDE_FROM_OPTIMIZER(own.second);
        HIDE_FROM_OPTIMIZER(own.stage);
        if (regions)
            find_gradients(dq, &errors, d_bias, x, &own, 1, 1);
        else
            find_gradients(dq, &errors, d_bias, x, &own, 0, 1);
        find_errors(error, &errors, expected);
        goes_on = 0;
        if (!corrects) {
            leave_delta(error, x, numbers, rows);
            goes_on = any_of_warpgroup(&own, errors_count(&errors, error));
            correct_by_errors(x, error);
            corrects = 1;
        }
    } while (goes_on);
}

/* What the cosine variant knows of a window besides: the lane's two rows, of
 * length 1, and the largest inverse of a key's norm. */
INLINE float find_norms(float *inverses, row_state *x, const wave_rows *rows)
{
#if VARIANT == COSINE
    const float4 of_waves =
        as_float4(load_chunk(wave_numbers(rows->ring, rows->stage)));
    load_row_numbers(inverses, own_numbers(rows->ring, rows->stage), rows);
    UNROLL_FOR (int r = 0; r < 2; r++)
        x->scale[r] *= inverses[r];
    return fmax(fmax(of_waves.x, of_waves.y), fmax(of_waves.z, of_waves.w));
#else
    return 1.0f;
#endif
}

/* Sums of a window become dQ, and leave by way of its queries. */
INLINE void leave_dq(float *dq, row_sums *sums, const row_state *x,
                     const float *inverses, const window_call *call, uint n,
                     const wave_rows *rows)
{
    const backward_args *args = call->args;
    const int lane = rows->lane;
    const uint own_q = rows->first + rows->tile % 4 * 16 * WINDOW_PITCH;
    float factor[2];
    UNROLL_FOR (int r = 0; r < 2; r++)
        factor[r] = x->back[r] * call->job->scale;
#if VARIANT == COSINE
    float along[2];
    take_back_norm(dq, along, factor, inverses, own_q, lane);
    UNROLL_FOR (int r = 0; r < 2; r++)
        if (lane % 4 == 0 && rows->row + lane / 4 + 8 * r < NQ)
            sums->scale += along[r];
#endif
    sync_warpgroup(rows->tile / 4); /* all have read its queries */
    const window_place place = find_place(&args->forward, window_of(call, n));
    const leaving_rows of = {.place = &place,
                             .head = call->job->head,
                             .row = rows->row,
                             .end = NQ,
                             .lane = lane,
                             .flags = args->forward.flags};
    store_gradient(dq, factor, own_q, call->dq, &args->dq, &of, ARG_DQ);
    WAVE_SYNC();
    leave(window_was_read(rows->ring, rows->stage), lane);
}

/* Window n of the work-group's. */
INLINE void compute_window(float *d_bias, row_sums *sums,
                           const window_call *call, uint n, uint wave,
                           int lane)
{
    const backward_args *args = call->args;
    const window_job *job = call->job;
    __global float *numbers =
        call->workspace + args->workspace +
        ((ulong)(job->windows.first + n) * args->forward.heads + job->head) *
            NQ * ROW_NUMBERS;
    wave_rows rows;
    row_state x = {.scale = {job->scale, job->scale}, .back = {0.0f}};
    float dq[OUTS], lse[2], d_lse[2] = {0.0f, 0.0f}, error[2], inverses[2];
    if ((args->forward.flags & ARG_D_LSE) != 0)
        read_numbers(d_lse, call->d_lse, &args->d_lse, call, n,
                     job->first + wave * 16 + lane / 4);
    await_rows(&rows, call, n, wave / 4 * 4, wave, lane);
    const int regions = have_regions(&rows);
    const int given = job->has_o && lse_serves(rows.ring, rows.stage);
    const float largest = find_norms(inverses, &x, &rows);
    UNROLL_FOR (int r = 0; r < 2; r++)
        lse[r] = sums->next_lse[r];
    read_next_lse(sums, call, n + 1, wave, lane);
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        dq[i] = 0.0f;
    if (given) {
        start_given(&x, &rows, lse, d_lse, largest, numbers);
        compute_given(dq, error, d_bias, &x, d_lse, numbers, &rows, regions);
    } else {
        start_statistics(&x, lse, job->has_lse);
        if (regions)
            find_statistics(&x, &rows, 1);
        else
            find_statistics(&x, &rows, 0);
        join_statistics(&x, d_lse, largest, numbers, &rows);
        compute_known(dq, error, d_bias, &x, d_lse, &rows, regions);
    }
    if (ROUNDING_SHOWS || given)
        take_mean_key(dq, error, &rows);
    leave_dq(dq, sums, &x, inverses, call, n, &rows);
}

#if VARIANT == COSINE
/* And its sum for d_logit_scale. wave_sums: of each wave. */
INLINE void store_scale_sum(float sum, __local float *wave_sums,
                            const window_call *call,
                            __global const float *logit_scale, uint item)
{
    const window_job *job = call->job;
    const forward_args *forward = &call->args->forward;
    __global float *to =
        call->workspace + call->args->scale_partials +
        ((ulong)job->split * forward->row_blocks + job->block) *
            forward->heads +
        job->head;
    REDUCE_WAVE(sum, ADD_PAIR);
    if (item % WAVE == 0)
        wave_sums[item / WAVE] = sum;
    sync_computing();
    if (item != 0)
        return;
    sum = 0.0f;
    for (uint i = 0; i < COMPUTING_WAVES; i++)
        sum += wave_sums[i];
    sum = scale_gradient(forward, logit_scale, job->head, sum);
    *to = (forward->flags & ARG_FIRST_LAUNCH) != 0 ? sum : *to + sum;
}
#endif

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
window_rows_wgmma(BACKWARD_PARAMETERS)
{
    __local uchar memory[WINDOW_LOCAL_BYTES] __attribute__((aligned(1024)));
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    int lane = (int)(item % WAVE);
    const window_ring ring = {local_address(memory)};
    DECLARE_REGISTERS();
    window_job job = find_job(&args);
    if (job.windows.count == 0) /* in no first launch */
        return;
    const score_bias_tensors score_bias = SCORE_BIAS_TENSORS;
    const window_call call = {&ring, &args, &job, &score_bias, q,
                              k,     v,     d_o,  o,           lse,
                              d_lse, dq,    dk,   dv,          workspace};
    start_windows(&call, wave, item);
    if (wave / 4 == WARPGROUPS) {
        LEAVE_REGISTERS();
        fetch(&call, item % WARPGROUP);
        return;
    }
    TAKE_REGISTERS();
    keep_bias(&call, item);
    sync_computing();
    float d_bias[OTHER_ROWS / 2];
    row_sums sums = {.scale = 0.0f, .next_lse = {0.0f}};
    uint n = 0;
    job.scale = HEAD_SCALE(&args.forward, logit_scale, job.head);
    UNROLL_FOR (int i = 0; i < OTHER_ROWS / 2; i++)
        d_bias[i] = 0.0f;
    read_next_lse(&sums, &call, 0, wave, lane);
    do { /* once at least, as the compiler then knows */
        /* addresses that wait in registers are too many */
        HIDE_FROM_OPTIMIZER(lane);
        compute_window(d_bias, &sums, &call, n, wave, lane);
    } while (++n < job.windows.count);
    if ((args.forward.flags & ARG_DBIAS) != 0)
        store_bias_sums(d_bias, &call, wave, lane);
#if VARIANT == COSINE
    if ((args.forward.flags & ARG_D_LOGIT_SCALE) != 0)
        store_scale_sum(
            sums.scale,
            (__local float *)(memory + WINDOW_LOCAL_BYTES - WINDOW_SUM_BYTES),
            &call, logit_scale, item);
#endif
}
