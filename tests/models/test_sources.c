/* SPDX-License-Identifier: Apache-2.0
 * Files as torchvision, timm, Microsoft and transformers write them, of models
 * of four stages, with nothing said of them but their path: what comes out is
 * what the library computes (golden/make_sources.py), of pictures of the
 * model's size and of others.
 *
 *   test_sources TIER [few | each | all]
 *
 * few: of tier cpu every source, of others one, in fp32, where an error of a
 * rule is a thousand times what is allowed; each: every source; all: also in
 * fp16 and bf16, where few channels make PyTorch's own errors large. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "model_run.h"

/* In fp32; in other types, and where it is more, the errors of PyTorch in the
 * same type count. */
#define MOST_ERROR 2e-5
#define OF_PYTORCH 1.5

#define TIMM_V2 3 /* rolls before it pads, and keeps its shifts */
#define OUTPUTS (1 + WINATTN_SWIN_STAGES)

static wa_safetensors *truth_file(const char *source)
{
    char path[1024];
    wa_safetensors *truth;
    snprintf(path, sizeof path, "%s/sources/%s/truth.safetensors",
             GOLDEN_FOLDER, source);
    assert_status(wa_safetensors_open(path, &truth), 0, "");
    return truth;
}

/* A tensor of a picture, NULL if there is none. */
static double *truth_of(const wa_safetensors *truth, size_t picture,
                        const char *part, const wa_file_tensor **found)
{
    char name[64];
    snprintf(name, sizeof name, "%zu.%s", picture, part);
    *found = wa_safetensors_find(truth, name);
    if (!*found)
        return NULL;
    const size_t count = (size_t)(*found)->count;
    float *values = malloc(count * sizeof *values);
    double *wide = numbers(count);
    assert_non_null(values);
    assert_status(wa_tensor_floats(*found, values), 0, "");
    for (size_t i = 0; i < count; i++)
        wide[i] = values[i];
    free(values);
    return wide;
}

/* What is compared with the truth, and what it is called there. */
static model_tensor *output_of(model_run *r, int output, char name[16])
{
    snprintf(name, 16, "logits");
    if (output == 0)
        return &r->logits;
    snprintf(name, 16, "stage%d", output - 1);
    return &r->maps[output - 1];
}

static void check_outputs(const char *source, winattn_dtype dtype,
                          const wa_safetensors *truth, size_t picture,
                          model_run *r)
{
    const wa_file_tensor *found;
    double *errors = truth_of(truth, picture, "errors", &found);
    assert_non_null(errors);
    for (int i = 0; i < OUTPUTS; i++) {
        char name[16], what[96];
        model_tensor *got = output_of(r, i, name);
        double *want = truth_of(truth, picture, name, &found);
        double most = OF_PYTORCH * errors[dtype * OUTPUTS + i];
        if (!want)
            continue;
        if (dtype == WINATTN_FP32 && most < MOST_ERROR)
            most = MOST_ERROR;
        assert_int_equal(found->count, got->count);
        tensor_read(got);
        snprintf(what, sizeof what, "%s, type %d, picture %zu, %s", source,
                 dtype, picture, name);
        assert_error(what, got->value, want, got->count, most);
    }
}

static void check_source(const char *source, winattn_dtype dtype)
{
    wa_safetensors *truth = truth_file(source);
    winattn_swin_weights *weights = opened(source);
    const wa_file_tensor *found;
    double *input;
    size_t picture = 0;
    for (; (input = truth_of(truth, picture, "input", &found)); picture++) {
        const winattn_model_desc desc = {.dtype = dtype,
                                         .batch = 1,
                                         .height = (cl_uint)found->extent[2],
                                         .width = (cl_uint)found->extent[3],
                                         .pictures = WINATTN_PICTURES_PLANES};
        model_run r = run_of(&desc, weights, KIND_FP32, input);
        run_enqueue(&r, device.queue);
        check_outputs(source, dtype, truth, picture, &r);
        winattn_model_destroy(r.model);
        tensors_free();
    }
    assert_true(picture > 0);
    wa_safetensors_close(truth);
    winattn_swin_weights_destroy(weights);
}

static void each_source(void **state)
{
    const bool is_cpu = tier_under_test() == WINATTN_TIER_CPU;
    (void)state;
    /* row 0, as every third row from there on is of fp32 */
    for (size_t i = 0; sources[i]; i++)
        for (int dtype = WINATTN_FP32; dtype <= WINATTN_BF16; dtype++)
            if (is_chosen(0, is_cpu || i == TIMM_V2, (winattn_dtype)dtype))
                check_source(sources[i], (winattn_dtype)dtype);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_source)};
    const test_group groups[] = {TEST_GROUP(NULL, tests)};
    return models_main(groups, 1, count, arguments);
}
