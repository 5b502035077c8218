/* SPDX-License-Identifier: Apache-2.0
 * Sliding attention on matrix units: which query rows a work-group has, and
 * which keys those of a wave see. */
#include "matrix/waves.cl"

/* Rows of a wave: so many tiles, which share what it reads of keys. */
#define WAVE_ROWS (WAVE_TURNS * TILE_M)

/* There are registers for the operands of all of a wave's rows. */
#define KEEPS_OPERANDS (WAVE_TURNS * DIM_TILES <= 4)

/* The wave as a subtile knows it. Where registers are too few, operands of its
 * rows are read anew for each: compilers would keep them from one to the next,
 * and spill sums for it. */
INLINE wave wave_of_subtile(const wave *w)
{
    wave own = *w;
    if (!KEEPS_OPERANDS) {
        HIDE_LANE(own.lane);
    }
    return own;
}

/* Work tile `index` of a launch. Of the blocks of rows of a window, those come
 * first that see all of the blocks that a row may see, head by head, so that
 * neighbours share keys; then those at the beginning, which see fewer, the
 * longest first: so all work-groups end together. */
INLINE work_tile deal_work_tile(const forward_args *args, uint index)
{
    const uint in_launch = args->first_work_tile + index;
    const uint per_window = args->row_blocks * args->heads;
    const uint window = in_launch / per_window;
    const uint i = in_launch - window * per_window;
    const uint first_full = args->short_row_blocks;
    const uint full = args->row_blocks - first_full;
    work_tile tile;
    uint block;
    if (i < full * args->heads) {
        tile.head = i / full;
        block = first_full + i - tile.head * full;
    } else {
        const uint rest = i - full * args->heads;
        tile.head = rest % args->heads;
        block = first_full - 1 - rest / args->heads;
    }
    tile.window = args->first_window + window;
    tile.row = block * args->block_rows;
    return tile;
}

/* Puts what each row of the block sees where lanes will read it; rows past the
 * last see what that sees. */
INLINE void keep_spans(__local span *spans, const forward_args *args,
                       uint first_row, uint row_end, int item)
{
    for (int i = item; i < BLOCK_ROWS; i += TEAM)
        spans[i] = visible_span(args, min(first_row + i, row_end - 1));
}

/* What a wave knows of its rows. */
typedef struct wave_rows {
    int row;                 /* the first one, in the block */
    int count;               /* how many exist; none: 0 or less */
    uint all_first, all_end; /* keys that all of them see, next to the sink */
    __local span *spans;     /* of all of the block's rows */
} wave_rows;

INLINE span first_span(const wave_rows *rows)
{
    return rows->spans[rows->row];
}

INLINE span last_span(const wave_rows *rows)
{
    return rows->spans[rows->row + WAVE_ROWS - 1];
}

INLINE wave_rows find_wave_rows(__local span *spans, int row_count, int number)
{
    wave_rows rows;
    rows.row = number * WAVE_ROWS;
    rows.count = row_count - rows.row;
    rows.spans = spans;
    rows.all_first = last_span(&rows).low;
    rows.all_end = rows.count > 0 ? first_span(&rows).high : 0;
    return rows;
}

/* Do all of the wave's rows see all of a subtile's keys, from `first` on,
 * where keys from `end` on count as unseen? Of most subtiles they do, so this
 * asks little, and without branches. */
INLINE int see_all(const forward_args *args, const wave_rows *rows, uint first,
                   uint end)
{
    const uint next = first + SUBTILE_KEYS;
    const int is_before_end = next <= min(rows->all_end, end);
    const int is_in_window = first >= rows->all_first;
    const int is_in_sink = next <= args->sink;
    return is_before_end & (is_in_window | is_in_sink);
}

/* Does none of them see any? */
INLINE int see_nothing(const forward_args *args, const wave_rows *rows,
                       uint first, uint end)
{
    return rows->count <= 0 || first >= end ||
           lie_before(last_span(rows), first) ||
           lie_behind(args, first_span(rows), first,
                      min(first + SUBTILE_KEYS, end));
}

/* Scores of a tile, of keys `key` and on, become `hidden` where the row does
 * not see the key, and those of keys from `end` on. */
INLINE void hide_unseen(float *scores, const forward_args *args,
                        const wave_rows *rows, int turn, uint key, uint end,
                        float hidden, const wave *w)
{
    span seen[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        seen[r] =
            rows->spans[rows->row + turn * TILE_M + lane_query(w->lane, r)];
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const uint at = key + value_key(w->lane, i);
        scores[i] =
            at < end && sees(args, seen[LANE_ROW(i)], at) ? scores[i] : hidden;
    }
}
