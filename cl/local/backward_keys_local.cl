/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for GPUs: dK, dV and what is summed over windows. One
 * work-group per (slot, key head, block of keys): it walks its slot's windows,
 * and in each the rows of all query heads that see its keys.
 *
 *   WHOLE 1: the block holds all keys of a window, so that a row's softmax is
 *            known here, and dQ is made here too
 *         0: backward_rows_local.cl has left each row's statistics
 *   ONE_VISIT 1: one block of rows of one head is all that sees the keys
 *   KEEPS_TABLE 1: the head's table of biases stays in local memory (ONE_VISIT
 *            only)
 *   KEEPS_DBIAS 1: the sum over windows stays in registers (ONE_VISIT only)
 *               0: it is added to in the workspace */
#ifndef WHOLE
#define WHOLE 0
#endif
#ifndef ONE_VISIT
#define ONE_VISIT 1
#endif
#define STAGES_TILES (ONE_VISIT && KEEPS_TILES)
/* The keys are all of the window, and so the rows are among them. */
#define KEPT_ROWS (WHOLE ? 0 : BLOCK_ROWS)
/* What a softmax and P dP sum. */
#define HAS_PARTS WHOLE
#define PART_COUNT (2 * Q_ROWS * COL_TILES)
#include "local/gradient_tiles.cl"

#ifndef KEEPS_DBIAS
#define KEEPS_DBIAS 0
#endif

/* Adds a tile of dS to the slot's sum over windows. */
INLINE void add_bias_partial(const float tile[SCORE_ROWS][SCORE_COLS],
                             __global float *partial,
                             const gradient_block *block, tile_place place,
                             uint keys, int is_first)
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        if (!ROW_EXISTS(i))
            continue;
        __global float *line =
            partial +
            (block->first_row + place.row + ROW_TILES * i) * (size_t)keys +
            block->keys.first + place.col;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (KEY_EXISTS(j))
                line[COL_TILES * j] =
                    is_first ? tile[i][j] : line[COL_TILES * j] + tile[i][j];
    }
}

#if PADDING == 1
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
#define WANTS_DK (ARG_DK | ARG_D_PAD_K)
#define WANTS_DV (ARG_DV | ARG_D_PAD_V)
#else
#define WANTS_DK ARG_DK
#define WANTS_DV ARG_DV
#endif

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

#if VARIANT == COSINE
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
#endif

