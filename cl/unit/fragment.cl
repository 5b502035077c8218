/* SPDX-License-Identifier: Apache-2.0
 * Fragments: how the lanes of a wave hold tiles of matrices for a matrix unit.
 * The attention kernels know tiles of queries, keys, values, scores and
 * weights; this file makes them from one instruction C += A B, which one file
 * for each unit (unit_*.cl) describes.
 *
 * A unit's file defines
 *   UNIT_NAME
 *   WAVE          lanes that execute the instruction together
 *   MMA_M, MMA_N, MMA_K  its matrices: A [M][K], B [K][N], C [M][N]
 *   A_, B_, C_ELEMENTS   elements of each that one lane holds; of A and B
 *                 WORD_ELEMENTS to a uint, the first in the lower half
 *   a_m(l, i), a_k, b_k, b_n, c_m, c_n  where element i of lane l lies
 *   QUERIES_DOWN  1: scores are Q K^T, a tile's queries run down C; 0: they
 *                 are (K Q^T)^T and run across, so that each lane has one
 *                 query and C is the next product's B without an exchange
 *   UNIT_TILE     keys of a tile of scores, and channels of a step
 *   LANE_ROWS     queries of which a lane holds scores
 *   LANE_ROW(i)   which of them score i belongs to
 *   REDUCE(x, op) combines x over the lanes that share a query
 * and where it differs from what is below
 *   OPERAND_LANES lanes with operands of their own; the others repeat them
 *   SLOT_KEY(k)   the key that element k of a contraction with weights has
 *   OWN_WEIGHTS(to, packed) rearranges a lane's scores, packed in pairs, to
 *                 operands where they are none as they are
 *   QUERY_RUN, KEY_RUN, VALUE_RUN  elements that follow each other in a row
 *                 of queries, keys or values, so that one load fetches them:
 *                 1, or up to 16 bytes
 *   NATIVE_QUERIES, NATIVE_KEYS, NATIVE_VALUES, NATIVE_WEIGHTS  it has a way
 *                 of its own to load a tile (load_native_query, _key, _value,
 *                 _weights)
 *   NATIVE_STORES it has a way of its own to store a tile to local memory
 *                 (store_native_tile)
 *   WAVE_ANY(x)   is an int x other than 0 in some lane of the wave? Only
 *                 where code that seldom runs costs the rest nothing: Intel's
 *                 compiler unrolls less then
 *   SWIZZLES_ROWS rows in local memory follow each other without a gap, and
 *                 tiles of them start with a line of 128 bytes; chunk c of
 *                 row r is c ^ row_swizzle(r, elements of a row)
 *   SUM_OF_WAVE(x, scratch, w) where lanes add up what they have without
 *                 local memory
 *   SPREAD_OUT    neighbouring elements of C are no neighbours in a row
 *   SUMS_BY_PRODUCT  rows of weights are summed by one more product, with ones
 *   UNROLL_PASSES the compiler may see all passes at once, for constants in
 *                 each; others move too much of them into registers
 *   KEEPS_PLACES  lanes have registers for where what they copy and store lies
 * and, unless EMULATED, mma(a, b, c), LANE_XOR(x, mask) where REDUCE needs it,
 * WAVE_SYNC(), WAVE_ATTRIBUTE of kernels, and what else is guarded below, for
 * speed. AMD_UNIT or INTEL_UNIT defines all of that but mma.
 *
 * Operands are what is stored, fp16 or bf16. A unit that has_tf32
 * (host/device/unit.h) also multiplies fp32, rounded to TF32, which has the
 * exponents of fp32 and the fraction of fp16: its file describes that where
 * DTYPE is 0.
 *
 *   EMULATED 1    the instruction is computed through local memory, so that
 *                 each layout can be tested on any device. All work-items of
 *                 a work-group must make the same calls. */
#include "common/problem.cl"
#include MATRIX_UNIT

