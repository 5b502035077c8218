/* SPDX-License-Identifier: Apache-2.0
 * Forward pass on a matrix unit, for fp16 and bf16 and for windows: scores,
 * weights and sums stay in a wave's registers, as fragments (fragment.cl).
 *
 *   work-group   owns one block of query rows of one head, keeps the bias of
 *                those rows on the chip, and walks windows
 *   team         TEAM_WAVES waves of it compute one window at a time; TEAMS
 *                teams take windows in turn
 *   wave         takes JOINT tiles of UNIT_QUERIES rows of the block at a
 *                time, which share what it reads of keys and values
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
 *   JOINT
 *   STAGES      of the ring
 *   PASS_KEYS   a multiple of UNIT_TILE
 *   KEEPS_BIAS  1: the block's bias has room in local memory */
#ifndef TEAM_WAVES
#define TEAM_WAVES 1
#endif
#ifndef TEAMS
#define TEAMS 1
#endif
#ifndef JOINT
#define JOINT 1
#endif
#ifndef STAGES
#define STAGES 1
#endif
#ifndef PASS_KEYS
#define PASS_KEYS 64
#endif
#ifndef KEEPS_BIAS
#define KEEPS_BIAS 1
#endif

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

#define TEAM (TEAM_WAVES * WAVE)
#define ROW_TILES CEIL_DIV(BLOCK_ROWS, UNIT_QUERIES)
#define WAVE_TURNS CEIL_DIV(ROW_TILES, TEAM_WAVES *JOINT)
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
/* bias of a tile: [VALUES / BIAS_GROUP][WAVE][BIAS_GROUP] */
#define BIAS_GROUP 4
#define BIAS_TILE (VALUES * WAVE)
#define HAS_KEPT_BIAS (BIAS && KEEPS_BIAS)

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
/* Turns have sums of their own where those live long. */
#if UNROLL_PASSES || STREAMING
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

/* Copies rows of a plane to a place of the ring; rows from `count` to `rows`
 * become zeros. `from` and `to` are the lane's own chunk of the first rows. */
INLINE void copy_rows(__local ushort *to, __global const storage *plane,
                      ulong from, const tensor_layout *layout, uint first,
                      int count, const int rows, int lane, int wide)
{
#if CHUNKS
    if (wide) {
        const int r = lane / ROW_LANES;
        const int c = lane % ROW_LANES;
        __local ushort *at = to + r * PITCH + c * CHUNK;
        __global const storage *source =
            plane + from + (ulong)first * layout->row;
        const ulong step = (ulong)ROWS_AT_ONCE * layout->row;
        if (COPIES)
            UNROLL_FOR (int done = 0; done < rows; done += ROWS_AT_ONCE) {
                if (done + ROWS_AT_ONCE <= rows || done + r < rows)
                    UNROLL_FOR (int i = 0; i < CHUNKS; i += ROW_LANES)
                        if (CHUNKS % ROW_LANES == 0 || c + i < CHUNKS)
                            copy_16(at + done * PITCH + i * CHUNK,
                                    source + i * CHUNK, done + r < count);
                source += step;
            }
        return;
    }
#endif
    NO_UNROLL_FOR (int i = lane; i < rows * HEAD_DIM; i += TEAM) {
        const int r = i / HEAD_DIM;
        const int c = i % HEAD_DIM;
        __global const ushort *element_of =
            (__global const ushort *)plane +
            element(layout, first + min(r, count - 1), c);
        to[r * PITCH + c] = r < count ? *element_of : (ushort)0;
    }
}

