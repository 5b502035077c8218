/* SPDX-License-Identifier: Apache-2.0
 * What all matrix units of a vendor share: for the file of a unit that defines
 * AMD_UNIT or INTEL_UNIT, how the lanes of a wave wait for each other and
 * exchange numbers, and what the vendor's compiler must be told; then, for
 * both, what OpenCL C 1.2 has in place of instructions that only NVIDIA's unit
 * has. NVIDIA has one unit, whose file says all that. */
#include "unit/fragment.cl"

#if AMD_UNIT
#define WAVE_ATTRIBUTE
/* Lanes compute in lockstep, and their accesses to local memory keep their
 * order: only the compiler must not change it. */
#define WAVE_SYNC()                                                           \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");                    \
    __builtin_amdgcn_wave_barrier();                                          \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront")

/* LLVM computes all that follows from a lane or from the arguments before a
 * loop, and runs out of vector and of scalar registers for it. Arguments lie
 * where scalar loads find them again. */
#define HIDE_FROM_OPTIMIZER(x) __asm__ volatile("" : "+v"(x))
#define HIDE_LANE(x) HIDE_FROM_OPTIMIZER(x)
#define HIDE_PLANE(p)
#define HIDES_TILE_LANES 0
#define RELOAD_ARGS(type, name, from)                                         \
    __constant const void *name##_segment =                                   \
        (__constant const void *)__builtin_amdgcn_kernarg_segment_ptr();      \
    __asm__ volatile("" : "+s"(name##_segment));                              \
    const type name##_again = *(__constant const type *)name##_segment;       \
    const type *name = &name##_again;

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
#define VOTES 1
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
#else
#define PACK(low, high) (round_to_bf16(low) | (uint)round_to_bf16(high) << 16)
#endif
#elif INTEL_UNIT
#define WAVE_ATTRIBUTE __attribute__((intel_reqd_sub_group_size(WAVE)))
#define WAVE_SYNC() sub_group_barrier(CLK_LOCAL_MEM_FENCE)
/* IGC computes addresses early too; where registers run out it compiles again
 * without unrolling, and then all arrays are in memory. */
#define HIDE_FROM_OPTIMIZER(x) __asm__ volatile("" : "+rw"(x))
#define HIDE_LANE(x) HIDE_FROM_OPTIMIZER(x)
#define HIDE_PLANE(p)
#define HIDES_TILE_LANES 1
#define RELOAD_ARGS(type, name, from) const type *name = from;
/* It unrolls less where lanes vote. */
#define VOTES 0
#define WAVE_ANY(x) 1
#define EXP2(x) native_exp2(x)
#define RECIPROCAL(x) native_recip(x)
#if DTYPE == 1
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define PACK(low, high)                                                       \
    as_uint((half2)(convert_half_rte(low), convert_half_rte(high)))
#define DPAS intel_sub_group_f16_f16_matrix_mad_k16
#else
#define PACK(low, high)                                                       \
    (intel_convert_bfloat16_as_ushort(low) |                                  \
     (uint)intel_convert_bfloat16_as_ushort(high) << 16)
#define DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#endif

/* Elements go one by one, as what vload and vstore reach lands in memory;
 * LEFT_WORDS are the unit's. */
#define EIGHT_WORDS(x)                                                        \
    as_int8((uint8)(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]))
INLINE void mma(const uint *a, const uint *b, float *c)
{
    const float8 sum =
        DPAS(LEFT_WORDS(a), EIGHT_WORDS(b),
             (float8)(c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]));
    c[0] = sum.s0;
    c[1] = sum.s1;
    c[2] = sum.s2;
    c[3] = sum.s3;
    c[4] = sum.s4;
    c[5] = sum.s5;
    c[6] = sum.s6;
    c[7] = sum.s7;
}
#endif

#if AMD_UNIT || INTEL_UNIT
#define SWIZZLES_ROWS 0
INLINE int row_swizzle(int row, const int pitch) { return 0; }
#define SUMS_BY_PRODUCT 0
#define UNROLL_SUBTILES 0
#define KEEPS_OFFSETS 0
#define NATIVE_QUERIES 0
#define NATIVE_KEYS 0
#define NATIVE_WEIGHTS 0
#define NATIVE_STORES 0
#define FORCE_EARLY(x)
#define KEEP_LOCAL(p) (p)
#define TO_TF32(x) as_uint(x) /* no unit of theirs has it */

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
INLINE void copy_4(__local void *to, __global const void *from, int exists)
{
    *(__local uint *)to = exists ? *(__global const uint *)from : 0u;
}
#endif

#define SCALED_NUMBER(x, origin, scale)                                       \
    ((number_of((ushort)(x)) - number_of((ushort)(origin))) *                 \
     number_of((ushort)(scale)))
#define SCALED_PAIR(x, origin, scale)                                         \
    PACK(SCALED_NUMBER(x, origin, scale),                                     \
         SCALED_NUMBER((x) >> 16, (origin) >> 16, (scale) >> 16))

#define TEAM_SYNC(team) barrier(CLK_LOCAL_MEM_FENCE)
#define TEAMS_SYNC_TOGETHER (WINDOWS_PER_GROUP > 1)

INLINE uint find_largest(uint x, __local uint *scratch, const wave *w)
{
    uint y;
    if (w->lane == 0)
        *scratch = 0;
    atomic_max(scratch, x); /* behind that, as lanes are in lockstep */
    WAVE_SYNC();
    y = *scratch;
    WAVE_SYNC();
    return y;
}
#define LARGEST_OF_WAVE(x, scratch, w) find_largest(x, scratch, w)

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
