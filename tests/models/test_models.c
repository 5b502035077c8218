/* SPDX-License-Identifier: Apache-2.0
 * Whole models: what calls may ask for, and how; test_sources.c compares what
 * is computed with what libraries compute.
 *
 *   test_models TIER */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/child.h"
#include "model_run.h"
#include "models/swin_weights.h"
#include "reference.h"
#include "winattn_models.h"

/* ---- Random models ---- */

static double *draw_bytes(size_t count)
{
    double *bytes = draw_numbers(11, count, 128);
    for (size_t i = 0; i < count; i++)
        bytes[i] = floor(bytes[i] + 128);
    return bytes;
}

typedef struct random_row {
    winattn_swin_config config;
    cl_uint batch, height, width;
} random_row;

static const random_row random_rows[] = {
    /* maps of 9 x 15 and 5 x 8, windows of 3 x 4; leftover pixels */
    {{.generation = 1,
      .in_channels = 3,
      .patch = {4, 2},
      .channels = 12,
      .stages = 2,
      .depths = {2, 2},
      .heads = {2, 3},
      .window = {{3, 4}, {3, 4}},
      .hidden = {20, 50},
      .classes = 7},
     2,
     39,
     31},
    /* of one channel; maps of 7 x 5, 4 x 3 and 2 x 2, all padded */
    {{.generation = 2,
      .in_channels = 1,
      .patch = {2, 3},
      .channels = 16,
      .stages = 3,
      .depths = {2, 1, 2},
      .heads = {1, 2, 4},
      .window = {{3, 3}, {3, 2}, {3, 3}},
      .hidden = {32, 24, 16},
      .classes = 3,
      .norm_eps = 1e-3f},
     1,
     15,
     17},
};

/* A random model, its pictures, and a run. */
typedef struct random_model {
    winattn_swin_weights *weights;
    winattn_model_desc desc;
    double *pictures;
    model_run run;
} random_model;

static winattn_swin_weights *random_weights(const random_row *row)
{
    winattn_swin_config config = row->config;
    winattn_swin_weights *weights;
    config.struct_size = sizeof config;
    assert_status(winattn_swin_weights_random(&config, 5, &weights), 0, "");
    return weights;
}

static random_model model_of(const random_row *row, winattn_dtype dtype)
{
    random_model m = {.weights = random_weights(row),
                      .desc = {.dtype = dtype,
                               .batch = row->batch,
                               .height = row->height,
                               .width = row->width,
                               .pictures = WINATTN_PICTURES_BYTES}};
    m.pictures = draw_bytes((size_t)row->batch * row->height * row->width *
                            row->config.in_channels);
    m.run = run_of(&m.desc, m.weights, KIND_U8, m.pictures);
    for (int i = 0; i < 4; i++) {
        m.run.call.mean[i] = 0.4f + 0.05f * (float)i;
        m.run.call.deviation[i] = 0.2f + 0.02f * (float)i;
    }
    return m;
}

static winattn_dtype some_dtype(void)
{
    return is_computed(WINATTN_FP32) ? WINATTN_FP32 : WINATTN_FP16;
}

/* The one that calls are tried with. */
static random_model some_model(void)
{
    return model_of(&random_rows[1], some_dtype());
}

static void model_free(random_model *m)
{
    winattn_model_destroy(m->run.model);
    winattn_swin_weights_destroy(m->weights);
}

/* Of both runs, bit by bit. */
static void assert_same(model_tensor *a, model_tensor *b)
{
    tensor_read(a);
    tensor_read(b);
    assert_memory_equal(a->value, b->value, a->count * sizeof *a->value);
}

static void assert_unwritten(model_tensor *t)
{
    tensor_read(t);
    for (size_t i = 0; i < t->count; i++)
        assert_true(isnan(t->value[i]));
}

/* ---- Calls ---- */

/* Of the same pictures, but for the rounding of what is subtracted and divided
 * by. */
static void assert_alike(const char *what, model_tensor *got,
                         model_tensor *want)
{
    tensor_read(got);
    tensor_read(want);
    assert_error(what, got->value, want->value, got->count,
                 some_dtype() == WINATTN_FP32 ? 5e-6 : 4e-3);
}

/* The number that a byte becomes: of bytes [height][width][channels], and of
 * the same order or [channels][height][width]. */
