/* SPDX-License-Identifier: Apache-2.0
 * The ring of copies: how rows of q, k and v (backward also dO) of the windows
 * to come travel to local memory while waves compute. Kernels say what a step
 * copies, by copy_rows or by find_copies and copy_found. Reads STAGES and the
 * layout of a stage (geometry.cl). */
#include "matrix/geometry.cl"

/* Work-items that copy a tensor's rows: with FUSED_GRADIENTS, each wave of
 * four has a tensor of its own where rows are short and copies asynchronous,
 * so that it makes addresses of one only; else all of the team copy each. */
#if SWIZZLES_ROWS && FUSED_GRADIENTS
#define ONE_WAVE_PER_TENSOR (WAVES_PER_WINDOW == 4 && HEAD_DIM <= 64)
#else
#define ONE_WAVE_PER_TENSOR 0
#endif
#define COPIERS (ONE_WAVE_PER_TENSOR ? WAVE : TEAM)
/* Groups of copies that a wave starts between those of steps: with
 * FUSED_GRADIENTS, o of its own rows, where that saves a loop over keys and
 * output staging have room for it. */
#if FUSED_GRADIENTS
#define LATE_COPIES                                                           \
    (SUBTILES > 1 && DIM_TILES == OUT_TILES && TILE_M % TILE_N == 0)
#else
#define LATE_COPIES 0
#endif
/* Lanes of them that share a row, each with one chunk of it or, where they
 * are fewer, with every ROW_LANES-th; rows that they copy at once. */
#define ROW_LANES (!CHUNKS ? 1 : CHUNKS < COPIERS ? CHUNKS : COPIERS)
#define ROWS_AT_ONCE (COPIERS / ROW_LANES)
#define COPIES ((COPIERS % ROW_LANES == 0) | (lane / ROW_LANES < ROWS_AT_ONCE))

/* How far a lane's chunk of the first rows that a team copies is from the
 * first row's start, in a plane without a grid. */
INLINE ulong chunk_of(const tensor_layout *layout, int lane)
{
    return CHUNKS ? (ulong)(lane / ROW_LANES) * layout->row +
                        lane % ROW_LANES * CHUNK
                  : 0;
}

/* The channels of tokens of the padding, of k and of v, wait in local memory:
 * all compute units at once would get them slowly from the few lines that they
 * have in global memory. */