#ifndef EMULATED
#define EMULATED 1
#endif
#if QUERIES_DOWN
#define UNIT_QUERIES MMA_M
#define KEY_SIDE MMA_N
#define QUERY_ELEMENTS A_ELEMENTS
#define KEY_ELEMENTS B_ELEMENTS
#else
#define UNIT_QUERIES MMA_N
#define KEY_SIDE MMA_M
#define QUERY_ELEMENTS B_ELEMENTS
#define KEY_ELEMENTS A_ELEMENTS
#endif
/* instructions that a tile takes along keys (or channels of o), and along the
 * contraction */
#define PARTS (UNIT_TILE / KEY_SIDE)
#define STEPS (UNIT_TILE / MMA_K)
/* scores of a tile that a lane holds */
#define VALUES (PARTS * C_ELEMENTS)
#ifndef OPERAND_LANES
#define OPERAND_LANES WAVE
#endif
#define ADD(a, b) ((a) + (b))
#ifndef SLOT_KEY
#define SLOT_KEY(k) (k)
#endif
#ifndef QUERY_RUN
#define QUERY_RUN WORD_ELEMENTS
#endif
#ifndef KEY_RUN
#define KEY_RUN WORD_ELEMENTS
#endif
#ifndef VALUE_RUN
#define VALUE_RUN 1
#endif
#ifndef NATIVE_QUERIES
#define NATIVE_QUERIES 0
#endif
#ifndef NATIVE_KEYS
#define NATIVE_KEYS 0
#endif
#ifndef NATIVE_VALUES
#define NATIVE_VALUES 0
#endif
#ifndef NATIVE_WEIGHTS
#define NATIVE_WEIGHTS 0
#endif
#ifndef NATIVE_STORES
#define NATIVE_STORES 0
#endif
#ifndef SPREAD_OUT
#define SPREAD_OUT 0
#endif
#ifndef SUMS_BY_PRODUCT
#define SUMS_BY_PRODUCT 0
#endif
#ifndef UNROLL_PASSES
#define UNROLL_PASSES 0
#endif
#ifndef KEEPS_PLACES
#define KEEPS_PLACES 0
#endif

/* Tiles of queries and of weights [UNIT_QUERIES][UNIT_TILE]; of keys
 * [UNIT_TILE keys][UNIT_TILE channels], and of values transposed. */
typedef struct query_tile {
    uint x[STEPS * QUERY_ELEMENTS / WORD_ELEMENTS];
} query_tile;
typedef struct key_tile {
    uint x[PARTS * STEPS * KEY_ELEMENTS / WORD_ELEMENTS];
} key_tile;

/* A wave, and what it exchanges data through. */
typedef struct wave {
    int lane;
#if EMULATED
    __local uint *exchange; /* [EXCHANGE_WORDS], among those of all waves */
    __local const uint *exchanges;
    int waves;
#endif
} wave;

INLINE int query_row(int l, int i)
{
    return QUERIES_DOWN ? a_m(l, i) : b_n(l, i);
}
INLINE int query_step(int l, int i)
{
    return QUERIES_DOWN ? a_k(l, i) : b_k(l, i);
}
INLINE int key_row(int l, int i)
{
    return QUERIES_DOWN ? b_n(l, i) : a_m(l, i);
}
INLINE int key_step(int l, int i)
{
    return QUERIES_DOWN ? b_k(l, i) : a_k(l, i);
}

/* Query, and key or channel, of value i of a tile of scores or of o. */
INLINE int value_query(int l, int i)
{
    const int e = i % C_ELEMENTS;
    return QUERIES_DOWN ? c_m(l, e) : c_n(l, e);
}
INLINE int value_key(int l, int i)
{
    const int e = i % C_ELEMENTS;
    return i / C_ELEMENTS * KEY_SIDE + (QUERIES_DOWN ? c_n(l, e) : c_m(l, e));
}

/* Query of a lane's row r of LANE_ROWS. */
INLINE int lane_query(int l, int r)
{
    int query = 0;
    UNROLL_FOR (int i = VALUES - 1; i >= 0; i--)
        if (LANE_ROW(i) == r)
            query = value_query(l, i);
    return query;
}

