/* SPDX-License-Identifier: Apache-2.0
 * A linear layer on a matrix unit, in fp16 and bf16, whose rows are short: a
 * work-group has BLOCK_COLUMNS of y for good, and all of W that these need in
 * local memory. Rows of x come by a ring, BLOCK_ROWS of them after the other,
 * STAGE_DIMS numbers at a time, the next ones while results leave.
 *
 *            W: WEIGHT_STAGES stages [BLOCK_COLUMNS][STAGE_DIMS], once
 *     x      +--------------+
 *     ring ->| waves' tiles |-> rows of results in local memory -> y
 *            +--------------+     ^ the residual of the block waits there
 *
 * Work-group g has column block g % (column blocks), and every row block of
 * that many; so the launch must be a multiple of the column blocks. */
#include "models/linear_waves.cl"

REQUIRE(WEIGHT_STAGES)

typedef char has_halves[DTYPE != 0 && DIM_WAVES == 1 ? 1 : -1];

#define RESULT_CHUNKS (BLOCK_COLUMNS / CHUNK)
#define RESULT_TURNS ((BLOCK_ROWS * RESULT_CHUNKS + GROUP - 1) / GROUP)
/* y may be the residual, of which other work-items have read */
#define STAGE_FENCE                                                           \
    (CLK_LOCAL_MEM_FENCE | (HAS_RESIDUAL ? CLK_GLOBAL_MEM_FENCE : 0))
/* of a wave */
#define OUT_TURNS ((ROW_TILES * TILE_M * OUT_CHUNKS + WAVE - 1) / WAVE)

/* ---- What a work-group goes through ---- */

/* Columns of y and what they are made of: tensors from their start on, but
 * `residual` and y from the first column on. */
typedef struct resident_group {
    const linear_args *args;
    __global const storage *x, *residual;
    __global storage_bits *y;
    uint columns; /* that exist */
    ulong step;   /* rows from one of the work-group's blocks to the next */
    __local storage_bits *ring, *kept, *results;
    __local float *added; /* the bias */
    wave_place at;        /* of this wave */
    int item;
} resident_group;

/* The stage that is to be copied next. */
typedef struct next_stage {
    ulong row; /* the block's first */
    uint stage;
    uint number; /* counted from the work-group's first on */
    uint block;
} next_stage;

/* See resident_group for `step`. */
INLINE next_stage go_on(next_stage next, ulong step)
{
    next.number++;
    next.stage++;
    if (next.stage == WEIGHT_STAGES) {
        next.stage = 0;
        next.block++;
        next.row += step;
    }
    return next;
}

/* A block's rows of a matrix. */
INLINE source rows_of(__global const storage *from, ulong row, ulong rows,
                      ulong stride, int wide)
{
    const source s = {.rows = from + row * stride,
                      .stride = stride,
                      .count = (int)min(rows - row, (ulong)BLOCK_ROWS),
                      .wide = wide};
    return s;
}

/* Residuals of a block, `columns` of them in a row, go to where its results
 * will be. */
INLINE void copy_residual(__local storage_bits *to, const source *s,
                          uint columns, int item)
{
    HIDE_FROM_OPTIMIZER(item);
    UNROLL_FOR (int t = 0; t < RESULT_TURNS; t++) {
        const int i = t * GROUP + item;
        const int row = i / RESULT_CHUNKS;
        const uint column = i % RESULT_CHUNKS * CHUNK;
        __local storage_bits *here =
            to + swizzled_offset(row, (int)column, RESULT_PITCH);
        const int exists = (row < s->count) & (column < columns);
        const int wanted =
            (BLOCK_ROWS * RESULT_CHUNKS % GROUP == 0) | (row < BLOCK_ROWS);
        __global const storage *from = s->rows + row * s->stride;
        if (s->wide)
            copy_16(here, from + column, exists, wanted);
        else if (wanted)
            *(__local uint4 *)here =
                exists ? load_elements(from, column, columns) : (uint4)(0u);
    }
}

