/* SPDX-License-Identifier: Apache-2.0
 * Compares layers by wgmma with those by fragments, on random numbers. Norms
 * on the way have a kernel there that finds statistics by itself, and those of
 * sums one of their own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/status.h"
#include "device/buffer.h"
#include "models/levels.h"
#include "models/linear.h"
#include "session/family_check.h"

#define MAX(a, b) ((a) > (b) ? (a) : (b))

#define EPS 1e-5f

/* A small layer of all that the plan's has but a norm in a launch before. */
typedef struct comparison {
    winattn_linear_plan plan, right;
    winattn_linear_plan hidden; /* the layer before right, if there is one */
    wa_row_plan norm;           /* behind what right computes */
    wa_linear_kernel_id id;     /* of the kernel in question; right's is FEW */
    cl_command_queue queue;
    uint32_t rows;
    /* where x is, and then others; and in pairs, where x's biases are */
    size_t weight, hidden_weight, bias, hidden_bias;
    size_t residual, norm_weight, norm_bias, y, hidden_y, end;
    size_t x_statistics, y_statistics, pairs_end;
    char *numbers; /* of all, behind one that is none */
    float *pairs;
} comparison;

static bool has_norms(const comparison *c, unsigned norms)
{
    return (c->plan.problem.norms & norms) != 0;
}

static size_t size_of(const comparison *c)
{
    return wa_element_size(c->plan.problem.dtype);
}

static float number_at(const comparison *c, const char *of, size_t i)
{
    const winattn_dtype dtype = c->plan.problem.dtype;
    return dtype == WINATTN_FP32 ? ((const float *)of)[i]
                                 : wa_half_value(dtype == WINATTN_FP16,
                                                 ((const uint16_t *)of)[i]);
}

static void set_number(const comparison *c, size_t i, float x)
{
    wa_store_numbers(c->plan.problem.dtype, &x, 1,
                     c->numbers + (1 + i) * size_of(c));
}

/* ---- The layer ---- */

/* The first block of columns and the last, by as few work-groups as can. So
 * many blocks of rows that each team of warpgroups has two, and the ring is
 * filled twice, and then some; the last one ends in a wave's rows. */
static void shrink(comparison *c)
{
    wa_linear_problem *p = &c->plan.problem;
    wa_linear_kernel *kernel = &c->plan.layout.kernel[c->id];
    const wa_linear_shape *s = &kernel->shape;
    const uint32_t teams = s->row_waves * 16 / s->block_rows;
    const uint32_t stages = (uint32_t)wa_linear_blocks(p->in, s->stage_dims);
    kernel->most_groups = 1;
    if (p->out > s->block_columns) {
        p->out = s->block_columns + (p->out - 1) % s->block_columns + 1;
        kernel->most_groups += s->keeps_weight;
    }
    c->right.problem.out = p->out;
    c->right.problem.layer_norm = p->layer_norm = false;
    c->rows = MAX(2 * teams, 2 * s->stages / stages) * s->block_rows +
              s->block_rows / 2 + 1;
    c->weight = (size_t)c->rows * p->in;
    c->hidden_weight =
        c->weight + (size_t)p->out * (p->hidden ? p->hidden : p->in);
    c->bias = c->hidden_weight + (size_t)p->hidden * p->in;
    c->hidden_bias = c->bias + p->out;
    c->norm_weight = c->hidden_bias + p->hidden;
    c->norm_bias = c->norm_weight + MAX(p->in, p->out);
    c->y = c->norm_bias + p->out;
    c->residual = 0; /* a hidden layer's results are added to x */
    if (!p->hidden) {
        c->residual = c->y;
        c->y += (size_t)c->rows * p->out;
    }
    c->hidden_y = c->y + (size_t)c->rows * p->out;
    c->end = c->hidden_y + (size_t)c->rows * p->hidden;
    c->x_statistics = MAX(p->out, p->hidden);
    c->y_statistics = c->x_statistics + c->rows;
    c->pairs_end = c->y_statistics + c->rows;
}

static void find_statistics(const comparison *c, const char *x,
                            uint32_t columns, float *to)
{
    for (size_t row = 0; row < c->rows; row++, x += columns * size_of(c)) {
        float mean = 0, square = 0;
        for (uint32_t i = 0; i < columns; i++)
            mean += number_at(c, x, i) / (float)columns;
        for (uint32_t i = 0; i < columns; i++) {
            const float d = number_at(c, x, i) - mean;
            square += d * d;
        }
        *to++ = mean;
        *to++ = square;
    }
}

