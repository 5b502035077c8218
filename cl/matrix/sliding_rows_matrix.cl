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

/* What a wave keeps of its rows. */
typedef struct wave_state {
    float shift[WAVE_TURNS][LANE_ROWS]; /* see sliding_numbers.cl */
    float delta[WAVE_TURNS][LANE_ROWS];
    query_tile q[WAVE_TURNS][DIM_TILES], d_o[WAVE_TURNS][DIM_TILES];
    /* of statistics */
    float top[WAVE_TURNS][LANE_ROWS], sum[WAVE_TURNS][LANE_ROWS];
    /* of dQ */
    float ds_scale[WAVE_TURNS][LANE_ROWS];
    float error[WAVE_TURNS][LANE_ROWS];   /* what dS sums to */
    float squares[WAVE_TURNS][LANE_ROWS]; /* of dS, of some tiles */
    float sums[WAVE_TURNS][DIM_TILES][ACC_PER_LANE];
} wave_state;

/* What a work-group has: a block of rows of a head, and what is known of
 * these. */
typedef struct rows_group {
    const backward_args *args;
    work_tile of;
    stage_rows block;
    wave_rows rows;                /* the wave's */
    __local storage_bits *q, *d_o; /* the block's */
    __global float *numbers;       /* of rows, from the block's first on */
    __global const float *d_lse;   /* the same; with ARG_D_LSE */
    __local uint *found;           /* [BOUND_NUMBERS] */
    __local float *scratch;        /* [WAVE], the wave's */
} rows_group;

/* What a subtile is computed from: a stage's keys. */
typedef struct stage_keys {
    __local const storage_bits *k, *v;
    uint first, end;
} stage_keys;

/* Query of a lane's row r of the wave's tile m, in the block. */
INLINE int block_row(const rows_group *g, int m, int r, const wave *w)
{
    return g->rows.row + m * TILE_M + lane_query(w->lane, r);
}
INLINE int has_row(const rows_group *g, int row)
{
    return row < g->rows.row + g->rows.count;
}
INLINE float d_lse_of(const rows_group *g, int row)
{
    return g->d_lse[(ulong)row * g->args->d_lse.row];
}

/* S and keep(dP) of a subtile. */
INLINE void
multiply_keys(float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE],
              float dp[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE],
              const wave_state *s, const rows_group *g, const stage_keys *here,
              int first, const wave *w)
{
    multiply_wave(scores, HELD(s->q), g->q, g->rows.row, here->k, first, w);
    multiply_wave(dp, HELD(s->d_o), g->d_o, g->rows.row, here->v, first, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            const weight_place at = {&g->args->forward, g->of,
                                     g->of.row + g->rows.row + m * TILE_M,
                                     here->first + (first + t) * TILE_N};
            keep_tile(dp[m][t], KEPT_SCALE(at.args), &at, w);
        }
}

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
        const float rescale = WEIGHT(s->top[m][r], base[r]);
        s->sum[m][r] *= rescale;
        s->delta[m][r] *= rescale;
        s->top[m][r] = top[r];
    }
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            scores[t][i] = WEIGHT(scores[t][i], base[LANE_ROW(i)]);
}

/* Sums of exp(S) and of exp(S) dP over a subtile's keys, of which some rows
 * see some only where `mixed`. */
