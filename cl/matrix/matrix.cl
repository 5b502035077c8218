/* SPDX-License-Identifier: Apache-2.0
 * What the kernels for matrix units share: how work-groups walk windows, how
 * tiles come to local memory and gradients leave it, and the scores of a tile
 * of rows.
 *
 *   work-group   owns one block of query rows of one head (backward: all rows
 *                of the heads of one key head), keeps bias and mask of those
 *                rows on the chip, and walks windows; in the forward pass
 *                then perhaps those of another block
 *   team         TEAM_WAVES waves of it compute one window at a time; TEAMS
 *                teams take windows in turn
 *   wave         takes tiles of UNIT_QUERIES rows of the block
 *
 * q, k and v of the windows to come travel to a ring in local memory while
 * waves compute:
 *
 *            stage 0              stage 1
 *       +-----+----+----+    +-----+----+----+
 *       |  Q  | K  | V  |    |  Q  | K  | V  |     as the caller stores
 *       +-----+----+----+    +-----+----+----+     them; backward also dO
 *        computed from        being filled
 *
 *   TEAM_WAVES, TEAMS
 *   STAGES      of the ring
 *   PASS_KEYS   keys whose scores a wave has in registers at a time; a
 *               multiple of UNIT_TILE
 *   KEYS_DOWN   1: tiles are the other way round, as gradients of keys want
 *               them: what is called rows here are keys, v beside k, and what
 *               is called keys are queries, dO beside q
 *   ROW_PLANES  tensors that a stage holds rows of: q; backward also dO, and
 *               then o
 *   KEEPS_TERMS where what is added to the block's logits stays from window to
 *               window; 0: nowhere, 1: in local memory, 2: in registers, for
 *               which each wave must have the same rows always. With a mask, a
 *               work-group then walks the windows of one mask after those of
 *               another. 3: the bias in local memory, as the caller stores it;
 *               regions, of which there is one for each token, are compared at
 *               each score, which needs half the room of a sum. */
#include "unit/fragment.cl"

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
#ifndef BACKWARD
#define BACKWARD 0
#endif
#ifndef KEYS_DOWN
#define KEYS_DOWN 0
#endif
#ifndef ROW_PLANES
#define ROW_PLANES (BACKWARD ? 2 : 1)
#endif

#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

/* Tokens of a window, and of a block of it, that run down and across tiles. */
#if KEYS_DOWN
#define DOWN NK
#define ACROSS NQ
#define BLOCK_DOWN BLOCK_KEYS
#define BLOCK_ACROSS BLOCK_ROWS
#define OF_PAIR(of, args, terms, down, across) of(args, terms, across, down)
#else
#define DOWN NQ
#define ACROSS NK
#define BLOCK_DOWN BLOCK_ROWS
#define BLOCK_ACROSS BLOCK_KEYS
#define OF_PAIR(of, args, terms, down, across) of(args, terms, down, across)
#endif

#define TEAM (TEAM_WAVES * WAVE)
#define ROW_TILES CEIL_DIV(BLOCK_DOWN, UNIT_QUERIES)
#define KEY_BLOCKS CEIL_DIV(ACROSS, BLOCK_ACROSS)
#define KEY_TILES CEIL_DIV(BLOCK_ACROSS, UNIT_TILE)
#define ALL_KEY_TILES (KEY_BLOCKS * KEY_TILES)
#define PASS_TILES (PASS_KEYS / UNIT_TILE)
#define PASSES CEIL_DIV(KEY_TILES, PASS_TILES)
#define DIM_TILES CEIL_DIV(HEAD_DIM, UNIT_TILE)
#define DIMS (DIM_TILES * UNIT_TILE)
#define PITCH ROW_PITCH(DIMS)
/* Keys past the last are one row of zeros. */
#define KEY_ROWS (BLOCK_ACROSS + (BLOCK_ACROSS % UNIT_TILE != 0))
/* The last that may be read: where tiles are whole, addresses need no care. */
#define LAST_KEY (KEY_ROWS == BLOCK_ACROSS ? INT_MAX : KEY_ROWS - 1)
#define SHORT_BLOCK (ACROSS % BLOCK_ACROSS != 0)
/* Rows leave in tiles through the q that they were computed from. */
#define ROW_ROWS (BACKWARD ? BLOCK_DOWN : ROW_TILES * UNIT_QUERIES)
#define ROW_PLANE(n) ((n)*WHOLE_LINES(ROW_ROWS * PITCH))
#define KEY_PLANE(n)                                                          \
    (ROW_PLANE(ROW_PLANES) + (n)*WHOLE_LINES(KEY_ROWS * PITCH))
#if KEYS_DOWN
#define Q_PLACE KEY_PLANE(0)
#define D_O_PLACE KEY_PLANE(1)
#define K_PLACE ROW_PLANE(0)
#define V_PLACE ROW_PLANE(1)
#else
#define Q_PLACE ROW_PLANE(0)
#define D_O_PLACE ROW_PLANE(1)
#define O_PLACE ROW_PLANE(2)
#define K_PLACE KEY_PLANE(0)
#define V_PLACE KEY_PLANE(1)
#endif
/* Of the backward pass in one kernel, where a team is alone and has two
 * stages: these are of q and dO; k, v and lse of the next window come to where
 * this one's were while dK and dV are summed. Not in the cosine variant, whose
 * dK needs k. */
