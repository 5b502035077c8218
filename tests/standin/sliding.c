/* SPDX-License-Identifier: Apache-2.0
 * What the sliding kernels of cl/hopper/ leave, of one head of keys: the
 * library's self-test reads it. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>

#include "../cl/common/args.h"

/* One head of keys, and heads of queries that share it. */
typedef struct attention {
    forward_args args;
    bool half;
    bool by_maps; /* rows come by tensor maps */
    uint32_t dim;
    double *q, *k, *v, *d_o; /* [head][token][channel]; d_o: backward */
} attention;

/* A tensor of the caller's. */
typedef struct tensor {
    const argument *is;
    tensor_layout layout;
    uint32_t heads, tokens;
} tensor;

double stored_number(bool half, uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16;
    float wide;
    if (half) {
        const int exponent = bits >> 10 & 31;
        const double size = exponent == 31 ? INFINITY
                            : exponent
                                ? ldexp(1024 + (bits & 1023), exponent - 25)
                                : ldexp(bits & 1023, -24);
        return bits & 0x8000 ? -size : size;
    }
    memcpy(&wide, &word, sizeof wide);
    return wide;
}

uint16_t rounded_number(bool half, double y)
{
    const uint16_t sign = y < 0 ? 0x8000 : 0;
    const float wide = (float)y;
    uint32_t word;
    int exponent;
    memcpy(&word, &wide, sizeof word);
    if (!half)
        return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
    if (y == 0)
        return sign;
    frexp(y, &exponent);
    exponent = exponent < -13 ? -13 : exponent;
    return (uint16_t)(sign |
                      (((uint32_t)(exponent + 13) << 10) +
                       (uint32_t)nearbyint(ldexp(fabs(y), 11 - exponent))));
}

static uint16_t *element(const attention *x, const tensor *t, size_t i)
{
    uint16_t *bits = (uint16_t *)(void *)t->is->buffer->bytes;
    const size_t row = i / x->dim;
    return bits + row / t->tokens * t->layout.head +
           row % t->tokens * t->layout.row + i % x->dim;
}

static size_t elements(const attention *x, const tensor *t)
{
    return (size_t)t->heads * t->tokens * x->dim;
}

/* To be freed. */
static double *read_tensor(const attention *x, const tensor *t)
{
    double *all = own_calloc(elements(x, t), sizeof *all);
    for (size_t i = 0; i < elements(x, t); i++)
        all[i] = stored_number(x->half, *element(x, t, i));
    return all;
}

/* Where it is to be wrong, channel 1 of row 1 is. */
static void write_tensor(const attention *x, const tensor *t,
                         const double *all, wa_tensor_id id)
{
    for (size_t i = 0; i < elements(x, t); i++)
        *element(x, t, i) = rounded_number(x->half, all[i]);
    if (standin_drivers.wgmma_wrong == id &&
        (x->by_maps || !standin_drivers.wgmma_wrong_by_maps))
        *element(x, t, x->dim + 1) ^= 0x4000;
}

/* ---- A row ---- */

static uint32_t block_of(const forward_args *args, uint32_t token)
{
    return token < args->first_block
               ? 0
               : 1 + (token - args->first_block) / args->block;
}

static bool sees(const forward_args *args, uint32_t query, uint32_t key)
{
    const uint32_t own = block_of(args, query + args->query_offset);
    const uint32_t other = block_of(args, key);
    const bool near =
        !(args->flags & ARG_WINDOW_BOUNDED) || other + args->window > own;
    return other <= own && (near || key < args->sink);
}

static double product(const attention *x, const double *a, const double *b)
{
    double sum = 0;
    for (uint32_t c = 0; c < x->dim; c++)
        sum += a[c] * b[c];
    return sum;
}

/* The weights of row `row` of all heads; returns lse. */
static double weigh(const attention *x, size_t row, double *weights)
{
    const forward_args *args = &x->args;
    const double *q = x->q + row * x->dim;
    const uint32_t query = (uint32_t)(row % args->queries);
    double top = -INFINITY, sum = 0;
    for (uint32_t key = 0; key < args->keys; key++) {
        weights[key] =
            sees(args, query, key)
                ? product(x, q, x->k + (size_t)key * x->dim) * args->scale
                : -INFINITY;
        top = fmax(top, weights[key]);
    }
    for (uint32_t key = 0; key < args->keys; key++)
        sum += weights[key] = exp(weights[key] - top);
    for (uint32_t key = 0; key < args->keys; key++)
        weights[key] /= sum;
    return top + log(sum);
}

/* The gradients of its logits, times the scale, from its weights. */
static void differentiate(const attention *x, size_t row, const double *p,
                          double *ds)
{
    const double *d_o = x->d_o + row * x->dim;
    double delta = 0;
    for (uint32_t key = 0; key < x->args.keys; key++) {
        ds[key] = product(x, d_o, x->v + (size_t)key * x->dim);
        delta += p[key] * ds[key];
    }
    for (uint32_t key = 0; key < x->args.keys; key++)
        ds[key] = p[key] * (ds[key] - delta) * x->args.scale;
}

