/* SPDX-License-Identifier: Apache-2.0
 * What the kernels for CPUs share: explicit vectors, blocks of keys, tiles of
 * query rows.
 *
 *                      keys, LANES at a time
 *                    +-----+-----+-----+-----+
 *      query row     |  s  |  s  |  s  |  s  |   TILE_ROWS x TILE_VECS sums
 *      query row     |  s  |  s  |  s  |  s  |   over the channels c:
 *                    +-----+-----+-----+-----+   s += q[row][c] * K^T[c][keys]
 *
 * A work-item transposes a block of keys once, so that a vector holds one
 * channel of neighbouring keys, and walks query rows in tiles.
 *
 *   LANES        vector length: 4, 8 or 16
 *   TILE_ROWS    query rows of a register tile
 *   TILE_VECS    key vectors of a register tile
 *   OUT_VECS     channel vectors of an output tile
 * and BLOCK_KEYS must be a multiple of LANES * TILE_VECS. */
#include "common/problem.cl"

#ifndef LANES
#define LANES 16
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 7
#endif
#ifndef TILE_VECS
#define TILE_VECS 4
#endif
#ifndef OUT_VECS
#define OUT_VECS 2
#endif
#ifndef BACKWARD
#define BACKWARD 0
#endif
#define KEY_VECS (BLOCK_KEYS / LANES)
#define CHANNEL_VECS ((HEAD_DIM + LANES - 1) / LANES)
#define CHANNEL_TAIL (HEAD_DIM % LANES)
#define OUT_PASSES ((CHANNEL_VECS + OUT_VECS - 1) / OUT_VECS)
#define V_VECS (OUT_PASSES * OUT_VECS)
#define CHANNELS (V_VECS * LANES)

DEFINE_VECTOR_ACCESS(LANES)
typedef JOIN(float, LANES) vec;
typedef JOIN(int, LANES) ivec;

#if LANES == 16
#define LANE_NUMBERS                                                          \
    ((ivec)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define ZIP(a, b)                                                             \
    ((vec)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3,    \
           (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7))
#define FOLD4(f, x) f(f((x).lo.lo, (x).lo.hi), f((x).hi.lo, (x).hi.hi))
#elif LANES == 8
#define LANE_NUMBERS ((ivec)(0, 1, 2, 3, 4, 5, 6, 7))
#define ZIP(a, b)                                                             \
    ((vec)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3))
#define FOLD4(f, x) f((x).lo, (x).hi)
#else
#define LANE_NUMBERS ((ivec)(0, 1, 2, 3))
#define ZIP(a, b) ((vec)((a).s0, (b).s0, (a).s1, (b).s1))
#define FOLD4(f, x) (x)
#endif
#define ADD(a, b) ((a) + (b))

INLINE float lanes_max(vec x)
{
    const float4 y = FOLD4(fmax, x);
    return fmax(fmax(y.x, y.y), fmax(y.z, y.w));
}

INLINE float lanes_sum(vec x)
{
    const float4 y = FOLD4(ADD, x);
    return (y.x + y.y) + (y.z + y.w);
}

/* 2^x for x <= 0 or NaN; 0 where the result is no normal number. The integer
 * next to x becomes the exponent of a factor; for the rest, in [-1/2, 1/2], a
 * polynomial with minimal relative error (fitted for this file, 1.3 ulp). */
INLINE vec exp2_nonpositive(vec x)
{
    /* 1.5 * 2^23 rounds to an integer, 127 is the bias of an exponent */
    const vec shift = (vec)(12582912.0f + 127.0f);
    const vec shifted = x + shift;
    const vec rest = x - (shifted - shift);
    vec p = FMA((vec)(1.53533620e-04f), rest, (vec)(1.33988750e-03f));
    p = FMA(p, rest, (vec)(9.61843692e-03f));
    p = FMA(p, rest, (vec)(5.55033237e-02f));
    p = FMA(p, rest, (vec)(2.40226477e-01f));
    p = FMA(p, rest, (vec)(6.93147182e-01f));
    p = FMA(p, rest, (vec)(1.0f));
    const vec factor =
        JOIN(as_float, LANES)(JOIN(as_int, LANES)(shifted) << 23);
    return select(p * factor, (vec)(0.0f), isless(x, (vec)(-126.0f)));
}

