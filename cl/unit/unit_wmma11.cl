/* SPDX-License-Identifier: Apache-2.0
 * Matrix unit: WMMA of AMD's gfx11 (RDNA3 ISA, "Wave Matrix Multiply
 * Accumulate"), waves of 32. What a unit's file defines is listed in
 * fragment.cl. */
#define UNIT_NAME wmma11
#define AMD_UNIT 1
#define WAVE 32
#define MMA_M 16
#define MMA_N 16
#define MMA_K 16
#define A_ELEMENTS 16
#define B_ELEMENTS 16
#define C_ELEMENTS 8

INLINE int a_m(int l, int i) { return l & 15; }
INLINE int a_k(int l, int i) { return i; }
INLINE int b_k(int l, int i) { return i; }
INLINE int b_n(int l, int i) { return l & 15; }
INLINE int c_m(int l, int i) { return 2 * i + (l >> 4); }
INLINE int c_n(int l, int i) { return l & 15; }

#define QUERY_RUN 8
#define KEY_RUN 8
#define SPREAD_OUT 1
#define VALUE_RUN 1
#define NATIVE_VALUES 0
#define REDUCE(x, op) x = op(x, LANE_XOR(x, 16))

/* Of a query's weights, one lane has those of the even keys and lane + 16
 * those of the odd; both need all, of which one may come before the other. */
#define SLOT_KEY(k) (2 * ((k) % 8) + (k) / 8)
#define OWN_WEIGHTS(to, packed)                                               \
    UNROLL_FOR (int i = 0; i < 4; i++) {                                      \
        const uint other = as_uint(LANE_XOR(as_float((packed)[i]), 16));      \
        (to)[i] = w->lane < 16 ? (packed)[i] : other;                         \
        (to)[4 + i] = w->lane < 16 ? other : (packed)[i];                     \
    }

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
INLINE void mma(const uint *a, const uint *b, float *c)
{
    const uint8 left = vload8(0, a), right = vload8(0, b);
    const float8 sum = vload8(0, c);
#if DTYPE == 1
    vstore8(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(left),
                                                       as_half16(right), sum),
            0, c);
#else
    vstore8(__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
                as_short16(left), as_short16(right), sum),
            0, c);
#endif
}
