/* SPDX-License-Identifier: Apache-2.0
 * What Intel's compiler knows, as far as kernels use it, for a device whose
 * smallest sub-groups have __LEAST_LANES__ work-items. What a device lacks is
 * not declared. Without __SPIR__: functions would be external then, and land
 * in the PTX beside the kernels that they are a part of. */
#include "lanes.h"

#define cl_intel_required_subgroup_size 1
#define cl_intel_subgroups 1
#define cl_intel_subgroups_char 1

/* ---- Matrix units ---- */

#if __LEAST_LANES__ == 8
PRODUCT(intel_sub_group_f16_f16_matrix_mad_k16, "dpas8.f16", 8_8_8, int8,
        uint8, int8, uint8, float8)
PRODUCT(intel_sub_group_bf16_bf16_matrix_mad_k16, "dpas8.bf16", 8_8_8, int8,
        uint8, int8, uint8, float8)
#else
PRODUCT(intel_sub_group_f16_f16_matrix_mad_k16, "dpas16.f16", 8_4_8, short8,
        uint4, int8, uint8, float8)
PRODUCT(intel_sub_group_bf16_bf16_matrix_mad_k16, "dpas16.bf16", 8_4_8, short8,
        uint4, int8, uint8, float8)
#endif

/* ---- Lanes and numbers ---- */

#define sub_group_barrier(flags) meet_lanes()

BUILTIN ushort intel_convert_bfloat16_as_ushort(float x)
{
    ushort y;
    __asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

/* libclc lacks them, for PTX */
#define native_exp2(x) fast_exp2(x)
#define native_recip(x) fast_reciprocal(x)
#define convert_half_rte(x) ((half)(x))

/* What kernels have of assembly is empty, and names registers of Intel's. */
#define __asm__
#define volatile(...)
