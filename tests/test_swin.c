/* SPDX-License-Identifier: Apache-2.0
 * What shifted-window models compute, read from their feature maps in place:
 * torchvision's modules (golden/make_golden.py), and two blocks of a stage
 * against the same with the maps padded, rolled, cut, put together and rolled
 * back around the attention.
 *
 *   test_swin TIER */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit/npy.h"
#include "kit/run.h"

static test_device device;
static int tier;

static case_buffers *make_case(const char *text, int pass)
{
    test_case c = case_default();
    char bad[64];
    if (!case_parse(text, &c, bad))
        fail_msg("%s in \"%s\"", bad, text);
    c.pass = pass;
    c.tier = tier;
    case_buffers *d = data_make(&c);
    assert_non_null(d);
    return d;
}

static size_t count_of(const tensor_data *t)
{
    return t->extent[0] * t->extent[1] * t->extent[2] * t->extent[3];
}

/* Values of a tensor are [window or grid][head][row][column]. */
static size_t index_of(const tensor_data *t, size_t window, size_t head,
                       size_t row)
{
    return ((window * t->extent[1] + head) * t->extent[2] + row) *
           t->extent[3];
}

/* All outputs of a case, in that order; NULL where there is none. */
typedef struct outputs {
    double *value[TENSORS];
} outputs;

static outputs make_outputs(const case_buffers *d)
{
    outputs out;
    memset(&out, 0, sizeof out);
    for (int id = 0; id < TENSORS; id++)
        if (d->tensor[id].used && d->tensor[id].is_output)
            out.value[id] =
                calloc(count_of(&d->tensor[id]), sizeof *out.value[id]);
    return out;
}

static void free_outputs(outputs *out)
{
    for (int id = 0; id < TENSORS; id++)
        free(out->value[id]);
}

/* The device's, held against the oracle too. */
static outputs run_device(case_buffers *d)
{
    outputs out = make_outputs(d);
    device_buffers b;
    case_result result;
    char text[1024];
    memset(&result, 0, sizeof result);
    case_print(&d->c, text, sizeof text);
    assert_true(buffers_create(&device, d, &b));
    if (!buffers_run(&device, device.queue, d, &b, 1, &result) ||
        !buffers_check(device.queue, d, &b, 0, &result))
        fail_msg("%s\n%s", text, result.failure);
    for (int i = 0; i < d->buffers; i++) {
        unsigned char *bytes = malloc(d->buffer[i].size);
        assert_int_equal(clEnqueueReadBuffer(device.queue, b.mem[i], CL_TRUE,
                                             0, d->buffer[i].size, bytes, 0,
                                             NULL, NULL),
                         CL_SUCCESS);
        for (int id = 0; id < TENSORS; id++) {
            const tensor_data *t = &d->tensor[id];
            if (!out.value[id] || t->buffer != i)
                continue;
            double *to = out.value[id];
            for (size_t w = 0; w < t->extent[0]; w++)
                for (size_t h = 0; h < t->extent[1]; h++)
                    for (size_t r = 0; r < t->extent[2]; r++)
                        for (size_t x = 0; x < t->extent[3]; x++)
                            *to++ = kind_read(t->kind,
                                              bytes + data_at(t, w, h, r, x));
        }
        free(bytes);
    }
    buffers_release(&b);
    return out;
}

