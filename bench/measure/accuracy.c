/* SPDX-License-Identifier: Apache-2.0
 * Compares o with the oracle's. */
#include "measure/accuracy.h"

#include <math.h>
#include <stdlib.h>

#include "measure/sample.h"

#define MOST_ORACLE_ROWS 64

static double forward_error(sampler *from, size_t window, size_t head)
{
    const workload *w = from->w;
    const test_case *c = &w->c;
    const size_t dim = (size_t)c->dim, all = (size_t)c->queries;
    const size_t rows = all < MOST_ORACLE_ROWS ? all : MOST_ORACLE_ROWS;
    const size_t first = (all - rows) * (window % 3) / 2;
    const size_t count = rows * dim;
    double *got = malloc(sizeof *got * (3 * count + 2 * rows));
    double error = NAN, largest;
    sample s;
    if (!got || !sample_open(from, window, head, first, rows, &s)) {
        free(got);
        return NAN;
    }
    double *o = got + count, *size = o + count, *lse = size + count;
    if (sample_rows(from, T_O, w->o[0], window, head, first, rows, got)) {
        double error2 = 0, norm2 = 0;
        oracle_forward(&s.problem, o, size, lse, lse + rows, &largest);
        for (size_t i = 0; i < count; i++) {
            if (!sample_exists(w, window, first + i / dim))
                continue; /* nothing is stored */
            error2 += (got[i] - o[i]) * (got[i] - o[i]);
            norm2 += o[i] * o[i];
        }
        /* a window may have no query in these rows */
        error = norm2 > 0 || !(error2 == 0) ? sqrt(error2 / norm2) : 0;
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
    double worst = 0;
    sampler from = sampler_open(w);
    for (int i = 0; i < samples && w->pass != BENCH_BACKWARD; i++) {
        const size_t at =
            samples > 1 ? (all - 1) * (size_t)i / (size_t)(samples - 1) : 0;
        const double error = forward_error(&from, at / (size_t)w->c.heads,
                                           at % (size_t)w->c.heads);
        if (!(error <= worst))
            worst = error;
        if (isnan(worst))
            break;
    }
    if (w->pass != BENCH_FORWARD && !isnan(worst)) {
        const double error = accuracy_gradients(&from, all, samples);
        if (!(error <= worst))
            worst = error;
    }
    sampler_close(&from);
    return worst;
}
