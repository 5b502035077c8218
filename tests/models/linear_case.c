/* SPDX-License-Identifier: Apache-2.0
 * Runs linear layers and checks them. */
#include "linear_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

/* A tensor whose rows are `stride` elements apart; what is between is NaN. */
typedef struct matrix {
    unsigned rows, columns, stride;
    model_tensor t;
} matrix;

typedef struct linear_run {
    const linear_case *c;
    unsigned random;
    matrix x, weight, bias, norm_weight, norm_bias, residual, y;
    matrix hidden_weight, hidden_bias; /* of no rows where there is none */
    model_tensor map;                  /* that has x's rows */
    model_tensor terms, x_statistics, y_statistics;
} linear_run;

static double uniform(linear_run *run) /* -1 to 1 */
{
    run->random = run->random * 1664525u + 1013904223u;
    return (run->random >> 8) / 8388608.0 - 1.0;
}

static double at(const matrix *m, unsigned row, unsigned column)
{
    return m->t.value[(size_t)row * m->stride + column];
}

/* ---- Data ---- */

/* Numbers, row by row: one that all numbers of a row have, and one. */
typedef double drawer(const linear_case *c, double level, double x);

static double draw_x(const linear_case *c, double level, double x)
{
    switch (c->data) {
    case DATA_CONSTANT_ROWS:
    case DATA_OUTLIERS:
        return level;
    case DATA_OFFSET:
    case DATA_MEAN:
        return 2 * x + 30;
    case DATA_POSITIVE:
        return fabs(2 * x);
    default:
        return 2 * x;
    }
}

static double draw_weight(const linear_case *c, double level, double x)
{
    (void)level;
    x *= sqrt(3.0 / c->in);
    return c->data == DATA_POSITIVE || c->data == DATA_MEAN ? fabs(x)
           : c->data == DATA_TAILS                          ? x * 0.1
                                                            : x;
}

static double draw_bias(const linear_case *c, double level, double x)
{
    (void)level;
    return c->data == DATA_TAILS ? 12 * x : x;
}

static double draw_norm_weight(const linear_case *c, double level, double x)
{
    (void)c, (void)level;
    return 1 + 0.5 * x;
}

static double draw_norm_bias(const linear_case *c, double level, double x)
{
    (void)c, (void)level;
    return 0.3 * x;
}

static double draw_residual(const linear_case *c, double level, double x)
{
    (void)c, (void)level;
    return 2 * x;
}

static matrix drawn(linear_run *run, unsigned rows, unsigned columns,
                    drawer *draw)
{
    const linear_case *c = run->c;
    const size_t stride = (size_t)columns + c->spread;
    matrix m = {rows, columns, (unsigned)stride, {.count = 0}};
    double *values = numbers(rows * stride);
    for (unsigned r = 0; r < rows; r++) {
        const double level = uniform(run) * (r % 3 == 0 ? 300 : 1);
        for (unsigned i = 0; i < stride; i++)
            values[r * stride + i] =
                i < columns ? draw(c, level, uniform(run)) : (double)NAN;
        if (draw == draw_x && c->data == DATA_OUTLIERS)
            values[r * stride] *= 100;
    }
    m.t = tensor_of(kind_of(c->dtype), values, rows * stride, c->spread);
    return m;
}

/* A map whose lines have a third of x's rows: of a row there are the tokens in
 * an even line and column, below that, beside it, and below this one. */
static model_tensor map_of(const linear_run *run)
{
    const linear_case *c = run->c;
    const unsigned token = c->in / 4, across = c->rows / 3;
    double *values = numbers((size_t)c->rows * c->in);
    for (unsigned r = 0; r < c->rows; r++)
        for (unsigned i = 0; i < c->in; i++) {
            const unsigned which = i / token;
            const unsigned y = r / across * 2 + which % 2;
            const unsigned x = r % across * 2 + which / 2;
            values[(y * 2 * across + x) * token + i % token] =
                at(&run->x, r, i);
        }
    return tensor_of(kind_of(c->dtype), values, (size_t)c->rows * c->in,
                     c->spread);
}

