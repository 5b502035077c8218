/* SPDX-License-Identifier: Apache-2.0
 * Files under other names than the golden ones have, and without tensors that
 * options of the libraries leave out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

typedef struct renaming {
    const char *from, *to;
} renaming;

static void replace_part(char name[256], const renaming *r)
{
    char rest[256];
    char *at = strstr(name, r->from);
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(r->from));
    snprintf(at, (size_t)(name + 256 - at), "%s%s", r->to, rest);
}

static void rename_all(file_edit *tensor, void *data)
{
    for (const renaming *r = data; r->from; r++)
        replace_part(tensor->name, r);
}

/* Under other names the file has the same weights. */
static void assert_renamed(const char *model, const renaming *renamings,
                           const char *origin)
{
    wa_swin_weights *again;
    const wa_swin_config config = source_config(model);
    wa_swin_weights *w = opened(model);
    assert_status(read_edited(model, rename_all, (void *)(uintptr_t)renamings,
                              &config, &again),
                  0, "");
    if (!strstr(again->origin, origin))
        fail_msg("%s is not %s", again->origin, origin);
    assert_memory_equal(w->values, again->values,
                        (size_t)w->count * sizeof(float));
    winattn_swin_weights_destroy(again);
    winattn_swin_weights_destroy(w);
}

/* Names behind what wrappers put before them. */
static void test_wrapped(void **state)
{
    static const char *const rows[][3] = {
        {"torchvision_v1", "_orig_mod.module.", "behind _orig_mod.module."},
        {"timm_v1", "backbone.", "names of timm behind backbone."},
        {"transformers_v2", "net.", "behind net."}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const renaming names[] = {{"", rows[i][1]}, {NULL, NULL}};
        assert_renamed(rows[i][0], names, rows[i][2]);
    }
}

static void wrap_and_add(file_edit *tensor, void *data)
{
    const renaming whole[] = {{"head.fc.bias", data},
                              {"head.fc.weight", "rpn.weight"},
                              {"", "backbone."}};
    for (size_t i = 0; i < 3; i++)
        if (strstr(tensor->name, whole[i].from)) {
            if (i < 2)
                tensor->name[0] = 0;
            replace_part(tensor->name, &(renaming){"", whole[i].to});
            return;
        }
}

/* A model that is part of another one: its own tensors count, and all of them
 * must be known; a second one is named. */
static void test_part(void **state)
{
    static const struct {
        const char *name, *culprit;
    } rows[] = {{"neck.bias", ""},
                {"x.patch_embed.proj.weight", "several models"}};
    const wa_swin_config config = source_config("timm_v1");
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        wa_swin_weights *w;
        assert_status(read_edited("timm_v1", wrap_and_add,
                                  (void *)(uintptr_t)rows[i].name, &config,
                                  &w),
                      i == 0 ? 0 : WINATTN_INVALID_FILE, rows[i].culprit);
        if (w && !strstr(w->origin, "without 2 tensors of other parts"))
            fail_msg("%s", w->origin);
        winattn_swin_weights_destroy(w);
    }
}

static void without_biases(file_edit *tensor, void *data)
{
    const char *const *ends = data;
    for (; *ends; ends++)
        if (strstr(tensor->name, *ends))
            tensor->dropped = true;
}

/* qkv_bias=False: none has any, which is as if all were 0. */
static void test_no_qkv_bias(void **state)
{
    static const struct {
        const char *model;
        const char *ends[4];
    } rows[] = {{"torchvision_v1", {"qkv.bias"}},
                {"timm_v2", {"q_bias", "v_bias"}},
                {"transformers_v1", {"query.bias", "key.bias", "value.bias"}}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wa_swin_weights *w;
        const wa_swin_config config = source_config(rows[i].model);
        assert_status(read_edited(rows[i].model, without_biases,
                                  (void *)(uintptr_t)rows[i].ends, &config,
                                  &w),
                      0, "");
        for (uint32_t j = 0; j < w->config.stages; j++)
            assert_zeros(w->stages[j].blocks[0].qkv_bias,
                         3 * wa_swin_channels(&w->config, j));
        winattn_swin_weights_destroy(w);
    }
}

static void features_only(file_edit *tensor, void *data)
{
    (void)data;
    if (strncmp(tensor->name, "layers.", 7) == 0)
        tensor->name[6] = '_';
    tensor->dropped = strncmp(tensor->name, "norm.", 5) == 0 ||
                      strncmp(tensor->name, "head.", 5) == 0;
}

/* timm's features_only has neither a last norm nor a head. */
static void test_features_only(void **state)
{
    wa_swin_weights *w;
    (void)state;
    const wa_swin_config config = source_config("timm_v1");
    wa_safetensors *file = tensors_of("timm_v1");
    assert_status(read_edited("timm_v1", features_only, NULL, &config, &w), 0,
                  "");
    assert_true(w->config.no_norm && w->config.classes == 0);
    assert_null(w->norm_weight);
    assert_non_null(strstr(w->origin, "timm (features_only)"));
    assert_tensor(file, "layers.2.downsample.reduction.weight",
                  w->stages[1].merge_weight);
    winattn_swin_weights_destroy(w);
    wa_safetensors_close(file);
}

static void test_transformers_modules(void **state)
{
    static const renaming renamings[] = {
        {"attention.self.query", "attention.q_proj"},
        {"attention.self.key", "attention.k_proj"},
        {"attention.self.value", "attention.v_proj"},
        {"attention.output.dense", "attention.o_proj"},
        {"intermediate.dense", "mlp.fc1"},
        {"output.dense", "mlp.fc2"},
        {"attention.self.relative_position_bias_table",
         "attention.relative_position_bias.relative_position_bias_table"},
        {NULL, NULL}};
    static const renaming bare[] = {{"swin.", ""}, {NULL, NULL}};
    (void)state;
    assert_renamed("transformers_v1", renamings, "transformers (modules)");
    assert_renamed("transformers_v1", bare, "transformers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_part),
        cmocka_unit_test(test_no_qkv_bias),
        cmocka_unit_test(test_features_only),
        cmocka_unit_test(test_transformers_modules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
