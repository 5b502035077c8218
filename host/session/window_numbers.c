/* SPDX-License-Identifier: Apache-2.0
 * Attention in windows, row by row in fp64. */
#include "session/window_numbers.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "session/stored_numbers.h"
#include "session/window_places.h"

#define HEADS WA_WINDOW_TEST_HEADS

/* Operands are n times a power of two, |n| <= 8. Queries of the second head
 * are 64 times as large, or for gradients 512, and its biases grow along the
 * keys, by some hundreds in all, so that weights need other bases. */
#define MOST_N 8
static const int query_powers[WA_PASSES][HEADS] = {{-2, 4}, {-2, 7}};
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
/* This one of the second head, where gradients are wanted, has the lowest
 * number with all keys, beside which the logarithm of their sum is nothing. */
#define LOWEST_ROW 7u

/* Of each head and window so many rows at most are compared with fp64. */
#define ROWS 64u

/* Of o, which is at most 1, and of lse. */
#define TOLERANCE_FP16 0x1p-8
#define TOLERANCE_BF16 0x1p-5
#define TOLERANCE_LSE 1e-3
#define TOLERANCE_LARGE_LSE 1e-5 /* relative */

/* Every other window has these regions; the others are of the first one. */
#define MASK_WINDOWS 2u
#define REGIONS 3u

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

/* Rows of so many elements, as they follow each other. */
static void set_rows(wa_problem *test, wa_tensor_id id, uint64_t heads,
                     uint64_t rows, uint64_t elements)
{
    wa_tensor *tensor = &test->tensor[id];
    const uint64_t plane = wa_window_plane_rows(test, rows) * elements;
    set_strides(tensor, heads * plane, plane, elements);
    if (!test->grid.used)
        return;
    tensor->stride[WA_AXIS_1] = test->grid.size[2] * elements;
    tensor->stride[WA_AXIS_0] = tensor->stride[WA_AXIS_1] * test->grid.size[1];
}

/* Extents too, which sums over windows go by. */
static void set_shared(wa_tensor *tensor, uint64_t rows, uint64_t columns)
{
    set_strides(tensor, 0, rows * columns, columns);
    tensor->extent[WA_HEAD] = HEADS;
    tensor->extent[WA_ROW] = rows;
    tensor->extent[WA_COLUMN] = columns;
}

static void set_gradients(wa_problem *test)
{
    static const wa_tensor_id of_queries[] = {WA_D_O, WA_DQ},
                              of_keys[] = {WA_DK, WA_DV};
    const bool has_table = test->table.used;
    for (size_t i = 0; i < sizeof of_queries / sizeof *of_queries; i++)
        set_rows(test, of_queries[i], HEADS, test->queries, test->head_dim);
    for (size_t i = 0; i < sizeof of_keys / sizeof *of_keys; i++)
        set_rows(test, of_keys[i], HEADS, test->keys, test->head_dim);
    set_shared(&test->tensor[WA_DBIAS],
               has_table ? wa_window_biases(test) : test->queries,
               has_table ? 1 : test->keys);
    set_shared(&test->tensor[WA_D_LOGIT_SCALE], 1, 1);
}

