/* SPDX-License-Identifier: Apache-2.0
 * P and dS of a block of rows and a block of keys, for the backward kernels.
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
 * is made. */
#include "local/gradient_memory.cl"

/* The coordinates of a work-item's tile of the block. */
typedef struct tile_coord {
    int owns; /* does it have one? */
    int row, col;
} tile_coord;

INLINE tile_coord find_tile(int lane)
{
    tile_coord coord;
    coord.owns = lane < ROW_TILES * COL_TILES;
    coord.row = lane / COL_TILES;
    coord.col = lane % COL_TILES;
    return coord;
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
/* Is there a row i, or a key j, of the tile in the block? */
INLINE int has_row(const gradient_block *block, tile_coord coord, int i)
{
    return FULL_ROWS || coord.row + ROW_TILES * i < block->row_count;
}
INLINE int has_key(const gradient_block *block, tile_coord coord, int j)
{
    return FULL_COLS || coord.col + COL_TILES * j < (int)block->keys.count;
}
/* Columns past BLOCK_KEYS are not stored. */
INLINE int is_stored(tile_coord coord, int j)
{
    return COL_TILES * SCORE_COLS == BLOCK_KEYS ||
           coord.col + COL_TILES * j < BLOCK_KEYS;
}

INLINE __local float *tile_weights(const gradient_memory *memory,
                                   tile_coord coord)
{
    return (__local float *)memory->weights + coord.row * WEIGHT_PITCH * 4 +
           coord.col;
}

/* -inf where there is no row or key, the row is padding or does not see the
 * key, given whose logits a work-item has. */
INLINE void hide_keys(float tile[SCORE_ROWS][SCORE_COLS],
                      const forward_args *forward, const gradient_block *block,
                      tile_coord coord, const int *rows, const int *keys)
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (!has_row(block, coord, i) || !has_key(block, coord, j))
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
    if (VARIANT == SLIDING && block->keys.mixed)
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            const span seen = visible_span(forward, rows[i]);
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                if (!sees(forward, seen, keys[j]))
                    tile[i][j] = -INFINITY;
        }
}

/* tile = the logits of the work-item's tile, -inf where there is no row or
 * key, the row is padding or does not see the key. Ends with a barrier where
 * it staged. */
INLINE void compute_logits(float tile[SCORE_ROWS][SCORE_COLS],
                           const gradient_memory *memory,
                           const backward_args *args,
                           const score_bias_view *score_bias,
                           const gradient_block *block, tile_coord coord,
                           int lane)
{
    const forward_args *forward = &args->forward;
    /* Rows and keys past the last take the last one's score bias. */
    int rows[SCORE_ROWS], keys[SCORE_COLS];
    number_entries(rows, SCORE_ROWS, block->of.row, coord.row, ROW_TILES,
                   block->row_count - 1, FULL_ROWS);
    number_entries(keys, SCORE_COLS, block->keys.first, coord.col, COL_TILES,
                   (int)block->keys.count - 1, FULL_COLS);
    clear_tile(tile);
    if (VARIANT == DOT && coord.owns)
        add_score_bias(tile, forward, score_bias, &block->q.tokens,
                       &block->k.tokens, rows, keys);
    /* where tiles stay, all channels are there */
    for (int channel = 0; channel < HEAD_DIM; channel += STAGE_DIMS) {
        if (!KEEPS_TILES) {
            stage_q(memory, block, channel, 0, lane);
            stage_k(memory, block, channel, 0, lane);
            barrier(CLK_LOCAL_MEM_FENCE);
            accumulate_norms(memory->q_inverse, memory->q, Q_ROWS, 1.0f,
                             channel, lane);
            accumulate_norms(memory->k_inverse, memory->k, KV_ROWS, 1.0f,
                             channel, lane);
        }
        if (coord.owns)
            multiply_rows(tile, memory->q, memory->k, coord.row, coord.col,
                          COL_TILES);
        if (!KEEPS_TILES)
            barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (!coord.owns)
        return;
    if (VARIANT == COSINE) {
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                tile[i][j] *= block->scale *
                              memory->q_inverse[coord.row + ROW_TILES * i] *
                              memory->k_inverse[coord.col + COL_TILES * j];
        add_score_bias(tile, forward, score_bias, &block->q.tokens,
                       &block->k.tokens, rows, keys);
    }
    hide_keys(tile, forward, block, coord, rows, keys);
}

/* What is kept of entry i, j of the work-item's tile, a weight or its dP. */
INLINE float keep_entry(float x, const backward_args *args,
                        const gradient_block *block, tile_coord coord, int i,
                        int j)
{
    return keep(x, &args->forward, block->of,
                block->of.row + coord.row + ROW_TILES * i,
                block->keys.first + coord.col + COL_TILES * j);
}

/* tile = dP = dO V^T, where a weight is kept. The last channels of dO stay;
 * ends with a barrier where it staged. */
INLINE void multiply_d_o(float tile[SCORE_ROWS][SCORE_COLS],
                         const gradient_memory *memory,
                         const backward_args *args,
                         const gradient_block *block, tile_coord coord,
                         int lane)
{
    clear_tile(tile);
    for (int channel = 0; channel < HEAD_DIM; channel += STAGE_DIMS) {
        if (!KEEPS_TILES) {
            stage_d_o(memory, block, channel, lane);
            stage_v(memory, block, channel, lane);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (coord.owns)
            multiply_rows(tile, memory->d_o, memory->v, coord.row, coord.col,
                          COL_TILES);
        if (!KEEPS_TILES)
            barrier(CLK_LOCAL_MEM_FENCE);
    }
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            tile[i][j] = keep_entry(tile[i][j], args, block, coord, i, j);
}

/* The logits less row_max become exponentials, in place and in local memory;
 * multiplies: times row_sum, where that is known to make them P. */
INLINE void store_exponentials(float tile[SCORE_ROWS][SCORE_COLS],
                               const gradient_memory *memory, tile_coord coord,
                               const int multiplies)
{
    __local float *weights = tile_weights(memory, coord);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const int r = coord.row + ROW_TILES * i;
        const float top = memory->row_max[r];
        const float factor = multiplies ? memory->row_sum[r] : 1.0f;
        /* a row that has seen nothing has no maximum to subtract */
        const float softmax_max = top == -INFINITY ? 0.0f : top;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
            tile[i][j] = WEIGHT(tile[i][j], softmax_max);
            if (multiplies)
                tile[i][j] *= factor;
            if (is_stored(coord, j))
                weights[WEIGHT_AT(i, j)] = tile[i][j];
        }
    }
}