#if SWIZZLES_ROWS && BACKWARD && defined(ONE_VISIT)
#define LATE_KEYS (ONE_VISIT && TEAMS == 1 && STAGES > 1 && VARIANT != COSINE)
#else
#define LATE_KEYS 0
#endif
#define STAGE_SIZE (LATE_KEYS ? ROW_PLANE(ROW_PLANES) : KEY_PLANE(2))
#define KEY_STAGES (LATE_KEYS ? 1 : STAGES)
/* Where in the ring KEY_PLANE counts from, for the keys of stage n. */
#define KEY_STAGE(n) ((LATE_KEYS ? STAGES - 1 : (n)) * STAGE_SIZE)
#define RING_SIZE ((STAGES - 1) * STAGE_SIZE + KEY_PLANE(2))
/* Gradients leave through rows of each wave, OUT_DIMS channels at a time. */
#define OUT_TILES (DIM_TILES < 4 ? DIM_TILES : 4)
#define OUT_DIMS (OUT_TILES * UNIT_TILE)
#define OUT_PITCH ROW_PITCH(OUT_DIMS)
/* Is there a tile of channels of this number? Known where groups are whole. */
#define HAS_CHANNELS(tile) (DIM_TILES % OUT_TILES == 0 || (tile) < DIM_TILES)
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
    (!(KEY_BLOCKS > 1 && SHORT_BLOCK) &&                                      \
     (BLOCK_ACROSS % UNIT_TILE == 0 ||                                        \
      ((tile) + 1) * UNIT_TILE <= BLOCK_ACROSS))
/* Gradients do with fewer reads by code that is longer: on grids, whose code
 * is longest, that pays in bf16, and padding leaves no registers for it
 * (bench/notes.md). */
#define SPARES_GRADIENTS (BACKWARD && (!GRID || (DTYPE == 2 && !PADDING)))
/* Tokens of a tile, of so many in all, that are read and computed with: where
 * instructions are shorter than tiles, the last tile may do with less. The
 * forward pass gains nothing by it. */
#if UNROLL_PASSES && SPARES_GRADIENTS
#define TILE_PART(tile, all)                                                  \
    ((all) % UNIT_TILE == 0                                                   \
         ? UNIT_TILE                                                          \
         : min(UNIT_TILE, (CEIL_DIV((int)(all), KEY_SIDE) * KEY_SIDE -        \
                           (tile)*UNIT_TILE)))
#else
#define TILE_PART(tile, all) UNIT_TILE
#endif
#define KEY_PART(tile) TILE_PART(tile, BLOCK_ACROSS)
/* Is value i of a tile of scores one of these? */
#define HAS_KEY(tile, i)                                                      \
    (BLOCK_ACROSS % UNIT_TILE == 0 ||                                         \
     (i) / C_ELEMENTS * KEY_SIDE < KEY_PART(tile))
/* Passes that are not alike must be unrolled for these to be constants, and
 * all must be where terms are in registers. */
#if HAS_OWN_TERMS || (UNROLL_PASSES && (KEY_TILES % PASS_TILES != 0 ||        \
                                        BLOCK_ACROSS % UNIT_TILE != 0))
#define PASS_FOR UNROLL_FOR
#else
#define PASS_FOR NO_UNROLL_FOR
#endif
#if UNROLL_PASSES
#define MEASURE_FOR UNROLL_FOR
#else
#define MEASURE_FOR NO_UNROLL_FOR
#endif

#if HEAD_DIM % CHUNK == 0
#define CHUNKS (HEAD_DIM / CHUNK)
#else
#define CHUNKS 0
#endif

/* ---- Copies ---- */

/* Work-items that copy a tensor's rows: of the backward pass in one kernel,
 * which alone has ONE_VISIT, each wave of four has a tensor of its own
 * where rows are short and copies asynchronous, so that it makes addresses of
 * one only; else all of the team copy each. */
#if SWIZZLES_ROWS && BACKWARD && defined(ONE_VISIT)
#define COPIES_APART (TEAM_WAVES == 4 && HEAD_DIM <= 64)
#else
#define COPIES_APART 0
#endif
#define COPIERS (COPIES_APART ? WAVE : TEAM)
/* Groups of copies that a wave starts between those of items: of the backward
 * pass in one kernel, o of its own rows, where that saves a walk over keys and
 * rows that leave have room for it. */
#if BACKWARD && defined(ONE_VISIT)
#define LATE_COPIES                                                           \
    (PASSES > 1 && DIM_TILES == OUT_TILES && UNIT_QUERIES % UNIT_TILE == 0)
#else
#define LATE_COPIES 0
#endif
#if CHUNKS
/* Lanes of them that share a row, each with one chunk of it or, where they
 * are fewer, with every ROW_LANES-th; rows that they copy at once. */
#define ROW_LANES (CHUNKS < COPIERS ? CHUNKS : COPIERS)
#define ROWS_AT_ONCE (COPIERS / ROW_LANES)
#define COPIES ((COPIERS % ROW_LANES == 0) | (lane / ROW_LANES < ROWS_AT_ONCE))
#endif

/* How far a lane's chunk of the first rows that a team copies is from the
 * first row's start, in a plane without a grid. */
