/* SPDX-License-Identifier: Apache-2.0
 * Reads samples. */
#include "measure/sample.h"

#include <math.h>
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

/* ---- Tokens ---- */

/* What is read of a grid at once. */
#define CHUNK_BYTES ((size_t)32 << 20)

sampler sampler_open(const workload *w)
{
    sampler s;
    memset(&s, 0, sizeof s);
    s.w = w;
    return s;
}

void sampler_close(sampler *from)
{
    for (size_t i = 0; i < SAMPLE_CHUNKS; i++)
        free(from->chunk[i].bytes);
    memset(from, 0, sizeof *from);
}

/* The bytes of a token of all grids; NULL if they could not be read. */
static const unsigned char *token_bytes(sampler *from, cl_mem mem,
                                        size_t token_size, size_t token)
{
    const size_t all = (size_t)workload_tokens(&from->w->c);
    sample_chunk *chunk = from->chunk;
    while (chunk->mem && chunk->mem != mem)
        if (++chunk == from->chunk + SAMPLE_CHUNKS)
            return NULL;
    if (!chunk->mem || token < chunk->first ||
        token - chunk->first >= chunk->count) {
        const size_t fitting = CHUNK_BYTES / token_size;
        const size_t most = fitting < 1 ? 1 : fitting;
        chunk->mem = mem;
        chunk->first = token / most * most;
        chunk->count = all - chunk->first < most ? all - chunk->first : most;
        if (!chunk->bytes)
            chunk->bytes = malloc((all < most ? all : most) * token_size);
        if (!chunk->bytes ||
            clEnqueueReadBuffer(from->w->device->queue, mem, CL_TRUE,
                                chunk->first * token_size,
                                chunk->count * token_size, chunk->bytes, 0,
                                NULL, NULL) != CL_SUCCESS) {
            chunk->count = 0;
            return NULL;
        }
    }
    return chunk->bytes + (token - chunk->first) * token_size;
}

bool sample_exists(const workload *w, size_t window, size_t row)
{
    const grid_map *map = &w->map;
    return !w->c.grid ||
           map->token[window % map->windows * map->tokens + row] != GRID_NONE;
}

/* A row on the grid. */
static bool read_token(sampler *from, const workload_place *place, cl_mem mem,
                       size_t window, size_t head, size_t row, double *to)
{
    const workload *w = from->w;
    const grid_map *map = &w->map;
    const storage_kind kind = workload_kind(&w->c);
    const size_t size = kind_size(kind), dim = (size_t)w->c.dim;
    const size_t of_grid = (size_t)workload_tokens(&w->c) / (size_t)w->c.batch;
    const size_t token = window / map->windows * of_grid +
                         map->token[window % map->windows * map->tokens + row];
    const unsigned char *bytes =
        token_bytes(from, mem, place->token * size, token);
    for (size_t i = 0; bytes && i < dim; i++)
        to[i] =
            kind_read(kind, bytes + (place->first + head * dim + i) * size);
    return bytes != NULL;
}

bool sample_rows(sampler *from, tensor_id id, cl_mem mem, size_t window,
                 size_t head, size_t first, size_t rows, double *to)
{
    const workload *w = from->w;
    const storage_kind kind = workload_kind(&w->c);
    const workload_place place = workload_place_of(&w->c, id);
    const bool of_keys = id == T_K || id == T_V || id == T_DK || id == T_DV;
    const size_t dim = (size_t)w->c.dim;
    const size_t tokens = (size_t)(of_keys ? w->c.keys : w->c.queries);
    const cl_mem pad = id == T_K ? w->pad_k : id == T_V ? w->pad_v : NULL;
    if (!w->c.grid)
        return sample_read(w, mem, kind,
                           ((window * place.heads + head) * tokens + first) *
                               dim,
                           rows * dim, to);
    for (size_t i = 0; i < rows; i++, to += dim) {
        bool good = true;
        if (sample_exists(w, window, first + i))
            good = read_token(from, &place, mem, window, head, first + i, to);
        else if (pad)
            good = sample_read(w, pad, kind, head * dim, dim, to);
        else
            memset(to, 0, dim * sizeof *to);
        if (!good)
            return false;
    }
    return true;
}

/* ---- Terms ---- */

/* The bias of `rows` queries, from where the table has it. */
static bool read_bias(const workload *w, size_t head, size_t first,
                      size_t rows, double *bias)
{
    const test_case *c = &w->c;
    const size_t keys = (size_t)c->keys, heads = (size_t)c->heads;
    const storage_kind kind =
        c->bias == TERM_FP32 || c->bias == TERM_TABLE_FP32 ? KIND_FP32
                                                           : workload_kind(c);
    if (!w->entry)
        return sample_read(w, w->bias, kind,
                           (head * (size_t)c->queries + first) * keys,
                           rows * keys, bias);
    const size_t count = (size_t)case_table_entries(c) * heads;
    double *table = malloc(count * sizeof *table);
    const bool good = table && sample_read(w, w->bias, kind, 0, count, table);
    for (size_t i = 0; good && i < rows * keys; i++)
        bias[i] = table[w->entry[first * keys + i] * heads + head];
    free(table);
    return good;
}

static bool hides_padding(const test_case *c)
{
    return c->grid && c->padding == WINATTN_PADDING_HIDDEN;
}

/* Keys of the padding that nobody sees: whatever else is added there. */
static void hide_padding(const workload *w, size_t window, size_t rows,
                         bool has_mask, double *mask)
{
    const size_t keys = (size_t)w->c.keys;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < keys; j++) {
            if (!has_mask)
                mask[i * keys + j] = 0;
            if (!sample_exists(w, window, j))
                mask[i * keys + j] = -INFINITY;
        }
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
        case_mask_is_read(c) ? window % (size_t)c->mask_windows : 0;
    if (w->bias) {
        s->problem.bias = bias;
        if (!read_bias(w, head, first, rows, bias))
            return false;
    }
    if (w->mask) {
        s->problem.mask = mask;
        if (!sample_read(w, w->mask, c->mask == TERM_FP32 ? KIND_FP32 : kind,
                         (number * all + first) * keys, rows * keys, mask))
            return false;
    }
    if (hides_padding(c)) {
        hide_padding(w, window, rows, w->mask != NULL, mask);
        s->problem.mask = mask;
    }
    if (c->mask == TERM_SHIFT) {
        const unsigned char *regions =
            w->map.region + window % w->map.windows * w->map.tokens;
        memcpy(s->regions, regions + first, rows);
        memcpy(s->regions + rows, regions, keys);
        s->problem.query_region = s->regions;
        s->problem.key_region = s->regions + rows;
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

bool sample_open(sampler *from, size_t window, size_t head, size_t first,
                 size_t rows, sample *s)
{
    const workload *w = from->w;
    const test_case *c = &w->c;
    const size_t dim = (size_t)c->dim, keys = (size_t)c->keys;
    const size_t kv_head = head * (size_t)c->kv_heads / (size_t)c->heads;
    const size_t plane =
        w->bias || w->mask || hides_padding(c) ? rows * keys : 0;
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
    if (!sample_rows(from, T_Q, w->q[0], window, head, first, rows, q) ||
        !sample_rows(from, T_K, w->k[0], window, kv_head, 0, keys, k) ||
        !sample_rows(from, T_V, w->v[0], window, kv_head, 0, keys, v) ||
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
