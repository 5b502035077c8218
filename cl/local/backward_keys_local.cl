/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for GPUs: dK, dV and what is summed over windows. One
 * work-group per (split, key head, block of keys): it iterates over its
 * split's windows, and in each the rows of all query heads that see its keys.
 *
 *   FUSED 1: the block holds all keys of a window, so that a row's softmax is
 *            known here, and dQ is made here too
 *         0: backward_rows_local.cl has left each row's statistics
 *   SINGLE_Q_BLOCK 1: one block of rows of one head is all that sees the keys
 *   KEEPS_TABLE 1: the head's table of biases stays in local memory
 *            (SINGLE_Q_BLOCK only)
 *   KEEPS_DBIAS 1: the sum over windows stays in registers (SINGLE_Q_BLOCK
 *               only)
 *               0: it is added to in the workspace */
#define STAGES_TILES (SINGLE_Q_BLOCK && KEEPS_TILES)
#define KEPT_ROWS KEYS_KEPT_ROWS
#define PART_COUNT KEYS_PART_COUNT
#include "local/gradient_tiles.cl"

REQUIRE(FUSED)
REQUIRE(SINGLE_Q_BLOCK)
REQUIRE(KEEPS_DBIAS)

/* Adds a tile of dS to the split's sum over windows. */
INLINE void add_bias_partial(const float tile[SCORE_ROWS][SCORE_COLS],
                             __global float *partial,
                             const gradient_block *block, tile_coord coord,
                             uint keys, int is_first)
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        if (!has_row(block, coord, i))
            continue;
        __global float *line =
            partial +
            (block->first_row + coord.row + ROW_TILES * i) * (size_t)keys +
            block->keys.first + coord.col;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (has_key(block, coord, j))
                line[COL_TILES * j] =
                    is_first ? tile[i][j] : line[COL_TILES * j] + tile[i][j];
    }
}

/* Adds what the tiles of keys have summed to the work-group's sums of the
 * padding's gradients over windows. Holds barriers. */
