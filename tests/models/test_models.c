/* SPDX-License-Identifier: Apache-2.0
 * Whole models: random ones, of bytes, against the formulas in fp64;
 * test_sources.c compares others with what libraries compute.
 *
 *   test_models TIER [few | each | all]
 *
 * few: some models, in one type; each: every model; all: in all types. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/child.h"
#include "model_run.h"
#include "reference_model.h"
#include "winattn_models.h"

/* Compiling takes nearly all of the time. */
static bool is_cpu(void) { return tier_under_test() == WINATTN_TIER_CPU; }

/* ---- Random models ---- */

static void check_numbers(const char *what, model_tensor *got,
                          const double *want, double most)
{
    tensor_read(got);
    assert_error(what, got->value, want, got->count, most);
}

/* Logits, of features as the device has them: few numbers, which may cancel,
 * would say little of all that comes before. */
static void check_logits(model_run *r, const winattn_swin_weights *w,
                         storage_kind kind, size_t batch, size_t c,
                         double most)
{
    const size_t classes = w->config.classes;
    double *v[] = {ref_rounded(kind, w->head_weight, classes * c),
                   ref_rounded(kind, w->head_bias, classes)};
    double *logits = malloc(batch * classes * sizeof *logits);
    assert_non_null(logits);
    ref_linear(r->features.value, v[0], v[1], batch, c, classes, logits);
    check_numbers("logits", &r->logits, logits, most);
    ref_free(v, 2);
    free(logits);
}

/* Maps, features and logits of a run against the reference. */
static void check_run(model_run *r, const winattn_model_desc *d,
                      const winattn_swin_weights *w, const double *pictures)
{
    static const double most[] = {5e-6, 4e-3, 3e-2};
    const storage_kind kind = kind_of(d->dtype);
    const wa_swin_config *config = &w->config;
    ref_map map = ref_embed(w, d, &r->call, kind, pictures);
    for (uint32_t stage = 0; stage < config->stages; stage++) {
        char what[32];
        for (uint32_t i = 0; i < config->depths[stage]; i++)
            ref_stage_block(config, stage, &w->stages[stage].blocks[i],
                            i % 2 == 1, kind, &map);
        snprintf(what, sizeof what, "type %d, stage %u", d->dtype, stage);
        check_numbers(what, &r->maps[stage], map.value, most[d->dtype]);
        if (stage + 1 < config->stages)
            ref_merge(w, stage, kind, &map);
    }
    double *features = malloc(map.batch * map.channels * sizeof *features);
    assert_non_null(features);
    ref_pool(w, kind, &map, features);
    check_numbers("features", &r->features, features, most[d->dtype]);
    check_logits(r, w, kind, map.batch, map.channels, most[d->dtype] / 4);
    free(features);
    free(map.value);
}

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
#define RANDOM_ROWS (sizeof random_rows / sizeof *random_rows)

static winattn_swin_weights *random_weights(const random_row *row)
{
    winattn_swin_config config = row->config;
    winattn_swin_weights *weights;
    config.struct_size = sizeof config;
    assert_status(winattn_swin_weights_random(&config, 5, &weights), 0, "");
    return weights;
}

static model_run random_run(const random_row *row,
                            const winattn_swin_weights *weights,
                            winattn_dtype dtype, winattn_model_desc *desc,
                            double **pictures)
{
    *desc = (winattn_model_desc){.dtype = dtype,
                                 .batch = row->batch,
                                 .height = row->height,
                                 .width = row->width,
                                 .pictures = WINATTN_PICTURES_BYTES};
    *pictures = draw_bytes((size_t)row->batch * row->height * row->width *
                           row->config.in_channels);
    model_run r = run_of(desc, weights, KIND_U8, *pictures);
    for (int i = 0; i < 4; i++) {
        r.call.mean[i] = 0.4f + 0.05f * (float)i;
        r.call.deviation[i] = 0.2f + 0.02f * (float)i;
    }
    return r;
}

static void random_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < RANDOM_ROWS; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++) {
            winattn_model_desc desc;
            double *pictures;
            if (!is_chosen(2 - 2 * i, i == 1, (winattn_dtype)dtype))
                continue;
            winattn_swin_weights *w = random_weights(&random_rows[i]);
            model_run r = random_run(&random_rows[i], w, (winattn_dtype)dtype,
                                     &desc, &pictures);
            run_enqueue(&r, device.queue);
            check_run(&r, &desc, w, pictures);
            run_free(&r);
            free(pictures);
            winattn_swin_weights_destroy(w);
        }
}

/* ---- Calls ---- */

/* What is not asked for changes nothing, and is not written; the queue may run
 * launches in any order. */
