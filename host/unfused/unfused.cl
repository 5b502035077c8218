/* SPDX-License-Identifier: Apache-2.0
 * The steps of a Swin block that winattn's kernels have inside, each by
 * itself, with its result in memory and in the model's type. Linear layers
 * and norms are winattn's.
 *
 *   ON_CPU  1: a work-item has what a work-group has on a GPU, in vectors of
 *           LANES elements */
#include "models/linear.cl"

#include "common/aligned.cl"
#include "unfused/unfused_args.h"

REQUIRE(LANES)

#define WIDE 8 /* elements that a work-item has where all are one row */
DEFINE_VECTOR_ACCESS(8)
#if LANES != WIDE
DEFINE_VECTOR_ACCESS(LANES)
#endif
typedef JOIN(float, LANES) vec;

/* ---- Windows of maps ---- */

/* Where the token of a window is in its map: (line, column); behind the map's
 * end it is padding. */
INLINE uint2 token_at(uint window, uint token, const move_args *args)
{
    const uint down = args->windows[0] * args->window[0];
    const uint across = args->windows[1] * args->window[1];
    const uint y = window / args->windows[1] % args->windows[0];
    const uint x = window % args->windows[1];
    return (uint2)((y * args->window[0] + token / args->window[1] +
                    args->shift[0]) %
                       down,
                   (x * args->window[1] + token % args->window[1] +
                    args->shift[1]) %
                       across);
}

/* windows [window][token] = maps [map][line][column], rolled and padded by
 * zeros; or, with args.reverses, what is no padding the other way round. */
#define DEFINE_MOVE(name, type)                                               \
    __kernel void name(const move_args args, __global type *windows,          \
                       __global type *maps)                                   \
    {                                                                         \
        const uint id = (uint)get_global_id(0);                               \
        if (id >= args.count)                                                 \
            return;                                                           \
        const uint tokens = args.window[0] * args.window[1];                  \
        const uint row = id / args.units;                                     \
        const uint window = row / tokens;                                     \
        const uint map = window / (args.windows[0] * args.windows[1]);        \
        const uint2 at = token_at(window, row % tokens, &args);               \
        const uint place =                                                    \
            ((map * args.size[0] + at.x) * args.size[1] + at.y) *             \
                args.units +                                                  \
            id % args.units;                                                  \
        const bool exists = at.x < args.size[0] && at.y < args.size[1];       \
        if (!args.reverses)                                                   \
            windows[id] = exists ? maps[place] : (type)(0);                   \
        else if (exists)                                                      \
            maps[place] = windows[id];                                        \
    }
DEFINE_MOVE(move, uint4)
DEFINE_MOVE(move_elements, storage_bits)

/* ---- Element by element ---- */

INLINE float8 gelu_end8(float8 a)
{
    return a > GELU_END ? (float8)(GELU_END) : a;
}
INLINE float8 gelu_positive8(float8 x)
{
    return x > 0.0f ? x : (float8)(0.0f);
}
DEFINE_GELU(float8, gelu8, gelu_end8, gelu_positive8, exp)

/* x = gelu(x) */
__kernel void gelu_all(const flat_args args, __global storage *x)
{
    const ulong at = get_global_id(0) * (ulong)WIDE;
    if (at + WIDE <= args.elements) {
        store8_aligned(gelu8(load8_aligned(x + at)), x + at);
        return;
    }
    for (ulong i = at; i < args.elements; i++)
        STORE(gelu(LOAD(x, i)), x, i);
}

/* x += y */
__kernel void add_all(const flat_args args, __global storage *x,
                      __global const storage *y)
{
    const ulong at = get_global_id(0) * (ulong)WIDE;
    if (at + WIDE <= args.elements) {
        store8_aligned(load8_aligned(x + at) + load8_aligned(y + at), x + at);
        return;
    }
    for (ulong i = at; i < args.elements; i++)
        STORE(LOAD(x, i) + LOAD(y, i), x, i);
}

/* to [map] = the mean of its tokens */
__kernel void mean(const flat_args args, __global const storage *from,
                   __global storage *to)
{
    const uint id = (uint)get_global_id(0);
    float sum = 0.0f;
    if (id >= args.count)
        return;
    from += (ulong)(id / args.elements) * args.tokens * args.elements +
            id % args.elements;
    for (uint i = 0; i < args.tokens; i++)
        sum += LOAD(from, (ulong)i * args.elements);
    STORE(sum / (float)args.tokens, to, id);
}

