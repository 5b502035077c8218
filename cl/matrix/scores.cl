/* SPDX-License-Identifier: Apache-2.0
 * Scores of a wave's tile of rows, a subtile of SUBTILE_KEYS keys at a time:
 * the product Q K^T, the scale, what is added to it, and what hides keys. */
#include "matrix/matrix_bias.cl"

/* A tile of rows. */
typedef struct tile_rows {
    int row, last_row; /* of the block; its last row, not the tile's */
    int first_row;     /* of the block, counted from the window's first */
    float scale[LANE_ROWS];
    __local const void *local_score_bias; /* of the block's first keys */
    const float (*own_score_bias)[ACC_PER_LANE]; /* a lane's own, of all tiles
                                                    of keys */
    uint region[LANE_ROWS];
    __local const uchar *key_regions; /* of the block's first keys; NULL: one
                                         region */
    window_coord coord;
    int holds_padding; /* of the grid */
} tile_rows;

/* Factors of keys (cosine) are so far apart: those of queries stand among what
 * else is known of a row. */
#define KEY_SCALE_STEP (S_TRANSPOSED ? ROW_NUMBERS : 1)

/* What scores of a block's keys take besides the rows. */
typedef struct score_keys {
    int first, count; /* of the block, in the window */
    __local const float *scale;
    const score_bias_view *score_bias;
    const forward_args *args;
} score_keys;

/* scores = scale * scores + the terms, for a tile of keys; those past the last
 * become -infinity. */
INLINE void finish_scores(float *scores, int tile, const score_keys *keys,
                          const tile_rows *rows, const wave *w)
{
    const int count = keys->count;
    const int full = IS_FULL_TILE(tile);
    float added[ACC_PER_LANE];
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        added[i] = 0.0f;
    if (HAS_REGISTER_BIAS_CACHE) {
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            added[i] = rows->own_score_bias[tile][i];
    } else if (HAS_LOCAL_BIAS_CACHE) {
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += BIAS_GROUP) {
            const float4 x = load_cached_bias(
                (__local const cached_bias *)rows->local_score_bias +
                tile * TILE_ELEMENTS + i * WAVE + w->lane * BIAS_GROUP);
            added[i] = x.x;
            added[i + 1] = x.y;
            added[i + 2] = x.z;
            added[i + 3] = x.w;
        }
    } else if (BIAS || (MASK && !COMPARES_REGIONS)) {
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
            const int row =
                rows->first_row +
                min(rows->row + value_query(w->lane, i), rows->last_row);
            const int at = tile * TILE_N + value_key(w->lane, i);
            const int column = keys->first + (full ? at : min(at, count - 1));
            added[i] = OF_PAIR(added_to_logit, keys->args, keys->score_bias,
                               row, column);
        }
    }
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int column = tile * TILE_N + value_key(w->lane, i);
        if (VARIANT == COSINE)
            scores[i] *= keys->scale[(full ? column : min(column, count - 1)) *
                                     KEY_SCALE_STEP];
        scores[i] = FMA(scores[i], rows->scale[LANE_ROW(i)], added[i]);
        if (!full)
            scores[i] = column < count ? scores[i] : -INFINITY;
    }
}

/* Adds region_value where a row and a key are of different regions. */
INLINE void add_regions(float *scores, int tile, const score_keys *keys,
                        const tile_rows *rows, const wave *w)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int column = tile * TILE_N + value_key(w->lane, i);
        const uint there =
            rows->key_regions[IS_FULL_TILE(tile)
                                  ? column
                                  : min(column, keys->count - 1)];
        if (rows->region[LANE_ROW(i)] != there)
            scores[i] += keys->args->region_value;
    }
}

/* No query sees a token of the padding. Whose gradients nobody stores. */
INLINE void hide_padding(float *scores, int tile, const score_keys *keys,
                         const tile_rows *rows, const wave *w)
{
    uint hidden = 0; /* a bit for each value: few windows have padding */
    NO_UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int column = tile * TILE_N + value_key(w->lane, i);
        const token t = find_token(&keys->args->grid, &rows->coord,
                                   keys->first + min(column, keys->count - 1));
        hidden |= EXISTS(t) ? 0u : 1u << i;
    }
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        scores[i] = (hidden >> i & 1u) != 0 ? -INFINITY : scores[i];
}

/* tiles = products of a tile of rows, which is `held` or, where that is NULL,
 * begins at `row`, and of TILES_PER_SUBTILE tiles of columns, from tile
 * `first` on; both are rows of local memory, PITCH apart. */
INLINE void multiply_subtile(float tiles[TILES_PER_SUBTILE][ACC_PER_LANE],
                             const query_tile *held,
                             __local const storage_bits *rows, int row,
                             int last_row, __local const storage_bits *columns,
                             int first, const wave *w)
{
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            tiles[t][i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        query_tile q;
        if (held)
            q = held[d];
        else
            q = load_query(rows, PITCH, row, d * TILE_N, last_row, w);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            if (IS_TILE(first + t)) {
                const key_tile k =
                    load_key(columns, PITCH, (first + t) * TILE_N, d * TILE_N,
                             LAST_KEY, KEY_PART(first + t), w);
                multiply_tiles(tiles[t], &q, &k, w);
            }
    }
}

/* finish_scores for a subtile, with what else hides keys. */
INLINE void finish_subtile(float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                           int first, const score_keys *keys,
                           const tile_rows *rows, const wave *w)
{
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        if (IS_TILE(first + t))
            finish_scores(scores[t], first + t, keys, rows, w);
    if (COMPARES_REGIONS && rows->key_regions)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            if (IS_TILE(first + t))
                add_regions(scores[t], first + t, keys, rows, w);
    if (PADDING == 2 && !S_TRANSPOSED && rows->holds_padding)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            if (IS_TILE(first + t))
                hide_padding(scores[t], first + t, keys, rows, w);
}