static void add(double *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

/* Gradients of one window-head, to where they belong. */
static void add_gradients(const case_buffers *d, size_t window, size_t head,
                          outputs *out)
{
    static const int tokens[3] = {T_DQ, T_DK, T_DV};
    const tensor_data *t = d->tensor;
    const size_t rows = d->map.tokens, dim = (size_t)d->c.dim;
    double *all = calloc(7 * rows * dim + 2 * rows * rows, sizeof *all);
    double *flow = all, *at = all + rows * dim;
    double *dx[3], *size[3];
    for (int i = 0; i < 3; i++) {
        dx[i] = at;
        size[i] = at + rows * dim;
        at += 2 * rows * dim;
    }
    oracle_gradients g = {.dq = dx[0],
                          .dk = dx[1],
                          .dv = dx[2],
                          .dbias = at,
                          .dq_size = size[0],
                          .dk_size = size[1],
                          .dv_size = size[2],
                          .dbias_size = at + rows * rows};
    for (size_t i = 0; i < rows; i++) {
        size_t grid = window, row = i;
        if (data_find(d, T_D_O, &grid, &row))
            memcpy(flow + i * dim,
                   t[T_D_O].value + index_of(&t[T_D_O], grid, head, row),
                   sizeof *flow * dim);
    }
    data_view view;
    data_view_open(d, window, head, &view);
    oracle_backward(&view.problem, flow, NULL, &g);
    data_view_close(&view);
    for (int part = 0; part < 3; part++)
        for (size_t i = 0; i < rows; i++) {
            const int id = tokens[part];
            size_t grid = window, row = i;
            double *to = NULL;
            if (data_find(d, (tensor_id)id, &grid, &row))
                to = out->value[id] + index_of(&t[id], grid, head, row);
            else if (id != T_DQ && t[T_D_PAD_K + part - 1].used)
                to = out->value[T_D_PAD_K + part - 1] + head * dim;
            if (to)
                add(to, dx[part] + i * dim, dim);
        }
    for (size_t i = 0; i < rows * rows; i++)
        out->value[T_DBIAS][index_of(&t[T_DBIAS], 0, head,
                                     (size_t)d->entry[i])] += g.dbias[i];
    if (out->value[T_D_LOGIT_SCALE])
        out->value[T_D_LOGIT_SCALE][head] += g.d_logit_scale;
    free(all);
}

/* The oracle's, of a case with a table and as many key heads as heads. */
static outputs run_oracle(const case_buffers *d)
{
    const tensor_data *t = d->tensor;
    const size_t rows = d->map.tokens, dim = (size_t)d->c.dim;
    outputs out = make_outputs(d);
    double *o = malloc(sizeof *o * (2 * rows * dim + 2 * rows)), largest;
    for (size_t w = 0; w < (size_t)d->c.windows; w++)
        for (size_t h = 0; h < (size_t)d->c.heads; h++) {
            if (d->c.pass == PASS_BACKWARD) {
                add_gradients(d, w, h, &out);
                continue;
            }
            double *lse = o + 2 * rows * dim;
            data_oracle(d, w, h, o, o + rows * dim, lse, lse + rows, &largest);
            for (size_t i = 0; i < rows; i++) {
                size_t grid = w, row = i;
                if (!data_find(d, T_O, &grid, &row))
                    continue;
                memcpy(out.value[T_O] + index_of(&t[T_O], grid, h, row),
                       o + i * dim, sizeof *o * dim);
            }
        }
    free(o);
    return out;
}

static void assert_close(const char *what, const double *got,
                         const double *want, size_t count, double tolerance)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(got[i]));
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(error) <= tolerance * sqrt(norm)))
        fail_msg("%s: relative error %g", what, sqrt(error / norm));
}

/* ---- torchvision ---- */

/* [batch, axes, parts, heads, dim], part `part` of it, or [rows, heads] as a
 * tensor's values. */
static double *load(const tensor_data *t, const char *case_name,
                    const char *name, size_t part, size_t parts)
{
    npy_array array = npy_read(GOLDEN_FOLDER, case_name, name);
    if (!array.value || array.count != count_of(t) * parts)
        fail_msg("%s_%s.npy cannot be read", case_name, name);
    double *value = malloc(sizeof *value * count_of(t));
    for (size_t w = 0; w < t->extent[0]; w++)
        for (size_t h = 0; h < t->extent[1]; h++)
            for (size_t r = 0; r < t->extent[2]; r++)
                for (size_t x = 0; x < t->extent[3]; x++)
                    value[index_of(t, w, h, r) + x] =
                        array.value[(((w * t->extent[2] + r) * parts + part) *
                                         t->extent[1] +
                                     h) *
                                        t->extent[3] +
                                    x];
    npy_free(&array);
    return value;
}

typedef struct golden_tensor {
    tensor_id id;
    const char *name;
    size_t part, parts;
} golden_tensor;

