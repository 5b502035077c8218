/* SPDX-License-Identifier: Apache-2.0
 * What the gradient kernels compute with, a visit's rows and keys, and the
 * products of a wave's tile of them: scores, dP and sums of gradients. */
#ifndef GRAD_TILES_CL
#define GRAD_TILES_CL
#include "matrix/epilogue.cl"
#include "matrix/norms.cl"
#include "matrix/scores.cl"
#include "matrix/tile_scheduler.cl"

/* P and dS go to products as sums of so many numbers of 16 bits. In small
 * windows, whose gradients are sums of few terms, the rounding of each shows.
 */
#define WEIGHT_PARTS (NQ <= UNIT_TILE || NK <= UNIT_TILE ? 2 : 1)

INLINE void clear_tiles(float tiles[][VALUES], const int count)
{
    UNROLL_FOR (int t = 0; t < count; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            tiles[t][i] = 0.0f;
}

/* A tile becomes operands, whose sum it is. Changes it. */
INLINE void make_operand_parts(query_tile *operands, float *tile,
                               const wave *w)
{
    UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++) {
        operands[part] = make_weights(tile, w);
        if (part + 1 < WEIGHT_PARTS)
            subtract_rounded(tile);
    }
}

/* sums += a tile's weights times values, for `count` tiles of channels from
 * tile `channels` on. */
INLINE void add_values(float sums[][VALUES], const int count,
                       const query_tile *weights, __local const ushort *values,
                       int tile, int channels, const wave *w)
{
    UNROLL_FOR (int d = 0; d < count; d++)
        if (HAS_CHANNELS(channels + d)) {
            const key_tile x = load_value(values, PITCH, tile * UNIT_TILE,
                                          (channels + d) * UNIT_TILE, LAST_KEY,
                                          KEY_PART(tile), w);
            UNROLL_FOR (int part = 0; part < WEIGHT_PARTS; part++)
                multiply_tiles(sums[d], &weights[part], &x, w);
        }
}

/* Both are rounded, and gradients may cancel what is exact of them. An lse
 * serves alone while its rounding is far below that of P. delta from o always
 * does, since the sum of a row's dS over its keys must be d_lse: that tells
 * how far delta is off, and where it shows the row is mended. But in small
 * windows the rounding of o always shows. Both take a vote of the wave. */
#ifdef WAVE_ANY
#define TAKES_LSE 1
#define TAKES_O (WEIGHT_PARTS == 1)
#else
#define TAKES_LSE 0
#define TAKES_O 0
#endif
#define MOST_LSE 64.0f /* without o */
/* A larger one, unless rounded up, might make exponentials overflow. */
#define LARGE_LSE 0x1p22f

#if HAS_LOCAL_TERMS
/* Terms that stay in local memory come there: at the start those of a head,
 * for rows from `first` on. */
INLINE void keep_head_terms(__local kept_term *kept,
                            const logit_tensors *tensors,
                            const forward_args *forward, uint head, uint first,
                            int item)
{
#if !MASK_IN_LOCAL
    const unit of_head = {.window = forward->first_window, .head = head};
    const logit_terms terms = terms_of(tensors, forward, of_head);
    keep_terms(kept, forward, &terms, first, item);
#endif
}
#define LOCAL_TERMS(kept) kept
#else
typedef float kept_term;
#define LOCAL_TERMS(kept) 0
#endif

/* Terms of an item; those that stay are renewed where the window is of another
 * kind than `kept_kind`, for all teams, which have windows of one kind. */
