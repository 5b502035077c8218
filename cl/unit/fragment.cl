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
 *   QUERIES_ARE_M 1: scores are Q K^T, a tile's queries run down C; 0: they
 *                 are (K Q^T)^T and run across, so that each lane has one
 *                 query and C is the next product's B without an exchange
 *   TILE_N        keys of a tile of scores, and channels of a step
 *   LANE_ROWS     queries of which a lane holds scores
 *   LANE_ROW(i)   which of them score i belongs to
 *   REDUCE(x, op) combines x over the lanes that share a query
 *   QUERY_RUN, KEY_RUN, VALUE_RUN  elements that follow each other in a row
 *                 of queries, keys or values, so that one load fetches them:
 *                 1, or up to 16 bytes
 *   SPREAD_OUT    neighbouring elements of C are no neighbours in a row
 * and where scores are no operands as they are
 *   SLOT_KEY(k)   the key that element k of a contraction with weights has
 *   OWN_WEIGHTS(to, packed) rearranges a lane's scores, packed in pairs
 * and what vendors.cl has for the units of AMD and Intel:
 *   NATIVE_QUERIES, NATIVE_KEYS, NATIVE_VALUES, NATIVE_WEIGHTS  it has a way
 *                 of its own to load a tile (load_native_query, _key, _value,
 *                 _weights)
 *   NATIVE_STORES it has a way of its own to store a tile to local memory
 *                 (store_native_tile)
 *   VOTES         lanes vote quickly: WAVE_ANY(x), is an int x other than 0 in
 *                 some lane of the wave?
 *   SWIZZLES_ROWS rows in local memory follow each other without a gap, and
 *                 tiles of them start with a line of 128 bytes; chunk c of
 *                 row r is c ^ row_swizzle(r, elements of a row)
 *   SCALED_PAIR(x, origin, scale) (x - origin) scale, of two numbers in a word
 *                 each, which are rounded twice at most
 *   SUM_OF_WAVE(x, scratch, w) where lanes add up what they have without
 *                 local memory
 *   SUMS_BY_PRODUCT  rows of weights are summed by one more product, with ones
 *   UNROLL_SUBTILES the compiler may see all subtiles at once, for constants
 *                 in each; others move too much of them into registers
 *   KEEPS_OFFSETS lanes have registers for where what they copy and store lies
 * and what else stands there. mma(a, b, c), and LANE_XOR(x, mask) where REDUCE
 * needs it, are the instructions.
 *
 * Operands are what is stored, fp16 or bf16. A unit that has_tf32
 * (host/device/matrix_unit.h) also multiplies fp32, rounded to TF32, which has
 * the exponents of fp32 and the fraction of fp16: its file describes that
 * where DTYPE is 0.
 */
#include "common/storage.cl"
#include MATRIX_UNIT

/* units of vendors.cl: a lane has scores of one query */
#if AMD_UNIT || INTEL_UNIT
#define QUERIES_ARE_M 0
#define TILE_N 16
#define LANE_ROWS 1
#define LANE_ROW(i) 0
#endif

REQUIRE(COMPUTE_CAPABILITY)

/* 1: operands of fp32 are split in two of TF32, whose products are added. The
 * bits that TF32 has of fp32, and half of its last. */
#ifndef SPLITS_FP32
#define SPLITS_FP32 0
#endif
#define TF32_BITS 0xffffe000u
#define TF32_HALF 0x1000u

#if QUERIES_ARE_M
#define TILE_M MMA_M
#define KEY_SIDE MMA_N
#define QUERY_ELEMENTS A_ELEMENTS
#define KEY_ELEMENTS B_ELEMENTS
#else
#define TILE_M MMA_N
#define KEY_SIDE MMA_M
#define QUERY_ELEMENTS B_ELEMENTS
#define KEY_ELEMENTS A_ELEMENTS
#endif
/* instructions that a tile takes along keys (or channels of o), and along the
 * contraction */
#define PARTS (TILE_N / KEY_SIDE)
#define STEPS (TILE_N / MMA_K)
/* scores of a tile that a lane holds */
#define ACC_PER_LANE (PARTS * C_ELEMENTS)
#define ADD(a, b) ((a) + (b))
#ifndef SLOT_KEY
#define SLOT_KEY(k) (k)
#endif
#ifndef OWN_WEIGHTS
#define OWN_WEIGHTS(to, packed)                                               \
    UNROLL_FOR (int i = 0; i < ACC_PER_LANE / WORD_ELEMENTS; i++)             \
        (to)[i] = (packed)[i];
#endif

/* Tiles of queries and of weights [TILE_M][TILE_N]; of keys
 * [TILE_N keys][TILE_N channels], and of values transposed. */
typedef struct query_tile {
    uint x[STEPS * QUERY_ELEMENTS / WORD_ELEMENTS];
} query_tile;
typedef struct key_tile {
    uint x[PARTS * STEPS * KEY_ELEMENTS / WORD_ELEMENTS];
} key_tile;

/* A wave, and what it exchanges data through. */
typedef struct wave {
    int lane;
} wave;

INLINE int query_row(int l, int i)
{
    return QUERIES_ARE_M ? a_m(l, i) : b_n(l, i);
}
INLINE int query_step(int l, int i)
{
    return QUERIES_ARE_M ? a_k(l, i) : b_k(l, i);
}
INLINE int key_row(int l, int i)
{
    return QUERIES_ARE_M ? b_n(l, i) : a_m(l, i);
}
INLINE int key_step(int l, int i)
{
    return QUERIES_ARE_M ? b_k(l, i) : a_k(l, i);
}

/* Query, and key or channel, of value i of a tile of scores or of o. */
INLINE int value_query(int l, int i)
{
    const int e = i % C_ELEMENTS;
    return QUERIES_ARE_M ? c_m(l, e) : c_n(l, e);
}
INLINE int value_key(int l, int i)
{
    const int e = i % C_ELEMENTS;
    return i / C_ELEMENTS * KEY_SIDE + (QUERIES_ARE_M ? c_n(l, e) : c_m(l, e));
}

/* Query of a lane's row r of LANE_ROWS. */
INLINE int lane_query(int l, int r)
{
    int query = 0;
    UNROLL_FOR (int i = ACC_PER_LANE - 1; i >= 0; i--)
        if (LANE_ROW(i) == r)
            query = value_query(l, i);
    return query;
}

INLINE float number_of(storage_bits bits)
{
    if (DTYPE == 0)
        return as_float((uint)bits & ~0x1fffu); /* what the unit sees of it */
    if (DTYPE == 1)
        return vload_half(0, (const half *)&bits);
    return as_float((uint)bits << 16);
}
