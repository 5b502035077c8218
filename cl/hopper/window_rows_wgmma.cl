/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of windows on NVIDIA's Hopper: what concerns rows.
 * window_keys_wgmma.cl follows.
 *
 * A work-group owns BLOCK_ROWS rows of a head, 64 for each of its warpgroups
 * but the last, which fetches, and goes from window to window. All keys of a
 * window are in local memory, over which a warpgroup loops twice, BLOCK_KEYS
 * at a time: for statistics,
 *
 *   S = scale Q K^T + bias,  sums of exp(S - max) and of that times dO V^T,
 *
 * and for gradients,
 *
 *   dS = P (dO V^T - delta),  dQ += scale dS K,  dBias += dS.
 *
 * Sums of dBias over windows stay in registers. o is not read, and of lse only
 * that it is near the logarithm of the sum of exponentials: P sums to 1 and dS
 * to d_lse whatever was rounded there. The kernel of keys gets from each row,
 * by way of the workspace, (x) lse, +infinity where it sees nothing, or where
 * that is large the largest score; (y) delta; (z) a bound of |dS| and, with
 * such a score, the logarithm of the sum (pack_bound); (w) what q k^ is
 * multiplied by (cosine). */
#define OWN_ROWS BLOCK_ROWS
#define OTHER_ROWS (CEIL_DIV(NK, BLOCK_KEYS) * BLOCK_KEYS)
#define OTHER_BYTES BYTES_OF_KEY
#include "hopper/mean_key.cl"
#include "hopper/window_row_jobs.cl"
#include "hopper/window_statistics.cl"

/* ---- Gradients ---- */

/* Scores become exponentials, of BLOCK_KEYS keys. Large ones lose the row's
 * top first, in a branch: asked for each score, ptxas computes both ways. */
INLINE void exponentiate_again(float *s, const row_state *x)
{
    if (x->is_large) {
        UNROLL_FOR (int n = 0; n < BLOCK_KEYS / 2; n++)
            s[n] -= x->top[n / 2 % 2];
        hold_tile(s);
    }
    UNROLL_FOR (int n = 0; n < BLOCK_KEYS / 2; n++) {
        const float top = x->is_large ? 0.0f : x->top[n / 2 % 2];
        s[n] = EXP2(FMA(s[n], LOG2E, -top * LOG2E));
    }
}

/* These and dP become dS, as an operand, what that sums to is added to sums
 * (mean_key.cl). */
INLINE void differentiate(uint *ds, float *sums, float *d_bias, const float *e,
                          const float *dp, const row_state *x,
                          const float2 *inverse)
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
        }
    if (ROUNDING_SHOWS)
        UNROLL_FOR (int c = 0; c < BLOCK_KEYS / 16; c++)
            add_row_sums(sums, ds + 4 * c);
}

/* sums: of dS, of the lane's rows. */
INLINE void find_gradients(float *dq, float *sums, float *d_bias,
                           const row_state *x, const window_ring *ring,
                           uint stage, uint q_rows, uint d_o_rows,
                           const wave_rows *rows, const int regions)
{
    sums[0] = sums[1] = sums[2] = sums[3] = 0.0f;
    uint ds[BLOCK_KEYS / 4];
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        dq[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < BLOCK_KEYS / 4; i++)
        ds[i] = 0;
    UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_KEYS) {
        float s[BLOCK_KEYS / 2], dp[BLOCK_KEYS / 2];
        score_terms terms;
        load_terms(&terms, ring, stage, first, rows);
        START_TILE(s, dp, first);
        AWAIT_PRODUCTS(1);
        hold_tile(s);
        HOLD_OUTS(dq);
        hold_words(ds, BLOCK_KEYS / 4);
        finish_scores(s, x, &terms, ring, stage, first, rows, regions);
        exponentiate_again(s, x);
        AWAIT_PRODUCTS(0);
        hold_tile(dp);
        differentiate(ds, sums, d_bias + first / 2, s, dp, x, terms.inverse);
        if (ROUNDING_SHOWS) /* what is to be added must not wait there */
            __asm__ volatile("" : "+f"(sums[0]), "+f"(sums[2]));
        /* now, as what is to be added takes as many registers */
        hold_tile(d_bias + first / 2);
        hold_words(ds, BLOCK_KEYS / 4);
        HOLD_OUTS(dq);
        start_products();
        add_products(dq, ds,
                     window_rows(ring, stage, OTHER_FIRST) +
                         first * WINDOW_PITCH,
                     BLOCK_KEYS);
        end_products();
    }
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(dq);
    hold_words(ds, BLOCK_KEYS / 4);
}