INLINE ulong chunk_of(const tensor_layout *layout, int lane)
{
#if CHUNKS
    return (ulong)(lane / ROW_LANES) * layout->row + lane % ROW_LANES * CHUNK;
#else
    return 0;
#endif
}

/* The channels of tokens of the padding, of k and of v, wait in local memory:
 * all compute units at once would get them slowly from the few lines that they
 * have in global memory. */
#if PADDING == 1
#define DECLARE_PADS(pads) __local uint4 pads[2][DIMS / CHUNK];
#define KEPT_PAD(pads, i) ((__local const storage_bits *)(pads)[i])
#define KEEP_PADS(pads, args, kv_head, item)                                  \
    keep_pad(pads[0], PAD_ROW(args, pad_k, ARG_PAD_K, kv_head),               \
             (args).pad_k.column, item);                                      \
    keep_pad(pads[1], PAD_ROW(args, pad_v, ARG_PAD_V, kv_head),               \
             (args).pad_v.column, item);                                      \
    barrier(CLK_LOCAL_MEM_FENCE);
INLINE void keep_pad(__local void *to, __global const storage *pad,
                     uint column, int item)
{
    for (int c = item; c < HEAD_DIM; c += TEAM * TEAMS)
        ((__local storage_bits *)to)[c] =
            pad ? ((__global const storage_bits *)pad)[(ulong)c * column]
                : (storage_bits)0;
}
#else
#define DECLARE_PADS(pads)
#define KEPT_PAD(pads, i) 0
#define KEEP_PADS(pads, args, kv_head, item)
#endif

/* Among offsets: of a token of the padding. */
#define PADDED (~0u)
#define IS_PADDED(at) (PADDING && (at) == PADDED)

#if CHUNKS
/* Where chunk `i` of a window's rows is, counted from row `first` on, of which
 * each has row_chunks. */
INLINE plane_offset find_chunk(const tensor_layout *layout,
                               const grid_layout *grid,
                               const window_place *place, uint first,
                               const int row_chunks, uint i)
{
    const token t = find_token(grid, place, first + i / row_chunks);
    return EXISTS(t) ? token_offset(layout, &t) + i % row_chunks * CHUNK
                     : PADDED;
}

/* Where the chunks are that a lane copies of `rows` rows. */
#define COPY_TURNS(rows) CEIL_DIV(rows, ROWS_AT_ONCE)
INLINE void find_copies(plane_offset *at, const tensor_layout *layout,
                        const grid_layout *grid, const window_place *place,
                        uint first, const int rows, int lane)
{
    UNROLL_FOR (int turn = 0; turn < COPY_TURNS(rows); turn++)
        at[turn] = find_chunk(layout, grid, place, first, ROW_LANES,
                              turn * ROWS_AT_ONCE * ROW_LANES + lane);
}

/* Copies chunks that are `at` from `from`, or where that is NULL from `from`
 * on and `step` apart, of `count` rows; zeros fill the others, and those of
 * the padding unless they are `pad`. has_padding 0: there are none of these.
 */
INLINE void copy_found(__local storage_bits *to, __global const storage *from,
                       const plane_offset *at, ulong step,
                       const int has_padding, __local const storage_bits *pad,
                       int count, const int rows, int lane)
{
    const int r = lane / ROW_LANES;
    const int c = lane % ROW_LANES;
    __local const uint4 *pads = (__local const uint4 *)pad + c;
    UNROLL_FOR (int turn = 0; turn < COPY_TURNS(rows); turn++) {
        const int done = turn * ROWS_AT_ONCE;
        const int exists = done + r < count;
        const int padded = at && has_padding && IS_PADDED(at[turn]);
        /* & and no &&: copies are not to lie in branches */
        const int is_row =
            COPIES & ((done + ROWS_AT_ONCE <= rows) | (done + r < rows));
        UNROLL_FOR (int i = 0; i < CHUNKS; i += ROW_LANES) {
            const int wanted =
                is_row & ((CHUNKS % ROW_LANES == 0) | (c + i < CHUNKS));
            /* eight rows on, chunks have the same order: places of all turns
             * are constants from that of the first */
            const int alike = ROWS_AT_ONCE % 8 == 0;
            int own =
                row_place((alike ? 0 : done) + r, (c + i) * CHUNK, PITCH);
            if (COPIES_APART && alike)
                FORGET(own);
            __local storage_bits *here = to + own + (alike ? done : 0) * PITCH;
            if (pad && exists && padded && wanted)
                *(__local uint4 *)here = pads[i];
            else
                copy_16(here, from + (at ? at[turn] : 0) + i * CHUNK,
                        exists & !padded, wanted);
        }
        from += step;
    }
}
#endif

/* Copies rows first .. first + count of a window to a place of the ring; zeros
 * fill `rows` rows, and those of the padding unless they are `pad`. */
