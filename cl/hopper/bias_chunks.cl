/* SPDX-License-Identifier: Apache-2.0
 * Biases of 16 rows and 16 columns of scores, a chunk, on their way to local
 * memory, where each lane has 16 bytes of one: its eight in the order of its
 * scores, beside the next lane's. Where the caller's biases allow copies of 16
 * bytes, a wave has all of its chunks under way at once, as rows, and puts
 * each in order when they have come: when a launch begins, all wait for them.
 * Of four chunks beside each other a row is a line of 128 bytes, so that a
 * copy by a wave asks the first level of cache for four lines, not for 16. */
#include "hopper/lanes.cl"
#include "hopper/mbarrier.cl"

#if BIAS
#define BIAS_CHUNK_BYTES (WAVE * 16)

/* Where 16 bytes of a row wait, of `chunks` chunks beside each other, 1 or 4,
 * from `at` on. */
INLINE uint bias_piece(uint at, const uint chunks, uint row, uint piece)
{
    return at + row * (32 * chunks) +
           (piece ^ (chunks == 4 ? row % 8 : 0)) * 16;
}

/* Queries from `row` on, the last one again behind it, and 16 keys for each
 * chunk from `key` on. */
INLINE void copy_bias_chunks(uint at, const uint chunks,
                             const forward_args *args,
                             const score_bias_view *view, uint row, uint key,
                             uint lane)
{
    const uint piece = lane % (2 * chunks);
    UNROLL_FOR (uint i = 0; i < chunks; i++) {
        const uint own = i * (16 / chunks) + lane / (2 * chunks);
        copy_chunk(bias_piece(at, chunks, own, piece),
                   view->bias + bias_at(args, view,
                                        (int)min(row + own, NQ - 1u),
                                        (int)(key + piece * 8)));
    }
}

/* By a wave, whose copies have come. transposed: rows of scores are keys. */
INLINE void order_bias_chunks(uint at, const uint chunks, const int transposed,
                              uint lane)
{
    uint words[4][4];
    const uint row = transposed ? lane % 8 + lane / 16 * 8 : lane % 16;
    const uint half_row = transposed ? lane / 8 % 2 : lane / 16;
    UNROLL_FOR (uint i = 0; i < chunks; i++) {
        const uint from = bias_piece(at, chunks, row, 2 * i + half_row);
        if (transposed)
            LOAD_MATRICES(words[i], from, ".trans");
        else
            LOAD_MATRICES(words[i], from, "");
    }
    WAVE_SYNC(); /* all have read them */
    UNROLL_FOR (uint i = 0; i < chunks; i++)
        store_chunk(
            at + i * BIAS_CHUNK_BYTES + lane * 16,
            (uint4)(words[i][0], words[i][1], words[i][2], words[i][3]));
}
#endif