/* Where a lane's first chunk of a plane's first rows is. */
INLINE ulong chunk_of(const tensor_layout *layout, int lane)
{
#if CHUNKS
    return (ulong)(lane / ROW_LANES) * layout->row + lane % ROW_LANES * CHUNK;
#else
    return 0;
#endif
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

#if HAS_KEPT_BIAS
#if BIAS == 1
typedef ushort kept_bias;
#else
typedef float kept_bias;
#endif

/* Puts the block's bias where lanes will read it. */
INLINE void keep_bias(__local kept_bias *kept, const forward_args *args,
                      const logit_terms *terms, uint first_row, int item)
{
    /* several at a time are on their way */
    _Pragma("unroll 8") for (int i = item;
                             i < ROW_TILES * ALL_KEY_TILES * BIAS_TILE;
                             i += TEAM * TEAMS)
    {
        const int tile = i / BIAS_TILE;
        const int value =
            i % BIAS_TILE / (WAVE * BIAS_GROUP) * BIAS_GROUP + i % BIAS_GROUP;
        const int l = i / BIAS_GROUP % WAVE;
        const uint row = first_row + tile / ALL_KEY_TILES * UNIT_QUERIES +
                         value_query(l, value);
        const uint key = tile % ALL_KEY_TILES * UNIT_TILE + value_key(l, value);
        /* what no query or key needs may be any of the others' */
        kept[i] = ((__global const kept_bias *)terms->bias)
            [min(row, (uint)NQ - 1) * (int)args->bias.row +
             min(key, (uint)NK - 1) * (int)TERM_STEP(args->bias)];
    }
}

INLINE float4 read_kept(__local const kept_bias *kept)
{
#if BIAS == 2
    return *(__local const float4 *)kept;
#elif DTYPE == 1
    return vloada_half4(0, (__local const half *)kept);
#else
    return as_float4(convert_uint4(*(__local const ushort4 *)kept) << 16u);
#endif
}
#endif

/* A tile of rows. */
typedef struct tile_rows {
    int row, last_row;     /* of the block; its last row, not the tile's */
    int first_row;         /* of the block, counted from the window's first */
    float scale[LANE_ROWS];
    __local const void *bias; /* of the item's first keys */
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
#if HAS_KEPT_BIAS
    UNROLL_FOR (int i = 0; i < VALUES; i += BIAS_GROUP) {
        const float4 x = read_kept((__local const kept_bias *)rows->bias +
                                   tile * BIAS_TILE + i * WAVE +
                                   w->lane * BIAS_GROUP);
        added[i] = x.x;
        added[i + 1] = x.y;
        added[i + 2] = x.z;
        added[i + 3] = x.w;
    }
#endif
#if (BIAS && !HAS_KEPT_BIAS) || MASK
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int row =
            rows->first_row +
            min(rows->row + value_query(w->lane, i), rows->last_row);
        const int at = tile * UNIT_TILE + value_key(w->lane, i);
        const int column = key + (whole ? at : min(at, count - 1));
#if BIAS && !HAS_KEPT_BIAS
        added[i] += JOIN(load, BIAS_SUFFIX)(
            terms->bias, row * (int)args->bias.row +
                             column * (int)TERM_STEP(args->bias));
#endif
#if MASK == 3
        if (terms->query_regions[row * (int)args->query_regions.row] !=
            terms->key_regions[column * (int)args->key_regions.row])
            added[i] += args->region_value;
#elif MASK
        added[i] += JOIN(load, MASK_SUFFIX)(
            terms->mask, row * (int)args->mask.row +
                             column * (int)TERM_STEP(args->mask));
#endif
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

/* ---- Attention of one tile of rows ---- */

/* What a wave sums of a tile of rows; sums of a lane are of its own keys. */
typedef struct row_state {
    float top[LANE_ROWS], sum[LANE_ROWS];
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

/* Takes PASS_TILES tiles of keys into account, from tile `first` on, for JOINT
 * tiles of rows. */
INLINE void attend_pass(row_state *states, __local const ushort *q_stage,
                        __local const ushort *stage, const tile_rows *rows,
                        int first, int key, int count,
                        __local const float *key_scale,
                        const forward_args *args, const logit_terms *terms,
                        const wave *w)
{
    const int last_key = KEY_ROWS - 1;
    float scores[JOINT][PASS_TILES][VALUES];
    UNROLL_FOR (int j = 0; j < JOINT; j++)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                scores[j][t][i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        query_tile q[JOINT];
        UNROLL_FOR (int j = 0; j < JOINT; j++)
            q[j] = load_query(q_stage + Q_PLACE + d * UNIT_TILE, PITCH,
                              rows[j].row, rows[j].last_row, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t)) {
                const key_tile k =
                    load_key(stage + K_PLACE + d * UNIT_TILE, PITCH,
                             (first + t) * UNIT_TILE, last_key, w);
                UNROLL_FOR (int j = 0; j < JOINT; j++)
                    multiply_tiles(scores[j][t], &q[j], &k, w);
            }
    }

    float factor[JOINT][LANE_ROWS], shift[JOINT][LANE_ROWS];
    UNROLL_FOR (int j = 0; j < JOINT; j++) {
        row_state *s = &states[j];
        float top[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            top[r] = -INFINITY;
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t)) {
                finish_scores(scores[j][t], key_scale, key, first + t, count,
                              args, terms, &rows[j], w);
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    top[LANE_ROW(i)] = fmax(top[LANE_ROW(i)], scores[j][t][i]);
            }
        float keep[LANE_ROWS];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
            REDUCE(top[r], fmax);
            const float earlier = s->top[r];
            top[r] = fmax(top[r], earlier);
            /* a row that has seen nothing has no maximum to subtract; that of
             * a huge one must be exact, lest its own weight overflows, and all
             * but it itself is far below */
            const float base = top[r] == -INFINITY ? 0.0f : top[r];
            factor[j][r] = fabs(base) > 1e8f ? 1.0f : LOG2E;
            shift[j][r] = -base * factor[j][r];
            s->top[r] = top[r];
            if (STREAMING || PASSES > 1) {
                keep[r] = EXP2(FMA(earlier, factor[j][r], shift[j][r]));
                s->sum[r] *= keep[r];
            }
        }
        if (STREAMING || PASSES > 1)
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++)
                UNROLL_FOR (int i = 0; i < VALUES; i++)
                    s->out[d][i] *= keep[LANE_ROW(i)];
    }

    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t)) {
            query_tile p[JOINT];
            UNROLL_FOR (int j = 0; j < JOINT; j++) {
                float *x = scores[j][t];
                UNROLL_FOR (int i = 0; i < VALUES; i++) {
                    const int r = LANE_ROW(i);
                    x[i] = EXP2(FMA(x[i], factor[j][r], shift[j][r]));
                    states[j].sum[r] += x[i];
                }
                p[j] = make_weights(x, w);
            }
            UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
                const key_tile v =
                    load_value(stage + V_PLACE + d * UNIT_TILE, PITCH,
                               (first + t) * UNIT_TILE, last_key, w);
                UNROLL_FOR (int j = 0; j < JOINT; j++)
                    multiply_tiles(states[j].out[d], &p[j], &v, w);
            }
        }
}

