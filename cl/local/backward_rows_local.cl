/* SPDX-License-Identifier: Apache-2.0
 * Backward pass for GPUs where a window is too large for one work-group: what
 * concerns rows. One work-group per block of query rows.
 *
 *   STATISTICS 1: what P and delta = sum P dP - d_lse of each row follow from,
 *                 for the kernels that come after; from the forward pass's o
 *                 and lse where given, as sum P dP = dO . O (Dao et al. 2022,
 *                 appendix B), else by a loop over the keys as in a streaming
 *                 softmax
 *              0: dQ, and q^ . dq^ of the cosine variant
 *
 * A stored o and an lse are rounded, and gradients may cancel what is exact of
 * them. But the sum of dS over a row's keys must be d_lse, and that of P 1. So
 * dQ's loop sums both, which tells how far delta and lse are off. The kernel
 * of keys gets what is right; and where it shows in dQ, the keys are visited
 * once more, for dQ -= (error of delta) scale sum P K. */
#define STAGES_TILES 0
#define KEPT_ROWS BLOCK_ROWS
#define PART_COUNT ROWS_PART_COUNT
#include "local/gradient_tiles.cl"

REQUIRE(STATISTICS)

#if STATISTICS
/* An lse whose ulp is so large that exponentials of S - lse might overflow. */
#define MOST_LSE 0x1p22f

/* row_max, row_sum and row_delta from what the forward pass left. 0: that does
 * not do, which all work-items find. */
INLINE int read_statistics(const gradient_memory *memory,
                           const backward_args *args, const gradient_block *at,
                           const token_rows *o, __global const float *lse,
                           __global const float *d_lse, __local int *suits,
                           int lane)
{
    __local float *dots = (__local float *)memory->q;
    if (lane == 0)
        *suits = 1;
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
        float delta = 0.0f, top = -INFINITY;
        for (int c = 0; c < STAGE_QUADS; c++)
            delta += dots[r * STAGE_QUADS + c];
        if ((args->forward.flags & ARG_D_LSE) != 0 && EXISTS(t))
            delta -= d_lse[token_offset(&args->d_lse, &t)];
        if (EXISTS(t))
            top = lse[token_offset(&args->forward.lse, &t)];
        if (top != -INFINITY && fabs(top) > MOST_LSE)
            *suits = 0;
        memory->row_max[r] = top;
        memory->row_sum[r] = 1.0f;
        memory->row_delta[r] = delta;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *suits;
}

/* For the kernels that come after. */
INLINE void store_statistics(const gradient_memory *memory,
                             const gradient_block *block,
                             __global float *statistics, int lane)
{
    for (int r = lane; r < block->row_count; r += TEAM) {
        __global float *row =
            statistics + (block->first_row + r) * ROW_NUMBERS;
        row[ROW_MAX] = memory->row_max[r];
        row[ROW_DELTA] = memory->row_delta[r];
        row[ROW_FACTOR] = memory->row_sum[r];
    }
}
#else
/* The sums that parts has of each row and column of tiles: of P and of dS;
 * behind them of the squares of dS, of every other column, as an estimate does
 * for these. A work-item has the place of its tile to itself. */
#define SUM_PLANE (Q_ROWS * COL_TILES)
INLINE void add_row_sums(const float tile[SCORE_ROWS][SCORE_COLS],
                         __local float *sums)
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        float sum = sums[ROW_TILES * i * COL_TILES];
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sum += tile[i][j];
        sums[ROW_TILES * i * COL_TILES] = sum;
    }
}
INLINE void add_row_squares(const float tile[SCORE_ROWS][SCORE_COLS],
                            __local float *sums)
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        float sum = sums[ROW_TILES * i * SQUARE_TILES];
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sum = FMA(tile[i][j], tile[i][j], sum);
        sums[ROW_TILES * i * SQUARE_TILES] = sum;
    }
}

/* After the loop: tells the kernel of keys what P and delta are. parts[r][0]
 * becomes what dQ of row r is to be multiplied by, row_sum what turns
 * exponentials into the weights of K that mend dQ. Do errors of delta show, by
 * their 2-norm over the rows, or by that of what they leave in dQ where keys
 * have nothing in common, at most: squares of P sum to no more than those of
 * its sums. All work-items find the same. */
