/* SPDX-License-Identifier: Apache-2.0
 * How rows of x and of W come to the ring of linear_matrix.cl. Where copies
 * are asynchronous they go there by themselves; else rows wait in registers
 * while a stage is computed from. */
#define HEAD_DIM TILE_N /* of store_tile, which nothing calls here */
#include "unit/fragment_tiles.cl"

/* behind the unit's file, of which it takes instructions */
#include "models/linear.cl"

REQUIRE(BLOCK_ROWS)
REQUIRE(BLOCK_COLUMNS)
REQUIRE(STAGE_DIMS)
REQUIRE(STAGES)
REQUIRE(ROW_WAVES)
REQUIRE(COLUMN_WAVES)
REQUIRE(DIM_WAVES)
REQUIRE(FINDS_STATISTICS)
REQUIRE(NEIGHBOURS)

#include "models/linear_extents.h"

#define WAVES (ROW_WAVES * COLUMN_WAVES * DIM_WAVES)
#define GROUP (WAVES * WAVE)
#define AHEAD (STAGES - 1)
/* a stage is filled while another is computed from */
typedef char has_two_stages[STAGES > 1 ? 1 : -1];
#define ROW_CHUNKS (STAGE_DIMS / CHUNK)
#define TURNS(rows) (((rows)*ROW_CHUNKS + GROUP - 1) / GROUP)
#define X_TURNS TURNS(BLOCK_ROWS)
#define W_TURNS TURNS(BLOCK_COLUMNS)

/* Rows of a matrix that a block takes part of. With NEIGHBOURS a row of x is
 * four tokens of a map: one in an even line and column, the next in its
 * column, the next in its line, and that behind both. */
typedef struct source {
    __global const storage *rows; /* the block's first */
    ulong stride;                 /* of a map: of its lines */
    int count;                    /* rows that exist */
    int wide;
    uint token;  /* numbers of one; 0: this is no map */
    uint across; /* rows of a pair of its lines, */
    uint first;  /* and before the block's first */
} source;

/* `most` rows from the matrix's row `first` on, as far as it has them. */
INLINE void set_source(source *s, __global const storage *matrix, ulong first,
                       ulong all, uint stride, uint most, uint wide)
{
    s->rows = matrix + first * stride;
    s->stride = stride;
    s->count = (int)min(all - first, (ulong)most);
    s->wide = wide != 0;
    s->token = 0;
}

/* Where a work-item's chunk of a turn is. */
INLINE int turn_row(int item, int turn)
{
    return (turn * GROUP + item) / ROW_CHUNKS;
}
INLINE int turn_chunk(int item, int turn)
{
    return (turn * GROUP + item) % ROW_CHUNKS;
}

/* Rows from `first` on are those of a map (NEIGHBOURS). */
INLINE void set_neighbours(source *s, __global const storage *map, ulong first,
                           uint in)
{
    if (!NEIGHBOURS)
        return;
    s->token = in / 4;
    s->across = (uint)s->stride / (2 * s->token);
    s->first = (uint)first % s->across;
    s->rows = map + 2 * s->token * (2 * first - s->first);
}

/* What number k of a row of the block is number k of. */
INLINE __global const storage *row_at(const source *s, int row, uint k)
{
    if (!NEIGHBOURS || s->token == 0)
        return s->rows + row * s->stride;
    const uint lines = (s->first + (uint)row) / s->across;
    const uint which =
        (k >= s->token) + (k >= 2 * s->token) + (k >= 3 * s->token);
    return s->rows + 2ul * s->token * ((uint)row + lines * s->across) +
           which % 2 * s->stride - (which - which / 2) * s->token;
}

/* A chunk of a row, element by element; zeros behind the last. */
INLINE uint4 load_elements(__global const storage *row, uint k, uint in)
{
    __global const storage_bits *from = (__global const storage_bits *)row;
    uint words[4];
    UNROLL_FOR (int i = 0; i < 4; i++) {
        const uint at = k + i * WORD_ELEMENTS;
        words[i] = at < in ? from[at] : 0;
#if WORD_ELEMENTS == 2
        words[i] |= (at + 1 < in ? (uint)from[at + 1] : 0u) << 16;
#endif
    }
    return (uint4)(words[0], words[1], words[2], words[3]);
}

/* Copies chunks, from number `k` of each row on, to a stage. */
INLINE void copy_chunks(__local storage_bits *to, const source *s,
                        const int rows, uint k, uint in, int item)
{
    if (s->wide) {
        UNROLL_FOR (int t = 0; t < TURNS(rows); t++) {
            const int row = turn_row(item, t), chunk = turn_chunk(item, t);
            const uint at = k + chunk * CHUNK;
            copy_16(to + swizzled_offset(row, chunk * CHUNK, PITCH),
                    row_at(s, row, at) + at, (row < s->count) & (at < in),
                    (rows * ROW_CHUNKS % GROUP == 0) | (row < rows));
        }
        return;
    }
    NO_UNROLL_FOR (int i = item; i < rows * ROW_CHUNKS; i += GROUP) {
        const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
        const uint at = k + chunk * CHUNK;
        *(__local uint4 *)(to + swizzled_offset(row, chunk * CHUNK, PITCH)) =
            row < s->count ? load_elements(row_at(s, row, at), at, in)
                           : (uint4)(0u);
    }
}

/* The same to registers, and from these to a stage. */
INLINE void hold_chunks(uint4 *held, const source *s, const int rows, uint k,
                        uint in, int item)
{
    UNROLL_FOR (int t = 0; t < TURNS(rows); t++) {
        const int row = turn_row(item, t);
        const uint at = k + turn_chunk(item, t) * CHUNK;
        __global const storage *from = row_at(s, row, at);
        held[t] = (uint4)(0u);
        if (row < s->count && at < in)
            held[t] = s->wide ? *(__global const uint4 *)(from + at)
                              : load_elements(from, at, in);
    }
}
INLINE void keep_chunks(__local storage_bits *to, const uint4 *held,
                        const int rows, int item)
{
    UNROLL_FOR (int t = 0; t < TURNS(rows); t++) {
        const int row = turn_row(item, t);
        if (rows * ROW_CHUNKS % GROUP == 0 || row < rows)
            *(__local uint4 *)(to + swizzled_offset(
                                        row, turn_chunk(item, t) * CHUNK,
                                        PITCH)) = held[t];
    }
}

/* On their way to a stage, by themselves or by way of registers. */
INLINE void fetch_chunks(__local storage_bits *to, uint4 *held,
                         const source *s, const int rows, uint k, uint in,
                         int item)
{
    if (ASYNC_COPIES)
        copy_chunks(to, s, rows, k, in, item);
    else
        hold_chunks(held, s, rows, k, in, item);
}

/* Numbers of a chunk, and the chunk that numbers become. */
INLINE void unpack_chunk(float *x, uint4 chunk)
{
    const uint words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
    UNROLL_FOR (int i = 0; i < 4; i++) {
#if DTYPE == 0
        x[i] = as_float(words[i]);
#else
        x[2 * i] = number_of((ushort)words[i]);
        x[2 * i + 1] = number_of((ushort)(words[i] >> 16));
#endif
    }
}
INLINE uint4 pack_chunk(const float *x)
{
#if DTYPE == 0
    return (uint4)(as_uint(x[0]), as_uint(x[1]), as_uint(x[2]), as_uint(x[3]));
#else
    return (uint4)(PACK(x[0], x[1]), PACK(x[2], x[3]), PACK(x[4], x[5]),
                   PACK(x[6], x[7]));
#endif
}
