/* SPDX-License-Identifier: Apache-2.0
 * Runs and times the three steps. */
#include "unfused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifndef BENCH_HAS_CLBLAST

bool unfused_possible(void) { return false; }

void unfused_measure(const bench_device *device, const test_case *c,
                     double budget, unfused_result *result)
{
    (void)device;
    (void)c;
    (void)budget;
    memset(result, 0, sizeof *result);
    snprintf(result->note, sizeof result->note,
             "this program was built without CLBlast (Debian: "
             "libclblast-dev)");
}

void unfused_forget(void) {}

#else

#include <clblast_c.h>

/* Of unfused.cl, embedded by CMake. */
const char *bench_source(const char *name);

/* Batches and rows of a launch: grids end at 65535 on some GPUs. */
#define MOST_BATCHES 65535
/* CLBlast's kernels count the elements of a buffer in 32 bits. */
#define MOST_ELEMENTS 2147483647u
#define SAMPLES 4
/* A product that is right is this good; the bound is no promise. */
#define MOST_ERROR 1e-4

/* The rows of S that belong to one key head are neighbours, also where
 * several query heads share it: such a group is an item of a batch, a product
 * of [rows x D] by [D x keys]. */
typedef struct unfused {
    const bench_device *device;
    workload w;
    size_t items, item_rows;
    size_t timed_items;              /* of a call: the first so many */
    size_t chunk_items, chunk_rows;  /* that fit into s; rows of one item */
    cl_mem s, q_norm, k_norm, dummy; /* dummy: for what a case has not */
    cl_program program;
    cl_kernel softmax, norms;
    size_t group; /* work-items of a row; 1: any work-group */
} unfused;

/* ---- One call ---- */

static winattn_status set_arguments(const unfused *u)
{
    const test_case *c = &u->w.c;
    const cl_mem mems[] = {
        u->s,
        u->w.bias ? u->w.bias : u->dummy,
        u->w.mask ? u->w.mask : u->dummy,
        u->w.query_regions ? u->w.query_regions : u->dummy,
        u->w.key_regions ? u->w.key_regions : u->dummy,
        u->q_norm ? u->q_norm : u->dummy,
        u->k_norm ? u->k_norm : u->dummy,
        u->w.logit_scale ? u->w.logit_scale : u->dummy,
    };
    const cl_ulong mask_windows =
        c->mask == TERM_NONE ? 1 : (cl_ulong)c->mask_windows;
    const cl_float region_value =
        isnan(c->region_value) ? -100.0f : (cl_float)c->region_value;
    const cl_int first_block = c->first_block ? c->first_block : c->block;
    cl_int window_blocks = c->window_blocks;
    if (window_blocks > 0 && c->sink > 0 && c->sink_in_window)
        window_blocks -= c->sink <= first_block
                             ? 1
                             : 2 + (c->sink - 1 - first_block) / c->block;
    const struct {
        const void *at;
        size_t size;
    } scalars[] = {
        {&mask_windows, sizeof mask_windows},
        {&region_value, sizeof region_value},
        {&c->block, sizeof(cl_int)},
        {&first_block, sizeof(cl_int)},
        {&window_blocks, sizeof(cl_int)},
        {&c->sink, sizeof(cl_int)},
        {&c->query_offset, sizeof(cl_int)},
    };
    cl_uint index = 0;
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < sizeof mems / sizeof *mems; i++)
        error |= clSetKernelArg(u->softmax, index++, sizeof mems[i], &mems[i]);
    index++; /* first_row differs from launch to launch */
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        error |= clSetKernelArg(u->softmax, index++, scalars[i].size,
                                scalars[i].at);
    return error;
}

static winattn_status enqueue_norms(const unfused *u, cl_mem x, size_t rows,
                                    cl_mem norm)
{
    clSetKernelArg(u->norms, 0, sizeof x, &x);
    clSetKernelArg(u->norms, 1, sizeof norm, &norm);
    return clEnqueueNDRangeKernel(u->device->queue, u->norms, 1, NULL, &rows,
                                  NULL, 0, NULL, NULL);
}

static winattn_status enqueue_softmax(const unfused *u, size_t first_row,
                                      size_t rows)
{
    const cl_ulong first = first_row;
    const size_t items = rows * u->group;
    clSetKernelArg(u->softmax, 8, sizeof first, &first);
    return clEnqueueNDRangeKernel(u->device->queue, u->softmax, 1, NULL,
                                  &items, u->group > 1 ? &u->group : NULL, 0,
                                  NULL, NULL);
}

