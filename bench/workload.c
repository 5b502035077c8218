/* SPDX-License-Identifier: Apache-2.0
 * Buffers and data of a benched case. */
#include "workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sets together should exceed this many bytes, more than any cache holds. */
#define ROTATED_BYTES (384.0 * 1024 * 1024)
#define PATTERN ((1 << 18) + 13) /* elements; repeated over a buffer */
#define MOST_ORACLE_ROWS 64

static storage_kind kind_of(const test_case *c)
{
    return c->dtype == WINATTN_FP32   ? KIND_FP32
           : c->dtype == WINATTN_FP16 ? KIND_FP16
                                      : KIND_BF16;
}

static size_t product(int a, int b, int c, int d)
{
    return (size_t)a * (size_t)b * (size_t)c * (size_t)d;
}

static double random_value(tensor_id id, random_state *r)
{
    if (id == T_QUERY_REGIONS || id == T_KEY_REGIONS)
        return random_int(r, 0, 2);
    if (id == T_MASK)
        return random_int(r, 0, 3) == 0 ? -100.0 : 0.0;
    return random_normal(r);
}

/* Elements of a kind, with values that `rounding` can hold, too. */
static cl_mem new_buffer(const bench_device *device, tensor_id id,
                         storage_kind kind, storage_kind rounding,
                         size_t count, unsigned seed)
{
    cl_int error;
    const size_t size = kind_size(kind);
    cl_mem mem = clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                                count * size, NULL, &error);
    if (error != CL_SUCCESS)
        return NULL;
    const size_t period = count < PATTERN ? count : PATTERN;
    unsigned char *pattern = malloc(period * size);
    random_state r = random_seeded(seed);
    for (size_t i = 0; pattern && i < period; i++)
        kind_write(kind, kind_round(rounding, random_value(id, &r)),
                   pattern + i * size);
    for (size_t at = 0; pattern && at < count && error == CL_SUCCESS;
         at += period) {
        const size_t part = count - at < period ? count - at : period;
        error = clEnqueueWriteBuffer(device->queue, mem, CL_FALSE, at * size,
                                     part * size, pattern, 0, NULL, NULL);
    }
    if (!pattern || clFinish(device->queue) != CL_SUCCESS ||
        error != CL_SUCCESS) {
        clReleaseMemObject(mem);
        mem = NULL;
    }
    free(pattern);
    return mem;
}

static bool create(const bench_device *device, const test_case *c, int calls,
                   storage_kind rounding, workload *w)
{
    const storage_kind kind = kind_of(c);
    const storage_kind bias_kind = c->bias == TERM_FP32 ? KIND_FP32 : kind;
    const storage_kind mask_kind = c->mask == TERM_FP32 ? KIND_FP32 : kind;
    const size_t q_count = product(c->windows, c->heads, c->queries, c->dim);
    const size_t k_count = product(c->windows, c->kv_heads, c->keys, c->dim);
    const double set_bytes = workload_bytes(c);
    memset(w, 0, sizeof *w);
    w->device = device;
    w->c = *c;
    w->c.layout = LAYOUT_CONTIGUOUS;
    w->desc = case_desc(&w->c);
    double sets = ceil(ROTATED_BYTES / set_bytes) + 1;
    const double fitting = (double)device->memory_bytes * 0.6 / set_bytes;
    sets = sets > fitting ? fitting : sets;
    sets = sets > calls ? calls : sets;
    w->sets = sets < 1 ? 1 : sets > MOST_SETS ? MOST_SETS : (int)sets;
    for (int i = 0; i < w->sets; i++) {
        const unsigned seed = (unsigned)(c->seed + 8 * i);
        w->q[i] = new_buffer(device, T_Q, kind, rounding, q_count, seed + 1);
        w->k[i] = new_buffer(device, T_K, kind, rounding, k_count, seed + 2);
        w->v[i] = new_buffer(device, T_V, kind, rounding, k_count, seed + 3);
        w->o[i] = new_buffer(device, T_O, kind, rounding, q_count, seed + 4);
        if (!w->q[i] || !w->k[i] || !w->v[i] || !w->o[i])
            goto failed;
    }
    const size_t plane = (size_t)c->queries * (size_t)c->keys;
    if (c->bias != TERM_NONE &&
        !(w->bias = new_buffer(device, T_BIAS, bias_kind,
                               c->bias == TERM_FP32 ? KIND_FP32 : rounding,
                               (size_t)c->heads * plane, 5)))
        goto failed;
    if ((c->mask == TERM_SAME || c->mask == TERM_FP32) &&
        !(w->mask = new_buffer(device, T_MASK, mask_kind,
                               c->mask == TERM_FP32 ? KIND_FP32 : rounding,
                               (size_t)c->mask_windows * plane, 6)))
        goto failed;
    if (c->mask == TERM_REGIONS) {
        const size_t masks = (size_t)c->mask_windows;
        w->query_regions = new_buffer(device, T_QUERY_REGIONS, KIND_U8,
                                      KIND_U8, masks * (size_t)c->queries, 7);
        w->key_regions = new_buffer(device, T_KEY_REGIONS, KIND_U8, KIND_U8,
                                    masks * (size_t)c->keys, 7);
        if (!w->query_regions || !w->key_regions)
            goto failed;
    }
    if (c->variant == WINATTN_COSINE &&
        !(w->logit_scale = new_buffer(device, T_LOGIT_SCALE, KIND_FP32,
                                      KIND_FP32, (size_t)c->heads, 8)))
        goto failed;
    return true;
failed:
    workload_release(w);
    return false;
}

