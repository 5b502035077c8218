/* SPDX-License-Identifier: Apache-2.0
 * What the backward kernels for GPUs share: a team makes P and dS of a block
 * of rows and a block of keys, and multiplies them with staged matrices.
 *
 *                   BLOCK_KEYS
 *                 +------------+
 *     Q  K^T  ->  |     P      | BLOCK_ROWS    ->  dV += P^T dO
 *    dO  V^T  ->  |    dP      |
 *                 |    dS      | P (dP - delta)  ->  dQ += scale dS K
 *                 +------------+                   dK += scale dS^T Q
 *
 * A work-item owns one tile of SCORE_ROWS x SCORE_COLS of the block, and keeps
 * its dP in registers; P lies in local memory, and dS takes its place once dV
 * is made. Channels come STAGE_DIMS at a time.
 *
 *   KEEPS_TILES   1: Q, dO, K and V have local memory each, for all channels
 *                 (STAGE_DIMS >= HEAD_DIM), and stay; 0: Q and dO take turns,
 *                 and so do K and V
 *   KEY_QUADS     quads of keys in a work-item's tile of dK and dV, which is
 *                 one quad of channels wide; a team covers BLOCK_KEYS x
 *                 STAGE_DIMS
 *   UNROLLED_ROWS rows of a product with transposed weights without a jump in
 *                 between; divides Q_ROWS
 *   TEAM          also covers the tiles of the block, one each */
#include "local/local.cl"

#ifndef KEEPS_TILES
#define KEEPS_TILES 0
#endif
#ifndef KEY_QUADS
#define KEY_QUADS 2
#endif
#ifndef UNROLLED_ROWS
#define UNROLLED_ROWS SCORE_ROWS
#endif

/* Of the kernels, see there. */
#ifndef WHOLE
#define WHOLE 0
#endif
/* Numbers that tiles of logits hand to their rows: what a softmax and P dP
 * sum, or what the kernel of rows sums to check delta by; in other kernels
 * none. */
#ifndef STATISTICS
#define PART_COUNT (WHOLE ? 2 * Q_ROWS * COL_TILES : 0)
#elif STATISTICS
#define PART_COUNT (2 * Q_ROWS * COL_TILES)
#else
#define PART_COUNT (Q_ROWS * (2 * COL_TILES + CEIL_DIV(COL_TILES, 2)))
#endif

/* Where they are known before, loops have constant ends. */
#if VARIANT == SLIDING
#define QUERIES forward->queries
#define KEYS forward->keys
#else
#define QUERIES NQ
#define KEYS NK
#endif

#define COL_TILES CEIL_DIV(BLOCK_KEYS, SCORE_COLS)
#define BLOCK_QUADS CEIL_DIV(BLOCK_KEYS, 4)
#define KEY_TILES CEIL_DIV(BLOCK_QUADS, KEY_QUADS)
#define TILE_KEYS (4 * KEY_QUADS)
#define KV_ROWS LARGER(COL_TILES *SCORE_COLS, BLOCK_QUADS * 4)
#define WEIGHT_PITCH (BLOCK_QUADS | 1)
/* The last tile of keys may reach behind the last row. */
#define WEIGHT_QUADS (ALL_ROWS * WEIGHT_PITCH + KEY_QUADS)
#define TILE_COPIES (KEEPS_TILES ? 2 : 1)

/* What a team shares in local memory. */
typedef struct gradient_memory {
    __local float4 *q;       /* [Q_ROWS][DIM_PITCH] */
    __local float4 *d_o;     /* the same; without KEEPS_TILES the same place */
    __local float4 *k;       /* [KV_ROWS][DIM_PITCH] */
    __local float4 *v;       /* as for d_o */
    __local float4 *weights; /* [ALL_ROWS][WEIGHT_PITCH], P, then dS */
    __local float *parts;    /* [PART_COUNT], of tiles for their rows */
    __local float *row_max;  /* [Q_ROWS], of the logits, or a number near it */
    __local float *row_sum;  /* [Q_ROWS], of exponentials; later what makes
                                them P */
    __local float *row_delta;       /* [Q_ROWS], of P dP, less d_lse */
    __local float *q_inverse;       /* [Q_ROWS], 1 / norm */
    __local float *k_inverse;       /* [KV_ROWS] */
    __local kept_token *row_tokens; /* [BLOCK_ROWS] */
    __local kept_token *key_tokens; /* [BLOCK_KEYS] */
    __local float *table;           /* [TABLE_ENTRIES], of biases */
    __local int *table_places;      /* [TABLE_TOKENS] */
} gradient_memory;

