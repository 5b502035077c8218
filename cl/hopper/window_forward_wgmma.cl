/* SPDX-License-Identifier: Apache-2.0
 * Windows, forward, on NVIDIA's Hopper, in fp16 and bf16: head dims 32 and 64,
 * a bias in their type, and with it maybe a mask of regions, or none.
 *
 * A work-group has BLOCK_ROWS rows of a head, whose biases it keeps in local
 * memory, and goes from window to window. Each of WINDOWS_PER_GROUP teams has
 * another window, and in it a warpgroup has up to 64 rows; the last warpgroups
 * fetch (window_ring.cl). While a tile's values are multiplied, the next
 * tile's scores become weights (window_scores.cl). */
#include "hopper/window_extents.h"

#include "hopper/exact_rows.cl"
#include "hopper/window_runs.cl"
#include "hopper/window_scores.cl"

#include "hopper/store_rows.cl"

REQUIRE(COMPUTE_CAPABILITY)

/* Where a team is in the ring. */
typedef struct team_place {
    ring_stage queries, keys;
} team_place;

/* ---- The producer, and waves that measure ---- */

INLINE void fetch_window(const window_call *call, const window_run *run,
                         team_place *at, uint n, uint item)
{
    const window_ring *ring = &call->ring;
    const forward_args *args = call->args;
    const int wide = (args->flags & ARG_WIDE_ACCESS) != 0;
    const stage_event done = VARIANT == COSINE ? COME : FILLED;
    const work_tile window = find_window(call, run, n);
    const head_planes head = find_planes(call->all, args, window);
    const uint first = first_row_of(call, run), row = item / ROW_CHUNKS;
    const uint chunk = item % ROW_CHUNKS * 8;
    const uint filled = queries_barrier(ring, at->queries.number, FILLED);
    const uint of_keys = ring->places, of_others = of_keys + PLACE_BYTES;
    row_source of_q = {head.rows.q + chunk, &args->q, &head.place};
    row_source of_k = {head.rows.k + chunk, &args->k, &head.place};
    row_source of_v = {head.rows.v + chunk, &args->v, &head.place};
    __global const storage *k = of_k.rows + (ulong)row * args->k.row;
    __global const storage *v = of_v.rows + (ulong)row * args->v.row;
    if (GRID) {
        WAVE_SYNC(); /* all lanes have found the rows of the window before */
        of_k.places = keep_places(of_keys, &args->k, &head.place, item);
        of_q.places = of_v.places = of_k.places;
        if (!are_alike(&args->q, &args->k))
            of_q.places = keep_places(of_others, &args->q, &head.place, item);
        WAVE_SYNC();
    }
    await_phase(queries_barrier(ring, at->queries.number, READ),
                at->queries.parity ^ 1);
    fetch_queries(slab(ring, at->queries.number, 0), &of_q, first,
                  min((uint)BLOCK_ROWS, (uint)NQ - first), item, call->team,
                  wide);
    arrive_filled(filled, wide);
    if (GRID && !are_alike(&args->v, &args->k)) {
        WAVE_SYNC();
        of_v.places = keep_places(of_others, &args->v, &head.place, item);
        WAVE_SYNC();
    }
    if (HAS_REGIONS) {
        fetch_regions(regions_of(ring, at->queries.number), call->score_bias,
                      args, window.window, first, item);
        arrive(filled);
    }
    NO_UNROLL_FOR (uint tile = 0; tile < KEY_TILES; tile++) {
        const uint stage = at->keys.number;
        const uint count = min((uint)NK - tile * TILE_KEYS, (uint)TILE_KEYS);
        await_phase(keys_barrier(ring, stage, READ), at->keys.parity ^ 1);
        fetch_keys(keys_of(ring, stage), k, &of_k, tile * TILE_KEYS, count,
                   item, wide);
        fetch_keys(values_of(ring, stage), v, &of_v, tile * TILE_KEYS, count,
                   item, wide);
        arrive_filled(keys_barrier(ring, stage, done), wide);
        k += TILE_KEYS * args->k.row;
        v += TILE_KEYS * args->v.row;
        at->keys = next_stage(at->keys, STAGES);
    }
    at->queries = next_stage(at->queries, WINDOW_QUERY_STAGES);
}

