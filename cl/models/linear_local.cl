/* SPDX-License-Identifier: Apache-2.0
 * A linear layer on any GPU: a work-group has BLOCK_ROWS x BLOCK_COLUMNS of y,
 * a work-item ITEM_ROWS x ITEM_COLUMNS of these in registers. STAGE_DIMS
 * numbers of each row of x and of W are in local memory at a time, in fp32 and
 * transposed; those of the next stage are on their way to registers meanwhile.
 *
 *          BLOCK_COLUMNS                    stage of W [STAGE_DIMS][columns]
 *         +-----------------+
 *         | 0 1 2 3 0 1 2 3 |   work-items have every fourth quad of
 *         |                 |   columns, and of rows, so that neighbours
 *         +-----------------+   read neighbours
 *
 * In fp32 sums are of products of what was stored. */
#include "models/linear.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(BLOCK_COLUMNS)
REQUIRE(ITEM_ROWS)
REQUIRE(ITEM_COLUMNS)
REQUIRE(STAGE_DIMS)
REQUIRE(SUB_GROUP)

DEFINE_VECTOR_ACCESS(4)

/* Intel's compiler runs out of registers where it sees a whole stage. */
#if SUB_GROUP
#define STAGE_FOR NO_UNROLL_FOR
#else
#define STAGE_FOR UNROLL_FOR
#endif

#define ROW_QUADS (ITEM_ROWS / 4)
#define COLUMN_QUADS (ITEM_COLUMNS / 4)
#define ITEM_LINES (BLOCK_ROWS / ITEM_ROWS)        /* work-items down, */
#define ITEM_STACKS (BLOCK_COLUMNS / ITEM_COLUMNS) /* and across */
#define GROUP (ITEM_LINES * ITEM_STACKS)
/* quads of a row that are in a stage, and those that a work-item moves */
#define STAGE_QUADS (STAGE_DIMS / 4)
#define X_TURNS ((BLOCK_ROWS * STAGE_QUADS + GROUP - 1) / GROUP)
#define W_TURNS ((BLOCK_COLUMNS * STAGE_QUADS + GROUP - 1) / GROUP)
#define X_PITCH (BLOCK_ROWS + 4)
#define W_PITCH (BLOCK_COLUMNS + 4)

/* Four neighbours; wide: at an address that is a multiple of their bytes. */
INLINE float4 load_neighbours(__global const storage *from, int wide)
{
    if (!wide)
        return LOAD_VECTOR(4)(from);
#if DTYPE == 0
    return *(__global const float4 *)from;
#else
    const uint2 pairs = *(__global const uint2 *)from;
#if DTYPE == 1
    return vload_half4(0, (const half *)&pairs);
#else
    return widen_bf16(pairs);
#endif
#endif
}

/* The same from column `k` of a row on; zeros behind the last. */
INLINE float4 load_quad(__global const storage *row, uint k, uint in, int wide)
{
    if (k + 4 <= in)
        return load_neighbours(row + k, wide);
    return (float4)(k < in ? LOAD(row, k) : 0.0f,
                    k + 1 < in ? LOAD(row, k + 1) : 0.0f,
                    k + 2 < in ? LOAD(row, k + 2) : 0.0f, 0.0f);
}

/* Where a work-item's quad of a turn is: its row in the block, its first
 * number in the stage. */
INLINE int quad_row(int item, int turn)
{
    return (turn * GROUP + item) / STAGE_QUADS;
}
INLINE int quad_number(int item, int turn)
{
    return (turn * GROUP + item) % STAGE_QUADS * 4;
}

/* Rows of a matrix, of which the work-group takes some from `first` on. */
typedef struct source {
    __global const storage *matrix;
    ulong first, rows;
    uint stride;
    int wide;
} source;

/* Quads of `block` of them. Rows behind the last are the last. */
INLINE void fetch(float4 *quads, const int turns, const int block,
                  const source *from, uint k, uint in, int item)
{
    UNROLL_FOR (int t = 0; t < turns; t++) {
        const ulong row = min(from->first + quad_row(item, t), from->rows - 1);
        if (block * STAGE_QUADS % GROUP == 0 || quad_row(item, t) < block)
            quads[t] = load_quad(from->matrix + row * from->stride,
                                 k + quad_number(item, t), in, from->wide);
    }
}

/* Quads go to a stage in local memory. */
INLINE void keep(__local float *stage, const int pitch, const float4 *quads,
                 const int turns, const int block, int item)
{
    UNROLL_FOR (int t = 0; t < turns; t++) {
        const int row = quad_row(item, t);
        __local float *to = stage + quad_number(item, t) * pitch + row;
        if (block * STAGE_QUADS % GROUP == 0 || row < block) {
            to[0] = quads[t].x;
            to[pitch] = quads[t].y;
            to[2 * pitch] = quads[t].z;
            to[3 * pitch] = quads[t].w;
        }
    }
}

