/* SPDX-License-Identifier: Apache-2.0
 * The biases of a block of rows of a head, in local memory as lanes want them:
 * for each tile of 16 rows, tile of keys and 16 of these eight numbers of each
 * lane, in the order of its scores, in chunks of 16 bytes. A key that there is
 * not has -infinity, so that its weight is 0. */
#ifndef WINDOW_BIAS_CL
#define WINDOW_BIAS_CL
#include "common/problem.cl"
#include "common/score_bias_tensors.cl"
#include "hopper/window_extents.h"

#include "hopper/bias_chunks.cl"
#include "hopper/stored_numbers.cl"

typedef char biases_have_the_stored_type[BIAS < 2 ? 1 : -1];

INLINE void load_two_floats(float *to, uint from)
{
    __asm__ volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(to[0]), "=f"(to[1])
                     : "r"(from)
                     : "memory");
}

#if BIAS
/* Of 16 rows and a tile of keys, and of all keys. */
#define TILE_BIAS_BYTES (TILE_KEYS / 16 * BIAS_CHUNK_BYTES)
#define WAVE_BIAS_BYTES (KEY_TILES * TILE_BIAS_BYTES)

INLINE float load_bias(const forward_args *args, const score_bias_view *view,
                       int row, int key)
{
    return JOIN(load, BIAS_SUFFIX)(view->bias, bias_at(args, view, row, key));
}

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
#define COMPUTING_WAVES (WARPGROUPS * (WARPGROUP / WAVE))

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

/* The same where rows are copied (bias_chunks.cl), four chunks at a time. */
#define COPIES_BIASES (NK % TILE_KEYS == 0 && NK % 64 == 0)
INLINE void copy_biases(uint to, const forward_args *args,
                        const score_bias_view *view, int first_row, uint wave,
                        int lane)
{
    NO_UNROLL_FOR (uint turn = 0; turn < 2; turn++) {
        NO_UNROLL_FOR (uint i = 4 * wave; i < BIAS_CHUNKS;
                       i += 4 * COMPUTING_WAVES) {
            const uint at = to + i * BIAS_CHUNK_BYTES;
            const uint tile = i / ROW_CHUNKS_OF_BIAS;
            if (turn == 0)
                copy_bias_chunks(at, 4, args, view,
                                 (uint)first_row + tile * WAVE_ROWS,
                                 i % ROW_CHUNKS_OF_BIAS * 16, (uint)lane);
            else
                order_bias_chunks(at, 4, 0, (uint)lane);
        }
        await_copies();
        WAVE_SYNC();
    }
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

#endif