#if VARIANT == COSINE
/* item: of the team's that measure. */
INLINE void measure_window(const window_call *call, team_place *at, uint item)
{
    const window_ring *ring = &call->ring;
    NO_UNROLL_FOR (uint tile = 0; tile < KEY_TILES; tile++) {
        const uint stage = at->keys.number;
        await_phase(keys_barrier(ring, stage, COME), at->keys.parity);
        measure_keys(key_factors(ring, stage), keys_of(ring, stage), item);
        WAVE_SYNC();
        leave(keys_barrier(ring, stage, FILLED), (int)(item % WAVE));
        at->keys = next_stage(at->keys, STAGES);
    }
}
#endif

/* item: of the team's that do not compute. */
INLINE void provide(const window_call *call, uint item)
{
    team_place at = {{0, 0}, {0, 0}};
    window_run run;
    NO_UNROLL_FOR (uint number = 0; find_run(&run, call->args, number);
                   number++) {
        const uint windows = windows_of_run(call, &run);
        NO_UNROLL_FOR (uint n = 0; n < windows; n++) {
#if VARIANT == COSINE
            if (item >= FETCHING)
                measure_window(call, &at, item - FETCHING);
            else
#endif
                fetch_window(call, &run, &at, n, item);
        }
    }
    await_copies();
}

/* ---- Consumers ---- */

/* Of blocks that fill all tiles of their warpgroups, and of windows that fill
 * all blocks, or at least tiles. */
#define TILES_ARE_WHOLE (NQ % WAVE_ROWS == 0 && BLOCK_ROWS % WAVE_ROWS == 0)
#define ALL_WAVES_HAVE_ROWS                                                   \
    (TILES_PER_GROUP == 4 && NQ % BLOCK_ROWS == 0 &&                          \
     BLOCK_ROWS % WARPGROUP_ROWS == 0)
/* Of a team's operands those where rows may be that no copy writes. */
#define EMPTY_BYTES                                                           \
    (NK % TILE_KEYS != 0   ? TEAM_OPERAND_BYTES                               \
     : ALL_WAVES_HAVE_ROWS ? 0                                                \
                           : WINDOW_QUERY_STAGES * WINDOW_QUERY_BYTES)

/* A wave's rows, the same of all windows of a run. */
typedef struct wave_rows {
    uint slab;     /* of its warpgroup, from the queries of a window on */
    uint own;      /* and its 16 rows in there */
    uint row, end; /* its first, and behind the block's last */
    int has;       /* some of them exist */
    float scale;   /* to logits, times log2 e */
    uint bias;     /* address of its lane's of the first tile */
    int lane;
#if HAS_REGIONS
    uint in_block; /* the number of its first among those of the block */
    float region_value;
#endif
} wave_rows;

/* A warpgroup's sums, and the weights of the tile whose values come next. */
typedef struct window_sums {
    float o[OUTS];
    uint p[WEIGHTS];
    float scale[2]; /* of the lane's rows, to logits, times log2 e */
    window_weights w;
} window_sums;

/* Once the tile and its window's queries have come. */
INLINE logit_terms terms_of(const window_call *call, const wave_rows *rows,
                            const float *scale, uint queries, uint stage,
                            uint tile)
{
    logit_terms t = {.scale = {scale[0], scale[1]},
                     .key_factors = key_factors(&call->ring, stage),
                     .keys =
                         min((uint)NK - tile * TILE_KEYS, (uint)TILE_KEYS) -
                         2 * (rows->lane % 4)};
#if BIAS
    t.bias = rows->bias + tile * TILE_BIAS_BYTES;
#endif
#if HAS_REGIONS
    const uint regions = regions_of(&call->ring, queries);
    t.has_regions = has_regions(regions);
    if (t.has_regions) {
        t.regions = find_regions(regions, rows->region_value, rows->in_block,
                                 rows->lane);
        t.regions.others += tile * TILE_KEYS;
    }
#endif
    return t;
}

INLINE void rescale_outs(float *o, const row_weights *w)
{
    UNROLL_FOR (int j = 0; j < HEAD_DIM / 8; j++)
        UNROLL_FOR (int r = 0; r < 2; r++)
            UNROLL_FOR (int i = 0; i < 2; i++)
                o[SCORE(j, r, i)] *= w->factor[r];
}

/* By what the lane's two rows are multiplied. */
INLINE void find_scales(float *scale, const window_call *call,
                        const wave_rows *rows, uint queries)
{
#if VARIANT == COSINE
    measure_queries(scale, slab(&call->ring, queries, 0) + rows->own,
                    rows->lane);
    scale[0] *= rows->scale;
    scale[1] *= rows->scale;
#else
    scale[0] = scale[1] = rows->scale;
#endif
}

/* ---- What leaves ---- */