/* sums += a stage's products. */
INLINE void multiply(float sums[ITEM_ROWS][ITEM_COLUMNS],
                     __local const float *xs, __local const float *ws,
                     int line, int stack)
{
    STAGE_FOR (int k = 0; k < STAGE_DIMS; k++) {
        float row[ITEM_ROWS], column[ITEM_COLUMNS];
        UNROLL_FOR (int q = 0; q < ROW_QUADS; q++)
            vstore4(*(__local const float4 *)(xs + k * X_PITCH +
                                              (q * ITEM_LINES + line) * 4),
                    q, row);
        UNROLL_FOR (int q = 0; q < COLUMN_QUADS; q++)
            vstore4(*(__local const float4 *)(ws + k * W_PITCH +
                                              (q * ITEM_STACKS + stack) * 4),
                    q, column);
        UNROLL_FOR (int r = 0; r < ITEM_ROWS; r++)
            UNROLL_FOR (int c = 0; c < ITEM_COLUMNS; c++)
                sums[r][c] = FMA(row[r], column[c], sums[r][c]);
    }
}

/* Four neighbours of the result. */
INLINE void finish_quad(const float *sums, ulong row, uint column,
                        const linear_result *to)
{
    const linear_args *args = to->args;
    if ((args->flags & LINEAR_WIDE_OUT) == 0 || column + 4 > args->out) {
        UNROLL_FOR (int i = 0; i < 4; i++)
            if (column + i < args->out)
                finish_element(sums[i], row, column + i, to);
        return;
    }
    float4 x = vload4(0, sums);
    if (HAS_BIAS)
        x += load_neighbours(to->bias + column, 1);
    x = (float4)(activate(x.x), activate(x.y), activate(x.z), activate(x.w));
    if (HAS_RESIDUAL)
        x += load_neighbours(residual_at(to, row, column), 1);
    if (DTYPE == 0)
        *(__global float4 *)result_at(to, row, column) = x;
    else
        STORE_VECTOR(4)(x, result_at(to, row, column));
}

LINEAR_KERNEL(GROUP) SUB_GROUP_SIZE void linear_local(LINEAR_PARAMETERS)
{
    __local float xs[STAGE_DIMS * X_PITCH] __attribute__((aligned(16)));
    __local float ws[STAGE_DIMS * W_PITCH] __attribute__((aligned(16)));
    const int item = (int)get_local_id(0);
    const int line = item / ITEM_STACKS, stack = item % ITEM_STACKS;
    const uint column_blocks =
        (args.out + BLOCK_COLUMNS - 1) / (uint)BLOCK_COLUMNS;
    const uint block = (uint)get_group_id(0);
    const ulong first_row =
        args.first_row + (ulong)(block / column_blocks) * BLOCK_ROWS;
    const uint first_column = block % column_blocks * BLOCK_COLUMNS;
    START_TENSORS
    const source from_x = {x, first_row, args.rows, args.x_stride,
                           (args.flags & LINEAR_WIDE_X) != 0};
    const source from_w = {weight, first_column, args.out, args.weight_stride,
                           (args.flags & LINEAR_WIDE_WEIGHT) != 0};
    const linear_result to = {&args, bias, residual, y};

    float sums[ITEM_ROWS][ITEM_COLUMNS];
    float4 x_quads[X_TURNS], w_quads[W_TURNS];
    UNROLL_FOR (int r = 0; r < ITEM_ROWS; r++)
        UNROLL_FOR (int c = 0; c < ITEM_COLUMNS; c++)
            sums[r][c] = 0.0f;
    fetch(x_quads, X_TURNS, BLOCK_ROWS, &from_x, 0, args.in, item);
    fetch(w_quads, W_TURNS, BLOCK_COLUMNS, &from_w, 0, args.in, item);
    for (uint k = 0; k < args.in; k += STAGE_DIMS) {
        barrier(CLK_LOCAL_MEM_FENCE); /* the last stage was read */
        keep(xs, X_PITCH, x_quads, X_TURNS, BLOCK_ROWS, item);
        keep(ws, W_PITCH, w_quads, W_TURNS, BLOCK_COLUMNS, item);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k + STAGE_DIMS < args.in) {
            fetch(x_quads, X_TURNS, BLOCK_ROWS, &from_x, k + STAGE_DIMS,
                  args.in, item);
            fetch(w_quads, W_TURNS, BLOCK_COLUMNS, &from_w, k + STAGE_DIMS,
                  args.in, item);
        }
        multiply(sums, xs, ws, line, stack);
    }
    UNROLL_FOR (int r = 0; r < ITEM_ROWS; r++) {
        const ulong row = first_row + (r / 4 * ITEM_LINES + line) * 4 + r % 4;
        UNROLL_FOR (int q = 0; q < COLUMN_QUADS; q++) {
            const uint column = first_column + (q * ITEM_STACKS + stack) * 4;
            if (row < args.rows && column < args.out)
                finish_quad(sums[r] + 4 * q, row, column, &to);
        }
    }
}
