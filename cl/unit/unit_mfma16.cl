/* SPDX-License-Identifier: Apache-2.0
 * Matrix unit: MFMA of AMD's gfx90a and gfx94x (CDNA3 ISA, "Matrix
 * Arithmetic Instructions"), 16 x 16 x 16. What a unit's file defines is
 * listed in fragment.cl. */
#define UNIT_NAME mfma16
#define AMD_UNIT 1
#define WAVE 64
#define MMA_M 16
#define MMA_N 16
#define MMA_K 16
#define A_ELEMENTS 4
#define B_ELEMENTS 4
#define C_ELEMENTS 4

INLINE int a_m(int l, int i) { return l & 15; }
INLINE int a_k(int l, int i) { return 4 * (l >> 4) + i; }
INLINE int b_k(int l, int i) { return 4 * (l >> 4) + i; }
INLINE int b_n(int l, int i) { return l & 15; }
INLINE int c_m(int l, int i) { return 4 * (l >> 4) + i; }
INLINE int c_n(int l, int i) { return l & 15; }

#define QUERY_RUN 4
#define KEY_RUN 4
#define VALUE_RUN 1
#define NATIVE_VALUES 0
#define SPREAD_OUT 0
#define REDUCE(x, op)                                                         \
    x = op(x, LANE_XOR(x, 16));                                               \
    x = op(x, LANE_XOR(x, 32))

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
INLINE void mma(const uint *a, const uint *b, float *c)
{
    const uint2 left = vload2(0, a), right = vload2(0, b);
    const float4 sum = vload4(0, c);
#if DTYPE == 1
    vstore4(__builtin_amdgcn_mfma_f32_16x16x16f16(
                as_half4(left), as_half4(right), sum, 0, 0, 0),
            0, c);
#else
    vstore4(__builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
                as_short4(left), as_short4(right), sum, 0, 0, 0),
            0, c);
#endif
}
