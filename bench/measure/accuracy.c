/* SPDX-License-Identifier: Apache-2.0
 * Compares o with the oracle's. */
#include "measure/accuracy.h"

#include <math.h>
#include <stdlib.h>

#include "kit/verdict.h"
#include "measure/sample.h"

#define MOST_ORACLE_ROWS 64

static double forward_error(const workload *w, size_t window, size_t head)
{
    const test_case *c = &w->d->c;
    const size_t dim = (size_t)c->dim, all = (size_t)c->queries;
    const size_t rows = all < MOST_ORACLE_ROWS ? all : MOST_ORACLE_ROWS;
    const size_t first = (all - rows) * (window % 3) / 2;
    const size_t count = rows * dim;
    double *got = malloc(sizeof *got * (3 * count + 2 * rows));
    double error = NAN, largest;
    sample s;
    if (!got || !sample_open(w, window, head, first, rows, &s)) {
        free(got);
        return NAN;
    }
    double *o = got + count, *size = o + count, *lse = size + count;
    if (sample_rows(w, T_O, window, head, first, rows, got)) {
        distance d = {0, 0, 0, NULL};
        oracle_forward(&s.problem, o, size, lse, lse + rows, &largest);
        for (size_t i = 0; i < count; i++)
            if (sample_exists(w, window, first + i / dim))
                measure(&d, got[i], o[i], size[i]);
        /* a window may have no query in these rows */
        error = d.mismatch ? NAN : share(&d, 1, 0);
    }
    sample_close(&s);
    free(got);
    return error;
}

size_t accuracy_all(const test_case *c)
{
    return (size_t)c->windows * (size_t)c->heads;
}

double accuracy_error(const workload *w, size_t all, int samples)
{
    const size_t heads = (size_t)w->d->c.heads;
    double worst = 0;
    for (int i = 0; i < samples && w->pass != BENCH_BACKWARD; i++) {
        const size_t at =
            samples > 1 ? (all - 1) * (size_t)i / (size_t)(samples - 1) : 0;
        const double error = forward_error(w, at / heads, at % heads);
        if (!(error <= worst))
            worst = error;
        if (isnan(worst))
            return worst;
    }
    if (w->pass == BENCH_FORWARD)
        return worst;
    const double error = accuracy_gradients(w, all, samples);
    return error <= worst ? worst : error;
}
