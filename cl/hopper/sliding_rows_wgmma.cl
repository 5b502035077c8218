/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of sliding attention on NVIDIA's Hopper: dQ, behind the
 * kernel on fragments or sliding_given.cl, which leaves what is known of rows
 * (sliding_numbers.cl). Types and head dims are those of the forward pass.
 *
 * A work-group has BLOCK_ROWS rows, 64 for each of its warpgroups but the
 * last, the producer of tiles of keys and values that all others read:
 *
 *   P = 2^(scale Q K^T + shift),  dS = P (dO V^T - delta),  dQ += dS K
 *
 * dS of a row must sum to d_lse over its keys, which tells how far a delta
 * from a rounded o is off: where that shows, the block is computed again with
 * the right one. The kernel of keys gets the right one in any case. */
#define KEPT_TENSORS 2
#define QUERY_STAGES GRADIENT_STAGES
#include "hopper/announcement.cl"
#include "hopper/kept_rows.cl"
#include "hopper/mean_key.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(STAGES)
REQUIRE(COMPUTE_CAPABILITY)

typedef char scores_are_of_64_keys[BLOCK_KEYS == TILE_KEYS ? 1 : -1];

/* A work tile as it is announced to consumers. */
typedef struct rows_note {
    announcement rows;
    uint bounds[BOUND_NUMBERS]; /* of its key head, in fp16 */
} rows_note;
typedef char notes_fit[sizeof(rows_note) == ROWS_NOTE_BYTES ? 1 : -1];

/* A wave's 16 rows, and what is known of its warpgroup's. */
typedef struct wave_rows {
    const tile_ring *ring;
    const backward_args *args;
    const kept_rows *q, *d_o;
    const key_loop *loop;
    const tile_runs *runs;
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
    /* dS is P (dP - delta) times ds_scale, which is in its P as a shift, so
     * that no dP must be multiplied. */
    float shift[2];
    float ds_scale[2];
    float offset[2];  /* -delta */
    float error[2];   /* what dS sums to */
    float squares[2]; /* of dS, of some columns */
} row_state;

INLINE uint row_of_lane(const wave_rows *rows, const int r)
{
    return rows->row + rows->lane / 4 + 8 * r;
}

/* Of a power of two. */
INLINE float exponent_of(float x)
{
    return (float)((int)(as_uint(x) >> 23) - 127);
}

INLINE row_state read_numbers(const wave_rows *rows, float value, float d_lse)
{
    row_state x;
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = row_of_lane(rows, r);
        const int exists = row < rows->end;
        __global const float *all =
            rows->numbers +
            (ulong)(exists ? row : rows->end - 1) * ROW_NUMBERS;
        x.ds_scale[r] = ds_scale_of(all[2], value, d_lse);
        x.shift[r] = exists
                         ? all[0] + (exponent_of(x.ds_scale[r]) - P_EXPONENT)
                         : -INFINITY;
        /* of the last row it is another wave's, which may be mending it */
        x.offset[r] = exists ? -all[ROW_SLIDING_DELTA] : 0.0f;
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

/* Scores become P, times ds_scale. */
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

/* P becomes dS, given dP, and an operand. */
INLINE void differentiate(row_state *x, float *p, const float *dp)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            UNROLL_FOR (int i = 0; i < 2; i++)
                p[SCORE(j, r, i)] *= dp[SCORE(j, r, i)] + x->offset[r];
            x->ds[2 * j + r] = PACK(p[SCORE(j, r, 0)], p[SCORE(j, r, 1)]);
        }
}

/* What dS sums to, and of some columns its squares. */
INLINE void sum_rows(row_state *x, const float *ds)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int r = 0; r < 2; r++) {
            const float a = ds[SCORE(j, r, 0)], b = ds[SCORE(j, r, 1)];
            x->error[r] += a + b;
            if (j == 0)
                x->squares[r] = FMA(a, a, FMA(b, b, x->squares[r]));
        }
}

