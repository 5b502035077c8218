/* SPDX-License-Identifier: Apache-2.0
 * Windows on their way through local memory. Of each window that a team
 * computes come its queries, in as many slabs of 64 rows as the team has
 * warpgroups, and tile by tile its keys and values. Of the last warpgroup, or
 * two, each team has some waves, its producer; in the cosine variant half of
 * them fetch, and the other half measures rows that have come:
 *
 *   fetching    await read -> copy -> arrive at come
 *   measuring   await come -> lengths of rows -> arrive at filled
 *   computing   await filled -> products -> arrive at read, each wave once
 *
 * Where nothing is measured, the producer arrives at filled. Rows of what
 * there is not stay zeros, as they were made at the start. */
#include "common/problem.cl"
#include "hopper/window_extents.h"

#define REGION_OTHERS (KEY_TILES * TILE_KEYS)
#define REGION_OWN (ROW_TILES * WAVE_ROWS)
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"
#include "hopper/row_sources.cl"
#include "hopper/stored_numbers.cl"
#include "hopper/tile_products.cl"
#include "hopper/window_regions.cl"

REQUIRE(STAGES)

#define MEASURING_WAVES (FETCHING / WAVE)
#define TEAM_WAVES (GROUPS_PER_WINDOW * (WARPGROUP / WAVE))

/* A consumer has a tile, and awaits the next one; with fewer stages nobody
 * could go on. */
typedef char ring_is_long_enough[STAGES >= 2 ? 1 : -1];

/* Addresses in local memory of what a team has. */
typedef struct window_ring {
    uint operands, factors, regions, places, barriers;
} window_ring;

/* A stage of queries or of keys, and of its phase the parity. */
typedef struct ring_stage {
    uint number, parity;
} ring_stage;

INLINE ring_stage next_stage(ring_stage at, const uint stages)
{
    at.number++;
    if (at.number == stages) {
        at.number = 0;
        at.parity ^= 1;
    }
    return at;
}

INLINE uint slab(const window_ring *ring, uint stage, uint group)
{
    return ring->operands + stage * WINDOW_QUERY_BYTES + group * SLAB_BYTES;
}
INLINE uint keys_of(const window_ring *ring, uint stage)
{
    return ring->operands + WINDOW_QUERY_STAGES * WINDOW_QUERY_BYTES +
           stage * (2 * KEY_TILE_BYTES);
}
INLINE uint values_of(const window_ring *ring, uint stage)
{
    return keys_of(ring, stage) + KEY_TILE_BYTES;
}
INLINE uint key_factors(const window_ring *ring, uint stage)
{
    return ring->factors + stage * (4 * TILE_KEYS);
}

/* Of a stage of queries. */
INLINE uint regions_of(const window_ring *ring, uint stage)
{
    return ring->regions + stage * WINDOW_REGION_BYTES;
}

typedef enum { FILLED, READ, COME } stage_event;
INLINE uint keys_barrier(const window_ring *ring, uint stage,
                         stage_event event)
{
    return ring->barriers + 8 * (event * STAGES + stage);
}
INLINE uint queries_barrier(const window_ring *ring, uint stage,
                            stage_event event)
{
    return ring->barriers +
           8 * (3 * STAGES + event * WINDOW_QUERY_STAGES + stage);
}

/* Barrier n of the team's, by as many work-items as there are. */
INLINE void make_window_barrier(const window_ring *ring, uint n)
{
    const int of_keys = n < 3 * STAGES;
    const uint event =
        of_keys ? n / STAGES : (n - 3 * STAGES) / WINDOW_QUERY_STAGES;
    make_mbarrier(
        ring->barriers + 8 * n,
        event == READ                                     ? TEAM_WAVES
        : event == FILLED && of_keys && VARIANT == COSINE ? MEASURING_WAVES
        : HAS_REGIONS && !of_keys ? 2 * FETCHING /* copies, regions */
                                  : FETCHING);
}

/* ---- Rows ---- */

/* The place in the slabs of a row of the block. A warpgroup with fewer tiles
 * than waves leaves its number's wave without one, so that all parts of the
 * compute unit have as many. */
INLINE uint place_of_row(uint row, uint chunk, uint team)
{
    const uint group = row / (TILES_PER_GROUP * WAVE_ROWS);
    const uint tile = row / WAVE_ROWS % TILES_PER_GROUP;
    const uint place =
        TILES_PER_GROUP == 4
            ? row % WARPGROUP_ROWS
            : (tile + group + team * GROUPS_PER_WINDOW) % 4 * WAVE_ROWS +
                  row % WAVE_ROWS;
    return group * SLAB_BYTES + swizzled_chunk(0, place, chunk);
}

/* A work-item's chunks of rows [0, count) of a tile of keys or values, which
 * are those of the window from `first` on; wide: they allow copies of 16
 * bytes. from: its first row, without a grid. */
INLINE void fetch_keys(uint to, __global const storage *from,
                       const row_source *of, uint first, uint count, uint item,
                       int wide)
{
    const uint chunk = item % ROW_CHUNKS, row = item / ROW_CHUNKS;
    const uint step = first / ROW_STEP;
    if (wide) {
        UNROLL_FOR (uint i = 0; i < CEIL_DIV(TILE_KEYS, ROW_STEP); i++) {
            if ((TILE_KEYS % ROW_STEP == 0 && NK % TILE_KEYS == 0) ||
                row + i * ROW_STEP < count)
                copy_chunk(
                    to + (ROW_STEP % 8 == 0
                              ? swizzled_chunk(0, row, chunk) +
                                    i * (ROW_STEP * ROW_BYTES)
                              : swizzled_chunk(0, row + i * ROW_STEP, chunk)),
                    find_row(of, from, step + i, first + row + i * ROW_STEP));
            from += ROW_STEP * of->layout->row;
        }
        return;
    }
    NO_UNROLL_FOR (uint i = row; i < count; i += ROW_STEP) {
        fetch_elements(to + swizzled_chunk(0, i, chunk),
                       find_row(of, from, step + i / ROW_STEP, first + i));
        from += ROW_STEP * of->layout->row;
    }
}