static void check_torchvision(const char *name, const char *text, int pass)
{
    static const golden_tensor tensors[] = {
        {T_Q, "qkv", 0, 3},
        {T_K, "qkv", 1, 3},
        {T_V, "qkv", 2, 3},
        {T_BIAS, "table", 0, 1},
        {T_LOGIT_SCALE, "logit_scale", 0, 1},
        {T_PAD_K, "pad_k", 0, 1},
        {T_PAD_V, "pad_v", 0, 1},
        {T_D_O, "d_o", 0, 1},
        {T_O, "o", 0, 1},
        {T_DQ, "dqkv", 0, 3},
        {T_DK, "dqkv", 1, 3},
        {T_DV, "dqkv", 2, 3},
        {T_DBIAS, "dtable", 0, 1},
        {T_D_LOGIT_SCALE, "dlogit_scale", 0, 1},
        {T_D_PAD_K, "d_pad_k", 0, 1},
        {T_D_PAD_V, "d_pad_v", 0, 1},
    };
    const size_t count = sizeof tensors / sizeof *tensors;
    case_buffers *d = make_case(text, pass);
    int inputs = 0, results = 0;
    for (size_t i = 0; i < count; i++) {
        const golden_tensor *g = &tensors[i];
        tensor_data *t = &d->tensor[g->id];
        if (!t->used || t->is_output)
            continue;
        free(t->value);
        t->value = load(t, name, g->name, g->part, g->parts);
        inputs++;
    }
    data_write(d);
    outputs truth = run_oracle(d), got = run_device(d);
    for (size_t i = 0; i < count; i++) {
        const golden_tensor *g = &tensors[i];
        const tensor_data *t = &d->tensor[g->id];
        if (!got.value[g->id])
            continue;
        double *want = load(t, name, g->name, g->part, g->parts);
        /* they are stored in fp32 */
        assert_close(g->name, truth.value[g->id], want, count_of(t), 1e-7);
        assert_close(g->name, got.value[g->id], want, count_of(t),
                     pass == PASS_FORWARD ? 5e-6 : 1e-5);
        free(want);
        results++;
    }
    assert_in_range(inputs, pass == PASS_FORWARD ? 6 : 7, 8);
    assert_in_range(results, pass == PASS_FORWARD ? 1 : 6, 7);
    free_outputs(&truth);
    free_outputs(&got);
    data_free(d);
}

static void torchvision(void **state)
{
    static const char *const cases[][2] = {
        {"grid_v1", "grid=2 size=10x16 window=7x7 shift=3x3 mask=shift "
                    "bias=table_same batch=2 dim=8 pads=3 layout=packed "
                    "lse=0"},
        /* torchvision drops the bias of the keys, so their padding is 0 */
        {"grid_v2", "variant=cosine logit_scale=1 grid=2 size=9x13 window=8x8 "
                    "shift=4x4 mask=shift bias=table_same dim=8 pads=2 "
                    "outputs=95 layout=packed lse=0"},
        /* made for windows of 8 x 7 x 7, of which the map has 5 */
        {"grid_3d", "grid=3 size=5x9x11 window=5x7x7 shift=4x3x3 mask=shift "
                    "bias=table_same table=8x7x7 sliced=1 dim=8 pads=3 "
                    "layout=packed lse=0"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++)
            check_torchvision(cases[i][0], cases[i][1], pass);
}

/* ---- A stage ---- */

/* Three axes and the channels of one head; the last of `channels` runs
 * fastest. */
typedef struct box {
    size_t n[3], channels;
    double *value;
} box;

static box box_new(size_t n0, size_t n1, size_t n2, size_t channels)
{
    const box b = {{n0, n1, n2},
                   channels,
                   calloc(n0 * n1 * n2 * channels, sizeof(double))};
    assert_non_null(b.value);
    return b;
}

static double *box_at(const box *b, size_t x, size_t y, size_t z)
{
    return b->value + ((x * b->n[1] + y) * b->n[2] + z) * b->channels;
}

#define FOR_BOX(n0, n1, n2)                                                   \
    for (size_t x = 0; x < (n0); x++)                                         \
        for (size_t y = 0; y < (n1); y++)                                     \
            for (size_t z = 0; z < (n2); z++)

static void copy_token(const box *from, const double *token, double *to)
{
    memcpy(to, token, sizeof *to * from->channels);
}

/* What a stage knows of its maps; axes that they lack come first. */
typedef struct geometry {
    size_t size[3], padded[3], window[3], shift[3];
    size_t windows, tokens; /* of a map; of a window */
} geometry;

static geometry geometry_of(const test_case *c)
{
    geometry g = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1, 1};
    for (int a = 0; a < c->grid; a++) {
        const int to = 3 - c->grid + a;
        const size_t window = (size_t)c->window[a];
        g.size[to] = (size_t)c->size[a];
        g.window[to] = window;
        g.shift[to] = (size_t)c->shift[a];
        g.padded[to] = (g.size[to] + window - 1) / window * window;
    }
    for (int a = 0; a < 3; a++) {
        if (g.window[a] == g.padded[a])
            g.shift[a] = 0;
        g.windows *= g.padded[a] / g.window[a];
        g.tokens *= g.window[a];
    }
    return g;
}

