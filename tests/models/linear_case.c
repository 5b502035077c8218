/* SPDX-License-Identifier: Apache-2.0
 * Runs linear layers and checks them. */
#include "linear_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/storage.h"
#include "kit/test_device.h"

#define GUARD 64 /* bytes behind each tensor */

/* A tensor in a buffer of its own, with guards around it and between rows. */
typedef struct matrix {
    unsigned rows, columns, stride, first; /* in elements */
    double *x;                             /* [rows][columns], as stored */
    unsigned char *bytes;
    unsigned char *memory; /* the buffer's, if it is the test's */
    size_t size;
    cl_mem buffer;
} matrix;

typedef struct linear_run {
    const linear_case *c;
    storage_kind kind;
    unsigned random;
    matrix x, weight, bias, norm_weight, norm_bias, residual, y;
    cl_mem workspace;
} linear_run;

static double uniform(linear_run *run) /* -1 to 1 */
{
    run->random = run->random * 1664525u + 1013904223u;
    return (run->random >> 8) / 8388608.0 - 1.0;
}

static size_t place(const linear_run *run, const matrix *m, unsigned row,
                    unsigned column)
{
    return (m->first + (size_t)row * m->stride + column) *
           kind_size(run->kind);
}

/* Everything is NaN at first. */
static matrix new_matrix(const linear_run *run, unsigned rows,
                         unsigned columns)
{
    const unsigned spread = run->c->spread;
    matrix m = {.rows = rows,
                .columns = columns,
                .stride = columns + spread,
                .first = spread};
    m.size = place(run, &m, rows, 0) + GUARD;
    m.x = calloc((size_t)rows * columns, sizeof *m.x);
    m.bytes = malloc(m.size);
    assert_non_null(m.x);
    assert_non_null(m.bytes);
    memset(m.bytes, 0xff, m.size);
    return m;
}

static void set(linear_run *run, matrix *m, unsigned row, unsigned column,
                double x)
{
    const double rounded = kind_round(run->kind, x);
    m->x[(size_t)row * m->columns + column] = rounded;
    kind_write(run->kind, rounded, m->bytes + place(run, m, row, column));
}

static void upload(const linear_run *run, matrix *m)
{
    cl_int error;
    unsigned char *content = m->bytes;
    if (run->c->in_odd_memory) {
        m->memory = odd_memory(m->size, kind_size(run->kind), &content);
        assert_non_null(m->memory);
        memcpy(content, m->bytes, m->size);
    }
    m->buffer =
        clCreateBuffer(device.context,
                       CL_MEM_READ_WRITE | (m->memory ? CL_MEM_USE_HOST_PTR
                                                      : CL_MEM_COPY_HOST_PTR),
                       m->size, content, &error);
    assert_int_equal(error, CL_SUCCESS);
}

static void free_matrix(matrix *m)
{
    if (m->buffer)
        clReleaseMemObject(m->buffer);
    free(m->memory);
    free(m->x);
    free(m->bytes);
}

/* ---- Data ---- */

static void fill_x(linear_run *run)
{
    const linear_case *c = run->c;
    for (unsigned r = 0; r < c->rows; r++) {
        const double level = uniform(run) * (r % 3 == 0 ? 300 : 1);
        for (unsigned i = 0; i < c->in; i++) {
            double x = 2 * uniform(run);
            if (c->data == DATA_CONSTANT_ROWS)
                x = level;
            else if (c->data == DATA_OFFSET || c->data == DATA_MEAN)
                x += 30;
            else if (c->data == DATA_POSITIVE)
                x = fabs(x);
            set(run, &run->x, r, i, x);
        }
    }
}

static void fill(linear_run *run)
{
    const linear_case *c = run->c;
    const double width = sqrt(3.0 / c->in);
    fill_x(run);
    for (unsigned o = 0; o < c->out; o++)
        for (unsigned i = 0; i < c->in; i++) {
            const double x = uniform(run) * width;
            set(run, &run->weight, o, i,
                c->data == DATA_POSITIVE || c->data == DATA_MEAN ? fabs(x)
                : c->data == DATA_TAILS                          ? x * 0.1
                                                                 : x);
        }
    for (unsigned o = 0; o < c->out; o++)
        set(run, &run->bias, 0, o,
            c->data == DATA_TAILS ? 12.0 * uniform(run) : uniform(run));
    for (unsigned i = 0; i < c->in; i++) {
        set(run, &run->norm_weight, 0, i, 1.0 + 0.5 * uniform(run));
        set(run, &run->norm_bias, 0, i, 0.3 * uniform(run));
    }
    for (unsigned r = 0; r < c->rows; r++)
        for (unsigned o = 0; o < c->out; o++)
            set(run, &run->residual, r, o, 2 * uniform(run));
}

