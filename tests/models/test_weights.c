/* SPDX-License-Identifier: Apache-2.0
 * Weights of Swin models from files of four libraries, and from some that were
 * made from them; test_sources.c has what is computed with them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "files.h"
#include "kit/scratch.h"
#include "models/swin_file.h"

/* ---- Files as libraries write them ---- */

/* 21 biases, of 2 x 4 tokens or of 4 x 2. */
static void cut_table(file_edit *tensor, void *data)
{
    (void)data;
    if (strstr(tensor->name, "layers.2.blocks.0.attn.relative_position_bias"))
        tensor->extent[0] = 21;
}

/* What neither tensors nor files beside them say. */
static void test_windows_unknown(void **state)
{
    static const char *const models[] = {"timm_v2", "transformers_v2"};
    const wa_swin_config alone = {.struct_size = sizeof alone,
                                  .no_config_file = CL_TRUE};
    winattn_swin_weights *w;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_status(
            winattn_swin_weights_open(source_path(models[i]), &alone, &w),
            WINATTN_INVALID_FILE, "stage 0");
        assert_null(w);
    }
    assert_status(read_edited("timm_v1", cut_table, NULL, NULL, &w),
                  WINATTN_INVALID_FILE, "stage 2");
}

static void test_describes(void **state)
{
    static const char wanted[] =
        "names of timm in F16; computed as timm does: windows of 4x4, 4x4, "
        "4x4, 4x4, shifted each axis that is longer than its window in "
        "pictures of 64x96, rolled, then padded";
    char text[sizeof wanted];
    size_t needed;
    (void)state;
    winattn_swin_weights *w = opened("timm_v1");
    assert_status(winattn_swin_weights_describe(w, 0, NULL, &needed), 0, "");
    assert_int_equal(needed, sizeof wanted);
    assert_status(winattn_swin_weights_describe(w, sizeof text, text, NULL), 0,
                  "");
    assert_string_equal(text, wanted);
    winattn_swin_weights_destroy(w);
    winattn_swin_weights_destroy(NULL);
}

/* Coordinates as Swin V2 keeps them when it was pretrained with windows of
 * 3 x 4, and not the 4 x 4 that it has. */
static void set_pretraining(file_edit *tensor, void *data)
{
    float *values = data;
    if (!strstr(tensor->name, "relative_coords_table"))
        return;
    for (int y = 0; y < 7; y++)
        for (int x = 0; x < 7; x++) {
            *values++ = (float)wa_log_coordinate(y - 3, 3);
            *values++ = (float)wa_log_coordinate(x - 3, 4);
        }
    strcpy(tensor->type, "F32");
    tensor->values = data;
}

static float *floats_of(const wa_safetensors *file, const char *name,
                        size_t *count)
{
    const wa_file_tensor *tensor = wa_safetensors_find(file, name);
    assert_non_null(tensor);
    float *values = malloc((size_t)tensor->count * sizeof *values);
    assert_status(wa_tensor_floats(tensor, values), 0, "");
    *count = (size_t)tensor->count;
    return values;
}

/* 16 sigmoid of the first block's position MLP, of one head. */
static double position_bias(const wa_safetensors *file, double y, double x)
{
    size_t inputs, units, outputs;
    float *first =
        floats_of(file, "features.1.0.attn.cpb_mlp.0.weight", &inputs);
    float *bias = floats_of(file, "features.1.0.attn.cpb_mlp.0.bias", &units);
    float *second =
        floats_of(file, "features.1.0.attn.cpb_mlp.2.weight", &outputs);
    double sum = 0;
    assert_true(inputs == 2 * units && outputs == units);
    for (size_t i = 0; i < units; i++)
        sum += second[i] *
               fmax(first[2 * i] * y + first[2 * i + 1] * x + bias[i], 0);
    free(first);
    free(bias);
    free(second);
    return 16 / (1 + exp(-sum));
}

