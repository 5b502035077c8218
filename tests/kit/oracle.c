/* SPDX-License-Identifier: Apache-2.0
 * The oracle. No cleverness here. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

static size_t block_of(const oracle_problem *p, size_t token)
{
    const size_t first = p->first_block ? p->first_block : p->block;
    return token < first ? 0 : 1 + (token - first) / p->block;
}

bool oracle_sees(const oracle_problem *p, size_t query, size_t key)
{
    const size_t here = block_of(p, query + p->query_offset);
    const size_t there = block_of(p, key);
    size_t window = p->window_blocks;
    if (window != 0 && p->sink > 0 && p->sink_in_window)
        window -= block_of(p, p->sink - 1) + 1;
    return there <= here &&
           (p->window_blocks == 0 || there + window > here || key < p->sink);
}

size_t oracle_seen(const oracle_problem *p, size_t query)
{
    size_t seen = 0;
    for (size_t j = 0; j < p->keys; j++)
        seen += oracle_sees(p, query, j);
    return seen;
}

static double norm(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const double root = sqrt(sum);
    return root < 1e-12 ? 1e-12 : root; /* keeps a NaN */
}

static double factor(const oracle_problem *p)
{
    if (!p->cosine || !p->logit_scale)
        return p->scale;
    const float x = *p->logit_scale;
    return x > 4.6051702f ? 100.0 : exp((double)x);
}

void oracle_forward(const oracle_problem *p, double *o, double *o_size,
                    double *lse, double *lse_size, double *largest_logit)
{
    double *s = malloc(sizeof *s * p->keys);
    const double f = factor(p);
    *largest_logit = 0;
    for (size_t i = 0; i < p->queries; i++) {
        const double *q = p->q + i * p->dim;
        const double q_norm = p->cosine ? norm(q, p->dim) : 1.0;
        double top = -INFINITY, size = 0;
        for (size_t j = 0; j < p->keys; j++) {
            const double *k = p->k + j * p->dim;
            const size_t at = i * p->keys + j;
            double dot = 0, dot_size = 0;
            if (p->sliding && !oracle_sees(p, i, j)) {
                s[j] = -INFINITY;
                continue;
            }
            for (size_t c = 0; c < p->dim; c++) {
                dot += q[c] * k[c];
                dot_size += fabs(q[c] * k[c]);
            }
            if (p->cosine) {
                const double k_norm = norm(k, p->dim);
                dot /= q_norm * k_norm;
                dot_size /= q_norm * k_norm;
            }
            s[j] = f * dot;
            dot_size *= fabs(f);
            if (p->bias) {
                s[j] += p->bias[at];
                dot_size += fabs(p->bias[at]);
            }
            if (p->mask)
                s[j] += p->mask[at];
            if (p->query_region && p->query_region[i] != p->key_region[j])
                s[j] += p->region_value;
            if (isfinite(s[j])) {
                size = fmax(size, dot_size);
                *largest_logit = fmax(*largest_logit, fabs(s[j]));
            }
            if (isnan(s[j]) || s[j] > top) /* once NaN, top stays NaN */
                top = s[j];
        }
        double sum = 0;
        for (size_t j = 0; j < p->keys; j++) {
            s[j] = top == -INFINITY ? 0 : exp(s[j] - top);
            sum += s[j];
        }
        lse[i] = top == -INFINITY ? -INFINITY : top + log(sum);
        lse_size[i] = fmax(size, fabs(lse[i]));
        for (size_t c = 0; c < p->dim; c++) {
            double x = 0, x_size = 0;
            for (size_t j = 0; j < p->keys; j++) {
                if (p->sliding && !oracle_sees(p, i, j))
                    continue;
                const double v = p->v[j * p->dim + c];
                x += s[j] * v;
                x_size += s[j] * fabs(v);
            }
            const bool nothing = top == -INFINITY;
            o[i * p->dim + c] = nothing ? 0 : x / sum;
            o_size[i * p->dim + c] = nothing ? 0 : x_size / sum;
        }
    }
    free(s);
}
