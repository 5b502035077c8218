/* SPDX-License-Identifier: Apache-2.0
 * Puts samples together. */
#include "measure/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rows ---- */

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

/* ---- Terms ---- */

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
