/* SPDX-License-Identifier: Apache-2.0
 * Gradients of attention in windows, in fp64: with P the weights of a row and
 * dP = dO V^T, dS = P (dP - delta), where delta is the sum of P dP. How far
 * off a gradient may be follows from the sizes of what it sums, where that of
 * dS is P (|dP| + |delta|). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "session/stored_numbers.h"
#include "session/window_numbers.h"
#include "session/window_places.h"

#define HEADS WA_WINDOW_TEST_HEADS

/* Of the largest size that a head has in a window, or in all. */
#define TOLERANCE_FP16 0x1p-8
#define TOLERANCE_BF16 0x1p-5

/* Weights that no result shows. */
#define NOTHING 1e-9

/* Of a step by which o, which is at most 1, is rounded: such that as few bits
 * as its type has suffice, and far more than its rounding. */
#define FINE_POWER_FP16 (-10)
#define FINE_POWER_BF16 (-7)
#define COARSE_POWER (-3)

/* A tensor of one head in one window: rows of channels, in the cosine variant
 * q and k of length 1. */
typedef struct rows {
    double *number, *size;
} rows;

/* What belongs to one head: in a window, and over all of them. */
typedef struct head_numbers {
    const wa_window_numbers *x, *twin; /* with the same inputs */
    uint32_t head;
    size_t window;                   /* at present */
    size_t dim, of_queries, of_keys; /* numbers */
    double scale, tolerance;
    double *q, *k, *v, *d_o;
    double *length_q, *length_k;
    double *p, *dp; /* of a row */
    rows dq, dk, dv;
    rows d_bias;
    double d_scale, size_of_d_scale;
} head_numbers;

/* ---- Memory ---- */

/* Hands out what lies behind `all`, and says how much that is; NULL: only
 * that. */
static size_t hand_out(head_numbers *h, double *all)
{
    const wa_problem *p = h->x->problem;
    const size_t q = h->of_queries, k = h->of_keys;
    const size_t biases = wa_window_biases(p);
    const struct {
        double **to;
        size_t count;
    } parts[] = {
        {&h->q, q},
        {&h->d_o, q},
        {&h->dq.number, q},
        {&h->dq.size, q},
        {&h->k, k},
        {&h->v, k},
        {&h->dk.number, k},
        {&h->dk.size, k},
        {&h->dv.number, k},
        {&h->dv.size, k},
        {&h->p, p->keys},
        {&h->dp, p->keys},
        {&h->length_q, p->queries},
        {&h->length_k, p->keys},
        {&h->d_bias.number, biases},
        {&h->d_bias.size, biases},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (all)
            *parts[i].to = all + used;
        used += parts[i].count;
    }
    return used;
}

/* ---- Inputs ---- */

/* Where a row starts, of a tensor with so many numbers of a window. */
static size_t row_at(const head_numbers *h, size_t window, size_t count,
                     size_t row)
{
    return wa_window_row(h->x->problem, window, h->head, HEADS,
                         (uint32_t)(count / h->dim), (uint32_t)row) *
           h->dim;
}

/* Of a window; length: NULL, or what rows are divided by. */
static void read_rows(const head_numbers *h, wa_tensor_id id, size_t window,
                      size_t count, double *to, double *length)
{
    for (size_t row = 0; row < count / h->dim; row++) {
        const size_t from = row_at(h, window, count, row);
        double square = 0;
        for (size_t c = 0; c < h->dim; c++)
            to[row * h->dim + c] = wa_window_value(h->x, id, from + c);
        if (!length)
            continue;
        for (size_t c = 0; c < h->dim; c++)
            square += to[row * h->dim + c] * to[row * h->dim + c];
        length[row] = h->x->problem->variant == WINATTN_COSINE && square > 0
                          ? sqrt(square)
                          : 1;
        for (size_t c = 0; c < h->dim; c++)
            to[row * h->dim + c] /= length[row];
    }
}

static void begin_window(head_numbers *h, size_t window)
{
    const rows *to[] = {&h->dq, &h->dk, &h->dv};
    h->window = window;
    read_rows(h, WA_Q, window, h->of_queries, h->q, h->length_q);
    read_rows(h, WA_K, window, h->of_keys, h->k, h->length_k);
    read_rows(h, WA_V, window, h->of_keys, h->v, NULL);
    read_rows(h, WA_D_O, window, h->of_queries, h->d_o, NULL);
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        const size_t count = i == 0 ? h->of_queries : h->of_keys;
        memset(to[i]->number, 0, count * sizeof(double));
        memset(to[i]->size, 0, count * sizeof(double));
    }
}

/* ---- What must come out ---- */

static double product(const head_numbers *h, const double *a, const double *b)
{
    double sum = 0;
    for (size_t c = 0; c < h->dim; c++)
        sum += a[c] * b[c];
    return sum;
}

