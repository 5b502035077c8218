/* SPDX-License-Identifier: Apache-2.0
 * Puts samples together, and compares o with the oracle's. */
#include "measure/accuracy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/verdict.h"

/* ---- Rows of samples ---- */

/* Bytes of the first set, to be freed; NULL if they could not be read. */
static unsigned char *read_bytes(const workload *w, tensor_id id, size_t first,
                                 size_t count)
{
    unsigned char *bytes = malloc(count + 1);
    if (bytes && count > 0 &&
        clEnqueueReadBuffer(w->device->queue, workload_mem(w, 0, id), CL_TRUE,
                            first, count, bytes, 0, NULL,
                            NULL) != CL_SUCCESS) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

bool sample_sums(const workload *w, tensor_id id, size_t first, size_t count,
                 double *to)
{
    const size_t size = sizeof(float);
    unsigned char *bytes = read_bytes(w, id, first * size, count * size);
    for (size_t i = 0; bytes && i < count; i++)
        to[i] = kind_read(KIND_FP32, bytes + i * size);
    free(bytes);
    return bytes != NULL;
}

bool sample_exists(const workload *w, size_t window, size_t row)
{
    return data_find(w->d, T_Q, &window, &row);
}

static void draw_row(const workload *w, tensor_id id, size_t window,
                     size_t head, size_t row, double *to)
{
    const tensor_id pad = id == T_K ? T_PAD_K : id == T_V ? T_PAD_V : TENSORS;
    const bool exists = data_find(w->d, id, &window, &row);
    const size_t dim = w->d->tensor[id].extent[3];
    for (size_t x = 0; x < dim; x++)
        to[x] = exists ? workload_value(w, id, window, head, row, x)
                : pad < TENSORS && w->d->tensor[pad].used
                    ? workload_value(w, pad, 0, head, 0, x)
                    : 0;
}

/* Tokens on a grid are scattered: all between the first and the last one is
 * read. */
static bool read_rows(const workload *w, tensor_id id, size_t window,
                      size_t head, size_t first, size_t rows, double *to)
{
    const tensor_data *t = &w->d->tensor[id];
    const size_t dim = t->extent[3], size = kind_size(t->kind);
    size_t begin = SIZE_MAX, end = 0;
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, row = first + i;
        if (!data_find(w->d, id, &at, &row))
            continue;
        const size_t from = data_at(t, at, head, row, 0);
        begin = from < begin ? from : begin;
        end = from > end ? from : end;
    }
    const size_t count = begin > end ? 0 : end - begin + dim * size;
    unsigned char *bytes = read_bytes(w, id, count ? begin : 0, count);
    for (size_t i = 0; bytes && i < rows; i++) {
        size_t at = window, row = first + i;
        const bool exists = data_find(w->d, id, &at, &row);
        for (size_t x = 0; x < dim; x++)
            *to++ =
                exists
                    ? kind_read(t->kind,
                                bytes + data_at(t, at, head, row, x) - begin)
                    : 0;
    }
    free(bytes);
    return bytes != NULL;
}

bool sample_rows(const workload *w, tensor_id id, size_t window, size_t head,
                 size_t first, size_t rows, double *to)
{
    const size_t dim = w->d->tensor[id].extent[3];
    if (!w->d->tensor[id].value && id > T_V)
        return read_rows(w, id, window, head, first, rows, to);
    for (size_t i = 0; i < rows; i++)
        draw_row(w, id, window, head, first + i, to + i * dim);
    return true;
}

/* ---- Their terms ---- */

/* Bias and mask of a query and a key. */
static double bias_of(const workload *w, size_t head, size_t query, size_t key)
{
    const case_buffers *d = w->d;
    const size_t keys = (size_t)d->c.keys;
    return d->entry ? workload_value(w, T_BIAS, 0, head,
                                     (size_t)d->entry[query * keys + key], 0)
                    : workload_value(w, T_BIAS, 0, head, query, key);
}

