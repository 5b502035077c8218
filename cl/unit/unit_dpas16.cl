/* SPDX-License-Identifier: Apache-2.0
 * Matrix unit: DPAS of Intel in sub-groups of 16, Xe-HPC and Xe2
 * (cl_intel_subgroup_matrix_multiply_accumulate). What a unit's file defines
 * is listed in fragment.cl. */
#define UNIT_NAME dpas16
#define INTEL_UNIT 1
#define WAVE 16
#define MMA_M 8
#define MMA_N 16
#define MMA_K 16
#define A_ELEMENTS 8
#define B_ELEMENTS 16
#define C_ELEMENTS 8

INLINE int a_m(int l, int i) { return i; }
INLINE int a_k(int l, int i) { return l; }
INLINE int b_k(int l, int i) { return i; }
INLINE int b_n(int l, int i) { return l; }
INLINE int c_m(int l, int i) { return i; }
INLINE int c_n(int l, int i) { return l; }

#define QUERY_RUN 8
#define KEY_RUN 1
#define VALUE_RUN 8
#define NATIVE_VALUES 0
#define SPREAD_OUT 0
/* a lane has all keys of its query */
#define REDUCE(x, op)

#define LEFT_WORDS(a) as_short8((uint4)(a[0], a[1], a[2], a[3]))
