/* SPDX-License-Identifier: Apache-2.0
 * A tile of query rows times a block of keys, for CPUs: logits, softmax, and
 * products with values.
 *
 *                      keys, LANES at a time
 *                    +-----+-----+-----+-----+
 *      query row     |  s  |  s  |  s  |  s  |   TILE_ROWS x TILE_VECS sums
 *      query row     |  s  |  s  |  s  |  s  |   over the channels c:
 *                    +-----+-----+-----+-----+   s += q[row][c] * K^T[c][keys]
 *
 * Beside the switches of tiles it reads VARIANT, BIAS, MASK and PADDING. */
#include "cpu/cpu_tiles.cl"

#if BIAS || MASK_READS_ARRAY(MASK)
#define DEFINE_BIAS_LOAD(name, suffix, type)                                  \
    INLINE vec name(__global const type *p, const tensor_layout *layout,      \
                    uint row, uint key)                                       \
    {                                                                         \
        p += element(layout, row, key);                                       \
        if (NK % LANES == 0 || key + LANES <= NK)                             \
            return JOIN(load_lanes, suffix)(p, KEY_STRIDE(*layout), LANES);   \
        return JOIN(load_lanes, suffix)(p, KEY_STRIDE(*layout), NK % LANES);  \
    }
#if BIAS
DEFINE_BIAS_LOAD(load_bias, BIAS_SUFFIX, bias_storage)
#endif
#if MASK_READS_ARRAY(MASK)
DEFINE_BIAS_LOAD(load_mask, MASK_SUFFIX, mask_storage)
#endif
#endif

/* x and what is added to the logits of a row and of the block's key vector jv.
 */
INLINE vec add_score_bias(vec x, const forward_args *args,
                          const score_bias_view *score_bias, uint row,
                          const key_block *keys, int jv)
{
    const uint key = keys->first + jv * LANES;
#if BIAS
    x += load_bias(score_bias->bias, &args->bias, row, key);
#endif
#if MASK_READS_REGIONS(MASK)
    const int region = (int)query_region(args, score_bias, row);
    x = select(x, x + args->region_value, keys->region[jv] != region);
#elif MASK_READS_ARRAY(MASK)
    x += load_mask(score_bias->mask, &args->mask, row, key);
#elif MASK && !MASK_HAS_REGIONS(MASK)
    float more[LANES];
    for (int i = 0; i < LANES; i++)
        more[i] = mask_of(args, score_bias, row, min(key + i, args->keys - 1));
    x += vec_at(more, 0);
#endif
    return x;
}

/* -infinity where the row does not see the key. */
INLINE vec hide_unseen(vec x, const forward_args *args, uint row, uint key)
{
    if (VARIANT != SLIDING)
        return x;
    const span seen = visible_span(args, row);
    const ivec at = LANE_NUMBERS + (int)key;
    return select((vec)(-INFINITY), x, IS_SEEN(args, seen, at, int));
}

/* Dot products of the tile's rows with key vectors jv .. jv + TILE_VECS. */
INLINE void multiply_transposed(vec acc[TILE_ROWS][TILE_VECS],
                                const float rows[TILE_ROWS][CHANNELS],
                                const vec transposed[HEAD_DIM][KEY_VECS],
                                int jv)
{
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++)
            acc[r][t] = (vec)(0.0f);
    NO_UNROLL_FOR (int c = 0; c < HEAD_DIM; c++)
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++) {
            const vec x = transposed[c][jv + t];
            UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
                acc[r][t] = FMA((vec)(rows[r][c]), x, acc[r][t]);
        }
}

/* What the logits of key vectors jv .. jv + TILE_VECS get from where the
 * tokens lie, in windows where that is not nothing. */
INLINE void adjust_logits(row_tile *tile, const key_block *keys, int jv,
                          const forward_args *args)
{
    for (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++) {
            vec x = vec_at(tile->p[r], jv + t);
            if (MASK_FOLLOWS_GRID(MASK))
                x = select(x, x + args->region_value,
                           keys->region[jv + t] != tile->region[r]);
            if (PADDING == 2)
                x = select(x, (vec)(-INFINITY), keys->hidden[jv + t]);
            set_vec(tile->p[r], jv + t, x);
        }
}

