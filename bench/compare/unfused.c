/* SPDX-License-Identifier: Apache-2.0
 * Prepares, enqueues and times unfused calls. */
#include "compare/unfused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "measure/accuracy.h"

/* ---- Memory ---- */

/* There are as many partial sums as each sums windows, so that a GPU is busy
 * in both stages. */
static size_t parts_of(const test_case *c)
{
    return (size_t)ceil(sqrt((double)c->windows));
}

/* dbias has as many numbers as its head's S. */
static size_t dbias_count(const test_case *c)
{
    return (size_t)c->heads * (size_t)c->queries * (size_t)c->keys;
}

/* Bytes of the buffers of that name, for all windows; 0 where the case has not
 * the like. */
typedef struct unfused_sizes {
    double s, ds, q_norm, k_norm, along, head_sums, partial;
} unfused_sizes;
static unfused_sizes sizes_of(const test_case *c, bench_pass pass)
{
    const bool cosine = c->variant == WINATTN_COSINE;
    const double heads = 4.0 * c->windows * c->heads;
    unfused_sizes sizes = {.s = heads * c->queries * c->keys};
    if (cosine) {
        sizes.q_norm = heads * c->queries;
        sizes.k_norm = 4.0 * c->windows * c->kv_heads * c->keys;
    }
    if (pass == BENCH_FORWARD)
        return sizes;
    sizes.ds = sizes.s;
    sizes.along = fmax(sizes.q_norm, sizes.k_norm);
    sizes.head_sums = cosine ? heads : 0;
    sizes.partial = 4.0 * (double)parts_of(c) *
                    (c->bias != TERM_NONE ? (double)dbias_count(c)
                     : cosine             ? c->heads
                                          : 0);
    return sizes;
}

double unfused_bytes(const test_case *c, bench_pass pass)
{
    const unfused_sizes z = sizes_of(c, pass);
    return z.s + z.ds + z.q_norm + z.k_norm + z.along + z.head_sums +
           z.partial;
}

#ifndef BENCH_HAS_CLBLAST

bool unfused_possible(void) { return false; }

void unfused_measure(const bench_device *device, const test_case *c,
                     bench_pass pass, double budget, unfused_result *result)
{
    (void)device;
    (void)c;
    (void)pass;
    (void)budget;
    memset(result, 0, sizeof *result);
    snprintf(result->note, sizeof result->note,
             "this program was built without CLBlast (Debian: "
             "libclblast-dev)");
}

void unfused_forget(void) {}

#else

#include <clblast_c.h>

/* Batches and rows of a launch: grids end at 65535 on some GPUs. */
#define MOST_BATCHES 65535
/* CLBlast's kernels count the elements of a buffer in 32 bits. */
#define MOST_ELEMENTS 2147483647u
#define SAMPLES 4
/* A product that is right is this good; the bound is no promise. */
#define MOST_ERROR 1e-4

/* The kernels of unfused.cl. */
typedef enum unfused_kernel {
    UNFUSED_NORMS,
    UNFUSED_SOFTMAX,
    UNFUSED_SOFTMAX_BACKWARD,
    UNFUSED_SCALE_ROWS,
    UNFUSED_PROJECT,
    UNFUSED_SUM_QUERIES,
    UNFUSED_SUM_WINDOWS,
    UNFUSED_SUM_PARTS,
    UNFUSED_KERNELS
} unfused_kernel;

/* The rows of S that belong to one key head are neighbours, also where
 * several query heads share it: such a group is an item of a batch, a product
 * of [rows x D] by [D x keys]. */
typedef struct unfused {
    const bench_device *device;
    workload w;
    size_t items, item_rows;
    size_t most_items;     /* that fit into s */
    size_t timed_items;    /* of a call: the first so many */
    cl_mem s, ds;          /* S, then P; dP, then dS */
    cl_mem q_norm, k_norm; /* cosine: one over the norm */
    cl_mem along;          /* cosine: q . dq of each query */
    cl_mem head_sums;      /* of along; [windows, heads] */
    cl_mem partial;        /* of sums over windows */
    cl_mem dummy;          /* for what a case has not */
    cl_program program;
    cl_kernel kernel[UNFUSED_KERNELS];
    size_t group; /* work-items of a row; 1: any work-group */
} unfused;

