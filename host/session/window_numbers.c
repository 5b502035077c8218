/* SPDX-License-Identifier: Apache-2.0
 * Attention in windows, row by row in fp64. */
#include "session/window_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "session/stored_numbers.h"

#define WINDOWS WA_WINDOW_TEST_WINDOWS
#define HEADS WA_WINDOW_TEST_HEADS

/* Operands are n times a power of two, |n| <= 8. Queries of the second head
 * are 64 times as large, and its biases grow along the keys, by some hundreds
 * in all, so that weights need other bases. */
#define MOST_N 8
static const int query_powers[HEADS] = {-2, 4};
#define KEY_POWER (-3)
static const int bias_powers[HEADS] = {-2, 1};
#define GROWTH 100

#define DOT_SCALE 0.5f
static const float logit_scales[HEADS] = {1.5f, 3.0f};

/* These rows have a bias of -infinity with all keys, and with the first ones.
 */
#define BLIND_ROW 5u
#define LATE_ROW 6u
#define LATE_KEYS 70u

/* Of each head and window so many rows at most are held against fp64. */
#define ROWS 64u

/* Of o, which is at most 1, and of lse. */
#define TOLERANCE_FP16 0x1p-8
#define TOLERANCE_BF16 0x1p-5
#define TOLERANCE_LSE 1e-3
#define TOLERANCE_LARGE_LSE 1e-5 /* relative */

/* ---- The problem ---- */

static void set_strides(wa_tensor *tensor, uint64_t window, uint64_t head,
                        uint64_t row)
{
    memset(tensor->stride, 0, sizeof tensor->stride);
    tensor->stride[WA_WINDOW] = window;
    tensor->stride[WA_HEAD] = head;
    tensor->stride[WA_ROW] = row;
    tensor->stride[WA_COLUMN] = 1;
}

wa_problem wa_window_test_problem(const wa_problem *problem)
{
    wa_problem test = *problem;
    const uint64_t dim = problem->head_dim;
    const uint64_t queries = problem->queries, keys = problem->keys;
    test.windows = WINDOWS;
    test.heads = HEADS;
    test.kv_heads = 1;
    test.scale = problem->variant == WINATTN_DOT ? DOT_SCALE : problem->scale;
    set_strides(&test.tensor[WA_Q], HEADS * queries * dim, queries * dim, dim);
    set_strides(&test.tensor[WA_O], HEADS * queries * dim, queries * dim, dim);
    set_strides(&test.tensor[WA_K], keys * dim, 0, dim);
    set_strides(&test.tensor[WA_V], keys * dim, 0, dim);
    set_strides(&test.tensor[WA_LSE], HEADS * queries, queries, 1);
    set_strides(&test.tensor[WA_BIAS], 0, queries * keys, keys);
    return test;
}

/* ---- Inputs ---- */

/* From -MOST_N to MOST_N. */
static int pick(wa_window_numbers *x)
{
    x->random = x->random * 1664525u + 1013904223u;
    return (int)((x->random >> 16) % (2 * MOST_N + 1)) - MOST_N;
}

static winattn_status make_room(wa_window_numbers *x, wa_tensor_id id,
                                size_t bytes)
{
    x->bytes[id] = bytes;
    x->stored[id] = malloc(bytes);
    if (!x->stored[id])
        return wa_fail_memory();
    /* what no kernel writes is no number */
    memset(x->stored[id], 0xff, bytes);
    return WINATTN_SUCCESS;
}

/* Elements of the stored type, of so many heads in a row for each window. */
static winattn_status make_input(wa_window_numbers *x, wa_tensor_id id,
                                 size_t of_head, uint32_t heads,
                                 const int *powers)
{
    const size_t all = of_head * heads * WINDOWS;
    WA_TRY(make_room(x, id, 2 * all));
    for (size_t i = 0; i < all; i++)
        ((uint16_t *)x->stored[id])[i] = wa_stored_bits(
            x->problem->dtype, pick(x), powers[i / of_head % heads]);
    return WINATTN_SUCCESS;
}

