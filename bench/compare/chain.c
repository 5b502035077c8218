/* SPDX-License-Identifier: Apache-2.0
 * Prepares and times chains. */
#include "compare/chain.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/run.h"
#include "measure/accuracy.h"
#include "measure/call.h"

#define SAMPLES 6
#define PARTS 4 /* q, k, v, and d_o or o */
#define O_PART 3
#define GROUP 256
/* Results this many times worse than is promised are not rounding. */
#define WRONG 10
/* INDEX counts chunks in 32 bits where so many are enough. */
#define MOST_IN_UINT 2147483647.0

#define TRY(call)                                                             \
    do {                                                                      \
        const winattn_status status_ = (call);                                \
        if (status_ != WINATTN_SUCCESS)                                       \
            return status_;                                                   \
    } while (0)

struct chain {
    const bench_device *device;
    workload grids, windows;
    bench_call call;
    cl_program program;
    cl_kernel partition, reverse;
    bool by_token;
    size_t group;
    size_t chunk, chunks; /* bytes; of a row */
};

/* ---- The case on windows ---- */

static bool has_padding(const grid_map *map)
{
    for (size_t i = 0; i < map->windows * map->tokens; i++)
        if (map->token[i] == GRID_NONE)
            return true;
    return false;
}

static bool has_shift_boundary(const grid_map *map)
{
    for (size_t i = 0; i < map->windows * map->tokens; i++)
        if (map->region[i] != map->region[i / map->tokens * map->tokens])
            return true;
    return false;
}

/* Padding that is hidden takes an additive mask. */
static bool needs_mask(const workload *grids)
{
    return grids->c.padding == WINATTN_PADDING_HIDDEN &&
           has_padding(&grids->map);
}

/* NULL, or why there is no chain. */
static const char *case_on_windows(const workload *grids, test_case *neat)
{
    const test_case *c = &grids->c;
    const bool shifts = c->mask == TERM_SHIFT, hides = needs_mask(grids);
    *neat = *c;
    neat->grid = 0;
    neat->layout = LAYOUT_CONTIGUOUS;
    neat->padding = neat->pads = neat->sliced = 0;
    memset(neat->table, 0, sizeof neat->table);
    if (c->bias == TERM_TABLE_SAME)
        neat->bias = TERM_SAME;
    if (c->bias == TERM_TABLE_FP32)
        neat->bias = TERM_FP32;
    if (hides && c->mask != TERM_NONE && !shifts)
        return "hidden padding and a mask of the case's own need a mask of "
               "both";
    if (shifts || hides) {
        neat->mask = hides                             ? TERM_SAME
                     : has_shift_boundary(&grids->map) ? TERM_REGIONS
                                                       : TERM_NONE;
        neat->mask_windows = (int)grids->map.windows;
    }
    return NULL;
}

static bool write_all(const chain *made, cl_mem mem, const void *from,
                      size_t bytes)
{
    return clEnqueueWriteBuffer(made->device->queue, mem, CL_TRUE, 0, bytes,
                                from, 0, NULL, NULL) == CL_SUCCESS;
}

/* Each query's and key's bias, bit by bit what the table has. */
static bool expand_bias(const chain *made)
{
    const workload *grids = &made->grids;
    const test_case *c = &grids->c;
    const size_t size =
        c->bias == TERM_TABLE_FP32 ? 4 : kind_size(workload_kind(c));
    const size_t heads = (size_t)c->heads;
    const size_t plane = (size_t)c->queries * (size_t)c->keys;
    const size_t entries = (size_t)case_table_entries(c) * heads;
    if (!grids->entry)
        return true;
    unsigned char *table = malloc((entries + heads * plane) * size);
    unsigned char *dense = table + entries * size;
    bool good = table && clEnqueueReadBuffer(made->device->queue, grids->bias,
                                             CL_TRUE, 0, entries * size, table,
                                             0, NULL, NULL) == CL_SUCCESS;
    for (size_t i = 0; good && i < heads * plane; i++)
        memcpy(dense + i * size,
               table + (grids->entry[i % plane] * heads + i / plane) * size,
               size);
    good = good &&
           write_all(made, made->windows.bias, dense, heads * plane * size);
    free(table);
    return good;
}