/* Constant `exact`: not all rows see all of the tile's keys. `last`: the stage
 * whose keys the products before this one read, if `follows` any. */
INLINE void add_tile(row_state *x, const wave_rows *rows, ring_place at,
                     uint last, int follows, key_tile tile, const int exact)
{
    const tile_ring *ring = rows->ring;
    float s[SCORES], dp[SCORES];
    await_stage(ring, at);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dq);
    multiply_stage(s, dp, rows->q, rows->d_o, ring, at.stage);
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(s);
    HOLD_WEIGHTS(x->ds);
    if (follows)
        leave(was_read(ring, last, KEYS), rows->lane);
    exponentiate(s, x, rows->scale);
    if (exact)
        UNROLL_FOR (int r = 0; r < 2; r++)
            clear_unseen(s, r, &rows->args->forward, tile,
                         rows->spans[rows->lane / 4 + 8 * r], rows->lane);
    HOLD_SCORES(s);
    AWAIT_PRODUCTS(0);
    HOLD_SCORES(dp);
    leave(was_read(ring, at.stage, VALUES), rows->lane);
    differentiate(x, s, dp);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dq);
    start_products();
    multiply_values(x->dq, x->ds, part_of(ring, at.stage, KEYS), TILE_KEYS);
    end_products();
    HOLD_SCORES(s); /* while they run */
    sum_rows(x, s);
}

/* ---- What dS sums to ---- */

/* After the loop: what dS sums to becomes its error. */
INLINE void find_errors(row_state *x, const wave_rows *rows)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = row_of_lane(rows, r);
        REDUCE(x->error[r], ADD_PAIR);
        if (rows->d_lse && row < rows->end)
            x->error[r] -= rows->d_lse[(ulong)row * rows->args->d_lse.row] *
                           x->ds_scale[r];
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
        x->offset[r] -= error * inverse_ds_scale(x->ds_scale[r]);
        if (row < rows->end && rows->lane % 4 == 0)
            rows->numbers[(ulong)row * ROW_NUMBERS + ROW_SLIDING_DELTA] =
                -x->offset[r];
    }
    REDUCE_WAVE(excess, ADD_PAIR);
    return excess > 0.0f;
}

/* What the kernel of keys reads: `factor` is what it multiplies dP by. */
INLINE void leave_offsets(const row_state *x, const wave_rows *rows,
                          float factor)
{
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint row = row_of_lane(rows, r);
        if (row < rows->end && rows->lane % 4 == 0)
            rows->numbers[(ulong)row * ROW_NUMBERS + ROW_SLIDING_OFFSET] =
                x->offset[r] * factor;
    }
}

/* Takes what dS sums to and should not out of dQ, by keys of a stage, of which
 * there are so many. */
INLINE void take_mean_key(row_state *x, uint keys, uint count, int lane)
{
    uint weights[4];
    weigh_mean_key(weights, x->error, min(count, 16u), lane);
    HOLD_OUTS(x->dq);
    start_products();
    multiply_values(x->dq, weights, keys, 16);
    end_products();
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->dq);
}

/* ---- The loop over keys ---- */

/* Tiles [tile, end), at least one; behind the last one what dS sums to becomes
 * its error, and dQ is mended by it. */
INLINE ring_place add_tiles(row_state *x, const wave_rows *rows, ring_place at,
                            uint tile, uint end)
{
    const tile_ring *ring = rows->ring;
    const key_loop *loop = rows->loop;
    const tile_runs *runs = rows->runs;
    uint last = 0;
    int follows = 0;
    while (tile < end) {
        const uint whole = min(end_of_whole(runs, tile), end);
        NO_UNROLL_FOR (; tile < whole; tile++) {
            add_tile(x, rows, at, last, follows,
                     find_key_tile(loop, runs, tile), 0);
            follows = 1;
            last = at.stage;
            at = next_place(at);
        }
        if (tile == end)
            break;
        add_tile(x, rows, at, last, follows, find_key_tile(loop, runs, tile),
                 1);
        follows = 1;
        last = at.stage;
        at = next_place(at);
        tile++;
    }
    AWAIT_PRODUCTS(0);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dq);
    if (end == runs->end) {
        const key_tile t = find_key_tile(loop, runs, end - 1);
        find_errors(x, rows);
        take_mean_key(x, part_of(ring, last, KEYS), t.end - t.first,
                      rows->lane);
    }
    leave(was_read(ring, last, KEYS), rows->lane);
    return at;
}