/* A layer with the norm's weights in its own; so rows' sums are those of what
 * it has. */
static void set_folded(const comparison *c)
{
    const wa_linear_problem *p = &c->plan.problem;
    size_t weight = 1 + (p->hidden ? c->hidden_weight : c->weight);
    for (size_t i = c->norm_weight; i < c->norm_bias; i++)
        set_number(c, i, 1);
    for (size_t j = 0; j < (p->hidden ? p->hidden : p->out); j++) {
        c->pairs[2 * j] = 0;
        for (uint32_t i = 0; i < p->in; i++)
            c->pairs[2 * j] += number_at(c, c->numbers, weight++);
    }
}

/* Sums are about 2. What no kernel writes is no number. */
static winattn_status make_numbers(comparison *c)
{
    const wa_linear_problem *p = &c->plan.problem;
    float small = 0.125f;
    uint32_t random = 1;
    while (small * small * (float)MAX(p->in, p->hidden) > 0.5f)
        small /= 2;
    c->numbers = malloc((1 + c->end) * size_of(c));
    WA_TRY_MEMORY(c->numbers);
    c->pairs = malloc(2 * c->pairs_end * sizeof *c->pairs);
    WA_TRY_MEMORY(c->pairs);
    memset(c->numbers, 0xff, (1 + c->end) * size_of(c));
    memset(c->pairs, 0xff, 2 * c->pairs_end * sizeof *c->pairs);
    for (size_t i = 0; i < c->y; i++)
        set_number(c, i,
                   (float)wa_pick_check_number(&random) *
                       (i >= c->weight && i < c->bias ? small : 0.125f));
    for (size_t i = 0; i < 2 * c->x_statistics; i++)
        c->pairs[i] = (float)wa_pick_check_number(&random) * 0.125f;
    if (has_norms(c, WA_TAKES_STATISTICS | WA_FINDS_STATISTICS))
        set_folded(c);
    find_statistics(c, c->numbers + size_of(c), p->in,
                    c->pairs + 2 * c->x_statistics);
    return WINATTN_SUCCESS;
}

/* ---- Its results ---- */

#define TENSOR(at)                                                            \
    {                                                                         \
        of[0], ((at) + spread) * size_of(c)                                   \
    }
#define PAIRS(at)                                                             \
    {                                                                         \
        of[1], (at)*WA_STATISTICS_BYTES                                       \
    }

/* norm(y), or residual + norm(y), takes the residual's place. */
static winattn_status append_norm(const comparison *c,
                                  const winattn_linear *call,
                                  wa_kernel_chain *chain)
{
    const wa_row_call norm = {.rows = c->rows,
                              .from = call->y,
                              .other = call->residual,
                              .weight = call->norm_weight,
                              .bias = call->norm_bias,
                              .to = call->residual,
                              .eps = EPS};
    return wa_row_append(&c->norm, &norm, chain);
}

/* The hidden layer alone. */
static winattn_status append_hidden(const comparison *c,
                                    const winattn_linear *call,
                                    const wa_linear_norms *norms,
                                    winattn_tensor y, wa_kernel_chain *chain)
{
    winattn_linear hidden = *call;
    hidden.weight = norms->hidden_weight;
    hidden.weight_stride = norms->hidden_stride;
    hidden.bias = norms->hidden_bias;
    hidden.y = y;
    hidden.y_stride = c->plan.problem.hidden;
    return wa_linear_append_as(&c->hidden, &hidden, norms, WA_LINEAR_FEW,
                               chain);
}