/* The far ends filled with `fill`, or zeros. */
static box pad(const geometry *g, const box *map, const double *fill)
{
    const box padded =
        box_new(g->padded[0], g->padded[1], g->padded[2], map->channels);
    FOR_BOX(g->padded[0], g->padded[1], g->padded[2])
    {
        const bool inside = x < g->size[0] && y < g->size[1] && z < g->size[2];
        if (inside)
            copy_token(map, box_at(map, x, y, z), box_at(&padded, x, y, z));
        else if (fill)
            copy_token(map, fill, box_at(&padded, x, y, z));
    }
    return padded;
}

/* Token x goes to x - shift, or, back, to x + shift; in place. */
static void roll(const geometry *g, box *map, bool back)
{
    const box rolled = box_new(map->n[0], map->n[1], map->n[2], map->channels);
    FOR_BOX(map->n[0], map->n[1], map->n[2])
    {
        const double *here = box_at(map, x, y, z);
        const double *there = box_at(map, (x + g->shift[0]) % map->n[0],
                                     (y + g->shift[1]) % map->n[1],
                                     (z + g->shift[2]) % map->n[2]);
        double *to = box_at(&rolled, (x + g->shift[0]) % map->n[0],
                            (y + g->shift[1]) % map->n[1],
                            (z + g->shift[2]) % map->n[2]);
        if (back)
            copy_token(map, here, to);
        else
            copy_token(map, there, box_at(&rolled, x, y, z));
    }
    free(map->value);
    map->value = rolled.value;
}

/* Between a map and its windows [windows][tokens], in either direction. Which
 * token of which window a position is follows from it, not the position from
 * the window as in the library. */
static void cut(const geometry *g, const box *map, double *windows,
                size_t head, size_t heads, bool back)
{
    FOR_BOX(map->n[0], map->n[1], map->n[2])
    {
        const size_t at[3] = {x, y, z};
        size_t window = 0, token = 0;
        for (int a = 0; a < 3; a++) {
            window =
                window * (g->padded[a] / g->window[a]) + at[a] / g->window[a];
            token = token * g->window[a] + at[a] % g->window[a];
        }
        double *row = windows + ((window * heads + head) * g->tokens + token) *
                                    map->channels;
        if (back)
            copy_token(map, row, box_at(map, x, y, z));
        else
            copy_token(map, box_at(map, x, y, z), row);
    }
}

/* roll -> cut of what a model pads; `map` [heads][tokens][dim]. */
static void to_windows(const geometry *g, double *map, size_t heads,
                       size_t dim, const double *fill, double *windows)
{
    const size_t tokens = g->size[0] * g->size[1] * g->size[2];
    for (size_t h = 0; h < heads; h++) {
        const box own = {
            {g->size[0], g->size[1], g->size[2]}, dim, map + h * tokens * dim};
        box padded = pad(g, &own, fill ? fill + h * dim : NULL);
        roll(g, &padded, false);
        cut(g, &padded, windows, h, heads, false);
        free(padded.value);
    }
}

/* And back: put together -> rolled back -> the padding dropped, or added to
 * `pads`. */
static void from_windows(const geometry *g, double *windows, size_t heads,
                         size_t dim, double *map, double *pads)
{
    const size_t tokens = g->size[0] * g->size[1] * g->size[2];
    for (size_t h = 0; h < heads; h++) {
        const box own = {
            {g->size[0], g->size[1], g->size[2]}, dim, map + h * tokens * dim};
        box padded = box_new(g->padded[0], g->padded[1], g->padded[2], dim);
        cut(g, &padded, windows, h, heads, true);
        roll(g, &padded, true);
        FOR_BOX(g->padded[0], g->padded[1], g->padded[2])
        {
            const double *token = box_at(&padded, x, y, z);
            if (x < g->size[0] && y < g->size[1] && z < g->size[2])
                copy_token(&own, token, box_at(&own, x, y, z));
            else if (pads)
                add(pads + h * dim, token, dim);
        }
        free(padded.value);
    }
}

