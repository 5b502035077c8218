/* SPDX-License-Identifier: Apache-2.0
 * Buffers and data of a benched case. */
#include "measure/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sets together should exceed this many bytes, more than any cache holds. */
#define ROTATED_BYTES (384.0 * 1024 * 1024)
#define PATTERN ((1 << 18) + 13) /* elements; repeated over a buffer */

storage_kind workload_kind(const test_case *c)
{
    return c->dtype == WINATTN_FP32   ? KIND_FP32
           : c->dtype == WINATTN_FP16 ? KIND_FP16
                                      : KIND_BF16;
}

double workload_tokens(const test_case *c)
{
    double tokens = c->batch;
    if (!c->grid)
        return (double)c->windows * c->queries;
    for (int axis = 0; axis < c->grid; axis++)
        tokens *= c->size[axis];
    return tokens;
}

static bool is_packed(const test_case *c)
{
    return c->grid && c->layout == LAYOUT_PACKED;
}

/* Elements of a packed token. */
static size_t packed_elements(const test_case *c)
{
    return ((size_t)c->heads + 2 * (size_t)c->kv_heads) * (size_t)c->dim;
}

workload_place workload_place_of(const test_case *c, tensor_id id)
{
    const bool of_keys = id == T_K || id == T_V || id == T_DK || id == T_DV;
    const bool packs = id <= T_V || (id >= T_DQ && id <= T_DV);
    const size_t dim = (size_t)c->dim;
    workload_place place = {0, 0, 0};
    place.heads = (size_t)(of_keys ? c->kv_heads : c->heads);
    place.token = place.heads * dim;
    if (!packs || !is_packed(c))
        return place;
    place.token = packed_elements(c);
    if (of_keys)
        place.first = (size_t)c->heads * dim;
    if (id == T_V || id == T_DV)
        place.first += (size_t)c->kv_heads * dim;
    return place;
}

static winattn_strides packed_strides(const test_case *c)
{
    winattn_strides s;
    memset(&s, 0, sizeof s);
    s.column = 1;
    s.head = (cl_ulong)c->dim;
    s.window = packed_elements(c);
    for (int axis = c->grid - 1; axis >= 0; axis--) {
        s.axis[axis] = s.window;
        s.window *= (cl_ulong)c->size[axis];
    }
    return s;
}

winattn_desc workload_desc(const test_case *c)
{
    winattn_desc desc = case_desc(c);
    if (is_packed(c))
        desc.q = desc.k = desc.v = desc.dq = desc.dk = desc.dv =
            packed_strides(c);
    return desc;
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

/* All bits set, which is NaN in every type: what is not written shows. */
static bool poison(const bench_device *device, cl_mem mem, size_t bytes)
{
    const cl_ushort ones = 0xffff;
    return clEnqueueFillBuffer(device->queue, mem, &ones, sizeof ones, 0,
                               bytes, 0, NULL, NULL) == CL_SUCCESS &&
           clFinish(device->queue) == CL_SUCCESS;
}

/* NULL for a buffer into which nothing could be written. */
static cl_mem if_written(cl_mem mem, bool written)
{
    if (mem && !written) {
        clReleaseMemObject(mem);
        return NULL;
    }
    return mem;
}

static cl_mem new_memory(const bench_device *device, size_t bytes)
{
    return clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL,
                          NULL);
}

static cl_mem new_output(const bench_device *device, size_t bytes)
{
    cl_mem mem = new_memory(device, bytes);
    return if_written(mem, mem && poison(device, mem, bytes));
}

static cl_mem new_copy(const bench_device *device, cl_mem from, size_t bytes)
{
    cl_mem mem = new_memory(device, bytes);
    return if_written(mem, mem &&
                               clEnqueueCopyBuffer(device->queue, from, mem, 0,
                                                   0, bytes, 0, NULL,
                                                   NULL) == CL_SUCCESS &&
                               clFinish(device->queue) == CL_SUCCESS);
}

/* Another name of a buffer. */
static cl_mem again(cl_mem mem)
{
    clRetainMemObject(mem);
    return mem;
}

/* What each set has of its own. All have the first one's numbers: drawing them
 * took longer than the calls that are timed. */
