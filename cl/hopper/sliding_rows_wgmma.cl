/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of sliding attention on NVIDIA's Hopper: dQ, behind
 * sliding_rows_matrix.cl with STATISTICS, which leaves what is known of rows
 * (sliding_numbers.cl). Types and head dims are those of the forward pass.
 *
 * A work-group has BLOCK_ROWS rows, 64 for each of its warpgroups but the
 * last, which fetches tiles of keys and values that all others read:
 *
 *   P = 2^(scale Q K^T + shift),  dS = P (dO V^T - delta),  dQ += dS K
 *
 * dS of a row must sum to d_lse over its keys, which tells how far a delta
 * from a rounded o is off: where that shows, the block is computed again with
 * the right one. The kernel of keys gets the right one in any case. */
#include "hopper/kept_rows.cl"
#include "hopper/tile_runs.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(STAGES)
REQUIRE(EMULATED)
REQUIRE(COMPUTE_CAPABILITY)

typedef char scores_are_of_64_keys[BLOCK_KEYS == TILE_KEYS ? 1 : -1];

/* A work-group's rows, and what belongs to them. */
typedef struct row_block {
    work_tile tile;
    uint end; /* row */
    uint kv_head;
    key_loop loop;
    int mends; /* delta is from a rounded o */
} row_block;

/* A wave's 16 rows. */
typedef struct wave_rows {
    uint row; /* the first */
    uint end;
    int lane;
    float scale;                 /* to logits, times log2 e */
    __local const span *spans;   /* what they see */
    __global const float *d_lse; /* of row 0; NULL: 0 */
    __global float *numbers;     /* of row 0 */
} wave_rows;

/* What a lane has of its two rows. */
typedef struct row_state {
    float dq[OUTS];
    uint ds[WEIGHTS];
    float shift[2];
    float factor[2];  /* by which dP is multiplied */
    float offset[2];  /* delta, times -factor */
    float error[2];   /* what dS sums to */
    float squares[2]; /* of dS, of some columns */
} row_state;

INLINE uint row_of_lane(const wave_rows *rows, const int r)
{
    return rows->row + rows->lane / 4 + 8 * r;
}

INLINE row_state read_numbers(const wave_rows *rows, float4 bounds)
{
    row_state x;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = row_of_lane(rows, r);
        const int exists = row < rows->end;
        const float4 all = vload4(exists ? row : rows->end - 1, rows->numbers);
        x.shift[r] = exists ? all.x : -INFINITY;
        x.factor[r] = ds_scale_of(all.z, bounds.x, bounds.z) / P_SCALE;
        x.offset[r] = -all.y * x.factor[r];
    }
    return x;
}

INLINE void start_sums(row_state *x)
{
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        x->dq[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < WEIGHTS; i++)
        x->ds[i] = 0;
    UNROLL_FOR (int r = 0; r < 2; r++)
        x->error[r] = x->squares[r] = 0.0f;
}

/* ---- A tile of keys ---- */

/* Scores become P_SCALE P. */
INLINE void exponentiate(float *s, const row_state *x, float scale)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] =
                    EXP2(FMA(s[SCORE(j, r, i)], scale, x->shift[r]));
}

/* 0 where row r does not see the key. */
INLINE void clear_unseen(float *p, const int r, const forward_args *args,
                         key_tile tile, span seen, int lane)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int i = 0; i < 2; i++) {
            const uint key = tile.first + 8 * j + 2 * (lane % 4) + i;
            p[SCORE(j, r, i)] = key < tile.end && sees(args, seen, key)
                                    ? p[SCORE(j, r, i)]
                                    : 0.0f;
        }
}

/* P and dP become dS, as an operand, of which the rows' sums are kept. */
INLINE void differentiate(row_state *x, const float *p, const float *dp)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            float ds[2];
            UNROLL_FOR (int i = 0; i < 2; i++)
                ds[i] = p[SCORE(j, r, i)] *
                        FMA(dp[SCORE(j, r, i)], x->factor[r], x->offset[r]);
            x->error[r] += ds[0] + ds[1];
            if (j == 0)
                x->squares[r] =
                    FMA(ds[0], ds[0], FMA(ds[1], ds[1], x->squares[r]));
            x->ds[2 * j + r] = PACK(ds[0], ds[1]);
        }
}