INLINE void add_statistics(wave_state *s, const rows_group *g,
                           const stage_keys *here, int first, int mixed,
                           const wave *w)
{
    const forward_args *args = &g->args->forward;
    const uint key = here->first + first * TILE_N;
    const uint end = min(key + SUBTILE_KEYS, here->end);
    float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    float dp[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    multiply_keys(scores, dp, s, g, here, first, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                scores[m][t][i] *= args->scale;
            if (mixed)
                hide_unseen(scores[m][t], args, &g->rows, m, key + t * TILE_N,
                            end, -INFINITY, w);
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
            const float rescale = WEIGHT(s->top[m][r], base);
            float sum = s->sum[m][r] * rescale;
            float delta = s->delta[m][r] * rescale;
            REDUCE(sum, ADD);
            REDUCE(delta, ADD);
            s->delta[m][r] = sum == 0.0f ? 0.0f : delta / sum;
            s->shift[m][r] =
                sum == 0.0f ? -INFINITY : shift_of(top + log(sum));
        }
}

/* Leaves what is known of the wave's rows, and in g->found its bounds. */
INLINE void store_statistics(const wave_state *s, const rows_group *g,
                             const wave *w)
{
    const int gives = (g->args->forward.flags & ARG_D_LSE) != 0;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        float square[LANE_ROWS];
        int row_index[LANE_ROWS];
        dot_rows(square, row_index, g->d_o, g->d_o, g->rows.row + m * TILE_M,
                 BLOCK_ROWS, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(g, m, r, w);
            REDUCE(square[r], ADD);
            const float length = sqrt(square[r] * HEAD_DIM);
            if (value_key(w->lane, 0) != 0 || !has_row(g, row))
                continue;
            const float own = gives ? d_lse_of(g, row) : 0;
            const float4 all = {s->shift[m][r], s->delta[m][r] - own, length,
                                0.0f};
            vstore4(all, row, g->numbers);
            atomic_max(&g->found[BOUND_LENGTH], as_uint(length));
            atomic_max(&g->found[BOUND_D_LSE], as_uint(fabs(own)));
        }
    }
}

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