static void outputs_are_independent(void **state)
{
    (void)state;
    if (part_is("few") && !is_cpu())
        skip();
    winattn_model_desc desc;
    double *pictures;
    const winattn_dtype dtype =
        is_computed(WINATTN_FP32) ? WINATTN_FP32 : WINATTN_FP16;
    winattn_swin_weights *w = random_weights(&random_rows[1]);
    model_run all = random_run(&random_rows[1], w, dtype, &desc, &pictures);
    free(pictures);
    run_enqueue(&all, device.unordered ? device.unordered : device.queue);
    tensor_read(&all.logits);
    tensor_read(&all.maps[1]);
    model_run some = random_run(&random_rows[1], w, dtype, &desc, &pictures);
    some.call.maps[0].buffer = some.call.maps[2].buffer = NULL;
    some.call.logits.buffer = some.call.features.buffer = NULL;
    run_enqueue(&some, device.queue);
    tensor_read(&some.maps[1]);
    assert_memory_equal(some.maps[1].value, all.maps[1].value,
                        all.maps[1].count * sizeof(double));
    some.call.maps[1].buffer = NULL;
    some.call.logits = some.logits.at;
    run_enqueue(&some, device.queue);
    tensor_read(&some.logits);
    assert_memory_equal(some.logits.value, all.logits.value,
                        all.logits.count * sizeof(double));
    for (int i = 0; i < 3; i += 2) {
        tensor_read(&some.maps[i]);
        for (size_t j = 0; j < some.maps[i].count; j++)
            assert_true(isnan(some.maps[i].value[j]));
    }
    run_free(&all);
    run_free(&some);
    free(pictures);
    winattn_swin_weights_destroy(w);
}

/* Buffers that use the caller's memory, from any element on, but for the
 * workspace, which needs a multiple of 16 bytes. */
static void odd_memory_is_used(void **state)
{
    (void)state;
    if (part_is("few") && !is_cpu())
        skip();
    winattn_model_desc desc;
    double *pictures;
    const winattn_dtype dtype =
        is_computed(WINATTN_FP32) ? WINATTN_FP32 : WINATTN_FP16;
    winattn_swin_weights *w = random_weights(&random_rows[1]);
    put_tensors_in_odd_memory(true);
    model_run r = random_run(&random_rows[1], w, dtype, &desc, &pictures);
    put_tensors_in_odd_memory(false);
    size_t bytes;
    cl_int error;
    unsigned char *odd;
    assert_status(winattn_model_workspace_size(r.model, &bytes), 0, "");
    unsigned char *memory = odd_memory(bytes, 8, &odd);
    clReleaseMemObject(r.workspace);
    r.workspace =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                       bytes, odd, &error);
    assert_int_equal(error, CL_SUCCESS);
    r.call.workspace.buffer = r.workspace;
    assert_status(
        winattn_enqueue_model(r.model, device.queue, &r.call, 0, NULL, NULL),
        WINATTN_INVALID_LAYOUT,
        "the memory of the buffer of workspace starts on no multiple of 16");
    clReleaseMemObject(r.workspace);
    r.workspace =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                       bytes, odd + 8, &error);
    assert_int_equal(error, CL_SUCCESS);
    r.call.workspace.buffer = r.workspace;
    run_enqueue(&r, device.queue);
    check_run(&r, &desc, w, pictures);
    run_free(&r);
    free(memory);
    free(pictures);
    winattn_swin_weights_destroy(w);
}

/* A queue and a run of its own, the model shared; no cmocka in here. */
typedef struct worker {
    pthread_t thread;
    const winattn_model *model;
    const model_run *run;
    bool failed;
} worker;

static void *use_model(void *argument)
{
    worker *w = argument;
    cl_int error;
    cl_command_queue queue =
        clCreateCommandQueue(device.context, device.id, 0, &error);
    /* all at once, so that threads meet */
    for (int round = 0; round < 30 && !w->failed; round++)
        w->failed = winattn_enqueue_model(w->model, queue, &w->run->call, 0,
                                          NULL, NULL) != WINATTN_SUCCESS;
    w->failed = clFinish(queue) != CL_SUCCESS || w->failed;
    clReleaseCommandQueue(queue);
    return NULL;
}

/* They compute what one alone computes. */
static void threads_share_a_model(void **state)
{
    enum { WORKERS = 3 };
    (void)state;
    if (part_is("few") && !is_cpu())
        skip();
    winattn_model_desc desc;
    double *pictures;
    const winattn_dtype dtype =
        is_computed(WINATTN_FP32) ? WINATTN_FP32 : WINATTN_FP16;
    winattn_swin_weights *weights = random_weights(&random_rows[1]);
    model_run runs[WORKERS + 1];
    worker workers[WORKERS];
    for (int i = 0; i <= WORKERS; i++) {
        runs[i] =
            random_run(&random_rows[1], weights, dtype, &desc, &pictures);
        free(pictures);
    }
    run_enqueue(&runs[WORKERS], device.queue);
    tensor_read(&runs[WORKERS].logits);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.model = runs[WORKERS].model, .run = &runs[i]};
        assert_int_equal(
            pthread_create(&workers[i].thread, NULL, use_model, &workers[i]),
            0);
    }
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < WORKERS; i++) {
        assert_false(workers[i].failed);
        tensor_read(&runs[i].logits);
        assert_memory_equal(runs[i].logits.value, runs[WORKERS].logits.value,
                            runs[i].logits.count * sizeof(double));
    }
    for (int i = 0; i <= WORKERS; i++)
        run_free(&runs[i]);
    winattn_swin_weights_destroy(weights);
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

