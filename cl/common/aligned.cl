/* SPDX-License-Identifier: Apache-2.0
 * Accesses to four or eight elements of global memory whose address is a
 * multiple of their size, which storage.cl does not ask for.
 *
 *   HALVES_FROM_BITS  1: vloada_half would load one half at a time */
#include "common/storage.cl"

#if DTYPE == 0
INLINE float4 load4_aligned(__global const storage *p)
{
    return *(__global const float4 *)p;
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    *(__global float4 *)p = x;
}
INLINE float8 load8_aligned(__global const storage *p)
{
    return (float8)(load4_aligned(p), load4_aligned(p + 4));
}
INLINE void store8_aligned(float8 x, __global storage *p)
{
    store4_aligned(x.lo, p);
    store4_aligned(x.hi, p + 4);
}
#elif DTYPE == 1 && HALVES_FROM_BITS == 1
INLINE float4 load4_aligned(__global const storage *p)
{
    const ushort4 bits = *(__global const ushort4 *)p;
    return vload_half4(0, (const half *)&bits);
}
INLINE float8 load8_aligned(__global const storage *p)
{
    const ushort8 bits = *(__global const ushort8 *)p;
    return vload_half8(0, (const half *)&bits);
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    ushort4 bits;
    vstore_half4_rte(x, 0, (half *)&bits);
    *(__global ushort4 *)p = bits;
}
INLINE void store8_aligned(float8 x, __global storage *p)
{
    ushort8 bits;
    vstore_half8_rte(x, 0, (half *)&bits);
    *(__global ushort8 *)p = bits;
}
#elif DTYPE == 1
INLINE float4 load4_aligned(__global const storage *p)
{
    return vloada_half4(0, p);
}
INLINE float8 load8_aligned(__global const storage *p)
{
    return vloada_half8(0, p);
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    vstorea_half4_rte(x, 0, p);
}
INLINE void store8_aligned(float8 x, __global storage *p)
{
    vstorea_half8_rte(x, 0, p);
}
#else
INLINE float4 load4_aligned(__global const storage *p)
{
    return as_float4(convert_uint4(*(__global const ushort4 *)p) << 16u);
}
INLINE float8 load8_aligned(__global const storage *p)
{
    return as_float8(convert_uint8(*(__global const ushort8 *)p) << 16u);
}
INLINE void store4_aligned(float4 x, __global storage *p)
{
    const uint4 bits = as_uint4(x);
    const uint4 rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);
    *(__global ushort4 *)p =
        convert_ushort4(select(rounded, bits | 0x400000u, isnan(x)) >> 16u);
}
INLINE void store8_aligned(float8 x, __global storage *p)
{
    const uint8 bits = as_uint8(x);
    const uint8 rounded = bits + 0x7fffu + ((bits >> 16u) & 1u);
    *(__global ushort8 *)p =
        convert_ushort8(select(rounded, bits | 0x400000u, isnan(x)) >> 16u);
}
#endif