static winattn_status append(const comparison *c, bool is_right, size_t spread,
                             const cl_mem *of, wa_kernel_chain *chain)
{
    const wa_linear_problem *p = &c->plan.problem;
    wa_linear_norms norms = {PAIRS(c->x_statistics),
                             PAIRS(c->y_statistics),
                             TENSOR(c->norm_weight),
                             EPS,
                             TENSOR(c->hidden_weight),
                             TENSOR(c->hidden_bias),
                             p->in};
    winattn_linear call = {.rows = c->rows,
                           .x_stride = p->in,
                           .weight_stride = p->hidden ? p->hidden : p->in,
                           .residual_stride = p->out,
                           .y_stride = p->out,
                           .x = TENSOR(0),
                           .weight = TENSOR(c->weight),
                           .bias = TENSOR(c->bias),
                           .norm_weight = TENSOR(c->norm_weight),
                           .norm_bias = TENSOR(c->norm_bias),
                           .residual = TENSOR(c->residual),
                           .y = TENSOR(c->y)};
    if (has_norms(c, WA_TAKES_STATISTICS))
        call.bias = (winattn_tensor){of[1], 0};
    if (p->hidden && has_norms(c, WA_FINDS_STATISTICS))
        norms.hidden_bias = (winattn_tensor){of[1], 0};
    if (is_right && p->hidden) {
        const winattn_tensor y = TENSOR(c->hidden_y);
        WA_TRY(append_hidden(c, &call, &norms, y, chain));
        call.x = y;
        call.x_stride = p->hidden;
    }
    if (!is_right)
        return wa_linear_append_as(&c->plan, &call, &norms, c->id, chain);
    WA_TRY(
        wa_linear_append_as(&c->right, &call, &norms, WA_LINEAR_FEW, chain));
    return c->norm.kernel ? append_norm(c, &call, chain) : WINATTN_SUCCESS;
}

/* What is computed of tensors that start `spread` elements behind where any
 * access may. */
static winattn_status compute(const comparison *c, bool is_right,
                              size_t spread, char *y, float *statistics)
{
    const size_t size = size_of(c);
    const cl_context context = wa_session_context(c->plan.session);
    const size_t from =
        (is_right && c->norm.kernel ? c->residual : c->y) + spread;
    cl_mem of[2] = {NULL, NULL};
    wa_kernel_chain chain;
    winattn_status status =
        wa_make_buffer(context, CL_MEM_READ_WRITE, (c->end + spread) * size,
                       c->numbers + (1 - spread) * size, &of[0]);
    WA_THEN(status, wa_make_buffer(context, CL_MEM_READ_WRITE,
                                   c->pairs_end * WA_STATISTICS_BYTES,
                                   c->pairs, &of[1]));
    WA_THEN(status, wa_chain_begin(&chain, c->queue, 0, NULL, false));
    WA_THEN(
        status,
        wa_chain_end(&chain, append(c, is_right, spread, of, &chain), NULL));
    WA_THEN(status,
            WA_CL(clEnqueueReadBuffer, c->queue, of[0], CL_TRUE, from * size,
                  (c->hidden_y - c->y) * size, y, 0, NULL, NULL));
    if (has_norms(c, WA_GIVES_STATISTICS))
        WA_THEN(status,
                WA_CL(clEnqueueReadBuffer, c->queue, of[1], CL_TRUE,
                      c->y_statistics * WA_STATISTICS_BYTES,
                      (c->pairs_end - c->y_statistics) * WA_STATISTICS_BYTES,
                      statistics, 0, NULL, NULL));
    wa_release_buffer(of[0]);
    wa_release_buffer(of[1]);
    return status;
}

/* Statistics are those of y as it was stored. */
static winattn_status compare_statistics(const comparison *c, const char *y,
                                         float *is)
{
    const wa_tensor all = {.element_size = sizeof *is,
                           .span = 2 * (c->pairs_end - c->y_statistics)};
    float *right = is + all.span;
    find_statistics(c, y, c->plan.problem.out, right);
    return wa_compare_check_numbers(&all, c->plan.problem.dtype, WA_LSE,
                                    "statistics by wgmma", is, right);
}

static winattn_status compare(const comparison *c, char *y, float *statistics)
{
    const winattn_dtype dtype = c->plan.problem.dtype;
    const wa_tensor all = {.element_size = wa_element_size(dtype),
                           .span = c->hidden_y - c->y};
    char *right = y + all.span * all.element_size;
    WA_TRY(compute(c, true, 0, right, statistics));
    for (size_t spread = 0; spread < 2; spread++) {
        WA_TRY(compute(c, false, spread, y, statistics));
        /* TF32 has all of these numbers, and sums are fp32 */
        WA_TRY(wa_compare_check_numbers(&all, dtype,
                                        dtype == WINATTN_FP32 ? WA_LSE : WA_O,
                                        "y by wgmma", y, right));
        if (has_norms(c, WA_GIVES_STATISTICS))
            WA_TRY(compare_statistics(c, y, statistics));
    }
    return WINATTN_SUCCESS;
}