/* Of a warpgroup that has rows. */
INLINE ring_place compute_loop(row_state *x, const wave_rows *rows,
                               ring_place at)
{
    const tile_runs *runs = rows->runs;
    uint tile = 0;
    start_sums(x);
    NO_UNROLL_FOR (uint run = 0; run < 2; run++) {
        const uint begin = run ? runs->window : 0;
        const uint end = run ? runs->end : runs->sink_end;
        at = pass_tiles(rows->ring, at, tile, begin, rows->lane);
        if (begin < end)
            at = add_tiles(x, rows, at, begin, end);
        tile = end;
    }
    return pass_tiles(rows->ring, at, tile, rows->loop->blocks, rows->lane);
}

/* ---- Work tiles ---- */

/* Rounds go in batches: behind a batch those are computed again whose deltas
 * have been mended, which a bit each tells. */
#define BATCH 32u

INLINE uint work_tiles_of(const forward_args *args)
{
    return (uint)args->windows * args->heads * args->row_blocks;
}
/* Has the work-group a work tile in the round? It has one in the first. */
INLINE int has_round(const forward_args *args, uint round)
{
    return index_in_round(round) < work_tiles_of(args);
}
INLINE work_tile tile_of_round(const forward_args *args, uint round)
{
    return deal_sorted(args, index_in_round(round),
                       (uint)args->windows * args->heads,
                       args->short_row_blocks);
}
/* Is delta from a rounded o? */
INLINE int mends(const forward_args *args)
{
    return (args->flags & ARG_O) != 0 && (args->flags & ARG_LSE) != 0;
}
/* Read only where it is asked for: elsewhere others write it. */
INLINE uint again_of_all(__local const volatile uint *again)
{
    uint all = 0;
    UNROLL_FOR (uint g = 0; g < WARPGROUPS; g++)
        all |= again[g];
    return all;
}

/* A work tile's part of the last warpgroup, half of it each: `count` were
 * before it. Of boxes the half's first work-item alone knows the place in the
 * ring. */
INLINE ring_place fetch_tile(const sliding_call *call, ring_place at,
                             __local rows_note *note, uint count,
                             work_tile tile, uint item, stage_part part)
{
    const backward_args *args = call->args;
    const forward_args *forward = &args->forward;
    const tile_ring *ring = call->ring;
    const fetching_item by = {.ring = ring,
                              .part = part,
                              .item = item % (WARPGROUP / 2),
                              .wide = (forward->flags & ARG_WIDE_ACCESS) != 0};
    const uint kv_head = tile.head / forward->heads_per_kv_head;
    await_phase(queries_read(ring, count), query_parity(count) ^ 1);
    announce(&note->rows, forward, tile, item);
    find_bounds(note->bounds,
                bounds_of(call->workspace, args, tile.window, kv_head), args,
                item);
    sync_warpgroup(WARPGROUPS);
    arrive(announced(ring, count));
    if (TENSOR_MAPS && by.item != 0)
        return at;
    const key_loop loop = announced_loop(forward, &note->rows);
    const fetched_head kept =
        part == KEYS ? find_head(call, MAP_Q, tile.window, tile.head)
                     : find_head(call, MAP_D_O, tile.window, tile.head);
    const fetched_head passing =
        part == KEYS ? find_head(call, MAP_K, tile.window, kv_head)
                     : find_head(call, MAP_V, tile.window, kv_head);
    coming_stages coming = {at, 0};
    fetch_kept(&by, count, &kept, &passing, tile.row);
    NO_UNROLL_FOR (uint i = 0; i < loop.blocks; i++) {
        await_phase(was_read(ring, at.stage, part), at.parity);
        fetch_stage(&by, at, &coming, &passing, 0, first_key(&loop, i));
        at = next_place(at);
    }
    end_stages(&by, &coming);
    return at;
}

