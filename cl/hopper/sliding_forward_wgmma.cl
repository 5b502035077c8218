/* SPDX-License-Identifier: Apache-2.0
 * Sliding attention, forward, on NVIDIA's Hopper, in fp16 and bf16: head dims
 * that 16 divides, up to 128.
 *
 * A work-group has BLOCK_ROWS rows of queries, 64 for each of its warpgroups
 * but the last, the producer of tiles of keys and values (key_ring.cl) that
 * all others read. While a tile's values are multiplied, the next tile's
 * scores become weights (row_weights.cl); scores, weights and sums stay in
 * registers.
 */
#include "hopper/announcement.cl"
#include "hopper/exact_rows.cl"
#include "hopper/key_ring.cl"
#include "hopper/row_weights.cl"
#include "hopper/store_rows.cl"
#include "hopper/wave_scores.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(STAGES)
REQUIRE(COMPUTE_CAPABILITY)

typedef char scores_are_of_64_keys[BLOCK_KEYS == TILE_KEYS ? 1 : -1];

/* A work tile as a consumer wave sees it. */
typedef struct wave_work {
    const tensors *all;
    __local const work_tile *of;
    uint queries; /* address of its warpgroup's */
    uint row;     /* its first of 16 */
    uint end;     /* of the work tile's rows */
    float scale;  /* to logits, times log2 e */
    int lane;
    __local const span *rows; /* what its rows see */
    key_loop loop;
    tile_runs runs;
} wave_work;

INLINE void rescale_sums(float *o, const row_weights *w)
{
    if (w->rescales)
        UNROLL_FOR (int j = 0; j < HEAD_DIM / 8; j++)
            UNROLL_FOR (int r = 0; r < 2; r++)
                UNROLL_FOR (int i = 0; i < 2; i++)
                    o[SCORE(j, r, i)] *= w->factor[r];
}

/* A warpgroup's sums, and the weights of the tile whose values come next. */
typedef struct row_sums {
    float o[OUTS];
    uint p[WEIGHTS];
    row_weights w;
} row_sums;

INLINE void weigh_next(float *s, row_weights *w, const wave_work *work,
                       const forward_args *args, uint tile)
{
    weigh_exactly(s, w, work->scale, args,
                  find_key_tile(&work->loop, &work->runs, tile), work->rows,
                  work->lane);
}

/* Scores of the next tile, and meanwhile the values of this one; then weights
 * of the next. Constant `exact`: not all rows see all of its keys. */
INLINE ring_place add_tile(row_sums *x, const tile_ring *ring, ring_place at,
                           uint next_tile, const wave_work *work,
                           const forward_args *args, const int exact)
{
    float s[SCORES];
    const ring_place next = next_place(at);
    await_phase(filled(ring, at.stage, VALUES), at.parity);
    await_phase(filled(ring, next.stage, KEYS), next.parity);
    show_to_products();
    HOLD_WEIGHTS(x->p);
    HOLD_OUTS(x->o);
    start_products();
    multiply_keys(s, work->queries, part_of(ring, next.stage, KEYS));
    end_products();
    multiply_values(x->o, x->p, part_of(ring, at.stage, VALUES), TILE_KEYS);
    end_products();
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(s);
    if (!KEEPS_KEYS)
        leave(was_read(ring, next.stage, KEYS), work->lane);
    if (exact) {
        weigh_next(s, &x->w, work, args, next_tile);
    } else if (!weigh(s, &x->w, work->scale)) {
        __global const storage *k =
            work->all->k +
            plane(&args->k, work->of->window,
                  work->of->head / args->heads_per_kv_head) +
            (ulong)first_key(&work->loop, next_tile) * args->k.row;
        multiply_alone(
            s, work->queries + work->row % WARPGROUP_ROWS * ROW_BYTES,
            part_of(ring, next.stage, KEYS), k, args->k.row, work->lane);
        weigh_next(s, &x->w, work, args, next_tile);
    }
    HOLD_SCORES(s);
    if (KEEPS_KEYS)
        leave(was_read(ring, next.stage, KEYS), work->lane);
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->o);
    HOLD_WEIGHTS(x->p);
    leave(was_read(ring, at.stage, VALUES), work->lane);
    rescale_sums(x->o, &x->w);
    pack_pairs(x->p, s, WEIGHTS);
    return next;
}

