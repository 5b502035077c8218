/* SPDX-License-Identifier: Apache-2.0
 * Transformer blocks and modules of window attention against fp64: maps that
 * windows do not divide, shifts along either axis, both orders of norms and
 * both variants, in place and not, guards and outputs that were NaN before.
 *
 *   test_blocks TIER [few | each | all]
 *
 * few: some rows, in one type; each: every row; all: in all types. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/child.h"
#include "reference.h"
#include "tensors.h"

static const double tolerances[] = {
    [WINATTN_FP32] = 3e-6, [WINATTN_FP16] = 1e-3, [WINATTN_BF16] = 8e-3};

/* Drawn weights, on the device and in fp64. */
typedef struct block_weights {
    winattn_block_weights given;
    ref_weights ref;
} block_weights;

static block_weights weights_drawn(const winattn_block_desc *d)
{
    /* a scale, too, where the variant has none */
    const wa_block_shape shape = {
        d->channels, d->hidden, d->heads, {d->window[0], d->window[1]}, true};
    uint64_t extent[WA_BLOCK_TENSORS][4];
    block_weights w;
    winattn_tensor *given = &w.given.norm1_weight;
    wa_block_extents(&shape, extent);
    for (uint64_t i = 0; i < WA_BLOCK_TENSORS; i++) {
        const size_t count = (size_t)(extent[i][0] * extent[i][1]);
        const bool is_fp32 =
            i == WA_BLOCK_LOGIT_SCALE ||
            (i == WA_BLOCK_TABLE && d->table_dtype == WINATTN_TERM_FP32);
        double *value = draw_numbers(100 + i, count,
                                     i == WA_BLOCK_TABLE ? 2
                                     : extent[i][1] == 1
                                         ? 0.3
                                         : sqrt(3.0 / (double)extent[i][1]));
        for (size_t j = 0; j < count; j++)
            value[j] +=
                i == WA_BLOCK_NORM1_WEIGHT || i == WA_BLOCK_NORM2_WEIGHT ? 1
                : i == WA_BLOCK_LOGIT_SCALE ? (j % 2 ? 5 : 2)
                                            : 0;
        /* no bias of keys, as Swin V2 has it */
        if (i == WA_BLOCK_QKV_BIAS && d->variant == WINATTN_COSINE)
            memset(value + d->channels, 0, d->channels * sizeof *value);
        const model_tensor t =
            tensor_of(is_fp32 ? KIND_FP32 : kind_of(d->dtype), value, count,
                      i % 2 ? 8 : 3);
        given[i] = t.at;
        w.ref[i] = t.value;
    }
    if (d->variant != WINATTN_COSINE)
        w.given.logit_scale.buffer = NULL;
    return w;
}

/* ---- Blocks ---- */