static void add(const head_numbers *h, const rows *to, size_t row,
                double factor, double size, const double *what)
{
    for (size_t c = 0; c < h->dim; c++) {
        to->number[row * h->dim + c] += factor * what[c];
        to->size[row * h->dim + c] += size * fabs(what[c]);
    }
}

/* dS of row and key, and its size. */
static void add_pair(head_numbers *h, uint32_t row, uint32_t key, double ds,
                     double size)
{
    const double *q = h->q + row * h->dim, *k = h->k + key * h->dim;
    const size_t pair = wa_window_bias(h->x->problem, row, key);
    const double logit = h->scale * product(h, q, k);
    add(h, &h->dq, row, h->scale * ds, h->scale * size, k);
    add(h, &h->dk, key, h->scale * ds, h->scale * size, q);
    add(h, &h->dv, key, h->p[key], h->p[key], h->d_o + row * h->dim);
    h->d_bias.number[pair] += ds;
    h->d_bias.size[pair] += size;
    h->d_scale += ds * logit;
    h->size_of_d_scale += size * fabs(logit);
}

/* A row's weights; returns its lse. */
static double weigh_row(head_numbers *h, uint32_t row)
{
    const uint32_t keys = h->x->problem->keys;
    for (uint32_t key = 0; key < keys; key++)
        h->p[key] =
            h->scale * product(h, h->q + row * h->dim, h->k + key * h->dim) +
            wa_window_score_bias(h->x, h->window, h->head, row, key);
    return wa_weigh_window_row(h->p, keys);
}

static void add_row(head_numbers *h, uint32_t row)
{
    const uint32_t keys = h->x->problem->keys;
    double delta = 0;
    weigh_row(h, row);
    for (uint32_t key = 0; key < keys; key++) {
        h->dp[key] = product(h, h->d_o + row * h->dim, h->v + key * h->dim);
        delta += h->p[key] * h->dp[key];
    }
    for (uint32_t key = 0; key < keys; key++)
        if (h->p[key] > NOTHING)
            add_pair(h, row, key, h->p[key] * (h->dp[key] - delta),
                     h->p[key] * (fabs(h->dp[key]) + fabs(delta)));
}

/* Gradients of rows of length 1 become those of the rows, x long times as
 * much: (d - x (x . d)) / length. */
static void take_back_norms(const head_numbers *h, const rows *to,
                            const double *x, const double *length,
                            size_t count)
{
    for (size_t row = 0; row < count; row++) {
        double *d = to->number + row * h->dim;
        const double *own = x + row * h->dim;
        const double along = product(h, own, d);
        for (size_t c = 0; c < h->dim; c++) {
            d[c] = (d[c] - own[c] * along) / length[row];
            to->size[row * h->dim + c] /= length[row];
        }
    }
}

/* ---- Comparison ---- */

/* Numbers as they were stored: of the test's type, or floats. */
static double result_at(const wa_window_numbers *x, wa_tensor_id id, size_t i)
{
    return id == WA_DBIAS || id == WA_D_LOGIT_SCALE
               ? ((const float *)x->stored[id])[i]
               : wa_window_value(x, id, i);
}

