/* SPDX-License-Identifier: Apache-2.0
 * Gradients of windows: a work-group stays with some rows, or keys, of a head
 * and goes from window to window. A stage of the ring has a window: of two
 * tensors the rows that the work-group owns, of two others all rows. One
 * warpgroup fills it, with what must be known of the rows; the others have 64
 * of the rows that are owned each.
 *
 * OWN_ROWS, OTHER_ROWS, OTHER_BYTES, READS_O and OWNS_KEYS are of the kernel,
 * as is ROW_BYTES: rows that are owned are keys, and the others queries, or
 * the other way round. There is a bias: without one fragments are as fast. */
#include "common/even_part.cl"
#include "common/problem.cl"
#include "hopper/bias_chunks.cl"
#include "hopper/gradient_windows_extents.h"
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"
#include "hopper/store_rows.cl"
#include "hopper/stored_numbers.cl"
#include "hopper/tile_products.cl"
#include "hopper/window_places.cl"
#include "matrix/grad_scale.cl"

#define REGION_OTHERS OTHER_ROWS
#define REGION_OWN OWN_ROWS
#include "hopper/window_regions.cl"

REQUIRE(STAGES)
REQUIRE(COMPUTE_CAPABILITY)
REQUIRE(NQ)

typedef char bias_has_16_bits[BIAS == 1 ? 1 : -1];
typedef char rows_have_64_bytes
    [HEAD_DIM == WINDOW_CHANNELS && ROW_BYTES == WINDOW_PITCH ? 1 : -1];
typedef char all_tokens_exist[PADDING ? -1 : 1];

/* Rows that a window has. */
#define OWN_COUNT (OWNS_KEYS ? NK : NQ)
#define OTHER_COUNT (OWNS_KEYS ? NQ : NK)

/* Its address: stages, pairs of the bias, rows of o, numbers, barriers. */
typedef struct window_ring {
    uint at;
} window_ring;

typedef enum { OWN_FIRST, OWN_SECOND, OTHER_FIRST, OTHER_SECOND } window_part;
INLINE uint window_rows(const window_ring *ring, uint stage, window_part part)
{
    return ring->at + stage * WINDOW_STAGE_BYTES +
           WINDOW_PITCH *
               (part < OTHER_FIRST
                    ? part * OWN_ROWS
                    : 2 * OWN_ROWS + (part - OTHER_FIRST) * OTHER_ROWS);
}
INLINE uint window_pairs(const window_ring *ring)
{
    return ring->at + STAGES * WINDOW_STAGE_BYTES;
}
/* Rows of o that are owned, of one window, with READS_O. */
INLINE uint window_o(const window_ring *ring)
{
    return window_pairs(ring) + WINDOW_PAIR_BYTES;
}
/* Of rows of the other side. */
INLINE uint other_numbers(const window_ring *ring, uint stage)
{
    return window_o(ring) + WINDOW_O_BYTES + stage * WINDOW_NUMBER_BYTES;
}
/* Of rows that are owned. */
INLINE uint own_numbers(const window_ring *ring, uint stage)
{
    return other_numbers(ring, stage) + OTHER_BYTES * OTHER_ROWS;
}
/* One of each producer wave. */
INLINE uint wave_numbers(const window_ring *ring, uint stage)
{
    return own_numbers(ring, stage) + 4 * OWN_ROWS;
}
/* With HAS_REGIONS. */
INLINE uint window_regions(const window_ring *ring, uint stage)
{
    return wave_numbers(ring, stage) + 16;
}
/* With READS_O (window_given.cl). */
INLINE uint given_numbers(const window_ring *ring, uint stage)
{
    return other_numbers(ring, stage) + WINDOW_NUMBER_BYTES -
           WINDOW_GIVEN_BYTES;
}
INLINE uint window_filled(const window_ring *ring, uint stage)
{
    return other_numbers(ring, STAGES) + stage * 8;
}
INLINE uint window_was_read(const window_ring *ring, uint stage)
{
    return window_filled(ring, stage + STAGES);
}

/* Of each work-item of the producer warpgroup: its copies are complete, it
 * has stored its numbers. */
#define FILL_ARRIVALS (2 * WARPGROUP)

/* By as many work-items as there are barriers. */
INLINE void make_window_barrier(const window_ring *ring, uint n)
{
    make_mbarrier(window_filled(ring, n),
                  n < STAGES ? FILL_ARRIVALS : COMPUTING_WAVES);
}

