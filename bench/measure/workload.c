/* SPDX-License-Identifier: Apache-2.0
 * Buffers and data of a benched case. */
#include "measure/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kit/data_parts.h"

/* Sets together should exceed this many bytes, more than any cache holds. */
#define ROTATED_BYTES (384.0 * 1024 * 1024)
#define PATTERN ((1 << 18) + 13) /* elements; repeated over a buffer */

/* Tokens of all grids; without one, queries of all windows. */
static double tokens_of(const test_case *c)
{
    double tokens = c->batch;
    if (!c->grid)
        return (double)c->windows * c->queries;
    for (int axis = 0; axis < c->grid; axis++)
        tokens *= c->size[axis];
    return tokens;
}

/* ---- Where tensors lie ---- */

/* The case as tests have it. */
static test_case case_of_pass(const test_case *c, bench_pass pass)
{
    test_case own = *c;
    const bool packs =
        c->grid && c->layout == LAYOUT_PACKED && c->heads == c->kv_heads;
    own.layout = packs ? LAYOUT_PACKED : LAYOUT_CONTIGUOUS;
    own.pass = pass == BENCH_FORWARD ? PASS_FORWARD : PASS_BACKWARD;
    own.given = 1;
    own.lse = own.d_lse = own.accumulate = 0;
    own.outputs = (1 << (T_D_PAD_K - T_DQ)) - 1;
    own.outputs |= c->pads << (T_D_PAD_K - T_DQ);
    if (isnan(own.logit_scale))
        own.logit_scale = 0;
    return own;
}

/* What is timed begins and ends with its buffer. */
static void leave_guards(case_buffers *d)
{
    size_t guards[TENSORS] = {0};
    for (int id = 0; id < TENSORS; id++) {
        tensor_data *t = &d->tensor[id];
        const size_t before = t->offset >= GUARD ? GUARD : 0;
        if (!t->used)
            continue;
        t->offset -= before;
        guards[t->buffer] = before + (t->is_output ? GUARD : 0);
    }
    for (int i = 0; i < d->buffers; i++)
        d->buffer[i].size -= guards[i];
}

winattn_desc workload_desc(const test_case *c)
{
    case_buffers d = {.c = case_of_pass(c, BENCH_BOTH)};
    data_describe(&d);
    data_place(&d);
    winattn_desc desc = data_desc(&d);
    desc.passes = case_desc(c).passes;
    desc.build_options = NULL; /* those of tests */
    return desc;
}

/* The tensor whose pattern a buffer is full of. */
static int holder_of(const case_buffers *d, int buffer)
{
    int id = 0;
    while (!d->tensor[id].used || d->tensor[id].buffer != buffer)
        id++;
    return id;
}

double workload_value(const workload *w, tensor_id id, size_t window,
                      size_t head, size_t row, size_t column)
{
    const tensor_data *t = &w->d->tensor[id];
    const size_t at =
        data_at(t, window, head, row, column) / kind_size(t->kind);
    const int holder = id <= T_V ? holder_of(w->d, t->buffer) : (int)id;
    return w->d->tensor[holder].value[at % PATTERN];
}

/* ---- Buffers ---- */

static double random_value(int id, random_state *r)
{
    if (id == T_QUERY_REGIONS || id == T_KEY_REGIONS)
        return random_int(r, 0, 2);
    if (id == T_MASK)
        return random_int(r, 0, 3) == 0 ? -100.0 : 0.0;
    return random_normal(r);
}

/* Has each set a buffer of its own for it? */
static bool is_of_set(int id)
{
    return id <= T_V || (id >= T_O && id <= T_DV);
}

static bool is_drawn(int id) { return id < T_O || id == T_D_O; }