bool workload_create(const bench_device *device, const test_case *c, int calls,
                     workload *w)
{
    return create(device, c, calls, kind_of(c), w);
}

bool workload_create_widened(const bench_device *device, const test_case *c,
                             int calls, workload *w)
{
    test_case widened = *c;
    widened.dtype = WINATTN_FP32;
    return create(device, &widened, calls, kind_of(c), w);
}

void workload_release(workload *w)
{
    cl_mem shared[] = {w->bias, w->mask, w->query_regions, w->key_regions,
                       w->logit_scale};
    for (int i = 0; i < w->sets; i++) {
        cl_mem own[] = {w->q[i], w->k[i], w->v[i], w->o[i]};
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            if (own[j])
                clReleaseMemObject(own[j]);
    }
    for (size_t j = 0; j < sizeof shared / sizeof *shared; j++)
        if (shared[j])
            clReleaseMemObject(shared[j]);
    memset(w, 0, sizeof *w);
}

winattn_forward workload_forward(const workload *w, unsigned round)
{
    const unsigned set = round % (unsigned)w->sets;
    winattn_forward f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.q.buffer = w->q[set];
    f.k.buffer = w->k[set];
    f.v.buffer = w->v[set];
    f.o.buffer = w->o[set];
    f.bias.buffer = w->bias;
    f.mask.buffer = w->mask;
    f.query_regions.buffer = w->query_regions;
    f.key_regions.buffer = w->key_regions;
    f.logit_scale.buffer = w->logit_scale;
    return f;
}

double workload_bytes(const test_case *c)
{
    const double q = (double)product(c->windows, c->heads, c->queries, c->dim);
    const double k = (double)product(c->windows, c->kv_heads, c->keys, c->dim);
    return 2.0 * (q + k) * (double)kind_size(kind_of(c));
}

static oracle_problem oracle_of(const test_case *c)
{
    const oracle_problem p = {
        .queries = (size_t)c->queries,
        .keys = (size_t)c->keys,
        .dim = (size_t)c->dim,
        .region_value = isnan(c->region_value) ? -100.0 : c->region_value,
        .scale = c->scale != 0 ? (float)c->scale : 1.0 / sqrt(c->dim),
        .cosine = c->variant == WINATTN_COSINE,
        .sliding = c->variant == WINATTN_SLIDING,
        .block = (size_t)c->block,
        .first_block = (size_t)c->first_block,
        .window_blocks = (size_t)c->window_blocks,
        .sink = (size_t)c->sink,
        .sink_in_window = c->sink_in_window != 0,
        .query_offset = (size_t)c->query_offset,
    };
    return p;
}

double workload_operations(const test_case *c)
{
    double seen = (double)c->queries * c->keys;
    if (c->variant == WINATTN_SLIDING) {
        const oracle_problem p = oracle_of(c);
        const int first = c->first_block ? c->first_block : c->block;
        double same = 0; /* for all queries of a block */
        seen = 0;
        for (int i = 0; i < c->queries; i++) {
            const int behind = i + c->query_offset - first;
            if (i == 0 || (behind >= 0 && behind % c->block == 0))
                same = (double)oracle_seen(&p, (size_t)i);
            seen += same;
        }
    }
    return 4.0 * c->dim * seen * c->windows * c->heads;
}

