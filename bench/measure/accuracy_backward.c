/* SPDX-License-Identifier: Apache-2.0
 * Compares gradients with the oracle's, as the tests do. What the oracle can
 * do in the time that a bench has is little:
 *
 *   dq                     rows of sampled windows
 *   dk, dv                 there too; of a long line of tokens the last keys,
 *                          which few queries see
 *   dbias, d_logit_scale   of the first and the last head, summed over all
 *                          windows: of dbias a few rows, d_logit_scale where
 *                          it does not take too long; of a table the
 *                          entries that only these rows take
 *
 * d_pad_k and d_pad_v sum over more windows than there is time for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/verdict.h"
#include "measure/accuracy.h"

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

/* Relative error of rows that were read. Those of a window that are of the
 * padding hold nothing. */
static double compare(const workload *w, tensor_id id, size_t window,
                      size_t first, size_t rows, size_t columns,
                      const double *want, const double *size,
                      const double *got)
{
    const storage_kind kind = w->d->tensor[id].kind;
    const size_t together =
        gradient_goes_by_row(w->d->c.variant, id) ? 1 : rows;
    double worst = 0;
    for (size_t row = 0; row < rows; row += together) {
        size_t count = 0;
        distance d = {0, 0, 0, NULL};
        for (size_t i = row; i < row + together; i++) {
            if (id <= T_DV && !sample_exists(w, window, first + i))
                continue;
            for (size_t j = i * columns; j < (i + 1) * columns; j++)
                measure_gradient(&d, kind, got[j], want[j], size[j], 0);
            count += columns;
        }
        if (d.mismatch)
            return NAN;
        if (count > 0)
            worst = fmax(worst, share_stored(&d, stored_underflow(kind), count,
                                             1.0, ORDINARY_SIZE_SHARE));
    }
    return worst;
}

/* The error of rows of a window-head, of dq, dk or dv. */
static double rows_error(const workload *w, tensor_id id, size_t window,
                         size_t head, size_t first, size_t rows,
                         const double *want, const double *size, double *got)
{
    if (!sample_rows(w, id, window, head, first, rows, got))
        return NAN;
    return compare(w, id, window, first, rows, (size_t)w->d->c.dim, want, size,
                   got);
}

/* The error of `count` sums that lie at `first`. */
static double sums_differ(const workload *w, tensor_id id, size_t first,
                          size_t count, const double *want, const double *size,
                          double *got)
{
    if (!sample_sums(w, id, first, count, got))
        return NAN;
    return compare(w, id, 0, 0, 1, count, want, size, got);
}

/* The oracle's gradients of rows of one query head. */
static bool run_oracle(const workload *w, size_t window, size_t head,
                       size_t first, size_t rows, gradients *g)
{
    sample s;
    if (!sample_rows(w, T_D_O, window, head, first, rows, g->d_o) ||
        !sample_open(w, window, head, first, rows, &s))
        return false;
    oracle_backward(&s.problem, g->d_o, NULL, &g->head);
    sample_close(&s);
    return true;
}

/* The oracle's gradients of the query heads that share a key head, with dk and
 * dv summed. *dq becomes the error of dq. */
static bool run_group(const workload *w, size_t window, size_t kv_head,
                      size_t first, size_t rows, gradients *g, double *dq)
{
    const test_case *c = &w->d->c;
    const size_t group = (size_t)(c->heads / c->kv_heads);
    const size_t count = (size_t)c->keys * (size_t)c->dim;
    double *const sums[] = {g->dk, g->dk_size, g->dv, g->dv_size};
    const double *const added[] = {g->head.dk, g->head.dk_size, g->head.dv,
                                   g->head.dv_size};
    for (int i = 0; i < 4; i++)
        memset(sums[i], 0, count * sizeof *sums[i]);
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        if (!run_oracle(w, window, head, first, rows, g))
            return false;
        for (int i = 0; i < 4; i++)
            add(sums[i], added[i], count);
        *dq = larger(*dq, rows_error(w, T_DQ, window, head, first, rows,
                                     g->head.dq, g->head.dq_size, g->got));
    }
    return true;
}

