/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of windows on NVIDIA's Hopper: what concerns rows.
 * window_keys_wgmma.cl follows.
 *
 * A work-group owns BLOCK_ROWS rows of a head, 64 for each of its warpgroups
 * but the last, which fetches, and goes from window to window. All keys of a
 * window are in local memory, over which a warpgroup loops twice: for
 * statistics,
 *
 *   S = scale Q K^T + bias,  sums of exp(S - max) and of that times dO V^T,
 *
 * BLOCK_KEYS keys at a time, and for gradients, SUBTILE_KEYS at a time,
 *
 *   dS = P (dO V^T - delta),  dQ += scale dS K,  dBias += dS.
 *
 * Sums of dBias over windows stay in registers. o is not read, and of lse only
 * that it is near the logarithm of the sum of exponentials: P sums to 1 and dS
 * to d_lse whatever was rounded there. The kernel of keys
 * gets from each row, by way of the workspace, (x) lse, +infinity where it
 * sees nothing; (y) delta; (z) a bound of |dS|; (w) what q k^ is multiplied by
 * (cosine). */
#define OWN_ROWS (NQ < BLOCK_ROWS ? CEIL_DIV(NQ, 16) * 16 : BLOCK_ROWS)
#define OTHER_ROWS (CEIL_DIV(NK, BLOCK_KEYS) * BLOCK_KEYS)
#include "hopper/gradient_windows.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(SUBTILE_KEYS)

typedef char tiles_are_whole[OTHER_ROWS % SUBTILE_KEYS == 0 ? 1 : -1];

#define multiply_statistics JOIN(multiply_, BLOCK_KEYS)
#define hold_statistics JOIN(hold_, BLOCK_KEYS)
#define multiply_gradients JOIN(multiply_, SUBTILE_KEYS)
#define hold_gradients JOIN(hold_, SUBTILE_KEYS)

/* A wave's 16 rows of a window. */
typedef struct wave_rows {
    uint wave; /* among those of the work-group */
    uint row;  /* the first, of the window */
    int exist;
    int lane;
} wave_rows;

/* What a lane has of its two rows. */
typedef struct row_state {
    float top[2]; /* score so far; or lse, where that is known */
    /* of exponentials, of these times dP, and of |dP|; of even and of odd
     * columns, as chains of additions are slow */
    float sum[2][2], delta[2][2], bound[2][2];
    float scale[2];  /* of products of rows, to scores */
    float factor[2]; /* by which exponentials and dP are multiplied */
    float offset[2]; /* delta, times -factor */
    float back[2];   /* from there to dS */
    /* Of the wave: lse is known, and small; top is not. */
    int has_lse, is_large;
} row_state;

/* ---- Scores ---- */

/* What scores of keys need besides, fetched while products are under way:
 * biases, and inverses of norms. */
#define DEFINE_TERMS(name, count)                                             \
    typedef struct name {                                                     \
        uint words[PAIR_WORDS * (count) / 16];                                \
        float2 inverse[(count) / 8];                                          \
    } name
DEFINE_TERMS(statistics_terms, BLOCK_KEYS);
DEFINE_TERMS(gradients_terms, SUBTILE_KEYS);

INLINE void load_terms(uint *words, float2 *inverse, const window_ring *ring,
                       uint stage, uint first, const uint count,
                       const wave_rows *rows)
{
#if BIAS
    UNROLL_FOR (uint c = 0; c < count; c += 16)
        load_pairs(words + PAIR_WORDS * c / 16, ring, rows->wave, first + c,
                   rows->lane);
#endif
    UNROLL_FOR (uint j = 0; j < count / 8; j++)
#if VARIANT == COSINE
        inverse[j] = load_numbers(other_numbers(ring, stage) +
                                  4 * (first + 8 * j + 2 * (rows->lane % 4)));
#else
        inverse[j] = (float2)(1.0f);
#endif
}