/* Rows of q and k get the length 1. */
__kernel void normalise(const flat_args args, __global storage *qkv)
{
    const uint id = (uint)get_global_id(0);
    const uint dims = args.elements;
    const uint whole = dims % WIDE == 0 ? dims : 0;
    float8 squares = 0.0f;
    if (id >= args.count)
        return;
    qkv += ((ulong)(id / (2 * args.heads)) * 3 * args.heads +
            id % (2 * args.heads)) *
           dims;
    for (uint i = 0; i < whole; i += WIDE) {
        const float8 x = load8_aligned(qkv + i);
        squares = FMA(x, x, squares);
    }
    float sum = ((squares.s0 + squares.s1) + (squares.s2 + squares.s3)) +
                ((squares.s4 + squares.s5) + (squares.s6 + squares.s7));
    for (uint i = whole; i < dims; i++)
        sum += LOAD(qkv, i) * LOAD(qkv, i);
    const float factor = 1.0f / fmax(sqrt(sum), 1e-12f);
    for (uint i = 0; i < whole; i += WIDE)
        store8_aligned(load8_aligned(qkv + i) * factor, qkv + i);
    for (uint i = whole; i < dims; i++)
        STORE(LOAD(qkv, i) * factor, qkv, i);
}

/* ---- S ---- */

#if ON_CPU
#define PLANE_GROUP 1
#define TEAM 1
#define TEAMS 1
#else
#define PLANE_GROUP 256
#define TEAM 32
#define TEAMS 4 /* rows of a work-group */
#endif

/* S += bias + mask */
__kernel __attribute__((reqd_work_group_size(PLANE_GROUP, 1, 1))) void
add_terms(const score_args args, __global storage *s,
          __global const float *bias, __global const float *mask)
{
    const uint plane = (uint)get_group_id(0);
    const uint elements = args.tokens * args.tokens;
    const uint window = plane / args.heads;
    s += (ulong)plane * elements;
    bias += args.bias + plane % args.heads * elements;
    if (args.mask_windows)
        mask += (ulong)(window % args.mask_windows) * elements;
    uint i = 0;
#if ON_CPU
    for (; i + LANES <= elements; i += LANES) {
        vec x = LOAD_VECTOR(LANES)(s + i) + JOIN(vload, LANES)(0, bias + i);
        if (args.mask_windows)
            x += JOIN(vload, LANES)(0, mask + i);
        STORE_VECTOR(LANES)(x, s + i);
    }
#endif
    for (i += (uint)get_local_id(0); i < elements; i += PLANE_GROUP) {
        float x = LOAD(s, i) + bias[i];
        if (args.mask_windows)
            x += mask[i];
        STORE(x, s, i);
    }
}

#if ON_CPU
#if LANES == 16
#define FOLD8(f, x) f((x).lo, (x).hi)
#else
#define FOLD8(f, x) (x)
#endif
#define DEFINE_FOLD(name, f)                                                  \
    INLINE float name(vec x)                                                  \
    {                                                                         \
        const float8 a = FOLD8(f, x);                                         \
        const float4 b = f(a.lo, a.hi);                                       \
        const float2 c = f(b.lo, b.hi);                                       \
        return f(c.x, c.y);                                                   \
    }
#define ADD(a, b) ((a) + (b))
DEFINE_FOLD(fold_most, fmax)
DEFINE_FOLD(fold_sum, ADD)

/* A row of S becomes its softmax. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
softmax(const score_args args, __global storage *s)
{
    const uint n = args.tokens, whole = n / LANES * LANES;
    vec most_of = -INFINITY, sums = 0.0f;
    s += get_global_id(0) * n;
    for (uint i = 0; i < whole; i += LANES)
        most_of = fmax(most_of, LOAD_VECTOR(LANES)(s + i));
    float most = fold_most(most_of);
    for (uint i = whole; i < n; i++)
        most = fmax(most, LOAD(s, i));
    for (uint i = 0; i < whole; i += LANES)
        sums += exp(LOAD_VECTOR(LANES)(s + i) - most);
    float sum = fold_sum(sums);
    for (uint i = whole; i < n; i++)
        sum += exp(LOAD(s, i) - most);
    const float factor = 1.0f / sum;
    for (uint i = 0; i < whole; i += LANES)
        STORE_VECTOR(LANES)
    (exp(LOAD_VECTOR(LANES)(s + i) - most) * factor, s + i);
    for (uint i = whole; i < n; i++)
        STORE(exp(LOAD(s, i) - most) * factor, s, i);
}
#else
/* f of what the work-items of a row have, which all of them get. */
#define DEFINE_REDUCE(name, f)                                                \
    INLINE float name(float x, __local float *all, int item)                  \
    {                                                                         \
        __local float *own = all + item / TEAM * TEAM;                        \
        const int lane = item % TEAM;                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        all[item] = x;                                                        \
        for (int half_way = TEAM / 2; half_way > 0; half_way /= 2) {          \
            barrier(CLK_LOCAL_MEM_FENCE);                                     \
            if (lane < half_way)                                              \
                own[lane] = f(own[lane], own[lane + half_way]);               \
        }                                                                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        return own[0];                                                        \
    }