static void make_run(linear_run *run, const linear_case *c)
{
    memset(run, 0, sizeof *run);
    run->c = c;
    run->random = c->seed * 2654435761u + 1;
    put_tensors_in_odd_memory(linear_has(c, IN_ODD_MEMORY));
    run->x = drawn(run, c->rows, c->in, draw_x);
    if (linear_has(c, MAP))
        run->map = map_of(run);
    run->weight =
        drawn(run, c->out, c->hidden ? c->hidden : c->in, draw_weight);
    run->bias = drawn(run, 1, c->out, draw_bias);
    if (c->hidden) {
        run->hidden_weight = drawn(run, c->hidden, c->in, draw_weight);
        run->hidden_bias = drawn(run, 1, c->hidden, draw_bias);
    }
    const unsigned normed = linear_has(c, NORM_OF_SUMS) ? c->out : c->in;
    linear_case odd = *c;
    odd.spread = linear_has(c, ODD_NORM) ? 1 : c->spread;
    run->c = &odd;
    run->norm_weight = drawn(run, 1, normed, draw_norm_weight);
    run->norm_bias = drawn(run, 1, normed, draw_norm_bias);
    run->c = c;
    run->residual =
        c->hidden ? run->x : drawn(run, c->rows, c->out, draw_residual);
    if (c->hidden) { /* x is read again when y has its place */
        const size_t count = run->x.t.count;
        run->residual.t.value =
            memcpy(numbers(count), run->x.t.value, count * sizeof(double));
    }
    run->y = run->residual;
    run->y.stride += c->spread ? 8 : 0; /* rows lie otherwise */
    run->y.t = tensor_empty(kind_of(c->dtype), (size_t)c->rows * run->y.stride,
                            c->spread);
    put_tensors_in_odd_memory(false);
}

/* The mean of a row, and squared distances from it. */
static void find_statistics(const matrix *m, unsigned row, double *found)
{
    found[0] = found[1] = 0;
    for (unsigned i = 0; i < m->columns; i++)
        found[0] += at(m, row, i) / m->columns;
    for (unsigned i = 0; i < m->columns; i++)
        found[1] += pow(at(m, row, i) - found[0], 2);
}

/* Is x scaled by the norm's weights on the way? Else W has these in it. */
static bool scales_x(const linear_case *c)
{
    return linear_has(c, NORM_FOUND) && !c->hidden;
}

/* What a layer gets from the one before, and from who has W. */
static void make_norms(linear_run *run)
{
    const linear_case *c = run->c;
    const size_t count = (size_t)c->rows * 2;
    const matrix *weight = c->hidden ? &run->hidden_weight : &run->weight;
    const matrix *bias = c->hidden ? &run->hidden_bias : &run->bias;
    double *terms = numbers((size_t)weight->rows * 2);
    double *of_x = numbers(count);
    for (unsigned o = 0; o < weight->rows; o++) {
        terms[2 * o + 1] = linear_has(c, BIAS) ? at(bias, 0, o) : 0;
        for (unsigned i = 0; i < c->in; i++) {
            const double scale = scales_x(c) ? at(&run->norm_weight, 0, i) : 1;
            const double shift = scales_x(c) ? at(&run->norm_bias, 0, i) : 0;
            terms[2 * o] += scale * at(weight, o, i);
            terms[2 * o + 1] += shift * at(weight, o, i);
        }
    }
    for (unsigned r = 0; r < c->rows; r++)
        find_statistics(&run->x, r, of_x + 2 * r);
    run->terms = tensor_of(KIND_FP32, terms, (size_t)weight->rows * 2, 4);
    run->x_statistics = tensor_of(KIND_FP32, of_x, count, 2);
    run->y_statistics = tensor_empty(KIND_FP32, count, 2);
}

/* ---- The truth ---- */

static double exact_gelu(double x) { return x / 2 * erfc(-x / sqrt(2)); }

static double promised(const linear_case *c)
{
    if (c->dtype == WINATTN_FP32)
        return c->allow_tf32 ? 2e-3 : 5e-6;
    return c->dtype == WINATTN_FP16 ? 5e-4 : 4e-3;
}