static void children_are_refused(const model_run *r)
{
    const int result = child_run(use_in_child, r);
    if (result != CHILD_HAS_NO_FORK)
        assert_int_equal(result, 0);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    if (part_is("few") && !is_cpu())
        skip();
    winattn_model_desc desc;
    double *pictures;
    const winattn_dtype dtype =
        is_computed(WINATTN_FP32) ? WINATTN_FP32 : WINATTN_FP16;
    winattn_swin_weights *w = random_weights(&random_rows[1]);
    model_run r = random_run(&random_rows[1], w, dtype, &desc, &pictures);
#define REFUSED(field, value, status, culprit)                                \
    do {                                                                      \
        winattn_model_call bad = r.call;                                      \
        bad.field = value;                                                    \
        assert_status(winattn_enqueue_model(r.model, device.queue, &bad, 0,   \
                                            NULL, NULL),                      \
                      status, culprit);                                       \
    } while (0)
    REFUSED(struct_size, 3, WINATTN_INVALID_ARGUMENT, "struct_size");
    REFUSED(pictures.buffer, NULL, WINATTN_INVALID_ARGUMENT, "pictures");
    REFUSED(pictures.offset, 1 << 20, WINATTN_BUFFER_TOO_SMALL, "pictures");
    REFUSED(deviation[0], NAN, WINATTN_INVALID_ARGUMENT, "deviation[0]");
    REFUSED(logits.offset, 1 << 20, WINATTN_BUFFER_TOO_SMALL, "logits");
    REFUSED(maps[1].buffer, r.logits.at.buffer, WINATTN_BUFFER_TOO_SMALL,
            "maps[1]");
    REFUSED(maps[3], r.logits.at, WINATTN_INVALID_ARGUMENT, "maps[3]");
    REFUSED(workspace.buffer, NULL, WINATTN_INVALID_ARGUMENT, "workspace");
    REFUSED(workspace.buffer, r.logits.at.buffer, WINATTN_WORKSPACE_TOO_SMALL,
            "workspace");
#undef REFUSED
    winattn_model_call none = r.call;
    memset(none.maps, 0, sizeof none.maps);
    none.logits.buffer = none.features.buffer = NULL;
    assert_status(
        winattn_enqueue_model(r.model, device.queue, &none, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "output");
    children_are_refused(&r);
    tensor_read(&r.logits);
    for (size_t i = 0; i < r.logits.count; i++)
        assert_true(isnan(r.logits.value[i]));
    size_t needed;
    char text[8];
    assert_status(winattn_model_describe(r.model, sizeof text, text, &needed),
                  0, "");
    assert_in_range(needed, 1000, 262144);
    assert_string_equal(text, "model: ");
    cl_uint shape[4];
    assert_status(winattn_model_map_shape(r.model, 3, shape),
                  WINATTN_INVALID_ARGUMENT, "stage 3");
    run_free(&r);
    free(pictures);
    winattn_swin_weights_destroy(w);
}

/* As timm's features_only: maps only. */
static void a_model_without_norm(void **state)
{
    (void)state;
    if (part_is("few") && !is_cpu())
        skip();
    winattn_model_desc desc;
    double *pictures;
    const winattn_dtype dtype =
        is_computed(WINATTN_FP32) ? WINATTN_FP32 : WINATTN_FP16;
    random_row row = random_rows[1];
    winattn_swin_weights *with = random_weights(&row);
    row.config.classes = 0;
    row.config.no_norm = CL_TRUE;
    winattn_swin_weights *without = random_weights(&row);
    assert_null(without->norm_weight);
    model_run all = random_run(&random_rows[1], with, dtype, &desc, &pictures);
    run_enqueue(&all, device.queue);
    free(pictures);
    model_run r = random_run(&row, without, dtype, &desc, &pictures);
    r.call.logits.buffer = NULL;
    assert_status(
        winattn_enqueue_model(r.model, device.queue, &r.call, 0, NULL, NULL),
        WINATTN_INVALID_ARGUMENT, "no norm");
    r.call.features.buffer = NULL;
    run_enqueue(&r, device.queue);
    for (cl_uint i = 0; i < row.config.stages; i++) {
        tensor_read(&all.maps[i]);
        tensor_read(&r.maps[i]);
        assert_memory_equal(r.maps[i].value, all.maps[i].value,
                            r.maps[i].count * sizeof *r.maps[i].value);
    }
    run_free(&all);
    run_free(&r);
    free(pictures);
    winattn_swin_weights_destroy(with);
    winattn_swin_weights_destroy(without);
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
        cmocka_unit_test(random_models),
        cmocka_unit_test(outputs_are_independent),
        cmocka_unit_test(odd_memory_is_used),
        cmocka_unit_test(threads_share_a_model),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(a_model_without_norm),
        cmocka_unit_test(wrong_models_are_refused),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    return models_main(groups, 1, count, arguments);
}
