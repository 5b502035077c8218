/* SPDX-License-Identifier: Apache-2.0
 * A linear layer on a CPU: a work-item makes BLOCK_ROWS x BLOCK_COLUMNS of y,
 * STAGE_DIMS numbers of each row at a time. These it copies, in fp32: rows of
 * x as they are and a panel of columns, which are rows of W, transposed. A
 * tile of TILE_ROWS x TILE_VECS vectors of sums stays in registers.
 *
 *                 panel [STAGE_DIMS][TILE_VECS vectors]
 *                +-----+
 *                |     |
 *     +-------+  +-----+
 *     | x     |  | sum |  TILE_ROWS
 *     +-------+  +-----+
 *
 * BLOCK_ROWS is a multiple of TILE_ROWS, BLOCK_COLUMNS of a panel's columns,
 * STAGE_DIMS of LANES. */
#include "cpu/vectors.cl"
#include "models/linear.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(BLOCK_COLUMNS)
REQUIRE(TILE_ROWS)
REQUIRE(TILE_VECS)
REQUIRE(STAGE_DIMS)

#define PANEL (TILE_VECS * LANES)
#define PANELS (BLOCK_COLUMNS / PANEL)
#define STAGE_VECS (STAGE_DIMS / LANES)

/* exp(x) for x <= 0, or NaN: 2^n 2^f with f in [-1/2, 1/2], whose polynomial
 * has minimal relative error (fitted for this file, 1e-7); 0 where the result
 * is no normal number. */
INLINE vec exp_negative(vec x)
{
    const vec magic = (vec)(12582912.0f); /* rounds to an integer */
    const vec scaled = x * 1.44269504f;
    const vec clipped = scaled < -126.0f ? (vec)(-126.0f) : scaled;
    const vec n = (clipped + magic) - magic;
    const vec f = clipped - n;
    vec p = (vec)(0.00132764643f);
    p = FMA(p, f, (vec)(0.00967554096f));
    p = FMA(p, f, (vec)(0.0555071346f));
    p = FMA(p, f, (vec)(0.240221202f));
    p = FMA(p, f, (vec)(0.693146944f));
    p = FMA(p, f, (vec)(1.00000012f));
    const ivec exponent = (JOIN(convert_int, LANES)(n) + 127) << 23;
    return scaled < -126.0f ? (vec)(0.0f)
                            : p * JOIN(as_float, LANES)(exponent);
}
INLINE vec gelu_end_vec(vec a) { return a > GELU_END ? (vec)(GELU_END) : a; }
INLINE vec gelu_positive_vec(vec x) { return x > 0.0f ? x : (vec)(0.0f); }
DEFINE_GELU(vec, gelu_vec, gelu_end_vec, gelu_positive_vec, exp_negative)

/* LANES neighbours from column `k` of a row on; zeros behind the last. */
INLINE vec load_some(__global const storage *row, uint k, uint in)
{
    float some[LANES];
    if (k + LANES <= in)
        return LOAD_VECTOR(LANES)(row + k);
    for (uint i = 0; i < LANES; i++)
        some[i] = k + i < in ? LOAD(row, k + i) : 0.0f;
    return vec_at(some, 0);
}

/* A block's rows, from number `k` of each on; what is behind the last is it.
 */
INLINE void copy_rows(float xs[BLOCK_ROWS][STAGE_DIMS],
                      __global const storage *x, ulong first, uint k,
                      const linear_args *args)
{
    for (int r = 0; r < BLOCK_ROWS; r++) {
        const ulong row = min(first + r, args->rows - 1);
        for (uint v = 0; v < STAGE_VECS; v++) {
            const uint at = k + v * LANES;
            set_vec(xs[r], v,
                    load_some(x + row * args->x_stride, at, args->in));
        }
    }
}

/* LANES rows of W, from `column` and number `k` on, as columns of the panel.
 */
