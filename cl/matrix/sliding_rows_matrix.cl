/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of sliding-window attention on a matrix unit: what concerns
 * rows. A work-group has a block of query rows of a head, whose q and dO stay
 * in local memory or registers; keys and values come by the ring, as in the
 * forward pass.
 *
 *   STATISTICS 1  what is known of rows (sliding_numbers.cl), from a loop
 *                 over the keys, as sliding_given.cl finds it from o and lse
 *              0  dQ. dS of a row must sum to d_lse over its keys, which tells
 *                 how far a delta from a rounded o is off: where that shows,
 *                 the block is computed again with the right one. The kernel
 *                 of keys gets the right one in any case. */
#define ROW_PLANES 0 /* rows have local memory of their own */
#include "matrix/norms.cl"
#include "matrix/sliding_bounds.cl"
#include "matrix/sliding_gradients.cl"
#include "matrix/tensor_maps.cl"

REQUIRE(STATISTICS)

/* dO and q of a wave's rows stay in registers where that is not much. */
#define HOLDS_ROWS (NATIVE_QUERIES && WAVE_TURNS * DIM_TILES <= 8)
#if HOLDS_ROWS
#define HELD(held) (held)
#else
#define HELD(held) 0
#endif

/* What a wave keeps of its rows. */
typedef struct wave_state {
    float shift[WAVE_TURNS][LANE_ROWS]; /* see sliding_numbers.cl */
    float delta[WAVE_TURNS][LANE_ROWS];
#if STATISTICS
    float top[WAVE_TURNS][LANE_ROWS], sum[WAVE_TURNS][LANE_ROWS];
#else
    float ds_scale[WAVE_TURNS][LANE_ROWS];
    float error[WAVE_TURNS][LANE_ROWS];   /* what dS sums to */
    float squares[WAVE_TURNS][LANE_ROWS]; /* of dS, of some tiles */
    float sums[WAVE_TURNS][DIM_TILES][ACC_PER_LANE];
#endif
#if HOLDS_ROWS
    query_tile q[WAVE_TURNS][DIM_TILES], d_o[WAVE_TURNS][DIM_TILES];
#endif
} wave_state;

/* What a subtile is computed from. */
typedef struct sliding_keys {
    __local const storage_bits *q, *d_o, *k, *v;
    uint first, end; /* the stage's keys */
    const backward_args *args;
} sliding_keys;

INLINE void hold(wave_state *s, __local const storage_bits *q,
                 __local const storage_bits *d_o, int row, const wave *w)
{
#if HOLDS_ROWS
    hold_rows(s->q, q, row, w);
    hold_rows(s->d_o, d_o, row, w);
#endif
}

/* Query of a lane's row r of the wave's tile m, in the block. */
INLINE int block_row(const wave_rows *rows, int m, int r, const wave *w)
{
    return rows->row + m * TILE_M + lane_query(w->lane, r);
}

#if STATISTICS
/* ---- Statistics ---- */

INLINE void start_statistics(wave_state *s)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            s->top[m][r] = -INFINITY;
            s->sum[m][r] = s->delta[m][r] = 0.0f;
        }
}

/* A tile's scores become exponentials of what they are less the row's maximum
 * so far, with base 2; what was summed follows. */
INLINE void raise_top(wave_state *s, int m,
                      float scores[TILES_PER_SUBTILE][ACC_PER_LANE])
{
    float top[LANE_ROWS], base[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = s->top[m][r];
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        /* of a lane's own keys: lanes that share a row meet at the end */
        base[r] = top[r] == -INFINITY ? 0.0f : top[r];
        const float rescale = EXP2((s->top[m][r] - base[r]) * LOG2E);
        s->sum[m][r] *= rescale;
        s->delta[m][r] *= rescale;
        s->top[m][r] = top[r];
    }
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            scores[t][i] = EXP2((scores[t][i] - base[LANE_ROW(i)]) * LOG2E);
}

