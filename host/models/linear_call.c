/* SPDX-License-Identifier: Apache-2.0
 * What callers say of a linear layer and of a call, checked; and a call's
 * arguments and launches. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"
#include "base/struct.h"
#include "launch/arguments.h"
#include "launch/check.h"
#include "models/levels.h"
#include "models/linear.h"

#include "../cl/models/linear_args.h"

/* ---- Checks ---- */

#define MOST_IN 65536u
#define MOST_OUT 1048576u
#define LESS_THAN_ROWS (1ull << 32)
#define DEFAULT_EPS 1e-5f

static winattn_status check_range(const char *name, uint64_t value,
                                  uint64_t least, uint64_t most)
{
    if (value >= least && value <= most)
        return WINATTN_SUCCESS;
    return WA_INVALID("%s is %llu, not %llu to %llu", name,
                      (unsigned long long)value, (unsigned long long)least,
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
        return WA_INVALID("eps is negative or no finite number");
    if (!desc.layer_norm && desc.eps != 0.0f)
        return WA_INVALID("eps is given, but layer_norm is not");
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

uint64_t wa_linear_bytes(const winattn_linear_plan *plan, uint64_t rows)
{
    const wa_linear_problem *p = &plan->problem;
    /* what is added to the result of two layers is x */
    const uint64_t outs = p->has_residual && !p->hidden ? 2 : 1;
    const uint64_t weights = p->hidden
                                 ? p->hidden * ((uint64_t)p->in + p->out + 1)
                                 : (uint64_t)p->in * p->out;
    return wa_element_size(p->dtype) * (rows * (p->in + outs * p->out) +
                                        weights + (p->has_bias ? p->out : 0));
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
        return WA_INVALID("%s is NULL", name);
    if (!at->buffer)
        return WINATTN_SUCCESS;
    if (!used)
        return WA_INVALID("%s is given, but the plan does not use it", name);
    /* stride and rows are below 2^32 */
    const uint64_t last = (rows - 1) * stride;
    if (last > UINT64_MAX / size - columns)
        return WA_BAD_LAYOUT("%s has more than 2^64 bytes", name);
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
        return WA_BAD_LAYOUT("%s is %llu, less than the %u elements of a row",
                             name, (unsigned long long)*stride, columns);
    if (*stride > UINT32_MAX)
        return WA_BAD_LAYOUT("%s is %llu, not below 2^32", name,
                             (unsigned long long)*stride);
    return WINATTN_SUCCESS;
}

static winattn_status check_strides(const wa_linear_problem *p,
                                    winattn_linear *own)
{
    WA_TRY(complete_stride("x_stride", &own->x_stride, p->in));
    WA_TRY(complete_stride("weight_stride", &own->weight_stride, p->in));
    if (own->residual_stride && !p->has_residual)
        return WA_INVALID(
            "residual_stride is given, but there is no residual");
    WA_TRY(complete_stride("residual_stride", &own->residual_stride, p->out));
    return complete_stride("y_stride", &own->y_stride, p->out);
}

winattn_status wa_linear_check(const winattn_linear_plan *plan,
                               const winattn_linear *linear,
                               winattn_linear *own, uint64_t *start)
{
    const wa_linear_problem *p = &plan->problem;
    WA_TRY(wa_read_struct("linear", linear, own, sizeof *own, sizeof *own));
    if (own->rows >= LESS_THAN_ROWS)
        return WA_INVALID("rows is %llu, not below 2^32",
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
    const uint64_t bytes = wa_linear_workspace(plan, rows);
    return bytes == 0 ? WINATTN_SUCCESS
                      : wa_check_workspace(&own->workspace,
                                           wa_session_context(plan->session),
                                           bytes, start);
}

/* ---- Launches ---- */

/* The same size on host and device, whatever the compiler. */
_Static_assert(sizeof(linear_args) == 88, "linear_args has padding");
_Static_assert(sizeof(linear_norm_args) == 32, "linear_norm_args has padding");
_Static_assert(sizeof(mlp_args) == 24, "mlp_args has padding");

/* Work-groups of a launch: their work-items have numbers of 32 bits. */
#define MOST_ITEMS (1ull << 31)

/* Do rows start, and vectors of them end, on multiples of 16 bytes? */
static bool is_wide(const wa_linear_problem *problem, const winattn_tensor *at,
                    uint64_t start, uint64_t stride, uint32_t columns)
{
    const uint32_t vector = wa_linear_vector(problem);
    return wa_is_aligned(at, start, 16) && stride % vector == 0 &&
           columns % vector == 0;
}

/* Does a call have x_scale? */
static bool scales_x(const wa_linear_problem *p)
{
    return !p->hidden && (p->norms & WA_FINDS_STATISTICS);
}

static uint32_t flags_of(const wa_linear_problem *p, const winattn_linear *l,
                         const wa_linear_norms *n, uint64_t start)
{
    uint32_t flags = 0;
    if (is_wide(p, &l->x, start, l->x_stride, p->in) &&
        (!scales_x(p) ||
         is_wide(p, &n->x_scale, start, 0, wa_linear_vector(p))))
        flags |= LINEAR_WIDE_X;
    if (is_wide(p, &l->weight, start, l->weight_stride, p->in))
        flags |= LINEAR_WIDE_WEIGHT;
    /* only whole vectors of a row are written at once */
    const uint32_t vector = wa_linear_vector(p);
    if (p->hidden &&
        !is_wide(p, &n->hidden_weight, start, n->hidden_stride, p->in))
        flags &= ~LINEAR_WIDE_WEIGHT;
    const bool norms_are_wide =
        !(p->norms & WA_NORMALISES) ||
        (is_wide(p, &l->norm_weight, start, 0, vector) &&
         is_wide(p, &l->norm_bias, start, 0, vector));
    const bool hidden_is_wide =
        !p->hidden || is_wide(p, &n->hidden_bias, start, 0, vector);
    if (norms_are_wide && hidden_is_wide &&
        is_wide(p, &l->y, start, l->y_stride, vector) &&
        (!p->has_bias || is_wide(p, &l->bias, start, 0, vector)) &&
        (!p->has_residual ||
         is_wide(p, &l->residual, start, l->residual_stride, vector)))
        flags |= LINEAR_WIDE_OUT;
    return flags;
}

static linear_args args_of(const wa_linear_problem *p, const winattn_linear *l,
                           const wa_linear_norms *norms, uint64_t start)
{
    const uint32_t size = wa_element_size(p->dtype);
    linear_args args;
    memset(&args, 0, sizeof args);
    args.rows = l->rows;
    args.x = l->x.offset / size;
    args.weight = l->weight.offset / size;
    args.bias = l->bias.offset / size;
    args.residual = l->residual.offset / size;
    args.y = l->y.offset / size;
    args.x_stride = (cl_uint)l->x_stride;
    args.weight_stride = (cl_uint)l->weight_stride;
    args.residual_stride = (cl_uint)l->residual_stride;
    args.y_stride = (cl_uint)l->y_stride;
    args.in = p->in;
    args.out = p->out;
    args.flags = flags_of(p, l, norms, start);
    args.eps = norms->eps;
    return args;
}

/* Launches of a kernel whose work-groups have some rows, and so many of them
 * the same. */
static winattn_status append_launches(const wa_linear_kernel *planned,
                                      cl_kernel kernel, linear_args args,
                                      uint64_t groups_of_rows,
                                      wa_kernel_chain *chain)
{
    uint64_t blocks = wa_linear_blocks(args.rows, planned->rows);
    uint64_t most = MOST_ITEMS / planned->work_group / groups_of_rows;
    if (most == 0)
        most = 1;
    if (planned->most_groups) { /* which share the blocks, some rounds each */
        if (!planned->shape.keeps_weight) {
            blocks *= groups_of_rows;
            groups_of_rows = 1;
        }
        const uint64_t lines = planned->most_groups / groups_of_rows;
        const uint64_t rounds = blocks / lines + (blocks % lines != 0);
        WA_TRY(wa_set_arg(kernel, 0, sizeof args, &args));
        return wa_chain_append(chain, kernel,
                               (blocks / rounds + (blocks % rounds != 0)) *
                                   groups_of_rows * planned->work_group,
                               planned->work_group);
    }
    for (uint64_t done = 0; done < blocks; done += most) {
        const uint64_t now = blocks - done < most ? blocks - done : most;
        args.first_row = done * planned->rows;
        WA_TRY(wa_set_arg(kernel, 0, sizeof args, &args));
        WA_TRY(wa_chain_append(chain, kernel,
                               now * groups_of_rows * planned->work_group,
                               planned->work_group));
    }
    return WINATTN_SUCCESS;
}

bool wa_linear_is_few(const wa_linear_layout *layout,
                      const wa_linear_problem *p, uint64_t rows)
{
    return layout->few_groups &&
           wa_linear_blocks(rows, layout->few_rows) *
                   wa_linear_blocks(p->out, layout->few_columns) <
               layout->few_groups;
}

wa_linear_kernel_id wa_linear_kernel_for(const wa_linear_layout *layout,
                                         const wa_linear_problem *p,
                                         uint64_t rows)
{
    return layout->kernel[WA_LINEAR_FEW].name[0] &&
                   wa_linear_is_few(layout, p, rows)
               ? WA_LINEAR_FEW
               : WA_LINEAR_MANY;
}

/* Rows normalised into the workspace: *call is then what is left, of these. */
static winattn_status append_norm(const winattn_linear_plan *plan,
                                  winattn_linear *call, wa_kernel_chain *chain)
{
    const wa_linear_problem *p = &plan->problem;
    const uint32_t size = wa_element_size(p->dtype);
    wa_row_plan norm = plan->layout.norm;
    wa_row_call now = {.from = call->x,
                       .weight = call->norm_weight,
                       .bias = call->norm_bias,
                       .to = call->workspace,
                       .stride = (uint32_t)call->x_stride,
                       .eps = p->eps};
    const uint64_t most = MOST_ITEMS / norm.team;
    norm.kernel = plan->kernels[WA_LINEAR_NORM];
    for (uint64_t done = 0; done < call->rows; done += now.rows) {
        now.from.offset = call->x.offset + done * call->x_stride * size;
        now.to.offset = call->workspace.offset + done * p->in * size;
        now.rows = call->rows - done < most ? call->rows - done : most;
        WA_TRY(wa_row_append(&norm, &now, chain));
    }
    call->x = call->workspace;
    call->x_stride = p->in;
    return WINATTN_SUCCESS;
}

/* What linear_wgmma has behind the others' arguments. */
static winattn_status set_norms(const winattn_linear_plan *plan,
                                const winattn_linear *l,
                                const wa_linear_norms *norms, cl_kernel kernel)
{
    const uint32_t size = wa_element_size(plan->problem.dtype);
    const winattn_tensor *tensors[] = {&l->norm_weight, &l->norm_bias,
                                       &norms->x_statistics,
                                       &norms->y_statistics};
    const linear_norm_args args = {
        .weight = l->norm_weight.offset / size,
        .bias = l->norm_bias.offset / size,
        .x_statistics = norms->x_statistics.offset / WA_STATISTICS_BYTES,
        .y_statistics = norms->y_statistics.offset / WA_STATISTICS_BYTES};
    WA_TRY(wa_set_arg(kernel, 6, sizeof args, &args));
    for (cl_uint i = 0; i < 4; i++)
        WA_TRY(wa_set_arg(kernel, i + 7, sizeof(cl_mem),
                          tensors[i]->buffer ? &tensors[i]->buffer : NULL));
    return WINATTN_SUCCESS;
}

/* What mlp_wgmma has behind these arguments. */
static winattn_status set_hidden(const winattn_linear_plan *plan,
                                 const wa_linear_norms *norms,
                                 cl_kernel kernel)
{
    const uint32_t size = wa_element_size(plan->problem.dtype);
    const mlp_args args = {.weight = norms->hidden_weight.offset / size,
                           .bias = norms->hidden_bias.offset / size,
                           .weight_stride = norms->hidden_stride};
    WA_TRY(wa_set_arg(kernel, 11, sizeof args, &args));
    WA_TRY(
        wa_set_arg(kernel, 12, sizeof(cl_mem), &norms->hidden_weight.buffer));
    return wa_set_arg(kernel, 13, sizeof(cl_mem), &norms->hidden_bias.buffer);
}

static winattn_status append_all(const winattn_linear_plan *plan,
                                 const winattn_linear *given,
                                 const wa_linear_norms *beside,
                                 wa_linear_kernel_id id,
                                 wa_kernel_chain *chain)
{
    static const wa_linear_norms none;
    const wa_linear_norms *norms = beside ? beside : &none;
    const wa_linear_problem *p = &plan->problem;
    const wa_linear_kernel *planned = &plan->layout.kernel[id];
    winattn_linear l = *given;
    if (p->layer_norm)
        WA_TRY(append_norm(plan, &l, chain));
    if (scales_x(p))
        l.residual = norms->x_scale; /* whose argument nothing else has */
    const cl_mem buffers[] = {l.x.buffer, l.weight.buffer, l.bias.buffer,
                              l.residual.buffer, l.y.buffer};
    for (cl_uint i = 0; i < sizeof buffers / sizeof *buffers; i++)
        WA_TRY(wa_set_arg(plan->kernels[id], i + 1, sizeof buffers[i],
                          buffers[i] ? &buffers[i] : NULL));
    if (planned->shape.wgmma)
        WA_TRY(set_norms(plan, &l, norms, plan->kernels[id]));
    if (p->hidden)
        WA_TRY(set_hidden(plan, norms, plan->kernels[id]));
    return append_launches(
        planned, plan->kernels[id], args_of(p, &l, norms, chain->start),
        wa_linear_blocks(p->out, planned->shape.block_columns), chain);
}

winattn_status wa_linear_append_as(const winattn_linear_plan *plan,
                                   const winattn_linear *linear,
                                   const wa_linear_norms *norms,
                                   wa_linear_kernel_id id,
                                   wa_kernel_chain *chain)
{
    wa_lock_take(plan->lock);
    const winattn_status status = append_all(plan, linear, norms, id, chain);
    wa_lock_release(plan->lock);
    return status;
}

winattn_status wa_linear_append(const winattn_linear_plan *plan,
                                const winattn_linear *linear,
                                const wa_linear_norms *norms,
                                wa_kernel_chain *chain)
{
    if (linear->rows == 0)
        return WINATTN_SUCCESS;
    return wa_linear_append_as(
        plan, linear, norms,
        wa_linear_kernel_for(&plan->layout, &plan->problem, linear->rows),
        chain);
}