INLINE void copy_rows(__local storage_bits *to, __global const storage *plane,
                      ulong own, const tensor_layout *layout,
                      const grid_layout *grid, const window_place *place,
                      __local const storage_bits *pad, uint first, int count,
                      const int rows, int lane, int wide)
{
#if CHUNKS
    if (wide) {
#if GRID
        plane_offset at[COPY_TURNS(BLOCK_ROWS + BLOCK_KEYS)];
        find_copies(at, layout, grid, place, first, rows, lane);
        copy_found(to, plane, at, 0, 1, pad, count, rows, lane);
#else
        copy_found(to, plane + element(layout, first, 0) + own, 0,
                   (ulong)ROWS_AT_ONCE * layout->row, 0, pad, count, rows,
                   lane);
#endif
        return;
    }
#endif
    NO_UNROLL_FOR (int i = lane; i < rows * HEAD_DIM; i += COPIERS) {
        const int r = i / HEAD_DIM;
        const int c = i % HEAD_DIM;
        const token t = find_token(grid, place, first + min(r, count - 1));
        const ulong at = token_offset(layout, &t) + (ulong)c * layout->column;
        const storage_bits padding = pad ? pad[c] : (storage_bits)0;
        to[row_place(r, c, PITCH)] =
            r >= count  ? (storage_bits)0
            : EXISTS(t) ? ((__global const storage_bits *)plane)[at]
                        : padding;
    }
}

/* Zeros where no copy writes: in channels and keys past the last. */
INLINE void clear_pads(__local storage_bits *ring, int lane)
{
#if DIMS != HEAD_DIM
    const int pads = DIMS - HEAD_DIM;
    for (int plane = 0; plane < STAGES * (ROW_PLANES + 2); plane++) {
        const int n = plane % (ROW_PLANES + 2);
        const int stage = plane / (ROW_PLANES + 2);
        const int is_row = n < ROW_PLANES;
        __local storage_bits *rows =
            ring + (is_row ? stage * STAGE_SIZE + ROW_PLANE(n)
                           : KEY_STAGE(stage) + KEY_PLANE(n - ROW_PLANES));
        if (!is_row && stage >= KEY_STAGES)
            continue;
        for (int i = lane; i < (is_row ? BLOCK_DOWN : KEY_ROWS) * pads;
             i += TEAM)
            rows[row_place(i / pads, HEAD_DIM + i % pads, PITCH)] = 0;
    }
#endif
    if (KEY_ROWS != BLOCK_ACROSS)
        for (int i = lane; i < KEY_STAGES * 2 * HEAD_DIM; i += TEAM)
            ring[KEY_STAGE(i / (2 * HEAD_DIM)) + KEY_PLANE(i / HEAD_DIM % 2) +
                 row_place(BLOCK_ACROSS, i % HEAD_DIM, PITCH)] = 0;
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
typedef storage_bits kept_term;
#else
typedef float kept_term;
#endif

INLINE kept_term term_to_keep(const forward_args *args,
                              const logit_terms *terms, int row, int key)
{
#if MASK_IN_LOCAL
    return bias_of(args, terms, row, key) + mask_of(args, terms, row, key);
#elif BIAS == 1
    return ((__global const storage_bits *)
                terms->bias)[bias_at(args, terms, row, key)];
#else
    return bias_of(args, terms, row, key);
#endif
}

/* Puts the block's terms where lanes will read them. */
INLINE void keep_terms(__local kept_term *kept, const forward_args *args,
                       const logit_terms *terms, uint first_row, int item)
{
#if FORGETS_TILES
    FORGET(item);
#endif
    /* several at a time are on their way; those of a group have rows and keys
     * in common */
    _Pragma("unroll 4") for (int i = item; i < ROW_TILES * ALL_KEY_TILES *
                                                   TERM_TILE / TERM_GROUP;
                             i += TEAM * TEAMS)
    {
        const int tile = i / (TERM_TILE / TERM_GROUP);
        const int first = i % (TERM_TILE / TERM_GROUP) / WAVE * TERM_GROUP;
        const int l = i % WAVE;
        const int down = (int)first_row + tile / ALL_KEY_TILES * UNIT_QUERIES;
        const int across = tile % ALL_KEY_TILES * UNIT_TILE;
        kept_term x[TERM_GROUP];
        /* what no query or key needs may be any of the others' */
        UNROLL_FOR (int j = 0; j < TERM_GROUP; j++)
            x[j] = OF_PAIR(term_to_keep, args, terms,
                           min(down + value_query(l, first + j), DOWN - 1),
                           min(across + value_key(l, first + j), ACROSS - 1));
        UNROLL_FOR (int j = 0; j < TERM_GROUP; j++)
            kept[i * TERM_GROUP + j] = x[j];
    }
}

INLINE float4 read_kept(__local const kept_term *kept)
{
#if BIAS == 2 || MASK_IN_LOCAL || DTYPE == 0
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
    for (int i = lane; i < BLOCK_DOWN; i += TEAM) {
        const int row = min((int)first_row + i, DOWN - 1);
        rows[i] = (uchar)(KEYS_DOWN ? key_region(args, terms, row)
                                    : query_region(args, terms, row));
    }
    for (int i = lane; i < ACROSS; i += TEAM)
        keys[i] = (uchar)(KEYS_DOWN ? query_region(args, terms, i)
                                    : key_region(args, terms, i));
}
#endif

/* Which regions there are: has the window of a walk more than one? And the
 * terms that keep_regions reads, of unit u in that window. */
#if MASK == 4
#define HAS_SEAMS(walk) ((walk).place.seams != 0)
#define DECLARE_REGIONS(name, args, u, walk)                                  \
    const logit_terms name = {.place = (walk).place};
#else
#define HAS_SEAMS(walk) 1 /* regions may be anything */
#define DECLARE_REGIONS(name, args, u, walk) DECLARE_TERMS(name, args, u)
#endif

/* Windows of the same kind have the same terms. */
#if MASK == 4 && KEPT_MASK
#define MASK_KIND(walk) ((walk).place.seams)
#else
#define MASK_KIND(walk) (KEPT_MASK ? (walk).kind : 0)
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

/* Factors of keys (cosine) are so far apart: those of queries stand among what
 * else is known of a row. */
#define KEY_SCALE_STEP (KEYS_DOWN ? ROW_NUMBERS : 1)

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
        added[i] = OF_PAIR(bias_of, args, terms, row, column) +
                   OF_PAIR(mask_of, args, terms, row, column);
    }