static void make_run(linear_run *run, const linear_case *c)
{
    memset(run, 0, sizeof *run);
    run->c = c;
    run->kind = c->dtype == WINATTN_FP32   ? KIND_FP32
                : c->dtype == WINATTN_FP16 ? KIND_FP16
                                           : KIND_BF16;
    run->random = c->seed * 2654435761u + 1;
    run->x = new_matrix(run, c->rows, c->in);
    run->weight = new_matrix(run, c->out, c->in);
    run->bias = new_matrix(run, 1, c->out);
    run->norm_weight = new_matrix(run, 1, c->in);
    run->norm_bias = new_matrix(run, 1, c->in);
    run->residual = new_matrix(run, c->rows, c->out);
    run->y = new_matrix(run, c->rows, c->out);
    fill(run);
    upload(run, &run->x);
    upload(run, &run->weight);
    upload(run, &run->bias);
    upload(run, &run->norm_weight);
    upload(run, &run->norm_bias);
    upload(run, &run->residual);
    upload(run, &run->y);
}

static void free_run(linear_run *run)
{
    free_matrix(&run->x);
    free_matrix(&run->weight);
    free_matrix(&run->bias);
    free_matrix(&run->norm_weight);
    free_matrix(&run->norm_bias);
    free_matrix(&run->residual);
    free_matrix(&run->y);
    if (run->workspace)
        clReleaseMemObject(run->workspace);
}

/* ---- The truth ---- */

static double exact_gelu(double x) { return x / 2 * erfc(-x / sqrt(2)); }

/* norm(x) of a row, and what its mean's rounding may be: a term of each. */
static double find_row(const linear_run *run, unsigned r, double *row)
{
    const linear_case *c = run->c;
    const double *x = run->x.x + (size_t)r * c->in;
    double mean = 0, variance = 0;
    for (unsigned i = 0; i < c->in; i++)
        mean += x[i] / c->in;
    for (unsigned i = 0; i < c->in; i++)
        variance += (x[i] - mean) * (x[i] - mean) / c->in;
    const double eps = c->eps == 0 ? (double)1e-5f : (double)c->eps;
    const double factor = 1 / sqrt(variance + eps);
    for (unsigned i = 0; i < c->in; i++)
        row[i] = c->layer_norm
                     ? (x[i] - mean) * factor * run->norm_weight.x[i] +
                           run->norm_bias.x[i]
                     : x[i];
    return c->layer_norm ? ldexp(fabs(mean) * factor, -22) : 0;
}

/* An element of the result, and its terms' absolute values summed. */
static double find_element(const linear_run *run, const double *row,
                           unsigned r, unsigned o, double *terms)
{
    const linear_case *c = run->c;
    const double *w = run->weight.x + (size_t)o * c->in;
    double sum = c->has_bias ? run->bias.x[o] : 0;
    *terms = fabs(sum);
    for (unsigned i = 0; i < c->in; i++) {
        sum += row[i] * w[i];
        *terms += fabs(row[i] * w[i]);
    }
    if (c->gelu)
        sum = exact_gelu(sum);
    if (c->has_residual) {
        const double rest = run->residual.x[(size_t)r * c->out + o];
        sum += rest;
        *terms += fabs(rest);
    }
    return sum;
}

static double promised(const linear_case *c)
{
    if (c->dtype == WINATTN_FP32)
        return c->allow_tf32 ? 2e-3 : 5e-6;
    return c->dtype == WINATTN_FP16 ? 5e-4 : 4e-3;
}

/* The bytes of a result that lie between its elements are as before. */
static void check_guards(const linear_run *run, const matrix *m,
                         unsigned char *got)
{
    for (unsigned r = 0; r < m->rows; r++)
        for (unsigned i = 0; i < m->columns; i++)
            memcpy(got + place(run, m, r, i), m->bytes + place(run, m, r, i),
                   kind_size(run->kind));
    for (size_t i = 0; i < m->size; i++)
        if (got[i] != m->bytes[i])
            fail_msg("byte %zu of y is no element, but was written", i);
}

static void check_result(const linear_run *run, const matrix *m)
{
    const linear_case *c = run->c;
    unsigned char *got = malloc(m->size);
    double *row = malloc(c->in * sizeof *row);
    assert_non_null(got);
    assert_non_null(row);
    assert_int_equal(clEnqueueReadBuffer(device.queue, m->buffer, CL_TRUE, 0,
                                         m->size, got, 0, NULL, NULL),
                     CL_SUCCESS);
    for (unsigned r = 0; r < c->rows; r++) {
        const double shift = find_row(run, r, row);
        double error = 0, size = 0, all = 0, moved = 0;
        for (unsigned o = 0; o < c->out; o++) {
            double terms, sum = 0;
            const double want = find_element(run, row, r, o, &terms);
            const double is = kind_read(run->kind, got + place(run, m, r, o));
            for (unsigned i = 0; i < c->in && shift > 0; i++)
                sum += fabs(run->norm_weight.x[i] *
                            run->weight.x[(size_t)o * c->in + i]);
            error += (is - want) * (is - want);
            size += want * want;
            all += terms * terms;
            moved += sum * sum * shift * shift;
        }
        const double most =
            promised(c) * fmax(sqrt(size), sqrt(all) / 10) + sqrt(moved);
        if (!(sqrt(error) <= most))
            fail_msg("row %u: error %.3g, %.3g of its size, is more than %.3g",
                     r, sqrt(error), sqrt(error / size), most);
    }
    check_guards(run, m, got);
    free(row);
    free(got);
}

