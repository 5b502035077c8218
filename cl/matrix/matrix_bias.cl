/* SPDX-License-Identifier: Apache-2.0
 * What is added to scores, bias and mask, and where that stays on the chip
 * from window to window (BIAS_CACHE): in local memory, in registers, or as
 * the regions of rows and keys. Reads BIAS, MASK and TABLE by way of
 * problem.cl. */
#ifndef MATRIX_BIAS_CL
#define MATRIX_BIAS_CL
#include "common/score_bias_tensors.cl"
#include "matrix/geometry.cl"

INLINE float bias_of(const forward_args *args,
                     const score_bias_view *score_bias, int row, int key)
{
#if BIAS
    return JOIN(load, BIAS_SUFFIX)(score_bias->bias,
                                   bias_at(args, score_bias, row, key));
#else
    return 0.0f;
#endif
}

#if HAS_LOCAL_BIAS_CACHE
#define ALL_ITEMS (TEAM * WINDOWS_PER_GROUP)
#if BIAS == 1 && !MASK_IN_LOCAL
typedef storage_bits cached_bias;
#else
typedef float cached_bias;
#endif

INLINE cached_bias bias_to_cache(const forward_args *args,
                                 const score_bias_view *score_bias, int row,
                                 int key)
{
#if MASK_IN_LOCAL
    return bias_of(args, score_bias, row, key) +
           mask_of(args, score_bias, row, key);
#elif BIAS == 1
    return ((__global const storage_bits *)
                score_bias->bias)[bias_at(args, score_bias, row, key)];
#else
    return bias_of(args, score_bias, row, key);
#endif
}

/* Does the unit load biases as they are stored? */
#define BIASES_AS_STORED                                                      \
    (NATIVE_BIASES && BIAS == 1 && !MASK_IN_LOCAL && !BACKWARD)

/* Group i of the block's score bias, which has rows and keys in common. */
INLINE void find_bias_group(cached_bias *x, const forward_args *args,
                            const score_bias_view *score_bias, uint first_row,
                            int i)
{
    const int tile = i / (TILE_ELEMENTS / BIAS_GROUP);
    const int first = i % (TILE_ELEMENTS / BIAS_GROUP) / WAVE * BIAS_GROUP;
    const int l = i % WAVE;
    const int m = (int)first_row + tile / ALL_KEY_TILES * TILE_M;
    const int n = tile % ALL_KEY_TILES * TILE_N;
    /* what no query or key needs may be any of the others' */
    UNROLL_FOR (int j = 0; j < BIAS_GROUP; j++)
        x[j] = OF_PAIR(bias_to_cache, args, score_bias,
                       min(m + value_query(l, first + j), SEQ_M - 1),
                       min(n + value_key(l, first + j), SEQ_N - 1));
}

/* Number j of group i lies here. */
INLINE int bias_place(int i, int j)
{
#if BIASES_AS_STORED
    const int first = i % (TILE_ELEMENTS / BIAS_GROUP) / WAVE * BIAS_GROUP;
    const int l = i % WAVE;
    return i / (TILE_ELEMENTS / BIAS_GROUP) * TILE_ELEMENTS +
           native_bias_place(value_query(l, first + j),
                             value_key(l, first + j));
#else
    return i * BIAS_GROUP + j;
#endif
}

#if BIASES_AS_STORED
#define HALF_ROWS_OF_BIAS (NK % TILE_N == 0 && TABLE == 0)

/* May halves of rows be copied, of 16 bytes? */
INLINE int has_half_rows(const forward_args *args,
                         const score_bias_view *score_bias)
{
    return HALF_ROWS_OF_BIAS && ADJACENT_KEYS && args->bias.row % 8 == 0 &&
           (size_t)score_bias->bias % 16 == 0;
}

/* A tile of the block for each wave of the work-group in turn. */
INLINE void copy_half_rows(__local cached_bias *bias_cache,
                           const forward_args *args,
                           const score_bias_view *score_bias, uint first_row,
                           int item)
{
    const int row = item % WAVE / 2, column = item % 2 * 8;
    NO_UNROLL_FOR (int tile = item / WAVE; tile < ROW_TILES * ALL_KEY_TILES;
                   tile += ALL_ITEMS / WAVE)
        copy_16(
            bias_cache + tile * TILE_ELEMENTS + native_bias_place(row, column),
            (__global const storage_bits *)score_bias->bias +
                bias_at(
                    args, score_bias,
                    min((int)first_row + tile / ALL_KEY_TILES * TILE_M + row,
                        NQ - 1),
                    tile % ALL_KEY_TILES * TILE_N + column),
            1, 1);
    END_COPIES();
    AWAIT_COPIES(0);
}
#endif

/* Groups that a work-item has under way at a time: a launch begins with them,
 * and for each turn it waits for memory. */
#define GROUPS_OF_ITEM CEIL_DIV(BIAS_CACHE_SIZE / BIAS_GROUP, ALL_ITEMS)
#define BIAS_TURNS                                                            \
    (BACKWARD ? 1 : CEIL_DIV(GROUPS_OF_ITEM, CEIL_DIV(GROUPS_OF_ITEM, 6)))

