/* SPDX-License-Identifier: Apache-2.0
 * Forward pass on a matrix unit, for fp16 and bf16 and for windows: scores,
 * weights and sums stay in a wave's registers, as fragments (fragment.cl).
 *
 *   work-group   owns one block of query rows of one head, keeps bias and mask
 *                of those rows on the chip, and walks windows
 *   team         TEAM_WAVES waves of it compute one window at a time; TEAMS
 *                teams take windows in turn
 *   wave         takes tiles of UNIT_QUERIES rows of the block in turn
 *
 * q, k and v of the windows to come travel to a ring in local memory while
 * waves compute:
 *
 *            stage 0              stage 1
 *       +-----+----+----+    +-----+----+----+
 *       |  Q  | K  | V  |    |  Q  | K  | V  |     16-bit, as the caller
 *       +-----+----+----+    +-----+----+----+     stores them
 *        computed from        being filled
 *
 * An item of the ring is BLOCK_KEYS keys of a window; where those are not all
 * (STREAMING), sums live through the items of a window. Within an item the
 * softmax takes PASS_KEYS keys at a time and streams (Milakov and Gimelshein
 * 2018) where these are not all.
 *
 *   TEAM_WAVES, TEAMS
 *   STAGES      of the ring
 *   PASS_KEYS   a multiple of UNIT_TILE
 *   KEEPS_TERMS where what is added to the block's logits stays from window to
 *               window; 0: nowhere, 1: in local memory, 2: in registers, for
 *               which each wave must have the same rows always. With a mask, a
 *               work-group then walks the windows of one mask after those of
 *               another. 3: the bias in local memory, as the caller stores it;
 *               regions, of which there is one for each token, are compared at
 *               each score, which needs half the room of a sum. */
#ifndef TEAM_WAVES
#define TEAM_WAVES 1
#endif
#ifndef TEAMS
#define TEAMS 1
#endif
#ifndef STAGES
#define STAGES 1
#endif
#ifndef PASS_KEYS
#define PASS_KEYS 64
#endif
#ifndef KEEPS_TERMS
#define KEEPS_TERMS 1
#endif

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

#define TEAM (TEAM_WAVES * WAVE)
#define ROW_TILES CEIL_DIV(BLOCK_ROWS, UNIT_QUERIES)
#define WAVE_TURNS CEIL_DIV(ROW_TILES, TEAM_WAVES)
#define KEY_BLOCKS CEIL_DIV(NK, BLOCK_KEYS)
#define KEY_TILES CEIL_DIV(BLOCK_KEYS, UNIT_TILE)
#define ALL_KEY_TILES (KEY_BLOCKS * KEY_TILES)
#define PASS_TILES (PASS_KEYS / UNIT_TILE)
#define PASSES CEIL_DIV(KEY_TILES, PASS_TILES)
#define DIM_TILES CEIL_DIV(HEAD_DIM, UNIT_TILE)
#define DIMS (DIM_TILES * UNIT_TILE)
/* Rows of local memory: an odd number of 16-byte chunks, so that eight of them
 * lie in different banks. */
#define CHUNK 8
#define PITCH (DIMS + CHUNK)
/* Keys past the last are one row of zeros. */
#define KEY_ROWS (BLOCK_KEYS + (BLOCK_KEYS % UNIT_TILE != 0))
#define SHORT_BLOCK (NK % BLOCK_KEYS != 0)
#define Q_PLACE 0
#define K_PLACE (BLOCK_ROWS * PITCH)
#define V_PLACE (K_PLACE + KEY_ROWS * PITCH)
#define STAGE_SIZE (V_PLACE + KEY_ROWS * PITCH)
/* o goes to memory through a wave's own rows, OUT_DIMS channels at a time */
#define OUT_TILES (DIM_TILES < 4 ? DIM_TILES : 4)
#define OUT_DIMS (OUT_TILES * UNIT_TILE)
#define OUT_PITCH (OUT_DIMS + CHUNK)
#define LARGE_LOGIT 1024.0f
/* terms of a tile: [VALUES / TERM_GROUP][WAVE][TERM_GROUP] */
#define TERM_GROUP 4
#define TERM_TILE (VALUES * WAVE)
#define REGIONS_APART (MASK >= 3 && KEEPS_TERMS == 3)
#define KEPT_MASK (MASK && KEEPS_TERMS && !REGIONS_APART)
#define HAS_TERMS_KEPT ((BIAS && KEEPS_TERMS) || KEPT_MASK)
/* In local memory is the bias as the caller stores it, or the sum. */
#define MASK_IN_LOCAL (MASK && KEEPS_TERMS == 1)
#define HAS_LOCAL_TERMS ((BIAS && KEEPS_TERMS) || MASK_IN_LOCAL)
#define HAS_OWN_TERMS (HAS_TERMS_KEPT && KEEPS_TERMS == 2)

/* Is there a tile of keys of this number? Has it all its keys? Constant where
 * the tiles divide everything. */
