/* SPDX-License-Identifier: Apache-2.0
 * Shapes of Swin models, and their weights from files of four libraries, the
 * golden ones and some that were made from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "files.h"
#include "kit/scratch.h"
#include "models/swin_file.h"

/* ---- Files as libraries write them ---- */

/* Those that files do not say are equal to the shape that is given. */
static void assert_config(const wa_swin_config *got, const char *model)
{
    const wa_swin_config want = golden_config(model);
    assert_int_equal(got->generation, want.generation);
    assert_int_equal(got->in_channels, 3);
    assert_memory_equal(got->patch, want.patch, sizeof want.patch);
    assert_int_equal(got->channels, want.channels);
    assert_int_equal(got->stages, want.stages);
    assert_memory_equal(got->depths, want.depths, sizeof want.depths);
    assert_memory_equal(got->heads, want.heads, sizeof want.heads);
    assert_memory_equal(got->window, want.window, sizeof want.window);
    assert_memory_equal(got->position_window, want.position_window,
                        sizeof want.position_window);
    assert_int_equal(got->classes, 64);
    assert_true(got->norm_eps == 1e-5F);
    assert_int_equal(got->crop[0], 224);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; golden_models[i]; i++) {
        const wa_swin_config config = golden_config(golden_models[i]);
        winattn_swin_weights *w = opened(golden_models[i], &config);
        winattn_swin_config got = {.struct_size = sizeof got};
        assert_status(winattn_swin_weights_config(w, &got), 0, "");
        assert_config(&got, golden_models[i]);
        winattn_swin_weights_destroy(w);
    }
}

/* These say all of it by themselves. */
static void test_inferred(void **state)
{
    static const char *const models[] = {"torchvision_v1", "torchvision_v2",
                                         "transformers_v1"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        wa_swin_weights *w = opened(models[i], NULL);
        assert_config(&w->config, models[i]);
        winattn_swin_weights_destroy(w);
    }
}

static void test_windows_unknown(void **state)
{
    static const char *const models[] = {"timm_v1", "timm_v2",
                                         "transformers_v2"};
    winattn_swin_weights *w;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_status(
            winattn_swin_weights_open(golden_path(models[i]), NULL, &w),
            WINATTN_INVALID_FILE, i == 0 ? "stage 2" : "stage 0");
        assert_null(w);
    }
}

/* Biases of the positions, as the library's own modules make them. */
static void test_tables(void **state)
{
    static const char *const models[] = {"torchvision_v2", "timm_v2",
                                         "transformers_v2"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        const wa_swin_config config = golden_config(models[i]);
        wa_swin_weights *w = opened(models[i], &config);
        snprintf(name, sizeof name, "models/%s", models[i]);
        npy_array want = loaded(name, "tables");
        double *got = malloc(want.count * sizeof *got);
        size_t at = 0;
        for (uint32_t stage = 0; stage < w->config.stages; stage++)
            for (uint32_t block = 0; block < w->config.depths[stage]; block++)
                for (uint32_t j = 0; j < wa_table_entries(&w->config, stage) *
                                             w->config.heads[stage];
                     j++)
                    got[at++] = w->stages[stage].blocks[block].table[j];
        assert_int_equal(at, want.count);
        assert_close(models[i], got, want.value, at, 3e-7);
        free(got);
        npy_free(&want);
        winattn_swin_weights_destroy(w);
    }
}

