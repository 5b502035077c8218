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
#include "hopper/tile_products.cl"
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

/* A launch. */
typedef struct sliding_call {
    const tile_ring *ring;
    const backward_args *args;
    __global const storage *q, *k, *v, *d_o;
    __global const float *d_lse;
    __global storage *dq, *dk, *dv;
    __global float *workspace;
} sliding_call;

/* A head of a tensor: as boxes of its map, or as rows. */
typedef struct fetched_head {
    mapped_plane boxes;
    row_plane rows;
    ulong pitch; /* elements to the next head's */
} fetched_head;

/* which: MAP_Q and so on, a constant. */
INLINE fetched_head find_head(const sliding_call *call, const uint which,
                              ulong window, uint head)
{
    const forward_args *forward = &call->args->forward;
    const tensor_layout *layout = which == MAP_Q   ? &forward->q
                                  : which == MAP_K ? &forward->k
                                  : which == MAP_V ? &forward->v
                                                   : &call->args->d_o;
    fetched_head x;
    if (TENSOR_MAPS)
        x.boxes = find_mapped_plane(call->workspace, call->args, which, window,
                                    head);
    else
        x.rows = plane_of(which == MAP_Q   ? call->q
                          : which == MAP_K ? call->k
                          : which == MAP_V ? call->v
                                           : call->d_o,
                          layout, window, head,
                          which == MAP_Q || which == MAP_D_O ? forward->queries
                                                             : forward->keys);
    x.pitch = layout->head;
    return x;
}

/* A work-item of the half of the producer that has the part; of boxes the
 * first one asks for all. */
typedef struct fetching_item {
    const tile_ring *ring;
    stage_part part;
    uint item; /* of the half */
    int wide;  /* rows allow copies of 16 bytes */
} fetching_item;

/* What a round keeps, of rows from first_row on; `passing` is fetched next. */
INLINE void fetch_kept(const fetching_item *by, uint round,
                       const fetched_head *kept, const fetched_head *passing,
                       uint first_row)
{
    const uint filled_at = queries_filled(by->ring, round);
    if (TENSOR_MAPS && by->item != 0)
        return;
    if (TENSOR_MAPS) {
        if (round == 0) {
            acquire_map(kept->boxes.map);
            acquire_map(passing->boxes.map);
        }
        arrive_expecting(filled_at, WARPGROUPS * QUERY_BYTES);
    }
    NO_UNROLL_FOR (uint g = 0; g < WARPGROUPS; g++) {
        const uint to = kept_of(by->ring, round, by->part, g);
        const uint first = first_row + g * WARPGROUP_ROWS;
        if (TENSOR_MAPS)
            fetch_box(to, &kept->boxes, first, filled_at);
        else
            fetch_rows(to, &kept->rows, first, by->item, by->wide);
    }
    if (!TENSOR_MAPS)
        arrive_filled(filled_at, by->wide);
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

INLINE void announce_first(const fetching_item *by, coming_stages *coming)
{
    arrive(filled(by->ring, coming->first.stage, by->part));
    coming->first = next_place(coming->first);
}

/* Once a stage's copies have started. */
INLINE void end_stage(const fetching_item *by, coming_stages *coming)
{
    if (!FETCHING_SHOWS) {
        arrive_filled(filled(by->ring, coming->first.stage, by->part),
                      by->wide);
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
    announce_first(by, coming);
}

/* Fetches 64 rows from `first` on, of the head that is so many behind, into a
 * stage that was read. */
INLINE void fetch_stage(const fetching_item *by, ring_place at,
                        coming_stages *coming, const fetched_head *from,
                        uint head, uint first)
{
    const uint to = part_of(by->ring, at.stage, by->part);
    const uint filled_at = filled(by->ring, at.stage, by->part);
    if (!TENSOR_MAPS) {
        row_plane rows = from->rows;
        rows.rows += head * from->pitch;
        fetch_rows(to, &rows, first, by->item, by->wide);
        end_stage(by, coming);
    } else if (by->item == 0) {
        mapped_plane boxes = from->boxes;
        boxes.head += head;
        arrive_expecting(filled_at, KEY_BYTES);
        fetch_box(to, &boxes, first, filled_at);
    }
}

/* Of a work tile all stages; none waits for the next one's. */
INLINE void end_stages(const fetching_item *by, coming_stages *coming)
{
    if (TENSOR_MAPS || !FETCHING_SHOWS)
        return;
    await_copies();
    show_to_products();
    for (; coming->count > 0; coming->count--)
        announce_first(by, coming);
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
