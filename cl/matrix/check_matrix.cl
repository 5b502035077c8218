/* SPDX-License-Identifier: Apache-2.0
 * Does the device's matrix unit do what fragment.cl says of it? One wave
 * computes one tile of scores, of row sums, of o and of a gradient in the way
 * of the attention kernels, and the host (self_test.c) knows the right
 * numbers.
 *
 *   tiles    queries [TILE_M][TILE_N], keys and values [TILE_N]
 *            [TILE_N], as the caller would store them. Of each the last
 *            row is never read, but the one before it in its place; and
 *            zeros in place of the first row of values.
 *   initial  [2][TILE_M][TILE_N]: what scores start from, and the
 *            weights before they are rounded
 *   results  [4][TILE_M][TILE_N]: scores; o; the sum of a row's
 *            weights, once for each key; weights the other way round, but
 *            for every fourth query's, whose are small, times values, whose
 *            first TILE_M rows are then of queries; for the first
 *            TILE_M keys. TF32 has no gradients, so not the last of
 *            these */
#define HEAD_DIM TILE_N
#include "unit/fragment_tiles.cl"

#define WAVES_PER_WINDOW 1

#define CHUNKS (TILE_N / CHUNK)
#define PITCH ROW_PITCH(TILE_N)
#define FIRST_KEY TILE_M
#define FIRST_VALUE (FIRST_KEY + TILE_N)
#define FIRST_WEIGHT (FIRST_VALUE + TILE_N)
#define ALL_ROWS (FIRST_WEIGHT + TILE_N)

/* Where value i of a lane lies in a tile of results. */
INLINE int result_at(int i, const wave *w)
{
    return value_query(w->lane, i) * TILE_N + value_key(w->lane, i);
}

/* Scores, sums of rows and o, as the forward pass makes them. */
INLINE void check_forward(__global float *results,
                          __global const float *initial,
                          __local const storage_bits *rows, const wave *w)
{
    const int all = TILE_M * TILE_N;
    float scores[ACC_PER_LANE], weights[ACC_PER_LANE], out[ACC_PER_LANE],
        sums[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sums[r] = 0.0f;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        scores[i] = initial[result_at(i, w)];
        weights[i] = initial[all + result_at(i, w)];
        out[i] = 0.0f;
        sums[LANE_ROW(i)] += weights[i];
    }
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(sums[r], ADD);
    }
    const query_tile q = load_query(rows, PITCH, 0, 0, TILE_M - 2, w);
    const key_tile k =
        load_key(rows + FIRST_KEY * PITCH, PITCH, 0, 0, TILE_N - 2, TILE_N, w);
    multiply_tiles(scores, &q, &k, w);
    const query_tile p = make_weights(weights, w);
    const key_tile v = load_value(rows + FIRST_VALUE * PITCH, PITCH, 0, 0,
                                  TILE_N - 2, TILE_N, w);
    multiply_tiles(out, &p, &v, w);
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        results[result_at(i, w)] = scores[i];
        results[all + result_at(i, w)] = out[i];
        results[2 * all + result_at(i, w)] = sums[LANE_ROW(i)];
    }
}

#if DTYPE != 0
/* Weights the other way round times values, as gradients are made. */
INLINE void check_gradients(__global float *results,
                            __global const float *weights,
                            __local storage_bits *rows, const wave *w)
{
    __local storage_bits *own_weights = rows + FIRST_WEIGHT * PITCH;
    float large[ACC_PER_LANE], transposed[ACC_PER_LANE];
    for (int i = w->lane; i < TILE_N * PITCH; i += WAVE)
        own_weights[i] = 0;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        transposed[i] = 0.0f;
        large[i] =
            value_query(w->lane, i) % 4 == 3 ? 0.0f : weights[result_at(i, w)];
    }
    TEAM_SYNC(0);
    store_tile(large, own_weights, PITCH, 0, 0, TILE_N, w);
    TEAM_SYNC(0);
    const query_tile p = load_weights(own_weights, PITCH, 0, 0, TILE_N, w);
    const key_tile v = load_value(rows + FIRST_VALUE * PITCH, PITCH, 0, 0,
                                  TILE_N - 2, TILE_N, w);
    multiply_tiles(transposed, &p, &v, w);
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        results[result_at(i, w)] = transposed[i];
}
#endif

__kernel __attribute__((reqd_work_group_size(WAVE, 1, 1))) WAVE_ATTRIBUTE void
JOIN(check_matrix_, UNIT_NAME)(__global const storage_bits *tiles,
                               __global const float *initial,
                               __global float *results)
{
    __local uint4 places[ALL_ROWS * PITCH / CHUNK]
        __attribute__((aligned(128)));
    __local storage_bits *rows = (__local storage_bits *)places;
    const wave wave_here = {.lane = (int)get_local_id(0) % WAVE};
    const wave *w = &wave_here;
    const int all = TILE_M * TILE_N;
    for (int i = w->lane; i < FIRST_WEIGHT * CHUNKS; i += WAVE)
        copy_16(rows + swizzled_offset(i / CHUNKS, i % CHUNKS * CHUNK, PITCH),
                tiles + i * CHUNK, i / CHUNKS != FIRST_VALUE, 1);
    END_COPIES();
    AWAIT_COPIES(0);
    TEAM_SYNC(0);

    check_forward(results, initial, rows, w);
#if DTYPE != 0
    check_gradients(results + 3 * all, initial + all, rows, w);
#endif
}