/* Logits of the tile for key vectors jv .. jv + TILE_VECS. */
INLINE void compute_logits_at(row_tile *tile, const key_block *keys, int jv,
                              const forward_args *args,
                              const score_bias_view *score_bias)
{
    vec acc[TILE_ROWS][TILE_VECS];
    multiply_transposed(acc, tile->q, keys->transposed, jv);
    UNROLL_FOR (int t = 0; t < TILE_VECS; t++) {
        const int j = (jv + t) * LANES;
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
            vec x = acc[r][t] * tile->q_scale[r];
            if (VARIANT == COSINE)
                x *= keys->inverse_norm[jv + t];
            if (j < keys->count)
                x = add_score_bias(x, args, score_bias, tile->row[r], keys,
                                   jv + t);
            if (j + LANES > keys->count)
                x = select((vec)(-INFINITY), x,
                           LANE_NUMBERS < keys->count - j);
            if (keys->mixed)
                x = hide_unseen(x, args, tile->row[r], keys->first + j);
            set_vec(tile->p[r], jv + t, x);
        }
    }
    if (ADJUSTS && keys->adjusts)
        adjust_logits(tile, keys, jv, args);
}

/* And for all keys of the block. */
INLINE void compute_logits(row_tile *tile, const key_block *keys,
                           const forward_args *args,
                           const score_bias_view *score_bias)
{
    for (int jv = 0; jv < KEY_VECS; jv += TILE_VECS)
        compute_logits_at(tile, keys, jv, args, score_bias);
}

/* Turns logits into exponentials, and brings maxima and sums of rows up to
 * date. */
INLINE void exponentiate(row_tile *tile)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        const float earlier_max = tile->max[r], earlier_sum = tile->sum[r];
        vec maxima = vec_at(tile->p[r], 0);
        for (int jv = 1; jv < KEY_VECS; jv++)
            maxima = fmax(maxima, vec_at(tile->p[r], jv));
        tile->max[r] = fmax(lanes_max(maxima), earlier_max);
        /* a row that has seen nothing has no maximum to subtract */
        const float softmax_max =
            tile->max[r] == -INFINITY ? 0.0f : tile->max[r];
        vec sums = (vec)(0.0f);
        for (int jv = 0; jv < KEY_VECS; jv++) {
            const vec p = WEIGHT(vec_at(tile->p[r], jv), softmax_max);
            set_vec(tile->p[r], jv, p);
            sums += p;
        }
        tile->sum[r] = lanes_sum(sums);
        if (STREAMING) {
            tile->rescale[r] = exp2((earlier_max - softmax_max) * LOG2E);
            tile->sum[r] += tile->rescale[r] * earlier_sum;
        }
    }
}

/* Of weights, or of what is multiplied by them, what is kept. */
INLINE void keep_tile(float x[TILE_ROWS][BLOCK_KEYS], const row_tile *tile,
                      const key_block *keys, const forward_args *args,
                      work_tile of)
{
    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < keys->count; j++)
            x[r][j] = keep(x[r][j], args, of, tile->row[r], keys->first + j);
}

/* sums[row][..] += weights times rows of a matrix, channel vectors cv .. cv +
 * OUT_VECS. */
INLINE void multiply_natural(vec sums[TILE_ROWS][V_VECS],
                             const float weights[TILE_ROWS][BLOCK_KEYS],
                             const vec natural[BLOCK_KEYS][V_VECS], int count,
                             int cv)
{
    vec acc[TILE_ROWS][OUT_VECS];
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            acc[r][t] = sums[r][cv + t];
    NO_UNROLL_FOR (int j = 0; j < count; j++)
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
            const vec x = (vec)(weights[r][j]);
            UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
                acc[r][t] = FMA(x, natural[j][cv + t], acc[r][t]);
        }
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            sums[r][cv + t] = acc[r][t];
}

/* sums[row][..] += P V for channel vectors cv .. cv + OUT_VECS. */
INLINE void multiply_values(vec sums[TILE_ROWS][V_VECS], const row_tile *tile,
                            const key_block *keys,
                            const vec values[BLOCK_KEYS][V_VECS], int cv,
                            const forward_args *args)
{
#if VARIANT == SLIDING
    /* A value must not reach a row that does not see it, not even as
     * 0 * NaN. */
    if (keys->mixed) {
        for (int r = 0; r < TILE_ROWS; r++) {
            const span seen = visible_span(args, tile->row[r]);
            for (int j = 0; j < keys->count; j++)
                if (sees(args, seen, keys->first + j))
                    for (int t = 0; t < OUT_VECS; t++)
                        sums[r][cv + t] =
                            FMA((vec)(tile->p[r][j]), values[j][cv + t],
                                sums[r][cv + t]);
        }
        return;
    }
#endif
    multiply_natural(sums, tile->p, values, keys->count, cv);
}
