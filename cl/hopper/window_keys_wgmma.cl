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
#include "hopper/gradient_windows.cl"

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

INLINE fetched_numbers fetch_numbers(__global const float *numbers, uint item)
{
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

typedef struct key_tensors {
    __global const storage *q, *k, *v, *d_o;
    __global const float *numbers;
    score_bias_tensors score_bias;
} key_tensors;

/* Keys of a head in some windows. */
typedef struct key_job {
    uint head, first_key;
    window_split windows;
    uint flags; /* of the call */
    int wide;   /* rows allow accesses of 16 bytes */
} key_job;

INLINE void fetch_window(const window_ring *ring, uint stage,
                         const key_tensors *from, const backward_args *args,
                         ulong window, const key_job *job, uint item)
{
    const forward_args *forward = &args->forward;
    const int wide = job->wide;
    const uint head = job->head, first_key = job->first_key;
    const window_place place = find_place(forward, window);
    const uint count = min((uint)OWN_ROWS, NK - first_key);
    fetch_window_rows(window_rows(ring, stage, OWN_FIRST), from->k,
                      &forward->k, &place, head, first_key, count, OWN_ROWS,
                      item, wide);
    fetch_window_rows(window_rows(ring, stage, OTHER_FIRST), from->q,
                      &forward->q, &place, head, 0, NQ, NQ, item, wide);
    fetch_window_rows(window_rows(ring, stage, OWN_SECOND), from->v,
                      &forward->v, &place, head, first_key, count, OWN_ROWS,
                      item, wide);
    fetch_window_rows(window_rows(ring, stage, OTHER_SECOND), from->d_o,
                      &args->d_o, &place, head, 0, NQ, NQ, item, wide);
    arrive_filled(window_filled(ring, stage), wide);
    END_COPIES();
}

/* Norms of a stage's keys, once these are there. */
INLINE void measure_window(const window_ring *ring, uint stage, uint item)
{
#if VARIANT == COSINE
    sync_fetching();
    UNROLL_FOR (uint r = 0; r < OWN_ROWS; r += WARPGROUP)
        if (r + item < OWN_ROWS)
            store_number(
                own_numbers(ring, stage) + 4 * (r + item),
                inverse_of_row(window_rows(ring, stage, OWN_FIRST), r + item));
#endif
    arrive(window_filled(ring, stage));
}

/* What comes later is under way before an earlier window is measured, where
 * there are stages for that. */
#define LAG (STAGES > 2 ? 1 : 0)
INLINE void fetch(const window_ring *ring, const key_tensors *from,
                  const backward_args *args, const key_job *job, uint item)
{
    const forward_args *forward = &args->forward;
    const window_split windows = job->windows;
    const uint head = job->head, first_key = job->first_key;
    NO_UNROLL_FOR (uint n = 0; n < windows.count + LAG; n++) {
        if (n < windows.count) {
            const fetched_numbers numbers = fetch_numbers(
                from->numbers +
                    ((ulong)(windows.first + n) * forward->heads + head) * NQ *
                        ROW_NUMBERS,
                item);
            const ulong window = forward->first_window + windows.first + n;
            const fetched_regions regions = fetch_regions(
                &from->score_bias, forward, window, first_key, 1, item);
            await_phase(window_was_read(ring, n % STAGES), n / STAGES % 2 ^ 1);
            fetch_window(ring, n % STAGES, from, args, window, job, item);
            keep_numbers(ring, n % STAGES, &numbers, item);
            keep_regions(ring, n % STAGES, &regions, item);
        } else {
            END_COPIES();
        }
        AWAIT_COPIES(LAG);
        if (n >= LAG)
            measure_window(ring, (n - LAG) % STAGES, item);
    }
}

/* ---- Consumers ---- */

/* A wave's 16 keys of a window. */
typedef struct wave_keys {
    uint wave; /* among those of the work-group */
    int lane;
    float scale[2]; /* of products of the lane's keys, to logits */
    float factor;   /* by which dP is multiplied (dot) */
    float region_value;
} wave_keys;

typedef struct key_state {
    float dk[OUTS], dv[OUTS];
    uint p[BLOCK_ROWS / 4], ds[BLOCK_ROWS / 4];
} key_state;

/* Of two rows of a lane the first numbers (0), or the last (1); all that there
 * are where these are two. */
INLINE float4 load_known(const window_ring *ring, uint stage, uint first,
                         const uint part, int lane)
{
    const uint from = other_numbers(ring, stage) +
                      (first + 2 * (lane % 4)) * (4 * KNOWN_NUMBERS);
    if (VARIANT != COSINE)
        return as_float4(load_chunk(from));
    const float2 low = load_numbers(from + 8 * part);
    const float2 high = load_numbers(from + 16 + 8 * part);
    return (float4)(low, high);
}

/* Products of keys become P_SCALE P^T. powers: those of the tile's rows, where
 * some lse is large. regions: NULL, or those of the lane, in a window that has
 * several; `first`: of the tile's rows. */
INLINE void exponentiate(float *s, const uint *words, const float4 *known,
                         const int large, uint powers, const wave_keys *keys,
                         const lane_regions *regions, uint first)
{
    UNROLL_FOR (uint j = 0; j < BLOCK_ROWS / 8; j++) {
        float bias[8];
        float *own = s + 4 * j;
        unpack_pairs(bias, words + PAIR_WORDS * (j / 2));
        if (regions)
            add_region_values(bias, regions, first + j / 2 * 16);
        const float shift[2] = {known[j].x, known[j].z};
        float power[2] = {P_EXPONENT, P_EXPONENT};
        if (large) {
            const float2 pair =
                load_numbers(powers + 4 * (8 * j + 2 * (keys->lane % 4)));
            power[0] = pair.x;
            power[1] = pair.y;
        }
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++) {
                const int n = 2 * r + i;
                const float term = bias[j % 2 * 4 + n];
                const float scale = keys->scale[r];
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

/* Biases of the rows of a tile. */
INLINE void load_biases(uint *words, const window_ring *ring, uint first,
                        const wave_keys *keys)
{
    UNROLL_FOR (uint c = 0; c < BLOCK_ROWS; c += 16)
        load_pairs(words + PAIR_WORDS * c / 16, ring, keys->wave, first + c,
                   keys->lane);
}

/* P^T and dP^T become dS^T, as an operand. */
INLINE void differentiate(uint *ds, const float *p, const float *dp,
                          const float4 *known, const wave_keys *keys)
{
    UNROLL_FOR (int j = 0; j < BLOCK_ROWS / 8; j++) {
        const float low = VARIANT == COSINE ? known[j].x : keys->factor;
        const float high = VARIANT == COSINE ? known[j].z : keys->factor;
        UNROLL_FOR (int r = 0; r < 2; r++)
            ds[2 * j + r] = PACK(
                p[SCORE(j, r, 0)] * FMA(dp[SCORE(j, r, 0)], low, known[j].y),
                p[SCORE(j, r, 1)] * FMA(dp[SCORE(j, r, 1)], high, known[j].w));
    }
}

/* A window's rows. k, v: addresses of the warpgroup's. regions: has the window
 * several? */
INLINE void add_rows(key_state *x, const window_ring *ring, uint stage, uint k,
                     uint v, const int large, const int regions,
                     const wave_keys *keys)
{
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        x->dk[i] = x->dv[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < BLOCK_ROWS / 4; i++)
        x->p[i] = x->ds[i] = 0;
    uint words[PAIR_WORDS * BLOCK_ROWS / 16];
    if (LOADS_AHEAD)
        load_biases(words, ring, 0, keys);
    NO_UNROLL_FOR (uint first = 0; first < OTHER_ROWS; first += BLOCK_ROWS) {
        float s[BLOCK_ROWS / 2], dp[BLOCK_ROWS / 2];
        float4 known[BLOCK_ROWS / 8];
        const uint q_rows =
            window_rows(ring, stage, OTHER_FIRST) + first * WINDOW_PITCH;
        const uint d_o_rows =
            window_rows(ring, stage, OTHER_SECOND) + first * WINDOW_PITCH;
        AWAIT_PRODUCTS(0);
        HOLD_OUTS(x->dk);
        HOLD_OUTS(x->dv);
        hold_words(x->p, BLOCK_ROWS / 4);
        hold_words(x->ds, BLOCK_ROWS / 4);
        if (!LOADS_AHEAD)
            load_biases(words, ring, first, keys);
        UNROLL_FOR (uint j = 0; j < BLOCK_ROWS / 8; j++)
            known[j] = load_known(ring, stage, first + 8 * j, 0, keys->lane);
        start_products();
        multiply_tile(s, k, q_rows);
        end_products();
        multiply_tile(dp, v, d_o_rows);
        end_products();
        AWAIT_PRODUCTS(1);
        HOLD_SCORES(s);
        if (HAS_REGIONS && regions) {
            const lane_regions lane_has =
                find_regions(window_regions(ring, stage), keys->region_value,
                             first_of_wave(keys->wave), keys->lane);
            exponentiate(s, words, known, large,
                         powers_of_rows(ring, stage) + 4 * first, keys,
                         &lane_has, first);
        } else {
            exponentiate(s, words, known, large,
                         powers_of_rows(ring, stage) + 4 * first, keys, 0,
                         first);
        }
        pack_pairs(x->p, s, WEIGHTS);
        if (LOADS_AHEAD)
            load_biases(words, ring, NEXT_TILE(first, BLOCK_ROWS), keys);
        hold_words(x->p, BLOCK_ROWS / 4);
        HOLD_OUTS(x->dv);
        if (VARIANT == COSINE)
            UNROLL_FOR (uint j = 0; j < BLOCK_ROWS / 8; j++)
                known[j] =
                    load_known(ring, stage, first + 8 * j, 1, keys->lane);
        start_products();
        add_products(x->dv, x->p, d_o_rows, BLOCK_ROWS);
        end_products();
        AWAIT_PRODUCTS(1);
        HOLD_SCORES(dp);
        differentiate(x->ds, s, dp, known, keys);
        hold_words(x->ds, BLOCK_ROWS / 4);
        HOLD_OUTS(x->dk);
        start_products();
        add_products(x->dk, x->ds, q_rows, BLOCK_ROWS);
        end_products();
    }
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->dk);
    HOLD_OUTS(x->dv);
    hold_words(x->p, BLOCK_ROWS / 4);
    hold_words(x->ds, BLOCK_ROWS / 4);
}

typedef struct key_outputs {
    __global storage *dk, *dv;
} key_outputs;

/* Window n of the work-group's. */
INLINE void compute_window(const window_ring *ring, const key_job *job,
                           const key_outputs *out, const backward_args *args,
                           uint n, uint wave, int lane)
{
    const forward_args *forward = &args->forward;
    const uint flags = job->flags;
    const int wide = job->wide;
    const ulong window = forward->first_window + job->windows.first + n;
    const uint stage = n % STAGES;
    const uint of_warpgroup = first_of_warpgroup(wave) * WINDOW_PITCH;
    const uint k_rows = window_rows(ring, stage, OWN_FIRST) + of_warpgroup;
    const uint v_rows = window_rows(ring, stage, OWN_SECOND) + of_warpgroup;
    const uint of_wave = wave % 4 * 16 * WINDOW_PITCH;
    wave_keys keys = {
        .wave = wave, .lane = lane, .region_value = forward->region_value};
    key_state x;
    await_phase(window_filled(ring, stage), n / STAGES % 2);
    show_to_products();
    const int regions = has_regions(window_regions(ring, stage));
    const float ds_scale = load_number(wave_numbers(ring, stage));
    float inverses[2] = {1.0f, 1.0f};
    UNROLL_FOR (int r = 0; r < 2; r++) {
#if VARIANT == COSINE
        inverses[r] =
            load_number(own_numbers(ring, stage) +
                        4 * (first_of_wave(wave) + lane / 4 + 8 * r));
        keys.scale[r] = inverses[r];
#else
        keys.scale[r] = forward->scale;
#endif
    }
    keys.factor = ds_scale / P_SCALE;
    if (load_word(wave_numbers(ring, stage) + 4))
        add_rows(&x, ring, stage, k_rows, v_rows, 1, regions, &keys);
    else if (regions) /* a question for each tile would cost more */
        add_rows(&x, ring, stage, k_rows, v_rows, 0, 1, &keys);
    else
        add_rows(&x, ring, stage, k_rows, v_rows, 0, 0, &keys);
    const float back = inverse_ds_scale(ds_scale);
    float factor[2];
    UNROLL_FOR (int r = 0; r < 2; r++)
        factor[r] = VARIANT == COSINE ? back : back * forward->scale;
#if VARIANT == COSINE
    float along[2];
    take_back_norm(x.dk, along, factor, inverses, k_rows + of_wave, lane);
#endif
    sync_warpgroup(wave / 4); /* all have read its keys */
    const window_place place = find_place(forward, window);
    if ((flags & ARG_DK) != 0)
        store_window_rows(x.dk, factor, k_rows + of_wave, out->dk, &args->dk,
                          &place, job->head,
                          job->first_key + first_of_wave(wave), NK, lane,
                          (flags & ARG_ADD_DK) != 0, wide);
    factor[0] = factor[1] = 1.0f / P_SCALE;
    if ((flags & ARG_DV) != 0)
        store_window_rows(x.dv, factor, v_rows + of_wave, out->dv, &args->dv,
                          &place, job->head,
                          job->first_key + first_of_wave(wave), NK, lane,
                          (flags & ARG_ADD_DV) != 0, wide);
    WAVE_SYNC();
    leave(window_was_read(ring, stage), lane);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
window_keys_wgmma(BACKWARD_PARAMETERS)
{
    __local uchar memory[WINDOW_LOCAL_BYTES] __attribute__((aligned(1024)));
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item), warpgroup = wave / 4;
    int lane = (int)(item % WAVE);
    const int wide = (flags & ARG_WIDE_ACCESS) != 0;
    const window_ring ring = {local_address(memory)};
    DECLARE_REGISTERS();
    const uint head_blocks = forward->heads * args.key_blocks;
    const uint head_block = (uint)get_group_id(0) % head_blocks;
    const key_job job = {
        .head = head_block / args.key_blocks,
        .first_key = head_block % args.key_blocks * BLOCK_KEYS,
        .windows = find_split(forward, (uint)get_group_id(0) / head_blocks),
        .flags = flags,
        .wide = wide};
    if (job.windows.count == 0)
        return;
    if (item < 2 * STAGES)
        make_window_barrier(&ring, item);
    if (warpgroup != WARPGROUPS) /* the producer measures these rows, too */
        clear_fill(&ring, job.first_key, NK, NQ, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (warpgroup == WARPGROUPS) {
        LEAVE_REGISTERS();
        const key_tensors from = {
            q, k, v, d_o, workspace + args.workspace, SCORE_BIAS_TENSORS};
        fetch(&ring, &from, &args, &job, item % WARPGROUP);
        return;
    }
    TAKE_REGISTERS();
    const work_tile here = {.window = forward->first_window, .head = job.head};
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const score_bias_view score_bias = score_bias_of(&tensors, forward, here);
    keep_bias(&ring, forward, &score_bias, job.first_key, item, 1);
    sync_computing();
    const key_outputs out = {dk, dv};
    NO_UNROLL_FOR (uint n = 0; n < job.windows.count; n++) {
        HIDE_FROM_OPTIMIZER(lane); /* addresses that wait are too many */
        compute_window(&ring, &job, &out, &args, n, wave, lane);
    }
}
