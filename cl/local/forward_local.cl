/* SPDX-License-Identifier: Apache-2.0
 * Forward pass for any GPU: a team of work-items computes one work tile with
 * the attention matrix of its query rows in local memory. No matrix units, no
 * sub-groups.
 *
 *        STAGE_KEYS         BLOCK_KEYS                 STAGE_DIMS
 *       +----------+      +------------+              +----------+
 *   K^T |          |      |     S      | BLOCK_ROWS   |    O     |
 *       +----------+      +------------+              +----------+
 *    Q  x staged K   ->   softmax in place  ->  P  x  staged V
 *
 *   1. S = Q K^T in register tiles of SCORE_ROWS x SCORE_COLS, the score bias
 *      added; K comes through local memory STAGE_KEYS keys and STAGE_DIMS
 *      channels at a time
 *   2. softmax, ROW_ITEMS work-items to a row
 *   3. O = P V in register tiles of OUT_ROWS x 4 channels
 *
 * Where S has room for all keys (BLOCK_KEYS >= NK) this is done once; where
 * the whole matrix has room too, BLOCK_ROWS is NQ. Else blocks of keys follow
 * each other and the softmax streams (Milakov and Gimelshein 2018).
 *
 *   TEAMS         teams of a work-group
 *   STAGE_KEYS    keys that are in local memory at once; a multiple of 4, or
 *                 all BLOCK_KEYS
 *   ROW_ITEMS     work-items to a row of the softmax, a power of two; above 1,
 *                 TEAM >= BLOCK_ROWS * ROW_ITEMS */
#define LISTS_TOKENS 0
#define SCALES_ROWS 0
#define LOADS_AHEAD 1
#define SUMS_STAY STREAMING
#include "local/forward_extents.h"
#include "local/local_bias.cl"

REQUIRE(TEAMS)
REQUIRE(STAGE_KEYS)
REQUIRE(ROW_ITEMS)

#define ROWS_AT_ONCE (TEAM / ROW_ITEMS)
/* Sums may start at the score bias, so that these are on their way while the
 * first products are made; a cosine is scaled before its score bias is added.
 */
#define SCORE_BIAS_FIRST (VARIANT == DOT && DIM_STAGES == 1)
#if VARIANT != SLIDING
#define FULL_ROWS (BLOCK_ROWS % SCORE_ROWS == 0 && NQ % BLOCK_ROWS == 0)
#define FULL_COLS                                                             \
    (STAGE_KEYS % SCORE_COLS == 0 && BLOCK_KEYS % STAGE_KEYS == 0 &&          \
     NK % BLOCK_KEYS == 0)
#else
#define FULL_ROWS 0
#define FULL_COLS 0
#endif
/* Entry i, j of a score tile, counted from its first. */
#define SCORE_AT(i, j) (ROW_TILES * (i)*SCORE_PITCH * 4 + COL_TILES * (j))
/* Sums that live through all blocks of keys must have constant indices. */
#if STREAMING
#define KEPT_STAGES DIM_STAGES
#define STAGE_FOR UNROLL_FOR
#else
#define KEPT_STAGES 1
#define STAGE_FOR for
#endif

/* What a team shares in local memory. */
typedef struct team_memory {
    __local float4 *q;          /* [Q_ROWS][DIM_PITCH] */
    __local float4 *kv;         /* [KV_ROWS][DIM_PITCH] */
    __local float4 *scores;     /* [ALL_ROWS][SCORE_PITCH] */
    __local float *row_max;     /* [BLOCK_ROWS] */
    __local float *row_sum;     /* [BLOCK_ROWS][ROW_ITEMS], partial sums */
    __local float *part_max;    /* [BLOCK_ROWS][ROW_ITEMS] */
    __local float *row_rescale; /* [BLOCK_ROWS], factor of earlier sums */
    __local float *q_factor;    /* [BLOCK_ROWS] */
    __local float *k_factor;    /* [BLOCK_KEYS] */
} team_memory;

/* A team's work tile. */
typedef struct team_work_tile {
    token_rows q, k, v;
    work_tile of;
    int row_count;
    int hides_keys; /* tokens of the padding are among them, and hidden */
    float scale;    /* of the logits */
    int wide;
    int zero; /* UNKNOWN_ZERO */
} team_work_tile;

