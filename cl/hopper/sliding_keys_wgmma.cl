/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of sliding attention on NVIDIA's Hopper: dK and dV, behind
 * sliding_rows_wgmma.cl, the other way round.
 *
 * A work-group has BLOCK_KEYS keys of a key head, 64 for each of its
 * warpgroups but the last, which fetches tiles of queries and of dO, of all
 * heads of the group, with the numbers of their rows (sliding_numbers.cl):
 *
 *   P^T = 2^(scale K Q^T + shift),  dS^T = P^T (V dO^T - delta),
 *   dV += P^T dO,  dK += scale dS^T Q */
#define WARPGROUPS (BLOCK_KEYS / WARPGROUP_ROWS)
#include "hopper/kept_rows.cl"
#include "matrix/sliding_keys.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(STAGES)
REQUIRE(EMULATED)
REQUIRE(COMPUTE_CAPABILITY)

typedef char tiles_are_of_64_rows[BLOCK_ROWS == TILE_KEYS ? 1 : -1];

/* A work-group's keys, and the tiles of rows that see some of them. */
typedef struct key_work {
    key_block keys;
    row_range rows;
    uint tiles; /* of all heads of the group */
} key_work;

INLINE key_work find_key_work(const backward_args *args, uint index)
{
    key_work work = {.keys = deal_key_block(args, index)};
    const uint first = work.keys.first;
    work.rows =
        rows_of_keys(&args->forward, first, first + work.keys.count - 1);
    work.tiles = work.rows.end > work.rows.first
                     ? CEIL_DIV(work.rows.end - work.rows.first, TILE_KEYS) *
                           args->forward.heads_per_kv_head
                     : 0;
    return work;
}

/* A tile of rows: `head` of the group, the first row. */
typedef struct row_tile {
    uint head, first;
} row_tile;

INLINE row_tile first_tile(const key_work *work)
{
    const row_tile t = {0, work->rows.first};
    return t;
}

INLINE row_tile next_tile(const key_work *work, row_tile t)
{
    t.first += TILE_KEYS;
    if (t.first >= work->rows.end) {
        t.head++;
        t.first = work->rows.first;
    }
    return t;
}

/* Address of a stage's numbers. */
INLINE uint numbers_of(const tile_ring *ring, uint stage)
{
    return ring->kept + OPERAND_BYTES + 8 * KEPT_MBARRIERS_EVEN +
           stage * NUMBER_BYTES;
}

/* ---- Who fetches ---- */

/* Half of the last warpgroup: queries and numbers, or dO. */
INLINE void fetch(const tile_ring *ring, const row_plane *kept,
                  row_plane plane, ulong head_pitch,
                  __global const float *numbers, stage_part part,
                  const key_work *work, const forward_args *args, uint item,
                  int wide)
{
    ring_place at = {0, 1}; /* all was read, as nothing has been filled */
    __global const storage *first_head = plane.rows;
    row_tile tile = first_tile(work);
    fetch_kept(ring, kept, part, work->keys.first, item, wide);
    NO_UNROLL_FOR (uint n = 0; n < work->tiles; n++) {
        await_phase(was_read(ring, at.stage, part), at.parity);
        plane.rows = first_head + tile.head * head_pitch;
        if (part == QUERIES) {
            const uint row = min(tile.first + item, plane.last);
            copy_8_bytes(numbers_of(ring, at.stage) + item * 8,
                         numbers + ((ulong)tile.head * args->queries + row) *
                                       ROW_NUMBERS);
        }
        fetch_rows(part_of(ring, at.stage, part), &plane, tile.first, item,
                   wide);
        if (part == QUERIES && !wide)
            await_copies(); /* of the numbers */
        arrive_filled(filled(ring, at.stage, part), wide);
        at = next_place(at);
        tile = next_tile(work, tile);
    }
    await_copies();
}

/* ---- Who computes ---- */

/* A wave's 16 keys. */
typedef struct wave_keys {
    uint key; /* the first */
    uint end;
    int lane;
    float scale;                   /* to logits, times log2 e */
    float factor;                  /* by which dP is multiplied */
    row_range rows;                /* that see the warpgroup's keys */
    uint first_row[2], end_row[2]; /* of those that see the lane's keys */
} wave_keys;

typedef struct key_state {
    float dk[OUTS], dv[OUTS];
    uint p[WEIGHTS], ds[WEIGHTS];
} key_state;