#if VARIANT == COSINE
#define DECLARE_INVERSES                                                      \
    __local float q_inverses[Q_ROWS];                                         \
    __local float k_inverses[KV_ROWS];
#define SET_INVERSES(memory)                                                  \
    (memory).q_inverse = q_inverses;                                          \
    (memory).k_inverse = k_inverses;
#else
#define DECLARE_INVERSES
#define SET_INVERSES(memory)
#endif
#if WHOLE || defined(STATISTICS)
#define DECLARE_PARTS __local float parts[PART_COUNT];
#define SET_PARTS(memory) (memory).parts = parts;
#else
#define DECLARE_PARTS
#define SET_PARTS(memory)
#endif
/* WHOLE: the keys are all of the window, and so the rows are among them. */
#define KEPT_ROWS (WHOLE ? 0 : BLOCK_ROWS)
#if LISTS_TOKENS
#define DECLARE_TOKENS __local kept_token kept_tokens[KEPT_ROWS + BLOCK_KEYS];
#define SET_TOKENS(memory)                                                    \
    (memory).row_tokens = kept_tokens;                                        \
    (memory).key_tokens = kept_tokens + KEPT_ROWS;
#else
#define DECLARE_TOKENS
#define SET_TOKENS(memory)
#endif
#if KEEPS_TABLE
#define TABLE_ENTRIES (2 * TABLE_CENTER + 1)
#define TABLE_TOKENS LARGER(NQ, NK)
#define DECLARE_TABLE                                                         \
    __local float table[TABLE_ENTRIES];                                       \
    __local int table_places[TABLE_TOKENS];
#define SET_TABLE(memory)                                                     \
    (memory).table = table;                                                   \
    (memory).table_places = table_places;
#else
#define DECLARE_TABLE
#define SET_TABLE(memory)
#endif
/* Declares `name` and its arrays, in a kernel. */
#define DECLARE_GRADIENT_MEMORY(name)                                         \
    __local float4 row_tiles[TILE_COPIES][Q_ROWS * DIM_PITCH];                \
    __local float4 col_tiles[TILE_COPIES][KV_ROWS * DIM_PITCH];               \
    __local float4 weight_tile[WEIGHT_QUADS];                                 \
    DECLARE_PARTS                                                             \
    __local float row_maxima[Q_ROWS];                                         \
    __local float row_sums[Q_ROWS];                                           \
    __local float row_deltas[Q_ROWS];                                         \
    DECLARE_INVERSES                                                          \
    DECLARE_TOKENS                                                            \
    DECLARE_TABLE                                                             \
    gradient_memory name = {.q = row_tiles[0],                                \
                            .d_o = row_tiles[TILE_COPIES - 1],                \
                            .k = col_tiles[0],                                \
                            .v = col_tiles[TILE_COPIES - 1],                  \
                            .weights = weight_tile,                           \
                            .row_max = row_maxima,                            \
                            .row_sum = row_sums,                              \
                            .row_delta = row_deltas};                         \
    SET_PARTS(name)                                                           \
    SET_INVERSES(name)                                                        \
    SET_TOKENS(name)                                                          \
    SET_TABLE(name)

/* Tokens first .. first + count of a window. Where the team keeps them it
 * finds them here, with barriers before and after: its work-items may still be
 * at the earlier ones. */
