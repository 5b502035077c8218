/* SPDX-License-Identifier: Apache-2.0
 * Backward pass of sliding attention on NVIDIA's Hopper: dK and dV, behind
 * sliding_rows_wgmma.cl, the other way round.
 *
 * A work-group has BLOCK_KEYS keys of a key head, 64 for each of its
 * warpgroups but the last, the producer of tiles of queries and of dO, of all
 * heads of the group, with the numbers of their rows (sliding_numbers.cl):
 *
 *   P^T = 2^(scale K Q^T + shift),  dS^T = P^T (V dO^T - delta),
 *   dV += P^T dO,  dK += scale dS^T Q */
#define WARPGROUPS (BLOCK_KEYS / WARPGROUP_ROWS)
#define KEPT_TENSORS 2
#define READ_TOGETHER FETCHING_SHOWS
#define QUERY_STAGES GRADIENT_STAGES
#include "hopper/kept_rows.cl"
#include "matrix/sliding_keys.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(STAGES)
REQUIRE(COMPUTE_CAPABILITY)

typedef char tiles_are_of_64_rows[BLOCK_ROWS == TILE_KEYS ? 1 : -1];

/* A work-group's keys, and the tiles of rows that see some of them. */
typedef struct key_work {
    key_block keys;
    row_range rows;
    uint tiles; /* of all heads of the group */
} key_work;

/* As deal_key_block, but of all windows of the launch those come first that
 * many rows see. */
INLINE key_block deal_sorted_keys(const backward_args *args, uint index)
{
    const forward_args *forward = &args->forward;
    const uint kv_heads = forward->heads / forward->heads_per_kv_head;
    const uint heads = (uint)forward->windows * kv_heads;
    const uint full = args->key_blocks - args->short_key_blocks;
    const int is_full = index < heads * full;
    const uint i = is_full ? index : index - heads * full;
    const uint quotient = i / (is_full ? full : heads);
    const uint head = is_full ? quotient : i - quotient * heads;
    const uint block = is_full ? i - quotient * full : full + quotient;
    const uint window = head / kv_heads;
    key_block b = {.window = forward->first_window + window};
    b.kv_head = head - window * kv_heads;
    b.first = block * BLOCK_KEYS;
    b.count = (int)min((uint)BLOCK_KEYS, forward->keys - b.first);
    return b;
}

