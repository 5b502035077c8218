/* SPDX-License-Identifier: Apache-2.0
 * How sums of a block become results and leave, in fragments (wgmma.cl). */
#include "hopper/linear_norms.cl"

/* A wave's 16 rows of a panel of y. */
typedef struct result_panel {
    uint row, column; /* the first */
    int columns;      /* that exist, from there on */
    uint rows;        /* address of the wave's own in local memory */
    uint lane;
} result_panel;

/* Two neighbours as they are stored; and a lane's pairs of columns 16 c and on
 * in local memory: of two rows, each 8 columns after the other. */
#if DTYPE == 0
typedef float2 stored_pair;
#define OF_STORED(pair) (pair)
#define STORED(x) (x)
#define LOAD_PAIR(from) ((float2)((from)[0], (from)[1]))
INLINE uint pair_at(const result_panel *p, const uint c, const uint i)
{
    const uint lane = p->lane % 4;
    return swizzled_chunk(p->rows, p->lane / 4 + 8 * (i % 2),
                          4 * c + 2 * (i / 2) + lane / 2) +
           lane % 2 * 8;
}
INLINE void load_16(stored_pair *pairs, const result_panel *p, const uint c)
{
    UNROLL_FOR (uint i = 0; i < 4; i++)
        pairs[i] = load_floats(pair_at(p, c, i));
}
INLINE void store_16(const stored_pair *pairs, const result_panel *p,
                     const uint c)
{
    UNROLL_FOR (uint i = 0; i < 4; i++)
        store_floats(pair_at(p, c, i), pairs[i]);
}
#else
typedef uint stored_pair;
#define OF_STORED(pair) unpack(pair)
#define STORED(x) PACK((x).x, (x).y)
#define LOAD_PAIR(from) load_pair(from)
INLINE void load_16(stored_pair *pairs, const result_panel *p, const uint c)
{
    LOAD_MATRICES(pairs, matrices_at(p->rows, p->lane, c), "");
}
INLINE void store_16(const stored_pair *pairs, const result_panel *p,
                     const uint c)
{
    STORE_MATRICES(pairs, matrices_at(p->rows, p->lane, c));
}
#endif

/* A lane has a pair of each 8 columns of a panel. */
#define LANE_PAIRS (STAGE_DIMS / 8)

/* Numbers of a lane's columns of the panel; those behind the last are like it.
 * from: of column 0 */
INLINE void load_pairs(stored_pair *pairs, __global const storage *from,
                       const layer *l, const result_panel *p)
{
    from += p->column + 2 * (p->lane % 4);
    const int last = p->columns - 8;
    if ((l->args->flags & LINEAR_WIDE_OUT) != 0) {
        UNROLL_FOR (int i = 0; i < LANE_PAIRS; i++)
            pairs[i] =
                *(__global const stored_pair *)(from + min(8 * i, last));
    } else {
        UNROLL_FOR (int i = 0; i < LANE_PAIRS; i++)
            pairs[i] = LOAD_PAIR(from + min(8 * i, last));
    }
}

/* Two sums of one row become results, but for the residual. bias, weight: of
 * their columns, those of the norm if there is one; terms: s and b' of each */
INLINE float2 finish_pair(float2 x, const row_pair *rows, const int row,
                          stored_pair bias, stored_pair weight, float4 terms)
{
    if (TAKES_STATISTICS)
        x = FMA(x, rows->factor[row],
                FMA(rows->shift[row], terms.s02, terms.s13));
    else if (NORMALISES)
        x = FMA(FMA(x, rows->factor[row], rows->shift[row]), OF_STORED(weight),
                OF_STORED(bias));
    else if (HAS_BIAS)
        x += OF_STORED(bias);
    x.x = finish_sum(x.x);
    x.y = finish_sum(x.y);
    return x;
}

/* What a lane's columns of a panel have: see finish_pair. */
typedef struct column_pairs {
    stored_pair bias[LANE_PAIRS], weight[LANE_PAIRS];
    __global const float4 *terms;
} column_pairs;

/* Sums of columns 16 c and on of a panel become results, beside the residual
 * if there is one. is_first: the panel is a block's first */
