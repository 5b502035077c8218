/* SPDX-License-Identifier: Apache-2.0
 * What is added to scores, bias and mask, and where that stays on the chip
 * from window to window (BIAS_CACHE): in local memory, in registers, or as
 * the regions of rows and keys. Reads BIAS, MASK and TABLE by way of
 * problem.cl. */
#include "matrix/geometry.cl"

/* In local memory is what the caller stores, or a sum. */
#if BIAS == 1 && !MASK_IN_LOCAL
typedef storage_bits cached_bias;
#else
typedef float cached_bias;
#endif

INLINE cached_bias bias_to_cache(const forward_args *args,
                                 const score_bias_view *score_bias, int row,
                                 int key)
{
    if (MASK_IN_LOCAL)
        return added_to_logit(args, score_bias, row, key);
    if (BIAS == 1)
        return ((__global const storage_bits *)
                    score_bias->bias)[bias_at(args, score_bias, row, key)];
    return bias_of(args, score_bias, row, key);
}

/* Puts BIAS_GROUP numbers where a lane will read them; what no query or key
 * needs may be any of the others'. */
INLINE void cache_bias_group(__local cached_bias *bias_cache,
                             const forward_args *args,
                             const score_bias_view *score_bias,
                             __local const cached_bias *bias_rows,
                             uint first_row, int i)
{
    const int tile = i / (TILE_ELEMENTS / BIAS_GROUP);
    const int first = i % (TILE_ELEMENTS / BIAS_GROUP) / WAVE * BIAS_GROUP;
    const int l = i % WAVE;
    const int m = (int)first_row + tile / ALL_KEY_TILES * TILE_M;
    const int n = tile % ALL_KEY_TILES * TILE_N;
    cached_bias x[BIAS_GROUP];
    UNROLL_FOR (int j = 0; j < BIAS_GROUP; j++) {
        const int row = min(m + value_query(l, first + j), SEQ_M - 1);
        const int column = min(n + value_key(l, first + j), SEQ_N - 1);
        x[j] = bias_rows
                   ? bias_rows[(row - (int)first_row) * SEQ_N + column]
                   : OF_PAIR(bias_to_cache, args, score_bias, row, column);
    }
    UNROLL_FOR (int j = 0; j < BIAS_GROUP; j++)
        bias_cache[i * BIAS_GROUP + j] = x[j];
}

/* Puts the block's score bias where lanes will read them. bias_rows: its rows
 * in local memory; NULL: they are still where the caller has them. */
INLINE void cache_score_bias(__local cached_bias *bias_cache,
                             const forward_args *args,
                             const score_bias_view *score_bias,
                             __local const cached_bias *bias_rows,
                             uint first_row, int step)
{
    const int groups = ROW_TILES * ALL_KEY_TILES * TILE_ELEMENTS / BIAS_GROUP;
    if (HIDES_TILE_LANES)
        HIDE_FROM_OPTIMIZER(step);
    if (bias_rows) {
        NO_UNROLL_FOR (int i = step; i < groups; i += TEAM * WINDOWS_PER_GROUP)
            cache_bias_group(bias_cache, args, score_bias, bias_rows,
                             first_row, i);
        return;
    }
    /* several at a time are on their way; those of a group have rows and keys
     * in common */
    _Pragma("unroll 4") for (int i = step; i < groups;
                             i += TEAM * WINDOWS_PER_GROUP)
    {
        cache_bias_group(bias_cache, args, score_bias, 0, first_row, i);
    }
}

INLINE float4 load_cached_bias(__local const cached_bias *bias_cache)
{
    if (BIAS == 2 || MASK_IN_LOCAL || DTYPE == 0)
        return *(__local const float4 *)bias_cache;
    if (DTYPE == 1)
        return vloada_half4(0, (__local const half *)bias_cache);
    return widen_bf16(*(__local const uint2 *)bias_cache);
}

/* Score bias of a lane's scores of one tile. */
INLINE void load_own_score_bias(float *own, __local const void *bias_cache,
                                const forward_args *args,
                                const score_bias_view *score_bias, int row,
                                int tile, int lane)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        own[i] = mask_of(args, score_bias,
                         min(row + value_query(lane, i), SEQ_M - 1),
                         min(tile * TILE_N + value_key(lane, i), SEQ_N - 1));
    UNROLL_FOR (int i = 0; HAS_LOCAL_BIAS_CACHE && i < ACC_PER_LANE;
                i += BIAS_GROUP) {
        const float4 x = load_cached_bias(
            (__local const cached_bias *)bias_cache + tile * TILE_ELEMENTS +
            i * WAVE + lane * BIAS_GROUP);
        own[i] += x.x;
        own[i + 1] += x.y;
        own[i + 2] += x.z;
        own[i + 3] += x.w;
    }
}

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

/* Has the window of a tile scheduler more than one region? */
#define HAS_SHIFT_BOUNDARY(tile_scheduler)                                    \
    (!MASK_FOLLOWS_GRID(MASK) || /* regions may be anything */                \
     (tile_scheduler).coord.shift_boundaries != 0)

/* Windows of the same mask class have the same score bias. */
#define MASK_CLASS(tile_scheduler)                                            \
    (!MASK_IN_CACHE            ? 0                                            \
     : MASK_FOLLOWS_GRID(MASK) ? (tile_scheduler).coord.shift_boundaries      \
                               : (tile_scheduler).mask_class)
