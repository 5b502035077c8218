/* SPDX-License-Identifier: Apache-2.0
 * What both kernels of gradients have:
 *
 *   dP = dO v    delta = sum P dP    dS = P (dP - delta)
 *   dq = sum dS scale k    dk = sum dS scale q    dv = sum P dO
 *
 * and from the gradient of x^ = x / |x| that of x, (d - x^ (x^ d)) / |x|. */
#include "plain/plain_logits.cl"

/* What is known of a row. */
INLINE __global float *row_numbers(const backward_args *args,
                                   __global float *workspace, work_tile u,
                                   uint row)
{
    return statistics_of(workspace, args, u) + row * ROW_NUMBERS;
}

/* own: x^ of a row that is stored at y. Returns x^ d. */
INLINE float divide_by_length(float8 d[EIGHTS], const float8 own[EIGHTS],
                              __global const storage *y)
{
    float along = 0.0f;
    if (VARIANT != COSINE)
        return along;
    UNROLL_FOR (int i = 0; i < EIGHTS; i++)
        along += sum_of(own[i] * d[i]);
    UNROLL_FOR (int i = 0; i < EIGHTS; i++)
        d[i] = (d[i] - own[i] * along) * inverse_length(y);
    return along;
}
