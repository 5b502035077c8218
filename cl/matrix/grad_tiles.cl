/* SPDX-License-Identifier: Apache-2.0
 * What the gradient kernels compute with, a q block's rows and keys, and the
 * products of a wave's tile of them: scores, dP and sums of gradients. */
#include "matrix/epilogue.cl"
#include "matrix/kept_weights.cl"
#include "matrix/norms.cl"
#include "matrix/scores.cl"
#include "matrix/tile_scheduler.cl"

#if HAS_LOCAL_BIAS_CACHE
#define BIAS_CACHE_OR_NULL bias_cache
#define CACHE_SCORE_BIAS cache_score_bias
#else
#define BIAS_CACHE_OR_NULL 0
#define CACHE_SCORE_BIAS(cache, args, score_bias, rows, first, item)
#endif

/* P and dS go to products as sums of so many numbers of 16 bits. In small
 * windows, whose gradients are sums of few terms, the rounding of each shows.
 */
#define WEIGHT_PARTS (NQ <= TILE_N || NK <= TILE_N ? 2 : 1)

INLINE void clear_tiles(float tiles[][ACC_PER_LANE], const int count)
{
    UNROLL_FOR (int t = 0; t < count; t++)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            tiles[t][i] = 0.0f;
}

INLINE void copy_tile(float *to, const float *from)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        to[i] = from[i];
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
INLINE void add_values(float sums[][ACC_PER_LANE], const int count,
                       const query_tile *weights, __local const ushort *values,
                       int tile, int channels, const wave *w)
{
    UNROLL_FOR (int d = 0; d < count; d++)
        if (HAS_CHANNELS(channels + d)) {
            const key_tile x = load_value(values, PITCH, tile * TILE_N,
                                          (channels + d) * TILE_N, LAST_KEY,
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
#if VOTES
#define TAKES_LSE 1
#define ANY_OF_WAVE(x) WAVE_ANY(x)
#else
#define TAKES_LSE 0
#define ANY_OF_WAVE(x) 0
#endif
#define TAKES_O (TAKES_LSE && WEIGHT_PARTS == 1)
#define MOST_LSE 64.0f /* without o */
/* A larger one, unless rounded up, might make exponentials overflow. */
#define LARGE_LSE 0x1p22f

/* ---- What a team computes with ---- */

typedef struct q_block {
    const backward_args *args;
    const tile_scheduler *at;
    score_bias_view score_bias;
    uint head;
    uint first_row, first_key; /* of the blocks, counted from the window's */
    int row_count, key_count;
    int is_last;    /* of the window */
    int fast_store; /* all gradients are stored in whole chunks, added to
                       nothing */
    int has_shift_boundary; /* the window has several regions */
    float scale;
    float ds_scale; /* a power of two that dS is multiplied by for dK */
    /* local memory: rows of PITCH */
    __local const ushort *q, *d_o, *k, *v;
    __local const float *q_inverses, *k_inverses;
    __local const float *lse; /* of the rows, where known */
    __local ushort *out;      /* of the wave, for output staging */
    __local cached_bias *bias_cache;
    __local uchar *regions_m, *regions_n; /* down and across tiles */
} q_block;

/* The block's first token down tiles, and the first across. */
INLINE uint first_down(const q_block *here)
{
    return S_TRANSPOSED ? here->first_key : here->first_row;
}
INLINE uint first_across(const q_block *here)
{
    return S_TRANSPOSED ? here->first_row : here->first_key;
}

INLINE work_tile work_tile_of(const q_block *here)
{
    const work_tile of = {.window = window_of(here->at, &here->args->forward),
                          .head = here->head,
                          .row = here->first_row};
    return of;
}

/* Terms that stay in local memory come there: at the start those of a head,
 * for rows from `first` on. */
INLINE void cache_head_score_bias(__local cached_bias *bias_cache,
                                  const score_bias_tensors *tensors,
                                  const forward_args *forward, uint head,
                                  uint first, int item)
{
    const work_tile of_head = {.window = forward->first_window, .head = head};
    if (HAS_LOCAL_BIAS_CACHE && !MASK_IN_LOCAL) {
        const score_bias_view score_bias =
            score_bias_of(tensors, forward, of_head);
        CACHE_SCORE_BIAS(bias_cache, forward, &score_bias, 0, first, item);
    }
}

/* Terms of a step; those that stay are renewed where the window is of another
 * mask class than `cached_mask_class`, for all teams, which have windows of
 * one mask class. */
INLINE void find_score_bias(q_block *here, uint *cached_mask_class,
                            const score_bias_tensors *tensors, int item)
{
    const forward_args *forward = &here->args->forward;
    const uint mask_class = MASK_CLASS(*here->at);
    if (!HAS_BIAS_CACHE)
        here->score_bias = score_bias_of(tensors, forward, work_tile_of(here));
    if (MASK_IN_LOCAL && mask_class != *cached_mask_class) {
        const score_bias_view score_bias =
            score_bias_of(tensors, forward, work_tile_of(here));
        *cached_mask_class = mask_class;
        barrier(CLK_LOCAL_MEM_FENCE);
        CACHE_SCORE_BIAS(here->bias_cache, forward, &score_bias, 0,
                         first_down(here), item);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* Regions of the window's tokens come to local memory, in its first step and
 * where they are others than those that are `kept`. 1: the team must meet. */
INLINE int find_regions(q_block *here, uint *kept, const int is_first,
                        const score_bias_tensors *tensors, int lane)
{
#if COMPARES_REGIONS
    here->has_shift_boundary = HAS_SHIFT_BOUNDARY(*here->at);
    const int has_new = is_first && here->has_shift_boundary &&
                        has_new_regions(here->at, kept);
    if (has_new) {
        const forward_args *forward = &here->args->forward;
        const score_bias_view regions = score_bias_at(
            tensors, forward, work_tile_of(here), &here->at->coord);
        keep_regions(here->regions_m, here->regions_n, forward, &regions,
                     first_down(here), lane);
    }
    return has_new;
#else
    return 0;
#endif
}

/* What tile `tile` of rows has besides its place, beside the block of that
 * number. Fills what the caller has: what is returned stays in memory with
 * NVIDIA's compiler. */
INLINE void place_tile(tile_rows *rows, int tile, uint block,
                       const q_block *here, const wave *w)
{
    if (PADDING == 2)
        rows->holds_padding =
            holds_padding(&here->args->forward.grid, &here->at->coord);
    if (HAS_LOCAL_BIAS_CACHE)
        rows->local_score_bias =
            here->bias_cache +
            (tile * ALL_KEY_TILES + block * KEY_TILES) * TILE_ELEMENTS;
    if (COMPARES_REGIONS) {
        rows->key_regions = here->has_shift_boundary
                                ? here->regions_n + first_across(here)
                                : 0;
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            rows->region[r] = here->regions_m[min(
                rows->row + lane_query(w->lane, r), rows->last_row)];
    }
}

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

/* Does each lse of the tile serve? Not those that there are not, or that are
 * too large. The same at all lanes. */
INLINE int lse_serves(const int has_lse, const row_part *part, const wave *w)
{
    int exceeds = 0;
    if (has_lse) {
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            exceeds |=
                part->lse[r] != INFINITY && fabs(part->lse[r]) > MOST_LSE;
        exceeds = ANY_OF_WAVE(exceeds);
    }
    return has_lse && !exceeds;
}

/* What rows bring besides q and dO. */
INLINE void read_rows(row_part *part, const q_block *here,
                      __global const float *d_lse, const wave *w)
{
    const backward_args *args = here->args;
    const grid_layout *grid = &args->forward.grid;
    const window_coord *coord = &here->at->coord;
    int rows[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        rows[r] =
            min(part->rows.row + lane_query(w->lane, r), part->rows.last_row);
        part->rows.scale[r] = here->scale;
        part->lse[r] = part->d_lse[r] = 0.0f;
        if (VARIANT == COSINE) {
            part->inverse[r] = here->q_inverses[rows[r]];
            part->rows.scale[r] *= part->inverse[r];
        }
    }
    const int has_lse = TAKES_LSE && (args->forward.flags & ARG_LSE) != 0;
    if (has_lse)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            const float lse = here->lse[rows[r]];
            part->lse[r] = fabs(lse) > LARGE_LSE
                               ? lse + fmin(fabs(lse), FLT_MAX) * 0x1p-22f
                               : lse;
        }
    /* exponentials of what does not exist or sees nothing must be 0 */
    if (has_lse)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            part->lse[r] = part->lse[r] == -INFINITY || !row_exists(part, r, w)
                               ? INFINITY
                               : part->lse[r];
    /* a team may have no window at last */
    if ((args->forward.flags & ARG_D_LSE) != 0 && here->at->exists)
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            ulong at;
            if (find_row(&at, &args->d_lse, grid, coord,
                         here->first_row + rows[r]))
                part->d_lse[r] =
                    d_lse[plane(&args->d_lse, coord->grid, here->head) + at];
        }
}

/* Scores of a subtile. */
INLINE void score_subtile(float scores[TILES_PER_SUBTILE][ACC_PER_LANE],
                          int first, const q_block *here,
                          const tile_rows *rows, const wave *w)
{
    multiply_subtile(scores, 0, here->q, rows->row, rows->last_row, here->k,
                     first, w);
    const score_keys keys = {(int)here->first_key, here->key_count,
                             here->k_inverses, &here->score_bias,
                             &here->args->forward};
    finish_subtile(scores, first, &keys, rows, w);
}

/* Which weights a tile has, of rows from `row` of the block on. Fills what the
 * caller has, see place_tile. */
INLINE void place_weights(weight_place *at, int row, int tile,
                          const q_block *here)
{
    const uint down = first_down(here) + row;
    const uint across = first_across(here) + tile * TILE_N;
    at->args = &here->args->forward;
    at->of = work_tile_of(here);
    at->query = S_TRANSPOSED ? across : down;
    at->key = S_TRANSPOSED ? down : across;
}

/* dO of a tile of rows, or v of a tile of keys, stays in registers where that
 * is not much. */
#define HELD_DP_TILES (DIM_TILES <= 4 ? DIM_TILES : 0)
typedef struct dp_rows {
    int row, last_row;
    query_tile tile[HELD_DP_TILES + 1];
} dp_rows;

INLINE query_tile load_dp_rows(const dp_rows *rows, int d, const q_block *here,
                               const wave *w)
{
    return load_query(S_TRANSPOSED ? here->v : here->d_o, PITCH, rows->row,
                      d * TILE_N, rows->last_row, w);
}

INLINE dp_rows read_dp_rows(const tile_rows *rows, const q_block *here,
                            const wave *w)
{
    dp_rows dp = {.row = rows->row, .last_row = rows->last_row};
    UNROLL_FOR (int d = 0; d < HELD_DP_TILES; d++)
        dp.tile[d] = load_dp_rows(&dp, d, here, w);
    return dp;
}

/* keep(dP) of a tile of keys, or of rows the other way round. */
INLINE void multiply_dp(float *dp, const dp_rows *rows, int tile,
                        const q_block *here, const wave *w)
{
    weight_place at;
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
        dp[i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        const query_tile q =
            d < HELD_DP_TILES ? rows->tile[d] : load_dp_rows(rows, d, here, w);
        const key_tile k =
            load_key(S_TRANSPOSED ? here->d_o : here->v, PITCH, tile * TILE_N,
                     d * TILE_N, LAST_KEY, KEY_PART(tile), w);
        multiply_tiles(dp, &q, &k, w);
    }
    place_weights(&at, rows->row, tile, here);
    keep_tile(dp, KEPT_SCALE(at.args), &at, w);
}

/* sums[r] = the product of rows r of two planes, at all lanes that share it.
 */
INLINE void multiply_rows(float sums[LANE_ROWS], __local const ushort *rows,
                          __local const ushort *others, const row_part *part,
                          const wave *w)
{
    int row_index[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        sums[r] = 0.0f;
    dot_rows(sums, row_index, rows, others, part->rows.row, BLOCK_ROWS, w);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(sums[r], ADD);
    }
}