INLINE token_list list_tokens(__local kept_token *kept,
                              const grid_layout *grid,
                              const window_place *place, uint first, int count,
                              int lane)
{
#if LISTS_TOKENS
    FORGET(lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int done = 0; done < count; done += TEAM)
        if (done + lane < count)
            kept[done + lane] = keep_token(grid, place, first + done + lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    const token_list tokens = {kept, first};
#else
    const token_list tokens = {grid, place};
#endif
    return tokens;
}

/* The rows and keys that a team has at hand. */
typedef struct gradient_block {
    token_rows q, k, v, d_o;
    int has_padding; /* the window */
    uint first_row;
    int row_count;
    key_range keys;
    float scale; /* of the logits */
    int wide;
} gradient_block;

/* The place of a work-item's tile of the block. */
typedef struct tile_place {
    int owns; /* does it have one? */
    int row, col;
} tile_place;

INLINE tile_place find_tile(int lane)
{
    tile_place place;
    place.owns = lane < ROW_TILES * COL_TILES;
    place.row = lane / COL_TILES;
    place.col = lane % COL_TILES;
    return place;
}

#if VARIANT != SLIDING
#define FULL_ROWS (BLOCK_ROWS % SCORE_ROWS == 0 && NQ % BLOCK_ROWS == 0)
#define FULL_COLS (BLOCK_KEYS % SCORE_COLS == 0 && NK % BLOCK_KEYS == 0)
#else
#define FULL_ROWS 0
#define FULL_COLS 0
#endif
/* Entry i, j of the work-item's tile, counted from its first. */
#define WEIGHT_AT(i, j) (ROW_TILES * (i)*WEIGHT_PITCH * 4 + COL_TILES * (j))
#define ROW_EXISTS(i)                                                         \
    (FULL_ROWS || place.row + ROW_TILES * (i) < block->row_count)
#define KEY_EXISTS(j)                                                         \
    (FULL_COLS || place.col + COL_TILES * (j) < (int)block->keys.count)
/* Columns past BLOCK_KEYS are not stored. */
#define KEY_FITS(j)                                                           \
    (COL_TILES * SCORE_COLS == BLOCK_KEYS ||                                  \
     place.col + COL_TILES * (j) < BLOCK_KEYS)

INLINE __local float *tile_weights(const gradient_memory *memory,
                                   tile_place place)
{
    return (__local float *)memory->weights + place.row * WEIGHT_PITCH * 4 +
           place.col;
}

/* scale Q, or the same of its rows divided by their norms; norms themselves
 * need Q as it is */
INLINE void stage_q(const gradient_memory *memory, const gradient_block *block,
                    int channel, __local const float *inverses, int lane)
{
    const float factor = VARIANT != COSINE || inverses ? block->scale : 1.0f;
    stage(memory->q, &block->q, block->first_row, block->row_count, Q_ROWS,
          channel, factor, inverses, lane, block->wide);
}

INLINE void stage_d_o(const gradient_memory *memory,
                      const gradient_block *block, int channel, int lane)
{
    stage(memory->d_o, &block->d_o, block->first_row, block->row_count, Q_ROWS,
          channel, 1.0f, 0, lane, block->wide);
}

INLINE void stage_k(const gradient_memory *memory, const gradient_block *block,
                    int channel, __local const float *inverses, int lane)
{
    stage(memory->k, &block->k, block->keys.first, (int)block->keys.count,
          KV_ROWS, channel, 1.0f, inverses, lane, block->wide);
}

INLINE void stage_v(const gradient_memory *memory, const gradient_block *block,
                    int channel, int lane)
{
    stage(memory->v, &block->v, block->keys.first, (int)block->keys.count,
          KV_ROWS, channel, 1.0f, 0, lane, block->wide);
}

#if KEEPS_TILES
/* All four; loads of all of them are under way at once. */
INLINE void stage_tiles(const gradient_memory *memory,
                        const gradient_block *block, int lane)
{
#if WIDE && LOADS_AHEAD > 1
    if (block->wide) {
        const int c = STAGE_COLUMN(lane);
        const int most = LARGER(Q_ROWS, KV_ROWS);
        const int key_count = (int)block->keys.count;
        for (int done = 0; done < most; done += LOADS_AHEAD * STAGE_DOWN) {
            wide_quads q[LOADS_AHEAD], k[LOADS_AHEAD], v[LOADS_AHEAD],
                d_o[LOADS_AHEAD];
            const int row = done + STAGE_ROW(lane);
            const int end = STAGE_ROW(lane) < STAGE_DOWN ? most : 0;
            load_rows(k, &block->k, block->keys.first, row,
                      min(key_count, end), c);
            load_rows(v, &block->v, block->keys.first, row,
                      min(key_count, end), c);
            load_rows(q, &block->q, block->first_row, row,
                      min(block->row_count, end), c);
            load_rows(d_o, &block->d_o, block->first_row, row,
                      min(block->row_count, end), c);
            store_rows(k, memory->k, row, min(KV_ROWS, end), c, 1.0f, 0);
            store_rows(v, memory->v, row, min(KV_ROWS, end), c, 1.0f, 0);
            store_rows(q, memory->q, row, min(Q_ROWS, end), c, block->scale,
                       0);
            store_rows(d_o, memory->d_o, row, min(Q_ROWS, end), c, 1.0f, 0);
        }
        return;
    }
#endif
    stage_k(memory, block, 0, 0, lane);
    stage_v(memory, block, 0, lane);
    stage_q(memory, block, 0, 0, lane);
    stage_d_o(memory, block, 0, lane);
}
#endif

/* tile = the logits of the work-item's tile, -inf where there is no row or
 * key, the row is padding or does not see the key. Ends with a barrier where
 * it staged. */
INLINE void compute_logits(float tile[SCORE_ROWS][SCORE_COLS],
                           const gradient_memory *memory,
                           const backward_args *args, const logit_terms *terms,
                           const gradient_block *block, tile_place place,
                           int lane)
{
    const forward_args *forward = &args->forward;
    /* Rows and keys past the last take the last one's terms. */
    int rows[SCORE_ROWS], keys[SCORE_COLS];
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        rows[i] =
            (int)block->first_row +
            (FULL_ROWS ? place.row + ROW_TILES * i
                       : min(place.row + ROW_TILES * i, block->row_count - 1));
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        keys[j] = (int)block->keys.first +
                  (FULL_COLS ? place.col + COL_TILES * j
                             : min(place.col + COL_TILES * j,
                                   (int)block->keys.count - 1));
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            tile[i][j] = 0.0f;
    if (VARIANT == DOT && place.owns)
        add_terms(tile, forward, terms, &block->q.tokens, &block->k.tokens,
                  rows, keys);
#if KEEPS_TILES
    if (place.owns)
        multiply_rows(tile, memory->q, memory->k, place.row, place.col,
                      COL_TILES);
#else
    for (int channel = 0; channel < HEAD_DIM; channel += STAGE_DIMS) {
        stage_q(memory, block, channel, 0, lane);
        stage_k(memory, block, channel, 0, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
#if VARIANT == COSINE
        accumulate_norms(memory->q_inverse, memory->q, Q_ROWS, 1.0f, channel,
                         lane);
        accumulate_norms(memory->k_inverse, memory->k, KV_ROWS, 1.0f, channel,
                         lane);
#endif
        if (place.owns)
            multiply_rows(tile, memory->q, memory->k, place.row, place.col,
                          COL_TILES);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#endif
    if (!place.owns)
        return;
#if VARIANT == COSINE
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            tile[i][j] *= block->scale *
                          memory->q_inverse[place.row + ROW_TILES * i] *
                          memory->k_inverse[place.col + COL_TILES * j];
    add_terms(tile, forward, terms, &block->q.tokens, &block->k.tokens, rows,
              keys);
#endif
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (!ROW_EXISTS(i) || !KEY_EXISTS(j))
                tile[i][j] = -INFINITY;
    if (PADDING && block->has_padding) {
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            const token t = token_of(&block->q.tokens, rows[i]);
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                tile[i][j] = EXISTS(t) ? tile[i][j] : -INFINITY;
        }
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
            const token t = token_of(&block->k.tokens, keys[j]);
            UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
                if (PADDING == 2 && !EXISTS(t))
                    tile[i][j] = -INFINITY;
        }
    }
#if VARIANT == SLIDING
    if (block->keys.mixed)
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            const span seen = visible_span(forward, rows[i]);
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                if (!sees(forward, seen, keys[j]))
                    tile[i][j] = -INFINITY;
        }
#endif
}