/* Rows <-> columns of a LANES x LANES block, by perfect shuffles. */
INLINE void transpose(vec *t)
{
    UNROLL_FOR (int width = 1; width < LANES; width *= 2) {
        vec s[LANES];
        UNROLL_FOR (int i = 0; i < LANES / 2; i++) {
            const vec a = t[i], b = t[i + LANES / 2];
            s[2 * i] = ZIP(a.lo, b.lo);
            s[2 * i + 1] = ZIP(a.hi, b.hi);
        }
        UNROLL_FOR (int i = 0; i < LANES; i++)
            t[i] = s[i];
    }
}

/* LANES elements `stride` apart, of which the first `count` exist; zeros
 * stand for the others. Callers pass a constant count. */
#define DEFINE_LANE_LOAD(suffix, type)                                        \
    INLINE vec JOIN(load_lanes, suffix)(__global const type *p, uint stride,  \
                                        int count)                            \
    {                                                                         \
        if (stride == 1 && count == LANES)                                    \
            return JOIN(JOIN(load, LANES), suffix)(p);                        \
        float x[LANES];                                                       \
        UNROLL_FOR (int i = 0; i < LANES; i++)                                \
            x[i] =                                                            \
                i < count ? JOIN(load, suffix)(p, (ulong)i * stride) : 0.0f;  \
        return JOIN(vload, LANES)(0, x);                                      \
    }
DEFINE_LANE_LOAD(_f32, float)
#if DTYPE == 1
DEFINE_LANE_LOAD(_fp16, half)
#elif DTYPE == 2
DEFINE_LANE_LOAD(_bf16, ushort)
#endif

/* Vector `cv` of the channels of one row. */
INLINE vec load_channels(__global const storage *row, uint stride, int cv)
{
    row += (ulong)(cv * LANES) * stride;
    if (CHANNEL_TAIL == 0 || cv < HEAD_DIM / LANES)
        return JOIN(load_lanes, SUFFIX)(row, stride, LANES);
    return JOIN(load_lanes, SUFFIX)(row, stride, CHANNEL_TAIL);
}

INLINE void store_channels(vec x, __global storage *row, uint stride, int cv)
{
    const int count = min(LANES, HEAD_DIM - cv * LANES);
    row += (ulong)(cv * LANES) * stride;
    if (stride == 1 && count == LANES) {
        STORE_VECTOR(LANES)(x, row);
    } else {
        float y[LANES];
        JOIN(vstore, LANES)(x, 0, y);
        for (int i = 0; i < count; i++)
            STORE(y[i], row, (ulong)i * stride);
    }
}

/* Vector `cv` of the channels of a token, whose row may be 0: zeros. */
INLINE vec load_token(__global const storage *row, uint stride, int cv)
{
#if PADDING
    if (row == 0)
        return (vec)(0.0f);
#endif
    return load_channels(row, stride, cv);
}

/* Asks for the channels of a token that are read, or written, later. */
INLINE void prefetch_channels(__global const storage *plane,
                              const tensor_layout *layout, token at)
{
    for (uint c = 0; c < HEAD_DIM; c += 64 / sizeof(storage)) {
        __global const storage *line =
            plane + token_offset(layout, &at) + (ulong)c * layout->column;
#if defined(__x86_64__) || defined(__aarch64__)
        /* compiled for the processor itself; PoCL's prefetch is empty */
        __builtin_prefetch((const void *)(size_t)line);
#else
        prefetch((__global const uchar *)line, (size_t)64);
#endif
    }
}

/* Is something added to logits because of where tokens lie on their grid? */
#define ADJUSTS (MASK == 4 || PADDING == 2)

/* A block of keys, ready for the register tiles. */
typedef struct key_block {
    uint first; /* key */
    int count;
    int mixed; /* some row of the unit does not see all of it */
#if GRID
    token token[BLOCK_KEYS];
#endif
#if ADJUSTS
    int adjusts; /* in this window */
#endif
#if PADDING == 2
    ivec hidden[KEY_VECS];
#endif
    vec transposed[HEAD_DIM][KEY_VECS];
#if VARIANT == COSINE
    vec inverse_norm[KEY_VECS];
#endif
#if MASK >= 3
    ivec region[KEY_VECS];
#endif
} key_block;