#define IS_TILE(tile) (KEY_TILES % PASS_TILES == 0 || (tile) < KEY_TILES)
#define IS_WHOLE(tile)                                                        \
    (!(STREAMING && SHORT_BLOCK) &&                                           \
     (BLOCK_KEYS % UNIT_TILE == 0 || ((tile) + 1) * UNIT_TILE <= BLOCK_KEYS))
/* Passes that are not alike must be unrolled for these to be constants. */
#if UNROLL_PASSES &&                                                          \
    (KEY_TILES % PASS_TILES != 0 || BLOCK_KEYS % UNIT_TILE != 0)
#define PASS_FOR UNROLL_FOR
#else
#define PASS_FOR NO_UNROLL_FOR
#endif
#if UNROLL_PASSES
#define MEASURE_FOR UNROLL_FOR
#else
#define MEASURE_FOR NO_UNROLL_FOR
#endif

/* Sums that live from item to item must have constant indices. */
#if STREAMING
#define TURN_FOR UNROLL_FOR
#else
#define TURN_FOR NO_UNROLL_FOR
#endif

#if HEAD_DIM % CHUNK == 0
#define CHUNKS (HEAD_DIM / CHUNK)
#else
#define CHUNKS 0
#endif

/* ---- Copies ---- */

#if CHUNKS
/* Lanes of a team that share a row, each with one chunk of it or, where they
 * are fewer, with every ROW_LANES-th; rows that a team copies at once. */
#define ROW_LANES (CHUNKS < TEAM ? CHUNKS : TEAM)
#define ROWS_AT_ONCE (TEAM / ROW_LANES)
#define COPIES (TEAM % ROW_LANES == 0 || lane / ROW_LANES < ROWS_AT_ONCE)
#endif

/* A lane's chunk of the first rows that a team copies: how far it is from the
 * first row's start, in a plane without a grid and in local memory. */
typedef struct chunk {
    ulong from;
    int to;
} chunk;

INLINE chunk chunk_of(const tensor_layout *layout, int lane)
{
    chunk c = {0, 0};
#if CHUNKS
    c.from =
        (ulong)(lane / ROW_LANES) * layout->row + lane % ROW_LANES * CHUNK;
    c.to = lane / ROW_LANES * PITCH + lane % ROW_LANES * CHUNK;
#endif
    return c;
}

/* Copies rows first .. first + count of a window to a place of the ring; zeros
 * fill `rows` rows, and those of the padding unless they are `pad`. */
INLINE void copy_rows(__local ushort *to, __global const storage *plane,
                      chunk own, const tensor_layout *layout,
                      const grid_layout *grid, const window_place *place,
                      __global const storage *pad, uint first, int count,
                      const int rows, int lane, int wide)
{
#if CHUNKS
    if (wide) {
        const int r = lane / ROW_LANES;
        const int c = lane % ROW_LANES;
        __global const storage *from =
            plane + element(layout, first, 0) + own.from;
        if (!COPIES)
            return;
        UNROLL_FOR (int done = 0; done < rows; done += ROWS_AT_ONCE) {
            int exists = done + r < count;
#if GRID
            const token t = find_token(grid, place, first + done + r);
            from = token_row(plane, layout, &t, pad);
            exists = exists && (EXISTS(t) || from);
            from = (exists ? from : plane) + c * CHUNK;
#endif
            if (done + ROWS_AT_ONCE <= rows || done + r < rows)
                UNROLL_FOR (int i = 0; i < CHUNKS; i += ROW_LANES)
                    if (CHUNKS % ROW_LANES == 0 || c + i < CHUNKS)
                        copy_16(to + own.to + done * PITCH + i * CHUNK,
                                from + i * CHUNK, exists);
            from += (ulong)ROWS_AT_ONCE * layout->row;
        }
        return;
    }
#endif
    NO_UNROLL_FOR (int i = lane; i < rows * HEAD_DIM; i += TEAM) {
        const int r = i / HEAD_DIM;
        const int c = i % HEAD_DIM;
        const token t = find_token(grid, place, first + min(r, count - 1));
        __global const ushort *row =
            (__global const ushort *)token_row(plane, layout, &t, pad);
        const int exists = r < count && (EXISTS(t) || row);
        to[r * PITCH + c] =
            exists ? row[(ulong)c * layout->column] : (ushort)0;
    }
}

/* Zeros where no copy writes: in channels and keys past the last. */
INLINE void clear_pads(__local ushort *ring, int lane)
{
    const int rows = STAGES * STAGE_SIZE / PITCH;
#if DIMS != HEAD_DIM
    for (int i = lane; i < rows * (DIMS - HEAD_DIM); i += TEAM)
        ring[i / (DIMS - HEAD_DIM) * PITCH + HEAD_DIM +
             i % (DIMS - HEAD_DIM)] = 0;
#endif
    if (KEY_ROWS != BLOCK_KEYS)
        for (int i = lane; i < STAGES * 2 * HEAD_DIM; i += TEAM)
            ring[i / (2 * HEAD_DIM) * STAGE_SIZE + K_PLACE +
                 (i / HEAD_DIM % 2 * KEY_ROWS + BLOCK_KEYS) * PITCH +
                 i % HEAD_DIM] = 0;
}