wa_problem wa_window_test_problem(const wa_problem *problem, wa_pass pass)
{
    wa_problem test = *problem;
    const uint64_t dim = problem->head_dim;
    const uint64_t queries = problem->queries, keys = problem->keys;
    test.windows = pass == WA_BACKWARD ? WA_GRADIENT_TEST_WINDOWS
                                       : WA_WINDOW_TEST_WINDOWS;
    test.heads = HEADS;
    test.kv_heads = pass == WA_BACKWARD ? HEADS : 1;
    test.scale = problem->variant == WINATTN_DOT ? DOT_SCALE : problem->scale;
    wa_place_windows(&test);
    set_rows(&test, WA_Q, HEADS, queries, dim);
    set_rows(&test, WA_O, HEADS, queries, dim);
    set_rows(&test, WA_K, test.kv_heads, keys, dim);
    set_rows(&test, WA_V, test.kv_heads, keys, dim);
    set_rows(&test, WA_LSE, HEADS, queries, 1);
    set_strides(&test.tensor[WA_BIAS], 0, wa_window_biases(&test),
                test.table.used ? 1 : keys);
    if (MASK_READS_REGIONS(problem->mask)) {
        test.mask_windows = MASK_WINDOWS;
        set_strides(&test.tensor[WA_QUERY_REGIONS], queries, 0, 1);
        set_strides(&test.tensor[WA_KEY_REGIONS], keys, 0, 1);
    }
    if (pass == WA_BACKWARD)
        set_gradients(&test);
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

/* Elements of the stored type, of so many heads and rows of a window. */
static winattn_status make_input(wa_window_numbers *x, wa_tensor_id id,
                                 uint32_t heads, uint32_t rows,
                                 const int *powers)
{
    const wa_problem *p = x->problem;
    const size_t plane = (size_t)wa_window_plane_rows(p, rows) * p->head_dim;
    const size_t all = (size_t)p->windows * heads * rows * p->head_dim;
    WA_TRY(make_room(x, id, 2 * all));
    for (size_t i = 0; i < all; i++)
        ((uint16_t *)x->stored[id])[i] =
            wa_stored_bits(p->dtype, pick(x), powers[i / plane % heads]);
    return WINATTN_SUCCESS;
}

static winattn_status make_bias(wa_window_numbers *x)
{
    const wa_problem *p = x->problem;
    const uint16_t none = p->dtype == WINATTN_FP16 ? 0xfc00u : 0xff80u;
    const uint16_t lowest = none - 1; /* as bits go */
    const size_t of_head = wa_window_biases(p);
    const size_t columns = p->table.used ? of_head : p->keys;
    WA_TRY(make_room(x, WA_BIAS, of_head * HEADS * 2));
    for (size_t i = 0; i < of_head * HEADS; i++) {
        const size_t head = i / of_head;
        const size_t row = i % of_head / columns, key = i % columns;
        const int grown = head > 0 ? (int)(key * GROWTH / columns) : 0;
        const int n = pick(x) + grown;
        /* no entry of a table is of one row alone */
        const bool blind =
            row == BLIND_ROW || (row == LATE_ROW && key < LATE_KEYS);
        const bool is_lowest =
            x->pass == WA_BACKWARD && head > 0 && row == LOWEST_ROW;
        ((uint16_t *)x->stored[WA_BIAS])[i] =
            blind       ? none
            : is_lowest ? lowest
                        : wa_stored_bits(p->dtype, n, bias_powers[head]);
    }
    return WINATTN_SUCCESS;
}

/* Neighbours differ as well as halves do, and rows from their keys. */
static winattn_status make_regions(wa_window_numbers *x, wa_tensor_id id,
                                   size_t tokens)
{
    WA_TRY(make_room(x, id, MASK_WINDOWS * tokens));
    uint8_t *regions = x->stored[id];
    for (size_t i = 0; i < tokens; i++) {
        regions[i] = 0;
        regions[tokens + i] =
            (uint8_t)((i % REGIONS + i * 2 / tokens + id) % REGIONS);
    }
    return WINATTN_SUCCESS;
}

static size_t lse_bytes(const wa_problem *p)
{
    return (size_t)p->windows * HEADS * p->queries * sizeof(float);
}

static winattn_status make_outputs(wa_window_numbers *x)
{
    const wa_problem *p = x->problem;
    const size_t dim = p->head_dim, heads = (size_t)p->windows * HEADS;
    const size_t of_queries = 2 * heads * p->queries * dim;
    const size_t of_keys = 2 * heads * p->keys * dim;
    if (x->pass == WA_FORWARD) {
        WA_TRY(make_room(x, WA_O, of_queries));
        return make_room(x, WA_LSE, lse_bytes(p));
    }
    WA_TRY(make_room(x, WA_DQ, of_queries));
    WA_TRY(make_room(x, WA_DK, of_keys));
    WA_TRY(make_room(x, WA_DV, of_keys));
    if (p->bias != WINATTN_BIAS_NONE)
        WA_TRY(make_room(x, WA_DBIAS,
                         HEADS * wa_window_biases(p) * sizeof(float)));
    return p->variant == WINATTN_COSINE
               ? make_room(x, WA_D_LOGIT_SCALE, HEADS * sizeof(float))
               : WINATTN_SUCCESS;
}

/* What gradients are given of the forward pass: lse, and the first of twins o.
 */
static winattn_status make_given(wa_window_numbers *x,
                                 const wa_window_numbers *twin)
{
    const wa_problem *p = x->problem;
    const size_t bytes = lse_bytes(p);
    const size_t rows = (size_t)p->windows * HEADS * p->queries;
    WA_TRY(make_room(x, WA_LSE, bytes));
    if (twin) {
        memcpy(x->stored[WA_LSE], twin->stored[WA_LSE], bytes);
        return WINATTN_SUCCESS;
    }
    WA_TRY(make_room(x, WA_O, 2 * rows * p->head_dim));
    return wa_find_window_outputs(x, x->stored[WA_LSE], x->stored[WA_O]);
}

winattn_status wa_window_numbers_make(const wa_problem *test, wa_pass pass,
                                      const wa_window_numbers *twin,
                                      wa_window_numbers *x)
{
    static const int key_powers[HEADS] = {KEY_POWER, KEY_POWER};
    const uint32_t queries = test->queries, keys = test->keys;
    const uint32_t key_heads = test->kv_heads;
    memset(x, 0, sizeof *x);
    x->problem = test;
    x->pass = pass;
    x->random = 1;
    WA_TRY(make_input(x, WA_Q, HEADS, queries, query_powers[pass]));
    WA_TRY(make_input(x, WA_K, key_heads, keys, key_powers));
    WA_TRY(make_input(x, WA_V, key_heads, keys, key_powers));
    if (pass == WA_BACKWARD)
        WA_TRY(make_input(x, WA_D_O, HEADS, queries, key_powers));
    if (test->bias != WINATTN_BIAS_NONE)
        WA_TRY(make_bias(x));
    if (MASK_READS_REGIONS(test->mask)) {
        WA_TRY(make_regions(x, WA_QUERY_REGIONS, queries));
        WA_TRY(make_regions(x, WA_KEY_REGIONS, keys));
    }
    if (test->variant == WINATTN_COSINE) {
        WA_TRY(make_room(x, WA_LOGIT_SCALE, sizeof logit_scales));
        memcpy(x->stored[WA_LOGIT_SCALE], logit_scales, sizeof logit_scales);
    }
    if (pass == WA_BACKWARD)
        WA_TRY(make_given(x, twin));
    return make_outputs(x);
}

void wa_window_numbers_free(wa_window_numbers *x)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        free(x->stored[id]);
}