/* Puts the block's score bias where lanes will read them. */
INLINE void cache_score_bias(__local cached_bias *bias_cache,
                             const forward_args *args,
                             const score_bias_view *score_bias, uint first_row,
                             int step)
{
#if HIDES_TILE_LANES
    HIDE_FROM_OPTIMIZER(step);
#endif
#if BIASES_AS_STORED
    if (has_half_rows(args, score_bias)) {
        copy_half_rows(bias_cache, args, score_bias, first_row, step);
        return;
    }
#endif
    const int all = BIAS_CACHE_SIZE / BIAS_GROUP;
    NO_UNROLL_FOR (int i = step; i < all; i += BIAS_TURNS * ALL_ITEMS) {
        cached_bias x[BIAS_TURNS][BIAS_GROUP];
        UNROLL_FOR (int n = 0; n < BIAS_TURNS; n++)
            find_bias_group(x[n], args, score_bias, first_row,
                            min(i + n * ALL_ITEMS, all - 1));
        UNROLL_FOR (int n = 0; n < BIAS_TURNS; n++)
            if (i + n * ALL_ITEMS < all)
                UNROLL_FOR (int j = 0; j < BIAS_GROUP; j++)
                    bias_cache[bias_place(i + n * ALL_ITEMS, j)] = x[n][j];
    }
}

INLINE float4 load_cached_bias(__local const cached_bias *bias_cache)
{
#if BIAS == 2 || MASK_IN_LOCAL || DTYPE == 0
    return *(__local const float4 *)bias_cache;
#elif DTYPE == 1
    return vloada_half4(0, (__local const half *)bias_cache);
#else
    return widen_bf16(*(__local const uint2 *)bias_cache);
#endif
}

/* A lane's of a tile. */
INLINE void load_cached_biases(float *to, __local const void *bias_cache,
                               int tile, int lane)
{
    __local const cached_bias *from =
        (__local const cached_bias *)bias_cache + tile * TILE_ELEMENTS;
#if BIASES_AS_STORED
    load_native_biases(to, from, lane);
#else
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += BIAS_GROUP) {
        const float4 x = load_cached_bias(from + i * WAVE + lane * BIAS_GROUP);
        to[i] = x.x;
        to[i + 1] = x.y;
        to[i + 2] = x.z;
        to[i + 3] = x.w;
    }
#endif
}
#endif

#if HAS_REGISTER_BIAS_CACHE
/* Score bias of a lane's scores of one tile. */
INLINE void load_own_score_bias(float *own, __local const void *bias_cache,
                                const forward_args *args,
                                const score_bias_view *score_bias, int row,
                                int tile, int lane)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        own[i] = mask_of(args, score_bias,
                         min(row + value_query(lane, i), (int)NQ - 1),
                         min(tile * TILE_N + value_key(lane, i), (int)NK - 1));
#if HAS_LOCAL_BIAS_CACHE
    float of_cache[ACC_PER_LANE];
    load_cached_biases(of_cache, bias_cache, tile, lane);
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        own[i] += of_cache[i];
#endif
}
#endif

#if COMPARES_REGIONS
/* Puts the regions of the window's rows and keys where lanes will read them.
 */
INLINE void keep_regions(__local uchar *rows, __local uchar *keys,
                         const forward_args *args,
                         const score_bias_view *score_bias, uint first_row,
                         int lane)
{
    for (int i = lane; i < BLOCK_M; i += TEAM) {
        const int row = min((int)first_row + i, SEQ_M - 1);
        rows[i] = (uchar)(S_TRANSPOSED ? key_region(args, score_bias, row)
                                       : query_region(args, score_bias, row));
    }
    for (int i = lane; i < SEQ_N; i += TEAM)
        keys[i] = (uchar)(S_TRANSPOSED ? query_region(args, score_bias, i)
                                       : key_region(args, score_bias, i));
}
#endif

/* What is added to the logits of a work tile whose window's coordinates are
 * known. */
INLINE score_bias_view score_bias_at(const score_bias_tensors *tensors,
                                     const forward_args *args, work_tile u,
                                     const window_coord *coord)
{
#if MASK_FOLLOWS_GRID(MASK)
    const score_bias_view score_bias = {.coord = *coord};
    return score_bias;
#else
    return score_bias_of(tensors, args, u);
#endif
}

/* Has the window of a tile scheduler more than one region? */
#if MASK_FOLLOWS_GRID(MASK)
#define HAS_SHIFT_BOUNDARY(tile_scheduler)                                    \
    ((tile_scheduler).coord.shift_boundaries != 0)
#else
#define HAS_SHIFT_BOUNDARY(tile_scheduler) 1 /* regions may be anything */
#endif

/* Windows of the same mask class have the same score bias. */
#if MASK_FOLLOWS_GRID(MASK) && MASK_IN_CACHE
#define MASK_CLASS(tile_scheduler) ((tile_scheduler).coord.shift_boundaries)
#else
#define MASK_CLASS(tile_scheduler)                                            \
    (MASK_IN_CACHE ? (tile_scheduler).mask_class : 0)
#endif

#endif