/* Each tensor is where it belongs: a block, a merging, the ends. */
static void test_torchvision(void **state)
{
    (void)state;
    for (int generation = 1; generation <= 2; generation++) {
        const char *model =
            generation == 1 ? "torchvision_v1" : "torchvision_v2";
        wa_safetensors *file = tensors_of(model);
        wa_swin_weights *w = opened(model, NULL);
        const wa_swin_block_weights *b = &w->stages[1].blocks[1];
        const float *bias = b->qkv_bias;
        assert_tensor(file, "features.0.0.weight", w->patch_weight);
        assert_tensor(file, "features.0.2.bias", w->patch_norm_bias);
        assert_tensor(file, "features.2.norm.weight",
                      w->stages[0].merge_norm_weight);
        assert_tensor(file, "features.2.reduction.weight",
                      w->stages[0].merge_weight);
        assert_null(w->stages[1].merge_weight);
        assert_tensor(file, "features.3.1.norm1.bias", b->norm1_bias);
        assert_tensor(file, "features.3.1.norm2.weight", b->norm2_weight);
        assert_tensor(file, "features.3.1.attn.qkv.weight", b->qkv_weight);
        assert_tensor(file, "features.3.1.attn.proj.weight", b->proj_weight);
        assert_tensor(file, "features.3.1.mlp.0.bias", b->fc1_bias);
        assert_tensor(file, "features.3.1.mlp.3.weight", b->fc2_weight);
        assert_tensor(file, "norm.weight", w->norm_weight);
        assert_tensor(file, "head.bias", w->head_bias);
        if (generation == 1) {
            assert_tensor(file, "features.3.1.attn.qkv.bias", bias);
            assert_tensor(file,
                          "features.3.1.attn.relative_position_bias_"
                          "table",
                          b->table);
            assert_null(b->logit_scale);
        } else { /* the file has a bias of k, without effect there */
            assert_zeros(bias + 32, 32);
            assert_tensor(file, "features.3.1.attn.logit_scale",
                          b->logit_scale);
        }
        winattn_swin_weights_destroy(w);
        wa_safetensors_close(file);
    }
}

static void test_timm(void **state)
{
    (void)state;
    const wa_swin_config config = golden_config("timm_v2");
    wa_safetensors *file = tensors_of("timm_v2");
    wa_swin_weights *w = opened("timm_v2", &config);
    const wa_swin_block_weights *b = &w->stages[1].blocks[0];
    assert_tensor(file, "layers.1.downsample.reduction.weight",
                  w->stages[0].merge_weight);
    assert_tensor(file, "layers.1.blocks.0.attn.q_bias", b->qkv_bias);
    assert_zeros(b->qkv_bias + 32, 32);
    assert_tensor(file, "layers.1.blocks.0.attn.v_bias", b->qkv_bias + 64);
    assert_tensor(file, "head.fc.weight", w->head_weight);
    winattn_swin_weights_destroy(w);
    wa_safetensors_close(file);
}

static void test_transformers(void **state)
{
    (void)state;
    for (int generation = 1; generation <= 2; generation++) {
        const char *model =
            generation == 1 ? "transformers_v1" : "transformers_v2";
        static const char *const parts[] = {"query", "key", "value"};
        const wa_swin_config config = golden_config(model);
        wa_safetensors *file = tensors_of(model);
        wa_swin_weights *w = opened(model, &config);
        const wa_swin_block_weights *b = &w->stages[1].blocks[1];
        for (size_t i = 0; i < 3; i++) {
            char name[256];
            const int length =
                snprintf(name, sizeof name,
                         "swin%s.encoder.layers.1.blocks.1.attention.self.%s.",
                         generation == 1 ? "" : "v2", parts[i]);
            snprintf(name + length, sizeof name - (size_t)length, "weight");
            assert_tensor(file, name, b->qkv_weight + i * 32 * 32);
            snprintf(name + length, sizeof name - (size_t)length, "bias");
            if (generation == 2 && i == 1)
                assert_zeros(b->qkv_bias + 32, 32);
            else
                assert_tensor(file, name, b->qkv_bias + i * 32);
        }
        winattn_swin_weights_destroy(w);
        wa_safetensors_close(file);
    }
}

static void test_describes(void **state)
{
    static const char wanted[] =
        "names of timm in F16; computed as timm does: windows of 4x4, 4x4, "
        "2x4, shifted each axis that is longer than its window, rolled, then "
        "padded";
    char text[sizeof wanted];
    size_t needed;
    (void)state;
    const wa_swin_config config = golden_config("timm_v1");
    winattn_swin_weights *w = opened("timm_v1", &config);
    assert_status(winattn_swin_weights_describe(w, 0, NULL, &needed), 0, "");
    assert_int_equal(needed, sizeof wanted);
    assert_status(winattn_swin_weights_describe(w, sizeof text, text, NULL), 0,
                  "");
    assert_string_equal(text, wanted);
    winattn_swin_weights_destroy(w);
    winattn_swin_weights_destroy(NULL);
}