/* ---- Kernels ---- */

typedef struct argument {
    const void *at;
    size_t size;
} argument;

#define ARGUMENT(x)                                                           \
    {                                                                         \
        &(x), sizeof(x)                                                       \
    }
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A tensor of all sets; what the case has not is never read. */
static cl_mem shared(const unfused *u, tensor_id id)
{
    const cl_mem mem = workload_mem(&u->w, 0, id);
    return mem ? mem : u->dummy;
}

static cl_int set_arguments(const unfused *u, unfused_kernel kernel,
                            const argument *arguments, size_t count)
{
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < count; i++)
        error |= clSetKernelArg(u->kernel[kernel], (cl_uint)i,
                                arguments[i].size, arguments[i].at);
    return error;
}

/* Arguments of kernels that go by rows of S, the same in all launches. */
static cl_int set_row_arguments(const unfused *u)
{
    const test_case *c = &u->w.d->c;
    const cl_mem mems[] = {
        shared(u, T_BIAS),          shared(u, T_MASK),
        shared(u, T_QUERY_REGIONS), shared(u, T_KEY_REGIONS),
        shared(u, T_LOGIT_SCALE),
    };
    const cl_mem q_norm = u->q_norm ? u->q_norm : u->dummy;
    const cl_mem k_norm = u->k_norm ? u->k_norm : u->dummy;
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
    const argument softmax[] = {
        ARGUMENT(u->s),          ARGUMENT(mems[0]),  ARGUMENT(mems[1]),
        ARGUMENT(mems[2]),       ARGUMENT(mems[3]),  ARGUMENT(q_norm),
        ARGUMENT(k_norm),        ARGUMENT(mems[4]),  ARGUMENT(mask_windows),
        ARGUMENT(region_value),  ARGUMENT(c->block), ARGUMENT(first_block),
        ARGUMENT(window_blocks), ARGUMENT(c->sink),  ARGUMENT(c->query_offset),
    };
    const argument backward[] = {ARGUMENT(u->s), ARGUMENT(u->ds)};
    const argument scale[] = {ARGUMENT(u->ds), ARGUMENT(q_norm),
                              ARGUMENT(k_norm), ARGUMENT(mems[4])};
    cl_int error = set_arguments(u, UNFUSED_SOFTMAX, softmax, COUNT(softmax));
    if (u->ds)
        error |= set_arguments(u, UNFUSED_SOFTMAX_BACKWARD, backward,
                               COUNT(backward)) |
                 set_arguments(u, UNFUSED_SCALE_ROWS, scale, COUNT(scale));
    return error;
}

/* `items` work-items by `parts`, in any work-groups. */
static winattn_status launch(const unfused *u, unfused_kernel kernel,
                             const argument *arguments, size_t count,
                             size_t items, size_t parts)
{
    const size_t size[] = {items, parts};
    WA_TRY(set_arguments(u, kernel, arguments, count));
    return clEnqueueNDRangeKernel(u->device->queue, u->kernel[kernel], 2, NULL,
                                  size, NULL, 0, NULL, NULL);
}

/* The kernels that go by rows of S, whose arguments are set. */
static winattn_status launch_rows(const unfused *u, unfused_kernel kernel)
{
    const size_t items = u->timed_items * u->item_rows * u->group;
    return clEnqueueNDRangeKernel(u->device->queue, u->kernel[kernel], 1, NULL,
                                  &items, u->group > 1 ? &u->group : NULL, 0,
                                  NULL, NULL);
}

/* x: the first `end` elements of [windows][period]. */
static winattn_status enqueue_window_sum(const unfused *u, cl_mem x,
                                         cl_ulong end, size_t period,
                                         cl_mem to)
{
    const size_t parts = parts_of(&u->w.d->c);
    const cl_int count = (cl_int)parts;
    const argument arguments[] = {ARGUMENT(x), ARGUMENT(end),
                                  ARGUMENT(u->partial)};
    const argument last[] = {ARGUMENT(u->partial), ARGUMENT(count),
                             ARGUMENT(to)};
    WA_TRY(launch(u, UNFUSED_SUM_WINDOWS, arguments, 3, period, parts));
    return launch(u, UNFUSED_SUM_PARTS, last, 3, period, 1);
}

/* ---- Products ---- */