#endif
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
#if VARIANT == COSINE
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        scores[i] *= key_scale[(whole ? column : min(column, count - 1)) *
                               KEY_SCALE_STEP];
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
        const uint there =
            rows->key_regions[IS_WHOLE(tile) ? column
                                             : min(column, count - 1)];
        if (rows->region[LANE_ROW(i)] != there)
            scores[i] += args->region_value;
    }
}

#if PADDING == 2 && !KEYS_DOWN
/* No query sees a token of the padding. Whose gradients nobody stores. */
INLINE void hide_padding(float *scores, int key, int tile, int count,
                         const forward_args *args, const tile_rows *rows,
                         const wave *w)
{
    uint hidden = 0; /* a bit for each value: few windows have padding */
    NO_UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int column = tile * UNIT_TILE + value_key(w->lane, i);
        const token t = find_token(&args->grid, &rows->place,
                                   key + min(column, count - 1));
        hidden |= EXISTS(t) ? 0u : 1u << i;
    }
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        scores[i] = (hidden >> i & 1u) != 0 ? -INFINITY : scores[i];
}
#endif

/* ---- Waves and items ---- */

/* What a kernel needs of that: declares exchanges, item_id, team,
 * lane_of_team, wave_of_team and w, this work-item's wave. */
#if EMULATED
#define DECLARE_EXCHANGES                                                     \
    __local uint exchanges[TEAMS * TEAM_WAVES][EXCHANGE_WORDS];
#define OWN_EXCHANGE                                                          \
    , .exchange = exchanges[item_id / WAVE], .exchanges = exchanges[0],       \
      .waves = TEAMS * TEAM_WAVES
#else
#define DECLARE_EXCHANGES
#define OWN_EXCHANGE
#endif
#define DECLARE_WAVE                                                          \
    DECLARE_EXCHANGES                                                         \
    const int item_id = (int)get_local_id(0);                                 \
    const int team = item_id / TEAM;                                          \
    int lane_of_team = item_id % TEAM;                                        \
    const int wave_of_team = lane_of_team / WAVE;                             \
    wave wave_here = {.lane = item_id % WAVE OWN_EXCHANGE};                   \
    const wave *w = &wave_here;

/* What every kernel has in local memory: the teams' rings, which start with a
 * line of 128 bytes for units that swizzle rows; of gradients, each wave's
 * rows that leave; terms. */
#if BACKWARD
#define OUT_ROW_CHUNKS (UNIT_QUERIES * OUT_PITCH / CHUNK)
#define DECLARE_OUT_ROWS                                                      \
    __local uint4 out_rows[TEAMS * TEAM_WAVES][OUT_ROW_CHUNKS]                \
        __attribute__((aligned(128)));
#else
#define DECLARE_OUT_ROWS
#endif
#if HAS_LOCAL_TERMS
#define DECLARE_KEPT                                                          \
    __local kept_term kept[ROW_TILES * ALL_KEY_TILES * TERM_TILE]             \
        __attribute__((aligned(16)));
#else
#define DECLARE_KEPT
#endif
#define DECLARE_LOCAL_MEMORY                                                  \
    __local uint4 rings[TEAMS][STAGES * STAGE_SIZE / CHUNK]                   \
        __attribute__((aligned(128)));                                        \
    DECLARE_OUT_ROWS                                                          \
    DECLARE_KEPT

/* An item is there, the one before was read, and copies are under way again;
 * the kernel's START_COPIES(item) starts those of an item. */
#if STAGES == 1
#define START_RING()
#define AWAIT_ITEM(item)                                                      \
    TEAM_SYNC(team);                                                          \
    START_COPIES(item);                                                       \
    AWAIT_COPIES(0);                                                          \
    TEAM_SYNC(team)
#else
#define START_RING()                                                          \
    for (uint ahead = 0; ahead + 1 < STAGES; ahead++) {                       \
        START_COPIES(ahead);                                                  \
    }
#define AWAIT_ITEM(item)                                                      \
    AWAIT_COPIES(STAGES - 2 + LATE_COPIES);                                   \
    TEAM_SYNC(team);                                                          \
    START_COPIES(item + STAGES - 1)
#endif

/* ---- Scores of a tile of rows ---- */

/* tiles = products of a tile of rows, which is `held` or, where that is NULL,
 * begins at `row`, and of PASS_TILES tiles of columns, from tile `first` on;
 * both are rows of local memory, PITCH apart. */
INLINE void multiply_pass(float tiles[PASS_TILES][VALUES],
                          const query_tile *held,
                          __local const storage_bits *rows, int row,
                          int last_row, __local const storage_bits *columns,
                          int first, const wave *w)
{
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            tiles[t][i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        query_tile q;
        if (held)
            q = held[d];
        else
            q = load_query(rows, PITCH, row, d * UNIT_TILE, last_row, w);
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t)) {
                const key_tile k =
                    load_key(columns, PITCH, (first + t) * UNIT_TILE,
                             d * UNIT_TILE, LAST_KEY, KEY_PART(first + t), w);
                multiply_tiles(tiles[t], &q, &k, w);
            }
    }
}

