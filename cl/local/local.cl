/* SPDX-License-Identifier: Apache-2.0
 * What the kernels for GPUs (*_local.cl) share: a team of work-items copies
 * parts of matrices to local memory and multiplies them in register tiles. No
 * matrix units, no sub-groups.
 *
 * Loops over a team's work make the same number of rounds for every work-item,
 * which also made them faster on an H200 (0.34 to 0.39 of copy bandwidth).
 *
 * Local arrays are made of float4 ("quads"); the pitch of their rows is an odd
 * number of quads, so that neighbouring rows lie in different banks.
 *
 *   TEAM          work-items that share one unit of work
 *   STAGE_DIMS    channels that are in local memory at once; a multiple of 4
 *   SCORE_ROWS, SCORE_COLS  a work-item's tile of logits
 *   OUT_ROWS      rows of a work-item's tile of a product with the
 *                 attention matrix, one quad of channels wide; a team covers
 *                 BLOCK_ROWS x STAGE_DIMS
 *   HALVES_FROM_BITS  1: vloada_half would load one half at a time
 *   SUB_GROUP     Intel: work-items of a hardware thread, which share its
 *                 registers; 0: the compiler's choice */
#include "common/problem.cl"

#ifndef TEAM
#define TEAM 64
#endif
#ifndef STAGE_DIMS
#define STAGE_DIMS 32
#endif
#ifndef SCORE_ROWS
#define SCORE_ROWS 7
#endif
#ifndef SCORE_COLS
#define SCORE_COLS 7
#endif
#ifndef OUT_ROWS
#define OUT_ROWS 7
#endif
#ifndef HALVES_FROM_BITS
#define HALVES_FROM_BITS 0
#endif
#ifndef SUB_GROUP
#define SUB_GROUP 0
#endif

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

#define STAGE_QUADS (STAGE_DIMS / 4)
#define DIM_STAGES CEIL_DIV(HEAD_DIM, STAGE_DIMS)
#define DIM_PITCH (STAGE_QUADS | 1)
#define ROW_TILES CEIL_DIV(BLOCK_ROWS, SCORE_ROWS)
#define OUT_TILES CEIL_DIV(BLOCK_ROWS, OUT_ROWS)
#define Q_ROWS (ROW_TILES * SCORE_ROWS)
/* rows of the score matrix, for whole tiles of both kinds */
#define ALL_ROWS LARGER(Q_ROWS, OUT_TILES *OUT_ROWS)

/* Always 0, but Intel's compiler cannot know. It unrolls loops of a known
 * number of rounds although it is told not to (ocloc 22.43 forgets that of
 * loops with calls), moves what a round needs out of the loops around it, and
 * runs out of registers. */
#if SUB_GROUP
#define SUB_GROUP_SIZE __attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
#define UNKNOWN_ZERO ((int)(args.flags >> 24))
#else
#define SUB_GROUP_SIZE
#define UNKNOWN_ZERO 0
#endif
/* NVIDIA's compiler heeds a limit of registers, which the host then gives it,
 * only where no size of work-groups is demanded. */
#ifndef LIMITS_REGISTERS
#define LIMITS_REGISTERS 0
#endif
#if LIMITS_REGISTERS
#define TEAM_SIZE
#else
#define TEAM_SIZE __attribute__((reqd_work_group_size(TEAM, 1, 1)))
#endif

#ifndef BACKWARD
#define BACKWARD 0
#endif

/* The backward pass needs each token a dozen times. On a grid, what leads to
 * its place fills registers that the sums need, so that a team keeps tokens in
 * local memory. */
#define LISTS_TOKENS (GRID && BACKWARD)

/* Lets the compiler forget a work-item's number, but for its range on NVIDIA.
 * LLVM for AMD else computes before all loops what they need of it, keeps each
 * comparison in a pair of scalar registers, and runs out of these; that for
 * NVIDIA keeps addresses of kept tokens, so that other registers are spilled;
 * Intel's runs out of registers for addresses, compiles again without
 * unrolling, and then sums are in memory. */
#ifdef __AMDGCN__
#define FORGET(lane) __asm__ volatile("" : "+v"(lane))
#elif LISTS_TOKENS && (defined(__NVPTX__) || defined(__NV_CL_C_VERSION))
#define FORGET(lane)                                                          \
    __asm__ volatile("" : "+r"(lane));                                        \
    lane = (int)min((uint)(lane), TEAM - 1u)
#elif SUB_GROUP && defined(cl_intel_subgroups_char) /* not Mesa's compiler */
#define FORGET(lane) __asm__ volatile("" : "+rw"(lane))
#else
#define FORGET(lane)
#endif

