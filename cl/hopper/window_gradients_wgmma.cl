/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of windows on NVIDIA's Hopper: all gradients in one kernel,
 * where local memory has room for the weights of a whole window.
 *
 * A work-group stays with a head and goes from window to window. Each wave has
 * a tile of 16 rows; a warpgroup has four, the last one those that are left
 * behind some that others own, whose waves only wait. A loop over keys leaves
 * P in local memory, in 16 bits, and sums P dP,
 *
 *   S = scale Q K^T + bias,  P = exp(S - lse),  dP = dO V^T,
 *
 * and another one dS,
 *
 *   dS = P (dP - delta),  dBias += dS.
 *
 * Once all warpgroups have left that, waves have tiles of 16 keys, and of rows
 * again, and local memory is all that is read:
 *
 *   dV = P^T dO,  dK = scale dS^T Q,  dQ = scale dS K.
 *
 * Sums of dBias over windows stay in registers. o is not read: delta = sum P
 * dP - d_lse is found with the sum that P has. lse is taken where it is near
 * enough to 0 to be exact; where it is not, or is not given, a loop over keys
 * finds it first. */
#define TILE_KEYS BLOCK_KEYS
#define OWN_ROWS BLOCK_ROWS
#define OTHER_ROWS NK
#define OTHER_BYTES BYTES_OF_KEY
#define READS_O 0
#define ROW_BYTES 64
#define OWNS_KEYS 0
#define WARPGROUPS CEIL_DIV(BLOCK_ROWS, WARPGROUP_ROWS)
#include "hopper/mean_key.cl"
#include "hopper/window_bias_sums.cl"
#include "hopper/window_statistics.cl"
#include "hopper/window_weights.cl"

typedef char all_tiles_are_whole[NQ == BLOCK_ROWS && NK % BLOCK_KEYS == 0 &&
                                         NQ % 16 == 0 && NQ >= 64
                                     ? 1
                                     : -1];
typedef char keys_have_no_norm[VARIANT == COSINE ? -1 : 1];

/* Further from 0 rounding of lse shows in P. */
#define LARGEST_EXACT_LSE 64.0f

/* Addresses in local memory. */
typedef struct window_memory {
    uint weights; /* P, and behind it dS */
    uint staging; /* of waves, behind each other */
    uint words;   /* for the barrier, and of producer waves */
} window_memory;

/* All waves have read the weights of a window. */
INLINE uint weights_were_read(const window_memory *memory)
{
    return memory->words;
}

/* ---- The producer ---- */

/* Of a work-item's rows, what is given of them, else 0. */
#define ITEM_ROWS CEIL_DIV(OWN_ROWS, WARPGROUP)
typedef struct fetched_numbers {
    float lse[ITEM_ROWS], d_lse[ITEM_ROWS];
} fetched_numbers;

/* Fetches those of window n. */
INLINE void fetch_numbers(fetched_numbers *to, const window_call *call, uint n,
                          uint item)
{
    const backward_args *args = call->args;
    const forward_args *forward = &args->forward;
    const uint head = call->job->head;
    const window_place place = find_place(forward, window_of(call, n));
    UNROLL_FOR (uint i = 0; i < ITEM_ROWS; i++) {
        const uint row = item + i * WARPGROUP;
        to->lse[i] =
            call->job->has_lse
                ? number_of_row(call->lse, &forward->lse, &place, head, row)
                : 0.0f;
        to->d_lse[i] =
            (forward->flags & ARG_D_LSE) != 0
                ? number_of_row(call->d_lse, &args->d_lse, &place, head, row)
                : 0.0f;
    }
}

/* Of four words that are not negative; or with NaN, which is larger. */
INLINE float largest_word(uint4 x)
{
    return as_float(max(max(x.x, x.y), max(x.z, x.w)) & ~1u);
}

/* The largest square of a work-item's rows in local memory. */
INLINE float largest_square(uint rows, uint item)
{
    float largest = 0.0f;
    UNROLL_FOR (uint i = 0; i < ITEM_ROWS; i++)
        largest = as_float(max(
            as_uint(largest),
            as_uint(square_of_row(rows, min(item + i * WARPGROUP, NQ - 1u)))));
    return largest;
}