static void run_block(const winattn_block_desc *desc, winattn_block *call,
                      cl_command_queue queue)
{
    winattn_block_plan *plan;
    cl_event event;
    size_t bytes;
    if (winattn_block_plan_create(device.context, device.id, desc, &plan) !=
        WINATTN_SUCCESS)
        fail_msg("%s\n%s", winattn_last_reason(), winattn_last_build_log());
    assert_int_equal(winattn_block_plan_workspace_size(plan, &bytes),
                     WINATTN_SUCCESS);
    call->workspace.buffer = workspace_of_nans(bytes);
    /* a user's event that all must wait for */
    cl_int error;
    cl_event gate = clCreateUserEvent(device.context, &error);
    assert_int_equal(error, CL_SUCCESS);
    if (winattn_enqueue_block(plan, queue, call, 1, &gate, &event) !=
        WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    winattn_block_plan_destroy(plan); /* the call completes all the same */
    assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
    clReleaseEvent(event);
    clReleaseEvent(gate);
}

static void check_block(const winattn_block_desc *given, bool in_place,
                        bool unordered)
{
    const winattn_block_desc d = *given;
    const size_t count = (size_t)d.batch * d.height * d.width * d.channels;
    model_tensor x = tensor_drawn(kind_of(d.dtype), 7, count, 2, 4);
    model_tensor y = tensor_empty(kind_of(d.dtype), count, 16);
    const block_weights w = weights_drawn(&d);
    double *want = numbers(count);
    memcpy(want, x.value, count * sizeof *want);
    ref_block(&d, w.ref, want);
    winattn_block call = {.struct_size = sizeof call,
                          .x = x.at,
                          .y = in_place ? x.at : y.at,
                          .weights = w.given};
    run_block(&d, &call,
              unordered && device.unordered ? device.unordered : device.queue);
    model_tensor *result = in_place ? &x : &y;
    tensor_read(result);
    char what[160];
    snprintf(what, sizeof what, "type %d, variant %d, %u x %u x %u x %u",
             d.dtype, d.variant, d.batch, d.height, d.width, d.channels);
    assert_error(what, result->value, want, count, tolerances[d.dtype]);
    tensors_free();
}

typedef struct block_row {
    winattn_variant variant;
    winattn_norm_order order;
    cl_uint size[3], window[2], shift[2], channels, heads, hidden;
    cl_bitfield options;
} block_row;

#define V1 WINATTN_DOT, WINATTN_PRE_NORM
#define V2 WINATTN_COSINE, WINATTN_POST_NORM
#define ROLL WINATTN_GRID_ROLL_FIRST
static const block_row block_rows[] = {
    /* padded and shifted along both axes; height and width differ */
    {V1, {2, 9, 13}, {4, 5}, {2, 2}, 16, 2, 40, 0},
    {V2, {2, 7, 11}, {4, 4}, {2, 2}, 32, 2, 64, 0},
    /* one window covers one axis, which then is not shifted */
    {V1, {1, 3, 8}, {4, 4}, {2, 2}, 24, 3, 30, 0},
    /* nothing is padded or shifted; three windows' rows of a map */
    {V2, {1, 9, 6}, {3, 3}, {0, 0}, 16, 1, 17, 0},
    /* rolled before they are padded */
    {V1, {2, 9, 13}, {4, 5}, {2, 2}, 16, 2, 40, ROLL},
    /* one window, which is shifted, covers an axis */
    {V2, {1, 3, 10}, {7, 7}, {3, 3}, 24, 3, 30, ROLL},
    /* the norms of Swin V2 around the attention of Swin, and the reverse */
    {WINATTN_DOT, WINATTN_POST_NORM, {1, 4, 4}, {4, 4}, {0}, 16, 1, 16, 0},
    {WINATTN_COSINE, WINATTN_PRE_NORM, {1, 5, 4}, {4, 4}, {2, 2}, 16, 1, 8, 0},
};

static winattn_block_desc desc_of(const block_row *row, winattn_dtype dtype)
{
    const bool is_second = row == &block_rows[1];
    winattn_block_desc d = {.struct_size = sizeof d,
                            .dtype = dtype,
                            .tier = tier_under_test(),
                            .variant = row->variant,
                            .order = row->order,
                            .batch = row->size[0],
                            .height = row->size[1],
                            .width = row->size[2],
                            .channels = row->channels,
                            .heads = row->heads,
                            .hidden = row->hidden,
                            .table_dtype = is_second ? WINATTN_TERM_FP32
                                                     : WINATTN_TERM_SAME,
                            .eps = is_second ? 1e-3f : 0,
                            .grid_options = row->options,
                            .build_options = build_options()};
    memcpy(d.window, row->window, sizeof d.window);
    memcpy(d.shift, row->shift, sizeof d.shift);
    return d;
}

static void blocks(void **state)
{
    (void)state;
    const bool is_cpu = tier_under_test() == WINATTN_TIER_CPU;
    for (size_t i = 0; i < sizeof block_rows / sizeof *block_rows; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++) {
            const bool is_few = i % 4 == 0 || (i % 4 == 1 && is_cpu);
            const winattn_block_desc d =
                desc_of(&block_rows[i], (winattn_dtype)dtype);
            if (is_chosen(i, is_few, d.dtype))
                check_block(&d, i % 2 == 0, dtype == WINATTN_FP16);
        }
}

/* ---- Modules ---- */

/* In a child of fork; 0, or which call went wrong. */
static int use_module(const void *data)
{
    const winattn_window_attention call = {.struct_size = sizeof call};
    winattn_window_attention_plan *const *plan = data;
    if (winattn_enqueue_window_attention(*plan, device.queue, &call, 0, NULL,
                                         NULL) != WINATTN_INVALID_PROCESS)
        return 1;
    winattn_window_attention_plan_destroy(*plan);
    return 0;
}

static void run_module(const winattn_window_attention_desc *d,
                       winattn_window_attention *call)
{
    winattn_window_attention_plan *plan;
    size_t bytes;
    if (winattn_window_attention_plan_create(device.context, device.id, d,
                                             &plan) != WINATTN_SUCCESS)
        fail_msg("%s\n%s", winattn_last_reason(), winattn_last_build_log());
    assert_int_equal(
        winattn_window_attention_plan_workspace_size(plan, &bytes),
        WINATTN_SUCCESS);
    const int child = child_run(use_module, &plan);
    assert_true(child == 0 || child == CHILD_HAS_NO_FORK);
    call->workspace.buffer = workspace_of_nans(bytes);
    if (winattn_enqueue_window_attention(plan, device.queue, call, 0, NULL,
                                         NULL) != WINATTN_SUCCESS)
        fail_msg("%s", winattn_last_reason());
    assert_int_equal(clFinish(device.queue), CL_SUCCESS);
    winattn_window_attention_plan_destroy(plan);
}

static void check_module(winattn_dtype dtype, winattn_variant variant,
                         size_t masks)
{
    const winattn_window_attention_desc d = {.struct_size = sizeof d,
                                             .dtype = dtype,
                                             .tier = tier_under_test(),
                                             .variant = variant,
                                             .windows = 5,
                                             .window = {3, 5},
                                             .channels = 48,
                                             .heads = 3,
                                             .mask_windows = masks,
                                             .mask_dtype = WINATTN_TERM_FP32,
                                             .build_options = build_options()};
    const winattn_block_desc like = {.dtype = dtype,
                                     .variant = variant,
                                     .window = {3, 5},
                                     .channels = 48,
                                     .heads = 3,
                                     .hidden = 1};
    const size_t count = 5 * 15 * d.channels;
    const block_weights w = weights_drawn(&like);
    model_tensor x = tensor_drawn(kind_of(dtype), 7, count, 2, 8);
    model_tensor y = tensor_empty(kind_of(dtype), count, 1);
    const model_tensor mask =
        tensor_drawn(KIND_FP32, 8, masks * 15 * 15 + 1, 3, 2);
    const ref_mask added = {.added = masks ? mask.value : NULL,
                            .windows = masks};
    double *want = numbers(count);
    ref_module(&like, w.ref, x.value, d.windows, &added, want);
    winattn_window_attention call = {.struct_size = sizeof call,
                                     .x = x.at,
                                     .qkv_weight = w.given.qkv_weight,
                                     .qkv_bias = w.given.qkv_bias,
                                     .proj_weight = w.given.proj_weight,
                                     .proj_bias = w.given.proj_bias,
                                     .table = w.given.table,
                                     .logit_scale = w.given.logit_scale,
                                     .y = masks ? x.at : y.at};
    if (masks)
        call.mask = mask.at;
    run_module(&d, &call);
    tensor_read(masks ? &x : &y);
    /* nothing is added to what was computed, which so shows in full */
    assert_error("module", (masks ? &x : &y)->value, want, count,
                 2 * tolerances[dtype]);
    tensors_free();
}

static void modules(void **state)
{
    (void)state;
    static const struct {
        winattn_variant variant;
        size_t masks;
    } table[] = {{WINATTN_COSINE, 2}, {WINATTN_DOT, 3}, {WINATTN_COSINE, 0}};
    for (size_t i = 0; i < 3; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++)
            if (is_chosen(i, i == 1, (winattn_dtype)dtype))
                check_module((winattn_dtype)dtype, table[i].variant,
                             table[i].masks);
}

/* Buffers that use the caller's memory, from any element on. */
static void odd_memory_is_used(void **state)
{
    (void)state;
    const winattn_dtype dtype =
        is_computed(WINATTN_FP32) ? WINATTN_FP32 : WINATTN_FP16;
    put_tensors_in_odd_memory(true);
    for (size_t i = 0; i < (part_is("few") ? 1 : 2); i++) {
        const winattn_block_desc d = desc_of(&block_rows[i], dtype);
        check_block(&d, i == 0, false);
    }
    check_module(dtype, WINATTN_DOT, 0);
    put_tensors_in_odd_memory(false);
}

/* ---- Refusals ---- */

static void wrong_descriptors_are_refused(void **state)
{
    (void)state;
    const winattn_block_desc good = desc_of(&block_rows[2], WINATTN_FP32);
    winattn_block_plan *plan = (winattn_block_plan *)(uintptr_t)&good;
#define REFUSED(field, value, status, culprit)                                \
    do {                                                                      \
        winattn_block_desc bad = good;                                        \
        bad.field = value;                                                    \
        assert_status(winattn_block_plan_create(device.context, device.id,    \
                                                &bad, &plan),                 \
                      status, culprit);                                       \
        assert_null(plan);                                                    \
    } while (0)
    REFUSED(struct_size, 8, WINATTN_INVALID_ARGUMENT, "struct_size");
    REFUSED(batch, 0, WINATTN_INVALID_ARGUMENT, "batch");
    REFUSED(height, 0, WINATTN_INVALID_ARGUMENT, "height");
    REFUSED(heads, 5, WINATTN_INVALID_ARGUMENT, "heads, 5");
    REFUSED(heads, 0, WINATTN_INVALID_ARGUMENT, "heads, 0");
    REFUSED(channels, 3 << 18, WINATTN_UNSUPPORTED_PROBLEM, "channels");
    REFUSED(window[1], 0, WINATTN_INVALID_ARGUMENT, "window");
    REFUSED(shift[0], 4, WINATTN_INVALID_ARGUMENT, "shift");
    REFUSED(hidden, 0, WINATTN_INVALID_ARGUMENT, "hidden");
    REFUSED(grid_options, 4, WINATTN_INVALID_ARGUMENT, "grid_options");
    REFUSED(eps, -1, WINATTN_INVALID_ARGUMENT, "eps");
    REFUSED(eps, NAN, WINATTN_INVALID_ARGUMENT, "eps");
    REFUSED(order, (winattn_norm_order)2, WINATTN_INVALID_ARGUMENT, "order");
    REFUSED(variant, WINATTN_SLIDING, WINATTN_INVALID_ARGUMENT, "variant");
    REFUSED(dtype, (winattn_dtype)3, WINATTN_INVALID_ARGUMENT, "dtype");
#undef REFUSED
    winattn_block_desc huge = good;
    huge.batch = huge.height = huge.width = 0xffffffffu;
    assert_status(
        winattn_block_plan_create(device.context, device.id, &huge, &plan),
        WINATTN_UNSUPPORTED_PROBLEM, "tokens");
    assert_status(
        winattn_block_plan_create(device.context, device.id, NULL, &plan),
        WINATTN_INVALID_ARGUMENT, "block_desc");
    assert_status(
        winattn_block_plan_create(device.context, device.id, &good, NULL),
        WINATTN_INVALID_ARGUMENT, "plan");
    winattn_block_plan_destroy(NULL);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),
        cmocka_unit_test(modules),
        cmocka_unit_test(odd_memory_is_used),
        cmocka_unit_test(wrong_descriptors_are_refused),
    };
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    return models_main(groups, 1, count, arguments);
}