/* tile = dP = dO V^T. The last channels of dO stay; ends with a barrier where
 * it staged. */
INLINE void multiply_d_o(float tile[SCORE_ROWS][SCORE_COLS],
                         const gradient_memory *memory,
                         const gradient_block *block, tile_place place,
                         int lane)
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            tile[i][j] = 0.0f;
#if KEEPS_TILES
    if (place.owns)
        multiply_rows(tile, memory->d_o, memory->v, place.row, place.col,
                      COL_TILES);
#else
    for (int channel = 0; channel < HEAD_DIM; channel += STAGE_DIMS) {
        stage_d_o(memory, block, channel, lane);
        stage_v(memory, block, channel, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place.owns)
            multiply_rows(tile, memory->d_o, memory->v, place.row, place.col,
                          COL_TILES);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#endif
}

/* The logits less row_max become exponentials, in place and in local memory;
 * multiplies: times row_sum, where that is known to make them P. */
INLINE void store_exponentials(float tile[SCORE_ROWS][SCORE_COLS],
                               const gradient_memory *memory, tile_place place,
                               const int multiplies)
{
    __local float *weights = tile_weights(memory, place);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const int r = place.row + ROW_TILES * i;
        const float top = memory->row_max[r];
        const float factor = multiplies ? memory->row_sum[r] : 1.0f;
        /* a row that has seen nothing has no maximum to subtract */
        const float base = top == -INFINITY ? 0.0f : top;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
            tile[i][j] = exp2((tile[i][j] - base) * LOG2E);
            if (multiplies)
                tile[i][j] *= factor;
            if (KEY_FITS(j))
                weights[WEIGHT_AT(i, j)] = tile[i][j];
        }
    }
}