INLINE void finish_16(const float *sums, const result_panel *p,
                      const column_pairs *columns, row_pair *rows,
                      const uint c, const int is_first)
{
    stored_pair pairs[4];
    if (HAS_RESIDUAL)
        load_16(pairs, p, c);
    UNROLL_FOR (int i = 0; i < 4; i++) {
        const int group = 2 * (int)c + i / 2;
        float2 x = {sums[2 * i], sums[2 * i + 1]};
        float4 terms = 0.0f;
        if (TAKES_STATISTICS)
            terms = columns->terms[min(4 * group, p->columns / 2 - 4)];
        x = finish_pair(x, rows, i % 2, columns->bias[group],
                        columns->weight[group], terms);
        if (HAS_RESIDUAL)
            x += OF_STORED(pairs[i]);
        pairs[i] = STORED(x);
        if (GIVES_STATISTICS)
            count_pair(rows, i % 2, OF_STORED(pairs[i]),
                       is_first && c == 0 && i < 2);
    }
    store_16(pairs, p, c);
}

INLINE void store_panel(const layer *l, const result_panel *p)
{
    const uint chunk = p->lane % 8, row = p->lane / 8;
    const ulong stride = l->args->y_stride;
    const int wide = (l->args->flags & LINEAR_WIDE_OUT) != 0;
    __global storage *to =
        l->y + (p->row + row) * stride + p->column + chunk * CHUNK;
    UNROLL_FOR (uint i = 0; i < 16; i += 4) {
        if (p->row + row + i < l->args->rows &&
            (int)(chunk * CHUNK) < p->columns) {
            const uint4 x =
                load_chunk(swizzled_chunk(p->rows, row + i, chunk));
            if (wide)
                *(__global uint4 *)to = x;
            else
                vstore8(as_ushort8(x), 0, (__global ushort *)to);
        }
        to += 4 * stride;
    }
}

/* left: columns of the block from the panel's first on; all: of the block. */
INLINE void finish_panel(const float *sums, const layer *l,
                         const result_panel *p, row_pair *rows,
                         const uint left, const uint all)
{
    column_pairs columns;
    if (TAKES_STATISTICS)
        columns.terms =
            (__global const float4 *)l->bias + (p->column / 2 + p->lane % 4);
    else if (NORMALISES || HAS_BIAS)
        load_pairs(columns.bias, NORMALISES ? l->norm_bias : l->bias, l, p);
    if (NORMALISES)
        load_pairs(columns.weight, l->norm_weight, l, p);
    UNROLL_FOR (uint c = 0; c < STAGE_DIMS / 16; c++)
        if (16 * c < left)
            finish_16(sums + 8 * c, p, &columns, rows, c, left == all);
    WAVE_SYNC();
    store_panel(l, p);
}

/* Sums of a block leave, by way of stages of its residual, the first of which
 * is `stage`, or else of that one, each wave by its own rows, which nobody
 * else reads any more. own: of these the address in a stage. */
INLINE void finish_block(float *sums, const layer *l, uint block, uint stage,
                         uint wave, uint own, int lane)
{
    result_panel p = {.row = first_row_of(l, block) + wave * 16,
                      .column = first_column_of(l, block),
                      .lane = (uint)lane};
    const uint row = p.row + p.lane / 4;
    row_pair rows;
    if (TAKES_STATISTICS)
        load_statistics(&rows, l, row);
    if (NORMALISES)
        find_norms(sums, &rows, l, p.lane);
    UNROLL_FOR (uint panel = 0; panel < RESULT_PANELS; panel++) {
        p.columns = min(BLOCK_COLUMNS - (int)panel * STAGE_DIMS,
                        (int)(l->args->out - p.column));
        p.rows = stage_at(l, stage) + own;
        if (HAS_RESIDUAL)
            await_phase(filled_at(l, stage), parity_of(stage));
        if (p.columns > 0)
            finish_panel(sums + STAGE_DIMS / 2 * panel, l, &p, &rows,
                         BLOCK_COLUMNS - panel * STAGE_DIMS, BLOCK_COLUMNS);
        WAVE_SYNC();
        if (HAS_RESIDUAL || panel == RESULT_PANELS - 1)
            leave(read_at(l, stage), lane);
        stage += HAS_RESIDUAL;
        p.column += STAGE_DIMS;
    }
    if (GIVES_STATISTICS)
        store_statistics(&rows, l, row, p.lane);
}