static double norm_of(const linear_run *run, double x, unsigned i)
{
    return linear_has(run->c, NORM_ON_THE_WAY) && !scales_x(run->c)
               ? x
               : x * at(&run->norm_weight, 0, i) + at(&run->norm_bias, 0, i);
}

/* norm(x) of a row; what its mean's rounding may be, a term of each; and on
 * the way how much more its numbers' may be than norm(x)'s, as they are not
 * less their mean where that is near to 0 (cl/models/row_origin.cl). */
static double find_row(const linear_run *run, unsigned r, double *row,
                       double *rounding)
{
    const linear_case *c = run->c;
    double mean = 0, variance = 0;
    for (unsigned i = 0; i < c->in; i++)
        mean += at(&run->x, r, i) / c->in;
    for (unsigned i = 0; i < c->in; i++)
        variance += pow(at(&run->x, r, i) - mean, 2) / c->in;
    const double eps = c->eps == 0 ? (double)1e-5f : (double)c->eps;
    const double factor = 1 / sqrt(variance + eps);
    const bool has_norm =
        linear_has(c, NORM) || linear_has(c, NORM_ON_THE_WAY);
    for (unsigned i = 0; i < c->in; i++)
        row[i] = has_norm
                     ? norm_of(run, (at(&run->x, r, i) - mean) * factor, i)
                     : at(&run->x, r, i);
    *rounding = scales_x(c) ? fmin(fabs(mean) * factor, 3) * promised(c) : 0;
    return has_norm ? ldexp(fabs(mean) * factor, -22) : 0;
}

/* A layer's sum of a row, and its terms' absolute values summed. */
static double find_sum(const linear_case *c, const matrix *weight,
                       const matrix *bias, const double *row, unsigned o,
                       double *terms)
{
    double sum = linear_has(c, BIAS) ? at(bias, 0, o) : 0;
    *terms = fabs(sum);
    for (unsigned i = 0; i < weight->columns; i++) {
        sum += row[i] * at(weight, o, i);
        *terms += fabs(row[i] * at(weight, o, i));
    }
    return sum;
}

/* The result of a row but for the residual. */
static void find_result(const linear_run *run, const double *row,
                        double *result, double *terms)
{
    const linear_case *c = run->c;
    double *hidden = numbers(c->hidden + 1), unused;
    for (unsigned j = 0; j < c->hidden; j++)
        hidden[j] = exact_gelu(find_sum(c, &run->hidden_weight,
                                        &run->hidden_bias, row, j, &unused));
    for (unsigned o = 0; o < c->out; o++) {
        result[o] = find_sum(c, &run->weight, &run->bias,
                             c->hidden ? hidden : row, o, &terms[o]);
        if (linear_has(c, GELU))
            result[o] = exact_gelu(result[o]);
    }
}

/* Sums of a row, with their terms, become what the norm of them is. */
static void normalise_sums(const linear_run *run, double *sums, double *terms)
{
    const linear_case *c = run->c;
    double mean = 0, square = 0;
    for (unsigned o = 0; o < c->out; o++)
        mean += sums[o] / c->out;
    for (unsigned o = 0; o < c->out; o++)
        square += pow(sums[o] - mean, 2) / c->out;
    const double factor = 1 / sqrt(square + (double)c->eps);
    for (unsigned o = 0; o < c->out; o++) {
        sums[o] = norm_of(run, (sums[o] - mean) * factor, o);
        terms[o] *= factor;
    }
}

/* `row` has room for one of x; got: of the result, which before was `rest`,
 * or zeros. */
static void check_row(const linear_run *run, unsigned r, double *row,
                      const double *got, const double *rest)
{
    const linear_case *c = run->c;
    double rounding;
    const double shift = find_row(run, r, row, &rounding);
    double error = 0, size = 0, all = 0, moved = 0;
    double *wants = numbers(c->out), *terms_of = numbers(c->out);
    find_result(run, row, wants, terms_of);
    if (linear_has(c, NORM_OF_SUMS))
        normalise_sums(run, wants, terms_of);
    for (unsigned o = 0; o < c->out; o++) {
        double sum = 0, square = 0;
        const double want = wants[o] + rest[o];
        const double terms = terms_of[o] + fabs(rest[o]);
        for (unsigned i = 0; i < c->in && shift > 0 && !c->hidden; i++) {
            const double weight =
                at(&run->norm_weight, 0, i) * at(&run->weight, o, i);
            sum += fabs(weight);
            square += weight * weight;
        }
        error += pow(got[o] - want, 2);
        size += want * want;
        all += terms * terms;
        moved += sum * sum * shift * shift + square * rounding * rounding;
    }
    const double most =
        promised(c) * fmax(sqrt(size), sqrt(all) / 10) + sqrt(moved);
    if (!(sqrt(error) <= most))
        fail_msg("row %u: error %.3g, %.3g of its size, is more than %.3g", r,
                 sqrt(error), sqrt(error / size), most);
}