INLINE key_work find_key_work(const backward_args *args, uint index)
{
    key_work work = {.keys = deal_sorted_keys(args, index)};
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

/* A work tile as it is announced to consumers. */
typedef struct keys_note {
    key_work work;
    uint bounds[BOUND_NUMBERS]; /* of its key head, in fp16 */
    row_range rows[WARPGROUPS]; /* that see a warpgroup's keys */
    uint2 seen_by[BLOCK_KEYS];  /* each key: first row and end */
} keys_note;
typedef char notes_fit[sizeof(keys_note) == KEYS_NOTE_BYTES ? 1 : -1];

/* Addresses of what a stage's rows have, see sliding_numbers.cl: 16 rows after
 * the other, of which a lane's four, 2 (lane % 4) and the next of both groups
 * of columns, are neighbours. */
INLINE uint shifts_of(const tile_ring *ring, uint stage)
{
    return ring->kept + GRADIENT_RING_BYTES + stage * NUMBER_BYTES;
}
INLINE uint offsets_of(const tile_ring *ring, uint stage)
{
    return shifts_of(ring, stage) + TILE_KEYS * 4;
}
INLINE uint number_place(uint row)
{
    return row / 16 * 64 + row % 8 / 2 * 16 + row / 8 % 2 * 8 + row % 2 * 4;
}
/* Of all columns of a lane, of groups j and j + 1 together, where j is even.
 * While products read local memory these take long to come, so they are loaded
 * ahead where there are registers for that. */
#define NUMBER_PAIRS (COLUMN_GROUPS / 2)
#define READS_AHEAD (HEAD_DIM <= PANEL_CHANNELS)
INLINE void load_numbers(float4 *to, uint numbers, int lane)
{
    UNROLL_FOR (int i = 0; i < NUMBER_PAIRS; i++)
        to[i] = as_float4(load_chunk(numbers + i * 64 + lane % 4 * 16));
}
INLINE float2 numbers_of(const float4 *numbers, int j)
{
    return j % 2 == 0 ? numbers[j / 2].lo : numbers[j / 2].hi;
}

/* Of a launch. */
INLINE uint work_tiles_of(const backward_args *args)
{
    const forward_args *forward = &args->forward;
    return (uint)forward->windows *
           (forward->heads / forward->heads_per_kv_head) * args->key_blocks;
}
/* Has the work-group a work tile in the round? It has one in the first. */
INLINE int has_round(const backward_args *args, uint round)
{
    return index_in_round(round) < work_tiles_of(args);
}

/* ---- The producer ---- */

INLINE void announce_keys(__local keys_note *note, const backward_args *args,
                          const key_work *work, __global float *workspace,
                          uint item)
{
    const uint first = work->keys.first, last = first + work->keys.count - 1;
    if (item == 0)
        note->work = *work;
    if (item < WARPGROUPS)
        note->rows[item] = rows_of_keys(
            &args->forward, min(first + item * WARPGROUP_ROWS, last),
            min(first + item * WARPGROUP_ROWS + WARPGROUP_ROWS - 1, last));
    NO_UNROLL_FOR (uint i = item; i < BLOCK_KEYS; i += WARPGROUP) {
        const uint key = min(first + i, last);
        const row_range rows = rows_of_keys(&args->forward, key, key);
        note->seen_by[i] = (uint2)(rows.first, rows.end);
    }
    find_bounds(
        note->bounds,
        bounds_of(workspace, args, work->keys.window, work->keys.kv_head),
        args, item);
}

/* Copies the numbers of a tile's rows, by the half of the producer that has
 * queries. `numbers`: of the group's first head. */
#define NUMBERS_ARRIVE (WARPGROUP / 2)
INLINE void copy_numbers(const tile_ring *ring, uint stage,
                         const forward_args *forward,
                         __global const float *numbers, row_tile tile,
                         uint half_item)
{
    const uint row = min(tile.first + half_item, forward->queries - 1);
    __global const float *own =
        numbers + ((ulong)tile.head * forward->queries + row) * ROW_NUMBERS;
    copy_word(shifts_of(ring, stage) + number_place(half_item), own);
    copy_word(offsets_of(ring, stage) + number_place(half_item),
              own + ROW_SLIDING_OFFSET);
}

/* A work tile's part of the last warpgroup, half of it each, queries and
 * numbers, or dO: `round` were before it. Of boxes of dO the half's first
 * work-item alone knows the place in the ring. */
INLINE ring_place fetch_tile(const sliding_call *call, ring_place at,
                             __local keys_note *note, uint round, uint item,
                             stage_part part)
{
    const backward_args *args = call->args;
    const forward_args *forward = &args->forward;
    const tile_ring *ring = call->ring;
    const fetching_item by = {.ring = ring,
                              .part = part,
                              .item = item % (WARPGROUP / 2),
                              .wide = (forward->flags & ARG_WIDE_ACCESS) != 0};
    const key_work work = find_key_work(args, index_in_round(round));
    const ulong window = work.keys.window;
    const uint kv_head = work.keys.kv_head;
    const uint first_head = kv_head * forward->heads_per_kv_head;
    await_phase(queries_read(ring, round), query_parity(round) ^ 1);
    announce_keys(note, args, &work, call->workspace, item);
    sync_warpgroup(WARPGROUPS);
    arrive(announced(ring, round));
    if (TENSOR_MAPS && part != QUERIES && by.item != 0)
        return at;
    const fetched_head kept = part == KEYS
                                  ? find_head(call, MAP_K, window, kv_head)
                                  : find_head(call, MAP_V, window, kv_head);
    const fetched_head passing =
        part == QUERIES ? find_head(call, MAP_Q, window, first_head)
                        : find_head(call, MAP_D_O, window, first_head);
    __global const float *numbers =
        row_numbers_of(call->workspace, args, window, first_head);
    row_tile tile = first_tile(&work);
    coming_stages coming = {at, 0};
    fetch_kept(&by, round, &kept, &passing, work.keys.first);
    NO_UNROLL_FOR (uint n = 0; n < work.tiles; n++) {
        await_phase(was_read(ring, at.stage, part), at.parity);
        if (part == QUERIES) {
            copy_numbers(ring, at.stage, forward, numbers, tile, by.item);
            if (TENSOR_MAPS)
                arrive_after_copies(filled(ring, at.stage, part));
            else if (!by.wide)
                await_copies();
        }
        fetch_stage(&by, at, &coming, &passing, tile.head, tile.first);
        at = next_place(at);
        tile = next_tile(&work, tile);
    }
    end_stages(&by, &coming);
    return at;
}

/* ---- Consumers ---- */

/* A wave's 16 keys. */
typedef struct wave_keys {
    int lane;
    float scale;    /* to logits, times log2 e */
    float factor;   /* by which dP is multiplied */
    row_range rows; /* that see the warpgroup's keys */
    kept_rows *k, *v;
    uint first_row[2], end_row[2]; /* of those that see the lane's keys */
} wave_keys;

typedef struct key_state {
    float dk[OUTS], dv[OUTS];
    uint p[WEIGHTS], ds[WEIGHTS];
} key_state;

INLINE void start_sums(key_state *x)
{
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        x->dk[i] = x->dv[i] = 0.0f;
    UNROLL_FOR (int i = 0; i < WEIGHTS; i++)
        x->p[i] = x->ds[i] = 0;
}

/* Scores become logarithms, with base 2, of P_SCALE P. */
INLINE void find_exponents(float *s, const float4 *shifts, float scale)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++) {
        const float2 shift = numbers_of(shifts, j);
        UNROLL_FOR (int r = 0; r < 2; r++) {
            s[SCORE(j, r, 0)] = FMA(s[SCORE(j, r, 0)], scale, shift.x);
            s[SCORE(j, r, 1)] = FMA(s[SCORE(j, r, 1)], scale, shift.y);
        }
    }
}

