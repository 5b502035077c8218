/* SPDX-License-Identifier: Apache-2.0
 * Tiles of matrices: read as fragments from rows in local memory (queries,
 * keys, values, weights), multiplied, rounded to operands, and stored to local
 * memory again. What an instruction takes and which lane has it is told by
 * fragment.cl; this is what the attention kernels call. */
#include "unit/row_extents.h"
#include "unit/vendors.cl"

/* ---- Rows in local memory ---- */

/* Where an element of a tile is. */
INLINE int swizzled_offset(int row, int channel, const int pitch)
{
    return row * pitch +
           ((channel / CHUNK) ^ row_swizzle(row, pitch)) * CHUNK +
           channel % CHUNK;
}

/* ---- Tiles from local memory ---- */

/* The lane that addresses of a tile follow from. */
INLINE int tile_lane(const wave *w)
{
    int lane = w->lane;
    if (HIDES_TILE_LANES)
        HIDE_FROM_OPTIMIZER(lane);
    return lane;
}

/* A run of elements, at least a word. */
INLINE void load_run(uint *to, __local const storage_bits *at, const int run)
{
    if (run == 4 * WORD_ELEMENTS) {
        const uint4 x = *(__local const uint4 *)at;
        to[0] = x.x;
        to[1] = x.y;
        to[2] = x.z;
        to[3] = x.w;
    } else if (run == 2 * WORD_ELEMENTS) {
        const uint2 x = *(__local const uint2 *)at;
        to[0] = x.x;
        to[1] = x.y;
    } else {
        to[0] = *(__local const uint *)at;
    }
}

/* Elements as they are stored become operands. */
INLINE void make_operands(uint *x, const int words)
{
    if (DTYPE == 0 && !SPLITS_FP32)
        UNROLL_FOR (int i = 0; i < words; i++)
            x[i] = TO_TF32(as_float(x[i]));
}

/* x becomes what TF32 has of it, cut off, and `low` the rest, rounded: so that
 * of fp32's 24 bits at least 22 count (SPLITS_FP32). */
INLINE void split_operands(uint *x, uint *low, const int words)
{
    UNROLL_FOR (int i = 0; i < words; i++) {
        const float all = as_float(x[i]);
        x[i] &= TF32_BITS;
        low[i] = (as_uint(all - as_float(x[i])) + TF32_HALF) & TF32_BITS;
    }
}

/* Reads a tile from rows `row` and on and channels `channel` and on of rows
 * that are `pitch` elements apart; rows past `last` are `last`. */
INLINE query_tile load_query(__local const storage_bits *rows, const int pitch,
                             int row, int channel, int last, const wave *w)
{
    query_tile q;
    const int lane = tile_lane(w);
#if NATIVE_QUERIES
    load_native_query(q.x, rows, pitch, row, channel, last, lane);
#else
    UNROLL_FOR (int i = 0; i < STEPS * QUERY_ELEMENTS; i += QUERY_RUN) {
        const int e = i % QUERY_ELEMENTS;
        load_run(q.x + i / WORD_ELEMENTS,
                 rows + swizzled_offset(min(row + query_row(lane, e), last),
                                        channel + i / QUERY_ELEMENTS * MMA_K +
                                            query_step(lane, e),
                                        pitch),
                 QUERY_RUN);
    }
#endif
    make_operands(q.x, sizeof q.x / sizeof *q.x);
    return q;
}

/* Where element i of a lane's key tile is. */
INLINE __local const storage_bits *
key_pointer(__local const storage_bits *rows, const int pitch, int row,
            int channel, int last, int i, int lane)
{
    const int e = i % KEY_ELEMENTS;
    const int key =
        row + i / (STEPS * KEY_ELEMENTS) * KEY_SIDE + key_row(lane, e);
    return rows + swizzled_offset(min(key, last),
                                  channel + i / KEY_ELEMENTS % STEPS * MMA_K +
                                      key_step(lane, e),
                                  pitch);
}

/* count: of its keys, from the first on, that matter. Those of the others may
 * be 0. */
INLINE key_tile load_key(__local const storage_bits *rows, const int pitch,
                         int row, int channel, int last, const int count,
                         const wave *w)
{
    key_tile k;
    const int lane = tile_lane(w);
#if NATIVE_KEYS
    load_native_key(k.x, rows, pitch, row, channel, last, count, lane);
#else
    if (KEY_RUN >= WORD_ELEMENTS)
        UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS; i += KEY_RUN)
            load_run(k.x + i / WORD_ELEMENTS,
                     key_pointer(rows, pitch, row, channel, last, i, lane),
                     KEY_RUN);
    if (KEY_RUN < WORD_ELEMENTS)
        UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS; i += 2)
            k.x[i / 2] =
                (uint)*key_pointer(rows, pitch, row, channel, last, i, lane) |
                (uint)*key_pointer(rows, pitch, row, channel, last, i + 1,
                                   lane)
                    << 16;