static bool create_set(workload *w, int set, storage_kind rounding)
{
    const test_case *c = &w->c;
    const bench_device *device = w->device;
    const storage_kind kind = workload_kind(c);
    const size_t size = kind_size(kind), dim = (size_t)c->dim;
    const size_t tokens = (size_t)workload_tokens(c);
    const size_t key_tokens =
        c->grid ? tokens : (size_t)c->windows * (size_t)c->keys;
    const bool packs = is_packed(c), forward = w->pass == BENCH_FORWARD;
    const size_t o_count = tokens * (size_t)c->heads * dim;
    const size_t q_count = packs ? tokens * packed_elements(c) : o_count;
    const size_t k_count = key_tokens * (size_t)c->kv_heads * dim;
    const struct {
        cl_mem *mems;
        tensor_id id;
        size_t count;
    } drawn[] = {
        {w->q, T_Q, q_count}, {w->k, T_K, k_count},     {w->v, T_V, k_count},
        {w->o, T_O, o_count}, {w->d_o, T_D_O, o_count},
    };
    const struct {
        cl_mem *mem;
        tensor_id id;
        size_t bytes;
    } outputs[] = {
        {&w->lse[set], T_LSE, (size_t)workload_lse_bytes(c, w->pass)},
        {&w->dq[set], T_DQ, q_count * size},
        {&w->dk[set], T_DK, k_count * size},
        {&w->dv[set], T_DV, k_count * size},
    };
    for (unsigned i = 0; i < (forward ? 4 : 5); i++) {
        cl_mem *mem = &drawn[i].mems[set];
        if (packs && (drawn[i].id == T_K || drawn[i].id == T_V))
            *mem = again(w->q[set]);
        else if (set > 0)
            *mem = new_copy(device, *drawn[i].mems, drawn[i].count * size);
        else
            *mem = new_buffer(device, drawn[i].id, kind, rounding,
                              drawn[i].count, (unsigned)c->seed + i + 1);
        if (!*mem)
            return false;
    }
    for (size_t i = 0; i < (forward ? 0 : 4); i++) {
        const bool shares =
            packs && (outputs[i].id == T_DK || outputs[i].id == T_DV);
        *outputs[i].mem =
            shares ? again(w->dq[set]) : new_output(device, outputs[i].bytes);
        if (!*outputs[i].mem)
            return false;
    }
    return true;
}

/* Values of the padding, and their gradients. */
static bool create_pads(workload *w, storage_kind rounding)
{
    const test_case *c = &w->c;
    const size_t count = (size_t)c->kv_heads * (size_t)c->dim;
    const bool back = w->pass != BENCH_FORWARD;
    cl_mem *pads[] = {&w->pad_k, &w->pad_v};
    cl_mem *gradients[] = {&w->d_pad_k, &w->d_pad_v};
    for (unsigned i = 0; i < 2; i++) {
        if (!c->grid || c->padding != WINATTN_PADDING_VALUES ||
            !(c->pads >> i & 1))
            continue;
        *pads[i] = new_buffer(w->device, i ? T_PAD_V : T_PAD_K,
                              workload_kind(c), rounding, count, 9 + i);
        if (!*pads[i] ||
            (back && !(*gradients[i] = new_output(w->device, 4 * count))))
            return false;
    }
    return true;
}

/* Which entry of the table each query and key takes. */
static bool create_entries(workload *w)
{
    const size_t queries = (size_t)w->c.queries, keys = (size_t)w->c.keys;
    if (!case_has_table(&w->c))
        return true;
    w->entry = malloc(sizeof *w->entry * queries * keys);
    for (size_t i = 0; w->entry && i < queries * keys; i++)
        w->entry[i] = grid_table_entry(&w->c, i / keys, i % keys);
    return w->entry != NULL;
}

/* What all sets share. */
static bool create_shared(workload *w, storage_kind rounding)
{
    const test_case *c = &w->c;
    const bench_device *device = w->device;
    const storage_kind kind = workload_kind(c);
    const bool wide_bias = c->bias == TERM_FP32 || c->bias == TERM_TABLE_FP32;
    const storage_kind mask_kind = c->mask == TERM_FP32 ? KIND_FP32 : kind;
    const size_t plane = (size_t)c->queries * (size_t)c->keys;
    const size_t logits =
        (size_t)c->heads *
        (case_has_table(c) ? (size_t)case_table_entries(c) : plane);
    const bool back = w->pass != BENCH_FORWARD;
    if (c->bias != TERM_NONE &&
        (!(w->bias =
               new_buffer(device, T_BIAS, wide_bias ? KIND_FP32 : kind,
                          wide_bias ? KIND_FP32 : rounding, logits, 5)) ||
         (back && !(w->dbias = new_output(device, 4 * logits)))))
        return false;
    if (case_mask_is_array(c) &&
        !(w->mask = new_buffer(device, T_MASK, mask_kind,
                               c->mask == TERM_FP32 ? KIND_FP32 : rounding,
                               (size_t)c->mask_windows * plane, 6)))
        return false;
    if (c->mask == TERM_REGIONS) {
        const size_t masks = (size_t)c->mask_windows;
        w->query_regions = new_buffer(device, T_QUERY_REGIONS, KIND_U8,
                                      KIND_U8, masks * (size_t)c->queries, 7);
        w->key_regions = new_buffer(device, T_KEY_REGIONS, KIND_U8, KIND_U8,
                                    masks * (size_t)c->keys, 7);
        if (!w->query_regions || !w->key_regions)
            return false;
    }
    if (!create_pads(w, rounding))
        return false;
    const size_t heads = (size_t)c->heads;
    return c->variant != WINATTN_COSINE ||
           ((w->logit_scale = new_buffer(device, T_LOGIT_SCALE, KIND_FP32,
                                         KIND_FP32, heads, 8)) &&
            (!back || (w->d_logit_scale = new_output(device, 4 * heads))));
}