/* Rows leave through `place`, so that a row is written in whole chunks. */
INLINE void store_rows(row_state *s, __local ushort *place,
                       const forward_args *args, __global storage *o,
                       __global float *lse, uint first_row, int count,
                       int wide, const wave *w)
{
    float inverse[LANE_ROWS];
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        REDUCE(s->sum[r], ADD);
        inverse[r] = s->sum[r] == 0.0f ? 0.0f : RECIPROCAL(s->sum[r]);
    }
    if ((args->flags & ARG_LSE) != 0)
        UNROLL_FOR (int i = 0; i < VALUES; i++) {
            const int row = value_query(w->lane, i);
            const int r = LANE_ROW(i);
            if (value_key(w->lane, i) == 0 && row < count)
                lse[element(&args->lse, first_row + row, 0)] =
                    s->top[r] + log(s->sum[r]);
        }
    UNROLL_FOR (int first = 0; first < DIM_TILES; first += OUT_TILES) {
        UNROLL_FOR (int d = 0; d < OUT_TILES; d++)
            if (first + d < DIM_TILES)
                UNROLL_FOR (int i = 0; i < VALUES; i += 2) {
                    const uint both =
                        PACK(s->out[first + d][i] * inverse[LANE_ROW(i)],
                             s->out[first + d][i + 1] *
                                 inverse[LANE_ROW(i + 1)]);
                    __local ushort *at =
                        place + value_query(w->lane, i) * OUT_PITCH +
                        d * UNIT_TILE + value_key(w->lane, i);
#if SPREAD_OUT
                    at[0] = (ushort)both;
                    place[value_query(w->lane, i + 1) * OUT_PITCH +
                          d * UNIT_TILE + value_key(w->lane, i + 1)] =
                        (ushort)(both >> 16);
#else
                    *(__local uint *)at = both;
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
                if (r < count)
                    *(__global uint4 *)(o +
                                        element(&args->o, first_row + r,
                                                0) +
                                        channel + c) =
                        *(__local const uint4 *)(place + r * OUT_PITCH + c);
            }
        } else