/* Window n of the run, whose queries were those of stage `queries`. */
INLINE void store_window(const float *o, const row_weights *w,
                         const window_call *call, const window_run *run,
                         const wave_rows *rows, uint n, uint queries)
{
    const forward_args *args = call->args;
    const work_tile here = find_window(call, run, n);
    const window_place place = find_place(args, here.window);
    float sum[2], inverse[2];
    UNROLL_FOR (int r = 0; r < 2; r++) {
        sum[r] = w->sum[r];
        REDUCE(sum[r], ADD_PAIR);
        inverse[r] = RECIPROCAL(sum[r]);
    }
    const leaving_rows of = {.place = &place,
                             .head = here.head,
                             .row = rows->row,
                             /* of whole tiles all, without a question */
                             .end =
                                 TILES_ARE_WHOLE ? 0u - WAVE_ROWS : rows->end,
                             .lane = rows->lane,
                             .flags = args->flags};
    if (are_finite(o, sum, inverse)) {
        /* by way of its queries, which are no longer read */
        store_rows(o, inverse, slab(&call->ring, queries, 0) + rows->own,
                   call->all->o, &args->o, &of);
        if ((args->flags & ARG_LSE) != 0)
            store_lse(w->base, sum, call->all->lse, &args->lse, &of);
    } else {
        const head_planes head = find_planes(call->all, args, here);
        const score_bias_view view =
            score_bias_of(call->score_bias, args, here);
#if VARIANT == COSINE
        const float scale = cosine_scale(args, call->logit_scale, here.head);
#else
        const float scale = args->scale;
#endif
        NO_UNROLL_FOR (uint row = rows->row;
                       row < min(rows->row + WAVE_ROWS, rows->end); row++)
            compute_exactly(args, &head, &view, row, scale, rows->lane);
    }
}

/* ---- A run ---- */

/* wave: of the team. */
INLINE wave_rows find_rows(const window_call *call, const window_run *run,
                           uint wave, int lane)
{
    const uint group = wave / 4, place = wave % 4;
    const uint tile_in_group =
        TILES_PER_GROUP == 4
            ? place
            : (place - group - call->team * GROUPS_PER_WINDOW) % 4;
    const uint tile = group * TILES_PER_GROUP + tile_in_group;
    const uint first = first_row_of(call, run);
    wave_rows rows = {.slab = group * SLAB_BYTES,
                      .row = first + tile * WAVE_ROWS,
                      .end = min(first + BLOCK_ROWS, (uint)NQ),
                      .lane = lane};
    rows.own = rows.slab + place * (WAVE_ROWS * ROW_BYTES);
    rows.has = ALL_WAVES_HAVE_ROWS ||
               ((TILES_PER_GROUP == 4 || tile_in_group < TILES_PER_GROUP) &&
                rows.row < rows.end);
#if VARIANT == COSINE
    rows.scale = LOG2E * cosine_scale(call->args, call->logit_scale,
                                      head_of(call, run));
#else
    rows.scale = LOG2E * call->args->scale;
#endif
#if BIAS
    rows.bias = call->bias_cache + tile * WAVE_BIAS_BYTES + lane * 16;
#endif
#if HAS_REGIONS
    rows.in_block = tile * WAVE_ROWS;
    rows.region_value = call->args->region_value;
#endif
    return rows;
}

/* The first tile of the run, to which nothing is added yet. */
INLINE void start_run(window_sums *x, const window_call *call,
                      const team_place *at, const wave_rows *rows)
{
    float s[SCORES];
    const window_ring *ring = &call->ring;
    const uint queries = at->queries.number, keys = at->keys.number;
    await_phase(queries_barrier(ring, queries, FILLED), at->queries.parity);
    await_phase(keys_barrier(ring, keys, FILLED), at->keys.parity);
    show_to_products();
    start_products();
    multiply_keys(s, slab(ring, queries, 0) + rows->slab, keys_of(ring, keys));
    end_products();
    AWAIT_PRODUCTS(0);
    HOLD_SCORES(s);
    if (rows->has) {
        find_scales(x->scale, call, rows, queries);
        const logit_terms t = terms_of(call, rows, x->scale, queries, keys, 0);
        float sum[2]; /* no row has a base */
        weigh_tile(s, sum, &x->w, &t, rows->lane, 1);
    }
    pack_pairs(x->p, s, WEIGHTS);
}

/* Scores of the next tile, tile `next_tile` of its window, and meanwhile the
 * values of this one; then weights of the next. Where that is_first of another
 * window's, window n, whose last tile is this one, leaves. */
