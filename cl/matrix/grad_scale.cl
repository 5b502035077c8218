/* SPDX-License-Identifier: Apache-2.0
 * Powers of two that P and dS are multiplied by before they are rounded. */
#include "common/storage.cl"

/* Rounding to fp16 loses small numbers, below 2^-24 of all there are: P, and
 * so dS and dBias, is multiplied by a power of two first, and dS by one more.
 * Where rows are summed, for dK, that is the same for all rows of a q block.
 */
#define RESCALES (DTYPE == 1)
#define P_EXPONENT (RESCALES ? 15.0f : 0.0f)
#define P_SCALE (RESCALES ? 32768.0f : 1.0f)

/* The power of two that takes numbers up to `bound` as far up as fp16 has
 * room. */
INLINE float ds_scale_for(float bound)
{
    const int exponent = (int)(as_uint(bound) >> 23); /* bound >= 0 */
    /* no more than 2^64, which norms and scales may still multiply */
    return exponent == 255
               ? 1.0f
               : as_float((uint)clamp(267 - exponent, 1, 191) << 23);
}
INLINE float inverse_ds_scale(float ds_scale)
{
    return as_float((254u << 23) - as_uint(ds_scale));
}
