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
#define HAS_ALONG KEYS_HAVE_ALONG
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
            (block->of.row + coord.row + ROW_TILES * i) * (size_t)keys +
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
    clear_tile(kept->dbias);
    UNROLL_FOR (int s = 0; s < DIM_STAGES; s++)
        kept->pad_k[s] = kept->pad_v[s] = (float4)(0.0f);
}

/* A block of keys before its first window and rows. */
INLINE void start_block(gradient_block *block, const forward_args *forward,
                        uint key_block)
{
    block->wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    block->keys.first = key_block * BLOCK_KEYS;
    block->keys.count =
        min(KEYS(forward) - block->keys.first, (uint)BLOCK_KEYS);
    block->keys.mixed = 0;
}

/* A work-group's part of a launch: what it needs and makes. */
typedef struct key_work {
    const backward_args *args;
    const gradient_memory *memory;
    const gradient_tensors *of;
    const score_bias_tensors *score_bias;
    __global const float *d_lse;
    __global storage *dq, *dk, *dv;
    __global float *workspace;
    __global float *dbias, *d_scale; /* the split's partials */
    uint split, kv_head, key_block;
    const window_coord *window; /* the one at hand */
    int is_first;               /* of the split's, in any launch */
} key_work;

/* Takes a window's keys. */
INLINE void open_keys(gradient_block *block, const key_work *work, int lane)
{
    const forward_args *forward = &work->args->forward;
    block->has_padding = holds_padding(&forward->grid, work->window);
    const token_list tokens =
        list_tokens(work->memory->key_tokens, &forward->grid, work->window,
                    block->keys.first, (int)block->keys.count, lane);
    take_keys(block, work->of, forward, work->window->grid, work->kv_head,
              tokens);
    if (KEEPS_TILES && !SINGLE_Q_BLOCK) {
        stage_k(work->memory, block, 0, 0, lane);
        stage_v(work->memory, block, 0, lane);
    }
}

/* Whether rows see keys of the block; if so, keys.mixed is set. */
INLINE int sees_block(gradient_block *block, const forward_args *forward)
{
    if (VARIANT != SLIDING)
        return 1;
    const uint row_end = block->of.row + block->row_count;
    const span first_seen = visible_span(forward, block->of.row);
    const span last_seen = visible_span(forward, row_end - 1);
    const uint first = block->keys.first;
    const uint end = first + block->keys.count;
    if (lie_before(last_seen, first) ||
        lie_behind(forward, first_seen, first, end))
        return 0;
    block->keys.mixed = see_mixed(forward, first_seen, last_seen, first, end);
    return 1;
}

/* Goes on to rows number `step` of those of all heads that share the keys; do
 * they see some? All of the team find the same. */
INLINE int find_rows(gradient_block *block, const forward_args *forward,
                     uint first_head, uint step)
{
    const uint queries = QUERIES(forward);
    const uint row_blocks = CEIL_DIV(queries, BLOCK_ROWS);
    block->of.head = first_head + (SINGLE_Q_BLOCK ? 0 : step / row_blocks);
    block->of.row = SINGLE_Q_BLOCK ? 0 : step % row_blocks * BLOCK_ROWS;
    block->row_count = (int)min(queries - block->of.row, (uint)BLOCK_ROWS);
    return sees_block(block, forward);
}

/* Takes a head's rows of the window, with what is known of them. */
INLINE void open_rows(gradient_block *block, const key_work *work, int lane)
{
    const forward_args *forward = &work->args->forward;
    const gradient_memory *memory = work->memory;
    token_list tokens = block->k.tokens;
    if (!FUSED)
        tokens = list_tokens(memory->row_tokens, &forward->grid, work->window,
                             block->of.row, block->row_count, lane);
    take_rows(block, work->of, work->args, work->window->grid, tokens);
    if (KEEPS_TILES && SINGLE_Q_BLOCK) {
        stage_tiles(memory, block, lane);
    } else if (KEEPS_TILES) {
        stage_q(memory, block, 0, 0, lane);
        stage_d_o(memory, block, 0, lane);
    }
    if (FUSED)
        start_statistics(memory, lane);
    else
        load_statistics(memory,
                        statistics_of(work->workspace, work->args, block->of),
                        block, lane);
    if (KEEPS_TILES)
        barrier(CLK_LOCAL_MEM_FENCE);
}

