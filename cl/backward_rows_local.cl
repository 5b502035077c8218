/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for GPUs where a window is too large for one work-group: what
 * concerns rows. One work-group per block of query rows.
 *
 *   STATISTICS 1: lse, and delta = sum P dP - d_lse of each row, for the
 *                 kernels that follow; from the forward pass's o and lse where
 *                 given, as sum P dP = dO . O (Dao et al. 2022, appendix B),
 *                 else a walk over the keys as in a streaming softmax
 *              0: dQ, and q^ . dq^ of the cosine variant */
#if STATISTICS
/* row_max and row_delta from what the forward pass left. */
INLINE void read_statistics(const gradient_memory *memory,
                            const backward_args *args,
                            const gradient_block *at, const token_rows *o,
                            __global const float *lse,
                            __global const float *d_lse, int lane)
{
    __local float *dots = (__local float *)memory->q;
    for (int done = 0; done < BLOCK_ROWS * STAGE_QUADS; done += TEAM) {
        const int r = (done + lane) / STAGE_QUADS;
        const int quad = (done + lane) % STAGE_QUADS;
        if (r >= at->row_count)
            continue;
        const token t = token_of(&o->tokens, at->first_row + r);
        float4 sum = (float4)(0.0f);
        for (int channel = quad * 4; channel < HEAD_DIM; channel += STAGE_DIMS)
            sum = FMA(load_quad(&at->d_o, &t, channel, at->wide),
                      load_quad(o, &t, channel, at->wide), sum);
        dots[r * STAGE_QUADS + quad] = (sum.x + sum.y) + (sum.z + sum.w);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = lane; r < at->row_count; r += TEAM) {
        const token t = token_of(&o->tokens, at->first_row + r);
        float delta = 0.0f;
        for (int c = 0; c < STAGE_QUADS; c++)
            delta += dots[r * STAGE_QUADS + c];
        if ((args->forward.flags & ARG_D_LSE) != 0 && EXISTS(t))
            delta -= d_lse[token_offset(&args->d_lse, &t)];
        memory->row_max[r] =
            EXISTS(t) ? lse[token_offset(&args->forward.lse, &t)] : -INFINITY;
        memory->row_delta[r] = delta;
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(TEAM, 1, 1))) SUB_GROUP_SIZE void
backward_rows_local(BACKWARD_PARAMETERS)
{
    DECLARE_GRADIENT_MEMORY(memory)
#if VARIANT == COSINE && !STATISTICS
    __local float alongs[Q_ROWS];
#endif
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const uint queries = QUERIES;
    const int lane = (int)get_local_id(0);
    const tile_place place = find_tile(lane);
    const unit u = find_unit(forward, (uint)get_group_id(0));
    const uint kv_head = u.head / forward->heads_per_kv_head;
    const uint row_end = min(u.row + forward->block_rows, queries);
    gradient_block at;
    at.wide = (flags & ARG_WIDE_ACCESS) != 0;
    at.first_row = u.row;
    at.row_count = (int)(row_end - u.row);
    const grid_layout *grid = &forward->grid;
    const window_place window = place_window(grid, u.window);
    DECLARE_TERMS_AT(terms, *forward, u, window)
    at.has_padding = holds_padding(grid, &window);
    const token_list row_tokens = list_tokens(memory.row_tokens, grid, &window,
                                              u.row, at.row_count, lane);
    const token_rows q_rows = {q + plane(&forward->q, window.grid, u.head),
                               &forward->q, row_tokens, 0};
    const token_rows d_o_rows = {d_o + plane(&args.d_o, window.grid, u.head),
                                 &args.d_o, row_tokens, 0};
    /* whose tokens follow with each block of keys */
    const token_rows k_rows = {k + plane(&forward->k, window.grid, kv_head),
                               &forward->k, row_tokens,
                               PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head)};
    const token_rows v_rows = {v + plane(&forward->v, window.grid, kv_head),
                               &forward->v, row_tokens,
                               PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head)};
    at.q = q_rows;
    at.d_o = d_o_rows;
    at.k = k_rows;
    at.v = v_rows;