INLINE void read_statistics(wave_state *s, const rows_group *g, float4 bounds,
                            const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(g, m, r, w);
            const int exists = has_row(g, row);
            const float4 all = vload4(exists ? row : 0, g->numbers);
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

/* dQ += dS K of a subtile's keys: p = exp(s - lse), ds = p (dp - delta). */
INLINE void add_gradients(wave_state *s, const rows_group *g,
                          const stage_keys *here, int first, int mixed,
                          const wave *w)
{
    const forward_args *args = &g->args->forward;
    const uint key = here->first + first * TILE_N;
    const uint end = min(key + SUBTILE_KEYS, here->end);
    const float quick_scale = args->scale * LOG2E;
    float p[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    float dp[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    query_tile operands[WAVE_TURNS][TILES_PER_SUBTILE];
    multiply_keys(p, dp, s, g, here, first, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                p[m][t][i] = EXP2(
                    FMA(p[m][t][i], quick_scale, s->shift[m][LANE_ROW(i)]));
            if (mixed)
                hide_unseen(p[m][t], args, &g->rows, m, key + t * TILE_N, end,
                            0.0f, w);
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
                const int r = LANE_ROW(i);
                const float factor = s->ds_scale[m][r] / P_SCALE;
                dp[m][t][i] = p[m][t][i] * FMA(dp[m][t][i], factor,
                                               -s->delta[m][r] * factor);
            }
            operands[m][t] = make_weights(dp[m][t], w);
        }
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        check_errors(s, m, dp[m], operands[m], first, w);
    add_wave_values(s->sums, operands, here->k, first, w);
}

/* After the loop: what dS sums to becomes its error. */
INLINE void find_errors(wave_state *s, const rows_group *g, const wave *w)
{
    const int gives = (g->args->forward.flags & ARG_D_LSE) != 0;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(g, m, r, w);
            if (SUMS_ARE_PARTS) {
                REDUCE(s->error[m][r], ADD);
            }
            if (gives && has_row(g, row))
                s->error[m][r] -= d_lse_of(g, row) * s->ds_scale[m][r];
            if (s->shift[m][r] == -INFINITY)
                s->error[m][r] = 0.0f; /* it sees nothing */
        }
}

/* Where delta is from o: what the kernel of keys gets, and what this one
 * starts again with. Does the error show, by its 2-norm over the wave's rows?
 */
INLINE int mend_delta(wave_state *s, const rows_group *g, const wave *w)
{
    const int lanes_of_row = WAVE * LANE_ROWS / TILE_M;
    const float allowed =
        lanes_of_row * TILES_PER_SUBTILE * DELTA_TOLERANCE * DELTA_TOLERANCE;
    float excess = 0.0f;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const int row = block_row(g, m, r, w);
            const float error = s->error[m][r];
            excess = FMA(error, error, excess);
            excess = FMA(-allowed, s->squares[m][r], excess);
            s->delta[m][r] += error * inverse_ds_scale(s->ds_scale[m][r]);
            if (has_row(g, row) && value_key(w->lane, 0) == 0)
                g->numbers[row * ROW_NUMBERS + ROW_SLIDING_DELTA] =
                    s->delta[m][r];
        }
    SUM_OF_WAVE(excess, g->scratch, w);
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

INLINE void store_dq(wave_state *s, const rows_group *g, const row_target *to,
                     const wave *w)
{
    float factor[WAVE_TURNS][LANE_ROWS];
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            factor[m][r] =
                inverse_ds_scale(s->ds_scale[m][r]) * g->args->forward.scale;
    if ((g->args->forward.flags & ARG_DQ) != 0 && g->rows.count > 0)
        store_own(s->sums, factor, g->rows.row, to, g->q, w);
}

/* ---- The loop over keys ---- */

INLINE void add_stage(wave_state *s, const rows_group *g,
                      const stage_keys *here, const wave *w)
{
    const forward_args *args = &g->args->forward;
    SUBTILE_FOR (int first = 0; first < KEY_TILES;
                 first += TILES_PER_SUBTILE) {
        const uint key = here->first + first * TILE_N;
        const int all = see_all(args, &g->rows, key, here->end);
        const wave own = wave_of_subtile(w);
        if (!all && see_nothing(args, &g->rows, key, here->end))
            continue;
        if (STATISTICS)
            add_statistics(s, g, here, first, !all, &own);
        else
            add_gradients(s, g, here, first, !all, &own);
    }
}

INLINE void loop_keys(wave_state *s, const key_pipeline *pipeline,
                      rows_group group, work_item *me, wave *w)
{
    const key_loop *loop = &pipeline->loop;
    loop_step copied = first_step(loop);
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_keys(pipeline, &copied, &group.args->forward, me->lane);
    for (loop_step step = first_step(loop); is_step(loop, &step);
         next_step(loop, &step)) {
        HIDE_LANE(me->lane);
        HIDE_LANE(w->lane);
        RELOAD_ARGS(backward_args, args, group.args)
        __local const storage_bits *stage = pipeline->ring + step.stage;
        const stage_keys here = {.k = stage + K_OFFSET,
                                 .v = stage + V_OFFSET,
                                 .first = step.first,
                                 .end = end_of_step(loop, &step)};
        group.args = args;
        await_stage(0);
        start_keys(pipeline, &copied, &args->forward, me->lane);
        await_copies(0);
        add_stage(s, &group, &here, w);
    }
}

/* ---- The kernel ---- */

/* dQ of the wave's rows, once more with another delta if that shows; behind
 * barriers, as the ring then starts again. */
INLINE void make_dq(wave_state *s, const key_pipeline *pipeline,
                    const rows_group *g, work_item *me, wave *w)
{
    const forward_args *forward = &g->args->forward;
    const int has_o_lse =
        (forward->flags & ARG_O) != 0 && (forward->flags & ARG_LSE) != 0;
    int passes = 1;
    barrier(CLK_GLOBAL_MEM_FENCE); /* before a row's delta is mended */
    for (int pass = 0; pass < passes; pass++) {
        start_sums(s);
        loop_keys(s, pipeline, *g, me, w);
        find_errors(s, g, w);
        if (has_o_lse && pass == 0) {
            if (me->id == 0)
                g->found[0] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (mend_delta(s, g, w))
                g->found[0] = 1;
            barrier(CLK_LOCAL_MEM_FENCE);
            passes += g->found[0] != 0;
        }
    }
    if (pipeline->loop.blocks > 0) {
        const uint last = pipeline->loop.blocks - 1;
        const key_range range = loop_block(forward, &pipeline->loop, last);
        take_mean_key(s,
                      pipeline->ring + last % STAGES * STAGE_SIZE + K_OFFSET,
                      min((int)range.count, TILE_N), w);
    }
}

/* The block's rows come to local memory, and what they see. */
INLINE void fetch_rows(const rows_group *g, __global const storage *q,
                       __global const storage *d_o, uint head,
                       __local span *spans, const key_pipeline *pipeline)
{
    const backward_args *args = g->args;
    const int lane = g->block.lane;
    copy_own(g->q, q, &args->forward.q, head, &g->block);
    copy_own(g->d_o, d_o, &args->d_o, head, &g->block);
    END_COPIES();
    clear_channels(g->q, BLOCK_ROWS, lane);
    clear_channels(g->d_o, BLOCK_ROWS, lane);
    clear_pads(pipeline->ring, lane);
    keep_spans(spans, &args->forward, g->block.first,
               g->block.first + g->block.count, lane);
    if (STATISTICS && lane < BOUND_NUMBERS)
        g->found[lane] = 0;
    AWAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE);
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
    __local float scratch[ROOM(!STATISTICS, WAVES_PER_WINDOW)]
                         [ROOM(!STATISTICS, WAVE)];
    const forward_args *forward = &args.forward;
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    const work_tile tile = deal_work_tile(forward, (uint)get_group_id(0));
    const uint row_end = min(tile.row + forward->block_rows, forward->queries);
    const uint kv_head = tile.head / forward->heads_per_kv_head;
    const window_coord coord = locate_window(&forward->grid, tile.window);
    rows_group group = {
        .args = &args,
        .of = tile,
        .block = {forward, &coord, tile.row, (int)(row_end - tile.row),
                  me.lane, (forward->flags & ARG_WIDE_ACCESS) != 0},
        .q = (__local storage_bits *)q_rows,
        .d_o = (__local storage_bits *)d_o_rows,
        .numbers = row_numbers_of(workspace, &args, tile.window, tile.head) +
                   tile.row * ROW_NUMBERS,
        .d_lse = d_lse,
        .found = found,
        .scratch = scratch[me.wave]};
    const key_pipeline pipeline =
        start_pipeline((__local storage_bits *)rings[0], k, v, forward, &tile,
                       row_end, &coord, me.lane);
    __global float *bounds = bounds_of(workspace, &args, tile.window, kv_head);
    float4 largest = (float4)(0.0f);
    if ((forward->flags & ARG_D_LSE) != 0)
        group.d_lse += plane(&args.d_lse, coord.grid, tile.head) +
                       (ulong)tile.row * args.d_lse.row;
    if (!STATISTICS)
        largest = largest_bounds(found, bounds, &args, me.id, TEAM);
    fetch_rows(&group, q, d_o, tile.head, spans, &pipeline);
    wave_state state;
    group.rows = find_wave_rows(spans, group.block.count, me.wave);
    if (HOLDS_ROWS) {
        hold_rows(state.q, group.q, group.rows.row, &w);
        hold_rows(state.d_o, group.d_o, group.rows.row, &w);
    }
    if (STATISTICS) {
        leave_tensor_maps(q, k, v, d_o, workspace, &args, (uint)me.id);
        start_statistics(&state);
        loop_keys(&state, &pipeline, group, &me, &w);
        finish_statistics(&state, &w);
        store_statistics(&state, &group, &w);
        store_bounds(found, pipeline.v, bounds, forward, &tile, (uint)me.id,
                     TEAM);
    } else {
        const row_target to =
            target_of(dq, &args.dq, tile.head, tile.row, group.block.count,
                      ARG_ADD_DQ, forward, &coord);
        read_statistics(&state, &group, largest, &w);
        make_dq(&state, &pipeline, &group, &me, &w);
        store_dq(&state, &group, &to, &w);
    }
}