static bool create(const bench_device *device, const test_case *c,
                   bench_pass pass, int calls, storage_kind rounding,
                   workload *w)
{
    /* of the backward pass a set has o and lse besides */
    const double set_bytes = workload_bytes(c, pass);
    const double set_memory =
        workload_bytes(c, pass == BENCH_FORWARD ? pass : BENCH_BOTH);
    memset(w, 0, sizeof *w);
    w->device = device;
    w->c = *c;
    if (!is_packed(c))
        w->c.layout = LAYOUT_CONTIGUOUS;
    w->pass = pass;
    w->desc = workload_desc(&w->c);
    double sets = ceil(ROTATED_BYTES / set_bytes) + 1;
    const double fitting = (double)device->memory_bytes * 0.6 / set_memory;
    sets = sets > fitting ? fitting : sets;
    sets = sets > calls ? calls : sets;
    w->sets = sets < 1 ? 1 : sets > MOST_SETS ? MOST_SETS : (int)sets;
    bool good = (!c->grid || grid_map_make(c, &w->map)) && create_entries(w) &&
                create_shared(w, rounding);
    for (int i = 0; good && i < w->sets; i++)
        good = create_set(w, i, rounding);
    if (!good)
        workload_release(w);
    return good;
}

bool workload_create(const bench_device *device, const test_case *c,
                     bench_pass pass, int calls, workload *w)
{
    return create(device, c, pass, calls, workload_kind(c), w);
}

bool workload_create_widened(const bench_device *device, const test_case *c,
                             bench_pass pass, int calls, workload *w)
{
    test_case widened = *c;
    widened.dtype = WINATTN_FP32;
    return create(device, &widened, pass, calls, workload_kind(c), w);
}

void workload_release(workload *w)
{
    cl_mem shared[] = {w->bias,          w->mask,        w->query_regions,
                       w->key_regions,   w->logit_scale, w->dbias,
                       w->d_logit_scale, w->pad_k,       w->pad_v,
                       w->d_pad_k,       w->d_pad_v};
    for (int i = 0; i < w->sets; i++) {
        cl_mem own[] = {w->q[i],   w->k[i],  w->v[i],  w->o[i], w->lse[i],
                        w->d_o[i], w->dq[i], w->dk[i], w->dv[i]};
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            if (own[j])
                clReleaseMemObject(own[j]);
    }
    for (size_t j = 0; j < sizeof shared / sizeof *shared; j++)
        if (shared[j])
            clReleaseMemObject(shared[j]);
    grid_map_free(&w->map);
    free(w->entry);
    memset(w, 0, sizeof *w);
}

/* A tensor of the tokens in its buffer. */
static winattn_tensor place_in(const workload *w, tensor_id id, cl_mem mem)
{
    const workload_place place = workload_place_of(&w->c, id);
    const winattn_tensor t = {mem,
                              place.first * kind_size(workload_kind(&w->c))};
    return t;
}

bool workload_poison(const workload *w)
{
    const bool forward = w->pass != BENCH_BACKWARD;
    const bool backward = w->pass != BENCH_FORWARD;
    const struct {
        cl_mem mem;
        bool is_output;
    } tensors[] = {
        {w->o[0], forward},     {w->dq[0], backward},
        {w->dk[0], backward},   {w->dv[0], backward},
        {w->dbias, backward},   {w->d_logit_scale, backward},
        {w->d_pad_k, backward}, {w->d_pad_v, backward},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        size_t bytes;
        if (tensors[i].mem && tensors[i].is_output &&
            (clGetMemObjectInfo(tensors[i].mem, CL_MEM_SIZE, sizeof bytes,
                                &bytes, NULL) != CL_SUCCESS ||
             !poison(w->device, tensors[i].mem, bytes)))
            return false;
    }
    return true;
}

