/* SPDX-License-Identifier: Apache-2.0
 * Sliding attention and its gradients, row by row in fp64. */
#include "session/wgmma_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "session/stored_numbers.h"

/* Operands are n times a power of two, |n| <= 8, which both types hold
 * exactly. Queries of the second head are 64 times as large, and its gradients
 * of o a sixteenth, lest it hide what the first adds to dk. */
#define MOST_N 8
static const int query_powers[WA_TEST_HEADS] = {-2, 4};
static const int d_o_powers[WA_TEST_HEADS] = {-3, -7};
static const int key_powers[WA_TEST_HEADS] = {-3, -3};

/* Of o, which is at most 1, of the largest sum of |terms| of a gradient, and
 * of lse. */
#define TOLERANCE_FP16 0x1p-8
#define TOLERANCE_BF16 0x1p-5
#define TOLERANCE_LSE 1e-3

/* ---- Bits ---- */

/* From -MOST_N to MOST_N. */
static int pick(wa_test_numbers *x)
{
    x->random = x->random * 1664525u + 1013904223u;
    return (int)((x->random >> 16) % (2 * MOST_N + 1)) - MOST_N;
}

static double stored_at(const wa_test_numbers *x, const wa_test_tensor *t,
                        size_t i)
{
    const unsigned char *at = (const unsigned char *)t->stored;
    uint16_t bits;
    float wide;
    if (t->element_size == sizeof wide) {
        memcpy(&wide, at + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&bits, at + i * sizeof bits, sizeof bits);
    return wa_stored_value(x->dtype, bits);
}

/* ---- Tensors ---- */

static size_t elements(const wa_test_tensor *t)
{
    return (size_t)t->heads * WA_TEST_TOKENS * t->channels;
}

size_t wa_test_bytes(const wa_test_tensor *tensor)
{
    return elements(tensor) * tensor->element_size;
}

static winattn_status add_tensor(wa_test_numbers *x, wa_tensor_id id,
                                 uint32_t heads)
{
    wa_test_tensor *t = &x->tensor[id];
    t->heads = heads;
    t->channels = id == WA_LSE ? 1 : x->dim;
    t->element_size = id == WA_LSE ? sizeof(float) : sizeof(uint16_t);
    t->stored = malloc(wa_test_bytes(t));
    t->exact = calloc(elements(t), sizeof *t->exact);
    t->sizes = calloc(elements(t), sizeof *t->sizes);
    if (!t->stored || !t->exact || !t->sizes)
        return wa_fail_memory();
    /* what no kernel writes is no number */
    memset(t->stored, 0xff, wa_test_bytes(t));
    return WINATTN_SUCCESS;
}

static winattn_status add_input(wa_test_numbers *x, wa_tensor_id id,
                                uint32_t heads,
                                const int powers[WA_TEST_HEADS])
{
    WA_TRY(add_tensor(x, id, heads));
    wa_test_tensor *t = &x->tensor[id];
    const size_t of_head = elements(t) / heads;
    for (size_t i = 0; i < elements(t); i++) {
        const int n = pick(x), power = powers[i / of_head];
        ((uint16_t *)t->stored)[i] = wa_stored_bits(x->dtype, n, power);
        t->exact[i] = wa_scaled(n, power);
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_test_numbers_make(winattn_dtype dtype, uint32_t dim,
                                    wa_pass pass, wa_test_numbers *x)
{
    memset(x, 0, sizeof *x);
    x->dtype = dtype;
    x->dim = dim;
    x->random = 1;
    WA_TRY(add_input(x, WA_Q, WA_TEST_HEADS, query_powers));
    WA_TRY(add_input(x, WA_K, 1, key_powers));
    WA_TRY(add_input(x, WA_V, 1, key_powers));
    if (pass == WA_FORWARD) {
        WA_TRY(add_tensor(x, WA_O, WA_TEST_HEADS));
        return add_tensor(x, WA_LSE, WA_TEST_HEADS);
    }
    WA_TRY(add_input(x, WA_D_O, WA_TEST_HEADS, d_o_powers));
    WA_TRY(add_tensor(x, WA_DQ, WA_TEST_HEADS));
    WA_TRY(add_tensor(x, WA_DK, 1));
    return add_tensor(x, WA_DV, 1);
}

void wa_test_numbers_free(wa_test_numbers *x)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        free(x->tensor[id].stored);
        free(x->tensor[id].exact);
        free(x->tensor[id].sizes);
    }
}

/* ---- What must come out ---- */

static uint32_t block_of(uint32_t token)
{
    return token < WA_TEST_FIRST_BLOCK
               ? 0
               : 1 + (token - WA_TEST_FIRST_BLOCK) / WA_TEST_BLOCK;
}

static bool sees(uint32_t query, uint32_t key)
{
    const uint32_t b = block_of(query), c = block_of(key);
    return c <= b && (c + WA_TEST_WINDOW_BLOCKS > b || key < WA_TEST_SINK);
}

static double product(const wa_test_numbers *x, const double *a,
                      const double *b)
{
    double sum = 0;
    for (uint32_t c = 0; c < x->dim; c++)
        sum += a[c] * b[c];
    return sum;
}

/* The weights of a row, which sum to 1; returns lse. */
static double weigh(const wa_test_numbers *x, uint32_t head, uint32_t query,
                    double *weights)
{
    const double *q = x->tensor[WA_Q].exact +
                      ((size_t)head * WA_TEST_TOKENS + query) * x->dim;
    const double *k = x->tensor[WA_K].exact;
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < WA_TEST_TOKENS; key++) {
        weights[key] =
            sees(query, key)
                ? WA_TEST_SCALE * product(x, q, k + (size_t)key * x->dim)
                : -INFINITY;
        top = weights[key] > top ? weights[key] : top;
    }
    for (uint32_t key = 0; key < WA_TEST_TOKENS; key++)
        sum += weights[key] = exp(weights[key] - top);
    for (uint32_t key = 0; key < WA_TEST_TOKENS; key++)
        weights[key] /= sum;
    return top + log(sum);
}