/* finish_scores for a pass, with what else hides keys. */
INLINE void finish_pass(float scores[PASS_TILES][VALUES],
                        __local const float *key_scale, int first, int key,
                        int count, const forward_args *args,
                        const logit_terms *terms, const tile_rows *rows,
                        const wave *w)
{
    UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
        if (IS_TILE(first + t))
            finish_scores(scores[t], key_scale, key, first + t, count, args,
                          terms, rows, w);
    if (REGIONS_APART && rows->key_regions)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                add_regions(scores[t], first + t, count, args, rows, w);
#if PADDING == 2 && !KEYS_DOWN
    if (rows->holds_padding)
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            if (IS_TILE(first + t))
                hide_padding(scores[t], key, first + t, count, args, rows, w);
#endif
}

/* Softmax takes exponentials of x - base. x LOG2E - base LOG2E is one
 * operation, but its second term, which this makes, is rounded, which counts
 * where it is large: then base is subtracted from the scores first. */
INLINE void shift_scores(float scores[PASS_TILES][VALUES], const float *base,
                         float *shift)
{
    int large = 0;
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        large |= fabs(base[r]) > LARGE_LOGIT;
        shift[r] = -base[r] * LOG2E;
    }
    if (large) {
        UNROLL_FOR (int t = 0; t < PASS_TILES; t++)
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                scores[t][i] -= base[LANE_ROW(i)];
        UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
            shift[r] = 0.0f;
    }
}

/* ---- Rows that leave ---- */

/* Where row r of a window, which exists, lies in its plane. 0: it is of the
 * padding. */
INLINE int find_row(ulong *at, const tensor_layout *layout,
                    const grid_layout *grid, const window_place *place, uint r)
{
    const token t = find_token(grid, place, r);
    *at = token_offset(layout, &t);
    return EXISTS(t);
}

/* Where a tile of rows goes to: rows row .. row + count of a window. */
typedef struct row_target {
    __global storage *plane;
    const tensor_layout *layout;
    const grid_layout *grid;
    const window_place *place;
    uint row;
    int count;
    int adds; /* to what is there */
    int wide;
    const plane_offset *found; /* what find_stores says of it; NULL: nothing */
} row_target;

#if CHUNKS
/* Where the chunks of a tile of rows that a lane stores go to: `dims` channels
 * of each. */
#define STORE_TURNS(dims) CEIL_DIV(UNIT_QUERIES *(dims) / CHUNK, WAVE)
INLINE void find_stores(plane_offset *at, const tensor_layout *layout,
                        const grid_layout *grid, const window_place *place,
                        uint row, const int dims, const wave *w)
{
    UNROLL_FOR (int turn = 0; turn < STORE_TURNS(dims); turn++)
        at[turn] = find_chunk(layout, grid, place, row, dims / CHUNK,
                              turn * WAVE + w->lane);
}
#endif

/* Half of a tile's rows, each times its factor, go to scratch [UNIT_QUERIES /
 * 2][UNIT_TILE], for all lanes of the wave. */
INLINE void spread_half(__local float *scratch, const float *tile,
                        const float *factor, int half_tile, const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i++) {
        const int r = value_query(w->lane, i) - half_tile * UNIT_QUERIES / 2;
        if (r >= 0 && r < UNIT_QUERIES / 2)
            scratch[r * UNIT_TILE + value_key(w->lane, i)] =
                tile[i] * factor[LANE_ROW(i)];
    }
    WAVE_SYNC();
}

/* Stores `count` tiles of channels, from tile `first` on, each row times its
 * factor. They leave through `place`, a tile of rows of as many channels, so
 * that each is written in whole chunks; channels past the last stay there as
 * they are. */