/* ---- What is right ---- */

/* Plans without norms have the program, for few rows. */
static winattn_status build_fragments(winattn_linear_plan *right)
{
    const wa_linear_problem *p = &right->problem;
    wa_device device = *wa_session_device(right->session);
    wa_linear_layout *layout = &right->layout;
    wa_linear_kernel *few = &layout->kernel[WA_LINEAR_FEW];
    device.ignores_special = true;
    memset(layout, 0, sizeof *layout);
    if (!wa_linear_plan_tier(p, &device, WINATTN_TIER_MATRIX, NULL, layout))
        return WA_UNSUPPORTED("%s", layout->refusals[WINATTN_TIER_MATRIX]);
    if (!few->name[0])
        *few = layout->kernel[WA_LINEAR_MANY];
    return wa_session_kernel(right->session, few->name, few->defines,
                             p->build_options, &right->kernels[WA_LINEAR_FEW]);
}

static winattn_status build_right(comparison *c)
{
    wa_linear_problem *p = &c->right.problem, *hidden = &c->hidden.problem;
    const unsigned found =
        has_norms(c, WA_TAKES_STATISTICS | WA_FINDS_STATISTICS)
            ? WA_FINDS_STATISTICS
            : 0;
    if (p->hidden) {
        hidden->out = p->in = p->hidden;
        hidden->hidden = p->hidden = 0;
        hidden->activation = WINATTN_ACTIVATION_GELU;
        hidden->has_residual = false;
        hidden->norms = found;
        WA_TRY(build_fragments(&c->hidden));
    }
    p->norms = c->plan.problem.hidden ? 0 : found;
    p->has_residual &= !has_norms(c, WA_NORMALISES);
    WA_TRY(build_fragments(&c->right));
    const wa_row_desc norm = {
        .job = c->plan.problem.has_residual ? WA_ROW_NORM_ADD : WA_ROW_NORM,
        .dtype = p->dtype,
        .row_size = p->out,
        .build_options = p->build_options};
    return has_norms(c, WA_NORMALISES)
               ? wa_row_plan_make(c->right.session, &norm, &c->norm)
               : WINATTN_SUCCESS;
}

static winattn_status make_and_compare(comparison *c)
{
    WA_TRY(build_right(c));
    shrink(c);
    WA_TRY(make_numbers(c));
    char *y = malloc(2 * (c->hidden_y - c->y) * size_of(c));
    float *statistics =
        malloc(4 * (c->pairs_end - c->y_statistics) * sizeof *statistics);
    const winattn_status status =
        y && statistics ? compare(c, y, statistics) : wa_fail_memory();
    free(y);
    free(statistics);
    return status;
}

static winattn_status test(wa_session *session, const void *data)
{
    comparison c = *(const comparison *)data;
    cl_int error;
    c.queue = clCreateCommandQueue(wa_session_context(session),
                                   wa_session_device_id(session), 0, &error);
    WA_TRY(wa_cl_status(error, "clCreateCommandQueue"));
    const winattn_status status = make_and_compare(&c);
    clReleaseCommandQueue(c.queue);
    const cl_kernel made[] = {c.right.kernels[WA_LINEAR_FEW],
                              c.hidden.kernels[WA_LINEAR_FEW]};
    for (int i = 0; i < 2; i++)
        if (made[i])
            clReleaseKernel(made[i]);
    wa_row_plan_release(&c.norm);
    free(c.numbers);
    free(c.pairs);
    return status;
}

winattn_status wa_linear_compare(const winattn_linear_plan *plan,
                                 wa_linear_kernel_id id)
{
    const wa_linear_kernel *kernel = &plan->layout.kernel[id];
    const wa_tested subject = {plan->problem.dtype, kernel->name,
                               kernel->defines, plan->problem.build_options};
    comparison c = {.plan = *plan, .right = *plan, .hidden = *plan, .id = id};
    const char *origin = "";
    memset(c.right.kernels, 0, sizeof c.right.kernels);
    memset(c.hidden.kernels, 0, sizeof c.hidden.kernels);
    WA_TRY(wa_program_set_origin(wa_session_programs(plan->session),
                                 plan->kernels[id], &origin));
    return strcmp(origin, WA_FROM_CACHE) == 0
               ? WINATTN_SUCCESS
               : wa_session_test_once(plan->session, &subject, test, &c);
}
