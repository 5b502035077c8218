/* SPDX-License-Identifier: Apache-2.0
 * Outputs of a case, read back or computed. */
#include "outputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

case_outputs outputs_make(const case_buffers *d)
{
    case_outputs out;
    memset(&out, 0, sizeof out);
    for (int id = 0; id < TENSORS; id++)
        if (d->tensor[id].used && d->tensor[id].is_output)
            out.value[id] =
                calloc(data_count(&d->tensor[id]), sizeof *out.value[id]);
    return out;
}

void outputs_free(case_outputs *out)
{
    for (int id = 0; id < TENSORS; id++)
        free(out->value[id]);
}

/* ---- The device's ---- */

static void read_tensor(const tensor_data *t, const unsigned char *bytes,
                        double *to)
{
    for (size_t i = 0; i < data_count(t); i++)
        to[i] = kind_read(t->kind, bytes + data_place_of(t, i));
}

bool outputs_read(cl_command_queue queue, const case_buffers *d,
                  const device_buffers *b, case_outputs *out)
{
    for (int i = 0; i < d->buffers; i++) {
        unsigned char *bytes = malloc(d->buffer[i].size);
        const bool read =
            bytes && clEnqueueReadBuffer(queue, b->mem[i], CL_TRUE, 0,
                                         d->buffer[i].size, bytes, 0, NULL,
                                         NULL) == CL_SUCCESS;
        for (int id = 0; read && id < TENSORS; id++)
            if (out->value[id] && d->tensor[id].buffer == i)
                read_tensor(&d->tensor[id], bytes, out->value[id]);
        free(bytes);
        if (!read)
            return false;
    }
    return true;
}

/* ---- The oracle's ---- */

/* Where rows of a window's gradient belong: those of the padding are summed.
 * NULL: nowhere. */
static double *place_of_row(const case_buffers *d, tensor_id id, size_t window,
                            size_t head, size_t row, case_outputs *out)
{
    const tensor_data *t = &d->tensor[id];
    const bool exists = data_find(d, id, &window, &row);
    if (exists)
        return out->value[id]
                   ? out->value[id] + data_index(t, window, head, row, 0)
                   : NULL;
    double *pad = id == T_DQ ? NULL : out->value[T_D_PAD_K + (id - T_DK)];
    return pad ? pad + head * t->extent[3] : NULL;
}

static void add_rows(const case_buffers *d, tensor_id id, size_t window,
                     size_t head, const double *dx, case_outputs *out)
{
    const size_t rows = data_rows(d, id), dim = d->tensor[id].extent[3];
    for (size_t i = 0; i < rows; i++) {
        double *to = place_of_row(d, id, window, head, i, out);
        for (size_t x = 0; to && x < dim; x++)
            to[x] += dx[i * dim + x];
    }
}

static void add_logits(const case_buffers *d, size_t head, const double *ds,
                       case_outputs *out)
{
    const size_t pairs = (size_t)d->c.queries * (size_t)d->c.keys;
    double *to = out->value[T_DBIAS];
    if (!to)
        return;
    to += data_index(&d->tensor[T_DBIAS], 0, head, 0, 0);
    for (size_t i = 0; i < pairs; i++)
        to[d->entry ? (size_t)d->entry[i] : i] += ds[i];
}

/* What flows back into o and lse of a window-head; nothing does into what has
 * no result. */
static void read_flow(const case_buffers *d, size_t window, size_t head,
                      double *d_o, double *d_lse)
{
    const tensor_data *o = &d->tensor[T_D_O], *lse = &d->tensor[T_D_LSE];
    const size_t dim = o->extent[3];
    for (size_t i = 0; i < data_rows(d, T_D_O); i++) {
        size_t at = window, row = i;
        const bool exists = data_find(d, T_D_O, &at, &row);
        for (size_t x = 0; x < dim; x++)
            d_o[i * dim + x] = exists ? data_value(o, at, head, row, x) : 0;
        d_lse[i] = exists && lse->used ? data_value(lse, at, head, row, 0) : 0;
    }
}

/* Matrix units take P and dS in 16 bits, which fp16 has less range in than
 * fp32: a key whose weights are all below 2^-28 of the largest may lose them.
 * So each row of a size becomes at least a 2^-15th of the largest, 0.1 of 1e-3
 * of which is allowed. norms: of the rows, which the gradients were divided
 * by; or NULL. */
