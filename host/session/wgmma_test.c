/* SPDX-License-Identifier: Apache-2.0
 * Makes the numbers of the self-test, launches the kernel, and computes in
 * fp64 what must come out. */
#include "session/wgmma_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* More than a work tile has rows, and no whole number of tiles; blocks, window
 * and sink such that tiles are seen entirely, partly and not at all. */
#define HEADS 2u
#define TOKENS 330u
#define BLOCK 90u
#define FIRST_BLOCK 70u
#define WINDOW_BLOCKS 2u
#define SINK 9u

/* Operands are n / 8, |n| <= 8, which both types hold exactly; queries of the
 * second head are 64 times as large. */
#define MOST_N 8
#define SMALL_POWER (-3)
#define LARGE_POWER 3

/* Of o, which is at most 1, and of lse. */
#define TOLERANCE_FP16 0x1p-8
#define TOLERANCE_BF16 0x1p-5
#define TOLERANCE_LSE 1e-3

typedef struct test_data {
    winattn_dtype dtype;
    uint32_t dim, random;
    /* [head][token][channel]; k and v have one head */
    uint16_t *q, *k, *v, *o;
    double *q_exact, *k_exact, *v_exact; /* what these stand for */
    float *lse;                          /* [head][token] */
    cl_command_queue queue;
    cl_mem buffer[5]; /* of these */
} test_data;

/* From -MOST_N to MOST_N. */
static int pick(test_data *x)
{
    x->random = x->random * 1664525u + 1013904223u;
    return (int)((x->random >> 16) % (2 * MOST_N + 1)) - MOST_N;
}

/* n times 2^power, |n| < 128. */
static uint16_t bits_of(winattn_dtype dtype, int n, int power)
{
    const uint32_t sign = n < 0 ? 0x8000u : 0;
    const uint32_t size = (uint32_t)(n < 0 ? -n : n);
    uint32_t top = 0; /* the highest bit's place */
    if (size == 0)
        return 0;
    while (size >> (top + 1))
        top++;
    const uint32_t exponent = (uint32_t)((int)top + power);
    return (uint16_t)(dtype == WINATTN_FP16
                          ? sign | (exponent + 15) << 10 |
                                ((size << (10 - top)) & 0x3ffu)
                          : sign | (exponent + 127) << 7 |
                                ((size << (7 - top)) & 0x7fu));
}

/* x times 2^power; C's own is in a library that nothing else here needs. */
static double scaled(double x, int power)
{
    for (; power > 0; power--)
        x *= 2.0;
    for (; power < 0; power++)
        x *= 0.5;
    return x;
}

static double value_of(winattn_dtype dtype, uint16_t bits)
{
    const bool half = dtype == WINATTN_FP16;
    const int exponent = half ? bits >> 10 & 31 : bits >> 7 & 255;
    const int fraction = half ? bits & 0x3ff : bits & 0x7f;
    const int width = half ? 10 : 7, bias = half ? 15 : 127;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == (half ? 31 : 255))
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? scaled(fraction + scaled(1.0, width),
                                     exponent - bias - width)
                            : scaled(fraction, 1 - bias - width));
}

/* ---- What must come out ---- */

static uint32_t block_of(uint32_t token)
{
    return token < FIRST_BLOCK ? 0 : 1 + (token - FIRST_BLOCK) / BLOCK;
}

static bool sees(uint32_t query, uint32_t key)
{
    const uint32_t b = block_of(query), c = block_of(key);
    return c <= b && (c + WINDOW_BLOCKS > b || key < SINK);
}

static double logit(const test_data *x, const double *q, uint32_t key)
{
    const double *k = x->k_exact + (size_t)key * x->dim;
    double sum = 0;
    for (uint32_t c = 0; c < x->dim; c++)
        sum += q[c] * k[c];
    return sum;
}

/* Turns the logits of a row into weights that sum to 1; returns lse. */
static double weigh(const test_data *x, uint32_t head, uint32_t query,
                    double *weights)
{
    const double *q = x->q_exact + ((size_t)head * TOKENS + query) * x->dim;
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < TOKENS; key++) {
        weights[key] = sees(query, key) ? logit(x, q, key) : -INFINITY;
        top = weights[key] > top ? weights[key] : top;
    }
    for (uint32_t key = 0; key < TOKENS; key++)
        sum += weights[key] = exp(weights[key] - top);
    for (uint32_t key = 0; key < TOKENS; key++)
        weights[key] /= sum;
    return top + log(sum);
}