static double *numbers_of(const random_model *m, size_t channels, bool planes)
{
    const size_t area = (size_t)m->desc.height * m->desc.width;
    const winattn_model_call *call = &m->run.call;
    double *to = numbers(m->desc.batch * area * channels);
    for (size_t i = 0; i < m->desc.batch * area * channels; i++) {
        const size_t picture = i / (area * channels), c = i % channels;
        const size_t pixel = i / channels % area;
        to[planes ? (picture * channels + c) * area + pixel : i] =
            (m->pictures[i] / 255 - call->mean[c]) / call->deviation[c];
    }
    return to;
}

/* Pictures may be bytes, of which the call says mean and deviation, or numbers
 * in either order; logits are a linear layer of the features. */
static void pictures_of_all_kinds(void **state)
{
    (void)state;
    random_model m = model_of(&random_rows[0], some_dtype());
    const winattn_swin_weights *w = m.weights;
    const size_t last = (size_t)w->config.channels * 2;
    run_enqueue(&m.run, device.queue);
    for (int kind = WINATTN_PICTURES_BYTES + 1;
         kind <= WINATTN_PICTURES_PLANES; kind++) {
        winattn_model_desc desc = m.desc;
        desc.pictures = (winattn_pictures)kind;
        model_run r =
            run_of(&desc, w, KIND_FP32,
                   numbers_of(&m, 3, kind == WINATTN_PICTURES_PLANES));
        run_enqueue(&r, device.queue);
        for (int i = 0; i < 2; i++)
            assert_alike("map", &r.maps[i], &m.run.maps[i]);
        assert_alike("features", &r.features, &m.run.features);
        winattn_model_destroy(r.model);
    }
    double *weight = numbers(w->config.classes * last);
    double bias[7], logits[2 * 7];
    for (size_t i = 0; i < w->config.classes * last; i++)
        weight[i] = kind_round(m.run.logits.kind, w->head_weight[i]);
    for (size_t i = 0; i < 7; i++)
        bias[i] = kind_round(m.run.logits.kind, w->head_bias[i]);
    ref_linear(m.run.features.value, weight, bias, 2, last, 7, logits);
    tensor_read(&m.run.logits);
    assert_error("logits", m.run.logits.value, logits, 14,
                 some_dtype() == WINATTN_FP32 ? 1e-6 : 1e-3);
    model_free(&m);
    tensors_free();
}

/* What is not asked for changes nothing, and is not written; the queue may run
 * launches in any order. */
static void outputs_are_independent(void **state)
{
    (void)state;
    random_model all = some_model(), some = some_model();
    run_enqueue(&all.run, device.unordered ? device.unordered : device.queue);
    winattn_model_call *call = &some.run.call;
    call->maps[0].buffer = call->maps[2].buffer = NULL;
    call->logits.buffer = call->features.buffer = NULL;
    run_enqueue(&some.run, device.queue);
    assert_same(&some.run.maps[1], &all.run.maps[1]);
    call->maps[1].buffer = NULL;
    call->logits = some.run.logits.at;
    run_enqueue(&some.run, device.queue);
    assert_same(&some.run.logits, &all.run.logits);
    assert_unwritten(&some.run.maps[0]);
    assert_unwritten(&some.run.maps[2]);
    model_free(&all);
    model_free(&some);
    tensors_free();
}

static cl_mem buffer_at(unsigned char *memory, size_t bytes)
{
    cl_int error;
    cl_mem buffer =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                       bytes, memory, &error);
    assert_int_equal(error, CL_SUCCESS);
    return buffer;
}

/* Buffers that use the caller's memory, from any element on, but for the
 * workspace, which needs a multiple of 16 bytes. */
static void odd_memory_is_used(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *odd;
    random_model plain = some_model();
    put_tensors_in_odd_memory(true);
    random_model m = some_model();
    put_tensors_in_odd_memory(false);
    assert_status(winattn_model_workspace_size(m.run.model, &bytes), 0, "");
    unsigned char *memory = odd_memory(bytes, 8, &odd);
    cl_mem workspaces[] = {buffer_at(odd, bytes), buffer_at(odd + 8, bytes)};
    m.run.call.workspace.buffer = workspaces[0];
    assert_status(
        winattn_enqueue_model(m.run.model, device.queue, &m.run.call, 0, NULL,
                              NULL),
        WINATTN_INVALID_LAYOUT,
        "the memory of the buffer of workspace starts on no multiple of 16");
    m.run.call.workspace.buffer = workspaces[1];
    run_enqueue(&plain.run, device.queue);
    run_enqueue(&m.run, device.queue);
    for (int i = 0; i < 3; i++)
        assert_alike("map", &m.run.maps[i], &plain.run.maps[i]);
    assert_alike("logits", &m.run.logits, &plain.run.logits);
    model_free(&plain);
    model_free(&m);
    tensors_free();
    for (int i = 0; i < 2; i++)
        clReleaseMemObject(workspaces[i]);
    free(memory);
}