winattn_forward workload_forward(const workload *w, unsigned round)
{
    const unsigned set = round % (unsigned)w->sets;
    winattn_forward f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.q = place_in(w, T_Q, w->q[set]);
    f.k = place_in(w, T_K, w->k[set]);
    f.v = place_in(w, T_V, w->v[set]);
    f.o.buffer = w->o[set];
    f.lse.buffer = w->lse[set];
    f.bias.buffer = w->bias;
    f.mask.buffer = w->mask;
    f.query_regions.buffer = w->query_regions;
    f.key_regions.buffer = w->key_regions;
    f.logit_scale.buffer = w->logit_scale;
    f.pad_k.buffer = w->pad_k;
    f.pad_v.buffer = w->pad_v;
    return f;
}

winattn_backward workload_backward(const workload *w, unsigned round)
{
    const unsigned set = round % (unsigned)w->sets;
    winattn_backward b;
    memset(&b, 0, sizeof b);
    b.struct_size = sizeof b;
    b.q = place_in(w, T_Q, w->q[set]);
    b.k = place_in(w, T_K, w->k[set]);
    b.v = place_in(w, T_V, w->v[set]);
    b.bias.buffer = w->bias;
    b.mask.buffer = w->mask;
    b.query_regions.buffer = w->query_regions;
    b.key_regions.buffer = w->key_regions;
    b.logit_scale.buffer = w->logit_scale;
    b.pad_k.buffer = w->pad_k;
    b.pad_v.buffer = w->pad_v;
    b.o.buffer = w->o[set];
    b.lse.buffer = w->lse[set];
    b.d_o.buffer = w->d_o[set];
    b.dq = place_in(w, T_DQ, w->dq[set]);
    b.dk = place_in(w, T_DK, w->dk[set]);
    b.dv = place_in(w, T_DV, w->dv[set]);
    b.dbias.buffer = w->dbias;
    b.d_logit_scale.buffer = w->d_logit_scale;
    b.d_pad_k.buffer = w->d_pad_k;
    b.d_pad_v.buffer = w->d_pad_v;
    return b;
}

double workload_bytes(const test_case *c, bench_pass pass)
{
    /* tensors like q and tensors like k */
    static const double like_q[] = {2, 3, 5}, like_k[] = {2, 4, 6};
    const double tokens = workload_tokens(c);
    const double key_tokens = c->grid ? tokens : (double)c->windows * c->keys;
    const double q = tokens * c->heads * c->dim;
    const double k = key_tokens * c->kv_heads * c->dim;
    return (like_q[pass] * q + like_k[pass] * k) *
           (double)kind_size(workload_kind(c));
}

double workload_lse_bytes(const test_case *c, bench_pass pass)
{
    return pass == BENCH_FORWARD ? 0 : 4.0 * workload_tokens(c) * c->heads;
}

oracle_problem workload_oracle(const test_case *c)
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

/* Pairs of a query and a key that meet, of all grids: windows are boxes, so
 * the sums over an axis multiply. Hidden padding leaves a window as many keys
 * as it has queries. */
static double pairs_of_grid(const test_case *c)
{
    double pairs = c->batch;
    if (c->padding != WINATTN_PADDING_HIDDEN)
        return workload_tokens(c) * c->keys;
    for (int axis = 0; axis < c->grid; axis++) {
        const int size = c->size[axis], window = c->window[axis];
        const int count = (size + window - 1) / window;
        /* padding that comes after the roll lies behind all tokens */
        const int shift = count > 1 && !c->roll_first ? c->shift[axis] : 0;
        double sum = 0;
        for (int i = 0; i < count; i++) {
            double tokens = 0;
            for (int j = i * window; j < (i + 1) * window; j++)
                tokens += (j + shift) % (count * window) < size;
            sum += tokens * tokens;
        }
        pairs *= sum;
    }
    return pairs;
}

double workload_operations(const test_case *c, bench_pass pass)
{
    /* products of queries x visible keys x dim */
    static const double products[] = {2, 5, 7};
    double seen = (double)c->queries * c->keys;
    if (c->variant == WINATTN_SLIDING) {
        const oracle_problem p = workload_oracle(c);
        const int first = c->first_block ? c->first_block : c->block;
        double same = 0; /* for all queries of a block */
        seen = 0;
        for (int i = 0; i < c->queries; i++) {
            const long long behind = (long long)i + c->query_offset - first;
            if (i == 0 || (behind >= 0 && behind % c->block == 0))
                same = (double)oracle_seen(&p, (size_t)i);
            seen += same;
        }
    }
    const double pairs = c->grid ? pairs_of_grid(c) : seen * c->windows;
    return products[pass] * 2.0 * c->dim * pairs * c->heads;
}
