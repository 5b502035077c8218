/* SPDX-License-Identifier: Apache-2.0
 * Makes the numbers for cl/matrix/check_matrix.cl, runs it and compares. All
 * operands are small integers, or such times a power of two, so that sums are
 * exact in any order and the comparison needs no tolerance. */
#include "session/self_test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/status.h"
#include "device/buffer.h"
#include "device/matrix_unit.h"
#include "plan/defines.h"

/* Operands of each dtype; those of fp32 are TF32.
 *
 * A number of a tensor is n, or of a small row n times `small`. For fp16 those
 * are subnormal: weights and values often are, and a unit that takes them for
 * 0 loses much. A subnormal bf16 or TF32 is one of fp32 too, which the kernels
 * may take for 0 on every tier, so of these they are only small. */
#define TINY (1.0 / 1073741824 / 1073741824) /* 2^-60 */
static const struct {
    double small;
    double step; /* of neighbouring numbers between 1 and 2 */
} operands[] = {[WINATTN_FP32] = {TINY, 1.0 / 1024},
                [WINATTN_FP16] = {1.0 / 16777216, 1.0 / 1024},
                [WINATTN_BF16] = {TINY, 1.0 / 128}};

typedef struct numbers {
    size_t queries, tile; /* of a tile */
    winattn_dtype dtype;
    uint32_t random;
    /* what the kernel reads, and the operands that it must make of that */
    unsigned char *tiles;
    float *given;
    double *rows, *weights;
    float *results;
} numbers;

static size_t element_bytes(const numbers *x)
{
    return x->dtype == WINATTN_FP32 ? 4 : 2;
}

/* Tiles that the kernel writes; TF32 has no gradients. */
static size_t result_tiles(const numbers *x)
{
    return x->dtype == WINATTN_FP32 ? 3 : 4;
}