/* ---- What is added to scores ---- */

INLINE float bias_of(const forward_args *args, const logit_terms *terms,
                     int row, int key)
{
#if BIAS
    return JOIN(load, BIAS_SUFFIX)(terms->bias,
                                   bias_at(args, terms, row, key));
#else
    return 0.0f;
#endif
}

INLINE float mask_of(const forward_args *args, const logit_terms *terms,
                     int row, int key)
{
#if MASK >= 3
    return query_region(args, terms, row) != key_region(args, terms, key)
               ? args->region_value
               : 0.0f;
#elif MASK
    return JOIN(load, MASK_SUFFIX)(terms->mask,
                                   row * (int)args->mask.row +
                                       key * (int)TERM_STEP(args->mask));
#else
    return 0.0f;
#endif
}

#if HAS_LOCAL_TERMS
#if BIAS == 1 && !MASK_IN_LOCAL
typedef ushort kept_term;
#else
typedef float kept_term;
#endif

INLINE kept_term term_to_keep(const forward_args *args,
                              const logit_terms *terms, int row, int key)
{
#if MASK_IN_LOCAL
    return bias_of(args, terms, row, key) + mask_of(args, terms, row, key);
#elif BIAS == 1
    return (
        (__global const ushort *)terms->bias)[bias_at(args, terms, row, key)];
#else
    return bias_of(args, terms, row, key);
#endif
}

/* Puts the block's terms where lanes will read them. */
INLINE void keep_terms(__local kept_term *kept, const forward_args *args,
                       const logit_terms *terms, uint first_row, int item)
{
    /* several at a time are on their way */
    _Pragma("unroll 8") for (int i = item;
                             i < ROW_TILES * ALL_KEY_TILES * TERM_TILE;
                             i += TEAM * TEAMS)
    {
        const int tile = i / TERM_TILE;
        const int value =
            i % TERM_TILE / (WAVE * TERM_GROUP) * TERM_GROUP + i % TERM_GROUP;
        const int l = i / TERM_GROUP % WAVE;
        const int row = (int)first_row + tile / ALL_KEY_TILES * UNIT_QUERIES +
                        value_query(l, value);
        const int key = tile % ALL_KEY_TILES * UNIT_TILE + value_key(l, value);
        /* what no query or key needs may be any of the others' */
        kept[i] =
            term_to_keep(args, terms, min(row, NQ - 1), min(key, NK - 1));
    }
}

INLINE float4 read_kept(__local const kept_term *kept)
{
#if BIAS == 2 || MASK_IN_LOCAL
    return *(__local const float4 *)kept;
#elif DTYPE == 1
    return vloada_half4(0, (__local const half *)kept);
#else
    return as_float4(convert_uint4(*(__local const ushort4 *)kept) << 16u);
#endif
}
#endif

#if HAS_OWN_TERMS
/* Terms of a lane's scores of one tile. */
INLINE void load_own_terms(float *own, __local const void *kept,
                           const forward_args *args, const logit_terms *terms,
                           int row, int tile, int lane)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        own[i] =
            mask_of(args, terms, min(row + value_query(lane, i), (int)NQ - 1),
                    min(tile * UNIT_TILE + value_key(lane, i), (int)NK - 1));
#if HAS_LOCAL_TERMS
    UNROLL_FOR (int i = 0; i < VALUES; i += TERM_GROUP) {
        const float4 x =
            read_kept((__local const kept_term *)kept + tile * TERM_TILE +
                      i * WAVE + lane * TERM_GROUP);
        own[i] += x.x;
        own[i + 1] += x.y;
        own[i + 2] += x.z;
        own[i + 3] += x.w;
    }
#endif
}
#endif

#if REGIONS_APART
/* Puts the regions of the window's rows and keys where lanes will read them.
 */
INLINE void keep_regions(__local uchar *rows, __local uchar *keys,
                         const forward_args *args, const logit_terms *terms,
                         uint first_row, int lane)
{
    for (int i = lane; i < BLOCK_ROWS; i += TEAM)
        rows[i] =
            (uchar)query_region(args, terms, min((int)first_row + i, NQ - 1));
    for (int i = lane; i < NK; i += TEAM)
        keys[i] = (uchar)key_region(args, terms, i);
}
#endif

/* A tile of rows. */
typedef struct tile_rows {
    int row, last_row; /* of the block; its last row, not the tile's */
    int first_row;     /* of the block, counted from the window's first */
    float scale[LANE_ROWS];
    __local const void *local_terms;  /* of the item's first keys */
    const float (*own_terms)[VALUES]; /* a lane's own, of all tiles of keys */
    uint region[LANE_ROWS];
    __local const uchar *key_regions; /* of the item's first keys; NULL: one
                                         region */
    window_place place;
    int holds_padding; /* of the grid */
} tile_rows;

/* scores = scale * scores + the terms, for keys `key` and on; those past the
 * last become -infinity. */
