/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of sliding-window attention on a matrix unit, behind
 * sliding_rows_matrix.cl: what concerns keys. Tiles are the other way round
 * (S_TRANSPOSED of geometry.cl).
 *
 *                   rows, BLOCK_ROWS a stage
 *                +-----------+
 *     K  Q^T ->  |    P^T    |  a wave's tiles ->  dV += P^T dO
 *     V  dO^T -> |    dP^T   |  of keys            dK += scale dS^T Q
 *                +-----------+
 *
 * A work-group has a block of keys of a key head; the rows that see some of
 * them, of all query heads of the group, come by the ring.
 *
 *   SPLIT_DK_DV  1: dV and dK are so many sums that a work-group makes only
 *             one of them, and another the other */
#define S_TRANSPOSED 1
#define ROW_PLANES 0 /* keys have local memory of their own */
#include "matrix/sliding_gradients.cl"
#include "matrix/sliding_keys.cl"

REQUIRE(SPLIT_DK_DV)

/* What a wave sums: dV and dK, or one of them. */
#define GRADIENTS (SPLIT_DK_DV ? 1 : 2)

/* ---- Copies ---- */

typedef struct row_pipeline {
    row_range rows;
    uint per_head, steps; /* stages */
    uint first_head;
    __local storage_bits *ring;
    __local float4 (*numbers)[BLOCK_ROWS];
    __global const storage *q, *d_o; /* of the window */
    __global const float *workspace; /* numbers of the first head's rows */
    window_coord coord;
    int wide;
} row_pipeline;

/* A step: rows of a head of the group. */
typedef struct row_stage {
    uint head;
    stage_rows rows;
} row_stage;

INLINE row_stage stage_of(const row_pipeline *p, uint step,
                          const forward_args *args, int lane)
{
    const uint head = step / p->per_head;
    const uint first =
        p->rows.first + (step - head * p->per_head) * BLOCK_ROWS;
    const int count = (int)min((uint)BLOCK_ROWS, p->rows.end - first);
    const row_stage s = {head, {args, &p->coord, first, count, lane, p->wide}};
    return s;
}

/* Starts the copies of a tensor's rows of a stage. */
INLINE void copy_plane(__local storage_bits *to,
                       __global const storage *planes,
                       const tensor_layout *layout, const row_pipeline *p,
                       const row_stage *s)
{
    copy_stage(to, planes + (ulong)(p->first_head + s->head) * layout->head,
               chunk_of(layout, s->rows.lane), layout, BLOCK_ROWS, &s->rows);
}

INLINE void start_rows_of(const row_pipeline *p, uint step,
                          const backward_args *args, int lane)
{
    if (step < p->steps) {
        const forward_args *forward = &args->forward;
        const row_stage s = stage_of(p, step, forward, lane);
        __local storage_bits *to = p->ring + step % STAGES * STAGE_SIZE;
        __local float4 *numbers = p->numbers[step % STAGES];
        __global const float *known =
            p->workspace +
            ((ulong)s.head * forward->queries + s.rows.first) * ROW_NUMBERS;
        copy_plane(to + Q_OFFSET, p->q, &forward->q, p, &s);
        copy_plane(to + D_O_OFFSET, p->d_o, &args->d_o, p, &s);
        for (int i = lane; i < s.rows.count * ROW_NUMBERS; i += TEAM)
            copy_4((__local float *)numbers + i, known + i, 1);
    }
    END_COPIES();
}

/* ---- A wave's keys ---- */

typedef struct wave_state {
    int makes_v, makes_k;
    float sums[GRADIENTS][WAVE_TURNS][DIM_TILES][ACC_PER_LANE];
    query_tile k[WAVE_TURNS][DIM_TILES], v[WAVE_TURNS][DIM_TILES];
} wave_state;

/* What a subtile is computed from. */
typedef struct sliding_queries {
    __local const storage_bits *k, *v, *q, *d_o;
    __local const float4 *numbers; /* of the stage's rows */
    uint first;                    /* of these */
    int count;
    uint key;    /* the wave's first one */
    int key_row; /* and in the block */
    float ds_scale;
    int mixed; /* some row of the stage does not see all keys */
    const backward_args *args;
    work_tile of;
} sliding_queries;

/* 0 in tiles' places of rows that do not see the key, or do not exist. */
INLINE void clear_unseen(float *p, float *ds, const sliding_queries *here,
                         int turn, int tile, const wave *w)
{
    const forward_args *args = &here->args->forward;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const int row = tile * TILE_N + value_key(w->lane, i);
        const uint key = here->key + turn * TILE_M + value_query(w->lane, i);
        const span seen = visible_span(args, here->first + row);
        if (row < here->count && sees(args, seen, key))
            continue;
        p[i] = ds[i] = 0.0f;
    }
}

/* P^T and dP^T of a tile become keep(P^T) times P_SCALE and dS^T times
 * ds_scale. */