#endif
            NO_UNROLL_FOR (int i = w->lane; i < count * channels; i += WAVE) {
                const int r = i / channels, c = i % channels;
                ((__global ushort *)
                     o)[element(&args->o, first_row + r, channel + c)] =
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
            const query_tile q = load_query(rows + d * UNIT_TILE, PITCH, row,
                                            row_count - 1, w);
            const key_tile k = load_key(rows + d * UNIT_TILE, PITCH, key,
                                        row_count - 1, w);
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

/* ---- The kernel ---- */

__kernel __attribute__((reqd_work_group_size(TEAM * TEAMS, 1, 1)))
WAVE_ATTRIBUTE void
JOIN(forward_matrix_, UNIT_NAME)(FORWARD_PARAMETERS)
{
    __local uint4 rings[TEAMS][STAGES * STAGE_SIZE / CHUNK];
    __local uint4 out_rows[TEAMS * TEAM_WAVES]
                          [UNIT_QUERIES * OUT_PITCH / CHUNK];
#if HAS_KEPT_BIAS
    __local kept_bias biases[ROW_TILES * ALL_KEY_TILES * BIAS_TILE]
        __attribute__((aligned(16)));
#endif
#if VARIANT == COSINE
    __local float q_factors[TEAMS][BLOCK_ROWS], k_factors[TEAMS][KEY_ROWS];
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
    const uint first_row = owner % args.row_blocks * args.block_rows;
    const int row_count = (int)min((uint)BLOCK_ROWS, (uint)NQ - first_row);
    const uint kv_head = head / args.heads_per_kv_head;
    const int wide = (args.flags & ARG_WIDE_ACCESS) != 0;
    const ulong step = (ulong)args.slots * TEAMS;
    const uint rounds = (uint)((args.windows + step - 1) / step);
    float scale = args.scale;
#if VARIANT == COSINE
    scale = cosine_scale(&args, logit_scale, head);
#endif
    q += plane(&args.q, 0, head);
    k += plane(&args.k, 0, kv_head);
    v += plane(&args.v, 0, kv_head);
    o += plane(&args.o, 0, head);
    lse += plane(&args.lse, 0, head);

    /* A team past the last window computes that one again, unstored. */
#define WINDOW_OF(round)                                                      \
    (args.first_window +                                                      \
     min((ulong)(round)*step + (ulong)slot * TEAMS + team, args.windows - 1))
    /* Starts the copies of one item. */
#define START_COPIES(item)                                                    \
    if ((item) < rounds * KEY_BLOCKS) {                                       \
        const ulong there = WINDOW_OF((item) / KEY_BLOCKS);                   \
        const int key = (int)((item) % KEY_BLOCKS) * BLOCK_KEYS;              \
        const int keys = min(BLOCK_KEYS, (int)NK - key);                      \
        __local ushort *to = ring + (item) % STAGES * STAGE_SIZE;             \
        if (key == 0)                                                         \
            copy_rows(ring + (item) / KEY_BLOCKS % STAGES * STAGE_SIZE,       \
                      q + there * args.q.window, q_chunk, &args.q, first_row, \
                      row_count, BLOCK_ROWS, lane_of_team, wide);             \
        copy_rows(to + K_PLACE, k + there * args.k.window, k_chunk, &args.k,  \
                  key, keys, BLOCK_KEYS, lane_of_team, wide);                 \
        copy_rows(to + V_PLACE, v + there * args.v.window, v_chunk, &args.v,  \
                  key, keys, BLOCK_KEYS, lane_of_team, wide);                 \
    }                                                                         \
    END_COPIES()
    const ulong q_chunk = chunk_of(&args.q, lane_of_team);
    const ulong k_chunk = chunk_of(&args.k, lane_of_team);
    const ulong v_chunk = chunk_of(&args.v, lane_of_team);
    for (uint item = 0; item + 1 < STAGES; item++) {
        START_COPIES(item);
    }
    clear_pads(ring, lane_of_team);
#if HAS_KEPT_BIAS
    {
        const unit owned = {.window = 0, .head = head, .row = first_row};
        DECLARE_TERMS(terms, args, owned)
        keep_bias(biases, &args, &terms, first_row, item_id);
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

#if STREAMING
    row_state kept_states[WAVE_TURNS][JOINT];
#endif
    for (uint item = 0; item < rounds * KEY_BLOCKS; item++) {
        FORGET_LANE(lane_of_team);
        FORGET_LANE(wave_here.lane);
        const uint round = item / KEY_BLOCKS;
        const uint block = item % KEY_BLOCKS;
        const int key = (int)block * BLOCK_KEYS;
        const int count = min(BLOCK_KEYS, (int)NK - key);
        const ulong window = WINDOW_OF(round);
        const int stores =
            (ulong)round * step + (ulong)slot * TEAMS + team < args.windows;
        __local const ushort *stage = ring + item % STAGES * STAGE_SIZE;
        __local const ushort *q_stage = ring + round % STAGES * STAGE_SIZE;
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
        TEAM_SYNC(team);
        __local const float *key_scale = k_factors[team];
#else
        __local const float *key_scale = 0;
#endif
        const unit here = {.window = window, .head = head, .row = first_row};
        DECLARE_TERMS(terms, args, here)
        TURN_FOR (int turn = 0; turn < WAVE_TURNS; turn++) {
            const int first_tile = (turn * TEAM_WAVES + wave_of_team) * JOINT;
            if (!EMULATED && first_tile * UNIT_QUERIES >= row_count)
                continue; /* emulated waves have to keep step */
#if STREAMING
            row_state *states = kept_states[turn];
#else
            row_state states[JOINT];
#endif
            tile_rows rows[JOINT];
            UNROLL_FOR (int j = 0; j < JOINT; j++) {
                const int tile = min(first_tile + j, ROW_TILES - 1);
                rows[j].row = tile * UNIT_QUERIES;
                rows[j].last_row = row_count - 1;
                rows[j].first_row = (int)first_row;
#if HAS_KEPT_BIAS
                rows[j].bias =
                    biases +
                    (tile * ALL_KEY_TILES + block * KEY_TILES) * BIAS_TILE;
#endif
                UNROLL_FOR (int i = 0; i < VALUES; i++) {
                    rows[j].scale[LANE_ROW(i)] = scale;
#if VARIANT == COSINE
                    rows[j].scale[LANE_ROW(i)] = q_factors[team][min(
                        rows[j].row + value_query(w->lane, i), row_count - 1)];
#endif
                }
                if (block == 0)
                    start_rows(&states[j]);
            }
            PASS_FOR (int first = 0; first < KEY_TILES; first += PASS_TILES)
                attend_pass(states, q_stage, stage, rows, first, key, count,
                            key_scale, &args, &terms, w);
            if (block == KEY_BLOCKS - 1)
                UNROLL_FOR (int j = 0; j < JOINT; j++) {
                    const int left =
                        row_count - (first_tile + j) * UNIT_QUERIES;
                    store_rows(&states[j], out_place, &args,
                               o + window * args.o.window,
                               lse + window * args.lse.window,
                               first_row + rows[j].row,
                               stores ? min(left, UNIT_QUERIES) : 0, wide, w);
                }
        }
    }
}