/* The cosine variant scales a finished dot product, the others q. */
#if VARIANT == COSINE
#define Q_FACTOR 1.0f
#else
#define Q_FACTOR args.scale
#endif

/* Elements of an aligned access of at most 16 bytes; 0: no such access. */
#if DTYPE != 0 && HEAD_DIM % 8 == 0 && STAGE_DIMS % 8 == 0
#define WIDE 8
#elif HEAD_DIM % 4 == 0
#define WIDE 4
#else
#define WIDE 0
#endif

/* Loops over single elements, in place of wide accesses. Unrolled, such a loop
 * needs registers that AMD's kernels, and those whose sums live through a
 * copy, do not have, and few tensors take it where wide accesses are possible.
 */
#if WIDE && (STREAMING || BACKWARD || defined(__AMDGCN__))
#define NARROW_FOR NO_UNROLL_FOR
#else
#define NARROW_FOR for
#endif

#if DTYPE == 0
INLINE float4 load4_aligned(__global const storage *p)
{
    return *(__global const float4 *)p;
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    *(__global float4 *)p = x;
}
#elif DTYPE == 1 && HALVES_FROM_BITS
INLINE float4 load4_aligned(__global const storage *p)
{
    const ushort4 bits = *(__global const ushort4 *)p;
    return vload_half4(0, (const half *)&bits);
}
INLINE float8 load8_aligned(__global const storage *p)
{
    const ushort8 bits = *(__global const ushort8 *)p;
    return vload_half8(0, (const half *)&bits);
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    ushort4 bits;
    vstore_half4_rte(x, 0, (half *)&bits);
    *(__global ushort4 *)p = bits;
}
#elif DTYPE == 1
INLINE float4 load4_aligned(__global const storage *p)
{
    return vloada_half4(0, p);
}
INLINE float8 load8_aligned(__global const storage *p)
{
    return vloada_half8(0, p);
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    vstorea_half4_rte(x, 0, p);
}
#else
INLINE float4 load4_aligned(__global const storage *p)
{
    return as_float4(convert_uint4(*(__global const ushort4 *)p) << 16u);
}
INLINE float8 load8_aligned(__global const storage *p)
{
    return as_float8(convert_uint8(*(__global const ushort8 *)p) << 16u);
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    const uint4 bits = as_uint4(x);
    const uint4 rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);
    *(__global ushort4 *)p =
        convert_ushort4(select(rounded, bits | 0x400000u, isnan(x)) >> 16u);
}
#endif

/* The tokens of a window. */
typedef struct token_list {
#if LISTS_TOKENS
    __local const kept_token *kept; /* from `first` on */
    uint first;
#else
    const grid_layout *grid;
    const window_place *place;
#endif
} token_list;

/* And a tensor's channels of them, of one head. */
typedef struct token_rows {
    __global const storage *plane;
    const tensor_layout *layout;
    token_list tokens;
    __global const storage *pad; /* those of the padding; 0: zeros */
} token_rows;

#if LISTS_TOKENS
/* int, so that compilers see how far rows are apart */
INLINE kept_token kept_of(const token_list *tokens, uint row)
{
    return tokens->kept[(int)row - (int)tokens->first];
}
#endif

/* Of a row that the list holds. */
INLINE token token_of(const token_list *tokens, uint row)
{
#if LISTS_TOKENS
    return recall_token(kept_of(tokens, row));
#else
    return find_token(tokens->grid, tokens->place, row);
#endif
}

/* Where the channels of a token are, from `channel` on; 0 if they are zeros.
 * `column`: their distance. */
INLINE __global const storage *
channels_of(const token_rows *rows, const token *t, uint channel, uint column)
{
    const plane_offset c = (plane_offset)channel * column;
    if (EXISTS(*t))
        return rows->plane + (token_offset(rows->layout, t) + c);
    return rows->pad ? rows->pad + c : 0;
}
#if PADDING
#define ARE_ZEROS(channels) ((channels) == 0)
#else
#define ARE_ZEROS(channels) 0
#endif

#if BACKWARD && VARIANT == COSINE
#define FACTOR_OF(r) (factors ? factors[r] * factor : factor)
#else
#define FACTOR_OF(r) factor
#endif

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
/* Rows that a work-item loads before it stores the first: tokens, in local
 * memory too, cannot be read past a store, and stage_tiles() of the backward
 * pass has registers for them. Intel's compiler would keep them in private
 * memory. */