/* Statistics are those of y as it is stored. */
static void check_statistics(linear_run *run, const matrix *y)
{
    tensor_read(&run->y_statistics);
    for (unsigned r = 0; r < run->c->rows; r++) {
        const double *got = run->y_statistics.value + 2 * (size_t)r;
        double want[2];
        find_statistics(y, r, want);
        if (!(fabs(got[0] - want[0]) <= 1e-5 * (fabs(want[0]) + 1)) ||
            !(fabs(got[1] - want[1]) <= 1e-4 * want[1] + 1e-6))
            fail_msg("row %u: mean %g, not %g, squares %g, not %g", r, got[0],
                     want[0], got[1], want[1]);
    }
}

static void check_result(linear_run *run)
{
    const linear_case *c = run->c;
    matrix *y = linear_has(c, IN_PLACE) ? &run->residual : &run->y;
    const size_t count = run->residual.t.count;
    double *row = numbers(c->in), *rest = numbers(count);
    if (linear_has(c, RESIDUAL))
        memcpy(rest, run->residual.t.value, count * sizeof *rest);
    tensor_read(&y->t);
    for (unsigned r = 0; r < c->rows; r++) {
        const size_t start = (size_t)r * y->stride;
        check_row(run, r, row, y->t.value + start,
                  rest + (size_t)r * run->residual.stride);
        for (size_t i = start + y->columns; i < start + y->stride; i++)
            if (!isnan(y->t.value[i]))
                fail_msg("what is behind row %u of y was written", r);
    }
    if (linear_has(c, STATISTICS))
        check_statistics(run, y);
}

/* ---- The call ---- */

static winattn_linear_desc desc_of(const linear_case *c)
{
    return (winattn_linear_desc){
        .struct_size = sizeof(winattn_linear_desc),
        .dtype = c->dtype,
        .tier = c->tier,
        .allow_tf32 = c->allow_tf32,
        .in_features = c->in,
        .out_features = c->out,
        .layer_norm = linear_has(c, NORM),
        .eps = linear_has(c, NORM) ? c->eps : 0,
        .has_bias = linear_has(c, BIAS),
        .activation = linear_has(c, GELU) ? WINATTN_ACTIVATION_GELU
                                          : WINATTN_ACTIVATION_NONE,
        .has_residual = linear_has(c, RESIDUAL),
        .build_options = device_build_options(c->tier)};
}

static unsigned norms_of(const linear_case *c)
{
    return (linear_has(c, NORM_FOUND)        ? WA_FINDS_STATISTICS
            : linear_has(c, NORM_ON_THE_WAY) ? WA_TAKES_STATISTICS
                                             : 0u) |
           (linear_has(c, STATISTICS) ? WA_GIVES_STATISTICS : 0u) |
           (linear_has(c, NORM_OF_SUMS) ? WA_NORMALISES : 0u);
}

wa_linear_problem linear_problem_of(const linear_case *c)
{
    const winattn_linear_desc desc = desc_of(c);
    wa_linear_problem problem;
    assert_status(wa_linear_read(&desc, &problem), 0, "");
    problem.hidden = c->hidden;
    problem.norms = norms_of(c);
    problem.merges = linear_has(c, MAP);
    return problem;
}

