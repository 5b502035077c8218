/* SPDX-License-Identifier: Apache-2.0
 * Swin and Swin V2 in fp64 (Liu et al. 2021, Liu et al. 2022). */
#include "reference.h"

#include <math.h>
#include <string.h>

#include "kit/oracle.h"
#include "tensors.h"

void ref_linear(const double *x, const double *weight, const double *bias,
                size_t rows, size_t in, size_t out, double *y)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < out; o++) {
            double sum = bias ? bias[o] : 0;
            for (size_t i = 0; i < in; i++)
                sum += x[r * in + i] * weight[o * in + i];
            y[r * out + o] = sum;
        }
}

void ref_norm(const double *x, const double *weight, const double *bias,
              size_t rows, size_t size, double eps, double *y)
{
    for (size_t r = 0; r < rows; r++, x += size, y += size) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < size; i++)
            mean += x[i] / (double)size;
        for (size_t i = 0; i < size; i++)
            variance += (x[i] - mean) * (x[i] - mean) / (double)size;
        for (size_t i = 0; i < size; i++)
            y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i];
    }
}

/* ---- Attention ---- */

/* The grid that the block cuts into windows. */
static test_case grid_of(const winattn_block_desc *d)
{
    const cl_uint size[2] = {d->height, d->width};
    test_case c = case_default();
    c.grid = 2;
    c.roll_first = d->grid_options == WINATTN_GRID_ROLL_FIRST;
    for (int a = 0; a < 2; a++) {
        c.size[a] = (int)size[a];
        c.window[a] = (int)d->window[a];
        c.shift[a] = (int)d->shift[a];
    }
    return c;
}

/* A head of all windows, q, k and v side by side: qkv [windows][tokens][3 C]
 * -> o [windows][tokens][C], both from the head's first channel on. */
static void attend(const oracle_problem *head, size_t channels, size_t windows,
                   const ref_mask *mask, const double *qkv, double *o)
{
    const size_t tokens = head->queries, size = tokens * head->dim;
    double *part = numbers(5 * size), *lse = numbers(2 * tokens), largest;
    oracle_problem p = *head;
    p.q = part;
    p.k = part + size;
    p.v = part + 2 * size;
    for (size_t n = 0; n < windows; n++, o += tokens * channels) {
        for (size_t t = 0; t < 3 * tokens; t++, qkv += channels)
            memcpy(part + t % 3 * size + t / 3 * p.dim, qkv,
                   p.dim * sizeof *qkv);
        if (mask->map)
            p.query_region = p.key_region =
                mask->map->region + n % mask->map->windows * tokens;
        if (mask->added)
            p.mask = mask->added + n % mask->windows * tokens * tokens;
        oracle_forward(&p, part + 3 * size, part + 4 * size, lse, lse + tokens,
                       &largest);
        for (size_t t = 0; t < tokens; t++)
            memcpy(o + t * channels, part + 3 * size + t * p.dim,
                   p.dim * sizeof *o);
    }
}

void ref_module(const winattn_block_desc *d, const ref_weights w,
                const double *x, size_t windows, const ref_mask *mask,
                double *y)
{
    const test_case c = grid_of(d);
    const size_t tokens = (size_t)d->window[0] * d->window[1];
    const size_t channels = d->channels, rows = windows * tokens;
    const size_t dim = channels / d->heads;
    double *qkv = numbers(rows * 3 * channels), *o = numbers(rows * channels);
    double *bias = numbers(tokens * tokens);
    ref_linear(x, w[WA_BLOCK_QKV_WEIGHT], w[WA_BLOCK_QKV_BIAS], rows, channels,
               3 * channels, qkv);
    for (size_t h = 0; h < d->heads; h++) {
        const float logit_scale = (float)w[WA_BLOCK_LOGIT_SCALE][h];
        for (size_t i = 0; i < tokens * tokens; i++)
            bias[i] =
                w[WA_BLOCK_TABLE]
                 [grid_table_entry(&c, i / tokens, i % tokens) * d->heads + h];
        const oracle_problem head = {.queries = tokens,
                                     .keys = tokens,
                                     .dim = dim,
                                     .bias = bias,
                                     .region_value = -100,
                                     .scale = 1 / sqrt((double)dim),
                                     .cosine = d->variant == WINATTN_COSINE,
                                     .logit_scale = &logit_scale};
        attend(&head, channels, windows, mask, qkv + h * dim, o + h * dim);
    }
    ref_linear(o, w[WA_BLOCK_PROJ_WEIGHT], w[WA_BLOCK_PROJ_BIAS], rows,
               channels, channels, y);
}

/* ---- A block ---- */

static void attend_to_map(const winattn_block_desc *d, const ref_weights w,
                          const double *x, double *y)
{
    const test_case c = grid_of(d);
    const size_t channels = d->channels, bytes = channels * sizeof *x;
    grid_map map;
    assert_true(grid_map_make(&c, &map));
    const size_t of_map = map.windows * map.tokens;
    double *in = numbers(d->batch * of_map * channels);
    double *out = numbers(d->batch * of_map * channels);
    const ref_mask mask = {.map = &map};
    for (int back = 0; back < 2; back++) {
        if (back)
            ref_module(d, w, in, d->batch * map.windows, &mask, out);
        for (size_t i = 0; i < d->batch * of_map; i++) {
            const size_t token = map.token[i % of_map];
            const size_t at =
                (i / of_map * d->height * d->width + token) * channels;
            if (token != GRID_NONE)
                memcpy(back ? y + at : in + i * channels,
                       back ? out + i * channels : x + at, bytes);
        }
    }
    grid_map_free(&map);
}

static void add(double *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

void ref_block(const winattn_block_desc *d, const ref_weights w, double *map)
{
    const size_t rows = (size_t)d->batch * d->height * d->width;
    const size_t c = d->channels, hidden = d->hidden;
    const bool post_norm = d->order == WINATTN_POST_NORM;
    const double eps = d->eps != 0 ? (double)d->eps : 1e-5;
    double *in = numbers(rows * c), *out = numbers(rows * c);
    double *between = numbers(rows * hidden);
    for (int half = 0; half < 2; half++) {
        const double *weight =
            w[half ? WA_BLOCK_NORM2_WEIGHT : WA_BLOCK_NORM1_WEIGHT];
        const double *bias =
            w[half ? WA_BLOCK_NORM2_BIAS : WA_BLOCK_NORM1_BIAS];
        memcpy(in, map, rows * c * sizeof *in);
        if (!post_norm)
            ref_norm(map, weight, bias, rows, c, eps, in);
        if (half == 0) {
            attend_to_map(d, w, in, out);
        } else {
            ref_linear(in, w[WA_BLOCK_FC1_WEIGHT], w[WA_BLOCK_FC1_BIAS], rows,
                       c, hidden, between);
            for (size_t i = 0; i < rows * hidden; i++)
                between[i] *= (1 + erf(between[i] / sqrt(2.0))) / 2;
            ref_linear(between, w[WA_BLOCK_FC2_WEIGHT], w[WA_BLOCK_FC2_BIAS],
                       rows, hidden, c, out);
        }
        if (post_norm)
            ref_norm(out, weight, bias, rows, c, eps, out);
        add(map, out, rows * c);
    }
}
