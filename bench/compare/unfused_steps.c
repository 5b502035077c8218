/* SPDX-License-Identifier: Apache-2.0
 * Enqueues unfused calls, and counts what they need. */
#include "compare/unfused_steps.h"

#include <math.h>

#include "base/status.h"

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

cl_int unfused_set_arguments(const unfused *u)
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

winattn_status unfused_enqueue_p(const unfused *u, unsigned set)
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

winattn_status unfused_enqueue(void *data, unsigned round)
{
    const unfused *u = data;
    const unsigned set = round % (unsigned)u->w.sets;
    if (u->w.pass != BENCH_BACKWARD) {
        WA_TRY(unfused_enqueue_p(u, set));
        WA_TRY(multiply(u, 1.0f, plane_of(u, u->s), PLAIN,
                        rows_of(u, set, T_V), PLAIN, rows_of(u, set, T_O)));
    }
    if (u->w.pass == BENCH_FORWARD)
        return CL_SUCCESS;
    WA_TRY(enqueue_gradients(u, set));
    return u->q_norm ? enqueue_projections(u, set) : CL_SUCCESS;
}

#endif