static void test_pretraining(void **state)
{
    float values[7 * 7 * 2];
    wa_swin_weights *w, *plain = opened("torchvision_v2");
    wa_safetensors *file = tensors_of("torchvision_v2");
    (void)state;
    assert_status(
        read_edited("torchvision_v2", set_pretraining, values, NULL, &w), 0,
        "");
    /* log2(8 * 3 / 2 + 1) / 3 and log2(8 * 3 / 3 + 1) / 3 */
    const double y = 1.23347991, x = 1.05664167;
    assert_true(fabs(values[0] + y) < 1e-6 && fabs(values[1] + x) < 1e-6);
    for (uint32_t stage = 0; stage < 4; stage++)
        for (uint32_t axis = 0; axis < 2; axis++)
            assert_int_equal(w->config.position_window[stage][axis], 3 + axis);
    const float *table = w->stages[0].blocks[0].table;
    const float *before = plain->stages[0].blocks[0].table;
    assert_true(fabs(table[0] - position_bias(file, -y, -x)) < 5e-6);
    assert_true(fabs(table[6] - position_bias(file, -y, x)) < 5e-6);
    assert_true(fabs(before[6] - position_bias(file, -x, x)) < 5e-6);
    /* in the middle, nothing has changed */
    assert_memory_equal(table + 3 * 7, before + 3 * 7, 7 * sizeof(float));
    winattn_swin_weights_destroy(w);
    winattn_swin_weights_destroy(plain);
    wa_safetensors_close(file);
}

/* ---- What is wrong is named ---- */

typedef struct fault {
    const char *name;
    enum { FAULT_DROP, FAULT_RENAME, FAULT_SHAPE, FAULT_TYPE } kind;
} fault;

static void put_fault(file_edit *tensor, void *data)
{
    const fault *f = data;
    if (strcmp(tensor->name, f->name) != 0)
        return;
    switch (f->kind) {
    case FAULT_DROP:
        tensor->dropped = true;
        break;
    case FAULT_RENAME:
        strcat(tensor->name, "s");
        break;
    case FAULT_SHAPE:
        tensor->extent[tensor->axes - 1]++;
        break;
    default:
        snprintf(tensor->type, sizeof tensor->type, "I64");
    }
}

/* Each tensor in turn is missing, misnamed, misshaped, or of integers. */
static void check_faults(const char *model)
{
    const wa_swin_config config = source_config(model);
    wa_safetensors *file = tensors_of(model);
    for (size_t i = 0; i < wa_safetensors_count(file); i++)
        for (int kind = FAULT_DROP; kind <= FAULT_TYPE; kind++) {
            wa_swin_weights *w;
            fault f = {wa_safetensors_at(file, i)->name, 0};
            f.kind = kind;
            const bool buffer = wa_name_is_buffer(f.name);
            if (buffer && kind == FAULT_RENAME)
                continue;
            const winattn_status status =
                read_edited(model, put_fault, &f, &config, &w);
            if (buffer)
                assert_status(status, 0, "");
            else if (status == WINATTN_SUCCESS || w)
                fail_msg("%s: %s, fault %d is not seen", model, f.name, kind);
            else if (status != WINATTN_INVALID_ARGUMENT &&
                     status != WINATTN_UNSUPPORTED_PROBLEM &&
                     !strstr(winattn_last_reason(), "patch embedding") &&
                     !strstr(winattn_last_reason(), f.name))
                fail_msg("%s: %s, fault %d: %s", model, f.name, kind,
                         winattn_last_reason());
            winattn_swin_weights_destroy(w);
        }
    wa_safetensors_close(file);
}

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; sources[i]; i++)
        check_faults(sources[i]);
}

/* What the caller says of torchvision_v1. */
static void test_config_disagrees(void **state)
{
    static const struct {
        wa_swin_config config;
        winattn_status status;
        const char *culprit;
    } rows[] = {
        {{.struct_size = sizeof(wa_swin_config), .classes = 1000},
         WINATTN_INVALID_FILE,
         "head.weight: has shape [32, 32]; this model needs [1000, 32]"},
        {{.struct_size = sizeof(wa_swin_config), .depths = {0, 3}},
         WINATTN_INVALID_FILE,
         "features.3.2.norm1.weight: the file lacks"},
        {{.struct_size = sizeof(wa_swin_config), .depths = {0, 1}},
         WINATTN_INVALID_FILE,
         "features.3.1."},
        {{.struct_size = 8}, WINATTN_INVALID_ARGUMENT, "struct_size"}};
    winattn_swin_weights *w;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_status(winattn_swin_weights_open(source_path("torchvision_v1"),
                                                &rows[i].config, &w),
                      rows[i].status, rows[i].culprit);
    assert_status(winattn_swin_weights_open("no/such/file", NULL, &w),
                  WINATTN_INVALID_FILE, "cannot be read");
    assert_status(winattn_swin_weights_open(NULL, NULL, &w),
                  WINATTN_INVALID_ARGUMENT, "path");
    assert_status(winattn_swin_weights_open("", NULL, NULL),
                  WINATTN_INVALID_ARGUMENT, "weights");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_unknown),
        cmocka_unit_test(test_describes),
        cmocka_unit_test(test_pretraining),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_config_disagrees),
    };
    if (!scratch_make())
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