#define ADDERS (TEAM < 32 ? TEAM : 32)
INLINE int
check_statistics(const gradient_memory *memory, const backward_args *args,
                 const gradient_block *block, __global const float *d_lse,
                 __global float *statistics, __local int *mends, int lane)
{
    __local float *all_errors = memory->parts + SUM_PLANE;
    __local float *all_left = memory->row_delta; /* which is read no more */
    __local float *all_squares = memory->parts + 2 * SUM_PLANE;
    float error = 0.0f, left = 0.0f, size = 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE); /* a loop may have had no keys */
    for (int done = 0; done < Q_ROWS; done += TEAM) {
        const int r = done + lane;
        __local float *own = memory->parts + r * COL_TILES;
        float sum = 0.0f, ds = 0.0f, weights = 0.0f, squares = 0.0f;
        if (r >= block->row_count)
            continue;
        UNROLL_FOR (int c = 0; c < COL_TILES; c++) {
            sum += own[c];
            ds += own[SUM_PLANE + c];
            weights = FMA(own[c], own[c], weights);
            if (c % 2 == 0)
                squares += all_squares[r * SQUARE_TILES + c / 2];
        }
        if ((args->forward.flags & ARG_D_LSE) != 0) {
            const token t = token_of(&block->q.tokens, block->first_row + r);
            if (EXISTS(t))
                ds -= d_lse[token_offset(&args->d_lse, &t)] * sum;
        }
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        const float shift = ds * inverse, factor = memory->row_sum[r];
        __global float *row =
            statistics + (block->first_row + r) * ROW_NUMBERS;
        row[ROW_DELTA] = memory->row_delta[r] + shift;
        row[ROW_FACTOR] = factor * inverse;
        memory->row_sum[r] = -shift * factor;
        own[0] = inverse;
        all_errors[r * COL_TILES] = ds * ds;
        all_left[r] = ds * ds * weights;
        all_squares[r * SQUARE_TILES] =
            squares * ((float)COL_TILES / SQUARE_TILES);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < ADDERS && lane < Q_ROWS) {
        for (int r = lane; r < Q_ROWS; r += ADDERS) {
            error += all_errors[r * COL_TILES];
            left += all_left[r];
            size += all_squares[r * SQUARE_TILES];
        }
        all_errors[lane * COL_TILES] = error;
        all_left[lane] = left;
        all_squares[lane * SQUARE_TILES] = size;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0) {
        error = left = size = 0.0f;
        for (int i = 0; i < ADDERS && i < Q_ROWS; i++) {
            error += all_errors[i * COL_TILES];
            left += all_left[i];
            size += all_squares[i * SQUARE_TILES];
        }
        *mends = error > DELTA_TOLERANCE * DELTA_TOLERANCE * size ||
                 left > DQ_TOLERANCE * DQ_TOLERANCE * size;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *mends;
}

