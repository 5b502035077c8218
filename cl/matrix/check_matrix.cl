/* SPDX-License-Identifier: Apache-2.0
 * Does the device's matrix unit do what fragment.cl says of it? One wave
 * computes one tile of scores, of row sums, of o and of a gradient in the way
 * of the attention kernels, and the host (self_test.c) knows the right
 * numbers.
 *
 *   tiles    queries [UNIT_QUERIES][UNIT_TILE], keys and values [UNIT_TILE]
 *            [UNIT_TILE], as the caller would store them. Of each the last
 *            row is never read, but the one before it in its place; and
 *            zeros in place of the first row of values.
 *   given    [2][UNIT_QUERIES][UNIT_TILE]: what scores start from, and the
 *            weights before they are rounded
 *   results  [4][UNIT_QUERIES][UNIT_TILE]: scores; o; the sum of a row's
 *            weights, once for each key; weights the other way round, but
 *            for every fourth query's, whose are small, times values, whose
 *            first UNIT_QUERIES rows are then of queries; for the first
 *            UNIT_QUERIES keys. TF32 has no gradients, so not the last of
 *            these */
#define HEAD_DIM UNIT_TILE
#include "unit/fragment_tiles.cl"

#define TEAM_WAVES 1

#define CHUNKS (UNIT_TILE / CHUNK)
#define PITCH ROW_PITCH(UNIT_TILE)
#define FIRST_KEY UNIT_QUERIES
#define FIRST_VALUE (FIRST_KEY + UNIT_TILE)
#define FIRST_WEIGHT (FIRST_VALUE + UNIT_TILE)
#define ALL_ROWS (FIRST_WEIGHT + UNIT_TILE)

__kernel __attribute__((reqd_work_group_size(WAVE, 1, 1))) WAVE_ATTRIBUTE void
JOIN(check_matrix_, UNIT_NAME)(__global const storage_bits *tiles,
                               __global const float *given,
                               __global float *results)
{
    __local uint4 places[ALL_ROWS * PITCH / CHUNK]
        __attribute__((aligned(128)));
    __local storage_bits *rows = (__local storage_bits *)places;
#if EMULATED
    __local uint exchange[EXCHANGE_WORDS];
    const wave wave_here = {.lane = (int)get_local_id(0),
                            .exchange = exchange};
#else
    const wave wave_here = {.lane = (int)get_local_id(0)};
#endif
    const wave *w = &wave_here;
    const int all = UNIT_QUERIES * UNIT_TILE;
    for (int i = w->lane; i < FIRST_WEIGHT * CHUNKS; i += WAVE)
        copy_16(rows + row_place(i / CHUNKS, i % CHUNKS * CHUNK, PITCH),
                tiles + i * CHUNK, i / CHUNKS != FIRST_VALUE, 1);
    END_COPIES();
    AWAIT_COPIES(0);
    TEAM_SYNC(0);

    float scores[VALUES], weights[VALUES], out[VALUES], sums[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sums[r] = 0.0f;
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int at =
            value_query(w->lane, i) * UNIT_TILE + value_key(w->lane, i);
        scores[i] = given[at];
        weights[i] = given[all + at];
        out[i] = 0.0f;
        sums[LANE_ROW(i)] += weights[i];
    }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(sums[r], ADD);
    }
    const query_tile q = load_query(rows, PITCH, 0, 0, UNIT_QUERIES - 2, w);
    const key_tile k = load_key(rows + FIRST_KEY * PITCH, PITCH, 0, 0,
                                UNIT_TILE - 2, UNIT_TILE, w);
    multiply_tiles(scores, &q, &k, w);
    const query_tile p = make_weights(weights, w);
    const key_tile v = load_value(rows + FIRST_VALUE * PITCH, PITCH, 0, 0,
                                  UNIT_TILE - 2, UNIT_TILE, w);
    multiply_tiles(out, &p, &v, w);
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int at =
            value_query(w->lane, i) * UNIT_TILE + value_key(w->lane, i);
        results[at] = scores[i];
        results[all + at] = out[i];
        results[2 * all + at] = sums[LANE_ROW(i)];
    }

#if DTYPE != 0
    __local storage_bits *own_weights = rows + FIRST_WEIGHT * PITCH;
    float large[VALUES], across[VALUES];
    for (int i = w->lane; i < UNIT_TILE * PITCH; i += WAVE)
        own_weights[i] = 0;
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        across[i] = 0.0f;
        large[i] = value_query(w->lane, i) % 4 == 3 ? 0.0f : weights[i];
    }
    TEAM_SYNC(0);
    store_tile(large, own_weights, PITCH, 0, 0, UNIT_TILE, w);
    TEAM_SYNC(0);
    const query_tile p_across =
        load_weights(own_weights, PITCH, 0, 0, UNIT_TILE, w);
    multiply_tiles(across, &p_across, &v, w);
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        results[3 * all + value_query(w->lane, i) * UNIT_TILE +
                value_key(w->lane, i)] = across[i];
#endif
}