INLINE void finish_scores(float *scores, __local const float *key_scale,
                          int key, int tile, int count,
                          const forward_args *args, const logit_terms *terms,
                          const tile_rows *rows, const wave *w)
{
    const int whole = IS_WHOLE(tile);
    float added[VALUES];
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        added[i] = 0.0f;
#if HAS_OWN_TERMS
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        added[i] = rows->own_terms[tile][i];
#elif HAS_LOCAL_TERMS
    UNROLL_FOR (int i = 0; i < VALUES; i += TERM_GROUP) {
        const float4 x =
            read_kept((__local const kept_term *)rows->local_terms +
                      tile * TERM_TILE + i * WAVE + w->lane * TERM_GROUP);
        added[i] = x.x;
        added[i + 1] = x.y;
        added[i + 2] = x.z;
        added[i + 3] = x.w;
    }
#elif BIAS || (MASK && !REGIONS_APART)
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int row =
            rows->first_row +
            min(rows->row + value_query(w->lane, i), rows->last_row);
        const int at = tile * UNIT_TILE + value_key(w->lane, i);
        const int column = key + (whole ? at : min(at, count - 1));
        added[i] = bias_of(args, terms, row, column) +
                   mask_of(args, terms, row, column);
    }
#endif
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
#if VARIANT == COSINE
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        scores[i] *= key_scale[whole ? column : min(column, count - 1)];
#endif
        scores[i] = FMA(scores[i], rows->scale[LANE_ROW(i)], added[i]);
        if (!whole)
            scores[i] = tile * UNIT_TILE + value_key(w->lane, i) < count
                            ? scores[i]
                            : -INFINITY;
    }
}

/* Adds region_value where a row and a key are of different regions. */
INLINE void add_regions(float *scores, int tile, int count,
                        const forward_args *args, const tile_rows *rows,
                        const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        const uint there = rows->key_regions[min(column, count - 1)];
        if (rows->region[LANE_ROW(i)] != there)
            scores[i] += args->region_value;
    }
}

#if PADDING == 2
/* No query sees a token of the padding. */
INLINE void hide_padding(float *scores, int key, int tile, int count,
                         const forward_args *args, const tile_rows *rows,
                         const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        const token t = find_token(&args->grid, &rows->place,
                                   key + min(column, count - 1));
        scores[i] = EXISTS(t) ? scores[i] : -INFINITY;
    }
}
#endif

/* ---- Attention of one tile of rows ---- */

/* What a wave sums of a tile of rows. */
typedef struct row_state {
    float top[LANE_ROWS], sum[LANE_ROWS]; /* sums are of a lane's own keys */
    float out[DIM_TILES][VALUES];
} row_state;

INLINE void start_rows(row_state *s)
{
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        s->top[r] = -INFINITY;
        s->sum[r] = 0.0f;
    }
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            s->out[d][i] = 0.0f;
}

INLINE key_tile read_key(__local const ushort *stage, int d, int tile,
                         const wave *w)
{
    return load_key(stage + K_PLACE + d * UNIT_TILE, PITCH, tile * UNIT_TILE,
                    KEY_ROWS - 1, w);
}

INLINE key_tile read_value(__local const ushort *stage, int d, int tile,
                           const wave *w)
{
    return load_value(stage + V_PLACE + d * UNIT_TILE, PITCH, tile * UNIT_TILE,
                      KEY_ROWS - 1, w);
}

/* Products of PASS_TILES tiles of keys, from tile `first` on. */
INLINE void score_pass(float scores[PASS_TILES][VALUES],
                       __local const ushort *q_stage,
                       __local const ushort *stage, const tile_rows *rows,
                       int first, const wave *w)
{
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            scores[t][i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        const query_tile q = load_query(q_stage + Q_PLACE + d * UNIT_TILE,
                                        PITCH, rows->row, rows->last_row, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t)) {
                const key_tile k = read_key(stage, d, first + t, w);
                multiply_tiles(scores[t], &q, &k, w);
            }
    }
}

/* Takes them into account. */
INLINE void attend_pass(row_state *s, float scores[PASS_TILES][VALUES],
                        __local const ushort *stage, const tile_rows *rows,
                        int first, int key, int count,
                        __local const float *key_scale,
                        const forward_args *args, const logit_terms *terms,
                        const wave *w)
{
    float top[LANE_ROWS], keep[LANE_ROWS], shift[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
        top[r] = -INFINITY;
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            finish_scores(scores[t], key_scale, key, first + t, count, args,
                          terms, rows, w);
    if (REGIONS_APART && rows->key_regions)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                add_regions(scores[t], first + t, count, args, rows, w);
#if PADDING == 2
    if (rows->holds_padding)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                hide_padding(scores[t], key, first + t, count, args, rows, w);
#endif
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[t][i]);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(top[r], fmax);
        const float earlier = s->top[r];
        top[r] = fmax(top[r], earlier);
        /* a row that has seen nothing has no maximum to subtract */
        float base = top[r] == -INFINITY ? 0.0f : top[r];
        s->top[r] = top[r];
        if (STREAMING || PASSES > 1) {
            keep[r] = EXP2((earlier - base) * LOG2E);
            s->sum[r] *= keep[r];
        }
        /* x LOG2E - base LOG2E is one operation, but its second term is
         * rounded, which counts where it is large */
        if (fabs(base) > LARGE_LOGIT) {
            UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    if (LANE_ROW(i) == r)
                        scores[t][i] -= base;
            base = 0.0f;
        }
        shift[r] = -base * LOG2E;
    }
    if (STREAMING || PASSES > 1)
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                s->out[d][i] *= keep[LANE_ROW(i)];

    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t)) {
            float *x = scores[t];
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                x[i] = EXP2(FMA(x[i], LOG2E, shift[LANE_ROW(i)]));
                s->sum[LANE_ROW(i)] += x[i];
            }
            const query_tile p = make_weights(x, w);
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v = read_value(stage, d, first + t, w);
                multiply_tiles(s->out[d], &p, &v, w);
            }
        }
}