/* sums += a wave's residuals. */
INLINE void add_residual(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                         __local const storage_bits *results,
                         const wave_place *at, const wave *w)
{
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++) {
            float rest[ACC_PER_LANE];
            load_tile(rest, results, RESULT_PITCH, at->row + r * TILE_M,
                      at->column + c * TILE_N, w);
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
                sums[r][c][i] += rest[i];
        }
    WAVE_SYNC(); /* results take their place */
}

/* Sums become results, rounded, in local memory. added: the bias. */
INLINE void make_results(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                         __local storage_bits *results,
                         __local const float *added, const wave_place *at,
                         const wave *w)
{
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
            UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++) {
                if (HAS_BIAS)
                    sums[r][c][i] +=
                        added[at->column + c * TILE_N + value_key(w->lane, i)];
                sums[r][c][i] = finish_sum(sums[r][c][i]);
            }
    if (HAS_RESIDUAL)
        add_residual(sums, results, at, w);
    UNROLL_FOR (int r = 0; r < ROW_TILES; r++)
        UNROLL_FOR (int c = 0; c < COLUMN_TILES; c++)
            store_tile(sums[r][c], results, RESULT_PITCH, at->row + r * TILE_M,
                       at->column + c * TILE_N, BLOCK_COLUMNS, w);
}

/* A wave's results leave, in whole vectors where that may be. row: the
 * block's first. */
INLINE void store_results(__local const storage_bits *results, ulong row,
                          const resident_group *g, const wave *w)
{
    const linear_args *args = g->args;
    const wave_place *at = &g->at;
    const int wide = (args->flags & LINEAR_WIDE_OUT) != 0;
    const int rows = (int)min(args->rows - row, (ulong)BLOCK_ROWS);
    __global storage_bits *y = g->y + row * args->y_stride;
    int lane = w->lane; /* or addresses take registers all along */
    HIDE_FROM_OPTIMIZER(lane);
    UNROLL_FOR (int t = 0; t < OUT_TURNS; t++) {
        const int i = t * WAVE + lane;
        const int r = at->row + i / OUT_CHUNKS;
        const uint column = (uint)at->column + i % OUT_CHUNKS * CHUNK;
        __local const storage_bits *from =
            results + swizzled_offset(r, (int)column, RESULT_PITCH);
        __global storage_bits *to = y + (ulong)r * args->y_stride + column;
        if (r < rows && column < g->columns &&
            i < ROW_TILES * TILE_M * OUT_CHUNKS) {
            if (wide && column + CHUNK <= g->columns)
                *(__global uint4 *)to = *(__local const uint4 *)from;
            else
                NO_UNROLL_FOR (uint e = 0;
                               e < CHUNK && column + e < g->columns; e++)
                    to[e] = from[e];
        }
    }
}

/* Sums of the block that starts at that row become results, and leave. */
INLINE void finish_block(float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE],
                         uint block, ulong row, const resident_group *g,
                         const wave *w)
{
    __local storage_bits *own = g->results + block % RESULTS * RESULT_SIZE;
    make_results(sums, own, g->added, &g->at, w);
    WAVE_SYNC();
    store_results(own, row, g, w);
}

/* ---- What comes ---- */

/* The columns' part of W, and their bias, which stay. */
INLINE void fetch_columns(const resident_group *g,
                          __global const storage *weight,
                          __global const storage *bias)
{
    const linear_args *args = g->args;
    const source from = {.rows = weight,
                         .stride = args->weight_stride,
                         .count = (int)g->columns,
                         .wide = (args->flags & LINEAR_WIDE_WEIGHT) != 0};
    UNROLL_FOR (int s = 0; s < WEIGHT_STAGES; s++)
        copy_chunks(g->kept + s * W_SIZE, &from, BLOCK_COLUMNS,
                    (uint)s * STAGE_DIMS, args->in, g->item);
    if (HAS_BIAS)
        NO_UNROLL_FOR (uint i = (uint)g->item; i < BLOCK_COLUMNS; i += GROUP)
            g->added[i] = i < g->columns ? LOAD(bias, i) : 0.0f;
}