/* The first matrix of a batch, row by row. */
typedef struct matrix {
    cl_mem mem;
    size_t rows, columns;
} matrix;

/* c = alpha a b for each timed item. An operand's transposition is that of
 * BLAS. */
static winattn_status multiply(const unfused *u, float alpha, matrix a,
                               CLBlastTranspose a_transposed, matrix b,
                               CLBlastTranspose b_transposed, matrix c)
{
    cl_command_queue queue = u->device->queue;
    const size_t inner =
        a_transposed == CLBlastTransposeYes ? a.rows : a.columns;
    return CLBlastSgemmStridedBatched(
        CLBlastLayoutRowMajor, a_transposed, b_transposed, c.rows, c.columns,
        inner, alpha, a.mem, 0, a.columns, a.rows * a.columns, b.mem, 0,
        b.columns, b.rows * b.columns, 0.0f, c.mem, 0, c.columns,
        c.rows * c.columns, u->timed_items, &queue, NULL);
}

#define PLAIN CLBlastTransposeNo
#define TRANSPOSED CLBlastTransposeYes

static matrix plane_of(const unfused *u, cl_mem mem)
{
    return (matrix){mem, u->item_rows, (size_t)u->w.d->c.keys};
}

/* What an item has of a tensor of tokens. */
static matrix rows_of(const unfused *u, unsigned set, tensor_id id)
{
    const test_case *c = &u->w.d->c;
    const bool of_keys = id == T_K || id == T_V || id == T_DK || id == T_DV;
    return (matrix){workload_mem(&u->w, set, id),
                    of_keys ? (size_t)c->keys : u->item_rows, (size_t)c->dim};
}

/* The scale of Q K^T; the cosine variant's comes in the kernels. */
static float scale_of(const test_case *c)
{
    return c->variant == WINATTN_COSINE ? 1.0f
           : c->scale != 0              ? (float)c->scale
                                        : 1.0f / sqrtf((float)c->dim);
}

/* ---- A call ---- */

static winattn_status enqueue_norms(const unfused *u, matrix x, cl_mem norm)
{
    const argument arguments[] = {ARGUMENT(x.mem), ARGUMENT(norm)};
    return launch(u, UNFUSED_NORMS, arguments, 2, u->timed_items * x.rows, 1);
}

static winattn_status enqueue_project(const unfused *u, matrix x, cl_mem norm,
                                      matrix dx)
{
    const argument arguments[] = {ARGUMENT(x.mem), ARGUMENT(norm),
                                  ARGUMENT(dx.mem), ARGUMENT(u->along)};
    return launch(u, UNFUSED_PROJECT, arguments, 4, u->timed_items * x.rows,
                  1);
}

/* Computes P of the timed items of a set. */
static winattn_status enqueue_p(const unfused *u, unsigned set)
{
    const matrix q = rows_of(u, set, T_Q), k = rows_of(u, set, T_K);
    if (u->q_norm) {
        WA_TRY(enqueue_norms(u, q, u->q_norm));
        WA_TRY(enqueue_norms(u, k, u->k_norm));
    }
    WA_TRY(multiply(u, scale_of(&u->w.d->c), q, PLAIN, k, TRANSPOSED,
                    plane_of(u, u->s)));
    return launch_rows(u, UNFUSED_SOFTMAX);
}

/* ds becomes dS, and is summed over windows; then it is what the products
 * want. */
static winattn_status enqueue_ds(const unfused *u)
{
    const test_case *c = &u->w.d->c;
    const size_t rows = u->timed_items * u->item_rows;
    WA_TRY(launch_rows(u, UNFUSED_SOFTMAX_BACKWARD));
    if (c->bias != TERM_NONE)
        WA_TRY(enqueue_window_sum(u, u->ds, rows * (size_t)c->keys,
                                  dbias_count(c), shared(u, T_DBIAS)));
    return u->q_norm ? launch_rows(u, UNFUSED_SCALE_ROWS) : CL_SUCCESS;
}