/* Adds what tiles [tile, end) have, at least one. */
INLINE ring_place add_tiles(row_sums *x, const tile_ring *ring, ring_place at,
                            uint tile, uint end, const wave_work *work,
                            const forward_args *args)
{
    float s[SCORES];
    await_phase(filled(ring, at.stage, KEYS), at.parity);
    show_to_products();
    start_products();
    multiply_keys(s, work->queries, part_of(ring, at.stage, KEYS));
    end_products();
    AWAIT_PRODUCTS(0);
    HOLD_SCORES(s);
    leave(was_read(ring, at.stage, KEYS), work->lane);
    weigh_next(s, &x->w, work, args, tile);
    rescale_sums(x->o, &x->w);
    pack_pairs(x->p, s, WEIGHTS);
    NO_UNROLL_FOR (tile++; tile < end; tile++) {
        const uint whole =
            x->w.settled ? min(end_of_whole(&work->runs, tile), end) : tile;
        NO_UNROLL_FOR (; tile < whole; tile++)
            at = add_tile(x, ring, at, tile, work, args, 0);
        if (tile == end)
            break;
        at = add_tile(x, ring, at, tile, work, args, 1);
    }
    await_phase(filled(ring, at.stage, VALUES), at.parity);
    show_to_products();
    HOLD_WEIGHTS(x->p);
    HOLD_OUTS(x->o);
    start_products();
    multiply_values(x->o, x->p, part_of(ring, at.stage, VALUES), TILE_KEYS);
    end_products();
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->o);
    HOLD_WEIGHTS(x->p);
    leave(was_read(ring, at.stage, VALUES), work->lane);
    return next_place(at);
}

/* ---- What leaves ---- */

/* All that a warpgroup computes of a work tile. */
INLINE ring_place compute_rows(const tile_ring *ring, ring_place at,
                               uint round, const wave_work *work,
                               const forward_args *args)
{
    row_sums x = {.w = no_weights()};
    float sum[2], inverse[2];
    uint tile = 0;
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        x.o[i] = 0.0f;
    await_phase(queries_filled(ring, round), query_parity(round));
    NO_UNROLL_FOR (uint run = 0; run < 2; run++) {
        const uint begin = run ? work->runs.window : 0;
        const uint end = run ? work->runs.end : work->runs.sink_end;
        at = pass_tiles(ring, at, tile, begin, work->lane);
        if (begin < end)
            at = add_tiles(&x, ring, at, begin, end, work, args);
        tile = end;
    }
    at = pass_tiles(ring, at, tile, work->loop.blocks, work->lane);
    UNROLL_FOR (int r = 0; r < 2; r++) {
        sum[r] = x.w.sum[r];
        REDUCE(sum[r], ADD_PAIR);
        inverse[r] = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
    }
    const window_place place = find_place(args, work->of->window);
    const leaving_rows of = {.place = &place,
                             .head = work->of->head,
                             .row = work->row,
                             .end = work->end,
                             .lane = work->lane,
                             .flags = args->flags};
    sync_warpgroup(work->row / WARPGROUP_ROWS % WARPGROUPS);
    if (are_finite(x.o, sum, inverse)) {
        /* by way of the queries' local memory, which is no longer read */
        store_rows(x.o, inverse,
                   work->queries + work->row % WARPGROUP_ROWS * ROW_BYTES,
                   work->all->o, &args->o, &of);
        if ((args->flags & ARG_LSE) != 0)
            store_lse(x.w.base, sum, work->all->lse, &args->lse, &of);
    } else {
        const head_planes head = find_planes(work->all, args, *work->of);
        const score_bias_view view = {.bias = 0};
        NO_UNROLL_FOR (uint row = work->row;
                       row < min(work->row + 16, work->end); row++)
            compute_exactly(args, &head, &view, row, args->scale, work->lane);
    }
    return at;
}

/* ---- Work tiles ---- */

/* Fills the ring with what a work tile needs: queries, half of the warpgroups'
 * each, and of each tile one part. `item`: of the part's 64. */
