/* SPDX-License-Identifier: Apache-2.0
 * Which keys a query sees: all of its window or, sliding, those of the blocks
 * before it and the sink; and the loop over them, BLOCK_KEYS at a time.
 * problem.cl includes it, behind the switches VARIANT, NK and BLOCK_KEYS. */

/* Keys [low, high) are what a query sees next to the sink. */
typedef struct span {
    uint low, high;
} span;

INLINE ulong block_start(const forward_args *args, ulong block)
{
    return block == 0 ? 0
                      : args->first_block + (block - 1) * (ulong)args->block;
}

INLINE ulong block_of(const forward_args *args, uint position)
{
    return position < args->first_block
               ? 0
               : 1 + (position - args->first_block) / args->block;
}

INLINE span visible_span(const forward_args *args, uint row)
{
    const ulong block = block_of(args, row + args->query_offset);
    const ulong first =
        (args->flags & ARG_WINDOW_BOUNDED) != 0 && block >= args->window
            ? block - args->window + 1
            : 0;
    const ulong keys = args->keys;
    span s;
    s.high = (uint)min(block_start(args, block + 1), keys);
    s.low = (uint)min(block_start(args, first), (ulong)s.high);
    return s;
}

/* Keys may be numbers or vectors of type `number`. */
#define IS_SEEN(args, s, keys, number)                                        \
    ((keys) < (number)(s).high &&                                             \
     ((keys) >= (number)(s).low || (keys) < (number)(args)->sink))
INLINE int sees(const forward_args *args, span s, uint key)
{
    return IS_SEEN(args, s, key, uint);
}

/* Of neighbouring rows, given what the first and the last see, and keys
 * [first, end): */
/* do they all lie before the keys? */
INLINE int lie_before(span last_row, uint first)
{
    return last_row.high <= first;
}
/* do they all lie behind, so that later rows do too? */
INLINE int lie_behind(const forward_args *args, span first_row, uint first,
                      uint end)
{
    return first_row.low >= end && first >= args->sink;
}
/* does one of them see some of the keys only? */
INLINE int see_mixed(const forward_args *args, span first_row, span last_row,
                     uint first, uint end)
{
    return end > first_row.high || (first < last_row.low && end > args->sink);
}

/* Of neighbouring keys: rows that see some of them, and those of these that
 * see them all. */
typedef struct row_range {
    uint first, end, all_first, all_end;
} row_range;

/* The first query at or behind a position. */
INLINE uint query_at(const forward_args *args, ulong position)
{
    const ulong offset = args->query_offset;
    return (uint)min(position > offset ? position - offset : 0,
                     (ulong)args->queries);
}

/* Of keys first to last. */
INLINE row_range rows_of_keys(const forward_args *args, uint first, uint last)
{
    const ulong first_block = block_of(args, first);
    const ulong last_block = block_of(args, last);
    const int bounded = (args->flags & ARG_WINDOW_BOUNDED) != 0;
    row_range r;
    r.first = query_at(args, block_start(args, first_block));
    r.all_first = query_at(args, block_start(args, last_block));
    r.end = !bounded || first < args->sink
                ? args->queries
                : query_at(args, block_start(args, last_block + args->window));
    r.all_end =
        !bounded || last < args->sink
            ? args->queries
            : query_at(args, block_start(args, first_block + args->window));
    return r;
}

/* The loop over the keys that rows [row, row_end) see: first the sink, as far
 * as it lies before the window, then the window. */
typedef struct key_loop {
    uint blocks;
    uint sink_end, sink_blocks; /* of sliding attention */
    span first_row, last_row;
} key_loop;

/* Keys [first, first + count); mixed: some row does not see all of them. */
typedef struct key_range {
    uint first, count;
    int mixed;
} key_range;

INLINE key_loop loop_over_keys(const forward_args *args, uint row,
                               uint row_end)
{
    key_loop loop;
    if (VARIANT != SLIDING) {
        loop.blocks = (KEY_COUNT(args) + BLOCK_KEYS - 1) / BLOCK_KEYS;
        return loop;
    }
    loop.first_row = visible_span(args, row);
    loop.last_row = visible_span(args, row_end - 1);
    loop.sink_end = min(args->sink, loop.first_row.low);
    loop.sink_blocks = (loop.sink_end + BLOCK_KEYS - 1) / BLOCK_KEYS;
    loop.blocks = loop.sink_blocks +
                  (loop.last_row.high - loop.first_row.low + BLOCK_KEYS - 1) /
                      BLOCK_KEYS;
    return loop;
}

INLINE key_range loop_block(const forward_args *args, const key_loop *loop,
                            uint b)
{
    key_range range;
    if (VARIANT != SLIDING) {
        range.first = b * BLOCK_KEYS;
        range.count = min(KEY_COUNT(args) - range.first, (uint)BLOCK_KEYS);
        range.mixed = 0;
        return range;
    }
    const int in_sink = b < loop->sink_blocks;
    range.first =
        in_sink ? b * BLOCK_KEYS
                : loop->first_row.low + (b - loop->sink_blocks) * BLOCK_KEYS;
    const uint end = min(range.first + BLOCK_KEYS,
                         in_sink ? loop->sink_end : loop->last_row.high);
    range.count = end - range.first;
    range.mixed =
        see_mixed(args, loop->first_row, loop->last_row, range.first, end);
    return range;
}