/* A tile of query rows. Rows past the unit's last repeat it, unstored. */
typedef struct row_tile {
    uint row[TILE_ROWS];
    int count;
    float q[TILE_ROWS][CHANNELS];
    float q_scale[TILE_ROWS];
    float p[TILE_ROWS][BLOCK_KEYS]; /* logits, then their exponentials */
    float max[TILE_ROWS];
    float sum[TILE_ROWS];
    float keep[TILE_ROWS]; /* factor of what earlier blocks summed */
#if GRID
    token token[TILE_ROWS];
#endif
#if MASK == 4
    int region[TILE_ROWS];
#endif
} row_tile;

/* A token of a window that is not on a grid is its number. */
INLINE token key_token(const key_block *keys, int j)
{
#if GRID
    return keys->token[j];
#else
    const token t = {.row = keys->first + j};
    return t;
#endif
}

INLINE token row_token(const row_tile *tile, int r)
{
#if GRID
    return tile->token[r];
#else
    const token t = {.row = tile->row[r]};
    return t;
#endif
}

/* Is there a row of the tile of which something is kept? */
INLINE int has_rows(const row_tile *tile)
{
#if PADDING
    int any = 0;
    for (int r = 0; r < TILE_ROWS; r++)
        any |= EXISTS(tile->token[r]);
    return any;
#else
    return 1;
#endif
}

/* Where the keys of the block lie, and what follows from it. */
INLINE void find_keys(key_block *keys, const grid_layout *grid,
                      const window_place *place)
{
#if GRID
    for (int j = 0; j < keys->count; j++)
        keys->token[j] = find_token(grid, place, keys->first + j);
#endif
#if MASK == 4
    keys->adjusts = place->seams != 0;
#elif PADDING == 2
    keys->adjusts = 0;
#endif
#if PADDING == 2
    for (int j = 0; j < keys->count; j++)
        keys->adjusts |= !EXISTS(keys->token[j]);
#endif
#if ADJUSTS
    for (int jv = 0; keys->adjusts && jv < KEY_VECS; jv++) {
        int x[LANES], y[LANES];
        for (int i = 0; i < LANES; i++) {
            const int j = min(jv * LANES + i, keys->count - 1);
            x[i] = seam_sides(grid, place, keys->first + j);
            y[i] = EXISTS(keys->token[j]) ? 0 : -1;
        }
#if MASK == 4
        keys->region[jv] = JOIN(vload, LANES)(0, x);
#endif
#if PADDING == 2
        keys->hidden[jv] = JOIN(vload, LANES)(0, y);
#endif
    }
#endif
}

/* The block's rows of a plane, transposed; zeros stand behind the last.
 * squares, unless 0, becomes the sums of their squares. pad: see token_row. */
INLINE void load_transposed(vec to[HEAD_DIM][KEY_VECS], vec *squares,
                            __global const storage *plane,
                            const tensor_layout *layout, const key_block *keys,
                            __global const storage *pad)
{
    for (int jv = 0; jv < KEY_VECS; jv++) {
        vec sum = (vec)(0.0f);
        for (int cv = 0; cv < CHANNEL_VECS; cv++) {
            vec t[LANES];
            for (int i = 0; i < LANES; i++) {
                const int j = jv * LANES + i;
                t[i] = (vec)(0.0f);
                if (j < keys->count) {
                    const token at = key_token(keys, j);
                    t[i] = load_token(token_row(plane, layout, &at, pad),
                                      layout->column, cv);
                }
            }
            transpose(t);
            for (int i = 0; i < LANES; i++) {
                const int c = cv * LANES + i;
                if (c < HEAD_DIM)
                    to[c][jv] = t[i];
                sum = FMA(t[i], t[i], sum);
            }
        }
        if (squares)
            squares[jv] = sum;
    }
}

/* The same rows as they are, with zeros behind the last channel. */
INLINE void load_natural(vec to[BLOCK_KEYS][V_VECS],
                         __global const storage *plane,
                         const tensor_layout *layout, const key_block *keys,
                         __global const storage *pad)
{
    for (int j = 0; j < keys->count; j++) {
        const token at = key_token(keys, j);
        __global const storage *row = token_row(plane, layout, &at, pad);
        UNROLL_FOR (int cv = 0; cv < V_VECS; cv++) {
            to[j][cv] = (vec)(0.0f);
            if (cv < CHANNEL_VECS)
                to[j][cv] = load_token(row, layout->column, cv);
        }
    }
}

