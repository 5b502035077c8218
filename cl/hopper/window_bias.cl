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

#include "hopper/bias_drops.cl"

typedef char biases_have_the_stored_type[BIAS < 2 ? 1 : -1];

INLINE void load_two_floats(float *to, uint from)
{
    __asm__ volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(to[0]), "=f"(to[1])
                     : "r"(from)
                     : "memory");
}

#if BIAS
/* Of 16 rows and 16 keys, of 16 rows and a tile of keys, and of all keys. */
#define CHUNK_BIAS_BYTES (WAVE * 16)
#define TILE_BIAS_BYTES (TILE_KEYS / 16 * CHUNK_BIAS_BYTES)
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

/* All biases of rows [first_row, first_row + BLOCK_ROWS), by all waves that
 * compute, each a few at a time that are on their way. in_pairs: numbers of
 * two keys are 4 bytes that are aligned. range: of the wave's. */
#define BIAS_TURNS 4
#define COMPUTING_WAVES (WARPGROUPS * (WARPGROUP / WAVE))
#define BIAS_CHUNKS (ROW_TILES * KEY_TILES * (TILE_KEYS / 16))
INLINE void keep_biases(uint to, bias_range *range, const forward_args *args,
                        const score_bias_view *view, int first_row, uint wave,
                        const int in_pairs, int lane)
{
    const uint groups = KEY_TILES * (TILE_KEYS / 16), all = BIAS_CHUNKS;
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
            store_chunk(to + min(first + n, all - 1) * CHUNK_BIAS_BYTES +
                            lane * 16,
                        chunk);
            if (MAY_DROP)
                note_biases(range, x);
        }
    }
}

/* The wave's part of them becomes drops. */
INLINE void drop_all_biases(uint at, float shift, uint wave, int lane)
{
    NO_UNROLL_FOR (uint first = BIAS_TURNS * wave; first < BIAS_CHUNKS;
                   first += BIAS_TURNS * COMPUTING_WAVES)
        NO_UNROLL_FOR (uint i = first;
                       i < min(first + BIAS_TURNS, (uint)BIAS_CHUNKS); i++) {
            const uint of_lane = at + i * CHUNK_BIAS_BYTES + lane * 16;
            const uint4 x = load_chunk(of_lane);
            uint words[4] = {x.x, x.y, x.z, x.w};
            drop_biases(words, shift);
            store_chunk(of_lane,
                        (uint4)(words[0], words[1], words[2], words[3]));
        }
}

INLINE int has_pairs(const forward_args *args, const score_bias_view *view)
{
    return TABLE == 0 && ADJACENT_KEYS && NK % 2 == 0 &&
           args->bias.row % 2 == 0 && (size_t)view->bias % 4 == 0;
}

/* Eight numbers of a lane, of the tile's chunk c. */
INLINE void load_biases(float *to, uint from, const int c, const int drops)
{
    const uint4 x = load_chunk(from + c * CHUNK_BIAS_BYTES);
    const uint words[4] = {x.x, x.y, x.z, x.w};
    if (drops)
        unpack_drops(to, words);
    else
        unpack_pairs(to, words);
}
#endif

#endif