/* Numbers of the regions that the shift makes: an image of them, cut. */
static void cut_regions(const geometry *g, double *windows)
{
    const box image = box_new(g->padded[0], g->padded[1], g->padded[2], 1);
    FOR_BOX(g->padded[0], g->padded[1], g->padded[2])
    {
        const size_t at[3] = {x, y, z};
        double region = 0;
        for (int a = 0; a < 3; a++) {
            const size_t left = g->padded[a] - at[a];
            region = region * 3 + (g->shift[a] == 0      ? 0
                                   : left > g->window[a] ? 0
                                   : left > g->shift[a]  ? 1
                                                         : 2);
        }
        *box_at(&image, x, y, z) = region;
    }
    cut(g, &image, windows, 0, 1, false);
    free(image.value);
}

/* A case without a grid on the windows of `d`'s map: the same attention. */
static case_buffers *make_neat(const case_buffers *d, const geometry *g)
{
    const test_case *c = &d->c;
    const size_t heads = (size_t)c->heads, dim = (size_t)c->dim;
    const tensor_data *t = d->tensor;
    char text[512];
    snprintf(text, sizeof text,
             "windows=%zu queries=%zu heads=%zu dim=%zu bias=fp32 lse=0 "
             "d_lse=0 outputs=15 mask=%s mask_windows=%zu",
             g->windows, g->tokens, heads, dim,
             c->mask == TERM_SHIFT ? "regions" : "none",
             c->mask == TERM_SHIFT ? g->windows : (size_t)0);
    case_buffers *neat = make_case(text, c->pass);
    tensor_data *n = neat->tensor;
    for (int id = T_Q; id <= T_V; id++)
        to_windows(g, t[id].value, heads, dim,
                   id == T_Q ? NULL : t[T_PAD_K + id - T_K].value,
                   n[id].value);
    if (c->pass == PASS_BACKWARD) /* nobody keeps what the padding attends */
        to_windows(g, t[T_D_O].value, heads, dim, NULL, n[T_D_O].value);
    if (c->mask == TERM_SHIFT) {
        cut_regions(g, n[T_QUERY_REGIONS].value);
        cut_regions(g, n[T_KEY_REGIONS].value);
    }
    const size_t pairs = g->tokens * g->tokens;
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < pairs; i++)
            n[T_BIAS].value[h * pairs + i] =
                t[T_BIAS].value[h * t[T_BIAS].extent[2] + (size_t)d->entry[i]];
    data_write(neat);
    return neat;
}

/* What `d` would put out, by way of neat windows. */
static outputs run_neat(const case_buffers *d)
{
    static const int tokens[] = {T_O, T_DQ, T_DK, T_DV};
    const geometry g = geometry_of(&d->c);
    const size_t heads = (size_t)d->c.heads, dim = (size_t)d->c.dim;
    case_buffers *neat = make_neat(d, &g);
    outputs windows = run_device(neat), out = make_outputs(d);
    for (int i = 0; i < 4; i++) {
        const int id = tokens[i];
        if (out.value[id])
            from_windows(&g, windows.value[id], heads, dim, out.value[id],
                         id >= T_DK ? out.value[T_D_PAD_K + id - T_DK] : NULL);
    }
    const size_t pairs = g.tokens * g.tokens;
    const size_t entries = d->tensor[T_BIAS].extent[2];
    for (size_t i = 0; out.value[T_DBIAS] && i < heads * pairs; i++)
        out.value[T_DBIAS]
                 [i / pairs * entries + (size_t)d->entry[i % pairs]] +=
            windows.value[T_DBIAS][i];
    free_outputs(&windows);
    data_free(neat);
    return out;
}

/* A block on its map: on the grid in place, or by way of windows. */
static outputs run_block(case_buffers *d, bool neatly)
{
    data_write(d);
    return neatly ? run_neat(d) : run_device(d);
}

/* q, k and v of the second block from what the first one returned; a linear
 * map stands for what lies between. */
static void feed(const double *o, const case_buffers *first,
                 case_buffers *second)
{
    static const double factor[3] = {1, -1, 0.5};
    for (int id = T_Q; id <= T_V; id++)
        for (size_t i = 0; i < count_of(&second->tensor[id]); i++)
            second->tensor[id].value[i] =
                factor[id] * o[i] + first->tensor[id].value[i];
}

