/* SPDX-License-Identifier: Apache-2.0
 * What AMD's compiler knows, as far as kernels use it. What a device lacks is
 * not declared. */
#include "lanes.h"

#define __AMDGCN__ 1

/* ---- Matrix units ---- */

#if __gfx1100__
PRODUCT(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32, "wmma11.f16", 8_8_8,
        half16, uint8, half16, uint8, float8)
PRODUCT(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32, "wmma11.bf16", 8_8_8,
        short16, uint8, short16, uint8, float8)
#elif __gfx1201__
PRODUCT(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12, "wmma12.f16", 8_4_4,
        half8, uint4, half8, uint4, float8)
PRODUCT(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12, "wmma12.bf16",
        8_4_4, short8, uint4, short8, uint4, float8)
#elif __gfx942__
PRODUCT(multiply_mfma16_f16, "mfma16.f16", 4_2_2, half4, uint2, half4, uint2,
        float4)
PRODUCT(multiply_mfma16_bf16, "mfma16.bf16", 4_2_2, short4, uint2, short4,
        uint2, float4)

/* Blocks are not broadcast, and B not permuted. */
#define PLAIN(broadcasts, block, permutes)                                    \
    __attribute__((diagnose_if((broadcasts) || (block) || (permutes),         \
                               "not emulated", "error")))
BUILTIN float4 __builtin_amdgcn_mfma_f32_16x16x16f16(half4 a, half4 b,
                                                     float4 sum, int x, int y,
                                                     int z) PLAIN(x, y, z)
{
    return multiply_mfma16_f16(a, b, sum);
}
BUILTIN float4 __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(short4 a, short4 b,
                                                         float4 sum, int x,
                                                         int y, int z)
    PLAIN(x, y, z)
{
    return multiply_mfma16_bf16(a, b, sum);
}
#endif

/* ---- Lanes ---- */

/* The barrier does all that the fences around it ask for. */
#define __builtin_amdgcn_fence(order, scope)
#define __builtin_amdgcn_wave_barrier() meet_lanes()

#if __gfx942__
BUILTIN ulong __builtin_amdgcn_ballot_w64(bool x)
{
    ulong lanes;
    __asm volatile("unit.ballot.b64 %0, %1;" : "=l"(lanes) : "r"((int)x));
    return lanes;
}
#else
BUILTIN uint __builtin_amdgcn_ballot_w32(bool x)
{
    uint lanes;
    __asm volatile("unit.ballot.b32 %0, %1;" : "=r"(lanes) : "r"((int)x));
    return lanes;
}

BUILTIN uint __builtin_amdgcn_permlanex16(uint old, uint from, uint low,
                                          uint high, bool fetches_inactive,
                                          bool bounds)
    __attribute__((diagnose_if(fetches_inactive || bounds, "not emulated",
                               "error")))
{
    uint to;
    __asm volatile("unit.permlanex16.b32 %0, %1, %2, %3;"
                   : "=r"(to)
                   : "r"(from), "r"(low), "r"(high));
    return to;
}
#endif

BUILTIN int __builtin_amdgcn_ds_bpermute(int address, int from)
{
    int to;
    __asm volatile("unit.bpermute.b32 %0, %1, %2;"
                   : "=r"(to)
                   : "r"(from), "r"(address));
    return to;
}

/* ---- Numbers and arguments ---- */

#define __builtin_amdgcn_exp2f(x) fast_exp2(x)
#define __builtin_amdgcn_rcpf(x) fast_reciprocal(x)

BUILTIN __constant void *__builtin_amdgcn_kernarg_segment_ptr(void)
{
    ulong address;
    __asm("mov.u64 %0, %%kernarg;" : "=l"(address));
    return (__constant void *)address;
}

/* What kernels have of assembly is empty, and names registers of AMD's. */
#define __asm__
#define volatile(...)