static double mask_of(const workload *w, size_t window, size_t number,
                      size_t query, size_t key)
{
    if (!sample_exists(w, window, key))
        return -INFINITY; /* whatever else is added there */
    return w->d->tensor[T_MASK].used
               ? workload_value(w, T_MASK, number, 0, query, key)
               : 0;
}

/* The regions of `count` tokens. */
static void find_regions(const workload *w, tensor_id id, size_t window,
                         size_t number, size_t first, size_t count,
                         unsigned char *to)
{
    const grid_map *map = &w->d->map;
    for (size_t i = 0; i < count; i++)
        to[i] =
            w->d->c.mask == TERM_SHIFT
                ? map->region[window % map->windows * map->tokens + first + i]
                : (unsigned char)workload_value(w, id, number, 0, first + i,
                                                0);
}

/* Those that the case has not are left out. */
static void add_terms(const workload *w, size_t window, size_t head,
                      size_t first, double *bias, double *mask, sample *s)
{
    const test_case *c = &w->d->c;
    const size_t rows = s->problem.queries, keys = (size_t)c->keys;
    const size_t number =
        case_mask_is_read(c) ? window % (size_t)c->mask_windows : 0;
    const bool hides = c->grid && c->padding == WINATTN_PADDING_HIDDEN;
    if (c->bias != TERM_NONE) {
        s->problem.bias = bias;
        for (size_t i = 0; i < rows * keys; i++)
            bias[i] = bias_of(w, head, first + i / keys, i % keys);
    }
    if (w->d->tensor[T_MASK].used || hides) {
        s->problem.mask = mask;
        for (size_t i = 0; i < rows * keys; i++)
            mask[i] = mask_of(w, window, number, first + i / keys, i % keys);
    }
    if (case_mask_has_regions(c)) {
        s->problem.query_region = s->regions;
        s->problem.key_region = s->regions + rows;
        find_regions(w, T_QUERY_REGIONS, window, number, first, rows,
                     s->regions);
        find_regions(w, T_KEY_REGIONS, window, number, 0, keys,
                     s->regions + rows);
    }
    if (c->variant == WINATTN_COSINE) {
        s->logit_scale =
            (float)workload_value(w, T_LOGIT_SCALE, 0, head, 0, 0);
        s->problem.logit_scale = &s->logit_scale;
    }
}

bool sample_open(const workload *w, size_t window, size_t head, size_t first,
                 size_t rows, sample *s)
{
    const test_case *c = &w->d->c;
    const size_t dim = (size_t)c->dim, keys = (size_t)c->keys;
    const size_t kv_head = head * (size_t)c->kv_heads / (size_t)c->heads;
    const size_t plane = c->variant == WINATTN_SLIDING ? 0 : rows * keys;
    memset(s, 0, sizeof *s);
    s->problem = workload_oracle(c);
    s->problem.queries = rows;
    s->problem.query_offset += first;
    s->numbers =
        malloc(sizeof(double) * (rows * dim + 2 * keys * dim + 2 * plane));
    s->regions = malloc(rows + keys);
    if (!s->numbers || !s->regions) {
        sample_close(s);
        return false;
    }
    double *q = s->numbers, *k = q + rows * dim, *v = k + keys * dim;
    double *bias = v + keys * dim, *mask = bias + plane;
    s->problem.q = q;
    s->problem.k = k;
    s->problem.v = v;
    sample_rows(w, T_Q, window, head, first, rows, q);
    sample_rows(w, T_K, window, kv_head, 0, keys, k);
    sample_rows(w, T_V, window, kv_head, 0, keys, v);
    add_terms(w, window, head, first, bias, mask, s);
    return true;
}

void sample_close(sample *s)
{
    free(s->numbers);
    free(s->regions);
    memset(s, 0, sizeof *s);
}

/* ---- Errors of o ---- */

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
