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
                            const gradient_block *at,
                            __global const storage *o,
                            __global const float *lse,
                            __global const float *d_lse, int lane)
{
    __local float *dots = (__local float *)memory->q;
    for (int done = 0; done < BLOCK_ROWS * STAGE_QUADS; done += TEAM) {
        const int r = (done + lane) / STAGE_QUADS;
        const int quad = (done + lane) % STAGE_QUADS;
        if (r >= at->row_count)
            continue;
        const uint row = at->first_row + r;
        float4 sum = (float4)(0.0f);
        for (int channel = quad * 4; channel < HEAD_DIM; channel += STAGE_DIMS)
            sum = FMA(load_quad(at->d_o, &args->d_o, row, channel, at->wide),
                      load_quad(o, &args->forward.o, row, channel, at->wide),
                      sum);
        dots[r * STAGE_QUADS + quad] = (sum.x + sum.y) + (sum.z + sum.w);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = lane; r < at->row_count; r += TEAM) {
        float delta = 0.0f;
        for (int c = 0; c < STAGE_QUADS; c++)
            delta += dots[r * STAGE_QUADS + c];
        if ((args->forward.flags & ARG_D_LSE) != 0)
            delta -= d_lse[element(&args->d_lse, at->first_row + r, 0)];
        memory->row_max[r] =
            lse[element(&args->forward.lse, at->first_row + r, 0)];
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
    DECLARE_TERMS(terms, *forward, u)
    gradient_block at;
    at.wide = (flags & ARG_WIDE_ACCESS) != 0;
    at.first_row = u.row;
    at.row_count = (int)(row_end - u.row);
    at.q = q + plane(&forward->q, u.window, u.head);
    at.d_o = d_o + plane(&args.d_o, u.window, u.head);
    at.k = k + plane(&forward->k, u.window, kv_head);
    at.v = v + plane(&forward->v, u.window, kv_head);
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
    d_lse += plane(&args.d_lse, u.window, u.head);
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
        stage_q(&memory, &args, &at, 0, 0, lane);
        stage_d_o(&memory, &args, &at, 0, lane);
    }
#endif

    const key_walk walk = walk_keys(forward, u.row, row_end);
    for (uint b = 0; b < (given ? 0 : walk.blocks); b++) {
        at.keys = walk_block(forward, &walk, b);
        float tile[SCORE_ROWS][SCORE_COLS];
#if KEEPS_TILES
        stage_k(&memory, &args, &at, 0, 0, lane);
        stage_v(&memory, &args, &at, 0, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        compute_logits(tile, &memory, &args, &terms, &at, place, lane);
#if STATISTICS
        add_statistics(tile, &memory, &args, &at, place, 0, lane);
#else
        if (place.owns)
            store_exponentials(tile, &memory, place);
        multiply_d_o(tile, &memory, &args, &at, place, lane);
        if (place.owns) {
            differentiate_softmax(tile, &memory, place, 0);
            store_weights(tile, &memory, place);
        }
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
#if !KEEPS_TILES
            stage_k(&memory, &args, &at, s * STAGE_DIMS, memory.k_inverse,
                    lane);
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
        read_statistics(
            &memory, &args, &at, o + plane(&forward->o, u.window, u.head),
            lse + plane(&forward->lse, u.window, u.head), d_lse, lane);
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
    take_back_norms(sums_q, OUT_ROWS, &row_tile, at.q, &forward->q,
                    memory.q_inverse, (__local float *)memory.q, alongs,
                    at.wide);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = lane; r < at.row_count; r += TEAM)
        workspace[(at.first_row + r) * 3 + 2] = alongs[r];
#endif
    if ((flags & ARG_DQ) != 0)
        store_gradient(sums_q, OUT_ROWS, &row_tile,
                       dq + plane(&args.dq, u.window, u.head), &args.dq,
                       (flags & ARG_ADD_DQ) != 0, at.wide);
#endif
}
