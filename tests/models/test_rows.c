/* SPDX-License-Identifier: Apache-2.0
 * What models do row by row (host/models/rows.h), against fp64: odd sizes,
 * rows that start anywhere, guards, outputs that were NaN before.
 *
 *   test_rows TIER [few | each | all]
 *
 * cpu: a work-item takes a row; local: teams do. few: every third row of a
 * table, in one type; each: every row; all: in all types. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/rows.h"
#include "reference.h"
#include "tensors.h"

static const double tolerances[] = {
    [WINATTN_FP32] = 1e-6, [WINATTN_FP16] = 4e-4, [WINATTN_BF16] = 3e-3};

/* Builds, enqueues and waits. */
static void run(wa_row_desc desc, const wa_row_call *call)
{
    wa_session *session;
    wa_row_plan plan;
    wa_kernel_chain chain;
    cl_event event;
    desc.on_cpu = chosen.tier == WINATTN_TIER_CPU;
    desc.build_options = build_options();
    assert_int_equal(wa_session_acquire(device.context, device.id, &session),
                     WINATTN_SUCCESS);
    if (wa_row_plan_make(session, &desc, &plan) != WINATTN_SUCCESS)
        fail_msg("%s\n%s", winattn_last_reason(), winattn_last_build_log());
    assert_int_equal(wa_chain_begin(&chain, device.queue, 0, NULL, true),
                     WINATTN_SUCCESS);
    assert_int_equal(
        wa_chain_end(&chain, wa_row_append(&plan, call, &chain), &event),
        WINATTN_SUCCESS);
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    clReleaseEvent(event);
    wa_row_plan_release(&plan);
    wa_session_release(session);
}

/* ---- Norms ---- */

typedef struct norm_case {
    wa_row_job job;
    size_t rows, size, before; /* size: of a result's row */
    size_t map[3];             /* batch, height, width: what is merged */
    size_t tokens;             /* of an image that is averaged */
} norm_case;

static const norm_case norm_cases[] = {
    {WA_ROW_NORM, 1, 1, 1, {0, 0, 0}, 0},
    {WA_ROW_NORM, 3, 2, 0, {0, 0, 0}, 0},
    {WA_ROW_NORM, 77, 7, 3, {0, 0, 0}, 0},
    {WA_ROW_NORM, 131, 96, 0, {0, 0, 0}, 0},
    {WA_ROW_NORM, 65, 96, 5, {0, 0, 0}, 0},
    {WA_ROW_NORM, 33, 100, 4, {0, 0, 0}, 0},
    {WA_ROW_NORM, 20, 97, 0, {0, 0, 0}, 0},
    {WA_ROW_NORM, 9, 520, 8, {0, 0, 0}, 0},
    {WA_ROW_NORM, 3, 1536, 16, {0, 0, 0}, 0},
    {WA_ROW_NORM, 2, 3071, 0, {0, 0, 0}, 0},
    {WA_ROW_NORM_ADD, 41, 24, 8, {0, 0, 0}, 0},
    {WA_ROW_NORM_ADD, 5, 130, 1, {0, 0, 0}, 0},
    {WA_ROW_NORM_ADD, 300, 192, 0, {0, 0, 0}, 0},
    {WA_ROW_MERGE_NORM, 0, 12, 1, {2, 3, 5}, 0},
    {WA_ROW_MERGE_NORM, 0, 64, 0, {3, 4, 7}, 0},
    {WA_ROW_MERGE_NORM, 0, 1536, 8, {1, 5, 3}, 0},
    {WA_ROW_MERGE_NORM, 0, 20, 0, {1, 1, 1}, 0},
    {WA_ROW_MERGE, 0, 12, 1, {2, 3, 5}, 0},
    {WA_ROW_MERGE, 0, 96, 8, {2, 6, 3}, 0},
    {WA_ROW_MERGE, 0, 20, 0, {1, 1, 2}, 0},
    {WA_ROW_POOL, 2, 40, 8, {0, 0, 0}, 149},
    {WA_ROW_POOL, 3, 33, 1, {0, 0, 0}, 12},
    {WA_ROW_POOL, 1, 768, 0, {0, 0, 0}, 7},
    {WA_ROW_POOL, 5, 3072, 0, {0, 0, 0}, 3},
    {WA_ROW_POOL, 1, 8, 0, {0, 0, 0}, 1},
};