/* Products of rows become scores of `count` keys from `first` on. */
INLINE void finish_scores(float *s, const row_state *x, const uint *words,
                          const float2 *inverse, uint first, const uint count,
                          int lane)
{
    UNROLL_FOR (uint j = 0; j < count / 8; j++) {
        float bias[8];
        float *own = s + 4 * j;
        UNROLL_FOR (int i = 0; i < 8; i++)
            bias[i] = 0.0f;
        if (BIAS)
            unpack_pairs(bias, words + PAIR_WORDS * (j / 2));
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (uint i = 0; i < 2; i++) {
                const int n = 2 * r + (int)i;
                float score = own[n];
                if (VARIANT == COSINE)
                    score *= i ? inverse[j].y : inverse[j].x;
                score = FMA(score, x->scale[r], bias[j % 2 * 4 + n]);
                /* of a bias there is one in that place */
                if (!BIAS && OTHER_ROWS != NK)
                    score = first + 8 * j + 2 * (lane % 4) + i < NK
                                ? score
                                : -INFINITY;
                own[n] = score;
            }
    }
}

/* ---- Statistics ---- */

/* A lane has statistics of its own columns at first. Scores become
 * exponentials of what they are less the largest so far. */
INLINE void add_exponentials(row_state *x, float *s)
{
    float subtracted[2], top[2][2];
    UNROLL_FOR (int r = 0; r < 2; r++)
        top[r][0] = top[r][1] = x->top[r];
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                top[r][i] = fmax(top[r][i], s[SCORE(j, r, i)]);
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const float now = fmax(top[r][0], top[r][1]);
        /* who has seen nothing has no maximum to subtract */
        subtracted[r] = now == -INFINITY ? 0.0f : now;
        const float rescale = EXP2((x->top[r] - subtracted[r]) * LOG2E);
        x->top[r] = now;
        UNROLL_FOR (int i = 0; i < 2; i++) {
            x->sum[r][i] *= rescale;
            x->delta[r][i] *= rescale;
        }
    }
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] =
                    EXP2((s[SCORE(j, r, i)] - subtracted[r]) * LOG2E);
}

/* The same less lse. */
INLINE void exponentiate(const row_state *x, float *s)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] =
                    EXP2(FMA(s[SCORE(j, r, i)], LOG2E, -x->top[r] * LOG2E));
}

INLINE void add_delta(row_state *x, const float *s, const float *dp)
{
    UNROLL_FOR (int j = 0; j < BLOCK_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                x->sum[r][i] += s[n];
                x->delta[r][i] = FMA(s[n], dp[n], x->delta[r][i]);
                if (RESCALES)
                    x->bound[r][i] += fabs(dp[n]);
            }
}

/* The products of a warpgroup's queries and dO with a tile of keys, in two
 * groups: scores and dP. */
#define START_TILE(multiply, s, dp, first)                                    \
    start_products();                                                         \
    multiply(s, q_rows,                                                       \
             window_rows(ring, stage, OTHER_FIRST) + (first)*WINDOW_PITCH);   \
    end_products();                                                           \
    multiply(dp, d_o_rows,                                                    \
             window_rows(ring, stage, OTHER_SECOND) + (first)*WINDOW_PITCH);  \
    end_products()

/* lse: of the lane's rows, if it is given. */
INLINE void start_statistics(row_state *x, const float *lse, int has_lse)
{
    int suits = has_lse;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        suits &= fabs(lse[r]) <= LARGE_LSE || lse[r] == -INFINITY;
        UNROLL_FOR (int i = 0; i < 2; i++)
            x->sum[r][i] = x->delta[r][i] = x->bound[r][i] = 0.0f;
    }
    x->has_lse = !WAVE_ANY(!suits);
    UNROLL_FOR (int r = 0; r < 2; r++)
        x->top[r] = !x->has_lse           ? -INFINITY
                    : lse[r] == -INFINITY ? 0.0f
                                          : lse[r];
}

