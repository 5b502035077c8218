/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of windows on NVIDIA's Hopper, behind window_rows_wgmma.cl:
 * dK and dV, the other way round.
 *
 * A work-group owns BLOCK_KEYS keys of a head, 64 for each of its warpgroups
 * but the last, the producer, and goes from window to window. All rows of a
 * window are in local memory, over which a warpgroup loops, BLOCK_ROWS at a
 * time:
 *
 *   P^T = exp(scale K Q^T + bias - lse),  dS^T = P^T (V dO^T - delta),
 *   dV += P^T dO,  dK += scale dS^T Q */
#define OWN_ROWS BLOCK_KEYS
#define OTHER_ROWS (CEIL_DIV(NQ, BLOCK_ROWS) * BLOCK_ROWS)
#define TILE_KEYS BLOCK_ROWS /* which are other rows here */
#define WARPGROUPS (BLOCK_KEYS / WARPGROUP_ROWS)
#define OTHER_BYTES BYTES_OF_ROW
#define READS_O 0
#define ROW_BYTES 64
#define OWNS_KEYS 1
#include "hopper/window_tiles.cl"

REQUIRE(BLOCK_ROWS)

/* What is known of a row in local memory, numbers beside each other: its
 * shift, minus lse in units of log 2, plus P_EXPONENT, or where some lse of
 * the window is large what the kernel of rows says for it; (cosine) what q k^
 * is multiplied by; what dP is multiplied by; delta, times minus that. Behind
 * those of all rows, in a window with a large lse, P_EXPONENT less the
 * logarithm of the row's sum where that is not part of lse. */
#define KNOWN_NUMBERS (VARIANT == COSINE ? 4 : 2)
INLINE uint powers_of_rows(const window_ring *ring, uint stage)
{
    return other_numbers(ring, stage) + 4 * KNOWN_NUMBERS * OTHER_ROWS;
}

/* ---- The producer ---- */

/* Of a work-item's rows, what the kernel of rows left. */
typedef struct fetched_numbers {
    float4 row[CEIL_DIV(OTHER_ROWS, WARPGROUP)];
} fetched_numbers;

INLINE fetched_numbers fetch_numbers(const window_call *call, uint n,
                                     uint item)
{
    const window_job *job = call->job;
    __global const float *numbers =
        call->workspace + call->args->workspace +
        ((ulong)(job->windows.first + n) * call->args->forward.heads +
         job->head) *
            NQ * ROW_NUMBERS;
    fetched_numbers x;
    UNROLL_FOR (uint i = 0; i < CEIL_DIV(OTHER_ROWS, WARPGROUP); i++) {
        x.row[i] = vload4(min(item + i * WARPGROUP, NQ - 1u), numbers);
        if (VARIANT != COSINE)
            x.row[i].w = 1.0f;
    }
    return x;
}

/* The numbers of a window's rows; and at wave_numbers the power of two of dS,
 * and whether some lse is large. */
INLINE void keep_numbers(const window_ring *ring, uint stage,
                         const fetched_numbers *x, uint item)
{
    float bound = 0.0f;
    int large = 0;
    UNROLL_FOR (uint i = 0; i < CEIL_DIV(OTHER_ROWS, WARPGROUP); i++) {
        const float size = fabs(x->row[i].x);
        bound = fmax(bound, bound_of(x->row[i].z) * x->row[i].w);
        large |= size > LARGE_LSE && size < INFINITY;
    }
    /* the flag is the last bit of a bound, for which that is nothing */
    large = WAVE_ANY(large);
    store_word(wave_numbers(ring, stage) + item / WAVE * 4,
               (largest_of_wave(as_uint(bound)) & ~1u) | (uint)large);
    sync_fetching();
    const uint4 all = load_chunk(wave_numbers(ring, stage));
    const uint most = max(max(all.x, all.y), max(all.z, all.w));
    const float ds_scale =
        RESCALES ? ds_scale_for(as_float(most & ~1u)) : 1.0f;
    large = (int)((all.x | all.y | all.z | all.w) & 1u);
    sync_fetching();
    if (item == 0) {
        store_number(wave_numbers(ring, stage), ds_scale);
        store_word(wave_numbers(ring, stage) + 4, (uint)large);
    }
    UNROLL_FOR (uint i = 0; i < CEIL_DIV(OTHER_ROWS, WARPGROUP); i++) {
        const uint row = item + i * WARPGROUP;
        const float4 known = x->row[i];
        const float factor = known.w * (ds_scale / P_SCALE);
        const float lse = row < NQ ? known.x : INFINITY;
        const float shift = large ? lse : FMA(-lse, LOG2E, P_EXPONENT);
        const uint to = other_numbers(ring, stage) + row * (4 * KNOWN_NUMBERS);
        if (row >= OTHER_ROWS)
            break;
        if (large)
            store_number(powers_of_rows(ring, stage) + 4 * row,
                         P_EXPONENT - log_sum_of(known.z));
        if (VARIANT == COSINE) {
            store_chunk(to, as_uint4((float4)(shift, known.w, factor,
                                              -known.y * factor)));
        } else {
            store_number(to, shift);
            store_number(to + 4, -known.y * factor);
        }
    }
}