INLINE ring_place fetch_tiles(const tile_ring *ring, ring_place at, uint round,
                              const tensors *all, const forward_args *args,
                              __local const announcement *note, uint item,
                              stage_part part)
{
    const int wide = (args->flags & ARG_WIDE_ACCESS) != 0;
    const work_tile tile = note->tile;
    const uint kv_head = tile.head / args->heads_per_kv_head;
    const key_loop loop = announced_loop(args, note);
    const row_plane q =
        plane_of(all->q, &args->q, tile.window, tile.head, args->queries);
    const row_plane plane = plane_of(part == KEYS ? all->k : all->v,
                                     part == KEYS ? &args->k : &args->v,
                                     tile.window, kv_head, args->keys);
    NO_UNROLL_FOR (uint g = part; g < WARPGROUPS; g += 2)
        fetch_rows(queries_of(ring, round, g), &q,
                   tile.row + g * WARPGROUP_ROWS, item, wide);
    arrive_filled(queries_filled(ring, round), wide);
    NO_UNROLL_FOR (uint n = 0; n < loop.blocks; n++) {
        await_phase(was_read(ring, at.stage, part), at.parity);
        fetch_rows(part_of(ring, at.stage, part), &plane, first_key(&loop, n),
                   item, wide);
        arrive_filled(filled(ring, at.stage, part), wide);
        at = next_place(at);
    }
    return at;
}

/* The last warpgroup's part, half of it each. */
INLINE void fetch(const tile_ring *ring, __local announcement *notes,
                  const tensors *all, const forward_args *args, uint item,
                  stage_part part)
{
    ring_place at = {0, 1}; /* all was read, as nothing has been filled */
    NO_UNROLL_FOR (uint round = 0; index_in_round(round) < args->work_tiles;
                   round++) {
        __local announcement *note = notes + round % QUERY_STAGES;
        await_phase(queries_read(ring, round), query_parity(round) ^ 1);
        announce(note, args, deal_work_tile(args, index_in_round(round)),
                 item);
        sync_warpgroup(WARPGROUPS);
        arrive(announced(ring, round));
        at = fetch_tiles(ring, at, round, all, args, note,
                         item % (WARPGROUP / 2), part);
    }
    await_copies();
}

/* That of the others. */
INLINE void compute(const tile_ring *ring, __local const announcement *notes,
                    const tensors *all, const forward_args *args, uint wave,
                    int lane)
{
    const uint warpgroup = wave / (WARPGROUP / WAVE);
    ring_place at = {0, 0};
    NO_UNROLL_FOR (uint round = 0; index_in_round(round) < args->work_tiles;
                   round++) {
        __local const announcement *note = notes + round % QUERY_STAGES;
        __local const span *seen = note->seen + warpgroup * WARPGROUP_ROWS;
        await_phase(announced(ring, round), query_parity(round));
        const key_loop loop = announced_loop(args, note);
        if (note->tile.row + warpgroup * WARPGROUP_ROWS >= note->end) {
            at = pass_tiles(ring, at, 0, loop.blocks, lane);
        } else {
            const wave_work work = {
                .all = all,
                .of = &note->tile,
                .queries = queries_of(ring, round, warpgroup),
                .row = note->tile.row + wave * 16,
                .end = note->end,
                .scale = args->scale * LOG2E,
                .lane = lane,
                .rows = note->seen + wave * 16,
                .loop = loop,
                .runs =
                    find_runs(args, &loop, seen[0], seen[WARPGROUP_ROWS - 1])};
            at = compute_rows(ring, at, round, &work, args);
        }
        WAVE_SYNC(); /* all lanes have read the announcement */
        leave(queries_read(ring, round), lane);
    }
}

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
sliding_forward_wgmma(FORWARD_PARAMETERS)
{
    /* one array: addresses that follow from one take fewer registers */
    __local uchar memory[WGMMA_LOCAL_BYTES] __attribute__((aligned(1024)));
    __local announcement *notes =
        (__local announcement *)(memory + RING_BYTES);
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    const tensors all = {q, k, v, o, lse};
    const tile_ring ring = {local_address(memory)};
    DECLARE_REGISTERS();
    if (item < MBARRIERS)
        make_ring_barrier(&ring, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wave >= COMPUTING_WAVES) {
        LEAVE_REGISTERS();
        fetch(&ring, notes, &all, &args, item % WARPGROUP,
              wave % 4 < 2 ? KEYS : VALUES);
    } else {
        TAKE_REGISTERS();
        compute(&ring, notes, &all, &args, wave, (int)(item % WAVE));
    }
}
