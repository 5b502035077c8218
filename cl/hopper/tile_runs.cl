/* SPDX-License-Identifier: Apache-2.0
 * Which tiles of keys a work-group fetches, and which of them a warpgroup
 * computes: the loop of visibility.cl over the keys that the work-group's rows
 * see, of which a warpgroup's 64 rows see the sink and the window, two runs of
 * tiles. And which rows a work-group has. */
#include "common/problem.cl"
#include "hopper/warpgroup_extents.h"

/* loop_over_keys, given what the first and the last row see. */
INLINE key_loop loop_between(const forward_args *args, span first, span last)
{
    key_loop loop;
    loop.first_row = first;
    loop.last_row = last;
    loop.sink_end = min(args->sink, first.low);
    loop.sink_blocks = CEIL_DIV(loop.sink_end, TILE_KEYS);
    loop.blocks =
        loop.sink_blocks + CEIL_DIV(last.high - first.low, TILE_KEYS);
    return loop;
}

/* The tile's first key. */
INLINE uint first_key(const key_loop *loop, uint tile)
{
    return tile < loop->sink_blocks
               ? tile * TILE_KEYS
               : loop->first_row.low + (tile - loop->sink_blocks) * TILE_KEYS;
}

/* Keys [first, end) of the tile. */
typedef struct key_tile {
    uint first, end;
    int whole; /* the tile is full, and all rows see all of it */
} key_tile;

/* What rows of a warpgroup see of a loop: tiles [0, sink_end) and [window,
 * end); where they touch, the first run has them all. All rows see all keys of
 * tiles [0, whole_sink) and [whole, whole_end), and perhaps of some more. */
typedef struct tile_runs {
    uint sink_end, window, end;
    uint whole_sink, whole, whole_end;
} tile_runs;

/* Given what the first and the last row see. */
INLINE tile_runs find_runs(const forward_args *args, const key_loop *loop,
                           span first, span last)
{
    const uint low = loop->first_row.low;
    const uint sink = min(args->sink, last.high);
    const uint before = loop->sink_blocks;
    tile_runs runs;
    runs.sink_end =
        before + (sink > low ? CEIL_DIV(sink - low, TILE_KEYS) : 0);
    runs.window = before + (first.low - low) / TILE_KEYS;
    runs.end = before + CEIL_DIV(last.high - low, TILE_KEYS);
    if (runs.window <= runs.sink_end)
        runs.sink_end = runs.window = runs.end;
    runs.whole_sink = loop->sink_end / TILE_KEYS;
    runs.whole = before + CEIL_DIV(last.low - low, TILE_KEYS);
    runs.whole_end = before + (max(first.high, low) - low) / TILE_KEYS;
    return runs;
}

/* Where the whole tiles end that begin with this one; the tile itself, if it
 * is not one. */
INLINE uint end_of_whole(const tile_runs *runs, uint tile)
{
    return tile < runs->whole_sink ? runs->whole_sink
           : tile >= runs->whole   ? max(runs->whole_end, tile)
                                   : tile;
}

INLINE key_tile find_key_tile(const key_loop *loop, const tile_runs *runs,
                              uint tile)
{
    key_tile t;
    t.first = first_key(loop, tile);
    t.end =
        min(t.first + TILE_KEYS,
            tile < loop->sink_blocks ? loop->sink_end : loop->last_row.high);
    t.whole = end_of_whole(runs, tile) > tile;
    return t;
}

/* Work tile `index` of those of so many heads of a launch: of all heads those
 * that see as many blocks as a row may see come first, head by head, as
 * neighbours share keys; then the others, `shorter` of each head, the longest
 * first, so that all work-groups end together. */
INLINE work_tile deal_sorted(const forward_args *args, uint index, uint heads,
                             uint shorter)
{
    const uint whole = args->row_blocks - shorter;
    const int is_whole = index < heads * whole;
    const uint i = is_whole ? index : index - heads * whole;
    const uint quotient = i / (is_whole ? whole : heads);
    const uint head = is_whole ? quotient : i - quotient * heads;
    const uint block =
        is_whole ? shorter + i - quotient * whole : shorter - 1 - quotient;
    const uint window = head / args->heads;
    work_tile tile;
    tile.window = args->first_window + window;
    tile.head = head - window * args->heads;
    tile.row = block * BLOCK_ROWS;
    return tile;
}

/* Work tile `index` of a launch. Launches of parts of a head take them as they
 * come. */
INLINE work_tile deal_work_tile(const forward_args *args, uint index)
{
    const uint end = args->first_work_tile + args->work_tiles;
    const int sorts =
        args->first_work_tile == 0 && end % args->row_blocks == 0;
    return deal_sorted(args, args->first_work_tile + index,
                       CEIL_DIV(end, args->row_blocks),
                       sorts ? args->short_row_blocks : 0);
}

/* What a work-group takes in its round: there and back, as what comes later is
 * shorter. */
INLINE uint index_in_round(uint round)
{
    const uint groups = (uint)get_num_groups(0), own = (uint)get_group_id(0);
    return round * groups + (round % 2 ? groups - 1 - own : own);
}