/* Turns dP into dS, given the deltas of the rows; multiplies: the exponentials
 * become P first, by the factors in row_sum. */
INLINE void differentiate_softmax(float tile[SCORE_ROWS][SCORE_COLS],
                                  const gradient_memory *memory,
                                  tile_place place, const int multiplies)
{
    __local float *weights = tile_weights(memory, place);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const int r = place.row + ROW_TILES * i;
        const float delta = memory->row_delta[r];
        const float factor = multiplies ? memory->row_sum[r] : 1.0f;
        float p[SCORE_COLS]; /* all are read before one is written */
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            p[j] = KEY_FITS(j) ? weights[WEIGHT_AT(i, j)] * factor : 0.0f;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
            if (multiplies && KEY_FITS(j))
                weights[WEIGHT_AT(i, j)] = p[j];
            /* nothing comes from a key that is not seen */
            tile[i][j] = p[j] == 0.0f ? 0.0f : p[j] * (tile[i][j] - delta);
        }
    }
}

INLINE void store_weights(const float tile[SCORE_ROWS][SCORE_COLS],
                          const gradient_memory *memory, tile_place place)
{
    __local float *weights = tile_weights(memory, place);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (KEY_FITS(j))
                weights[WEIGHT_AT(i, j)] = tile[i][j];
}

/* Before a row's first block of keys. */
INLINE void start_statistics(const gradient_memory *memory, int lane)
{
    for (int done = 0; done < Q_ROWS; done += TEAM) {
        const int r = done + lane;
        if (r >= Q_ROWS)
            continue;
        memory->row_max[r] = -INFINITY;
        memory->row_sum[r] = 0.0f;
        memory->row_delta[r] = 0.0f;
    }
}

/* Given the tile's logits, brings row_max, row_sum and row_delta (the sum of
 * exponentials times dP) up to date; leaves the exponentials in local memory
 * and dP in the tile. What it did last is seen by other work-items after the
 * next barrier, but may be done again without one. */
