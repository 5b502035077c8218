/* SPDX-License-Identifier: Apache-2.0
 * Parts of matrices in local memory: a team copies rows there as fp32, finds
 * their norms, and multiplies rows of two of them in register tiles. */
#include "local/token_rows.cl"

/* Loops over single elements, in place of wide accesses. Unrolled, such a loop
 * needs registers that AMD's kernels, and those whose sums live through a
 * copy, do not have, and few tensors take it where wide accesses are possible.
 */
#if WIDE && (SUMS_STAY || defined(__AMDGCN__))
#define NARROW_FOR NO_UNROLL_FOR
#else
#define NARROW_FOR for
#endif

/* Rows of a matrix on their way to local memory, as fp32: those from `first`
 * on, of which `count` exist and become `rows`, filled up with zeros. */
typedef struct staged_rows {
    const token_rows *matrix;
    uint first;
    int count, rows;
    float factor;                 /* of all, */
    __local const float *factors; /* where given, of each, too */
    int wide;
} staged_rows;

/* What a staged row is multiplied by. */
INLINE float row_factor(const staged_rows *from, int row)
{
    return SCALES_ROWS && from->factors ? from->factors[row] * from->factor
                                        : from->factor;
}

/* An aligned access to global memory, and the same elements as fp32. */
#if WIDE == 8
typedef float8 wide_quads;
#define load_wide load8_aligned
INLINE void store_staged(float8 x, __local float4 *to)
{
    to[0] = x.lo;
    to[1] = x.hi;
}
#elif WIDE
typedef float4 wide_quads;
#define load_wide load4_aligned
INLINE void store_staged(float4 x, __local float4 *to) { to[0] = x; }
#endif

#if WIDE
/* A work-item keeps its columns and steps down the rows. */
#define STAGE_ACROSS (STAGE_DIMS / WIDE)
#define STAGE_DOWN (TEAM / STAGE_ACROSS)
#define STAGE_ROW(lane) ((lane) / STAGE_ACROSS)
#define STAGE_COLUMN(lane) ((lane) % STAGE_ACROSS * WIDE)

/* x[i] = row `row` + STAGE_DOWN * i; one access, at `channel`. */
INLINE void load_rows(wide_quads x[LOADS_AHEAD], const staged_rows *rows,
                      int row, int channel)
{
    const token_rows *matrix = rows->matrix;
    const int exist = HEAD_DIM % STAGE_DIMS == 0 || channel < HEAD_DIM
                          ? min(rows->count, rows->rows)
                          : 0;
    __global const storage *from =
        matrix->plane + (ulong)(rows->first + row) * matrix->layout->row +
        channel;
    UNROLL_FOR (int i = 0; i < LOADS_AHEAD; i++) {
        const int r = row + STAGE_DOWN * i;
        x[i] = 0.0f;
        if (r < exist) {
            if (GRID) {
                const token t = token_of(&matrix->tokens, rows->first + r);
                from = channels_of(matrix, &t, channel, 1);
            }
            if (!ARE_ZEROS(from))
                x[i] = load_wide(from);
        }
        from += (ulong)STAGE_DOWN * matrix->layout->row;
    }
}

/* What load_rows left, to the same rows of `tile`. */
INLINE void store_rows(const wide_quads x[LOADS_AHEAD], __local float4 *tile,
                       const staged_rows *rows, int row, int column)
{
    tile += row * DIM_PITCH + column / 4;
    UNROLL_FOR (int i = 0; i < LOADS_AHEAD; i++) {
        const int r = row + STAGE_DOWN * i;
        if (r < rows->rows)
            store_staged(x[i] * row_factor(rows, r),
                         tile + STAGE_DOWN * i * DIM_PITCH);
    }
}

/* What stage does, in aligned accesses. Work-items without a row leave first:
 * compilers then know which rows of the others exist, and NVIDIA's does not
 * ask for each, so that its loads are under way at once. */