/* Scores become P_SCALE P. */
INLINE void exponentiate(float *s, uint numbers, float scale, int lane)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++) {
        const float4 rows =
            as_float4(load_chunk(numbers + j * 64 + lane % 4 * 16));
        UNROLL_FOR (int r = 0; r < 2; r++) {
            s[SCORE(j, r, 0)] = EXP2(FMA(s[SCORE(j, r, 0)], scale, rows.x));
            s[SCORE(j, r, 1)] = EXP2(FMA(s[SCORE(j, r, 1)], scale, rows.z));
        }
    }
}

/* 0 in places of rows that do not see the key. */
INLINE void clear_unseen(float *p, const wave_keys *keys, uint first)
{
    const uint row = first + 2 * (keys->lane % 4);
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                p[SCORE(j, r, i)] = row + 8 * j + i >= keys->first_row[r] &&
                                            row + 8 * j + i < keys->end_row[r]
                                        ? p[SCORE(j, r, i)]
                                        : 0.0f;
}

INLINE void pack_tile(uint *to, const float *from)
{
    UNROLL_FOR (int i = 0; i < WEIGHTS; i++)
        to[i] = PACK(from[2 * i], from[2 * i + 1]);
}

/* P^T and dP^T become dS^T, as an operand. */
INLINE void differentiate(uint *ds, const float *p, const float *dp,
                          uint numbers, float factor, int lane)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++) {
        const float4 rows =
            as_float4(load_chunk(numbers + j * 64 + lane % 4 * 16));
        const float low = -rows.y * factor, high = -rows.w * factor;
        UNROLL_FOR (int r = 0; r < 2; r++)
            ds[2 * j + r] = PACK(
                p[SCORE(j, r, 0)] * FMA(dp[SCORE(j, r, 0)], factor, low),
                p[SCORE(j, r, 1)] * FMA(dp[SCORE(j, r, 1)], factor, high));
    }
}

/* `last`: the stage that the products before this one read, if `follows` any.
 */
INLINE void add_tile(key_state *x, const tile_ring *ring, ring_place at,
                     uint last, int follows, kept_rows *k, kept_rows *v,
                     const wave_keys *keys, uint first)
{
    float s[SCORES], dp[SCORES];
    const uint numbers = numbers_of(ring, at.stage);
    await_stage(ring, at);
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->dk);
    HOLD_OUTS(x->dv);
    HOLD_WEIGHTS(x->ds);
    HOLD_WEIGHTS(x->p);
    multiply_stage(s, dp, k, v, ring, at.stage);
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(s);
    if (follows) {
        leave(was_read(ring, last, QUERIES), keys->lane);
        leave(was_read(ring, last, D_OUTS), keys->lane);
    }
    exponentiate(s, numbers, keys->scale, keys->lane);
    if (first < keys->rows.all_first || first + TILE_KEYS > keys->rows.all_end)
        clear_unseen(s, keys, first);
    pack_tile(x->p, s);
    HOLD_WEIGHTS(x->p);
    HOLD_OUTS(x->dv);
    start_products();
    multiply_values(x->dv, x->p, part_of(ring, at.stage, D_OUTS));
    end_products();
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(dp);
    keep_held(k);
    keep_held(v);
    differentiate(x->ds, s, dp, numbers, keys->factor, keys->lane);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dk);
    start_products();
    multiply_values(x->dk, x->ds, part_of(ring, at.stage, QUERIES));
    end_products();
}