#if PADDING == 1
#define DECLARE_PADS(pads) __local uint4 pads[2][DIMS / CHUNK];
#define KEPT_PAD(pads, i) ((__local const storage_bits *)(pads)[i])
#else
#define DECLARE_PADS(pads) __local uint4(*pads)[DIMS / CHUNK] = 0;
#define KEPT_PAD(pads, i) 0
#endif
INLINE void keep_pad(__local void *to, __global const storage *pad,
                     uint column, int item)
{
    for (int c = item; c < HEAD_DIM; c += TEAM * WINDOWS_PER_GROUP)
        ((__local storage_bits *)to)[c] =
            pad ? ((__global const storage_bits *)pad)[(ulong)c * column]
                : (storage_bits)0;
}
/* k and v: the channels, NULL for zeros. Holds a barrier of the work-group. */
INLINE void keep_pads(__local uint4 (*pads)[DIMS / CHUNK],
                      __global const storage *k, __global const storage *v,
                      const forward_args *args, int item)
{
    keep_pad(pads[0], k, args->pad_k.column, item);
    keep_pad(pads[1], v, args->pad_v.column, item);
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Among offsets: of a token of the padding. */
#define PADDED (~0u)
#define IS_PADDED(at) (PADDING && (at) == PADDED)
/* From where it is copied: no byte, and yet an instruction that copies 16
 * wants a multiple of 16 for an address. */
#define COPIED_FROM(at) (PADDING ? (at) & ~(CHUNK - 1u) : (at))

/* Where chunk `i` of a window's rows is, counted from row `first` on, of which
 * each has row_chunks. */
INLINE plane_offset find_chunk(const tensor_layout *layout,
                               const grid_layout *grid,
                               const window_coord *coord, uint first,
                               const int row_chunks, uint i)
{
    const token t = find_token(grid, coord, first + i / row_chunks);
    return EXISTS(t) ? token_offset(layout, &t) + i % row_chunks * CHUNK
                     : PADDED;
}

/* Where the chunks are that a lane copies of `rows` rows. */
#define COPY_TURNS(rows) CEIL_DIV(rows, ROWS_AT_ONCE)
INLINE void find_copies(plane_offset *at, const tensor_layout *layout,
                        const grid_layout *grid, const window_coord *coord,
                        uint first, const int rows, int lane)
{
    UNROLL_FOR (int turn = 0; turn < COPY_TURNS(rows); turn++)
        at[turn] = find_chunk(layout, grid, coord, first, ROW_LANES,
                              turn * ROWS_AT_ONCE * ROW_LANES + lane);
}

/* Rows of a plane that a lane of a team helps to copy: first .. first + count
 * of the window at coord. */
typedef struct plane_rows {
    __global const storage *plane;
    const tensor_layout *layout;
    const grid_layout *grid;
    const window_coord *coord;
    __local const storage_bits *pad; /* a row of the padding; NULL: zeros */
    ulong chunk;                     /* see chunk_of */
    uint first;
    int count;
    int lane;
    int wide; /* in chunks */
} plane_rows;

/* Copies rows whose chunks are `at` from their plane, or where that is NULL
 * follow each other in it; zeros fill `rows` rows, and those of the padding
 * unless these are given. has_padding 0: there are none of these; is_whole:
 * count is `rows`, which saves asking. */
INLINE void copy_found(__local storage_bits *to, const plane_rows *x,
                       const plane_offset *at, const int has_padding,
                       const int is_whole, const int rows)
{
    const int lane = x->lane;
    __local const storage_bits *pad = x->pad;
    __global const storage *from = x->plane;
    if (!at)
        from += element(x->layout, x->first, 0) + x->chunk;
    HIDE_PLANE(from);
    const int r = lane / ROW_LANES;
    const int c = lane % ROW_LANES;
    __local const uint4 *pads = (__local const uint4 *)pad + c;
    UNROLL_FOR (int turn = 0; turn < COPY_TURNS(rows); turn++) {
        const int done = turn * ROWS_AT_ONCE;
        const int exists = is_whole | (done + r < x->count);
        const int padded = at && has_padding && IS_PADDED(at[turn]);
        /* & and no &&: copies are not to lie in branches */
        const int is_row =
            COPIES & ((done + ROWS_AT_ONCE <= rows) | (done + r < rows));
        UNROLL_FOR (int i = 0; i < CHUNKS; i += ROW_LANES) {
            const int wanted =
                is_row & ((CHUNKS % ROW_LANES == 0) | (c + i < CHUNKS));
            /* eight rows on, chunks have the same order: places of all turns
             * are constants from that of the first */
            const int alike = ROWS_AT_ONCE % 8 == 0;
            int own = swizzled_offset((alike ? 0 : done) + r, (c + i) * CHUNK,
                                      PITCH);
            if (ONE_WAVE_PER_TENSOR && alike)
                HIDE_FROM_OPTIMIZER(own);
            __local storage_bits *here = to + own + (alike ? done : 0) * PITCH;
            if (pad && exists && padded && wanted)
                *(__local uint4 *)here = pads[i];
            else
                copy_16(here,
                        from + (at ? COPIED_FROM(at[turn]) : 0) + i * CHUNK,
                        exists & !padded, wanted);
        }
        if (!at)
            from += (ulong)ROWS_AT_ONCE * x->layout->row;
    }
}

/* Where rows are no whole chunks, they may be whole words, which are copied as
 * chunks are: asynchronously, and few. */
#define ROW_WORDS                                                             \
    (!CHUNKS && HEAD_DIM % WORD_ELEMENTS == 0 ? HEAD_DIM / WORD_ELEMENTS : 0)
/* Lanes that share a row: a power of 2, each with the same channels of all its
 * rows. */
#define LANES_FOR(words)                                                      \
    ((words) > 16 ? 32 : (words) > 8 ? 16 : (words) > 4 ? 8 : 4)
#define WORD_LANES (LANES_FOR(ROW_WORDS) < WAVE ? LANES_FOR(ROW_WORDS) : WAVE)

/* Do all rows of a plane start with a word? */
INLINE int has_words(__global const storage *plane,
                     const tensor_layout *layout)
{
    const uint steps =
        GRID ? layout->row | layout->axis[0] | layout->axis[1] : layout->row;
    return ROW_WORDS && layout->column == 1 && steps % WORD_ELEMENTS == 0 &&
           (size_t)plane % 4 == 0;
}

/* copy_rows where they do. */
INLINE void copy_words(__local storage_bits *to, const plane_rows *x,
                       const int rows)
{
    const int lane = x->lane;
    __local const storage_bits *pad = x->pad;
    NO_UNROLL_FOR (int r = lane / WORD_LANES; r < rows;
                   r += COPIERS / WORD_LANES) {
        const token t =
            find_token(x->grid, x->coord, x->first + min(r, x->count - 1));
        const int exists = (r < x->count) & EXISTS(t);
        __global const storage *row =
            x->plane + (EXISTS(t) ? token_offset(x->layout, &t) : 0);
        UNROLL_FOR (int word = 0; word < ROW_WORDS; word += WORD_LANES) {
            const int c = (word + lane % WORD_LANES) * WORD_ELEMENTS;
            __local storage_bits *here = to + swizzled_offset(r, c, PITCH);
            if (ROW_WORDS % WORD_LANES != 0 && c >= HEAD_DIM)
                continue;
            if (pad && r < x->count && !exists)
                *(__local uint *)here = *(__local const uint *)(pad + c);
            else
                copy_4(here, row + c, exists);
        }
    }
}

/* Copies rows to their part of the ring; zeros fill `rows` rows, and those of
 * the padding unless these are given. */
INLINE void copy_rows(__local storage_bits *to, const plane_rows *x,
                      const int rows)
{
    if (CHUNKS && x->wide && GRID) {
        plane_offset at[COPY_TURNS(BLOCK_ROWS + BLOCK_KEYS)];
        find_copies(at, x->layout, x->grid, x->coord, x->first, rows, x->lane);
        copy_found(to, x, at, 1, 0, rows);
        return;
    }
    if (CHUNKS && x->wide) {
        copy_found(to, x, 0, 0, 0, rows);
        return;
    }
    if (has_words(x->plane, x->layout)) {
        copy_words(to, x, rows);
        return;
    }
    NO_UNROLL_FOR (int i = x->lane; i < rows * HEAD_DIM; i += COPIERS) {
        const int r = i / HEAD_DIM;
        const int c = i % HEAD_DIM;
        const token t =
            find_token(x->grid, x->coord, x->first + min(r, x->count - 1));
        const ulong at =
            token_offset(x->layout, &t) + (ulong)c * x->layout->column;
        const storage_bits padding = x->pad ? x->pad[c] : (storage_bits)0;
        to[swizzled_offset(r, c, PITCH)] =
            r >= x->count ? (storage_bits)0
            : EXISTS(t)   ? ((__global const storage_bits *)x->plane)[at]
                          : padding;
    }
}

/* Zeros where no copy writes: in channels and keys past the last. */
INLINE void clear_pads(__local storage_bits *ring, int lane)
{
    const int pads = DIMS - HEAD_DIM;
    for (int plane = 0; pads && plane < STAGES * (ROW_PLANES + 2); plane++) {
        const int n = plane % (ROW_PLANES + 2);
        const int stage = plane / (ROW_PLANES + 2);
        const int is_row = n < ROW_PLANES;
        __local storage_bits *rows =
            ring + (is_row ? stage * STAGE_SIZE + ROW_PLANE(n)
                           : KEY_STAGE(stage) + KEY_PLANE(n - ROW_PLANES));
        if (!is_row && stage >= KEY_STAGES)
            continue;
        for (int i = lane; i < (is_row ? BLOCK_M : KEY_ROWS) * pads; i += TEAM)
            rows[swizzled_offset(i / pads, HEAD_DIM + i % pads, PITCH)] = 0;
    }
    if (KEY_ROWS != BLOCK_N)
        NO_UNROLL_FOR (int i = lane; i < KEY_STAGES * 2 * HEAD_DIM; i += TEAM)
            ring[KEY_STAGE(i / (2 * HEAD_DIM)) + KEY_PLANE(i / HEAD_DIM % 2) +
                 swizzled_offset(BLOCK_N, i % HEAD_DIM, PITCH)] = 0;
}

/* Awaits a step, and that all of the team have read the one before, in whose
 * stage the copies of the last of AHEAD steps to come may start. Where there
 * is one stage, AHEAD is 0: the step itself, which await_copies awaits. */
#define AHEAD (STAGES - 1)
INLINE void await_stage(int team)
{
    if (STAGES > 1) {
        AWAIT_COPIES(STAGES - 2 + LATE_COPIES);
    }
    TEAM_SYNC(team);
}
INLINE void await_copies(int team)
{
    if (STAGES == 1) {
        AWAIT_COPIES(0);
        TEAM_SYNC(team);
    }
}
