/* SPDX-License-Identifier: Apache-2.0
 * The backward pass's ring (key_ring.cl): a warpgroup keeps 64 rows of two
 * tensors, of a work tile and of the next, and a stage has 64 rows of two
 * others. What the kernels of rows and of keys share.
 *
 * With TENSOR_MAPS rows come as boxes (boxes.cl), in launches with
 * ARG_WIDE_ACCESS alone; else 16 bytes or element by element. */
#define FILLED_TOGETHER FETCHING_SHOWS
#include "hopper/boxes.cl"
#include "hopper/key_ring.cl"
#include "hopper/store_rows.cl"
#include "hopper/wgmma.cl"
#include "matrix/sliding_numbers.cl"

/* ---- The ring ---- */

/* A warpgroup's 64 rows of the first or the second tensor, of the round's work
 * tile. Barriers are those of queries. */
INLINE uint kept_of(const tile_ring *ring, uint round, stage_part part,
                    uint warpgroup)
{
    return kept_tile(
        ring,
        (round % QUERY_STAGES * KEPT_TENSORS + part) * WARPGROUPS + warpgroup);
}

/* By the half of the fetching warpgroup that has the part. */
INLINE void fetch_kept(const tile_ring *ring, uint round,
                       const row_plane *plane, stage_part part, uint first_row,
                       uint item, int wide)
{
    NO_UNROLL_FOR (uint g = 0; g < WARPGROUPS; g++)
        fetch_rows(kept_of(ring, round, part, g), plane,
                   first_row + g * WARPGROUP_ROWS, item, wide);
    arrive_filled(queries_filled(ring, round), wide);
}

/* The same as boxes, by one work-item of the half. */
INLINE void fetch_kept_boxes(const tile_ring *ring, uint round,
                             const mapped_plane *plane, stage_part part,
                             uint first_row)
{
    const uint filled_at = queries_filled(ring, round);
    arrive_expecting(filled_at, WARPGROUPS * QUERY_BYTES);
    NO_UNROLL_FOR (uint g = 0; g < WARPGROUPS; g++)
        fetch_box(kept_of(ring, round, part, g), plane,
                  first_row + g * WARPGROUP_ROWS, filled_at);
}

/* A wave is done with a round's work tile. What it wrote over what was kept
 * comes before the boxes of the next one. */
INLINE void leave_kept(const tile_ring *ring, uint round, int lane)
{
    if (TENSOR_MAPS)
        show_to_products();
    WAVE_SYNC();
    leave(queries_read(ring, round), lane);
}

/* Who arrives at barrier n where boxes complete there: a work-item for each
 * part, and of a stage those besides that copy numbers of rows. 0: no box
 * does. */
INLINE uint box_arrivals(uint n, const uint numbers)
{
    const uint kept = n - 4 * STAGES;
    if (n < STAGES)
        return (FILLED_TOGETHER ? 2 : 1) + numbers;
    return n < 2 * STAGES ? 1 : kept < QUERY_STAGES ? 2 : 0;
}

/* By as many work-items as there are barriers; a barrier of the work-group
 * publishes them. */
INLINE void make_kept_ring(const tile_ring *ring, uint item,
                           const uint numbers)
{
    const uint boxes = TENSOR_MAPS ? box_arrivals(item, numbers) : 0;
    if (item < MBARRIERS && boxes != 0)
        make_mbarrier(nth_barrier(ring, item), boxes);
    else if (item < MBARRIERS)
        make_ring_barrier(ring, item);
    if (TENSOR_MAPS)
        show_to_products(); /* to the copy engine, too */
}

/* All of the work-group, wherever they are. */
INLINE void sync_group(void)
{
    __asm__ volatile("bar.sync 0;" : : : "memory");
}

/* The largest bounds of a key head, by the producer warpgroup, as bits of
 * floats. They are there behind sync_warpgroup. Needed in fp16 alone. */
