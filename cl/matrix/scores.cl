/* SPDX-License-Identifier: Apache-2.0
 * Scores of a wave's tile of rows, a pass of PASS_KEYS keys at a time: the
 * product Q K^T, the scale, what is added to it, and what hides keys. */
#ifndef SCORES_CL
#define SCORES_CL
#include "matrix/matrix_bias.cl"

/* A tile of rows. */
typedef struct tile_rows {
    int row, last_row; /* of the block; its last row, not the tile's */
    int first_row;     /* of the block, counted from the window's first */
    float scale[LANE_ROWS];
    __local const void *local_terms;  /* of the item's first keys */
    const float (*own_terms)[VALUES]; /* a lane's own, of all tiles of keys */
    uint region[LANE_ROWS];
    __local const uchar *key_regions; /* of the item's first keys; NULL: one
                                         region */
    window_place place;
    int holds_padding; /* of the grid */
} tile_rows;

/* Factors of keys (cosine) are so far apart: those of queries stand among what
 * else is known of a row. */
#define KEY_SCALE_STEP (KEYS_DOWN ? ROW_NUMBERS : 1)

/* scores = scale * scores + the terms, for keys `key` and on; those past the
 * last become -infinity. */
INLINE void finish_scores(float *scores, __local const float *key_scale,
                          int key, int tile, int count,
                          const forward_args *args, const logit_terms *terms,
                          const tile_rows *rows, const wave *w)
{
    const int whole = IS_WHOLE(tile);
    float added[VALUES];
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        added[i] = 0.0f;
#if HAS_OWN_TERMS
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        added[i] = rows->own_terms[tile][i];
#elif HAS_LOCAL_TERMS
    UNROLL_FOR (int i = 0; i < VALUES; i += TERM_GROUP) {
        const float4 x =
            read_kept((__local const kept_term *)rows->local_terms +
                      tile * TERM_TILE + i * WAVE + w->lane * TERM_GROUP);
        added[i] = x.x;
        added[i + 1] = x.y;
        added[i + 2] = x.z;
        added[i + 3] = x.w;
    }
#elif BIAS || (MASK && !REGIONS_APART)
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int row =
            rows->first_row +
            min(rows->row + value_query(w->lane, i), rows->last_row);
        const int at = tile * UNIT_TILE + value_key(w->lane, i);
        const int column = key + (whole ? at : min(at, count - 1));
        added[i] = OF_PAIR(bias_of, args, terms, row, column) +
                   OF_PAIR(mask_of, args, terms, row, column);
    }
#endif
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
#if VARIANT == COSINE
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        scores[i] *= key_scale[(whole ? column : min(column, count - 1)) *
                               KEY_SCALE_STEP];
#endif
        scores[i] = FMA(scores[i], rows->scale[LANE_ROW(i)], added[i]);
        if (!whole)
            scores[i] = tile * UNIT_TILE + value_key(w->lane, i) < count
                            ? scores[i]
                            : -INFINITY;
    }
}

/* Adds region_value where a row and a key are of different regions. */
INLINE void add_regions(float *scores, int tile, int count,
                        const forward_args *args, const tile_rows *rows,
                        const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        const uint there =
            rows->key_regions[IS_WHOLE(tile) ? column
                                             : min(column, count - 1)];
        if (rows->region[LANE_ROW(i)] != there)
            scores[i] += args->region_value;
    }
}

#if PADDING == 2 && !KEYS_DOWN
/* No query sees a token of the padding. Whose gradients nobody stores. */
INLINE void hide_padding(float *scores, int key, int tile, int count,
                         const forward_args *args, const tile_rows *rows,
                         const wave *w)
{
    uint hidden = 0; /* a bit for each value: few windows have padding */
    NO_UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        const token t = find_token(&args->grid, &rows->place,
                                   key + min(column, count - 1));
        hidden |= EXISTS(t) ? 0u : 1u << i;
    }
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        scores[i] = (hidden >> i & 1u) != 0 ? -INFINITY : scores[i];
}
#endif

/* tiles = products of a tile of rows, which is `held` or, where that is NULL,
 * begins at `row`, and of PASS_TILES tiles of columns, from tile `first` on;
 * both are rows of local memory, PITCH apart. */
INLINE void multiply_pass(float tiles[PASS_TILES][VALUES],
                          const query_tile *held,
                          __local const storage_bits *rows, int row,
                          int last_row, __local const storage_bits *columns,
                          int first, const wave *w)
{
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            tiles[t][i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        query_tile q;
        if (held)
            q = held[d];
        else
            q = load_query(rows, PITCH, row, d * UNIT_TILE, last_row, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t)) {
                const key_tile k =
                    load_key(columns, PITCH, (first + t) * UNIT_TILE,
                             d * UNIT_TILE, LAST_KEY, KEY_PART(first + t), w);
                multiply_tiles(tiles[t], &q, &k, w);
            }
    }
}

/* finish_scores for a pass, with what else hides keys. */
INLINE void finish_pass(float scores[PASS_TILES][VALUES],
                        __local const float *key_scale, int first, int key,
                        int count, const forward_args *args,
                        const logit_terms *terms, const tile_rows *rows,
                        const wave *w)
{
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            finish_scores(scores[t], key_scale, key, first + t, count, args,
                          terms, rows, w);
    if (REGIONS_APART && rows->key_regions)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                add_regions(scores[t], first + t, count, args, rows, w);
#if PADDING == 2 && !KEYS_DOWN
    if (rows->holds_padding)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                hide_padding(scores[t], key, first + t, count, args, rows, w);
#endif
}

/* Softmax takes exponentials of x - base. x LOG2E - base LOG2E is one
 * operation, but its second term, which this makes, is rounded, which counts
 * where it is large: then base is subtracted from the scores first. */
INLINE void shift_scores(float scores[PASS_TILES][VALUES], const float *base,
                         float *shift)
{
    int large = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        large |= fabs(base[r]) > LARGE_LOGIT;
        shift[r] = -base[r] * LOG2E;
    }
    if (large) {
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                scores[t][i] -= base[LANE_ROW(i)];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            shift[r] = 0.0f;
    }
}

#endif
