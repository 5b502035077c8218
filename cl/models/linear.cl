/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of linear layers share: y = residual + act(x W^T + b), x
 * [rows][in], W [out][in], y [rows][out]. Rows to be normalised are so before
 * (norm_rows.cl).
 *
 *   HAS_BIAS, HAS_RESIDUAL
 *   ACTIVATION  0 none, 1 GELU */
#include "common/storage.cl"
#include "models/linear_args.h"
#include "models/model_switches.h"

REQUIRE(HAS_BIAS)
REQUIRE(HAS_RESIDUAL)
REQUIRE(ACTIVATION)

REQUIRE(LIMITS_REGISTERS)

/* Where the host limits registers, NVIDIA's compiler must not know the size of
 * work-groups, from which it would take a limit of its own. */
#if LIMITS_REGISTERS
#define LINEAR_KERNEL(group) __kernel
#else
#define LINEAR_KERNEL(group)                                                  \
    __kernel __attribute__((reqd_work_group_size(group, 1, 1)))
#endif

/* residual may be y, so that neither is const or restrict. */
#define LINEAR_PARAMETERS                                                     \
    const linear_args args, __global const storage *x,                        \
        __global const storage *weight, __global const storage *bias,         \
        __global const storage *residual, __global storage *y

/* Each tensor from its start on. Statements of a kernel. */
#define START_TENSORS                                                         \
    x += args.x;                                                              \
    weight += args.weight;                                                    \
    bias += args.bias;                                                        \
    residual += args.residual;                                                \
    y += args.y;

/* x / 2 (1 + erf(x / sqrt 2)) = max(x, 0) - a h(a), a = |x|, with h(a) = 1/2
 * erfc(a / sqrt 2) = exp(-a^2 / 2) t P(t), t = 1 / (1 + 0.3 a): a polynomial
 * with minimal relative error (fitted for this file, 4e-7), so that nothing
 * cancels for x < 0. From a = 14 on fp32 has no h(a); NaN stays NaN. For a
 * scalar or a vector. */
#define GELU_END 14.0f
/* Matrix units' files have instructions for them (unit/vendors.cl). */
#ifdef RECIPROCAL
#define INVERSE(x) RECIPROCAL(x)
#define EXPONENTIAL(x) EXP2((x)*1.44269504f)
#else
#define INVERSE(x) (1.0f / (x))
#define EXPONENTIAL(x) exp(x)
#endif
#define DEFINE_GELU(type, name, least, positive, exponential)                 \
    INLINE type name(type x)                                                  \
    {                                                                         \
        const type a = least(fabs(x));                                        \
        const type t = INVERSE(FMA(a, (type)(0.3f), (type)(1.0f)));           \
        type p = (type)(0.035674948f);                                        \
        p = FMA(p, t, (type)(-0.15720376f));                                  \
        p = FMA(p, t, (type)(0.20635460f));                                   \
        p = FMA(p, t, (type)(-0.053684574f));                                 \
        p = FMA(p, t, (type)(0.12856208f));                                   \
        p = FMA(p, t, (type)(0.099913366f));                                  \
        p = FMA(p, t, (type)(0.12075397f));                                   \
        p = FMA(p, t, (type)(0.11962930f));                                   \
        return positive(x) - a * p * t * exponential(-0.5f * a * a);          \
    }
INLINE float gelu_end(float a) { return a > GELU_END ? GELU_END : a; }
INLINE float gelu_positive(float x) { return x > 0.0f ? x : 0.0f; }
DEFINE_GELU(float, gelu, gelu_end, gelu_positive, EXPONENTIAL)

/* What becomes of a sum, before the residual. */
INLINE float activate(float sum) { return ACTIVATION == 1 ? gelu(sum) : sum; }

/* What becomes of sums: tensors from their starts on. */
typedef struct linear_result {
    const linear_args *args;
    __global const storage *bias, *residual;
    __global storage *y;
    __local const float2 *row_parts; /* FINDS_STATISTICS */
    ulong first_row;                 /* of the block */
} linear_result;

INLINE __global const storage *residual_at(const linear_result *to, ulong row,
                                           uint column)
{
    return to->residual + row * to->args->residual_stride + column;
}
INLINE __global storage *result_at(const linear_result *to, ulong row,
                                   uint column)
{
    return to->y + row * to->args->y_stride + column;
}

/* One element of the result. */
INLINE void finish_element(float sum, ulong row, uint column,
                           const linear_result *to)
{
    if (HAS_BIAS)
        sum += LOAD(to->bias, column);
    sum = activate(sum);
    if (HAS_RESIDUAL)
        sum += LOAD(to->residual, row * to->args->residual_stride + column);
    STORE(sum, to->y, row * to->args->y_stride + column);
}