INLINE void find_statistics(row_state *x, const window_ring *ring, uint stage,
                            uint q_rows, uint d_o_rows, const wave_rows *rows)
{
    NO_UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_KEYS) {
        float s[BLOCK_KEYS / 2], dp[BLOCK_KEYS / 2];
        statistics_terms terms;
        START_TILE(multiply_statistics, s, dp, first);
        if (rows->exist)
            load_terms(terms.words, terms.inverse, ring, stage, first,
                       BLOCK_KEYS, rows);
        AWAIT_PRODUCTS(1);
        hold_statistics(s);
        if (rows->exist) {
            finish_scores(s, x, terms.words, terms.inverse, first, BLOCK_KEYS,
                          rows->lane);
            if (x->has_lse)
                exponentiate(x, s);
            else
                add_exponentials(x, s);
        }
        AWAIT_PRODUCTS(0);
        hold_statistics(dp);
        if (rows->exist)
            add_delta(x, s, dp);
    }
}

/* The four lanes that share rows join theirs; d_lse: of the lane's rows;
 * inverse: of the shortest key. Leaves what the loop for gradients and the
 * kernel of keys, at `numbers`, must know. */
INLINE void join_statistics(row_state *x, const float *d_lse, float inverse,
                            __global float *numbers, const wave_rows *rows)
{
    int is_large = 0;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = rows->row + rows->lane / 4 + 8 * r;
        float top = x->top[r];
        REDUCE(top, fmax);
        const float subtracted = top == -INFINITY ? 0.0f : top;
        const float rescale = EXP2((x->top[r] - subtracted) * LOG2E);
        float sum = (x->sum[r][0] + x->sum[r][1]) * rescale;
        float delta = (x->delta[r][0] + x->delta[r][1]) * rescale;
        float bound = x->bound[r][0] + x->bound[r][1];
        REDUCE(sum, ADD_PAIR);
        REDUCE(delta, ADD_PAIR);
        if (RESCALES) {
            REDUCE(bound, ADD_PAIR);
        }
        const float part = sum == 0.0f ? 0.0f : RECIPROCAL(sum);
        delta = FMA(delta, part, -d_lse[r]);
        bound = FMA(bound, 2.0f, fabs(d_lse[r]));
        const float ds_scale = RESCALES ? ds_scale_for(bound * inverse) : 1.0f;
        x->top[r] = subtracted;
        is_large |= !(fabs(subtracted) <= LARGE_LSE);
        x->factor[r] = part * ds_scale;
        x->offset[r] = -delta * x->factor[r];
        x->back[r] = inverse_ds_scale(ds_scale);
        if (rows->lane % 4 == 0 && row < NQ) {
            const float4 known = {
                sum == 0.0f ? INFINITY
                            : FMA(log2_unit(sum), 1.0f / LOG2E, subtracted),
                delta, bound, x->scale[r]};
            vstore4(known, row, numbers);
        }
    }
    x->is_large = WAVE_ANY(is_large);
}

/* ---- Gradients ---- */

/* Scores become exponentials, of SUBTILE_KEYS keys. */
INLINE void exponentiate_again(float *s, const row_state *x)
{
    UNROLL_FOR (int j = 0; j < SUBTILE_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                s[n] = x->is_large
                           ? EXP2((s[n] - x->top[r]) * LOG2E)
                           : EXP2(FMA(s[n], LOG2E, -x->top[r] * LOG2E));
            }
}

/* These and dP become dS, as an operand. */
INLINE void differentiate(uint *ds, float *d_bias, const float *e,
                          const float *dp, const row_state *x,
                          const float2 *inverse)
{
    UNROLL_FOR (int j = 0; j < SUBTILE_KEYS / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            float d[2];
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = SCORE(j, r, i);
                d[i] = e[n] * FMA(dp[n], x->factor[r], x->offset[r]);
                if (BIAS)
                    d_bias[n] = FMA(d[i], x->back[r], d_bias[n]);
            }
            ds[2 * j + r] = VARIANT == COSINE ? PACK(d[0] * inverse[j].x,
                                                     d[1] * inverse[j].y)
                                              : PACK(d[0], d[1]);
        }
}