/* ---- Who fetches ---- */

/* Norms of a stage's rows, once these are there. */
INLINE void measure_window(const window_ring *ring, uint stage, uint item)
{
#if VARIANT == COSINE
    float largest = 0.0f;
    sync_fetching();
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
    UNROLL_FOR (uint r = 0; r < OWN_ROWS; r += WARPGROUP)
        if (r + item < OWN_ROWS)
            store_number(
                own_numbers(ring, stage) + 4 * (r + item),
                inverse_of_row(window_rows(ring, stage, OWN_FIRST), r + item));
    store_word(wave_numbers(ring, stage) + item / WAVE * 4,
               largest_of_wave(as_uint(largest)));
#endif
    arrive(window_filled(ring, stage));
}

/* What comes later is under way before an earlier window is measured, where
 * there are stages for that. */
#define LAG (STAGES > 2 ? 1 : 0)
INLINE void fetch(const window_ring *ring, const row_tensors *from,
                  const backward_args *args, window_split windows, uint head,
                  uint first_row, uint item, int wide)
{
    NO_UNROLL_FOR (uint n = 0; n < windows.count + LAG; n++) {
        if (n < windows.count) {
            const ulong window =
                args->forward.first_window + windows.first + n;
            const fetched_regions regions = fetch_regions(
                &from->score_bias, &args->forward, window, first_row, 0, item);
            await_phase(window_was_read(ring, n % STAGES), n / STAGES % 2 ^ 1);
            fetch_window(ring, n % STAGES, from, args, window, head, first_row,
                         item, wide);
            keep_regions(ring, n % STAGES, &regions, item);
        } else {
            END_COPIES();
        }
        AWAIT_COPIES(LAG);
        if (n >= LAG)
            measure_window(ring, (n - LAG) % STAGES, item);
    }
}

/* ---- Who computes ---- */

/* Tensors besides those that are fetched. */
typedef struct row_outputs {
    __global const float *lse, *d_lse;
    __global storage *dq;
    __global float *workspace;
} row_outputs;

/* What a lane has from window to window. */
typedef struct row_sums {
    float scale;       /* for d_logit_scale, of its own rows */
    float next_lse[2]; /* if it is given */
} row_sums;

/* lse of window n, which then comes while the one before is computed. */
INLINE void read_next_lse(row_sums *sums, const row_job *job,
                          const row_outputs *out, const backward_args *args,
                          uint n, uint wave, int lane)
{
    const tensor_layout *layout = &args->forward.lse;
    if (!job->has_lse || n >= job->windows.count)
        return;
    const uint first = job->first_row + first_of_wave(wave);
    const window_place place = find_place(
        &args->forward, args->forward.first_window + job->windows.first + n);
    __global const float *from =
        out->lse + plane_at(layout, &place, job->head);
    UNROLL_FOR (int r = 0; r < 2; r++)
        sums->next_lse[r] = from[row_at(
            layout, &place, min(first + lane / 4 + 8 * r, NQ - 1u))];
}