/* dq, dk and dv of the query heads that share a key head. */
static double window_error(const workload *w, size_t window, size_t kv_head,
                           size_t first, size_t rows)
{
    const test_case *c = &w->d->c;
    const size_t dim = (size_t)c->dim, keys = (size_t)c->keys;
    /* keys that no row outside the sample adds to */
    const size_t key =
        first + rows == (size_t)c->queries ? first_unseen(c, first) : keys;
    double worst = NAN, dq = 0;
    gradients g;
    if (!gradients_create(rows, keys, dim, &g))
        return NAN;
    if (run_group(w, window, kv_head, first, rows, &g, &dq)) {
        const double dk =
            rows_error(w, T_DK, window, kv_head, key, keys - key,
                       g.dk + key * dim, g.dk_size + key * dim, g.got);
        const double dv =
            rows_error(w, T_DV, window, kv_head, key, keys - key,
                       g.dv + key * dim, g.dv_size + key * dim, g.got);
        worst = larger(dq, larger(dk, dv));
    }
    free(g.all);
    return worst;
}

/* The table's gradient of a head, whose dense sums are known for the last
 * rows: of entries that no earlier row takes. */
static double table_error(const workload *w, size_t head, size_t first,
                          const double *dense, const double *dense_size)
{
    const test_case *c = &w->d->c;
    const size_t entries = (size_t)case_table_entries(c);
    const size_t heads = (size_t)c->heads, keys = (size_t)c->keys;
    const size_t logits = (size_t)c->queries * keys;
    double *sum = calloc(3 * entries + entries * heads, sizeof *sum);
    double *size = sum + entries, *got = size + entries, *all = got + entries;
    bool *known = calloc(entries, sizeof *known);
    double error = NAN;
    if (sum && known && sample_sums(w, T_DBIAS, 0, entries * heads, all)) {
        size_t count = 0;
        for (size_t i = first * keys; i < logits; i++) {
            known[w->d->entry[i]] = true;
            sum[w->d->entry[i]] += dense[i - first * keys];
            size[w->d->entry[i]] += dense_size[i - first * keys];
        }
        for (size_t i = 0; i < first * keys; i++)
            known[w->d->entry[i]] = false;
        for (size_t i = 0; i < entries; i++) {
            if (!known[i])
                continue;
            sum[count] = sum[i];
            size[count] = size[i];
            got[count++] = all[i * heads + head];
        }
        error = compare(w, T_DBIAS, 0, 0, 1, count, sum, size, got);
    }
    free(sum);
    free(known);
    return error;
}

/* dbias and d_logit_scale of a head, over the windows of the first `all`
 * window-heads. */
static double sums_error(const workload *w, size_t all, size_t head)
{
    const test_case *c = &w->d->c;
    const size_t heads = (size_t)c->heads, keys = (size_t)c->keys;
    const size_t windows = all > head ? (all - 1 - head) / heads + 1 : 0;
    const size_t rows =
        affordable(c, PRODUCTS_OF_SUMS / 2, (double)(windows ? windows : 1));
    const size_t before = (size_t)c->queries - rows;
    const size_t first = w->d->entry ? before : before / 2;
    const size_t count = rows * keys;
    double scale = 0, scale_size = 0, worst = NAN;
    gradients g;
    const bool has_bias = w->d->tensor[T_DBIAS].used;
    const bool has_scale = w->d->tensor[T_D_LOGIT_SCALE].used;
    if (windows == 0 || !(has_bias || has_scale))
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
    if (has_bias && w->d->entry)
        worst = table_error(w, head, first, sum, sum + count);
    else if (has_bias)
        worst =
            sums_differ(w, T_DBIAS, (head * (size_t)c->queries + first) * keys,
                        count, sum, sum + count, g.got);
    if (has_scale && rows == (size_t)c->queries)
        worst = larger(worst, sums_differ(w, T_D_LOGIT_SCALE, head, 1, &scale,
                                          &scale_size, g.got));
cleanup:
    free(g.all);
    free(sum);
    return worst;
}

double accuracy_gradients(const workload *w, size_t all, int samples)
{
    const test_case *c = &w->d->c;
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