INLINE float number_of(storage_bits bits)
{
#if DTYPE == 0
    return as_float(bits & ~0x1fffu); /* what the unit sees of it */
#elif DTYPE == 1
    return vload_half(0, (const half *)&bits);
#else
    return as_float((uint)bits << 16);
#endif
}

/* ---- Emulation ---- */

#if EMULATED
#define OPERAND_WORDS ((MMA_M + MMA_N) * MMA_K / WORD_ELEMENTS)
#define EXCHANGE_WORDS (OPERAND_WORDS > WAVE ? OPERAND_WORDS : WAVE)

INLINE storage_bits operand(const uint *words, int i)
{
    return (storage_bits)(words[i / WORD_ELEMENTS] >> i % WORD_ELEMENTS * 16);
}

INLINE void emulate_mma(const uint *a, const uint *b, float *c, const wave *w)
{
    const int l = w->lane;
    __local storage_bits *rows = (__local storage_bits *)w->exchange;
    __local storage_bits *cols = rows + MMA_M * MMA_K; /* [M][K], [K][N] */
    int repeats = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < OPERAND_LANES) {
        for (int i = 0; i < A_ELEMENTS; i++)
            rows[a_m(l, i) * MMA_K + a_k(l, i)] = operand(a, i);
        for (int i = 0; i < B_ELEMENTS; i++)
            cols[b_k(l, i) * MMA_N + b_n(l, i)] = operand(b, i);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < A_ELEMENTS; i++)
        repeats &= rows[a_m(l, i) * MMA_K + a_k(l, i)] == operand(a, i);
    for (int i = 0; i < B_ELEMENTS; i++)
        repeats &= cols[b_k(l, i) * MMA_N + b_n(l, i)] == operand(b, i);
    for (int i = 0; i < C_ELEMENTS; i++)
        for (int k = 0; k < MMA_K; k++)
            c[i] = FMA(number_of(rows[c_m(l, i) * MMA_K + k]),
                       number_of(cols[k * MMA_N + c_n(l, i)]), c[i]);
    if (!repeats) /* the hardware would compute nonsense */
        c[0] = NAN;
}
#define MMA(a, b, c, w) emulate_mma(a, b, c, w)

INLINE float emulate_lane_xor(float x, int mask, const wave *w)
{
    __local float *all = (__local float *)w->exchange;
    barrier(CLK_LOCAL_MEM_FENCE);
    all[w->lane] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    return all[w->lane ^ mask];
}
#define LANE_XOR(x, mask) emulate_lane_xor(x, mask, w)

/* Of all waves: they have to take the same branches. */
INLINE int emulate_wave_any(int x, const wave *w)
{
    int any = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    w->exchange[w->lane] = (uint)x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < w->waves * WAVE; i++)
        any |= w->exchanges[i / WAVE * EXCHANGE_WORDS + i % WAVE] != 0;
    return any;
}
#if !INTEL_UNIT
#define WAVE_ANY(x) emulate_wave_any(x, w)
#endif
#define WAVE_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
/* `if`, where what follows holds barriers: PoCL 3.1 compiles all that comes
 * behind a condition with barriers twice, but not behind a loop. */
#define IF_ALL(condition)                                                     \
    for (int only = (condition) ? 1 : 0; only > 0; only--)
#else
#define IF_ALL(condition) if (condition)
#define MMA(a, b, c, w) mma(a, b, c)
#endif

/* ---- What all units of a vendor share ---- */

#if !EMULATED && AMD_UNIT
/* Lanes compute in lockstep, and their accesses to local memory keep their
 * order: only the compiler must not change it. */
#define WAVE_SYNC()                                                           \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");                    \
    __builtin_amdgcn_wave_barrier();                                          \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront")

/* LLVM computes all that follows from a lane or from the arguments before a
 * loop, and runs out of vector and of scalar registers for it. Arguments lie
 * where scalar loads find them again. */
