/* SPDX-License-Identifier: Apache-2.0
 * Which keys a query sees: all of its window or, sliding, those of the blocks
 * before it and the sink; and the walk over them, BLOCK_KEYS at a time.
 * problem.cl includes it, behind the switches VARIANT, NK and BLOCK_KEYS. */

#if VARIANT == SLIDING
/* Keys [low, high) are what a query sees next to the sink. */
typedef struct span {
    uint low, high;
} span;

INLINE ulong block_start(const forward_args *args, ulong block)
{
    return block == 0 ? 0
                      : args->first_block + (block - 1) * (ulong)args->block;
}

INLINE span visible_span(const forward_args *args, uint row)
{
    const uint position = row + args->query_offset;
    const ulong block = position < args->first_block
                            ? 0
                            : 1 + (position - args->first_block) / args->block;
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
#endif

/* The walk over the keys that rows [row, row_end) see: first the sink, as far
 * as it lies before the window, then the window. */
typedef struct key_walk {
    uint blocks;
#if VARIANT == SLIDING
    uint sink_end, sink_blocks;
    span first_row, last_row;
#endif
} key_walk;

/* Keys [first, first + count); mixed: some row does not see all of them. */
typedef struct key_range {
    uint first, count;
    int mixed;
} key_range;

INLINE key_walk walk_keys(const forward_args *args, uint row, uint row_end)
{
    key_walk walk;
#if VARIANT == SLIDING
    walk.first_row = visible_span(args, row);
    walk.last_row = visible_span(args, row_end - 1);
    walk.sink_end = min(args->sink, walk.first_row.low);
    walk.sink_blocks = (walk.sink_end + BLOCK_KEYS - 1) / BLOCK_KEYS;
    walk.blocks = walk.sink_blocks +
                  (walk.last_row.high - walk.first_row.low + BLOCK_KEYS - 1) /
                      BLOCK_KEYS;
#else
    walk.blocks = (NK + BLOCK_KEYS - 1) / BLOCK_KEYS;
#endif
    return walk;
}

INLINE key_range walk_block(const forward_args *args, const key_walk *walk,
                            uint b)
{
    key_range range;
#if VARIANT == SLIDING
    const int in_sink = b < walk->sink_blocks;
    range.first =
        in_sink ? b * BLOCK_KEYS
                : walk->first_row.low + (b - walk->sink_blocks) * BLOCK_KEYS;
    const uint end = min(range.first + BLOCK_KEYS,
                         in_sink ? walk->sink_end : walk->last_row.high);
    range.count = end - range.first;
    range.mixed =
        see_mixed(args, walk->first_row, walk->last_row, range.first, end);
#else
    range.first = b * BLOCK_KEYS;
    range.count = min(NK - range.first, (uint)BLOCK_KEYS);
    range.mixed = 0;
#endif
    return range;
}
