/* SPDX-License-Identifier: Apache-2.0
 * What a work-item for CPUs has at hand: a block of keys, and a tile of query
 * rows. It transposes a block of keys once, so that a vector holds one channel
 * of neighbouring keys, and loops over query rows in tiles.
 *
 *   TILE_ROWS    query rows of a register tile
 *   TILE_VECS    key vectors of a register tile
 *   OUT_VECS     channel vectors of an output tile
 * and BLOCK_KEYS must be a multiple of LANES * TILE_VECS. */
#include "cpu/cpu_vectors.cl"

REQUIRE(TILE_ROWS)
REQUIRE(TILE_VECS)
REQUIRE(OUT_VECS)

#define KEY_VECS (BLOCK_KEYS / LANES)
#define OUT_PASSES ((CHANNEL_VECS + OUT_VECS - 1) / OUT_VECS)
#define V_VECS (OUT_PASSES * OUT_VECS)
#define CHANNELS (V_VECS * LANES)

/* Is something added to logits because of where tokens lie on their grid? */
#define ADJUSTS (MASK_FOLLOWS_GRID(MASK) || PADDING == 2)

/* A block of keys, ready for the register tiles. */
typedef struct key_block {
    uint first; /* key */
    int count;
    int mixed; /* some row of the work tile does not see all of it */
#if GRID
    token token[BLOCK_KEYS];
#endif
#if ADJUSTS
    int adjusts; /* in this window */
#endif
#if PADDING == 2
    ivec hidden[KEY_VECS];
#endif
    vec transposed[HEAD_DIM][KEY_VECS];
#if VARIANT == COSINE
    vec inverse_norm[KEY_VECS];
#endif
#if MASK_HAS_REGIONS(MASK)
    ivec region[KEY_VECS];
#endif
} key_block;

/* A tile of query rows. Rows past the work tile's last repeat it, unstored. */
typedef struct row_tile {
    uint row[TILE_ROWS];
    int count;
    float q[TILE_ROWS][CHANNELS];
    float q_scale[TILE_ROWS];
    float p[TILE_ROWS][BLOCK_KEYS]; /* logits, then their exponentials */
    float max[TILE_ROWS];
    float sum[TILE_ROWS];
    float rescale[TILE_ROWS]; /* factor of what earlier blocks summed */
#if GRID
    token token[TILE_ROWS];
#endif
#if MASK_FOLLOWS_GRID(MASK)
    int region[TILE_ROWS];
#endif
} row_tile;

/* A token of a window that is not on a grid is its number. */
INLINE token key_token(const key_block *keys, int j)
{
#if GRID
    return keys->token[j];
#else
    const token t = {.row = keys->first + j};
    return t;
#endif
}

INLINE token row_token(const row_tile *tile, int r)
{
#if GRID
    return tile->token[r];
#else
    const token t = {.row = tile->row[r]};
    return t;
#endif
}

/* Is there a row of the tile of which something is kept? */
INLINE int has_rows(const row_tile *tile)
{
#if PADDING
    int any = 0;
    for (int r = 0; r < TILE_ROWS; r++)
        any |= EXISTS(tile->token[r]);
    return any;
#else
    return 1;
#endif
}

/* Where the keys of the block lie, and what follows from it. */
INLINE void find_keys(key_block *keys, const grid_layout *grid,
                      const window_coord *coord)
{
#if GRID
    for (int j = 0; j < keys->count; j++)
        keys->token[j] = find_token(grid, coord, keys->first + j);
#endif
#if MASK_FOLLOWS_GRID(MASK)
    keys->adjusts = coord->shift_boundaries != 0;
#elif PADDING == 2
    keys->adjusts = 0;
#endif
#if PADDING == 2
    for (int j = 0; j < keys->count; j++)
        keys->adjusts |= !EXISTS(keys->token[j]);
#endif
#if ADJUSTS
    for (int jv = 0; keys->adjusts && jv < KEY_VECS; jv++) {
        int x[LANES], y[LANES];
        for (int i = 0; i < LANES; i++) {
            const int j = min(jv * LANES + i, keys->count - 1);
            x[i] = shift_boundary_sides(grid, coord, keys->first + j);
            y[i] = EXISTS(keys->token[j]) ? 0 : -1;
        }
#if MASK_FOLLOWS_GRID(MASK)
        keys->region[jv] = JOIN(vload, LANES)(0, x);
#endif
#if PADDING == 2
        keys->hidden[jv] = JOIN(vload, LANES)(0, y);
#endif
    }
#endif
}

/* The block's rows of a plane, transposed; zeros stand behind the last.
 * squares, unless 0, becomes the sums of their squares. pad: see token_row. */
