/* SPDX-License-Identifier: Apache-2.0
 * The unfused model that winattn-swin measures beside the fused one: small
 * models of both generations against what their libraries compute in double
 * precision (golden/make_models.py), and against the fused model on the same
 * pictures. They have maps that windows do not divide, shifts and odd maps.
 *
 *   test_unfused TIER [few | each | all | tiny]
 *
 * tiny: random models of a few tokens only, for simulators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "tensors.h"
#include "unfused/unfused.h"

/* As in test_models.c; what is rounded more often has a little more. */
#define MOST_ERROR 2e-5
#define OF_PYTORCH 2.0
#define MOST_TINY 5e-3 /* in fp16 */

typedef struct unfused_case {
    winattn_swin_weights *weights;
    winattn_model *model;
    unfused *made;
    winattn_model_call call;
    cl_mem workspace;
    model_tensor pictures;
} unfused_case;

/* Of c->weights, and pictures [batch][channels][height][width]. */
static void make_case(unfused_case *c, winattn_dtype dtype,
                      const uint64_t extent[4], const double *pictures)
{
    cl_int error;
    size_t bytes;
    const winattn_model_desc desc = {.struct_size = sizeof desc,
                                     .dtype = dtype,
                                     .tier = tier_under_test(),
                                     .batch = (cl_uint)extent[0],
                                     .height = (cl_uint)extent[2],
                                     .width = (cl_uint)extent[3],
                                     .pictures = WINATTN_PICTURES_PLANES,
                                     .build_options = build_options()};
    c->call.struct_size = sizeof c->call;
    if (winattn_model_create(device.context, device.id, &desc, c->weights,
                             &c->model) != WINATTN_SUCCESS ||
        unfused_create(c->model, c->weights, build_options(), &c->made) !=
            WINATTN_SUCCESS)
        fail_msg("%s\n%s", winattn_last_reason(), winattn_last_build_log());
    assert_status(winattn_model_workspace_size(c->model, &bytes), 0, "");
    /* it takes more memory than the fused model, and says so */
    assert_true(unfused_bytes(c->made) > bytes);
    c->workspace =
        clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    c->pictures =
        tensor_of(KIND_FP32, pictures,
                  (size_t)(extent[0] * extent[1] * extent[2] * extent[3]), 4);
    c->call.pictures = c->pictures.at;
    c->call.workspace.buffer = c->workspace;
}

static void free_case(unfused_case *c)
{
    unfused_destroy(c->made);
    winattn_model_destroy(c->model);
    winattn_swin_weights_destroy(c->weights);
    clReleaseMemObject(c->workspace);
    tensor_free(&c->pictures);
}

/* Logits of both; `want` NULL: of no one else. */
static void check_case(unfused_case *c, const char *name, winattn_dtype dtype,
                       const double *want, size_t count, double most)
{
    char what[96];
    model_tensor with = tensor_empty(kind_of(dtype), count, 1);
    model_tensor without = tensor_empty(kind_of(dtype), count, 8);
    c->call.logits = with.at;
    assert_status(
        winattn_enqueue_model(c->model, device.queue, &c->call, 0, NULL, NULL),
        0, "");
    c->call.logits = without.at;
    assert_status(unfused_enqueue(c->made, device.queue, &c->call), 0, "");
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    tensor_read(&with);
    tensor_read(&without);
    if (want) {
        snprintf(what, sizeof what, "%s, type %d, unfused", name, dtype);
        assert_error(what, without.value, want, count, most);
    }
    snprintf(what, sizeof what, "%s, type %d, against fused", name, dtype);
    assert_error(what, without.value, with.value, count, 2 * most);
    tensor_free(&with);
    tensor_free(&without);
}

/* ---- Golden models ---- */

