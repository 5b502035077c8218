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

/* The stage that is to be copied next. */
typedef struct next_stage {
    ulong row; /* the block's first */
    uint stage;
    uint number; /* counted from the work-group's first on */
    uint block;
} next_stage;

/* step: rows from one of the work-group's blocks to the next. */
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

/* A wave's results leave, in whole vectors where that may be. y: the block's
 * first row and column; rows, columns: those that exist from there on. */
INLINE void store_results(__local const storage_bits *results,
                          __global storage_bits *y, uint stride, int rows,
                          uint columns, int wide, const wave_place *at,
                          const wave *w)
{
    int lane = w->lane; /* or addresses take registers all along */
    HIDE_FROM_OPTIMIZER(lane);
    UNROLL_FOR (int t = 0; t < OUT_TURNS; t++) {
        const int i = t * WAVE + lane;
        const int row = at->row + i / OUT_CHUNKS;
        const uint column = (uint)at->column + i % OUT_CHUNKS * CHUNK;
        __local const storage_bits *from =
            results + swizzled_offset(row, (int)column, RESULT_PITCH);
        __global storage_bits *to = y + (ulong)row * stride + column;
        if (row < rows && column < columns &&
            i < ROW_TILES * TILE_M * OUT_CHUNKS) {
            if (wide && column + CHUNK <= columns)
                *(__global uint4 *)to = *(__local const uint4 *)from;
            else
                NO_UNROLL_FOR (uint e = 0; e < CHUNK && column + e < columns;
                               e++)
                    to[e] = from[e];
        }
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
    __local float *added = (__local float *)(results + RESULTS * RESULT_SIZE);
    const int item = (int)get_local_id(0);
    wave own_wave = {.lane = item % WAVE};
    const wave *w = &own_wave;
    const wave_place at = place_of(item / WAVE);
    const uint column_blocks =
        (args.out + BLOCK_COLUMNS - 1) / (uint)BLOCK_COLUMNS;
    const uint group = (uint)get_group_id(0);
    const uint first_column = group % column_blocks * BLOCK_COLUMNS;
    const uint columns = min(args.out - first_column, (uint)BLOCK_COLUMNS);
    /* rows from one of the work-group's blocks to the next */
    const ulong step =
        (ulong)((uint)get_num_groups(0) / column_blocks) * BLOCK_ROWS;
    const ulong first_row =
        args.first_row + (ulong)(group / column_blocks) * BLOCK_ROWS;
    const int wide_x = (args.flags & LINEAR_WIDE_X) != 0;
    const int wide_out = (args.flags & LINEAR_WIDE_OUT) != 0;
    START_TENSORS
    const source from_w = {.rows = weight +
                                   (ulong)first_column * args.weight_stride,
                           .stride = args.weight_stride,
                           .count = (int)columns,
                           .wide = (args.flags & LINEAR_WIDE_WEIGHT) != 0};
    UNROLL_FOR (int s = 0; s < WEIGHT_STAGES; s++)
        copy_chunks(kept + s * W_SIZE, &from_w, BLOCK_COLUMNS,
                    (uint)s * STAGE_DIMS, args.in, item);
    if (HAS_BIAS)
        NO_UNROLL_FOR (uint i = (uint)item; i < BLOCK_COLUMNS; i += GROUP)
            added[i] = i < columns ? LOAD(bias, first_column + i) : 0.0f;

    float sums[ROW_TILES][COLUMN_TILES][ACC_PER_LANE];
    next_stage next = {.row = first_row};
    uint number = 0, block = 0;
    ulong row = first_row;
    int stage = -AHEAD; /* those that come before the first is computed from */
    NO_UNROLL_FOR (; row < args.rows; number += stage >= 0, stage++) {
        if (stage == WEIGHT_STAGES)
            stage = 0;
        if (stage >= 0) {
            AWAIT_COPIES(AHEAD - 1);
            barrier(STAGE_FENCE);
        }
        if (next.row < args.rows) {
            const source from_x =
                rows_of(x, next.row, args.rows, args.x_stride, wide_x);
            copy_chunks(ring + next.number % STAGES * X_SIZE, &from_x,
                        BLOCK_ROWS, next.stage * STAGE_DIMS, args.in, item);
            if (HAS_RESIDUAL && next.stage == WEIGHT_STAGES - 1) {
                /* what whole vectors have behind a row's end must exist */
                const source rest = rows_of(residual + first_column, next.row,
                                            args.rows, args.residual_stride,
                                            wide_out && args.out % CHUNK == 0);
                copy_residual(results + next.block % 2 * RESULT_SIZE, &rest,
                              columns, item);
            }
            next = go_on(next, step);
        }
        END_COPIES();
        if (stage == 0)
            clear_sums(sums);
        if (stage >= 0)
            multiply_stage(sums, ring + number % STAGES * X_SIZE,
                           kept + stage * W_SIZE, &at, w);
        if (stage == WEIGHT_STAGES - 1) {
            __local storage_bits *own =
                results + block % RESULTS * RESULT_SIZE;
            make_results(sums, own, added, &at, w);
            WAVE_SYNC();
            store_results(own,
                          (__global storage_bits *)y + row * args.y_stride +
                              first_column,
                          args.y_stride,
                          (int)min(args.rows - row, (ulong)BLOCK_ROWS),
                          columns, wide_out, &at, w);
            block++;
            row += step;
        }
    }
    AWAIT_COPIES(0);
}