/* Constant `exact`: not all rows see all of the tile's keys. `last`: the stage
 * whose keys the products before this one read, if `follows` any. */
INLINE void add_tile(row_state *x, const tile_ring *ring, ring_place at,
                     uint last, int follows, const kept_rows *q,
                     const kept_rows *d_o, const wave_rows *rows,
                     const forward_args *args, key_tile tile, const int exact)
{
    float s[SCORES], dp[SCORES];
    await_stage(ring, at);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dq);
    multiply_stage(s, dp, q, d_o, ring, at.stage);
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(s);
    HOLD_WEIGHTS(x->ds);
    if (follows)
        leave(was_read(ring, last, KEYS), rows->lane);
    exponentiate(s, x, rows->scale);
    if (exact)
        UNROLL_FOR (int r = 0; r < 2; r++)
            clear_unseen(s, r, args, tile, rows->spans[rows->lane / 4 + 8 * r],
                         rows->lane);
    HOLD_SCORES(s);
    AWAIT_PRODUCTS(0);
    HOLD_SCORES(dp);
    leave(was_read(ring, at.stage, VALUES), rows->lane);
    differentiate(x, s, dp);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dq);
    start_products();
    multiply_values(x->dq, x->ds, part_of(ring, at.stage, KEYS));
    end_products();
}

/* Tiles [tile, end), at least one. */
INLINE ring_place add_tiles(row_state *x, const tile_ring *ring, ring_place at,
                            uint tile, uint end, const kept_rows *q,
                            const kept_rows *d_o, const wave_rows *rows,
                            const forward_args *args, const key_loop *loop,
                            const tile_runs *runs)
{
    uint last = 0;
    int follows = 0;
    while (tile < end) {
        const uint whole = min(end_of_whole(runs, tile), end);
        NO_UNROLL_FOR (; tile < whole; tile++) {
            add_tile(x, ring, at, last, follows, q, d_o, rows, args,
                     find_key_tile(loop, runs, tile), 0);
            follows = 1;
            last = at.stage;
            at = next_place(at);
        }
        if (tile == end)
            break;
        add_tile(x, ring, at, last, follows, q, d_o, rows, args,
                 find_key_tile(loop, runs, tile), 1);
        follows = 1;
        last = at.stage;
        at = next_place(at);
        tile++;
    }
    AWAIT_PRODUCTS(0);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dq);
    leave(was_read(ring, last, KEYS), rows->lane);
    return at;
}

/* ---- What dS sums to ---- */

/* After the loop: what dS sums to becomes its error. */
INLINE void find_errors(row_state *x, const wave_rows *rows,
                        const backward_args *args)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = row_of_lane(rows, r);
        REDUCE(x->error[r], ADD_PAIR);
        if (rows->d_lse && row < rows->end)
            x->error[r] -= rows->d_lse[(ulong)row * args->d_lse.row] *
                           (x->factor[r] * P_SCALE);
        if (x->shift[r] == -INFINITY)
            x->error[r] = 0.0f; /* it sees nothing */
    }
}

/* Where delta is from o: what the kernel of keys gets, and what this one
 * starts again with. Does the error show, by its 2-norm over the wave's rows?
 */
INLINE int mend_delta(row_state *x, const wave_rows *rows)
{
    const float allowed =
        4 * COLUMN_GROUPS * DELTA_TOLERANCE * DELTA_TOLERANCE;
    float excess = 0.0f;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = row_of_lane(rows, r);
        const float error = x->error[r];
        excess = FMA(error, error, excess);
        excess = FMA(-allowed, x->squares[r], excess);
        x->offset[r] -= error / P_SCALE;
        if (row < rows->end && rows->lane % 4 == 0)
            rows->numbers[(ulong)row * ROW_NUMBERS + ROW_SLIDING_DELTA] =
                -x->offset[r] / x->factor[r];
    }
    REDUCE_WAVE(excess, ADD_PAIR);
    return excess > 0.0f;
}