/* -infinity in places of rows that do not see the key. */
INLINE void hide_unseen(float *s, const wave_keys *keys, uint first)
{
    const uint row = first + 2 * (keys->lane % 4);
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                s[SCORE(j, r, i)] = row + 8 * j + i >= keys->first_row[r] &&
                                            row + 8 * j + i < keys->end_row[r]
                                        ? s[SCORE(j, r, i)]
                                        : -INFINITY;
}

/* P^T and dP^T become dS^T, as an operand. */
INLINE void differentiate(uint *ds, const float *p, const float *dp,
                          const float4 *offsets, float factor)
{
    UNROLL_FOR (int j = 0; j < COLUMN_GROUPS; j++) {
        const float2 offset = numbers_of(offsets, j);
        UNROLL_FOR (int r = 0; r < 2; r++)
            ds[2 * j + r] = PACK(
                p[SCORE(j, r, 0)] * FMA(dp[SCORE(j, r, 0)], factor, offset.x),
                p[SCORE(j, r, 1)] * FMA(dp[SCORE(j, r, 1)], factor, offset.y));
    }
}

/* Sums start with the first product where work-groups stay, as ptxas would
 * compute those that ordinary instructions start, in a loop, one after the
 * other. More channels leave no register for that. */
INLINE void add_products(float *sums, const uint *operand, uint rows,
                         int follows)
{
    if (GRADIENTS_STAY)
        add_or_set_products(sums, operand, rows, follows);
    else
        multiply_values(sums, operand, rows, TILE_KEYS);
}

/* `last`: the stage that the products before this one read, if `follows` any.
 */
INLINE void add_tile(key_state *x, const tile_ring *ring, ring_place at,
                     uint last, int follows, const wave_keys *keys, uint first)
{
    float s[SCORES], dp[SCORES];
    float4 shifts[NUMBER_PAIRS], offsets[NUMBER_PAIRS];
    await_stage(ring, at);
    if (READS_AHEAD)
        load_numbers(shifts, shifts_of(ring, at.stage), keys->lane);
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->dk);
    HOLD_OUTS(x->dv);
    HOLD_WEIGHTS(x->ds);
    HOLD_WEIGHTS(x->p);
    multiply_stage(s, dp, keys->k, keys->v, ring, at.stage);
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(s);
    if (follows) {
        leave(was_read(ring, last, QUERIES), keys->lane);
        if (!READ_TOGETHER)
            leave(was_read(ring, last, D_OUTS), keys->lane);
    }
    if (!READS_AHEAD)
        load_numbers(shifts, shifts_of(ring, at.stage), keys->lane);
    find_exponents(s, shifts, keys->scale);
    if (first < keys->rows.all_first || first + TILE_KEYS > keys->rows.all_end)
        hide_unseen(s, keys, first);
    HOLD_SCORES(s);
    if (READS_AHEAD)
        load_numbers(offsets, offsets_of(ring, at.stage), keys->lane);
    UNROLL_FOR (int i = 0; i < SCORES; i++)
        s[i] = EXP2(s[i]);
    pack_pairs(x->p, s, WEIGHTS);
    HOLD_WEIGHTS(x->p);
    HOLD_OUTS(x->dv);
    start_products();
    add_products(x->dv, x->p, part_of(ring, at.stage, D_OUTS), follows);
    end_products();
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(dp);
    keep_held(keys->k);
    keep_held(keys->v);
    if (!READS_AHEAD)
        load_numbers(offsets, offsets_of(ring, at.stage), keys->lane);
    differentiate(x->ds, s, dp, offsets, keys->factor);
    HOLD_WEIGHTS(x->ds);
    HOLD_OUTS(x->dk);
    start_products();
    add_products(x->dk, x->ds, part_of(ring, at.stage, QUERIES), follows);
    end_products();
}