static bool merges(wa_row_job job)
{
    return job == WA_ROW_MERGE || job == WA_ROW_MERGE_NORM;
}

/* Rows of the result. */
static size_t rows_of(const norm_case *c)
{
    return merges(c->job)
               ? c->map[0] * ((c->map[1] + 1) / 2) * ((c->map[2] + 1) / 2)
               : c->rows;
}

static size_t inputs_of(const norm_case *c)
{
    return merges(c->job) ? c->map[0] * c->map[1] * c->map[2] * c->size / 4
                          : c->rows * c->size * (c->tokens ? c->tokens : 1);
}

/* The four neighbours of each pair of rows and columns: even row and column;
 * odd row; odd column; both. */
static void find_neighbours(const norm_case *c, const double *map,
                            double *rows)
{
    const size_t height = c->map[1], width = c->map[2];
    const size_t channels = c->size / 4;
    for (size_t b = 0; b < c->map[0]; b++, map += height * width * channels)
        for (size_t y = 0; y < height; y += 2)
            for (size_t x = 0; x < width; x += 2)
                for (size_t part = 0; part < 4; part++, rows += channels) {
                    const size_t row = y + part % 2, column = x + part / 2;
                    if (row < height && column < width)
                        memcpy(rows, map + (row * width + column) * channels,
                               channels * sizeof *rows);
                }
}

static double *expected(const norm_case *c, const double *from,
                        const double *other, const double *weight,
                        const double *bias, double eps)
{
    const size_t tokens = c->tokens ? c->tokens : 1;
    const size_t rows = rows_of(c), all = rows * tokens;
    double *x = numbers(all * c->size), *y = numbers(rows * c->size);
    if (merges(c->job))
        find_neighbours(c, from, x);
    else
        memcpy(x, from, all * c->size * sizeof *x);
    if (c->job != WA_ROW_MERGE)
        ref_norm(x, weight, bias, all, c->size, eps, x);
    for (size_t r = 0; r < all; r++)
        for (size_t i = 0; i < c->size; i++)
            y[r / tokens * c->size + i] += x[r * c->size + i] / (double)tokens;
    if (c->job == WA_ROW_NORM_ADD)
        for (size_t i = 0; i < rows * c->size; i++)
            y[i] += other[i];
    return y;
}

/* in_place: the result goes where what it is added to is, or else to `from`.
 */
static void check_norm(const norm_case *c, winattn_dtype dtype, bool in_place)
{
    const storage_kind kind = kind_of(dtype);
    const size_t count = rows_of(c) * c->size;
    const bool adds = c->job == WA_ROW_NORM_ADD;
    model_tensor from = tensor_drawn(kind, 1, inputs_of(c), 3, c->before);
    model_tensor other = tensor_drawn(kind, 2, count, 1, c->before);
    model_tensor weight = tensor_drawn(kind, 3, c->size, 2, c->before);
    model_tensor bias = tensor_drawn(kind, 4, c->size, 1, c->before);
    model_tensor to = tensor_empty(kind, count, c->before);
    model_tensor *result = !in_place ? &to : adds ? &other : &from;
    const wa_row_desc desc = {
        .job = c->job, .dtype = dtype, .row_size = (uint32_t)c->size};
    double *want =
        expected(c, from.value, other.value, weight.value, bias.value, 1e-3);
    const wa_row_call call = {.rows = rows_of(c),
                              .from = from.at,
                              .other = other.at,
                              .weight = weight.at,
                              .bias = bias.at,
                              .to = result->at,
                              .eps = 1e-3f,
                              .tokens = c->tokens,
                              .height = (uint32_t)c->map[1],
                              .width = (uint32_t)c->map[2]};
    char what[160];
    snprintf(what, sizeof what,
             "job %d, type %d, %zu rows of %zu, in place: %d", c->job, dtype,
             rows_of(c), c->size, in_place);
    announce("%s\n", what);
    run(desc, &call);
    tensor_read(result);
    assert_error(what, result->value, want, count,
                 c->job == WA_ROW_MERGE ? 0 : tolerances[dtype]);
    tensors_free();
}