INLINE void add_pad_partial(const float4 *sums, __global float *partial,
                            const gradient_tile *tile, __local float4 *scratch,
                            int is_first, int lane)
{
    UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
        if (tile->owns)
            scratch[lane] = sums[s];
        barrier(CLK_LOCAL_MEM_FENCE);
        float4 sum = (float4)(0.0f);
        for (int i = 0; i < (lane < STAGE_QUADS ? KEY_TILES : 0); i++)
            sum += scratch[i * STAGE_QUADS + lane];
        const float parts[4] = {sum.x, sum.y, sum.z, sum.w};
        UNROLL_FOR (int i = 0; i < 4; i++) {
            const int channel = s * STAGE_DIMS + lane * 4 + i;
            if (lane < STAGE_QUADS && channel < HEAD_DIM)
                partial[channel] =
                    is_first ? parts[i] : partial[channel] + parts[i];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#define WANTS_DK (ARG_DK | (PADDING == 1 ? ARG_D_PAD_K : 0))
#define WANTS_DV (ARG_DV | (PADDING == 1 ? ARG_D_PAD_V : 0))

/* A work-item's tile of dK and dV. */
INLINE gradient_tile find_key_tile(const gradient_block *block, int lane)
{
    const gradient_tile tile = {.owns = lane / STAGE_QUADS < KEY_TILES,
                                .first = lane / STAGE_QUADS * TILE_KEYS,
                                .step = 1,
                                .quad = lane % STAGE_QUADS,
                                .row_count = (int)block->keys.count,
                                .first_row = block->keys.first};
    return tile;
}

/* The work-group's sum of values[0 .. count), at the first work-item. Holds a
 * barrier. */
INLINE float sum_over_team(__local const float *values, __local float *scratch,
                           int count, int lane)
{
    float sum = 0.0f;
    for (int i = lane; i < count; i += TEAM)
        sum += values[i];
    scratch[lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0.0f;
    for (int i = 0; i < (lane == 0 ? TEAM : 0); i++)
        sum += scratch[i];
    return sum;
}

/* What a window's rows sum for the block's keys, in a work-item's tile. */
typedef struct key_sums {
    float4 k[DIM_STAGES * TILE_KEYS], v[DIM_STAGES * TILE_KEYS];
} key_sums;

INLINE void clear_sums(key_sums *sums)
{
    UNROLL_FOR (int i = 0; i < DIM_STAGES * TILE_KEYS; i++)
        sums->k[i] = sums->v[i] = (float4)(0.0f);
}

/* What windows sum in registers. */
typedef struct kept_sums {
    float dbias[SCORE_ROWS][SCORE_COLS];         /* KEEPS_DBIAS */
    float4 pad_k[DIM_STAGES], pad_v[DIM_STAGES]; /* PADDING == 1 */
} kept_sums;

INLINE void clear_kept(kept_sums *kept)
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            kept->dbias[i][j] = 0.0f;
    UNROLL_FOR (int s = 0; s < DIM_STAGES; s++)
        kept->pad_k[s] = kept->pad_v[s] = (float4)(0.0f);
}

/* A block of keys before its first window and rows. */
INLINE gradient_block start_block(const forward_args *forward, uint key_block,
                                  uint queries, uint keys)
{
    gradient_block block;
    block.wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    block.keys.first = key_block * BLOCK_KEYS;
    block.keys.count = min(keys - block.keys.first, (uint)BLOCK_KEYS);
    block.keys.mixed = 0;
    block.first_row = 0;
    block.row_count = (int)min(queries, (uint)BLOCK_ROWS);
    return block;
}

/* A launch's tensors, and of the key head the rows of the padding. */
typedef struct key_tensors {
    __global const storage *q, *k, *v, *d_o;
    __global const storage *pad_k, *pad_v;
    __global const float *d_lse, *logit_scale;
    __global storage *dq;
    __global float *workspace;
    __global float *dbias, *d_scale; /* the split's partials */
} key_tensors;

/* Takes a window's keys. */
INLINE void open_keys(gradient_block *block, const gradient_memory *memory,
                      const forward_args *forward, const window_coord *window,
                      const key_tensors *of, uint kv_head, int lane)
{
    block->has_padding = holds_padding(&forward->grid, window);
    const token_list tokens =
        list_tokens(memory->key_tokens, &forward->grid, window,
                    block->keys.first, (int)block->keys.count, lane);
    const token_rows k_rows = {of->k +
                                   plane(&forward->k, window->grid, kv_head),
                               &forward->k, tokens, of->pad_k};
    const token_rows v_rows = {of->v +
                                   plane(&forward->v, window->grid, kv_head),
                               &forward->v, tokens, of->pad_v};
    block->k = k_rows;
    block->v = v_rows;
    if (KEEPS_TILES && !SINGLE_Q_BLOCK) {
        stage_k(memory, block, 0, 0, lane);
        stage_v(memory, block, 0, lane);
    }
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

/* Takes a head's rows of the window, with what is known of them. statistics:
 * what the kernel of rows has left, unless FUSED. */
INLINE void open_rows(gradient_block *block, const gradient_memory *memory,
                      const backward_args *args, const window_coord *window,
                      const key_tensors *of, uint head,
                      __global const float *statistics, int lane)
{
    const forward_args *forward = &args->forward;
    token_list tokens = block->k.tokens;
    if (!FUSED)
        tokens = list_tokens(memory->row_tokens, &forward->grid, window,
                             block->first_row, block->row_count, lane);
    block->q = rows_of(of->q, &forward->q, window->grid, head, tokens);
    block->d_o = rows_of(of->d_o, &args->d_o, window->grid, head, tokens);
    if (KEEPS_TILES && SINGLE_Q_BLOCK) {
        stage_tiles(memory, block, lane);
    } else if (KEEPS_TILES) {
        stage_q(memory, block, 0, 0, lane);
        stage_d_o(memory, block, 0, lane);
    }
    if (FUSED)
        start_statistics(memory, lane);
    else
        load_statistics(memory, statistics, block, lane);
    if (KEEPS_TILES)
        barrier(CLK_LOCAL_MEM_FENCE);
}

/* Whether rows see keys of the block; if so, keys.mixed is set. */
INLINE int sees_block(gradient_block *block, const forward_args *forward)
{
    if (VARIANT != SLIDING)
        return 1;
    const uint row_end = block->first_row + block->row_count;
    const span first_seen = visible_span(forward, block->first_row);
    const span last_seen = visible_span(forward, row_end - 1);
    const uint first = block->keys.first;
    const uint end = first + block->keys.count;
    if (lie_before(last_seen, first) ||
        lie_behind(forward, first_seen, first, end))
        return 0;
    block->keys.mixed = see_mixed(forward, first_seen, last_seen, first, end);
    return 1;
}

/* Adds a tile of dS to what windows sum, in registers or, wanted, at
 * `partial`.
 */
INLINE void add_dbias(const float tile[SCORE_ROWS][SCORE_COLS],
                      kept_sums *kept, __global float *partial,
                      const gradient_block *block, tile_coord coord, uint keys,
                      uint flags, int is_first)
{
    if (KEEPS_DBIAS)
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                kept->dbias[i][j] += tile[i][j];
    else if ((flags & ARG_DBIAS) != 0)
        add_bias_partial(tile, partial, block, coord, keys, is_first);
}

/* Given the rows' logits: P in local memory, dS in the tile. */
INLINE void differentiate(float tile[SCORE_ROWS][SCORE_COLS],
                          const gradient_memory *memory,
                          const backward_args *args,
                          const gradient_block *block, tile_coord coord,
                          __global const float *d_lse, int lane)
{
    if (FUSED) {
        add_statistics(tile, memory, block, coord, lane);
        finish_statistics(memory, args, block, d_lse, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
    } else {
        if (coord.owns)
            store_exponentials(tile, memory, coord, 1);
        multiply_d_o(tile, memory, block, coord, lane);
    }
    if (coord.owns)
        differentiate_softmax(tile, memory, coord, FUSED);
    if (FUSED || KEEPS_TILES)
        barrier(CLK_LOCAL_MEM_FENCE);
}

/* dV += P^T dO, beginning with the dO that is there last. */
INLINE void add_dv(float4 *sums_v, const gradient_memory *memory,
                   const gradient_block *block, const gradient_tile *key_tile,
                   int wants_dv, int lane)
{
    UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
        if (DIM_STAGES > 1) {
            if (s > 0)
                barrier(CLK_LOCAL_MEM_FENCE);
            stage_d_o(memory, block, s * STAGE_DIMS, lane);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (key_tile->owns && wants_dv)
            add_transposed(sums_v + s * TILE_KEYS, memory, memory->d_o,
                           key_tile->first / 4, key_tile->quad,
                           block->row_count);
    }
}

/* With dS in the place of P: dK += scale dS^T Q, and sums_q = dS K where
 * given. Ends with a barrier. */
INLINE void add_dk_dq(float4 *sums_k, float4 *sums_q,
                      const gradient_memory *memory,
                      const gradient_block *block,
                      const gradient_tile *key_tile,
                      const gradient_tile *row_tile, uint flags, int lane)
{
    UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
        sums_q[i] = (float4)(0.0f);
    UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
        if (s > 0)
            barrier(CLK_LOCAL_MEM_FENCE);
        if (!KEEPS_TILES)
            stage_q(memory, block, s * STAGE_DIMS, memory->q_inverse, lane);
        if (!KEEPS_TILES && FUSED)
            stage_k(memory, block, s * STAGE_DIMS, memory->k_inverse, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key_tile->owns && (flags & WANTS_DK) != 0)
            add_transposed(sums_k + s * TILE_KEYS, memory, memory->q,
                           key_tile->first / 4, key_tile->quad,
                           block->row_count);
        if (FUSED && row_tile->owns &&
            (flags & (ARG_DQ | ARG_D_LOGIT_SCALE)) != 0)
            add_product(sums_q + s * OUT_ROWS, memory, memory->k,
                        row_tile->first, row_tile->quad,
                        (int)block->keys.count);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* sums_q becomes dQ. Its plane is found where it is stored: found before,
 * registers hold it over the steps, which NVIDIA's compiler then spills.
 */
INLINE void store_dq(float4 *sums_q, const gradient_memory *memory,
                     const backward_args *args, const gradient_block *block,
                     const gradient_tile *row_tile, const window_coord *window,
                     __global storage *dq, uint head)
{
    const uint flags = args->forward.flags;
    UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
        sums_q[i] *= block->scale;
    if (VARIANT == COSINE)
        l2norm_backward(sums_q, OUT_ROWS, row_tile, &block->q,
                        memory->q_inverse, (__local float *)memory->q,
                        memory->along, block->wide);
    if ((flags & ARG_DQ) != 0)
        store_gradient(sums_q, OUT_ROWS, row_tile,
                       dq + plane(&args->dq, window->grid, head), &args->dq,
                       block->q.tokens, (flags & ARG_ADD_DQ) != 0,
                       block->wide);
}

/* q^ . dq^ of the rows, at the first work-item. Holds barriers. statistics: as
 * for open_rows. */
INLINE float sum_along(const gradient_memory *memory,
                       const gradient_block *block,
                       __global const float *statistics, int lane)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    /* each by the work-item that sums it */
    for (int r = lane; !FUSED && r < block->row_count; r += TEAM)
        memory->along[r] =
            statistics[(block->first_row + r) * ROW_NUMBERS + ROW_ALONG];
    return sum_over_team(memory->along, memory->team_sums, block->row_count,
                         lane);
}

/* After the last rows of a window; dv is a plane. */
INLINE void finish_dv(key_sums *sums, kept_sums *kept,
                      const backward_args *args, const gradient_block *block,
                      const gradient_tile *key_tile, __global storage *dv)
{
    const uint flags = args->forward.flags;
    if ((flags & ARG_DV) != 0)
        store_gradient(sums->v, TILE_KEYS, key_tile, dv, &args->dv,
                       block->v.tokens, (flags & ARG_ADD_DV) != 0,
                       block->wide);
    if (PADDING == 1 && block->has_padding)
        add_padding(kept->pad_v, sums->v, TILE_KEYS, key_tile,
                    &block->v.tokens);
}

/* And then; dk is a plane. */
INLINE void finish_dk(key_sums *sums, kept_sums *kept,
                      const gradient_memory *memory, const backward_args *args,
                      const gradient_block *block,
                      const gradient_tile *key_tile, __global storage *dk)
{
    const uint flags = args->forward.flags;
    if (VARIANT == COSINE) {
        l2norm_backward(sums->k, TILE_KEYS, key_tile, &block->k,
                        memory->k_inverse, (__local float *)memory->k, 0,
                        block->wide);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if ((flags & ARG_DK) != 0)
        store_gradient(sums->k, TILE_KEYS, key_tile, dk, &args->dk,
                       block->k.tokens, (flags & ARG_ADD_DK) != 0,
                       block->wide);
    if (PADDING == 1 && block->has_padding)
        add_padding(kept->pad_k, sums->k, TILE_KEYS, key_tile,
                    &block->k.tokens);
}

/* A work-group's part of a window. */
typedef struct key_work {
    const backward_args *args;
    const key_tensors *of;
    const gradient_memory *memory;
    const window_coord *window;
    int has_scale, is_first; /* it sums d_logit_scale; in any launch */
} key_work;

/* What the rows of a work tile add; dQ of these. dv is a plane. */
INLINE void add_rows(key_sums *sums, kept_sums *kept, const key_work *work,
                     gradient_block *at, work_tile u,
                     const score_bias_view *score_bias, __global storage *dv,
                     int lane)
{
    const backward_args *args = work->args;
    const forward_args *forward = &args->forward;
    const key_tensors *of = work->of;
    const gradient_memory *memory = work->memory;
    const uint flags = forward->flags, queries = QUERIES(forward);
    const tile_coord coord = find_tile(lane);
    const gradient_tile key_tile = find_key_tile(at, lane);
    __global const float *statistics =
        of->workspace + args->workspace +
        ((u.window - forward->first_window) * forward->heads + u.head) *
            (ulong)queries * ROW_NUMBERS;
    at->scale = HEAD_SCALE(forward, of->logit_scale, u.head);
    open_rows(at, memory, args, work->window, of, u.head, statistics, lane);

    /* 1. P in local memory, dS in registers */
    float tile[SCORE_ROWS][SCORE_COLS];
    compute_logits(tile, memory, args, score_bias, at, coord, lane);
    differentiate(tile, memory, args, at, coord,
                  of->d_lse + plane(&args->d_lse, work->window->grid, u.head),
                  lane);

    /* 2. dV */
    add_dv(sums->v, memory, at, &key_tile, (flags & WANTS_DV) != 0, lane);
    if (SINGLE_Q_BLOCK)
        finish_dv(sums, kept, args, at, &key_tile, dv);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* 3. dS takes the place of P; dBias, dK, dQ */
    if (coord.owns) {
        store_weights(tile, memory, coord);
        add_dbias(tile, kept,
                  of->dbias + (ulong)u.head * queries * KEYS(forward), at,
                  coord, KEYS(forward), flags, work->is_first);
    }
    const gradient_tile row_tile = find_row_tile(at, lane);
    float4 sums_q[DIM_STAGES * OUT_ROWS];
    add_dk_dq(sums->k, sums_q, memory, at, &key_tile, &row_tile, flags, lane);
    if (FUSED)
        store_dq(sums_q, memory, args, at, &row_tile, work->window, of->dq,
                 u.head);
    if (VARIANT == COSINE && work->has_scale) {
        const float along = sum_along(memory, at, statistics, lane);
        const float more =
            scale_gradient(forward, of->logit_scale, u.head, along);
        __global float *partial = of->d_scale + u.head;
        if (lane == 0)
            *partial = work->is_first && u.row == 0 ? more : *partial + more;
    }
    if (VARIANT == COSINE)
        barrier(CLK_LOCAL_MEM_FENCE);
}

/* After the last window, to the split's partials: */
/* of the head; */
INLINE void store_kept_bias(const kept_sums *kept, const backward_args *args,
                            const gradient_block *block,
                            __global float *partial, uint keys, int lane)
{
    const tile_coord coord = find_tile(lane);
    if (KEEPS_DBIAS && coord.owns && (args->forward.flags & ARG_DBIAS) != 0)
        add_bias_partial(kept->dbias, partial, block, coord, keys,
                         (args->forward.flags & ARG_FIRST_LAUNCH) != 0);
}
/* and of the padding, number `at` of splits, blocks of keys and key heads. */
INLINE void store_kept_pads(const kept_sums *kept,
                            const gradient_memory *memory,
                            const backward_args *args,
                            const gradient_block *block,
                            __global float *workspace, ulong at, int lane)
{
    const uint flags = args->forward.flags;
    const int starts = (flags & ARG_FIRST_LAUNCH) != 0;
    const gradient_tile key_tile = find_key_tile(block, lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((flags & ARG_D_PAD_K) != 0)
        add_pad_partial(kept->pad_k,
                        workspace + args->pad_k_partials + at * HEAD_DIM,
                        &key_tile, memory->k, starts, lane);
    if ((flags & ARG_D_PAD_V) != 0)
        add_pad_partial(kept->pad_v,
                        workspace + args->pad_v_partials + at * HEAD_DIM,
                        &key_tile, memory->k, starts, lane);
}

__kernel TEAM_SIZE SUB_GROUP_SIZE void backward_keys_local(BACKWARD_PARAMETERS)
{
    DECLARE_GRADIENT_MEMORY(memory)
#if KEYS_HAVE_ALONG
    __local float alongs[Q_ROWS];
    __local float team_sums[TEAM];
    memory.along = alongs;
    memory.team_sums = team_sums;
#endif
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const uint queries = QUERIES(forward), keys = KEYS(forward);
    const uint heads_each = forward->heads_per_kv_head;
    const uint kv_heads = forward->heads / heads_each;
    const uint row_blocks = (queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const uint steps = SINGLE_Q_BLOCK ? 1 : heads_each * row_blocks;
    const uint index = (uint)get_group_id(0);
    const uint key_blocks = FUSED ? 1 : args.key_blocks;
    const uint key_block = index % key_blocks;
    const uint kv_head = index / key_blocks % kv_heads;
    const uint split = index / key_blocks / kv_heads;
    int lane = (int)get_local_id(0);
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const key_tensors of = {
        .q = q,
        .k = k,
        .v = v,
        .d_o = d_o,
        .pad_k = PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head),
        .pad_v = PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head),
        .d_lse = d_lse,
        .logit_scale = LOGIT_SCALE,
        .dq = dq,
        .workspace = workspace,
        .dbias = workspace + args.bias_partials +
                 (ulong)split * forward->heads * queries * keys,
        .d_scale =
            workspace + args.scale_partials + (ulong)split * forward->heads};
    gradient_block at = start_block(forward, key_block, queries, keys);
    clear_weights(&memory, lane);
#if KEEPS_TABLE
    keep_table(&memory, forward, bias, kv_head, lane);
#endif
    kept_sums kept;
    clear_kept(&kept);

    for (ulong w = split; w < forward->windows; w += forward->splits) {
        HIDE_FROM_OPTIMIZER(lane);
        const gradient_tile key_tile = find_key_tile(&at, lane);
        work_tile u;
        u.window = forward->first_window + w;
        const window_coord window = locate_window(&forward->grid, u.window);
        open_keys(&at, &memory, forward, &window, &of, kv_head, lane);
        __global storage *to_dk = dk + plane(&args.dk, window.grid, kv_head);
        __global storage *to_dv = dv + plane(&args.dv, window.grid, kv_head);
        const key_work work = {.args = &args,
                               .of = &of,
                               .memory = &memory,
                               .window = &window,
                               .has_scale = (flags & ARG_D_LOGIT_SCALE) != 0 &&
                                            key_block == 0,
                               .is_first = (flags & ARG_FIRST_LAUNCH) != 0 &&
                                           w < forward->splits};
        key_sums sums;
        clear_sums(&sums);

        for (uint step = 0; step < steps; step++) {
            u.head = kv_head * heads_each +
                     (SINGLE_Q_BLOCK ? 0 : step / row_blocks);
            u.row = SINGLE_Q_BLOCK ? 0 : step % row_blocks * BLOCK_ROWS;
            at.first_row = u.row;
            at.row_count = (int)min(queries - u.row, (uint)BLOCK_ROWS);
            if (!sees_block(&at, forward))
                continue; /* all of the team do */
            score_bias_view score_bias =
                score_bias_at(&tensors, forward, u, &window);
#if KEEPS_TABLE
            score_bias.table = memory.table;
            score_bias.table_positions = memory.table_positions;
#endif
            add_rows(&sums, &kept, &work, &at, u, &score_bias, to_dv, lane);
        }

        if (!SINGLE_Q_BLOCK)
            finish_dv(&sums, &kept, &args, &at, &key_tile, to_dv);
        finish_dk(&sums, &kept, &memory, &args, &at, &key_tile, to_dk);
    }
    store_kept_bias(&kept, &args, &at,
                    of.dbias + (ulong)kv_head * queries * keys, keys, lane);
    if (PADDING == 1)
        store_kept_pads(&kept, &memory, &args, &at, workspace,
                        ((ulong)split * key_blocks + key_block) * kv_heads +
                            kv_head,
                        lane);
}