INLINE void store_number(uint to, float x) { store_word(to, as_uint(x)); }
INLINE float load_number(uint from)
{
    float x;
    __asm__ volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(x)
                     : "r"(from)
                     : "memory");
    return x;
}

/* Of a sum of exponentials, the largest of which is 1. */
INLINE float log2_unit(float x)
{
    float y;
    __asm__("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Numbers in fp32 of which this one, times log2 e, is not exact enough: what
 * is near it is subtracted first. */
#define LARGE_LSE 1024.0f

/* What the kernel of rows tells of a row besides lse: a bound of |dS|, of
 * which the magnitude counts, in the upper BOUND_BITS; below these the
 * logarithm of the sum of its exponentials to the base 2, in multiples of
 * LOG_STEP, where it says the largest score in lse's place. Beside a large one
 * fp32 does not hold that logarithm. */
#define BOUND_BITS 0xfff00000u
#define LOG_STEP 0x1p-16f

INLINE float pack_bound(float bound, float log_sum)
{
    const uint above = as_uint(bound) + ~BOUND_BITS & BOUND_BITS;
    const uint steps = (uint)(log_sum * (1.0f / LOG_STEP));
    /* what is no number becomes infinity */
    return as_float(min(above, 0x7f800000u) | min(steps, ~BOUND_BITS));
}
INLINE float bound_of(float packed)
{
    return as_float(as_uint(packed) & BOUND_BITS);
}
INLINE float log_sum_of(float packed)
{
    return (float)(as_uint(packed) & ~BOUND_BITS) * LOG_STEP;
}

/* ---- What a work-group has ---- */

/* Rows of a head in some windows. */
typedef struct window_job {
    uint head, split, block;
    uint first;         /* of the rows that are owned */
    even_part windows;  /* of the launch */
    float scale;        /* of the head's logits */
    int has_lse, has_o; /* is lse given, and o with it that is read? */
} window_job;

INLINE window_job find_job(const backward_args *args)
{
    const forward_args *forward = &args->forward;
    const uint blocks = OWNS_KEYS ? args->key_blocks : forward->row_blocks;
    const uint head_blocks = forward->heads * blocks;
    const uint head_block = (uint)get_group_id(0) % head_blocks;
    window_job job = {.head = head_block / blocks,
                      .split = (uint)get_group_id(0) / head_blocks,
                      .block = OWN_ROWS < OWN_COUNT ? head_block % blocks : 0,
                      .scale = forward->scale,
                      .has_lse = (forward->flags & ARG_LSE) != 0,
                      .has_o = READS_O && (forward->flags & ARG_LSE) != 0 &&
                               (forward->flags & ARG_O) != 0};
    job.first = job.block * OWN_ROWS;
    job.windows = part_of((uint)forward->windows, forward->splits, job.split);
    return job;
}

/* What all of a work-group knows. */
typedef struct window_call {
    const window_ring *ring;
    const backward_args *args;
    const window_job *job;
    const score_bias_tensors *score_bias;
    __global const storage *q, *k, *v, *d_o, *o;
    __global const float *lse, *d_lse;
    __global storage *dq, *dk, *dv;
    __global float *workspace;
} window_call;

/* Window n of the work-group's. */
INLINE ulong window_of(const window_call *call, uint n)
{
    return call->args->forward.first_window + call->job->windows.first + n;
}

/* ---- The producer ---- */

INLINE void sync_fetching(void)
{
    __asm__ volatile("bar.sync %0, %1;"
                     :
                     : "n"(WARPGROUPS + 2), "n"(WARPGROUP)
                     : "memory");
}

/* A head in a window, and the work-item that fetches rows of it. */
typedef struct fetched_head {
    const window_place *place;
    uint head, item;
    int wide;
} fetched_head;

/* Fetches `count` of its rows from `first` on, at most `most`. */
INLINE void fetch_window_rows(uint to, __global const storage *tensor,
                              const tensor_layout *layout,
                              const fetched_head *of, uint first, uint count,
                              const uint most)
{
    const window_place *place = of->place;
    const uint chunk = of->item % 4, row = of->item / 4, step = WARPGROUP / 4;
    __global const storage *head_rows =
        tensor + plane_at(layout, place, of->head) + chunk * 8;
    __global const storage *from =
        head_rows + row_at(layout, place, first + row);
    to = swizzled_chunk(to, row, chunk);
    if (!of->wide) {
        NO_UNROLL_FOR (uint r = row; r < count; r += step) {
            store_chunk(to,
                        as_uint4(vload8(0, (__global const ushort *)from)));
            to += step * WINDOW_PITCH;
            from = go_on_to_row(from, head_rows, layout, place,
                                first + r + step, step);
        }
        return;
    }
    UNROLL_FOR (uint r = 0; r < most; r += step) {
        if (row + r < count)
            copy_chunk(to + r * WINDOW_PITCH, from);
        from = go_on_to_row(from, head_rows, layout, place,
                            first + row + r + step, step);
    }
}

/* Rows [first, end) of two tensors, from `part` on, are zeros in all stages.
 */
INLINE void clear_rows(const window_ring *ring, const window_part part,
                       uint first, const uint end, uint item)
{
    const uint chunks = (end - first) * 4;
    for (uint n = item; n < 2 * STAGES * chunks; n += WARPGROUPS * WARPGROUP) {
        const uint of = n / chunks, i = n % chunks;
        store_chunk(window_rows(ring, of / 2, part + of % 2) +
                        first * WINDOW_PITCH + i * 16,
                    (uint4)(0));
    }
}

/* So are those that only fill tiles up: products read them, and the producer
 * does not write them. first: that the work-group owns. By all consumers. */
INLINE void clear_fill(const window_ring *ring, uint first, uint item)
{
    clear_rows(ring, OTHER_FIRST, OTHER_COUNT, OTHER_ROWS, item);
    if (OWN_COUNT % OWN_ROWS != 0)
        clear_rows(ring, OWN_FIRST, min(OWN_COUNT - first, (uint)OWN_ROWS),
                   OWN_ROWS, item);
}

INLINE float square_of_row(uint rows, uint row)
{
    float square = 0.0f;
    UNROLL_FOR (uint chunk = 0; chunk < 4; chunk++)
        square =
            add_squares(square, load_chunk(swizzled_chunk(rows, row, chunk)));
    return square;
}

#if VARIANT == COSINE
/* 1 / the norm of a row. Gradients in fp16 have powers of two that follow from
 * it: there a row of zeros, whose scores are 0 anyway and which adds nothing,
 * has 0. */
INLINE float inverse_of_row(uint rows, uint row)
{
    const float inverse =
        fmin(rsqrt(square_of_row(rows, row)), 1.0f / NORM_EPSILON);
    return RESCALES && inverse >= 1.0f / NORM_EPSILON ? 0.0f : inverse;
}

/* Leaves that of a stage's rows that are owned. */
INLINE void measure_own_rows(const window_ring *ring, uint stage, uint item)
{
    UNROLL_FOR (uint r = 0; r < OWN_ROWS; r += WARPGROUP)
        if (r + item < OWN_ROWS)
            store_number(
                own_numbers(ring, stage) + 4 * (r + item),
                inverse_of_row(window_rows(ring, stage, OWN_FIRST), r + item));
}
#endif

/* ---- The bias of pairs ---- */

/* For a lane of who has 16 rows, which are number `wave` of those that are
 * owned, 16 columns: as it has their scores. In local memory 16 bytes of each
 * lane lie beside the next lane's. */
#define PAIRS_OF_CHUNK 8
INLINE uint pair_chunk(const window_ring *ring, uint wave, uint column,
                       uint lane)
{
    return window_pairs(ring) +
           ((wave * (OTHER_ROWS / 16) + column / 16) * WAVE + lane) * 16;
}

/* Of 16 columns from `column` on, a multiple of 16, as they are kept. */
#define PAIR_WORDS (PAIRS_OF_CHUNK / 2)
INLINE void load_pairs(uint *words, const window_ring *ring, uint wave,
                       uint column, uint lane)
{
    const uint4 x = load_chunk(pair_chunk(ring, wave, column, lane));
    words[0] = x.x;
    words[1] = x.y;
    words[2] = x.z;
    words[3] = x.w;
}

/* Where rows are copied, what keep_bias does. */
INLINE void copy_bias(const window_call *call, const score_bias_view *view,
                      uint item)
{
    const uint pairs = window_pairs(call->ring), first = call->job->first;
    const uint all = OWN_ROWS / 16 * (OTHER_ROWS / 16), lane = item % WAVE;
    const uint waves = COMPUTING_WAVES;
    NO_UNROLL_FOR (uint i = item / WAVE; i < all; i += waves) {
        const uint own = first + i / (OTHER_ROWS / 16) * 16;
        const uint other = i % (OTHER_ROWS / 16) * 16;
        copy_bias_chunks(pairs + i * BIAS_CHUNK_BYTES, 1, &call->args->forward,
                         view, OWNS_KEYS ? other : own,
                         OWNS_KEYS ? own : other, lane);
    }
    await_copies();
    WAVE_SYNC();
    NO_UNROLL_FOR (uint i = item / WAVE; i < all; i += waves)
        order_bias_chunks(pairs + i * BIAS_CHUNK_BYTES, 1, OWNS_KEYS, lane);
}

/* Before the first window: pairs of the rows that are owned. By all consumers;
 * they are there behind sync_computing. */
INLINE void keep_bias(const window_call *call, uint item)
{
    const forward_args *args = &call->args->forward;
    const work_tile here = {.window = args->first_window,
                            .head = call->job->head};
    const score_bias_view view = score_bias_of(call->score_bias, args, here);
    const uint chunks = OTHER_ROWS / 16; /* of 16 rows */
    if (NK % (OWNS_KEYS ? OWN_ROWS : OTHER_ROWS) == 0 &&
        has_bias_rows(args, &view)) {
        copy_bias(call, &view, item);
        return;
    }
    NO_UNROLL_FOR (uint n = item; n < OWN_ROWS / 16 * chunks * WAVE;
                   n += WARPGROUPS * WARPGROUP) {
        const uint lane = n % WAVE, wave = n / WAVE / chunks;
        const uint column = n / WAVE % chunks * 16;
        float x[PAIRS_OF_CHUNK];
        UNROLL_FOR (uint e = 0; e < PAIRS_OF_CHUNK; e++) {
            const uint own =
                call->job->first + wave * 16 + row_of_pair(lane, e);
            const uint other = column + column_of_pair(lane, e);
            const uint row = OWNS_KEYS ? other : own;
            const uint key = OWNS_KEYS ? own : other;
            x[e] = bias_of(args, &view, (int)min(row, NQ - 1u),
                           (int)min(key, NK - 1u));
            /* so keys that only fill a tile up are not seen */
            x[e] = key < NK ? x[e] : -INFINITY;
        }
        store_chunk(pair_chunk(call->ring, wave, column, lane),
                    (uint4)(PACK(x[0], x[1]), PACK(x[2], x[3]),
                            PACK(x[4], x[5]), PACK(x[6], x[7])));
    }
}

/* ---- Regions ---- */

typedef char
    items_for_regions[REGION_WORDS + OWN_REGION_WORDS <= WARPGROUP ? 1 : -1];

/* A work-item's. */
INLINE fetched_regions fetch_regions(const window_call *call, ulong window,
                                     uint item)
{
    fetched_regions x = {.word = 0};
#if HAS_REGIONS
    const forward_args *args = &call->args->forward;
    const work_tile here = {.window = window};
    const score_bias_view view = score_bias_of(call->score_bias, args, here);
    if (item < REGION_WORDS + OWN_REGION_WORDS && may_have_regions(&view))
        x = fetch_region_word(&view, args, call->job->first, OWNS_KEYS, item);
#endif
    return x;
}

/* All of the producer call it. */
INLINE void keep_regions(const window_ring *ring, uint stage,
                         const fetched_regions *x, uint item)
{
#if HAS_REGIONS
    if (item < REGION_WORDS + OWN_REGION_WORDS)
        store_word(window_regions(ring, stage) + 4 * item, x->word);
    keep_region_flag(window_regions(ring, stage), item / WAVE, x->differ);
#endif
}

/* ---- A window ---- */

/* Fetches window n of the work-group's into its stage, once that was read. */
INLINE void fetch_window(const window_call *call, uint n, uint item)
{
    const window_ring *ring = call->ring;
    const backward_args *args = call->args;
    const forward_args *forward = &args->forward;
    const uint stage = n % STAGES, first = call->job->first;
    const uint count = min((uint)OWN_ROWS, OWN_COUNT - first);
    const window_place place = find_place(forward, window_of(call, n));
    const fetched_head head = {.place = &place,
                               .head = call->job->head,
                               .item = item,
                               .wide =
                                   (forward->flags & ARG_WIDE_ACCESS) != 0};
    const fetched_regions regions =
        fetch_regions(call, window_of(call, n), item);
    await_phase(window_was_read(ring, stage), n / STAGES % 2 ^ 1);
    fetch_window_rows(
        window_rows(ring, stage, OWN_FIRST), OWNS_KEYS ? call->k : call->q,
        OWNS_KEYS ? &forward->k : &forward->q, &head, first, count, OWN_ROWS);
    fetch_window_rows(window_rows(ring, stage, OTHER_FIRST),
                      OWNS_KEYS ? call->q : call->k,
                      OWNS_KEYS ? &forward->q : &forward->k, &head, 0,
                      OTHER_COUNT, OTHER_COUNT);
    fetch_window_rows(
        window_rows(ring, stage, OWN_SECOND), OWNS_KEYS ? call->v : call->d_o,
        OWNS_KEYS ? &forward->v : &args->d_o, &head, first, count, OWN_ROWS);
    fetch_window_rows(window_rows(ring, stage, OTHER_SECOND),
                      OWNS_KEYS ? call->d_o : call->v,
                      OWNS_KEYS ? &args->d_o : &forward->v, &head, 0,
                      OTHER_COUNT, OTHER_COUNT);
    arrive_filled(window_filled(ring, stage), head.wide);
    END_COPIES();
    keep_regions(ring, stage, &regions, item);
}

/* A number that queries have. */
INLINE float number_of_row(__global const float *numbers,
                           const tensor_layout *layout,
                           const window_place *place, uint head, uint row)
{
    return numbers[plane_at(layout, place, head) +
                   row_at(layout, place, min(row, NQ - 1u))];
}

/* ---- Rows that leave ---- */

#if VARIANT == COSINE
/* Gradients with respect to rows of length 1 are taken back to rows x of any
 * length: (d - x^ (x^ . d)) / |x|, where d is sums times factor. Below the
 * smallest norm x^ is just a multiple of x. Leaves x^ . d in along, and in
 * factor by what sums are to be multiplied then. rows: x of the wave's rows.
 */
INLINE void take_back_norm(float *sums, float *along, float *factor,
                           const float *inverses, uint rows, int lane)
{
    uint words[HEAD_DIM / 4];
    UNROLL_FOR (uint i = 0; i < HEAD_DIM / 16; i++)
        LOAD_MATRICES(words + 4 * i, place_of_lane(rows, lane) ^ 32 * i, "");
    UNROLL_FOR (uint r = 0; r < 2; r++) {
        float2 x[HEAD_DIM / 8];
        float dot = 0.0f;
        UNROLL_FOR (uint j = 0; j < HEAD_DIM / 8; j++) {
            x[j] = unpack(words[2 * j + r]);
            dot = FMA(x[j].x, sums[SCORE(j, r, 0)], dot);
            dot = FMA(x[j].y, sums[SCORE(j, r, 1)], dot);
        }
        REDUCE(dot, ADD_PAIR);
        const float inverse = RESCALES && inverses[r] == 0.0f
                                  ? 1.0f / NORM_EPSILON
                                  : inverses[r];
        const float part =
            inverse < 1.0f / NORM_EPSILON ? dot * inverse * inverse : 0.0f;
        factor[r] *= inverse;
        along[r] = dot * factor[r];
        UNROLL_FOR (uint j = 0; j < HEAD_DIM / 8; j++) {
            sums[SCORE(j, r, 0)] = FMA(x[j].x, -part, sums[SCORE(j, r, 0)]);
            sums[SCORE(j, r, 1)] = FMA(x[j].y, -part, sums[SCORE(j, r, 1)]);
        }
    }
}
#endif

/* ---- A kernel begins ---- */

/* Makes barriers, and clears what only fills tiles up. */
INLINE void start_windows(const window_call *call, uint wave, uint item)
{
    if (item < 2 * STAGES)
        make_window_barrier(call->ring, item);
    if (wave / 4 != WARPGROUPS) /* the producer measures these rows, too */
        clear_fill(call->ring, call->job->first, item);
    barrier(CLK_LOCAL_MEM_FENCE);
}