INLINE void fill_panel(vec (*panel)[TILE_VECS], const int at,
                       __global const storage *weight, uint column, uint k,
                       const linear_args *args)
{
    vec t[LANES];
    UNROLL_FOR (uint i = 0; i < LANES; i++)
        t[i] = load_some(weight + (ulong)min(column + i, args->out - 1) *
                                      args->weight_stride,
                         k, args->in);
    transpose(t);
    UNROLL_FOR (int i = 0; i < LANES; i++)
        panel[i][at] = t[i];
}

/* sums += products of a tile of rows with the panel. */
INLINE void multiply(vec sums[TILE_ROWS][TILE_VECS],
                     float xs[TILE_ROWS][STAGE_DIMS],
                     vec panel[STAGE_DIMS][TILE_VECS])
{
    vec tile[TILE_ROWS][TILE_VECS];
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int v = 0; v < TILE_VECS; v++)
            tile[r][v] = sums[r][v];
    for (int k = 0; k < STAGE_DIMS; k++)
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
            UNROLL_FOR (int v = 0; v < TILE_VECS; v++)
                tile[r][v] = FMA((vec)(xs[r][k]), panel[k][v], tile[r][v]);
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int v = 0; v < TILE_VECS; v++)
            sums[r][v] = tile[r][v];
}

/* A vector of the result. */
INLINE void finish(vec sum, ulong row, uint column, const linear_result *to)
{
    const uint out = to->args->out;
    if (column + LANES > out) {
        float some[LANES];
        set_vec(some, 0, sum);
        for (uint i = 0; i < LANES && column + i < out; i++)
            finish_element(some[i], row, column + i, to);
        return;
    }
    if (HAS_BIAS)
        sum += LOAD_VECTOR(LANES)(to->bias + column);
    if (ACTIVATION == 1)
        sum = gelu_vec(sum);
    if (HAS_RESIDUAL)
        sum += LOAD_VECTOR(LANES)(residual_at(to, row, column));
    STORE_VECTOR(LANES)(sum, result_at(to, row, column));
}

LINEAR_KERNEL(1) void linear_cpu(LINEAR_PARAMETERS)
{
    float xs[BLOCK_ROWS][STAGE_DIMS] __attribute__((aligned(64)));
    vec panel[STAGE_DIMS][TILE_VECS];
    vec sums[PANELS][BLOCK_ROWS][TILE_VECS];
    const uint column_blocks =
        (args.out + BLOCK_COLUMNS - 1) / (uint)BLOCK_COLUMNS;
    const uint block = (uint)get_group_id(0);
    const ulong first_row =
        args.first_row + (ulong)(block / column_blocks) * BLOCK_ROWS;
    const uint first_column = block % column_blocks * BLOCK_COLUMNS;
    const int rows = (int)min(args.rows - first_row, (ulong)BLOCK_ROWS);
    const int panels =
        (int)min((args.out - first_column + PANEL - 1) / PANEL, (uint)PANELS);
    START_TENSORS
    const linear_result to = {&args, bias, residual, y};

    for (int p = 0; p < panels; p++)
        for (int r = 0; r < BLOCK_ROWS; r++)
            for (int v = 0; v < TILE_VECS; v++)
                sums[p][r][v] = (vec)(0.0f);
    for (uint k = 0; k < args.in; k += STAGE_DIMS) {
        copy_rows(xs, x, first_row, k, &args);
        for (int p = 0; p < panels; p++) {
            const uint column = first_column + p * PANEL;
            for (int i = 0; i < STAGE_DIMS; i += LANES)
                for (int v = 0; v < TILE_VECS; v++)
                    fill_panel(panel + i, v, weight, column + v * LANES, k + i,
                               &args);
            for (int r = 0; r < rows; r += TILE_ROWS)
                multiply(sums[p] + r, xs + r, panel);
        }
    }
    for (int p = 0; p < panels; p++)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < TILE_VECS; v++) {
                const uint column = first_column + p * PANEL + v * LANES;
                if (column < args.out)
                    finish(sums[p][r][v], first_row + r, column, &to);
            }
}