INLINE void find_gradients(float *dq, float *d_bias, const row_state *x,
                           const window_ring *ring, uint stage, uint q_rows,
                           uint d_o_rows, const wave_rows *rows)
{
    uint ds[SUBTILE_KEYS / 4];
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        dq[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < SUBTILE_KEYS / 4; i++)
        ds[i] = 0;
    UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += SUBTILE_KEYS) {
        float s[SUBTILE_KEYS / 2], dp[SUBTILE_KEYS / 2];
        gradients_terms terms;
        START_TILE(multiply_gradients, s, dp, first);
        if (rows->exist)
            load_terms(terms.words, terms.inverse, ring, stage, first,
                       SUBTILE_KEYS, rows);
        AWAIT_PRODUCTS(1);
        hold_gradients(s);
        HOLD_OUTS(dq);
        hold_words(ds, SUBTILE_KEYS / 4);
        if (rows->exist) {
            finish_scores(s, x, terms.words, terms.inverse, first,
                          SUBTILE_KEYS, rows->lane);
            exponentiate_again(s, x);
        }
        AWAIT_PRODUCTS(0);
        hold_gradients(dp);
        if (rows->exist)
            differentiate(ds, d_bias + first / 2, s, dp, x, terms.inverse);
#if BIAS /* now, as what is to be added takes as many registers */
        hold_gradients(d_bias + first / 2);
#endif
        hold_words(ds, SUBTILE_KEYS / 4);
        HOLD_OUTS(dq);
        start_products();
        add_products(dq, ds,
                     window_rows(ring, stage, OTHER_FIRST) +
                         first * WINDOW_PITCH,
                     SUBTILE_KEYS);
        end_products();
    }
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(dq);
    hold_words(ds, SUBTILE_KEYS / 4);
}

/* ---- The work-group's parts ---- */

typedef struct row_tensors {
    __global const storage *q, *k, *v, *d_o;
} row_tensors;

INLINE void fetch_window(const window_ring *ring, uint stage,
                         const row_tensors *from, const backward_args *args,
                         ulong window, uint head, uint first_row, uint item,
                         int wide)
{
    const forward_args *forward = &args->forward;
    const uint count = min((uint)OWN_ROWS, NQ - first_row);
    fetch_window_rows(window_rows(ring, stage, OWN_FIRST),
                      from->q + plane(&forward->q, window, head) +
                          (ulong)first_row * forward->q.row,
                      forward->q.row, count, OWN_ROWS, item, wide);
    fetch_window_rows(window_rows(ring, stage, OTHER_FIRST),
                      from->k + plane(&forward->k, window, head),
                      forward->k.row, NK, NK, item, wide);
    fetch_window_rows(window_rows(ring, stage, OWN_SECOND),
                      from->d_o + plane(&args->d_o, window, head) +
                          (ulong)first_row * args->d_o.row,
                      args->d_o.row, count, OWN_ROWS, item, wide);
    fetch_window_rows(window_rows(ring, stage, OTHER_SECOND),
                      from->v + plane(&forward->v, window, head),
                      forward->v.row, NK, NK, item, wide);
    arrive_filled_window(window_filled(ring, stage), wide);
    END_COPIES();
}

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
            await_phase(window_was_read(ring, n % STAGES), n / STAGES % 2 ^ 1);
            fetch_window(ring, n % STAGES, from, args,
                         args->forward.first_window + windows.first + n, head,
                         first_row, item, wide);
        } else {
            END_COPIES();
        }
        AWAIT_COPIES(LAG);
        if (n >= LAG)
            measure_window(ring, (n - LAG) % STAGES, item);
    }
}

/* Of the lane's rows, of a wave's from `first` on. */
INLINE void read_lse(float *to, __global const float *lse, uint pitch,
                     uint first, int lane)
{
    UNROLL_FOR (int r = 0; r < 2; r++)
        to[r] = lse[(ulong)min(first + lane / 4 + 8 * r, NQ - 1u) * pitch];
}

/* Sums of dBias go to the workspace, of rows from `first` on; adds: to what
 * is there. */