INLINE void compute(key_state *x, const tile_ring *ring, kept_rows *k,
                    kept_rows *v, const wave_keys *keys, const key_work *work)
{
    ring_place at = {0, 0};
    row_tile tile = first_tile(work);
    uint last = 0;
    int follows = 0;
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        x->dk[i] = x->dv[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < WEIGHTS; i++)
        x->p[i] = x->ds[i] = 0;
    NO_UNROLL_FOR (uint n = 0; n < work->tiles; n++) {
        add_tile(x, ring, at, last, follows, k, v, keys, tile.first);
        follows = 1;
        last = at.stage;
        at = next_place(at);
        tile = next_tile(work, tile);
    }
    AWAIT_PRODUCTS(0);
    HOLD_WEIGHTS(x->p);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dk);
    HOLD_OUTS(x->dv);
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
sliding_keys_wgmma(BACKWARD_PARAMETERS)
{
    __local uchar memory[KEYS_LOCAL_BYTES] __attribute__((aligned(1024)));
    __local uint *found =
        (__local uint *)(memory + KEYS_LOCAL_BYTES - FOUND_BYTES);
    const forward_args *forward = &args.forward;
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item), warpgroup = wave / 4;
    const int lane = (int)(item % WAVE);
    const int wide = (forward->flags & ARG_WIDE_ACCESS) != 0;
    const tile_ring ring = {local_address(memory)};
    DECLARE_REGISTERS();
    const key_work work = find_key_work(&args, (uint)get_group_id(0));
    const key_block block = work.keys;
    const uint block_end = block.first + block.count;
    if (block.window >= forward->first_window + forward->windows)
        return;
    if (item < KEPT_MBARRIERS)
        make_kept_barrier(&ring, item);
    if (item < FOUND_NUMBERS)
        found[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (warpgroup == WARPGROUPS) {
        LEAVE_REGISTERS();
        const uint first_head = block.kv_head * forward->heads_per_kv_head;
        const int first = wave % 4 < 2;
        const row_plane kept = first ? plane_of(k, &forward->k, block.window,
                                                block.kv_head, forward->keys)
                                     : plane_of(v, &forward->v, block.window,
                                                block.kv_head, forward->keys);
        const row_plane rows = first ? plane_of(q, &forward->q, block.window,
                                                first_head, forward->queries)
                                     : plane_of(d_o, &args.d_o, block.window,
                                                first_head, forward->queries);
        fetch(&ring, &kept, rows, first ? forward->q.head : args.d_o.head,
              row_numbers_of(workspace, &args, block.window, first_head),
              first ? QUERIES : D_OUTS, &work, forward, item % (WARPGROUP / 2),
              wide);
        return;
    }
    TAKE_REGISTERS();
    const float4 bounds = find_bounds(
        found, bounds_of(workspace, &args, block.window, block.kv_head), &args,
        item, lane);
    const float ds_scale = ds_scale_of(bounds.y, bounds.x, bounds.z);
    const uint first_key = block.first + warpgroup * WARPGROUP_ROWS;
    const uint end_key = min(first_key + WARPGROUP_ROWS, block_end);
    wave_keys keys = {.key = block.first + wave * 16,
                      .end = block_end,
                      .lane = lane,
                      .scale = forward->scale * LOG2E,
                      .factor = ds_scale / P_SCALE,
                      .rows =
                          rows_of_keys(forward, min(first_key, block_end - 1),
                                       max(end_key, 1u) - 1)};
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint key = min(keys.key + lane / 4 + 8 * r, block_end - 1);
        const row_range seen = rows_of_keys(forward, key, key);
        keys.first_row[r] = seen.first;
        keys.end_row[r] = seen.end;
    }
    key_state x;
    await_phase(kept_filled(&ring), 0);
    kept_rows own_k = take_kept(kept_of(&ring, KEYS, warpgroup), wave, lane);
    kept_rows own_v = take_kept(kept_of(&ring, VALUES, warpgroup), wave, lane);
    compute(&x, &ring, &own_k, &own_v, &keys, &work);
    sync_warpgroup(warpgroup); /* all have read what is kept */
    const uint own_rows = wave % 4 * 16 * PANEL_PITCH;
    if ((forward->flags & ARG_DV) != 0) {
        const float factor[2] = {1.0f / P_SCALE, 1.0f / P_SCALE};
        store_gradient(x.dv, factor,
                       kept_of(&ring, VALUES, warpgroup) + own_rows,
                       dv + plane(&args.dv, block.window, block.kv_head),
                       args.dv.row, keys.key, keys.end, lane,
                       (forward->flags & ARG_ADD_DV) != 0, wide);
    }
    if ((forward->flags & ARG_DK) != 0) {
        const float one = inverse_ds_scale(ds_scale) * forward->scale;
        const float factor[2] = {one, one};
        store_gradient(x.dk, factor,
                       kept_of(&ring, KEYS, warpgroup) + own_rows,
                       dk + plane(&args.dk, block.window, block.kv_head),
                       args.dk.row, keys.key, keys.end, lane,
                       (forward->flags & ARG_ADD_DK) != 0, wide);
    }
}
