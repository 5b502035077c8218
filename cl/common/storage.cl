/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing the three storage types. Everything is computed in
 * fp32; this file is the only one that knows how a tensor stores a number.
 *
 *   DTYPE 0: fp32 = float
 *   DTYPE 1: fp16 = half, through vload_half and vstore_half, which OpenCL
 *            1.2 has without an extension
 *   DTYPE 2: bf16 = ushort holding the upper half of an fp32
 *
 * storage_bits holds an element without a meaning, WORD_ELEMENTS of them are
 * 32 bits.
 *
 * load and store with the suffix of a type move one element, load4 and store4
 * (and so on) that many neighbours, aligned to one element only. Stores round
 * to nearest even and keep a NaN a NaN.
 *
 *   HALVES_FROM_BITS  2: vload_half4 would take the address for that of a
 *                     whole vector */
#include "common/language.cl"

REQUIRE(DTYPE)
REQUIRE(HAS_FMA)
REQUIRE(HALVES_FROM_BITS)

/* a * b + c. A device without the instruction would compute fma in software,
 * a hundred times slower. */
#define FMA(a, b, c) (HAS_FMA ? fma(a, b, c) : mad(a, b, c))

INLINE float load_f32(__global const float *p, ulong i) { return p[i]; }
#define DEFINE_VECTOR_LOAD_F32(n)                                             \
    INLINE JOIN(float, n) JOIN(JOIN(load, n), _f32)(__global const float *p)  \
    {                                                                         \
        return JOIN(vload, n)(0, p);                                          \
    }

/* Numbers in pairs, as fewer instructions make them of words. */
INLINE float4 widen_bf16(uint2 pairs)
{
    return as_float4((uint4)(pairs.x << 16, pairs.x & 0xffff0000u,
                             pairs.y << 16, pairs.y & 0xffff0000u));
}

/* EXPONENT: bits of it; where all are set there is no number. */
#if DTYPE == 0
typedef float storage;
typedef uint storage_bits;
#define WORD_ELEMENTS 1
#define EXPONENT 0x7f800000u
#define SUFFIX _f32
INLINE void store_f32(float x, __global float *p, ulong i) { p[i] = x; }
#define DEFINE_VECTOR_ACCESS(n)                                               \
    DEFINE_VECTOR_LOAD_F32(n)                                                 \
    INLINE void JOIN(JOIN(store, n), _f32)(JOIN(float, n) x,                  \
                                           __global float *p)                 \
    {                                                                         \
        JOIN(vstore, n)(x, 0, p);                                             \
    }

#elif DTYPE == 1
typedef half storage;
typedef ushort storage_bits;
#define WORD_ELEMENTS 2
#define EXPONENT 0x7c00u
#define SUFFIX _fp16
INLINE float load_fp16(__global const half *p, ulong i)
{
    return vload_half(i, p);
}
INLINE void store_fp16(float x, __global half *p, ulong i)
{
    vstore_half_rte(x, i, p);
}
#if HALVES_FROM_BITS == 2
#define DEFINE_VECTOR_ACCESS(n)                                               \
    DEFINE_VECTOR_LOAD_F32(n)                                                 \
    INLINE JOIN(float, n) JOIN(JOIN(load, n), _fp16)(__global const half *p)  \
    {                                                                         \
        const JOIN(ushort, n) bits =                                          \
            JOIN(vload, n)(0, (__global const ushort *)p);                    \
        return JOIN(vload_half, n)(0, (const half *)&bits);                   \
    }                                                                         \
    INLINE void JOIN(JOIN(store, n), _fp16)(JOIN(float, n) x,                 \
                                            __global half * p)                \
    {                                                                         \
        JOIN(ushort, n) bits;                                                 \
        JOIN(JOIN(vstore_half, n), _rte)(x, 0, (half *)&bits);                \
        JOIN(vstore, n)(bits, 0, (__global ushort *)p);                       \
    }
#else
#define DEFINE_VECTOR_ACCESS(n)                                               \
    DEFINE_VECTOR_LOAD_F32(n)                                                 \
    INLINE JOIN(float, n) JOIN(JOIN(load, n), _fp16)(__global const half *p)  \
    {                                                                         \
        return JOIN(vload_half, n)(0, p);                                     \
    }                                                                         \
    INLINE void JOIN(JOIN(store, n), _fp16)(JOIN(float, n) x,                 \
                                            __global half * p)                \
    {                                                                         \
        JOIN(JOIN(vstore_half, n), _rte)(x, 0, p);                            \
    }
#endif

#else
typedef ushort storage;
typedef ushort storage_bits;
#define WORD_ELEMENTS 2
#define EXPONENT 0x7f80u
#define SUFFIX _bf16
INLINE float load_bf16(__global const ushort *p, ulong i)
{
    return as_float((uint)p[i] << 16);
}
/* To nearest, ties to even. Of a choice between sums LLVM makes branches on
 * AMD's devices. */
INLINE ushort round_to_bf16(float x)
{
    const uint bits = isnan(x) ? 0x7fc00000u : as_uint(x);
    return (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
INLINE void store_bf16(float x, __global ushort *p, ulong i)
{
    p[i] = round_to_bf16(x);
}
#define DEFINE_VECTOR_ACCESS(n)                                               \
    DEFINE_VECTOR_LOAD_F32(n)                                                 \
    INLINE JOIN(float, n)                                                     \
        JOIN(JOIN(load, n), _bf16)(__global const ushort *p)                  \
    {                                                                         \
        return JOIN(as_float, n)(JOIN(convert_uint, n)(JOIN(vload, n)(0, p))  \
                                 << 16u);                                     \
    }                                                                         \
    INLINE void JOIN(JOIN(store, n), _bf16)(JOIN(float, n) x,                 \
                                            __global ushort * p)              \
    {                                                                         \
        const JOIN(uint, n) bits = JOIN(as_uint, n)(x);                       \
        const JOIN(uint, n) rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);  \
        const JOIN(uint, n) quiet = bits | 0x400000u;                         \
        JOIN(vstore, n)                                                       \
        (JOIN(convert_ushort, n)(select(rounded, quiet, isnan(x)) >> 16u), 0, \
         p);                                                                  \
    }
#endif

/* elements of 16 bytes */
#define CHUNK (4 * WORD_ELEMENTS)

#define LOAD JOIN(load, SUFFIX)
#define STORE JOIN(store, SUFFIX)
#define LOAD_VECTOR(n) JOIN(JOIN(load, n), SUFFIX)
#define STORE_VECTOR(n) JOIN(JOIN(store, n), SUFFIX)