/* A stage's numbers, once its rows are there: lse and d_lse, and at
 * wave_numbers the power of two of dS, and whether lse serves. */
INLINE void keep_numbers(const window_memory *memory, const window_call *call,
                         uint stage, const fetched_numbers *x, uint item)
{
    const window_ring *ring = call->ring;
    const uint words = memory->words + 16 + item / WAVE * 4;
    float bound = 0.0f;
    int suits = call->job->has_lse;
    UNROLL_FOR (uint i = 0; i < ITEM_ROWS; i++) {
        const uint row = item + i * WARPGROUP;
        suits &=
            fabs(x->lse[i]) <= LARGEST_EXACT_LSE || x->lse[i] == -INFINITY;
        bound = fmax(bound, fabs(x->d_lse[i]));
        if (row >= OWN_ROWS)
            break;
        store_number(own_numbers(ring, stage) + 4 * row, x->lse[i]);
        store_number(other_numbers(ring, stage) + 4 * row, x->d_lse[i]);
    }
    suits = !WAVE_ANY(!suits);
    sync_fetching(); /* all rows are there, and words were read */
    if (RESCALES) {
        store_word(words, largest_of_wave(as_uint(largest_square(
                              window_rows(ring, stage, OWN_SECOND), item))));
        store_word(words + 16,
                   largest_of_wave(as_uint(largest_square(
                       window_rows(ring, stage, OTHER_SECOND), item))));
    }
    /* the flag is the last bit of a bound, for which that is nothing */
    store_word(words + 32,
               (largest_of_wave(as_uint(bound)) & ~1u) | (uint)suits);
    sync_fetching();
    if (item == 0) {
        const uint4 last = load_chunk(memory->words + 48);
        float ds_scale = 1.0f;
#if RESCALES
        const float d_o = largest_word(load_chunk(memory->words + 16));
        const float v = largest_word(load_chunk(memory->words + 32));
        /* |dP| is at most |dO| |v|, and so is |delta| without d_lse */
        ds_scale =
            ds_scale_for(FMA(2.0f, sqrt(d_o) * sqrt(v), largest_word(last)));
#endif
        store_number(wave_numbers(ring, stage), ds_scale);
        store_word(wave_numbers(ring, stage) + 4,
                   last.x & last.y & last.z & last.w & 1u);
    }
    arrive(window_filled(ring, stage));
}

INLINE void fetch(const window_memory *memory, const window_call *call,
                  uint item)
{
    NO_UNROLL_FOR (uint n = 0; n < call->job->windows.count; n++) {
        fetched_numbers numbers;
        fetch_numbers(&numbers, call, n, item);
        fetch_window(call, n, item);
        AWAIT_COPIES(0);
        keep_numbers(memory, call, n % STAGES, &numbers, item);
    }
}

/* ---- Weights ---- */

/* A wave's part of a window. */
typedef struct wave_window {
    wave_rows rows;
    uint weights; /* the lane's place in P */
    int owns;
} wave_window;

/* What a lane has of its two rows. */
typedef struct row_numbers {
    /* P_SCALE P is 2 to the power of this and log2 e (score - top). */
    float top[2], power[2];
    float sum[2], delta[2]; /* of that, and of that times dP */
} row_numbers;