/* Norms of a stage's keys, once these are there. */
INLINE void measure_window(const window_ring *ring, uint stage, uint item)
{
#if VARIANT == COSINE
    sync_fetching();
    measure_own_rows(ring, stage, item);
#endif
    arrive(window_filled(ring, stage));
}

/* What comes later is under way before an earlier window is measured, where
 * there are stages for that. */
#define LAG (STAGES > 2 ? 1 : 0)
INLINE void fetch(const window_call *call, uint item)
{
    const window_ring *ring = call->ring;
    const uint count = call->job->windows.count;
    NO_UNROLL_FOR (uint n = 0; n < count + LAG; n++) {
        if (n < count) {
            const fetched_numbers numbers = fetch_numbers(call, n, item);
            fetch_window(call, n, item);
            keep_numbers(ring, n % STAGES, &numbers, item);
        } else {
            END_COPIES();
        }
        AWAIT_COPIES(LAG);
        if (n >= LAG)
            measure_window(ring, (n - LAG) % STAGES, item);
    }
}

/* ---- Consumers ---- */

/* What is known of a wave's keys, besides where they are. */
typedef struct key_numbers {
    float scale[2]; /* of products of the lane's keys, to logits */
    float factor;   /* by which dP is multiplied (dot) */
} key_numbers;

typedef struct key_state {
    float dk[OUTS], dv[OUTS];
    uint p[BLOCK_ROWS / 4], ds[BLOCK_ROWS / 4];
} key_state;

/* Loads a lane's rows' first numbers (0), or the last (1), of a tile; all that
 * there are where these are two. */
INLINE void load_known(float4 *to, const wave_rows *keys, uint first,
                       const uint part)
{
    UNROLL_FOR (uint j = 0; j < BLOCK_ROWS / 8; j++) {
        const uint row = first + 8 * j + 2 * (keys->lane % 4);
        const uint from =
            other_numbers(keys->ring, keys->stage) + row * (4 * KNOWN_NUMBERS);
        if (VARIANT != COSINE)
            to[j] = as_float4(load_chunk(from));
        else
            to[j] = (float4)(load_floats(from + 8 * part),
                             load_floats(from + 16 + 8 * part));
    }
}

/* Products of keys with a tile's rows become P_SCALE P^T. words: their biases.
 * large: is some lse? regions: has the window several? */
INLINE void exponentiate(float *s, const uint *words, const float4 *known,
                         const wave_rows *keys, const key_numbers *of,
                         uint first, const int large, const int regions)
{
    const uint powers = powers_of_rows(keys->ring, keys->stage) + 4 * first;
    lane_regions lane_has;
    if (HAS_REGIONS && regions)
        lane_has = regions_of_lane(keys);
    UNROLL_FOR (uint j = 0; j < BLOCK_ROWS / 8; j++) {
        float bias[8];
        float *own = s + 4 * j;
        unpack_pairs(bias, words + PAIR_WORDS * (j / 2));
        if (HAS_REGIONS && regions)
            add_region_values(bias, &lane_has, first + j / 2 * 16);
        const float shift[2] = {known[j].x, known[j].z};
        float power[2] = {P_EXPONENT, P_EXPONENT};
        if (large) {
            const float2 pair =
                load_floats(powers + 4 * (8 * j + 2 * (keys->lane % 4)));
            power[0] = pair.x;
            power[1] = pair.y;
        }
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = 2 * r + i;
                const float term = bias[j % 2 * 4 + n];
                const float scale = of->scale[r];
                if (VARIANT == COSINE)
                    own[n] *= i ? known[j].w : known[j].y;
                if (large) {
                    /* not below 0 by what the products rounded; no fmin, as
                     * what is no number stays none */
                    const float less = FMA(own[n], scale, term) - shift[i];
                    own[n] =
                        EXP2(FMA(less > 0.0f ? 0.0f : less, LOG2E, power[i]));
                } else
                    own[n] = EXP2(FMA(own[n], scale * LOG2E,
                                      FMA(term, LOG2E, shift[i])));
            }
    }
}

/* P^T and dP^T become dS^T, as an operand. */
INLINE void differentiate(uint *ds, const float *p, const float *dp,
                          const float4 *known, float factor)
{
    UNROLL_FOR (int j = 0; j < BLOCK_ROWS / 8; j++) {
        const float low = VARIANT == COSINE ? known[j].x : factor;
        const float high = VARIANT == COSINE ? known[j].z : factor;
        UNROLL_FOR (int r = 0; r < 2; r++)
            ds[2 * j + r] = PACK(
                p[SCORE(j, r, 0)] * FMA(dp[SCORE(j, r, 0)], low, known[j].y),
                p[SCORE(j, r, 1)] * FMA(dp[SCORE(j, r, 1)], high, known[j].w));
    }
}

