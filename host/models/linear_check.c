/* SPDX-License-Identifier: Apache-2.0
 * What callers say of a linear layer and of a call, checked. */
#include <math.h>
#include <stddef.h>

#include "base/status.h"
#include "base/struct.h"
#include "launch/check.h"
#include "models/levels.h"
#include "models/linear.h"

#define MOST_IN 65536u
#define MOST_OUT 1048576u
#define LESS_THAN_ROWS (1ull << 32)
#define DEFAULT_EPS 1e-5f

static winattn_status check_range(const char *name, uint64_t value,
                                  uint64_t least, uint64_t most)
{
    if (value >= least && value <= most)
        return WINATTN_SUCCESS;
    return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is %llu, not %llu to %llu",
                   name, (unsigned long long)value, (unsigned long long)least,
                   (unsigned long long)most);
}

winattn_status wa_linear_read(const winattn_linear_desc *given,
                              wa_linear_problem *problem)
{
    winattn_linear_desc desc;
    WA_TRY(
        wa_read_struct("linear_desc", given, &desc, sizeof desc, sizeof desc));
    WA_TRY(check_range("dtype", desc.dtype, WINATTN_FP32, WINATTN_BF16));
    WA_TRY(check_range("tier", desc.tier, WINATTN_TIER_AUTO,
                       WINATTN_TIER_MATRIX));
    WA_TRY(check_range("activation", desc.activation, WINATTN_ACTIVATION_NONE,
                       WINATTN_ACTIVATION_GELU));
    WA_TRY(check_range("in_features", desc.in_features, 1, MOST_IN));
    WA_TRY(check_range("out_features", desc.out_features, 1, MOST_OUT));
    if (!(desc.eps >= 0.0f) || isinf(desc.eps))
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "eps is negative or no finite number");
    if (!desc.layer_norm && desc.eps != 0.0f)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "eps is given, but layer_norm is not");
    const wa_linear_problem read = {
        .dtype = desc.dtype,
        .tier = desc.tier,
        .allow_tf32 = desc.allow_tf32,
        .layer_norm = desc.layer_norm,
        .has_bias = desc.has_bias,
        .has_residual = desc.has_residual,
        .activation = desc.activation,
        .in = desc.in_features,
        .out = desc.out_features,
        .eps = desc.eps == 0.0f ? DEFAULT_EPS : desc.eps,
        .build_options = desc.build_options ? desc.build_options : ""};
    *problem = read;
    return WINATTN_SUCCESS;
}

uint64_t wa_linear_workspace(const winattn_linear_plan *plan, uint64_t rows)
{
    const wa_linear_problem *p = &plan->problem;
    const uint64_t row = p->in * (uint64_t)wa_element_size(p->dtype);
    return p->layer_norm ? (rows * row + 15) / 16 * 16 : 0;
}

/* A tensor of a call: `rows` of `columns` elements, `stride` apart. */
static winattn_status check_tensor(const winattn_linear_plan *plan,
                                   const char *name, const winattn_tensor *at,
                                   bool used, wa_access access, uint64_t rows,
                                   uint64_t columns, uint64_t stride,
                                   uint64_t *start)
{
    const uint32_t size = wa_element_size(plan->problem.dtype);
    if (!at->buffer && used)
        return wa_fail(WINATTN_INVALID_ARGUMENT, "%s is NULL", name);
    if (!at->buffer)
        return WINATTN_SUCCESS;
    if (!used)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "%s is given, but the plan does not use it", name);
    /* stride and rows are below 2^32 */
    const uint64_t last = (rows - 1) * stride;
    if (last > UINT64_MAX / size - columns)
        return wa_fail(WINATTN_INVALID_LAYOUT, "%s has more than 2^64 bytes",
                       name);
    return wa_check_memory(name, at, wa_session_context(plan->session), access,
                           size, (last + columns) * size, start);
}

/* A stride of 0 becomes that of rows which follow each other. */
static winattn_status complete_stride(const char *name, cl_ulong *stride,
                                      uint32_t columns)
{
    if (*stride == 0)
        *stride = columns;
    if (*stride < columns)
        return wa_fail(WINATTN_INVALID_LAYOUT,
                       "%s is %llu, less than the %u elements of a row", name,
                       (unsigned long long)*stride, columns);
    if (*stride > UINT32_MAX)
        return wa_fail(WINATTN_INVALID_LAYOUT, "%s is %llu, not below 2^32",
                       name, (unsigned long long)*stride);
    return WINATTN_SUCCESS;
}

static winattn_status check_strides(const wa_linear_problem *p,
                                    winattn_linear *own)
{
    WA_TRY(complete_stride("x_stride", &own->x_stride, p->in));
    WA_TRY(complete_stride("weight_stride", &own->weight_stride, p->in));
    if (own->residual_stride && !p->has_residual)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "residual_stride is given, but there is no residual");
    WA_TRY(complete_stride("residual_stride", &own->residual_stride, p->out));
    return complete_stride("y_stride", &own->y_stride, p->out);
}

static winattn_status check_workspace(const winattn_linear_plan *plan,
                                      const winattn_linear *own,
                                      uint64_t *start)
{
    const uint64_t bytes = wa_linear_workspace(plan, own->rows);
    return bytes == 0 ? WINATTN_SUCCESS
                      : wa_check_workspace(&own->workspace,
                                           wa_session_context(plan->session),
                                           bytes, start);
}

winattn_status wa_linear_check(const winattn_linear_plan *plan,
                               const winattn_linear *linear,
                               winattn_linear *own, uint64_t *start)
{
    const wa_linear_problem *p = &plan->problem;
    WA_TRY(wa_read_struct("linear", linear, own, sizeof *own, sizeof *own));
    if (own->rows >= LESS_THAN_ROWS)
        return wa_fail(WINATTN_INVALID_ARGUMENT,
                       "rows is %llu, not below "
                       "2^32",
                       (unsigned long long)own->rows);
    WA_TRY(check_strides(p, own));
    if (own->rows == 0)
        return WINATTN_SUCCESS;
    const uint64_t rows = own->rows;
    const bool norm = p->layer_norm;
    WA_TRY(check_tensor(plan, "x", &own->x, true, WA_READS, rows, p->in,
                        own->x_stride, start));
    WA_TRY(check_tensor(plan, "weight", &own->weight, true, WA_READS, p->out,
                        p->in, own->weight_stride, start));
    WA_TRY(check_tensor(plan, "bias", &own->bias, p->has_bias, WA_READS, 1,
                        p->out, 0, start));
    WA_TRY(check_tensor(plan, "norm_weight", &own->norm_weight, norm, WA_READS,
                        1, p->in, 0, start));
    WA_TRY(check_tensor(plan, "norm_bias", &own->norm_bias, norm, WA_READS, 1,
                        p->in, 0, start));
    WA_TRY(check_tensor(plan, "residual", &own->residual, p->has_residual,
                        WA_READS, rows, p->out, own->residual_stride, start));
    WA_TRY(check_tensor(plan, "y", &own->y, true, WA_WRITES, rows, p->out,
                        own->y_stride, start));
    return check_workspace(plan, own, start);
}