/* Where lse does not serve: the largest score and the sum of exponentials. */
INLINE void find_tops(row_numbers *to, row_state *x, const wave_rows *rows,
                      const int regions)
{
    start_statistics(x, to->top, 0);
    NO_UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_KEYS) {
        float s[BLOCK_KEYS / 2];
        score_terms terms;
        load_terms(&terms, rows, first);
        start_products();
        multiply_keys(s, rows->first, other_rows(rows, OTHER_FIRST, first));
        end_products();
        AWAIT_PRODUCTS(0);
        HOLD_SCORES(s);
        finish_scores(s, x, &terms, rows, first, regions);
        add_exponentials(x, s);
        UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
            UNROLL_FOR (int r = 0; r < 2; r++)
                UNROLL_FOR (int i = 0; i < 2; i++)
                    x->sum[r][i] += s[SCORE(j, r, i)];
    }
    UNROLL_FOR (int r = 0; r < 2; r++) {
        to->top[r] = x->top[r];
        REDUCE(to->top[r], fmax);
        to->top[r] = to->top[r] == -INFINITY ? 0.0f : to->top[r];
        float sum = (x->sum[r][0] + x->sum[r][1]) *
                    EXP2((x->top[r] - to->top[r]) * LOG2E);
        REDUCE(sum, ADD_PAIR);
        /* who sees nothing has no weights, whatever this is */
        to->power[r] -= sum == 0.0f ? 0.0f : log2_unit(sum);
    }
}

/* Scores become P_SCALE P. is_exact: what is near a score is subtracted before
 * it is multiplied; else shift is the power, less top. */
INLINE void weigh(float *s, const row_numbers *x, const float *shift,
                  const int is_exact)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                s[n] = is_exact
                           ? EXP2(FMA(s[n] - x->top[r], LOG2E, x->power[r]))
                           : EXP2(FMA(s[n], LOG2E, shift[r]));
            }
}

INLINE void add_sums(row_numbers *x, const float *p, const float *dp)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                x->sum[r] += p[n];
                x->delta[r] = FMA(p[n], dp[n], x->delta[r]);
            }
}

/* P of the wave's rows goes to local memory. */
INLINE void find_weights(row_numbers *x, const row_state *state,
                         const wave_window *w, const int is_exact,
                         const int regions)
{
    float shift[2];
    UNROLL_FOR (int r = 0; r < 2; r++) {
        shift[r] = FMA(-x->top[r], LOG2E, x->power[r]);
        x->sum[r] = x->delta[r] = 0.0f;
    }
    UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_KEYS) {
        float s[BLOCK_KEYS / 2], dp[BLOCK_KEYS / 2];
        score_terms terms;
        load_terms(&terms, &w->rows, first);
        start_tile(s, dp, &w->rows, first);
        AWAIT_PRODUCTS(1);
        HOLD_SCORES(s);
        if (w->owns) {
            uint words[TILE_WORDS];
            finish_scores(s, state, &terms, &w->rows, first, regions);
            weigh(s, x, shift, is_exact);
            pack_pairs(words, s, TILE_WORDS);
            store_weights(w->weights, first, words);
        }
        AWAIT_PRODUCTS(0);
        HOLD_SCORES(dp);
        if (w->owns)
            add_sums(x, s, dp);
        /* what is to be added must not wait */
        __asm__ volatile(""
                         : "+f"(x->sum[0]), "+f"(x->sum[1]), "+f"(x->delta[0]),
                           "+f"(x->delta[1]));
    }
    WAVE_SYNC();
}

/* ---- dS ---- */

/* By which dP of a lane's rows is multiplied, delta times minus that, and what
 * takes dS as it is stored back to dS. */
typedef struct row_factors {
    float factor[2], offset[2], back;
} row_factors;

INLINE row_factors find_factors(const row_numbers *x, const float *d_lse,
                                float ds_scale)
{
    row_factors f = {.back = inverse_ds_scale(ds_scale)};
    UNROLL_FOR (int r = 0; r < 2; r++) {
        float sum = x->sum[r], delta = x->delta[r];
        REDUCE(sum, ADD_PAIR);
        REDUCE(delta, ADD_PAIR);
        const float part = sum == 0.0f ? 0.0f : RECIPROCAL(sum);
        f.factor[r] = part * ds_scale;
        f.offset[r] = FMA(delta, -part, d_lse[r]) * f.factor[r];
    }
    return f;
}