/* Rows [0, count) of the block of queries, of the window from `first` on. */
INLINE void fetch_queries(uint to, const row_source *of, uint first,
                          uint count, uint item, uint team, int wide)
{
    const uint chunk = item % ROW_CHUNKS, row = item / ROW_CHUNKS;
    const uint step = first / ROW_STEP;
    __global const storage *from =
        of->rows + (ulong)(first + row) * of->layout->row;
    if (wide) {
        UNROLL_FOR (uint i = 0; i < CEIL_DIV(BLOCK_ROWS, ROW_STEP); i++) {
            if ((BLOCK_ROWS % ROW_STEP == 0 && NQ % BLOCK_ROWS == 0) ||
                row + i * ROW_STEP < count)
                copy_chunk(
                    to + place_of_row(row + i * ROW_STEP, chunk, team),
                    find_row(of, from, step + i, first + row + i * ROW_STEP));
            from += ROW_STEP * of->layout->row;
        }
        return;
    }
    NO_UNROLL_FOR (uint i = row; i < count; i += ROW_STEP) {
        fetch_elements(to + place_of_row(i, chunk, team),
                       find_row(of, from, step + i / ROW_STEP, first + i));
        from += ROW_STEP * of->layout->row;
    }
}

/* What region each row of the window and of the block has, into a stage of
 * queries, by the team's producer. first: of the block. */
INLINE void fetch_regions(uint regions, const score_bias_tensors *tensors,
                          const forward_args *args, ulong window, uint first,
                          uint item)
{
#if HAS_REGIONS
    const work_tile here = {.window = window};
    const score_bias_view view = score_bias_of(tensors, args, here);
    int differ = 0;
    if (may_have_regions(&view))
        NO_UNROLL_FOR (uint n = item; n < REGION_WORDS + OWN_REGION_WORDS;
                       n += FETCHING) {
            const fetched_regions x =
                fetch_region_word(&view, args, first, 0, n);
            store_word(regions + 4 * n, x.word);
            differ |= x.differ;
        }
    keep_region_flag(regions, item / WAVE, differ);
#endif
}

/* ---- Lengths ---- */

#if VARIANT == COSINE
/* Squares of the lengths of 16 rows: the diagonal of their product with
 * themselves, of which rows are both operands. A lane gets that of row
 * lane / 4 and of 8 more, if lane % 4 is lane / 8. */
INLINE void square_16(float *squares, uint rows, int lane)
{
    float low[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float high[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL_FOR (uint step = 0; step < HEAD_DIM / 16; step++) {
        uint a[4];
        LOAD_MATRICES(
            a, rows + swizzled_chunk(0, lane % 16, 2 * step + lane / 16), "");
        const uint b[2] = {a[0], a[2]}, c[2] = {a[1], a[3]};
        mma(a, b, low);
        mma(a, c, high);
    }
    squares[0] = lane / 4 % 2 ? low[1] : low[0];
    squares[1] = lane / 4 % 2 ? high[3] : high[2];
}

INLINE float window_factor(float square)
{
    return fmin(rsqrt(square), 1.0f / NORM_EPSILON);
}

/* The square of the length of `count` chunks of a row, from `first` on. */
INLINE float square_chunks(uint rows, uint row, uint first, const uint count)
{
    float sum[2] = {0.0f, 0.0f};
    UNROLL_FOR (uint c = 0; c < count; c += 2) {
        uint4 chunk[2]; /* both are on their way */
        UNROLL_FOR (uint n = 0; n < 2; n++)
            chunk[n] =
                load_chunk(rows + swizzled_chunk(0, row, first + c + n));
        UNROLL_FOR (uint n = 0; n < 2; n++)
            sum[n] = add_squares(sum[n], chunk[n]);
    }
    return sum[0] + sum[1];
}

/* One through the length of each key of a tile, by the team's waves that do
 * not fetch, of whom `item` has a key; half of one where that is enough. It
 * has to keep up with consumers: as products it would wait for theirs, and
 * lanes with less of a key would wait for each other. */
INLINE void measure_keys(uint factors, uint keys, uint item)
{
    UNROLL_FOR (uint first = 0; first < TILE_KEYS; first += FETCHING) {
        const uint left = TILE_KEYS - first;
        const int halves = left <= FETCHING / 2;
        const uint row = first + min(halves ? item / 2 : item, left - 1);
        float square =
            halves ? square_chunks(keys, row, item % 2 * (ROW_CHUNKS / 2),
                                   ROW_CHUNKS / 2)
                   : square_chunks(keys, row, 0, ROW_CHUNKS);
        if (halves)
            square += LANE_XOR(square, 1);
        store_word(factors + 4 * row, as_uint(window_factor(square)));
    }
}

/* The same of a wave's 16 queries, for the lane's two rows. */
INLINE void measure_queries(float *factors, uint rows, int lane)
{
    float squares[2];
    square_16(squares, rows, lane);
    UNROLL_FOR (uint r = 0; r < 2; r++)
        factors[r] =
            window_factor(of_lane(squares[r], lane / 4 * 4 + lane / 8));
}
#endif