INLINE void find_bounds(__local uint *found, __global const float *bounds,
                        const backward_args *args, uint item)
{
    const uint count = args->bound_blocks * args->forward.heads_per_kv_head;
    float4 largest = (float4)(0.0f);
    if (!RESCALES)
        return;
    if (item < BOUND_NUMBERS)
        found[item] = 0;
    sync_warpgroup(WARPGROUPS);
    _Pragma("unroll 4") for (uint i = item; i < count; i += WARPGROUP)
        largest = fmax(largest, vload4(i, bounds));
    REDUCE_WAVE(largest.x, fmax);
    REDUCE_WAVE(largest.y, fmax);
    REDUCE_WAVE(largest.z, fmax);
    if (item % WAVE == 0) {
        atomic_max(&found[BOUND_VALUE], as_uint(largest.x));
        atomic_max(&found[BOUND_LENGTH], as_uint(largest.y));
        atomic_max(&found[BOUND_D_LSE], as_uint(largest.z));
    }
}

/* Stages that are on their way: the first of them, and how many. */
typedef struct coming_stages {
    ring_place first;
    uint count;
} coming_stages;

/* Of a part. */
INLINE void announce_first(const tile_ring *ring, coming_stages *coming,
                           stage_part part)
{
    arrive(filled(ring, coming->first.stage, part));
    coming->first = next_place(coming->first);
}

/* Once a stage's copies have started. */
INLINE void end_stage(const tile_ring *ring, coming_stages *coming,
                      stage_part part, int wide)
{
    if (!FETCHING_SHOWS) {
        arrive_filled(filled(ring, coming->first.stage, part), wide);
        coming->first = next_place(coming->first);
        return;
    }
    END_COPIES();
    if (coming->count < SHOWN_BEHIND) {
        coming->count++;
        return;
    }
    AWAIT_COPIES(SHOWN_BEHIND);
    show_to_products();
    announce_first(ring, coming, part);
}

/* Of a work tile all stages; none waits for the next one's. */
INLINE void end_stages(const tile_ring *ring, coming_stages *coming,
                       stage_part part)
{
    if (!FETCHING_SHOWS)
        return;
    await_copies();
    show_to_products();
    for (; coming->count > 0; coming->count--)
        announce_first(ring, coming, part);
}

/* ---- Rows that are kept, as operands ---- */

/* Of 64 channels a lane can have them in registers; then products need not
 * read them again. */
#define HOLDS_KEPT (HEAD_DIM <= 64)
#if HOLDS_KEPT
typedef struct kept_rows {
    uint words[HEAD_DIM / 4];
} kept_rows;
INLINE kept_rows take_kept(uint address, uint wave, int lane)
{
    kept_rows x;
    const uint rows = address + wave % 4 * 16 * ROW_BYTES;
    UNROLL_FOR (uint i = 0; i < HEAD_DIM / 16; i++)
        LOAD_MATRICES(x.words + 4 * i,
                      swizzled_chunk(rows, lane % 16, 2 * i + lane / 16), "");
    return x;
}
#define MULTIPLY_KEPT(s, kept, rows) multiply_held(s, (kept)->words, rows)
/* To be called in each round of a loop where no product that reads them is in
 * flight: ptxas 13.0 gives registers of a left operand that a loop does not
 * change to the loop's other left operands. One of the four of an instruction
 * is enough. A launch's second dimension has 0 only, which compilers do not
 * know. */
INLINE void keep_held(kept_rows *x)
{
    UNROLL_FOR (uint i = 0; i < HEAD_DIM / 4; i += 4)
        x->words[i] ^= (uint)get_global_id(1);
}
#else
typedef struct kept_rows {
    uint address;
} kept_rows;
INLINE kept_rows take_kept(uint address, uint wave, int lane)
{
    const kept_rows x = {address};
    return x;
}
#define MULTIPLY_KEPT(s, kept, rows) multiply_keys(s, (kept)->address, rows)
INLINE void keep_held(kept_rows *x) {}
#endif

/* ---- A stage ---- */

INLINE void await_stage(const tile_ring *ring, ring_place at)
{
    await_phase(filled(ring, at.stage, KEYS), at.parity);
    if (!FILLED_TOGETHER)
        await_phase(filled(ring, at.stage, VALUES), at.parity);
    if (!FETCHING_SHOWS)
        show_to_products();
}

/* Starts the products of what is kept with it, in two groups: scores and dP.
 */
INLINE void multiply_stage(float *s, float *dp, const kept_rows *first,
                           const kept_rows *second, const tile_ring *ring,
                           uint stage)
{
    start_products();
    MULTIPLY_KEPT(s, first, part_of(ring, stage, KEYS));
    end_products();
    MULTIPLY_KEPT(dp, second, part_of(ring, stage, VALUES));
    end_products();
}