INLINE void fetch(const sliding_call *call, __local rows_note *notes,
                  __local const uint *again, uint item, stage_part part)
{
    const forward_args *forward = &call->args->forward;
    ring_place at = {0, 1}; /* all was read, as nothing has been filled */
    uint count = 0, first = 0;
    do {
        uint todo = ~0u;
        NO_UNROLL_FOR (int pass = 0; pass < 2 && todo != 0; pass++) {
            uint i = 0;
            do {
                if (todo >> i & 1) {
                    at = fetch_tile(call, at, notes + count % QUERY_STAGES,
                                    count, tile_of_round(forward, first + i),
                                    item, part);
                    count++;
                }
                i++;
            } while (GRADIENTS_STAY && i < BATCH &&
                     has_round(forward, first + i));
            if (mends(forward))
                sync_group();
            todo = mends(forward) && pass == 0 ? again_of_all(again) : 0;
        }
        first += BATCH;
    } while (GRADIENTS_STAY && has_round(forward, first));
    await_copies();
}

/* A work tile in a pass over its batch: `count` were before it. */
typedef struct row_turn {
    uint count;
    int pass;
    __local uint *again; /* the warpgroup's bits */
    uint bit;            /* the tile's */
} row_turn;

/* dQ of a wave's rows, by way of where they were kept. */
INLINE void leave_dq(const sliding_call *call, work_tile tile,
                     const wave_rows *rows, const row_state *x, uint kept)
{
    const forward_args *forward = &call->args->forward;
    const window_place place = find_place(forward, tile.window);
    const leaving_rows of = {.place = &place,
                             .head = tile.head,
                             .row = rows->row,
                             .end = rows->end,
                             .lane = rows->lane,
                             .flags = forward->flags};
    float factor[2];
    UNROLL_FOR (int r = 0; r < 2; r++)
        factor[r] = inverse_ds_scale(x->ds_scale[r]) * forward->scale;
    store_gradient(x->dq, factor, kept, call->dq, &call->args->dq, &of,
                   ARG_DQ);
}

