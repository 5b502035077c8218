/* SPDX-License-Identifier: Apache-2.0
 * What becomes of a sum of a matrix unit, behind the unit's file. */
#include "models/linear.cl"

/* GELU for results of 16 bits: max(x, 0) - a h(a) as in linear.cl, but the
 * logarithm of h is a polynomial (fitted for this file: 8e-5 of the result up
 * to a = 6.5, behind which fp16 has nothing of it, and falling up to 14), so
 * that only one of its instructions is slow, not two. */
INLINE float gelu_half(float x)
{
    const float a = gelu_end(fabs(x));
    float p = 2.00857748e-05f;
    p = FMA(p, a, -5.61506107e-04f);
    p = FMA(p, a, 6.88062982e-03f);
    p = FMA(p, a, -5.02726408e-02f);
    p = FMA(p, a, -4.62453750e-01f);
    p = FMA(p, a, -1.14962161f);
    p = FMA(p, a, -1.00010628f);
    return FMA(-a, EXP2(p), gelu_positive(x));
}

/* What becomes of a sum with its bias, before the residual. */
INLINE float finish_sum(float sum)
{
    return ACTIVATION == 1 && DTYPE != 0 ? gelu_half(sum) : activate(sum);
}
