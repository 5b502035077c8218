/* SPDX-License-Identifier: Apache-2.0
 * How a tile of rows that a wave has computed leaves: rounded, through local
 * memory, so that whole chunks are written, to tokens anywhere in a map. */
#include "matrix/pipeline.cl"

/* Where row r of a window, which exists, lies in its plane. 0: it is of the
 * padding. */
INLINE int find_row(ulong *at, const tensor_layout *layout,
                    const grid_layout *grid, const window_coord *coord, uint r)
{
    const token t = find_token(grid, coord, r);
    *at = token_offset(layout, &t);
    return EXISTS(t);
}

/* Where a tile of rows goes to: rows row .. row + count of a window. */
typedef struct row_target {
    __global storage *plane;
    const tensor_layout *layout;
    const grid_layout *grid;
    const window_coord *coord;
    uint row;
    int count;
    int adds; /* to what is there */
    int wide;
    const plane_offset *found; /* what find_stores says of it; NULL: nothing */
} row_target;

/* Rows of a head of the window, which are added to if that flag is set. */
INLINE row_target target_of(__global storage *tensor,
                            const tensor_layout *layout, uint head, uint row,
                            int count, uint adds, const forward_args *args,
                            const window_coord *coord)
{
    const row_target to = {.plane = tensor + plane(layout, coord->grid, head),
                           .layout = layout,
                           .grid = &args->grid,
                           .coord = coord,
                           .row = row,
                           .count = count,
                           .adds = (args->flags & adds) != 0,
                           .wide = (args->flags & ARG_WIDE_ACCESS) != 0};
    return to;
}

/* Where the chunks of a tile of rows that a lane stores go to: `dims` channels
 * of each. */
#define STORE_TURNS(dims) CEIL_DIV(TILE_M *(dims) / CHUNK, WAVE)
INLINE void find_stores(plane_offset *at, const tensor_layout *layout,
                        const grid_layout *grid, const window_coord *coord,
                        uint row, const int dims, const wave *w)
{
    UNROLL_FOR (int turn = 0; turn < STORE_TURNS(dims); turn++)
        at[turn] = find_chunk(layout, grid, coord, row, dims / CHUNK,
                              turn * WAVE + w->lane);
}

/* Half of a tile's rows, each times its factor, go to scratch [TILE_M /
 * 2][TILE_N], for all lanes of the wave. */
INLINE void spread_half(__local float *scratch, const float *tile,
                        const float *factor, int half_tile, const wave *w)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int r = value_query(w->lane, i) - half_tile * TILE_M / 2;
        if (r >= 0 && r < TILE_M / 2)
            scratch[r * TILE_N + value_key(w->lane, i)] =
                tile[i] * factor[LANE_ROW(i)];
    }
    WAVE_SYNC();
}

/* Channels that `count` tiles have from tile `first` on. */
INLINE int stored_channels(int first, const int count)
{
    return HEAD_DIM % OUT_DIMS == 0 && count == OUT_TILES
               ? OUT_DIMS
               : min(count * TILE_N, HEAD_DIM - first * TILE_N);
}

/* store_channels where they are added to what is there: in fp32, which
 * `staging` has room for by half a tile. */
INLINE void add_channels(float (*tiles)[ACC_PER_LANE], const float *factor,
                         int first, const int count,
                         __local storage_bits *staging, const row_target *to,
                         const wave *w)
{
    __local float *scratch = (__local float *)staging;
    const int channels = stored_channels(first, count);
    const int channel = first * TILE_N;
    ulong at;
    UNROLL_FOR (int d = 0; d < count; d++)
        NO_UNROLL_FOR (int half_tile = 0;
                       half_tile < (HAS_CHANNELS(first + d) ? 2 : 0);
                       half_tile++) {
            spread_half(scratch, tiles[d], factor, half_tile, w);
            NO_UNROLL_FOR (int i = w->lane; i < TILE_M / 2 * TILE_N;
                           i += WAVE) {
                const int r = half_tile * TILE_M / 2 + i / TILE_N;
                const int c = d * TILE_N + i % TILE_N;
                if (r >= to->count || c >= channels ||
                    !find_row(&at, to->layout, to->grid, to->coord,
                              to->row + r))
                    continue;
                at += (ulong)(channel + c) * to->layout->column;
                ((__global storage_bits *)to->plane)[at] =
                    stored_bits(LOAD(to->plane, at) + scratch[i]);
            }
            WAVE_SYNC();
        }
}

