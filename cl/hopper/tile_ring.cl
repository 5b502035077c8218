/* SPDX-License-Identifier: Apache-2.0
 * Tiles of two tensors on their way through local memory: a ring of STAGES,
 * which one warpgroup fills and WARPGROUPS read, and in front of it what these
 * keep for longer, tiles of 64 rows each.
 *
 *   fetching    await read -> copy -> arrive at filled; half of the waves
 *               fetch one tensor, the others the other
 *   computing   await filled -> products -> arrive at read, each wave once
 *
 * Rows are swizzled as products want them: chunk c of 16 bytes of row r is
 * where chunk c ^ (r % 8) would be. */
#include "hopper/head_planes.cl"
#include "hopper/mbarrier.cl"
#include "unit/unit_mma.cl"

/* Its address in local memory: kept tiles, stages, barriers. */
typedef struct tile_ring {
    uint kept;
} tile_ring;
#define STAGES_AT (KEPT_TILES * QUERY_BYTES)

/* Where a warpgroup is in the ring, which goes on from work tile to work tile.
 */
typedef struct ring_place {
    uint stage;
    uint parity; /* of its phase */
} ring_place;

INLINE ring_place next_place(ring_place at)
{
    at.stage++;
    if (at.stage == STAGES) {
        at.stage = 0;
        at.parity ^= 1;
    }
    return at;
}

/* Has a stage one barrier for both parts, which tells that it is filled, or
 * that it was read? That saves a consumer a few instructions, where it needs
 * both parts at once. */
#ifndef FILLED_TOGETHER
#define FILLED_TOGETHER 0
#endif
#ifndef READ_TOGETHER
#define READ_TOGETHER 0
#endif

/* Of a stage: keys or values; where keys are kept, queries or dO. */
typedef enum { KEYS, VALUES, QUERIES = KEYS, D_OUTS = VALUES } stage_part;
INLINE uint part_of(const tile_ring *ring, uint stage, stage_part part)
{
    return ring->kept + STAGES_AT + stage * STAGE_BYTES + part * KEY_BYTES;
}

INLINE uint kept_tile(const tile_ring *ring, uint tile)
{
    return ring->kept + tile * QUERY_BYTES;
}

INLINE uint nth_barrier(const tile_ring *ring, uint n)
{
    return ring->kept + OPERAND_BYTES + 8 * n;
}
INLINE uint filled(const tile_ring *ring, uint stage, stage_part part)
{
    return nth_barrier(ring, (FILLED_TOGETHER ? 0 : part) * STAGES + stage);
}
INLINE uint was_read(const tile_ring *ring, uint stage, stage_part part)
{
    return nth_barrier(ring, (READ_TOGETHER ? 2 : 2 + part) * STAGES + stage);
}

/* Who arrives at a barrier: the half of the producer warpgroup that a part
 * has, all of it, or all consumer waves. */
#define HALF_ARRIVES (WARPGROUP / 2)
#define ALL_ARRIVE WARPGROUP
#define WAVES_ARRIVE COMPUTING_WAVES

/* ---- The producer ---- */

/* A work-item's part of 64 rows from `first` on: chunk `chunk` of row `row`
 * and of every eighth after that, `to` being the first one's place. */
INLINE void copy_rows(uint to, __global const storage *from, uint pitch,
                      uint chunk)
{
    /* one after the other, as copies that wait for addresses are slow */
    UNROLL_FOR (uint row = 0; row < 64; row += 8) {
        UNROLL_FOR (uint panel = 0; panel < PANELS; panel++)
            if (panel * 8 + chunk < HEAD_DIM / 8)
                copy_chunk(to + row * ROW_BYTES + panel * (64 * ROW_BYTES),
                           from + panel * PANEL_CHANNELS);
        from += 8 * pitch;
    }
}

/* 64 rows from `first` on, those past the last like it, by the 64 work-items
 * of a half. wide: rows allow copies of 16 bytes. */
INLINE void fetch_rows(uint to, const row_plane *plane, uint first, uint item,
                       int wide)
{
    const uint chunk = item % 8;
    uint row = item / 8;
    to += row * ROW_BYTES + (chunk ^ row) * 16;
    if (wide && first + 63 <= plane->last) {
        copy_rows(
            to, plane->rows + (ulong)(first + row) * plane->pitch + chunk * 8,
            plane->pitch, chunk);
        return;
    }
    NO_UNROLL_FOR (; row < 64; row += 8) {
        __global const storage *from =
            plane->rows + (ulong)min(first + row, plane->last) * plane->pitch +
            chunk * 8;
        UNROLL_FOR (uint panel = 0; panel < PANELS; panel++) {
            const uint at = to + panel * (64 * ROW_BYTES);
            if (panel * 8 + chunk >= HEAD_DIM / 8)
                continue;
            if (wide)
                copy_chunk(at, from + panel * PANEL_CHANNELS);
            else
                fetch_elements(at, from + panel * PANEL_CHANNELS);
        }
        to += 8 * ROW_BYTES;
    }
}

/* ---- Consumers ---- */

/* Passes tiles [tile, end) that none of the warpgroup's rows sees. */
INLINE ring_place pass_tiles(const tile_ring *ring, ring_place at, uint tile,
                             uint end, int lane)
{
    NO_UNROLL_FOR (; tile < end; tile++) {
        await_phase(filled(ring, at.stage, KEYS), at.parity);
        leave(was_read(ring, at.stage, KEYS), lane);
        await_phase(filled(ring, at.stage, VALUES), at.parity);
        leave(was_read(ring, at.stage, VALUES), lane);
        at = next_place(at);
    }
    return at;
}
