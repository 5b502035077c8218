/* SPDX-License-Identifier: Apache-2.0
 * Matrix unit: DPAS of Intel in sub-groups of 8, Xe-HPG
 * (cl_intel_subgroup_matrix_multiply_accumulate). What a unit's file defines
 * is listed in fragment.cl. */
#define UNIT_NAME dpas8
#define INTEL_UNIT 1
#define WAVE 8
#define MMA_M 8
#define MMA_N 8
#define MMA_K 16
#define A_ELEMENTS 16
#define B_ELEMENTS 16
#define C_ELEMENTS 8
#define QUERIES_ARE_M 0
#define TILE_N 16

INLINE int a_m(int l, int i) { return i >> 1; }
INLINE int a_k(int l, int i) { return 2 * l + (i & 1); }
INLINE int b_k(int l, int i) { return i; }
INLINE int b_n(int l, int i) { return l; }
INLINE int c_m(int l, int i) { return i; }
INLINE int c_n(int l, int i) { return l; }

#define QUERY_RUN 8
#define KEY_RUN 2
#define VALUE_RUN 1
#define SPREAD_OUT 0
#define LANE_ROWS 1
#define LANE_ROW(i) 0
/* a lane has all keys of its query */
#define REDUCE(x, op)

/* A lane has two keys of the values' tile, which lie in two rows. */
#define NATIVE_VALUES 1
INLINE void load_native_value(uint *to, __local const ushort *rows, int pitch,
                              int row, int channel, int last, const int count,
                              int lane)
{
    UNROLL_FOR (int part = 0; part < 2; part++) {
        const int key = row + 2 * lane;
        const uint4 even =
            *(__local const uint4 *)(rows + min(key, last) * pitch + channel +
                                     part * MMA_M);
        const uint4 odd =
            *(__local const uint4 *)(rows + min(key + 1, last) * pitch +
                                     channel + part * MMA_M);
        const uint4 low = (even & 0xffffu) | odd << 16u;
        const uint4 high = even >> 16u | (odd & 0xffff0000u);
        to[8 * part] = low.x;
        to[8 * part + 1] = high.x;
        to[8 * part + 2] = low.y;
        to[8 * part + 3] = high.y;
        to[8 * part + 4] = low.z;
        to[8 * part + 5] = high.z;
        to[8 * part + 6] = low.w;
        to[8 * part + 7] = high.w;
    }
}

#if DTYPE == 1
#define DPAS intel_sub_group_f16_f16_matrix_mad_k16
#else
#define DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#endif

/* by element: what vload and vstore reach lands in memory */
INLINE void mma(const uint *a, const uint *b, float *c)
{
    const float8 sum =
        DPAS(as_int8((uint8)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7])),
             as_int8((uint8)(b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7])),
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