static void norms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof norm_cases / sizeof *norm_cases; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++) {
            const norm_case *c = &norm_cases[i];
            const bool can =
                c->job == WA_ROW_NORM || c->job == WA_ROW_NORM_ADD;
            if (is_chosen(i, i % 7 % 3 == 0, (winattn_dtype)dtype))
                check_norm(c, (winattn_dtype)dtype, can && i % 2 == 0);
        }
}

/* A row of one number has no variance: what is left is the bias, also where
 * the sum is rounded. And numbers far from 0 lose no more than their own
 * digits. */
static void constant_and_distant_rows(void **state)
{
    enum { CONSTANT = 4, ROWS = 6, SIZE = 96 };
    double x[ROWS * SIZE];
    (void)state;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < SIZE; i++)
            x[r * SIZE + i] = r < CONSTANT
                                  ? (double[]){0, 0.1, -3000, 12345.678}[r]
                                  : 1000 + sin(i * r);
    model_tensor from = tensor_of(KIND_FP32, x, ROWS * SIZE, 0);
    model_tensor weight = tensor_drawn(KIND_FP32, 3, SIZE, 2, 0);
    model_tensor bias = tensor_drawn(KIND_FP32, 4, SIZE, 1, 0);
    model_tensor to = tensor_empty(KIND_FP32, ROWS * SIZE, 0);
    double want[ROWS * SIZE];
    ref_norm(from.value, weight.value, bias.value, ROWS, SIZE, 1e-5, want);
    const wa_row_desc desc = {.job = WA_ROW_NORM, .row_size = SIZE};
    const wa_row_call call = {.rows = ROWS,
                              .from = from.at,
                              .weight = weight.at,
                              .bias = bias.at,
                              .to = to.at,
                              .eps = 1e-5f};
    run(desc, &call);
    tensor_read(&to);
    assert_error("constant", to.value, want, CONSTANT * SIZE, 1e-5);
    assert_error("distant", to.value + CONSTANT * SIZE, want + CONSTANT * SIZE,
                 (ROWS - CONSTANT) * SIZE, 0x1p-22 * 1000 / sqrt(0.5));
    tensors_free();
}

/* A NaN stays in its row. */
static void nans_stay(void **state)
{
    enum { ROWS = 40, SIZE = 32, BAD = 17 };
    (void)state;
    double *x = draw_numbers(9, ROWS * SIZE, 1);
    x[BAD * SIZE + 3] = NAN;
    model_tensor from = tensor_of(KIND_BF16, x, ROWS * SIZE, 0);
    model_tensor weight = tensor_drawn(KIND_BF16, 3, SIZE, 2, 0);
    model_tensor to = tensor_empty(KIND_BF16, ROWS * SIZE, 0);
    const wa_row_desc desc = {
        .job = WA_ROW_NORM, .dtype = WINATTN_BF16, .row_size = SIZE};
    const wa_row_call call = {.rows = ROWS,
                              .from = from.at,
                              .weight = weight.at,
                              .bias = weight.at,
                              .to = to.at,
                              .eps = 1e-5f};
    run(desc, &call);
    tensor_read(&to);
    for (int i = 0; i < ROWS * SIZE; i++)
        assert_int_equal(isnan(to.value[i]) != 0, i / SIZE == BAD);
    tensors_free();
}

/* ---- Pictures ---- */

typedef struct embed_case {
    uint32_t picture, batch, channels, height, width, patch[2];
    size_t before, room; /* in front of pictures, and of patches */
    bool pads;           /* the last patches are filled with zeros */
} embed_case;