/* Turns dP into dS, given the deltas of the rows, and leaves P in local memory
 * as it goes to dV; multiplies: the exponentials become P first, by the
 * factors in row_sum. */
INLINE void differentiate_softmax(float tile[SCORE_ROWS][SCORE_COLS],
                                  const gradient_memory *memory,
                                  const backward_args *args,
                                  const gradient_block *block,
                                  tile_coord coord, const int multiplies)
{
    __local float *weights = tile_weights(memory, coord);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const int r = coord.row + ROW_TILES * i;
        const float delta = memory->row_delta[r];
        const float factor = multiplies ? memory->row_sum[r] : 1.0f;
        float p[SCORE_COLS]; /* all are read before one is written */
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            p[j] =
                is_stored(coord, j) ? weights[WEIGHT_AT(i, j)] * factor : 0.0f;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
            if ((multiplies || DROPS_WEIGHTS) && is_stored(coord, j))
                weights[WEIGHT_AT(i, j)] =
                    keep_entry(p[j], args, block, coord, i, j);
            /* nothing comes from a key that is not seen */
            tile[i][j] = p[j] == 0.0f ? 0.0f : p[j] * (tile[i][j] - delta);
        }
    }
}

INLINE void store_weights(const float tile[SCORE_ROWS][SCORE_COLS],
                          const gradient_memory *memory, tile_coord coord)
{
    __local float *weights = tile_weights(memory, coord);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (is_stored(coord, j))
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
                           const backward_args *args,
                           const gradient_block *block, tile_coord coord,
                           int lane)
{
    __local float *part = memory->parts + coord.row * COL_TILES + coord.col;
    __local float *delta_part = part + Q_ROWS * COL_TILES;
    __local const float *weights = tile_weights(memory, coord);
    if (coord.owns)
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
        const float softmax_max = top == -INFINITY ? 0.0f : top;
        const float rescale = WEIGHT(earlier, softmax_max);
        memory->row_max[r] = top;
        memory->row_sum[r] *= rescale;
        memory->row_delta[r] *= rescale;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (coord.owns) {
        store_exponentials(tile, memory, coord, 0);
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            float sum = 0.0f;
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                sum += tile[i][j];
            part[ROW_TILES * i * COL_TILES] = sum;
        }
    }
    multiply_d_o(tile, memory, args, block, coord, lane);
    if (coord.owns)
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
            float sum = 0.0f;
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
                const float p =
                    is_stored(coord, j) ? weights[WEIGHT_AT(i, j)] : 0.0f;
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

/* d_lse of a token of the plane, 0 where there is none. */
INLINE float d_lse_of(const backward_args *args, __global const float *d_lse,
                      const token *t)
{
    return (args->forward.flags & ARG_D_LSE) != 0 && EXISTS(*t)
               ? d_lse[token_offset(&args->d_lse, t)]
               : 0.0f;
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
        if (r < block->row_count) {
            const token t = token_of(&block->q.tokens, block->of.row + r);
            delta -= d_lse_of(args, d_lse, &t);
        }
        memory->row_sum[r] = inverse;
        memory->row_delta[r] = delta;
    }
}