#define FORGET(x) __asm__ volatile("" : "+v"(x))
#define FORGET_LANE(x) FORGET(x)
#define RELOAD_ARGS(type)                                                     \
    __constant const void *segment =                                          \
        (__constant const void *)__builtin_amdgcn_kernarg_segment_ptr();      \
    __asm__ volatile("" : "+s"(segment));                                     \
    const type args = *(__constant const type *)segment;

INLINE float lane_xor(float x, int mask, int lane)
{
#if WAVE == 32 /* the other row of 16, the same lane of it: mask is 16 */
    return as_float(__builtin_amdgcn_permlanex16(
        as_uint(x), as_uint(x), 0x76543210u, 0xfedcba98u, false, false));
#else
    return as_float(
        __builtin_amdgcn_ds_bpermute((lane ^ mask) * 4, as_int(x)));
#endif
}
#define LANE_XOR(x, mask) lane_xor(x, mask, w->lane)
#if WAVE == 32
#define WAVE_ANY(x) (__builtin_amdgcn_ballot_w32((x) != 0) != 0)
#else
#define WAVE_ANY(x) (__builtin_amdgcn_ballot_w64((x) != 0) != 0)
#endif

#define EXP2(x) __builtin_amdgcn_exp2f(x)
#define RECIPROCAL(x) __builtin_amdgcn_rcpf(x)
#if DTYPE == 1
/* not the instruction that makes two halves: it rounds towards 0 */
#define PACK(low, high) as_uint((half2)((half)(low), (half)(high)))
#endif
#endif

#if !EMULATED && INTEL_UNIT
#define WAVE_ATTRIBUTE __attribute__((intel_reqd_sub_group_size(WAVE)))
#define WAVE_SYNC() sub_group_barrier(CLK_LOCAL_MEM_FENCE)
/* IGC computes addresses early too; where registers run out it compiles again
 * without unrolling, and then all arrays are in memory. */
#define FORGET(x) __asm__ volatile("" : "+rw"(x))
#define FORGET_LANE(x) FORGET(x)
#define FORGETS_TILES 1
#define EXP2(x) native_exp2(x)
#define RECIPROCAL(x) native_recip(x)
#if DTYPE == 1
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define PACK(low, high)                                                       \
    as_uint((half2)(convert_half_rte(low), convert_half_rte(high)))
#else
#define PACK(low, high)                                                       \
    (intel_convert_bfloat16_as_ushort(low) |                                  \
     (uint)intel_convert_bfloat16_as_ushort(high) << 16)
#endif
#endif

/* ---- What no unit needs to define ---- */

#ifndef WAVE_ATTRIBUTE
#define WAVE_ATTRIBUTE
#endif
/* Keeps the compiler from computing what follows from an int x before a loop:
 * it would take registers all along. FORGET_LANE is for the lane of a kernel's
 * outermost loop. */
#ifndef FORGET
#define FORGET(x)
#endif
/* Keeps the compiler from computing a float behind what comes now. */
#ifndef SETTLE
#define SETTLE(x)
#endif
#ifndef FORGET_LANE
#define FORGET_LANE(x)
#endif
/* 1: addresses of tiles and of terms are not kept from one to the next either.
 */
