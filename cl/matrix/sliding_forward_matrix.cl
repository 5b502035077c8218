/* SPDX-License-Identifier: Apache-2.0
 * Forward pass of sliding-window attention on a matrix unit, in fp16, bf16
 * and, where the caller allows TF32, fp32.
 *
 * A work-group has BLOCK_ROWS query rows of a head, a wave WAVE_TURNS tiles of
 * them, whose sums stay in its registers, and q of a single one. Keys and
 * values come by a ring (sliding_pipeline.cl) and are read from it once for
 * all of a wave's tiles. Subtiles that all rows of a wave see entirely carry
 * no comparison; those that none of them sees are passed over. */
#define ROW_PLANES 0 /* q has local memory of its own */
#define HOLDS_VALUE_CHUNKS 1
#include "matrix/forward_epilogue.cl"
#include "matrix/sliding_pipeline.cl"
#include "matrix/sliding_values.cl"
#include "matrix/wave_tiles.cl"

/* Rows' operands stay in registers, where the unit has its own instruction to
 * load them, which compilers do not move. Of two tiles of rows they would take
 * those that addresses are kept in. */
#define HOLDS_ROWS (NATIVE_QUERIES && WAVE_TURNS == 1)

/* What a wave keeps from subtile to subtile. */
typedef struct wave_state {
    row_state rows[WAVE_TURNS];
    int looks; /* some row of the wave has no base for its exponentials */
    query_tile q[WAVE_TURNS][DIM_TILES]; /* with HOLDS_ROWS */
} wave_state;

INLINE void start_wave(wave_state *s, __local const storage_bits *q, int row,
                       const wave *w)
{
    s->looks = 1;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        start_rows(&s->rows[m], 0);
    if (HOLDS_ROWS)
        hold_rows(s->q, q, row, w);
}

/* s = q k^T of a wave's rows and of a subtile's keys, without the scale. */
INLINE void
multiply_keys(float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE],
              const wave_state *s, const sliding_keys *here, int first,
              const wave *w)
{
    multiply_wave(scores, HOLDS_ROWS ? s->q : 0, here->q, here->rows->row,
                  here->k, first, w);
}

/* l += sums of p. */
INLINE void add_sums(wave_state *s, float sums[WAVE_TURNS][LANE_ROWS],
                     float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE],
                     const sliding_keys *here, int first)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            s->rows[m].sum[r] += sums[m][r];
    if (LAZY_MAX && (here->args->flags & ARG_LSE) != 0)
        UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
            UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
                if (IS_TILE(first + t))
                    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                        s->rows[m].exact[LANE_ROW(i)] += scores[m][t][i];
}

/* Adds what was left out of values that are no numbers. */
INLINE void add_left_out(wave_state *s, const sliding_keys *here, int first,
                         const wave *w)
{
    /* the last subtile may have more than the block */
    const int count = min(SUBTILE_KEYS, BLOCK_KEYS - first * TILE_N);
    for (int key = 0; key < count; key++) {
        wave rare = *w;
        HIDE_LANE(rare.lane);
        UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
                add_unlike_numbers(s->rows[m].out[d], first * TILE_N + key,
                                   d * TILE_N, m, here, &rare);
    }
}

/* o += keep(p) v. guards 0: all rows see a subtile's keys; else `mixed` says
 * whether some do not. */
INLINE void
add_values(wave_state *s,
           query_tile weights[WAVE_TURNS][TILES_PER_SUBTILE][WEIGHT_PARTS],
           const sliding_keys *here, int first, const int guards, int mixed,
           const wave *w)
{
    uint unlike_numbers = 0;
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++) {
            const weight_place at = {here->args, here->of,
                                     here->of.row + here->rows->row +
                                         m * TILE_M,
                                     here->first + (first + t) * TILE_N};
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                keep_weights(&weights[m][t][part], &at, 0, w);
        }
    UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                key_tile v = load_value(here->v, PITCH, (first + t) * TILE_N,
                                        d * TILE_N, INT_MAX, TILE_N, w);
                if (guards && mixed)
                    unlike_numbers |= leave_numbers(&v);
                UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
                    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                        multiply_tiles(s->rows[m].out[d], &weights[m][t][part],
                                       &v, w);
            }
    if (guards)
        unlike_numbers = LARGEST_OF_WAVE(unlike_numbers, here->found, w);
    if (guards && unlike_numbers)
        add_left_out(s, here, first, w);
}