/* Additive: what the shift and the padding hide. */
static bool write_mask(const chain *made)
{
    const grid_map *map = &made->grids.map;
    const test_case *c = &made->grids.c;
    const storage_kind kind = workload_kind(c);
    const size_t size = kind_size(kind), tokens = map->tokens;
    const double between = isnan(c->region_value) ? -100.0 : c->region_value;
    unsigned char *mask = malloc(map->windows * tokens * tokens * size);
    unsigned char *to = mask;
    for (size_t w = 0; mask && w < map->windows; w++)
        for (size_t i = w * tokens; i < (w + 1) * tokens; i++)
            for (size_t j = w * tokens; j < (w + 1) * tokens; j++) {
                const bool differ =
                    c->mask == TERM_SHIFT && map->region[i] != map->region[j];
                kind_write(kind,
                           map->token[j] == GRID_NONE ? -INFINITY
                           : differ                   ? between
                                                      : 0,
                           to);
                to += size;
            }
    const bool good = mask && write_all(made, made->windows.mask, mask,
                                        map->windows * tokens * tokens * size);
    free(mask);
    return good;
}

static bool write_terms(const chain *made)
{
    const workload *windows = &made->windows;
    const grid_map *map = &made->grids.map;
    const size_t count = map->windows * map->tokens;
    if (!expand_bias(made))
        return false;
    if (needs_mask(&made->grids))
        return write_mask(made);
    /* else they are the case's own, the same numbers */
    return made->grids.c.mask != TERM_SHIFT || !windows->query_regions ||
           (write_all(made, windows->query_regions, map->region, count) &&
            write_all(made, windows->key_regions, map->region, count));
}

/* ---- Kernels ---- */

typedef struct option_text {
    char text[1024];
    size_t used; /* at least its size: it does not fit */
} option_text;

static void add(option_text *options, const char *format, ...)
{
    va_list values;
    if (options->used >= sizeof options->text)
        return;
    va_start(values, format);
    options->used += (size_t)vsnprintf(options->text + options->used,
                                       sizeof options->text - options->used,
                                       format, values);
    va_end(values);
}

/* How a row is moved: the type of its chunks, as large as divides it. */
static const char *choose_chunk(chain *made)
{
    static const struct {
        size_t bytes;
        const char *name;
    } types[] = {{64, "uint16"},
                 {16, "uint4"},
                 {8, "uint2"},
                 {4, "uint"},
                 {2, "ushort"}};
    const test_case *c = &made->grids.c;
    const size_t row = (size_t)c->dim * kind_size(workload_kind(c));
    int type = made->device->is_cpu ? 0 : 1;
    while (row % types[type].bytes != 0)
        type++;
    made->chunk = types[type].bytes;
    made->chunks = row / made->chunk;
    return types[type].name;
}

static void choose_groups(chain *made)
{
    made->by_token = made->device->is_cpu;
    made->group = GROUP;
    while (made->group > made->device->largest_group)
        made->group /= 2;
}

static void add_axes(option_text *options, const test_case *c)
{
    for (int axis = 0; axis < WINATTN_AXES; axis++) {
        /* a grid of fewer axes lacks the first ones */
        const int at = axis - (WINATTN_AXES - c->grid);
        const int size = at < 0 ? 1 : c->size[at];
        const int window = at < 0 ? 1 : c->window[at];
        const int count = (size + window - 1) / window;
        const int end = c->roll_first ? size : count * window;
        add(options,
            "-DSIZE_%d=%d -DWINDOW_%d=%d -DCOUNT_%d=%d -DEND_%d=%d "
            "-DSHIFT_%d=%d ",
            axis, size, axis, window, axis, count, axis, end, axis,
            at >= 0 && (count > 1 || c->roll_first || c->shift_all)
                ? c->shift[at] % end
                : 0);
    }
}