INLINE void store_channels(float (*tiles)[VALUES], const float *factor,
                           int first, const int count,
                           __local storage_bits *place, const int pitch,
                           const row_target *to, const wave *w)
{
    ulong at;
#if !(BACKWARD && SWIZZLES_ROWS)
    wave leaving = *w; /* what lanes need for this is no register worth */
    FORGET(leaving.lane);
    w = &leaving;
#endif
    const int channel = first * UNIT_TILE;
    const int channels = HEAD_DIM % OUT_DIMS == 0 && count == OUT_TILES
                             ? OUT_DIMS
                             : min(count * UNIT_TILE, HEAD_DIM - channel);
    if (to->adds) { /* in fp32, which there is room for by half a tile */
        __local float *scratch = (__local float *)place;
        UNROLL_FOR (int d = 0; d < count; d++)
            NO_UNROLL_FOR (int half_tile = 0;
                           half_tile < (HAS_CHANNELS(first + d) ? 2 : 0);
                           half_tile++) {
                spread_half(scratch, tiles[d], factor, half_tile, w);
                NO_UNROLL_FOR (int i = w->lane;
                               i < UNIT_QUERIES / 2 * UNIT_TILE; i += WAVE) {
                    const int r = half_tile * UNIT_QUERIES / 2 + i / UNIT_TILE;
                    const int c = d * UNIT_TILE + i % UNIT_TILE;
                    if (r >= to->count || c >= channels ||
                        !find_row(&at, to->layout, to->grid, to->place,
                                  to->row + r))
                        continue;
                    at += (ulong)(channel + c) * to->layout->column;
                    ((__global storage_bits *)to->plane)[at] =
                        stored_bits(LOAD(to->plane, at) + scratch[i]);
                }
                WAVE_SYNC();
            }
        return;
    }
    UNROLL_FOR (int d = 0; d < count; d++)
        /* emulated waves may have no rows: those there are another's */
        if (HAS_CHANNELS(first + d) && (!EMULATED || to->count > 0)) {
            float x[VALUES];
            UNROLL_FOR (int i = 0; i < VALUES; i++)
                x[i] = tiles[d][i] * factor[LANE_ROW(i)];
            store_tile(x, place, pitch, 0, d * UNIT_TILE, channels, w);
        }
    WAVE_SYNC();
#if CHUNKS
    if (to->wide) {
        const uint chunks = channels / CHUNK;
        uint4 x[STORE_TURNS(OUT_DIMS)];
        UNROLL_FOR (int turn = 0; turn < STORE_TURNS(channels); turn++) {
            const uint i = (uint)(turn * WAVE + w->lane);
            const int r = UNIT_QUERIES * chunks % WAVE == 0
                              ? (int)(i / chunks)
                              : min((int)(i / chunks), UNIT_QUERIES - 1);
            x[turn] = *(__local const uint4 *)(place +
                                               row_place(r, i % chunks * CHUNK,
                                                         pitch));
            uint word = x[turn].x;
            FORGET(word); /* all are read before one is stored */
            x[turn].x = word;
        }
        UNROLL_FOR (int turn = 0; turn < STORE_TURNS(channels); turn++) {
            const uint i = (uint)(turn * WAVE + w->lane);
            const plane_offset found =
                to->found ? to->found[turn]
                          : find_chunk(to->layout, to->grid, to->place,
                                       to->row, chunks, i);
            if ((int)(i / chunks) < to->count && !IS_PADDED(found))
                *(__global uint4 *)(to->plane + found + channel) = x[turn];
        }
    } else
#endif
        NO_UNROLL_FOR (int i = w->lane; i < to->count * channels; i += WAVE) {
            const int r = i / channels, c = i % channels;
            if (find_row(&at, to->layout, to->grid, to->place, to->row + r))
                ((__global storage_bits *)to
                     ->plane)[at + (ulong)(channel + c) * to->layout->column] =
                    place[row_place(r, c, pitch)];
        }
    WAVE_SYNC();
}

/* The products of a tile's rows with the rows of the same numbers of another
 * plane: the diagonal of a product of both. Of a lane's row r, dots[r] if it
 * has that entry; place[r] is the row then, else row_count. */
INLINE void dot_rows(float dots[LANE_ROWS], int place[LANE_ROWS],
                     __local const storage_bits *rows,
                     __local const storage_bits *others, int row,
                     const int row_count, const wave *w)
{
    float products[VALUES];
    /* rows of its tile before */
    const int beside = UNIT_QUERIES % UNIT_TILE == 0 ? 0 : row % UNIT_TILE;
    const int key = row - beside;
    FORGET(row);
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        products[i] = 0.0f;
    UNROLL_FOR (int d = 0; d < DIM_TILES; d++) {
        const query_tile q =
            load_query(rows, PITCH, row, d * UNIT_TILE, row_count - 1, w);
        const key_tile k = load_key(others, PITCH, key, d * UNIT_TILE,
                                    row_count - 1, UNIT_TILE, w);
        multiply_tiles(products, &q, &k, w);
    }
    /* masked, so that the compiler sees which entries are on no diagonal */
    const int lane = w->lane & (WAVE - 1);
    UNROLL_FOR (int r = 0; r < LANE_ROWS; r++) {
        const int own_row = lane_query(lane, r);
        dots[r] = 0.0f;
        place[r] = row_count;
        UNROLL_FOR (int i = 0; i < VALUES; i++)
            if (LANE_ROW(i) == r && value_key(lane, i) == own_row + beside) {
                dots[r] = products[i];
                place[r] = min(row + own_row, row_count);
            }
    }
}

#if VARIANT == COSINE
/* inverse_norm of problem.cl by one rsqrt. Gradients in fp16 have powers of
 * two that follow from it: there a row of zeros, whose scores are 0 anyway and
 * which adds nothing, has 0. */
#define DROPS_ZEROS (BACKWARD && DTYPE == 1)
INLINE float quick_inverse_norm(float square)
{
    const float inverse = fmin(rsqrt(square), 1.0f / NORM_EPSILON);
    return DROPS_ZEROS && inverse >= 1.0f / NORM_EPSILON ? 0.0f : inverse;
}

/* Rows of local memory whose norms are wanted: factors[r] = factor / norm of
 * row r. */
typedef struct measured_rows {
    __local float *factors;
    __local const storage_bits *rows;
    int count;
    float factor;
} measured_rows;

/* Those of planes from .. to, one or two that follow each other, at once: so
 * one's products are under way while the other's come. The team's waves take
 * tiles in turn. */