#endif
    make_operands(k.x, sizeof k.x / sizeof *k.x);
    return k;
}

/* Values are stored as keys are, but contracted over the keys. */
INLINE __local const storage_bits *
value_pointer(__local const storage_bits *rows, const int pitch, int row,
              int channel, int last, int i, int lane)
{
    const int e = i % KEY_ELEMENTS;
    const int key =
        row + i / KEY_ELEMENTS % STEPS * MMA_K + SLOT_KEY(key_step(lane, e));
    return rows +
           swizzled_offset(min(key, last),
                           channel + i / (STEPS * KEY_ELEMENTS) * KEY_SIDE +
                               key_row(lane, e),
                           pitch);
}

INLINE key_tile load_value(__local const storage_bits *rows, const int pitch,
                           int row, int channel, int last, const int count,
                           const wave *w)
{
    key_tile v;
    const int lane = tile_lane(w);
#if NATIVE_VALUES
    load_native_value(v.x, rows, pitch, row, channel, last, count, lane);
#else
    if (VALUE_RUN >= WORD_ELEMENTS)
        UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS;
                    i += VALUE_RUN)
            load_run(v.x + i / WORD_ELEMENTS,
                     value_pointer(rows, pitch, row, channel, last, i, lane),
                     VALUE_RUN);
    if (VALUE_RUN < WORD_ELEMENTS)
        UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS; i += 2)
            v.x[i / 2] = (uint)*value_pointer(rows, pitch, row, channel, last,
                                              i, lane) |
                         (uint)*value_pointer(rows, pitch, row, channel, last,
                                              i + 1, lane)
                             << 16;
#endif
    make_operands(v.x, sizeof v.x / sizeof *v.x);
    return v;
}

/* Where element i of a lane's tile of weights is, the other way round. */
INLINE __local const ushort *weight_pointer(__local const ushort *weights,
                                            int pitch, int query, int key,
                                            int i, int lane)
{
    const int e = i % QUERY_ELEMENTS;
    const int row =
        query + i / QUERY_ELEMENTS * MMA_K + SLOT_KEY(query_step(lane, e));
    return weights + swizzled_offset(row, key + query_row(lane, e), pitch);
}

/* Reads weights [queries][keys] the other way round: keys `key` and on take
 * the place of a tile's queries, and the contraction, with what load_value
 * reads, is over the queries `query` and on, of which `count` matter. */
INLINE query_tile load_weights(__local const ushort *weights, int pitch,
                               int query, int key, const int count,
                               const wave *w)
{
    query_tile p;
    const int lane = tile_lane(w);
#if NATIVE_WEIGHTS
    load_native_weights(p.x, weights, pitch, query, key, count, lane);
#else
    UNROLL_FOR (int i = 0; i < STEPS * QUERY_ELEMENTS; i += 2)
        p.x[i / 2] =
            (uint)*weight_pointer(weights, pitch, query, key, i, lane) |
            (uint)*weight_pointer(weights, pitch, query, key, i + 1, lane)
                << 16;
#endif
    return p;
}

/* ---- Products ---- */

/* scores[ACC_PER_LANE] += Q K^T, or o += P V. */
INLINE void multiply_tiles(float *sums, const query_tile *q, const key_tile *k,
                           const wave *w)
{
    UNROLL_FOR (int part = 0; part < PARTS; part++)
        UNROLL_FOR (int step = 0; step < STEPS; step++) {
            const uint *query = q->x + step * QUERY_ELEMENTS / WORD_ELEMENTS;
            const uint *key =
                k->x + (part * STEPS + step) * KEY_ELEMENTS / WORD_ELEMENTS;
            mma(QUERIES_ARE_M ? query : key, QUERIES_ARE_M ? key : query,
                sums + part * C_ELEMENTS);
        }
}

/* Element i of a lane's operands becomes 0. */
INLINE void clear_operand(uint *x, int i)
{
    const uint bits = WORD_ELEMENTS == 1 ? ~0u : 0xffffu;
    x[i / WORD_ELEMENTS] &= ~(bits << 16 * (i % WORD_ELEMENTS));
}

/* Scores, rounded to operands of the next product. */
INLINE query_tile make_weights(const float *scores, const wave *w)
{
    query_tile p;
    uint packed[ACC_PER_LANE / WORD_ELEMENTS];
    if (DTYPE == 0)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            packed[i] = TO_TF32(scores[i]);
    if (DTYPE != 0)
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 2)
            packed[i / 2] = PACK(scores[i], scores[i + 1]);
    OWN_WEIGHTS(p.x, packed)
    return p;
}