/* Where the parts' tokens lie, in chunks. */
static void add_parts(option_text *options, const chain *made)
{
    static const tensor_id ids[PARTS] = {T_Q, T_K, T_V, T_O};
    const test_case *c = &made->grids.c;
    const size_t element = kind_size(workload_kind(c));
    for (int i = 0; i < PARTS; i++) {
        const workload_place place = workload_place_of(c, ids[i]);
        add(options, "-DTOKEN_%d=%zu -DFIRST_%d=%zu ", i,
            place.token * element / made->chunk, i,
            place.first * element / made->chunk);
    }
}

static void add_counts(option_text *options, const chain *made,
                       const char *type)
{
    const workload *grids = &made->grids;
    const test_case *c = &grids->c;
    const double most = (double)c->windows * c->queries *
                        (c->heads + 2.0 * c->kv_heads) * (double)made->chunks;
    add(options,
        "-DHEADS=%d -DKV_HEADS=%d -DCHUNKS=%zu -DCHUNK=%s -DPAD_1=%d "
        "-DPAD_2=%d -DBY_TOKEN=%d -DINDEX=%s",
        c->heads, c->kv_heads, made->chunks, type, grids->pad_k != NULL,
        grids->pad_v != NULL, made->by_token,
        most + GROUP <= MOST_IN_UINT ? "uint" : "ulong");
}

static bool build(chain *made)
{
    option_text options = {"", 0};
    const char *type = choose_chunk(made);
    choose_groups(made);
    add_axes(&options, &made->grids.c);
    add_parts(&options, made);
    add_counts(&options, made, type);
    const char *source = bench_source("chain.cl");
    cl_int error;
    made->program = clCreateProgramWithSource(made->device->context, 1,
                                              &source, NULL, &error);
    if (error != CL_SUCCESS || options.used >= sizeof options.text ||
        clBuildProgram(made->program, 1, &made->device->id, options.text, NULL,
                       NULL) != CL_SUCCESS)
        return false;
    made->partition = clCreateKernel(made->program, "partition", &error);
    if (error == CL_SUCCESS)
        made->reverse = clCreateKernel(made->program, "reverse", &error);
    return error == CL_SUCCESS;
}

/* Tensors first .. end - 1. `count`: seats of all windows, or tokens of all
 * grids. NULL stands for what is not moved. */
static winattn_status launch(const chain *made, cl_kernel kernel,
                             const cl_mem from[PARTS], const cl_mem to[PARTS],
                             cl_ulong count, size_t first, size_t end)
{
    const test_case *c = &made->grids.c;
    const cl_mem any = made->windows.q[0];
    const cl_mem pads[] = {made->grids.pad_k, made->grids.pad_v};
    const size_t pad_count = kernel == made->partition ? 2 : 0;
    cl_mem mems[2 * PARTS + 2];
    cl_uint used = 0;
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < PARTS; i++)
        mems[used++] = from[i] ? from[i] : any;
    for (size_t i = 0; i < PARTS; i++)
        mems[used++] = to[i] ? to[i] : any;
    for (size_t i = 0; i < pad_count; i++)
        mems[used++] = pads[i] ? pads[i] : any;
    for (cl_uint i = 0; i < used; i++)
        error |= clSetKernelArg(kernel, i, sizeof mems[i], &mems[i]);
    error |= clSetKernelArg(kernel, used, sizeof count, &count);
    if (error != CL_SUCCESS)
        return error;
    const size_t offset[] = {0, first};
    const size_t local[] = {made->group, 1};
    size_t size[] = {(size_t)count, end - first};
    if (!made->by_token) {
        const size_t all = size[0] * (size_t)c->heads * made->chunks;
        size[0] = (all + made->group - 1) / made->group * made->group;
    }
    return clEnqueueNDRangeKernel(made->device->queue, kernel, 2, offset, size,
                                  made->by_token ? NULL : local, 0, NULL,
                                  NULL);
}