#ifndef FORGETS_TILES
#define FORGETS_TILES 0
#endif
/* Within a loop: reads the kernel's first argument, args, again. */
#ifndef RELOAD_ARGS
#define RELOAD_ARGS(type)
#endif
#if DTYPE == 0
#ifndef TO_TF32
/* To nearest, ties away from 0, as the units that have TF32 do. */
INLINE uint round_to_tf32(float x)
{
    const uint bits = as_uint(x);
    return (isnan(x) ? bits | 0x400000u : bits + 0x1000u) & ~0x1fffu;
}
#define TO_TF32(x) round_to_tf32(x)
#endif
#elif !defined(PACK)
INLINE uint bits_of(float x)
{
    ushort bits;
#if DTYPE == 1
    vstore_half_rte(x, 0, (half *)&bits);
#else
    const uint all = as_uint(x);
    bits = (ushort)((isnan(x) ? all | 0x400000u
                              : all + 0x7fffu + ((all >> 16) & 1u)) >>
                    16);
#endif
    return bits;
}
#define PACK(low, high) (bits_of(low) | bits_of(high) << 16)
#endif
#ifndef EXP2
#define EXP2(x) exp2(x)
#endif
#ifndef RECIPROCAL
#define RECIPROCAL(x) (1.0f / (x))
#endif
#ifndef ASYNC_COPIES
#define ASYNC_COPIES 0
#define END_COPIES()
#define AWAIT_COPIES(newer)
INLINE void copy_16(__local storage_bits *to, __global const void *from,
                    int exists, int wanted)
{
    if (wanted)
        *(__local uint4 *)to =
            exists ? *(__global const uint4 *)from : (uint4)(0u);
}
INLINE void copy_4(__local float *to, __global const float *from)
{
    *to = *from;
}
#endif
#ifndef TEAM_SYNC
#define TEAM_SYNC(team) barrier(CLK_LOCAL_MEM_FENCE)
#endif
/* The largest of what a wave's lanes have; slot: for it, in local memory. */
#ifndef LARGEST_OF_WAVE
INLINE uint find_largest(uint x, __local uint *slot, const wave *w)
{
    uint y;
    if (w->lane == 0)
        *slot = 0;
    WAVE_SYNC();
    atomic_max(slot, x);
    WAVE_SYNC();
    y = *slot;
    WAVE_SYNC();
    return y;
}
#define LARGEST_OF_WAVE(x, slot, w) find_largest(x, slot, w)
#endif
/* x = the sum of what a wave's lanes have, always in the same order. scratch:
 * [WAVE], in local memory. */
#ifndef SUM_OF_WAVE
INLINE float add_lanes(float x, __local float *scratch, const wave *w)
{
    float sum = 0.0f;
    WAVE_SYNC();
    scratch[w->lane] = x;
    WAVE_SYNC();
    for (int l = 0; l < WAVE; l++)
        sum += scratch[l];
    WAVE_SYNC();
    return sum;
}
#define SUM_OF_WAVE(x, scratch, w) x = add_lanes(x, scratch, w)
#endif

/* ---- Rows in local memory ---- */

/* Eight rows' chunks of the same channels lie in different banks: either rows
 * are an odd number of chunks long, or each has its chunks in an order of its
 * own, which the unit's file says. */
#define LINE (8 * CHUNK)
#if SWIZZLES_ROWS
#define ROW_PITCH(dims) (dims)
#define WHOLE_LINES(elements) (((elements) + LINE - 1) / LINE * LINE)
#else
#define ROW_PITCH(dims) ((dims) + CHUNK)
#define WHOLE_LINES(elements) (elements)
#define row_swizzle(row, pitch) 0
#endif

/* Where an element of a tile is. */
INLINE int row_place(int row, int channel, const int pitch)
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
#if FORGETS_TILES
    FORGET(lane);
#endif
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
#if DTYPE == 0
    UNROLL_FOR (int i = 0; i < words; i++)
        x[i] = TO_TF32(as_float(x[i]));
#endif
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
                 rows + row_place(min(row + query_row(lane, e), last),
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
INLINE __local const storage_bits *key_place(__local const storage_bits *rows,
                                             const int pitch, int row,
                                             int channel, int last, int i,
                                             int lane)
{
    const int e = i % KEY_ELEMENTS;
    const int key =
        row + i / (STEPS * KEY_ELEMENTS) * KEY_SIDE + key_row(lane, e);
    return rows + row_place(min(key, last),
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
#elif KEY_RUN >= WORD_ELEMENTS
    UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS; i += KEY_RUN)
        load_run(k.x + i / WORD_ELEMENTS,
                 key_place(rows, pitch, row, channel, last, i, lane), KEY_RUN);
#else
    UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS; i += 2)
        k.x[i / 2] =
            (uint)*key_place(rows, pitch, row, channel, last, i, lane) |
            (uint)*key_place(rows, pitch, row, channel, last, i + 1, lane)
                << 16;
#endif
    make_operands(k.x, sizeof k.x / sizeof *k.x);
    return k;
}