/* Of rows of a window; 0 where it is not given. */
INLINE void read_d_lse(float *to, const row_outputs *out,
                       const backward_args *args, ulong window, uint head,
                       const wave_rows *rows)
{
    to[0] = to[1] = 0.0f;
    if ((args->forward.flags & ARG_D_LSE) == 0)
        return;
    const window_place place = find_place(&args->forward, window);
    __global const float *from =
        out->d_lse + plane_at(&args->d_lse, &place, head);
    UNROLL_FOR (int r = 0; r < 2; r++)
        to[r] = from[row_at(&args->d_lse, &place,
                            min(rows->row + rows->lane / 4 + 8 * r, NQ - 1u))];
}

/* Window n of the work-group's. */
INLINE void compute_window(float *d_bias, row_sums *sums,
                           const window_ring *ring, const row_job *job,
                           const row_outputs *out, const backward_args *args,
                           uint n, uint wave, int lane)
{
    const uint flags = args->forward.flags, stage = n % STAGES;
    const ulong window = args->forward.first_window + job->windows.first + n;
    const uint of_warpgroup = first_of_warpgroup(wave) * WINDOW_PITCH;
    wave_rows rows = {.wave = wave,
                      .row = job->first_row + first_of_wave(wave),
                      .lane = lane,
                      .region_value = args->forward.region_value};
    const uint q_rows = window_rows(ring, stage, OWN_FIRST) + of_warpgroup;
    const uint d_o_rows = window_rows(ring, stage, OWN_SECOND) + of_warpgroup;
    const uint own_q = q_rows + wave % 4 * 16 * WINDOW_PITCH;
    row_state x = {.back = {0.0f}};
    float dq[OUTS], d_lse[2], sums_of_ds[4], factor[2], largest = 1.0f;
    read_d_lse(d_lse, out, args, window, job->head, &rows);
    await_phase(window_filled(ring, stage), n / STAGES % 2);
    show_to_products();
    /* one question for each loop, as one for each tile costs as much as what
     * is added there */
    const int regions = has_regions(window_regions(ring, stage));
    x.scale[0] = x.scale[1] = job->scale;
#if VARIANT == COSINE
    float inverses[2], along[2];
    UNROLL_FOR (int r = 0; r < 2; r++) {
        inverses[r] =
            load_number(own_numbers(ring, stage) +
                        4 * (first_of_wave(wave) + lane / 4 + 8 * r));
        x.scale[r] *= inverses[r];
    }
    const float4 of_waves = as_float4(load_chunk(wave_numbers(ring, stage)));
    largest = fmax(fmax(of_waves.x, of_waves.y), fmax(of_waves.z, of_waves.w));
#endif
    start_statistics(&x, sums->next_lse, job->has_lse);
    read_next_lse(sums, job, out, args, n + 1, wave, lane);
    if (regions)
        find_statistics(&x, ring, stage, q_rows, d_o_rows, &rows, 1);
    else
        find_statistics(&x, ring, stage, q_rows, d_o_rows, &rows, 0);
    join_statistics(
        &x, d_lse, largest,
        out->workspace + args->workspace +
            ((ulong)(job->windows.first + n) * args->forward.heads +
             job->head) *
                NQ * ROW_NUMBERS,
        &rows);
    if (regions)
        find_gradients(dq, sums_of_ds, d_bias, &x, ring, stage, q_rows,
                       d_o_rows, &rows, 1);
    else
        find_gradients(dq, sums_of_ds, d_bias, &x, ring, stage, q_rows,
                       d_o_rows, &rows, 0);
#if ROUNDING_SHOWS
    float error[2];
    UNROLL_FOR (int r = 0; r < 2; r++) /* what dS should have summed to */
        error[r] = sums_of_ds[2 * r] - (x.factor[r] != 0.0f ? d_lse[r] : 0.0f);
    uint mean_key[4];
    weigh_mean_key(mean_key, error, 16, lane);
    hold_words(mean_key, 4);
    HOLD_OUTS(dq);
    start_products();
    add_products(dq, mean_key, window_rows(ring, stage, OTHER_FIRST), 16);
    end_products();
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(dq);
#endif
    UNROLL_FOR (int r = 0; r < 2; r++)
        factor[r] = x.back[r] * job->scale;
#if VARIANT == COSINE
    take_back_norm(dq, along, factor, inverses, own_q, lane);
    UNROLL_FOR (int r = 0; r < 2; r++)
        if (lane % 4 == 0 && rows.row + lane / 4 + 8 * r < NQ)
            sums->scale += along[r];
#endif
    sync_warpgroup(wave / 4); /* all have read its queries */
    if ((flags & ARG_DQ) != 0) {
        const window_place place = find_place(&args->forward, window);
        store_window_rows(dq, factor, own_q, out->dq, &args->dq, &place,
                          job->head, rows.row, NQ, lane,
                          (flags & ARG_ADD_DQ) != 0,
                          (flags & ARG_WIDE_ACCESS) != 0);
    }
    WAVE_SYNC();
    leave_window(window_was_read(ring, stage), lane);
}