/* `rows` rows of each of `items` items, from row `row` of item `item` on. */
static winattn_status enqueue_chunk(const unfused *u, unsigned set,
                                    size_t item, size_t items, size_t row,
                                    size_t rows)
{
    const test_case *c = &u->w.c;
    const size_t dim = (size_t)c->dim, keys = (size_t)c->keys;
    const size_t first_row = item * u->item_rows + row;
    const float alpha = c->variant == WINATTN_COSINE ? 1.0f
                        : c->scale != 0              ? (float)c->scale
                                        : 1.0f / sqrtf((float)c->dim);
    cl_command_queue queue = u->device->queue;
    CLBlastStatusCode code = CLBlastSgemmStridedBatched(
        CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, rows,
        keys, dim, alpha, u->w.q[set], first_row * dim, dim,
        u->item_rows * dim, u->w.k[set], item * keys * dim, dim, keys * dim,
        0.0f, u->s, 0, keys, rows * keys, items, &queue, NULL);
    if (code != CLBlastSuccess)
        return code;
    const winattn_status status = enqueue_softmax(u, first_row, items * rows);
    if (status != CL_SUCCESS)
        return status;
    code = CLBlastSgemmStridedBatched(
        CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeNo, rows,
        dim, keys, 1.0f, u->s, 0, keys, rows * keys, u->w.v[set],
        item * keys * dim, dim, keys * dim, 0.0f, u->w.o[set], first_row * dim,
        dim, u->item_rows * dim, items, &queue, NULL);
    return code;
}

static winattn_status enqueue_call(void *data, unsigned round)
{
    const unfused *u = data;
    const unsigned set = round % (unsigned)u->w.sets;
    winattn_status status = CL_SUCCESS;
    if (u->q_norm)
        status = enqueue_norms(u, u->w.q[set], u->timed_items * u->item_rows,
                               u->q_norm);
    if (u->k_norm && status == CL_SUCCESS)
        status = enqueue_norms(
            u, u->w.k[set], u->timed_items * (size_t)u->w.c.keys, u->k_norm);
    for (size_t item = 0; item < u->timed_items && status == CL_SUCCESS;
         item += u->chunk_items) {
        size_t items = u->timed_items - item;
        items = items > u->chunk_items ? u->chunk_items : items;
        for (size_t row = 0; row < u->item_rows && status == CL_SUCCESS;
             row += u->chunk_rows) {
            size_t rows = u->item_rows - row;
            rows = rows > u->chunk_rows ? u->chunk_rows : rows;
            status = enqueue_chunk(u, set, item, items, row, rows);
        }
    }
    return status;
}

/* ---- Preparing ---- */

static bool build(unfused *u)
{
    const test_case *c = &u->w.c;
    char options[512];
    cl_int error;
    const char *source = bench_source("unfused.cl");
    const size_t limit = u->device->largest_group;
    /* A CPU takes a row for each work-item, with vectors where its work-items
     * are not lanes of vectors themselves. */
    u->group = u->device->is_cpu ? 1
               : c->keys <= 64   ? 32
               : c->keys <= 1024 ? 128
                                 : 256;
    while (u->group > limit)
        u->group /= 2;
    snprintf(options, sizeof options,
             "-DNQ=%d -DNK=%d -DHEAD_DIM=%d -DHEADS=%d -DKV_HEADS=%d "
             "-DCOSINE=%d -DSLIDING=%d -DBIAS=%d -DMASK=%d -DGROUP=%d "
             "-DLANES=%d",
             c->queries, c->keys, c->dim, c->heads, c->kv_heads,
             c->variant == WINATTN_COSINE, c->variant == WINATTN_SLIDING,
             c->bias != TERM_NONE,
             c->mask == TERM_NONE      ? 0
             : c->mask == TERM_REGIONS ? 2
                                       : 1,
             (int)u->group,
             u->device->is_cpu && u->device->vector_lanes >= 4 ? 8 : 1);
    u->program = clCreateProgramWithSource(u->device->context, 1, &source,
                                           NULL, &error);
    if (error != CL_SUCCESS ||
        clBuildProgram(u->program, 1, &u->device->id, options, NULL, NULL) !=
            CL_SUCCESS)
        return false;
    u->softmax = clCreateKernel(u->program, "softmax", &error);
    if (error == CL_SUCCESS)
        u->norms = clCreateKernel(u->program, "norms", &error);
    return error == CL_SUCCESS;
}

/* S takes at most a quarter of the memory, and what one buffer may. */
static void choose_chunks(unfused *u)
{
    const double row_bytes = 4.0 * u->w.c.keys;
    double bytes = fmin((double)u->device->memory_bytes / 4,
                        (double)u->device->largest_buffer);
    bytes = fmin(bytes, 4.0 * MOST_ELEMENTS);
    const double rows = floor(fmax(bytes / row_bytes, 1));
    const double items = floor(rows / (double)u->item_rows);
    u->chunk_items = items < 1 ? 1 : (size_t)fmin(items, MOST_BATCHES);
    if (u->chunk_items > u->items)
        u->chunk_items = u->items;
    u->chunk_rows = items < 1 ? (size_t)rows : u->item_rows;
}