/* A stage of x, and with a block's last its residuals. */
INLINE void fetch_stage(const resident_group *g, const next_stage *next)
{
    const linear_args *args = g->args;
    const source from = rows_of(g->x, next->row, args->rows, args->x_stride,
                                (args->flags & LINEAR_WIDE_X) != 0);
    copy_chunks(g->ring + next->number % STAGES * X_SIZE, &from, BLOCK_ROWS,
                next->stage * STAGE_DIMS, args->in, g->item);
    if (HAS_RESIDUAL && next->stage == WEIGHT_STAGES - 1) {
        /* what whole vectors have behind a row's end must exist */
        const int wide =
            (args->flags & LINEAR_WIDE_OUT) != 0 && args->out % CHUNK == 0;
        const source rest = rows_of(g->residual, next->row, args->rows,
                                    args->residual_stride, wide);
        copy_residual(g->results + next->block % 2 * RESULT_SIZE, &rest,
                      g->columns, g->item);
    }
}

LINEAR_KERNEL(GROUP)
WAVE_ATTRIBUTE void JOIN(linear_resident_matrix_, UNIT_NAME)(LINEAR_PARAMETERS)
{
    __local uint4 places[RESIDENT_BYTES / CHUNK_BYTES]
        __attribute__((aligned(128)));
    __local storage_bits *ring = (__local storage_bits *)places;
    __local storage_bits *kept = ring + STAGES * X_SIZE;
    __local storage_bits *results = kept + WEIGHT_STAGES * W_SIZE;
    const int item = (int)get_local_id(0);
    const wave own_wave = {.lane = item % WAVE};
    const wave *w = &own_wave;
    const uint column_blocks =
        (args.out + BLOCK_COLUMNS - 1) / (uint)BLOCK_COLUMNS;
    const uint group = (uint)get_group_id(0);
    const uint first_column = group % column_blocks * BLOCK_COLUMNS;
    START_TENSORS
    const resident_group own = {
        .args = &args,
        .x = x,
        .residual = residual + first_column,
        .y = (__global storage_bits *)y + first_column,
        .columns = min(args.out - first_column, (uint)BLOCK_COLUMNS),
        .step = (ulong)((uint)get_num_groups(0) / column_blocks) * BLOCK_ROWS,
        .ring = ring,
        .kept = kept,
        .results = results,
        .added = (__local float *)(results + RESULTS * RESULT_SIZE),
        .at = place_of(item / WAVE),
        .item = item};
    fetch_columns(&own, weight + (ulong)first_column * args.weight_stride,
                  bias + first_column);

    float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE];
    ulong row = args.first_row + (ulong)(group / column_blocks) * BLOCK_ROWS;
    next_stage next = {.row = row};
    uint number = 0, block = 0;
    int stage = -AHEAD; /* those that come before the first is computed from */
    NO_UNROLL_FOR (; row < args.rows; number += stage >= 0, stage++) {
        if (stage == WEIGHT_STAGES)
            stage = 0;
        if (stage >= 0) {
            AWAIT_COPIES(AHEAD - 1);
            barrier(STAGE_FENCE);
        }
        if (next.row < args.rows) {
            fetch_stage(&own, &next);
            next = go_on(next, own.step);
        }
        END_COPIES();
        if (stage == 0)
            clear_sums(sums);
        if (stage >= 0)
            multiply_stage(sums, ring + number % STAGES * X_SIZE,
                           kept + stage * W_SIZE, 0, &own.at, w);
        if (stage == WEIGHT_STAGES - 1) {
            finish_block(sums, block++, row, &own, w);
            row += own.step;
        }
    }
    AWAIT_COPIES(0);
}