static winattn_status enqueue_gradients(const unfused *u, unsigned set)
{
    const matrix p = plane_of(u, u->s), ds = plane_of(u, u->ds);
    const matrix d_o = rows_of(u, set, T_D_O);
    const float scale = scale_of(&u->w.d->c);
    WA_TRY(
        multiply(u, 1.0f, p, TRANSPOSED, d_o, PLAIN, rows_of(u, set, T_DV)));
    WA_TRY(
        multiply(u, 1.0f, d_o, PLAIN, rows_of(u, set, T_V), TRANSPOSED, ds));
    WA_TRY(enqueue_ds(u));
    WA_TRY(multiply(u, scale, ds, PLAIN, rows_of(u, set, T_K), PLAIN,
                    rows_of(u, set, T_DQ)));
    return multiply(u, scale, ds, TRANSPOSED, rows_of(u, set, T_Q), PLAIN,
                    rows_of(u, set, T_DK));
}

/* What the cosine variant does to whole dq and dk, and d_logit_scale. */
static winattn_status enqueue_projections(const unfused *u, unsigned set)
{
    const test_case *c = &u->w.d->c;
    const size_t heads = u->timed_items * u->item_rows / (size_t)c->queries;
    const cl_mem logit_scale = shared(u, T_LOGIT_SCALE);
    const argument sums[] = {ARGUMENT(u->along), ARGUMENT(logit_scale),
                             ARGUMENT(u->head_sums)};
    WA_TRY(enqueue_project(u, rows_of(u, set, T_K), u->k_norm,
                           rows_of(u, set, T_DK)));
    WA_TRY(enqueue_project(u, rows_of(u, set, T_Q), u->q_norm,
                           rows_of(u, set, T_DQ)));
    WA_TRY(launch(u, UNFUSED_SUM_QUERIES, sums, 3, heads, 1));
    return enqueue_window_sum(u, u->head_sums, heads, (size_t)c->heads,
                              shared(u, T_D_LOGIT_SCALE));
}

/* A call; `data` is an unfused. The backward pass finds P. */
static winattn_status enqueue_call(void *data, unsigned round)
{
    const unfused *u = data;
    const unsigned set = round % (unsigned)u->w.sets;
    if (u->w.pass != BENCH_BACKWARD) {
        WA_TRY(enqueue_p(u, set));
        WA_TRY(multiply(u, 1.0f, plane_of(u, u->s), PLAIN,
                        rows_of(u, set, T_V), PLAIN, rows_of(u, set, T_O)));
    }
    if (u->w.pass == BENCH_FORWARD)
        return CL_SUCCESS;
    WA_TRY(enqueue_gradients(u, set));
    return u->q_norm ? enqueue_projections(u, set) : CL_SUCCESS;
}

/* ---- Preparing ---- */

static bool build(unfused *u)
{
    const test_case *c = &u->w.d->c;
    char options[512];
    cl_int error;
    static const char *const names[UNFUSED_KERNELS] = {
        [UNFUSED_NORMS] = "norms",
        [UNFUSED_SOFTMAX] = "softmax",
        [UNFUSED_SOFTMAX_BACKWARD] = "softmax_backward",
        [UNFUSED_SCALE_ROWS] = "scale_rows",
        [UNFUSED_PROJECT] = "project",
        [UNFUSED_SUM_QUERIES] = "sum_queries",
        [UNFUSED_SUM_WINDOWS] = "sum_windows",
        [UNFUSED_SUM_PARTS] = "sum_parts",
    };
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
    for (int i = 0; i < UNFUSED_KERNELS && error == CL_SUCCESS; i++)
        u->kernel[i] = clCreateKernel(u->program, names[i], &error);
    return error == CL_SUCCESS;
}

/* S, and dS beside it, take at most a quarter of the memory, and each what one
 * buffer may. */
static size_t most_items(const unfused *u, const unfused_sizes *sizes)
{
    const double item = sizes->s / (double)u->items;
    double bytes = (double)u->device->memory_bytes / (sizes->ds > 0 ? 8 : 4);
    bytes = fmin(bytes, (double)u->device->largest_buffer);
    bytes = fmin(bytes, 4.0 * MOST_ELEMENTS);
    return (size_t)fmin(fmin(bytes / item, (double)u->items), MOST_BATCHES);
}

/* True, with *mem = NULL, where nothing is wanted. */
static bool new_buffer(const unfused *u, double bytes, cl_mem *mem)
{
    cl_int error = CL_SUCCESS;
    if (bytes > 0)
        *mem = clCreateBuffer(u->device->context, CL_MEM_READ_WRITE,
                              (size_t)bytes, NULL, &error);
    return error == CL_SUCCESS;
}