/* Reads part of a buffer as doubles; false on failure. */
static bool read_part(const workload *w, cl_mem mem, storage_kind kind,
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

static double sample_error(const workload *w, size_t window, size_t head)
{
    const test_case *c = &w->c;
    const storage_kind kind = kind_of(c);
    const size_t dim = (size_t)c->dim, keys = (size_t)c->keys;
    const size_t kv_head = head * (size_t)c->kv_heads / (size_t)c->heads;
    const size_t q_plane =
        (window * (size_t)c->heads + head) * (size_t)c->queries;
    const size_t k_plane = (window * (size_t)c->kv_heads + kv_head) * keys;
    const size_t mask =
        c->mask == TERM_NONE ? 0 : window % (size_t)c->mask_windows;
    const size_t all = (size_t)c->queries;
    const size_t rows = all < MOST_ORACLE_ROWS ? all : MOST_ORACLE_ROWS;
    const size_t first = (all - rows) * (window % 3) / 2;
    oracle_problem p = oracle_of(c);
    p.queries = rows;
    p.query_offset += first;
    double *x = malloc(sizeof *x * (3 * rows * dim + 2 * keys * dim +
                                    2 * rows * keys + 2 * rows + rows + keys));
    unsigned char *regions = malloc(rows + keys);
    if (!x || !regions) {
        free(x);
        free(regions);
        return NAN;
    }
    double *q = x, *got = q + rows * dim, *o = got + rows * dim;
    double *k = o + rows * dim, *v = k + keys * dim, *bias = v + keys * dim;
    double *additive = bias + rows * keys, *lse = additive + rows * keys;
    double *ids = lse + 2 * rows, largest, scale;
    bool done =
        read_part(w, w->q[0], kind, (q_plane + first) * dim, rows * dim, q) &&
        read_part(w, w->o[0], kind, (q_plane + first) * dim, rows * dim,
                  got) &&
        read_part(w, w->k[0], kind, k_plane * dim, keys * dim, k) &&
        read_part(w, w->v[0], kind, k_plane * dim, keys * dim, v);
    p.q = q;
    p.k = k;
    p.v = v;
    if (done && w->bias) {
        done = read_part(w, w->bias, c->bias == TERM_FP32 ? KIND_FP32 : kind,
                         (head * all + first) * keys, rows * keys, bias);
        p.bias = bias;
    }
    if (done && w->mask) {
        done = read_part(w, w->mask, c->mask == TERM_FP32 ? KIND_FP32 : kind,
                         (mask * all + first) * keys, rows * keys, additive);
        p.mask = additive;
    }
    if (done && w->query_regions) {
        done = read_part(w, w->query_regions, KIND_U8, mask * all + first,
                         rows, ids) &&
               read_part(w, w->key_regions, KIND_U8, mask * keys, keys,
                         ids + rows);
        for (size_t i = 0; i < rows + keys; i++)
            regions[i] = (unsigned char)ids[i];
        p.query_region = regions;
        p.key_region = regions + rows;
    }
    float logit_scale;
    if (done && w->logit_scale) {
        done = read_part(w, w->logit_scale, KIND_FP32, head, 1, &scale);
        logit_scale = (float)scale;
        p.logit_scale = &logit_scale;
    }
    double error = NAN;
    double *size = malloc(sizeof *size * rows * dim);
    if (done && size) {
        double error2 = 0, norm2 = 0;
        oracle_forward(&p, o, size, lse, lse + rows, &largest);
        for (size_t i = 0; i < rows * dim; i++) {
            error2 += (got[i] - o[i]) * (got[i] - o[i]);
            norm2 += o[i] * o[i];
        }
        error = sqrt(error2 / norm2);
    }
    free(size);
    free(regions);
    free(x);
    return error;
}

double workload_error(const workload *w, int samples)
{
    return workload_error_within(w, (size_t)w->c.windows * (size_t)w->c.heads,
                                 samples);
}

double workload_error_within(const workload *w, size_t all, int samples)
{
    double worst = 0;
    for (int i = 0; i < samples; i++) {
        const size_t at =
            samples > 1 ? (all - 1) * (size_t)i / (size_t)(samples - 1) : 0;
        const double error =
            sample_error(w, at / (size_t)w->c.heads, at % (size_t)w->c.heads);
        if (!(error <= worst))
            worst = error;
        if (isnan(worst))
            break;
    }
    return worst;
}