/* Where row r of a tile, which exists, lies in its plane. 0: it is of the
 * padding. */
INLINE int find_row(ulong *at, const tensor_layout *layout,
                    const forward_args *args, const tile_rows *rows, int r)
{
    const token t =
        find_token(&args->grid, &rows->place, rows->first_row + rows->row + r);
    *at = token_offset(layout, &t);
    return EXISTS(t);
}

/* Rows leave through `place`, so that a row is written in whole chunks. */
INLINE void store_rows(row_state *s, __local ushort *place,
                       const forward_args *args, const tile_rows *rows,
                       __global storage *o, __global float *lse, int count,
                       int wide, const wave *w)
{
    ulong at;
    float inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(s->sum[r], ADD);
        inverse[r] = s->sum[r] == 0.0f ? 0.0f : RECIPROCAL(s->sum[r]);
    }
    if ((args->flags & ARG_LSE) != 0)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const int row = value_query(w->lane, i);
            const int r = LANE_ROW(i);
            if (value_key(w->lane, i) == 0 && row < count &&
                find_row(&at, &args->lse, args, rows, row))
                lse[at] = s->top[r] + log(s->sum[r]);
        }
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES) {
        UNROLL_FOR (int d = 0; d < OUT_TILES; d++)
            if (first + d < DIM_TILES)
                UNROLL_FOR (int i = 0; i < VALUES; i += 2) {
                    const uint both = PACK(
                        s->out[first + d][i] * inverse[LANE_ROW(i)],
                        s->out[first + d][i + 1] * inverse[LANE_ROW(i + 1)]);
                    __local ushort *to = place +
                                         value_query(w->lane, i) * OUT_PITCH +
                                         d * UNIT_TILE + value_key(w->lane, i);
#if SPREAD_OUT
                    to[0] = (ushort)both;
                    place[value_query(w->lane, i + 1) * OUT_PITCH +
                          d * UNIT_TILE + value_key(w->lane, i + 1)] =
                        (ushort)(both >> 16);
#else
                    *(__local uint *)to = both;
#endif
                }
        WAVE_SYNC();
        const int channel = first * UNIT_TILE;
        const int channels = min(OUT_DIMS, HEAD_DIM - channel);
#if CHUNKS
        if (wide) {
            const int chunks = channels / CHUNK;
            UNROLL_FOR (int done = 0; done < UNIT_QUERIES * chunks;
                        done += WAVE) {
                const int i = done + w->lane;
                const int r = i / chunks, c = i % chunks * CHUNK;
                if (r < count && find_row(&at, &args->o, args, rows, r))
                    *(__global uint4 *)(o + at + channel + c) =
                        *(__local const uint4 *)(place + r * OUT_PITCH + c);
            }
        } else
#endif
            NO_UNROLL_FOR (int i = w->lane; i < count * channels; i += WAVE) {
                const int r = i / channels, c = i % channels;
                if (find_row(&at, &args->o, args, rows, r))
                    ((__global ushort *)
                         o)[at + (ulong)(channel + c) * args->o.column] =
                        place[r * OUT_PITCH + c];
            }
        WAVE_SYNC();
    }
}

#if VARIANT == COSINE
/* factors[r] = factor / norm of row r: the diagonal of the rows' products with
 * themselves. The team's waves take tiles in turn. */