/* Coordinates as Swin V2 keeps them when it was pretrained with other windows,
 * 3 x 3, than the 5 x 3 that it has. */
static void set_pretraining(file_edit *tensor, void *data)
{
    float *values = data;
    if (!strstr(tensor->name, "relative_coords_table"))
        return;
    for (int y = 0; y < 9; y++)
        for (int x = 0; x < 5; x++) {
            *values++ = (float)wa_log_coordinate(y - 4, 3);
            *values++ = (float)wa_log_coordinate(x - 2, 3);
        }
    tensor->values = data;
}

static void test_pretraining(void **state)
{
    float values[9 * 5 * 2];
    wa_swin_weights *w, *plain = opened("torchvision_v2", NULL);
    wa_safetensors *file = tensors_of("torchvision_v2");
    const file_bytes made = file_edited(file, set_pretraining, values);
    (void)state;
    /* log2(8 * 4 / 2 + 1) / 3 */
    assert_true(fabsf(values[0] + 1.3624876F) < 1e-6F);
    assert_status(wa_swin_weights_read(made.bytes, made.size, NULL, &w), 0,
                  "");
    for (uint32_t stage = 0; stage < 2; stage++)
        for (int axis = 0; axis < 2; axis++)
            assert_int_equal(w->config.position_window[stage][axis], 3);
    /* in the middle, nothing has changed */
    const wa_swin_block_weights *b = &w->stages[0].blocks[0];
    const wa_swin_block_weights *p = &plain->stages[0].blocks[0];
    assert_memory_equal(b->table + 4 * 5 * 2, p->table + 4 * 5 * 2,
                        5 * 2 * sizeof(float));
    assert_memory_not_equal(b->table, p->table, 5 * 2 * sizeof(float));
    winattn_swin_weights_destroy(w);
    winattn_swin_weights_destroy(plain);
    wa_safetensors_close(file);
    free(made.bytes);
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
    const wa_swin_config config = golden_config(model);
    wa_safetensors *file = tensors_of(model);
    for (size_t i = 0; i < wa_safetensors_count(file); i++)
        for (int kind = FAULT_DROP; kind <= FAULT_TYPE; kind++) {
            wa_swin_weights *w;
            fault f = {wa_safetensors_at(file, i)->name, 0};
            f.kind = kind;
            const bool buffer = wa_name_is_buffer(f.name);
            if (buffer && kind == FAULT_RENAME)
                continue;
            const file_bytes made = file_edited(file, put_fault, &f);
            const winattn_status status =
                wa_swin_weights_read(made.bytes, made.size, &config, &w);
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
            free(made.bytes);
        }
    wa_safetensors_close(file);
}

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; golden_models[i]; i++)
        check_faults(golden_models[i]);
}

static void test_config_disagrees(void **state)
{
    winattn_swin_weights *w;
    wa_swin_config config = {.struct_size = sizeof config, .classes = 1000};
    (void)state;
    assert_status(
        winattn_swin_weights_open(golden_path("torchvision_v1"), &config, &w),
        WINATTN_INVALID_FILE,
        "head.weight: has shape [64, 32]; this model needs [1000, 32]");
    config.classes = 0;
    config.depths[1] = 3;
    assert_status(
        winattn_swin_weights_open(golden_path("torchvision_v1"), &config, &w),
        WINATTN_INVALID_FILE, "features.3.2.norm1.weight: the file lacks");
    config.depths[1] = 1;
    assert_status(
        winattn_swin_weights_open(golden_path("torchvision_v1"), &config, &w),
        WINATTN_INVALID_FILE, "features.3.1.");
    config.depths[1] = 0;
    config.struct_size = 8;
    assert_status(
        winattn_swin_weights_open(golden_path("torchvision_v1"), &config, &w),
        WINATTN_INVALID_ARGUMENT, "struct_size");
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
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_inferred),
        cmocka_unit_test(test_windows_unknown),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_torchvision),
        cmocka_unit_test(test_timm),
        cmocka_unit_test(test_transformers),
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
