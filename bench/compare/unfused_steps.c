/* SPDX-License-Identifier: Apache-2.0
 * Enqueues unfused calls, and counts what they need. */
#include "compare/unfused_steps.h"

#include <math.h>
#include <string.h>

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

unfused_sizes unfused_sizes_of(const test_case *c, bench_pass pass)
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
    const unfused_sizes z = unfused_sizes_of(c, pass);
    return z.s + z.ds + z.q_norm + z.k_norm + z.along + z.head_sums +
           z.partial;
}

#ifdef BENCH_HAS_CLBLAST

#include <clblast_c.h>

/* ---- Kernels ---- */

typedef struct argument {
    const void *at;
    size_t size;
} argument;

#define ARGUMENT(x)                                                           \
    {                                                                         \
        &(x), sizeof(x)                                                       \
    }

static cl_mem or_dummy(const unfused *u, cl_mem mem)
{
    return mem ? mem : u->dummy;
}

cl_int unfused_set_arguments(const unfused *u)
{
    const test_case *c = &u->w.c;
    const cl_mem mems[] = {
        u->s,
        or_dummy(u, u->w.bias),
        or_dummy(u, u->w.mask),
        or_dummy(u, u->w.query_regions),
        or_dummy(u, u->w.key_regions),
        or_dummy(u, u->q_norm),
        or_dummy(u, u->k_norm),
        or_dummy(u, u->w.logit_scale),
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
    const argument scalars[] = {
        ARGUMENT(mask_windows),    ARGUMENT(region_value),  ARGUMENT(c->block),
        ARGUMENT(first_block),     ARGUMENT(window_blocks), ARGUMENT(c->sink),
        ARGUMENT(c->query_offset),
    };
    const cl_kernel softmax = u->kernel[UNFUSED_SOFTMAX];
    cl_uint index = 0;
    cl_int error = CL_SUCCESS;
    for (size_t i = 0; i < sizeof mems / sizeof *mems; i++)
        error |= clSetKernelArg(softmax, index++, sizeof mems[i], &mems[i]);
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        error |=
            clSetKernelArg(softmax, index++, scalars[i].size, scalars[i].at);
    return error;
}

/* `items` work-items by `parts`, in any work-groups. */
static winattn_status launch(const unfused *u, unfused_kernel kernel,
                             const argument *arguments, cl_uint count,
                             size_t items, size_t parts)
{
    const size_t size[] = {items, parts};
    cl_int error = CL_SUCCESS;
    for (cl_uint i = 0; i < count; i++)
        error |= clSetKernelArg(u->kernel[kernel], i, arguments[i].size,
                                arguments[i].at);
    if (error != CL_SUCCESS)
        return error;
    return clEnqueueNDRangeKernel(u->device->queue, u->kernel[kernel], 2, NULL,
                                  size, NULL, 0, NULL, NULL);
}

/* The kernels that go by rows of S; their other arguments are set. */
static winattn_status launch_rows(const unfused *u, unfused_kernel kernel)
{
    const size_t items = u->timed_items * u->item_rows * u->group;
    return clEnqueueNDRangeKernel(u->device->queue, u->kernel[kernel], 1, NULL,
                                  &items, u->group > 1 ? &u->group : NULL, 0,
                                  NULL, NULL);
}

static winattn_status enqueue_norm(const unfused *u, cl_mem x, size_t rows,
                                   cl_mem norm)
{
    const argument arguments[] = {ARGUMENT(x), ARGUMENT(norm)};
    return launch(u, UNFUSED_NORMS, arguments, 2, rows, 1);
}

static winattn_status enqueue_project(const unfused *u, cl_mem x, size_t rows,
                                      cl_mem norm, cl_mem dx)
{
    const argument arguments[] = {ARGUMENT(x), ARGUMENT(norm), ARGUMENT(dx),
                                  ARGUMENT(u->along)};
    return launch(u, UNFUSED_PROJECT, arguments, 4, rows, 1);
}

/* x: the first `end` elements of [windows][period]. */
static winattn_status enqueue_window_sum(const unfused *u, cl_mem x,
                                         cl_ulong end, size_t period,
                                         cl_mem to)
{
    const size_t parts = parts_of(&u->w.c);
    const cl_int count = (cl_int)parts;
    const argument arguments[] = {ARGUMENT(x), ARGUMENT(end),
                                  ARGUMENT(u->partial)};
    const argument last[] = {ARGUMENT(u->partial), ARGUMENT(count),
                             ARGUMENT(to)};
    const winattn_status status =
        launch(u, UNFUSED_SUM_WINDOWS, arguments, 3, period, parts);
    return status == CL_SUCCESS
               ? launch(u, UNFUSED_SUM_PARTS, last, 3, period, 1)
               : status;
}

/* ---- Products ---- */

/* The first matrix of a batch, row by row; counted in elements. */
typedef struct matrix {
    cl_mem mem;
    size_t columns;
    size_t next; /* from one item's to the next's */
} matrix;

/* c = alpha a b for each timed item, c of m x n, k sums. An operand's
 * transposition is that of BLAS. */
static winattn_status multiply(const unfused *u, size_t m, size_t n, size_t k,
                               float alpha, const matrix *a,
                               CLBlastTranspose a_transposed, const matrix *b,
                               CLBlastTranspose b_transposed, const matrix *c)
{
    cl_command_queue queue = u->device->queue;
    return CLBlastSgemmStridedBatched(
        CLBlastLayoutRowMajor, a_transposed, b_transposed, m, n, k, alpha,
        a->mem, 0, a->columns, a->next, b->mem, 0, b->columns, b->next, 0.0f,
        c->mem, 0, c->columns, c->next, u->timed_items, &queue, NULL);
}

#define PLAIN CLBlastTransposeNo
#define TRANSPOSED CLBlastTransposeYes

static matrix plane_of(const unfused *u, cl_mem mem)
{
    const size_t keys = (size_t)u->w.c.keys;
    const matrix m = {mem, keys, u->item_rows * keys};
    return m;
}

/* A tensor like q. */
static matrix rows_of(const unfused *u, cl_mem mem)
{
    const size_t dim = (size_t)u->w.c.dim;
    const matrix m = {mem, dim, u->item_rows * dim};
    return m;
}

/* A tensor like k. */
static matrix keys_of(const unfused *u, cl_mem mem)
{
    const size_t dim = (size_t)u->w.c.dim;
    const matrix m = {mem, dim, (size_t)u->w.c.keys * dim};
    return m;
}

/* The scale of Q K^T; the cosine variant's comes in the kernels. */
static float scale_of(const test_case *c)
{
    return c->variant == WINATTN_COSINE ? 1.0f
           : c->scale != 0              ? (float)c->scale
                                        : 1.0f / sqrtf((float)c->dim);
}

/* ---- A call ---- */

static winattn_status enqueue_norms(const unfused *u, unsigned set)
{
    const winattn_status status =
        enqueue_norm(u, u->w.q[set], u->timed_items * u->item_rows, u->q_norm);
    return status == CL_SUCCESS
               ? enqueue_norm(u, u->w.k[set],
                              u->timed_items * (size_t)u->w.c.keys, u->k_norm)
               : status;
}

winattn_status unfused_enqueue_p(const unfused *u, unsigned set)
{
    const matrix q = rows_of(u, u->w.q[set]), k = keys_of(u, u->w.k[set]);
    const matrix s = plane_of(u, u->s);
    winattn_status status = u->q_norm ? enqueue_norms(u, set) : CL_SUCCESS;
    if (status == CL_SUCCESS)
        status =
            multiply(u, u->item_rows, (size_t)u->w.c.keys, (size_t)u->w.c.dim,
                     scale_of(&u->w.c), &q, PLAIN, &k, TRANSPOSED, &s);
    return status == CL_SUCCESS ? launch_rows(u, UNFUSED_SOFTMAX) : status;
}

static winattn_status enqueue_o(const unfused *u, unsigned set)
{
    const matrix p = plane_of(u, u->s), v = keys_of(u, u->w.v[set]);
    const matrix o = rows_of(u, u->w.o[set]);
    return multiply(u, u->item_rows, (size_t)u->w.c.dim, (size_t)u->w.c.keys,
                    1.0f, &p, PLAIN, &v, PLAIN, &o);
}

/* ds becomes dS, and is summed over windows; then it is what the products
 * want. */
static winattn_status enqueue_ds(const unfused *u)
{
    const size_t rows = u->timed_items * u->item_rows;
    const cl_mem mems[] = {u->ds, u->q_norm, u->k_norm, u->w.logit_scale};
    cl_kernel kernel = u->kernel[UNFUSED_SOFTMAX_BACKWARD];
    clSetKernelArg(kernel, 0, sizeof u->s, &u->s);
    clSetKernelArg(kernel, 1, sizeof u->ds, &u->ds);
    winattn_status status = launch_rows(u, UNFUSED_SOFTMAX_BACKWARD);
    if (status == CL_SUCCESS && u->w.dbias)
        status = enqueue_window_sum(u, u->ds, rows * (size_t)u->w.c.keys,
                                    dbias_count(&u->w.c), u->w.dbias);
    if (status != CL_SUCCESS || !u->q_norm)
        return status;
    kernel = u->kernel[UNFUSED_SCALE_ROWS];
    for (cl_uint i = 0; i < 4; i++)
        clSetKernelArg(kernel, i, sizeof mems[i], &mems[i]);
    return launch_rows(u, UNFUSED_SCALE_ROWS);
}

static winattn_status enqueue_gradients(const unfused *u, unsigned set)
{
    const size_t keys = (size_t)u->w.c.keys, dim = (size_t)u->w.c.dim;
    const size_t rows = u->item_rows;
    const matrix p = plane_of(u, u->s), ds = plane_of(u, u->ds);
    const matrix q = rows_of(u, u->w.q[set]), k = keys_of(u, u->w.k[set]);
    const matrix v = keys_of(u, u->w.v[set]);
    const matrix d_o = rows_of(u, u->w.d_o[set]);
    const matrix dq = rows_of(u, u->w.dq[set]);
    const matrix dk = keys_of(u, u->w.dk[set]);
    const matrix dv = keys_of(u, u->w.dv[set]);
    const float scale = scale_of(&u->w.c);
    winattn_status status =
        multiply(u, keys, dim, rows, 1.0f, &p, TRANSPOSED, &d_o, PLAIN, &dv);
    if (status == CL_SUCCESS)
        status = multiply(u, rows, keys, dim, 1.0f, &d_o, PLAIN, &v,
                          TRANSPOSED, &ds);
    if (status == CL_SUCCESS)
        status = enqueue_ds(u);
    if (status == CL_SUCCESS)
        status =
            multiply(u, rows, dim, keys, scale, &ds, PLAIN, &k, PLAIN, &dq);
    if (status == CL_SUCCESS)
        status = multiply(u, keys, dim, rows, scale, &ds, TRANSPOSED, &q,
                          PLAIN, &dk);
    return status;
}

/* What the cosine variant does to whole dq and dk, and d_logit_scale. */
static winattn_status enqueue_projections(const unfused *u, unsigned set)
{
    const size_t rows = u->timed_items * u->item_rows;
    const size_t heads = rows / (size_t)u->w.c.queries;
    const argument sums[] = {ARGUMENT(u->along), ARGUMENT(u->w.logit_scale),
                             ARGUMENT(u->head_sums)};
    winattn_status status =
        enqueue_project(u, u->w.k[set], u->timed_items * (size_t)u->w.c.keys,
                        u->k_norm, u->w.dk[set]);
    if (status == CL_SUCCESS)
        status =
            enqueue_project(u, u->w.q[set], rows, u->q_norm, u->w.dq[set]);
    if (status == CL_SUCCESS)
        status = launch(u, UNFUSED_SUM_QUERIES, sums, 3, heads, 1);
    if (status == CL_SUCCESS)
        status = enqueue_window_sum(u, u->head_sums, heads,
                                    (size_t)u->w.c.heads, u->w.d_logit_scale);
    return status;
}

winattn_status unfused_enqueue(void *data, unsigned round)
{
    const unfused *u = data;
    const unsigned set = round % (unsigned)u->w.sets;
    winattn_status status = CL_SUCCESS;
    if (u->w.pass != BENCH_BACKWARD)
        status = unfused_enqueue_p(u, set);
    if (status == CL_SUCCESS && u->w.pass != BENCH_BACKWARD)
        status = enqueue_o(u, set);
    if (status == CL_SUCCESS && u->w.pass != BENCH_FORWARD)
        status = enqueue_gradients(u, set);
    if (status == CL_SUCCESS && u->q_norm && u->w.pass != BENCH_FORWARD)
        status = enqueue_projections(u, set);
    return status;
}

#endif