/* Values are stored as keys are, but contracted over the keys. */
INLINE __local const storage_bits *
value_place(__local const storage_bits *rows, const int pitch, int row,
            int channel, int last, int i, int lane)
{
    const int e = i % KEY_ELEMENTS;
    const int key =
        row + i / KEY_ELEMENTS % STEPS * MMA_K + SLOT_KEY(key_step(lane, e));
    return rows + row_place(min(key, last),
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
#elif VALUE_RUN >= WORD_ELEMENTS
    UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS; i += VALUE_RUN)
        load_run(v.x + i / WORD_ELEMENTS,
                 value_place(rows, pitch, row, channel, last, i, lane),
                 VALUE_RUN);
#else
    UNROLL_FOR (int i = 0; i < PARTS * STEPS * KEY_ELEMENTS; i += 2)
        v.x[i / 2] =
            (uint)*value_place(rows, pitch, row, channel, last, i, lane) |
            (uint)*value_place(rows, pitch, row, channel, last, i + 1, lane)
                << 16;
#endif
    make_operands(v.x, sizeof v.x / sizeof *v.x);
    return v;
}

#if DTYPE != 0 /* only the backward pass needs that, and it has no TF32 */
/* Where element i of a lane's tile of weights is, the other way round. */
INLINE __local const ushort *weight_place(__local const ushort *weights,
                                          int pitch, int query, int key, int i,
                                          int lane)
{
    const int e = i % QUERY_ELEMENTS;
    const int row =
        query + i / QUERY_ELEMENTS * MMA_K + SLOT_KEY(query_step(lane, e));
    return weights + row_place(row, key + query_row(lane, e), pitch);
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
            (uint)*weight_place(weights, pitch, query, key, i, lane) |
            (uint)*weight_place(weights, pitch, query, key, i + 1, lane) << 16;
#endif
    return p;
}
#endif

/* ---- Products ---- */

/* scores[VALUES] += Q K^T, or o += P V. */
INLINE void multiply_tiles(float *sums, const query_tile *q, const key_tile *k,
                           const wave *w)
{
    UNROLL_FOR (int part = 0; part < PARTS; part++)
        UNROLL_FOR (int step = 0; step < STEPS; step++) {
            const uint *query = q->x + step * QUERY_ELEMENTS / WORD_ELEMENTS;
            const uint *key =
                k->x + (part * STEPS + step) * KEY_ELEMENTS / WORD_ELEMENTS;
#if QUERIES_DOWN
            MMA(query, key, sums + part * C_ELEMENTS, w);
#else
            MMA(key, query, sums + part * C_ELEMENTS, w);
#endif
        }
}

/* Scores, rounded to operands of the next product. */
INLINE query_tile make_weights(const float *scores, const wave *w)
{
    query_tile p;
#ifdef OWN_WEIGHTS
    uint packed[VALUES / WORD_ELEMENTS];
#else
    uint *packed = p.x;
#endif
#if DTYPE == 0
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        packed[i] = TO_TF32(scores[i]);
#else
    UNROLL_FOR (int i = 0; i < VALUES; i += 2)
        packed[i / 2] = PACK(scores[i], scores[i + 1]);
#endif
#ifdef OWN_WEIGHTS
    OWN_WEIGHTS(p.x, packed)
#endif
    return p;
}

/* Adds the weights that make_weights makes of scores to their rows' sums: to
 * those of all of a tile's keys, or where lanes SUMS_ARE_PARTS to those of a
 * lane's own. What is divided by a sum of weights as they are multiplied has
 * no error where one of them is nearly all. */