static double largest_of(const double *x, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* `count` results of a tensor, from `first` on, which are a row. */
static winattn_status compare_row(const head_numbers *h, wa_tensor_id id,
                                  const double *exact, size_t first,
                                  size_t count, double allowed, size_t window,
                                  size_t row)
{
    const wa_window_numbers *const results[] = {h->x, h->twin};
    for (size_t i = 0; i < 2 * count; i++) {
        const double is = result_at(results[i % 2], id, first + i / 2);
        if (!(fabs(is - exact[i / 2]) <= allowed))
            return wa_fail_window_number(wa_tensor_name(id), window, h->head,
                                         (uint32_t)row, is, exact[i / 2]);
    }
    return WINATTN_SUCCESS;
}

/* So many numbers of a head in a window, by rows. */
static winattn_status compare_rows(const head_numbers *h, wa_tensor_id id,
                                   const rows *exact, size_t count,
                                   size_t window)
{
    const double allowed = h->tolerance * largest_of(exact->size, count);
    for (size_t row = 0; row < count / h->dim; row++)
        WA_TRY(compare_row(h, id, exact->number + row * h->dim,
                           row_at(h, window, count, row), h->dim, allowed,
                           window, row));
    return WINATTN_SUCCESS;
}

/* Sums over windows, in rows of `columns`. */
static winattn_status compare_sums(const head_numbers *h, wa_tensor_id id,
                                   const rows *exact, size_t count,
                                   size_t columns)
{
    const double allowed = h->tolerance * largest_of(exact->size, count);
    for (size_t i = 0; i < count; i += columns)
        WA_TRY(compare_row(h, id, exact->number + i, h->head * count + i,
                           columns, allowed, 0, i / columns));
    return WINATTN_SUCCESS;
}

static winattn_status compare_window(head_numbers *h, size_t window)
{
    const wa_problem *p = h->x->problem;
    begin_window(h, window);
    for (uint32_t row = 0; row < p->queries; row++)
        add_row(h, row);
    if (p->variant == WINATTN_COSINE) {
        take_back_norms(h, &h->dq, h->q, h->length_q, p->queries);
        take_back_norms(h, &h->dk, h->k, h->length_k, p->keys);
    }
    WA_TRY(compare_rows(h, WA_DQ, &h->dq, h->of_queries, window));
    WA_TRY(compare_rows(h, WA_DK, &h->dk, h->of_keys, window));
    return compare_rows(h, WA_DV, &h->dv, h->of_keys, window);
}

static winattn_status compare_head(head_numbers *h)
{
    const wa_problem *p = h->x->problem;
    const size_t biases = wa_window_biases(p);
    const rows d_scale = {&h->d_scale, &h->size_of_d_scale};
    h->d_scale = h->size_of_d_scale = 0;
    memset(h->d_bias.number, 0, biases * sizeof(double));
    memset(h->d_bias.size, 0, biases * sizeof(double));
    for (size_t window = 0; window < p->windows; window++)
        WA_TRY(compare_window(h, window));
    if (h->x->stored[WA_DBIAS])
        WA_TRY(compare_sums(h, WA_DBIAS, &h->d_bias, biases,
                            p->table.used ? 1 : p->keys));
    return h->x->stored[WA_D_LOGIT_SCALE]
               ? compare_sums(h, WA_D_LOGIT_SCALE, &d_scale, 1, 1)
               : WINATTN_SUCCESS;
}

/* ---- All heads ---- */

/* With memory that `all` is then. */
static winattn_status begin_heads(head_numbers *h, const wa_window_numbers *x,
                                  double **all)
{
    const wa_problem *p = x->problem;
    *h =
        (head_numbers){.x = x,
                       .dim = p->head_dim,
                       .of_queries = (size_t)p->queries * p->head_dim,
                       .of_keys = (size_t)p->keys * p->head_dim,
                       .tolerance = p->dtype == WINATTN_FP16 ? TOLERANCE_FP16
                                                             : TOLERANCE_BF16};
    *all = malloc(hand_out(h, NULL) * sizeof **all);
    if (!*all)
        return wa_fail_memory();
    hand_out(h, *all);
    return WINATTN_SUCCESS;
}

/* Of a row whose weights are known; a window's o has steps of 2^power. */
static void store_output(const head_numbers *h, size_t row, uint16_t *o)
{
    const wa_problem *p = h->x->problem;
    const int power = h->window % 2              ? COARSE_POWER
                      : p->dtype == WINATTN_FP16 ? FINE_POWER_FP16
                                                 : FINE_POWER_BF16;
    for (size_t c = 0; c < h->dim; c++) {
        double sum = 0;
        for (uint32_t key = 0; key < p->keys; key++)
            sum += h->p[key] * h->v[key * h->dim + c];
        o[row * h->dim + c] = wa_stored_bits(
            p->dtype, (int)floor(wa_scaled(sum, -power) + 0.5), power);
    }
}

winattn_status wa_find_window_outputs(const wa_window_numbers *x, float *lse,
                                      uint16_t *o)
{
    const wa_problem *p = x->problem;
    head_numbers h;
    double *all;
    WA_TRY(begin_heads(&h, x, &all));
    for (h.head = 0; h.head < HEADS; h.head++) {
        h.scale = wa_window_scale(x, h.head);
        for (h.window = 0; h.window < p->windows; h.window++) {
            read_rows(&h, WA_Q, h.window, h.of_queries, h.q, h.length_q);
            read_rows(&h, WA_K, h.window, h.of_keys, h.k, h.length_k);
            read_rows(&h, WA_V, h.window, h.of_keys, h.v, NULL);
            for (uint32_t row = 0; row < p->queries; row++) {
                const size_t at =
                    wa_window_row(p, h.window, h.head, HEADS, p->queries, row);
                lse[at] = (float)weigh_row(&h, row);
                store_output(&h, at, o);
            }
        }
    }
    free(all);
    return WINATTN_SUCCESS;
}

winattn_status wa_compare_window_gradients(const wa_window_numbers *x,
                                           const wa_window_numbers *twin)
{
    head_numbers h;
    double *all;
    WA_TRY(begin_heads(&h, x, &all));
    h.twin = twin;
    winattn_status status = WINATTN_SUCCESS;
    for (h.head = 0; h.head < HEADS && status == WINATTN_SUCCESS; h.head++) {
        h.scale = wa_window_scale(x, h.head);
        status = compare_head(&h);
    }
    free(all);
    return status;
}
