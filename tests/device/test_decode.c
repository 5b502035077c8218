/* SPDX-License-Identifier: Apache-2.0
 * Decoding: rows of sliding attention that come block by block, against a
 * cache of keys that grows, are those of one pass over all tokens. A step
 * compiles nothing but the first. Queries and results of a step are rows of
 * the whole tensors, and keys that are still to come are no numbers.
 *
 *   test_decode TIER */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/runner.h"
#include "kit/storage.h"
#include "program/program_set.h"

enum { WINDOWS = 2, HEADS = 4, KV_HEADS = 2 };

/* What a stream is like; tokens of the first block may be fewer. */
static const struct {
    winattn_dtype dtype;
    cl_uint tokens, block, first_block, window_blocks, sink, dim;
} streams[] = {
    {WINATTN_FP32, 97, 16, 10, 3, 4, 32},
    {WINATTN_FP16, 200, 64, 0, 2, 0, 64},
    {WINATTN_BF16, 60, 1, 40, 20, 3, 16},
    {WINATTN_BF16, 330, 100, 30, 2, 70, 128},
};

typedef struct stream {
    winattn_desc desc; /* of all tokens */
    storage_kind kind;
    size_t rows, keys; /* elements of q and o, of k and v */
    cl_mem q, k, v, o;
    unsigned char *cache[2]; /* what k and v hold in the end */
} stream;

static cl_mem new_buffer(size_t size, const void *from)
{
    cl_int error;
    const cl_mem_flags copies = from ? CL_MEM_COPY_HOST_PTR : 0;
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE | copies,
                                   size, (void *)(uintptr_t)from, &error);
    assert_int_equal(error, CL_SUCCESS);
    return buffer;
}

/* Numbers between -1 and 1, as they are stored. */
static unsigned char *numbers(storage_kind kind, size_t count, unsigned *seed)
{
    unsigned char *bytes = malloc(count * kind_size(kind));
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        kind_write(kind, (double)(*seed >> 8) / (1 << 23) - 1.0,
                   bytes + i * kind_size(kind));
    }
    return bytes;
}

/* Of the tensors [window][head][token][channel]. */
static winattn_strides strides_of(cl_uint heads, cl_uint tokens, cl_uint dim)
{
    const winattn_strides s = {.window = (cl_ulong)heads * tokens * dim,
                               .head = (cl_ulong)tokens * dim,
                               .row = dim,
                               .column = 1};
    return s;
}

static stream stream_make(size_t number)
{
    unsigned seed = (unsigned)number + 1;
    stream s = {.kind = (storage_kind)streams[number].dtype};
    winattn_desc *d = &s.desc;
    d->struct_size = sizeof *d;
    d->dtype = streams[number].dtype;
    d->variant = WINATTN_SLIDING;
    d->tier = (winattn_tier)chosen.tier;
    d->windows = WINDOWS;
    d->heads = HEADS;
    d->kv_heads = KV_HEADS;
    d->queries = d->keys = streams[number].tokens;
    d->head_dim = streams[number].dim;
    d->block = streams[number].block;
    d->first_block = streams[number].first_block;
    d->window_blocks = streams[number].window_blocks;
    d->sink = streams[number].sink;
    d->q = d->o = strides_of(HEADS, d->queries, d->head_dim);
    d->k = d->v = strides_of(KV_HEADS, d->queries, d->head_dim);
    s.rows = (size_t)WINDOWS * d->q.window;
    s.keys = (size_t)WINDOWS * d->k.window;
    unsigned char *q = numbers(s.kind, s.rows, &seed);
    s.q = new_buffer(s.rows * kind_size(s.kind), q);
    free(q);
    for (int i = 0; i < 2; i++)
        s.cache[i] = numbers(s.kind, s.keys, &seed);
    s.o = new_buffer(s.rows * kind_size(s.kind), NULL);
    s.k = new_buffer(s.keys * kind_size(s.kind), s.cache[0]);
    s.v = new_buffer(s.keys * kind_size(s.kind), s.cache[1]);
    return s;
}

static void stream_free(stream *s)
{
    clReleaseMemObject(s->q);
    clReleaseMemObject(s->k);
    clReleaseMemObject(s->v);
    clReleaseMemObject(s->o);
    free(s->cache[0]);
    free(s->cache[1]);
}