INLINE void add_keys(wave_state *s, const sliding_keys *here,
                     const wave_rows *rows, int first, uint key, uint end,
                     int mixed, const wave *w)
{
    const forward_args *args = &here->args->forward;
    float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    float dp[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    multiply_wave(scores, HELD(s->q), here->q, rows->row, here->k, first, w);
    multiply_wave(dp, HELD(s->d_o), here->d_o, rows->row, here->v, first, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                scores[m][t][i] *= args->scale;
            if (mixed)
                hide_unseen(scores[m][t], args, rows, m, key + t * TILE_N, end,
                            -INFINITY, w);
        }
        raise_top(s, m, scores[m]);
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
                const int r = LANE_ROW(i);
                s->sum[m][r] += scores[m][t][i];
                /* what a row does not see may be no number */
                if (scores[m][t][i] != 0.0f)
                    s->delta[m][r] =
                        FMA(scores[m][t][i], dp[m][t][i], s->delta[m][r]);
            }
    }
}

/* Lanes that share a row add up what they have. */
INLINE void finish_statistics(wave_state *s, const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            float top = s->top[m][r];
            REDUCE(top, fmax);
            const float base = top == -INFINITY ? 0.0f : top;
            const float rescale = EXP2((s->top[m][r] - base) * LOG2E);
            float sum = s->sum[m][r] * rescale;
            float delta = s->delta[m][r] * rescale;
            REDUCE(sum, ADD);
            REDUCE(delta, ADD);
            s->delta[m][r] = sum == 0.0f ? 0.0f : delta / sum;
            s->shift[m][r] =
                sum == 0.0f ? -INFINITY : shift_of(top + log(sum));
        }
}

/* Leaves what is known of the wave's rows, and in `found` its bounds. */
INLINE void store_statistics(const wave_state *s, const wave_rows *rows,
                             __local const storage_bits *d_o,
                             const backward_args *args,
                             __global const float *d_lse,
                             __global float *numbers, __local uint *found,
                             const wave *w)
{
    const int gives = (args->forward.flags & ARG_D_LSE) != 0;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        float square[LANE_ROWS];
        int row_index[LANE_ROWS];
        dot_rows(square, row_index, d_o, d_o, rows->row + m * TILE_M,
                 BLOCK_ROWS, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(rows, m, r, w);
            REDUCE(square[r], ADD);
            const float length = sqrt(square[r] * HEAD_DIM);
            if (value_key(w->lane, 0) != 0 || row >= rows->row + rows->count)
                continue;
            const float own = gives ? d_lse[(ulong)row * args->d_lse.row] : 0;
            const float4 all = {s->shift[m][r], s->delta[m][r] - own, length,
                                0.0f};
            vstore4(all, row, numbers);
            atomic_max(&found[BOUND_LENGTH], as_uint(length));
            atomic_max(&found[BOUND_D_LSE], as_uint(fabs(own)));
        }
    }
}

#else
/* ---- dQ ---- */

INLINE void start_sums(wave_state *s)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            s->error[m][r] = s->squares[m][r] = 0.0f;
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                s->sums[m][d][i] = 0.0f;
    }
}

INLINE void read_statistics(wave_state *s, const wave_rows *rows,
                            __global const float *numbers,
                            __global const float *d_lse, float4 bounds,
                            const backward_args *args, const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(rows, m, r, w);
            const int exists = row < rows->row + rows->count;
            const float4 all = vload4(exists ? row : 0, numbers);
            s->shift[m][r] = exists ? all.x : -INFINITY;
            s->delta[m][r] = all.y;
            s->ds_scale[m][r] = ds_scale_of(all.z, bounds.x, bounds.z);
        }
}

/* Adds a subtile's dS, as operands, to what dS sums to. */
INLINE void check_errors(wave_state *s, int m,
                         float ds[TILES_PER_SUBTILE][ACC_PER_LANE],
                         const query_tile *operands, int first, const wave *w)
{
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        if (IS_TILE(first + t))
            add_weights(s->error[m], &operands[t], ds[t], w);
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        s->squares[m][LANE_ROW(i)] =
            FMA(ds[0][i], ds[0][i], s->squares[m][LANE_ROW(i)]);
}