/* Columns past a stage are not stored. */
INLINE int is_stored(int key, int col, int j)
{
    return (COL_TILES * SCORE_COLS == STAGE_KEYS ||
            col + COL_TILES * j < STAGE_KEYS) &&
           (BLOCK_KEYS % STAGE_KEYS == 0 ||
            key + col + COL_TILES * j < BLOCK_KEYS);
}

/* scores[.., key .. key + STAGE_KEYS) += q kv^T over the staged channels. */
INLINE void multiply_keys(const team_memory *memory, const forward_args *args,
                          const score_bias_view *score_bias,
                          const team_work_tile *at, key_range range, int key,
                          int channel, int lane)
{
    HIDE_FROM_OPTIMIZER(lane);
    for (int first = 0; first < ROW_TILES * COL_TILES; first += TEAM) {
        const int t = first + lane;
        if (t >= ROW_TILES * COL_TILES)
            continue;
        const int row = t / COL_TILES;
        const int col = t % COL_TILES;
        __local float *scores = (__local float *)memory->scores +
                                row * SCORE_PITCH * 4 + key + col;
        float acc[SCORE_ROWS][SCORE_COLS];
        clear_tile(acc);
        /* Rows and keys past the last take the last one's score bias. */
        int rows[SCORE_ROWS], keys[SCORE_COLS];
        number_entries(rows, SCORE_ROWS, at->of.row, row, ROW_TILES,
                       at->row_count - 1, FULL_ROWS);
        number_entries(keys, SCORE_COLS, range.first, key + col, COL_TILES,
                       (int)range.count - 1, FULL_COLS);
        if (SCORE_BIAS_FIRST)
            add_score_bias(acc, args, score_bias, &at->k.tokens, &at->k.tokens,
                           rows, keys);
        multiply_rows(acc, memory->q, memory->kv, row, col, COL_TILES);
        if (DIM_STAGES > 1 && channel > 0)
            UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
                UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                    if (is_stored(key, col, j))
                        acc[i][j] += scores[SCORE_AT(i, j)];
        if (channel + STAGE_DIMS >= HEAD_DIM) {
            UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
                UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                    if (VARIANT == COSINE)
                        acc[i][j] *= memory->q_factor[rows[i] - at->of.row] *
                                     memory->k_factor[keys[j] - range.first];
            if (!SCORE_BIAS_FIRST)
                add_score_bias(acc, args, score_bias, &at->k.tokens,
                               &at->k.tokens, rows, keys);
            if (PADDING == 2 && at->hides_keys)
                UNROLL_FOR (int j = 0; j < SCORE_COLS; j++) {
                    const token t = token_of(&at->k.tokens, keys[j]);
                    UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
                        acc[i][j] = EXISTS(t) ? acc[i][j] : -INFINITY;
                }
        }
        UNROLL_FOR (int i = 0; i < SCORE_ROWS; i++)
            UNROLL_FOR (int j = 0; j < SCORE_COLS; j++)
                if (is_stored(key, col, j))
                    scores[SCORE_AT(i, j)] = acc[i][j];
    }
}

/* The logits of a block of keys, which come STAGE_KEYS at a time. is_first: of
 * all blocks, so that Q is not yet there. */