static bool create_buffers(unfused *u, const unfused_sizes *sizes)
{
    const double part = (double)u->most_items / (double)u->items;
    return new_buffer(u, part * sizes->s, &u->s) &&
           new_buffer(u, part * sizes->ds, &u->ds) &&
           new_buffer(u, 16, &u->dummy) &&
           new_buffer(u, sizes->q_norm, &u->q_norm) &&
           new_buffer(u, sizes->k_norm, &u->k_norm) &&
           new_buffer(u, sizes->along, &u->along) &&
           new_buffer(u, sizes->head_sums, &u->head_sums) &&
           new_buffer(u, sizes->partial, &u->partial);
}

static const char *prepare(unfused *u, const bench_device *device,
                           const test_case *c, bench_pass pass)
{
    /* P that is found is the first set's */
    const int calls = pass == BENCH_BACKWARD ? 1 : MOST_SETS;
    memset(u, 0, sizeof *u);
    u->device = device;
    if (!workload_create(device, c, pass, calls, true, &u->w))
        return "the device's memory does not suffice";
    u->items = (size_t)c->windows * (size_t)c->kv_heads;
    u->item_rows = (size_t)(c->heads / c->kv_heads) * (size_t)c->queries;
    const unfused_sizes sizes = sizes_of(c, pass);
    u->most_items = most_items(u, &sizes);
    if (u->most_items == 0 || !create_buffers(u, &sizes))
        return "the device's memory does not suffice for S";
    if (!build(u) || set_row_arguments(u) != CL_SUCCESS)
        return "the softmax kernel does not build";
    return NULL;
}

static void release(unfused *u)
{
    const cl_mem mems[] = {u->s,     u->ds,        u->q_norm,  u->k_norm,
                           u->along, u->head_sums, u->partial, u->dummy};
    clFinish(u->device->queue);
    for (size_t i = 0; i < sizeof mems / sizeof *mems; i++)
        if (mems[i])
            clReleaseMemObject(mems[i]);
    for (int i = 0; i < UNFUSED_KERNELS; i++)
        if (u->kernel[i])
            clReleaseKernel(u->kernel[i]);
    if (u->program)
        clReleaseProgram(u->program);
    workload_release(&u->w);
}

/* ---- Timing ---- */

/* Computes the P that the backward pass finds; needed again whenever
 * timed_items changes. False if that fails. */
static bool provide_p(unfused *u)
{
    return u->w.pass != BENCH_BACKWARD ||
           (enqueue_p(u, 0) == CL_SUCCESS &&
            clFinish(u->device->queue) == CL_SUCCESS);
}

/* Seconds of one call, negative if it failed. */
static double time_call(unfused *u)
{
    if (!provide_p(u))
        return -1;
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
        if (u->timed_items == u->most_items)
            return NULL;
        if (seconds > budget / 8) {
            /* measure_calls makes at least three calls */
            const double fitting = fmin((double)u->items * budget / 4 / all,
                                        (double)u->most_items);
            u->timed_items = fitting < 1 ? 1 : (size_t)fitting;
            return seconds > 4 * budget && u->timed_items == 1
                       ? "one head would take too long"
                       : NULL;
        }
        u->timed_items *= 2;
        if (u->timed_items > u->most_items)
            u->timed_items = u->most_items;
    }
}

bool unfused_possible(void) { return true; }

void unfused_measure(const bench_device *device, const test_case *c,
                     bench_pass pass, double budget, unfused_result *result)
{
    unfused u;
    memset(result, 0, sizeof *result);
    const char *failure = prepare(&u, device, c, pass);
    if (!failure)
        failure = choose_part(&u, budget);
    if (!failure && !provide_p(&u))
        failure = "a call failed";
    if (!failure) {
        const double seconds = measure_calls(device, enqueue_call, &u, budget);
        const size_t heads = (size_t)(c->heads / c->kv_heads);
        if (seconds > 0) /* sets share outputs; the first one is checked */
            enqueue_call(&u, 0);
        result->part = (double)u.timed_items / (double)u.items;
        result->error = accuracy_error(&u.w, u.timed_items * heads, SAMPLES);
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