static const embed_case embed_cases[] = {
    {0, 2, 3, 13, 18, {4, 4}, 1, 8, false},
    {1, 1, 3, 9, 8, {4, 4}, 3, 4, false},
    {2, 3, 3, 8, 11, {2, 2}, 1, 0, false},
    {0, 1, 1, 5, 7, {2, 3}, 0, 3, false},
    {1, 2, 4, 6, 6, {3, 1}, 0, 1, false},
    {2, 1, 2, 16, 5, {16, 5}, 7, 2, false},
    {2, 2, 3, 4, 9, {4, 4}, 2, 3, false},
    {0, 2, 3, 13, 18, {4, 4}, 1, 8, true},
    {2, 2, 3, 7, 9, {4, 4}, 2, 4, true},
    {1, 1, 2, 1, 4, {2, 3}, 0, 1, true}};

static size_t patches_along(const embed_case *c, int axis)
{
    const size_t pixels = axis == 0 ? c->height : c->width;
    return (pixels + (c->pads ? c->patch[axis] - 1 : 0)) / c->patch[axis];
}

/* [batch][down][across][channel][y][x]; patches that are not whole are left
 * out, or padded. */
static double *patches_of(const embed_case *c, const double *pictures,
                          const wa_row_call *call, size_t *count)
{
    const size_t down = patches_along(c, 0), across = patches_along(c, 1);
    const size_t size = c->channels * c->patch[0] * c->patch[1];
    double *to = numbers(c->batch * down * across * size);
    *count = 0;
    for (size_t p = 0; p < c->batch * down * across; p++)
        for (size_t i = 0; i < size; i++) {
            const size_t picture = p / (down * across);
            const size_t channel = i / (c->patch[0] * c->patch[1]);
            const size_t y = p / across % down * c->patch[0] +
                             i / c->patch[1] % c->patch[0];
            const size_t x = p % across * c->patch[1] + i % c->patch[1];
            const size_t pixel = y * c->width + x;
            const size_t area = (size_t)c->height * c->width;
            const size_t at =
                c->picture == 2
                    ? (picture * c->channels + channel) * area + pixel
                    : (picture * area + pixel) * c->channels + channel;
            to[(*count)++] = y < c->height && x < c->width
                                 ? pictures[at] * call->factor[channel] +
                                       call->shift[channel]
                                 : 0;
        }
    return to;
}

static void check_patches(const embed_case *c, winattn_dtype dtype)
{
    const size_t pixels =
        (size_t)c->batch * c->channels * c->height * c->width;
    double *drawn = draw_numbers(5, pixels, 127.5);
    for (size_t i = 0; i < pixels && c->picture == 0; i++)
        drawn[i] = floor(drawn[i] + 128);
    model_tensor from = tensor_of(c->picture == 0 ? KIND_U8 : KIND_FP32, drawn,
                                  pixels, c->before);
    wa_row_call call = {.from = from.at,
                        .height = c->height,
                        .width = c->width,
                        .down = (uint32_t)patches_along(c, 0),
                        .across = (uint32_t)patches_along(c, 1),
                        .factor = {0.25f, 0.5f, 2, -1},
                        .shift = {1, -2, 3, -4}};
    size_t count;
    double *want = patches_of(c, from.value, &call, &count);
    model_tensor to = tensor_empty(kind_of(dtype), count, c->room);
    const wa_row_desc desc = {.job = WA_ROW_EMBED,
                              .dtype = dtype,
                              .row_size =
                                  c->channels * c->patch[0] * c->patch[1],
                              .picture = c->picture,
                              .picture_channels = c->channels,
                              .patch = {c->patch[0], c->patch[1]}};
    call.to = to.at;
    call.rows = count / desc.row_size;
    run(desc, &call);
    tensor_read(&to);
    assert_error("patches", to.value, want, count, tolerances[dtype]);
    tensors_free();
}

static void patches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof embed_cases / sizeof *embed_cases; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++)
            if (is_chosen(i, i < 3 || embed_cases[i].pads,
                          (winattn_dtype)dtype))
                check_patches(&embed_cases[i], (winattn_dtype)dtype);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(constant_and_distant_rows),
        cmocka_unit_test(nans_stay),
        cmocka_unit_test(patches),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    return models_main(groups, 1, count, arguments);
}
