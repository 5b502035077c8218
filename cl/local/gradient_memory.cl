/* SPDX-License-Identifier: Apache-2.0
 * What a team of the backward pass has at hand: local memory, the block of
 * rows and the block of keys in it, and how they come there. Channels come
 * STAGE_DIMS at a time.
 *
 *   KEEPS_TILES   1: Q, dO, K and V have local memory each, for all channels
 *                 (STAGE_DIMS >= HEAD_DIM), and stay; 0: Q and dO take turns,
 *                 and so do K and V
 *   KEY_QUADS     quads of keys in a work-item's tile of dK and dV, which is
 *                 one quad of channels wide; a team covers BLOCK_KEYS x
 *                 STAGE_DIMS
 *   TEAM          also covers the tiles of the block, one each
 *
 * The kernel's file says before:
 *
 *   STAGES_TILES  1: it calls stage_tiles
 *   KEPT_ROWS     rows whose tokens it lists apart from those of keys
 *   PART_COUNT    numbers that tiles of logits hand to their rows */

#define SCALES_ROWS (VARIANT == COSINE)
/* Tokens, in local memory too, cannot be read past a store, and stage_tiles
 * has registers for them. Intel's compiler would keep them in private memory.
 */
#define LOADS_AHEAD (LISTS_TOKENS || (STAGES_TILES && !SUB_GROUP) ? 4 : 1)
#define SUMS_STAY 1
#include "local/gradient_extents.h"
#include "local/local_bias.cl"

REQUIRE(KEEPS_TILES)
REQUIRE(KEY_QUADS)

/* Where they are known before, loops have constant ends. */
#if VARIANT == SLIDING
#define QUERIES(forward) ((forward)->queries)
#define KEYS(forward) ((forward)->keys)
#else
#define QUERIES(forward) NQ
#define KEYS(forward) NK
#endif

#define TILE_KEYS (4 * KEY_QUADS)

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
    __local float *along;           /* [Q_ROWS], of q^ . dq^ */
    __local float *team_sums;       /* [TEAM] */
    __local kept_token *row_tokens; /* [BLOCK_ROWS] */
    __local kept_token *key_tokens; /* [BLOCK_KEYS] */
    __local float *table;           /* [TABLE_ENTRIES], of biases */
    __local int *table_positions;   /* [TABLE_TOKENS] */
} gradient_memory;

#if HAS_INVERSES
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
#if PART_COUNT > 0
#define DECLARE_PARTS __local float parts[PART_COUNT];
#define SET_PARTS(memory) (memory).parts = parts;
#else
#define DECLARE_PARTS
#define SET_PARTS(memory)
#endif
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
#define DECLARE_TABLE                                                         \
    __local float table[TABLE_ENTRIES];                                       \
    __local int table_positions[TABLE_TOKENS];
#define SET_TABLE(memory)                                                     \
    (memory).table = table;                                                   \
    (memory).table_positions = table_positions;
#else
#define DECLARE_TABLE
#define SET_TABLE(memory)
#endif
/* Declares `name` and its arrays, in a kernel. */
#define DECLARE_GRADIENT_MEMORY(name)                                         \
    __local float4 row_tiles[TILE_COPIES][Q_QUADS];                           \
    __local float4 col_tiles[TILE_COPIES][KV_QUADS];                          \
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
                              const window_coord *coord, uint first, int count,
                              int lane)
{
#if LISTS_TOKENS
    HIDE_FROM_OPTIMIZER(lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int done = 0; done < count; done += TEAM)
        if (done + lane < count)
            kept[done + lane] = keep_token(grid, coord, first + done + lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    const token_list tokens = {kept, first};
#else
    const token_list tokens = {grid, coord};
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

/* All four; loads of all of them are under way at once. */
INLINE void stage_tiles(const gradient_memory *memory,
                        const gradient_block *block, int lane)
{
#if WIDE && LOADS_AHEAD > 1
    if (block->wide) {
        const int own_row = STAGE_ROW(lane), c = STAGE_COLUMN(lane);
        const int most = LARGER(Q_ROWS, KV_ROWS);
        const int row_count = block->row_count;
        const int key_count = (int)block->keys.count;
        if (own_row >= STAGE_DOWN)
            return;
        for (int done = 0; done < most; done += LOADS_AHEAD * STAGE_DOWN) {
            wide_quads q[LOADS_AHEAD], k[LOADS_AHEAD], v[LOADS_AHEAD],
                d_o[LOADS_AHEAD];
            const int row = done + own_row;
            load_rows(k, &block->k, block->keys.first, row, key_count, c);
            load_rows(v, &block->v, block->keys.first, row, key_count, c);
            load_rows(q, &block->q, block->first_row, row, row_count, c);
            load_rows(d_o, &block->d_o, block->first_row, row, row_count, c);
            store_rows(k, memory->k, row, KV_ROWS, c, 1.0f, 0);
            store_rows(v, memory->v, row, KV_ROWS, c, 1.0f, 0);
            store_rows(q, memory->q, row, Q_ROWS, c, block->scale, 0);
            store_rows(d_o, memory->d_o, row, Q_ROWS, c, 1.0f, 0);
        }
        return;
    }
#endif
    stage_k(memory, block, 0, 0, lane);
    stage_v(memory, block, 0, lane);
    stage_q(memory, block, 0, 0, lane);
    stage_d_o(memory, block, 0, lane);
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
        memory->row_max[r] = exists ? row[ROW_MAX] : 0.0f;
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
        memory->table_positions[i] = table_position(i);
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif
