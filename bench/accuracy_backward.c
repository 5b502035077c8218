/* SPDX-License-Identifier: Apache-2.0
 * Holds gradients against the oracle's, as the tests do. What the oracle can
 * do in the time that a bench has is little:
 *
 *   dq                     rows of sampled windows
 *   dk, dv                 there too; of a long line of tokens the last keys,
 *                          which few queries see
 *   dbias, d_logit_scale   of the first and the last head, summed over all
 *                          windows: of dbias a few rows, d_logit_scale where
 *                          it does not take too long */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy.h"
#include "kit/verdict.h"
#include "sample.h"

/* What the oracle may multiply: queries x visible keys x dim. The last window
 * gets more, so that a block of keys can be complete. */
#define PRODUCTS_OF_WINDOW 1e7
#define PRODUCTS_OF_LAST 7e7
#define PRODUCTS_OF_SUMS 6e7

typedef struct gradients {
    oracle_gradients head; /* of a query head */
    double *dk, *dk_size, *dv, *dv_size;
    double *d_o, *got;
    double *all;
} gradients;

static bool gradients_create(size_t rows, size_t keys, size_t dim,
                             gradients *g)
{
    const size_t q = rows * dim, k = keys * dim, logits = rows * keys;
    const size_t most = q > k ? q : k;
    const struct {
        double **to;
        size_t count;
    } parts[] = {
        {&g->head.dq, q},
        {&g->head.dq_size, q},
        {&g->head.dk, k},
        {&g->head.dk_size, k},
        {&g->head.dv, k},
        {&g->head.dv_size, k},
        {&g->head.dbias, logits},
        {&g->head.dbias_size, logits},
        {&g->dk, k},
        {&g->dk_size, k},
        {&g->dv, k},
        {&g->dv_size, k},
        {&g->d_o, q},
        {&g->got, most > logits ? most : logits},
    };
    const size_t count = sizeof parts / sizeof *parts;
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += parts[i].count;
    g->all = calloc(sum, sizeof *g->all);
    double *at = g->all;
    for (size_t i = 0; at && i < count; i++) {
        *parts[i].to = at;
        at += parts[i].count;
    }
    return at != NULL;
}

/* NaN if one is. */
static double larger(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

static void add(double *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

/* How many rows the oracle can afford. */
static size_t affordable(const test_case *c, double products, double times)
{
    const oracle_problem p = workload_oracle(c);
    const size_t all = (size_t)c->queries;
    const size_t seen = p.sliding ? oracle_seen(&p, all - 1) : p.keys;
    const double rows =
        products / (times * (double)(seen > 0 ? seen : 1) * c->dim);
    return rows < 1 ? 1 : rows < (double)all ? (size_t)rows : all;
}

/* The first key that no query before `row` sees: all later ones are hidden
 * from them, too. */
static size_t first_unseen(const test_case *c, size_t row)
{
    oracle_problem p = workload_oracle(c);
    size_t key = 0;
    if (row == 0)
        return 0;
    p.window_blocks = 0; /* an earlier query may have seen it */
    while (key < p.keys && (!p.sliding || oracle_sees(&p, row - 1, key)))
        key++;
    return key;
}

/* Relative error of `rows` rows that lie at `first` of a tensor. */
static double rows_error(const workload *w, tensor_id id, cl_mem mem,
                         size_t first, size_t rows, size_t columns,
                         const double *want, const double *size, double *got)
{
    const storage_kind kind = id == T_DBIAS || id == T_D_LOGIT_SCALE
                                  ? KIND_FP32
                                  : workload_kind(&w->c);
    const size_t together = gradient_goes_by_row(w->c.variant, id) ? 1 : rows;
    double worst = 0;
    if (rows == 0)
        return 0;
    if (!sample_read(w, mem, kind, first * columns, rows * columns, got))
        return NAN;
    for (size_t row = 0; row < rows; row += together) {
        const size_t count = together * columns;
        distance d = {0, 0, 0, NULL};
        for (size_t i = row * columns; i < row * columns + count; i++)
            measure_gradient(&d, kind, got[i], want[i], size[i]);
        worst =
            fmax(worst, share_stored(&d, stored_underflow(kind), count, 1.0));
        if (d.mismatch)
            return NAN;
    }
    return worst;
}

/* The oracle's gradients of rows of one query head. */
static bool run_oracle(const workload *w, size_t window, size_t head,
                       size_t first, size_t rows, gradients *g)
{
    const size_t dim = (size_t)w->c.dim;
    const size_t at = sample_query_row(&w->c, window, head, first) * dim;
    sample s;
    if (!sample_read(w, w->d_o[0], workload_kind(&w->c), at, rows * dim,
                     g->d_o) ||
        !sample_open(w, window, head, first, rows, &s))
        return false;
    oracle_backward(&s.problem, g->d_o, NULL, &g->head);
    sample_close(&s);
    return true;
}

/* dq, dk and dv of the query heads that share a key head. */
static double window_error(const workload *w, size_t window, size_t kv_head,
                           size_t first, size_t rows)
{
    const test_case *c = &w->c;
    const size_t group = (size_t)(c->heads / c->kv_heads);
    const size_t dim = (size_t)c->dim, keys = (size_t)c->keys;
    /* keys that no row outside the sample adds to */
    const size_t key =
        first + rows == (size_t)c->queries ? first_unseen(c, first) : keys;
    const size_t k_at = sample_key_row(c, window, kv_head, key);
    double worst = NAN, dq = 0;
    gradients g;
    if (!gradients_create(rows, keys, dim, &g))
        return NAN;
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        if (!run_oracle(w, window, head, first, rows, &g))
            goto cleanup;
        add(g.dk, g.head.dk, keys * dim);
        add(g.dk_size, g.head.dk_size, keys * dim);
        add(g.dv, g.head.dv, keys * dim);
        add(g.dv_size, g.head.dv_size, keys * dim);
        dq = larger(dq,
                    rows_error(w, T_DQ, w->dq[0],
                               sample_query_row(c, window, head, first), rows,
                               dim, g.head.dq, g.head.dq_size, g.got));
    }
    const double dk =
        rows_error(w, T_DK, w->dk[0], k_at, keys - key, dim, g.dk + key * dim,
                   g.dk_size + key * dim, g.got);
    const double dv =
        rows_error(w, T_DV, w->dv[0], k_at, keys - key, dim, g.dv + key * dim,
                   g.dv_size + key * dim, g.got);
    worst = larger(dq, larger(dk, dv));
cleanup:
    free(g.all);
    return worst;
}

/* dbias and d_logit_scale of a head, over the windows of the first `all`
 * window-heads. */
static double sums_error(const workload *w, size_t all, size_t head)
{
    const test_case *c = &w->c;
    const size_t heads = (size_t)c->heads, keys = (size_t)c->keys;
    const size_t windows = all > head ? (all - 1 - head) / heads + 1 : 0;
    const size_t rows =
        affordable(c, PRODUCTS_OF_SUMS / 2, (double)(windows ? windows : 1));
    const size_t first = ((size_t)c->queries - rows) / 2;
    const size_t count = rows * keys;
    double scale = 0, scale_size = 0, worst = NAN;
    gradients g;
    if (windows == 0 || !(w->dbias || w->d_logit_scale))
        return 0;
    double *sum = calloc(2 * count, sizeof *sum);
    if (!gradients_create(rows, keys, (size_t)c->dim, &g) || !sum)
        goto cleanup;
    for (size_t window = 0; window < windows; window++) {
        if (!run_oracle(w, window, head, first, rows, &g))
            goto cleanup;
        add(sum, g.head.dbias, count);
        add(sum + count, g.head.dbias_size, count);
        scale += g.head.d_logit_scale;
        scale_size += g.head.d_logit_scale_size;
    }
    worst = 0;
    if (w->dbias)
        worst =
            rows_error(w, T_DBIAS, w->dbias, head * (size_t)c->queries + first,
                       rows, keys, sum, sum + count, g.got);
    if (w->d_logit_scale && rows == (size_t)c->queries)
        worst =
            larger(worst, rows_error(w, T_D_LOGIT_SCALE, w->d_logit_scale,
                                     head, 1, 1, &scale, &scale_size, g.got));
cleanup:
    free(g.all);
    free(sum);
    return worst;
}

double accuracy_gradients(const workload *w, size_t all, int samples)
{
    const test_case *c = &w->c;
    const size_t group = (size_t)(c->heads / c->kv_heads);
    const size_t items = all / group; /* of key heads */
    const size_t last = (all < (size_t)c->heads ? all : (size_t)c->heads) - 1;
    double worst = 0;
    for (int i = 0; i < samples; i++) {
        const bool is_last = i + 1 == samples;
        const size_t item =
            is_last ? items - 1 : items * (size_t)i / (size_t)samples;
        const size_t rows = affordable(
            c, is_last ? PRODUCTS_OF_LAST : PRODUCTS_OF_WINDOW, (double)group);
        const size_t before = (size_t)c->queries - rows;
        worst = larger(
            worst,
            window_error(
                w, item / (size_t)c->kv_heads, item % (size_t)c->kv_heads,
                is_last ? before : before * (size_t)(i % 3) / 2, rows));
    }
    worst = larger(worst, sums_error(w, all, 0));
    return last > 0 ? larger(worst, sums_error(w, all, last)) : worst;
}
