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
    int mixed;   /* some row of the work tile does not see all of it */
    int adjusts; /* ADJUSTS, in this window */
    token token[ROOM(GRID, BLOCK_KEYS)];
    ivec hidden[ROOM(PADDING == 2, KEY_VECS)];
    vec transposed[HEAD_DIM][KEY_VECS];
    vec inverse_norm[ROOM(VARIANT == COSINE, KEY_VECS)];
    ivec region[ROOM(MASK_HAS_REGIONS(MASK), KEY_VECS)];
} key_block;

/* A tile of query rows. Rows past the work tile's last repeat it, unstored. */
typedef struct row_tile {
    uint row[TILE_ROWS];
    int count;
    float q[TILE_ROWS][CHANNELS];
    float q_scale[TILE_ROWS];
    float p[TILE_ROWS][BLOCK_KEYS]; /* logits, then their exponentials */
    float max[TILE_ROWS];           /* of logits so far */
    float sum[TILE_ROWS];           /* of exponentials so far */
    float rescale[TILE_ROWS];       /* factor of what earlier blocks summed */
    token token[ROOM(GRID, TILE_ROWS)];
    int region[TILE_ROWS];
} row_tile;

/* A token of a window that is not on a grid is its number. */
INLINE token key_token(const key_block *keys, int j)
{
    const token t = {.at = {0, 0, keys->first + j}};
    return GRID ? keys->token[j] : t;
}
INLINE token row_token(const row_tile *tile, int r)
{
    const token t = {.at = {0, 0, tile->row[r]}};
    return GRID ? tile->token[r] : t;
}

/* Is there a row of the tile of which something is kept? */
INLINE int has_rows(const row_tile *tile)
{
    int any = !PADDING;
    for (int r = 0; PADDING && r < TILE_ROWS; r++)
        any |= EXISTS(row_token(tile, r));
    return any;
}

/* A head's rows of a tensor in a window; pad: see token_row. */
typedef struct head_rows {
    __global const storage *plane;
    const tensor_layout *layout;
    __global const storage *pad;
} head_rows;

INLINE head_rows rows_of(__global const storage *tensor,
                         const tensor_layout *layout, ulong grid, uint head,
                         __global const storage *pad)
{
    const head_rows rows = {tensor + plane(layout, grid, head), layout, pad};
    return rows;
}

/* ---- Keys ---- */

/* Where the keys of the block lie, and what follows from it. */
INLINE void find_keys(key_block *keys, const grid_layout *grid,
                      const window_coord *coord)
{
    for (int j = 0; GRID && j < keys->count; j++)
        keys->token[j] = find_token(grid, coord, keys->first + j);
    keys->adjusts = MASK_FOLLOWS_GRID(MASK) && coord->shift_boundaries != 0;
    for (int j = 0; PADDING == 2 && j < keys->count; j++)
        keys->adjusts |= !EXISTS(key_token(keys, j));
    for (int jv = 0; ADJUSTS && keys->adjusts && jv < KEY_VECS; jv++) {
        int x[LANES], y[LANES];
        for (int i = 0; i < LANES; i++) {
            const int j = min(jv * LANES + i, keys->count - 1);
            x[i] = shift_boundary_sides(grid, coord, keys->first + j);
            y[i] = EXISTS(key_token(keys, j)) ? 0 : -1;
        }
        if (MASK_FOLLOWS_GRID(MASK))
            keys->region[jv] = JOIN(vload, LANES)(0, x);
        if (PADDING == 2)
            keys->hidden[jv] = JOIN(vload, LANES)(0, y);
    }
}

/* The block's rows, transposed; zeros stand behind the last. squares, unless
 * 0, becomes the sums of their squares. */
