/* SPDX-License-Identifier: Apache-2.0
 * Reads samples. */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

bool sample_read(const workload *w, cl_mem mem, storage_kind kind,
                 size_t first, size_t count, double *to)
{
    const size_t size = kind_size(kind);
    unsigned char *bytes = malloc(count * size);
    const bool done =
        bytes &&
        clEnqueueReadBuffer(w->device->queue, mem, CL_TRUE, first * size,
                            count * size, bytes, 0, NULL, NULL) == CL_SUCCESS;
    for (size_t i = 0; done && i < count; i++)
        to[i] = kind_read(kind, bytes + i * size);
    free(bytes);
    return done;
}

size_t sample_query_row(const test_case *c, size_t window, size_t head,
                        size_t row)
{
    return (window * (size_t)c->heads + head) * (size_t)c->queries + row;
}

size_t sample_key_row(const test_case *c, size_t window, size_t kv_head,
                      size_t row)
{
    return (window * (size_t)c->kv_heads + kv_head) * (size_t)c->keys + row;
}

/* Bias, mask and regions. */
static bool read_terms(const workload *w, size_t window, size_t head,
                       size_t first, size_t rows, double *bias, double *mask,
                       double *ids, sample *s)
{
    const test_case *c = &w->c;
    const storage_kind kind = workload_kind(c);
    const size_t all = (size_t)c->queries, keys = (size_t)c->keys;
    const size_t number =
        c->mask == TERM_NONE ? 0 : window % (size_t)c->mask_windows;
    if (w->bias) {
        s->problem.bias = bias;
        if (!sample_read(w, w->bias, c->bias == TERM_FP32 ? KIND_FP32 : kind,
                         (head * all + first) * keys, rows * keys, bias))
            return false;
    }
    if (w->mask) {
        s->problem.mask = mask;
        if (!sample_read(w, w->mask, c->mask == TERM_FP32 ? KIND_FP32 : kind,
                         (number * all + first) * keys, rows * keys, mask))
            return false;
    }
    if (w->query_regions) {
        if (!sample_read(w, w->query_regions, KIND_U8, number * all + first,
                         rows, ids) ||
            !sample_read(w, w->key_regions, KIND_U8, number * keys, keys,
                         ids + rows))
            return false;
        for (size_t i = 0; i < rows + keys; i++)
            s->regions[i] = (unsigned char)ids[i];
        s->problem.query_region = s->regions;
        s->problem.key_region = s->regions + rows;
    }
    return true;
}

bool sample_open(const workload *w, size_t window, size_t head, size_t first,
                 size_t rows, sample *s)
{
    const test_case *c = &w->c;
    const storage_kind kind = workload_kind(c);
    const size_t dim = (size_t)c->dim, keys = (size_t)c->keys;
    const size_t kv_head = head * (size_t)c->kv_heads / (size_t)c->heads;
    const size_t q_at = sample_query_row(c, window, head, first) * dim;
    const size_t k_at = sample_key_row(c, window, kv_head, 0) * dim;
    const size_t plane = w->bias || w->mask ? rows * keys : 0;
    double scale;
    memset(s, 0, sizeof *s);
    s->problem = workload_oracle(c);
    s->problem.queries = rows;
    s->problem.query_offset += first;
    s->numbers = malloc(sizeof(double) * (rows * dim + 2 * keys * dim +
                                          2 * plane + rows + keys));
    s->regions = malloc(rows + keys);
    if (!s->numbers || !s->regions)
        goto failed;
    double *q = s->numbers, *k = q + rows * dim, *v = k + keys * dim;
    double *bias = v + keys * dim, *mask = bias + plane, *ids = mask + plane;
    s->problem.q = q;
    s->problem.k = k;
    s->problem.v = v;
    if (!sample_read(w, w->q[0], kind, q_at, rows * dim, q) ||
        !sample_read(w, w->k[0], kind, k_at, keys * dim, k) ||
        !sample_read(w, w->v[0], kind, k_at, keys * dim, v) ||
        !read_terms(w, window, head, first, rows, bias, mask, ids, s))
        goto failed;
    if (w->logit_scale) {
        if (!sample_read(w, w->logit_scale, KIND_FP32, head, 1, &scale))
            goto failed;
        s->logit_scale = (float)scale;
        s->problem.logit_scale = &s->logit_scale;
    }
    return true;
failed:
    sample_close(s);
    return false;
}

void sample_close(sample *s)
{
    free(s->numbers);
    free(s->regions);
    memset(s, 0, sizeof *s);
}