INLINE void load_transposed(vec to[HEAD_DIM][KEY_VECS], vec *squares,
                            __global const storage *plane,
                            const tensor_layout *layout, const key_block *keys,
                            __global const storage *pad)
{
    for (int jv = 0; jv < KEY_VECS; jv++) {
        vec sum = (vec)(0.0f);
        for (int cv = 0; cv < CHANNEL_VECS; cv++) {
            vec t[LANES];
            for (int i = 0; i < LANES; i++) {
                const int j = jv * LANES + i;
                t[i] = (vec)(0.0f);
                if (j < keys->count) {
                    const token at = key_token(keys, j);
                    t[i] = load_token(token_row(plane, layout, &at, pad),
                                      layout->column, cv);
                }
            }
            transpose(t);
            for (int i = 0; i < LANES; i++) {
                const int c = cv * LANES + i;
                if (c < HEAD_DIM)
                    to[c][jv] = t[i];
                sum = FMA(t[i], t[i], sum);
            }
        }
        if (squares)
            squares[jv] = sum;
    }
}

/* The same rows as they are, with zeros behind the last channel. */
INLINE void load_natural(vec to[BLOCK_KEYS][V_VECS],
                         __global const storage *plane,
                         const tensor_layout *layout, const key_block *keys,
                         __global const storage *pad)
{
    for (int j = 0; j < keys->count; j++) {
        const token at = key_token(keys, j);
        __global const storage *row = token_row(plane, layout, &at, pad);
        UNROLL_FOR (int cv = 0; cv < V_VECS; cv++) {
            to[j][cv] = (vec)(0.0f);
            if (cv < CHANNEL_VECS)
                to[j][cv] = load_token(row, layout->column, cv);
        }
    }
}

INLINE void load_keys(key_block *keys, const forward_args *args,
                      __global const storage *k, __global const storage *pad_k)
{
#if VARIANT == COSINE
    load_transposed(keys->transposed, keys->inverse_norm, k, &args->k, keys,
                    pad_k);
    for (int jv = 0; jv < KEY_VECS; jv++)
        keys->inverse_norm[jv] =
            1.0f / fmax(sqrt(keys->inverse_norm[jv]), (vec)(NORM_EPSILON));
#else
    load_transposed(keys->transposed, 0, k, &args->k, keys, pad_k);
#endif
}

/* Makes the block one of a window's keys. */
INLINE void open_keys(key_block *keys, key_range range,
                      const forward_args *args, const window_coord *coord,
                      __global const storage *k, __global const storage *pad_k)
{
    keys->first = range.first;
    keys->count = (int)range.count;
    keys->mixed = range.mixed;
    find_keys(keys, &args->grid, coord);
    load_keys(keys, args, k, pad_k);
}

/* Of keys whose regions are in arrays: find_keys has found others'. */
INLINE void load_regions(key_block *keys, const forward_args *args,
                         const score_bias_view *score_bias)
{
#if MASK_READS_REGIONS(MASK)
    for (int jv = 0; jv < KEY_VECS; jv++) {
        int x[LANES];
        for (int i = 0; i < LANES; i++) {
            const uint j = min(jv * LANES + i, keys->count - 1);
            x[i] = score_bias->key_regions[element(&args->key_regions,
                                                   keys->first + j, 0)];
        }
        keys->region[jv] = JOIN(vload, LANES)(0, x);
    }
#endif
}

/* One row of channels; returns its squares, not yet summed over the lanes.
 * Tokens come by their address: of a copy, rusticl 25.0 took that of another
 * row in a loop over rows. */
INLINE vec load_row(float *to, __global const storage *plane,
                    const tensor_layout *layout, const token *at,
                    __global const storage *pad)
{
    __global const storage *row = token_row(plane, layout, at, pad);
    vec squares = (vec)(0.0f);
    for (int cv = 0; cv < V_VECS; cv++) {
        vec x = (vec)(0.0f);
        if (cv < CHANNEL_VECS)
            x = load_token(row, layout->column, cv);
        JOIN(vstore, LANES)(x, cv, to);
        squares = FMA(x, x, squares);
    }
    return squares;
}

/* Queries of the padding are zeros: nothing is kept of them. */
INLINE void load_rows(row_tile *tile, const forward_args *args,
                      const window_coord *coord, __global const storage *q,
                      uint row, uint row_end, float scale)
{
    tile->count = (int)min(row_end - row, (uint)TILE_ROWS);
    for (int r = 0; r < TILE_ROWS; r++) {
        tile->row[r] = min(row + r, row_end - 1);
#if GRID
        tile->token[r] = find_token(&args->grid, coord, tile->row[r]);
#endif
#if MASK_FOLLOWS_GRID(MASK)
        tile->region[r] =
            shift_boundary_sides(&args->grid, coord, tile->row[r]);
#endif
        const token at = row_token(tile, r);
        const vec squares = load_row(tile->q[r], q, &args->q, &at, 0);
        tile->q_scale[r] = scale;
#if VARIANT == COSINE
        tile->q_scale[r] *= inverse_norm(lanes_sum(squares));
#endif
    }
}