INLINE void measure_together(const measured_rows *planes, const int from,
                             const int to, int wave_of_team, const wave *w)
{
    const int most = max(planes[from].count, planes[to - 1].count);
    MEASURE_FOR (int done = 0; done < most;
                 done += TEAM_WAVES * UNIT_QUERIES) {
        float square[2][LANE_ROWS];
        int place[2][LANE_ROWS];
        UNROLL_FOR (int n = from; n < to; n++)
            if (done < planes[n].count)
                dot_rows(square[n], place[n], planes[n].rows, planes[n].rows,
                         done + wave_of_team * UNIT_QUERIES, planes[n].count,
                         w);
        UNROLL_FOR (int n = from; n < to; n++)
            UNROLL_FOR (int r = 0; r < LANE_ROWS; r++)
                if (done < planes[n].count) {
                    /* by all lanes: no branch but for the store */
                    float own =
                        planes[n].factor * quick_inverse_norm(square[n][r]);
                    SETTLE(own);
                    if (place[n][r] < planes[n].count)
                        planes[n].factors[place[n][r]] = own;
                }
    }
}

/* Those of up to two planes. */
INLINE void measure_rows(const measured_rows *planes, const int count,
                         int wave_of_team, const wave *w)
{
#if UNROLL_PASSES /* else they take too many registers */
    measure_together(planes, 0, count, wave_of_team, w);
#else
    measure_together(planes, 0, 1, wave_of_team, w);
    if (count > 1)
        measure_together(planes, 1, 2, wave_of_team, w);
#endif
}
#endif

/* ---- The walk over windows ---- */

/* A round is one window for each team, and a walk takes rounds that follow
 * each other. Windows that lie and are masked alike come one after the other:
 * terms and regions that are kept stay, and of a grid the next window is as
 * far away as the next grid. Where a grid has few windows of each place, they
 * come as they are numbered instead. */
#define SORTED (GRID || KEPT_MASK || REGIONS_APART)

typedef struct walk {
    uint kinds, kind;    /* of windows that are alike; the present one */
    uint of_kind, round; /* rounds of a kind; the present one */
    uint rounds;         /* of the walk */
    uint window;         /* the team's, counted from the launch's first */
    int exists;          /* 0: the team is behind the last window */
    uint step;           /* window_places that are alike are so far apart */
    window_place place;  /* of the window, or where the team has none, of one
                            like the others' */
} walk;

/* How many planes on the window's is: after the first grid's, or without a
 * grid after that of the launch's first window. */
INLINE uint plane_of(const walk *w)
{
    return GRID ? (uint)w->place.grid : w->window;
}

/* Windows of a grid; 1 without one. */
INLINE uint count_places(const forward_args *args)
{
    return GRID ? args->grid.windows[0] * args->grid.windows[1] *
                      args->grid.windows[2]
                : 1;
}

INLINE uint rounds_of_kind(const forward_args *args, uint kinds)
{
    return CEIL_DIV(CEIL_DIV((uint)args->windows, kinds), TEAMS);
}

/* Window w + kinds is like window w. */
INLINE uint count_kinds(const forward_args *args)
{
    ulong kinds = KEPT_MASK ? args->mask_windows : 1;
#if REGIONS_APART && MASK == 3 && !GRID
    /* where teams then have as many rounds as before, or a sixteenth more */
    const uint masks = (uint)min(args->mask_windows, args->windows);
    if ((ulong)masks * rounds_of_kind(args, masks) * 16 <=
        (ulong)CEIL_DIV((uint)args->windows, TEAMS) * 17)
        kinds = masks;
#endif
#if GRID
    const ulong places = count_places(args);
    if (KEPT_MASK && (MASK != 4 || MASK_IN_LOCAL))
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

/* Rounds of a launch. */
INLINE uint count_rounds(const forward_args *args)
{
    const uint kinds = count_kinds(args);
    return kinds * rounds_of_kind(args, kinds);
}

/* Starts a walk of so many rounds of a launch, of which `first` is the first.
 */
INLINE walk start_walk(const forward_args *args, uint first, uint rounds,
                       int team)
{
    walk w;
    w.kinds = count_kinds(args);
    w.of_kind = rounds_of_kind(args, w.kinds);
    w.kind = first / w.of_kind;
    w.round = first % w.of_kind;
    w.rounds = rounds;
    w.window = (w.round * TEAMS + team) * w.kinds + w.kind;
    w.exists = w.window < (uint)args->windows;
    w.step = TEAMS * w.kinds / count_places(args);
    w.place = place_window(&args->grid, window_of(&w, args));
    return w;
}

/* Starts that of a slot: slots have as many rounds, the first ones one more.
 */
INLINE walk start_slot(const forward_args *args, uint slot, int team)
{
    const uint rounds = count_rounds(args);
    const uint least = rounds / args->slots, more = rounds % args->slots;
    return start_walk(args, slot * least + min(slot, more),
                      least + (slot < more), team);
}

#if REGIONS_APART
#define DECLARE_KEPT_REGIONS                                                  \
    uint kept_regions = ~0u; /* the kind of windows whose regions are kept */
/* Has the window other regions than those of the kind that was `kept`, or may
 * it have? */
INLINE int has_new_regions(const walk *w, uint *kept)
{
    const int is_new =
        w->kinds == 1 || (GRID && MASK == 3) || w->kind != *kept;
    *kept = w->kind;
    return is_new;
}
#else
#define DECLARE_KEPT_REGIONS
#endif

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
