/* SPDX-License-Identifier: Apache-2.0
 * The unfused model that winattn-swin measures beside the fused one, against
 * the fused one on the same pictures; what that computes, test_models.c and
 * test_sources.c compare with others. Models of both generations have maps
 * that windows do not divide, shifts and odd maps.
 *
 *   test_unfused TIER [few | each | all | tiny]
 *
 * tiny: of a few tokens only, for simulators. */
#include <stdio.h>
#include <string.h>

#include "model_run.h"
#include "unfused/unfused.h"

/* Relative to the fused model's logits: each rounds what the other keeps in
 * registers. */
static const double most[] = {
    [WINATTN_FP32] = 2e-5, [WINATTN_FP16] = 1e-2, [WINATTN_BF16] = 8e-2};

/* Compares logits of both, of pictures [batch][channels][height][width]. */
static void check_model(const winattn_swin_weights *weights,
                        winattn_dtype dtype, const uint64_t extent[4],
                        const double *pictures)
{
    char what[96];
    size_t bytes;
    unfused *made;
    const winattn_model_desc desc = {.dtype = dtype,
                                     .batch = (cl_uint)extent[0],
                                     .height = (cl_uint)extent[2],
                                     .width = (cl_uint)extent[3],
                                     .pictures = WINATTN_PICTURES_PLANES};
    model_run with = run_of(&desc, weights, KIND_FP32, pictures);
    model_tensor without = tensor_empty(kind_of(dtype), with.logits.count, 8);
    winattn_model_call call = with.call;
    if (unfused_create(with.model, weights, build_options(), &made) !=
        WINATTN_SUCCESS)
        fail_msg("%s\n%s", winattn_last_reason(), winattn_last_build_log());
    /* it takes more memory than the fused model, and says so */
    assert_status(winattn_model_workspace_size(with.model, &bytes), 0, "");
    assert_true(unfused_bytes(made) > bytes);
    run_enqueue(&with, device.queue);
    call.logits = without.at;
    assert_status(unfused_enqueue(made, device.queue, &call), 0, "");
    tensor_read(&with.logits);
    tensor_read(&without);
    snprintf(what, sizeof what, "type %d, against fused", dtype);
    assert_error(what, without.value, with.logits.value, without.count,
                 most[dtype]);
    unfused_destroy(made);
    winattn_model_destroy(with.model);
    tensors_free();
}

/* Of both generations. */
typedef struct unfused_row {
    cl_uint patch, channels, depth, heads[2], window[2][2], hidden[2];
    uint64_t extent[4]; /* of the pictures */
} unfused_row;

static const unfused_row rows[] = {
    /* 3 x 5 tokens in windows of 2 x 3, shifted, padded, merged to 2 x 3 */
    {1, 32, 1, {1, 2}, {{2, 3}, {2, 2}}, {10, 12}, {1, 1, 3, 5}},
    /* windows of more tokens than a tile has rows, heads of more channels than
     * it has columns; channels that are no whole vectors */
    {2, 36, 2, {1, 6}, {{9, 8}, {5, 7}}, {50, 60}, {2, 3, 44, 13}},
    /* so few channels that a merger has its norm (of generation 2) */
    {1, 16, 1, {1, 1}, {{2, 3}, {2, 2}}, {16, 16}, {1, 1, 3, 5}},
};

static void check_row(const unfused_row *row, cl_uint generation,
                      winattn_dtype dtype)
{
    const uint64_t *n = row->extent;
    winattn_swin_weights *weights;
    winattn_swin_config config = {.struct_size = sizeof config,
                                  .generation = generation,
                                  .in_channels = (cl_uint)n[1],
                                  .patch = {row->patch, 1},
                                  .channels = row->channels,
                                  .stages = 2,
                                  .depths = {2, row->depth},
                                  .classes = 20};
    memcpy(config.heads, row->heads, sizeof row->heads);
    memcpy(config.window, row->window, sizeof row->window);
    memcpy(config.hidden, row->hidden, sizeof row->hidden);
    assert_status(winattn_swin_weights_random(&config, 1, &weights), 0, "");
    check_model(
        weights, dtype, n,
        draw_numbers(generation, (size_t)(n[0] * n[1] * n[2] * n[3]), 1));
    winattn_swin_weights_destroy(weights);
}

/* A generation has a type; on tier matrix both have one that a unit has. */
static int tiny_dtype(size_t i)
{
    return is_computed(WINATTN_FP32) ? (int)i : WINATTN_FP16;
}

static void each_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++)
            if (part_is("tiny") ? (i < 2 || i == 5) && dtype == tiny_dtype(i)
                                : is_chosen(i, true, (winattn_dtype)dtype))
                check_row(&rows[i / 2], 1 + i % 2, (winattn_dtype)dtype);
}

/* A model without a head has no logits to compare. */
static void no_head_is_refused(void **state)
{
    (void)state;
    const winattn_swin_config config = {.struct_size = sizeof config,
                                        .generation = 1,
                                        .in_channels = 3,
                                        .patch = {4, 4},
                                        .channels = 8,
                                        .stages = 1,
                                        .depths = {1},
                                        .heads = {1},
                                        .window = {{2, 2}},
                                        .hidden = {16}};
    const winattn_model_desc desc = {.struct_size = sizeof desc,
                                     .dtype = (winattn_dtype)tiny_dtype(0),
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
        cmocka_unit_test(each_row),
        cmocka_unit_test(no_head_is_refused),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    return models_main(groups, 1, count, arguments);
}