static double expected_out(const test_data *x, const double *weights,
                           uint32_t channel)
{
    double sum = 0;
    for (uint32_t key = 0; key < TOKENS; key++)
        sum += weights[key] * x->v_exact[(size_t)key * x->dim + channel];
    return sum;
}

static winattn_status compare_row(const test_data *x, uint32_t head,
                                  uint32_t query)
{
    const double tolerance =
        x->dtype == WINATTN_FP16 ? TOLERANCE_FP16 : TOLERANCE_BF16;
    const size_t row = (size_t)head * TOKENS + query;
    double weights[TOKENS];
    const double lse = weigh(x, head, query, weights);
    if (!(fabs(x->lse[row] - lse) <= TOLERANCE_LSE))
        return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                       "wgmma failed its self-test: lse of head %u, query %u "
                       "is %g, not %g",
                       head, query, (double)x->lse[row], lse);
    for (uint32_t c = 0; c < x->dim; c++) {
        const double is = value_of(x->dtype, x->o[row * x->dim + c]);
        const double wanted = expected_out(x, weights, c);
        if (!(fabs(is - wanted) <= tolerance))
            return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                           "wgmma failed its self-test: channel %u of head "
                           "%u, query %u is %g, not %g",
                           c, head, query, is, wanted);
    }
    return WINATTN_SUCCESS;
}

static winattn_status compare(const test_data *x)
{
    for (uint32_t head = 0; head < HEADS; head++)
        for (uint32_t query = 0; query < TOKENS; query++)
            WA_TRY(compare_row(x, head, query));
    return WINATTN_SUCCESS;
}

/* ---- Data ---- */

static size_t elements(const test_data *x, uint32_t heads)
{
    return (size_t)heads * TOKENS * x->dim;
}

static void make_tensor(test_data *x, uint32_t heads, int power,
                        uint16_t *bits, double *exact)
{
    for (size_t i = 0; i < elements(x, heads); i++) {
        const int n = pick(x);
        bits[i] = bits_of(x->dtype, n, power);
        exact[i] = scaled(n, power);
    }
}

static void make_numbers(test_data *x)
{
    const size_t second = elements(x, 1);
    make_tensor(x, 1, SMALL_POWER, x->q, x->q_exact);
    make_tensor(x, 1, LARGE_POWER, x->q + second, x->q_exact + second);
    make_tensor(x, 1, SMALL_POWER, x->k, x->k_exact);
    make_tensor(x, 1, SMALL_POWER, x->v, x->v_exact);
}

static void data_free(test_data *x)
{
    for (size_t i = 0; i < sizeof x->buffer / sizeof *x->buffer; i++)
        if (x->buffer[i])
            clReleaseMemObject(x->buffer[i]);
    if (x->queue)
        clReleaseCommandQueue(x->queue);
    free(x->q);
    free(x->k);
    free(x->v);
    free(x->o);
    free(x->q_exact);
    free(x->k_exact);
    free(x->v_exact);
    free(x->lse);
}

/* To be freed, also after a failure. */
static winattn_status data_make(const wa_problem *problem, test_data *x)
{
    memset(x, 0, sizeof *x);
    x->dtype = problem->dtype;
    x->dim = problem->head_dim;
    x->random = 1;
    x->q = calloc(elements(x, HEADS), sizeof *x->q);
    x->k = calloc(elements(x, 1), sizeof *x->k);
    x->v = calloc(elements(x, 1), sizeof *x->v);
    x->o = calloc(elements(x, HEADS), sizeof *x->o);
    x->q_exact = calloc(elements(x, HEADS), sizeof *x->q_exact);
    x->k_exact = calloc(elements(x, 1), sizeof *x->k_exact);
    x->v_exact = calloc(elements(x, 1), sizeof *x->v_exact);
    x->lse = calloc((size_t)HEADS * TOKENS, sizeof *x->lse);
    if (!x->q || !x->k || !x->v || !x->o || !x->q_exact || !x->k_exact ||
        !x->v_exact || !x->lse)
        return wa_fail_memory();
    make_numbers(x);
    return WINATTN_SUCCESS;
}

