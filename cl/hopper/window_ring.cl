/* SPDX-License-Identifier: Apache-2.0
 * Windows on their way through local memory. Of each window that a team
 * computes come its queries, in as many slabs of 64 rows as the team has
 * warpgroups, and tile by tile its keys and values. The last warpgroup
 * fetches, each of its waves another tile, with the first of a window its
 * queries; when all that has come, the wave measures the tile's keys, in the
 * cosine variant, and shows it to products:
 *
 *   fetching    await read -> copy (-> measure) -> show -> arrive at filled
 *   computing   await filled -> products -> arrive at read, each wave once
 *
 * Rows of what there is not stay zeros, as they were made at the start. */
#ifndef WINDOW_RING_CL
#define WINDOW_RING_CL
#include "common/problem.cl"
#include "hopper/window_extents.h"

#include "hopper/head_planes.cl"
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(NQ)
REQUIRE(STAGES)
REQUIRE(WINDOWS_PER_GROUP)

#define ROW_CHUNKS (HEAD_DIM / 8)
/* Of a team, work-items that fetch, and waves that do and that compute. */
#define FETCHING (WARPGROUP / WINDOWS_PER_GROUP)
#define FETCHING_WAVES (FETCHING / WAVE)
#define TEAM_WAVES (GROUPS_PER_WINDOW * (WARPGROUP / WAVE))
/* Who computes has a tile and the next one, and awaits another where there is
 * room for it. So many tiles behind the one whose values are multiplied must
 * have been shown. */
#define AWAITS_AHEAD (STAGES > 2)
#define SHOWN_AHEAD (1 + AWAITS_AHEAD)
/* A wave that fetches may have a tile on its way while it measures the one
 * before, FETCHING_WAVES tiles less. The ring must have room for as many more,
 * and for the queries of their window; else the kernel would wait for ever. */
#define HAS_ROOM(tiles)                                                       \
    (STAGES > (tiles) && (WINDOW_QUERY_STAGES - 1) * KEY_TILES >= (tiles))
#define SHOWN_LATER HAS_ROOM(SHOWN_AHEAD + FETCHING_WAVES)
typedef char ring_is_long_enough[HAS_ROOM(SHOWN_AHEAD) ? 1 : -1];

/* Addresses in local memory of what a team has. */
typedef struct window_ring {
    uint operands, factors, barriers;
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

/* Of what comes as number n of all. */
INLINE ring_stage stage_of(uint n, const uint stages)
{
    const ring_stage stage = {n % stages, n / stages % 2};
    return stage;
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

typedef enum { FILLED, READ } stage_event;
INLINE uint keys_barrier(const window_ring *ring, uint stage,
                         stage_event event)
{
    return ring->barriers + 8 * (event * STAGES + stage);
}
/* Queries are read. */
INLINE uint queries_barrier(const window_ring *ring, uint stage)
{
    return ring->barriers + 8 * (2 * STAGES + stage);
}

/* Barrier n of the team's: one wave fills a stage, all read it. */
INLINE void make_window_barrier(const window_ring *ring, uint n)
{
    const int filled = n / STAGES == FILLED;
    make_mbarrier(ring->barriers + 8 * n, filled ? 1 : TEAM_WAVES);
}

INLINE void leave_stage(uint barrier_at, int lane)
{
    if (lane == 0)
        arrive(barrier_at);
}

/* ---- Rows ---- */

/* Where a chunk of a row is, from the first row of eight or more. */
INLINE uint chunk_place(uint row, uint chunk)
{
    return row * ROW_BYTES +
           (chunk ^ (ROW_BYTES == 64 ? row / 2 % 4 : row % 8)) * 16;
}

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
    return group * SLAB_BYTES + chunk_place(place, chunk);
}

/* One chunk of 16 bytes, element by element. */
INLINE void fetch_elements(uint to, __global const storage *from)
{
    __global const ushort *bits = (__global const ushort *)from;
    const uint4 x = {
        bits[0] | (uint)bits[1] << 16, bits[2] | (uint)bits[3] << 16,
        bits[4] | (uint)bits[5] << 16, bits[6] | (uint)bits[7] << 16};
    store_chunk(to, x);
}

/* Rows that a wave copies at once. */
#define ROW_STEP (WAVE / ROW_CHUNKS)

/* Rows [0, count) of a tile of keys or values. wide: they allow copies of 16
 * bytes, one after the other, as copies that wait for addresses are slow. */
INLINE void fetch_keys(uint to, __global const storage *from, uint pitch,
                       uint count, uint lane, int wide)
{
    const uint chunk = lane % ROW_CHUNKS, row = lane / ROW_CHUNKS;
    from += (ulong)row * pitch + chunk * 8;
    if (wide) {
        UNROLL_FOR (uint i = 0; i < TILE_KEYS; i += ROW_STEP) {
            if (NK % TILE_KEYS == 0 || row + i < count)
                copy_chunk(to + chunk_place(row + i, chunk), from);
            from += (ulong)ROW_STEP * pitch;
        }
        return;
    }
    NO_UNROLL_FOR (uint i = row; i < count; i += ROW_STEP) {
        fetch_elements(to + chunk_place(i, chunk), from);
        from += (ulong)ROW_STEP * pitch;
    }
}

/* Rows [0, count) of the block of queries. */
INLINE void fetch_queries(uint to, __global const storage *from, uint pitch,
                          uint count, uint lane, uint team, int wide)
{
    const uint chunk = lane % ROW_CHUNKS, row = lane / ROW_CHUNKS;
    from += (ulong)row * pitch + chunk * 8;
    if (wide) {
        UNROLL_FOR (uint i = 0; i < BLOCK_ROWS; i += ROW_STEP) {
            if ((BLOCK_ROWS % ROW_STEP == 0 && NQ % BLOCK_ROWS == 0) ||
                row + i < count)
                copy_chunk(to + place_of_row(row + i, chunk, team), from);
            from += (ulong)ROW_STEP * pitch;
        }
        return;
    }
    NO_UNROLL_FOR (uint i = row; i < count; i += ROW_STEP) {
        fetch_elements(to + place_of_row(i, chunk, team), from);
        from += (ulong)ROW_STEP * pitch;
    }
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
        LOAD_MATRICES(a, rows + chunk_place(lane % 16, 2 * step + lane / 16),
                      "");
        const uint b[2] = {a[0], a[2]}, c[2] = {a[1], a[3]};
        mma(a, b, low);
        mma(a, c, high);
    }
    squares[0] = lane / 4 % 2 ? low[1] : low[0];
    squares[1] = lane / 4 % 2 ? high[3] : high[2];
}

INLINE float window_factor(float square)
{
    return fmin(native_rsqrt(square), 1.0f / NORM_EPSILON);
}

/* One through the length of each of 16 keys, in the order in which lanes have
 * these keys' products: four numbers of each four lanes. */
INLINE void measure_keys(uint factors, uint rows, int lane)
{
    float squares[2];
    square_16(squares, rows, lane);
    UNROLL_FOR (uint r = 0; r < 2; r++)
        squares[r] = window_factor(squares[r]);
    if (lane % 4 == lane / 8) {
        const uint at = factors + lane / 8 * 16 + lane / 4 % 2 * 4;
        store_word(at, as_uint(squares[0]));
        store_word(at + 8, as_uint(squares[1]));
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

#endif
