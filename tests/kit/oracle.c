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
    return x >= 4.6051702f ? 100.0 : exp((double)x);
}

/* Logits of query i, and the largest finite sum of the absolute values that
 * one is made of. */
static double logits(const oracle_problem *p, size_t i, double *s)
{
    const double f = factor(p);
    const double *q = p->q + i * p->dim;
    const double q_norm = p->cosine ? norm(q, p->dim) : 1.0;
    double size = 0;
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
        if (isfinite(s[j]))
            size = fmax(size, dot_size);
    }
    return size;
}

/* Turns logits into exponentials relative to their maximum, which is returned
 * with their sum. */
static double exponentials(const oracle_problem *p, double *s, double *sum)
{
    double top = -INFINITY;
    for (size_t j = 0; j < p->keys; j++)
        if (isnan(s[j]) || s[j] > top) /* once NaN, top stays NaN */
            top = s[j];
    *sum = 0;
    for (size_t j = 0; j < p->keys; j++) {
        s[j] = top == -INFINITY ? 0 : exp(s[j] - top);
        *sum += s[j];
    }
    return top;
}

void oracle_forward(const oracle_problem *p, double *o, double *o_size,
                    double *lse, double *lse_size, double *largest_logit)
{
    double *s = malloc(sizeof *s * p->keys);
    *largest_logit = 0;
    for (size_t i = 0; i < p->queries; i++) {
        const double size = logits(p, i, s);
        double sum;
        for (size_t j = 0; j < p->keys; j++)
            if (isfinite(s[j]))
                *largest_logit = fmax(*largest_logit, fabs(s[j]));
        const double top = exponentials(p, s, &sum);
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
            /* weights of 0, which no NaN among the values passes by */
            o[i * p->dim + c] = nothing ? x : x / sum;
            o_size[i * p->dim + c] = nothing ? 0 : x_size / sum;
        }
    }
    free(s);
}

/* Gradient of x / max(|x|, 1e-12) taken back to x, and its size. */
static void unnormalise(const double *x, size_t dim, double *dx,
                        double *dx_size)
{
    const double length = norm(x, dim);
    double along = 0, along_size = 0;
    for (size_t c = 0; c < dim; c++) {
        along += x[c] / length * dx[c];
        along_size += fabs(x[c]) / length * dx_size[c];
    }
    const bool clamped = length <= 1e-12;
    for (size_t c = 0; c < dim; c++) {
        const double unit = x[c] / length;
        dx[c] = (dx[c] - (clamped ? 0 : unit * along)) / length;
        dx_size[c] =
            (dx_size[c] + (clamped ? 0 : fabs(unit) * along_size)) / length;
    }
}

static void clear(double *a, double *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] = 0;
}

/* What a query's gradients are made of. */
typedef struct query_flow {
    size_t query;
    const double *into;       /* dO */
    double d_lse;             /* of the query */
    double *s, *dp, *dp_size; /* [keys]: P in s */
    double delta, delta_size; /* sum of P dP */
} query_flow;

/* dP, and what flows into the values. `sum` is that of the exponentials in
 * s. */
static void flow_into_values(const oracle_problem *p, query_flow *f,
                             double sum, oracle_gradients *g)
{
    const size_t dim = p->dim;
    f->delta = f->delta_size = 0;
    for (size_t j = 0; j < p->keys; j++) {
        if (p->sliding && !oracle_sees(p, f->query, j))
            continue;
        f->s[j] /= sum;
        f->dp[j] = f->dp_size[j] = 0;
        for (size_t c = 0; c < dim; c++) {
            const double x = f->into[c] * p->v[j * dim + c];
            f->dp[j] += x;
            f->dp_size[j] += fabs(x);
            g->dv[j * dim + c] += f->s[j] * f->into[c];
            g->dv_size[j * dim + c] += f->s[j] * fabs(f->into[c]);
        }
        f->delta += f->s[j] * f->dp[j];
        f->delta_size += f->s[j] * f->dp_size[j];
    }
}

/* dS, and what flows into the logits. */
static void flow_into_logits(const oracle_problem *p, const query_flow *f,
                             oracle_gradients *g)
{
    const size_t i = f->query, dim = p->dim;
    const double *q = p->q + i * dim;
    const double scale = factor(p);
    const double q_norm = p->cosine ? norm(q, dim) : 1.0;
    for (size_t j = 0; j < p->keys; j++) {
        if (p->sliding && !oracle_sees(p, i, j))
            continue;
        const double *k = p->k + j * dim;
        const double k_norm = p->cosine ? norm(k, dim) : 1.0;
        const double ds = f->s[j] * (f->dp[j] - f->delta + f->d_lse);
        const double ds_size =
            f->s[j] * (f->dp_size[j] + f->delta_size + fabs(f->d_lse));
        double dot = 0;
        g->dbias[i * p->keys + j] = ds;
        g->dbias_size[i * p->keys + j] = ds_size;
        for (size_t c = 0; c < dim; c++) {
            dot += q[c] / q_norm * (k[c] / k_norm);
            g->dq[i * dim + c] += scale * ds * k[c] / k_norm;
            g->dq_size[i * dim + c] += fabs(scale * ds_size * k[c] / k_norm);
            g->dk[j * dim + c] += scale * ds * q[c] / q_norm;
            g->dk_size[j * dim + c] += fabs(scale * ds_size * q[c] / q_norm);
        }
        g->d_logit_scale += ds * scale * dot;
        g->d_logit_scale_size += ds_size * fabs(scale * dot);
    }
}

/* From normalised queries and keys back to their own. */
static void flow_through_norms(const oracle_problem *p, oracle_gradients *g)
{
    const size_t dim = p->dim;
    for (size_t i = 0; i < p->queries; i++)
        unnormalise(p->q + i * dim, dim, g->dq + i * dim,
                    g->dq_size + i * dim);
    for (size_t j = 0; j < p->keys; j++)
        unnormalise(p->k + j * dim, dim, g->dk + j * dim,
                    g->dk_size + j * dim);
}

void oracle_backward(const oracle_problem *p, const double *d_o,
                     const double *d_lse, oracle_gradients *g)
{
    const size_t dim = p->dim, keys = p->keys;
    double *memory = malloc(sizeof *memory * 3 * keys), sum;
    query_flow f = {
        .s = memory, .dp = memory + keys, .dp_size = memory + 2 * keys};
    clear(g->dq, g->dq_size, p->queries * dim);
    clear(g->dk, g->dk_size, keys * dim);
    clear(g->dv, g->dv_size, keys * dim);
    clear(g->dbias, g->dbias_size, p->queries * keys);
    g->d_logit_scale = g->d_logit_scale_size = 0;
    for (f.query = 0; f.query < p->queries; f.query++) {
        logits(p, f.query, f.s);
        if (exponentials(p, f.s, &sum) == -INFINITY)
            continue; /* sees nothing */
        f.into = d_o + f.query * dim;
        f.d_lse = d_lse ? d_lse[f.query] : 0;
        flow_into_values(p, &f, sum, g);
        flow_into_logits(p, &f, g);
    }
    if (p->cosine)
        flow_through_norms(p, g);
    /* behind the clamp the scale stands still */
    if (!p->logit_scale || *p->logit_scale >= 4.6051702f)
        g->d_logit_scale = g->d_logit_scale_size = 0;
    free(memory);
}