#define SUMS_ARE_PARTS (!SUMS_BY_PRODUCT || DTYPE == 0)
#define PAIR_OF_ONES (DTYPE == 1 ? 0x3c003c00u : 0x3f803f80u)
INLINE void add_weights(float *sums, const query_tile *weights,
                        const float *scores, const wave *w)
{
#if DTYPE == 0
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        sums[LANE_ROW(i)] += as_float(TO_TF32(scores[i]));
#elif SUMS_BY_PRODUCT
    uint ones[KEY_ELEMENTS / WORD_ELEMENTS];
    float products[C_ELEMENTS];
    UNROLL_FOR (int i = 0; i < KEY_ELEMENTS / WORD_ELEMENTS; i++)
        ones[i] = PAIR_OF_ONES;
    UNROLL_FOR (int i = 0; i < C_ELEMENTS; i++)
        products[i] = sums[LANE_ROW(i)];
    UNROLL_FOR (int step = 0; step < STEPS; step++) {
        const uint *query = weights->x + step * QUERY_ELEMENTS / WORD_ELEMENTS;
#if QUERIES_DOWN
        MMA(query, ones, products, w);
#else
        MMA(ones, query, products, w);
#endif
    }
    UNROLL_FOR (int i = 0; i < C_ELEMENTS; i++)
        sums[LANE_ROW(i)] = products[i];
#else
    UNROLL_FOR (int i = 0; i < VALUES; i += 2) {
        const uint both = PACK(scores[i], scores[i + 1]);
        sums[LANE_ROW(i)] += number_of((ushort)both);
        sums[LANE_ROW(i + 1)] += number_of((ushort)(both >> 16));
    }
#endif
}

INLINE storage_bits stored_bits(float x)
{
#if DTYPE == 0
    return as_uint(x);
#else
    return (ushort)PACK(x, 0.0f);
#endif
}

/* Do neighbouring values leave together? Both are channels, or neither. */
#define PAIRS_LEAVE (!SPREAD_OUT && HEAD_DIM % 2 == 0)

/* A tile, rounded to the storage type, goes to rows in local memory, from
 * `row` and `column` on; columns from `columns` on stay as they are. */
INLINE void store_tile(const float *tile, __local storage_bits *rows,
                       const int pitch, int row, int column, const int columns,
                       const wave *w)
{
#if NATIVE_STORES
    if (column + UNIT_TILE <= columns) {
        uint x[VALUES / 2];
        UNROLL_FOR (int i = 0; i < VALUES; i += 2)
            x[i / 2] = PACK(tile[i], tile[i + 1]);
        store_native_tile(x, rows, pitch, row, column, w->lane);
        return;
    }
#endif
    UNROLL_FOR (int i = 0; i < VALUES; i += 1 + PAIRS_LEAVE) {
        const int c = column + value_key(w->lane, i);
        __local storage_bits *here =
            rows + row_place(row + value_query(w->lane, i), c, pitch);
        if (c < columns) {
#if !PAIRS_LEAVE
            *here = stored_bits(tile[i]);
#elif DTYPE == 0
            *(__local float2 *)here = (float2)(tile[i], tile[i + 1]);
#else
            *(__local uint *)here = PACK(tile[i], tile[i + 1]);
#endif
        }
    }
}

#if DTYPE != 0
/* A lane's numbers of a tile that store_tile left, all of whose columns are
 * there. */
INLINE void load_tile(float *tile, __local const storage_bits *rows,
                      const int pitch, int row, int column, const wave *w)
{
    UNROLL_FOR (int i = 0; i < VALUES; i += 1 + !SPREAD_OUT) {
        __local const storage_bits *here =
            rows + row_place(row + value_query(w->lane, i),
                             column + value_key(w->lane, i), pitch);
#if SPREAD_OUT
        tile[i] = number_of(*here);
#else
        const uint both = *(__local const uint *)here;
        tile[i] = number_of((ushort)both);
        tile[i + 1] = number_of((ushort)(both >> 16));
#endif
    }
}
#endif

/* Scores less what rounding to the storage type leaves of them. */
INLINE void subtract_rounded(float *scores)
{
#if DTYPE == 0
    UNROLL_FOR (int i = 0; i < VALUES; i++)
        scores[i] -= as_float(TO_TF32(scores[i]));
#else
    UNROLL_FOR (int i = 0; i < VALUES; i += 2) {
        const uint both = PACK(scores[i], scores[i + 1]);
        scores[i] -= number_of((ushort)both);
        scores[i + 1] -= number_of((ushort)(both >> 16));
    }
#endif
}
