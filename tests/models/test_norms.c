/* SPDX-License-Identifier: Apache-2.0
 * Whole models whose norms are in linear layers (cl/models/row_origin.cl,
 * cl/hopper/linear_wgmma.cl), before them and behind them, against the same
 * models with norms of their own; and models in TF32 against fp32. Skipped
 * where the device has no wgmma.
 *
 *   test_norms */
#include <string.h>

#include "kit/cases.h"
#include "model_run.h"
#include "models/linear_plan.h"
#include "models/swin_weights.h"
#include "session/session.h"

static winattn_swin_config config_of(cl_uint generation)
{
    return (winattn_swin_config){.struct_size = sizeof(winattn_swin_config),
                                 .generation = generation,
                                 .in_channels = 3,
                                 .patch = {4, 4},
                                 .channels = 32,
                                 .stages = 2,
                                 .depths = {3, 2},
                                 .heads = {1, 2},
                                 .window = {{4, 4}, {4, 4}},
                                 .hidden = {80, 128},
                                 .classes = 8};
}

static bool says(const winattn_model *model, const char *what)
{
    static char text[1 << 17];
    assert_status(winattn_model_describe(model, sizeof text, text, NULL), 0,
                  "");
    return strstr(text, what) != NULL;
}

typedef struct pictures {
    winattn_swin_weights *weights;
    winattn_model_desc desc;
    double *bytes;
} pictures;

static pictures pictures_of(cl_uint generation, winattn_dtype dtype,
                            cl_uint height)
{
    const size_t count = (size_t)2 * height * 48 * 3;
    const winattn_swin_config config = config_of(generation);
    pictures p = {
        .desc = {.dtype = dtype, .batch = 2, .height = height, .width = 48},
        .bytes = draw_numbers(3, count, 128)};
    assert_status(winattn_swin_weights_random(&config, 5, &p.weights), 0, "");
    for (size_t i = 0; i < count; i++)
        p.bytes[i] = (double)(long)(p.bytes[i] + 128);
    return p;
}

typedef struct places {
    const char *in_blocks, *outside;
} places;

/* Maps of the tier's model, which says that of its norms. */
static model_run run_tier(const pictures *p, winattn_tier tier, places norms)
{
    chosen.tier = (int)tier;
    model_run r = run_of(&p->desc, p->weights, KIND_U8, p->bytes);
    if (!says(r.model, norms.in_blocks) || !says(r.model, norms.outside))
        fail_msg("no model with %s, %s", norms.in_blocks, norms.outside);
    run_enqueue(&r, device.queue);
    for (int i = 0; i < 2; i++)
        tensor_read(&r.maps[i]);
    winattn_model_destroy(r.model);
    return r;
}

static void compare(const pictures *p, const model_run *want, places norms)
{
    const model_run got = run_tier(p, WINATTN_TIER_MATRIX, norms);
    for (int i = 0; i < 2; i++)
        assert_error(norms.in_blocks, got.maps[i].value, want->maps[i].value,
                     want->maps[i].count,
                     p->desc.dtype == WINATTN_FP32   ? 7e-4
                     : p->desc.dtype == WINATTN_FP16 ? 3e-3
                                                     : 2e-2);
}

/* Calls have few rows, and many if the device has one compute unit. */
static void check(wa_device *told, cl_uint generation, winattn_dtype dtype)
{
    const pictures p = pictures_of(generation, dtype, 40);
    const uint32_t units = told->compute_units;
    const places own = {"norm: norm_rows, ",
                        "stage0 neighbours: in stage0 merger"};
    const model_run want =
        run_tier(&p, WINATTN_TIER_LOCAL,
                 (places){own.in_blocks, generation == 1
                                             ? "neighbours: norm_rows"
                                             : "neighbours: merge_patches"});
    compare(&p, &want,
            generation == 1
                ? (places){"of statistics of their own", own.outside}
                : own);
    told->compute_units = 1;
    compare(&p, &want,
            generation == 1
                ? (places){"of statistics from the mlp before, and of its own",
                           "patch norm: in patch"}
                : (places){"norm of the mlp: in fc2",
                           "stage0 merger norm: in stage0 merger"});
    told->compute_units = units;
    winattn_swin_weights_destroy(p.weights);
    tensors_free();
}

/* In TF32 numbers are rounded, x by layers and matrices when they are loaded,
 * though the unit would cut them off. */
static void check_tf32(wa_device *told)
{
    pictures p = pictures_of(1, WINATTN_FP32, 40);
    const uint32_t units = told->compute_units;
    const model_run want =
        run_tier(&p, WINATTN_TIER_LOCAL, (places){"norm: norm_rows, ", ""});
    p.desc.allow_tf32 = true;
    told->compute_units = 1;
    compare(&p, &want, (places){"stage1 fc2 kernel: linear_wgmma", ""});
    told->compute_units = units;
    winattn_swin_weights_destroy(p.weights);
    tensors_free();
}

/* Maps with an odd side are padded, which no merger's layer does. */
static void check_odd(void)
{
    const pictures p = pictures_of(1, WINATTN_FP16, 44);
    const places own = {"norm: norm_rows, ", "stage0 neighbours: norm_rows"};
    const model_run want = run_tier(&p, WINATTN_TIER_LOCAL, own);
    compare(&p, &want, (places){"of statistics of their own", own.outside});
    winattn_swin_weights_destroy(p.weights);
    tensors_free();
}

static winattn_status make_large(void *data, const wa_swin_tensor *t,
                                 const float **values)
{
    float *first = (float *)(size_t)*values;
    (void)data;
    if (t->group == WA_SWIN_BLOCK &&
        (t->index == WA_BLOCK_NORM2_WEIGHT || t->index == WA_BLOCK_FC1_WEIGHT))
        *first = 300;
    return WINATTN_SUCCESS;
}

/* Each fits fp16, and their product does not. */
static void check_large(void)
{
    const pictures p = pictures_of(1, WINATTN_FP16, 40);
    winattn_model_desc desc = p.desc;
    winattn_model *model;
    desc.struct_size = sizeof desc;
    assert_status(wa_swin_visit(p.weights, make_large, NULL), 0, "");
    assert_status(winattn_model_create(device.context, device.id, &desc,
                                       p.weights, &model),
                  WINATTN_UNSUPPORTED_PROBLEM,
                  "with the norm before it a layer has a weight 153600, more "
                  "than fp16 has: take bf16, or another tier than matrix");
    winattn_swin_weights_destroy(p.weights);
    tensors_free();
}

static void norms_in_layers(void **state)
{
    const wa_linear_problem p = {.dtype = WINATTN_FP16, .in = 32, .out = 32};
    wa_session *session;
    (void)state;
    assert_status(wa_session_acquire(device.context, device.id, &session), 0,
                  "");
    wa_device *told = (wa_device *)(size_t)wa_session_device(session);
    if (wa_linear_wgmma_refusal(&p, told)) {
        wa_session_release(session);
        skip();
    }
    check(told, 1, WINATTN_FP16);
    check(told, 1, WINATTN_BF16);
    check(told, 2, WINATTN_FP16);
    check_tf32(told);
    check_odd();
    check_large();
    wa_session_release(session);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms_in_layers)};
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    const test_program program = {TEST_GROUPS(groups)};
    return runner_main(&program, count, arguments);
}