INLINE void compute_logits(const team_memory *memory, const forward_args *args,
                           const score_bias_view *score_bias,
                           const team_work_tile *at, key_range range,
                           int is_first, int lane)
{
    /* the cosine variant scales a finished dot product, the others q */
    const float q_factor = VARIANT == COSINE ? 1.0f : at->scale;
    const staged_rows queries = {
        &at->q,   at->of.row, at->row_count, Q_ROWS + at->zero,
        q_factor, 0,          at->wide};
    for (int channel = 0; channel < HEAD_DIM + at->zero; channel += STAGE_DIMS)
        for (int key = 0; key < BLOCK_KEYS + at->zero; key += STAGE_KEYS) {
            const int me = lane + (at->zero & (key + 1));
            const int new_q = key == 0 && (DIM_STAGES > 1 || is_first);
            const staged_rows keys = {&at->k,
                                      range.first + key,
                                      (int)range.count - key,
                                      COL_TILES * SCORE_COLS + at->zero,
                                      1.0f,
                                      0,
                                      at->wide};
            if (new_q)
                stage(memory->q, &queries, channel, me);
            stage(memory->kv, &keys, channel, me);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (VARIANT == COSINE) {
                if (new_q)
                    accumulate_norms(memory->q_factor, memory->q, BLOCK_ROWS,
                                     at->scale, channel, me);
                accumulate_norms(memory->k_factor + key, memory->kv,
                                 min(STAGE_KEYS, BLOCK_KEYS - key), 1.0f,
                                 channel, me);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            multiply_keys(memory, args, score_bias, at, range, key, channel,
                          me);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
}

/* The bits of -0, which stand for the exponential of a key that the row does
 * not see; no other is negative. */
#define UNSEEN_BITS 0x80000000u

/* Puts `value` where a row does not see four keys from `key` on. */
INLINE float4 hide_unseen(float4 x, float value, const forward_args *args,
                          span seen, uint key)
{
    x.x = sees(args, seen, key) ? x.x : value;
    x.y = sees(args, seen, key + 1) ? x.y : value;
    x.z = sees(args, seen, key + 2) ? x.z : value;
    x.w = sees(args, seen, key + 3) ? x.w : value;
    return x;
}

/* A work-item's part of a row of logits: every ROW_ITEMS-th quad. */
typedef struct row_part {
    __local float4 *line;
    uint query;
    int works; /* is there such a row? */
    int part;
    span seen; /* what it sees, if keys are mixed */
} row_part;

/* The largest logit. */
INLINE float find_top(const row_part *row, const forward_args *args,
                      key_range range)
{
    const int count = (int)range.count;
    float top = -INFINITY;
    for (int first = 0; first < CEIL_DIV(count, 4); first += ROW_ITEMS) {
        const int c = first + row->part;
        if (!row->works || c >= CEIL_DIV(count, 4))
            continue;
        float4 x = row->line[c];
        if (VARIANT == SLIDING && range.mixed)
            x = hide_unseen(x, -INFINITY, args, row->seen,
                            range.first + c * 4);
        const int rest = count - c * 4;
        if (rest < 4) { /* no logits behind the last key */
            x.w = -INFINITY;
            x.z = rest < 3 ? -INFINITY : x.z;
            x.y = rest < 2 ? -INFINITY : x.y;
            row->line[c] = x;
        }
        top = fmax(top, fmax(fmax(x.x, x.y), fmax(x.z, x.w)));
    }
    return top;
}

/* Logits become exponentials, as they go to the product with V; returns the
 * sum of all. */
INLINE float weigh(const row_part *row, const forward_args *args, work_tile of,
                   key_range range, float softmax_max)
{
    const int quads = CEIL_DIV((int)range.count, 4);
    float4 sums = (float4)(0.0f);
    for (int first = 0; first < quads; first += ROW_ITEMS) {
        const int c = first + row->part;
        if (!row->works || c >= quads)
            continue;
        const uint key = range.first + c * 4;
        float4 p = WEIGHT(row->line[c], softmax_max);
        float4 kept = keep4(p, args, of, row->query, key);
        if (VARIANT == SLIDING && range.mixed) {
            p = hide_unseen(p, as_float(UNSEEN_BITS), args, row->seen, key);
            kept =
                hide_unseen(kept, as_float(UNSEEN_BITS), args, row->seen, key);
        }
        row->line[c] = kept;
        sums += p;
    }
    return (sums.x + sums.y) + (sums.z + sums.w);
}

/* Turns the logits of the rows into exponentials and sums them. Holds
 * barriers; the caller's next barrier publishes the result. */
INLINE void exponentiate(const team_memory *memory, const forward_args *args,
                         const team_work_tile *at, key_range range, int lane)
{
    HIDE_FROM_OPTIMIZER(lane);
    for (int done = 0; done < BLOCK_ROWS; done += ROWS_AT_ONCE) {
        const int r = done + lane / ROW_ITEMS;
        row_part row = {.line = memory->scores + r * SCORE_PITCH,
                        .query = at->of.row + r,
                        .works = r < at->row_count,
                        .part = lane % ROW_ITEMS};
        if (VARIANT == SLIDING && range.mixed && row.works)
            row.seen = visible_span(args, row.query);
        float top = find_top(&row, args, range);
        if (ROW_ITEMS > 1) {
            if (row.works)
                memory->part_max[r * ROW_ITEMS + row.part] = top;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = 0; i < ROW_ITEMS; i++)
                if (row.works)
                    top = fmax(top, memory->part_max[r * ROW_ITEMS + i]);
        }
        const float earlier =
            STREAMING && row.works ? memory->row_max[r] : -INFINITY;
        top = fmax(top, earlier);
        if (STREAMING && ROW_ITEMS > 1)
            barrier(CLK_LOCAL_MEM_FENCE); /* all have read row_max */
        /* a row that has seen nothing has no maximum to subtract */
        const float softmax_max = top == -INFINITY ? 0.0f : top;
        const float rescale = WEIGHT(earlier, softmax_max);
        const float sum = weigh(&row, args, at->of, range, softmax_max);
        if (row.works) {
            __local float *row_sum =
                memory->row_sum + r * ROW_ITEMS + row.part;
            *row_sum = STREAMING ? FMA(rescale, *row_sum, sum) : sum;
        }
        if (row.works && row.part == 0) {
            memory->row_max[r] = top;
            if (STREAMING)
                memory->row_rescale[r] = rescale;
        }
    }
}

/* The value y, but 0 where its key is not seen: even 0 * NaN must not reach
 * the row. */
INLINE float4 seen_value(float p, float4 y)
{
    return as_uint(p) == UNSEEN_BITS ? (float4)(0.0f) : y;
}

/* A work-item's tile of O, one quad of channels wide. */
typedef struct out_tile {
    int owns; /* does it have one? */
    int row;  /* the first, of rows OUT_TILES apart */
    int quad; /* of a stage's channels */
} out_tile;

/* out[i] += P V over `count` staged keys, for rows tile.row + OUT_TILES * i
 * and one quad of channels. Constant `mixed`: rows do not see all of them. */
INLINE void multiply_values(float4 *out, const team_memory *memory,
                            out_tile tile, int key, int count, const int mixed)
{
    __local const float4 *line =
        memory->scores + tile.row * SCORE_PITCH + key / 4;
    for (int c = 0; c < CEIL_DIV(count, 4); c++) {
        float4 y[4];
        UNROLL_FOR (int j = 0; j < 4; j++)
            y[j] = memory->kv[(c * 4 + j) * DIM_PITCH + tile.quad];
        UNROLL_FOR (int i = 0; i < OUT_ROWS; i++) {
            const float4 p = line[OUT_TILES * i * SCORE_PITCH + c];
            float4 x[4] = {y[0], y[1], y[2], y[3]};
            if (mixed) {
                x[0] = seen_value(p.x, x[0]);
                x[1] = seen_value(p.y, x[1]);
                x[2] = seen_value(p.z, x[2]);
                x[3] = seen_value(p.w, x[3]);
            }
            out[i] = FMA((float4)(p.x), x[0], out[i]);
            out[i] = FMA((float4)(p.y), x[1], out[i]);
            out[i] = FMA((float4)(p.z), x[2], out[i]);
            out[i] = FMA((float4)(p.w), x[3], out[i]);
        }
    }
}

/* Values of keys from number `key` of the block on. */
INLINE void stage_values(const team_memory *memory, const team_work_tile *at,
                         key_range range, int key, int channel, int lane)
{
    const staged_rows rows = {&at->v,
                              range.first + key,
                              (int)range.count - key,
                              VALUE_ROWS + at->zero,
                              1.0f,
                              0,
                              at->wide};
    stage(memory->kv, &rows, channel, lane);
}

/* sums = rows of O, over a block of keys and those before: stage d of the
 * channels, whose first values are there if d is 0. */
INLINE void sum_values(float4 *sums, const team_memory *memory,
                       const team_work_tile *at, out_tile tile,
                       key_range range, int d, int lane)
{
    const int count = (int)range.count;
    UNROLL_FOR (int i = 0; i < OUT_ROWS; i++) {
        const int r = min(tile.row + OUT_TILES * i, at->row_count - 1);
        sums[i] =
            STREAMING ? sums[i] * memory->row_rescale[r] : (float4)(0.0f);
    }
    for (int key = 0; key < BLOCK_KEYS + at->zero; key += STAGE_KEYS) {
        if (d > 0 || key > 0) {
            barrier(CLK_LOCAL_MEM_FENCE);
            stage_values(memory, at, range, key, d * STAGE_DIMS, lane);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const int staged = min(count - key, STAGE_KEYS);
        if (tile.owns && range.mixed)
            multiply_values(sums, memory, tile, key, staged, 1);
        else if (tile.owns)
            multiply_values(sums, memory, tile, key, staged, 0);
    }
}

INLINE float total(const team_memory *memory, int row)
{
    float sum = 0.0f;
    for (int i = 0; i < ROW_ITEMS; i++)
        sum += memory->row_sum[row * ROW_ITEMS + i];
    return sum;
}

/* Stores this work-item's tile of O: channels channel .. channel + 3. */
INLINE void store_out(const float4 *out, const team_memory *memory,
                      const forward_args *args, const team_work_tile *at,
                      const window_coord *coord, __global storage *o,
                      out_tile tile, int channel)
{
    UNROLL_FOR (int i = 0; i < OUT_ROWS; i++) {
        const int r = tile.row + OUT_TILES * i;
        if (r >= at->row_count || channel >= HEAD_DIM)
            continue;
        const token t = find_token(&args->grid, coord, at->of.row + r);
        if (!EXISTS(t))
            continue;
        const float sum = total(memory, r);
        const float4 x = out[i] * (sum == 0.0f ? 0.0f : 1.0f / sum);
        store_quad(x, o, &args->o, &t, channel, at->wide);
    }
}

INLINE void store_lse(const team_memory *memory, const forward_args *args,
                      const team_work_tile *at, const window_coord *coord,
                      __global float *lse, int lane)
{
    for (int done = 0; done < at->row_count; done += TEAM) {
        const int r = done + lane;
        const token t = find_token(&args->grid, coord, at->of.row + r);
        if (r < at->row_count && EXISTS(t))
            lse[token_offset(&args->lse, &t)] =
                memory->row_max[r] + log(total(memory, r));
    }
}

/* Before the first block of keys. */
INLINE void clear_sums(float4 out[KEPT_STAGES][OUT_ROWS],
                       const team_memory *memory, int lane)
{
    UNROLL_FOR (int d = 0; d < KEPT_STAGES; d++)
        UNROLL_FOR (int i = 0; i < OUT_ROWS; i++)
            out[d][i] = (float4)(0.0f);
    for (int done = 0; done < BLOCK_ROWS * ROW_ITEMS; done += TEAM) {
        const int r = done + lane;
        if (r < BLOCK_ROWS * ROW_ITEMS)
            memory->row_sum[r] = 0.0f;
        if (r < BLOCK_ROWS)
            memory->row_max[r] = -INFINITY;
    }
}

/* Where results go: planes; is there such a work tile? */
typedef struct team_results {
    __global storage *o;
    __global float *lse;
    int exist;
} team_results;

/* O and lse of a work tile. */
INLINE void compute(const team_memory *memory, const forward_args *args,
                    const score_bias_view *score_bias,
                    const team_work_tile *at, const window_coord *coord,
                    const team_results *to, int lane)
{
    const int quad = lane % STAGE_QUADS;
    const int owns = lane / STAGE_QUADS < OUT_TILES;
    const int stores = owns && to->exist;
    const out_tile tile = {owns, lane / STAGE_QUADS, quad};
    float4 out[KEPT_STAGES][OUT_ROWS];
    if (STREAMING)
        clear_sums(out, memory, lane);

    const key_loop loop =
        loop_over_keys(args, at->of.row, at->of.row + at->row_count);
    for (uint b = 0; b < loop.blocks; b++) {
        const key_range range = loop_block(args, &loop, b);

        /* 1. */
        compute_logits(memory, args, score_bias, at, range, b == 0, lane);

        /* 2.; the first values travel meanwhile */
        stage_values(memory, at, range, 0, 0, lane);
        exponentiate(memory, args, at, range, lane);
        barrier(CLK_LOCAL_MEM_FENCE);

        /* 3. */
        STAGE_FOR (int d = 0; d < DIM_STAGES; d++) {
            float4 *sums = out[STREAMING ? d : 0];
            sum_values(sums, memory, at, tile, range, d, lane);
            if (!STREAMING && stores)
                store_out(sums, memory, args, at, coord, to->o, tile,
                          d * STAGE_DIMS + quad * 4);
        }
        if (b + 1 < loop.blocks)
            barrier(CLK_LOCAL_MEM_FENCE);
    }

    if (STREAMING)
        barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL_FOR (int d = 0; d < KEPT_STAGES; d++)
        if (STREAMING && stores)
            store_out(out[d], memory, args, at, coord, to->o, tile,
                      d * STAGE_DIMS + quad * 4);
    if ((args->flags & ARG_LSE) != 0 && to->exist)
        store_lse(memory, args, at, coord, to->lse, lane);
}

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
SUB_GROUP_SIZE void
forward_local(FORWARD_PARAMETERS)
{
    __local float4 q_tiles[TEAMS][Q_QUADS];
    __local float4 kv_tiles[TEAMS][KV_QUADS];
    __local float4 score_tiles[TEAMS][SCORE_QUADS];
    __local float row_maxima[TEAMS][BLOCK_ROWS];
    __local float row_sums[TEAMS][ROW_PARTS];
    __local float part_maxima[TEAMS][ROOM(HAS_PART_MAXIMA, ROW_PARTS)];
    __local float row_rescales[TEAMS][ROOM(HAS_RESCALES, BLOCK_ROWS)];
    __local float q_factors[TEAMS][ROOM(HAS_FACTORS, BLOCK_ROWS)];
    __local float k_factors[TEAMS][ROOM(HAS_FACTORS, BLOCK_KEYS)];
    /* of Intel's one team addresses are constants */
    const int team = SUB_GROUP ? 0 : (int)get_local_id(0) / TEAM;
    const int lane = (int)get_local_id(0) % TEAM;
    const team_memory memory = {
        q_tiles[team],      kv_tiles[team],  score_tiles[team],
        row_maxima[team],   row_sums[team],  part_maxima[team],
        row_rescales[team], q_factors[team], k_factors[team]};

    /* A team past the last work tile computes that one again, unstored. */
    const uint index = (uint)get_group_id(0) * TEAMS + team;
    const work_tile u = find_work_tile(&args, min(index, args.work_tiles - 1));
    const uint kv_head = u.head / args.heads_per_kv_head;
    const uint row_end = min(u.row + args.block_rows, (uint)NQ);
    const window_coord coord = locate_window(&args.grid, u.window);
    const score_bias_tensors tensors = SCORE_BIAS_TENSORS;
    const score_bias_view score_bias =
        score_bias_at(&tensors, &args, u, &coord);
    const token_list tokens = {&args.grid, &coord};
    const team_work_tile at = {
        .q = {q + plane(&args.q, coord.grid, u.head), &args.q, tokens, 0},
        .k = {k + plane(&args.k, coord.grid, kv_head), &args.k, tokens,
              PAD_ROW(args, pad_k, ARG_PAD_K, kv_head)},
        .v = {v + plane(&args.v, coord.grid, kv_head), &args.v, tokens,
              PAD_ROW(args, pad_v, ARG_PAD_V, kv_head)},
        .of = u,
        .row_count = (int)(row_end - u.row),
        .hides_keys = PADDING == 2 && holds_padding(&args.grid, &coord),
        .scale = HEAD_SCALE(&args, logit_scale, u.head),
        .wide = (args.flags & ARG_WIDE_ACCESS) != 0,
        .zero = UNKNOWN_ZERO(args)};
    const team_results to = {o + plane(&args.o, coord.grid, u.head),
                             lse + plane(&args.lse, coord.grid, u.head),
                             index < args.work_tiles};
    compute(&memory, &args, &score_bias, &at, &coord, &to, lane);
}