/* ---- What must come out ---- */

double wa_window_value(const wa_window_numbers *x, wa_tensor_id id, size_t i)
{
    return wa_stored_value(x->problem->dtype,
                           ((const uint16_t *)x->stored[id])[i]);
}

double wa_window_score_bias(const wa_window_numbers *x, size_t window,
                            uint32_t head, uint32_t row, uint32_t key)
{
    const wa_problem *p = x->problem;
    const size_t at = head * wa_window_biases(p) + wa_window_bias(p, row, key);
    const uint8_t *of_rows = x->stored[WA_QUERY_REGIONS];
    const uint8_t *of_keys = x->stored[WA_KEY_REGIONS];
    const size_t mask = window % MASK_WINDOWS;
    const bool differ = of_rows ? of_rows[mask * p->queries + row] !=
                                      of_keys[mask * p->keys + key]
                                : wa_window_is_parted(p, window, row, key);
    return (x->stored[WA_BIAS] ? wa_window_value(x, WA_BIAS, at) : 0) +
           (differ ? (double)p->region_value : 0);
}

double wa_window_scale(const wa_window_numbers *x, uint32_t head)
{
    return x->problem->variant == WINATTN_DOT
               ? (double)x->problem->scale
               : exp((double)logit_scales[head]);
}

double wa_weigh_window_row(double *row, uint32_t keys)
{
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < keys; key++)
        top = row[key] > top ? row[key] : top;
    for (uint32_t key = 0; key < keys; key++)
        sum += row[key] = row[key] > -INFINITY ? exp(row[key] - top) : 0;
    for (uint32_t key = 0; key < keys && sum > 0; key++)
        row[key] /= sum;
    return top + log(sum);
}

/* Of rows that start at an element; a length of a row of zeros is 1. */
static double multiply_rows(const wa_window_numbers *x, size_t q, size_t k)
{
    double dot = 0, of_q = 0, of_k = 0;
    for (uint32_t c = 0; c < x->problem->head_dim; c++) {
        const double a = wa_window_value(x, WA_Q, q + c),
                     b = wa_window_value(x, WA_K, k + c);
        dot += a * b;
        of_q += a * a;
        of_k += b * b;
    }
    if (x->problem->variant == WINATTN_DOT || of_q == 0 || of_k == 0)
        return dot;
    return dot / sqrt(of_q) / sqrt(of_k);
}