/* Tokens [first, end) against keys up to there. */
static void attend(const stream *s, cl_uint first, cl_uint end)
{
    winattn_desc desc = s->desc;
    winattn_plan *plan;
    size_t size;
    desc.queries = end - first;
    desc.keys = end;
    desc.query_offset = first;
    if (winattn_plan_create(device.context, device.id, &desc, &plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    assert_int_equal(winattn_plan_workspace_size(plan, &size),
                     WINATTN_SUCCESS);
    cl_mem workspace = size ? new_buffer(size, NULL) : NULL;
    const cl_ulong offset = first * desc.q.row * kind_size(s->kind);
    const winattn_forward call = {.struct_size = sizeof call,
                                  .q = {s->q, offset},
                                  .k = {s->k, 0},
                                  .v = {s->v, 0},
                                  .o = {s->o, offset},
                                  .workspace = {workspace, 0}};
    if (winattn_enqueue_forward(plan, device.queue, &call, 0, NULL, NULL) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    clFinish(device.queue);
    winattn_plan_destroy(plan);
    if (workspace)
        clReleaseMemObject(workspace);
}

static unsigned char *results(const stream *s)
{
    const size_t size = s->rows * kind_size(s->kind);
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(clEnqueueReadBuffer(device.queue, s->o, CL_TRUE, 0, size,
                                         bytes, 0, NULL, NULL),
                     CL_SUCCESS);
    return bytes;
}

static void fill(cl_mem buffer, size_t bytes)
{
    const cl_uchar ones = 0xff; /* in all bytes: a NaN of any type */
    assert_int_equal(clEnqueueFillBuffer(device.queue, buffer, &ones, 1, 0,
                                         bytes, 0, NULL, NULL),
                     CL_SUCCESS);
}

/* Tokens [first, end) of all heads join the cache. */
static void append(const stream *s, cl_uint first, cl_uint end)
{
    const size_t row = s->desc.head_dim * kind_size(s->kind);
    for (size_t head = 0; head < WINDOWS * KV_HEADS; head++)
        for (int i = 0; i < 2; i++) {
            const size_t at = (head * s->desc.keys + first) * row;
            assert_int_equal(
                clEnqueueWriteBuffer(device.queue, i ? s->v : s->k, CL_TRUE,
                                     at, (end - first) * row, s->cache[i] + at,
                                     0, NULL, NULL),
                CL_SUCCESS);
        }
}

static void decode(const stream *s)
{
    const size_t element = kind_size(s->kind);
    const cl_uint first_block =
        s->desc.first_block ? s->desc.first_block : s->desc.block;
    unsigned built = 0;
    fill(s->k, s->keys * element);
    fill(s->v, s->keys * element);
    fill(s->o, s->rows * element);
    for (cl_uint first = 0, end = first_block; first < s->desc.keys;) {
        end = end < s->desc.keys ? end : s->desc.keys;
        append(s, first, end);
        attend(s, first, end);
        if (first == 0)
            built = wa_programs_built();
        first = end;
        end += s->desc.block;
    }
    assert_int_equal(wa_programs_built(), built);
}

/* Both are as far as promised from what is right, so twice that apart. */
static void assert_same(const stream *s, const unsigned char *all,
                        const unsigned char *steps)
{
    static const double promised[] = {5e-6, 5e-4, 4e-3};
    const size_t element = kind_size(s->kind);
    const size_t head = (size_t)s->desc.q.head;
    for (size_t h = 0; h < (size_t)WINDOWS * HEADS; h++) {
        double error2 = 0, size2 = 0;
        for (size_t i = h * head; i < (h + 1) * head; i++) {
            const double want = kind_read(s->kind, all + i * element);
            const double got = kind_read(s->kind, steps + i * element);
            error2 += (got - want) * (got - want);
            size2 += want * want;
        }
        if (!(sqrt(error2 / size2) <= 2 * promised[s->kind]))
            fail_msg("head %zu: error %g", h, sqrt(error2 / size2));
    }
}

static void steps_make_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        winattn_programs *keeps;
        announce("stream %zu", i);
        assert_int_equal(
            winattn_programs_create(device.context, device.id, &keeps),
            WINATTN_SUCCESS);
        stream s = stream_make(i);
        attend(&s, 0, s.desc.keys);
        unsigned char *all = results(&s);
        decode(&s);
        unsigned char *steps = results(&s);
        assert_same(&s, all, steps);
        free(all);
        free(steps);
        stream_free(&s);
        winattn_programs_destroy(keeps);
    }
}

int main(int count, char **arguments)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_make_the_whole),
    };
    static const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {.words = {WORD_TIER}, TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