static cl_mem new_buffer(const unfused *u, double bytes)
{
    cl_int error;
    const cl_mem mem = clCreateBuffer(u->device->context, CL_MEM_READ_WRITE,
                                      (size_t)bytes, NULL, &error);
    return error == CL_SUCCESS ? mem : NULL;
}

static const char *prepare(unfused *u, const bench_device *device,
                           const test_case *c)
{
    memset(u, 0, sizeof *u);
    u->device = device;
    if (!workload_create_widened(device, c, MOST_SETS, &u->w))
        return "the device's memory does not suffice";
    u->items = (size_t)c->windows * (size_t)c->kv_heads;
    u->item_rows = (size_t)(c->heads / c->kv_heads) * (size_t)c->queries;
    choose_chunks(u);
    const double chunk = (double)u->chunk_items * (double)u->chunk_rows;
    u->s = new_buffer(u, chunk * 4.0 * c->keys);
    u->dummy = new_buffer(u, 16);
    if (c->variant == WINATTN_COSINE) {
        u->q_norm = new_buffer(u, 4.0 * (double)(u->items * u->item_rows));
        u->k_norm = new_buffer(u, 4.0 * (double)u->items * c->keys);
    }
    if (!u->s || !u->dummy ||
        (c->variant == WINATTN_COSINE && (!u->q_norm || !u->k_norm)))
        return "the device's memory does not suffice for S";
    if (!build(u) || set_arguments(u) != CL_SUCCESS)
        return "the softmax kernel does not build";
    return NULL;
}

static void release(unfused *u)
{
    const cl_mem mems[] = {u->s, u->q_norm, u->k_norm, u->dummy};
    clFinish(u->device->queue);
    for (size_t i = 0; i < sizeof mems / sizeof *mems; i++)
        if (mems[i])
            clReleaseMemObject(mems[i]);
    if (u->softmax)
        clReleaseKernel(u->softmax);
    if (u->norms)
        clReleaseKernel(u->norms);
    if (u->program)
        clReleaseProgram(u->program);
    workload_release(&u->w);
}

/* ---- Timing ---- */

/* Seconds of one call, negative if it failed. */
static double time_call(unfused *u)
{
    const double start = now_seconds();
    if (enqueue_call(u, 0) != CL_SUCCESS ||
        clFinish(u->device->queue) != CL_SUCCESS)
        return -1;
    return now_seconds() - start;
}

/* The first call builds; the next ones double what they do until they show
 * how much of it the budget allows, and leave that in timed_items. */
static const char *choose_part(unfused *u, double budget)
{
    u->timed_items = 1;
    if (time_call(u) < 0)
        return "CLBlast fails on this device";
    for (;;) {
        double seconds = time_call(u);
        if (seconds > budget / 8) /* some runtimes build for each size */
            seconds = time_call(u);
        if (seconds < 0)
            return "CLBlast fails on this device";
        const double all = seconds * (double)u->items / (double)u->timed_items;
        if (u->timed_items == u->items)
            return NULL;
        if (seconds > budget / 8) {
            /* measure_calls makes at least three calls */
            const double fitting =
                (double)u->items * fmin(budget / 4 / all, 1);
            u->timed_items = fitting < 1 ? 1 : (size_t)fitting;
            return seconds > 4 * budget && u->timed_items == 1
                       ? "one head would take too long"
                       : NULL;
        }
        u->timed_items *= 2;
        if (u->timed_items > u->items)
            u->timed_items = u->items;
    }
}

bool unfused_possible(void) { return true; }

void unfused_measure(const bench_device *device, const test_case *c,
                     double budget, unfused_result *result)
{
    unfused u;
    memset(result, 0, sizeof *result);
    const char *failure = prepare(&u, device, c);
    if (!failure)
        failure = choose_part(&u, budget);
    if (!failure) {
        const double seconds = measure_calls(device, enqueue_call, &u, budget);
        const size_t heads = (size_t)(c->heads / c->kv_heads);
        result->part = (double)u.timed_items / (double)u.items;
        result->error =
            workload_error_within(&u.w, u.timed_items * heads, SAMPLES);
        if (seconds < 0)
            failure = "a call failed";
        else if (!(result->error <= MOST_ERROR))
            snprintf(result->note, sizeof result->note,
                     "CLBlast's result is wrong here (error %.1e)",
                     result->error);
        else
            result->seconds = seconds / result->part;
    }
    if (failure)
        snprintf(result->note, sizeof result->note, "%s", failure);
    release(&u);
}

void unfused_forget(void) { CLBlastClearCache(); }

#endif
