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

#define LEFT_WORDS(a) EIGHT_WORDS(a)