#if LISTS_TOKENS || (BACKWARD && ONE_VISIT && KEEPS_TILES && !SUB_GROUP)
#define LOADS_AHEAD 4
#else
#define LOADS_AHEAD 1
#endif

#if WIDE
/* A work-item keeps its columns and steps down the rows. */
#define STAGE_ACROSS (STAGE_DIMS / WIDE)
#define STAGE_DOWN (TEAM / STAGE_ACROSS)
#define STAGE_ROW(lane) ((lane) / STAGE_ACROSS)
#define STAGE_COLUMN(lane) ((lane) % STAGE_ACROSS * WIDE)
#endif

#if WIDE && LOADS_AHEAD > 1
/* x[i] = row `row` + STAGE_DOWN * i of a matrix, counted from `first`, zeros
 * from `count` on; one access, at `channel`. */
INLINE void load_rows(wide_quads x[LOADS_AHEAD], const token_rows *matrix,
                      uint first, int row, int count, int channel)
{
    const int exists =
        HEAD_DIM % STAGE_DIMS == 0 || channel < HEAD_DIM ? count : 0;
#if !GRID
    __global const storage *from =
        matrix->plane + (ulong)(first + row) * matrix->layout->row + channel;
    const ulong step = (ulong)STAGE_DOWN * matrix->layout->row;
#endif
    UNROLL_FOR (int i = 0; i < LOADS_AHEAD; i++) {
        const int r = row + STAGE_DOWN * i;
        x[i] = 0.0f;
        if (r < exists) {
#if GRID
            const token t = token_of(&matrix->tokens, first + r);
            __global const storage *from = channels_of(matrix, &t, channel, 1);
            if (!ARE_ZEROS(from))
#endif
                x[i] = load_wide(from);
        }
#if !GRID
        from += step;
#endif
    }
}

/* What load_rows left, to the same rows of `tile`, which has `rows` of them.
 */
INLINE void store_rows(const wide_quads x[LOADS_AHEAD], __local float4 *tile,
                       int row, int rows, int column, float factor,
                       __local const float *factors)
{
    tile += row * DIM_PITCH + column / 4;
    UNROLL_FOR (int i = 0; i < LOADS_AHEAD; i++) {
        const int r = row + STAGE_DOWN * i;
        if (r < rows)
            store_staged(x[i] * FACTOR_OF(r),
                         tile + STAGE_DOWN * i * DIM_PITCH);
    }
}
#endif

/* Copies rows first .. first + count of `matrix`, STAGE_DIMS channels from
 * `channel` on, to local memory as fp32 times `factor` and, where given, each
 * row's own of `factors`; zeros fill `rows` rows. */
INLINE void stage(__local float4 *tile, const token_rows *matrix, uint first,
                  int count, int rows, int channel, float factor,
                  __local const float *factors, int lane, int wide)
{
    FORGET(lane);
#if WIDE && LOADS_AHEAD > 1
    if (wide) {
        const int c = STAGE_COLUMN(lane);
        const int end = STAGE_ROW(lane) < STAGE_DOWN ? rows : 0;
        for (int done = 0; done < rows; done += LOADS_AHEAD * STAGE_DOWN) {
            wide_quads x[LOADS_AHEAD];
            const int row = done + STAGE_ROW(lane);
            load_rows(x, matrix, first, row, min(count, end), channel + c);
            store_rows(x, tile, row, end, c, factor, factors);
        }
        return;
    }
#elif WIDE
    if (wide) {
        const int down = STAGE_DOWN;
        const int first_row = STAGE_ROW(lane);
        const int c = STAGE_COLUMN(lane);
        __local float4 *to = tile + first_row * DIM_PITCH + c / 4;
#if !GRID
        __global const storage *from =
            matrix->plane + (ulong)(first + first_row) * matrix->layout->row +
            (channel + c);
        const ulong step = (ulong)down * matrix->layout->row;
#endif
        const int exists = channel + c < HEAD_DIM ? count : 0;
        for (int done = 0; done < rows; done += down) {
            const int r = done + first_row;
            if (first_row < down && r < rows) {
#if GRID
                const token t = token_of(&matrix->tokens, first + r);
                __global const storage *from =
                    channels_of(matrix, &t, channel + c, 1);
                const int is_there = r < exists && !ARE_ZEROS(from);
#else
                const int is_there = r < exists;
#endif
                const wide_quads x =
                    is_there ? load_wide(from) : (wide_quads)(0.0f);
                store_staged(x * FACTOR_OF(r), to);
            }
            to += down * DIM_PITCH;
#if !GRID
            from += step;
#endif
        }
        return;
    }
#endif
    __local float *scalars = (__local float *)tile;
    NARROW_FOR (int done = 0; done < rows * STAGE_DIMS; done += TEAM) {
        const int r = (done + lane) / STAGE_DIMS;
        const int c = (done + lane) % STAGE_DIMS;
        float x = 0.0f;
        if (r < count && channel + c < HEAD_DIM) {
            const token t = token_of(&matrix->tokens, first + r);
            __global const storage *from =
                channels_of(matrix, &t, channel + c, matrix->layout->column);
            if (!ARE_ZEROS(from))
                x = LOAD(from, 0) * FACTOR_OF(r);
        }
        if (r < rows)
            scalars[r * DIM_PITCH * 4 + c] = x;
    }
}