INLINE void add_keys(wave_state *s, const sliding_keys *here,
                     const wave_rows *rows, int first, uint key, uint end,
                     int mixed, const wave *w)
{
    const forward_args *args = &here->args->forward;
    const float quick_scale = args->scale * LOG2E;
    float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    float dp[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    query_tile operands[WAVE_TURNS][TILES_PER_SUBTILE];
    multiply_wave(scores, HELD(s->q), here->q, rows->row, here->k, first, w);
    multiply_wave(dp, HELD(s->d_o), here->d_o, rows->row, here->v, first, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            exponentiate_tile(scores[m][t], quick_scale, s->shift[m]);
            if (mixed)
                hide_unseen(scores[m][t], args, rows, m, key + t * TILE_N, end,
                            0.0f, w);
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
                const int r = LANE_ROW(i);
                const float factor = s->ds_scale[m][r] / P_SCALE;
                dp[m][t][i] = scores[m][t][i] * FMA(dp[m][t][i], factor,
                                                    -s->delta[m][r] * factor);
            }
            operands[m][t] = make_weights(dp[m][t], w);
        }
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        check_errors(s, m, dp[m], operands[m], first, w);
    add_wave_values(s->sums, operands, here->k, first, w);
}

/* After the loop: what dS sums to becomes its error. */
INLINE void find_errors(wave_state *s, const wave_rows *rows,
                        __global const float *d_lse, const backward_args *args,
                        const wave *w)
{
    const int gives = (args->forward.flags & ARG_D_LSE) != 0;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(rows, m, r, w);
            if (SUMS_ARE_PARTS) {
                REDUCE(s->error[m][r], ADD);
            }
            if (gives && row < rows->row + rows->count)
                s->error[m][r] -=
                    d_lse[(ulong)row * args->d_lse.row] * s->ds_scale[m][r];
            if (s->shift[m][r] == -INFINITY)
                s->error[m][r] = 0.0f; /* it sees nothing */
        }
}

/* Where delta is from o: what the kernel of keys gets, and what this one
 * starts again with. Does the error show, by its 2-norm over the wave's rows?
 * scratch: see SUM_OF_WAVE. */
INLINE int mend_delta(wave_state *s, const wave_rows *rows,
                      __global float *numbers, __local float *scratch,
                      const wave *w)
{
    const int lanes_of_row = WAVE * LANE_ROWS / TILE_M;
    const float allowed =
        lanes_of_row * TILES_PER_SUBTILE * DELTA_TOLERANCE * DELTA_TOLERANCE;
    float excess = 0.0f;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(rows, m, r, w);
            const float error = s->error[m][r];
            excess = FMA(error, error, excess);
            excess = FMA(-allowed, s->squares[m][r], excess);
            s->delta[m][r] += error * inverse_ds_scale(s->ds_scale[m][r]);
            if (row < rows->row + rows->count && value_key(w->lane, 0) == 0)
                numbers[row * ROW_NUMBERS + ROW_SLIDING_DELTA] =
                    s->delta[m][r];
        }
    SUM_OF_WAVE(excess, scratch, w);
    return excess > 0.0f;
}

/* What is left of the errors is in dQ times a mean key: what all keys have in
 * common is taken out of it by the plain mean of `count` of them, a tile at
 * most. */
INLINE void take_mean_key(wave_state *s, __local const storage_bits *k,
                          int count, const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        float x[ACC_PER_LANE];
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            x[i] = value_key(w->lane, i) < count
                       ? s->error[m][LANE_ROW(i)] * (-1.0f / count)
                       : 0.0f;
        const query_tile operands = make_weights(x, w);
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
            const key_tile mean =
                load_value(k, PITCH, 0, d * TILE_N, INT_MAX, TILE_N, w);
            multiply_tiles(s->sums[m][d], &operands, &mean, w);
        }
    }
}