INLINE void store_d_bias(const float *d_bias, __global float *partial,
                         uint first, int lane, int adds)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = first + lane / 4 + 8 * r;
        const uint column = 2 * (lane % 4);
        __global float *to = partial + (ulong)row * NK + column;
        if (row >= NQ)
            continue;
        UNROLL_FOR (uint j = 0; j < OTHER_ROWS / 8; j++)
            UNROLL_FOR (uint i = 0; i < 2; i++) {
                const uint key = 8 * j + i;
                if (OTHER_ROWS == NK || key + column < NK) {
                    if (adds)
                        to[key] += d_bias[SCORE(j, r, i)];
                    else
                        to[key] = d_bias[SCORE(j, r, i)];
                }
            }
    }
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
window_rows_wgmma(BACKWARD_PARAMETERS)
{
    __local uchar memory[WINDOW_LOCAL_BYTES] __attribute__((aligned(1024)));
    __local float *wave_sums =
        (__local float *)(memory + WINDOW_LOCAL_BYTES - WINDOW_SUM_BYTES);
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item), warpgroup = wave / 4;
    int lane = (int)(item % WAVE);
    const int wide = (flags & ARG_WIDE_ACCESS) != 0;
    const window_ring ring = {local_address(memory)};
    DECLARE_REGISTERS();
    const uint head_blocks = forward->heads * forward->row_blocks;
    const uint head_block = (uint)get_group_id(0) % head_blocks;
    const uint split = (uint)get_group_id(0) / head_blocks;
    const uint head = head_block / forward->row_blocks;
    const uint row_block = head_block % forward->row_blocks;
    const uint first_row = row_block * BLOCK_ROWS;
    const window_split windows = find_split(forward, split);
    if (windows.count == 0) /* in no first launch */
        return;
    if (item < 2 * STAGES)
        make_window_barrier(&ring, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (warpgroup == WARPGROUPS) {
        LEAVE_REGISTERS();
        const row_tensors from = {q, k, v, d_o};
        fetch(&ring, &from, &args, windows, head, first_row, item % WARPGROUP,
              wide);
        return;
    }
    TAKE_REGISTERS();
    clear_fill(&ring, NK, item);
#if BIAS
    const work_tile here = {.window = forward->first_window, .head = head};
    DECLARE_SCORE_BIAS(score_bias, *forward, here)
    keep_bias(&ring, forward, &score_bias, first_row, item, 0);
#endif
    sync_computing();
    const float scale = HEAD_SCALE(forward, logit_scale, head);
    float d_bias[BIAS ? OTHER_ROWS / 2 : 1];
    float scale_sum = 0.0f;
    const uint count = min((uint)BLOCK_ROWS, NQ - first_row);
    UNROLL_FOR (int i = 0; i < (BIAS ? OTHER_ROWS / 2 : 1); i++)
        d_bias[i] = 0.0f;
    const int has_lse = (flags & ARG_LSE) != 0;
    float next_lse[2] = {0.0f, 0.0f};
    if (has_lse)
        read_lse(next_lse,
                 lse + plane(&forward->lse,
                             forward->first_window + windows.first, head),
                 forward->lse.row,
                 first_row + place_wave(wave, count, 0).first, lane);
    uint n = 0;
    do { /* once at least, as the compiler then knows */
        /* addresses that wait in registers are too many */
        HIDE_FROM_OPTIMIZER(lane);
        const wave_place place = place_wave(wave, count, n);
        const wave_rows rows = {.wave = place.first / 16,
                                .row = first_row + place.first,
                                .exist =
                                    ALL_WAVES_HAVE_ROWS(NQ) || place.exists,
                                .lane = lane};
        const ulong window = forward->first_window + windows.first + n;
        const uint stage = n % STAGES;
        const uint of_warpgroup = place.base * WINDOW_PITCH;
        const uint q_rows =
            window_rows(&ring, stage, OWN_FIRST) + of_warpgroup;
        const uint d_o_rows =
            window_rows(&ring, stage, OWN_SECOND) + of_warpgroup;
        row_state x = {.back = {0.0f}};
        float dq_sums[OUTS], dlse[2], factor[2], largest = 1.0f;
        const float own_lse[2] = {next_lse[0], next_lse[1]};
        UNROLL_FOR (int r = 0; r < 2; r++) {
            const uint row = min(rows.row + lane / 4 + 8 * r, NQ - 1u);
            dlse[r] = (flags & ARG_D_LSE) != 0
                          ? d_lse[plane(&args.d_lse, window, head) +
                                  (ulong)row * args.d_lse.row]
                          : 0.0f;
        }
        await_phase(window_filled(&ring, stage), n / STAGES % 2);
        show_to_products();
        UNROLL_FOR (int r = 0; r < 2; r++)
            x.scale[r] = scale;
#if VARIANT == COSINE
        float inverses[2];
        UNROLL_FOR (int r = 0; r < 2; r++) {
            inverses[r] = load_number(
                own_numbers(&ring, stage) +
                4 * min(place.first + lane / 4 + 8 * r, OWN_ROWS - 1u));
            x.scale[r] *= inverses[r];
        }
        const float4 of_waves =
            as_float4(load_chunk(wave_numbers(&ring, stage)));
        largest =
            fmax(fmax(of_waves.x, of_waves.y), fmax(of_waves.z, of_waves.w));
#endif
        start_statistics(&x, own_lse, has_lse);
        /* the next window's, which then comes meanwhile */
        if (has_lse && n + 1 < windows.count)
            read_lse(next_lse, lse + plane(&forward->lse, window + 1, head),
                     forward->lse.row,
                     first_row + place_wave(wave, count, n + 1).first, lane);
        find_statistics(&x, &ring, stage, q_rows, d_o_rows, &rows);
        if (rows.exist)
            join_statistics(
                &x, dlse, largest,
                workspace + args.workspace +
                    ((ulong)(windows.first + n) * forward->heads + head) * NQ *
                        ROW_NUMBERS,
                &rows);
        find_gradients(dq_sums, d_bias, &x, &ring, stage, q_rows, d_o_rows,
                       &rows);
        const uint own_q = q_rows + wave % 4 * 16 * WINDOW_PITCH;
        UNROLL_FOR (int r = 0; r < 2; r++)
            factor[r] = x.back[r] * scale;
#if VARIANT == COSINE
        float along[2];
        take_back_norm(dq_sums, along, factor, inverses, own_q, lane);
        UNROLL_FOR (int r = 0; r < 2; r++) {
            factor[r] = 1.0f;
            if (rows.exist && lane % 4 == 0 &&
                rows.row + lane / 4 + 8 * r < NQ)
                scale_sum += along[r];
        }
#endif
        sync_warpgroup(warpgroup); /* all have read its queries */
        if (rows.exist && (flags & ARG_DQ) != 0)
            store_window_rows(dq_sums, factor, own_q,
                              dq + plane(&args.dq, window, head), args.dq.row,
                              rows.row, NQ, lane, (flags & ARG_ADD_DQ) != 0,
                              wide);
        WAVE_SYNC();
        leave_window(window_was_read(&ring, stage), lane);
    } while (++n < windows.count);
#if BIAS
    const uint waves = waves_of(warpgroup, count);
    /* those that took turns one after the other */
    for (uint turn = 0;
         (flags & ARG_DBIAS) != 0 && waves > 0 && turn < 4 / waves; turn++) {
        const uint own = wave % 4;
        if (own / waves == turn)
            store_d_bias(
                d_bias,
                workspace + args.bias_partials +
                    ((ulong)split * forward->heads + head) * NQ * (ulong)NK,
                first_row + warpgroup * WARPGROUP_ROWS + own % waves * 16,
                lane, turn > 0 || (flags & ARG_FIRST_LAUNCH) == 0);
        sync_warpgroup(warpgroup);
    }
#endif
#if VARIANT == COSINE
    REDUCE_WAVE(scale_sum, ADD_PAIR);
    if (lane == 0)
        wave_sums[wave] = scale_sum;
    sync_computing();
    if (item == 0 && (flags & ARG_D_LOGIT_SCALE) != 0) {
        __global float *to =
            workspace + args.scale_partials +
            ((ulong)split * forward->row_blocks + row_block) * forward->heads +
            head;
        float sum = 0.0f;
        for (uint i = 0; i < WARPGROUPS * (WARPGROUP / WAVE); i++)
            sum += wave_sums[i];
        sum = scale_gradient(forward, logit_scale, head, sum);
        *to = (flags & ARG_FIRST_LAUNCH) != 0 ? sum : *to + sum;
    }
#endif
}
