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
#define HAS_ALONG ROWS_HAVE_ALONG
#include "local/gradient_tiles.cl"

REQUIRE(STATISTICS)

/* What a work tile's rows need and make; tensors of its window and head. */
typedef struct row_work {
    const backward_args *args;
    const gradient_memory *memory;
    const window_coord *window;
    const score_bias_view *score_bias;
    __global const storage *o;
    __global const float *lse, *d_lse;
    __global float *statistics;
    __local int *verdict; /* of all work-items */
} row_work;

/* An lse whose ulp is so large that exponentials of S - lse might overflow. */
#define MOST_LSE 0x1p22f

/* row_max, row_sum and row_delta from what the forward pass left. 0: that does
 * not do, which all work-items find. */
INLINE int read_statistics(const row_work *work, const gradient_block *at,
                           int lane)
{
    const gradient_memory *memory = work->memory;
    const forward_args *forward = &work->args->forward;
    const token_rows o = {work->o, &forward->o, at->q.tokens, 0};
    __local float *dots = (__local float *)memory->q;
    if (lane == 0)
        *work->verdict = 1;
    for (int done = 0; done < BLOCK_ROWS * STAGE_QUADS; done += TEAM) {
        const int r = (done + lane) / STAGE_QUADS;
        const int quad = (done + lane) % STAGE_QUADS;
        if (r >= at->row_count)
            continue;
        const token t = token_of(&o.tokens, at->of.row + r);
        float4 sum = (float4)(0.0f);
        for (int channel = quad * 4; channel < HEAD_DIM; channel += STAGE_DIMS)
            sum = FMA(load_quad(&at->d_o, &t, channel, at->wide),
                      load_quad(&o, &t, channel, at->wide), sum);
        dots[r * STAGE_QUADS + quad] = (sum.x + sum.y) + (sum.z + sum.w);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = lane; r < at->row_count; r += TEAM) {
        const token t = token_of(&o.tokens, at->of.row + r);
        float delta = 0.0f, top = -INFINITY;
        for (int c = 0; c < STAGE_QUADS; c++)
            delta += dots[r * STAGE_QUADS + c];
        if (EXISTS(t))
            top = work->lse[token_offset(&forward->lse, &t)];
        if (top != -INFINITY && fabs(top) > MOST_LSE)
            *work->verdict = 0;
        memory->row_max[r] = top;
        memory->row_sum[r] = 1.0f;
        memory->row_delta[r] = delta - d_lse_of(work->args, work->d_lse, &t);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *work->verdict;
}

/* For the kernels that come after. */
INLINE void store_statistics(const row_work *work, const gradient_block *block,
                             int lane)
{
    const gradient_memory *memory = work->memory;
    for (int r = lane; r < block->row_count; r += TEAM) {
        __global float *row =
            work->statistics + (block->of.row + r) * ROW_NUMBERS;
        row[ROW_MAX] = memory->row_max[r];
        row[ROW_DELTA] = memory->row_delta[r];
        row[ROW_FACTOR] = memory->row_sum[r];
    }
}

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
INLINE int check_statistics(const row_work *work, const gradient_block *block,
                            int lane)
{
    const gradient_memory *memory = work->memory;
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
        const token t = token_of(&block->q.tokens, block->of.row + r);
        ds -= d_lse_of(work->args, work->d_lse, &t) * sum;
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        const float shift = ds * inverse, factor = memory->row_sum[r];
        __global float *row =
            work->statistics + (block->of.row + r) * ROW_NUMBERS;
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
        *work->verdict = error > DELTA_TOLERANCE * DELTA_TOLERANCE * size ||
                         left > DQ_TOLERANCE * DQ_TOLERANCE * size;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *work->verdict;
}

/* Before the loop over the keys: clears what it sums, or finds that it is
 * needed not at all. Returns how often it is. */
INLINE int start_rows(float4 *sums_q, const row_work *work,
                      const gradient_block *block, int lane)
{
    const gradient_memory *memory = work->memory;
    const uint flags = work->args->forward.flags;
    int passes = 1;
    if (STATISTICS) {
        if ((flags & ARG_O) != 0 && (flags & ARG_LSE) != 0)
            passes = !read_statistics(work, block, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (passes > 0)
            start_statistics(memory, lane);
    } else {
        load_statistics(memory, work->statistics, block, lane);
        for (int i = lane; i < PART_COUNT; i += TEAM)
            memory->parts[i] = 0.0f;
        UNROLL_FOR (int i = 0; i < DIM_STAGES * OUT_ROWS; i++)
            sums_q[i] = (float4)(0.0f);
        clear_weights(memory, lane);
    }
    if (KEEPS_TILES && passes > 0) {
        stage_q(memory, block, 0, 0, lane);
        stage_d_o(memory, block, 0, lane);
    }
    return passes;
}

/* Given the tile's logits, adds a block of keys to dQ: dS K on the first
 * pass, when it sums P and dS as well, and P K on the second. */
INLINE void add_to_dq(float4 *sums_q, float tile[SCORE_ROWS][SCORE_COLS],
                      const gradient_memory *memory, const backward_args *args,
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
        multiply_d_o(tile, memory, args, block, coord, lane);
        if (coord.owns) {
            differentiate_softmax(tile, memory, args, block, coord, 0);
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

/* A block of keys goes to the statistics of rows, or on a pass to dQ. */
INLINE void add_keys(float4 *sums_q, const row_work *work,
                     gradient_block *block, key_range keys, int pass, int lane)
{
    const gradient_memory *memory = work->memory;
    const tile_coord coord = find_tile(lane);
    float tile[SCORE_ROWS][SCORE_COLS];
    block->keys = keys;
    block->k.tokens = block->v.tokens =
        list_tokens(memory->key_tokens, &work->args->forward.grid,
                    work->window, keys.first, (int)keys.count, lane);
    if (KEEPS_TILES) {
        stage_k(memory, block, 0, 0, lane);
        if (pass == 0)
            stage_v(memory, block, 0, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    compute_logits(tile, memory, work->args, work->score_bias, block, coord,
                   lane);
    if (STATISTICS)
        add_statistics(tile, memory, work->args, block, coord, lane);
    else
        add_to_dq(sums_q, tile, memory, work->args, block, coord, pass, lane);
}

/* After the loop: sums become dQ. Stored it is in the kernel, as NVIDIA's
 * compiler else keeps all arguments in memory. */
INLINE void finish_dq(float4 *sums_q, const row_work *work,
                      const gradient_block *block, const gradient_tile *tile,
                      int lane)
{
    const gradient_memory *memory = work->memory;
    UNROLL_FOR (int i = 0; i < OUT_ROWS; i++) {
        const int r = tile->first + OUT_TILES * i;
        const float factor = r < block->row_count
                                 ? block->scale * memory->parts[r * COL_TILES]
                                 : 0.0f;
        UNROLL_FOR (int s = 0; s < DIM_STAGES; s++)
            sums_q[s * OUT_ROWS + i] *= factor;
    }
    if (VARIANT == COSINE) {
        l2norm_backward(sums_q, OUT_ROWS, tile, &block->q, memory->q_inverse,
                        (__local float *)memory->q, memory->along,
                        block->wide);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int r = lane; r < block->row_count; r += TEAM)
            work->statistics[(block->of.row + r) * ROW_NUMBERS + ROW_ALONG] =
                memory->along[r];
    }
}

__kernel TEAM_SIZE SUB_GROUP_SIZE void backward_rows_local(BACKWARD_PARAMETERS)
{
    DECLARE_GRADIENT_MEMORY(memory)
    __local int verdict;
    const forward_args *forward = &args.forward;
    int lane = (int)get_local_id(0);
    const work_tile u = find_work_tile(forward, (uint)get_group_id(0));
    const uint kv_head = u.head / forward->heads_per_kv_head;
    const uint queries = QUERIES(forward);
    const uint row_end = min(u.row + forward->block_rows, queries);
    const window_coord window = locate_window(&forward->grid, u.window);
    const ulong grid = window.grid;
    const score_bias_tensors bias_tensors = SCORE_BIAS_TENSORS;
    const score_bias_view score_bias =
        score_bias_at(&bias_tensors, forward, u, &window);
    const gradient_tensors tensors = GRADIENT_TENSORS(args, kv_head);
    const row_work work = {&args,
                           &memory,
                           &window,
                           &score_bias,
                           o + plane(&forward->o, grid, u.head),
                           lse + plane(&forward->lse, grid, u.head),
                           d_lse + plane(&args.d_lse, grid, u.head),
                           statistics_of(workspace, &args, u),
                           &verdict};
    gradient_block at; /* by an initialiser it would stay in memory (NVIDIA) */
    at.has_padding = holds_padding(&forward->grid, &window);
    at.of = u;
    at.row_count = (int)(row_end - u.row);
    at.wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    const token_list tokens = list_tokens(memory.row_tokens, &forward->grid,
                                          &window, u.row, at.row_count, lane);
    take_rows(&at, &tensors, &args, grid, tokens);
    /* whose tokens follow with each block of them */
    take_keys(&at, &tensors, forward, grid, kv_head, tokens);
    float4 sums_q[DIM_STAGES * OUT_ROWS];
    int passes = start_rows(sums_q, &work, &at, lane);

    const key_loop loop = loop_over_keys(forward, u.row, row_end);
    for (int pass = 0; pass < passes; pass++) {
        for (uint b = 0; b < loop.blocks; b++) {
            HIDE_FROM_OPTIMIZER(lane);
            add_keys(sums_q, &work, &at, loop_block(forward, &loop, b), pass,
                     lane);
        }
        if (!STATISTICS && pass == 0)
            passes += check_statistics(&work, &at, lane);
    }

    if (STATISTICS) {
        if (passes > 0)
            finish_statistics(&memory, &args, &at, work.d_lse, lane);
        store_statistics(&work, &at, lane);
    } else {
        const gradient_tile tile = find_row_tile(&at, lane);
        finish_dq(sums_q, &work, &at, &tile, lane);
        if ((forward->flags & ARG_DQ) != 0)
            store_gradient(
                sums_q, OUT_ROWS, &tile, dq + plane(&args.dq, grid, u.head),
                &args.dq, tokens, (forward->flags & ARG_ADD_DQ) != 0, at.wide);
    }
}