/* dP becomes dS, given P as it is stored, and is added to d_bias. */
INLINE void differentiate(float *dp, float *d_bias, const uint *p,
                          const row_factors *x)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            const float2 pair = unpack(p[2 * j + r]);
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                dp[n] = (i ? pair.y : pair.x) *
                        FMA(dp[n], x->factor[r], x->offset[r]);
                d_bias[n] = RESCALES ? FMA(dp[n], x->back, d_bias[n])
                                     : d_bias[n] + dp[n];
            }
        }
}

/* dS of the wave's rows goes to local memory, behind P. sums: of dS as it is
 * stored (mean_key.cl). */
INLINE void find_gradients(float *d_bias, float *sums, const row_factors *x,
                           const wave_window *w)
{
    UNROLL_FOR (int i = 0; i < 4; i++)
        sums[i] = 0.0f;
    UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_KEYS) {
        float dp[BLOCK_KEYS / 2];
        uint words[TILE_WORDS];
        start_products();
        multiply_keys(dp, w->rows.second,
                      other_rows(&w->rows, OTHER_SECOND, first));
        end_products();
        if (w->owns)
            load_weights(words, w->weights, first);
        AWAIT_PRODUCTS(0);
        HOLD_SCORES(dp);
        if (w->owns) {
            differentiate(dp, d_bias + first / 2, words, x);
            pack_pairs(words, dp, TILE_WORDS);
            store_weights(w->weights + WEIGHT_BYTES, first, words);
            UNROLL_FOR (int c = 0; c < BLOCK_KEYS / 16; c++)
                add_row_sums(sums, words + 4 * c);
        }
        HOLD_SCORES(d_bias + first / 2);
    }
}

/* ---- Windows ---- */

/* dV, dK and dQ of the wave's keys and rows, from P and dS of all. error: what
 * dS of the lane's rows sums to and should not. */
INLINE void leave_gradients(const float *error, float back,
                            const window_memory *memory,
                            const window_call *call, uint n,
                            const wave_tile *tile, int lane)
{
    const window_ring *ring = call->ring;
    const backward_args *args = call->args;
    const uint stage = n % STAGES;
    const uint staging = memory->staging + tile->wave * STAGING_BYTES;
    const uint k_rows = window_rows(ring, stage, OTHER_FIRST);
    float dv[OUTS], dk[OUTS], dq[OUTS], factor[2];
    uint mean_key[4];
    weigh_mean_key(mean_key, error, 16, lane);
    HOLD_MEAN_KEY(mean_key);
    start_products();
    multiply_weights_down(dv, memory->weights, tile->first,
                          window_rows(ring, stage, OWN_SECOND));
    end_products();
    multiply_weights_down(dk, memory->weights + WEIGHT_BYTES, tile->first,
                          window_rows(ring, stage, OWN_FIRST));
    end_products();
    multiply_weights(dq, memory->weights + WEIGHT_BYTES, tile->first, k_rows);
    multiply_values(dq, mean_key, k_rows, 16);
    end_products();
    const window_place place = find_place(&args->forward, window_of(call, n));
    const leaving_rows of = {.place = &place,
                             .head = call->job->head,
                             .row = tile->number * 16,
                             .end = tile->owns ? NQ : 0,
                             .lane = lane,
                             .flags = args->forward.flags};
    AWAIT_PRODUCTS(2);
    HOLD_OUTS(dv);
    factor[0] = factor[1] = 1.0f / P_SCALE;
    store_gradient(dv, factor, staging, call->dv, &args->dv, &of, ARG_DV);
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(dk);
    HOLD_OUTS(dq);
    HOLD_MEAN_KEY(mean_key);
    WAVE_SYNC();
    leave(weights_were_read(memory), lane);
    leave(window_was_read(ring, stage), lane);
    factor[0] = factor[1] = back * call->job->scale;
    store_gradient(dk, factor, staging, call->dk, &args->dk, &of, ARG_DK);
    WAVE_SYNC();
    store_gradient(dq, factor, staging, call->dq, &args->dq, &of, ARG_DQ);
    WAVE_SYNC();
}