/* Along a contraction all numbers are small or none is. */
static bool is_small_query(size_t row) { return row % 4 == 1; }
static bool is_small_key(size_t row) { return row % 4 == 2; }
static bool is_small_channel(size_t column) { return column % 4 == 1; }
static bool is_small_weight(size_t row) { return row % 4 == 3; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* From 0 to count - 1. */
static int pick(numbers *x, int count)
{
    x->random = x->random * 1664525u + 1013904223u;
    return (int)((x->random >> 16) % (uint32_t)count);
}

/* Puts a number at element i of the tiles, and what it is as an operand. fp32
 * lies an eighth of a step beside that. */
static void put(numbers *x, size_t i, int n, bool small)
{
    const double factor = small ? operands[x->dtype].small : 1.0;
    unsigned char *at = x->tiles + i * element_bytes(x);
    x->rows[i] = n * factor;
    if (x->dtype == WINATTN_FP32) {
        const double beside = n ? (pick(x, 3) - 1) * 0.125 : 0.0;
        const float number =
            (float)((n + beside * operands[x->dtype].step) * factor);
        memcpy(at, &number, sizeof number);
    } else {
        const uint16_t bits =
            wa_half_of(x->dtype == WINATTN_FP16, (float)x->rows[i]);
        memcpy(at, &bits, sizeof bits);
    }
}

static void make_tiles(numbers *x)
{
    for (size_t i = 0; i < (x->queries + 2 * x->tile) * x->tile; i++) {
        const size_t row = i / x->tile;
        const bool small = row < x->queries ? is_small_query(row)
                           : row < x->queries + x->tile
                               ? is_small_key(row - x->queries)
                               : is_small_channel(i % x->tile);
        put(x, i, pick(x, 17) - 8, small);
    }
}

/* Scores start from numbers that are as large as what is added. Weights lie a
 * quarter of a step beside what they must be rounded to. */
static void make_given(numbers *x)
{
    const size_t all = x->queries * x->tile;
    const double step = operands[x->dtype].step;
    for (size_t i = 0; i < all; i++) {
        const size_t query = least(i / x->tile, x->queries - 2);
        const size_t key = least(i % x->tile, x->tile - 2);
        const double n = pick(x, 8);
        const double beside = (pick(x, 3) - 1) * 0.25;
        const bool small = is_small_weight(i / x->tile);
        x->given[i] = is_small_query(query) || is_small_key(key)
                          ? 0.0f
                          : (float)(pick(x, 17) - 8);
        x->weights[i] =
            small ? n * operands[x->dtype].small : 1.0 + (n + 1.0) * step;
        x->given[all + i] =
            (float)(x->weights[i] + (small ? 0.0 : beside * step));
    }
}

static void numbers_free(numbers *x)
{
    free(x->tiles);
    free(x->given);
    free(x->rows);
    free(x->weights);
    free(x->results);
}

static bool numbers_make(const wa_matrix_unit *unit, winattn_dtype dtype,
                         numbers *x)
{
    const size_t all = (size_t)unit->queries * unit->tile;
    const size_t stored =
        ((size_t)unit->queries + 2 * (size_t)unit->tile) * unit->tile;
    memset(x, 0, sizeof *x);
    x->queries = unit->queries;
    x->tile = unit->tile;
    x->dtype = dtype;
    x->random = 1;
    x->tiles = calloc(stored, element_bytes(x));
    x->rows = calloc(stored, sizeof *x->rows);
    x->given = calloc(2 * all, sizeof *x->given);
    x->weights = calloc(all, sizeof *x->weights);
    x->results = calloc(result_tiles(x) * all, sizeof *x->results);
    if (!x->tiles || !x->rows || !x->given || !x->weights || !x->results) {
        numbers_free(x);
        return false;
    }
    make_tiles(x);
    make_given(x);
    return true;
}

/* ---- What must come out ---- */

static double expected_score(const numbers *x, size_t query, size_t key)
{
    const double *q = x->rows + least(query, x->queries - 2) * x->tile;
    const double *k =
        x->rows + (x->queries + least(key, x->tile - 2)) * x->tile;
    double sum = x->given[query * x->tile + key];
    for (size_t i = 0; i < x->tile; i++)
        sum += q[i] * k[i];
    return sum;
}

static double expected_out(const numbers *x, size_t query, size_t channel)
{
    const double *values = x->rows + (x->queries + x->tile) * x->tile;
    double sum = 0;
    for (size_t key = 1; key < x->tile; key++)
        sum += x->weights[query * x->tile + key] *
               values[least(key, x->tile - 2) * x->tile + channel];
    return sum;
}

static double expected_sum(const numbers *x, size_t query, size_t key)
{
    const float *row = x->given + (x->queries + query) * x->tile;
    double sum = 0;
    (void)key;
    for (size_t i = 0; i < x->tile; i++)
        sum += row[i];
    return sum;
}

static double expected_transposed(const numbers *x, size_t key, size_t channel)
{
    const double *values = x->rows + (x->queries + x->tile) * x->tile;
    double sum = 0;
    for (size_t query = 1; query < x->queries; query++)
        if (!is_small_weight(query)) /* as along a contraction all are */
            sum += x->weights[query * x->tile + key] *
                   values[least(query, x->tile - 2) * x->tile + channel];
    return sum;
}

static winattn_status compare(const numbers *x, const wa_matrix_unit *unit)
{
    static const struct {
        const char *what;
        double (*expected)(const numbers *, size_t, size_t);
    } kinds[] = {{"score of query %u and key %u", expected_score},
                 {"o of query %u and channel %u", expected_out},
                 {"sum of row %u in the lane of key %u", expected_sum},
                 {"gradient of key %u and channel %u", expected_transposed}};
    for (size_t i = 0; i < result_tiles(x) * x->queries * x->tile; i++) {
        const size_t kind = i / (x->queries * x->tile);
        const size_t row = i / x->tile % x->queries;
        const size_t column = i % x->tile;
        const double right = kinds[kind].expected(x, row, column);
        char place[64];
        if (x->results[i] == right)
            continue;
        snprintf(place, sizeof place, kinds[kind].what, (unsigned)row,
                 (unsigned)column);
        return WA_BAD_DEVICE(
            "self-test of unit %s failed: %s is %.9g, not %.9g", unit->name,
            place, x->results[i], right);
    }
    return WINATTN_SUCCESS;
}

/* ---- The launch ---- */

static cl_mem make_buffer(cl_context context, const void *bytes, size_t size,
                          cl_int *error)
{
    return clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                          size, (void *)(size_t)bytes, error);
}