INLINE void store_dq(wave_state *s, __local storage_bits *q,
                     const wave_rows *rows, const backward_args *args,
                     const work_tile *tile, const window_coord *coord,
                     __global storage *dq, const wave *w)
{
    const uint flags = args->forward.flags;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        const int row = rows->row + m * TILE_M;
        const row_target to = {
            .plane = dq + plane(&args->dq, coord->grid, tile->head),
            .layout = &args->dq,
            .grid = &args->forward.grid,
            .coord = coord,
            .row = tile->row + row,
            .count = min(rows->count - m * TILE_M, TILE_M),
            .adds = (flags & ARG_ADD_DQ) != 0,
            .wide = (flags & ARG_WIDE_ACCESS) != 0};
        float factor[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            factor[r] =
                inverse_ds_scale(s->ds_scale[m][r]) * args->forward.scale;
        UNROLL_FOR (int d = 0; d < DIM_TILES; d += OUT_TILES)
            store_channels(s->sums[m] + d, factor, d, OUT_TILES,
                           q + row * PITCH + d * TILE_N, PITCH, &to, w);
    }
}
#endif

/* ---- The loop over keys ---- */

INLINE void add_stage(wave_state *s, const sliding_keys *here,
                      const wave_rows *rows, const wave *w)
{
    SUBTILE_FOR (int first = 0; first < KEY_TILES;
                 first += TILES_PER_SUBTILE) {
        const forward_args *args = &here->args->forward;
        const uint key = here->first + first * TILE_N;
        const int all = see_all(args, rows, key, here->end);
        const wave own = wave_of_subtile(w);
        if (all || !see_nothing(args, rows, key, here->end))
            add_keys(s, here, rows, first, key,
                     min(key + SUBTILE_KEYS, here->end), !all, &own);
    }
}

INLINE void loop_keys(wave_state *s, const key_pipeline *pipeline,
                      sliding_keys here, const wave_rows *rows, work_item *me,
                      wave *w)
{
    const key_loop *loop = &pipeline->loop;
    loop_step copied = first_step(loop);
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_keys(pipeline, &copied, &here.args->forward, me->lane);
    for (loop_step step = first_step(loop); is_step(loop, &step);
         next_step(loop, &step)) {
        HIDE_LANE(me->lane);
        HIDE_LANE(w->lane);
        RELOAD_ARGS(backward_args, args, here.args)
        __local const storage_bits *stage = pipeline->ring + step.stage;
        here.args = args;
        here.k = stage + K_OFFSET;
        here.v = stage + V_OFFSET;
        here.first = step.first;
        here.end = end_of_step(loop, &step);
        await_stage(0);
        start_keys(pipeline, &copied, &args->forward, me->lane);
        await_copies(0);
        add_stage(s, &here, rows, w);
    }
    AWAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the ring may start again */
}