/* And the gradient of the first block's o. */
static void feed_back(const outputs *second, case_buffers *first)
{
    tensor_data *d_o = &first->tensor[T_D_O];
    for (size_t i = 0; i < count_of(d_o); i++)
        d_o->value[i] = second->value[T_DQ][i] - second->value[T_DK][i] +
                        0.5 * second->value[T_DV][i];
}

/* Forward through two blocks and back. */
typedef struct passes {
    outputs forward[2], backward[2];
} passes;

static passes run_stage(const char *text, const char *shift, bool neatly)
{
    char shifted[512];
    passes p;
    snprintf(shifted, sizeof shifted, "%s shift=%s mask=shift seed=2", text,
             shift);
    case_buffers *forward[2] = {make_case(text, PASS_FORWARD),
                                make_case(shifted, PASS_FORWARD)};
    case_buffers *backward[2] = {make_case(text, PASS_BACKWARD),
                                 make_case(shifted, PASS_BACKWARD)};
    p.forward[0] = run_block(forward[0], neatly);
    feed(p.forward[0].value[T_O], forward[0], forward[1]);
    p.forward[1] = run_block(forward[1], neatly);
    /* both directions see the same values */
    for (int block = 0; block < 2; block++)
        for (int id = 0; id < T_O; id++)
            if (forward[block]->tensor[id].used)
                memcpy(backward[block]->tensor[id].value,
                       forward[block]->tensor[id].value,
                       sizeof(double) * count_of(&forward[block]->tensor[id]));
    p.backward[1] = run_block(backward[1], neatly);
    feed_back(&p.backward[1], backward[0]);
    p.backward[0] = run_block(backward[0], neatly);
    for (int block = 0; block < 2; block++) {
        data_free(forward[block]);
        data_free(backward[block]);
    }
    return p;
}

static void compare_outputs(const case_buffers *d, const outputs *got,
                            const outputs *want, double tolerance)
{
    static const char *const names[TENSORS] = {[T_O] = "o",
                                               [T_DQ] = "dq",
                                               [T_DK] = "dk",
                                               [T_DV] = "dv",
                                               [T_DBIAS] = "dbias",
                                               [T_D_PAD_K] = "d_pad_k",
                                               [T_D_PAD_V] = "d_pad_v"};
    for (int id = 0; id < TENSORS; id++)
        if (got->value[id])
            assert_close(names[id], got->value[id], want->value[id],
                         count_of(&d->tensor[id]), tolerance);
}

static void check_stage(const char *text, const char *shift)
{
    passes got = run_stage(text, shift, false);
    passes want = run_stage(text, shift, true);
    for (int block = 0; block < 2; block++) {
        case_buffers *forward = make_case(text, PASS_FORWARD);
        case_buffers *backward = make_case(text, PASS_BACKWARD);
        compare_outputs(forward, &got.forward[block], &want.forward[block],
                        5e-6);
        /* through two blocks */
        compare_outputs(backward, &got.backward[block], &want.backward[block],
                        block == 0 ? 2e-5 : 1e-5);
        data_free(forward);
        data_free(backward);
        free_outputs(&got.forward[block]);
        free_outputs(&got.backward[block]);
        free_outputs(&want.forward[block]);
        free_outputs(&want.backward[block]);
    }
}

static void stage_of_images(void **state)
{
    (void)state;
    check_stage("grid=2 size=30x45 window=7x7 bias=table_fp32 pads=3 dim=16 "
                "layout=packed lse=0",
                "3x3");
}

static void stage_of_volumes(void **state)
{
    (void)state;
    check_stage("grid=3 size=9x15x20 window=8x7x7 bias=table_fp32 pads=3 "
                "dim=8 heads=1 layout=packed lse=0",
                "4x3x3");
}

int main(int count, char **arguments)
{
    char reason[256];
    tier = count > 1 ? case_tier(arguments[1]) : WINATTN_TIER_AUTO;
    if (tier < 0) {
        fprintf(stderr, "no tier is named %s\n", arguments[1]);
        return 1;
    }
    if (!device_open(&device, reason)) {
        fprintf(stderr, "%s\n", reason);
        return 1;
    }
    printf("device: %s\n", device.name);
    const struct CMUnitTest tests[] = {cmocka_unit_test(torchvision),
                                       cmocka_unit_test(stage_of_images),
                                       cmocka_unit_test(stage_of_volumes)};
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&device);
    return failures;
}