/* A warpgroup's part of a work tile. */
INLINE ring_place compute_tile(const sliding_call *call, ring_place at,
                               __local const rows_note *note,
                               const row_turn *turn, uint wave, int lane)
{
    const tile_ring *ring = call->ring;
    const backward_args *args = call->args;
    const forward_args *forward = &args->forward;
    const uint count = turn->count;
    const uint warpgroup = wave / (WARPGROUP / WAVE);
    await_phase(announced(ring, count), query_parity(count));
    const key_loop loop = announced_loop(forward, &note->rows);
    const work_tile tile = note->rows.tile;
    if (tile.row + warpgroup * WARPGROUP_ROWS >= note->rows.end ||
        (turn->pass == 1 && (*turn->again & turn->bit) == 0))
        return pass_tiles(ring, at, 0, loop.blocks, lane);
    wave_rows rows = {
        .ring = ring,
        .args = args,
        .loop = &loop,
        .row = tile.row + wave * 16,
        .end = note->rows.end,
        .lane = lane,
        .scale = forward->scale * LOG2E,
        .spans = note->rows.seen + wave * 16,
        .d_lse =
            (forward->flags & ARG_D_LSE) != 0
                ? call->d_lse + plane(&args->d_lse, tile.window, tile.head)
                : 0,
        .numbers =
            row_numbers_of(call->workspace, args, tile.window, tile.head)};
    __local const span *seen = note->rows.seen + warpgroup * WARPGROUP_ROWS;
    const tile_runs runs =
        find_runs(forward, &loop, seen[0], seen[WARPGROUP_ROWS - 1]);
    row_state x =
        read_numbers(&rows, RESCALES ? as_float(note->bounds[BOUND_VALUE]) : 0,
                     RESCALES ? as_float(note->bounds[BOUND_D_LSE]) : 0);
    await_phase(queries_filled(ring, count), query_parity(count));
    const kept_rows own_q =
        take_kept(kept_of(ring, count, QUERIES, warpgroup), wave, lane);
    const kept_rows own_d_o =
        take_kept(kept_of(ring, count, D_OUTS, warpgroup), wave, lane);
    rows.q = &own_q;
    rows.d_o = &own_d_o;
    rows.runs = &runs;
    at = compute_loop(&x, &rows, at);
    if (mends(forward) && turn->pass == 0 && mend_delta(&x, &rows) &&
        lane == 0)
        atomic_or(turn->again, turn->bit);
    if (turn->pass == 0)
        leave_offsets(&x, &rows,
                      ds_scale_of(as_float(note->bounds[BOUND_LENGTH]),
                                  as_float(note->bounds[BOUND_VALUE]),
                                  as_float(note->bounds[BOUND_D_LSE])) /
                          P_SCALE);
    sync_warpgroup(warpgroup); /* all have read what is kept */
    if (turn->pass == 1 || (*turn->again & turn->bit) == 0)
        leave_dq(call, tile, &rows, &x,
                 kept_of(ring, count, QUERIES, warpgroup) +
                     wave % 4 * 16 * ROW_BYTES);
    return at;
}

INLINE void compute(const sliding_call *call, __local const rows_note *notes,
                    __local uint *again, uint wave, int lane)
{
    const forward_args *forward = &call->args->forward;
    __local uint *own = again + wave / (WARPGROUP / WAVE);
    ring_place at = {0, 0};
    uint count = 0, first = 0;
    do {
        uint todo = ~0u;
        NO_UNROLL_FOR (int pass = 0; pass < 2 && todo != 0; pass++) {
            uint i = 0;
            do {
                if (todo >> i & 1) {
                    const row_turn turn = {count, pass, own, 1u << i};
                    at = compute_tile(call, at, notes + count % QUERY_STAGES,
                                      &turn, wave, lane);
                    leave_kept(call->ring, count, lane);
                    count++;
                }
                i++;
            } while (GRADIENTS_STAY && i < BATCH &&
                     has_round(forward, first + i));
            if (mends(forward))
                sync_group();
            todo = mends(forward) && pass == 0 ? again_of_all(again) : 0;
            if (pass == 1) {
                *own = 0; /* others have read it before this pass */
                sync_warpgroup(wave / (WARPGROUP / WAVE));
            }
        }
        first += BATCH;
    } while (GRADIENTS_STAY && has_round(forward, first));
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
sliding_rows_wgmma(BACKWARD_PARAMETERS)
{
    /* one array: addresses that follow from one take fewer registers */
    __local uchar memory[ROWS_LOCAL_BYTES] __attribute__((aligned(1024)));
    __local rows_note *notes =
        (__local rows_note *)(memory + GRADIENT_RING_BYTES);
    __local uint *again = (__local uint *)(notes + QUERY_STAGES);
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    const tile_ring ring = {local_address(memory)};
    const sliding_call call = {&ring, &args, q,  k,  v,        d_o,
                               d_lse, dq,    dk, dv, workspace};
    DECLARE_REGISTERS();
    make_kept_ring(&ring, item, 0);
    if (item < WARPGROUPS)
        again[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wave >= COMPUTING_WAVES) {
        LEAVE_REGISTERS();
        fetch(&call, notes, again, item % WARPGROUP,
              wave % 4 < 2 ? KEYS : VALUES);
    } else {
        TAKE_REGISTERS();
        compute(&call, notes, again, wave, (int)(item % WAVE));
    }
}