static winattn_linear call_of(const linear_run *run, size_t workspace)
{
    const linear_case *c = run->c;
    const matrix *y = linear_has(c, IN_PLACE) ? &run->residual : &run->y;
    winattn_linear call = {.struct_size = sizeof call,
                           .rows = c->rows,
                           .x_stride = run->x.stride,
                           .weight_stride = run->weight.stride,
                           .y_stride = y->stride,
                           .x = run->x.t.at,
                           .weight = run->weight.t.at,
                           .y = y->t.at};
    if (linear_has(c, MAP)) {
        call.x = run->map.at;
        call.x_stride = c->rows / 3 * (c->in / 2);
    }
    if (linear_has(c, BIAS))
        call.bias = run->bias.t.at;
    if (linear_has(c, NORM) || linear_has(c, NORM_OF_SUMS)) {
        call.norm_weight = run->norm_weight.t.at;
        call.norm_bias = run->norm_bias.t.at;
    }
    if (linear_has(c, RESIDUAL)) {
        call.residual = run->residual.t.at;
        call.residual_stride = run->residual.stride;
    }
    if (workspace)
        call.workspace.buffer = workspace_of_nans(workspace);
    return call;
}

/* Norms are a kernel of their own, with the workspace that they take. */
static void check_plan(const winattn_linear_plan *plan, const linear_case *c,
                       size_t workspace)
{
    char text[8192];
    const size_t bytes =
        (size_t)c->rows * c->in * kind_size(kind_of(c->dtype));
    assert_status(winattn_linear_plan_describe(plan, sizeof text, text, NULL),
                  0, "");
    assert_int_equal(strstr(text, "\nnorm kernel: norm_rows\n") != NULL,
                     linear_has(c, NORM));
    assert_int_equal(workspace,
                     linear_has(c, NORM) ? (bytes + 15) / 16 * 16 : 0);
}

/* A call that no descriptor describes. */
static void enqueue_norms(const winattn_linear_plan *plan, linear_run *run,
                          const winattn_linear *call)
{
    const linear_case *c = run->c;
    wa_kernel_chain chain;
    wa_linear_norms norms = {.eps = c->eps};
    make_norms(run);
    norms.x_statistics = run->x_statistics.at;
    norms.y_statistics = run->y_statistics.at;
    norms.x_scale = run->norm_weight.t.at;
    winattn_linear own = *call;
    if (c->hidden) {
        norms.hidden_weight = run->hidden_weight.t.at;
        norms.hidden_stride = run->hidden_weight.stride;
        norms.hidden_bias = run->hidden_bias.t.at;
    }
    if (linear_has(c, NORM_ON_THE_WAY))
        *(c->hidden ? &norms.hidden_bias : &own.bias) = run->terms.at;
    if (own.residual_stride == 0)
        own.residual_stride = c->out;
    assert_status(wa_chain_begin(&chain, device.queue, 0, NULL, false), 0, "");
    assert_status(wa_chain_end(&chain,
                               wa_linear_append(plan, &own, &norms, &chain),
                               NULL),
                  0, "");
}

void run_linear(const linear_case *c, const wa_linear_shape *shape)
{
    static const char *const types[] = {"fp32", "fp16", "bf16"};
    const wa_linear_problem problem = linear_problem_of(c);
    linear_run run;
    winattn_linear_plan *plan;
    size_t workspace = 0;
    announce("%u x %u -> %u -> %u %s, has %u, spread %u, data %d\n", c->rows,
             c->in, c->hidden, c->out, types[c->dtype], c->has, c->spread,
             c->data);
    const winattn_status status = wa_linear_plan_with_shape(
        device.context, device.id, &problem, shape, &plan);
    if (status != WINATTN_SUCCESS)
        fail_msg("no plan: %s\n%s", winattn_last_reason(),
                 winattn_last_build_log());
    assert_status(
        winattn_linear_plan_workspace_size(plan, c->rows, &workspace), 0, "");
    check_plan(plan, c, workspace);
    make_run(&run, c);
    const winattn_linear call = call_of(&run, workspace);
    if (norms_of(c) || c->hidden || linear_has(c, MAP))
        enqueue_norms(plan, &run, &call);
    else
        assert_status(
            winattn_enqueue_linear(plan, device.queue, &call, 0, NULL, NULL),
            0, "");
    check_result(&run);
    tensors_free();
    winattn_linear_plan_destroy(plan);
}