INLINE void measure_rows(__local float *factors, __local const ushort *rows,
                         const int row_count, float factor, int wave_of_team,
                         const wave *w)
{
    const int tiles = CEIL_DIV(row_count, UNIT_QUERIES);
    MEASURE_FOR (int done = 0; done < tiles; done += TEAM_WAVES) {
        int row = (done + wave_of_team) * UNIT_QUERIES;
        const int key = row / UNIT_TILE * UNIT_TILE;
        FORGET(row);
        float products[VALUES];
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            products[i] = 0.0f;
        UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
            const query_tile q =
                load_query(rows + d * UNIT_TILE, PITCH, row, row_count - 1, w);
            const key_tile k =
                load_key(rows + d * UNIT_TILE, PITCH, key, row_count - 1, w);
            multiply_tiles(products, &q, &k, w);
        }
        /* each row's entry of the diagonal is in one lane */
        float square[LANE_ROWS];
        int place[LANE_ROWS];
        UNROLL_FOR (int i = 0; i < LANE_ROWS; i++)
            place[i] = row_count;
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const int r = row + value_query(w->lane, i);
            if (r == key + value_key(w->lane, i)) {
                square[LANE_ROW(i)] = products[i];
                place[LANE_ROW(i)] = r;
            }
        }
        UNROLL_FOR (int i = 0; i < LANE_ROWS; i++)
            if (place[i] < row_count)
                factors[place[i]] =
                    factor * fmin(rsqrt(square[i]), 1.0f / NORM_EPSILON);
    }
}
#endif

/* ---- The walk over windows ---- */

/* A round is one window for each team, and each slot takes rounds that follow
 * each other. Windows that lie and are masked alike come one after the other:
 * terms that are kept stay, and of a grid the next window is as far away as
 * the next grid. Where a grid has few windows of each place, they come as they
 * are numbered instead. */
#define SORTED (GRID || KEPT_MASK)

typedef struct walk {
    uint kinds, kind;    /* of windows that are alike; the present one */
    uint of_kind, round; /* rounds of a kind; the present one */
    uint rounds;         /* of the slot */
    uint window;         /* the team's, counted from the launch's first */
    int exists;          /* 0: the team is behind the last window */
    uint step;           /* window_places that are alike are so far apart */
    window_place place;  /* of the window, or where the team has none, of one
                            like the others' */
} walk;

/* Windows of a grid; 1 without one. */
INLINE uint count_places(const forward_args *args)
{
    return GRID ? args->grid.windows[0] * args->grid.windows[1] *
                      args->grid.windows[2]
                : 1;
}

/* Window w + kinds is like window w. */
INLINE uint count_kinds(const forward_args *args)
{
    ulong kinds = KEPT_MASK ? args->mask_windows : 1;
#if GRID
    const ulong places = count_places(args);
    if (KEPT_MASK && MASK != 4)
        kinds = max(kinds, places); /* one is a multiple of the other */
    else
        kinds = args->windows / places < 2 * TEAMS ? 1 : places;
#endif
    return (uint)min(kinds, args->windows);
}

/* The window, or where the team has none, one like the others'. */
INLINE ulong window_of(const walk *w, const forward_args *args)
{
    return args->first_window + (w->exists ? w->window : w->kind);
}

INLINE walk start_walk(const forward_args *args, uint slot, int team)
{
    const uint windows = (uint)args->windows;
    walk w;
    w.kinds = count_kinds(args);
    w.of_kind = CEIL_DIV(CEIL_DIV(windows, w.kinds), TEAMS);
    const uint rounds = w.kinds * w.of_kind;
    const uint least = rounds / args->slots, more = rounds % args->slots;
    const uint first = slot * least + min(slot, more);
    w.kind = first / w.of_kind;
    w.round = first % w.of_kind;
    w.rounds = least + (slot < more);
    w.window = (w.round * TEAMS + team) * w.kinds + w.kind;
    w.exists = w.window < windows;
    w.step = TEAMS * w.kinds / count_places(args);
    w.place = place_window(&args->grid, window_of(&w, args));
    return w;
}

/* To the next round. 1: to a window that is like the last, `step` further. */
INLINE int walk_on(walk *w, const forward_args *args, int team)
{
    int alike = !GRID || w->kinds > 1;
    w->window += TEAMS * w->kinds;
    if (SORTED && ++w->round == w->of_kind) {
        w->round = 0;
        w->kind++;
        w->window = team * w->kinds + w->kind;
        alike = 0;
    }
    w->exists = w->window < (uint)args->windows;
    if (alike)
        w->place.grid += w->step;
    else
        w->place = place_window(&args->grid, window_of(w, args));
    return alike;
}

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    __local uint4 rings[TEAMS][STAGES * STAGE_SIZE / CHUNK];
    __local uint4
        out_rows[TEAMS * TEAM_WAVES][UNIT_QUERIES * OUT_PITCH / CHUNK];
#if HAS_LOCAL_TERMS
    __local kept_term kept[ROW_TILES * ALL_KEY_TILES * TERM_TILE]
        __attribute__((aligned(16)));
#endif
#if VARIANT == COSINE
    __local float q_factors[TEAMS][BLOCK_ROWS], k_factors[TEAMS][KEY_ROWS];
#endif
#if REGIONS_APART
    __local uchar kept_row_regions[TEAMS][BLOCK_ROWS];
    __local uchar kept_key_regions[TEAMS][NK];
#endif
    const int item_id = (int)get_local_id(0);
    const int team = item_id / TEAM;
    int lane_of_team = item_id % TEAM;
    const int wave_of_team = lane_of_team / WAVE;
#if EMULATED
    __local uint exchanges[TEAMS * TEAM_WAVES][EXCHANGE_WORDS];
    wave wave_here = {.lane = item_id % WAVE,
                      .exchange = exchanges[item_id / WAVE]};
