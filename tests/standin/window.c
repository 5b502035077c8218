/* SPDX-License-Identifier: Apache-2.0
 * What the kernel of windows of cl/hopper/ leaves, of contiguous channels: the
 * library's self-test reads it. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>

#include "../cl/common/args.h"

typedef struct windows {
    forward_args args;
    bool half, is_cosine;
    uint32_t dim;
    double *q, *k, *v, *bias; /* all that the buffers have */
    const argument *logit_scale, *o, *lse;
} windows;

static size_t row_at(const tensor_layout *t, size_t window, size_t head,
                     size_t row)
{
    return (size_t)(t->offset + window * t->window + head * t->head +
                    row * t->row);
}

/* To be freed; NULL if nobody knows the bytes. */
static double *read_numbers(const windows *x, const argument *tensor)
{
    const cl_mem buffer = tensor->buffer;
    if (!buffer || !buffer->bytes)
        return NULL;
    const uint16_t *bits = (const uint16_t *)(const void *)buffer->bytes;
    double *all = own_calloc(buffer->size / 2, sizeof *all);
    for (size_t i = 0; i < buffer->size / 2; i++)
        all[i] = stored_number(x->half, bits[i]);
    return all;
}

/* Of rows of q and k that start there. */
static double score(const windows *x, size_t q, size_t k)
{
    double dot = 0, of_q = 0, of_k = 0;
    for (uint32_t c = 0; c < x->dim; c++) {
        const double a = x->q[q + c], b = x->k[k + c];
        dot += a * b;
        of_q += a * a;
        of_k += b * b;
    }
    if (x->is_cosine)
        dot /= fmax(sqrt(of_q), 1e-12) * fmax(sqrt(of_k), 1e-12);
    return dot;
}

static double scale_of(const windows *x, uint32_t head)
{
    const float *scales;
    if (!x->is_cosine || !(x->args.flags & ARG_LOGIT_SCALE))
        return x->args.scale;
    scales = (const float *)(const void *)x->logit_scale->buffer->bytes;
    return exp(scales[x->args.logit_scale_offset + head]);
}

/* The weights of a row, of which a blind one has none; returns lse. */
static double weigh(const windows *x, size_t window, uint32_t head,
                    uint32_t row, double *weights)
{
    const forward_args *f = &x->args;
    const size_t q = row_at(&f->q, window, head, row);
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < f->keys; key++) {
        const size_t k =
            row_at(&f->k, window, head / f->heads_per_kv_head, key);
        weights[key] = scale_of(x, head) * score(x, q, k);
        if (x->bias)
            weights[key] +=
                x->bias[row_at(&f->bias, 0, head, row) + key * f->bias.column];
        top = fmax(top, weights[key]);
    }
    for (uint32_t key = 0; key < f->keys; key++) {
        weights[key] = isinf(top) ? 0 : exp(weights[key] - top);
        sum += weights[key];
    }
    for (uint32_t key = 0; key < f->keys; key++)
        weights[key] /= sum > 0 ? sum : 1;
    return top + log(sum);
}

/* Where it is to be wrong, the first row is. */
static void write_row(const windows *x, size_t window, uint32_t head,
                      uint32_t row, const double *weights, double lse)
{
    const forward_args *f = &x->args;
    const size_t o = row_at(&f->o, window, head, row);
    const bool spoils = window + head == 0 && row == 0;
    for (uint32_t c = 0; c < x->dim; c++) {
        double sum = 0;
        for (uint32_t key = 0; key < f->keys; key++)
            if (weights[key] > 0)
                sum += weights[key] *
                       x->v[row_at(&f->v, window, head / f->heads_per_kv_head,
                                   key) +
                            c];
        if (spoils && c == 1 && standin_drivers.wgmma_wrong == WA_O)
            sum += 1;
        ((uint16_t *)(void *)x->o->buffer->bytes)[o + c] =
            rounded_number(x->half, sum);
    }
    if (x->lse->buffer)
        ((float *)(void *)
             x->lse->buffer->bytes)[row_at(&f->lse, window, head, row)] =
            (float)lse +
            (spoils && standin_drivers.wgmma_wrong == WA_LSE ? 1.0f : 0.0f);
}

static void compute_all(const windows *x)
{
    const forward_args *f = &x->args;
    double *weights = own_calloc(f->keys, sizeof *weights);
    for (size_t w = 0; w < f->windows; w++)
        for (uint32_t head = 0; head < f->heads; head++)
            for (uint32_t row = 0; row < f->queries; row++) {
                const size_t window = (size_t)f->first_window + w;
                const double lse = weigh(x, window, head, row, weights);
                write_row(x, window, head, row, weights, lse);
            }
    free(weights);
}

void compute_window(cl_kernel kernel)
{
    const char *options = kernel->program->options;
    const char *dim = strstr(options, "-DHEAD_DIM=");
    const argument *given = kernel->arguments;
    windows x = {.half = strstr(options, "-DDTYPE=1") != NULL,
                 .is_cosine = strstr(options, "-DVARIANT=1") != NULL};
    size_t n = 1;
    memcpy(&x.args, given[0].bytes, sizeof x.args);
    x.dim = dim ? (uint32_t)atoi(dim + strlen("-DHEAD_DIM=")) : 0;
    x.q = read_numbers(&x, &given[n++]);
    x.k = read_numbers(&x, &given[n++]);
    x.v = read_numbers(&x, &given[n++]);
    if (strstr(options, "-DBIAS=1"))
        x.bias = read_numbers(&x, &given[n++]);
    if (x.is_cosine)
        x.logit_scale = &given[n++];
    x.o = &given[n++];
    x.lse = &given[n++];
    if (x.q) /* else it is not the self-test */
        compute_all(&x);
    free(x.q);
    free(x.k);
    free(x.v);
    free(x.bias);
}
