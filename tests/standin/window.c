/* SPDX-License-Identifier: Apache-2.0
 * What kernels of windows of cl/hopper/ leave, of contiguous channels and one
 * split: the library's self-test reads it. */
#include "window.h"

#include <math.h>
#include <stdlib.h>

/* Is an output to be wrong? */
static bool is_wrong(const windows *x, wa_tensor_id id)
{
    return standin_drivers.wgmma_wrong == id &&
           (x->args.q.offset > 0 || !standin_drivers.wgmma_wrong_if_shifted);
}

/* To be freed; NULL if nobody knows the bytes. */
static double *read_numbers(const windows *x, const argument *tensor)
{
    const cl_mem buffer = tensor->buffer;
    if (!buffer || !buffer->bytes)
        return NULL;
    const uint16_t *bits = (const uint16_t *)(const void *)buffer->bytes;
    double *all = own_calloc(buffer->size / 2, sizeof *all);
    for (size_t i = 0; i < buffer->size / 2; i++)
        all[i] = stored_number(x->half, bits[i]);
    return all;
}

/* ---- The tokens of a head ---- */

/* Rows of all channels, one behind the other, and 1 / the length that each is
 * divided by, which is 1 for those of v and d_o and in the dot variant. */
typedef struct rows {
    double *all, *inverse;
} rows;

typedef struct head_of_window {
    size_t window;
    uint32_t head;
    rows q, k, v, d_o;
    double scale;
} head_of_window;

/* Loops over channels of rows that are the stand-in's own copies take most of
 * the time: nobody watches them. */
#ifdef __SANITIZE_ADDRESS__
#define UNWATCHED __attribute__((no_sanitize("address", "undefined")))
#else
#define UNWATCHED
#endif

/* With four sums, which do not wait for each other. Heads have a multiple of
 * four channels. */
UNWATCHED static double product(const windows *x, const double *a,
                                const double *b)
{
    double sums[4] = {0, 0, 0, 0};
    for (uint32_t c = 0; c < x->dim; c += 4)
        for (uint32_t i = 0; i < 4; i++)
            sums[i] += a[c + i] * b[c + i];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

UNWATCHED static void add(const windows *x, double *to, double factor,
                          const double *row)
{
    for (uint32_t c = 0; c < x->dim; c++)
        to[c] += factor * row[c];
}

static double *row_of(const windows *x, double *all, uint32_t row)
{
    return all + (size_t)row * x->dim;
}

/* Nothing of a tensor that is not given. */
static rows gather(const windows *x, const double *from,
                   const tensor_layout *layout, size_t window, uint32_t head,
                   uint32_t count, bool are_divided)
{
    rows r = {NULL, NULL};
    if (!from)
        return r;
    r.all = own_calloc((size_t)count * x->dim, sizeof *r.all);
    r.inverse = own_calloc(count, sizeof *r.inverse);
    for (uint32_t row = 0; row < count; row++) {
        double *to = row_of(x, r.all, row);
        memcpy(to, from + window_row(x, layout, window, head, row),
               x->dim * sizeof *to);
        r.inverse[row] = are_divided && x->is_cosine
                             ? 1 / fmax(sqrt(product(x, to, to)), 1e-12)
                             : 1;
    }
    return r;
}

static double scale_of(const windows *x, uint32_t head)
{
    const float *scales;
    if (!x->is_cosine || !(x->args.flags & ARG_LOGIT_SCALE))
        return x->args.scale;
    scales = (const float *)(const void *)x->logit_scale->buffer->bytes;
    return exp(scales[x->args.logit_scale_offset + head]);
}

static head_of_window gather_head(const windows *x, size_t window,
                                  uint32_t head)
{
    const forward_args *f = &x->args;
    const uint32_t of_keys = head / f->heads_per_kv_head;
    const head_of_window h = {
        window,
        head,
        gather(x, x->q, &f->q, window, head, f->queries, true),
        gather(x, x->k, &f->k, window, of_keys, f->keys, true),
        gather(x, x->v, &f->v, window, of_keys, f->keys, false),
        gather(x, x->d_o, &x->gradients.d_o, window, head, f->queries, false),
        scale_of(x, head)};
    return h;
}

static void free_head(const head_of_window *h)
{
    const rows *const all[] = {&h->q, &h->k, &h->v, &h->d_o};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]->all);
        free(all[i]->inverse);
    }
}

/* The weights of a row, of which a blind one has none; returns lse. */
static double weigh(const windows *x, const head_of_window *h, uint32_t row,
                    double *weights)
{
    const uint32_t keys = x->args.keys;
    const double *q = row_of(x, h->q.all, row);
    const double scale = h->scale * h->q.inverse[row];
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < keys; key++) {
        weights[key] = scale * h->k.inverse[key] *
                           product(x, q, row_of(x, h->k.all, key)) +
                       window_score_bias(x, h->window, h->head, row, key);
        top = fmax(top, weights[key]);
    }
    for (uint32_t key = 0; key < keys; key++) {
        weights[key] = isinf(top) ? 0 : exp(weights[key] - top);
        sum += weights[key];
    }
    for (uint32_t key = 0; key < keys; key++)
        weights[key] /= sum > 0 ? sum : 1;
    return top + log(sum);
}