INLINE void load_keys(key_block *keys, const forward_args *args,
                      __global const storage *k, __global const storage *pad_k)
{
#if VARIANT == COSINE
    load_transposed(keys->transposed, keys->inverse_norm, k, &args->k, keys,
                    pad_k);
    for (int jv = 0; jv < KEY_VECS; jv++)
        keys->inverse_norm[jv] =
            1.0f / fmax(sqrt(keys->inverse_norm[jv]), (vec)(NORM_EPSILON));
#else
    load_transposed(keys->transposed, 0, k, &args->k, keys, pad_k);
#endif
}

#if MASK == 3
INLINE void load_regions(key_block *keys, const forward_args *args,
                         const logit_terms *terms)
{
    for (int jv = 0; jv < KEY_VECS; jv++) {
        int x[LANES];
        for (int i = 0; i < LANES; i++) {
            const uint j = min(jv * LANES + i, keys->count - 1);
            x[i] = terms->key_regions[element(&args->key_regions,
                                              keys->first + j, 0)];
        }
        keys->region[jv] = JOIN(vload, LANES)(0, x);
    }
}
#endif

/* One row of channels; returns its squares, not yet summed over the lanes. */
INLINE vec load_row(float *to, __global const storage *plane,
                    const tensor_layout *layout, token at,
                    __global const storage *pad)
{
    __global const storage *row = token_row(plane, layout, &at, pad);
    vec squares = (vec)(0.0f);
    for (int cv = 0; cv < V_VECS; cv++) {
        vec x = (vec)(0.0f);
        if (cv < CHANNEL_VECS)
            x = load_token(row, layout->column, cv);
        JOIN(vstore, LANES)(x, cv, to);
        squares = FMA(x, x, squares);
    }
    return squares;
}

/* Queries of the padding are zeros: nothing is kept of them. */
INLINE void load_rows(row_tile *tile, const forward_args *args,
                      const window_place *place, __global const storage *q,
                      uint row, uint row_end, float scale)
{
    tile->count = (int)min(row_end - row, (uint)TILE_ROWS);
    for (int r = 0; r < TILE_ROWS; r++) {
        tile->row[r] = min(row + r, row_end - 1);
#if GRID
        tile->token[r] = find_token(&args->grid, place, tile->row[r]);
#endif
#if MASK == 4
        tile->region[r] = seam_sides(&args->grid, place, tile->row[r]);
#endif
        const vec squares =
            load_row(tile->q[r], q, &args->q, row_token(tile, r), 0);
        tile->q_scale[r] = scale;
#if VARIANT == COSINE
        tile->q_scale[r] *= inverse_norm(lanes_sum(squares));
#endif
    }
}

#if BIAS || MASK == 1 || MASK == 2
#define DEFINE_TERM_LOAD(name, suffix, type)                                  \
    INLINE vec name(__global const type *p, const tensor_layout *layout,      \
                    uint row, uint key)                                       \
    {                                                                         \
        p += element(layout, row, key);                                       \
        if (NK % LANES == 0 || key + LANES <= NK)                             \
            return JOIN(load_lanes, suffix)(p, TERM_STEP(*layout), LANES);    \
        return JOIN(load_lanes, suffix)(p, TERM_STEP(*layout), NK % LANES);   \
    }
#if BIAS
DEFINE_TERM_LOAD(load_bias, BIAS_SUFFIX, bias_storage)
#endif
#if MASK == 1 || MASK == 2
DEFINE_TERM_LOAD(load_mask, MASK_SUFFIX, mask_storage)
#endif
#endif

/* Dot products of the tile's rows with key vectors jv .. jv + TILE_VECS. */
INLINE void multiply_transposed(vec acc[TILE_ROWS][TILE_VECS],
                                const float rows[TILE_ROWS][CHANNELS],
                                const vec transposed[HEAD_DIM][KEY_VECS],
                                int jv)
{
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++)
            acc[r][t] = (vec)(0.0f);
    NO_UNROLL_FOR (int c = 0; c < HEAD_DIM; c++)
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++) {
            const vec x = transposed[c][jv + t];
            UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
                acc[r][t] = FMA((vec)(rows[r][c]), x, acc[r][t]);
        }
}

