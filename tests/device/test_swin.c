/* SPDX-License-Identifier: Apache-2.0
 * What shifted-window models compute, read from their feature maps in place:
 * torchvision's modules (golden/make_golden.py), and two blocks of a stage
 * against the same with the maps padded, rolled, cut, put together and rolled
 * back around the attention.
 *
 *   test_swin TIER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/golden.h"
#include "kit/outputs.h"
#include "kit/runner.h"

static case_buffers *make_case(const char *text, int pass)
{
    test_case c = parsed(text);
    c.pass = pass;
    c.tier = chosen.tier;
    case_buffers *d = data_make(&c);
    assert_non_null(d);
    return d;
}

/* The device's, compared with the oracle too. */
static case_outputs run_device(case_buffers *d)
{
    case_outputs out = outputs_make(d);
    device_buffers b;
    case_result result;
    char text[1024];
    memset(&result, 0, sizeof result);
    case_print(&d->c, text, sizeof text);
    assert_true(buffers_create(&device, d, &b));
    if (!buffers_run(&device, device.queue, d, &b, 1, &result) ||
        !buffers_check(device.queue, d, &b, 0, &result))
        fail_msg("%s\n%s", text, result.failure);
    assert_true(outputs_read(device.queue, d, &b, &out));
    buffers_release(&b);
    return out;
}

static void add(double *to, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

/* ---- torchvision ---- */

static void check_torchvision(const char *name, const char *text, int pass)
{
    case_buffers *d = make_case(text, pass);
    int results = 0;
    const char *missing = golden_fill(GOLDEN_FOLDER, name, d);
    if (missing)
        fail_msg("%s_%s.npy cannot be read", name, missing);
    data_write(d);
    case_outputs truth = outputs_of_oracle(d), got = run_device(d);
    for (size_t i = 0; i < golden_count; i++) {
        const golden_tensor *g = &golden_tensors[i];
        const tensor_data *t = &d->tensor[g->id];
        if (!got.value[g->id])
            continue;
        double *want = golden_read(GOLDEN_FOLDER, name, g, t);
        if (!want)
            fail_msg("%s_%s.npy cannot be read", name, g->name);
        /* they are stored in fp32 */
        assert_close(g->name, truth.value[g->id], want, data_count(t), 1e-7);
        assert_close(g->name, got.value[g->id], want, data_count(t),
                     pass == PASS_FORWARD ? 5e-6 : 1e-5);
        free(want);
        results++;
    }
    assert_in_range(results, pass == PASS_FORWARD ? 1 : 6, 7);
    outputs_free(&truth);
    outputs_free(&got);
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
static case_outputs run_neat(const case_buffers *d)
{
    static const int tokens[] = {T_O, T_DQ, T_DK, T_DV};
    const geometry g = geometry_of(&d->c);
    const size_t heads = (size_t)d->c.heads, dim = (size_t)d->c.dim;
    case_buffers *neat = make_neat(d, &g);
    case_outputs windows = run_device(neat), out = outputs_make(d);
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
    outputs_free(&windows);
    data_free(neat);
    return out;
}

/* A block on its map: on the grid in place, or by way of windows. */
static case_outputs run_block(case_buffers *d, bool neatly)
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
        for (size_t i = 0; i < data_count(&second->tensor[id]); i++)
            second->tensor[id].value[i] =
                factor[id] * o[i] + first->tensor[id].value[i];
}

/* And the gradient of the first block's o. */
static void feed_back(const case_outputs *second, case_buffers *first)
{
    tensor_data *d_o = &first->tensor[T_D_O];
    for (size_t i = 0; i < data_count(d_o); i++)
        d_o->value[i] = second->value[T_DQ][i] - second->value[T_DK][i] +
                        0.5 * second->value[T_DV][i];
}

/* Forward through two blocks and back. */
typedef struct passes {
    case_outputs forward[2], backward[2];
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
                       sizeof(double) *
                           data_count(&forward[block]->tensor[id]));
    p.backward[1] = run_block(backward[1], neatly);
    feed_back(&p.backward[1], backward[0]);
    p.backward[0] = run_block(backward[0], neatly);
    for (int block = 0; block < 2; block++) {
        data_free(forward[block]);
        data_free(backward[block]);
    }
    return p;
}

static void compare_outputs(const case_buffers *d, const case_outputs *got,
                            const case_outputs *want, double tolerance)
{
    for (int id = 0; id < TENSORS; id++)
        if (got->value[id])
            assert_close(tensor_names[id], got->value[id], want->value[id],
                         data_count(&d->tensor[id]), tolerance);
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
        outputs_free(&got.forward[block]);
        outputs_free(&got.backward[block]);
        outputs_free(&want.forward[block]);
        outputs_free(&want.backward[block]);
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

static const struct CMUnitTest tests[] = {cmocka_unit_test(torchvision),
                                          cmocka_unit_test(stage_of_images),
                                          cmocka_unit_test(stage_of_volumes)};

static const test_group groups[] = {TEST_GROUP(NULL, tests)};

int main(int count, char **arguments)
{
    const test_program program = {
        .words = {WORD_TIER}, .part = "swin", TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
