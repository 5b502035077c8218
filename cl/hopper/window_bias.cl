/* SPDX-License-Identifier: Apache-2.0
 * The biases of a block of rows of a head, in local memory as lanes want them:
 * for each tile of 16 rows, tile of keys and 16 of these eight numbers of each
 * lane, in the order of its scores, in chunks of 16 bytes. A key that there is
 * not has -infinity, so that its weight is 0. */
#include "common/problem.cl"
#include "hopper/window_extents.h"

#include "hopper/bias_chunks.cl"
#include "hopper/stored_numbers.cl"

typedef char biases_have_the_stored_type[BIAS < 2 ? 1 : -1];

#if BIAS
/* Of 16 rows and a tile of keys, and of all keys. */
#define TILE_BIAS_BYTES (TILE_KEYS / 16 * BIAS_CHUNK_BYTES)
#define WAVE_BIAS_BYTES (KEY_TILES * TILE_BIAS_BYTES)

/* -infinity as it is stored. */
#define NO_KEY (DTYPE == 1 ? 0xfc00u : 0xff80u)

/* Eight numbers of a lane, of rows from first_row and keys from first_key on.
 */
INLINE void find_16(uint *words, const forward_args *args,
                    const score_bias_view *view, int first_row, int first_key,
                    const int in_pairs, int lane)
{
    __global const ushort *bits = (__global const ushort *)view->bias;
    UNROLL_FOR (int n = 0; n < 8; n += 2) {
        const int row =
            min(first_row + lane / 4 + 8 * (n / 2 % 2), (int)NQ - 1);
        const int key = first_key + n / 4 * 8 + 2 * (lane % 4);
        if (in_pairs) {
            words[n / 2] = *(
                __global const uint *)(bits + bias_at(args, view, row,
                                                      min(key, (int)NK - 2)));
            words[n / 2] =
                key < (int)NK ? words[n / 2] : NO_KEY << 16 | NO_KEY;
            continue;
        }
        const uint low =
            key < (int)NK ? bits[bias_at(args, view, row, key)] : NO_KEY;
        const uint high = key + 1 < (int)NK
                              ? bits[bias_at(args, view, row, key + 1)]
                              : NO_KEY;
        words[n / 2] = low | high << 16;
    }
}

/* Chunks of 16 rows, and of all of the block. */
#define ROW_CHUNKS_OF_BIAS (KEY_TILES * (TILE_KEYS / 16))
#define BIAS_CHUNKS (ROW_TILES * ROW_CHUNKS_OF_BIAS)

/* All biases of rows [first_row, first_row + BLOCK_ROWS), by all waves that
 * compute, each a few chunks at a time that are on their way. in_pairs:
 * numbers of two keys are 4 bytes that are aligned. */
#define BIAS_TURNS 4
INLINE void keep_biases(uint to, const forward_args *args,
                        const score_bias_view *view, int first_row, uint wave,
                        const int in_pairs, int lane)
{
    const uint groups = ROW_CHUNKS_OF_BIAS, all = BIAS_CHUNKS;
    NO_UNROLL_FOR (uint first = BIAS_TURNS * wave; first < all;
                   first += BIAS_TURNS * COMPUTING_WAVES) {
        uint words[BIAS_TURNS][4];
        UNROLL_FOR (uint n = 0; n < BIAS_TURNS; n++) {
            const uint i = min(first + n, all - 1), tile = i / groups;
            find_16(words[n], args, view, first_row + (int)(tile * WAVE_ROWS),
                    16 * (int)(i - tile * groups), in_pairs, lane);
        }
        UNROLL_FOR (uint n = 0; n < BIAS_TURNS; n++) {
            const uint *x = words[n];
            const uint4 chunk = {x[0], x[1], x[2], x[3]};
            store_chunk(to + min(first + n, all - 1) * BIAS_CHUNK_BYTES +
                            lane * 16,
                        chunk);
        }
    }
}

/* The same where rows are copied (bias_chunks.cl), four chunks, of 64 keys, at
 * a time. Those of each row's first keys come first, so that the first tile
 * is weighed while the others are on their way: all compute units want theirs
 * at once, and for that the second level of cache takes three microseconds. */
#define COPIES_BIASES (NK % TILE_KEYS == 0 && NK % 64 == 0 && TILE_KEYS <= 64)
#define ROW_LINES (ROW_CHUNKS_OF_BIAS / 4)
typedef struct bias_line {
    uint row_tile, number;
} bias_line;

/* Of the lines that come first, or of the others. */
INLINE uint count_lines(const int are_first)
{
    return ROW_TILES * (are_first ? 1 : ROW_LINES - 1);
}
INLINE bias_line line_of(const int are_first, uint i)
{
    const uint row_tile = are_first ? i : i / (ROW_LINES - 1);
    const bias_line line = {
        .row_tile = row_tile,
        .number = are_first ? 0 : 1 + i - row_tile * (ROW_LINES - 1)};
    return line;
}
INLINE uint place_of_line(uint to, bias_line line)
{
    return to +
           (line.row_tile * ROW_LINES + line.number) * (4 * BIAS_CHUNK_BYTES);
}

INLINE void copy_biases(uint to, const forward_args *args,
                        const score_bias_view *view, int first_row, uint wave,
                        int lane)
{
    UNROLL_FOR (int turn = 0; turn < 2; turn++) {
        NO_UNROLL_FOR (uint i = wave; i < count_lines(turn == 0);
                       i += COMPUTING_WAVES) {
            const bias_line line = line_of(turn == 0, i);
            copy_bias_chunks(place_of_line(to, line), 4, args, view,
                             (uint)first_row + line.row_tile * WAVE_ROWS,
                             line.number * 64, (uint)lane);
        }
        END_COPIES();
    }
}

/* Where they have come, the first or the others, in the order of scores; by
 * who has copied them. */
INLINE void order_biases(uint to, const int are_first, uint wave, int lane)
{
    if (are_first)
        AWAIT_COPIES(1);
    else
        AWAIT_COPIES(0);
    WAVE_SYNC();
    NO_UNROLL_FOR (uint i = wave; i < count_lines(are_first);
                   i += COMPUTING_WAVES)
        order_bias_chunks(place_of_line(to, line_of(are_first, i)), 4, 0,
                          (uint)lane);
}

INLINE int has_pairs(const forward_args *args, const score_bias_view *view)
{
    return TABLE == 0 && ADJACENT_KEYS && NK % 2 == 0 &&
           args->bias.row % 2 == 0 && (size_t)view->bias % 4 == 0;
}

/* Eight numbers of a lane, of the tile's chunk c. */
INLINE void load_biases(float *to, uint from, const int c)
{
    const uint4 x = load_chunk(from + c * BIAS_CHUNK_BYTES);
    const uint words[4] = {x.x, x.y, x.z, x.w};
    unpack_pairs(to, words);
}
#endif
