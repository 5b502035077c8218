/* SPDX-License-Identifier: Apache-2.0
 * The oracle's view of a case: one window-head as contiguous arrays. */
#include "data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double *plane_of(const tensor_data *t, size_t window, size_t head)
{
    return t->used ? t->value + data_index(t, window, head, 0, 0) : NULL;
}

/* The tokens of a window, with those of the padding. */
static double *gather(const case_buffers *d, tensor_id id, size_t window,
                      size_t head)
{
    const tensor_data *t = &d->tensor[id], *pad = NULL;
    const size_t dim = t->extent[3];
    if (id == T_K || id == T_V)
        pad = &d->tensor[id == T_K ? T_PAD_K : T_PAD_V];
    double *x = calloc(d->map.tokens * dim, sizeof *x);
    for (size_t i = 0; i < d->map.tokens; i++) {
        size_t at = window, row = i;
        if (data_find(d, id, &at, &row))
            memcpy(x + i * dim, t->value + data_index(t, at, head, row, 0),
                   sizeof *x * dim);
        else if (pad && pad->used)
            memcpy(x + i * dim, pad->value + data_index(pad, 0, head, 0, 0),
                   sizeof *x * dim);
    }
    return x;
}

/* The bias of each query and key, and their mask where tokens are hidden. */
static void expand_terms(const case_buffers *d, size_t window, size_t head,
                         data_view *view)
{
    const test_case *c = &d->c;
    const size_t queries = (size_t)c->queries, keys = (size_t)c->keys;
    const tensor_data *t = &d->tensor[T_BIAS];
    const bool hides = c->grid && c->padding == WINATTN_PADDING_HIDDEN;
    oracle_problem *p = &view->problem;
    if (t->used && (d->entry || hides)) {
        view->own[3] = malloc(sizeof(double) * queries * keys);
        for (size_t i = 0; i < queries * keys; i++)
            view->own[3][i] =
                d->entry
                    ? t->value[data_index(t, 0, head, (size_t)d->entry[i], 0)]
                    : p->bias[i];
        p->bias = view->own[3];
    }
    if (!hides)
        return;
    view->own[4] = malloc(sizeof(double) * queries * keys);
    for (size_t i = 0; i < queries; i++)
        for (size_t j = 0; j < keys; j++) {
            size_t at = window, row = j;
            const size_t ij = i * keys + j;
            view->own[4][ij] = p->mask ? p->mask[ij] : 0;
            if (data_find(d, T_K, &at, &row))
                continue;
            view->own[4][ij] = -INFINITY;
            if (t->used) /* hidden, whatever its bias */
                view->own[3][ij] = 0;
        }
    p->mask = view->own[4];
}

void data_view_open(const case_buffers *d, size_t window, size_t head,
                    data_view *view)
{
    const test_case *c = &d->c;
    const tensor_data *t = d->tensor;
    const size_t kv_head = head / (size_t)(c->heads / c->kv_heads);
    const bool shifted = c->mask == TERM_SHIFT;
    const size_t mask_window =
        case_mask_is_read(c) ? window % (size_t)c->mask_windows : 0;
    memset(view, 0, sizeof *view);
    for (int i = 0; c->mask == TERM_REGIONS && i < 2; i++) {
        const tensor_data *region = &t[T_QUERY_REGIONS + i];
        view->regions[i] = malloc(region->extent[2]);
        for (size_t j = 0; j < region->extent[2]; j++)
            view->regions[i][j] =
                (unsigned char)
                    region->value[data_index(region, mask_window, 0, j, 0)];
    }
    for (int i = 0; shifted && i < 2; i++) {
        view->regions[i] = malloc(d->map.tokens);
        memcpy(view->regions[i],
               d->map.region + window % d->map.windows * d->map.tokens,
               d->map.tokens);
    }
    for (int id = T_Q; c->grid && id <= T_V; id++)
        view->own[id] =
            gather(d, (tensor_id)id, window, id == T_Q ? head : kv_head);
    if (t[T_LOGIT_SCALE].used)
        view->logit_scale = (float)t[T_LOGIT_SCALE].value[head];
    const oracle_problem p = {
        .queries = (size_t)c->queries,
        .keys = (size_t)c->keys,
        .dim = (size_t)c->dim,
        .q = c->grid ? view->own[0] : plane_of(&t[T_Q], window, head),
        .k = c->grid ? view->own[1] : plane_of(&t[T_K], window, kv_head),
        .v = c->grid ? view->own[2] : plane_of(&t[T_V], window, kv_head),
        .bias = plane_of(&t[T_BIAS], 0, head),
        .mask = plane_of(&t[T_MASK], mask_window, 0),
        .query_region = view->regions[0],
        .key_region = view->regions[1],
        .region_value =
            isnan(c->region_value) ? -100.0 : (float)c->region_value,
        .scale = c->scale != 0 ? (float)c->scale : 1.0 / sqrt(c->dim),
        .cosine = c->variant == WINATTN_COSINE,
        .logit_scale = t[T_LOGIT_SCALE].used ? &view->logit_scale : NULL,
        .sliding = c->variant == WINATTN_SLIDING,
        .block = (size_t)c->block,
        .first_block = (size_t)c->first_block,
        .window_blocks = (size_t)c->window_blocks,
        .sink = (size_t)c->sink,
        .query_offset = (size_t)c->query_offset,
        .sink_in_window = c->sink_in_window != 0,
    };
    view->problem = p;
    expand_terms(d, window, head, view);
}

void data_view_close(data_view *view)
{
    free(view->regions[0]);
    free(view->regions[1]);
    for (size_t i = 0; i < sizeof view->own / sizeof *view->own; i++)
        free(view->own[i]);
}

void data_oracle(const case_buffers *d, size_t window, size_t head, double *o,
                 double *o_size, double *lse, double *lse_size,
                 double *largest_logit)
{
    data_view view;
    data_view_open(d, window, head, &view);
    oracle_forward(&view.problem, o, o_size, lse, lse_size, largest_logit);
    data_view_close(&view);
}

bool data_forward(const case_buffers *d, double *o, double *lse)
{
    const tensor_data *t_o = &d->tensor[T_O], *t_lse = &d->tensor[T_LSE];
    const size_t queries = (size_t)d->c.queries, dim = (size_t)d->c.dim;
    const size_t values = queries * dim, heads = (size_t)d->c.heads;
    double *x = malloc(sizeof *x * 2 * (values + queries)), largest;
    for (size_t i = 0; x && i < (size_t)d->c.windows * heads; i++) {
        double *own_lse = x + 2 * values;
        data_oracle(d, i / heads, i % heads, x, x + values, own_lse,
                    own_lse + queries, &largest);
        for (size_t q = 0; q < queries; q++) {
            size_t at = i / heads, row = q;
            if (!data_find(d, T_O, &at, &row))
                continue;
            memcpy(o + data_index(t_o, at, i % heads, row, 0), x + q * dim,
                   sizeof *x * dim);
            if (lse)
                lse[data_index(t_lse, at, i % heads, row, 0)] = own_lse[q];
        }
    }
    free(x);
    return x != NULL;
}