INLINE void add_window_tile(window_sums *x, const window_call *call,
                            const window_run *run, team_place *at,
                            const wave_rows *rows, uint n, uint next_tile,
                            const int is_first)
{
    float s[SCORES];
    const window_ring *ring = &call->ring;
    const uint here = at->keys.number, old = at->queries.number;
    const ring_stage next = next_stage(at->keys, STAGES);
    if (is_first) {
        at->queries = next_stage(at->queries, WINDOW_QUERY_STAGES);
        await_phase(queries_barrier(ring, at->queries.number, FILLED),
                    at->queries.parity);
    }
    const uint queries = slab(ring, at->queries.number, 0);
    await_phase(keys_barrier(ring, next.number, FILLED), next.parity);
    show_to_products();
    HOLD_WEIGHTS(x->p);
    HOLD_OUTS(x->o);
    start_products();
    multiply_keys(s, queries + rows->slab, keys_of(ring, next.number));
    end_products();
    add_or_set_products(x->o, x->p, values_of(ring, here),
                        KEY_TILES > 1 && next_tile != 1);
    end_products();
    const row_weights of_old = x->w.rows;
    int are_final = 1;
    float sum[2];
    if (is_first && rows->has)
        find_scales(x->scale, call, rows, at->queries.number);
    AWAIT_PRODUCTS(1);
    HOLD_SCORES(s);
    if (rows->has) {
        const logit_terms t = terms_of(
            call, rows, x->scale, at->queries.number, next.number, next_tile);
        are_final = weigh_tile(s, sum, &x->w, &t, rows->lane, is_first);
    }
    HOLD_SCORES(s);
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->o);
    HOLD_WEIGHTS(x->p);
    leave(keys_barrier(ring, here, READ), rows->lane);
    at->keys = next;
    pack_pairs(x->p, s, WEIGHTS);
    int rescales = rows->has && are_final;
    /* asked behind what does not wait for the sums */
    if (!are_final && !add_weights(&x->w.rows, sum, is_first)) {
        const logit_terms t = terms_of(
            call, rows, x->scale, at->queries.number, next.number, next_tile);
        weigh_again(s, sum, &x->w, &t, queries + rows->own,
                    keys_of(ring, next.number), rows->lane, is_first);
        pack_pairs(x->p, s, WEIGHTS);
        rescales = 1;
    }
    if (is_first) {
        if (rows->has)
            store_window(x->o, &of_old, call, run, rows, n, old);
        WAVE_SYNC();
        leave(queries_barrier(ring, old, READ), rows->lane);
    } else if (rescales) {
        rescale_outs(x->o, &x->w.rows);
    }
}

/* The values of the run's last tile, of window n. */
INLINE void end_run(window_sums *x, const window_call *call,
                    const window_run *run, team_place *at,
                    const wave_rows *rows, uint n)
{
    const window_ring *ring = &call->ring;
    const uint here = at->keys.number, queries = at->queries.number;
    HOLD_WEIGHTS(x->p);
    HOLD_OUTS(x->o);
    start_products();
    add_or_set_products(x->o, x->p, values_of(ring, here), KEY_TILES > 1);
    end_products();
    AWAIT_PRODUCTS(0);
    HOLD_OUTS(x->o);
    HOLD_WEIGHTS(x->p);
    leave(keys_barrier(ring, here, READ), rows->lane);
    if (rows->has)
        store_window(x->o, &x->w.rows, call, run, rows, n, queries);
    WAVE_SYNC();
    leave(queries_barrier(ring, queries, READ), rows->lane);
    at->keys = next_stage(at->keys, STAGES);
    at->queries = next_stage(at->queries, WINDOW_QUERY_STAGES);
}

#if BIAS
/* By all consumers. True: the biases are on their way, and order_biases has
 * to follow. */
INLINE int start_biases(const window_call *call, const window_run *run,
                        uint wave, int lane)
{
    const forward_args *args = call->args;
    const work_tile here = {.head = head_of(call, run)};
    const score_bias_view view = score_bias_of(call->score_bias, args, here);
    const int first = (int)first_row_of(call, run);
    sync_computing(); /* nobody reads those before */
    if (COPIES_BIASES && has_bias_rows(args, &view)) {
        copy_biases(call->bias_cache, args, &view, first, wave, lane);
        return 1;
    }
    if (has_pairs(args, &view))
        keep_biases(call->bias_cache, args, &view, first, wave, 1, lane);
    else
        keep_biases(call->bias_cache, args, &view, first, wave, 0, lane);
    return 0;
}
#endif