#if ADJUSTS
/* What the logits of key vectors jv .. jv + TILE_VECS get from where the
 * tokens lie, in windows where that is not nothing. */
INLINE void adjust_logits(row_tile *tile, const key_block *keys, int jv,
                          const forward_args *args)
{
    for (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++) {
            vec x = JOIN(vload, LANES)(jv + t, tile->p[r]);
#if MASK == 4
            x = select(x, x + args->region_value,
                       keys->region[jv + t] != tile->region[r]);
#endif
#if PADDING == 2
            x = select(x, (vec)(-INFINITY), keys->hidden[jv + t]);
#endif
            JOIN(vstore, LANES)(x, jv + t, tile->p[r]);
        }
}
#endif

/* Logits of the tile for key vectors jv .. jv + TILE_VECS. */
INLINE void compute_logits(row_tile *tile, const key_block *keys, int jv,
                           const forward_args *args, const logit_terms *terms)
{
    vec acc[TILE_ROWS][TILE_VECS];
    multiply_transposed(acc, tile->q, keys->transposed, jv);
    UNROLL_FOR (int t = 0; t < TILE_VECS; t++) {
        const int j = (jv + t) * LANES;
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
            vec x = acc[r][t] * tile->q_scale[r];
#if VARIANT == COSINE
            x *= keys->inverse_norm[jv + t];
#endif
            if (j < keys->count) {
#if BIAS
                x += load_bias(terms->bias, &args->bias, tile->row[r],
                               keys->first + j);
#endif
#if MASK == 3
                const int region = terms->query_regions[element(
                    &args->query_regions, tile->row[r], 0)];
                x = select(x, x + args->region_value,
                           keys->region[jv + t] != region);
#elif MASK && MASK != 4
                x += load_mask(terms->mask, &args->mask, tile->row[r],
                               keys->first + j);
#endif
            }
            if (j + LANES > keys->count)
                x = select((vec)(-INFINITY), x,
                           LANE_NUMBERS < keys->count - j);
#if VARIANT == SLIDING
            if (keys->mixed) {
                const span seen = visible_span(args, tile->row[r]);
                const ivec at = LANE_NUMBERS + (int)(keys->first + j);
                x = select((vec)(-INFINITY), x,
                           at < (int)seen.high &&
                               (at >= (int)seen.low || at < (int)args->sink));
            }
#endif
            JOIN(vstore, LANES)(x, jv + t, tile->p[r]);
        }
    }
#if ADJUSTS
    if (keys->adjusts)
        adjust_logits(tile, keys, jv, args);
#endif
}

/* Turns logits into exponentials and sums them. earlier_max and earlier_sum
 * are what the rows had before this block of keys. */
INLINE void exponentiate(row_tile *tile, const float *earlier_max,
                         const float *earlier_sum)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        vec maxima = JOIN(vload, LANES)(0, tile->p[r]);
        for (int jv = 1; jv < KEY_VECS; jv++)
            maxima = fmax(maxima, JOIN(vload, LANES)(jv, tile->p[r]));
        tile->max[r] = fmax(lanes_max(maxima), earlier_max[r]);
        /* a row that has seen nothing has no maximum to subtract */
        const float base = tile->max[r] == -INFINITY ? 0.0f : tile->max[r];
        vec sums = (vec)(0.0f);
        for (int jv = 0; jv < KEY_VECS; jv++) {
            const vec x = JOIN(vload, LANES)(jv, tile->p[r]) - base;
            const vec p = exp2_nonpositive(x * LOG2E);
            JOIN(vstore, LANES)(p, jv, tile->p[r]);
            sums += p;
        }
        tile->sum[r] = lanes_sum(sums);
#if STREAMING
        tile->keep[r] = exp2((earlier_max[r] - base) * LOG2E);
        tile->sum[r] += tile->keep[r] * earlier_sum[r];
#endif
    }
}

