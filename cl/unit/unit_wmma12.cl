/* SPDX-License-Identifier: Apache-2.0
 * Matrix unit: WMMA of AMD's gfx12 (RDNA4 ISA, "Wave Matrix Multiply
 * Accumulate"), waves of 32. What a unit's file defines is listed in
 * fragment.cl. */
#define UNIT_NAME wmma12
#define AMD_UNIT 1
#define WAVE 32
#define MMA_M 16
#define MMA_N 16
#define MMA_K 16
#define A_ELEMENTS 8
#define B_ELEMENTS 8
#define C_ELEMENTS 8

/* Element i of lane l has k = i % 4 + 4 * (l / 16) + 8 * (i / 4) in A and B.
 * A product may take its k in any order that both have: channels come as
 * they do here, keys as they lie in C. */
INLINE int a_m(int l, int i) { return l & 15; }
INLINE int a_k(int l, int i) { return (i & 3) + 4 * (l >> 4) + 8 * (i >> 2); }
INLINE int b_k(int l, int i) { return (i & 3) + 4 * (l >> 4) + 8 * (i >> 2); }
INLINE int b_n(int l, int i) { return l & 15; }
INLINE int c_m(int l, int i) { return i + 8 * (l >> 4); }
INLINE int c_n(int l, int i) { return l & 15; }
#define SLOT_KEY(k) (((k)&3) + 4 * ((k) >> 3) + 8 * ((k) >> 2 & 1))

#define QUERY_RUN 4
#define KEY_RUN 4
#define VALUE_RUN 1
#define NATIVE_VALUES 0
#define SPREAD_OUT 0
#define REDUCE(x, op) x = op(x, LANE_XOR(x, 16))

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
INLINE void mma(const uint *a, const uint *b, float *c)
{
    const uint4 left = vload4(0, a), right = vload4(0, b);
    const float8 sum = vload8(0, c);
#if DTYPE == 1
    vstore8(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
                as_half8(left), as_half8(right), sum),
            0, c);
#else
    vstore8(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
                as_short8(left), as_short8(right), sum),
            0, c);
#endif
}