/* Before the loop, clears what it sums. */
INLINE void start_sums(float4 *sums_q, const gradient_memory *memory, int lane)
{
    for (int i = lane; i < PART_COUNT; i += TEAM)
        memory->parts[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
        sums_q[i] = (float4)(0.0f);
    clear_weights(memory, lane);
}

/* Given the tile's logits, adds a block of keys to dQ: dS K on the first
 * pass, when it sums P and dS as well, and P K on the second. */
INLINE void add_keys(float4 *sums_q, float tile[SCORE_ROWS][SCORE_COLS],
                     const gradient_memory *memory,
                     const gradient_block *block, tile_coord coord, int pass,
                     int lane)
{
    const gradient_tile row_tile = find_row_tile(block, lane);
    /* where the work-item's tile has its sums */
    __local float *own_sums =
        memory->parts + coord.row * COL_TILES + coord.col;
    __local float *own_squares = memory->parts + 2 * SUM_PLANE +
                                 coord.row * SQUARE_TILES + coord.col / 2;
    if (coord.owns)
        store_exponentials(tile, memory, coord, 1);
    if (pass == 0) {
        if (coord.owns)
            add_row_sums(tile, own_sums);
        multiply_d_o(tile, memory, block, coord, lane);
        if (coord.owns) {
            differentiate_softmax(tile, memory, coord, 0);
            store_weights(tile, memory, coord);
            add_row_sums(tile, own_sums + SUM_PLANE);
            if (coord.col % 2 == 0)
                add_row_squares(tile, own_squares);
        }
    }
    UNROLL_FOR (int s = 0; s < DIM_STAGES; s++) {
        if (!KEEPS_TILES)
            stage_k(memory, block, s * STAGE_DIMS, memory->k_inverse, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (row_tile.owns)
            add_product(sums_q + s * OUT_ROWS, memory, memory->k,
                        row_tile.first, row_tile.quad, (int)block->keys.count);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* After the loop: sums become dQ. */
INLINE void scale_sums(float4 *sums_q, const gradient_memory *memory,
                       const gradient_block *block,
                       const gradient_tile *row_tile)
{
    UNROLL_FOR (int i = 0; i < OUT_ROWS; i++) {
        const int r = row_tile->first + OUT_TILES * i;
        const float factor = r < block->row_count
                                 ? block->scale * memory->parts[r * COL_TILES]
                                 : 0.0f;
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++)
            sums_q[s * OUT_ROWS + i] *= factor;
    }
}
#endif

__kernel TEAM_SIZE SUB_GROUP_SIZE void backward_rows_local(BACKWARD_PARAMETERS)
{
    DECLARE_GRADIENT_MEMORY(memory)
    __local int verdict; /* of all work-items */
#if ROWS_HAVE_ALONG
    __local float alongs[Q_ROWS];
#endif
    const forward_args *forward = &args.forward;
    const uint flags = forward->flags;
    const uint queries = QUERIES(forward);
    int lane = (int)get_local_id(0);
    const work_tile u = find_work_tile(forward, (uint)get_group_id(0));
    const uint kv_head = u.head / forward->heads_per_kv_head;
    const uint row_end = min(u.row + forward->block_rows, queries);
    const int row_count = (int)(row_end - u.row);
    const grid_layout *grid = &forward->grid;
    const window_coord window = locate_window(grid, u.window);
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const score_bias_view score_bias =
        score_bias_at(&tensors, forward, u, &window);
    const token_list row_tokens =
        list_tokens(memory.row_tokens, grid, &window, u.row, row_count, lane);
    gradient_block at = {
        .q = {q + plane(&forward->q, window.grid, u.head), &forward->q,
              row_tokens, 0},
        .d_o = {d_o + plane(&args.d_o, window.grid, u.head), &args.d_o,
                row_tokens, 0},
        /* whose tokens follow with each block of keys */
        .k = {k + plane(&forward->k, window.grid, kv_head), &forward->k,
              row_tokens, PAD_ROW(*forward, pad_k, ARG_PAD_K, kv_head)},
        .v = {v + plane(&forward->v, window.grid, kv_head), &forward->v,
              row_tokens, PAD_ROW(*forward, pad_v, ARG_PAD_V, kv_head)},
        .has_padding = holds_padding(grid, &window),
        .first_row = u.row,
        .row_count = row_count,
        .scale = HEAD_SCALE(forward, logit_scale, u.head),
        .wide = (flags & ARG_WIDE_ACCESS) != 0};
    workspace +=
        args.workspace +
        ((u.window - forward->first_window) * forward->heads + u.head) *
            (ulong)queries * ROW_NUMBERS;
    d_lse += plane(&args.d_lse, window.grid, u.head);
#if STATISTICS
    const token_rows o_rows = {o + plane(&forward->o, window.grid, u.head),
                               &forward->o, row_tokens, 0};
    int has_o_lse = (flags & ARG_O) != 0 && (flags & ARG_LSE) != 0;
    if (has_o_lse)
        has_o_lse =
            read_statistics(&memory, &args, &at, &o_rows,
                            lse + plane(&forward->lse, window.grid, u.head),
                            d_lse, &verdict, lane);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!has_o_lse)
        start_statistics(&memory, lane);
#else
    load_statistics(&memory, workspace, &at, lane);
    const int has_o_lse = 0;
    float4 sums_q[DIM_STAGES * OUT_ROWS];
    start_sums(sums_q, &memory, lane);
#endif
    if (KEEPS_TILES && !has_o_lse) {
        stage_q(&memory, &at, 0, 0, lane);
        stage_d_o(&memory, &at, 0, lane);
    }

    const key_loop loop = loop_over_keys(forward, u.row, row_end);
    int passes = has_o_lse ? 0 : 1; /* of the keys */
    for (int pass = 0; pass < passes; pass++) {
        for (uint b = 0; b < loop.blocks; b++) {
            HIDE_FROM_OPTIMIZER(lane);
            const tile_coord coord = find_tile(lane);
            at.keys = loop_block(forward, &loop, b);
            at.k.tokens = at.v.tokens =
                list_tokens(memory.key_tokens, grid, &window, at.keys.first,
                            (int)at.keys.count, lane);
            float tile[SCORE_ROWS][SCORE_COLS];
            if (KEEPS_TILES) {
                stage_k(&memory, &at, 0, 0, lane);
                if (pass == 0)
                    stage_v(&memory, &at, 0, lane);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            compute_logits(tile, &memory, &args, &score_bias, &at, coord,
                           lane);
#if STATISTICS
            add_statistics(tile, &memory, &at, coord, lane);
#else
            add_keys(sums_q, tile, &memory, &at, coord, pass, lane);
#endif
        }
#if !STATISTICS
        if (pass == 0)
            passes += check_statistics(&memory, &args, &at, d_lse, workspace,
                                       &verdict, lane);
#endif
    }

#if STATISTICS
    if (!has_o_lse)
        finish_statistics(&memory, &args, &at, d_lse, lane);
    store_statistics(&memory, &at, workspace, lane);
#else
    const gradient_tile row_tile = find_row_tile(&at, lane);
    scale_sums(sums_q, &memory, &at, &row_tile);
#if VARIANT == COSINE
    l2norm_backward(sums_q, OUT_ROWS, &row_tile, &at.q, memory.q_inverse,
                    (__local float *)memory.q, alongs, at.wide);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = lane; r < at.row_count; r += TEAM)
        workspace[(at.first_row + r) * ROW_NUMBERS + ROW_ALONG] = alongs[r];
#endif
    if ((flags & ARG_DQ) != 0)
        store_gradient(sums_q, OUT_ROWS, &row_tile,
                       dq + plane(&args.dq, window.grid, u.head), &args.dq,
                       row_tokens, (flags & ARG_ADD_DQ) != 0, at.wide);
#endif
}