static winattn_status partition(const chain *made, unsigned set, size_t first,
                                size_t end)
{
    const workload *g = &made->grids, *w = &made->windows;
    const cl_mem from[] = {g->q[set], g->k[set], g->v[set], g->d_o[set]};
    const cl_mem to[] = {w->q[0], w->k[0], w->v[0], w->d_o[0]};
    return launch(made, made->partition, from, to,
                  (cl_ulong)g->c.windows * (cl_ulong)g->c.queries, first, end);
}

static winattn_status reverse(const chain *made, unsigned set, size_t first,
                              size_t end)
{
    const workload *g = &made->grids, *w = &made->windows;
    const cl_mem from[] = {w->dq[0], w->dk[0], w->dv[0], w->o[0]};
    const cl_mem to[] = {g->dq[set], g->dk[set], g->dv[set], g->o[set]};
    return launch(made, made->reverse, from, to,
                  (cl_ulong)workload_tokens(&g->c), first, end);
}

static winattn_status forward(chain *made, unsigned set, bool computes)
{
    TRY(partition(made, set, 0, O_PART));
    if (computes)
        TRY(call_forward(&made->call, 0));
    return reverse(made, set, O_PART, PARTS);
}

static winattn_status backward(chain *made, unsigned set, size_t first,
                               bool computes)
{
    TRY(partition(made, set, first, PARTS));
    if (computes)
        TRY(call_backward(&made->call, 0));
    return reverse(made, set, 0, O_PART);
}

static winattn_status enqueue(chain *made, unsigned round, bool computes)
{
    const unsigned set = round % (unsigned)made->grids.sets;
    const bench_pass pass = made->grids.pass;
    if (pass == BENCH_BACKWARD)
        return backward(made, set, 0, computes);
    TRY(forward(made, set, computes));
    return pass == BENCH_BOTH ? backward(made, set, O_PART, computes)
                              : WINATTN_SUCCESS;
}

winattn_status chain_enqueue(void *data, unsigned round)
{
    return enqueue(data, round, true);
}

winattn_status chain_move(void *data, unsigned round)
{
    return enqueue(data, round, false);
}

/* ---- Start and end ---- */

static void drop(cl_mem *mem)
{
    if (*mem)
        clReleaseMemObject(*mem);
    *mem = NULL;
}

static const char *prepare(chain *made, const test_case *c, bench_pass pass,
                           int calls)
{
    static const cl_bitfield passes[BENCH_PASSES] = {
        WINATTN_PASS_FORWARD, WINATTN_PASS_BACKWARD,
        WINATTN_PASS_FORWARD | WINATTN_PASS_BACKWARD};
    const bench_device *device = made->device;
    test_case neat;
    if (!workload_create(device, c, pass, calls, &made->grids))
        return "the device's memory does not suffice";
    /* the chain leaves them to others */
    drop(&made->grids.d_pad_k);
    drop(&made->grids.d_pad_v);
    const char *failure = case_on_windows(&made->grids, &neat);
    if (failure)
        return failure;
    if (!workload_create(device, &neat, pass, 1, &made->windows))
        return "the device's memory does not suffice for windows";
    if (!write_terms(made))
        return "bias and mask could not be written";
    if (!build(made))
        return "the kernels around the windows do not build";
    const winattn_status status =
        call_open(device, &neat, passes[pass], &made->call);
    made->call.w = &made->windows;
    if (status != WINATTN_SUCCESS)
        return winattn_last_reason();
    if (pass != BENCH_BACKWARD)
        return NULL;
    return partition(made, 0, 0, O_PART) == WINATTN_SUCCESS &&
                   call_provide_outputs(&made->windows, 1) == WINATTN_SUCCESS
               ? NULL
               : "the forward pass failed";
}