/* wave: of all consumers. */
INLINE void compute_run(const window_call *call, const window_run *run,
                        team_place *at, uint wave, int lane)
{
    const uint windows = windows_of_run(call, run);
    window_sums x = {.scale = {0.0f, 0.0f}, .w = {.searches = 0}};
    UNROLL_FOR (int i = 0; i < OUTS; i++)
        x.o[i] = 0.0f;
#if BIAS
    const int follow = start_biases(call, run, wave, lane);
#endif
    const wave_rows rows = find_rows(call, run, wave % TEAM_WAVES, lane);
#if BIAS
    if (follow)
        order_biases(call->bias_cache, 1, wave, lane);
    sync_computing();
#endif
    if (windows > 0)
        start_run(&x, call, at, &rows);
#if BIAS
    if (follow) {
        order_biases(call->bias_cache, 0, wave, lane);
        sync_computing();
    }
#endif
    if (windows == 0)
        return;
    NO_UNROLL_FOR (uint n = 0; n < windows; n++) {
        NO_UNROLL_FOR (uint tile = 1; tile < KEY_TILES; tile++)
            add_window_tile(&x, call, run, at, &rows, n, tile, 0);
        if (n + 1 < windows)
            add_window_tile(&x, call, run, at, &rows, n, 0, 1);
    }
    end_run(&x, call, run, at, &rows, windows - 1);
}

/* wave: of all consumers. */
INLINE void compute(const window_call *call, uint wave, int lane)
{
    team_place at = {{0, 0}, {0, 0}};
    window_run run;
    NO_UNROLL_FOR (uint number = 0; find_run(&run, call->args, number);
                   number++) {
        if (run.rounds > 0)
            compute_run(call, &run, &at, wave, lane);
    }
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(WORK_ITEMS, 1, 1))) void
window_forward_wgmma(FORWARD_PARAMETERS)
{
    __local uchar memory[WINDOW_LOCAL_BYTES] __attribute__((aligned(1024)));
    const uint item = (uint)get_local_id(0);
    const uint wave = wave_of(item);
    const uint computing = COMPUTING_WAVES;
    const uint team = wave < computing
                          ? wave / TEAM_WAVES
                          : (wave - computing) / (TEAM_HELPERS / WAVE);
    const tensors all = {q, k, v, o, lse};
    const score_bias_tensors score_bias = SCORE_BIAS_TENSORS;
    const uint start = local_address(memory);
    const uint after = start + OPERANDS_BYTES + BIAS_BYTES;
    const uint places = after + FACTORS_BYTES + REGIONS_BYTES;
    const uint barriers = places + PLACES_BYTES;
    const window_call call = {
        .args = &args,
        .all = &all,
        .score_bias = &score_bias,
#if VARIANT == COSINE
        .logit_scale = logit_scale,
#endif
        .ring = {.operands = start + team * TEAM_OPERAND_BYTES,
                 .factors = after + team * TEAM_FACTOR_BYTES,
                 .regions = after + FACTORS_BYTES + team * TEAM_REGION_BYTES,
                 .places = places + team * (2 * PLACE_BYTES),
                 .barriers = barriers + team * (8 * TEAM_MBARRIERS)},
        .bias_cache = start + OPERANDS_BYTES,
        .team = team
    };
    DECLARE_REGISTERS();
    NO_UNROLL_FOR (uint of = 0; of < WINDOWS_PER_GROUP; of++)
        NO_UNROLL_FOR (uint at = item; at < EMPTY_BYTES / 16; at += WORK_ITEMS)
            store_chunk(start + of * TEAM_OPERAND_BYTES + 16 * at, (uint4)(0));
    if (HAS_REGIONS) /* flags of waves that there are not */
        NO_UNROLL_FOR (uint at = item; at < REGIONS_BYTES / 4;
                       at += WORK_ITEMS)
            store_word(after + FACTORS_BYTES + 4 * at, 0);
    FOR_MBARRIERS (n, WINDOWS_PER_GROUP * TEAM_MBARRIERS, item) {
        const uint of = n / TEAM_MBARRIERS;
        const window_ring other = {.barriers =
                                       barriers + of * (8 * TEAM_MBARRIERS)};
        make_window_barrier(&other, n - of * TEAM_MBARRIERS);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (wave >= computing) {
        LEAVE_REGISTERS();
        provide(&call, item % TEAM_HELPERS);
    } else {
        TAKE_REGISTERS();
        compute(&call, wave, (int)(item % WAVE));
    }
}