/* Of the forward pass, whose heads share keys. */
static size_t key_row(const wa_window_numbers *x, size_t window, uint32_t key)
{
    return wa_window_row(x->problem, window, 0, 1, x->problem->keys, key);
}

/* The weights of a row; returns lse. */
static double weigh(const wa_window_numbers *x, size_t window, uint32_t head,
                    uint32_t row, double *weights)
{
    const wa_problem *p = x->problem;
    const size_t dim = p->head_dim;
    const size_t q =
        wa_window_row(p, window, head, HEADS, p->queries, row) * dim;
    const double scale = wa_window_scale(x, head);
    for (uint32_t key = 0; key < p->keys; key++)
        weights[key] =
            scale * multiply_rows(x, q, key_row(x, window, key) * dim) +
            wa_window_score_bias(x, window, head, row, key);
    return wa_weigh_window_row(weights, p->keys);
}

/* ---- Comparison ---- */

winattn_status wa_fail_window_number(const char *what, size_t window,
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
    const size_t at = wa_window_row(p, window, head, HEADS, p->queries, row);
    const double allowed =
        p->dtype == WINATTN_FP16 ? TOLERANCE_FP16 : TOLERANCE_BF16;
    const double lse = weigh(x, window, head, row, weights);
    const double lse_is = ((const float *)x->stored[WA_LSE])[at];
    if (!(lse_is == lse ||
          fabs(lse_is - lse) <=
              TOLERANCE_LSE + TOLERANCE_LARGE_LSE * fabs(lse)))
        return wa_fail_window_number("lse", window, head, row, lse_is, lse);
    for (uint32_t c = 0; c < dim; c++) {
        const double is = wa_window_value(x, WA_O, at * dim + c);
        double sum = 0;
        for (uint32_t key = 0; key < p->keys; key++)
            sum += weights[key] *
                   wa_window_value(x, WA_V, key_row(x, window, key) * dim + c);
        if (!(fabs(is - sum) <= allowed))
            return wa_fail_window_number("o", window, head, row, is, sum);
    }
    return WINATTN_SUCCESS;
}

/* Has a row been written that is not compared with fp64? */
static winattn_status find_unwritten(const wa_window_numbers *x, size_t window,
                                     uint32_t head, uint32_t row)
{
    const wa_problem *p = x->problem;
    const size_t at = wa_window_row(p, window, head, HEADS, p->queries, row);
    for (uint32_t c = 0; c < p->head_dim; c++) {
        const double is = wa_window_value(x, WA_O, at * p->head_dim + c);
        if (isnan(is))
            return wa_fail_window_number("o", window, head, row, is, 0);
    }
    return WINATTN_SUCCESS;
}

static winattn_status compare_rows(const wa_window_numbers *x)
{
    /* odd: of all rows of a tile some */
    const uint32_t step = (x->problem->queries / ROWS + 1) | 1;
    double *weights = malloc(x->problem->keys * sizeof *weights);
    winattn_status status = weights ? WINATTN_SUCCESS : wa_fail_memory();
    for (uint32_t i = 0; i < WA_WINDOW_TEST_WINDOWS * HEADS; i++)
        for (uint32_t row = 0;
             row < x->problem->queries && status == WINATTN_SUCCESS; row++)
            status = row % step == i % step
                         ? compare_row(x, i / HEADS, i % HEADS, row, weights)
                         : find_unwritten(x, i / HEADS, i % HEADS, row);
    free(weights);
    return status;
}

static winattn_status compare_bits(const wa_window_numbers *aligned,
                                   const wa_window_numbers *shifted)
{
    for (wa_tensor_id id = 0; id < WA_TENSORS; id++)
        if (aligned->stored[id] &&
            memcmp(aligned->stored[id], shifted->stored[id],
                   aligned->bytes[id]) != 0)
            return wa_fail(WINATTN_UNSUPPORTED_DEVICE,
                           "wgmma failed its self-test: %s is not the same "
                           "with tensors that are not aligned",
                           wa_tensor_name(id));
    return WINATTN_SUCCESS;
}

winattn_status wa_window_numbers_compare(const wa_window_numbers *aligned,
                                         const wa_window_numbers *shifted)
{
    if (aligned->pass == WA_BACKWARD)
        return wa_compare_window_gradients(aligned, shifted);
    WA_TRY(compare_rows(aligned));
    return compare_bits(aligned, shifted);
}
