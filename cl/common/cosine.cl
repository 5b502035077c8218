/* SPDX-License-Identifier: Apache-2.0
 * The scale of a head's logits; the cosine variant's norms, and its scale's
 * gradient. problem.cl includes it, behind the switch VARIANT. */

/* ln 100, the largest logit scale of Swin V2 (Liu et al. 2022, section 3.2),
 * as fp32 has it: a little more, so that a parameter that was clamped there is
 * behind the clamp. */
#define MAX_LOGIT_SCALE 4.6051702f
#define NORM_EPSILON 1e-12f

#if VARIANT == COSINE
INLINE float cosine_scale(const forward_args *args,
                          __global const float *logit_scale, uint head)
{
    if ((args->flags & ARG_LOGIT_SCALE) == 0)
        return args->scale;
    const float x = logit_scale[args->logit_scale_offset + head];
    return x >= MAX_LOGIT_SCALE ? 100.0f : exp(x);
}

/* Its gradient, given what it would be without the clamp, behind which the
 * scale stands still. */
INLINE float scale_gradient(const forward_args *args,
                            __global const float *logit_scale, uint head,
                            float sum)
{
    return logit_scale[args->logit_scale_offset + head] >= MAX_LOGIT_SCALE
               ? 0.0f
               : sum;
}

INLINE float inverse_norm(float sum_of_squares)
{
    return 1.0f / fmax(sqrt(sum_of_squares), NORM_EPSILON);
}
#define HEAD_SCALE(args, logit_scale, head)                                   \
    cosine_scale(args, logit_scale, head)
#else
/* There is no such parameter as logit_scale. */
#define HEAD_SCALE(args, logit_scale, head) ((args)->scale)
#endif