__kernel __attribute__((reqd_work_group_size(TEAM, 1, 1))) WAVE_ATTRIBUTE void
JOIN(sliding_rows_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
    __local uint4 q_rows[ROW_PLANE_SIZE / CHUNK] __attribute__((aligned(128)));
    __local uint4 d_o_rows[ROW_PLANE_SIZE / CHUNK]
        __attribute__((aligned(128)));
    __local span spans[BLOCK_ROWS];
    __local uint found[BOUND_NUMBERS];
#if !STATISTICS
    __local float scratch[WAVES_PER_WINDOW][WAVE];
#endif
    const forward_args *forward = &args.forward;
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    __local storage_bits *own_q = (__local storage_bits *)q_rows;
    __local storage_bits *own_d_o = (__local storage_bits *)d_o_rows;

    const work_tile tile = deal_work_tile(forward, (uint)get_group_id(0));
    const uint row_end = min(tile.row + forward->block_rows, forward->queries);
    const int row_count = (int)(row_end - tile.row);
    const uint kv_head = tile.head / forward->heads_per_kv_head;
    const window_coord coord = locate_window(&forward->grid, tile.window);
    const int wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    const key_pipeline pipeline = {
        .loop = loop_over_keys(forward, tile.row, row_end),
        .ring = KEEP_LOCAL((__local storage_bits *)rings[0]),
        .k = k + plane(&forward->k, coord.grid, kv_head),
        .v = v + plane(&forward->v, coord.grid, kv_head),
        .k_chunk = chunk_of(&forward->k, me.lane),
        .v_chunk = chunk_of(&forward->v, me.lane),
        .coord = coord,
        .wide = wide};
    __global float *numbers =
        row_numbers_of(workspace, &args, tile.window, tile.head) +
        tile.row * ROW_NUMBERS;
    __global float *bounds = bounds_of(workspace, &args, tile.window, kv_head);
    if ((forward->flags & ARG_D_LSE) != 0)
        d_lse += plane(&args.d_lse, coord.grid, tile.head) +
                 (ulong)tile.row * args.d_lse.row;
#if !STATISTICS
    const int has_o_lse =
        (forward->flags & ARG_O) != 0 && (forward->flags & ARG_LSE) != 0;
    const float4 largest = largest_bounds(found, bounds, &args, me.id, TEAM);
#endif
    copy_rows(own_q, q + plane(&forward->q, coord.grid, tile.head),
              chunk_of(&forward->q, me.lane), &forward->q, &forward->grid,
              &coord, 0, tile.row, row_count, BLOCK_ROWS, me.lane, wide);
    copy_rows(own_d_o, d_o + plane(&args.d_o, coord.grid, tile.head),
              chunk_of(&args.d_o, me.lane), &args.d_o, &forward->grid, &coord,
              0, tile.row, row_count, BLOCK_ROWS, me.lane, wide);
    END_COPIES();
    clear_channels(own_q, BLOCK_ROWS, me.lane);
    clear_channels(own_d_o, BLOCK_ROWS, me.lane);
    clear_pads(pipeline.ring, me.lane);
    keep_spans(spans, forward, tile.row, row_end, me.id);
    if (STATISTICS && me.id < BOUND_NUMBERS)
        found[me.id] = 0;
    AWAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    const wave_rows rows = find_wave_rows(spans, row_count, me.wave);
    const sliding_keys here = {.q = own_q, .d_o = own_d_o, .args = &args};
    wave_state state;
    hold(&state, own_q, own_d_o, rows.row, &w);
#if STATISTICS
    leave_tensor_maps(q, k, v, d_o, workspace, &args, (uint)me.id);
    start_statistics(&state);
    loop_keys(&state, &pipeline, here, &rows, &me, &w);
    finish_statistics(&state, &w);
    store_statistics(&state, &rows, own_d_o, &args, d_lse, numbers, found, &w);
    store_bounds(found, pipeline.v, bounds, forward, &tile, (uint)me.id, TEAM);
#else
    read_statistics(&state, &rows, numbers, d_lse, largest, &args, &w);
    barrier(CLK_GLOBAL_MEM_FENCE); /* before a row's delta is mended */
    int passes = 1;
    for (int pass = 0; pass < passes; pass++) {
        start_sums(&state);
        loop_keys(&state, &pipeline, here, &rows, &me, &w);
        find_errors(&state, &rows, d_lse, &args, &w);
        if (has_o_lse && pass == 0) {
            if (me.id == 0)
                found[0] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            const int mends =
                mend_delta(&state, &rows, numbers, scratch[me.wave], &w);
            if (mends)
                found[0] = 1;
            barrier(CLK_LOCAL_MEM_FENCE);
            passes += found[0] != 0;
        }
    }
    if (pipeline.loop.blocks > 0) {
        const uint last = pipeline.loop.blocks - 1;
        const key_range range = loop_block(forward, &pipeline.loop, last);
        take_mean_key(&state,
                      pipeline.ring + last % STAGES * STAGE_SIZE + K_OFFSET,
                      min((int)range.count, TILE_N), &w);
    }
    if ((forward->flags & ARG_DQ) != 0 && (rows.count > 0))
        store_dq(&state, own_q, &rows, &args, &tile, &coord, dq, &w);
#endif
}
