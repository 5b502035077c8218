/* SPDX-License-Identifier: Apache-2.0
 * Swin and Swin V2 in fp64 (Liu et al. 2021, Liu et al. 2022). */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

static double *numbers(size_t count)
{
    double *p = calloc(count + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

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

void ref_gelu(double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = x[i] / 2 * (1 + erf(x[i] / sqrt(2.0)));
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

void ref_neighbours(const double *map, size_t batch, size_t height,
                    size_t width, size_t channels, double *rows)
{
    for (size_t b = 0; b < batch; b++)
        for (size_t y = 0; y < height; y += 2)
            for (size_t x = 0; x < width; x += 2)
                for (size_t part = 0; part < 4; part++) {
                    const size_t row = y + part % 2, column = x + part / 2;
                    for (size_t c = 0; c < channels; c++)
                        *rows++ =
                            row < height && column < width
                                ? map[((b * height + row) * width + column) *
                                          channels +
                                      c]
                                : 0;
                }
}

size_t ref_entry(const size_t window[2], size_t query, size_t key)
{
    const size_t across = window[1];
    const size_t y = query / across + window[0] - 1 - key / across;
    const size_t x = query % across + across - 1 - key % across;
    return y * (2 * across - 1) + x;
}

static double dot(const double *a, const double *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Of one query of a window: q, k and v are those of token 0. */
static void attend(const double *qkv, size_t tokens, size_t channels,
                   size_t dim, size_t query, const double *logit_scale,
                   double *logits, double *o)
{
    const double *q = qkv + query * 3 * channels;
    const double *k = qkv + channels, *v = qkv + 2 * channels;
    double most = -INFINITY, sum = 0;
    for (size_t j = 0; j < tokens; j++) {
        const double *key = k + j * 3 * channels;
        double s = dot(q, key, dim);
        if (logit_scale)
            s *= exp(fmin(*logit_scale, log(100))) /
                 fmax(sqrt(dot(q, q, dim)), 1e-12) /
                 fmax(sqrt(dot(key, key, dim)), 1e-12);
        else
            s /= sqrt((double)dim);
        logits[j] += s;
        most = fmax(most, logits[j]);
    }
    for (size_t j = 0; j < tokens; j++)
        sum += logits[j] = exp(logits[j] - most);
    for (size_t c = 0; c < dim; c++) {
        o[c] = 0;
        for (size_t j = 0; j < tokens; j++)
            o[c] += logits[j] / sum * v[j * 3 * channels + c];
    }
}

void ref_attention(const double *qkv, size_t windows, size_t tokens,
                   size_t channels, size_t heads, const double *logit_scale,
                   ref_bias *bias, const void *data, double *o)
{
    const size_t dim = channels / heads;
    double *logits = numbers(tokens);
    for (size_t w = 0; w < windows; w++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < tokens; i++) {
                for (size_t j = 0; j < tokens; j++)
                    logits[j] = bias(data, w, h, i, j);
                attend(qkv + w * tokens * 3 * channels + h * dim, tokens,
                       channels, dim, i, logit_scale ? logit_scale + h : NULL,
                       logits, o + (w * tokens + i) * channels + h * dim);
            }
    free(logits);
}

/* ---- A block ---- */

/* The padded map: how large, how much of it is rolled how far, its windows. */
typedef struct geometry {
    size_t padded[2], rolled[2], shift[2], windows[2];
    const ref_shape *shape;
    const double *table;
} geometry;

static geometry geometry_of(const ref_shape *s, const double *table)
{
    const size_t size[2] = {s->height, s->width};
    geometry g = {.shape = s, .table = table};
    for (int a = 0; a < 2; a++) {
        g.windows[a] = (size[a] + s->window[a] - 1) / s->window[a];
        g.padded[a] = g.windows[a] * s->window[a];
        g.rolled[a] = s->rolls_first ? size[a] : g.padded[a];
        g.shift[a] =
            g.padded[a] <= s->window[a] && !s->rolls_first ? 0 : s->shift[a];
    }
    return g;
}

/* Which band of an axis a token of the rolled map is in: tokens that were
 * neighbours before share one. */
static size_t band(const geometry *g, int axis, size_t at)
{
    const size_t left = g->padded[axis] - at;
    if (g->shift[axis] == 0 || left > g->shape->window[axis])
        return 0;
    return left > g->shift[axis] ? 1 : 2;
}

static size_t region(const geometry *g, size_t window, size_t token)
{
    const size_t *size = g->shape->window;
    const size_t in_map = window % (g->windows[0] * g->windows[1]);
    const size_t y = in_map / g->windows[1] * size[0] + token / size[1];
    const size_t x = in_map % g->windows[1] * size[1] + token % size[1];
    return 3 * band(g, 0, y) + band(g, 1, x);
}

static double block_bias(const void *data, size_t window, size_t head,
                         size_t query, size_t key)
{
    const geometry *g = data;
    const double bias =
        g->table[ref_entry(g->shape->window, query, key) * g->shape->heads +
                 head];
    return region(g, window, query) == region(g, window, key) ? bias
                                                              : bias - 100;
}

/* What the roll brought to that place of an axis. */
static size_t unrolled(const geometry *g, int axis, size_t at)
{
    return at < g->rolled[axis] ? (at + g->shift[axis]) % g->rolled[axis] : at;
}

/* Which token of the map is token t of window w, counted over the batch; -1:
 * it is of the padding. */
static long long token_at(const geometry *g, size_t w, size_t t)
{
    const ref_shape *s = g->shape;
    const size_t per_map = g->windows[0] * g->windows[1];
    const size_t y = unrolled(
        g, 0, w % per_map / g->windows[1] * s->window[0] + t / s->window[1]);
    const size_t x =
        unrolled(g, 1, w % g->windows[1] * s->window[1] + t % s->window[1]);
    if (y >= s->height || x >= s->width)
        return -1;
    return (long long)((w / per_map * s->height + y) * s->width + x);
}

void ref_window_attention(const ref_shape *s, const ref_weights *w,
                          const double *x, double *y)
{
    const geometry g = geometry_of(s, w->table);
    const size_t windows = s->batch * g.windows[0] * g.windows[1];
    const size_t tokens = s->window[0] * s->window[1];
    const size_t c = s->channels, all = windows * tokens;
    double *in = numbers(all * c), *qkv = numbers(all * 3 * c);
    double *o = numbers(all * c);
    for (size_t i = 0; i < all; i++) {
        const long long from = token_at(&g, i / tokens, i % tokens);
        if (from >= 0)
            memcpy(in + i * c, x + (size_t)from * c, c * sizeof *x);
    }
    ref_linear(in, w->qkv_weight, w->qkv_bias, all, c, 3 * c, qkv);
    ref_attention(qkv, windows, tokens, c, s->heads,
                  s->is_cosine ? w->logit_scale : NULL, block_bias, &g, o);
    ref_linear(o, w->proj_weight, w->proj_bias, all, c, c, in);
    for (size_t i = 0; i < all; i++) {
        const long long to = token_at(&g, i / tokens, i % tokens);
        if (to >= 0)
            memcpy(y + (size_t)to * c, in + i * c, c * sizeof *y);
    }
    free(in);
    free(qkv);
    free(o);
}

static void add(double *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

void ref_block(const ref_shape *s, const ref_weights *w, double *map)
{
    const size_t rows = s->batch * s->height * s->width, c = s->channels;
    double *in = numbers(rows * c), *out = numbers(rows * c);
    double *hidden = numbers(rows * s->hidden);
    memcpy(in, map, rows * c * sizeof *in);
    if (!s->post_norm)
        ref_norm(map, w->norm1_weight, w->norm1_bias, rows, c, s->eps, in);
    ref_window_attention(s, w, in, out);
    if (s->post_norm)
        ref_norm(out, w->norm1_weight, w->norm1_bias, rows, c, s->eps, out);
    add(map, out, rows * c);
    memcpy(in, map, rows * c * sizeof *in);
    if (!s->post_norm)
        ref_norm(map, w->norm2_weight, w->norm2_bias, rows, c, s->eps, in);
    ref_linear(in, w->fc1_weight, w->fc1_bias, rows, c, s->hidden, hidden);
    ref_gelu(hidden, rows * s->hidden);
    ref_linear(hidden, w->fc2_weight, w->fc2_bias, rows, s->hidden, c, out);
    if (s->post_norm)
        ref_norm(out, w->norm2_weight, w->norm2_bias, rows, c, s->eps, out);
    add(map, out, rows * c);
    free(in);
    free(out);
    free(hidden);
}