static void add(const attention *x, double *to, double factor,
                const double *row)
{
    for (uint32_t c = 0; c < x->dim; c++)
        to[c] += factor * row[c];
}

/* ---- The kernels ---- */

static void run_forward(const attention *x, const tensor *o, float *lse)
{
    const uint32_t queries = x->args.queries, keys = x->args.keys;
    double *out = own_calloc(elements(x, o), sizeof *out);
    double *p = own_calloc(keys, sizeof *p);
    for (size_t row = 0; row < (size_t)x->args.heads * queries; row++) {
        lse[row / queries * x->args.lse.head +
            row % queries * x->args.lse.row] = (float)weigh(x, row, p);
        for (size_t key = 0; key < keys; key++)
            add(x, out + row * x->dim, p[key], x->v + key * x->dim);
    }
    write_tensor(x, o, out, WA_O);
    if (standin_drivers.wgmma_wrong == WA_LSE)
        lse[x->args.lse.row] += 1.0f;
    free(out);
    free(p);
}

/* dq: NULL for the kernel of keys. */
static void run_backward(const attention *x, const tensor *dq,
                         const tensor *dk, const tensor *dv)
{
    const size_t dim = x->dim, keys = x->args.keys;
    const size_t rows = (size_t)x->args.heads * x->args.queries;
    double *first = own_calloc((dq ? rows : keys) * dim, sizeof *first);
    double *second = own_calloc(keys * dim, sizeof *second);
    double *p = own_calloc(keys, sizeof *p);
    double *ds = own_calloc(keys, sizeof *ds);
    for (size_t row = 0; row < rows; row++) {
        weigh(x, row, p);
        differentiate(x, row, p, ds);
        for (size_t key = 0; key < keys; key++) {
            if (p[key] == 0)
                continue;
            if (dq) {
                add(x, first + row * dim, ds[key], x->k + key * dim);
                continue;
            }
            add(x, first + key * dim, ds[key], x->q + row * dim);
            add(x, second + key * dim, p[key], x->d_o + row * dim);
        }
    }
    if (dq) {
        write_tensor(x, dq, first, WA_DQ);
    } else {
        write_tensor(x, dk, first, WA_DK);
        write_tensor(x, dv, second, WA_DV);
    }
    free(first);
    free(second);
    free(p);
    free(ds);
}

/* Have all of these arguments bytes? If not, it is not the self-test. */
static bool are_known(const argument *given, const unsigned *which, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!given[which[i]].buffer || !given[which[i]].buffer->bytes)
            return false;
    return true;
}

void compute_sliding(cl_kernel kernel)
{
    /* places in FORWARD_PARAMETERS and BACKWARD_PARAMETERS */
    static const unsigned forward[] = {1, 2, 3, 4, 5};
    static const unsigned backward[] = {1, 2, 3, 6, 8, 9, 10};
    const char *name = kernel->facts->name,
               *options = kernel->program->options;
    const bool is_forward = strcmp(name, "sliding_forward_wgmma") == 0;
    const argument *given = kernel->arguments;
    const char *dim = strstr(options, "-DHEAD_DIM=");
    attention x = {.half = strstr(options, "-DDTYPE=1") != NULL,
                   .by_maps = strstr(options, "-DTENSOR_MAPS=1") != NULL};
    backward_args args;
    if (!(is_forward ? are_known(given, forward, 5)
                     : are_known(given, backward, 7)))
        return;
    memset(&args, 0, sizeof args);
    memcpy(&args, given[0].bytes,
           is_forward ? sizeof args.forward : sizeof args);
    const forward_args *f = &args.forward;
    const tensor q = {&given[1], f->q, f->heads, f->queries};
    const tensor k = {&given[2], f->k, 1, f->keys};
    const tensor v = {&given[3], f->v, 1, f->keys};
    x.args = *f;
    x.dim = dim ? (uint32_t)atoi(dim + strlen("-DHEAD_DIM=")) : 0;
    x.q = read_tensor(&x, &q);
    x.k = read_tensor(&x, &k);
    x.v = read_tensor(&x, &v);
    if (is_forward) {
        const tensor o = {&given[4], f->o, f->heads, f->queries};
        run_forward(&x, &o, (float *)(void *)given[5].buffer->bytes);
    } else {
        const tensor d_o = {&given[6], args.d_o, f->heads, f->queries};
        const tensor dq = {&given[8], args.dq, f->heads, f->queries};
        const tensor dk = {&given[9], args.dk, 1, f->keys};
        const tensor dv = {&given[10], args.dv, 1, f->keys};
        x.d_o = read_tensor(&x, &d_o);
        run_backward(&x, strcmp(name, "sliding_rows_wgmma") == 0 ? &dq : NULL,
                     &dk, &dv);
    }
    free(x.q);
    free(x.k);
    free(x.v);
    free(x.d_o);
}