__kernel TEAM_SIZE SUB_GROUP_SIZE void backward_keys_local(BACKWARD_PARAMETERS)
{
    DECLARE_GRADIENT_MEMORY(memory)
#if VARIANT == COSINE
    __local float alongs[Q_ROWS];
    __local float team_sums[TEAM];
#endif
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const uint queries = QUERIES, keys = KEYS;
    const uint heads_each = forward->heads_per_kv_head;
    const uint kv_heads = forward->heads / heads_each;
    const uint row_blocks = (queries + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const uint steps = ONE_VISIT ? 1 : heads_each * row_blocks;
    const uint index = (uint)get_group_id(0);
    const uint key_blocks = WHOLE ? 1 : args.key_blocks;
    const uint key_block = index % key_blocks;
    const uint kv_head = index / key_blocks % kv_heads;
    const uint slot = index / key_blocks / kv_heads;
    int lane = (int)get_local_id(0);
    gradient_block at;
    at.wide = (flags & ARG_WIDE_ACCESS) != 0;
    at.keys.first = key_block * BLOCK_KEYS;
    at.keys.count = min(keys - at.keys.first, (uint)BLOCK_KEYS);
    at.keys.mixed = 0;
    at.first_row = 0;
    at.row_count = (int)min(queries, (uint)BLOCK_ROWS);
    const int key_count = (int)at.keys.count;
    clear_weights(&memory, lane);
#if KEEPS_TABLE
    keep_table(&memory, forward, bias, kv_head, lane);
#endif
    __global float *bias_partials =
        workspace + args.bias_partials +
        (ulong)slot * forward->heads * queries * keys;
#if KEEPS_DBIAS
    float dbias_sums[SCORE_ROWS][SCORE_COLS];
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            dbias_sums[i][j] = 0.0f;
#endif
#if PADDING == 1
    float4 pad_sums_k[DIM_STAGES], pad_sums_v[DIM_STAGES];
    UNROLL_FOR (int s = 0; s < DIM_STAGES; s++)
        pad_sums_k[s] = pad_sums_v[s] = (float4)(0.0f);
#endif

    for (ulong w = slot; w < forward->windows; w += forward->slots) {
        FORGET(lane);
        const tile_place place = find_tile(lane);
        const gradient_tile key_tile = find_key_tile(&at, lane);
        const int key_quad = key_tile.first / 4;
        unit u;
        u.window = forward->first_window + w;
        const int is_first =
            (flags & ARG_FIRST_LAUNCH) != 0 && w < forward->slots;
        const grid_layout *grid = &forward->grid;
        const window_place window = place_window(grid, u.window);
        at.has_padding = holds_padding(grid, &window);
        const token_list key_tokens = list_tokens(
            memory.key_tokens, grid, &window, at.keys.first, key_count, lane);
        const token_rows k_rows = {
            k + plane(&forward->k, window.grid, kv_head), &forward->k,
            key_tokens, PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head)};
        const token_rows v_rows = {
            v + plane(&forward->v, window.grid, kv_head), &forward->v,
            key_tokens, PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head)};
        at.k = k_rows;
        at.v = v_rows;
        __global storage *to_dk = dk + plane(&args.dk, window.grid, kv_head);
        __global storage *to_dv = dv + plane(&args.dv, window.grid, kv_head);
        float4 sums_k[DIM_STAGES * TILE_KEYS], sums_v[DIM_STAGES * TILE_KEYS];
        UNROLL_FOR (int i = 0; i < DIM_STAGES * TILE_KEYS; i++)
            sums_k[i] = sums_v[i] = (float4)(0.0f);
#if KEEPS_TILES && !ONE_VISIT
        stage_k(&memory, &at, 0, 0, lane);
        stage_v(&memory, &at, 0, lane);
#endif

        for (uint step = 0; step < steps; step++) {
            u.head =
                kv_head * heads_each + (ONE_VISIT ? 0 : step / row_blocks);
            u.row = ONE_VISIT ? 0 : step % row_blocks * BLOCK_ROWS;
            at.first_row = u.row;
            at.row_count = (int)min(queries - u.row, (uint)BLOCK_ROWS);
#if VARIANT == SLIDING
            const span first_seen = visible_span(forward, u.row);
            const span last_seen =
                visible_span(forward, u.row + at.row_count - 1);
            const uint key_end = at.keys.first + at.keys.count;
            if (last_seen.high <= at.keys.first ||
                (first_seen.low >= key_end && at.keys.first >= forward->sink))
                continue; /* all of the team do */
            at.keys.mixed =
                key_end > first_seen.high ||
                (at.keys.first < last_seen.low && key_end > forward->sink);
#endif
            DECLARE_TERMS_AT(terms, *forward, u, window)
#if KEEPS_TABLE
            terms.table = memory.table;
            terms.table_places = memory.table_places;
#endif
#if WHOLE
            const token_list row_tokens = key_tokens;
#else
            const token_list row_tokens = list_tokens(
                memory.row_tokens, grid, &window, u.row, at.row_count, lane);
#endif
            const token_rows q_rows = {
                q + plane(&forward->q, window.grid, u.head), &forward->q,
                row_tokens, 0};
            const token_rows d_o_rows = {
                d_o + plane(&args.d_o, window.grid, u.head), &args.d_o,
                row_tokens, 0};
            at.q = q_rows;
            at.d_o = d_o_rows;
#if VARIANT == COSINE
            at.scale = cosine_scale(forward, logit_scale, u.head);
#else
            at.scale = forward->scale;
#endif
#if KEEPS_TILES && ONE_VISIT
            stage_tiles(&memory, &at, lane);
#elif KEEPS_TILES
            stage_q(&memory, &at, 0, 0, lane);
            stage_d_o(&memory, &at, 0, lane);
#endif
#if WHOLE
            start_statistics(&memory, lane);
#else
            __global const float *statistics =
                workspace + args.workspace +
                (w * forward->heads + u.head) * (ulong)queries * ROW_NUMBERS;
            load_statistics(&memory, statistics, &at, lane);
#endif
#if KEEPS_TILES
            barrier(CLK_LOCAL_MEM_FENCE);
#endif

            /* 1. P in local memory, dS in registers */
            float tile[SCORE_ROWS][SCORE_COLS];
            compute_logits(tile, &memory, &args, &terms, &at, place, lane);
#if WHOLE
            add_statistics(tile, &memory, &at, place, lane);
            finish_statistics(&memory, &args, &at,
                              d_lse + plane(&args.d_lse, window.grid, u.head),
                              lane);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (place.owns)
                differentiate_softmax(tile, &memory, place, 1);
            barrier(CLK_LOCAL_MEM_FENCE);
#else
            if (place.owns)
                store_exponentials(tile, &memory, place, 1);
            multiply_d_o(tile, &memory, &at, place, lane);
            if (place.owns)
                differentiate_softmax(tile, &memory, place, 0);
#if KEEPS_TILES
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
#endif

            /* 2. dV, from the dO that is there last */
            UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
                if (DIM_STAGES > 1) {
                    if (s > 0)
                        barrier(CLK_LOCAL_MEM_FENCE);
                    stage_d_o(&memory, &at, s * STAGE_DIMS, lane);
                    barrier(CLK_LOCAL_MEM_FENCE);
                }
                if (key_tile.owns && (flags & WANTS_DV) != 0)
                    add_transposed(sums_v + s * TILE_KEYS, &memory, memory.d_o,
                                   key_quad, key_tile.quad, at.row_count);
            }
            if (ONE_VISIT && (flags & ARG_DV) != 0)
                store_gradient(sums_v, TILE_KEYS, &key_tile, to_dv, &args.dv,
                               key_tokens, (flags & ARG_ADD_DV) != 0, at.wide);
#if ONE_VISIT && PADDING == 1
            if (at.has_padding)
                add_padding(pad_sums_v, sums_v, TILE_KEYS, &key_tile,
                            &key_tokens);
#endif
            barrier(CLK_LOCAL_MEM_FENCE);

            /* 3. dS takes the place of P; dK, dQ, dBias */
            if (place.owns) {
                store_weights(tile, &memory, place);
#if KEEPS_DBIAS
                UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
                    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                        dbias_sums[i][j] += tile[i][j];
#else
                if ((flags & ARG_DBIAS) != 0)
                    add_bias_partial(
                        tile, bias_partials + (ulong)u.head * queries * keys,
                        &at, place, keys, is_first);
#endif
            }
#if WHOLE
            float4 sums_q[DIM_STAGES * OUT_ROWS];
            const gradient_tile row_tile = {.owns =
                                                lane / STAGE_QUADS < OUT_TILES,
                                            .first = lane / STAGE_QUADS,
                                            .step = OUT_TILES,
                                            .quad = lane % STAGE_QUADS,
                                            .row_count = at.row_count,
                                            .first_row = at.first_row};
            UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
                sums_q[i] = (float4)(0.0f);
#endif
            UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
                if (s > 0)
                    barrier(CLK_LOCAL_MEM_FENCE);
#if !KEEPS_TILES
                stage_q(&memory, &at, s * STAGE_DIMS, memory.q_inverse, lane);
#if WHOLE
                stage_k(&memory, &at, s * STAGE_DIMS, memory.k_inverse, lane);
#endif
#endif
                barrier(CLK_LOCAL_MEM_FENCE);
                if (key_tile.owns && (flags & WANTS_DK) != 0)
                    add_transposed(sums_k + s * TILE_KEYS, &memory, memory.q,
                                   key_quad, key_tile.quad, at.row_count);
#if WHOLE
                if (row_tile.owns &&
                    (flags & (ARG_DQ | ARG_D_LOGIT_SCALE)) != 0)
                    add_product(sums_q + s * OUT_ROWS, &memory, memory.k,
                                row_tile.first, row_tile.quad, key_count);
#endif
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#if WHOLE
            UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
                sums_q[i] *= at.scale;
#if VARIANT == COSINE
            take_back_norms(sums_q, OUT_ROWS, &row_tile, &at.q,
                            memory.q_inverse, (__local float *)memory.q,
                            alongs, at.wide);
#endif
            if ((flags & ARG_DQ) != 0)
                store_gradient(sums_q, OUT_ROWS, &row_tile,
                               dq + plane(&args.dq, window.grid, u.head),
                               &args.dq, row_tokens, (flags & ARG_ADD_DQ) != 0,
                               at.wide);
#endif
#if VARIANT == COSINE
            if ((flags & ARG_D_LOGIT_SCALE) != 0 && key_block == 0) {
                barrier(CLK_LOCAL_MEM_FENCE);
#if !WHOLE
                /* each by the work-item that sums it */
                for (int r = lane; r < at.row_count; r += TEAM)
                    alongs[r] = statistics[(at.first_row + r) * ROW_NUMBERS +
                                           ROW_ALONG];
#endif
                const float sum =
                    sum_over_team(alongs, team_sums, at.row_count, lane);
                __global float *partial = workspace + args.scale_partials +
                                          (ulong)slot * forward->heads +
                                          u.head;
                const float more =
                    scale_gradient(forward, logit_scale, u.head, sum);
                if (lane == 0)
                    *partial = is_first && u.row == 0 ? more : *partial + more;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
        }

        if (!ONE_VISIT && (flags & ARG_DV) != 0)
            store_gradient(sums_v, TILE_KEYS, &key_tile, to_dv, &args.dv,
                           key_tokens, (flags & ARG_ADD_DV) != 0, at.wide);
#if VARIANT == COSINE
        take_back_norms(sums_k, TILE_KEYS, &key_tile, &at.k, memory.k_inverse,
                        (__local float *)memory.k, 0, at.wide);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        if ((flags & ARG_DK) != 0)
            store_gradient(sums_k, TILE_KEYS, &key_tile, to_dk, &args.dk,
                           key_tokens, (flags & ARG_ADD_DK) != 0, at.wide);
#if PADDING == 1
        if (at.has_padding) {
            if (!ONE_VISIT)
                add_padding(pad_sums_v, sums_v, TILE_KEYS, &key_tile,
                            &key_tokens);
            add_padding(pad_sums_k, sums_k, TILE_KEYS, &key_tile, &key_tokens);
        }
#endif
    }
#if KEEPS_DBIAS
    const tile_place place = find_tile(lane);
    if (place.owns && (flags & ARG_DBIAS) != 0)
        add_bias_partial(dbias_sums,
                         bias_partials + (ulong)kv_head * queries * keys, &at,
                         place, keys, (flags & ARG_FIRST_LAUNCH) != 0);
#endif
#if PADDING == 1
    const gradient_tile key_tile = find_key_tile(&at, lane);
    const int starts = (flags & ARG_FIRST_LAUNCH) != 0;
    const ulong pad_partial =
        (((ulong)slot * key_blocks + key_block) * kv_heads + kv_head) *
        HEAD_DIM;
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((flags & ARG_D_PAD_K) != 0)
        add_pad_partial(pad_sums_k,
                        workspace + args.pad_k_partials + pad_partial,
                        &key_tile, memory.k, starts, lane);
    if ((flags & ARG_D_PAD_V) != 0)
        add_pad_partial(pad_sums_v,
                        workspace + args.pad_v_partials + pad_partial,
                        &key_tile, memory.k, starts, lane);
#endif
}