INLINE void load_transposed(vec to[HEAD_DIM][KEY_VECS], vec *squares,
                            const head_rows *rows, const key_block *keys)
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
                    t[i] = load_token(
                        token_row(rows->plane, rows->layout, &at, rows->pad),
                        rows->layout->column, cv);
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
INLINE void load_natural(vec to[BLOCK_KEYS][V_VECS], const head_rows *rows,
                         const key_block *keys)
{
    for (int j = 0; j < keys->count; j++) {
        const token at = key_token(keys, j);
        __global const storage *row =
            token_row(rows->plane, rows->layout, &at, rows->pad);
        UNROLL_FOR (int cv = 0; cv < V_VECS; cv++)
            to[j][cv] = cv < CHANNEL_VECS
                            ? load_token(row, rows->layout->column, cv)
                            : (vec)(0.0f);
    }
}

/* Makes the block one of a window's keys. */
INLINE void open_keys(key_block *keys, key_range range,
                      const forward_args *args, const window_coord *coord,
                      const head_rows *k)
{
    keys->first = range.first;
    keys->count = (int)range.count;
    keys->mixed = range.mixed;
    find_keys(keys, &args->grid, coord);
    load_transposed(keys->transposed,
                    VARIANT == COSINE ? keys->inverse_norm : 0, k, keys);
    for (int jv = 0; VARIANT == COSINE && jv < KEY_VECS; jv++)
        keys->inverse_norm[jv] =
            1.0f / fmax(sqrt(keys->inverse_norm[jv]), (vec)(NORM_EPSILON));
}

/* Of keys whose regions are in arrays: find_keys has found others'. */
INLINE void load_regions(key_block *keys, const forward_args *args,
                         const score_bias_view *score_bias)
{
    for (int jv = 0; MASK_READS_REGIONS(MASK) && jv < KEY_VECS; jv++) {
        int x[LANES];
        for (int i = 0; i < LANES; i++)
            x[i] =
                key_region(args, score_bias,
                           keys->first + min(jv * LANES + i, keys->count - 1));
        keys->region[jv] = JOIN(vload, LANES)(0, x);
    }
}

/* ---- Rows ---- */

/* One row of channels; returns its squares, not yet summed over the lanes.
 * Tokens come by their address: of a copy, rusticl 25.0 took that of another
 * row in a loop over rows. */
INLINE vec load_row(float *to, const head_rows *rows, const token *at)
{
    __global const storage *row =
        token_row(rows->plane, rows->layout, at, rows->pad);
    vec squares = (vec)(0.0f);
    for (int cv = 0; cv < V_VECS; cv++) {
        vec x = (vec)(0.0f);
        if (cv < CHANNEL_VECS)
            x = load_token(row, rows->layout->column, cv);
        set_vec(to, cv, x);
        squares = FMA(x, x, squares);
    }
    return squares;
}

/* Rows from `row` on, of those before row_end, that have seen no key yet.
 * Queries of the padding are zeros: nothing is kept of them. */
INLINE void load_rows(row_tile *tile, const forward_args *args,
                      const window_coord *coord, const head_rows *q, uint row,
                      uint row_end, float scale)
{
    tile->count = (int)min(row_end - row, (uint)TILE_ROWS);
    for (int r = 0; r < TILE_ROWS; r++) {
        tile->row[r] = min(row + r, row_end - 1);
        if (GRID)
            tile->token[r] = find_token(&args->grid, coord, tile->row[r]);
        if (MASK_FOLLOWS_GRID(MASK))
            tile->region[r] =
                shift_boundary_sides(&args->grid, coord, tile->row[r]);
        const token at = row_token(tile, r);
        const vec squares = load_row(tile->q[r], q, &at);
        tile->q_scale[r] = scale;
        if (VARIANT == COSINE)
            tile->q_scale[r] *= inverse_norm(lanes_sum(squares));
        tile->max[r] = -INFINITY;
        tile->sum[r] = 0.0f;
    }
}

/* What earlier blocks of keys left of the tile's rows, counted from first_row.
 */
INLINE void recall_rows(row_tile *tile, const float *max, const float *sum,
                        uint first_row)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        tile->max[r] = max[tile->row[r] - first_row];
        tile->sum[r] = sum[tile->row[r] - first_row];
    }
}