/* Where it is to be wrong, the first row is. */
static void write_row(const windows *x, const head_of_window *h, uint32_t row,
                      const double *weights, double lse, double *sums)
{
    const forward_args *f = &x->args;
    const size_t o = window_row(x, &f->o, h->window, h->head, row);
    const bool spoils = h->window + h->head == 0 && row == 0;
    memset(sums, 0, x->dim * sizeof *sums);
    for (uint32_t key = 0; key < f->keys; key++)
        if (weights[key] > 0)
            add(x, sums, weights[key], row_of(x, h->v.all, key));
    if (spoils && is_wrong(x, WA_O))
        sums[1] += 1;
    for (uint32_t c = 0; c < x->dim; c++)
        ((uint16_t *)(void *)x->o->buffer->bytes)[o + c] =
            rounded_number(x->half, sums[c]);
    if (x->lse->buffer)
        ((float *)(void *)x->lse->buffer
             ->bytes)[window_row(x, &f->lse, h->window, h->head, row)] =
            (float)lse + (spoils && is_wrong(x, WA_LSE) ? 1.0f : 0.0f);
}

static void compute_all(const windows *x)
{
    const forward_args *f = &x->args;
    double *weights = own_calloc(f->keys, sizeof *weights);
    double *sums = own_calloc(x->dim, sizeof *sums);
    for (size_t w = 0; w < f->windows; w++)
        for (uint32_t head = 0; head < f->heads; head++) {
            const head_of_window h =
                gather_head(x, (size_t)f->first_window + w, head);
            for (uint32_t row = 0; row < f->queries; row++) {
                const double lse = weigh(x, &h, row, weights);
                write_row(x, &h, row, weights, lse, sums);
            }
            free_head(&h);
        }
    free(weights);
    free(sums);
}

/* ---- Gradients ---- */

/* Weights that no result shows. */
#define NOTHING 1e-9

/* Gradients of the logits of a row, whose weights p becomes. */
static void differentiate(const windows *x, const head_of_window *h,
                          uint32_t row, double *p, double *ds)
{
    const double *d_o = row_of(x, h->d_o.all, row);
    double delta = 0;
    weigh(x, h, row, p);
    for (uint32_t key = 0; key < x->args.keys; key++) {
        ds[key] = product(x, d_o, row_of(x, h->v.all, key));
        delta += p[key] * ds[key];
    }
    for (uint32_t key = 0; key < x->args.keys; key++)
        ds[key] = p[key] * (ds[key] - delta);
}

/* Rows of a gradient, with respect to rows of length 1 where `own` ones are
 * divided. Returns the sum of their products with these. */
static double write_rows(const windows *x, const head_of_window *h,
                         const argument *to, const tensor_layout *layout,
                         const rows *own, uint32_t count, double *all)
{
    uint16_t *bits = (uint16_t *)(void *)to->buffer->bytes;
    double sum = 0;
    for (uint32_t row = 0; row < count; row++) {
        double *d = row_of(x, all, row), along = 0;
        if (own && x->is_cosine) {
            const double *r = row_of(x, own->all, row);
            const double inverse = own->inverse[row];
            along = product(x, d, r) * inverse;
            for (uint32_t c = 0; c < x->dim; c++)
                d[c] = (d[c] - r[c] * inverse * along) * inverse;
        }
        for (uint32_t c = 0; c < x->dim; c++)
            bits[window_row(x, layout, h->window, h->head, row) + c] =
                rounded_number(x->half, d[c]);
        sum += along;
    }
    return sum;
}

static float *partials(const windows *x, arg_u64 from)
{
    return (float *)(void *)x->workspace->buffer->bytes + from;
}

/* Leaves dq, and sums of the others. */
static void make_rows(const windows *x, const head_of_window *h, double *dq,
                      double *p, double *ds)
{
    const forward_args *f = &x->args;
    const backward_args *b = &x->gradients;
    const bool starts = h->window == f->first_window;
    const bool is_first = h->window + h->head == 0;
    float *bias =
        partials(x, b->bias_partials) + (size_t)h->head * f->queries * f->keys;
    memset(dq, 0, (size_t)f->queries * x->dim * sizeof *dq);
    for (uint32_t row = 0; row < f->queries; row++) {
        differentiate(x, h, row, p, ds);
        for (uint32_t key = 0; key < f->keys; key++) {
            float *sum = bias + (size_t)row * f->keys + key;
            if (p[key] > NOTHING)
                add(x, row_of(x, dq, row),
                    h->scale * ds[key] * h->k.inverse[key],
                    row_of(x, h->k.all, key));
            if (x->bias)
                *sum = (float)ds[key] + (starts ? 0.0f : *sum);
        }
    }
    if (is_first && is_wrong(x, WA_DBIAS))
        bias[0] += 1.0f;
    const double along =
        write_rows(x, h, x->dq, &b->dq, &h->q, f->queries, dq);
    for (uint32_t block = 0; x->is_cosine && block < f->row_blocks; block++) {
        float *sum =
            partials(x, b->scale_partials) + block * f->heads + h->head;
        *sum = (starts ? 0.0f : *sum) + (block == 0 ? (float)along : 0.0f);
        if (is_first && block == 0 && is_wrong(x, WA_D_LOGIT_SCALE))
            *sum += 1e6f;
    }
}

