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
 *   HAS_ALONG     1: it sums q^ . dq^ of rows
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

/* Declares `name` and its arrays, in a kernel. */
#define DECLARE_GRADIENT_MEMORY(name)                                         \
    __local float4 row_tiles[TILE_COPIES][Q_QUADS];                           \
    __local float4 col_tiles[TILE_COPIES][KV_QUADS];                          \
    __local float4 weight_tile[WEIGHT_QUADS];                                 \
    __local float parts[ROOM(PART_COUNT > 0, PART_COUNT)];                    \
    __local float row_maxima[Q_ROWS];                                         \
    __local float row_sums[Q_ROWS];                                           \
    __local float row_deltas[Q_ROWS];                                         \
    __local float q_inverses[ROOM(HAS_INVERSES, Q_ROWS)];                     \
    __local float k_inverses[ROOM(HAS_INVERSES, KV_ROWS)];                    \
    __local float alongs[ROOM(HAS_ALONG, Q_ROWS)];                            \
    __local kept_token kept_rows[ROOM(LISTS_TOKENS && KEPT_ROWS, KEPT_ROWS)]; \
    __local kept_token kept_keys[ROOM(LISTS_TOKENS, BLOCK_KEYS)];             \
    __local float kept_table[ROOM(KEEPS_TABLE, TABLE_ENTRIES)];               \
    __local int kept_positions[ROOM(KEEPS_TABLE, TABLE_TOKENS)];              \
    gradient_memory name = {.q = row_tiles[0],                                \
                            .d_o = row_tiles[TILE_COPIES - 1],                \
                            .k = col_tiles[0],                                \
                            .v = col_tiles[TILE_COPIES - 1],                  \
                            .weights = weight_tile,                           \
                            .parts = parts,                                   \
                            .row_max = row_maxima,                            \
                            .row_sum = row_sums,                              \
                            .row_delta = row_deltas,                          \
                            .q_inverse = q_inverses,                          \
                            .k_inverse = k_inverses,                          \
                            .along = alongs,                                  \
                            .row_tokens = kept_rows,                          \
                            .key_tokens = kept_keys,                          \
                            .table = kept_table,                              \
                            .table_positions = kept_positions};

/* Tokens first .. first + count of a window. Where the team keeps them it
 * finds them here, with barriers before and after: its work-items may still be
 * at the earlier ones. */
