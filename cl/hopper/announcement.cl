/* SPDX-License-Identifier: Apache-2.0
 * Work tiles of rows, as the producer announces them to consumers. */
#include "hopper/tile_runs.cl"

/* A work tile as it is announced to consumers: finding it out takes long, so
 * the producer does, ahead of time. */
typedef struct announcement {
    work_tile tile;
    uint end;              /* of its rows */
    span seen[BLOCK_ROWS]; /* by its rows; those past the last are like it */
} announcement;
typedef char
    announcements_fit[sizeof(announcement) == ANNOUNCEMENT_BYTES ? 1 : -1];

INLINE key_loop announced_loop(const forward_args *args,
                               __local const announcement *note)
{
    return loop_between(args, note->seen[0], note->seen[BLOCK_ROWS - 1]);
}

/* By the producer warpgroup; `item` of it. */
INLINE void announce(__local announcement *note, const forward_args *args,
                     work_tile tile, uint item)
{
    const uint end = min(tile.row + BLOCK_ROWS, args->queries);
    if (item == 0) {
        note->tile = tile;
        note->end = end;
    }
    NO_UNROLL_FOR (uint row = item; row < BLOCK_ROWS; row += WARPGROUP)
        note->seen[row] = visible_span(args, min(tile.row + row, end - 1));
}