/* Adds a tile of dS to what windows sum, in registers or, wanted, in the
 * split's partials. */
INLINE void add_dbias(const float tile[SCORE_ROWS][SCORE_COLS],
                      kept_sums *kept, const key_work *work,
                      const gradient_block *block, tile_coord coord)
{
    const forward_args *forward = &work->args->forward;
    const uint keys = KEYS(forward);
    if (KEEPS_DBIAS)
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                kept->dbias[i][j] += tile[i][j];
    else if ((forward->flags & ARG_DBIAS) != 0)
        add_bias_partial(tile,
                         work->dbias +
                             (ulong)block->of.head * QUERIES(forward) * keys,
                         block, coord, keys, work->is_first);
}

/* Given the rows' logits: P in local memory, dS in the tile. */
INLINE void differentiate(float tile[SCORE_ROWS][SCORE_COLS],
                          const gradient_memory *memory,
                          const backward_args *args,
                          const gradient_block *block, tile_coord coord,
                          __global const float *d_lse, int lane)
{
    if (FUSED) {
        add_statistics(tile, memory, args, block, coord, lane);
        finish_statistics(memory, args, block, d_lse, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
    } else {
        if (coord.owns)
            store_exponentials(tile, memory, coord, 1);
        multiply_d_o(tile, memory, args, block, coord, lane);
    }
    if (coord.owns)
        differentiate_softmax(tile, memory, args, block, coord, FUSED);
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
INLINE void store_dq(float4 *sums_q, const key_work *work,
                     const gradient_block *block,
                     const gradient_tile *row_tile)
{
    const backward_args *args = work->args;
    const gradient_memory *memory = work->memory;
    const uint flags = args->forward.flags;
    UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
        sums_q[i] *= block->scale;
    if (VARIANT == COSINE)
        l2norm_backward(sums_q, OUT_ROWS, row_tile, &block->q,
                        memory->q_inverse, (__local float *)memory->q,
                        memory->along, block->wide);
    if ((flags & ARG_DQ) != 0)
        store_gradient(
            sums_q, OUT_ROWS, row_tile,
            work->dq + plane(&args->dq, work->window->grid, block->of.head),
            &args->dq, block->q.tokens, (flags & ARG_ADD_DQ) != 0,
            block->wide);
}

/* Adds q^ . dq^ of the rows to the split's partial. Holds barriers. */
INLINE void add_d_scale(const key_work *work, const gradient_block *block,
                        int lane)
{
    const gradient_memory *memory = work->memory;
    __global const float *statistics =
        statistics_of(work->workspace, work->args, block->of);
    const uint head = block->of.head;
    barrier(CLK_LOCAL_MEM_FENCE);
    /* each by the work-item that sums it */
    for (int r = lane; !FUSED && r < block->row_count; r += TEAM)
        memory->along[r] =
            statistics[(block->of.row + r) * ROW_NUMBERS + ROW_ALONG];
    const float sum = sum_over_team(memory->along, memory->team_sums,
                                    block->row_count, lane);
    const float more =
        scale_gradient(&work->args->forward, work->of->logit_scale, head, sum);
    __global float *partial = work->d_scale + head;
    if (lane == 0)
        *partial =
            work->is_first && block->of.row == 0 ? more : *partial + more;
}

/* After the last rows of a window. */
INLINE void finish_dv(key_sums *sums, kept_sums *kept, const key_work *work,
                      const gradient_block *block, int lane)
{
    const backward_args *args = work->args;
    const uint flags = args->forward.flags;
    const gradient_tile tile = find_key_tile(block, lane);
    if ((flags & ARG_DV) != 0)
        store_gradient(sums->v, TILE_KEYS, &tile,
                       work->dv +
                           plane(&args->dv, work->window->grid, work->kv_head),
                       &args->dv, block->v.tokens, (flags & ARG_ADD_DV) != 0,
                       block->wide);
    if (PADDING == 1 && block->has_padding)
        add_padding(kept->pad_v, sums->v, TILE_KEYS, &tile, &block->v.tokens);
}

/* And then. */
INLINE void finish_dk(key_sums *sums, kept_sums *kept, const key_work *work,
                      const gradient_block *block, int lane)
{
    const backward_args *args = work->args;
    const gradient_memory *memory = work->memory;
    const uint flags = args->forward.flags;
    const gradient_tile tile = find_key_tile(block, lane);
    if (VARIANT == COSINE) {
        l2norm_backward(sums->k, TILE_KEYS, &tile, &block->k,
                        memory->k_inverse, (__local float *)memory->k, 0,
                        block->wide);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if ((flags & ARG_DK) != 0)
        store_gradient(sums->k, TILE_KEYS, &tile,
                       work->dk +
                           plane(&args->dk, work->window->grid, work->kv_head),
                       &args->dk, block->k.tokens, (flags & ARG_ADD_DK) != 0,
                       block->wide);
    if (PADDING == 1 && block->has_padding)
        add_padding(kept->pad_k, sums->k, TILE_KEYS, &tile, &block->k.tokens);
}

/* What the rows of a work tile add; dQ of these. */
INLINE void add_rows(key_sums *sums, kept_sums *kept, const key_work *work,
                     gradient_block *at, int lane)
{
    const backward_args *args = work->args;
    const gradient_memory *memory = work->memory;
    const uint flags = args->forward.flags;
    const tile_coord coord = find_tile(lane);
    const gradient_tile key_tile = find_key_tile(at, lane);
    score_bias_view score_bias =
        score_bias_at(work->score_bias, &args->forward, at->of, work->window);
    score_bias.table = memory->table;
    score_bias.table_positions = memory->table_positions;
    open_rows(at, work, lane);

    /* 1. P in local memory, dS in registers */
    float tile[SCORE_ROWS][SCORE_COLS];
    compute_logits(tile, memory, args, &score_bias, at, coord, lane);
    differentiate(tile, memory, args, at, coord,
                  work->d_lse +
                      plane(&args->d_lse, work->window->grid, at->of.head),
                  lane);

    /* 2. dV */
    add_dv(sums->v, memory, at, &key_tile, (flags & WANTS_DV) != 0, lane);
    if (SINGLE_Q_BLOCK)
        finish_dv(sums, kept, work, at, lane);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* 3. dS takes the place of P; dBias, dK, dQ */
    if (coord.owns) {
        store_weights(tile, memory, coord);
        add_dbias(tile, kept, work, at, coord);
    }
    const gradient_tile row_tile = find_row_tile(at, lane);
    float4 sums_q[DIM_STAGES * OUT_ROWS];
    add_dk_dq(sums->k, sums_q, memory, at, &key_tile, &row_tile, flags, lane);
    if (FUSED)
        store_dq(sums_q, work, at, &row_tile);
    if (VARIANT == COSINE && (flags & ARG_D_LOGIT_SCALE) != 0 &&
        work->key_block == 0)
        add_d_scale(work, at, lane);
    if (VARIANT == COSINE)
        barrier(CLK_LOCAL_MEM_FENCE);
}

/* After the last window, to the split's partials. */
INLINE void store_kept(const kept_sums *kept, const key_work *work,
                       const gradient_block *block, int lane)
{
    const backward_args *args = work->args;
    const forward_args *forward = &args->forward;
    const uint flags = forward->flags, keys = KEYS(forward);
    const int starts = (flags & ARG_FIRST_LAUNCH) != 0;
    const tile_coord coord = find_tile(lane);
    const gradient_tile key_tile = find_key_tile(block, lane);
    if (KEEPS_DBIAS && coord.owns && (flags & ARG_DBIAS) != 0)
        add_bias_partial(kept->dbias,
                         work->dbias +
                             (ulong)work->kv_head * QUERIES(forward) * keys,
                         block, coord, keys, starts);
    if (PADDING != 1)
        return;
    const uint key_blocks = FUSED ? 1 : args->key_blocks;
    const uint kv_heads = forward->heads / forward->heads_per_kv_head;
    __global float *pads =
        work->workspace +
        (((ulong)work->split * key_blocks + work->key_block) * kv_heads +
         work->kv_head) *
            HEAD_DIM;
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((flags & ARG_D_PAD_K) != 0)
        add_pad_partial(kept->pad_k, pads + args->pad_k_partials, &key_tile,
                        work->memory->k, starts, lane);
    if ((flags & ARG_D_PAD_V) != 0)
        add_pad_partial(kept->pad_v, pads + args->pad_v_partials, &key_tile,
                        work->memory->k, starts, lane);
}

__kernel TEAM_SIZE SUB_GROUP_SIZE void backward_keys_local(BACKWARD_PARAMETERS)
{
    DECLARE_GRADIENT_MEMORY(memory)
    __local float team_sums[ROOM(HAS_ALONG, TEAM)];
    memory.team_sums = team_sums;
    const forward_args *forward = &args.forward;
    const uint queries = QUERIES(forward), keys = KEYS(forward);
    const uint heads_each = forward->heads_per_kv_head;
    const uint kv_heads = forward->heads / heads_each;
    const uint steps =
        SINGLE_Q_BLOCK ? 1 : heads_each * CEIL_DIV(queries, BLOCK_ROWS);
    const uint index = (uint)get_group_id(0);
    const uint key_blocks = FUSED ? 1 : args.key_blocks;
    const uint kv_head = index / key_blocks % kv_heads;
    const uint split = index / key_blocks / kv_heads;
    int lane = (int)get_local_id(0);
    const score_bias_tensors score_bias = SCORE_BIAS_TENSORS;
    const gradient_tensors tensors = GRADIENT_TENSORS(args, kv_head);
    key_work work = {.args = &args,
                     .memory = &memory,
                     .of = &tensors,
                     .score_bias = &score_bias,
                     .d_lse = d_lse,
                     .dq = dq,
                     .dk = dk,
                     .dv = dv,
                     .workspace = workspace,
                     .dbias = workspace + args.bias_partials +
                              (ulong)split * forward->heads * queries * keys,
                     .d_scale = workspace + args.scale_partials +
                                (ulong)split * forward->heads,
                     .split = split,
                     .kv_head = kv_head,
                     .key_block = index % key_blocks};
    gradient_block at;
    kept_sums kept;
    start_block(&at, forward, work.key_block);
    clear_kept(&kept);
    clear_weights(&memory, lane);
    if (KEEPS_TABLE)
        keep_table(&memory, forward, score_bias.bias, kv_head, lane);

    for (ulong w = split; w < forward->windows; w += forward->splits) {
        HIDE_FROM_OPTIMIZER(lane);
        at.of.window = forward->first_window + w;
        const window_coord window =
            locate_window(&forward->grid, at.of.window);
        key_sums sums;
        work.window = &window;
        work.is_first = (forward->flags & ARG_FIRST_LAUNCH) != 0 && w == split;
        clear_sums(&sums);
        open_keys(&at, &work, lane);
        for (uint step = 0; step < steps; step++)
            if (find_rows(&at, forward, kv_head * heads_each, step))
                add_rows(&sums, &kept, &work, &at, lane);
        if (!SINGLE_Q_BLOCK)
            finish_dv(&sums, &kept, &work, &at, lane);
        finish_dk(&sums, &kept, &work, &at, lane);
    }
    store_kept(&kept, &work, &at, lane);
}