INLINE ring_place compute_loop(key_state *x, const tile_ring *ring,
                               ring_place at, const wave_keys *keys,
                               const key_work *work)
{
    row_tile tile = first_tile(work);
    uint last = 0;
    int follows = 0;
    if (!GRADIENTS_STAY)
        start_sums(x);
    NO_UNROLL_FOR (uint n = 0; n < work->tiles; n++) {
        add_tile(x, ring, at, last, follows, keys, tile.first);
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
    if (follows) {
        leave(was_read(ring, last, QUERIES), keys->lane);
        if (!READ_TOGETHER)
            leave(was_read(ring, last, D_OUTS), keys->lane);
    }
    if (GRADIENTS_STAY)
        UNROLL_FOR (int i = 0; i < OUTS; i++) {
            x->dk[i] = follows ? x->dk[i] : 0.0f;
            x->dv[i] = follows ? x->dv[i] : 0.0f;
        }
    return at;
}

/* A warpgroup's part of a work tile. */
INLINE ring_place compute_tile(const sliding_call *call, ring_place at,
                               __local const keys_note *note, uint round,
                               uint wave, int lane)
{
    const tile_ring *ring = call->ring;
    const backward_args *args = call->args;
    const uint warpgroup = wave / (WARPGROUP / WAVE);
    await_phase(announced(ring, round), query_parity(round));
    const key_work work = note->work;
    const float ds_scale =
        RESCALES ? ds_scale_of(as_float(note->bounds[BOUND_LENGTH]),
                               as_float(note->bounds[BOUND_VALUE]),
                               as_float(note->bounds[BOUND_D_LSE]))
                 : 1.0f;
    wave_keys keys = {.lane = lane,
                      .scale = args->forward.scale * LOG2E,
                      .factor = ds_scale / P_SCALE,
                      .rows = note->rows[warpgroup]};
    UNROLL_FOR (int r = 0; r < 2; r++) {
        const uint2 rows = note->seen_by[wave * 16 + lane / 4 + 8 * r];
        keys.first_row[r] = rows.x;
        keys.end_row[r] = rows.y;
    }
    key_state x;
    await_phase(queries_filled(ring, round), query_parity(round));
    kept_rows own_k =
        take_kept(kept_of(ring, round, KEYS, warpgroup), wave, lane);
    kept_rows own_v =
        take_kept(kept_of(ring, round, VALUES, warpgroup), wave, lane);
    keys.k = &own_k;
    keys.v = &own_v;
    at = compute_loop(&x, ring, at, &keys, &work);
    sync_warpgroup(warpgroup); /* all have read what is kept */
    const uint own_rows = wave % 4 * 16 * ROW_BYTES;
    const window_place place = find_place(&args->forward, work.keys.window);
    const leaving_rows of = {.place = &place,
                             .head = work.keys.kv_head,
                             .row = work.keys.first + wave * 16,
                             .end = work.keys.first + work.keys.count,
                             .lane = lane,
                             .flags = args->forward.flags};
    float factor[2] = {1.0f / P_SCALE, 1.0f / P_SCALE};
    store_gradient(x.dv, factor,
                   kept_of(ring, round, VALUES, warpgroup) + own_rows,
                   call->dv, &args->dv, &of, ARG_DV);
    factor[0] = factor[1] = inverse_ds_scale(ds_scale) * args->forward.scale;
    store_gradient(x.dk, factor,
                   kept_of(ring, round, KEYS, warpgroup) + own_rows, call->dk,
                   &args->dk, &of, ARG_DK);
    leave_kept(ring, round, lane);
    return at;
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
sliding_keys_wgmma(BACKWARD_PARAMETERS)
{
    __local uchar memory[KEYS_LOCAL_BYTES] __attribute__((aligned(1024)));
    __local keys_note *notes =
        (__local keys_note *)(memory + KEYS_LOCAL_BYTES -
                              QUERY_STAGES * KEYS_NOTE_BYTES);
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    const tile_ring ring = {local_address(memory)};
    const sliding_call call = {&ring, &args, q,  k,  v,        d_o,
                               d_lse, dq,    dk, dv, workspace};
    uint round = 0;
    DECLARE_REGISTERS();
    if (get_group_id(0) >= work_tiles_of(&args))
        return;
    make_kept_ring(&ring, item, NUMBERS_ARRIVE);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wave >= COMPUTING_WAVES) {
        LEAVE_REGISTERS();
        ring_place at = {0, 1}; /* all was read, as nothing has been filled */
        do {
            at = fetch_tile(&call, at, notes + round % QUERY_STAGES, round,
                            item % WARPGROUP, wave % 4 < 2 ? KEYS : VALUES);
            round++;
        } while (GRADIENTS_STAY && has_round(&args, round));
        await_copies();
    } else {
        TAKE_REGISTERS();
        ring_place at = {0, 0};
        do {
            at = compute_tile(&call, at, notes + round % QUERY_STAGES, round,
                              wave, (int)(item % WAVE));
            round++;
        } while (GRADIENTS_STAY && has_round(&args, round));
    }
}