/* In a child of fork; 0, or which call went wrong. */
static int use_in_child(const void *data)
{
    const model_run *r = data;
    if (winattn_enqueue_model(r->model, device.queue, &r->call, 0, NULL,
                              NULL) != WINATTN_INVALID_PROCESS)
        return 1;
    winattn_model_destroy(r->model); /* and blocks and layers in it */
    return 0;
}

/* Campaigns have wrong tensors. */
static void wrong_calls_are_refused(void **state)
{
    (void)state;
    random_model m = some_model();
    model_run *r = &m.run;
    winattn_model_call bad = r->call;
    bad.deviation[0] = NAN;
    assert_status(
        winattn_enqueue_model(r->model, device.queue, &bad, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "deviation[0]");
    winattn_model_call none = r->call;
    memset(none.maps, 0, sizeof none.maps);
    none.logits.buffer = none.features.buffer = NULL;
    assert_status(
        winattn_enqueue_model(r->model, device.queue, &none, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "output");
    const int result = child_run(use_in_child, r);
    assert_true(result == 0 || result == CHILD_HAS_NO_FORK);
    assert_unwritten(&r->logits);
    size_t needed;
    char text[8];
    assert_status(winattn_model_describe(r->model, sizeof text, text, &needed),
                  0, "");
    assert_in_range(needed, 1000, 262144);
    assert_string_equal(text, "model: ");
    model_free(&m);
    tensors_free();
}

/* As timm's features_only: maps only. */
static void a_model_without_norm(void **state)
{
    (void)state;
    random_model all = some_model();
    random_row row = random_rows[1];
    row.config.classes = 0;
    row.config.no_norm = CL_TRUE;
    random_model m = model_of(&row, all.desc.dtype);
    assert_null(m.weights->norm_weight);
    run_enqueue(&all.run, device.queue);
    m.run.call.logits.buffer = NULL;
    assert_status(winattn_enqueue_model(m.run.model, device.queue, &m.run.call,
                                        0, NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "no norm");
    m.run.call.features.buffer = NULL;
    run_enqueue(&m.run, device.queue);
    for (cl_uint i = 0; i < row.config.stages; i++)
        assert_same(&m.run.maps[i], &all.run.maps[i]);
    model_free(&all);
    model_free(&m);
    tensors_free();
}

static void wrong_models_are_refused(void **state)
{
    (void)state;
    winattn_swin_weights *w = random_weights(&random_rows[0]);
    const winattn_model_desc good = {
        .struct_size = sizeof good, .batch = 1, .height = 16, .width = 16};
    winattn_model *model = (winattn_model *)&good;
#define REFUSED(field, value, status, culprit)                                \
    do {                                                                      \
        winattn_model_desc bad = good;                                        \
        bad.field = value;                                                    \
        assert_status(                                                        \
            winattn_model_create(device.context, device.id, &bad, w, &model), \
            status, culprit);                                                 \
        assert_null(model);                                                   \
    } while (0)
    REFUSED(struct_size, 0, WINATTN_INVALID_ARGUMENT, "struct_size");
    REFUSED(batch, 0, WINATTN_INVALID_ARGUMENT, "batch");
    REFUSED(batch, 0xffffffffu, WINATTN_UNSUPPORTED_PROBLEM, "tokens");
    REFUSED(height, 3, WINATTN_INVALID_ARGUMENT, "smaller than a patch");
    REFUSED(width, 0, WINATTN_INVALID_ARGUMENT, "smaller than a patch");
    REFUSED(pictures, (winattn_pictures)3, WINATTN_INVALID_ARGUMENT,
            "pictures");
    REFUSED(dtype, (winattn_dtype)7, WINATTN_INVALID_ARGUMENT, "dtype");
#undef REFUSED
    assert_status(
        winattn_model_create(device.context, device.id, &good, NULL, &model),
        WINATTN_INVALID_ARGUMENT, "weights");
    assert_status(winattn_model_create(NULL, device.id, &good, w, &model),
                  WINATTN_INVALID_ARGUMENT, "context");
    winattn_model_destroy(NULL);
    winattn_swin_weights_destroy(w);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_of_all_kinds),
        cmocka_unit_test(outputs_are_independent),
        cmocka_unit_test(odd_memory_is_used),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(a_model_without_norm),
        cmocka_unit_test(wrong_models_are_refused),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    return models_main(groups, 1, count, arguments);
}