#if VARIANT == COSINE
    at.scale = cosine_scale(forward, logit_scale, u.head);
#else
    at.scale = forward->scale;
#endif
    workspace +=
        args.workspace +
        ((u.window - forward->first_window) * forward->heads + u.head) *
            (ulong)queries * 3;
#if STATISTICS
    d_lse += plane(&args.d_lse, window.grid, u.head);
    const token_rows o_rows = {o + plane(&forward->o, window.grid, u.head),
                               &forward->o, row_tokens, 0};
    start_statistics(&memory, &args, &at, 0, lane);
    const int given = (flags & ARG_O) != 0 && (flags & ARG_LSE) != 0;
#else
    load_statistics(&memory, workspace, &at, lane);
    const int given = 0;
    /* this work-item's tile of dQ */
    const gradient_tile row_tile = {.owns = lane / STAGE_QUADS < OUT_TILES,
                                    .first = lane / STAGE_QUADS,
                                    .step = OUT_TILES,
                                    .quad = lane % STAGE_QUADS,
                                    .row_count = at.row_count,
                                    .first_row = at.first_row};
    float4 sums_q[DIM_STAGES * OUT_ROWS];
    UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
        sums_q[i] = (float4)(0.0f);
    clear_weights(&memory, lane);
#endif
#if KEEPS_TILES
    if (!given) {
        stage_q(&memory, &at, 0, 0, lane);
        stage_d_o(&memory, &at, 0, lane);
    }
#endif

    const key_walk walk = walk_keys(forward, u.row, row_end);
    for (uint b = 0; b < (given ? 0 : walk.blocks); b++) {
        at.keys = walk_block(forward, &walk, b);
        at.k.tokens = at.v.tokens =
            list_tokens(memory.key_tokens, grid, &window, at.keys.first,
                        (int)at.keys.count, lane);
        float tile[SCORE_ROWS][SCORE_COLS];
#if KEEPS_TILES
        stage_k(&memory, &at, 0, 0, lane);
        stage_v(&memory, &at, 0, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        compute_logits(tile, &memory, &args, &terms, &at, place, lane);
#if STATISTICS
        add_statistics(tile, &memory, &at, place, 0, lane);
#else
        if (place.owns)
            store_exponentials(tile, &memory, place);
        multiply_d_o(tile, &memory, &at, place, lane);
        if (place.owns) {
            differentiate_softmax(tile, &memory, place, 0);
            store_weights(tile, &memory, place);
        }
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
#if !KEEPS_TILES
            stage_k(&memory, &at, s * STAGE_DIMS, memory.k_inverse, lane);
#endif
            barrier(CLK_LOCAL_MEM_FENCE);
            if (row_tile.owns)
                add_product(sums_q + s * OUT_ROWS, &memory, memory.k,
                            row_tile.first, row_tile.quad, (int)at.keys.count);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#endif
    }

#if STATISTICS
    if (given)
        read_statistics(&memory, &args, &at, &o_rows,
                        lse + plane(&forward->lse, window.grid, u.head), d_lse,
                        lane);
    else
        finish_statistics(&memory, &args, &at, d_lse, lane);
    for (int r = lane; r < at.row_count; r += TEAM) {
        __global float *row = workspace + (at.first_row + r) * 3;
        row[0] = memory.row_max[r];
        row[1] = memory.row_delta[r];
    }
#else
    UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
        sums_q[i] *= at.scale;
#if VARIANT == COSINE
    take_back_norms(sums_q, OUT_ROWS, &row_tile, &at.q, memory.q_inverse,
                    (__local float *)memory.q, alongs, at.wide);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = lane; r < at.row_count; r += TEAM)
        workspace[(at.first_row + r) * 3 + 2] = alongs[r];
#endif
    if ((flags & ARG_DQ) != 0)
        store_gradient(sums_q, OUT_ROWS, &row_tile,
                       dq + plane(&args.dq, window.grid, u.head), &args.dq,
                       row_tokens, (flags & ARG_ADD_DQ) != 0, at.wide);
#endif
}
