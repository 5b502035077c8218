/* SPDX-License-Identifier: Apache-2.0
 * Biases of 16 rows and 16 columns of scores, a chunk, on their way to local
 * memory, where each lane has 16 bytes of one: its eight in the order of its
 * scores, beside the next lane's. Where the caller's biases allow copies of 16
 * bytes, a wave has all of its chunks under way at once, as rows, and puts
 * each in order when they have come: when a launch begins, all wait for them.
 */
#ifndef BIAS_CHUNKS_CL
#define BIAS_CHUNKS_CL
#include "common/score_bias_tensors.cl"
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"

#define BIAS_CHUNK_BYTES (WAVE * 16)

/* May a head's be copied so? Of keys that all exist. */
INLINE int has_bias_rows(const forward_args *args, const score_bias_view *view)
{
    return TABLE == 0 && ADJACENT_KEYS && args->bias.row % 8 == 0 &&
           (size_t)view->bias % 16 == 0;
}

/* Queries from `row` on, the last one again behind it, and keys from `key` on.
 */
INLINE void copy_bias_chunk(uint to, const forward_args *args,
                            const score_bias_view *view, uint row, uint key,
                            uint lane)
{
    const int own = (int)min(row + lane / 2, NQ - 1u);
    copy_chunk(to + lane * 16,
               view->bias +
                   bias_at(args, view, own, (int)(key + lane % 2 * 8)));
}

/* By a wave, whose copies have come. transposed: rows of scores are keys. */
INLINE void order_bias_chunk(uint at, const int transposed, uint lane)
{
    uint words[4];
    const uint row = transposed ? lane % 8 + lane / 16 * 8 : lane % 16;
    const uint half_row = transposed ? lane / 8 % 2 : lane / 16;
    const uint from = at + row * 32 + half_row * 16;
    if (transposed)
        LOAD_MATRICES(words, from, ".trans");
    else
        LOAD_MATRICES(words, from, "");
    WAVE_SYNC(); /* all have read it */
    store_chunk(at + lane * 16,
                (uint4)(words[0], words[1], words[2], words[3]));
}

#endif
