/* SPDX-License-Identifier: Apache-2.0
 * Outputs of a case, read back or computed. */
#include "outputs.h"

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
    for (size_t w = 0; w < t->extent[0]; w++)
        for (size_t h = 0; h < t->extent[1]; h++)
            for (size_t r = 0; r < t->extent[2]; r++)
                for (size_t x = 0; x < t->extent[3]; x++)
                    *to++ = kind_read(t->kind, bytes + data_at(t, w, h, r, x));
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

static void add(double *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

/* Rows of dq, dk or dv of a window-head, to where they belong. */
static void add_rows(const case_buffers *d, tensor_id id, size_t window,
                     size_t head, const double *dx, case_outputs *out)
{
    const tensor_data *t = &d->tensor[id];
    const size_t rows = data_rows(d, id), dim = t->extent[3];
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, row = i;
        double *to = NULL;
        if (data_find(d, id, &at, &row))
            to = out->value[id];
        else if (id != T_DQ) /* of the padding */
            to = out->value[T_D_PAD_K + (id - T_DK)];
        if (!to)
            continue;
        if (row == GRID_NONE)
            to += head * dim;
        else
            to += data_index(t, at, head, row, 0);
        add(to, dx + i * dim, dim);
    }
}

static void add_logits(const case_buffers *d, size_t head, const double *ds,
                       case_outputs *out)
{
    const tensor_data *t = &d->tensor[T_DBIAS];
    const size_t pairs = (size_t)d->c.queries * (size_t)d->c.keys;
    double *to = out->value[T_DBIAS];
    if (!to)
        return;
    to += data_index(t, 0, head, 0, 0);
    for (size_t i = 0; i < pairs; i++)
        to[d->entry ? (size_t)d->entry[i] : i] += ds[i];
}

/* d_o of a window-head; nothing flows into what has no result. */
static void read_flow(const case_buffers *d, size_t window, size_t head,
                      double *flow)
{
    const tensor_data *t = &d->tensor[T_D_O];
    const size_t dim = t->extent[3];
    for (size_t i = 0; i < data_rows(d, T_D_O); i++) {
        size_t at = window, row = i;
        if (data_find(d, T_D_O, &at, &row))
            memcpy(flow + i * dim, t->value + data_index(t, at, head, row, 0),
                   sizeof *flow * dim);
    }
}

/* Gradients of one window-head. */
static void add_gradients(const case_buffers *d, size_t window, size_t head,
                          case_outputs *out)
{
    const size_t dim = (size_t)d->c.dim;
    const size_t q_count = (size_t)d->c.queries * dim;
    const size_t k_count = (size_t)d->c.keys * dim;
    const size_t pairs = (size_t)d->c.queries * (size_t)d->c.keys;
    double *flow = calloc(3 * q_count + 4 * k_count + 2 * pairs, sizeof *flow);
    double *dq = flow + q_count, *dk = dq + 2 * q_count;
    double *dv = dk + 2 * k_count, *ds = dv + 2 * k_count;
    oracle_gradients g = {.dq = dq,
                          .dk = dk,
                          .dv = dv,
                          .dbias = ds,
                          .dq_size = dq + q_count,
                          .dk_size = dk + k_count,
                          .dv_size = dv + k_count,
                          .dbias_size = ds + pairs};
    data_view view;
    read_flow(d, window, head, flow);
    data_view_open(d, window, head, &view);
    oracle_backward(&view.problem, flow, NULL, &g);
    data_view_close(&view);
    add_rows(d, T_DQ, window, head, dq, out);
    add_rows(d, T_DK, window, head, dk, out);
    add_rows(d, T_DV, window, head, dv, out);
    add_logits(d, head, ds, out);
    if (out->value[T_D_LOGIT_SCALE])
        out->value[T_D_LOGIT_SCALE][head] += g.d_logit_scale;
    free(flow);
}

static void put_forward(const case_buffers *d, size_t window, size_t head,
                        case_outputs *out)
{
    const tensor_data *t = &d->tensor[T_O];
    const size_t rows = (size_t)d->c.queries, dim = (size_t)d->c.dim;
    double *o = malloc(sizeof *o * (2 * rows * dim + 2 * rows)), largest;
    double *lse = o + 2 * rows * dim;
    data_oracle(d, window, head, o, o + rows * dim, lse, lse + rows, &largest);
    for (size_t i = 0; i < rows; i++) {
        size_t at = window, row = i;
        if (data_find(d, T_O, &at, &row))
            memcpy(out->value[T_O] + data_index(t, at, head, row, 0),
                   o + i * dim, sizeof *o * dim);
    }
    free(o);
}

case_outputs outputs_of_oracle(const case_buffers *d)
{
    case_outputs out = outputs_make(d);
    for (size_t w = 0; w < (size_t)d->c.windows; w++)
        for (size_t h = 0; h < (size_t)d->c.heads; h++)
            if (d->c.pass == PASS_BACKWARD)
                add_gradients(d, w, h, &out);
            else
                put_forward(d, w, h, &out);
    return out;
}