chain *chain_create(const bench_device *device, const test_case *c,
                    bench_pass pass, int calls, char note[160])
{
    chain *made = calloc(1, sizeof *made);
    if (!made) {
        snprintf(note, 160, "out of memory");
        return NULL;
    }
    made->device = device;
    const char *failure = prepare(made, c, pass, calls);
    if (!failure)
        return made;
    snprintf(note, 160, "%s", failure);
    chain_destroy(made);
    return NULL;
}

void chain_destroy(chain *made)
{
    if (!made)
        return;
    clFinish(made->device->queue);
    call_close(&made->call);
    if (made->partition)
        clReleaseKernel(made->partition);
    if (made->reverse)
        clReleaseKernel(made->reverse);
    if (made->program)
        clReleaseProgram(made->program);
    workload_release(&made->windows);
    workload_release(&made->grids);
    free(made);
}

const workload *chain_workload(const chain *made) { return &made->grids; }

/* dbias becomes the table's. */
static bool sum_entries(const chain *made)
{
    const workload *grids = &made->grids;
    const test_case *c = &grids->c;
    const size_t heads = (size_t)c->heads;
    const size_t plane = (size_t)c->queries * (size_t)c->keys;
    const size_t entries = (size_t)case_table_entries(c) * heads;
    double *sum = calloc(entries, sizeof *sum);
    float *dense = malloc((heads * plane + entries) * sizeof *dense);
    bool good = sum && dense &&
                clEnqueueReadBuffer(made->device->queue, made->windows.dbias,
                                    CL_TRUE, 0, heads * plane * sizeof *dense,
                                    dense, 0, NULL, NULL) == CL_SUCCESS;
    for (size_t i = 0; good && i < heads * plane; i++)
        sum[grids->entry[i % plane] * heads + i / plane] += (double)dense[i];
    for (size_t i = 0; good && i < entries; i++)
        dense[i] = (float)sum[i];
    good =
        good && write_all(made, grids->dbias, dense, entries * sizeof *dense);
    free(sum);
    free(dense);
    return good;
}

static cl_int copy_all(const chain *made, cl_mem from, cl_mem to, size_t bytes)
{
    return clEnqueueCopyBuffer(made->device->queue, from, to, 0, 0, bytes, 0,
                               NULL, NULL);
}

winattn_status chain_finish(chain *made)
{
    const workload *grids = &made->grids, *windows = &made->windows;
    const test_case *c = &grids->c;
    const size_t logits =
        (size_t)c->heads * (size_t)c->queries * (size_t)c->keys;
    cl_int error = CL_SUCCESS;
    if (grids->dbias && grids->entry)
        error = sum_entries(made) ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
    else if (grids->dbias)
        error = copy_all(made, windows->dbias, grids->dbias, 4 * logits);
    if (error == CL_SUCCESS && grids->d_logit_scale)
        error = copy_all(made, windows->d_logit_scale, grids->d_logit_scale,
                         4 * (size_t)c->heads);
    return error == CL_SUCCESS ? clFinish(made->device->queue) : error;
}

void chain_measure(const bench_device *device, const test_case *c,
                   bench_pass pass, int calls, double budget,
                   chain_result *result)
{
    memset(result, 0, sizeof *result);
    result->error = NAN;
    chain *made = chain_create(device, c, pass, calls, result->note);
    if (!made)
        return;
    const double seconds = measure_calls(device, chain_enqueue, made, budget);
    /* once more on the first set, whose results are read */
    if (seconds > 0 && chain_enqueue(made, 0) == WINATTN_SUCCESS &&
        chain_finish(made) == WINATTN_SUCCESS) {
        result->seconds = seconds;
        result->error = accuracy_error(&made->grids, accuracy_all(c), SAMPLES);
        result->windows = made->windows.c;
        result->moves =
            fmax(measure_calls(device, chain_move, made, budget / 3), 0);
    } else {
        snprintf(result->note, sizeof result->note, "a call failed");
    }
    chain_destroy(made);
}