INLINE void differentiate_tile(float *p, float *dp,
                               const sliding_queries *here, int turn, int tile,
                               const wave *w)
{
    const float quick_scale = here->args->forward.scale * LOG2E;
    const float factor = here->ds_scale / P_SCALE;
    const weight_place at = {&here->args->forward, here->of,
                             here->first + tile * TILE_N,
                             here->key + turn * TILE_M};
    keep_tile(dp, KEPT_SCALE(at.args), &at, w);
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
        const float4 row =
            here->numbers[tile * TILE_N + value_key(w->lane, i)];
        p[i] = EXP2(FMA(p[i], quick_scale, row.x));
        dp[i] = p[i] * FMA(dp[i], factor, -row.y * factor);
    }
    if (here->mixed)
        clear_unseen(p, dp, here, turn, tile, w);
    keep_tile(p, 1.0f, &at, w);
}

INLINE void add_queries(wave_state *s, const sliding_queries *here, int first,
                        const wave *w)
{
    float p[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    float dp[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    query_tile operands[WAVE_TURNS][TILES_PER_SUBTILE];
    UNROLL_FOR (int m = 0; m < (SPLIT_DK_DV ? WAVE_TURNS : 0); m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                dp[m][t][i] = 0.0f;
    multiply_wave(p, HELD(s->k), here->k, here->key_row, here->q, first, w);
    if (s->makes_k)
        multiply_wave(dp, HELD(s->v), here->v, here->key_row, here->d_o, first,
                      w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            differentiate_tile(p[m][t], dp[m][t], here, m, first + t, w);
            operands[m][t] = make_weights(p[m][t], w);
        }
    if (s->makes_v)
        add_wave_values(s->sums[0], operands, here->d_o, first, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            operands[m][t] = make_weights(dp[m][t], w);
    if (s->makes_k)
        add_wave_values(s->sums[GRADIENTS - 1], operands, here->q, first, w);
}

/* Sums of a gradient of the wave's keys, times a factor, leave. */
INLINE void store_keys(float (*sums)[DIM_TILES][ACC_PER_LANE],
                       float factor_of_all, int key_row, const row_target *to,
                       __local storage_bits *staging, const wave *w)
{
    float factor[WAVE_TURNS][LANE_ROWS];
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            factor[m][r] = factor_of_all;
    store_own(sums, factor, key_row, to, staging, w);
}

/* ---- A block of keys ---- */

/* What a work-group has for all of its blocks: tensors, and local memory. */
typedef struct keys_group {
    const backward_args *args;
    __global const storage *q, *k, *v, *d_o;
    __global storage *dk, *dv;
    __global float *workspace;
    __local storage_bits *k_rows, *v_rows; /* the block's */
    __local storage_bits *ring;
    __local float4 (*numbers)[BLOCK_ROWS];
    __local uint *found; /* [BOUND_NUMBERS] */
} keys_group;

/* What is copied of a window, for the key block. */
INLINE row_pipeline start_row_pipeline(const key_block *keys,
                                       const keys_group *g)
{
    const backward_args *args = g->args;
    const forward_args *forward = &args->forward;
    const uint first_head = keys->kv_head * forward->heads_per_kv_head;
    row_pipeline p = {.rows = rows_of_keys(forward, keys->first,
                                           keys->first + keys->count - 1),
                      .first_head = first_head,
                      .ring = g->ring,
                      .numbers = g->numbers,
                      .workspace = row_numbers_of(g->workspace, args,
                                                  keys->window, first_head),
                      .coord = locate_window(&forward->grid, keys->window),
                      .wide = (forward->flags & ARG_WIDE_ACCESS) != 0};
    p.q = g->q + forward->q.offset + p.coord.grid * forward->q.window;
    p.d_o = g->d_o + args->d_o.offset + p.coord.grid * args->d_o.window;
    const uint rows =
        p.rows.end > p.rows.first ? p.rows.end - p.rows.first : 0;
    p.per_head = CEIL_DIV(rows, (uint)BLOCK_ROWS);
    p.steps = p.per_head * forward->heads_per_kv_head;
    return p;
}

/* The loop over rows: sums of the wave's keys, from `key_row` on. */
INLINE void loop_rows(wave_state *s, const row_pipeline *p,
                      sliding_queries here, const key_block *keys,
                      work_item *me, wave *w)
{
    for (uint step = 0; step < p->steps; step++) {
        HIDE_LANE(me->lane);
        HIDE_LANE(w->lane);
        RELOAD_ARGS(backward_args, args, here.args)
        const row_stage at = stage_of(p, step, &args->forward, me->lane);
        const stage_rows stage = at.rows;
        __local const storage_bits *ring =
            p->ring + step % STAGES * STAGE_SIZE;
        here.args = args;
        here.of.head = p->first_head + at.head;
        here.of.row = stage.first;
        here.q = ring + Q_OFFSET;
        here.d_o = ring + D_O_OFFSET;
        here.numbers = p->numbers[step % STAGES];
        here.first = stage.first;
        here.count = stage.count;
        here.mixed = stage.count < BLOCK_ROWS || keys->count < BLOCK_KEYS ||
                     stage.first < p->rows.all_first ||
                     stage.first + BLOCK_ROWS > p->rows.all_end;
        await_stage(0);
        start_rows_of(p, step + AHEAD, args, me->lane);
        await_copies(0);
        SUBTILE_FOR (int first = 0; first < KEY_TILES;
                     first += TILES_PER_SUBTILE) {
            const wave own = wave_of_subtile(w);
            add_queries(s, &here, first, &own);
        }
    }
}

INLINE void start_sums(wave_state *s)
{
    UNROLL_FOR (int g = 0; g < GRADIENTS; g++)
        UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
                UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                    s->sums[g][m][d][i] = 0.0f;
}

/* dK and dV of a block of keys of a window. */
INLINE void differentiate_block(wave_state *s, const key_block *keys,
                                const keys_group *g, work_item *me, wave *w)
{
    const backward_args *args = g->args;
    const forward_args *forward = &args->forward;
    const row_pipeline pipeline = start_row_pipeline(keys, g);
    const stage_rows block = {forward,     &pipeline.coord, keys->first,
                              keys->count, me->lane,        pipeline.wide};
    const float4 largest = largest_bounds(
        g->found, bounds_of(g->workspace, args, keys->window, keys->kv_head),
        args, me->id, TEAM);
    const int key_row = me->wave * WAVE_ROWS;
    const sliding_queries here = {
        .k = g->k_rows,
        .v = g->v_rows,
        .key = keys->first + key_row,
        .key_row = key_row,
        .ds_scale = ds_scale_of(largest.y, largest.x, largest.z),
        .args = args,
        .of = {.window = keys->window}};
    copy_own(g->k_rows, g->k, &forward->k, keys->kv_head, &block);
    copy_own(g->v_rows, g->v, &forward->v, keys->kv_head, &block);
    END_COPIES();
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_rows_of(&pipeline, ahead, args, me->lane);
    clear_channels(g->k_rows, BLOCK_KEYS, me->lane);
    clear_channels(g->v_rows, BLOCK_KEYS, me->lane);
    clear_pads(pipeline.ring, me->lane);
    AWAIT_COPIES(AHEAD);
    barrier(CLK_LOCAL_MEM_FENCE);

    start_sums(s);
    if (HOLDS_ROWS) {
        hold_rows(s->k, g->k_rows, key_row, w);
        hold_rows(s->v, g->v_rows, key_row, w);
    }
    loop_rows(s, &pipeline, here, keys, me, w);
    const row_target dv =
        target_of(g->dv, &args->dv, keys->kv_head, keys->first, keys->count,
                  ARG_ADD_DV, forward, &pipeline.coord);
    const row_target dk =
        target_of(g->dk, &args->dk, keys->kv_head, keys->first, keys->count,
                  ARG_ADD_DK, forward, &pipeline.coord);
    if (s->makes_v && (forward->flags & ARG_DV) != 0)
        store_keys(s->sums[0], KEPT_SCALE(forward) / P_SCALE, key_row, &dv,
                   g->k_rows, w);
    if (s->makes_k && (forward->flags & ARG_DK) != 0)
        store_keys(s->sums[GRADIENTS - 1],
                   inverse_ds_scale(here.ds_scale) * forward->scale, key_row,
                   &dk, g->k_rows, w);
    AWAIT_COPIES(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the next may replace all */
}

__kernel __attribute__((reqd_work_group_size(TEAM, 1, 1))) WAVE_ATTRIBUTE void
JOIN(sliding_keys_matrix_, UNIT_NAME)(BACKWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
    __local uint4 k_rows[ROW_PLANE_SIZE / CHUNK] __attribute__((aligned(128)));
    __local uint4 v_rows[ROW_PLANE_SIZE / CHUNK] __attribute__((aligned(128)));
    __local float4 numbers[STAGES][BLOCK_ROWS];
    __local uint found[BOUND_NUMBERS];
    const forward_args *forward = &args.forward;
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    const keys_group group = {.args = &args,
                              .q = q,
                              .k = k,
                              .v = v,
                              .d_o = d_o,
                              .dk = dk,
                              .dv = dv,
                              .workspace = workspace,
                              .k_rows = (__local storage_bits *)k_rows,
                              .v_rows = (__local storage_bits *)v_rows,
                              .ring = (__local storage_bits *)rings[0],
                              .numbers = numbers,
                              .found = found};
    const uint parts = SPLIT_DK_DV ? 2 : 1;
    const uint number = (uint)get_group_id(0);
    wave_state state = {.makes_v = !SPLIT_DK_DV || number % 2 == 0};
    state.makes_k = !SPLIT_DK_DV || !state.makes_v;
    /* the windows of a split */
    for (key_block keys = deal_key_block(&args, number / parts);
         keys.window < forward->first_window + forward->windows;
         keys.window += forward->splits)
        differentiate_block(&state, &keys, &group, &me, &w);
}