INLINE void add_statistics(float tile[SCORE_ROWS][SCORE_COLS],
                           const gradient_memory *memory,
                           const gradient_block *block, tile_place place,
                           int lane)
{
    __local float *part = memory->parts + place.row * COL_TILES + place.col;
    __local float *delta_part = part + Q_ROWS * COL_TILES;
    __local const float *weights = tile_weights(memory, place);
    if (place.owns)
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            float top = tile[i][0];
            UNROLL_FOR (int j = 1; j < SCORE_COLS; j++)
                top = fmax(top, tile[i][j]);
            part[ROW_TILES * i * COL_TILES] = top;
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int done = 0; done < Q_ROWS; done += TEAM) {
        const int r = done + lane;
        if (r >= Q_ROWS)
            continue;
        const float earlier = memory->row_max[r];
        float top = earlier;
        UNROLL_FOR (int c = 0; c < COL_TILES; c++)
            top = fmax(top, memory->parts[r * COL_TILES + c]);
        const float base = top == -INFINITY ? 0.0f : top;
        const float keep = exp2((earlier - base) * LOG2E);
        memory->row_max[r] = top;
        memory->row_sum[r] *= keep;
        memory->row_delta[r] *= keep;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (place.owns) {
        store_exponentials(tile, memory, place, 0);
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            float sum = 0.0f;
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                sum += tile[i][j];
            part[ROW_TILES * i * COL_TILES] = sum;
        }
    }
    multiply_d_o(tile, memory, block, place, lane);
    if (place.owns)
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            float sum = 0.0f;
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
                const float p = KEY_FITS(j) ? weights[WEIGHT_AT(i, j)] : 0.0f;
                /* nothing comes from a key that is not seen */
                sum += p == 0.0f ? 0.0f : p * tile[i][j];
            }
            delta_part[ROW_TILES * i * COL_TILES] = sum;
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int done = 0; done < Q_ROWS; done += TEAM) {
        const int r = done + lane;
        if (r >= Q_ROWS)
            continue;
        float sum = 0.0f, delta = 0.0f;
        UNROLL_FOR (int c = 0; c < COL_TILES; c++) {
            sum += memory->parts[r * COL_TILES + c];
            delta += memory->parts[(Q_ROWS + r) * COL_TILES + c];
        }
        memory->row_sum[r] += sum;
        memory->row_delta[r] += delta;
    }
}

/* After the last block of keys: row_delta is done and row_sum becomes its
 * inverse, by the work-items that had the rows before. */
INLINE void finish_statistics(const gradient_memory *memory,
                              const backward_args *args,
                              const gradient_block *block,
                              __global const float *d_lse, int lane)
{
    for (int done = 0; done < Q_ROWS; done += TEAM) {
        const int r = done + lane;
        if (r >= Q_ROWS)
            continue;
        const float sum = memory->row_sum[r];
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        float delta = memory->row_delta[r] * inverse;
        if ((args->forward.flags & ARG_D_LSE) != 0 && r < block->row_count) {
            const token t = token_of(&block->q.tokens, block->first_row + r);
            if (EXISTS(t))
                delta -= d_lse[token_offset(&args->d_lse, &t)];
        }
        memory->row_sum[r] = inverse;
        memory->row_delta[r] = delta;
    }
}

/* What the kernel before left of the rows. */
INLINE void load_statistics(const gradient_memory *memory,
                            __global const float *statistics,
                            const gradient_block *block, int lane)
{
    for (int done = 0; done < Q_ROWS; done += TEAM) {
        const int r = done + lane;
        if (r >= Q_ROWS)
            continue;
        __global const float *row =
            statistics + (block->first_row + r) * ROW_NUMBERS;
        const int exists = r < block->row_count;
        memory->row_max[r] = exists ? row[ROW_BASE] : 0.0f;
        memory->row_sum[r] = exists ? row[ROW_FACTOR] : 0.0f;
        memory->row_delta[r] = exists ? row[ROW_DELTA] : 0.0f;
    }
}

/* Columns past BLOCK_KEYS are never stored, but multiplied. */
INLINE void clear_weights(const gradient_memory *memory, int lane)
{
    for (int done = 0; done < WEIGHT_QUADS; done += TEAM)
        if (done + lane < WEIGHT_QUADS)
            memory->weights[done + lane] = (float4)(0.0f);
}