#define ADD(a, b) ((a) + (b))
DEFINE_REDUCE(row_most, fmax)
DEFINE_REDUCE(row_sum, ADD)

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1))) void
softmax(const score_args args, __global storage *s)
{
    __local float all[TEAM * TEAMS];
    const int item = (int)get_local_id(0);
    const uint row = (uint)get_group_id(0) * TEAMS + item / TEAM;
    const uint n = row < args.count ? args.tokens : 0;
    float most = -INFINITY, sum = 0.0f;
    s += (ulong)row * n;
    for (uint i = item % TEAM; i < n; i += TEAM)
        most = fmax(most, LOAD(s, i));
    most = row_most(most, all, item);
    for (uint i = item % TEAM; i < n; i += TEAM)
        sum += exp(LOAD(s, i) - most);
    sum = row_sum(sum, all, item);
    for (uint i = item % TEAM; i < n; i += TEAM)
        STORE(exp(LOAD(s, i) - most) / sum, s, i);
}
#endif

/* ---- Products ---- */

#if ON_CPU
#define MOST_DIMS 256 /* of a head */
#define ROWS 4

INLINE vec load_some(__global const storage *from, uint count)
{
    float some[LANES];
    if (count >= LANES)
        return LOAD_VECTOR(LANES)(from);
    for (uint i = 0; i < LANES; i++)
        some[i] = i < count ? LOAD(from, i) : 0.0f;
    return JOIN(vload, LANES)(0, some);
}

INLINE void store_some(vec x, __global storage *to, uint count)
{
    float some[LANES];
    if (count >= LANES) {
        STORE_VECTOR(LANES)(x, to);
        return;
    }
    JOIN(vstore, LANES)(x, 0, some);
    for (uint i = 0; i < count; i++)
        STORE(some[i], to, i);
}

/* LANES columns of C, four rows at a time. Where B is transposed, dims are
 * those of a head, and its rows are copied side by side. */
INLINE void multiply(const product_args *args, __global const storage *a,
                     __global const storage *b, __global storage *c,
                     const int transposed, float factor, uint column)
{
    vec panel[MOST_DIMS];
    const uint left = args->columns - column;
    if (transposed)
        for (uint k = 0; k < args->dims; k++) {
            float some[LANES];
            for (uint i = 0; i < LANES; i++)
                some[i] = i < left
                              ? LOAD(b, (ulong)(column + i) * args->b_row + k)
                              : 0.0f;
            panel[k] = JOIN(vload, LANES)(0, some);
        }
    for (uint row = 0; row < args->rows; row += ROWS) {
        vec sum[ROWS];
        for (int r = 0; r < ROWS; r++)
            sum[r] = 0.0f;
        for (uint k = 0; k < args->dims; k++) {
            const vec y =
                transposed
                    ? panel[k]
                    : load_some(b + (ulong)k * args->b_row + column, left);
            for (int r = 0; r < ROWS; r++) {
                const uint from = min(row + r, args->rows - 1);
                sum[r] = FMA((vec)(LOAD(a, (ulong)from * args->a_row + k)), y,
                             sum[r]);
            }
        }
        for (int r = 0; r < ROWS && row + r < args->rows; r++)
            store_some(sum[r] * factor,
                       c + (ulong)(row + r) * args->c_row + column, left);
    }
}

#define DEFINE_PRODUCT(name, TRANSPOSED, PER)                                 \
    __kernel __attribute__((reqd_work_group_size(1, 1, 1))) void name(        \
        const product_args args, __global const storage *a,                   \
        __global const storage *b, __global storage *c,                       \
        __global const float *factors)                                        \
    {                                                                         \
        const uint across = (args.columns + LANES - 1) / LANES;               \
        const uint plane = (uint)get_global_id(0) / across;                   \
        const uint column = (uint)get_global_id(0) % across * LANES;          \
        const uint window = plane / args.heads, head = plane % args.heads;    \
        multiply(&args,                                                       \
                 a + args.a + window * args.a_window + head * args.a_head,    \
                 b + args.b + window * args.b_window + head * args.b_head,    \
                 c + window * args.c_window + head * args.c_head, TRANSPOSED, \
                 TRANSPOSED ? factors[args.factor + head] : 1.0f, column);    \
    }