static void make_keys(const windows *x, const head_of_window *h, double *dk,
                      double *dv, double *p, double *ds)
{
    const forward_args *f = &x->args;
    const backward_args *b = &x->gradients;
    const size_t bytes = (size_t)f->keys * x->dim * sizeof *dk;
    memset(dk, 0, bytes);
    memset(dv, 0, bytes);
    for (uint32_t row = 0; row < f->queries; row++) {
        const double scale = h->scale * h->q.inverse[row];
        differentiate(x, h, row, p, ds);
        for (uint32_t key = 0; key < f->keys; key++) {
            if (p[key] <= NOTHING)
                continue;
            add(x, row_of(x, dk, key), scale * ds[key],
                row_of(x, h->q.all, row));
            add(x, row_of(x, dv, key), p[key], row_of(x, h->d_o.all, row));
        }
    }
    write_rows(x, h, x->dk, &b->dk, &h->k, f->keys, dk);
    write_rows(x, h, x->dv, &b->dv, NULL, f->keys, dv);
}

/* Channel 1 of the first row is wrong where it is to be. */
static void spoil(const windows *x, bool has_rows, bool has_keys)
{
    const struct {
        wa_tensor_id id;
        const argument *is;
        const tensor_layout *layout;
    } all[] = {{WA_DQ, x->dq, &x->gradients.dq},
               {WA_DK, x->dk, &x->gradients.dk},
               {WA_DV, x->dv, &x->gradients.dv}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (is_wrong(x, all[i].id) && (i == 0 ? has_rows : has_keys))
            ((uint16_t *)(void *)all[i]
                 .is->buffer->bytes)[all[i].layout->offset + 1] ^= 0x4000;
}

/* has_rows: the kernel makes what belongs to rows; to keys. */
static void compute_gradients(const windows *x, bool has_rows, bool has_keys)
{
    const forward_args *f = &x->args;
    const uint32_t most = f->queries > f->keys ? f->queries : f->keys;
    double *p = own_calloc(f->keys, sizeof *p);
    double *ds = own_calloc(f->keys, sizeof *ds);
    double *first = own_calloc((size_t)most * x->dim, sizeof *first);
    double *second = own_calloc((size_t)most * x->dim, sizeof *second);
    for (size_t w = 0; w < f->windows; w++)
        for (uint32_t head = 0; head < f->heads; head++) {
            const head_of_window h =
                gather_head(x, (size_t)f->first_window + w, head);
            if (has_rows)
                make_rows(x, &h, first, p, ds);
            if (has_keys)
                make_keys(x, &h, first, second, p, ds);
            free_head(&h);
        }
    spoil(x, has_rows, has_keys);
    free(p);
    free(ds);
    free(first);
    free(second);
}

/* ---- The kernels ---- */

void compute_window(cl_kernel kernel)
{
    const char *options = kernel->program->options;
    const char *name = kernel->facts->name;
    const bool is_forward = strcmp(name, "window_forward_wgmma") == 0;
    const argument *given = kernel->arguments;
    windows x;
    size_t n = 1;
    read_window_options(&x, options);
    if (!is_forward)
        memcpy(&x.gradients, given[0].bytes, sizeof x.gradients);
    memcpy(&x.args, given[0].bytes, sizeof x.args);
    x.q = read_numbers(&x, &given[n++]);
    x.k = read_numbers(&x, &given[n++]);
    x.v = read_numbers(&x, &given[n++]);
    if (x.has_bias)
        x.bias = read_numbers(&x, &given[n++]);
    if (x.table == TABLE_BY_INDEX)
        x.index = &given[n++];
    if (x.mask == MASK_REGIONS) {
        x.query_regions = &given[n++];
        x.key_regions = &given[n++];
    }
    if (x.is_cosine)
        x.logit_scale = &given[n++];
    x.o = &given[n++];
    x.lse = &given[n++];
    if (is_forward && x.q) { /* else it is not the self-test */
        compute_all(&x);
    } else if (x.q) {
        x.d_o = read_numbers(&x, &given[n]);
        x.dq = &given[n + 2];
        x.dk = &given[n + 3];
        x.dv = &given[n + 4];
        x.workspace = &given[n + 5];
        compute_gradients(&x, strcmp(name, "window_keys_wgmma") != 0,
                          strcmp(name, "window_rows_wgmma") != 0);
    }
    free(x.q);
    free(x.k);
    free(x.v);
    free(x.bias);
    free(x.d_o);
}