static cl_int launch(cl_context context, cl_device_id id, cl_kernel kernel,
                     const wa_matrix_unit *unit, numbers *x)
{
    const size_t all = x->queries * x->tile;
    const size_t wave = unit->wave;
    const size_t bytes[3] = {(x->queries + 2 * x->tile) * x->tile *
                                 element_bytes(x),
                             2 * all * sizeof *x->given,
                             result_tiles(x) * all * sizeof *x->results};
    const void *const content[3] = {x->tiles, x->given, x->results};
    cl_mem buffers[3] = {NULL, NULL, NULL};
    cl_int error;
    const cl_command_queue queue =
        clCreateCommandQueue(context, id, 0, &error);
    if (error != CL_SUCCESS)
        return error;
    for (cl_uint i = 0; i < 3 && error == CL_SUCCESS; i++) {
        buffers[i] = make_buffer(context, content[i], bytes[i], &error);
        WA_THEN(error,
                clSetKernelArg(kernel, i, sizeof *buffers, &buffers[i]));
    }
    WA_THEN(error, clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &wave, &wave,
                                          0, NULL, NULL));
    WA_THEN(error, clEnqueueReadBuffer(queue, buffers[2], CL_TRUE, 0, bytes[2],
                                       x->results, 0, NULL, NULL));
    for (int i = 0; i < 3; i++)
        wa_release_buffer(buffers[i]);
    clReleaseCommandQueue(queue);
    return error;
}

/* The kernel with the library's options and the caller's. */
static winattn_status build(wa_program_set *programs, const wa_device *device,
                            winattn_dtype dtype, const char *build_options,
                            cl_kernel *kernel)
{
    char name[64], defines[256];
    snprintf(name, sizeof name, "check_matrix_%s", device->matrix_unit->name);
    defines[0] = 0;
    wa_append_switch(defines, sizeof defines, WA_SWITCH(DTYPE), dtype);
    wa_append_switch(defines, sizeof defines, WA_SWITCH(HAS_FMA),
                     device->has_fma);
    wa_append_matrix_unit_options(device, defines, sizeof defines);
    return wa_program_set_kernel(programs, name, defines, build_options,
                                 kernel);
}

/* Once it is complete, which it is after its launch. */
static winattn_status keep_binary(wa_program_set *programs, cl_kernel kernel)
{
    bool keeps;
    WA_TRY(wa_program_set_keeps(programs, kernel, &keeps));
    if (keeps)
        wa_program_set_keep(programs, kernel);
    return WINATTN_SUCCESS;
}

winattn_status wa_check_matrix_unit(cl_context context, cl_device_id id,
                                    wa_program_set *programs,
                                    const wa_device *device,
                                    winattn_dtype dtype,
                                    const char *build_options)
{
    cl_kernel kernel;
    numbers x;
    WA_TRY(build(programs, device, dtype, build_options, &kernel));
    if (!numbers_make(device->matrix_unit, dtype, &x)) {
        clReleaseKernel(kernel);
        return wa_fail_memory();
    }
    const cl_int error = launch(context, id, kernel, device->matrix_unit, &x);
    winattn_status status =
        wa_may_pass(error) ? WINATTN_SUCCESS : keep_binary(programs, kernel);
    WA_THEN(status,
            error == CL_SUCCESS
                ? compare(&x, device->matrix_unit)
                : wa_fail(error, "self-test of unit %s did not run: %s",
                          device->matrix_unit->name,
                          winattn_status_name(error)));
    numbers_free(&x);
    clReleaseKernel(kernel);
    return status;
}