#else
    wave wave_here = {.lane = item_id % WAVE};
#endif
    const wave *w = &wave_here;
    __local ushort *ring = (__local ushort *)rings[team];
    __local ushort *out_place = (__local ushort *)out_rows[item_id / WAVE];

    /* what this work-group owns */
    const uint owners = args.heads * args.row_blocks;
    const uint owner = (uint)get_group_id(0) % owners;
    const uint slot = (uint)get_group_id(0) / owners;
    const uint head = owner / args.row_blocks;
    const uint first_row =
        BLOCK_ROWS >= NQ ? 0 : owner % args.row_blocks * args.block_rows;
    const int row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first_row);
    const uint kv_head = head / args.heads_per_kv_head;
    const int wide = (args.flags & ARG_WIDE_ACCESS) != 0;
    walk here = start_walk(&args, slot, team);
    const uint items = here.rounds * KEY_BLOCKS;
    float scale = args.scale;
#if VARIANT == COSINE
    scale = cosine_scale(&args, logit_scale, head);
#endif
    /* planes of the first grid, or window */
    q += plane(&args.q, 0, head);
    k += plane(&args.k, 0, kv_head);
    v += plane(&args.v, 0, kv_head);
    o += plane(&args.o, 0, head);
    lse += plane(&args.lse, 0, head);

    /* Starts the copies of one item; after the last of a window, walks on. */
    walk there = here;
    const chunk q_chunk = chunk_of(&args.q, lane_of_team);
    const chunk k_chunk = chunk_of(&args.k, lane_of_team);
    const chunk v_chunk = chunk_of(&args.v, lane_of_team);
    ulong q_from = there.place.grid * args.q.window;
    ulong k_from = there.place.grid * args.k.window;
    ulong v_from = there.place.grid * args.v.window;
#define STEP(name)                                                            \
    name##_from = alike ? name##_from + there.step * args.name.window         \
                        : there.place.grid * args.name.window
#define COPY(to, name, pad, first, count, rows)                               \
    copy_rows(to, name + name##_from, name##_chunk, &args.name, &args.grid,   \
              &there.place, pad, first, count, rows, lane_of_team, wide)
#define START_COPIES(item)                                                    \
    if ((item) < items) {                                                     \
        const int key = (int)((item) % KEY_BLOCKS) * BLOCK_KEYS;              \
        const int keys = min(BLOCK_KEYS, (int)NK - key);                      \
        __local ushort *to = ring + (item) % STAGES * STAGE_SIZE;             \
        if (there.exists && key == 0)                                         \
            COPY(ring + (item) / KEY_BLOCKS % STAGES * STAGE_SIZE, q, 0,      \
                 first_row, row_count, BLOCK_ROWS);                           \
        if (there.exists) {                                                   \
            COPY(to + K_PLACE, k, PAD_ROW(args, pad_k, ARG_PAD_K, kv_head),   \
                 key, keys, BLOCK_KEYS);                                      \
            COPY(to + V_PLACE, v, PAD_ROW(args, pad_v, ARG_PAD_V, kv_head),   \
                 key, keys, BLOCK_KEYS);                                      \
        }                                                                     \
        if (KEY_BLOCKS == 1 || key + BLOCK_KEYS >= NK) {                      \
            const int alike = walk_on(&there, &args, team);                   \
            STEP(q);                                                          \
            STEP(k);                                                          \
            STEP(v);                                                          \
        }                                                                     \
    }                                                                         \
    END_COPIES()
    for (uint item = 0; item + 1 < STAGES; item++) {
        START_COPIES(item);
    }
    clear_pads(ring, lane_of_team);
#if HAS_LOCAL_TERMS && !MASK_IN_LOCAL
    const unit of_head = {.window = args.first_window, .head = head};
    DECLARE_TERMS(head_terms, args, of_head)
    keep_terms(kept, &args, &head_terms, first_row, item_id);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
#if HAS_TERMS_KEPT
    uint kept_kind = ~0u; /* of windows whose terms are kept */
#endif
#if HAS_OWN_TERMS
    float own_terms[KEY_TILES][VALUES];
#if HAS_LOCAL_TERMS
    __local const void *own_kept =
        kept + min(wave_of_team, ROW_TILES - 1) * KEY_TILES * TERM_TILE;
#else
    __local const void *own_kept = 0;
#endif
#endif

#if STREAMING
    row_state kept_states[WAVE_TURNS];