#if VARIANT == COSINE
/* And its sum for d_logit_scale. wave_sums: of each wave. */
INLINE void store_scale_sum(float sum, __local float *wave_sums,
                            const row_job *job, __global float *workspace,
                            const backward_args *args,
                            __global const float *logit_scale, uint item)
{
    const forward_args *forward = &args->forward;
    __global float *to =
        workspace + args->scale_partials +
        ((ulong)job->split * forward->row_blocks + job->row_block) *
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
    const forward_args *forward = &args.forward;
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    int lane = (int)(item % WAVE);
    const window_ring ring = {local_address(memory)};
    DECLARE_REGISTERS();
    row_job job = find_job(forward);
    if (job.windows.count == 0) /* in no first launch */
        return;
    FOR_MBARRIERS (n, 2 * STAGES, item)
        make_window_barrier(&ring, n);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wave / 4 == WARPGROUPS) {
        LEAVE_REGISTERS();
        const row_tensors from = {q, k, v, d_o, SCORE_BIAS_TENSORS};
        fetch(&ring, &from, &args, job.windows, job.head, job.first_row,
              item % WARPGROUP, (forward->flags & ARG_WIDE_ACCESS) != 0);
        return;
    }
    TAKE_REGISTERS();
    clear_fill(&ring, job.first_row, NQ, NK, item);
    const work_tile here = {.window = forward->first_window, .head = job.head};
    DECLARE_SCORE_BIAS(score_bias, *forward, here)
    keep_bias(&ring, forward, &score_bias, job.first_row, item, 0);
    sync_computing();
    const row_outputs out = {lse, d_lse, dq, workspace};
    float d_bias[OTHER_ROWS / 2];
    row_sums sums = {.scale = 0.0f, .next_lse = {0.0f}};
    uint n = 0;
    job.scale = HEAD_SCALE(forward, logit_scale, job.head);
    UNROLL_FOR (int i = 0; i < OTHER_ROWS / 2; i++)
        d_bias[i] = 0.0f;
    read_next_lse(&sums, &job, &out, &args, 0, wave, lane);
    do { /* once at least, as the compiler then knows */
        /* addresses that wait in registers are too many */
        HIDE_FROM_OPTIMIZER(lane);
        compute_window(d_bias, &sums, &ring, &job, &out, &args, n, wave, lane);
    } while (++n < job.windows.count);
    if ((forward->flags & ARG_DBIAS) != 0)
        store_bias_sums(d_bias, &job, workspace, &args, wave, lane);
#if VARIANT == COSINE
    if ((forward->flags & ARG_D_LOGIT_SCALE) != 0)
        store_scale_sum(
            sums.scale,
            (__local float *)(memory + WINDOW_LOCAL_BYTES - WINDOW_SUM_BYTES),
            &job, workspace, &args, logit_scale, item);
#endif
}