/* Window n of the work-group's. */
INLINE void compute_window(float *d_bias, const window_memory *memory,
                           const window_call *call, uint n,
                           const wave_tile *tile, int lane)
{
    const window_ring *ring = call->ring;
    const uint stage = n % STAGES;
    const float scale = call->job->scale;
    wave_window w = {.weights =
                         place_weights(memory->weights, tile->number, lane),
                     .owns = tile->owns};
    row_state state = {.scale = {scale, scale}};
    row_numbers x = {.power = {P_EXPONENT, P_EXPONENT}};
    float d_lse[2], sums_of_ds[4], error[2];
    await_rows(&w.rows, call, n, tile->first, tile->number, lane);
    const int regions = have_regions(&w.rows);
    const int lse_serves = (int)load_word(wave_numbers(ring, stage) + 4);
    load_row_numbers(x.top, own_numbers(ring, stage), &w.rows);
    UNROLL_FOR (int r = 0; r < 2; r++)
        x.top[r] = x.top[r] == -INFINITY ? 0.0f : x.top[r];
    if (!lse_serves)
        find_tops(&x, &state, &w.rows, regions);
    await_phase(weights_were_read(memory), n % 2 ^ 1);
    if (!lse_serves)
        find_weights(&x, &state, &w, 1, regions);
    else if (regions) /* a question for each tile would cost more */
        find_weights(&x, &state, &w, 0, 1);
    else
        find_weights(&x, &state, &w, 0, 0);
    load_row_numbers(d_lse, other_numbers(ring, stage), &w.rows);
    const float ds_scale = load_number(wave_numbers(ring, stage));
    const row_factors factors = find_factors(&x, d_lse, ds_scale);
    find_gradients(d_bias, sums_of_ds, &factors, &w);
    /* what rounding P and dS leaves, which k that have much in common show */
    UNROLL_FOR (int r = 0; r < 2; r++)
        error[r] = sums_of_ds[2 * r] -
                   (factors.factor[r] != 0.0f ? d_lse[r] * ds_scale : 0.0f);
    show_to_products();
    sync_computing();
    leave_gradients(error, factors.back, memory, call, n, tile, lane);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
window_gradients_wgmma(BACKWARD_PARAMETERS)
{
    __local uchar all[WHOLE_WINDOW_LOCAL_BYTES] __attribute__((aligned(1024)));
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    int lane = (int)(item % WAVE);
    window_memory memory = {.weights = local_address(all)};
    memory.staging = memory.weights + 2 * WEIGHT_BYTES;
    memory.words =
        memory.weights + WHOLE_WINDOW_LOCAL_BYTES - WINDOW_SUM_BYTES;
    const window_ring ring = {memory.staging +
                              COMPUTING_WAVES * STAGING_BYTES};
    DECLARE_REGISTERS();
    const window_job job = find_job(&args);
    if (job.windows.count == 0) /* in no first launch */
        return;
    const score_bias_tensors score_bias = SCORE_BIAS_TENSORS;
    const window_call call = {&ring, &args, &job, &score_bias, q,
                              k,     v,     d_o,  o,           lse,
                              d_lse, dq,    dk,   dv,          workspace};
    if (item == 0)
        make_mbarrier(weights_were_read(&memory), COMPUTING_WAVES);
    start_windows(&call, wave, item);
    if (wave / 4 == WARPGROUPS) {
        LEAVE_REGISTERS();
        fetch(&memory, &call, item % WARPGROUP);
        return;
    }
    TAKE_REGISTERS();
    keep_bias(&call, item);
    sync_computing();
    const wave_tile tile = tile_of(wave);
    float d_bias[OTHER_ROWS / 2];
    uint n = 0;
    UNROLL_FOR (int i = 0; i < OTHER_ROWS / 2; i++)
        d_bias[i] = 0.0f;
    do { /* once at least, as the compiler then knows */
        /* addresses that wait in registers are too many */
        HIDE_FROM_OPTIMIZER(lane);
        compute_window(d_bias, &memory, &call, n, &tile, lane);
    } while (++n < job.windows.count);
    if ((args.forward.flags & ARG_DBIAS) != 0 && tile.owns)
        store_bias_sums(d_bias, &call, tile.number, lane);
}