/* Adds a row times a factor to the row of t that starts at an element. */
static void add_row(const wa_test_tensor *t, size_t at, double factor,
                    const double *row)
{
    double *sums = t->exact + at, *sizes = t->sizes + at;
    for (uint32_t c = 0; c < t->channels; c++) {
        const double term = factor * row[c];
        sums[c] += term;
        sizes[c] += fabs(term);
    }
}

static void expect_row(wa_test_numbers *x, uint32_t head, uint32_t query)
{
    const size_t row = (size_t)head * WA_TEST_TOKENS + query;
    double weights[WA_TEST_TOKENS];
    x->tensor[WA_LSE].exact[row] = weigh(x, head, query, weights);
    for (uint32_t key = 0; key < WA_TEST_TOKENS; key++)
        if (weights[key] > 0)
            add_row(&x->tensor[WA_O], row * x->dim, weights[key],
                    x->tensor[WA_V].exact + (size_t)key * x->dim);
}

/* dP = dO V^T, dS = P (dP - delta), where delta is the sum of P dP. */
static void expect_gradients(wa_test_numbers *x, uint32_t head, uint32_t query)
{
    const size_t row = ((size_t)head * WA_TEST_TOKENS + query) * x->dim;
    const double *q = x->tensor[WA_Q].exact + row;
    const double *d_o = x->tensor[WA_D_O].exact + row;
    const double *k = x->tensor[WA_K].exact, *v = x->tensor[WA_V].exact;
    double p[WA_TEST_TOKENS], dp[WA_TEST_TOKENS], delta = 0;
    weigh(x, head, query, p);
    for (uint32_t key = 0; key < WA_TEST_TOKENS; key++) {
        dp[key] = p[key] > 0 ? product(x, d_o, v + (size_t)key * x->dim) : 0;
        delta += p[key] * dp[key];
    }
    for (uint32_t key = 0; key < WA_TEST_TOKENS; key++) {
        const size_t at = (size_t)key * x->dim;
        const double ds = WA_TEST_SCALE * p[key] * (dp[key] - delta);
        if (p[key] == 0)
            continue;
        add_row(&x->tensor[WA_DQ], row, ds, k + at);
        add_row(&x->tensor[WA_DK], at, ds, q);
        add_row(&x->tensor[WA_DV], at, p[key], d_o);
    }
}

static void allow(const wa_test_numbers *x, wa_tensor_id id, wa_test_tensor *t)
{
    const double tolerance =
        x->dtype == WINATTN_FP16 ? TOLERANCE_FP16 : TOLERANCE_BF16;
    const size_t of_head = elements(t) / t->heads;
    for (uint32_t head = 0; head < t->heads; head++) {
        double largest = 0;
        for (size_t i = head * of_head; i < (head + 1) * of_head; i++)
            largest = t->sizes[i] > largest ? t->sizes[i] : largest;
        t->allowed[head] = id == WA_LSE ? TOLERANCE_LSE
                           : id == WA_O ? tolerance
                                        : tolerance * largest;
    }
}

/* ---- Comparison ---- */

static winattn_status compare_tensor(const wa_test_numbers *x, wa_tensor_id id)
{
    const wa_test_tensor *t = &x->tensor[id];
    const size_t of_head = elements(t) / t->heads;
    for (size_t i = 0; i < elements(t); i++) {
        const double is = stored_at(x, t, i);
        const uint32_t head = (uint32_t)(i / of_head);
        const uint32_t row = (uint32_t)(i % of_head / t->channels);
        if (!(fabs(is - t->exact[i]) <= t->allowed[head]))
            return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                           "wgmma failed its self-test: %s of head %u, row "
                           "%u, channel %u is %g, not %g",
                           wa_tensor_name(id), head, row,
                           (unsigned)(i % t->channels), is, t->exact[i]);
    }
    return WINATTN_SUCCESS;
}

winattn_status wa_test_numbers_compare(wa_pass pass, wa_test_numbers *x)
{
    for (uint32_t head = 0; head < WA_TEST_HEADS; head++)
        for (uint32_t query = 0; query < WA_TEST_TOKENS; query++)
            (pass == WA_FORWARD ? expect_row : expect_gradients)(x, head,
                                                                 query);
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++) {
        if (x->tensor[id].heads == 0 || wa_tensor_role(id, pass) == WA_INPUT)
            continue;
        allow(x, id, &x->tensor[id]);
        WA_TRY(compare_tensor(x, id));
    }
    return WINATTN_SUCCESS;
}
