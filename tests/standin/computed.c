/* SPDX-License-Identifier: Apache-2.0
 * Kernels whose results the library reads: the probe that counts rounds, and
 * the self-test of matrix units, as cl/matrix/check_matrix.cl describes it. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>

#include "device/matrix_unit.h"
#include "kit/storage.h"

/* A loop that some drivers end early. */
static void count_rounds(cl_kernel kernel, const wa_device *device)
{
    const cl_mem to = kernel->arguments[0].buffer;
    cl_int rounds;
    if (kernel->facts->parameter_count != 2 || !to || !to->bytes ||
        to->size < sizeof rounds)
        return;
    memcpy(&rounds, kernel->arguments[1].bytes, sizeof rounds);
    if (device->loop_limit != 0 && rounds > (cl_int)device->loop_limit)
        rounds = (cl_int)device->loop_limit;
    memcpy(to->bytes, &rounds, sizeof rounds);
}

/* ---- The self-test ---- */

typedef struct unit_test {
    size_t queries, tile;
    storage_kind kind;
    const unsigned char *tiles;
    const float *given;
    float *results;
} unit_test;

/* What a unit makes of a number: TF32, if it is fp32. */
static double operand(const unit_test *t, double x)
{
    int exponent;
    if (t->kind != KIND_FP32)
        return kind_round(t->kind, x);
    frexp(x, &exponent);
    const double step = ldexp(1.0, exponent - 11);
    return nearbyint(x / step) * step;
}

/* Element [row][column] of queries, then keys, then values. The last row of
 * each is not read, and zeros stand for the first of the values. */
static double stored(const unit_test *t, size_t first, size_t rows, size_t row,
                     size_t column)
{
    const size_t i =
        (first + (row < rows - 1 ? row : rows - 2)) * t->tile + column;
    if (first == t->queries + t->tile && row == 0)
        return 0;
    return operand(t, kind_read(t->kind, t->tiles + i * kind_size(t->kind)));
}

static double weight(const unit_test *t, size_t query, size_t key)
{
    return operand(t, t->given[t->queries * t->tile + query * t->tile + key]);
}

static double value(const unit_test *t, size_t key, size_t channel)
{
    return stored(t, t->queries + t->tile, t->tile, key, channel);
}

static double result(const unit_test *t, int kind, size_t row, size_t column)
{
    double sum = kind == 0 ? t->given[row * t->tile + column] : 0;
    switch (kind) {
    case 0: /* a score */
        for (size_t i = 0; i < t->tile; i++)
            sum += stored(t, 0, t->queries, row, i) *
                   stored(t, t->queries, t->tile, column, i);
        return sum;
    case 1: /* o */
        for (size_t key = 0; key < t->tile; key++)
            sum += weight(t, row, key) * value(t, key, column);
        return sum;
    case 2: /* of a row's weights */
        for (size_t key = 0; key < t->tile; key++)
            sum += t->given[t->queries * t->tile + row * t->tile + key];
        return sum;
    default: /* a gradient of a key, but for queries of small weights */
        for (size_t query = 0; query < t->queries; query++)
            if (query % 4 != 3)
                sum += weight(t, query, row) * value(t, query, column);
        return sum;
    }
}

static void test_unit(cl_kernel kernel, const wa_matrix_unit *unit,
                      unsigned dtype)
{
    const cl_mem tiles = kernel->arguments[0].buffer;
    const cl_mem given = kernel->arguments[1].buffer;
    const cl_mem results = kernel->arguments[2].buffer;
    const size_t all = (size_t)unit->queries * unit->tile;
    const int kinds = dtype == WINATTN_FP32 ? 3 : 4;
    if (!tiles || !given || !results || !tiles->bytes || !given->bytes ||
        !results->bytes)
        return;
    const unit_test t = {unit->queries,
                         unit->tile,
                         dtype == WINATTN_FP16   ? KIND_FP16
                         : dtype == WINATTN_BF16 ? KIND_BF16
                                                 : KIND_FP32,
                         tiles->bytes,
                         (const float *)(const void *)given->bytes,
                         (float *)(void *)results->bytes};
    for (int kind = 0; kind < kinds; kind++)
        for (size_t i = 0; i < all; i++)
            t.results[(size_t)kind * all + i] =
                (float)result(&t, kind, i / t.tile, i % t.tile);
    if (standin_drivers.unit_is_wrong)
        t.results[all / 2] += 1.0f;
}

void compute(cl_kernel kernel, const wa_device *device)
{
    static const char check[] = "check_matrix_";
    const char *name = kernel->facts->name;
    if (strcmp(name, "probe") == 0) {
        count_rounds(kernel, device);
    } else if (strcmp(name, "sum_partials") == 0) {
        compute_sums(kernel);
    } else if (strcmp(name, "sum_table") == 0) {
        compute_table_sum(kernel);
    } else if (strncmp(name, check, sizeof check - 1) == 0) {
        const wa_matrix_unit *unit =
            wa_matrix_unit_named(name + sizeof check - 1);
        const char *dtype = strstr(kernel->program->options, "-DDTYPE=");
        if (unit && dtype)
            test_unit(kernel, unit, (unsigned)(dtype[8] - '0'));
    } else {
        compute_pass(kernel);
    }
}