/* Adds the weights that make_weights makes of scores to their rows' sums: to
 * those of all of a tile's keys, or where lanes SUMS_ARE_PARTS to those of a
 * lane's own. What is divided by a sum of weights as they are multiplied has
 * no error where one of them is nearly all. */
#define SUMS_ARE_PARTS (!SUMS_BY_PRODUCT || DTYPE == 0)
#define PAIR_OF_ONES (DTYPE == 1 ? 0x3c003c00u : 0x3f803f80u)
INLINE void add_by_product(float *sums, const query_tile *weights)
{
    uint ones[KEY_ELEMENTS / WORD_ELEMENTS];
    float products[C_ELEMENTS];
    UNROLL_FOR (int i = 0; i < KEY_ELEMENTS / WORD_ELEMENTS; i++)
        ones[i] = PAIR_OF_ONES;
    UNROLL_FOR (int i = 0; i < C_ELEMENTS; i++)
        products[i] = sums[LANE_ROW(i)];
    UNROLL_FOR (int step = 0; step < STEPS; step++) {
        const uint *query = weights->x + step * QUERY_ELEMENTS / WORD_ELEMENTS;
        mma(QUERIES_ARE_M ? query : ones, QUERIES_ARE_M ? ones : query,
            products);
    }
    UNROLL_FOR (int i = 0; i < C_ELEMENTS; i++)
        sums[LANE_ROW(i)] = products[i];
}
INLINE void add_weights(float *sums, const query_tile *weights,
                        const float *scores, const wave *w)
{
    if (!SUMS_ARE_PARTS) {
        add_by_product(sums, weights);
        return;
    }
    if (DTYPE == 0) {
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            sums[LANE_ROW(i)] += as_float(TO_TF32(scores[i]));
        return;
    }
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 2) {
        const uint both = PACK(scores[i], scores[i + 1]);
        sums[LANE_ROW(i)] += number_of((ushort)both);
        sums[LANE_ROW(i + 1)] += number_of((ushort)(both >> 16));
    }
}

INLINE storage_bits stored_bits(float x)
{
    return DTYPE == 0 ? as_uint(x) : PACK(x, 0.0f);
}

/* Do neighbouring values leave together? Both are channels, or neither. */
#define STORES_PAIRS (!SPREAD_OUT && HEAD_DIM % 2 == 0)

/* A tile, rounded to the storage type, goes to rows in local memory, from
 * `row` and `column` on; columns from `columns` on stay as they are. */
INLINE void store_tile(const float *tile, __local storage_bits *rows,
                       const int pitch, int row, int column, const int columns,
                       const wave *w)
{
#if NATIVE_STORES
    if (column + TILE_N <= columns) {
        uint x[ACC_PER_LANE / 2];
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 2)
            x[i / 2] = PACK(tile[i], tile[i + 1]);
        store_native_tile(x, rows, pitch, row, column, w->lane);
        return;
    }
#endif
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 1 + STORES_PAIRS) {
        const int c = column + value_key(w->lane, i);
        __local storage_bits *here =
            rows + swizzled_offset(row + value_query(w->lane, i), c, pitch);
        if (c < columns) {
            if (!STORES_PAIRS)
                *here = stored_bits(tile[i]);
            else if (DTYPE == 0)
                *(__local float2 *)here = (float2)(tile[i], tile[i + 1]);
            else
                *(__local uint *)here = PACK(tile[i], tile[i + 1]);
        }
    }
}

/* A lane's numbers of a tile that store_tile left, all of whose columns are
 * there. */
INLINE void load_tile(float *tile, __local const storage_bits *rows,
                      const int pitch, int row, int column, const wave *w)
{
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 1 + !SPREAD_OUT) {
        __local const storage_bits *here =
            rows + swizzled_offset(row + value_query(w->lane, i),
                                   column + value_key(w->lane, i), pitch);
        if (SPREAD_OUT) {
            tile[i] = number_of(*here);
        } else {
            const uint both = *(__local const uint *)here;
            tile[i] = number_of((ushort)both);
            tile[i + 1] = number_of((ushort)(both >> 16));
        }
    }
}

/* Scores less what rounding to the storage type leaves of them. */
INLINE void subtract_rounded(float *scores)
{
    if (DTYPE == 0) {
        UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i++)
            scores[i] -= as_float(TO_TF32(scores[i]));
        return;
    }
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE; i += 2) {
        const uint both = PACK(scores[i], scores[i + 1]);
        scores[i] -= number_of((ushort)both);
        scores[i + 1] -= number_of((ushort)(both >> 16));
    }
}
