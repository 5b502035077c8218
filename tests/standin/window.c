/* SPDX-License-Identifier: Apache-2.0
 * What kernels of windows of cl/hopper/ leave, of contiguous channels and one
 * split: the library's self-test reads it. */
#include "window.h"

#include <math.h>
#include <stdlib.h>

/* Is an output to be wrong? */
static bool is_wrong(const windows *x, wa_tensor_id id)
{
    return standin_drivers.wgmma_wrong == id &&
           (x->args.q.offset > 0 || !standin_drivers.wgmma_wrong_if_shifted);
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
        if (x->is_cosine) {
            of_q += a * a;
            of_k += b * b;
        }
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
    const size_t q = window_row(x, &f->q, window, head, row);
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < f->keys; key++) {
        const size_t k =
            window_row(x, &f->k, window, head / f->heads_per_kv_head, key);
        weights[key] = scale_of(x, head) * score(x, q, k);
        weights[key] += window_score_bias(x, window, head, row, key);
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
    const size_t o = window_row(x, &f->o, window, head, row);
    const bool spoils = window + head == 0 && row == 0;
    for (uint32_t c = 0; c < x->dim; c++) {
        double sum = 0;
        for (uint32_t key = 0; key < f->keys; key++)
            if (weights[key] > 0)
                sum += weights[key] *
                       x->v[window_row(x, &f->v, window,
                                       head / f->heads_per_kv_head, key) +
                            c];
        if (spoils && c == 1 && is_wrong(x, WA_O))
            sum += 1;
        ((uint16_t *)(void *)x->o->buffer->bytes)[o + c] =
            rounded_number(x->half, sum);
    }
    if (x->lse->buffer)
        ((float *)(void *)x->lse->buffer
             ->bytes)[window_row(x, &f->lse, window, head, row)] =
            (float)lse + (spoils && is_wrong(x, WA_LSE) ? 1.0f : 0.0f);
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

/* ---- Gradients ---- */

/* Weights that no result shows. */
#define NOTHING 1e-9

static double *gradient_row(const windows *x, double *of_head, uint32_t row)
{
    return of_head + (size_t)row * x->dim;
}

static void add(const windows *x, double *to, double factor, const double *row)
{
    for (uint32_t c = 0; c < x->dim; c++)
        to[c] += factor * row[c];
}

/* Gradients of the logits of a row, whose weights p becomes. */
static void differentiate(const windows *x, size_t window, uint32_t head,
                          uint32_t row, double *p, double *ds)
{
    const forward_args *f = &x->args;
    const double *d_o =
        x->d_o + window_row(x, &x->gradients.d_o, window, head, row);
    double delta = 0;
    weigh(x, window, head, row, p);
    for (uint32_t key = 0; key < f->keys; key++) {
        const double *v = x->v + window_row(x, &f->v, window, head, key);
        ds[key] = 0;
        for (uint32_t c = 0; c < x->dim; c++)
            ds[key] += d_o[c] * v[c];
        delta += p[key] * ds[key];
    }
    for (uint32_t key = 0; key < f->keys; key++)
        ds[key] = p[key] * (ds[key] - delta);
}

/* 1 / the length that a row of q or k is divided by. */
static double inverse_of(const windows *x, const double *row)
{
    double square = 0;
    if (!x->is_cosine)
        return 1;
    for (uint32_t c = 0; c < x->dim; c++)
        square += row[c] * row[c];
    return 1 / fmax(sqrt(square), 1e-12);
}

/* Rows of a gradient of q or k, if these are what is given, with respect to
 * rows of length 1. Returns the sum of their products with these. */
static double write_rows(const windows *x, const argument *to,
                         const tensor_layout *layout, const double *rows,
                         const tensor_layout *of_rows, size_t window,
                         uint32_t head, uint32_t count, double *all)
{
    uint16_t *bits = (uint16_t *)(void *)to->buffer->bytes;
    double sum = 0;
    for (uint32_t row = 0; row < count; row++) {
        double *d = gradient_row(x, all, row), along = 0;
        if (rows && x->is_cosine) {
            const double *own =
                rows + window_row(x, of_rows, window, head, row);
            const double inverse = inverse_of(x, own);
            for (uint32_t c = 0; c < x->dim; c++)
                along += d[c] * own[c] * inverse;
            for (uint32_t c = 0; c < x->dim; c++)
                d[c] = (d[c] - own[c] * inverse * along) * inverse;
        }
        for (uint32_t c = 0; c < x->dim; c++)
            bits[window_row(x, layout, window, head, row) + c] =
                rounded_number(x->half, d[c]);
        sum += along;
    }
    return sum;
}

static float *partials(const windows *x, arg_u64 from)
{
    return (float *)(void *)x->workspace->buffer->bytes + from;
}

/* Leaves dq, and sums of the others. */
static void make_rows(const windows *x, size_t window, uint32_t head,
                      double *dq, double *p, double *ds)
{
    const forward_args *f = &x->args;
    const backward_args *b = &x->gradients;
    const double scale = scale_of(x, head);
    const bool starts = window == f->first_window;
    float *bias =
        partials(x, b->bias_partials) + (size_t)head * f->queries * f->keys;
    memset(dq, 0, (size_t)f->queries * x->dim * sizeof *dq);
    for (uint32_t row = 0; row < f->queries; row++) {
        differentiate(x, window, head, row, p, ds);
        for (uint32_t key = 0; key < f->keys; key++) {
            float *sum = bias + (size_t)row * f->keys + key;
            const double *k = x->k + window_row(x, &f->k, window, head, key);
            if (p[key] > NOTHING)
                add(x, gradient_row(x, dq, row),
                    scale * ds[key] * inverse_of(x, k), k);
            if (x->bias)
                *sum = (float)ds[key] + (starts ? 0.0f : *sum);
        }
    }
    if (window + head == 0 && is_wrong(x, WA_DBIAS))
        bias[0] += 1.0f;
    const double along = write_rows(x, x->dq, &b->dq, x->q, &f->q, window,
                                    head, f->queries, dq);
    for (uint32_t block = 0; x->is_cosine && block < f->row_blocks; block++) {
        float *sum = partials(x, b->scale_partials) + block * f->heads + head;
        *sum = (starts ? 0.0f : *sum) + (block == 0 ? (float)along : 0.0f);
        if (window + head + block == 0 && is_wrong(x, WA_D_LOGIT_SCALE))
            *sum += 1e6f;
    }
}

static void make_keys(const windows *x, size_t window, uint32_t head,
                      double *dk, double *dv, double *p, double *ds)
{
    const forward_args *f = &x->args;
    const backward_args *b = &x->gradients;
    const double scale = scale_of(x, head);
    const size_t bytes = (size_t)f->keys * x->dim * sizeof *dk;
    memset(dk, 0, bytes);
    memset(dv, 0, bytes);
    for (uint32_t row = 0; row < f->queries; row++) {
        const double *q = x->q + window_row(x, &f->q, window, head, row);
        const double *d_o = x->d_o + window_row(x, &b->d_o, window, head, row);
        differentiate(x, window, head, row, p, ds);
        for (uint32_t key = 0; key < f->keys; key++) {
            if (p[key] <= NOTHING)
                continue;
            add(x, gradient_row(x, dk, key),
                scale * ds[key] * inverse_of(x, q), q);
            add(x, gradient_row(x, dv, key), p[key], d_o);
        }
    }
    write_rows(x, x->dk, &b->dk, x->k, &f->k, window, head, f->keys, dk);
    write_rows(x, x->dv, &b->dv, NULL, NULL, window, head, f->keys, dv);
}

/* Channel 1 of the first row is wrong where it is to be. */
static void spoil(const windows *x, bool of_rows)
{
    const struct {
        wa_tensor_id id;
        const argument *is;
        const tensor_layout *layout;
    } all[] = {{WA_DQ, x->dq, &x->gradients.dq},
               {WA_DK, x->dk, &x->gradients.dk},
               {WA_DV, x->dv, &x->gradients.dv}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (is_wrong(x, all[i].id) && of_rows == (i == 0))
            ((uint16_t *)(void *)all[i]
                 .is->buffer->bytes)[all[i].layout->offset + 1] ^= 0x4000;
}

static void compute_gradients(const windows *x, bool of_rows)
{
    const forward_args *f = &x->args;
    const uint32_t most = f->queries > f->keys ? f->queries : f->keys;
    double *p = own_calloc(f->keys, sizeof *p);
    double *ds = own_calloc(f->keys, sizeof *ds);
    double *first = own_calloc((size_t)most * x->dim, sizeof *first);
    double *second = own_calloc((size_t)most * x->dim, sizeof *second);
    for (size_t w = 0; w < f->windows; w++)
        for (uint32_t head = 0; head < f->heads; head++) {
            const size_t window = (size_t)f->first_window + w;
            if (of_rows)
                make_rows(x, window, head, first, p, ds);
            else
                make_keys(x, window, head, first, second, p, ds);
        }
    spoil(x, of_rows);
    free(p);
    free(ds);
    free(first);
    free(second);
}

/* ---- The kernels ---- */

void compute_window(cl_kernel kernel)
{
    const char *options = kernel->program->options;
    const char *name = kernel->facts->name;
    const bool is_forward = strcmp(name, "window_forward_wgmma") == 0;
    const argument *given = kernel->arguments;
    windows x;
    size_t n = 1;
    read_window_options(&x, options);
    if (!is_forward)
        memcpy(&x.gradients, given[0].bytes, sizeof x.gradients);
    memcpy(&x.args, given[0].bytes, sizeof x.args);
    x.q = read_numbers(&x, &given[n++]);
    x.k = read_numbers(&x, &given[n++]);
    x.v = read_numbers(&x, &given[n++]);
    if (x.has_bias)
        x.bias = read_numbers(&x, &given[n++]);
    if (x.table == TABLE_BY_INDEX)
        x.index = &given[n++];
    if (x.mask == MASK_REGIONS) {
        x.query_regions = &given[n++];
        x.key_regions = &given[n++];
    }
    if (x.is_cosine)
        x.logit_scale = &given[n++];
    x.o = &given[n++];
    x.lse = &given[n++];
    if (is_forward && x.q) { /* else it is not the self-test */
        compute_all(&x);
    } else if (x.q) {
        x.d_o = read_numbers(&x, &given[n]);
        x.dq = &given[n + 2];
        x.dk = &given[n + 3];
        x.dv = &given[n + 4];
        x.workspace = &given[n + 5];
        compute_gradients(&x, strcmp(name, "window_rows_wgmma") == 0);
    }
    free(x.q);
    free(x.k);
    free(x.v);
    free(x.bias);
    free(x.d_o);
}