/* What is left of the errors is in dQ times a mean key: what all keys have in
 * common is taken out of it by the plain mean of `count` of them, at most 16.
 */
INLINE void take_mean_key(row_state *x, const row_plane *k, uint first,
                          uint count, int lane)
{
    UNROLL_FOR (int j = 0; j < HEAD_DIM / 8; j++)
        UNROLL_FOR (int i = 0; i < 2; i++) {
            float mean = 0.0f;
            UNROLL_FOR (uint r = 0; r < 2; r++) {
                const uint key = lane / 4 + 8 * r;
                if (key < count)
                    mean += LOAD(k->rows, (ulong)(first + key) * k->pitch +
                                              8 * j + 2 * (lane % 4) + i);
            }
            mean += LANE_XOR(mean, 4);
            mean += LANE_XOR(mean, 8);
            mean += LANE_XOR(mean, 16);
            UNROLL_FOR (int r = 0; r < 2; r++)
                x->dq[SCORE(j, r, i)] =
                    FMA(x->error[r], mean * (-1.0f / count),
                        x->dq[SCORE(j, r, i)]);
        }
}

/* ---- The work-group's parts ---- */

/* Of the last warpgroup: half of it each. */
INLINE void fetch(const tile_ring *ring, __local const uint *found,
                  const row_plane *kept, const row_plane *plane,
                  stage_part part, const row_block *block, uint item, int wide)
{
    ring_place at = {0, 1}; /* all was read, as nothing has been filled */
    fetch_kept(ring, kept, part, block->tile.row, item, wide);
    int passes = 1;
    NO_UNROLL_FOR (int pass = 0; pass < passes; pass++) {
        NO_UNROLL_FOR (uint tile = 0; tile < block->loop.blocks; tile++) {
            await_phase(was_read(ring, at.stage, part), at.parity);
            fetch_rows(part_of(ring, at.stage, part), plane,
                       first_key(&block->loop, tile), item, wide);
            arrive_filled(filled(ring, at.stage, part), wide);
            at = next_place(at);
        }
        if (block->mends && pass == 0) {
            sync_group();
            passes += found[FOUND_AGAIN] != 0;
        }
    }
    await_copies();
}