static winattn_status make_bias(wa_window_numbers *x)
{
    const wa_problem *p = x->problem;
    const uint16_t none = p->dtype == WINATTN_FP16 ? 0xfc00u : 0xff80u;
    const size_t keys = p->keys, of_head = p->queries * keys;
    WA_TRY(make_room(x, WA_BIAS, of_head * HEADS * 2));
    for (size_t i = 0; i < of_head * HEADS; i++) {
        const size_t head = i / of_head;
        const size_t row = i % of_head / keys, key = i % keys;
        const int grown = head > 0 ? (int)(key * GROWTH / keys) : 0;
        const int n = pick(x) + grown;
        const bool blind =
            row == BLIND_ROW || (row == LATE_ROW && key < LATE_KEYS);
        ((uint16_t *)x->stored[WA_BIAS])[i] =
            blind ? none : wa_stored_bits(p->dtype, n, bias_powers[head]);
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_window_numbers_make(const wa_problem *test,
                                      wa_window_numbers *x)
{
    static const int key_powers[] = {KEY_POWER};
    const size_t dim = test->head_dim;
    const size_t rows = (size_t)WINDOWS * HEADS * test->queries;
    memset(x, 0, sizeof *x);
    x->problem = test;
    x->random = 1;
    WA_TRY(make_input(x, WA_Q, test->queries * dim, HEADS, query_powers));
    WA_TRY(make_input(x, WA_K, test->keys * dim, 1, key_powers));
    WA_TRY(make_input(x, WA_V, test->keys * dim, 1, key_powers));
    if (test->bias != WINATTN_BIAS_NONE)
        WA_TRY(make_bias(x));
    if (test->variant == WINATTN_COSINE) {
        WA_TRY(make_room(x, WA_LOGIT_SCALE, sizeof logit_scales));
        memcpy(x->stored[WA_LOGIT_SCALE], logit_scales, sizeof logit_scales);
    }
    WA_TRY(make_room(x, WA_O, 2 * rows * dim));
    return make_room(x, WA_LSE, rows * sizeof(float));
}

void wa_window_numbers_free(wa_window_numbers *x)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        free(x->stored[id]);
}

/* ---- What must come out ---- */

static double value_at(const wa_window_numbers *x, wa_tensor_id id, size_t i)
{
    return wa_stored_value(x->problem->dtype,
                           ((const uint16_t *)x->stored[id])[i]);
}

static double bias_of(const wa_window_numbers *x, uint32_t head, uint32_t row,
                      uint32_t key)
{
    const wa_problem *p = x->problem;
    const size_t at = ((size_t)head * p->queries + row) * p->keys + key;
    return x->stored[WA_BIAS] ? value_at(x, WA_BIAS, at) : 0;
}

/* Of rows that start at an element; a length of a row of zeros is 1. */
static double multiply_rows(const wa_window_numbers *x, size_t q, size_t k)
{
    double dot = 0, of_q = 0, of_k = 0;
    for (uint32_t c = 0; c < x->problem->head_dim; c++) {
        const double a = value_at(x, WA_Q, q + c),
                     b = value_at(x, WA_K, k + c);
        dot += a * b;
        of_q += a * a;
        of_k += b * b;
    }
    if (x->problem->variant == WINATTN_DOT || of_q == 0 || of_k == 0)
        return dot;
    return dot / sqrt(of_q) / sqrt(of_k);
}

/* The weights of a row, which sum to 1 unless it sees nothing; returns lse. */
static double weigh(const wa_window_numbers *x, size_t window, uint32_t head,
                    uint32_t row, double *weights)
{
    const wa_problem *p = x->problem;
    const size_t dim = p->head_dim;
    const size_t q = ((window * HEADS + head) * p->queries + row) * dim;
    const double scale = p->variant == WINATTN_DOT
                             ? (double)p->scale
                             : exp((double)logit_scales[head]);
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < p->keys; key++) {
        weights[key] =
            scale * multiply_rows(x, q, (window * p->keys + key) * dim) +
            bias_of(x, head, row, key);
        top = weights[key] > top ? weights[key] : top;
    }
    for (uint32_t key = 0; key < p->keys; key++)
        sum += weights[key] =
            weights[key] > -INFINITY ? exp(weights[key] - top) : 0;
    for (uint32_t key = 0; key < p->keys && sum > 0; key++)
        weights[key] /= sum;
    return top + log(sum);
}

/* ---- Comparison ---- */

static winattn_status fail_number(const char *what, size_t window,
                                  uint32_t head, uint32_t row, double is,
                                  double exact)
{
    return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                   "wgmma failed its self-test: %s of window %u, head %u, row "
                   "%u is %g, not %g",
                   what, (unsigned)window, head, row, is, exact);
}

static winattn_status compare_row(const wa_window_numbers *x, size_t window,
                                  uint32_t head, uint32_t row, double *weights)
{
    const wa_problem *p = x->problem;
    const size_t dim = p->head_dim;
    const size_t at = (window * HEADS + head) * p->queries + row;
    const double allowed =
        p->dtype == WINATTN_FP16 ? TOLERANCE_FP16 : TOLERANCE_BF16;
    const double lse = weigh(x, window, head, row, weights);
    const double lse_is = ((const float *)x->stored[WA_LSE])[at];
    if (!(lse_is == lse ||
          fabs(lse_is - lse) <=
              TOLERANCE_LSE + TOLERANCE_LARGE_LSE * fabs(lse)))
        return fail_number("lse", window, head, row, lse_is, lse);
    for (uint32_t c = 0; c < dim; c++) {
        const double is = value_at(x, WA_O, at * dim + c);
        double sum = 0;
        for (uint32_t key = 0; key < p->keys; key++)
            sum += weights[key] *
                   value_at(x, WA_V, (window * p->keys + key) * dim + c);
        if (!(fabs(is - sum) <= allowed))
            return fail_number("o", window, head, row, is, sum);
    }
    return WINATTN_SUCCESS;
}

/* Has every row been written, also those that are not held against fp64? */
static winattn_status find_unwritten(const wa_window_numbers *x)
{
    const wa_problem *p = x->problem;
    const size_t of_row = p->head_dim;
    for (size_t i = 0; i < x->bytes[WA_O] / 2; i++) {
        const double is = value_at(x, WA_O, i);
        const size_t row = i / of_row, head = row / p->queries;
        if (isnan(is))
            return fail_number("o", head / HEADS, (uint32_t)(head % HEADS),
                               (uint32_t)(row % p->queries), is, 0);
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_window_numbers_compare(const wa_window_numbers *x)
{
    /* odd: of all rows of a tile some */
    const uint32_t step = (x->problem->queries / ROWS + 1) | 1;
    double *weights = malloc(x->problem->keys * sizeof *weights);
    winattn_status status = weights ? find_unwritten(x) : wa_fail_memory();
    for (uint32_t i = 0; i < WINDOWS * HEADS; i++)
        for (uint32_t row = i % step;
             row < x->problem->queries && status == WINATTN_SUCCESS;
             row += step)
            status = compare_row(x, i / HEADS, i % HEADS, row, weights);
    free(weights);
    return status;
}