INLINE void hold_state(key_state *x)
{
    HOLD_OUTS(x->dk);
    HOLD_OUTS(x->dv);
    HOLD_WEIGHTS(x->p);
    HOLD_WEIGHTS(x->ds);
}

/* A window's rows. */
INLINE void add_rows(key_state *x, const wave_rows *keys,
                     const key_numbers *of, const int large, const int regions)
{
    uint words[BIAS_WORDS];
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        x->dk[i] = x->dv[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < WEIGHTS; i++)
        x->p[i] = x->ds[i] = 0;
    if (LOADS_AHEAD)
        load_biases(words, keys, 0);
    NO_UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_ROWS) {
        float s[SCORES], dp[SCORES];
        float4 known[BLOCK_ROWS / 8];
        AWAIT_PRODUCTS(0);
        hold_state(x);
        if (!LOADS_AHEAD)
            load_biases(words, keys, first);
        load_known(known, keys, first, 0);
        start_tile(s, dp, keys, first);
        AWAIT_PRODUCTS(1);
        HOLD_SCORES(s);
        exponentiate(s, words, known, keys, of, first, large, regions);
        pack_pairs(x->p, s, WEIGHTS);
        if (LOADS_AHEAD)
            load_biases(words, keys, NEXT_TILE(first));
        HOLD_WEIGHTS(x->p);
        HOLD_OUTS(x->dv);
        if (VARIANT == COSINE)
            load_known(known, keys, first, 1);
        start_products();
        multiply_values(x->dv, x->p, other_rows(keys, OTHER_SECOND, first),
                        BLOCK_ROWS);
        end_products();
        AWAIT_PRODUCTS(1);
        HOLD_SCORES(dp);
        differentiate(x->ds, s, dp, known, of->factor);
        HOLD_WEIGHTS(x->ds);
        HOLD_OUTS(x->dk);
        start_products();
        multiply_values(x->dk, x->ds, other_rows(keys, OTHER_FIRST, first),
                        BLOCK_ROWS);
        end_products();
    }
    AWAIT_PRODUCTS(0);
    hold_state(x);
}

/* Window n of the work-group's. */
INLINE void compute_window(const window_call *call, uint n, uint wave,
                           int lane)
{
    const backward_args *args = call->args;
    const forward_args *forward = &args->forward;
    const window_ring *ring = call->ring;
    const uint stage = n % STAGES;
    const uint of_wave = wave % 4 * 16 * WINDOW_PITCH;
    wave_rows keys;
    key_state x;
    float inverses[2];
    await_rows(&keys, call, n, wave / 4 * 4, wave, lane);
    const int regions = have_regions(&keys);
    const float ds_scale = load_number(wave_numbers(ring, stage));
    const float back = inverse_ds_scale(ds_scale);
    key_numbers of = {.factor = ds_scale / P_SCALE};
    if (VARIANT == COSINE)
        load_row_numbers(inverses, own_numbers(ring, stage), &keys);
    UNROLL_FOR (int r = 0; r < 2; r++)
        of.scale[r] = VARIANT == COSINE ? inverses[r] : forward->scale;
    if (load_word(wave_numbers(ring, stage) + 4))
        add_rows(&x, &keys, &of, 1, regions);
    else if (regions) /* a question for each tile would cost more */
        add_rows(&x, &keys, &of, 0, 1);
    else
        add_rows(&x, &keys, &of, 0, 0);
    float factor[2];
    UNROLL_FOR (int r = 0; r < 2; r++)
        factor[r] = VARIANT == COSINE ? back : back * forward->scale;
#if VARIANT == COSINE
    float along[2];
    take_back_norm(x.dk, along, factor, inverses, keys.first + of_wave, lane);
#endif
    sync_warpgroup(wave / 4); /* all have read its keys */
    const window_place place = find_place(forward, window_of(call, n));
    const leaving_rows leaving = {.place = &place,
                                  .head = call->job->head,
                                  .row = keys.row,
                                  .end = NK,
                                  .lane = lane,
                                  .flags = forward->flags};
    store_gradient(x.dk, factor, keys.first + of_wave, call->dk, &args->dk,
                   &leaving, ARG_DK);
    factor[0] = factor[1] = 1.0f / P_SCALE;
    store_gradient(x.dv, factor, keys.second + of_wave, call->dv, &args->dv,
                   &leaving, ARG_DV);
    WAVE_SYNC();
    leave(window_was_read(ring, stage), lane);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
window_keys_wgmma(BACKWARD_PARAMETERS)
{
    __local uchar memory[WINDOW_LOCAL_BYTES] __attribute__((aligned(1024)));
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    int lane = (int)(item % WAVE);
    const window_ring ring = {local_address(memory)};
    DECLARE_REGISTERS();
    const window_job job = find_job(&args);
    if (job.windows.count == 0)
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
    NO_UNROLL_FOR (uint n = 0; n < job.windows.count; n++) {
        HIDE_FROM_OPTIMIZER(lane); /* addresses that wait are too many */
        compute_window(&call, n, wave, lane);
    }
}