#if KEEPS_TABLE
/* A head's table of biases; ends with a barrier. */
INLINE void keep_table(const gradient_memory *memory, const forward_args *args,
                       __global const bias_storage *bias, uint head, int lane)
{
    bias += plane(&args->bias, 0, head);
    for (uint i = (uint)lane; i < TABLE_ENTRIES; i += TEAM)
        memory->table[i] = JOIN(load, BIAS_SUFFIX)(bias, i * args->bias.row);
    for (uint i = (uint)lane; i < TABLE_TOKENS; i += TEAM)
        memory->table_places[i] = table_place(i);
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

/* sums[i] += rows out_row + OUT_TILES * i of weights times a staged matrix,
 * one quad of channels. */
INLINE void add_product(float4 *sums, const gradient_memory *memory,
                        __local const float4 *matrix, int out_row, int quad,
                        int key_count)
{
    __local const float4 *line = memory->weights + out_row * WEIGHT_PITCH;
    NO_UNROLL_FOR (int c = 0; c < CEIL_DIV(key_count, 4); c++) {
        float4 y[4];
        UNROLL_FOR (int j = 0; j < 4; j++)
            y[j] = matrix[(c * 4 + j) * DIM_PITCH + quad];
        UNROLL_FOR (int i = 0; i < OUT_ROWS; i++) {
            const float4 w = line[OUT_TILES * i * WEIGHT_PITCH + c];
            sums[i] = FMA((float4)(w.x), y[0], sums[i]);
            sums[i] = FMA((float4)(w.y), y[1], sums[i]);
            sums[i] = FMA((float4)(w.z), y[2], sums[i]);
            sums[i] = FMA((float4)(w.w), y[3], sums[i]);
        }
    }
}

/* sums[j] += column 4 * key_quad + j of weights times a staged matrix, one
 * quad of channels. Rows past the last are zeros, in both. */
INLINE void add_transposed(float4 *sums, const gradient_memory *memory,
                           __local const float4 *matrix, int key_quad,
                           int quad, int row_count)
{
    __local const float4 *line = memory->weights + key_quad;
    NO_UNROLL_FOR (int first = 0; first < row_count; first += UNROLLED_ROWS)
        UNROLL_FOR (int r = first; r < first + UNROLLED_ROWS; r++) {
            const float4 y = matrix[r * DIM_PITCH + quad];
            UNROLL_FOR (int j = 0; j < KEY_QUADS; j++) {
                const float4 w = line[r * WEIGHT_PITCH + j];
                sums[4 * j] = FMA((float4)(w.x), y, sums[4 * j]);
                sums[4 * j + 1] = FMA((float4)(w.y), y, sums[4 * j + 1]);
                sums[4 * j + 2] = FMA((float4)(w.z), y, sums[4 * j + 2]);
                sums[4 * j + 3] = FMA((float4)(w.w), y, sums[4 * j + 3]);
            }
        }
}

/* Four channels of a token in global memory; channel < HEAD_DIM. */
INLINE float4 load_quad(const token_rows *rows, const token *t, int channel,
                        int wide)
{
    __global const storage *from =
        channels_of(rows, t, channel, rows->layout->column);
    if (ARE_ZEROS(from))
        return (float4)(0.0f);
#if WIDE
    if (wide)
        return load4_aligned(from);
#endif
    float x[4];
    UNROLL_FOR (int i = 0; i < 4; i++)
        x[i] = channel + i < HEAD_DIM
                   ? LOAD(from, (ulong)i * rows->layout->column)
                   : 0.0f;
    return (float4)(x[0], x[1], x[2], x[3]);
}

/* Rows first + step * i of a block: those of a work-item's tile of their
 * gradient, one quad of channels wide. */
typedef struct gradient_tile {
    int owns; /* does it have one? */
    int first, step;
    int quad; /* of a stage's channels */
    int row_count;
    uint first_row; /* of the block */
} gradient_tile;

/* The same tile, of which Intel's compiler has prepared nothing. */
INLINE gradient_tile forget_tile(const gradient_tile *tile)
{
    gradient_tile own = *tile;
#if SUB_GROUP
    FORGET(own.first);
    FORGET(own.quad);
#endif
    return own;
}

/* For the rows of a work-item's tile that are there and none of the padding,
 * sums[stage][row] += what `there` has of them (adds) or goes there. */
INLINE void move_gradient(float4 *sums, const int tile_rows,
                          const gradient_tile *tile, __global storage *to,
                          const token_rows *there, const int adds,
                          const int wide)
{
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = tile->first + tile->step * i;
        if (!tile->owns || r >= tile->row_count)
            continue;
        const token t = token_of(&there->tokens, tile->first_row + r);
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
            const int channel = s * STAGE_DIMS + tile->quad * 4;
            if (channel >= HEAD_DIM || !EXISTS(t))
                continue;
            if (adds)
                sums[s * tile_rows + i] += load_quad(there, &t, channel, wide);
            else
                store_quad(sums[s * tile_rows + i], to, there->layout, &t,
                           channel, wide);
        }
    }
}