#endif
    for (uint item = 0; item < items; item++) {
        FORGET_LANE(lane_of_team);
        FORGET_LANE(wave_here.lane);
        const uint block = item % KEY_BLOCKS;
        const int key = (int)block * BLOCK_KEYS;
        const int count = min(BLOCK_KEYS, (int)NK - key);
        const unit unit_here = {
            .window = window_of(&here, &args), .head = head, .row = first_row};
#if HAS_TERMS_KEPT
        const logit_terms terms = {.unused = 0};
#if MASK == 4 && KEPT_MASK
        const uint kind = here.place.seams;
#else
        const uint kind = KEPT_MASK ? here.kind : 0;
#endif
        if (kind != kept_kind) {
#if MASK == 4
            const logit_terms new_terms = {.place = here.place};
#else
            DECLARE_TERMS(new_terms, args, unit_here)
#endif
            kept_kind = kind;
#if MASK_IN_LOCAL /* all teams have windows of this kind */
            barrier(CLK_LOCAL_MEM_FENCE);
            keep_terms(kept, &args, &new_terms, first_row, item_id);
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if HAS_OWN_TERMS
            int lane = w->lane;
            FORGET(lane); /* nothing of this is worth a register all along */
            UNROLL_FOR (int t = 0; t < KEY_TILES; t++)
                load_own_terms(own_terms[t], own_kept, &args, &new_terms,
                               (int)first_row + wave_of_team * UNIT_QUERIES, t,
                               lane);
#endif
        }
#else
        DECLARE_TERMS(terms, args, unit_here)
#endif
        __local const ushort *stage = ring + item % STAGES * STAGE_SIZE;
        __local const ushort *q_stage =
            ring + item / KEY_BLOCKS % STAGES * STAGE_SIZE;
#if STAGES == 1
        TEAM_SYNC(team); /* all have read the last item */
        START_COPIES(item);
        AWAIT_COPIES(0);
        TEAM_SYNC(team);
#else
        AWAIT_COPIES(STAGES - 2);
        TEAM_SYNC(team); /* this item is there, the last one was read */
        START_COPIES(item + STAGES - 1);
#endif
#if VARIANT == COSINE
        measure_rows(k_factors[team], stage + K_PLACE, BLOCK_KEYS, 1.0f,
                     wave_of_team, w);
        if (block == 0)
            measure_rows(q_factors[team], q_stage + Q_PLACE, BLOCK_ROWS, scale,
                         wave_of_team, w);
        __local const float *key_scale = k_factors[team];
#else
        __local const float *key_scale = 0;
#endif
#if REGIONS_APART
#if MASK == 4
        const int has_seams = here.place.seams != 0;
#else
        const int has_seams = 1; /* regions may be anything */
#endif
        if (block == 0 && has_seams) {
#if MASK == 4
            const logit_terms terms_here = {.place = here.place};
#else
            DECLARE_TERMS(terms_here, args, unit_here)
#endif
            keep_regions(kept_row_regions[team], kept_key_regions[team], &args,
                         &terms_here, first_row, lane_of_team);
        }
#endif
#if VARIANT == COSINE
        TEAM_SYNC(team);
#elif REGIONS_APART
        if (EMULATED || has_seams)
            TEAM_SYNC(team);
#endif
        TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++) {
            const int tile_here = turn * TEAM_WAVES + wave_of_team;
            const int tile = min(tile_here, ROW_TILES - 1);
            const int rows_left = row_count - tile_here * UNIT_QUERIES;
            if (!EMULATED && (rows_left <= 0 || !here.exists))
                continue; /* emulated waves have to keep step */
#if STREAMING
            row_state *state = &kept_states[turn];
#else
            row_state own_state;
            row_state *state = &own_state;
#endif
            tile_rows rows = {.row = tile * UNIT_QUERIES,
                              .last_row = row_count - 1,
                              .first_row = (int)first_row,
                              .place = here.place};
#if PADDING == 2
            rows.holds_padding = holds_padding(&args.grid, &here.place);
#endif
#if HAS_OWN_TERMS
            rows.own_terms = own_terms;
#elif HAS_LOCAL_TERMS
            rows.local_terms =
                kept + (tile * ALL_KEY_TILES + block * KEY_TILES) * TERM_TILE;
#endif
            UNROLL_FOR (int i = 0; i < VALUES; i++) {
                const int row =
                    min(rows.row + value_query(w->lane, i), row_count - 1);
                rows.scale[LANE_ROW(i)] = scale;
#if VARIANT == COSINE
                rows.scale[LANE_ROW(i)] = q_factors[team][row];
#endif
#if REGIONS_APART
                rows.region[LANE_ROW(i)] = kept_row_regions[team][row];
#endif
            }
#if REGIONS_APART
            rows.key_regions = has_seams ? kept_key_regions[team] + key : 0;
#endif
            if (block == 0)
                start_rows(state);
            PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES) {
                float scores[PASS_TILES][VALUES];
                score_pass(scores, q_stage, stage, &rows, first, w);
                attend_pass(state, scores, stage, &rows, first, key, count,
                            key_scale, &args, &terms, w);
            }
            if (block == KEY_BLOCKS - 1)
                store_rows(state, out_place, &args, &rows,
                           o + here.place.grid * args.o.window,
                           lse + here.place.grid * args.lse.window,
                           here.exists ? min(rows_left, UNIT_QUERIES) : 0,
                           wide, w);
        }
        if (KEY_BLOCKS == 1 || block == KEY_BLOCKS - 1)
            walk_on(&here, &args, team);
    }
}