/* Fills a buffer with values that `rounding` can hold, too. */
static bool draw(const workload *w, int id, storage_kind rounding, cl_mem mem)
{
    tensor_data *t = &w->d->tensor[id];
    const size_t size = kind_size(t->kind);
    const size_t count = w->d->buffer[t->buffer].size / size;
    const size_t period = count < PATTERN ? count : PATTERN;
    /* of a token its query and its key are of one region */
    random_state r =
        random_seeded((unsigned)w->d->c.seed +
                      (unsigned)(id == T_KEY_REGIONS ? T_QUERY_REGIONS : id));
    unsigned char *pattern = malloc(period * size);
    t->value = malloc(period * sizeof *t->value);
    bool good = pattern && t->value;
    for (size_t i = 0; good && i < period; i++) {
        t->value[i] = kind_round(rounding, random_value(id, &r));
        kind_write(t->kind, t->value[i], pattern + i * size);
    }
    for (size_t at = 0; good && at < count; at += period) {
        const size_t part = count - at < period ? count - at : period;
        good = clEnqueueWriteBuffer(w->device->queue, mem, CL_FALSE, at * size,
                                    part * size, pattern, 0, NULL,
                                    NULL) == CL_SUCCESS;
    }
    good = clFinish(w->device->queue) == CL_SUCCESS && good;
    free(pattern);
    return good;
}

/* All bits set, which is NaN in every type: what is not written shows. */
static bool poison(const bench_device *device, cl_mem mem, size_t bytes)
{
    const cl_ushort ones = 0xffff;
    return clEnqueueFillBuffer(device->queue, mem, &ones, sizeof ones, 0,
                               bytes, 0, NULL, NULL) == CL_SUCCESS &&
           clFinish(device->queue) == CL_SUCCESS;
}

/* All sets have the first one's numbers: drawing them took longer than the
 * calls that are timed. */
static bool create_buffer(workload *w, int set, int buffer,
                          const storage_kind rounding[TENSORS])
{
    const bench_device *device = w->device;
    const size_t bytes = w->d->buffer[buffer].size;
    const int id = holder_of(w->d, buffer);
    cl_mem *mem = &w->set[set].mem[buffer], first = w->set[0].mem[buffer];
    if (set > 0 && !is_of_set(id)) {
        *mem = first;
        return clRetainMemObject(first) == CL_SUCCESS;
    }
    *mem =
        clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, NULL);
    if (!*mem)
        return false;
    if (!is_drawn(id))
        return poison(device, *mem, bytes);
    if (set == 0)
        return draw(w, id, rounding[id], *mem);
    return clEnqueueCopyBuffer(device->queue, first, *mem, 0, 0, bytes, 0,
                               NULL, NULL) == CL_SUCCESS &&
           clFinish(device->queue) == CL_SUCCESS;
}

/* How many sets rotate. */
static int sets_of(const bench_device *device, const test_case *c,
                   bench_pass pass, int calls)
{
    /* of the backward pass a set has o and lse besides */
    const double memory =
        workload_bytes(c, pass == BENCH_FORWARD ? pass : BENCH_BOTH);
    const double fitting = (double)device->memory_bytes * 0.6 / memory;
    const double sets = fmin(ceil(ROTATED_BYTES / workload_bytes(c, pass)) + 1,
                             fmin(fitting, calls));
    return (int)fmax(fmin(sets, MOST_SETS), 1);
}

bool workload_create(const bench_device *device, const test_case *c,
                     bench_pass pass, int calls, bool widens, workload *w)
{
    storage_kind rounding[TENSORS];
    memset(w, 0, sizeof *w);
    w->device = device;
    w->pass = pass;
    case_buffers *d = w->d = calloc(1, sizeof *d);
    if (!d)
        return false;
    d->c = case_of_pass(c, pass);
    data_describe(d);
    for (int id = 0; id < TENSORS; id++)
        rounding[id] = d->tensor[id].kind;
    if (widens)
        d->c.dtype = WINATTN_FP32;
    data_describe(d);
    data_place(d);
    leave_guards(d);
    w->desc = workload_desc(c);
    w->sets = sets_of(device, &d->c, pass, calls);
    bool good =
        (!c->grid || grid_map_make(&d->c, &d->map)) && data_fill_entries(d);
    for (int set = 0; good && set < w->sets; set++)
        for (int i = 0; good && i < d->buffers; i++)
            good = create_buffer(w, set, i, rounding);
    if (!good)
        workload_release(w);
    return good;
}

void workload_release(workload *w)
{
    for (int i = 0; i < w->sets; i++)
        buffers_release(&w->set[i]);
    data_free(w->d);
    memset(w, 0, sizeof *w);
}

cl_mem workload_mem(const workload *w, unsigned set, tensor_id id)
{
    return buffers_tensor(w->d, &w->set[set], id).buffer;
}