/* Of a warpgroup that has rows or, where the block is short, none. */
INLINE ring_place compute_pass(row_state *x, const tile_ring *ring,
                               ring_place at, const kept_rows *q,
                               const kept_rows *d_o, const wave_rows *rows,
                               const forward_args *args,
                               const row_block *block, const tile_runs *runs)
{
    uint tile = 0;
    start_sums(x);
    NO_UNROLL_FOR (uint run = 0; run < 2; run++) {
        const uint begin = run ? runs->window : 0;
        const uint end = run ? runs->end : runs->sink_end;
        at = pass_tiles(ring, at, tile, begin, rows->lane);
        if (begin < end)
            at = add_tiles(x, ring, at, begin, end, q, d_o, rows, args,
                           &block->loop, runs);
        tile = end;
    }
    return pass_tiles(ring, at, tile, block->loop.blocks, rows->lane);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
sliding_rows_wgmma(BACKWARD_PARAMETERS)
{
    /* one array: addresses that follow from one take fewer registers */
    __local uchar memory[ROWS_LOCAL_BYTES] __attribute__((aligned(1024)));
    __local span *spans =
        (__local span *)(memory + OPERAND_BYTES + 8 * KEPT_MBARRIERS_EVEN);
    __local uint *found = (__local uint *)(spans + BLOCK_ROWS);
    const forward_args *forward = &args.forward;
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item), warpgroup = wave / 4;
    const int lane = (int)(item % WAVE);
    const int wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    const tile_ring ring = {local_address(memory)};
    row_block block = {.tile =
                           deal_sorted(forward, (uint)get_group_id(0),
                                       (uint)forward->windows * forward->heads,
                                       forward->short_row_blocks)};
    DECLARE_REGISTERS();
    block.end = min(block.tile.row + BLOCK_ROWS, forward->queries);
    block.kv_head = block.tile.head / forward->heads_per_kv_head;
    block.loop = loop_over_keys(forward, block.tile.row, block.end);
    block.mends =
        (forward->flags & ARG_O) != 0 && (forward->flags & ARG_LSE) != 0;
    for (uint i = item; i < BLOCK_ROWS; i += WORK_ITEMS)
        spans[i] =
            visible_span(forward, min(block.tile.row + i, block.end - 1));
    if (item < KEPT_MBARRIERS)
        make_kept_barrier(&ring, item);
    if (item < FOUND_NUMBERS)
        found[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (warpgroup == WARPGROUPS) {
        LEAVE_REGISTERS();
        const int first = wave % 4 < 2;
        const row_plane kept =
            first ? plane_of(q, &forward->q, block.tile.window,
                             block.tile.head, forward->queries)
                  : plane_of(d_o, &args.d_o, block.tile.window,
                             block.tile.head, forward->queries);
        const row_plane rows =
            first ? plane_of(k, &forward->k, block.tile.window, block.kv_head,
                             forward->keys)
                  : plane_of(v, &forward->v, block.tile.window, block.kv_head,
                             forward->keys);
        fetch(&ring, found, &kept, &rows, first ? KEYS : VALUES, &block,
              item % (WARPGROUP / 2), wide);
        return;
    }
    TAKE_REGISTERS();
    const float4 bounds = find_bounds(
        found, bounds_of(workspace, &args, block.tile.window, block.kv_head),
        &args, item, lane);
    const uint first_row = block.tile.row + warpgroup * WARPGROUP_ROWS;
    const wave_rows rows = {
        .row = block.tile.row + wave * 16,
        .end = block.end,
        .lane = lane,
        .scale = forward->scale * LOG2E,
        .spans = spans + wave * 16,
        .d_lse = (forward->flags & ARG_D_LSE) != 0
                     ? d_lse + plane(&args.d_lse, block.tile.window,
                                     block.tile.head)
                     : 0,
        .numbers = row_numbers_of(workspace, &args, block.tile.window,
                                  block.tile.head)};
    tile_runs runs = {.sink_end = 0};
    if (first_row < block.end)
        runs =
            find_runs(forward, &block.loop, spans[warpgroup * WARPGROUP_ROWS],
                      spans[warpgroup * WARPGROUP_ROWS + WARPGROUP_ROWS - 1]);
    row_state x = read_numbers(&rows, bounds);
    ring_place at = {0, 0};
    await_phase(kept_filled(&ring), 0);
    const kept_rows own_q =
        take_kept(kept_of(&ring, QUERIES, warpgroup), wave, lane);
    const kept_rows own_d_o =
        take_kept(kept_of(&ring, D_OUTS, warpgroup), wave, lane);
    int passes = 1;
    NO_UNROLL_FOR (int pass = 0; pass < passes; pass++) {
        at = compute_pass(&x, &ring, at, &own_q, &own_d_o, &rows, forward,
                          &block, &runs);
        find_errors(&x, &rows, &args);
        if (block.mends && pass == 0) {
            if (mend_delta(&x, &rows) && lane == 0)
                found[FOUND_AGAIN] = 1;
            sync_group();
            passes += found[FOUND_AGAIN] != 0;
        }
    }
    if (runs.end > 0) {
        const row_plane keys = plane_of(k, &forward->k, block.tile.window,
                                        block.kv_head, forward->keys);
        const key_tile last = find_key_tile(&block.loop, &runs, runs.end - 1);
        take_mean_key(&x, &keys, last.first, min(last.end - last.first, 16u),
                      lane);
    }
    if (first_row < block.end && (forward->flags & ARG_DQ) != 0) {
        float factor[2];
        UNROLL_FOR (int r = 0; r < 2; r++)
            factor[r] =
                inverse_ds_scale(x.factor[r] * P_SCALE) * forward->scale;
        sync_warpgroup(warpgroup); /* all have read what is kept */
        store_gradient(
            x.dq, factor,
            kept_of(&ring, QUERIES, warpgroup) + wave % 4 * 16 * PANEL_PITCH,
            dq + plane(&args.dq, block.tile.window, block.tile.head),
            args.dq.row, rows.row, rows.end, lane,
            (forward->flags & ARG_ADD_DQ) != 0, wide);
    }
}