static void grant_range(double *size, size_t rows, size_t columns,
                        const double *norms)
{
    for (size_t x = 0; x < columns; x++) {
        double largest = 0;
        for (size_t i = 0; i < rows; i++)
            largest =
                fmax(largest, size[i * columns + x] * (norms ? norms[i] : 1));
        for (size_t i = 0; i < rows; i++)
            size[i * columns + x] =
                fmax(size[i * columns + x],
                     ldexp(largest, -15) / (norms ? norms[i] : 1));
    }
}

/* norms: memory for one of each key. */
static void grant_ranges(const oracle_problem *p, oracle_gradients *g,
                         double *norms)
{
    for (size_t i = 0; i < p->keys; i++) {
        double squares = 0;
        for (size_t x = 0; x < p->dim; x++)
            squares += p->k[i * p->dim + x] * p->k[i * p->dim + x];
        norms[i] = fmax(sqrt(squares), 1e-12);
    }
    grant_range(g->dk_size, p->keys, p->dim, p->cosine ? norms : NULL);
    grant_range(g->dv_size, p->keys, p->dim, NULL);
}

static bool has_nan(const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (isnan(x[i]))
            return true;
    return false;
}

/* Adds the gradients of one window-head, and the sizes of what they sum. */
static void add_gradients(const case_buffers *d, size_t window, size_t head,
                          case_truth *to)
{
    const size_t queries = (size_t)d->c.queries, keys = (size_t)d->c.keys;
    const size_t kv_head = head / (size_t)(d->c.heads / d->c.kv_heads);
    const size_t q_count = queries * (size_t)d->c.dim;
    const size_t k_count = keys * (size_t)d->c.dim, pairs = queries * keys;
    const size_t number = window * (size_t)d->c.heads + head;
    double *d_o =
        calloc(5 * q_count + 4 * k_count + 2 * pairs + 3 * queries + keys,
               sizeof *d_o);
    double *dq = d_o + q_count, *dk = dq + 2 * q_count, *dv = dk + 2 * k_count;
    double *ds = dv + 2 * k_count, *rest = ds + 2 * pairs;
    double *d_lse = rest + 2 * q_count, *norms = d_lse + 3 * queries;
    oracle_gradients g = {.dq = dq,
                          .dk = dk,
                          .dv = dv,
                          .dbias = ds,
                          .dq_size = dq + q_count,
                          .dk_size = dk + k_count,
                          .dv_size = dv + k_count,
                          .dbias_size = ds + pairs};
    data_view view;
    data_view_open(d, window, head, &view);
    read_flow(d, window, head, d_o, d_lse);
    oracle_backward(&view.problem, d_o, d_lse, &g);
    if (d->c.dtype == WINATTN_FP16)
        grant_ranges(&view.problem, &g, norms);
    /* for the largest logit alone */
    oracle_forward(&view.problem, rest, rest + q_count, d_lse + queries,
                   d_lse + 2 * queries, &to->largest[number]);
    data_view_close(&view);
    to->spoilt[number] =
        has_nan(dq, q_count) || has_nan(dk, k_count) || has_nan(dv, k_count);
    case_outputs *sums[] = {&to->value, &to->size};
    for (size_t i = 0; i < 2; i++) {
        add_rows(d, T_DQ, window, head, dq + i * q_count, sums[i]);
        add_rows(d, T_DK, window, kv_head, dk + i * k_count, sums[i]);
        add_rows(d, T_DV, window, kv_head, dv + i * k_count, sums[i]);
        add_logits(d, head, ds + i * pairs, sums[i]);
        if (sums[i]->value[T_D_LOGIT_SCALE])
            sums[i]->value[T_D_LOGIT_SCALE][head] +=
                i ? g.d_logit_scale_size : g.d_logit_scale;
    }
    free(d_o);
}

case_truth truth_of(const case_buffers *d)
{
    const size_t all = (size_t)d->c.windows * (size_t)d->c.heads;
    case_truth truth = {.value = outputs_make(d),
                        .size = outputs_make(d),
                        .largest = calloc(all + 1, sizeof *truth.largest),
                        .spoilt = calloc(all + 1, sizeof *truth.spoilt)};
    if (d->c.pass == PASS_FORWARD)
        data_forward(d, truth.value.value[T_O], truth.value.value[T_LSE]);
    for (size_t i = 0; d->c.pass == PASS_BACKWARD && i < all; i++)
        add_gradients(d, i / (size_t)d->c.heads, i % (size_t)d->c.heads,
                      &truth);
    return truth;
}

void truth_free(case_truth *truth)
{
    outputs_free(&truth->value);
    outputs_free(&truth->size);
    free(truth->largest);
    free(truth->spoilt);
}