/* Takes a subtile into account that all rows see entirely, with the rows'
 * bases; 0: these do not serve, and nothing was done. */
INLINE int attend_quickly(wave_state *s, const sliding_keys *here, int first,
                          const wave *w)
{
    float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    query_tile weights[WAVE_TURNS][TILES_PER_SUBTILE][WEIGHT_PARTS];
    float sums[WAVE_TURNS][LANE_ROWS];
    const float scale = here->scale * LOG2E;
    int large = 0;
    multiply_keys(scores, s, here, first, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                scores[m][t][i] =
                    FMA(scores[m][t][i], scale, s->rows[m].shift[LANE_ROW(i)]);
        weigh_subtile(weights[m], sums[m], scores[m], first, 1, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            large |= IS_TOO_LARGE(sums[m][r]);
    }
    large = WAVE_ANY(large);
    if (!large) {
        add_sums(s, sums, scores, here, first);
        add_values(s, weights, here, first, 0, 0, w);
    }
    return !large;
}

/* Takes any subtile into account: looks for the rows' maxima. */
INLINE void attend_carefully(wave_state *s, const sliding_keys *here,
                             int first, int mixed, const wave *all)
{
    wave again = *all;
    const wave *w = &again;
    if (LAZY_MAX) /* of what lanes need for this rare case nothing is kept */
        HIDE_FROM_OPTIMIZER(again.lane);
    const uint key = here->first + first * TILE_N;
    float scores[WAVE_TURNS][TILES_PER_SUBTILE][ACC_PER_LANE];
    query_tile weights[WAVE_TURNS][TILES_PER_SUBTILE][WEIGHT_PARTS];
    float sums[WAVE_TURNS][LANE_ROWS];
    const uint end = min(key + SUBTILE_KEYS, here->end);
    const float hidden = here->scale < 0.0f ? INFINITY : -INFINITY;
    int looks = 0;
    multiply_keys(scores, s, here, first, w);
    if (mixed)
        UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++)
            UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
                hide_unseen(scores[m][t], here->args, here->rows, m,
                            key + t * TILE_N, end, hidden, w);
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        UNROLL_FOR (int t = 0; t < TILES_PER_SUBTILE; t++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                scores[m][t][i] *= here->scale;
        raise_max(&s->rows[m], scores[m], first, w);
        subtract_max(scores[m], &s->rows[m]);
        weigh_subtile(weights[m], sums[m], scores[m], first, 1, w);
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            looks |= s->rows[m].shift[r] == INFINITY;
    }
    s->looks = WAVE_ANY(looks);
    add_sums(s, sums, scores, here, first);
    if (LAZY_MAX || mixed) /* where it is rare, one code serves all */
        add_values(s, weights, here, first, 1, mixed, w);
    if (!LAZY_MAX && !mixed)
        add_values(s, weights, here, first, 0, 0, w);
}

/* Do all of a wave's rows see all of a subtile? */
INLINE int is_plain(const sliding_keys *here, int first)
{
    return see_all(here->args, here->rows, here->first + first * TILE_N,
                   here->end);
}

/* What one lane of a wave finds they all do; where they can vote, compilers
 * see that, too. */
#define IS_MIXED(x) (LAZY_MAX ? WAVE_ANY(x) : (x))

/* Attends to a stage's keys. What is rare stands outside the loop over
 * subtiles, which then has all of its addresses in registers. */
INLINE void attend_stage(wave_state *s, const sliding_keys *here,
                         const wave *w)
{
    int first = 0;
    for (;;) {
        NO_UNROLL_FOR (; LAZY_MAX && first < KEY_TILES;
                       first += TILES_PER_SUBTILE) {
            int is_done = !WAVE_ANY(!is_plain(here, first) | s->looks);
            const wave own = wave_of_subtile(w);
            if (is_done)
                is_done = attend_quickly(s, here, first, &own);
            if (!is_done)
                break;
        }
        if (first >= KEY_TILES)
            break;
        const uint key = here->first + first * TILE_N;
        if (!see_nothing(here->args, here->rows, key, here->end))
            attend_carefully(s, here, first, IS_MIXED(!is_plain(here, first)),
                             w);
        first += TILES_PER_SUBTILE;
    }
}

/* Copies the block's q. A scale of 0 is q of 0 and a scale of 1, which hides
 * keys as others do. */