/* Stores a tile of rows from `staging`, of which each starts with a word. */
INLINE void store_words(__local const storage_bits *staging, const int pitch,
                        int channel, const int channels, const row_target *to,
                        const wave *w)
{
    ulong at;
    NO_UNROLL_FOR (int r = w->lane / WORD_LANES; r < to->count;
                   r += WAVE / WORD_LANES) {
        if (!find_row(&at, to->layout, to->grid, to->coord, to->row + r))
            continue;
        __global storage_bits *row =
            (__global storage_bits *)to->plane + at + channel;
        UNROLL_FOR (int word = 0; word < channels / WORD_ELEMENTS;
                    word += WORD_LANES) {
            const int c = (word + w->lane % WORD_LANES) * WORD_ELEMENTS;
            if (c < channels)
                *(__global uint *)(row + c) =
                    *(__local const uint *)(staging +
                                            swizzled_offset(r, c, pitch));
        }
    }
}

/* Stores a tile of rows from `staging`, which are no whole chunks. */
INLINE void store_narrow(__local const storage_bits *staging, const int pitch,
                         int channel, const int channels, const row_target *to,
                         const wave *w)
{
    ulong at;
    if (has_words(to->plane, to->layout)) {
        store_words(staging, pitch, channel, channels, to, w);
        return;
    }
    NO_UNROLL_FOR (int i = w->lane; i < to->count * channels; i += WAVE) {
        const int r = i / channels, c = i % channels;
        if (find_row(&at, to->layout, to->grid, to->coord, to->row + r))
            ((__global storage_bits *)
                 to->plane)[at + (ulong)(channel + c) * to->layout->column] =
                staging[swizzled_offset(r, c, pitch)];
    }
}

/* store_channels where they take the place of what is there. */
INLINE void replace_channels(float (*tiles)[ACC_PER_LANE], const float *factor,
                             int first, const int count,
                             __local storage_bits *staging, const int pitch,
                             const row_target *to, const wave *w)
{
    const int channels = stored_channels(first, count);
    const int channel = first * TILE_N;
    UNROLL_FOR (int d = 0; d < count; d++)
        if (HAS_CHANNELS(first + d)) {
            float x[ACC_PER_LANE];
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                x[i] = tiles[d][i] * factor[LANE_ROW(i)];
            store_tile(x, staging, pitch, 0, d * TILE_N, channels, w);
        }
    WAVE_SYNC();
    if (CHUNKS && to->wide) {
        const uint chunks = channels / CHUNK;
        uint4 x[STORE_TURNS(OUT_DIMS)];
        UNROLL_FOR (int turn = 0; turn < STORE_TURNS(channels); turn++) {
            const uint i = (uint)(turn * WAVE + w->lane);
            const int r = TILE_M * chunks % WAVE == 0
                              ? (int)(i / chunks)
                              : min((int)(i / chunks), TILE_M - 1);
            x[turn] =
                *(__local const uint4 *)(staging +
                                         swizzled_offset(r, i % chunks * CHUNK,
                                                         pitch));
            uint word = x[turn].x;
            HIDE_FROM_OPTIMIZER(word); /* all are read before one is stored */
            x[turn].x = word;
        }
        __global storage *plane = to->plane + channel;
        HIDE_PLANE(plane);
        UNROLL_FOR (int turn = 0; turn < STORE_TURNS(channels); turn++) {
            const uint i = (uint)(turn * WAVE + w->lane);
            const plane_offset found =
                to->found ? to->found[turn]
                          : find_chunk(to->layout, to->grid, to->coord,
                                       to->row, chunks, i);
            if ((int)(i / chunks) < to->count && !IS_PADDED(found))
                *(__global uint4 *)(plane + found) = x[turn];
        }
    } else {
        store_narrow(staging, pitch, channel, channels, to, w);
    }
    WAVE_SYNC();
}

/* Stores `count` tiles of channels, from tile `first` on, each row times its
 * factor. They leave through `staging`, a tile of rows of as many channels, so
 * that each is written in whole chunks; channels past the last stay there as
 * they are. */
INLINE void store_channels(float (*tiles)[ACC_PER_LANE], const float *factor,
                           int first, const int count,
                           __local storage_bits *staging, const int pitch,
                           const row_target *to, const wave *w)
{
    wave storing = *w; /* what lanes need for this is no register worth */
    if (!BACKWARD || !SWIZZLES_ROWS)
        HIDE_FROM_OPTIMIZER(storing.lane);
    w = &storing;
    if (to->adds)
        add_channels(tiles, factor, first, count, staging, to, w);
    else
        replace_channels(tiles, factor, first, count, staging, pitch, to, w);
}