/* ---- The call ---- */

static winattn_tensor tensor_of(const linear_run *run, const matrix *m,
                                bool used)
{
    const winattn_tensor at = {used ? m->buffer : NULL,
                               used ? place(run, m, 0, 0) : 0};
    return at;
}

static winattn_linear_desc desc_of(const linear_case *c)
{
    const winattn_linear_desc desc = {
        .struct_size = sizeof desc,
        .dtype = c->dtype,
        .tier = c->tier,
        .allow_tf32 = c->allow_tf32,
        .in_features = c->in,
        .out_features = c->out,
        .layer_norm = c->layer_norm,
        .eps = c->eps,
        .has_bias = c->has_bias,
        .activation =
            c->gelu ? WINATTN_ACTIVATION_GELU : WINATTN_ACTIVATION_NONE,
        .has_residual = c->has_residual,
        .build_options = device_build_options(c->tier)};
    return desc;
}

static winattn_linear call_of(linear_run *run, size_t workspace)
{
    const linear_case *c = run->c;
    const matrix *y = c->in_place ? &run->residual : &run->y;
    const bool norm = c->layer_norm;
    winattn_linear call = {
        .struct_size = sizeof call,
        .rows = c->rows,
        .x_stride = run->x.stride,
        .weight_stride = run->weight.stride,
        .residual_stride = c->has_residual ? run->residual.stride : 0,
        .y_stride = y->stride,
        .x = tensor_of(run, &run->x, true),
        .weight = tensor_of(run, &run->weight, true),
        .bias = tensor_of(run, &run->bias, c->has_bias),
        .norm_weight = tensor_of(run, &run->norm_weight, norm),
        .norm_bias = tensor_of(run, &run->norm_bias, norm),
        .residual = tensor_of(run, &run->residual, c->has_residual),
        .y = tensor_of(run, y, true)};
    if (workspace) {
        cl_int error;
        run->workspace = clCreateBuffer(device.context, CL_MEM_READ_WRITE,
                                        workspace, NULL, &error);
        assert_int_equal(error, CL_SUCCESS);
        call.workspace.buffer = run->workspace;
    }
    return call;
}

/* Norms are a kernel of their own. */
static void check_description(const winattn_linear_plan *plan,
                              const linear_case *c)
{
    char text[8192];
    assert_int_equal(
        winattn_linear_plan_describe(plan, sizeof text, text, NULL),
        WINATTN_SUCCESS);
    assert_int_equal(strstr(text, "\nnorm kernel: norm_rows\n") != NULL,
                     c->layer_norm);
}

void run_linear(const linear_case *c, const wa_linear_shape *shape)
{
    static const char *const types[] = {"fp32", "fp16", "bf16"};
    const winattn_linear_desc desc = desc_of(c);
    linear_run run;
    winattn_linear_plan *plan;
    size_t workspace = 0;
    announce("%u x %u -> %u %s%s%s%s%s%s spread %u data %d\n", c->rows, c->in,
             c->out, types[c->dtype], c->layer_norm ? " norm" : "",
             c->has_bias ? " bias" : "", c->gelu ? " gelu" : "",
             c->has_residual ? " residual" : "",
             c->in_place ? " in place" : "", c->spread, c->data);
    const winattn_status status =
        shape ? wa_linear_plan_with_shape(device.context, device.id, &desc,
                                          shape, &plan)
              : winattn_linear_plan_create(device.context, device.id, &desc,
                                           &plan);
    if (status != WINATTN_SUCCESS)
        fail_msg("no plan: %s\n%s", winattn_last_reason(),
                 winattn_last_build_log());
    assert_int_equal(
        winattn_linear_plan_workspace_size(plan, c->rows, &workspace),
        WINATTN_SUCCESS);
    const size_t size = c->dtype == WINATTN_FP32 ? 4 : 2;
    assert_int_equal(workspace, c->layer_norm
                                    ? (c->rows * c->in * size + 15) / 16 * 16
                                    : 0);
    check_description(plan, c);
    make_run(&run, c);
    const winattn_linear call = call_of(&run, workspace);
    if (winattn_enqueue_linear(plan, device.queue, &call, 0, NULL, NULL) !=
        WINATTN_SUCCESS)
        fail_msg("no call: %s", winattn_last_reason());
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    check_result(&run, c->in_place ? &run.residual : &run.y);
    free_run(&run);
    winattn_linear_plan_destroy(plan);
}