INLINE void copy_queries(__local storage_bits *to, __global const storage *q,
                         int row_count, const forward_args *args,
                         const work_tile *tile, const window_coord *coord,
                         int lane)
{
    const plane_rows x = {.plane = q,
                          .layout = &args->q,
                          .grid = &args->grid,
                          .coord = coord,
                          .chunk = chunk_of(&args->q, lane),
                          .first = tile->row,
                          .count = args->scale == 0.0f ? 0 : row_count,
                          .lane = lane,
                          .wide = (args->flags & ARG_WIDE_ACCESS) != 0};
    copy_rows(to, &x, BLOCK_ROWS);
    clear_channels(to, BLOCK_ROWS, lane);
}

/* Stores o and lse of a wave's rows, by way of their q. */
INLINE void store_wave(wave_state *s, __local storage_bits *q,
                       const wave_rows *rows, const forward_args *args,
                       const row_target *block, __global float *lse,
                       const wave *w)
{
    UNROLL_FOR (int m = 0; m < WAVE_TURNS; m++) {
        const int row = rows->row + m * TILE_M;
        const row_target to = {.plane = block->plane,
                               .layout = block->layout,
                               .grid = block->grid,
                               .coord = block->coord,
                               .row = block->row + row,
                               .count = min(rows->count - m * TILE_M, TILE_M),
                               .wide = block->wide};
        finish_sums(&s->rows[m], 1, w);
        store_rows(&s->rows[m], q + row * PITCH, args, &to, lse, w);
    }
}

__kernel __attribute__((reqd_work_group_size(TEAM, 1, 1))) WAVE_ATTRIBUTE void
JOIN(sliding_forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    DECLARE_LOCAL_MEMORY
    __local uint4 q_rows[ROW_PLANE_SIZE / CHUNK] __attribute__((aligned(128)));
    __local span spans[BLOCK_ROWS];
    __local uint found[WAVES_PER_WINDOW];
    work_item me = this_work_item();
    wave w = {.lane = me.id % WAVE};
    __local storage_bits *own_q = (__local storage_bits *)q_rows;
    const work_tile tile = deal_work_tile(&args, (uint)get_group_id(0));
    const uint row_end = min(tile.row + args.block_rows, (uint)NQ);
    const window_coord coord = locate_window(&args.grid, tile.window);
    const key_pipeline pipeline =
        start_pipeline((__local storage_bits *)rings[0], k, v, &args, &tile,
                       row_end, &coord, me.lane);
    const int row_count = (int)(row_end - tile.row);
    copy_queries(own_q, q + plane(&args.q, coord.grid, tile.head), row_count,
                 &args, &tile, &coord, me.lane);
    END_COPIES();
    loop_step copied = first_step(&pipeline.loop);
    for (uint ahead = 0; ahead < AHEAD; ahead++)
        start_keys(&pipeline, &copied, &args, me.lane);
    clear_pads(pipeline.ring, me.lane);
    keep_spans(spans, &args, tile.row, row_end, me.id);
    AWAIT_COPIES(AHEAD);
    barrier(CLK_LOCAL_MEM_FENCE);

    const wave_rows rows = find_wave_rows(spans, row_count, me.wave);
    wave_state state;
    start_wave(&state, own_q, rows.row, &w);
    for (loop_step step = first_step(&pipeline.loop);
         is_step(&pipeline.loop, &step); next_step(&pipeline.loop, &step)) {
        HIDE_LANE(me.lane);
        HIDE_LANE(w.lane);
        RELOAD_ARGS(forward_args, now_args, &args)
        const sliding_keys here = {
            .q = own_q,
            .k = pipeline.ring + step.stage + K_OFFSET,
            .v = pipeline.ring + step.stage + V_OFFSET,
            .first = step.first,
            .end = end_of_step(&pipeline.loop, &step),
            .scale = now_args->scale == 0.0f ? 1.0f : now_args->scale,
            .found = found + me.wave,
            .args = now_args,
            .rows = &rows,
            .of = tile};
        await_stage(0);
        start_keys(&pipeline, &copied, now_args, me.lane);
        await_copies(0);
        attend_stage(&state, &here, &w);
    }
    if (rows.count > 0) {
        const row_target to = {.plane =
                                   o + plane(&args.o, coord.grid, tile.head),
                               .layout = &args.o,
                               .grid = &args.grid,
                               .coord = &coord,
                               .row = tile.row,
                               .wide = (args.flags & ARG_WIDE_ACCESS) != 0};
        store_wave(&state, own_q, &rows, &args, &to,
                   lse + plane(&args.lse, coord.grid, tile.head), &w);
    }
}
