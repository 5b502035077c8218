/* SPDX-License-Identifier: Apache-2.0
 * Tensors between guards. */
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/test_device.h"

#define BEHIND 64u /* elements */

/* ---- What is tested ---- */

winattn_tier tier_under_test(void) { return (winattn_tier)chosen.tier; }

bool is_computed(winattn_dtype dtype)
{
    return tier_under_test() != WINATTN_TIER_MATRIX || dtype != WINATTN_FP32;
}

bool is_chosen(size_t row, bool is_marked, winattn_dtype dtype)
{
    if (!is_computed(dtype))
        return false;
    if (part_is("all"))
        return true;
    if (part_is("few") && !is_marked)
        return false;
    return is_computed(WINATTN_FP32) ? row % 3 == dtype : row % 2 + 1 == dtype;
}

const char *build_options(void)
{
    return device_build_options(tier_under_test());
}

int models_main(const test_group *groups, size_t group_count, int count,
                char **arguments)
{
    const test_program program = {.words = {WORD_TIER, WORD_PART},
                                  .part = "few",
                                  .groups = groups,
                                  .group_count = group_count};
    return runner_main(&program, count, arguments);
}

/* ---- Tensors ---- */

storage_kind kind_of(winattn_dtype dtype)
{
    return dtype == WINATTN_FP32   ? KIND_FP32
           : dtype == WINATTN_FP16 ? KIND_FP16
                                   : KIND_BF16;
}

/* What is to be freed: a buffer, then the memory that it may use. */
typedef struct possession {
    struct possession *next;
    cl_mem buffer;
    void *memory;
} possession;

static possession *all;

static void keep(cl_mem buffer, void *memory)
{
    possession *p = malloc(sizeof *p);
    assert_non_null(p);
    *p = (possession){all, buffer, memory};
    all = p;
}

void tensors_free(void)
{
    while (all) {
        possession *p = all;
        all = p->next;
        if (p->buffer)
            clReleaseMemObject(p->buffer);
        free(p->memory);
        free(p);
    }
}

double *numbers(size_t count)
{
    double *value = calloc(count + 1, sizeof *value);
    assert_non_null(value);
    keep(NULL, value);
    return value;
}

double *draw_numbers(uint64_t seed, size_t count, double scale)
{
    double *value = numbers(count);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t z = state += 0x9e3779b97f4a7c15u; /* splitmix64 */
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        value[i] = ((double)(z >> 11) * 0x1p-52 - 1) * scale;
    }
    return value;
}

static bool in_odd_memory;

void put_tensors_in_odd_memory(bool so) { in_odd_memory = so; }

static cl_mem new_buffer(cl_mem_flags flags, size_t size, void *content)
{
    cl_int error;
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE | flags,
                                   size, content, &error);
    assert_int_equal(error, CL_SUCCESS);
    return buffer;
}

/* `bytes` are the elements; NULL: NaN. */
static model_tensor make(storage_kind kind, const unsigned char *bytes,
                         size_t count, size_t before)
{
    const size_t size = kind_size(kind);
    before = in_odd_memory ? (before + 15) / 16 * 16 : before;
    const size_t room = (before + count + BEHIND) * size;
    unsigned char *content;
    unsigned char *memory = odd_memory(room, size, &content);
    assert_non_null(memory);
    if (bytes)
        memcpy(content + before * size, bytes, count * size);
    const model_tensor t = {
        .kind = kind,
        .count = count,
        .before = before,
        .value = numbers(count),
        .at = {new_buffer(in_odd_memory ? CL_MEM_USE_HOST_PTR
                                        : CL_MEM_COPY_HOST_PTR,
                          room, content),
               before * size}};
    keep(t.at.buffer, memory);
    return t;
}

model_tensor tensor_of(storage_kind kind, const double *value, size_t count,
                       size_t before)
{
    const size_t size = kind_size(kind);
    unsigned char *bytes = malloc(count * size + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++)
        kind_write(kind, value[i], bytes + i * size);
    model_tensor t = make(kind, bytes, count, before);
    for (size_t i = 0; i < count; i++)
        t.value[i] = kind_read(kind, bytes + i * size);
    free(bytes);
    return t;
}

model_tensor tensor_drawn(storage_kind kind, uint64_t seed, size_t count,
                          double scale, size_t before)
{
    return tensor_of(kind, draw_numbers(seed, count, scale), count, before);
}

model_tensor tensor_empty(storage_kind kind, size_t count, size_t before)
{
    return make(kind, NULL, count, before);
}

void tensor_read(model_tensor *t)
{
    const size_t size = kind_size(t->kind);
    const size_t room = (t->before + t->count + BEHIND) * size;
    unsigned char *content = malloc(room);
    assert_non_null(content);
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    assert_int_equal(clEnqueueReadBuffer(device.queue, t->at.buffer, CL_TRUE,
                                         0, room, content, 0, NULL, NULL),
                     CL_SUCCESS);
    for (size_t i = 0; i < room; i++) {
        const size_t element = i / size;
        if ((element < t->before || element >= t->before + t->count) &&
            content[i] != 0xff)
            fail_msg("element %lld was written",
                     (long long)element - (long long)t->before);
    }
    for (size_t i = 0; i < t->count; i++)
        t->value[i] = kind_read(t->kind, content + (t->before + i) * size);
    free(content);
}

double relative_error(const double *got, const double *want, size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    const double relative = norm > 0 ? sqrt(error / norm) : sqrt(error);
    return isfinite(relative) ? relative : INFINITY;
}

void assert_error(const char *what, const double *got, const double *want,
                  size_t count, double most)
{
    const double error = relative_error(got, want, count);
    announce("%s: %.2g of %.2g\n", what, error, most);
    if (!(error <= most))
        fail_msg("%s: relative error %g, more than %g", what, error, most);
}

cl_mem workspace_of_nans(size_t bytes)
{
    unsigned char *content = malloc(bytes);
    assert_non_null(content);
    memset(content, 0xff, bytes);
    cl_mem buffer = new_buffer(CL_MEM_COPY_HOST_PTR, bytes, content);
    keep(buffer, content);
    return buffer;
}