INLINE logit_terms item_terms(uint *kept_kind, __local kept_term *kept,
                              const logit_tensors *tensors, const walk *here,
                              unit u, const forward_args *forward, uint first,
                              int item)
{
#if MASK_IN_LOCAL
    const logit_terms terms = {.unused = 0};
    const uint kind = MASK_KIND(*here);
    if (kind != *kept_kind) {
        const logit_terms new_terms = terms_of(tensors, forward, u);
        *kept_kind = kind;
        barrier(CLK_LOCAL_MEM_FENCE);
        keep_terms(kept, forward, &new_terms, first, item);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return terms;
#elif HAS_TERMS_KEPT
    const logit_terms terms = {.unused = 0};
    return terms;
#else
    return terms_of(tensors, forward, u);
#endif
}

/* What a team computes with. */
typedef struct visit {
    const backward_args *args;
    const walk *at;
    uint head;
    uint first_row, first_key; /* of the blocks, counted from the window's */
    int row_count, key_count;
    int is_last; /* of the window */
    int plain;   /* all gradients leave in whole chunks, added to nothing */
    float scale;
    float power; /* of two, that dS is multiplied by for dK */
    /* local memory: rows of PITCH */
    __local const ushort *q, *d_o, *k, *v;
    __local const float *q_inverses, *k_inverses;
    __local const float *lse; /* of the rows, where known */
    __local ushort *out;      /* of the wave, for rows that leave */
} visit;

/* A wave's tile of rows. */
typedef struct row_part {
    tile_rows rows;
    int count;                /* of its rows that exist; may be negative */
    float lse[LANE_ROWS];     /* where known */
    float d_lse[LANE_ROWS];   /* 0 where there is none */
    float inverse[LANE_ROWS]; /* 1 / norm of q */
} row_part;

INLINE int row_exists(const row_part *part, int r, const wave *w)
{
    return part->rows.row + lane_query(w->lane, r) <= part->rows.last_row;
}

/* Is an lse of the tile too large to serve? The same at all lanes. */
INLINE int exceeds_lse(const row_part *part, const wave *w)
{
    int exceeds = 0;
#ifdef WAVE_ANY
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        exceeds |= part->lse[r] != INFINITY && fabs(part->lse[r]) > MOST_LSE;
    exceeds = WAVE_ANY(exceeds);
#endif
    return exceeds;
}

/* What rows bring besides q and dO. */
INLINE void read_rows(row_part *part, const visit *here,
                      __global const float *d_lse, const wave *w)
{
    const backward_args *args = here->args;
    const grid_layout *grid = &args->forward.grid;
    const window_place *place = &here->at->place;
    int rows[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        rows[r] =
            min(part->rows.row + lane_query(w->lane, r), part->rows.last_row);
        part->rows.scale[r] = here->scale;
        part->lse[r] = part->d_lse[r] = 0.0f;
#if VARIANT == COSINE
        part->inverse[r] = here->q_inverses[rows[r]];
        part->rows.scale[r] *= part->inverse[r];
#endif
    }
    const int known = TAKES_LSE && (args->forward.flags & ARG_LSE) != 0;
    if (known)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const float lse = here->lse[rows[r]];
            part->lse[r] = fabs(lse) > LARGE_LSE
                               ? lse + fmin(fabs(lse), FLT_MAX) * 0x1p-22f
                               : lse;
        }
    /* exponentials of what does not exist or sees nothing must be 0 */
    if (known)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            part->lse[r] = part->lse[r] == -INFINITY || !row_exists(part, r, w)
                               ? INFINITY
                               : part->lse[r];
    if ((args->forward.flags & ARG_D_LSE) != 0)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            ulong at;
            if (find_row(&at, &args->d_lse, grid, place,
                         here->first_row + rows[r]))
                part->d_lse[r] =
                    d_lse[plane(&args->d_lse, place->grid, here->head) + at];
        }
}

/* Scores of a pass. */
INLINE void score_pass(float scores[PASS_TILES][VALUES], int first,
                       const visit *here, const tile_rows *rows,
                       const logit_terms *terms, const wave *w)
{
    multiply_pass(scores, 0, here->q, rows->row, rows->last_row, here->k,
                  first, w);
    finish_pass(scores, here->k_inverses, first, (int)here->first_key,
                here->key_count, &here->args->forward, terms, rows, w);
}

/* dO of a tile of rows, or v of a tile of keys, stays in registers where that
 * is not much. */
#define KEPT_FLOW_TILES (DIM_TILES <= 4 ? DIM_TILES : 0)
typedef struct flow_rows {
    int row, last_row;
    query_tile tile[KEPT_FLOW_TILES + 1];
} flow_rows;

INLINE query_tile load_flow(const flow_rows *rows, int d,
                            __local const ushort *plane_of_rows, const wave *w)
{
    return load_query(plane_of_rows, PITCH, rows->row, d * UNIT_TILE,
                      rows->last_row, w);
}

INLINE flow_rows read_flow(const tile_rows *rows,
                           __local const ushort *plane_of_rows, const wave *w)
{
    flow_rows flow = {.row = rows->row, .last_row = rows->last_row};
    UNROLL_FOR (int d = 0; d < KEPT_FLOW_TILES; d++)
        flow.tile[d] = load_flow(&flow, d, plane_of_rows, w);
    return flow;
}

/* dP of a tile of keys, or of rows the other way round. */
INLINE void multiply_flow(float *flow, const flow_rows *rows,
                          __local const ushort *plane_of_rows,
                          __local const ushort *columns, int tile,
                          const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        flow[i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        const query_tile q = d < KEPT_FLOW_TILES
                                 ? rows->tile[d]
                                 : load_flow(rows, d, plane_of_rows, w);
        const key_tile k =
            load_key(columns, PITCH, tile * UNIT_TILE, d * UNIT_TILE, LAST_KEY,
                     KEY_PART(tile), w);
        multiply_tiles(flow, &q, &k, w);
    }
}

/* sums[r] = the product of rows r of two planes, at all lanes that share it.
 */
INLINE void multiply_rows(float sums[LANE_ROWS], __local const ushort *rows,
                          __local const ushort *others, const row_part *part,
                          const wave *w)
{
    int place[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sums[r] = 0.0f;
    dot_rows(sums, place, rows, others, part->rows.row, BLOCK_ROWS, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(sums[r], ADD);
    }
}

#endif
