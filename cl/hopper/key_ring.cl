/* SPDX-License-Identifier: Apache-2.0
 * The ring of tiles (tile_ring.cl) as the forward pass has it: keys and values
 * pass, and what is kept are the warpgroups' queries, of a work tile and of
 * the next. */
#include "hopper/tile_ring.cl"
#include "hopper/tile_runs.cl"

/* Of the round's work tile, a warpgroup's; and of their phases the parity. */
INLINE uint queries_of(const tile_ring *ring, uint round, uint warpgroup)
{
    return kept_tile(ring, round % QUERY_STAGES * WARPGROUPS + warpgroup);
}
INLINE uint query_parity(uint round) { return round / QUERY_STAGES % 2; }

INLINE uint queries_filled(const tile_ring *ring, uint round)
{
    return nth_barrier(ring, 4 * STAGES + round % QUERY_STAGES);
}
INLINE uint queries_read(const tile_ring *ring, uint round)
{
    return nth_barrier(ring, 4 * STAGES + QUERY_STAGES + round % QUERY_STAGES);
}
INLINE uint announced(const tile_ring *ring, uint round)
{
    return nth_barrier(ring,
                       4 * STAGES + 2 * QUERY_STAGES + round % QUERY_STAGES);
}

/* By as many work-items as there are barriers; a barrier of the work-group
 * publishes it. */
INLINE void make_ring_barrier(const tile_ring *ring, uint n)
{
    const uint kept = n - 4 * STAGES;
    uint arrivals = ALL_ARRIVE; /* queries_filled, announced */
    if (n < 2 * STAGES)
        arrivals = FILLED_TOGETHER ? ALL_ARRIVE : HALF_ARRIVES; /* filled */
    else if (n < 4 * STAGES ||
             (kept >= QUERY_STAGES && kept < 2 * QUERY_STAGES))
        arrivals = WAVES_ARRIVE; /* was_read, queries_read */
    make_mbarrier(nth_barrier(ring, n), arrivals);
}