INLINE void stage_wide(__local float4 *tile, const staged_rows *rows,
                       int channel, int lane)
{
    const int own_row = STAGE_ROW(lane), column = STAGE_COLUMN(lane);
    if (own_row >= STAGE_DOWN)
        return;
#if LOADS_AHEAD > 1
    for (int done = 0; done < rows->rows; done += LOADS_AHEAD * STAGE_DOWN) {
        wide_quads x[LOADS_AHEAD];
        load_rows(x, rows, done + own_row, channel + column);
        store_rows(x, tile, rows, done + own_row, column);
    }
#else
    const token_rows *matrix = rows->matrix;
    __local float4 *to = tile + own_row * DIM_PITCH + column / 4;
    __global const storage *from =
        matrix->plane + (ulong)(rows->first + own_row) * matrix->layout->row +
        (channel + column);
    const int exist = channel + column < HEAD_DIM ? rows->count : 0;
    for (int done = 0; done < rows->rows; done += STAGE_DOWN) {
        const int r = done + own_row;
        if (r < rows->rows) {
            if (GRID) {
                const token t = token_of(&matrix->tokens, rows->first + r);
                from = channels_of(matrix, &t, channel + column, 1);
            }
            const wide_quads x = r < exist && !ARE_ZEROS(from)
                                     ? load_wide(from)
                                     : (wide_quads)(0.0f);
            store_staged(x * row_factor(rows, r), to);
        }
        to += STAGE_DOWN * DIM_PITCH;
        from += (ulong)STAGE_DOWN * matrix->layout->row;
    }
#endif
}
#endif

/* Copies STAGE_DIMS channels from `channel` on. */
INLINE void stage(__local float4 *tile, const staged_rows *rows, int channel,
                  int lane)
{
    HIDE_FROM_OPTIMIZER(lane);
#if WIDE
    if (rows->wide) {
        stage_wide(tile, rows, channel, lane);
        return;
    }
#endif
    const token_rows *matrix = rows->matrix;
    __local float *scalars = (__local float *)tile;
    NARROW_FOR (int done = 0; done < rows->rows * STAGE_DIMS; done += TEAM) {
        const int r = (done + lane) / STAGE_DIMS;
        const int c = (done + lane) % STAGE_DIMS;
        float x = 0.0f;
        if (r < rows->count && channel + c < HEAD_DIM) {
            const token t = token_of(&matrix->tokens, rows->first + r);
            __global const storage *from =
                channels_of(matrix, &t, channel + c, matrix->layout->column);
            if (!ARE_ZEROS(from))
                x = LOAD(from, 0) * row_factor(rows, r);
        }
        if (r < rows->rows)
            scalars[r * DIM_PITCH * 4 + c] = x;
    }
}

/* Adds the squares of staged rows; after the last channels the sum becomes
 * factor / norm. */
INLINE void accumulate_norms(__local float *norms, __local const float4 *tile,
                             int rows, float factor, int channel, int lane)
{
    for (int done = 0; VARIANT == COSINE && done < rows; done += TEAM) {
        const int r = done + lane;
        if (r >= rows)
            continue;
        float4 squares = (float4)(0.0f);
        for (int c = 0; c < STAGE_QUADS; c++) {
            const float4 x = tile[r * DIM_PITCH + c];
            squares = FMA(x, x, squares);
        }
        float sum = (squares.x + squares.y) + (squares.z + squares.w);
        if (channel > 0)
            sum += norms[r];
        norms[r] =
            channel + STAGE_DIMS < HEAD_DIM ? sum : factor * inverse_norm(sum);
    }
}

INLINE void clear_tile(float tile[SCORE_ROWS][SCORE_COLS])
{
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            tile[i][j] = 0.0f;
}

/* Numbers of a tile's rows or keys, own + step * i of those from `first` on.
 * Unless `all` are there, those past the last have the last one's. */
INLINE void number_entries(int *numbers, const int count, uint first, int own,
                           const int step, int last, const int all)
{
    UNROLL_FOR (int i = 0; i < count; i++)
        numbers[i] =
            (int)first + (all ? own + step * i : min(own + step * i, last));
}

/* sums[i][j] += the product of rows row + ROW_TILES * i of one staged matrix
 * and col + col_tiles * j of another. */
INLINE void multiply_rows(float sums[SCORE_ROWS][SCORE_COLS],
                          __local const float4 *rows,
                          __local const float4 *cols, int row, int col,
                          const int col_tiles)
{
    NO_UNROLL_FOR (int c = 0; c < STAGE_QUADS; c++) {
        float4 x[SCORE_ROWS];
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
            x[i] = rows[(row + ROW_TILES * i) * DIM_PITCH + c];
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
            const float4 y = cols[(col + col_tiles * j) * DIM_PITCH + c];
            UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
                sums[i][j] = FMA(x[i].x, y.x, sums[i][j]);
                sums[i][j] = FMA(x[i].y, y.y, sums[i][j]);
                sums[i][j] = FMA(x[i].z, y.z, sums[i][j]);
                sums[i][j] = FMA(x[i].w, y.w, sums[i][j]);
            }
        }
    }
}