#else
#define SIDE 16 /* work-items down and across */
#define GROUP (SIDE * SIDE)
#define ROWS 4 /* of a work-item, SIDE apart */
#define TILE (ROWS * SIDE)
#define DEPTH 32
#define PITCH (TILE + 1)

/* tile[k][i] = from[i][k], or, where it lies by dims, from[k][i]; neighbours
 * are read by neighbours. */
INLINE void fill(__local float *tile, __global const storage *from,
                 uint stride, uint rows, uint dims, const int width,
                 const int by_dims, int item)
{
    UNROLL_FOR (int turn = 0; turn < width * DEPTH / GROUP; turn++) {
        const int at = turn * GROUP + item;
        const uint k = by_dims ? at / width : at % DEPTH;
        const uint i = by_dims ? at % width : at / DEPTH;
        const ulong place =
            by_dims ? (ulong)k * stride + i : (ulong)i * stride + k;
        tile[k * PITCH + i] = i < rows && k < dims ? LOAD(from, place) : 0.0f;
    }
}

/* A tile of C; a work-item has ROWS x `per` of it. */
INLINE void multiply(const product_args *args, __global const storage *a,
                     __global const storage *b, __global storage *c,
                     const int transposed, const int per, float factor,
                     uint row, uint column, __local float *tile_a,
                     __local float *tile_b)
{
    const int item = (int)get_local_id(0);
    const int down = item / SIDE, across = item % SIDE;
    float sum[ROWS][ROWS];
    UNROLL_FOR (int r = 0; r < ROWS; r++)
        UNROLL_FOR (int i = 0; i < per; i++)
            sum[r][i] = 0.0f;
    a += (ulong)row * args->a_row;
    b += transposed ? (ulong)column * args->b_row : column;
    for (uint k = 0; k < args->dims; k += DEPTH) {
        barrier(CLK_LOCAL_MEM_FENCE);
        fill(tile_a, a + k, args->a_row, args->rows - row, args->dims - k,
             TILE, 0, item);
        fill(tile_b, b + (transposed ? k : (ulong)k * args->b_row),
             args->b_row, args->columns - column, args->dims - k, SIDE * per,
             !transposed, item);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = 0; d < DEPTH; d++) {
            float y[ROWS];
            UNROLL_FOR (int i = 0; i < per; i++)
                y[i] = tile_b[d * PITCH + across + i * SIDE];
            UNROLL_FOR (int r = 0; r < ROWS; r++) {
                const float x = tile_a[d * PITCH + down + r * SIDE];
                UNROLL_FOR (int i = 0; i < per; i++)
                    sum[r][i] = FMA(x, y[i], sum[r][i]);
            }
        }
    }
    UNROLL_FOR (int r = 0; r < ROWS; r++)
        UNROLL_FOR (int i = 0; i < per; i++) {
            const uint y = row + down + r * SIDE;
            const uint x = column + across + i * SIDE;
            if (y < args->rows && x < args->columns)
                STORE(sum[r][i] * factor, c, (ulong)y * args->c_row + x);
        }
}

#define DEFINE_PRODUCT(name, TRANSPOSED, PER)                                 \
    __kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void name(    \
        const product_args args, __global const storage *a,                   \
        __global const storage *b, __global storage *c,                       \
        __global const float *factors)                                        \
    {                                                                         \
        __local float tile_a[DEPTH * PITCH], tile_b[DEPTH * PITCH];           \
        const uint across = (args.columns + SIDE * PER - 1) / (SIDE * PER);   \
        const uint down = (args.rows + TILE - 1) / TILE;                      \
        const uint group = (uint)get_group_id(0);                             \
        const uint plane = group / (down * across);                           \
        const uint window = plane / args.heads, head = plane % args.heads;    \
        multiply(&args,                                                       \
                 a + args.a + window * args.a_window + head * args.a_head,    \
                 b + args.b + window * args.b_window + head * args.b_head,    \
                 c + window * args.c_window + head * args.c_head, TRANSPOSED, \
                 PER, TRANSPOSED ? factors[args.factor + head] : 1.0f,        \
                 group / across % down * TILE, group % across * SIDE * PER,   \
                 tile_a, tile_b);                                             \
    }
#endif

/* S = factor Q K^T, and O = P V */
DEFINE_PRODUCT(scores, 1, 4)
DEFINE_PRODUCT(values, 0, 2)