INLINE token_list list_tokens(__local kept_token *kept,
                              const grid_layout *grid,
                              const window_coord *coord, uint first, int count,
                              int lane)
{
    /* what loops carry keeps NVIDIA's arguments in memory */
    const token_list tokens = {LISTS_TOKENS ? 0 : grid,
                               LISTS_TOKENS ? 0 : coord, kept, first};
    if (!LISTS_TOKENS)
        return tokens;
    HIDE_FROM_OPTIMIZER(lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int done = 0; done < count; done += TEAM)
        if (done + lane < count)
            kept[done + lane] = keep_token(grid, coord, first + done + lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    return tokens;
}

/* The rows and keys that a team has at hand. */
typedef struct gradient_block {
    token_rows q, k, v, d_o;
    int has_padding; /* the window */
    work_tile of;    /* whose rows these are */
    int row_count;
    key_range keys;
    float scale; /* of the logits */
    int wide;
} gradient_block;

/* A launch's tensors, and of a key head the rows of the padding. */
typedef struct gradient_tensors {
    __global const storage *q, *k, *v, *d_o;
    __global const storage *pad_k, *pad_v;
    __global const float *logit_scale;
} gradient_tensors;
#define GRADIENT_TENSORS(args, kv_head)                                       \
    {                                                                         \
        q, k, v, d_o, PAD_ROW((args).forward, pad_k, ARG_PAD_K, kv_head),     \
            PAD_ROW((args).forward, pad_v, ARG_PAD_V, kv_head), LOGIT_SCALE   \
    }

/* The rows of a tensor that has no padding. Returned, since NVIDIA's compiler
 * keeps gradient_block in memory if it is filled from a local struct here. */
INLINE token_rows rows_of(__global const storage *tensor,
                          const tensor_layout *layout, ulong grid, uint head,
                          token_list tokens)
{
    const token_rows rows = {tensor + plane(layout, grid, head), layout,
                             tokens, 0};
    return rows;
}

/* Takes a window's rows, of the head block->of.head, */
INLINE void take_rows(gradient_block *block, const gradient_tensors *of,
                      const backward_args *args, ulong grid, token_list tokens)
{
    const uint head = block->of.head;
    block->q = rows_of(of->q, &args->forward.q, grid, head, tokens);
    block->d_o = rows_of(of->d_o, &args->d_o, grid, head, tokens);
    block->scale = HEAD_SCALE(&args->forward, of->logit_scale, head);
}
/* and its keys. */
INLINE void take_keys(gradient_block *block, const gradient_tensors *of,
                      const forward_args *forward, ulong grid, uint kv_head,
                      token_list tokens)
{
    block->k = rows_of(of->k, &forward->k, grid, kv_head, tokens);
    block->v = rows_of(of->v, &forward->v, grid, kv_head, tokens);
    block->k.pad = of->pad_k;
    block->v.pad = of->pad_v;
}

/* How rows of q or d_o, and of k or v, come to local memory. */
INLINE staged_rows staged_queries(const gradient_block *block,
                                  const token_rows *matrix)
{
    const staged_rows rows = {
        matrix, block->of.row, block->row_count, Q_ROWS, 1.0f, 0, block->wide};
    return rows;
}
INLINE staged_rows staged_keys(const gradient_block *block,
                               const token_rows *matrix)
{
    const staged_rows rows = {
        matrix, block->keys.first, (int)block->keys.count, KV_ROWS, 1.0f,
        0,      block->wide};
    return rows;
}

/* scale Q, or the same of its rows divided by their norms; norms themselves
 * need Q as it is */
INLINE void stage_q(const gradient_memory *memory, const gradient_block *block,
                    int channel, __local const float *inverses, int lane)
{
    staged_rows rows = staged_queries(block, &block->q);
    if (VARIANT != COSINE || inverses)
        rows.factor = block->scale;
    rows.factors = inverses;
    stage(memory->q, &rows, channel, lane);
}

INLINE void stage_d_o(const gradient_memory *memory,
                      const gradient_block *block, int channel, int lane)
{
    const staged_rows rows = staged_queries(block, &block->d_o);
    stage(memory->d_o, &rows, channel, lane);
}

INLINE void stage_k(const gradient_memory *memory, const gradient_block *block,
                    int channel, __local const float *inverses, int lane)
{
    staged_rows rows = staged_keys(block, &block->k);
    rows.factors = inverses;
    stage(memory->k, &rows, channel, lane);
}

INLINE void stage_v(const gradient_memory *memory, const gradient_block *block,
                    int channel, int lane)
{
    const staged_rows rows = staged_keys(block, &block->v);
    stage(memory->v, &rows, channel, lane);
}

/* All four; loads of all of them are under way at once. */
INLINE void stage_tiles(const gradient_memory *memory,
                        const gradient_block *block, int lane)
{
#if WIDE && LOADS_AHEAD > 1
    if (block->wide) {
        staged_rows q_rows = staged_queries(block, &block->q);
        const staged_rows d_o_rows = staged_queries(block, &block->d_o);
        const staged_rows k_rows = staged_keys(block, &block->k);
        const staged_rows v_rows = staged_keys(block, &block->v);
        const int own_row = STAGE_ROW(lane), c = STAGE_COLUMN(lane);
        const int most = LARGER(Q_ROWS, KV_ROWS);
        q_rows.factor = block->scale;
        if (own_row >= STAGE_DOWN)
            return;
        for (int done = 0; done < most; done += LOADS_AHEAD * STAGE_DOWN) {
            wide_quads q[LOADS_AHEAD], k[LOADS_AHEAD], v[LOADS_AHEAD],
                d_o[LOADS_AHEAD];
            const int row = done + own_row;
            load_rows(k, &k_rows, row, c);
            load_rows(v, &v_rows, row, c);
            load_rows(q, &q_rows, row, c);
            load_rows(d_o, &d_o_rows, row, c);
            store_rows(k, memory->k, &k_rows, row, c);
            store_rows(v, memory->v, &v_rows, row, c);
            store_rows(q, memory->q, &q_rows, row, c);
            store_rows(d_o, memory->d_o, &d_o_rows, row, c);
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
            statistics + (block->of.row + r) * ROW_NUMBERS;
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