/* Stores sums[stage][row of the tile] where the token is none of the padding,
 * or adds them to what is there; then sums are what is stored. */
INLINE void store_gradient(float4 *sums, const int tile_rows,
                           const gradient_tile *tile, __global storage *to,
                           const tensor_layout *layout, token_list tokens,
                           int adds, int wide)
{
    const token_rows there = {to, layout, tokens, 0};
    const gradient_tile own = forget_tile(tile);
    /* asked once, not for each row */
    if (adds)
        move_gradient(sums, tile_rows, &own, to, &there, 1, wide);
    if (WIDE && wide)
        move_gradient(sums, tile_rows, &own, to, &there, 0, 1);
    else
        move_gradient(sums, tile_rows, &own, to, &there, 0, 0);
}

#if PADDING == 1
/* pad_sums[stage] += sums[stage][row of the tile] of the padding's tokens. */
INLINE void add_padding(float4 *pad_sums, const float4 *sums,
                        const int tile_rows, const gradient_tile *tile,
                        const token_list *tokens)
{
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = tile->first + tile->step * i;
        if (r >= tile->row_count)
            continue;
        const token t = token_of(tokens, tile->first_row + r);
        if (!EXISTS(t))
            UNROLL_FOR (int s = 0; s < DIM_STAGES; s++)
                pad_sums[s] += sums[s * tile_rows + i];
    }
}
#endif

/* Gradients with respect to rows of length 1 are taken back to rows x of any
 * length: (d - x^ (x^ . d)) / |x|. Below the smallest norm x^ is just a
 * multiple of x. Leaves x^ . d in along[row], where given. `scratch` has room
 * for a float of each row and quad; it is free after the caller's next
 * barrier. */
INLINE void take_back_norms(float4 *sums, const int tile_rows,
                            const gradient_tile *tile, const token_rows *x,
                            __local const float *inverses,
                            __local float *scratch, __local float *along,
                            int wide)
{
    const gradient_tile own = forget_tile(tile);
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = own.first + own.step * i;
        if (!own.owns || r >= own.row_count)
            continue;
        const token t = token_of(&x->tokens, own.first_row + r);
        float4 sum = (float4)(0.0f);
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
            const int channel = s * STAGE_DIMS + own.quad * 4;
            if (channel < HEAD_DIM)
                sum = FMA(load_quad(x, &t, channel, wide),
                          sums[s * tile_rows + i], sum);
        }
        scratch[r * STAGE_QUADS + own.quad] =
            (sum.x + sum.y) + (sum.z + sum.w);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL_FOR (int i = 0; i < tile_rows; i++) {
        const int r = own.first + own.step * i;
        if (!own.owns || r >= own.row_count)
            continue;
        const token t = token_of(&x->tokens, own.first_row + r);
        const float inverse = inverses[r];
        float dot = 0.0f;
        for (int c = 0; c < STAGE_QUADS; c++)
            dot += scratch[r * STAGE_QUADS + c];
        dot *= inverse;
        const float part =
            inverse < 1.0f / NORM_EPSILON ? dot * inverse : 0.0f;
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
            const int channel = s * STAGE_DIMS + own.quad * 4;
            if (channel >= HEAD_DIM)
                continue;
            const float4 row = load_quad(x, &t, channel, wide);
            sums[s * tile_rows + i] =
                (sums[s * tile_rows + i] - row * part) * inverse;
        }
        if (along && own.quad == 0)
            along[r] = dot;
    }
}