static void check_golden(const char *name, winattn_dtype dtype)
{
    unfused_case c = {0};
    char file[64];
    const wa_swin_config config = golden_config(name);
    snprintf(file, sizeof file, "models/%s", name);
    npy_array input = loaded(file, "input");
    npy_array want = loaded(file, "logits"), errors = loaded(file, "errors");
    assert_status(
        winattn_swin_weights_open(golden_path(name), &config, &c.weights), 0,
        "");
    make_case(&c, dtype, input.extent, input.value);
    check_case(&c, name, dtype, want.value, want.count,
               dtype == WINATTN_FP32
                   ? MOST_ERROR
                   : OF_PYTORCH *
                         errors.value[(size_t)dtype * (config.stages + 1)]);
    npy_free(&input);
    npy_free(&want);
    npy_free(&errors);
    free_case(&c);
}

static void golden(void **state)
{
    (void)state;
    if (part_is("tiny"))
        skip();
    for (size_t i = 0; golden_models[i]; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++) {
            /* of either generation one, in fp32 and fp16; where compiling
             * takes long, in one of them */
            const bool is_quick =
                i < 2 && (tier_under_test() == WINATTN_TIER_CPU
                              ? dtype != WINATTN_BF16
                              : i + (size_t)dtype == 1);
            if (part_is("all") || is_quick ||
                (part_is("each") && is_chosen(i, false, (winattn_dtype)dtype)))
                check_golden(golden_models[i], (winattn_dtype)dtype);
        }
}

/* ---- Tiny models ---- */

/* 3 x 5 tokens in windows of 2 x 3, shifted, padded, and merged to 2 x 3. */
static void check_tiny(cl_uint generation, winattn_dtype dtype)
{
    const winattn_swin_config config = {.struct_size = sizeof config,
                                        .generation = generation,
                                        .in_channels = 1,
                                        .patch = {1, 1},
                                        .channels = 8,
                                        .stages = 2,
                                        .depths = {2, 1},
                                        .heads = {1, 2},
                                        .window = {{2, 3}, {2, 2}},
                                        .hidden = {10, 12},
                                        .classes = 7};
    const uint64_t extent[4] = {1, 1, 3, 5};
    unfused_case c = {0};
    double *pictures = draw_numbers(generation, 15, 1);
    assert_status(winattn_swin_weights_random(&config, generation, &c.weights),
                  0, "");
    make_case(&c, dtype, extent, pictures);
    check_case(&c, generation == 1 ? "tiny Swin" : "tiny Swin V2", dtype, NULL,
               7, dtype == WINATTN_FP32 ? MOST_ERROR / 2 : MOST_TINY);
    free_case(&c);
    free(pictures);
}

static void tiny(void **state)
{
    (void)state;
    check_tiny(1, WINATTN_FP32);
    check_tiny(2, WINATTN_FP16);
}

/* A model without a head has no logits to compare. */
static void no_head_is_refused(void **state)
{
    (void)state;
    const winattn_swin_config config = {
        .struct_size = sizeof config,
        .generation = 1,
        .in_channels = 3,
        .patch = {4, 4},
        .channels = 8,
        .stages = 1,
        .depths = {1},
        .heads = {1},
        .window = {{2, 2}},
        .hidden = {16},
    };
    const winattn_model_desc desc = {.struct_size = sizeof desc,
                                     .tier = tier_under_test(),
                                     .batch = 1,
                                     .height = 8,
                                     .width = 8,
                                     .build_options = build_options()};
    winattn_swin_weights *weights;
    winattn_model *model;
    unfused *made = (unfused *)&desc;
    assert_status(winattn_swin_weights_random(&config, 1, &weights), 0, "");
    assert_status(winattn_model_create(device.context, device.id, &desc,
                                       weights, &model),
                  0, "");
    assert_status(unfused_create(model, weights, build_options(), &made),
                  WINATTN_UNSUPPORTED_PROBLEM, "no head");
    assert_null(made);
    unfused_destroy(NULL);
    winattn_model_destroy(model);
    winattn_swin_weights_destroy(weights);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(tiny),
        cmocka_unit_test(no_head_is_refused),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    return models_main(groups, 1, count, arguments);
}