/* Adds the squares of staged rows; after the last channels the sum becomes
 * factor / norm. */
INLINE void accumulate_norms(__local float *norms, __local const float4 *tile,
                             int rows, float factor, int channel, int lane)
{
#if VARIANT == COSINE
    for (int done = 0; done < rows; done += TEAM) {
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
#endif
}

#if MASK >= 3
#if MASK == 4 && LISTS_TOKENS
#define QUERY_REGION(row) recall_sides(kept_of(row_tokens, row))
#define KEY_REGION(key) recall_sides(kept_of(key_tokens, key))
#else
#define QUERY_REGION(row) query_region(args, terms, row)
#define KEY_REGION(key) key_region(args, terms, key)
#endif
/* sums[i][j] += region_value where rows[i] and keys[j] differ in region. */
INLINE void add_regions(float sums[SCORE_ROWS][SCORE_COLS],
                        const forward_args *args, const logit_terms *terms,
                        const token_list *row_tokens,
                        const token_list *key_tokens, const int *rows,
                        const int *keys)
{
    uint there[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        there[j] = KEY_REGION(keys[j]);
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint here = QUERY_REGION(rows[i]);
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            if (here != there[j])
                sums[i][j] += args->region_value;
    }
}
#endif

/* sums[i][j] += the terms of rows[i], keys[j]. */
INLINE void add_terms(float sums[SCORE_ROWS][SCORE_COLS],
                      const forward_args *args, const logit_terms *terms,
                      const token_list *row_tokens,
                      const token_list *key_tokens, const int *rows,
                      const int *keys)
{
#if KEEPS_TABLE
    int places[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        places[j] = TABLE_CENTER - terms->table_places[keys[j]];
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const int place = terms->table_places[rows[i]];
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += terms->table[place + places[j]];
    }
#elif BIAS && TABLE == 1
    uint places[SCORE_COLS];
    UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
        places[j] =
            (uint)(TABLE_CENTER - table_place(keys[j])) * args->bias.row;
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        const uint place = (uint)table_place(rows[i]) * args->bias.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] +=
                JOIN(load, BIAS_SUFFIX)(terms->bias, place + places[j]);
    }
#elif BIAS && TABLE
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, BIAS_SUFFIX)(
                terms->bias, bias_at(args, terms, rows[i], keys[j]));
#elif BIAS
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        __global const bias_storage *bias =
            terms->bias + rows[i] * (int)args->bias.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, BIAS_SUFFIX)(
                bias, keys[j] * (int)TERM_STEP(args->bias));
    }
#endif
#if MASK == 4
    if (terms->place.seams != 0) /* else it all lies in one region */
        add_regions(sums, args, terms, row_tokens, key_tokens, rows, keys);
#elif MASK == 3
    add_regions(sums, args, terms, row_tokens, key_tokens, rows, keys);
#elif MASK
    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++) {
        __global const mask_storage *mask =
            terms->mask + rows[i] * (int)args->mask.row;
        UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
            sums[i][j] += JOIN(load, MASK_SUFFIX)(
                mask, keys[j] * (int)TERM_STEP(args->mask));
    }
#endif
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

/* Stores four channels of a token that exists; channel < HEAD_DIM. */
INLINE void store_quad(float4 x, __global storage *plane,
                       const tensor_layout *layout, const token *t,
                       int channel, int wide)
{
    const uint column = WIDE && wide ? 1 : layout->column;
    __global storage *to = plane + (token_offset(layout, t) +
                                    (plane_offset)(uint)channel * column);
#if WIDE
    if (wide) {
        store4_aligned(x, to);
        return;
    }
#endif
    const float parts[4] = {x.x, x.y, x.z, x.w};
    UNROLL_FOR (int i = 0; i < 4; i++)
        if (channel + i < HEAD_DIM)
            STORE(parts[i], to, (ulong)i * column);
}
