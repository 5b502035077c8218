/* SPDX-License-Identifier: Apache-2.0
 * What cl/hopper/sliding_forward_wgmma.cl leaves, of one head of keys: the
 * library's self-test reads it. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>

#include "../cl/common/args.h"

typedef struct attention {
    forward_args args;
    bool half;
    uint32_t dim;
    const uint16_t *q;
    double *k, *v; /* [key][channel] */
    uint16_t *o;
    float *lse;
} attention;

static double number(const attention *x, uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16;
    float wide;
    if (x->half) {
        const int exponent = bits >> 10 & 31;
        const double size = exponent
                                ? ldexp(1024 + (bits & 1023), exponent - 25)
                                : ldexp(bits & 1023, -24);
        return bits & 0x8000 ? -size : size;
    }
    memcpy(&wide, &word, sizeof wide);
    return wide;
}

static uint16_t rounded(const attention *x, double y)
{
    const uint16_t sign = y < 0 ? 0x8000 : 0;
    const float wide = (float)y;
    uint32_t word;
    int exponent;
    memcpy(&word, &wide, sizeof word);
    if (!x->half)
        return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
    if (y == 0)
        return sign;
    frexp(y, &exponent);
    exponent = exponent < -13 ? -13 : exponent;
    return (uint16_t)(sign |
                      (((uint32_t)(exponent + 13) << 10) +
                       (uint32_t)nearbyint(ldexp(fabs(y), 11 - exponent))));
}

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

static void attend(const attention *x, uint32_t head, uint32_t query,
                   double *weights)
{
    const forward_args *args = &x->args;
    const size_t row =
        (size_t)head * args->q.head + (size_t)query * args->q.row;
    double q[256], top = -INFINITY, sum = 0;
    for (uint32_t c = 0; c < x->dim; c++)
        q[c] = number(x, x->q[row + c]);
    for (uint32_t key = 0; key < args->keys; key++) {
        weights[key] = 0;
        for (uint32_t c = 0; c < x->dim; c++)
            weights[key] += q[c] * x->k[(size_t)key * x->dim + c];
        weights[key] =
            sees(args, query, key) ? weights[key] * args->scale : -INFINITY;
        top = fmax(top, weights[key]);
    }
    for (uint32_t key = 0; key < args->keys; key++)
        sum += weights[key] = exp(weights[key] - top);
    for (uint32_t c = 0; c < x->dim; c++) {
        double out = 0;
        for (uint32_t key = 0; key < args->keys; key++)
            out += weights[key] / sum * x->v[(size_t)key * x->dim + c];
        x->o[row + c] = rounded(x, out);
    }
    x->lse[(size_t)head * args->lse.head + (size_t)query * args->lse.row] =
        (float)(top + log(sum));
}

/* The rows of the one head; to be freed. */
static double *rows_of(const attention *x, const argument *from, uint32_t row)
{
    const uint16_t *bits = (const uint16_t *)(const void *)from->buffer->bytes;
    double *rows = own_calloc((size_t)x->args.keys * x->dim, sizeof *rows);
    for (uint32_t key = 0; key < x->args.keys; key++)
        for (uint32_t c = 0; c < x->dim; c++)
            rows[(size_t)key * x->dim + c] =
                number(x, bits[(size_t)key * row + c]);
    return rows;
}

void compute_sliding(cl_kernel kernel)
{
    attention x;
    const argument *given = kernel->arguments;
    const char *options = kernel->program->options;
    const char *dim = strstr(options, "-DHEAD_DIM=");
    for (int i = 1; i <= 5; i++)
        if (!given[i].buffer || !given[i].buffer->bytes)
            return; /* not the self-test */
    memcpy(&x.args, given[0].bytes, sizeof x.args);
    x.half = strstr(options, "-DDTYPE=1") != NULL;
    x.dim = dim ? (uint32_t)atoi(dim + strlen("-DHEAD_DIM=")) : 0;
    x.q = (const uint16_t *)(const void *)given[1].buffer->bytes;
    x.k = rows_of(&x, &given[2], x.args.k.row);
    x.v = rows_of(&x, &given[3], x.args.v.row);
    x.o = (uint16_t *)(void *)given[4].buffer->bytes;
    x.lse = (float *)(void *)given[5].buffer->bytes;
    double *weights = own_calloc(x.args.keys, sizeof *weights);
    for (uint32_t head = 0; head < x.args.heads; head++)
        for (uint32_t query = 0; query < x.args.queries; query++)
            attend(&x, head, query, weights);
    free(weights);
    free(x.k);
    free(x.v);
    if (standin_drivers.wgmma_is_wrong)
        x.o[(size_t)x.args.q.row + 1] ^= 0x4000;
}