bool workload_poison(const workload *w)
{
    for (int i = 0; i < w->d->buffers; i++)
        if (w->d->tensor[holder_of(w->d, i)].is_output &&
            !poison(w->device, w->set[0].mem[i], w->d->buffer[i].size))
            return false;
    return true;
}

/* ---- What a call is worth ---- */

static storage_kind kind_of(const test_case *c)
{
    return c->dtype == WINATTN_FP32   ? KIND_FP32
           : c->dtype == WINATTN_FP16 ? KIND_FP16
                                      : KIND_BF16;
}

double workload_bytes(const test_case *c, bench_pass pass)
{
    /* tensors like q and tensors like k */
    static const double like_q[] = {2, 3, 5}, like_k[] = {2, 4, 6};
    const double tokens = tokens_of(c);
    const double key_tokens = c->grid ? tokens : (double)c->windows * c->keys;
    const double q = tokens * c->heads * c->dim;
    const double k = key_tokens * c->kv_heads * c->dim;
    return (like_q[pass] * q + like_k[pass] * k) *
           (double)kind_size(kind_of(c));
}

double workload_lse_bytes(const test_case *c, bench_pass pass)
{
    return pass == BENCH_FORWARD ? 0 : 4.0 * tokens_of(c) * c->heads;
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
        return tokens_of(c) * c->keys;
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

/* ---- Calls ---- */

winattn_status call_open(const bench_device *device, const test_case *c,
                         cl_bitfield passes, bench_call *call)
{
    winattn_desc desc = workload_desc(c);
    desc.passes = passes;
    memset(call, 0, sizeof *call);
    winattn_status status =
        winattn_plan_create(device->context, device->id, &desc, &call->plan);
    WA_THEN(status,
            winattn_plan_workspace_size(call->plan, &call->workspace_size));
    if (status == WINATTN_SUCCESS && call->workspace_size > 0)
        call->workspace.buffer =
            clCreateBuffer(device->context, CL_MEM_READ_WRITE,
                           call->workspace_size, NULL, &status);
    return status;
}

void call_close(bench_call *call)
{
    if (call->workspace.buffer)
        clReleaseMemObject(call->workspace.buffer);
    winattn_plan_destroy(call->plan);
    memset(call, 0, sizeof *call);
}

void call_described(const winattn_plan *plan, const char *name, char *value,
                    size_t size)
{
    char text[8192] = "";
    const size_t length = strlen(name);
    winattn_plan_describe(plan, sizeof text, text, NULL);
    value[0] = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0) {
            snprintf(value, size, "%.*s", (int)strcspn(line + length, "\n"),
                     line + length);
            return;
        }
    }
}

static const device_buffers *set_of(const bench_call *c, unsigned round)
{
    return &c->w->set[round % (unsigned)c->w->sets];
}

static winattn_status call_forward(void *data, unsigned round)
{
    const bench_call *c = data;
    winattn_forward f = buffers_forward(c->w->d, set_of(c, round));
    f.workspace = c->workspace;
    return winattn_enqueue_forward(c->plan, c->w->device->queue, &f, 0, NULL,
                                   NULL);
}

static winattn_status call_backward(void *data, unsigned round)
{
    const bench_call *c = data;
    winattn_backward b = buffers_backward(c->w->d, set_of(c, round));
    b.workspace = c->workspace;
    return winattn_enqueue_backward(c->plan, c->w->device->queue, &b, 0, NULL,
                                    NULL);
}

/* The queue is in order: the second finds what the first wrote. */
static winattn_status call_both(void *data, unsigned round)
{
    const winattn_status status = call_forward(data, round);
    return status == WINATTN_SUCCESS ? call_backward(data, round) : status;
}

bench_enqueue *const call_pass[BENCH_PASSES] = {call_forward, call_backward,
                                                call_both};

winattn_status call_provide_outputs(const workload *w, int sets)
{
    bench_call forward;
    winattn_status status =
        call_open(w->device, &w->d->c, WINATTN_PASS_FORWARD, &forward);
    forward.w = w;
    for (int i = 0; i < sets && status == WINATTN_SUCCESS; i++)
        status = call_forward(&forward, (unsigned)i);
    clFinish(w->device->queue);
    call_close(&forward);
    return status;
}