/* sums[row][..] += P V for channel vectors cv .. cv + OUT_VECS. */
INLINE void multiply_values(vec sums[TILE_ROWS][V_VECS], const row_tile *tile,
                            const key_block *keys,
                            const vec values[BLOCK_KEYS][V_VECS], int cv,
                            const forward_args *args)
{
#if VARIANT == SLIDING
    /* A value must not reach a row that does not see it, not even as
     * 0 * NaN. */
    if (keys->mixed) {
        for (int r = 0; r < TILE_ROWS; r++) {
            const span seen = visible_span(args, tile->row[r]);
            for (int j = 0; j < keys->count; j++)
                if (sees(args, seen, keys->first + j))
                    for (int t = 0; t < OUT_VECS; t++)
                        sums[r][cv + t] =
                            FMA((vec)(tile->p[r][j]), values[j][cv + t],
                                sums[r][cv + t]);
        }
        return;
    }
#endif
    vec acc[TILE_ROWS][OUT_VECS];
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            acc[r][t] = sums[r][cv + t];
    NO_UNROLL_FOR (int j = 0; j < keys->count; j++)
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
            const vec p = (vec)(tile->p[r][j]);
            UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
                acc[r][t] = FMA(p, values[j][cv + t], acc[r][t]);
        }
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            sums[r][cv + t] = acc[r][t];
}

#if BACKWARD
/* What the backward kernels keep of a tile beside row_tile. */
typedef struct gradient_tile {
    float d_o[TILE_ROWS][CHANNELS];
    float ds[TILE_ROWS][BLOCK_KEYS]; /* dP, then dS */
    float delta[TILE_ROWS];          /* sum over keys of P dP, less d_lse */
} gradient_tile;

/* ds = dO V^T, for all keys of the block. */
INLINE void multiply_d_o(gradient_tile *g,
                         const vec transposed[HEAD_DIM][KEY_VECS])
{
    for (int jv = 0; jv < KEY_VECS; jv += TILE_VECS) {
        vec acc[TILE_ROWS][TILE_VECS];
        multiply_transposed(acc, g->d_o, transposed, jv);
        UNROLL_FOR (int t = 0; t < TILE_VECS; t++)
            UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
                JOIN(vstore, LANES)(acc[r][t], jv + t, g->ds[r]);
    }
}

/* sums[row][..] += weights times rows of a matrix, channel vectors cv .. cv +
 * OUT_VECS. */
INLINE void multiply_natural(vec sums[TILE_ROWS][V_VECS],
                             const float weights[TILE_ROWS][BLOCK_KEYS],
                             const vec natural[BLOCK_KEYS][V_VECS], int count,
                             int cv)
{
    vec acc[TILE_ROWS][OUT_VECS];
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            acc[r][t] = sums[r][cv + t];
    NO_UNROLL_FOR (int j = 0; j < count; j++)
        UNROLL_FOR (int r = 0; r < TILE_ROWS; r++) {
            const vec x = (vec)(weights[r][j]);
            UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
                acc[r][t] = FMA(x, natural[j][cv + t], acc[r][t]);
        }
    UNROLL_FOR (int r = 0; r < TILE_ROWS; r++)
        UNROLL_FOR (int t = 0; t < OUT_VECS; t++)
            sums[r][cv + t] = acc[r][t];
}

/* Gradients with respect to rows of length 1, taken back to x = those rows
 * times 1 / inverse: (d - x^ (x^ . d)) / |x|. Below the smallest norm x^ is
 * just a multiple of x. Returns x^ . d. */
INLINE float take_back_norm(vec d[V_VECS], const vec x[V_VECS], float inverse)
{
    vec along = (vec)(0.0f);
    for (int cv = 0; cv < V_VECS; cv++)
        along = FMA(x[cv], d[cv], along);
    const float dot = lanes_sum(along) * inverse;
    const float part = inverse < 1.0f / NORM_EPSILON ? dot * inverse : 0.0f;
    for (int cv = 0; cv < V_VECS; cv++)
        d[cv] = (d[cv] - x[cv] * part) * inverse;
    return dot;
}

/* Stores a row of a gradient, or adds to it; the token exists. */
INLINE void store_gradient(const vec d[V_VECS], __global storage *plane,
                           const tensor_layout *layout, token at, int add)
{
    __global storage *row = plane + token_offset(layout, &at);
    for (int cv = 0; cv < CHANNEL_VECS; cv++) {
        vec x = d[cv];
        if (add)
            x += load_channels(row, layout->column, cv);
        store_channels(x, row, layout->column, cv);
    }
}
#endif