static winattn_status make_buffer(cl_context context, size_t bytes, void *from,
                                  cl_mem *buffer)
{
    cl_int error;
    *buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                             bytes, from, &error);
    if (error == CL_SUCCESS)
        return WINATTN_SUCCESS;
    *buffer = NULL;
    return wa_fail_cl(error, "clCreateBuffer");
}

static winattn_status make_objects(cl_context context, cl_device_id device,
                                   test_data *x)
{
    const size_t rows = elements(x, HEADS) * 2, keys = elements(x, 1) * 2;
    cl_int error;
    x->queue = clCreateCommandQueue(context, device, 0, &error);
    if (error != CL_SUCCESS)
        return wa_fail_cl(error, "clCreateCommandQueue");
    WA_TRY(make_buffer(context, rows, x->q, &x->buffer[0]));
    WA_TRY(make_buffer(context, keys, x->k, &x->buffer[1]));
    WA_TRY(make_buffer(context, keys, x->v, &x->buffer[2]));
    WA_TRY(make_buffer(context, rows, x->o, &x->buffer[3]));
    return make_buffer(context, sizeof *x->lse * HEADS * TOKENS, x->lse,
                       &x->buffer[4]);
}

/* ---- The launch ---- */

static const wa_tensor_id tensors[] = {WA_Q, WA_K, WA_V, WA_O, WA_LSE};

static wa_problem test_problem(const wa_problem *problem)
{
    wa_problem small = *problem;
    small.windows = 1;
    small.heads = HEADS;
    small.kv_heads = 1;
    small.queries = small.keys = TOKENS;
    small.block = BLOCK;
    small.first_block = FIRST_BLOCK;
    small.window_blocks = WINDOW_BLOCKS;
    small.sink = SINK;
    small.query_offset = 0;
    small.scale = 1.0f;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        wa_tensor *tensor = &small.tensor[tensors[i]];
        const uint64_t row = tensors[i] == WA_LSE ? 1 : problem->head_dim;
        memset(tensor->stride, 0, sizeof tensor->stride);
        tensor->stride[WA_COLUMN] = 1;
        tensor->stride[WA_ROW] = row;
        tensor->stride[WA_HEAD] = row * TOKENS;
    }
    return small;
}

static winattn_status launch(const wa_problem *problem, const wa_plan *plan,
                             const wa_kernels *kernels, test_data *x)
{
    const wa_problem small = test_problem(problem);
    const uint32_t block_rows = plan->step[WA_STEP_FORWARD].block_rows;
    wa_plan small_plan = *plan;
    wa_buffers buffers;
    memset(&buffers, 0, sizeof buffers);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        buffers.tensor[tensors[i]].buffer = x->buffer[i];
    small_plan.schedule.row_blocks = (TOKENS + block_rows - 1) / block_rows;
    WA_TRY(wa_launch(&small, &small_plan, kernels, x->queue, &buffers, 0, 0,
                     NULL, NULL));
    cl_int error = clEnqueueReadBuffer(x->queue, x->buffer[3], CL_TRUE, 0,
                                       elements(x, HEADS) * sizeof *x->o, x->o,
                                       0, NULL, NULL);
    if (error == CL_SUCCESS)
        error = clEnqueueReadBuffer(x->queue, x->buffer[4], CL_TRUE, 0,
                                    sizeof *x->lse * HEADS * TOKENS, x->lse, 0,
                                    NULL, NULL);
    return error == CL_SUCCESS ? WINATTN_SUCCESS
                               : wa_fail_cl(error, "clEnqueueReadBuffer");
}

winattn_status wa_check_wgmma(cl_context context, cl_device_id device,
                              const wa_problem *problem, const wa_plan *plan,
                              const wa_kernels *kernels)
{
    test_data x;
    winattn_status status = data_make(problem, &x);
    if (status == WINATTN_SUCCESS)
        status = make_objects(context, device, &x);
    if (status == WINATTN_SUCCESS)
        status = launch(problem, plan, kernels, &x);
    if (status == WINATTN_SUCCESS)
        status = compare(&x);
    data_free(&x);
    return status;
}
